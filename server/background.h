/* SPDX-License-Identifier: MIT */
/*
 * Responses that are made whether their client waits or not: it asks for them later, by their id,
 * reads their events from anywhere on, or cancels them.
 */
#ifndef MF_SERVER_BACKGROUND_H
#define MF_SERVER_BACKGROUND_H

#include "http.h"

/* The request's job can be found by its id from now on; it is to be submitted then. *reader: what
 * the connection reads, a job's channel that is nobody's yet; NULL: it gets the request's answer.
 */
bool mf_srv_background_begin(mf_srv_request *request, mf_srv_job **reader, mf_srv_refusal *r);
/* It was not submitted. */
void mf_srv_background_undo(mf_srv_request *request, mf_srv_job **reader);

/* For its API. */
/* A job that reads another's events behind the first n_skip. NULL: no memory. */
mf_srv_job *mf_srv_background_reader(mf_srv_job *job, size_t n_skip);

#endif

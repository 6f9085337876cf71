/* SPDX-License-Identifier: MIT */
/* Responses as their API writes them. */
#ifndef MF_SERVER_API_RESPONSES_H
#define MF_SERVER_API_RESPONSES_H

#include "api.h"

/* The object before it is over: nothing of the answer. status: "queued", "in_progress" or
 * "cancelled". From any thread. */
void mf_srv_put_response_yet(const mf_srv_job *job, const char *status, mf_srv_bytes *out);
/* The first events of one that waits in the background. Before the job is the scheduler's. */
void mf_srv_put_queued_events(mf_srv_job *job, mf_srv_bytes *out);

#endif

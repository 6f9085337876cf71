/* SPDX-License-Identifier: MIT */
/* What a request for a response asks about: its own items, behind those of an earlier one. */
#ifndef MF_SERVER_API_RESPONSES_ASKED_H
#define MF_SERVER_API_RESPONSES_ASKED_H

#include "api.h"

/* Zero-initialise. */
typedef struct mf_srv_asked {
    yyjson_val *items;     /* a string, or an array of items */
    size_t n_earlier;      /* of the items, those of earlier responses */
    yyjson_doc *doc;       /* what they are of; NULL: the request */
    yyjson_doc *looked_at; /* the items among which a reference was looked for last; NULL: none */
    size_t n_looked_at;    /* in bytes, for all references */
    size_t n_referred;     /* bytes of the items that they lead to */
    mf_srv_bytes text;     /* the items as JSON without brackets; data NULL: not written yet */
    mf_srv_bytes own;      /* those of them that the request says itself, once they are written */
    char conversation[MF_SRV_ID_BYTES]; /* which goes on; "": none */
} mf_srv_asked;

/* Finds previous_response_id or conversation, and what items refer to. *asked is to be freed in any
 * case. */
bool mf_srv_asked_open(mf_srv_request *request, mf_srv_asked *asked, mf_srv_refusal *r);
void mf_srv_asked_free(mf_srv_asked *asked);
/* What the answer is kept by, and what of the request it repeats. */
bool mf_srv_asked_give(mf_srv_asked *asked, mf_srv_request *request, mf_srv_job *job,
                       mf_srv_refusal *r);
/* include: logprobs, thoughts that the client carries. */
bool mf_srv_asked_include(yyjson_val *object, mf_srv_job *job, mf_srv_refusal *r);

#endif

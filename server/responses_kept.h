/* SPDX-License-Identifier: MIT */
/*
 * Responses that were given, for requests that go on from one by its id: so many bytes of them,
 * those used last, in memory alone. Any thread may ask. An id opens nothing for another key than
 * the one that it was given to.
 */
#ifndef MF_SERVER_RESPONSES_KEPT_H
#define MF_SERVER_RESPONSES_KEPT_H

#include "bytes.h"

#define MF_SRV_RESPONSE_BYTES ((size_t)32 << 20)

typedef struct mf_srv_responses mf_srv_responses;

/* NULL: no memory. */
mf_srv_responses *mf_srv_responses_new(size_t max_bytes);
void mf_srv_responses_free(mf_srv_responses **responses);

/* Takes the texts over, in any case. items: of the conversation, the response's own among them, as
 * JSON without brackets; response: the object. who: the key's number. */
void mf_srv_responses_put(mf_srv_responses *responses, const char *id, size_t who,
                          mf_srv_bytes *items, mf_srv_bytes *response);
/* Puts copies behind what the bytes have; either may be NULL. False: there is none of that id. */
bool mf_srv_responses_find(mf_srv_responses *responses, const char *id, size_t who,
                           mf_srv_bytes *items, mf_srv_bytes *response);
/* False: there is none. */
bool mf_srv_responses_drop(mf_srv_responses *responses, const char *id, size_t who);

#endif

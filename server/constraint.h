/* SPDX-License-Identifier: MIT */
/* What an answer must look like, as the APIs ask for it: response_format and its like, grammar. */
#ifndef MF_SERVER_CONSTRAINT_H
#define MF_SERVER_CONSTRAINT_H

#include "conversation.h"

/* response_format (field says its name for refusals), text.format, output_config.format: an object
 * with a type; and the member grammar of object. Both NULL or absent: nothing. What is asked for is
 * compiled here, by the connection's thread; what cannot be held to is refused. */
bool mf_srv_read_constraint(yyjson_val *object, yyjson_val *format, const char *field,
                            mf_srv_job *job, mf_srv_refusal *r);
/* A call that must come, or calls that are held to their tools' schemas if they come. A format that
 * was read before goes before the latter, and excludes the former. */
bool mf_srv_read_calls(const mf_srv_conversation *c, mf_srv_job *job, mf_srv_refusal *r);
/* The choice's own guide and mask, if the job has one. */
bool mf_srv_constraint_begin(mf_srv_choice *c);
/* The sampler's choice among what is allowed, by the session's logits. False: the refusal says why
 * there is none. */
bool mf_srv_constraint_sample(mf_srv_choice *c, const mf_session *session, int32_t *token,
                              mf_srv_refusal *r);
/* Takes a token of the answer. False: it is not allowed. */
bool mf_srv_constraint_take(mf_srv_choice *c, int32_t token, mf_srv_refusal *r);
/* The answer is whole, and nothing may follow it. */
/* The one token that may come next, so that nothing is to be sampled; -1: there are several. */
int32_t mf_srv_constraint_forced(mf_srv_choice *choice);
bool mf_srv_constraint_is_done(const mf_srv_choice *c);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * From sampled tokens to what the client gets: whole characters, thoughts and calls apart from
 * content, no part of a stop string, the logprobs of the tokens that are in it.
 */
#ifndef MF_SERVER_ANSWER_H
#define MF_SERVER_ANSWER_H

#include "job.h"

/* A token of the answer; logits: those that it was sampled from. False: the answer ends here, at a
 * stop string (stopped_by), or because nothing more is wanted of it (is_done). */
bool mf_srv_answer_token(mf_srv_choice *c, int32_t token, const float *logits);
/* A token of the prompt that is given back. is_text: what it stands for is what was asked. logits:
 * NULL for the first. */
void mf_srv_answer_echo(mf_srv_choice *c, int32_t token, bool is_text, const float *logits);
/* Nothing follows: what was held back goes out. was_cut: it was not the model that ended it. */
void mf_srv_answer_end(mf_srv_choice *c, bool was_cut);
/* The next token is one of a thought. */
bool mf_srv_answer_is_thought(const mf_srv_choice *c);

#endif

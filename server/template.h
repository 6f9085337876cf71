/* SPDX-License-Identifier: MIT */
/*
 * The model's chat template, asked for a conversation or its beginning. A template that refuses is
 * asked again with the same said in other ways; the one that it took is kept for what is asked
 * later of the same conversation.
 */
#ifndef MF_SERVER_TEMPLATE_H
#define MF_SERVER_TEMPLATE_H

#include "model.h"
#include "prompt.h"
#include "prompt_json.h"

typedef struct mf_srv_writing {
    const mf_srv_model *model;
    const mf_srv_conversation *conversation;
    unsigned ways; /* of prompt_json.h */
    int64_t now;   /* what the template takes for the time */
} mf_srv_writing;

/* The text of the conversation's first n_messages, with or without the beginning of an answer.
 * Finds the ways. */
mf_status mf_srv_template_begin(mf_srv_writing *w, size_t n_messages, bool opens_answer,
                                mf_srv_bytes *text, mf_error *error);
/* The text of other messages [n], in the same ways. */
mf_status mf_srv_template_text(const mf_srv_writing *w, const mf_srv_message *messages, size_t n,
                               bool opens_answer, mf_srv_bytes *text, mf_error *error);
/* Its tokens, from the text's byte n_skip on. */
mf_status mf_srv_template_tokens(const mf_srv_writing *w, const mf_srv_message *messages, size_t n,
                                 bool opens_answer, size_t n_skip, mf_srv_prompt *out,
                                 mf_error *error);
/* Whether the model has a template, and where it looks for thoughts. */
void mf_srv_template_learn(mf_srv_model *model);
/* The texts of the tokens at which answers end. */
void mf_srv_template_learn_ends(mf_srv_model *model);

#endif

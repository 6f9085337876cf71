/* SPDX-License-Identifier: MIT */
/*
 * From conversations to tokens: the one place that asks a chat template. A template that refuses a
 * conversation is asked again with the same said in other ways (prompt_json.h).
 */
#ifndef MF_SERVER_PROMPT_H
#define MF_SERVER_PROMPT_H

#include "recall.h"

#include <moeflux/moeflux.h>

#define MF_SRV_MAX_MARKS 3

typedef struct mf_srv_prompt {
    int32_t *tokens; /* from malloc */
    size_t n_tokens;
    /* Places that later prompts will share, rising. */
    size_t marks[MF_SRV_MAX_MARKS];
    size_t n_marks;
    bool has_start; /* the first token was put there, and is not in what was asked */
    mf_srv_origin origin;
    mf_srv_bytes text; /* as the template wrote it; data NULL: not by one */
} mf_srv_prompt;

void mf_srv_prompt_free(mf_srv_prompt *prompt);

struct mf_srv_model;

/* The tokens of a conversation, with the beginning of an answer. A last message of the assistant is
 * continued, unless it calls. Answers in it that were given here get their own words again. */
bool mf_srv_prompt_chat(const struct mf_srv_model *model, mf_srv_conversation *c,
                        mf_srv_prompt *out, mf_srv_refusal *refusal);
/* Its text. */
bool mf_srv_prompt_chat_text(const struct mf_srv_model *model, const mf_srv_conversation *c,
                             mf_srv_bytes *out, mf_srv_refusal *refusal);
/* Marks of a prompt that may come again as it is. In the store marks have no logits, so there the
 * token before the last has one as well. */
void mf_srv_prompt_mark_end(const struct mf_srv_model *model, mf_srv_prompt *prompt);
/* Text as it is, after the token that texts begin with. */
bool mf_srv_prompt_text(const struct mf_srv_model *model, const char *text, size_t n_bytes,
                        bool parse_special, mf_srv_prompt *out, mf_srv_refusal *refusal);
/* A gap between two texts, for models that know how one is asked to be filled; others are refused.
 */
bool mf_srv_prompt_gap(const struct mf_srv_model *model, const char *before, size_t n_before,
                       const char *behind, size_t n_behind, mf_srv_prompt *out,
                       mf_srv_refusal *refusal);
/* Text as tokens, nothing added; special tokens are read if parse_special. */
bool mf_srv_encode(const struct mf_srv_model *model, const char *text, size_t n_bytes,
                   bool parse_special, mf_srv_prompt *out, mf_srv_refusal *refusal);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Thoughts that a template drops and a client wants kept: the text that it wrote, beside the tokens
 * that were there when they were thought.
 */
#ifndef MF_SERVER_DROPPED_THOUGHTS_H
#define MF_SERVER_DROPPED_THOUGHTS_H

#include "bytes.h"
#include "model.h"

/* Whether text begins with what the tokens [n] say, an answer at their end, but for thoughts, which
 * may be in either, and blanks; a token that ends answers comes next. *n_bytes: up to that, set
 * if so. False also where the model's syntax has no marks of thoughts, or memory is short. */
bool mf_srv_follows_but_thoughts(const mf_srv_model *model, const int32_t *tokens, size_t n,
                                 const mf_srv_bytes *text, size_t *n_bytes);

#endif

/* SPDX-License-Identifier: MIT */
/* A Unigram model from tokenizer.json's "model" object. */
#ifndef MF_TEXT_UNIGRAM_LOAD_H
#define MF_TEXT_UNIGRAM_LOAD_H

#include "text/unigram.h"

/* Whether the file's model says that it is one. */
bool mf_unigram_is_in(const mf_json *json);
/* *u and *bpe are zeroed by the caller, but for what mf_bpe_load takes, and freed after a failure,
 * too. */
mf_status mf_unigram_load(mf_unigram *u, mf_bpe *bpe, const mf_allocator *a, const mf_json *json,
                          mf_error *error);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Kimi's tokenizer files: tiktoken.model, a line "BASE64 RANK" for each token, where the rank is
 * the token's id; and added_tokens_decoder of tokenizer_config.json, which names some of the 256
 * special tokens that follow. The other 256 are <|reserved_token_ID|>.
 */
#ifndef MF_TEXT_TIKTOKEN_H
#define MF_TEXT_TIKTOKEN_H

#include "text/added_tokens.h"

#define MF_N_KIMI_SPECIALS ((size_t)256)

/* What cuts text into words in tokenization_kimi.py, in the syntax that mf_regex_compile reads. */
extern const char mf_kimi_pattern[];

/*
 * Loads both from memory; `path` names the first in messages, and config is NULL where there is no
 * tokenizer_config.json. *bpe and *added are zeroed by the caller and freed after a failure too.
 * Errors: MF_ERR_FORMAT, _UNSUPPORTED, _NO_MEMORY.
 */
mf_status mf_tiktoken_load(mf_bpe *bpe, mf_added_tokens *added, const mf_allocator *a,
                           const char *path, const char *text, size_t n_bytes,
                           const mf_json *config, mf_error *error);

#endif

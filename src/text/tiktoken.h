/* SPDX-License-Identifier: MIT */
/*
 * Kimi's tokenizer files: tiktoken.model, a line "BASE64 RANK" for each token, where the rank is
 * the token's id; and added_tokens_decoder of tokenizer_config.json, which names some of the 256
 * special tokens that follow. The other 256 are <|reserved_token_ID|>. And Hunyuan's: hy.tiktoken,
 * of the same lines, with the special tokens that tokenization_hy.py names.
 */
#ifndef MF_TEXT_TIKTOKEN_H
#define MF_TEXT_TIKTOKEN_H

#include "text/added_tokens.h"

#define MF_N_KIMI_SPECIALS ((size_t)256)
#define MF_N_HUNYUAN_SPECIALS ((size_t)210)

/* What cuts text into words in tokenization_kimi.py, in the syntax that mf_regex_compile reads. */
extern const char mf_kimi_pattern[];
/* The same of tokenization_hy.py. */
extern const char mf_hunyuan_pattern[];

/* Both files, in memory. */
typedef struct mf_tiktoken_files {
    const char *path; /* of the first, for messages */
    const char *text; /* the first's content */
    size_t n_bytes;
    const mf_json *config; /* the second; NULL where there is none */
    bool is_hunyuan;
} mf_tiktoken_files;

/* *bpe and *added are zeroed by the caller and freed after a failure too. Errors: MF_ERR_FORMAT,
 * _UNSUPPORTED, _NO_MEMORY. */
mf_status mf_tiktoken_load(mf_bpe *bpe, mf_added_tokens *added, const mf_allocator *a,
                           const mf_tiktoken_files *files, mf_error *error);

#endif

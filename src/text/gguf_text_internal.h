/* SPDX-License-Identifier: MIT */
/* Between gguf_text.c, which reads what all vocabularies have, and those of a kind. */
#ifndef MF_TEXT_GGUF_TEXT_INTERNAL_H
#define MF_TEXT_GGUF_TEXT_INTERNAL_H

#include "text/gguf_text.h"

#define MF_GGUF_MAX_TOKENS ((size_t)1 << 24)

/* Of a token, as tokenizer.ggml.token_type numbers them. */
enum {
    MF_GGUF_NORMAL = 1,
    MF_GGUF_UNKNOWN,
    MF_GGUF_CONTROL,
    MF_GGUF_USER_DEFINED,
    MF_GGUF_UNUSED,
    MF_GGUF_BYTE
};

typedef struct mf_gguf_text_reader {
    const mf_gguf *gguf;
    const mf_gguf_value *tokens, *types, *merges;
    mf_buffer json;
    mf_error *error;
} mf_gguf_text_reader;

/* "FILE: key tokenizer.ggml.KEY WHAT" */
mf_status mf_gguf_text_fail(const mf_gguf_text_reader *t, mf_status code, const char *key,
                            const char *what);
/* The array of that key behind tokenizer.ggml.; NULL where there is none. */
mf_status mf_gguf_text_array(const mf_gguf_text_reader *t, const char *key, bool is_text,
                             const mf_gguf_value **out);
bool mf_gguf_text_flag(const mf_gguf_text_reader *t, const char *key, bool fallback);
/* The id that a key names, -1 where it names none. */
mf_status mf_gguf_text_id(const mf_gguf_text_reader *t, const char *key, int32_t *out);
int mf_gguf_token_type(const mf_gguf_text_reader *t, uint64_t id);

/* gguf_spm.c */
mf_status mf_gguf_open_spm(mf_gguf_text_reader *t, const mf_allocator *a, bool is_unigram,
                           mf_tokenizer **out);

#endif

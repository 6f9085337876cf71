/* SPDX-License-Identifier: MIT */
/* GGUF heads for the tests of text, with what a tokenizer.json has. */
#ifndef MF_TESTS_GGUF_WRITER_H
#define MF_TESTS_GGUF_WRITER_H

#include "text/gguf_text.h"

typedef struct gguf_head {
    unsigned char *bytes; /* freed by the caller */
    size_t n, capacity;
    uint64_t n_values;
} gguf_head;

/* A head with no keys yet; the count is put right by gguf_head_take. */
void gguf_head_begin(gguf_head *head, const char *model);
void gguf_head_put_string(gguf_head *head, const char *key, const char *text);
void gguf_head_put_number(gguf_head *head, const char *key, uint32_t number);
void gguf_head_put_bool(gguf_head *head, const char *key, bool value);
/* Three tokens; of a type each, and scores unless NULL. */
void gguf_head_put_tokens(gguf_head *head, const char *const texts[3], const uint32_t types[3],
                          const float *scores);
/* Vocabulary, types and merges of tests/text/data/NAME/tokenizer.json. */
void gguf_head_put_tokenizer(gguf_head *head, const char *name);
/* The tokenizer of the head; NULL with *error filled. Frees the head. */
mf_tokenizer *gguf_head_take(gguf_head *head, mf_error *error);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * What a GGUF file says of text: vocabulary, merges, pre-tokenizer by name, end and start tokens,
 * chat templates. A byte-level vocabulary is written as the tokenizer.json that it was made from
 * and loaded as one, so that there is one reader of both.
 */
#ifndef MF_TEXT_GGUF_TEXT_H
#define MF_TEXT_GGUF_TEXT_H

#include "format/gguf.h"
#include "text/tokenizer.h"

/* The tokenizer of a model's first file. */
mf_status mf_text_open_gguf(const char *file, const mf_allocator *a, mf_tokenizer **out,
                            mf_error *error);
/* The same of a head that has been read. */
mf_status mf_text_of_gguf(const mf_gguf *gguf, const mf_allocator *a, mf_tokenizer **out,
                          mf_error *error);

/* A pre-tokenizer that files name: the patterns that cut one after another, in the syntax of
 * tokenizer.json. */
#define MF_PRETOKENIZER_STEPS 6

typedef struct mf_named_pretokenizer {
    const char *names; /* each between blanks */
    const char *patterns[MF_PRETOKENIZER_STEPS];
    bool uses_nfc, ignores_merges, adds_start;
    bool is_kimi; /* mf_kimi_pattern, and what goes before it */
} mf_named_pretokenizer;

/* NULL if there is none of that name. */
const mf_named_pretokenizer *mf_find_pretokenizer(const char *name, size_t n_bytes);

#endif

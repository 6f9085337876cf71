/* SPDX-License-Identifier: MIT */
/*
 * Added tokens: those that tokenizer.json lists apart from the model and that are cut out of the
 * text before the model sees it, the longest at the leftmost place first. Two sets: one is looked
 * for in the text as it is, the other ("normalized") in the normalised text. Read-only after
 * loading.
 */
#ifndef MF_TEXT_ADDED_TOKENS_H
#define MF_TEXT_ADDED_TOKENS_H

#include "text/bpe.h"
#include "text/normalizer.h"

typedef struct mf_added_token {
    unsigned char *text; /* what is looked for: normalised where that applies */
    size_t n_bytes;
    uint32_t id;
    uint32_t order; /* place in the file */
    bool is_special, is_normalized, single_word, strips_left, strips_right;
} mf_added_token;

typedef struct mf_added_set {
    mf_added_token *tokens; /* sorted by text */
    size_t n_tokens;
    uint32_t first[257]; /* tokens whose text starts with byte b: [first[b], first[b + 1]) */
} mf_added_set;

typedef struct mf_added_tokens {
    mf_allocator allocator;
    mf_added_token *tokens; /* both sets, one behind the other */
    size_t n_tokens, capacity;
    mf_added_set raw, normalized;
} mf_added_tokens;

/*
 * Loads "added_tokens" and gives each its id as Hugging Face does: the model's if its vocabulary
 * has the content, else the next free one. Registers new ids and special flags in *bpe. *added is
 * zeroed by the caller and freed by mf_added_tokens_free, after a failure too.
 */
mf_status mf_added_tokens_load(mf_added_tokens *added, const mf_allocator *a, const mf_json *json,
                               const mf_normalizer *normalizer, mf_bpe *bpe, mf_error *error);
void mf_added_tokens_free(mf_added_tokens *added);

/* The same for a loader that has its tokens from elsewhere: room for n_tokens; each of them once,
 * its id the caller's, its text not empty, its flags set through *out; and the end, after which
 * they can be searched, by the text as it is. */
mf_status mf_added_tokens_reserve(mf_added_tokens *added, const mf_allocator *a, size_t n_tokens,
                                  mf_error *error);
mf_status mf_added_tokens_add(mf_added_tokens *added, uint32_t id, const char *text, size_t n_bytes,
                              mf_added_token **out, mf_error *error);
void mf_added_tokens_finish(mf_added_tokens *added);
/* The token of that text, or NULL. */
const mf_added_token *mf_added_tokens_find(const mf_added_tokens *added, const char *text,
                                           size_t n_bytes);

/* Bytes of a text, from start to before end. */
typedef struct mf_text_range {
    size_t start, end;
} mf_text_range;

/* A stretch of text: an added token, or (token NULL) what lies before the next one. */
typedef struct mf_added_scan {
    const unsigned char *text;
    size_t n_bytes;
    size_t searched;            /* where the search goes on */
    size_t done;                /* what was given out */
    const mf_added_token *held; /* found, but the text before it was given out first */
    size_t held_end;
    const mf_text_range *literal; /* no token reaches into these; rising, NULL: none */
    size_t n_literal;
    size_t offset; /* of the text in that which the ranges speak of */
} mf_added_scan;

/* Gives the next stretch; false at the end. Special tokens count as text unless with_special. */
bool mf_added_next(const mf_added_set *set, mf_added_scan *scan, bool with_special,
                   const mf_added_token **token, size_t *start, size_t *end);

#endif

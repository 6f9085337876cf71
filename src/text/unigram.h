/* SPDX-License-Identifier: MIT */
/*
 * Unigram models (T5's kind): of all ways to cut a text into tokens the one whose scores add up to
 * the most, by Viterbi's algorithm; of equals the one found first, from the left and by shorter
 * tokens. A character that no token is counts as unknown, at MF_UNKNOWN_PENALTY less than the worst
 * token; a run of them is one: its bytes, or the unknown token. Kudo, "Subword regularization",
 * 2018; sums and ties as the sentencepiece and the tokenizers package have them.
 */
#ifndef MF_TEXT_UNIGRAM_H
#define MF_TEXT_UNIGRAM_H

#include "text/bpe.h"
#include "text/prefix_tree.h"

#define MF_UNKNOWN_PENALTY 10.0
/* Of a token that is looked for in text: what a text takes is bounded by it. */
#define MF_MAX_UNIGRAM_BYTES ((size_t)1024)

typedef struct mf_unigram {
    mf_allocator allocator;
    mf_prefix_tree tokens; /* ids by what they are in text */
    double *scores;        /* by id, none NaN */
    size_t n_scores;
    double unknown_score;
    uint32_t unknown;    /* MF_BPE_NONE: what is unknown is left out */
    bool falls_to_bytes; /* what is unknown goes as bytes, if all of them are tokens */
    bool rounds_sums;    /* to float, as the sentencepiece package does */
} mf_unigram;

/* Whether a tokenizer has such a model. */
static inline bool mf_unigram_is_there(const mf_unigram *u)
{
    return u->tokens.n_nodes != 0;
}

/* Room for n scores. *u is zeroed by the caller and freed by mf_unigram_free, after a failure too.
 */
mf_status mf_unigram_reserve(mf_unigram *u, const mf_allocator *a, size_t n, mf_error *error);
void mf_unigram_free(mf_unigram *u);
/* Makes the tree of what is found by its bytes in *bpe, all of which have scores; with_byte_names:
 * and of the names of bytes, "<0x0A>", which text may have. Errors: MF_ERR_FORMAT (no token, one
 * that is too long), MF_ERR_NO_MEMORY. */
mf_status mf_unigram_finish(mf_unigram *u, const mf_bpe *bpe, bool with_byte_names,
                            const char *path, mf_error *error);

/* The ids of a word. Errors: MF_ERR_UNSUPPORTED (too long), MF_ERR_NO_MEMORY. */
mf_status mf_unigram_encode(const mf_unigram *u, const mf_bpe *bpe, mf_bpe_scratch *scratch,
                            const unsigned char *word, size_t n_bytes, mf_bpe_ids *out,
                            mf_error *error);

#endif

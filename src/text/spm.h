/* SPDX-License-Identifier: MIT */
/*
 * SentencePiece's byte-pair models: of all adjacent pairs that are a token together the one of
 * highest score is joined, the leftmost of equals, from single characters on; what is no token in
 * the end goes as bytes. Blanks are part of words: U+2581 stands for them, in tokens and in text.
 * The vocabulary is an mf_bpe whose tokens have blanks in its place.
 */
#ifndef MF_TEXT_SPM_H
#define MF_TEXT_SPM_H

#include "text/bpe.h"
#include "text/charsmap.h"
#include "text/prefix_tree.h"
#include "text/pretokenizer.h"

typedef struct mf_spm {
    mf_allocator allocator;
    float *scores; /* by id; NaN of a piece whose score follows from its length */
    size_t n_scores;
    float lowest_score;        /* of normal pieces */
    size_t longest_bytes;      /* of a token */
    uint32_t unknown;          /* for a byte that has no token; MF_BPE_NONE: it is left out */
    bool fuses_unknown;        /* for a run of characters that are no tokens instead */
    mf_prepend_scheme prepend; /* a blank before a stretch of text */
    bool removes_extra_blanks; /* at both ends, and beside another */
    bool cuts_words;           /* no token has a blank behind something else: words are apart */
    mf_charsmap charsmap;
    mf_prefix_tree symbols; /* what is left as it stands in the text */
} mf_spm;

void mf_spm_free(mf_spm *spm);

/* A stretch of text as tokens are looked for in it; at_start: the whole text starts with it. */
mf_status mf_spm_normalise(const mf_spm *spm, const unsigned char *text, size_t n_bytes,
                           bool at_start, mf_buffer *out, mf_error *error);
/* Where the word at text[0] ends: behind all of it, unless words are apart. */
size_t mf_spm_word(const mf_spm *spm, const unsigned char *text, size_t n_bytes);
/* The ids of a word. Errors: MF_ERR_UNSUPPORTED (too long), MF_ERR_NO_MEMORY. */
mf_status mf_spm_encode(const mf_spm *spm, const mf_bpe *bpe, mf_bpe_scratch *scratch,
                        const unsigned char *word, size_t n_bytes, mf_bpe_ids *out,
                        mf_error *error);

#endif

/* SPDX-License-Identifier: MIT */
/* A SentencePiece vocabulary from its pieces, whatever file they come from. For loaders. */
#ifndef MF_TEXT_SPM_BUILD_H
#define MF_TEXT_SPM_BUILD_H

#include "text/spm_proto.h"
#include "text/tokenizer.h"

/* What its loader knows beforehand. */
typedef struct mf_spm_sizes {
    size_t n_pieces, n_piece_bytes;
    size_t n_added;                /* pieces that are no normal ones, and tokens beside them */
    size_t n_extra, n_extra_bytes; /* ids after the pieces, and what their names take */
} mf_spm_sizes;

#define MF_SPM_MAX_ADDED ((size_t)1 << 14)

/* Room for them in a tokenizer of which only the allocator is set; nothing is there yet. */
mf_status mf_spm_build_begin(mf_tokenizer *t, const mf_spm_sizes *sizes, mf_error *error);
/* Whether a piece of that type is cut out of the text rather than merged. */
bool mf_spm_is_added(int type);
/* Where user-defined pieces are looked for. */
typedef enum mf_spm_symbols {
    MF_SPM_IN_TEXT,       /* in the text as it is */
    MF_SPM_IN_NORMALISED, /* cut out of the normalised text, as the sentencepiece package does */
    MF_SPM_AMONG_TOKENS   /* tokens like others, as it does of Unigram models */
} mf_spm_symbols;

/* Takes a piece, each once, in the order of the ids; a normal one's score is a number. Empty and
 * unused ones fill gaps. */
mf_status mf_spm_build_piece(mf_tokenizer *t, uint32_t id, const mf_spm_piece *piece,
                             mf_spm_symbols symbols, mf_error *error);
/* Makes the model one of the Unigram kind, when all pieces are there. */
mf_status mf_spm_build_unigram(mf_tokenizer *t, const char *path, mf_error *error);

#endif

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
/* Takes a piece, each once, in the order of the ids; a normal one's score is a number. Empty and
 * unused ones fill gaps. finds_in_model: user-defined ones are looked for in normalised text, as
 * the sentencepiece package does; else in the text as it is. */
mf_status mf_spm_build_piece(mf_tokenizer *t, uint32_t id, const mf_spm_piece *piece,
                             bool finds_in_model, mf_error *error);

#endif

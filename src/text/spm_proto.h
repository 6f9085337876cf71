/* SPDX-License-Identifier: MIT */
/*
 * SentencePiece's model file (tokenizer.model), a protobuf message ModelProto: read as far as
 * encoding and decoding need it, checked whole. It borrows the bytes.
 */
#ifndef MF_TEXT_SPM_PROTO_H
#define MF_TEXT_SPM_PROTO_H

#include "base/alloc.h"

/* A piece's type, as the file and GGUF number them. */
enum {
    MF_SPM_NORMAL = 1,
    MF_SPM_UNKNOWN,
    MF_SPM_CONTROL,
    MF_SPM_USER_DEFINED,
    MF_SPM_UNUSED,
    MF_SPM_BYTE
};

typedef enum mf_spm_kind { MF_SPM_UNIGRAM = 1, MF_SPM_BPE, MF_SPM_WORDS, MF_SPM_CHARS } mf_spm_kind;

typedef struct mf_spm_text {
    const char *text; /* not terminated */
    size_t n_bytes;
} mf_spm_text;

typedef struct mf_spm_piece {
    mf_spm_text text;
    float score;
    int type;
} mf_spm_piece;

typedef struct mf_spm_model {
    const char *path; /* for messages */
    const unsigned char *data;
    size_t n_bytes;
    size_t n_pieces, n_piece_bytes;
    mf_spm_kind kind;
    bool falls_to_bytes, blanks_are_suffixes;
    int32_t start_id, end_id; /* -1: none */
    mf_spm_text charsmap;
    bool adds_blank, removes_extra_blanks, marks_blanks;
    bool has_denormalizer;
} mf_spm_model;

/* Errors: MF_ERR_FORMAT, with the byte position. */
mf_status mf_spm_model_read(mf_spm_model *model, const char *path, const void *data, size_t n_bytes,
                            mf_error *error);
/* The next piece of a model that was read, by a position that starts at 0; false at the end. */
bool mf_spm_model_next(const mf_spm_model *model, size_t *at, mf_spm_piece *out);

#endif

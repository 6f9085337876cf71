/* SPDX-License-Identifier: MIT */
/*
 * Binding: from tensors by role to weights. A binder checks each tensor's dtype, shape, bits and
 * group against what the model needs, gives it a place in the resident block, and notes what to
 * copy there. Nothing is read. At the end every tensor of the checkpoint must have been bound or be
 * one that text models skip.
 */
#ifndef MF_MODEL_BINDER_H
#define MF_MODEL_BINDER_H

#include "format/source.h"
#include "model/hparams.h"
#include "model/weights.h"

/* One run of bytes to bring into the resident block. */
typedef struct mf_copy {
    uint32_t file;
    mf_tensor_type
        convert; /* MF_TENSOR_OTHER: bytes as they are; else values of this type become float32 */
    float add;   /* after conversion */
    uint64_t source, dest;
    uint64_t n_bytes; /* in the file */
} mf_copy;

typedef struct mf_binder {
    mf_allocator allocator;
    mf_source *source;
    uint64_t resident_bytes;
    uint64_t n_parameters;
    uint32_t n_skipped_layers; /* multi-token-prediction layers that are there and left out */
    mf_copy *copies;
    size_t n_copies, copies_capacity;
    mf_expert_tables experts;
} mf_binder;

/* Rows of a stored matrix in a new order: n_blocks blocks of block_rows rows, the i-th from stored
 * row offset + i * stride. */
typedef struct mf_rows {
    uint32_t n_blocks, block_rows, stride, offset;
} mf_rows;

typedef struct mf_row_list {
    const mf_rows *runs;
    uint32_t n_runs;
} mf_row_list;

void mf_binder_init(mf_binder *binder, const mf_allocator *a, mf_source *source);
void mf_binder_free(mf_binder *binder);

/* A stored matrix: [n_rows, n_cols], n_stacked of them one below the other where not 0. */
typedef struct mf_matrix_shape {
    uint32_t n_stacked, n_rows, n_cols;
} mf_matrix_shape;

/* The matrix, in whichever form its values are stored; of several stacked ones all rows. */
mf_status mf_bind_matrix(mf_binder *binder, mf_tensor_id id, mf_matrix_shape shape, mf_weight *out,
                         mf_error *error);
/* The same with the stored rows rearranged: the runs of `rows` one after another. */
mf_status mf_bind_matrix_rows(mf_binder *binder, mf_tensor_id id, mf_matrix_shape shape,
                              const mf_row_list *rows, mf_weight *out, mf_error *error);
/* A vector of n values as float32. The tensor may have further dimensions as long as it has n
 * elements. */
mf_status mf_bind_vector(mf_binder *binder, mf_tensor_id id, uint64_t n, mf_span *out,
                         mf_error *error);
/* A norm's weight, which its family publishes minus `centre`: restored where no conversion has. */
mf_status mf_bind_norm(mf_binder *binder, mf_tensor_id id, uint64_t n, float centre, mf_span *out,
                       mf_error *error);

/* The experts of a layer, in whichever form they are stored. */
mf_status mf_bind_experts(mf_binder *binder, const mf_hparams *h, uint32_t layer,
                          mf_expert_shape *out, mf_error *error);

/* Everything must have been used, but for what text models skip and the layers that h calls
 * surplus. */
mf_status mf_bind_finish(mf_binder *binder, const mf_hparams *h, mf_error *error);

/* Shared by matrices and experts: what a stored matrix is. */
typedef struct mf_stored_matrix {
    mf_weight_shape shape;
    union {
        mf_tensor *arrays[MF_MAX_WEIGHT_ARRAYS];
        struct {
            mf_tensor *data, *scales, *biases;
        };
    };
} mf_stored_matrix;

/* A place for n bytes in the resident block. */
mf_status mf_bind_place(mf_binder *binder, uint64_t n_bytes, mf_span *out, mf_error *error);
/* Brings n values of a floating-point tensor, from element `offset` on, to `dest` as float32. */
mf_status mf_bind_floats(mf_binder *binder, const mf_tensor *t, uint64_t offset, uint64_t n,
                         uint64_t dest, mf_error *error);
/* Finds a matrix and checks it; places nothing. */
mf_status mf_bind_stored(mf_binder *binder, mf_tensor_id id, mf_matrix_shape shape,
                         mf_stored_matrix *out, mf_error *error);

#endif

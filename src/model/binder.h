/* SPDX-License-Identifier: MIT */
/*
 * Binding: from tensor names to weights. A binder checks each tensor's dtype, shape, bits and group
 * against what the model needs, gives it a place in the resident block, and notes what to copy
 * there. Nothing is read. At the end every tensor of the checkpoint must have been bound or be one
 * that text models skip.
 */
#ifndef MF_MODEL_BINDER_H
#define MF_MODEL_BINDER_H

#include "format/checkpoint.h"
#include "model/hparams.h"
#include "model/weights.h"

#include <stdarg.h>

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
    mf_checkpoint *checkpoint;
    const char *prefix; /* of layer tensors: "model.", "language_model.model.", ... */
    float norm_add;     /* 1 where the checkpoint stores norm weights minus one */
    uint64_t resident_bytes;
    uint64_t n_parameters;
    uint32_t n_skipped_layers; /* multi-token-prediction layers that are there and left out */
    mf_copy *copies;
    size_t n_copies, copies_capacity;
    mf_expert_tables experts;
} mf_binder;

/* Rows of a stored matrix in a new order: blocks of block_rows rows, the i-th from stored row
 * offset + i * stride. */
typedef struct mf_rows {
    uint32_t n_rows, block_rows, stride, offset;
} mf_rows;

mf_status mf_binder_init(mf_binder *binder, const mf_allocator *a, mf_checkpoint *checkpoint,
                         mf_error *error);
void mf_binder_free(mf_binder *binder);

/* The tensor PREFIX + printf(name); MF_ERR_FORMAT "missing" if there is none. Marks it used. */
mf_status mf_bind_find(mf_binder *binder, mf_tensor **out, mf_error *error, const char *name, ...)
    __attribute__((format(printf, 4, 5)));

/* The matrix `module`.weight (with .scales and .biases where quantised), [n_rows, n_cols], module a
 * whole name. */
mf_status mf_bind_matrix(mf_binder *binder, const char *module, uint32_t n_rows, uint32_t n_cols,
                         mf_weight *out, mf_error *error);
/* A matrix for each of n_heads heads, stored [n_heads, n_rows, n_cols]: one below the other. */
mf_status mf_bind_heads(mf_binder *binder, const char *module, uint32_t n_heads, uint32_t n_rows,
                        uint32_t n_cols, mf_weight *out, mf_error *error);
/* mf_bind_matrix with the n_rows stored rows rearranged: the runs of `rows` one after another. */
mf_status mf_bind_matrix_rows(mf_binder *binder, const char *module, uint32_t n_rows,
                              uint32_t n_cols, const mf_rows *rows, uint32_t n_runs, mf_weight *out,
                              mf_error *error);
/* A vector of n values as float32, plus `add`. The tensor may have further dimensions as long as it
 * has n elements. */
mf_status mf_bind_vector(mf_binder *binder, const char *name, uint64_t n, float add, mf_span *out,
                         mf_error *error);

/* Layer names: writes PREFIX + "layers.L." + suffix. */
void mf_layer_name(const mf_binder *binder, uint32_t layer, const char *suffix, char *name,
                   size_t capacity);

/* The experts of a layer, in whichever form they are stored. */
mf_status mf_bind_experts(mf_binder *binder, const mf_hparams *h, uint32_t layer,
                          mf_expert_shape *out, mf_error *error);

/* Everything must have been used, but for what text models skip and the layers that h calls
 * surplus. */
mf_status mf_bind_finish(mf_binder *binder, const mf_hparams *h, mf_error *error);

/* Shared by matrices and experts: what a stored matrix is. n_leading: dimensions before [rows,
 * cols] (1 for stacked experts). */
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

mf_status mf_bind_stored(mf_binder *binder, const char *module, const char *suffix,
                         uint32_t n_leading, uint64_t leading, uint32_t n_rows, uint32_t n_cols,
                         mf_stored_matrix *out, mf_error *error);

#endif

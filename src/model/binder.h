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
        convert;    /* MF_TENSOR_OTHER: bytes as they are; else values of this type become float32,
                       those of MF_TENSOR_U8 powers of two (E8M0); of MF_TENSOR_I64, int32 */
    uint32_t limit; /* of MF_TENSOR_I64: every value is less, and none is negative */
    uint32_t row_values; /* of MF_TENSOR_I64: so many in turn, no two of them the same */
    float add;           /* after conversion */
    bool is_negated_exp; /* -exp(x) is stored */
    uint64_t source, dest;
    uint64_t n_bytes; /* in the file */
} mf_copy;

/* Rows of a stored matrix in a new order: n_blocks blocks of block_rows rows, the i-th from stored
 * row offset + i * stride. */
typedef struct mf_rows {
    uint32_t n_blocks, block_rows, stride, offset;
} mf_rows;

/* A resident matrix that is made of what is stored; the runs are of the binder's rows. */
typedef struct mf_making {
    mf_repack repack;
    uint32_t file[MF_PACKED_ARRAYS];
    uint64_t source[MF_PACKED_ARRAYS];
    uint64_t dest[MF_MAX_WEIGHT_ARRAYS];
    size_t first_run, n_runs;
} mf_making;

typedef struct mf_binder {
    mf_allocator allocator;
    mf_source *source;
    uint64_t resident_bytes;
    uint64_t n_parameters;
    uint32_t n_skipped_layers; /* multi-token-prediction layers that are there and left out */
    mf_copy *copies;
    size_t n_copies, copies_capacity;
    uint64_t *places; /* where each array of the resident block begins, rising */
    size_t n_places, places_capacity;
    mf_making *makings;
    size_t n_makings, makings_capacity;
    mf_rows *rows;
    size_t n_rows, rows_capacity;
    mf_expert_tables experts;
} mf_binder;

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

/* A table [n_rows, n_cols] of I64, whose values are less than limit, at most MF_TABLE_LIMIT, and in
 * each row differ, as int32. */
#define MF_TABLE_LIMIT 65536u
mf_status mf_bind_table(mf_binder *binder, mf_tensor_id id, mf_matrix_shape shape, uint32_t limit,
                        mf_span *out, mf_error *error);

/* The experts of a layer, in whichever form they are stored. */
mf_status mf_bind_experts(mf_binder *binder, const mf_hparams *h, uint32_t layer,
                          mf_expert_shape *out, mf_error *error);

/* Part of it: of the aligned form, where an expert is one run of bytes. */
mf_status mf_bind_aligned(mf_binder *binder, const mf_hparams *h, uint32_t layer,
                          mf_expert_shape *out, mf_error *error);
/* The table of experts that have places of their own: made once, for all layers. */
mf_status mf_bind_each_table(mf_binder *binder, const mf_hparams *h, mf_error *error);

/* Everything must have been used, but for what text models skip and the layers that h calls
 * surplus. */
mf_status mf_bind_finish(mf_binder *binder, const mf_hparams *h, mf_error *error);

/* Shared by matrices and experts: what a stored matrix is. Where it is repacked, shape is what it
 * becomes, and its tensors are in packed. */
typedef struct mf_stored_matrix {
    mf_weight_shape shape;
    mf_repack repack;
    mf_tensor *packed[MF_PACKED_ARRAYS];
    union {
        mf_tensor *arrays[MF_MAX_WEIGHT_ARRAYS];
        struct {
            mf_tensor *data, *scales, *biases;
        };
    };
} mf_stored_matrix;

/* The type of floats that a tensor has; false: it has none. */
bool mf_float_type_of(mf_tensor_type type, mf_dtype *out);
/* A tensor is not what it has to be. */
mf_status mf_bind_wrong_shape(const mf_binder *binder, const mf_tensor *t, const char *expected,
                              mf_error *error);

/* Of those that are repacked: what mf_bind_stored finds, a place for a resident one whose shape is
 * *w's, and an expert's. */
mf_status mf_bind_packed(mf_binder *binder, mf_matrix_shape shape, const mf_stored *stored,
                         mf_stored_matrix *out, mf_error *error);
mf_status mf_bind_place_packed(mf_binder *binder, const mf_stored_matrix *m,
                               const mf_row_list *rows, mf_weight *w, mf_error *error);
typedef struct mf_expert_id {
    uint32_t layer, matrix, expert;
} mf_expert_id;
mf_status mf_bind_packed_expert(mf_binder *binder, const mf_hparams *h, mf_expert_id id,
                                const mf_stored_matrix *m, mf_error *error);
/* Of a matrix of all experts of a layer that is MF_PACKING_BLOCKS: its first part, which is where
 * it is stored, becomes what is read, and its parts what is made of that; factors are resident. The
 * tables of what is read have been made. */
void mf_bind_packed_blocks(mf_binder *binder, const mf_hparams *h, uint32_t layer, uint32_t matrix,
                           const mf_repack *repack);
void mf_binder_free_packed(mf_binder *binder);
/* The tables of what is read of experts: made once, for all layers. */
mf_status mf_bind_stored_tables(mf_binder *binder, const mf_hparams *h, mf_error *error);
/* Experts of two transposed tensors, as some families publish them: hparams.h. */
mf_status mf_bind_turned(mf_binder *binder, const mf_hparams *h, uint32_t layer,
                         mf_expert_shape *out, mf_error *error);

/* Room for one more element of `size` bytes in a list of n. */
mf_status mf_bind_grow(mf_binder *binder, void **list, size_t n, size_t *capacity, size_t size,
                       mf_error *error);
/* A place for n bytes in the resident block, an array of a matrix or a vector. */
mf_status mf_bind_place(mf_binder *binder, uint64_t n_bytes, mf_span *out, mf_error *error);
/* Bytes of one value that is converted. */
uint64_t mf_copy_width(mf_tensor_type type);
/* Brings n values of a floating-point tensor, or of E8M0, from element `offset` on, to `dest` as
 * float32. */
mf_status mf_bind_floats(mf_binder *binder, const mf_tensor *t, uint64_t offset, uint64_t n,
                         uint64_t dest, mf_error *error);
/* Finds a matrix and checks it; places nothing. */
mf_status mf_bind_stored(mf_binder *binder, mf_tensor_id id, mf_matrix_shape shape,
                         mf_stored_matrix *out, mf_error *error);

#endif

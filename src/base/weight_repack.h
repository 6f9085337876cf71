/* SPDX-License-Identifier: MIT */
/*
 * Matrices whose stored order is not that of rows, or whose zero points are stored as integers:
 * what their arrays become to be of a format of weight_format.h. Every value stays what it was:
 * (q - zero) * scale, rounded once to float32.
 *
 * A new packing is a value of mf_packing, its name, and where it has its values and zeros.
 */
#ifndef MF_BASE_WEIGHT_REPACK_H
#define MF_BASE_WEIGHT_REPACK_H

#include "base/weight_format.h"

/* How integers and zero points are laid out. "Words" are of 32 bits, a bit stream each from the
 * lowest on; scales of the first three are [groups, rows], of the others [rows, groups]. */
typedef enum mf_packing {
    MF_PACKING_NONE = 0,
    MF_PACKING_GPTQ, /* words of columns, [words, rows]; zeros less one, words of rows [groups] */
    MF_PACKING_GPTQ_V2, /* the same; zeros as they are */
    MF_PACKING_AWQ,     /* words of 8 rows in an order of their own, [columns, words]; zeros too */
    MF_PACKING_ROWS,   /* compressed-tensors: words of columns, [rows, words]; zeros: words of rows,
                          [words, groups] */
    MF_PACKING_BYTES,  /* compressed-tensors: bytes with a sign, [rows, columns]; zeros likewise */
    MF_PACKING_TURNED, /* floats, [columns, rows], of which a matrix may be some neighbours alone */
    MF_PACKING_BLOCKS, /* GGUF's blocks, [rows]: NVFP4's, which have a factor beside them, are taken
                          apart; others, read with such, stay what they are */
    MF_PACKINGS
} mf_packing;

/* How files call it; NULL for none. */
const char *mf_packing_name(mf_packing packing);
mf_packing mf_packing_named(const char *name);

/* The arrays as they are stored. */
enum { MF_PACKED_VALUES = 0, MF_PACKED_SCALES, MF_PACKED_ZEROS, MF_PACKED_INDEX, MF_PACKED_ARRAYS };

/* One matrix. Of what is not there the middle of the codes is the zero, and column i has scale
 * i / group. */
typedef struct mf_repack {
    mf_packing packing; /* MF_PACKING_NONE: nothing is to be done */
    uint32_t bits;
    uint32_t n_groups; /* scales of a row as they are stored; MF_PACKING_BLOCKS: 1 where the factor
                          is made with the rows, 0 where it is not */
    mf_dtype scale_type;
    bool has_zeros;
    bool has_index;                    /* the group of each column, int32 */
    uint32_t n_stored_rows, first_row; /* MF_PACKING_TURNED: of what is stored, this one's rows */
    mf_weight_shape shape; /* of what it becomes: kind and group are chosen by mf_repack_choose */
} mf_repack;

/* Chooses shape's kind, float type, bits and group; n_rows, n_cols and all else are given. False:
 * no format has such bits, groups and columns. Not of MF_PACKING_TURNED and MF_PACKING_BLOCKS,
 * whose shapes are given. */
bool mf_repack_choose(mf_repack *r);
/* Dimensions of a stored array, and the bytes of an element. */
typedef struct mf_packed_array {
    uint64_t n_rows, n_cols; /* n_rows 0: a list of n_cols; n_cols 0: it is not there */
    uint32_t n_bytes;
} mf_packed_array;
mf_packed_array mf_repack_stored(const mf_repack *r, uint32_t array);
uint64_t mf_repack_stored_bytes(const mf_repack *r, uint32_t array);

/* Rows are made so many at a time; the last may be fewer. */
#define MF_REPACK_ROWS 128u

/* Makes n_rows rows from first_row, a multiple of MF_REPACK_ROWS, on. Arrays are those of the whole
 * matrix, aligned to 4; what is not there is NULL. What all rows share is made with row 0. False:
 * the index names a group that is not there. */
bool mf_repack_rows(const mf_repack *r, const unsigned char *const stored[MF_PACKED_ARRAYS],
                    uint32_t first_row, uint32_t n_rows,
                    unsigned char *const made[MF_MAX_WEIGHT_ARRAYS]);

#endif

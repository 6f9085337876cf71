/* SPDX-License-Identifier: MIT */
/*
 * How the values of a weight matrix are stored: one row of a table for each format. A matrix is one
 * to three arrays (values; scales; biases, or a factor for all). An array has one element for each
 * block of so many rows and columns, and a row of elements one after another: a size is the same
 * arithmetic for every format, and nobody above the kernels asks which one it is.
 *
 * A new format is a value of mf_weight_kind, a row of the table in weight_format.c, and the
 * function there that decodes a row. Every backend multiplies it with that; faster kernels may
 * follow.
 */
#ifndef MF_BASE_WEIGHT_FORMAT_H
#define MF_BASE_WEIGHT_FORMAT_H

#include "base/dtype.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum mf_weight_kind {
    MF_WEIGHT_FLOAT = 1, /* float_type values */
    MF_WEIGHT_AFFINE,    /* MLX: w = q * scale + bias, a scale and a bias for each group */
    MF_WEIGHT_FP8_BLOCK, /* e4m3, a float32 scale for each block of 128 rows and columns */
    MF_WEIGHT_MXFP4,     /* OCP MX: e2m1, an e8m0 scale for 32; scales in an array of their own */
    MF_WEIGHT_NVFP4,     /* e2m1, an e4m3 scale for 16, and a float32 factor for the matrix */
    MF_WEIGHT_GGUF_Q8_0, /* GGUF: scales lie inside the blocks */
    MF_WEIGHT_GGUF_Q4_K,
    MF_WEIGHT_GGUF_Q6_K,
    MF_WEIGHT_GGUF_IQ4_XS,
    MF_WEIGHT_GGUF_MXFP4,
    MF_WEIGHT_GGUF_Q4_0,
    MF_WEIGHT_GGUF_Q4_1,
    MF_WEIGHT_GGUF_Q5_0,
    MF_WEIGHT_GGUF_Q5_1,
    MF_WEIGHT_GGUF_Q2_K,
    MF_WEIGHT_GGUF_Q3_K,
    MF_WEIGHT_GGUF_Q5_K,
    MF_WEIGHT_GGUF_IQ1_S,
    MF_WEIGHT_GGUF_IQ1_M,
    MF_WEIGHT_GGUF_IQ2_XXS,
    MF_WEIGHT_GGUF_IQ2_XS,
    MF_WEIGHT_GGUF_IQ2_S,
    MF_WEIGHT_GGUF_IQ3_XXS,
    MF_WEIGHT_GGUF_IQ3_S,
    MF_WEIGHT_GGUF_IQ4_NL,
    MF_WEIGHT_GGUF_TQ1_0,
    MF_WEIGHT_GGUF_TQ2_0,
    MF_WEIGHT_GGUF_NVFP4,
    MF_WEIGHT_INT4,           /* compressed-tensors: w = (q - 8) * scale, a scale for each group */
    MF_WEIGHT_INT8,           /* w = (q - 128) * scale */
    MF_WEIGHT_FP8_CHANNEL,    /* e4m3, a float32 scale for each row */
    MF_WEIGHT_FP8_TENSOR,     /* or one for the matrix */
    MF_WEIGHT_NVFP4_DIVIDED,  /* NVFP4 whose factor is stored as what to divide by */
    MF_WEIGHT_NVFP4_PLAIN,    /* MLX: without the factor */
    MF_WEIGHT_MXFP8,          /* OCP MX: e4m3, an e8m0 scale for 32 */
    MF_WEIGHT_AFFINE_INDEXED, /* w = q * scale + bias, float32 pairs of them, the group of each
                                 column in an array of its own (GPTQ's act-order) */
    MF_WEIGHT_KINDS           /* one more than the last */
} mf_weight_kind;

/* Rows that share a row of scales of MF_WEIGHT_FP8_BLOCK as it is stored, and its group. */
#define MF_FP8_BLOCK 128u

#define MF_MAX_WEIGHT_ARRAYS 3

/* The arrays in their order. */
enum { MF_WEIGHT_VALUES = 0, MF_WEIGHT_SCALES = 1, MF_WEIGHT_BIASES = 2 };

/* A matrix without its bytes. Each format says what it uses of the parameters. */
typedef struct mf_weight_shape {
    mf_weight_kind kind;
    mf_dtype float_type; /* of floats, or of affine and integer scales and biases; float32 in FP8 */
    uint32_t bits;       /* of a value: affine; 8 in FP8 */
    uint32_t group;      /* columns of an affine or integer scale; 128 in FP8 */
    uint32_t scale_rows; /* FP8: rows that share a row of scales, 0 for 128. Fewer where the rows of
                            a stored matrix were put in another order. */
    uint32_t n_rows, n_cols;
} mf_weight_shape;

/* Of mf_weight_array.cols and .rows */
enum { MF_OF_GROUP = 0, MF_OF_ALL = 0x8000 };

/* One array of a format. */
typedef struct mf_weight_array {
    uint16_t cols; /* columns of an element, a power of two; MF_OF_GROUP: the shape's group. n_cols
                      is a multiple of those of values. */
    uint16_t rows; /* rows of it; the shape's scale_rows, where it has them, if more than one */
    /* Bytes of an element: n_bytes + per_bit * the shape's bits + n_floats of its float type. */
    uint8_t n_bytes, per_bit, n_floats;
    bool
        is_float32; /* a checkpoint may have them in another type: they are converted when loaded */
} mf_weight_array;

/* out[i] = weight [row, i], rounded once, from the bytes of the arrays. */
typedef void (*mf_decode_row_fn)(const mf_weight_shape *shape, const unsigned char *const *arrays,
                                 uint32_t row, float *out);

/* A block's values, likewise. */
typedef void (*mf_decode_block_fn)(const unsigned char *block, float *out);

typedef struct mf_weight_format {
    const char *form; /* how `info` calls a checkpoint whose experts are stored so, and the aligned
                         form the format: it is written into files */
    uint32_t n_arrays;
    uint32_t bits; /* of a value, without what comes with it; 0: the shape's, or its type's */
    mf_weight_array arrays[MF_MAX_WEIGHT_ARRAYS];
    mf_decode_row_fn decode_row;
    mf_decode_block_fn decode_block; /* of formats that are blocks with all that belongs to them */
} mf_weight_format;

/* By kind; kind 0 is none. */
extern const mf_weight_format mf_weight_formats[MF_WEIGHT_KINDS];

static inline const mf_weight_format *mf_weight_format_of(const mf_weight_shape *s)
{
    return &mf_weight_formats[s->kind];
}

/* Rows of the matrix that a row of the array stands for. */
static inline uint32_t mf_weight_array_step(const mf_weight_shape *s, uint32_t array)
{
    const mf_weight_array *a = &mf_weight_formats[s->kind].arrays[array];
    if (a->rows == MF_OF_ALL)
        return s->n_rows;
    return a->rows > 1 && s->scale_rows != 0 ? s->scale_rows : a->rows;
}

/* Elements of one row of the array. */
static inline uint64_t mf_weight_array_cols(const mf_weight_shape *s, uint32_t array)
{
    const mf_weight_array *a = &mf_weight_formats[s->kind].arrays[array];
    const uint32_t cols = a->cols == MF_OF_GROUP ? s->group : a->cols;
    if (cols == MF_OF_ALL)
        return 1;
    return ((uint64_t)s->n_cols + cols - 1) >> __builtin_ctz(cols);
}

/* Bytes of one row of the array. */
static inline uint64_t mf_weight_array_row_bytes(const mf_weight_shape *s, uint32_t array)
{
    const mf_weight_array *a = &mf_weight_formats[s->kind].arrays[array];
    return mf_weight_array_cols(s, array) *
           (a->n_bytes + a->per_bit * s->bits + a->n_floats * mf_dtype_bytes(s->float_type));
}

/* Bytes of the array; 0 of one that the format does not have. */
uint64_t mf_weight_array_bytes(const mf_weight_shape *s, uint32_t array);
/* Of all arrays. */
uint64_t mf_weight_bytes(const mf_weight_shape *s);
/* Whether a shape that a file describes is one of its format: bits, groups and rows that the format
 * has, columns that they divide. */
bool mf_weight_shape_is_sound(const mf_weight_shape *s);
/* Bits of a value, without its share of scales. */
uint32_t mf_weight_bits(const mf_weight_shape *s);

#endif

/* SPDX-License-Identifier: MIT */
/* The number formats of weights, shared by kernels, backends and models. */
#ifndef MF_BASE_DTYPE_H
#define MF_BASE_DTYPE_H

#include <stdint.h>

typedef enum mf_dtype { MF_F32 = 1, MF_F16 = 2, MF_BF16 = 3 } mf_dtype;

typedef enum mf_weight_kind {
    MF_WEIGHT_FLOAT = 1, /* float_type values */
    MF_WEIGHT_AFFINE =
        2, /* MLX affine: w = q * scale + bias, one scale and bias per group of a row */
    MF_WEIGHT_FP8_BLOCK = 3 /* e4m3 values, one float32 scale per block of 128 rows and columns */
} mf_weight_kind;

/* Rows, and columns, of a scale of MF_WEIGHT_FP8_BLOCK. */
#define MF_FP8_BLOCK 128u

static inline uint32_t mf_dtype_bytes(mf_dtype type)
{
    return type == MF_F32 ? 4 : 2;
}

#endif

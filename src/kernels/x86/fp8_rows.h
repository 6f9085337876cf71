/* SPDX-License-Identifier: MIT */
/*
 * FP8 with a scale for each row, or one for the matrix: multiplied as a matrix of blocks whose
 * scales are all 1, and then by the row's scale.
 */
#ifndef MF_KERNELS_FP8_ROWS_H
#define MF_KERNELS_FP8_ROWS_H

#include "kernels/kernels.h"

#include <string.h>

/* More columns than any model has. */
#define MF_FP8_MAX_BLOCKS 1024u
extern const float mf_fp8_ones[MF_FP8_MAX_BLOCKS];

static inline bool mf_is_fp8_rows(const mf_matrix *w)
{
    return (w->shape.kind == MF_WEIGHT_FP8_CHANNEL || w->shape.kind == MF_WEIGHT_FP8_TENSOR) &&
           w->shape.n_cols <= MF_FP8_MAX_BLOCKS * MF_FP8_BLOCK;
}

/* The values alone: all rows share a row of scales. */
static inline mf_matrix mf_fp8_values(const mf_matrix *w)
{
    mf_matrix values = *w;
    values.shape.kind = MF_WEIGHT_FP8_BLOCK;
    values.shape.float_type = MF_F32;
    values.shape.bits = 8;
    values.shape.group = MF_FP8_BLOCK;
    values.shape.scale_rows = 1u << 31;
    values.scales = (const unsigned char *)mf_fp8_ones;
    return values;
}

static inline void mf_fp8_scale_rows(const mf_matrix *w, uint32_t row0, uint32_t row1,
                                     uint32_t n_tokens, float *y, size_t y_stride)
{
    const size_t apart = w->shape.kind == MF_WEIGHT_FP8_CHANNEL ? sizeof(float) : 0;
    for (uint32_t r = row0; r < row1; r++) {
        float scale;
        memcpy(&scale, w->scales + r * apart, sizeof scale);
        for (uint32_t t = 0; t < n_tokens; t++)
            y[t * y_stride + (r - row0)] *= scale;
    }
}

#endif

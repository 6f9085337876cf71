/* SPDX-License-Identifier: MIT */
/* Matrix products, scalar: one weight at a time, in order of the columns. */
#include "kernels/scalar/scalar.h"

#include "base/fp8.h"

#include <math.h>

static float float_at(const unsigned char *p, mf_dtype type, size_t i)
{
    if (type == MF_F32) {
        float value;
        memcpy(&value, p + 4 * i, sizeof value);
        return value;
    }
    uint16_t half;
    memcpy(&half, p + 2 * i, sizeof half);
    return type == MF_BF16 ? mf_f32_from_bf16(half) : mf_f32_from_f16(half);
}

/* Value i of a little-endian bit stream; touches no byte that holds none of its bits. */
static uint32_t packed_at(const unsigned char *row, uint32_t bits, uint32_t i)
{
    size_t first_bit = (size_t)i * bits;
    uint32_t shift = first_bit & 7;
    uint32_t value = row[first_bit >> 3];
    if (shift + bits > 8)
        value |= (uint32_t)row[(first_bit >> 3) + 1] << 8;
    return (value >> shift) & ((1u << bits) - 1);
}

static float weight_at(const mf_matrix *w, uint32_t row, uint32_t col)
{
    const unsigned char *values = w->data + (size_t)row * mf_matrix_row_bytes(w);
    if (w->kind == MF_WEIGHT_FLOAT)
        return float_at(values, w->float_type, col);
    if (w->kind == MF_WEIGHT_FP8_BLOCK) {
        size_t block = row / MF_FP8_BLOCK * mf_matrix_fp8_scale_cols(w) + col / MF_FP8_BLOCK;
        return mf_f32_from_e4m3(values[col]) * float_at(w->scales, MF_F32, block);
    }
    size_t group = (size_t)row * (w->n_cols / w->group) + col / w->group;
    float scale = float_at(w->scales, w->float_type, group);
    float bias = float_at(w->biases, w->float_type, group);
    return fmaf((float)packed_at(values, w->bits, col), scale, bias);
}

size_t mf_matmul_scratch_bytes_scalar(const mf_matrix *w, uint32_t n_tokens)
{
    (void)n_tokens;
    return (size_t)w->n_cols * sizeof(float);
}

void mf_dequant_row_scalar(const mf_matrix *w, uint32_t row, float *out)
{
    for (uint32_t i = 0; i < w->n_cols; i++)
        out[i] = weight_at(w, row, i);
}

void mf_matmul_scalar(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                      size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    float *weights = scratch;
    for (uint32_t r = row0; r < row1; r++) {
        mf_dequant_row_scalar(w, r, weights);
        for (uint32_t t = 0; t < n_tokens; t++) {
            const float *token = x + t * x_stride;
            float sum = 0;
            for (uint32_t i = 0; i < w->n_cols; i++)
                sum = fmaf(weights[i], token[i], sum);
            y[t * y_stride + (r - row0)] = sum;
        }
    }
}

/* SPDX-License-Identifier: MIT */
/* Formats of blocks in fixed point by the instructions that every 64-bit ARM has; and tokens' form.
 */
#include "kernels/arm/lanes_neon.h"

MF_LANE_OP int32x4_t dot(int32x4_t acc, int8x16_t a, int8x16_t b)
{
    const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b)), high = vmull_high_s8(a, b);
    return vaddq_s32(acc, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
}

#include "kernels/arm/blocks_tiles_neon.h"

#include "kernels/x86/fixed_token.h"

/* The largest magnitude of n values; NaN if there is one. */
static float largest(const float *x, uint32_t n)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t bits = mf_bits_from_f32(x[i]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    return mf_f32_from_bits(most);
}

/* 32 columns' integers, of which those past n are 0. */
static void prepare_chunk(const float *x, uint32_t n, float per_unit, mf_blocks_span *span,
                          uint32_t g)
{
    float padded[CHUNK] = {0};
    int32_t v[CHUNK];
    if (n < CHUNK) {
        memcpy(padded, x, n * sizeof *x);
        x = padded;
    }
    for (uint32_t i = 0; i < CHUNK; i += 4)
        vst1q_s32(v + i, vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + i), per_unit)));
    for (uint32_t i = 0; i < 2; i++) {
        int32_t sum = 0; /* of what is not finite anything */
        for (uint32_t j = 0; j < CHUNK / 2; j++)
            sum = (int32_t)((uint32_t)sum + (uint32_t)v[i * CHUNK / 2 + j]);
        span->sums[2 * g + i] = (float)sum;
    }
    for (uint32_t d = 0; d < DIGITS; d++)
        for (uint32_t i = 0; i < CHUNK; i++) {
            span->chunks[g][d][i] = (signed char)(uint8_t)v[i];
            v[i] = (int32_t)((uint32_t)v[i] + 128) >> 8;
        }
}

/* Activations that are not finite get a unit that is not. */
void mf_blocks_prepare_neon(const mf_matrix *w, const float *x, void *out)
{
    mf_blocks_span *span = out;
    for (uint32_t i = 0; i < w->shape.n_cols; i += MF_SPAN, span++) {
        const uint32_t n = w->shape.n_cols - i < MF_SPAN ? w->shape.n_cols - i : MF_SPAN;
        float max = largest(x + i, n);
        max = max < MF_FIXED_SMALLEST ? MF_FIXED_SMALLEST : max;
        for (uint32_t g = 0; g < CHUNKS; g++)
            prepare_chunk(x + i + (size_t)g * CHUNK, n > g * CHUNK ? n - g * CHUNK : 0,
                          MF_FIXED_LIMIT / max, span, g);
        span->units[0] = max / MF_FIXED_LIMIT;
    }
}

size_t mf_blocks_scratch_bytes_neon(const mf_matrix *w, uint32_t n_tokens)
{
    return scratch_bytes(w, n_tokens);
}

void mf_blocks_matmul_neon(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                           uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    multiply(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

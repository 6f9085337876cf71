/* SPDX-License-Identifier: MIT */
/* The fixed-point product by the instructions that every 64-bit ARM has; and tokens' form. */
#include "kernels/arm/lanes_neon.h"

/* 15 * 128 twice fits 16 bits. */
MF_LANE_OP int32x4_t dot(int32x4_t acc, int8x16_t a, int8x16_t b)
{
    const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b)), high = vmull_high_s8(a, b);
    return vpadalq_s16(acc, vpaddq_s16(low, high));
}

#include "kernels/arm/fixed_tiles_neon.h"

/* ------------------------------------------------------------------------------- activations -- */

enum { VECTORS = GROUP / 4 };

/* The largest magnitude; NaN if there is one. */
static float largest(const float32x4_t x[VECTORS])
{
    const uint32x4_t magnitude = vdupq_n_u32(0x7fffffff);
    uint32x4_t max = vdupq_n_u32(0);
    for (int i = 0; i < VECTORS; i++)
        max = vmaxq_u32(max, vandq_u32(vreinterpretq_u32_f32(x[i]), magnitude));
    return mf_f32_from_bits(vmaxvq_u32(max));
}

static int32_t sum_integers(const int32x4_t v[VECTORS])
{
    int32x4_t sum = v[0];
    for (int i = 1; i < VECTORS; i++)
        sum = vaddq_s32(sum, v[i]);
    return vaddvq_s32(sum);
}

/* The lowest bytes of sixteen integers. */
MF_LANE_OP int8x16_t low_bytes(const int32x4_t v[4])
{
    const int16x8_t a = vuzp1q_s16(vreinterpretq_s16_s32(v[0]), vreinterpretq_s16_s32(v[1]));
    const int16x8_t b = vuzp1q_s16(vreinterpretq_s16_s32(v[2]), vreinterpretq_s16_s32(v[3]));
    return vuzp1q_s8(vreinterpretq_s8_s16(a), vreinterpretq_s8_s16(b));
}

static void store_digit(mf_fixed_digits *to, int digit, const int32x4_t v[VECTORS])
{
    for (int i = 0; i < 2; i++) {
        const int8x16_t a = low_bytes(v + (ptrdiff_t)8 * i),
                        b = low_bytes(v + (ptrdiff_t)8 * i + 4);
        vst1q_s8(to->digit[digit][0] + (ptrdiff_t)16 * i, vuzp1q_s8(a, b));
        vst1q_s8(to->digit[digit][1] + (ptrdiff_t)16 * i, vuzp2q_s8(a, b));
    }
}

/* Activations that are not finite get a unit that is not. */
void mf_fixed_prepare_neon(const mf_matrix *w, const float *x, void *out)
{
    const uint32_t n_groups = mf_fixed_groups(w);
    mf_fixed_digits *digits = out;
    float *units = (float *)(void *)(digits + n_groups), *sums = units + n_groups;
    int32_t *offsets = (int32_t *)(void *)(sums + n_groups);
    for (uint32_t g = 0; g < n_groups; g++, x += GROUP) {
        float32x4_t values[VECTORS];
        int32x4_t v[VECTORS];
        for (size_t i = 0; i < VECTORS; i++)
            values[i] = vld1q_f32(x + 4 * i);
        float max = largest(values);
        max = max < MF_FIXED_SMALLEST ? MF_FIXED_SMALLEST : max;
        const float32x4_t per_unit = vdupq_n_f32(MF_FIXED_LIMIT / max);
        for (int i = 0; i < VECTORS; i++)
            v[i] = vcvtnq_s32_f32(vmulq_f32(values[i], per_unit));
        const int32_t sum = sum_integers(v);
        units[g] = max / MF_FIXED_LIMIT;
        sums[g] = (float)sum * units[g];
        offsets[g] = (int32_t)(-8 * (int64_t)sum);
        for (int d = 0; d < DIGITS; d++) {
            store_digit(&digits[g], d, v);
            for (int i = 0; i < VECTORS; i++) /* what is left, above this byte as a signed one */
                v[i] = vshrq_n_s32(vaddq_s32(v[i], vdupq_n_s32(128)), 8);
        }
    }
}

/* ---------------------------------------------------------------------------------- products -- */

size_t mf_fixed_scratch_bytes_neon(const mf_matrix *w, uint32_t n_tokens)
{
    return product_scratch_bytes(w, n_tokens);
}

void mf_fixed_matmul_neon(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                          uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    multiply(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

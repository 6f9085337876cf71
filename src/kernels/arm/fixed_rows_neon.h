/* SPDX-License-Identifier: MIT */
/*
 * The fixed-point product, ARM: what all tiers have in common. Few tokens: the lanes are positions
 * along a row, as the packed weights lie in memory; low and high nibbles are even and odd columns.
 * Many: rows go in panels of eight, which become the lanes. As sums of groups are exact, both give
 * the same bits, on every tier. The including file defines first
 *
 *   dot(acc, a, b)   acc + the sums of each four products of signed bytes, a at most 15
 */
#ifndef MF_KERNELS_FIXED_ROWS_NEON_H
#define MF_KERNELS_FIXED_ROWS_NEON_H

#include "kernels/arm/fixed_neon.h"
#include "kernels/arm/weights_neon.h"

enum {
    ROWS = LANES, /* of a panel */
    TILE = 4,     /* tokens whose sums are held in registers */
    FEW = TILE,
    MIN_BITS = 4, /* of the weights */
    MAX_BITS = 4,
    HALF = 8 /* of QUADS, those of one parity */
};

typedef int32x4x2_t ints;

MF_LANE_OP ints ints_load(const int32_t *p)
{
    return (ints){{vld1q_s32(p), vld1q_s32(p + 4)}};
}

MF_LANE_OP ints ints_set(int32_t value)
{
    return (ints){{vdupq_n_s32(value), vdupq_n_s32(value)}};
}

MF_LANE_OP ints ints_add(ints a, ints b)
{
    return (ints){{vaddq_s32(a.val[0], b.val[0]), vaddq_s32(a.val[1], b.val[1])}};
}

MF_LANE_OP lanes ints_to_lanes(ints v)
{
    return lanes_of(vcvtq_f32_s32(v.val[0]), vcvtq_f32_s32(v.val[1]));
}

#include "kernels/x86/fixed_panel.h"

/* The scales and biases of a group of the weights, of a type that is a constant. */
MF_LANE_OP void expand_group(const panel *p, mf_dtype type, uint32_t g)
{
    const size_t value_bytes = type == MF_F32 ? 4 : 2,
                 n_groups = p->w->shape.n_cols / p->w->shape.group;
    unsigned char scales[ROWS * 4], biases[ROWS * 4];
    MF_UNROLL(8)
    for (uint32_t r = 0; r < ROWS; r++) {
        const size_t at = (p->rows[r] * n_groups + g) * value_bytes;
        memcpy(scales + r * value_bytes, p->w->scales + at, value_bytes);
        memcpy(biases + r * value_bytes, p->w->biases + at, value_bytes);
    }
    store_group(p, g, mf_load_float_neon(scales, type), mf_load_float_neon(biases, type));
}

static void expand_scales(const panel *p)
{
    const uint32_t n_groups = p->w->shape.n_cols / p->w->shape.group;
    for (uint32_t g = 0; g < n_groups; g++) {
        if (p->w->shape.float_type == MF_BF16)
            expand_group(p, MF_BF16, g);
        else if (p->w->shape.float_type == MF_F16)
            expand_group(p, MF_F16, g);
        else
            expand_group(p, MF_F32, g);
    }
}

MF_LANE_OP int8x16_t low_nibbles(uint8x16_t v)
{
    return vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(15)));
}

MF_LANE_OP int8x16_t high_nibbles(uint8x16_t v)
{
    return vreinterpretq_s8_u8(vshrq_n_u8(v, 4));
}

/* The sums of a group of one row, spread over four lanes. */
MF_LANE_OP int32x4_t sum_group(const unsigned char *weights, const mf_fixed_digits *x)
{
    const uint8x16_t first = vld1q_u8(weights), second = vld1q_u8(weights + 16);
    const int8x16_t w[2][2] = {{low_nibbles(first), low_nibbles(second)},
                               {high_nibbles(first), high_nibbles(second)}};
    int32x4_t sums[DIGITS];
    MF_UNROLL(3)
    for (int d = 0; d < DIGITS; d++) {
        sums[d] = vdupq_n_s32(0);
        for (int i = 0; i < 2; i++) {
            sums[d] = dot(sums[d], w[i][0], vld1q_s8(x->digit[d][i]));
            sums[d] = dot(sums[d], w[i][1], vld1q_s8(x->digit[d][i] + 16));
        }
    }
    const int32x4_t high = vaddq_s32(vshlq_n_s32(sums[2], 8), sums[1]);
    return vaddq_s32(vshlq_n_s32(high, 8), sums[0]);
}

MF_LANE_OP void sum_group_rows(const unsigned char *const rows[4], uint32_t g,
                               const mf_fixed_digits *x, int32_t *sums)
{
    int32x4_t s[4];
    MF_UNROLL(4)
    for (int r = 0; r < 4; r++)
        s[r] = sum_group(rows[r] + (size_t)g * GROUP_BYTES, x);
    vst1q_s32(sums, vpaddq_s32(vpaddq_s32(s[0], s[1]), vpaddq_s32(s[2], s[3])));
}

/* Sums of all groups of four rows, group g's at sums + g * ROWS. */
static void sum_rows(uint32_t bits, const unsigned char *const rows[4], uint32_t n_groups,
                     size_t ahead, const mf_fixed_digits *x, int32_t *sums)
{
    (void)bits;
    uint32_t g = 0;
    for (; g + 2 <= n_groups; g += 2, sums += 2 * ROWS) {
        for (int r = 0; r < 4; r++)
            __builtin_prefetch(rows[r] + (size_t)g * GROUP_BYTES + ahead);
        sum_group_rows(rows, g, x + g, sums);
        sum_group_rows(rows, g + 1, x + g + 1, sums + ROWS);
    }
    if (g < n_groups)
        sum_group_rows(rows, g, x + g, sums);
}

/* The packed weights of group g of a panel's rows, 32 bytes each. */
MF_LANE_OP void load_rows(const panel *p, uint32_t g, uint8x16_t rows[ROWS][2])
{
    const size_t row_bytes = mf_fixed_row_bytes(p->w);
    MF_UNROLL(8)
    for (uint32_t r = 0; r < ROWS; r++) {
        const unsigned char *from = p->w->data + p->rows[r] * row_bytes + (size_t)g * GROUP_BYTES;
        rows[r][0] = vld1q_u8(from);
        rows[r][1] = vld1q_u8(from + 16);
        __builtin_prefetch(from + ROWS * row_bytes);
    }
}

#endif

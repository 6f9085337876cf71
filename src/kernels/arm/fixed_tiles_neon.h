/* SPDX-License-Identifier: MIT */
/* The fixed-point product by many tokens, for tiers that add products in fours: a panel's packed
 * weights are transposed, so that a vector holds the same four columns of each row. */
#ifndef MF_KERNELS_FIXED_TILES_NEON_H
#define MF_KERNELS_FIXED_TILES_NEON_H

#include "kernels/arm/fixed_rows_neon.h"

/* Lane r of columns[c] is word c of rows[r]. */
MF_LANE_OP void transpose_words(const uint8x16_t rows[4], uint8x16_t columns[4])
{
    uint32x4_t words[4];
    uint64x2_t pairs[4];
    MF_UNROLL(4)
    for (int r = 0; r < 4; r++)
        words[r] = vreinterpretq_u32_u8(rows[r]);
    MF_UNROLL(2)
    for (int i = 0; i < 2; i++) {
        pairs[i] = vreinterpretq_u64_u32(vtrn1q_u32(words[2 * i], words[2 * i + 1]));
        pairs[2 + i] = vreinterpretq_u64_u32(vtrn2q_u32(words[2 * i], words[2 * i + 1]));
    }
    MF_UNROLL(2)
    for (int i = 0; i < 2; i++) {
        columns[i] = vreinterpretq_u8_u64(vtrn1q_u64(pairs[2 * i], pairs[2 * i + 1]));
        columns[2 + i] = vreinterpretq_u8_u64(vtrn2q_u64(pairs[2 * i], pairs[2 * i + 1]));
    }
}

static void unpack_panel(uint32_t bits, const panel *p, ints *out)
{
    (void)bits;
    const uint32_t n_groups = mf_fixed_groups(p->w);
    for (uint32_t g = 0; g < n_groups; g++, out += QUADS) {
        uint8x16_t rows[ROWS][2];
        load_rows(p, g, rows);
        for (uint32_t i = 0; i < 4; i++) { /* half i % 2 of four rows */
            const uint32_t first = i / 2 * 4, h = i % 2;
            const uint8x16_t four_rows[4] = {rows[first][h], rows[first + 1][h], rows[first + 2][h],
                                             rows[first + 3][h]};
            uint8x16_t columns[4];
            transpose_words(four_rows, columns);
            MF_UNROLL(4)
            for (uint32_t c = 0; c < 4; c++) {
                ints *to = out + 4 * h + c;
                to->val[i / 2] = vreinterpretq_s32_s8(low_nibbles(columns[c]));
                to[HALF].val[i / 2] = vreinterpretq_s32_s8(high_nibbles(columns[c]));
            }
        }
    }
}

/* Four neighbours, in every lane. */
MF_LANE_OP int8x16_t four(const signed char *digits)
{
    int32_t word;
    memcpy(&word, digits, sizeof word);
    return vreinterpretq_s8_s32(vdupq_n_s32(word));
}

MF_LANE_OP ints add_products(ints sum, const ints *weights, int8x16_t digits)
{
    return (ints){{dot(sum.val[0], vreinterpretq_s8_s32(weights->val[0]), digits),
                   dot(sum.val[1], vreinterpretq_s8_s32(weights->val[1]), digits)}};
}

/* n_tokens is a constant. */
MF_LANE_OP void sum_group_tokens(bool wide, uint32_t n_tokens, const ints *w0, const ints *w1,
                                 const mf_fixed_digits *x, size_t x_stride, ints *sums)
{
    (void)wide;
    ints acc[PANELS * TILE];
    for (uint32_t i = 0; i < PANELS * n_tokens; i++)
        acc[i] = ints_set(0);
    for (uint32_t d = DIGITS; d-- > 0;) {
        MF_UNROLL(8)
        for (uint32_t i = 0; i < PANELS * n_tokens; i++) {
            acc[i].val[0] = vshlq_n_s32(acc[i].val[0], 8);
            acc[i].val[1] = vshlq_n_s32(acc[i].val[1], 8);
        }
        for (uint32_t j = 0; j < QUADS; j++) {
            const signed char *digits = x->digit[d][j / HALF] + (size_t)(j % HALF) * 4;
            MF_UNROLL(4)
            for (uint32_t t = 0; t < n_tokens; t++) {
                const int8x16_t v = four(digits + t * x_stride);
                acc[PANELS * t] = add_products(acc[PANELS * t], &w0[j], v);
                acc[PANELS * t + 1] = add_products(acc[PANELS * t + 1], &w1[j], v);
            }
        }
    }
    for (uint32_t i = 0; i < PANELS * n_tokens; i++)
        sums[i] = acc[i];
}

#include "kernels/x86/fixed_as_it_lies.h"
#include "kernels/x86/fixed_product.h"

#endif

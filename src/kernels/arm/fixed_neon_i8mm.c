/* SPDX-License-Identifier: MIT */
/*
 * The fixed-point product by SDOT, and by SMMLA where tokens are many: two rows by two tokens,
 * eight columns at once. A panel's packed weights become pairs of rows, eight columns of one parity
 * each.
 */
#include "kernels/arm/lanes_neon.h"

MF_LANE_OP int32x4_t dot(int32x4_t acc, int8x16_t a, int8x16_t b)
{
    return vdotq_s32(acc, a, b);
}

#include "kernels/arm/fixed_rows_neon.h"

enum { EIGHTS = 4, ROW_PAIRS = ROWS / 2, TOKEN_PAIRS = TILE / 2 };

/* Vector (4 * parity + eight) * ROW_PAIRS + pair. */
static void unpack_panel(uint32_t bits, const panel *p, ints *out)
{
    (void)bits;
    const uint32_t n_groups = mf_fixed_groups(p->w);
    for (uint32_t g = 0; g < n_groups; g++, out += QUADS) {
        uint8x16_t rows[ROWS][2];
        load_rows(p, g, rows);
        for (uint32_t i = 0; i < 2 * ROW_PAIRS; i++) { /* half i % 2 of two rows */
            const uint32_t pair = i / 2, h = i % 2;
            const uint64x2_t a = vreinterpretq_u64_u8(rows[2 * pair][h]);
            const uint64x2_t b = vreinterpretq_u64_u8(rows[2 * pair + 1][h]);
            const uint8x16_t eights[2] = {vreinterpretq_u8_u64(vtrn1q_u64(a, b)),
                                          vreinterpretq_u8_u64(vtrn2q_u64(a, b))};
            for (uint32_t j = 0; j < 2; j++) {
                ints *to = out + (size_t)(2 * h + j) * 2 + pair / 2;
                to->val[pair % 2] = vreinterpretq_s32_s8(low_nibbles(eights[j]));
                to[HALF].val[pair % 2] = vreinterpretq_s32_s8(high_nibbles(eights[j]));
            }
        }
    }
}

/* Sums of two rows by two tokens each: those of four rows by one token. */
MF_LANE_OP int32x4_t of_token(int32x4_t rows01, int32x4_t rows23, uint32_t token)
{
    return token == 0 ? vuzp1q_s32(rows01, rows23) : vuzp2q_s32(rows01, rows23);
}

/* n_tokens is a constant; of an odd number the last one goes with itself. */
MF_LANE_OP void sum_group_tokens(bool wide, uint32_t n_tokens, const ints *w0, const ints *w1,
                                 const mf_fixed_digits *x, size_t x_stride, ints *sums)
{
    (void)wide;
    const uint32_t n_pairs = (n_tokens + 1) / 2;
    int32x4_t acc[TOKEN_PAIRS][PANELS][ROW_PAIRS];
    for (uint32_t t = 0; t < n_pairs; t++)
        for (uint32_t i = 0; i < PANELS * ROW_PAIRS; i++)
            acc[t][i / ROW_PAIRS][i % ROW_PAIRS] = vdupq_n_s32(0);
    for (uint32_t d = DIGITS; d-- > 0;) {
        MF_UNROLL(2)
        for (uint32_t t = 0; t < n_pairs; t++)
            MF_UNROLL(8)
        for (uint32_t i = 0; i < PANELS * ROW_PAIRS; i++)
            acc[t][i / ROW_PAIRS][i % ROW_PAIRS] =
                vshlq_n_s32(acc[t][i / ROW_PAIRS][i % ROW_PAIRS], 8);
        for (uint32_t j = 0; j < 2 * EIGHTS; j++) {
            const signed char *digits = x->digit[d][j / EIGHTS] + (size_t)(j % EIGHTS) * 8;
            const ints *w[PANELS] = {w0 + (size_t)2 * j, w1 + (size_t)2 * j};
            MF_UNROLL(2)
            for (uint32_t t = 0; t < n_pairs; t++) {
                const uint32_t other = 2 * t + 1 < n_tokens ? 2 * t + 1 : 2 * t;
                const int8x16_t v = vcombine_s8(vld1_s8(digits + 2 * t * x_stride),
                                                vld1_s8(digits + other * x_stride));
                MF_UNROLL(8)
                for (uint32_t i = 0; i < PANELS * ROW_PAIRS; i++) {
                    const uint32_t p = i / ROW_PAIRS, r = i % ROW_PAIRS;
                    acc[t][p][r] =
                        vmmlaq_s32(acc[t][p][r], vreinterpretq_s8_s32(w[p][r / 2].val[r % 2]), v);
                }
            }
        }
    }
    for (uint32_t t = 0; t < n_tokens; t++)
        for (uint32_t p = 0; p < PANELS; p++) {
            const int32x4_t *a = acc[t / 2][p];
            sums[PANELS * t + p] =
                (ints){{of_token(a[0], a[1], t % 2), of_token(a[2], a[3], t % 2)}};
        }
}

#include "kernels/x86/fixed_as_it_lies.h"
#include "kernels/x86/fixed_product.h"

size_t mf_fixed_scratch_bytes_neon_i8mm(const mf_matrix *w, uint32_t n_tokens)
{
    return product_scratch_bytes(w, n_tokens);
}

void mf_fixed_matmul_neon_i8mm(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                               uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    multiply(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

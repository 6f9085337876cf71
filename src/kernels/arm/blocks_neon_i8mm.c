/* SPDX-License-Identifier: MIT */
/* Formats of blocks in fixed point: by SDOT, and by SMMLA where tokens come in pairs. */
#include "kernels/arm/lanes_neon.h"

MF_LANE_OP int32x4_t dot(int32x4_t acc, int8x16_t a, int8x16_t b)
{
    return vdotq_s32(acc, a, b);
}

#include "kernels/arm/blocks_rows_neon.h"

/* 16 columns of two rows or tokens, as two times eight columns of both. */
typedef struct pair_16 {
    int8x16_t v[2];
} pair_16;

MF_LANE_OP pair_16 pair_up(int8x16_t first, int8x16_t second)
{
    const int64x2_t a = vreinterpretq_s64_s8(first), b = vreinterpretq_s64_s8(second);
    return (pair_16){
        {vreinterpretq_s8_s64(vtrn1q_s64(a, b)), vreinterpretq_s8_s64(vtrn2q_s64(a, b))}};
}

MF_LANE_OP int32x4_t add_pairs(int32x4_t acc, const pair_16 *w, const pair_16 *x)
{
    return vmmlaq_s32(vmmlaq_s32(acc, w->v[0], x->v[0]), w->v[1], x->v[1]);
}

/* 16 columns of four rows and of two tokens by digit, or 32. */
typedef struct pairs {
    pair_16 weights[2][2]; /* [rows 0, 1 or 2, 3][half] */
    pair_16 digits[DIGITS][2];
} pairs;

/* For each token the sums of the four rows, by digits `first` to `last`, of halves h0 to h1. */
MF_LANE_OP void sum_digits(const pairs *p, uint32_t first, uint32_t last, uint32_t h0, uint32_t h1,
                           int32x4_t out[2])
{
    int32x4_t sums[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
    for (uint32_t d = first + 1; d-- > last;) {
        for (uint32_t r = 0; r < 2; r++) {
            sums[r] = vshlq_n_s32(sums[r], 8);
            for (uint32_t h = h0; h <= h1; h++)
                sums[r] = add_pairs(sums[r], &p->weights[r][h], &p->digits[d][h]);
        }
    }
    out[0] = vuzp1q_s32(sums[0], sums[1]);
    out[1] = vuzp2q_s32(sums[0], sums[1]);
}

/* As add_chunk, of two tokens. */
MF_LANE_OP void add_chunk_pair(bool sixteens, uint32_t g, const pairs *p,
                               const span_scales *const s[4], float32x4_t sums[2])
{
    int32x4_t high[2], low[2];
    for (uint32_t h = 0; sixteens && h < 2; h++) {
        sum_digits(p, 2, 0, h, h, low);
        for (uint32_t t = 0; t < 2; t++)
            sums[t] = vfmaq_f32(sums[t], vcvtq_f32_s32(low[t]), scales_at(s, 2 * g + h));
    }
    if (sixteens)
        return;
    sum_digits(p, 2, 1, 0, 1, high);
    sum_digits(p, 0, 0, 0, 1, low);
    for (uint32_t t = 0; t < 2; t++)
        sums[t] = vfmaq_f32(sums[t], join(high[t], low[t]), scales_at(s, g));
}

/* Two tokens; sixteens is a constant. */
MF_LANE_OP void add_two(bool sixteens, bool with_min, const tile *a, uint32_t first)
{
    const unpacked_span *w = a->rows;
    const span_scales *const scales[4] = {&w[0].scales, &w[1].scales, &w[2].scales, &w[3].scales};
    const mf_blocks_span *x[2] = {span_of(a->tokens, a->token_bytes, first),
                                  span_of(a->tokens, a->token_bytes, first + 1)};
    float32x4_t sums[2] = {first_sums(with_min, scales, x[0]), first_sums(with_min, scales, x[1])};
    MF_ROLLED
    for (uint32_t g = 0; g < CHUNKS; g++) {
        const digits_32 x0 = load_digits(x[0], g), x1 = load_digits(x[1], g);
        pairs p;
        MF_UNROLL(2)
        for (uint32_t h = 0; h < 2; h++) {
            for (uint32_t r = 0; r < 2; r++)
                p.weights[r][h] = pair_up(w[2 * r].weights[g].v[h], w[2 * r + 1].weights[g].v[h]);
            for (uint32_t d = 0; d < DIGITS; d++)
                p.digits[d][h] = pair_up(x0.v[d][h], x1.v[d][h]);
        }
        add_chunk_pair(sixteens, g, &p, scales, sums);
    }
    for (uint32_t t = 0; t < 2; t++)
        add_sums(sums[t], x[t]->units[0], a->acc + first + t, a->apart);
}

/* Functions of their own: every kind has these same products. */
__attribute__((noinline)) static void add_wide(bool with_min, uint32_t n, const tile *a)
{
    for (uint32_t t = 0; t + 2 <= n; t += 2)
        add_two(false, with_min, a, t);
    if (n % 2 != 0)
        add_dots(false, with_min, 1, a, n - 1);
}

__attribute__((noinline)) static void add_narrow(bool with_min, uint32_t n, const tile *a)
{
    for (uint32_t t = 0; t + 2 <= n; t += 2)
        add_two(true, with_min, a, t);
    if (n % 2 != 0)
        add_dots(true, with_min, 1, a, n - 1);
}

#include "kernels/arm/blocks_spans_neon.h"

#include "kernels/x86/blocks_tokens.h"

#include "kernels/x86/blocks_product.h"

size_t mf_blocks_scratch_bytes_neon_i8mm(const mf_matrix *w, uint32_t n_tokens)
{
    return scratch_bytes(w, n_tokens);
}

void mf_blocks_matmul_neon_i8mm(const mf_matrix *w, uint32_t row0, uint32_t row1,
                                const void *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                                void *scratch)
{
    multiply(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

/* SPDX-License-Identifier: MIT */
/*
 * Formats of blocks in fixed point by VNNI of AVX2's width: one instruction multiplies four weights
 * by four digits and adds them up in 32 bits, whatever bits the weights have.
 */
#include "kernels/x86/blocks_avx2.h"

#include "kernels/x86/avx_vnni.h"
#include "kernels/x86/blocks_sizes_avx2.h"

enum { WIDE_APART = 0, WIDE_BITS = DIGIT_BITS };
#define WIDE_LIMIT MF_FIXED_LIMIT /* not used */

/* acc + the sums of each lane's four products of unsigned by signed bytes. By hand, as gcc 12
 * copies and stores the intrinsic's accumulators at each use. */
MF_INLINE __m256i add_products(__m256i acc, __m256i weights, __m256i digits)
{
    __asm__(MF_DPBUSD " %2, %1, %0" : "+x"(acc) : "x"(weights), "xm"(digits));
    return acc;
}

/* Sums by digit. */
MF_INLINE digit_sums join_digits(const blocks_form *f, const __m256i sums[DIGITS])
{
    const __m256i low = _mm256_add_epi32(sums[0], _mm256_slli_epi32(sums[1], DIGIT_BITS));
    if (f->has_high)
        return (digit_sums){low, sums[2]};
    const __m256i all = _mm256_add_epi32(low, _mm256_slli_epi32(sums[2], 2 * DIGIT_BITS));
    return (digit_sums){all, all};
}

/* A row's sums of each eight products. */
MF_INLINE digit_sums sum_eights(const blocks_form *f, const weights_64 *w, const mf_blocks_span *x,
                                uint32_t b)
{
    __m256i sums[DIGITS];
    MF_UNROLL(3)
    for (uint32_t d = 0; d < DIGITS; d++) {
        sums[d] = add_products(_mm256_setzero_si256(), w->half[0], digits_of(x, b, 0, d));
        sums[d] = add_products(sums[d], w->half[1], digits_of(x, b, 1, d));
    }
    return join_digits(f, sums);
}

/* The products of a row's columns in the n lanes from l on, of pair b, by eight tokens. */
MF_INLINE digit_sums sum_columns(const blocks_form *f, uint32_t n, const unpacked_span *w,
                                 const turned_span *x, uint32_t b, uint32_t l)
{
    __m256i sums[DIGITS] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
    MF_UNROLL(8)
    for (uint32_t i = 0; i < 2 * n; i++) {
        const uint32_t half = i % 2, lane = l + i / 2;
        const __m256i weights = four_weights(w, b, half, lane);
        MF_UNROLL(3)
        for (uint32_t d = 0; d < DIGITS; d++)
            sums[d] =
                add_products(sums[d], weights, x->v[DIGITS_AT + (2 * b + half) * DIGITS + d][lane]);
    }
    return join_digits(f, sums);
}

/* Sums beside wide weights: those by the highest digit apart. */
static void store_wide_sums(bool has_sixteens, const int32_t v[32], mf_blocks_span *span,
                            uint32_t b)
{
    int32_t low[32], high[32];
    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t half = 1u << (DIGIT_BITS - 1);
        const int32_t above = (int32_t)((uint32_t)v[i] + half) >> DIGIT_BITS;
        high[i] = (int32_t)((uint32_t)above + half) >> DIGIT_BITS;
        low[i] = (int32_t)((uint32_t)v[i] - ((uint32_t)high[i] << 2 * DIGIT_BITS));
    }
    sum_block(has_sixteens, low, span->pairs.sums[b % PAIRS] + b / PAIRS * 4);
    sum_block(has_sixteens, high, span->pairs.highs[b % PAIRS] + b / PAIRS * 4);
}

#include "kernels/x86/blocks_span_avx2.h"

MF_INLINE void sum_pair(const blocks_form *f, const weights_64 w[4], const mf_blocks_span *x,
                        uint32_t b, digit_sums out[2])
{
    const digit_sums eights[4] = {sum_eights(f, &w[0], x, b), sum_eights(f, &w[1], x, b),
                                  sum_eights(f, &w[2], x, b), sum_eights(f, &w[3], x, b)};
    add_eights(f, eights, out);
}

/* Codebooks are of one kind where a kind is a constant: those with scales of 16 columns have two
 * accumulators of their own, these. */
enum { GRID_SIXTEENS = 2 };

/* What the lanes of four accumulators come to: those of four rows. */
MF_INLINE void sum_four(mf_weight_kind kind, const vec v[4], float out[4])
{
    float sixteens[4];
    sum_accumulators(mf_blocks_has_sixteens(kind), v, out);
    if (mf_blocks_has_grid(kind)) {
        sum_accumulators(true, v + GRID_SIXTEENS, sixteens);
        for (uint32_t r = 0; r < 4; r++)
            out[r] += sixteens[r];
    }
}

/* A span of codebooks of four rows by a token. */
static void add_grid_span(mf_weight_kind kind, const unsigned char *const v[4],
                          const mf_blocks_span *x, vec acc[4])
{
    unpacked_span rows[4];
    const span_scales *const row_scales[4] = {&rows[0].scales, &rows[1].scales, &rows[2].scales,
                                              &rows[3].scales};
    blocks_form f = form_of(MF_BLOCKS_GRID);
    lane_values scales;
    for (uint32_t r = 0; r < 4; r++)
        unpack_grid(kind, v[r], &rows[r]);
    f.has_sixteens = f.by_sixteens = mf_blocks_has_sixteens(kind);
    if (f.has_sixteens) {
        scale_lanes(&f, row_scales, &scales, NULL);
        add_unpacked(&f, rows, &scales, NULL, x, acc + GRID_SIXTEENS, 1);
    } else {
        scale_lanes(&f, row_scales, &scales, NULL);
        add_unpacked(&f, rows, &scales, NULL, x, acc, 1);
    }
}

MF_INLINE void add_span(mf_weight_kind kind, uint32_t n, const span_tables *t,
                        const mf_blocks_rows *w, const unsigned char *const v[4],
                        const unsigned char *const s[4], const unsigned char *tokens,
                        size_t token_bytes, vec acc[FEW][4])
{
    (void)n;
    (void)token_bytes;
    if (mf_blocks_has_grid(kind))
        add_grid_span(w->kind, v, (const void *)tokens, acc[0]);
    else
        add_stored_span(kind, t, w, v, s, (const void *)tokens, acc[0]);
}

MF_INLINE void add_rows(mf_weight_kind kind, mf_weight_kind stored, const unpacked_span *w,
                        const group_tokens *x, vec *acc)
{
    begin_rows(x, acc);
    if (mf_blocks_has_grid(kind) && mf_blocks_has_sixteens(stored))
        add_wide_sixteens(excess_of(kind), w, x, acc + GRID_SIXTEENS * GROUP);
    else if (mf_blocks_is_wide(kind))
        add_wide(excess_of(kind), w, x, acc);
    else
        add_narrow_rows(kind, w, x, acc);
}

#include "kernels/x86/blocks_product.h"

void mf_blocks_prepare_avx_vnni(const mf_matrix *w, const float *x, void *out)
{
    prepare_token(w, x, out);
}

size_t mf_blocks_scratch_bytes_avx_vnni(const mf_matrix *w, uint32_t n_tokens)
{
    return scratch_bytes(w, n_tokens);
}

void mf_blocks_matmul_avx_vnni(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                               uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    multiply(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

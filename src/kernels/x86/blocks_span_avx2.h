/* SPDX-License-Identifier: MIT */
/*
 * Formats of blocks times activations in fixed point (blocks_token.h), AVX2: 64 columns at once, by
 * activations of three digits of a byte. Of a tier's own are, and come first, what multiplies
 * bytes, and how it goes by wide weights (mf_blocks_is_wide):
 *
 *   WIDE_APART                whether those have products of their own, by digits of
 *   WIDE_BITS, WIDE_LIMIT     so many bits, of activations as integers up to this, with a unit for
 *                             each 32 columns
 *   store_wide_sums()         what they are to have of a token beside digits
 *   sum_eights(), sum_columns()   integers of blocks_few_avx2.h and blocks_many_avx2.h
 *   sum_four(), add_span(), add_rows()   as blocks_product.h has them; after those two
 */
#ifndef MF_KERNELS_BLOCKS_SPAN_AVX2_H
#define MF_KERNELS_BLOCKS_SPAN_AVX2_H

#include "kernels/x86/blocks_grids.h"
#include "kernels/x86/blocks_many_avx2.h"

#include <math.h>

/* ------------------------------------------------------------------------------- activations -- */

/* The lowest digits of 32 integers, in the order of a pair's halves: the first one's 16 below. v
 * becomes what is left above them. */
MF_INLINE __m256i take_digits(pair_order order, int bits, __m256i v[4])
{
    __m256i digit[4];
    MF_UNROLL(4)
    for (int i = 0; i < 4; i++) {
        const __m256i half = _mm256_set1_epi32(1 << (bits - 1));
        const __m256i above = _mm256_srai_epi32(_mm256_add_epi32(v[i], half), bits);
        digit[i] = _mm256_sub_epi32(v[i], _mm256_slli_epi32(above, bits));
        v[i] = above;
    }
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(digit[0], digit[1]),
                                             _mm256_packs_epi32(digit[2], digit[3]));
    const __m256i in_order =
        _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    const __m256i parity = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    switch (order) {
    case PAIR_HALVES:
        return in_order;
    case PAIR_PARITIES:
        return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(in_order, parity), 0xd8);
    default:
        return _mm256_permute4x64_epi64(in_order, 0xd8);
    }
}

static void store_sums(bool has_sixteens, const int32_t v[32], mf_blocks_span *span, uint32_t b)
{
    const uint32_t first = b / PAIRS * 4;
    int32_t *sums = span->pairs.sums[b % PAIRS] + first;
    sum_block(has_sixteens, v, sums);
    for (uint32_t l = 0; l < 4; l++)
        span->pairs.totals[b % PAIRS][first + l] = (float)sums[l];
}

/* Block b's part of what both halves have. */
MF_INLINE void store_halves(__m256i v, void *first, void *last, uint32_t b)
{
    _mm_storeu_si128((__m128i *)first + b / PAIRS, _mm256_castsi256_si128(v));
    _mm_storeu_si128((__m128i *)last + b / PAIRS, _mm256_extracti128_si256(v, 1));
}

MF_INLINE void store_digits(const __m256i digits[DIGITS], mf_blocks_span *span, uint32_t b)
{
    signed char(*halves)[DIGITS][32] = span->pairs.digits[b % PAIRS];
    MF_UNROLL(3)
    for (uint32_t d = 0; d < DIGITS; d++)
        store_halves(digits[d], halves[0][d], halves[1][d], b);
}

MF_INLINE void store_words(const __m256i digits[DIGITS], mf_blocks_span *span, uint32_t b)
{
    int16_t(*halves)[2][2][16] = span->pairs.words[b % PAIRS];
    MF_UNROLL(2)
    for (uint32_t parity = 0; parity < 2; parity++) {
        const __m256i above = _mm256_slli_epi16(widen_bytes(digits[2], parity), WIDE_BITS);
        store_halves(widen_bytes(digits[0], parity), halves[0][parity][0], halves[1][parity][0], b);
        store_halves(_mm256_add_epi16(above, widen_bytes(digits[1], parity)), halves[0][parity][1],
                     halves[1][parity][1], b);
    }
}

/* Block b of 32 columns. */
MF_INLINE void prepare_block(mf_weight_kind kind, pair_order order, const float *x, __m256 per_unit,
                             mf_blocks_span *span, uint32_t b)
{
    const bool has_sixteens = mf_blocks_has_sixteens(kind);
    int32_t integers[32];
    __m256i v[4];
    MF_UNROLL(4)
    for (uint32_t i = 0; i < 4; i++) {
        v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), per_unit));
        _mm256_storeu_si256((__m256i *)(void *)(integers + 8 * i), v[i]);
    }
    if (mf_blocks_is_wide(kind))
        store_wide_sums(has_sixteens, integers, span, b);
    else
        store_sums(has_sixteens, integers, span, b);
    __m256i digits[DIGITS];
    MF_UNROLL(3)
    for (uint32_t d = 0; d < DIGITS; d++)
        digits[d] = take_digits(order, mf_blocks_is_wide(kind) ? WIDE_BITS : DIGIT_BITS, v);
    if (WIDE_APART && mf_blocks_is_wide(kind))
        store_words(digits, span, b);
    else
        store_digits(digits, span, b);
}

/* What one of n activations' integers counts. Where they are not finite that is not, and the
 * integers stand for nothing. */
MF_INLINE float unit_of(float limit, const float *x, uint32_t n, __m256 *per_unit)
{
    const float smallest = MF_FIXED_SMALLEST * (limit / MF_FIXED_LIMIT); /* the same unit */
    const float max = mf_largest_avx2(x, n), size = max < smallest ? smallest : max;
    *per_unit = _mm256_set1_ps(max < INFINITY ? limit / size : 0.0f);
    return size / limit;
}

MF_INLINE void prepare_span(mf_weight_kind kind, pair_order order, const float *x,
                            mf_blocks_span *span)
{
    __m256 per_unit;
    if (WIDE_APART && mf_blocks_is_wide(kind)) {
        for (uint32_t b = 0; b < 2 * PAIRS; b++) {
            const float unit = unit_of(WIDE_LIMIT, x + (size_t)b * 32, 32, &per_unit);
            prepare_block(kind, order, x + (size_t)b * 32, per_unit, span, b);
            _mm_storeu_ps(span->pairs.units[b % PAIRS] + b / PAIRS * 4, _mm_set1_ps(unit));
        }
        return;
    }
    span->units[0] = unit_of(MF_FIXED_LIMIT, x, MF_SPAN, &per_unit);
    for (uint32_t b = 0; b < 2 * PAIRS; b++)
        prepare_block(kind, order, x + (size_t)b * 32, per_unit, span, b);
}

/* An order is a constant, a kind need not be. */
MF_INLINE void prepare(mf_weight_kind kind, pair_order order, const float *x, uint32_t n_cols,
                       mf_blocks_span *span)
{
    uint32_t i = 0;
    for (; i + MF_SPAN <= n_cols; i += MF_SPAN)
        prepare_span(kind, order, x + i, span++);
    if (i < n_cols) {
        float last[MF_SPAN] = {0.0f};
        memcpy(last, x + i, (n_cols - i) * sizeof *x);
        prepare_span(kind, order, last, span);
    }
}

static void prepare_token(const mf_matrix *w, const float *x, void *out)
{
    const mf_weight_kind kind = w->shape.kind;
    switch (order_of(kind)) {
    case PAIR_PARITIES:
        prepare(kind, PAIR_PARITIES, x, w->shape.n_cols, out);
        break;
    case PAIR_HALVES:
        prepare(kind, PAIR_HALVES, x, w->shape.n_cols, out);
        break;
    default:
        prepare(kind, PAIR_EIGHTS, x, w->shape.n_cols, out);
        break;
    }
}

/* ---------------------------------------------------------------------------------- products -- */

/* Scales make up for weights that are twice what they mean. */
static float factor_of(mf_weight_kind kind)
{
    (void)kind;
    return 1.0f;
}

static uint32_t few_of(mf_weight_kind kind)
{
    (void)kind;
    return FEW;
}

MF_INLINE vec zero_vec(void)
{
    return _mm256_setzero_ps();
}

/* The tier's own. */
MF_INLINE void sum_four(mf_weight_kind kind, const vec v[4], float out[4]);

MF_INLINE void sum_panel(mf_weight_kind kind, const vec *v, size_t apart, float factor,
                         float out[16])
{
    for (uint32_t r = 0; r < 16; r += 4) {
        const vec four[4] = {v[r * apart], v[(r + 1) * apart], v[(r + 2) * apart],
                             v[(r + 3) * apart]};
        sum_four(kind, four, out + r);
        _mm_storeu_ps(out + r, _mm_mul_ps(_mm_loadu_ps(out + r), _mm_set1_ps(factor)));
    }
}

MF_INLINE void unpack_grid_of(mf_weight_kind kind, const unsigned char *v, unpacked_span *out)
{
    __m256 scales[2];
    grid_scales(kind, v, scales);
    _mm256_storeu_ps(out->scales.scale, scales[0]);
    _mm256_storeu_ps(out->scales.scale + 8, scales[1]);
    MF_ROLLED
    for (uint32_t b = 0; b < PAIRS; b++) {
        const __m256i low = grid_weights(kind, v, b), high = grid_weights(kind, v, b + PAIRS);
        const __m256i first = _mm256_permute2x128_si256(low, high, 0x20);
        const __m256i last = _mm256_permute2x128_si256(low, high, 0x31);
        out->weights[b] = raise_bytes(mf_blocks_has_sixteens(kind) ? in_eights(first, last)
                                                                   : (weights_64){{first, last}});
    }
}

/* A span of codebooks: as long as the products by it, so that a call does not matter. */
__attribute__((noinline)) static void unpack_grid(mf_weight_kind kind, const unsigned char *v,
                                                  unpacked_span *out){
    GRID_SWITCH(unpack_grid_of, kind, v, out)}

MF_INLINE void unpack_span(mf_weight_kind kind, const span_tables *t, const mf_blocks_rows *w,
                           const unsigned char *v, const unsigned char *s, unpacked_span *out)
{
    if (mf_blocks_has_grid(kind)) {
        unpack_grid(w->kind, v, out);
        return;
    }
    scales_of(kind, v, s, w, &out->scales);
    MF_UNROLL(4)
    for (uint32_t b = 0; b < PAIRS; b++)
        out->weights[b] = pair_weights(kind, t, v, b);
}

#endif

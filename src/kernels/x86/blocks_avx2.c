/* SPDX-License-Identifier: MIT */
/*
 * Formats of blocks times activations in fixed point (blocks_token.h), AVX2: 64 columns at once, by
 * activations of three digits of a byte. One instruction multiplies unsigned weights by digits and
 * adds the products in pairs, which 16 bits hold: of weights of up to 6 bits, by digits of 8, even
 * two of these sums (4 * 63 * 128), which blocks_narrow_avx2.h goes by; of wide ones
 * (mf_blocks_is_wide), by digits of 7 bits, one (2 * 255 * 64): blocks_wide_avx2.h. So activations
 * have 23 bits beside the former, and 21 beside the latter.
 */
#include "kernels/x86/blocks_avx2.h"

#include "kernels/x86/blocks_unpack_avx2.h"
#include "kernels/x86/fixed_token.h"

#include <math.h>

enum {
    SET = 4,
    TILE = 8,
    FEW = 1,
    GROUP = 16,
    PAIRS = 4, /* of blocks of 32 columns, in a span */
    DIGITS = 3,
    NARROW_BITS = 8, /* of a digit */
    WIDE_BITS = 7
};

/* The largest activation as an integer, beside wide weights: its highest digit is 63 at most. */
#define WIDE_LIMIT 1040000.0f

typedef __m256 vec;

/* A span of a row. */
typedef struct unpacked_span {
    weights_64 weights[PAIRS];
    span_scales scales;
} unpacked_span;

/* ------------------------------------------------------------------------------- activations -- */

/* The largest magnitude of a span; NaN if there is one. */
static float largest(const float *x)
{
    __m256i max = _mm256_setzero_si256();
    for (uint32_t i = 0; i < MF_SPAN; i += 8) {
        const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + i));
        max = _mm256_max_epu32(max, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
    }
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(m));
}

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

/* What a lane of sums of block b stands for, beside narrow weights: all columns of the block, or
 * the first and the last 16 in turn. */
static void store_sums(bool has_sixteens, const int32_t v[32], mf_blocks_span *span, uint32_t b)
{
    uint32_t sums[2] = {0, 0};
    for (uint32_t i = 0; i < 32; i++)
        sums[i / 16] += (uint32_t)v[i];
    for (uint32_t l = 0; l < 4; l++) {
        const int32_t sum = (int32_t)(has_sixteens ? sums[l % 2] : sums[0] + sums[1]);
        span->pairs.sums[b % PAIRS][b / PAIRS * 4 + l] = sum;
        span->pairs.totals[b % PAIRS][b / PAIRS * 4 + l] = (float)sum;
    }
}

/* The same beside wide ones: the columns whose digits are in a lane of either half. */
static void store_wide_sums(bool has_sixteens, const int32_t v[32], mf_blocks_span *span,
                            uint32_t b)
{
    for (uint32_t l = 0; l < 4; l++) {
        const uint32_t first = has_sixteens ? l / 2 * 16 + l % 2 * 4 : 4 * l;
        const int32_t *low = v + first, *high = low + (has_sixteens ? 8 : 16);
        uint32_t sum = 0;
        for (uint32_t i = 0; i < 4; i++)
            sum += (uint32_t)low[i] + (uint32_t)high[i];
        span->pairs.sums[b % PAIRS][b / PAIRS * 4 + l] = (int32_t)sum;
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
    (mf_blocks_is_wide(kind) ? store_wide_sums : store_sums)(has_sixteens, integers, span, b);
    MF_UNROLL(3)
    for (uint32_t d = 0; d < DIGITS; d++) {
        const __m256i digits =
            take_digits(order, mf_blocks_is_wide(kind) ? WIDE_BITS : NARROW_BITS, v);
        signed char(*halves)[DIGITS][32] = span->pairs.digits[b % PAIRS];
        _mm_storeu_si128((__m128i *)(void *)(halves[0][d] + b / PAIRS * 16),
                         _mm256_castsi256_si128(digits));
        _mm_storeu_si128((__m128i *)(void *)(halves[1][d] + b / PAIRS * 16),
                         _mm256_extracti128_si256(digits, 1));
    }
}

/* Activations that are not finite get a unit that is not, and integers that stand for nothing. */
MF_INLINE void prepare_span(mf_weight_kind kind, pair_order order, const float *x,
                            mf_blocks_span *span)
{
    const float limit = mf_blocks_is_wide(kind) ? WIDE_LIMIT : MF_FIXED_LIMIT;
    const float smallest = MF_FIXED_SMALLEST * (limit / MF_FIXED_LIMIT); /* the same unit */
    float max = largest(x);
    const bool is_finite = max < INFINITY;
    max = max < smallest ? smallest : max;
    const __m256 per_unit = _mm256_set1_ps(is_finite ? limit / max : 0.0f);
    for (uint32_t b = 0; b < 2 * PAIRS; b++)
        prepare_block(kind, order, x + (size_t)b * 32, per_unit, span, b);
    span->units[0] = max / limit;
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

void mf_blocks_prepare_avx2(const mf_matrix *w, const float *x, void *out)
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

MF_INLINE vec zero_vec(void)
{
    return _mm256_setzero_ps();
}

static uint32_t few_of(mf_weight_kind kind)
{
    (void)kind;
    return FEW;
}

/* Products of a half's weights by a digit of 64 columns, added in pairs. */
MF_INLINE __m256i by_digit(const weights_64 *w, const mf_blocks_span *x, uint32_t b, uint32_t half,
                           uint32_t d)
{
    const signed char *digits = x->pairs.digits[b][half][d];
    return _mm256_maddubs_epi16(w->half[half],
                                _mm256_loadu_si256((const __m256i *)(const void *)digits));
}

/* Words, added in pairs, times what a digit counts. */
MF_INLINE __m256i add_pairs(__m256i words, short value)
{
    return _mm256_madd_epi16(words, _mm256_set1_epi16(value));
}

/* What weights that are so many bits above what they mean add to the sums of pair b. */
MF_INLINE __m256i excess_in(int bits, const mf_blocks_span *x, uint32_t b)
{
    const __m256i sums = _mm256_loadu_si256((const __m256i *)(const void *)x->pairs.sums[b]);
    return _mm256_slli_epi32(sums, bits);
}

#include "kernels/x86/blocks_many_avx2.h"
#include "kernels/x86/blocks_wide_avx2.h"

/* What the lanes of four accumulators come to: those of four rows. */
MF_INLINE void sum_four(mf_weight_kind kind, const vec v[4], float out[4])
{
    if (mf_blocks_is_wide(kind))
        sum_wide_rows(v, out);
    else
        sum_narrow_rows(mf_blocks_has_sixteens(kind), v, out);
}

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

MF_INLINE void add_span(mf_weight_kind kind, uint32_t n, const span_tables *t,
                        const mf_blocks_rows *w, const unsigned char *const v[4],
                        const unsigned char *const s[4], const unsigned char *tokens,
                        size_t token_bytes, vec acc[FEW][4])
{
    (void)n;
    (void)token_bytes;
    if (mf_blocks_has_grid(kind))
        add_grid_span(w->kind, v, (const void *)tokens, acc[0]);
    else if (mf_blocks_is_wide(kind))
        add_wide_span(kind, t, w, v, s, (const void *)tokens, acc[0]);
    else
        add_narrow_span(kind, t, w, v, s, (const void *)tokens, acc[0]);
}

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

MF_INLINE void add_rows(mf_weight_kind kind, mf_weight_kind stored, const unpacked_span *w,
                        const group_tokens *x, vec *acc)
{
    if (mf_blocks_is_wide(kind))
        (mf_blocks_has_sixteens(stored) ? add_wide_sixteens : add_wide)(w, x, acc);
    else
        add_narrow_rows(kind, w, x, acc);
}

#include "kernels/x86/blocks_product.h"

size_t mf_blocks_scratch_bytes_avx2(const mf_matrix *w, uint32_t n_tokens)
{
    return scratch_bytes(w, n_tokens);
}

void mf_blocks_matmul_avx2(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                           uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    multiply(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

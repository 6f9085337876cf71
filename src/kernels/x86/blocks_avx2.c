/* SPDX-License-Identifier: MIT */
/*
 * Formats of blocks times activations in fixed point (blocks_token.h), AVX2: 64 columns at once,
 * eight of them in each lane of 32 bits, by activations of three digits of a byte. One instruction
 * multiplies unsigned weights by digits and adds the products in pairs, which 16 bits hold: of
 * weights of up to 6 bits, by digits of 8, even two of these sums (4 * 63 * 128); of wide ones
 * (mf_blocks_is_wide), by digits of 7 bits, one (2 * 255 * 64). So activations have 23 bits beside
 * the former, and 21 beside the latter.
 */
#include "kernels/x86/blocks_avx2.h"

#include "kernels/x86/blocks_unpack_avx2.h"
#include "kernels/x86/fixed_token.h"

#include "kernels/x86/blocks_grids.h"

#include <math.h>

enum {
    TILE = 2,
    SET = 4,
    FEW = 1,
    GROUP = 16,
    HAS_WIDE = 1,
    PAIRS = 4, /* of blocks of 32 columns, in a span */
    DIGITS = 3
};

/* The largest activation as an integer, beside wide weights: its highest digit is 63 at most. */
#define WIDE_LIMIT 1040000.0f

typedef __m256 vec;

/* A span of a row. */
typedef struct unpacked_span {
    weights_64 weights[PAIRS];
    __m256 scales[PAIRS];
    __m256 min[2];
    int zero_bits;
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

/* Of 32 integers the sums of each four lanes, of which the first is `out`. */
static void sum_lanes(pair_order order, const int32_t v[32], int32_t out[4])
{
    /* the columns of a lane: so many, in each half, from these on, `step` apart */
    static const unsigned char first[3][4][2] = {{{0, 16}, {4, 20}, {8, 24}, {12, 28}},
                                                 {{0, 1}, {8, 9}, {16, 17}, {24, 25}},
                                                 {{0, 8}, {4, 12}, {16, 24}, {20, 28}}};
    const uint32_t step = order == PAIR_PARITIES ? 2 : 1;
    for (uint32_t l = 0; l < 4; l++) {
        const int32_t *a = v + first[order][l][0], *b = v + first[order][l][1];
        out[l] =
            a[0] + a[step] + a[2 * step] + a[3 * step] + b[0] + b[step] + b[2 * step] + b[3 * step];
    }
}

/* Block b of 32 columns. */
MF_INLINE void prepare_block(pair_order order, int bits, const float *x, __m256 per_unit,
                             mf_blocks_span *span, uint32_t b)
{
    int32_t integers[32];
    __m256i v[4];
    MF_UNROLL(4)
    for (uint32_t i = 0; i < 4; i++) {
        v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), per_unit));
        _mm256_storeu_si256((__m256i *)(void *)(integers + 8 * i), v[i]);
    }
    sum_lanes(order, integers, span->pairs.sums[b % 4] + b / 4 * 4);
    for (uint32_t i = 0; i < 2; i++) {
        int32_t sum = 0;
        for (uint32_t j = 0; j < 16; j++)
            sum += integers[16 * i + j];
        span->sums[2 * b + i] = (float)sum;
    }
    MF_UNROLL(3)
    for (uint32_t d = 0; d < DIGITS; d++) {
        const __m256i digits = take_digits(order, bits, v);
        signed char(*to)[DIGITS][32] = span->pairs.digits[b % 4];
        _mm_storeu_si128((__m128i *)(void *)(to[0][d] + b / 4 * 16),
                         _mm256_castsi256_si128(digits));
        _mm_storeu_si128((__m128i *)(void *)(to[1][d] + b / 4 * 16),
                         _mm256_extracti128_si256(digits, 1));
    }
}

/* Activations that are not finite get a unit that is not, and integers that stand for nothing. */
MF_INLINE void prepare_span(pair_order order, bool is_wide, const float *x, mf_blocks_span *span)
{
    const float limit = is_wide ? WIDE_LIMIT : MF_FIXED_LIMIT;
    const float smallest = MF_FIXED_SMALLEST * (limit / MF_FIXED_LIMIT); /* the same unit */
    float max = largest(x);
    const bool is_finite = max < INFINITY;
    max = max < smallest ? smallest : max;
    const __m256 per_unit = _mm256_set1_ps(is_finite ? limit / max : 0.0f);
    for (uint32_t b = 0; b < 2 * PAIRS; b++)
        prepare_block(order, is_wide ? 7 : 8, x + (size_t)b * 32, per_unit, span, b);
    span->units[0] = max / limit;
}

MF_INLINE void prepare(pair_order order, bool is_wide, const float *x, uint32_t n_cols,
                       mf_blocks_span *span)
{
    uint32_t i = 0;
    for (; i + MF_SPAN <= n_cols; i += MF_SPAN)
        prepare_span(order, is_wide, x + i, span++);
    if (i < n_cols) {
        float last[MF_SPAN] = {0.0f};
        memcpy(last, x + i, (n_cols - i) * sizeof *x);
        prepare_span(order, is_wide, last, span);
    }
}

void mf_blocks_prepare_avx2(const mf_matrix *w, const float *x, void *out)
{
    const bool is_wide = mf_blocks_is_wide(w->shape.kind);
    switch (order_of(w->shape.kind)) {
    case PAIR_PARITIES:
        prepare(PAIR_PARITIES, false, x, w->shape.n_cols, out);
        break;
    case PAIR_HALVES:
        prepare(PAIR_HALVES, is_wide, x, w->shape.n_cols, out);
        break;
    default:
        prepare(PAIR_EIGHTS, is_wide, x, w->shape.n_cols, out);
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

MF_INLINE void sum_four(const vec v[4], float out[4])
{
    const __m256 ab = _mm256_hadd_ps(v[0], v[1]), cd = _mm256_hadd_ps(v[2], v[3]);
    const __m256 all = _mm256_hadd_ps(ab, cd);
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}

MF_INLINE void sum_panel(const vec *v, size_t apart, float factor, float out[16])
{
    for (uint32_t r = 0; r < 16; r += 4) {
        const vec four[4] = {v[r * apart], v[(r + 1) * apart], v[(r + 2) * apart],
                             v[(r + 3) * apart]};
        sum_four(four, out + r);
        _mm_storeu_ps(out + r, _mm_mul_ps(_mm_loadu_ps(out + r), _mm_set1_ps(factor)));
    }
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

/* Both halves by a digit. */
MF_INLINE __m256i halves_by_digit(const weights_64 *w, const mf_blocks_span *x, uint32_t b,
                                  uint32_t d)
{
    return _mm256_add_epi16(by_digit(w, x, b, 0, d), by_digit(w, x, b, 1, d));
}

/* The sums of each eight products of weights of up to 6 bits. */
MF_INLINE __m256i sum_eights(const weights_64 *w, const mf_blocks_span *x, uint32_t b)
{
    const __m256i high = add_pairs(halves_by_digit(w, x, b, 2), 256);
    const __m256i sum = _mm256_add_epi32(add_pairs(halves_by_digit(w, x, b, 0), 1),
                                         add_pairs(halves_by_digit(w, x, b, 1), 256));
    return _mm256_add_epi32(sum, _mm256_slli_epi32(high, 8));
}

/* The same of wide weights. */
MF_INLINE __m256i sum_wide_eights(const weights_64 *w, const mf_blocks_span *x, uint32_t b)
{
    __m256i sum = _mm256_setzero_si256();
    MF_UNROLL(2)
    for (uint32_t half = 0; half < 2; half++) {
        const __m256i low = _mm256_add_epi32(add_pairs(by_digit(w, x, b, half, 0), 1),
                                             add_pairs(by_digit(w, x, b, half, 1), 1 << 7));
        sum = _mm256_add_epi32(
            sum, _mm256_add_epi32(low, add_pairs(by_digit(w, x, b, half, 2), 1 << 14)));
    }
    return sum;
}

/* What weights that are so far above what they mean add to these sums. */
MF_INLINE __m256i excess(int zero_bits, const mf_blocks_span *x, uint32_t b)
{
    const __m256i sums = _mm256_loadu_si256((const __m256i *)(const void *)x->pairs.sums[b]);
    return _mm256_slli_epi32(sums, zero_bits);
}

/* What the minima add. */
MF_INLINE __m256 sum_minima(const __m256 min[2], const mf_blocks_span *x)
{
    return _mm256_fmadd_ps(min[1], _mm256_loadu_ps(x->sums + 8),
                           _mm256_mul_ps(min[0], _mm256_loadu_ps(x->sums)));
}

static uint32_t few_of(mf_weight_kind kind)
{
    (void)kind;
    return FEW;
}

MF_INLINE void unpack_grid_of(mf_weight_kind kind, const unsigned char *v, unpacked_span *out)
{
    span_scales scales;
    __m256 sixteen[2];
    grid_scales(kind, v, sixteen);
    if (mf_blocks_has_sixteens(kind))
        store_sixteen(scales.scale, sixteen[0], sixteen[1]);
    else
        _mm256_storeu_ps(scales.scale, sixteen[0]);
    MF_UNROLL(4)
    for (uint32_t b = 0; b < PAIRS; b++) {
        const __m256i low = grid_weights(kind, v, b), high = grid_weights(kind, v, b + 4);
        const __m256i first = _mm256_permute2x128_si256(low, high, 0x20);
        const __m256i last = _mm256_permute2x128_si256(low, high, 0x31);
        out->weights[b] = raise_bytes(mf_blocks_has_sixteens(kind) ? in_eights(first, last)
                                                                   : (weights_64){{first, last}});
        out->scales[b] = pair_scales(kind, b, &scales);
    }
}

/* A span of codebooks: as long as the products by it, so that a call does not matter. */
__attribute__((noinline)) static void unpack_grid(mf_weight_kind kind, const unsigned char *v,
                                                  unpacked_span *out)
{
    GRID_SWITCH(unpack_grid_of, kind, v, out)
}

/* One token by a span of four rows. */
static void add_grid_span(mf_weight_kind kind, const unsigned char *const v[4],
                          const mf_blocks_span *x, vec acc[4])
{
    for (uint32_t r = 0; r < 4; r++) {
        unpacked_span row;
        __m256 sum = _mm256_setzero_ps();
        unpack_grid(kind, v[r], &row);
        MF_UNROLL(4)
        for (uint32_t b = 0; b < PAIRS; b++) {
            const __m256i eights =
                _mm256_sub_epi32(sum_wide_eights(&row.weights[b], x, b), excess(7, x, b));
            sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(eights), row.scales[b], sum);
        }
        acc[r] = _mm256_fmadd_ps(sum, _mm256_set1_ps(x->units[0]), acc[r]);
    }
}

MF_INLINE void add_span(mf_weight_kind kind, uint32_t n, const span_tables *t,
                        const mf_blocks_rows *w, const unsigned char *const v[4],
                        const unsigned char *const s[4], const unsigned char *tokens,
                        size_t token_bytes, vec acc[FEW][4])
{
    const mf_blocks_span *x = (const void *)tokens;
    const bool is_wide = mf_blocks_is_wide(kind), has_min = mf_blocks_has_min(kind);
    (void)n;
    (void)token_bytes;
    if (mf_blocks_has_grid(kind)) {
        add_grid_span(w->kind, v, x, acc[0]);
        return;
    }
    span_scales scales[4];
    __m256 sums[4];
    MF_UNROLL(4)
    for (uint32_t r = 0; r < 4; r++) {
        scales_of(kind, v[r], s[r], w, &scales[r]);
        sums[r] = _mm256_setzero_ps();
        if (has_min) {
            const __m256 min[2] = {_mm256_loadu_ps(scales[r].min),
                                   _mm256_loadu_ps(scales[r].min + 8)};
            sums[r] = sum_minima(min, x);
        }
    }
    MF_UNROLL(4)
    for (uint32_t b = 0; b < PAIRS; b++) {
        MF_UNROLL(4)
        for (uint32_t r = 0; r < 4; r++) {
            const weights_64 weights = pair_weights(kind, t, v[r], b);
            __m256i eights = is_wide ? sum_wide_eights(&weights, x, b) : sum_eights(&weights, x, b);
            if (!has_min)
                eights = _mm256_sub_epi32(eights, excess(zero_bits_of(kind), x, b));
            sums[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(eights), pair_scales(kind, b, &scales[r]),
                                      sums[r]);
        }
    }
    const __m256 unit = _mm256_set1_ps(x->units[0]);
    MF_UNROLL(4)
    for (uint32_t r = 0; r < 4; r++)
        acc[0][r] = _mm256_fmadd_ps(sums[r], unit, acc[0][r]);
}

MF_INLINE void unpack_span(mf_weight_kind kind, const span_tables *t, const mf_blocks_rows *w,
                           const unsigned char *v, const unsigned char *s, unpacked_span *out)
{
    if (mf_blocks_has_grid(kind)) {
        unpack_grid(w->kind, v, out);
        return;
    }
    span_scales scales;
    scales_of(kind, v, s, w, &scales);
    MF_UNROLL(4)
    for (uint32_t b = 0; b < PAIRS; b++) {
        out->weights[b] = pair_weights(kind, t, v, b);
        out->scales[b] = pair_scales(kind, b, &scales);
    }
    out->zero_bits = zero_bits_of(kind);
    if (mf_blocks_has_min(kind)) {
        out->min[0] = _mm256_loadu_ps(scales.min);
        out->min[1] = _mm256_loadu_ps(scales.min + 8);
    }
}

/* n, a constant, tokens. */
MF_INLINE void add_tile(bool with_min, bool is_wide, uint32_t n, const unpacked_span *w,
                        const unsigned char *tokens, size_t token_bytes, vec *acc, size_t apart)
{
    const mf_blocks_span *x[TILE];
    __m256 sums[TILE][4];
    MF_UNROLL(2)
    for (uint32_t t = 0; t < n; t++) {
        x[t] = (const void *)(tokens + t * token_bytes);
        MF_UNROLL(4)
        for (uint32_t r = 0; r < 4; r++)
            sums[t][r] = with_min ? sum_minima(w[r].min, x[t]) : _mm256_setzero_ps();
    }
    MF_ROLLED
    for (uint32_t b = 0; b < PAIRS; b++) {
        __m256i above[TILE];
        MF_UNROLL(2)
        for (uint32_t t = 0; t < n; t++)
            above[t] = excess(is_wide ? 7 : w->zero_bits, x[t], b);
        MF_UNROLL(4)
        for (uint32_t r = 0; r < 4; r++) {
            const weights_64 *weights = &w[r].weights[b];
            MF_UNROLL(2)
            for (uint32_t t = 0; t < n; t++) {
                __m256i eights =
                    is_wide ? sum_wide_eights(weights, x[t], b) : sum_eights(weights, x[t], b);
                if (!with_min)
                    eights = _mm256_sub_epi32(eights, above[t]);
                sums[t][r] =
                    _mm256_fmadd_ps(_mm256_cvtepi32_ps(eights), w[r].scales[b], sums[t][r]);
            }
        }
    }
    MF_UNROLL(2)
    for (uint32_t t = 0; t < n; t++) {
        const __m256 unit = _mm256_set1_ps(x[t]->units[0]);
        MF_UNROLL(4)
        for (uint32_t r = 0; r < 4; r++)
            acc[r * apart + t] = _mm256_fmadd_ps(sums[t][r], unit, acc[r * apart + t]);
    }
}

#include "kernels/x86/blocks_product.h"

size_t mf_blocks_scratch_bytes_avx2(const mf_matrix *w, uint32_t n_tokens)
{
    (void)w;
    return scratch_bytes(n_tokens);
}

void mf_blocks_matmul_avx2(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                           uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    multiply(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

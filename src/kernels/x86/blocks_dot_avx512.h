/* SPDX-License-Identifier: MIT */
/*
 * Formats of blocks times activations in fixed point (blocks_token.h), AVX-512 with VNNI, over rows
 * as blocks_row_avx512.h has them.
 */
#ifndef MF_KERNELS_BLOCKS_DOT_AVX512_H
#define MF_KERNELS_BLOCKS_DOT_AVX512_H

#include "kernels/x86/blocks_avx512.h"
#include "kernels/x86/blocks_row_avx512.h"

enum { TILE = 3, SET = 8, FEW = 4, GROUP = 24 };

typedef __m512 vec;

/* ------------------------------------------------------------------------------- activations -- */

/* The largest sum of the magnitudes of a lane's 16 columns, of 64. */
static float largest_lane(mf_weight_kind kind, const __m512 x[4])
{
    __m512 v[4];
    for (uint32_t i = 0; i < 4; i++)
        v[i] = _mm512_abs_ps(x[i]);
    if (mf_blocks_is_woven(kind)) {
        const __m512 first[2] = {v[0], v[2]}, last[2] = {v[1], v[3]};
        for (uint32_t b = 0; b < 2; b++) {
            v[2 * b] = _mm512_shuffle_f32x4(first[b], last[b], 0x88);
            v[2 * b + 1] = _mm512_shuffle_f32x4(first[b], last[b], 0xdd);
        }
    }
    const __m128 sums = mf_sum4_avx512(v[0], v[1], v[2], v[3]);
    const __m128 pairs = _mm_max_ps(sums, _mm_permute_ps(sums, 0x4e));
    return _mm_cvtss_f32(_mm_max_ps(pairs, _mm_permute_ps(pairs, 0xb1)));
}

/* What 64 columns' unit is to reach to, MF_FIXED_LIMIT times: so far that the sum of a lane's
 * products, too, fits 32 bits. 16 integers come to 4 * MF_FIXED_LIMIT at most, to which their own
 * roundings add 8 and those of floats on the way 6: below 2^24, times a weight of at most 128 below
 * 2^31. */
static float reach_of(mf_weight_kind kind, const float *x, const __m512 columns[4], uint32_t n)
{
    const __m512 quarter = _mm512_set1_ps(0.25f);
    __m512 quarters[4];
    for (uint32_t i = 0; i < 4; i++)
        quarters[i] = _mm512_mul_ps(columns[i], quarter);
    const float max = largest(x, n), lane = largest_lane(kind, quarters);
    return lane > max ? lane : max; /* one that is not a number is max */
}

/* The digits of 64 columns' integers, of which those past n are 0; their unit. */
static float prepare_chunk(mf_weight_kind kind, const float *x, uint32_t n, __m512i digits[DIGITS])
{
    unsigned char bytes[DIGITS][CHUNK];
    __m512 columns[4];
    for (uint32_t i = 0; i < 4; i++)
        columns[i] = _mm512_maskz_loadu_ps(n > 16 * i ? mf_tail_avx512(n, 16 * i) : 0, x + 16 * i);
    float reach = reach_of(kind, x, columns, n < CHUNK ? n : CHUNK);
    reach = reach < MF_FIXED_SMALLEST ? MF_FIXED_SMALLEST : reach;
    const __m512 per_unit = _mm512_set1_ps(MF_FIXED_LIMIT / reach);
    for (uint32_t i = 0; i < 4; i++) {
        __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(columns[i], per_unit));
        for (uint32_t d = 0; d < DIGITS; d++) { /* what is left, above this byte as a signed one */
            _mm_storeu_si128((__m128i *)(void *)(bytes[d] + 16 * i), _mm512_cvtepi32_epi8(v));
            v = mf_above_digit_avx512(v);
        }
    }
    for (uint32_t d = 0; d < DIGITS; d++)
        digits[d] = _mm512_loadu_si512(bytes[d]);
    return reach / MF_FIXED_LIMIT;
}

/* Which 64 columns those of each lane are of. */
static __m512i chunk_of_lanes(mf_weight_kind kind)
{
    const __m512i fours = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    if (mf_blocks_is_paired(kind))
        return _mm512_setr_epi32(0, 0, 2, 2, 0, 0, 2, 2, 1, 1, 3, 3, 1, 1, 3, 3);
    if (mf_blocks_is_crossed(kind))
        return _mm512_shuffle_i32x4(fours, fours, 0xd8);
    return mf_blocks_is_woven(kind)
               ? fours
               : _mm512_setr_epi32(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
}

static void prepare_span(mf_weight_kind kind, const float *x, uint32_t n, mf_blocks_span *span)
{
    const __m512i one = _mm512_set1_epi8(1);
    __m512i digits[CHUNKS][DIGITS], sums[DIGITS];
    float units[CHUNKS];
    for (uint32_t c = 0; c < CHUNKS; c++)
        units[c] = prepare_chunk(kind, x + (size_t)c * CHUNK, n > c * CHUNK ? n - c * CHUNK : 0,
                                 digits[c]);
    for (uint32_t d = 0; d < DIGITS; d++) {
        const __m512i rows[CHUNKS] = {digits[0][d], digits[1][d], digits[2][d], digits[3][d]};
        __m512i columns[CHUNKS];
        order_lanes(kind, rows, columns);
        sums[d] = _mm512_setzero_si512();
        for (uint32_t k = 0; k < CHUNKS; k++) {
            _mm512_storeu_si512(span->bytes.digits[d][k], columns[k]);
            sums[d] = add_products(sums[d], one, columns[k]);
        }
    }
    const __m512 each = _mm512_broadcast_f32x4(_mm_loadu_ps(units));
    const __m512 unit = _mm512_permutexvar_ps(chunk_of_lanes(kind), each);
    const __m512i low = _mm512_add_epi32(_mm512_slli_epi32(sums[1], 8), sums[0]);
    const __m512i all = _mm512_add_epi32(_mm512_slli_epi32(sums[2], 16), low);
    _mm512_storeu_si512(span->bytes.offsets, offset_of(all));
    _mm512_storeu_si512(span->bytes.small_offsets,
                        _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(all, 3)));
    _mm512_storeu_ps(span->sums, _mm512_mul_ps(_mm512_cvtepi32_ps(all), unit));
    _mm512_storeu_ps(span->units, unit);
}

/* mf_kernels.prepare_token. Activations that are not finite get a unit that is not. */
static void prepare(const mf_matrix *w, const float *x, mf_blocks_span *span)
{
    for (uint32_t i = 0; i < w->shape.n_cols; i += MF_SPAN, span++)
        prepare_span(w->shape.kind, x + i,
                     w->shape.n_cols - i < MF_SPAN ? w->shape.n_cols - i : MF_SPAN, span);
}

/* ---------------------------------------------------------------------------------- products -- */

MF_INLINE vec zero_vec(void)
{
    return _mm512_setzero_ps();
}

MF_INLINE void sum_four(mf_weight_kind kind, const vec v[4], float out[4])
{
    (void)kind;
    _mm_storeu_ps(out, mf_sum4_avx512(v[0], v[1], v[2], v[3]));
}

/* Of two vectors' lanes i and i + 8: of a in the lower half, of b in the upper one. */
MF_INLINE __m512 add_halves(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}

/* The lanes of 16 vectors, added up in the order of mf_sum4_avx512, times factor. */
MF_INLINE void sum_panel(mf_weight_kind kind, const vec *v, size_t apart, float factor,
                         float out[16])
{
    (void)kind;
    __m512 quarters[4], pairs[2];
    MF_UNROLL(4)
    for (uint32_t i = 0; i < 4; i++) {
        const vec *four = v + 4 * i * apart;
        const __m512 a = add_halves(four[0], four[apart]);
        const __m512 b = add_halves(four[2 * apart], four[3 * apart]);
        quarters[i] =
            _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    }
    MF_UNROLL(2)
    for (uint32_t i = 0; i < 2; i++) /* of each quarter two of the first, two of the second */
        pairs[i] = _mm512_add_ps(_mm512_shuffle_ps(quarters[2 * i], quarters[2 * i + 1], 0x44),
                                 _mm512_shuffle_ps(quarters[2 * i], quarters[2 * i + 1], 0xee));
    const __m512 sums = _mm512_add_ps(_mm512_shuffle_ps(pairs[0], pairs[1], 0x88),
                                      _mm512_shuffle_ps(pairs[0], pairs[1], 0xdd));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_storeu_ps(out,
                     _mm512_mul_ps(_mm512_permutexvar_ps(order, sums), _mm512_set1_ps(factor)));
}

/* What a span's sums, by all digits together, add to an output. */
MF_INLINE vec add_sum(bool with_min, __m512i sum, const unpacked_span *w, const mf_blocks_span *x,
                      __m512 units, vec acc)
{
    acc = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum), units), w->scale, acc);
    return with_min ? _mm512_fmadd_ps(w->min, _mm512_loadu_ps(x->sums), acc) : acc;
}

MF_INLINE __m512i digits_at(const mf_blocks_span *x, uint32_t digit, uint32_t k)
{
    return _mm512_loadu_si512(x->bytes.digits[digit][k]);
}

MF_INLINE uint32_t few_of(mf_weight_kind kind)
{
    return goes_by_codes(kind) ? 2 * FEW : 1;
}

/* One token. Rows go side by side, so that no sum waits for itself. */
MF_INLINE void add_codes(mf_weight_kind kind, const mf_blocks_span *x,
                         const __m512i codes[4][CHUNKS], const __m512 scales[4],
                         const __m512 minima[4], vec acc[4])
{
    __m512i sums[4];
    MF_UNROLL(3)
    for (uint32_t d = 0; d < DIGITS; d++) { /* the highest first */
        MF_UNROLL(4)
        for (uint32_t r = 0; r < 4; r++)
            sums[r] = d > 0 ? _mm512_slli_epi32(sums[r], 8) : _mm512_setzero_si512();
        MF_UNROLL(4)
        for (uint32_t k = 0; k < CHUNKS; k++) {
            const __m512i digits = digits_at(x, DIGITS - 1 - d, k);
            MF_UNROLL(4)
            for (uint32_t r = 0; r < 4; r++)
                sums[r] = add_products(sums[r], codes[r][k], digits);
        }
    }
    MF_UNROLL(4)
    for (uint32_t r = 0; r < 4; r++) {
        if (kind == MF_WEIGHT_GGUF_Q4_0)
            sums[r] = _mm512_add_epi32(sums[r], _mm512_loadu_si512(x->bytes.small_offsets));
        acc[r] =
            _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sums[r]), _mm512_loadu_ps(x->units)),
                            scales[r], acc[r]);
        if (mf_blocks_has_min(kind))
            acc[r] = _mm512_fmadd_ps(minima[r], _mm512_loadu_ps(x->sums), acc[r]);
    }
}

MF_INLINE void add_coded_span(mf_weight_kind kind, uint32_t n, const span_tables *t,
                              const mf_blocks_rows *w, const unsigned char *const v[4],
                              const unsigned char *tokens, size_t token_bytes, vec acc[FEW][4])
{
    __m512i codes[4][CHUNKS];
    __m512 scales[4], minima[4];
    MF_UNROLL(4)
    for (uint32_t r = 0; r < 4; r++) {
        const span_scales of = scales_of(kind, t, v[r], NULL, w);
        woven_codes(kind, t, v[r], codes[r]);
        scales[r] = lane_scales(kind, &of);
        minima[r] = lane_minima(kind, &of);
    }
    MF_UNROLL(4)
    for (uint32_t i = 0; i < n; i++)
        add_codes(kind, (const void *)(tokens + i * token_bytes), codes, scales, minima, acc[i]);
}

/* A span's codes, or weights 128 above what they are, and what the sum by them begins with. */
MF_INLINE __m512i unpack_one(mf_weight_kind kind, const span_tables *t, const mf_blocks_rows *w,
                             const unsigned char *v, const unsigned char *s,
                             const mf_blocks_span *x, unpacked_span *row)
{
    if (!goes_by_codes(kind)) {
        unpack_span(kind, t, w, v, s, row);
        return _mm512_loadu_si512(x->bytes.offsets);
    }
    const span_scales of = scales_of(kind, t, v, s, w);
    woven_codes(kind, t, v, row->weights);
    row->scale = lane_scales(kind, &of);
    if (mf_blocks_has_min(kind))
        row->min = lane_minima(kind, &of);
    return kind == MF_WEIGHT_GGUF_Q4_0 ? _mm512_loadu_si512(x->bytes.small_offsets)
                                       : _mm512_setzero_si512();
}

/* A row by one token: more rows at once would not leave the registers for a sum of each digit. */
MF_INLINE vec add_one(mf_weight_kind kind, const span_tables *t, const mf_blocks_rows *w,
                      const unsigned char *v, const unsigned char *s, const mf_blocks_span *x,
                      vec acc)
{
    unpacked_span row;
    const __m512i offset = unpack_one(kind, t, w, v, s, x, &row);
    const __m512i sum = join(add_digits(row.weights, x->bytes.digits, offset));
    return add_sum(mf_blocks_has_min(kind), sum, &row, x, _mm512_loadu_ps(x->units), acc);
}

#if defined(__AVX512VBMI__)
/* The same, where those of odd blocks are 16 times what they should be. */
MF_INLINE __m512i join_masked(digit_sums s)
{
    const __m512i by_low = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0, 4, 4));
    const __m512i by_middle = _mm512_broadcast_i32x4(_mm_setr_epi32(8, 8, 4, 4));
    const __m512i by_high = _mm512_broadcast_i32x4(_mm_setr_epi32(16, 16, 12, 12));
    const __m512i low =
        _mm512_add_epi32(_mm512_srav_epi32(s.low, by_low), _mm512_sllv_epi32(s.middle, by_middle));
    return _mm512_add_epi32(_mm512_sllv_epi32(s.high, by_high), low);
}

/* A row of Q4_K or Q5_K by one token, with what its heads say. */
MF_INLINE vec add_one_k(mf_weight_kind kind, const span_tables *t, const unsigned char *v,
                        const k_heads *heads, uint32_t r, const mf_blocks_span *x, vec acc)
{
    unpacked_span row;
    if (kind == MF_WEIGHT_GGUF_Q4_K)
        masked_codes(v, row.weights);
    else
        woven_codes(kind, t, v, row.weights);
    const digit_sums sums = add_digits(row.weights, x->bytes.digits, _mm512_setzero_si512());
    const span_scales of = k_scales_at(heads, r);
    row.scale = of.scale;
    row.min = of.min;
    return add_sum(true, kind == MF_WEIGHT_GGUF_Q4_K ? join_masked(sums) : join(sums), &row, x,
                   _mm512_loadu_ps(x->units), acc);
}
#endif

/* A row of a form of pairs by one token, with its scales. */
MF_INLINE vec add_one_paired(mf_weight_kind kind, const span_tables *t, const unsigned char *v,
                             __m512 scale, const mf_blocks_span *x, vec acc)
{
    unpacked_span row = {.scale = scale};
    __m512i offset;
    if (kind == MF_WEIGHT_INT4) {
        paired_codes(v, row.weights);
        offset = _mm512_loadu_si512(x->bytes.small_offsets);
    } else {
        paired_weights(t, v, row.weights);
        offset = _mm512_loadu_si512(x->bytes.offsets);
    }
    return add_sum(false, join(add_digits(row.weights, x->bytes.digits, offset)), &row, x,
                   _mm512_loadu_ps(x->units), acc);
}

MF_INLINE void add_span(mf_weight_kind kind, uint32_t n, const span_tables *t,
                        const mf_blocks_rows *w, const unsigned char *const v[4],
                        const unsigned char *const s[4], const unsigned char *tokens,
                        size_t token_bytes, vec acc[FEW][4])
{
    if (n > 1 && goes_by_codes(kind)) {
        add_coded_span(kind, n, t, w, v, tokens, token_bytes, acc);
        return;
    }
    if (mf_blocks_is_paired(kind)) {
        __m512 scales[4];
        paired_scales(kind, 4, t, w, s, scales);
        MF_UNROLL(4)
        for (uint32_t r = 0; r < 4; r++)
            acc[0][r] = add_one_paired(kind, t, v[r], scales[r], (const void *)tokens, acc[0][r]);
        return;
    }
#if defined(__AVX512VBMI__)
    if (kind == MF_WEIGHT_GGUF_Q4_K || kind == MF_WEIGHT_GGUF_Q5_K) {
        k_heads heads;
        k_heads_of(v, &heads);
        MF_UNROLL(4)
        for (uint32_t r = 0; r < 4; r++)
            acc[0][r] = add_one_k(kind, t, v[r], &heads, r, (const void *)tokens, acc[0][r]);
        return;
    }
#endif
    MF_UNROLL(4)
    for (uint32_t r = 0; r < 4; r++)
        acc[0][r] = add_one(kind, t, w, v[r], s[r], (const void *)tokens, acc[0][r]);
}

/* One digit of n, a constant, tokens into the sums of SET rows. A loop, as the weights are to be
 * loaded again by each digit: there are registers for the sums alone. */
MF_INLINE void add_digit(uint32_t n, uint32_t digit, const unpacked_span *w,
                         const mf_blocks_span *const x[TILE], __m512i sums[SET][TILE])
{
    MF_ROLLED
    for (uint32_t k = 0; k < CHUNKS; k++) {
        __m512i digits[TILE];
        MF_UNROLL(3)
        for (uint32_t t = 0; t < n; t++)
            digits[t] = digits_at(x[t], digit, k);
        MF_UNROLL(8)
        for (uint32_t r = 0; r < SET; r++) {
            const __m512i weights = w[r].weights[k];
            MF_UNROLL(3)
            for (uint32_t t = 0; t < n; t++)
                sums[r][t] = add_products(sums[r][t], weights, digits[t]);
        }
    }
}

/* By a digit's 8 bits. */
MF_INLINE void shift_sums(uint32_t n, __m512i sums[SET][TILE])
{
    MF_UNROLL(8)
    for (uint32_t r = 0; r < SET; r++) {
        MF_UNROLL(3)
        for (uint32_t t = 0; t < n; t++)
            sums[r][t] = _mm512_slli_epi32(sums[r][t], 8);
    }
}

/* SET rows by n, a constant, tokens. */
MF_INLINE void add_tile(bool with_min, uint32_t n, const unpacked_span *w,
                        const unsigned char *tokens, size_t token_bytes, bool begins, vec *acc,
                        size_t apart)
{
    const __mmask16 so_far = begins ? 0 : 0xffff; /* of what is in acc */
    const mf_blocks_span *x[TILE];
    __m512i sums[SET][TILE];
    MF_UNROLL(3)
    for (uint32_t t = 0; t < n; t++)
        x[t] = (const void *)(tokens + t * token_bytes);
    MF_UNROLL(8)
    for (uint32_t r = 0; r < SET; r++) {
        MF_UNROLL(3)
        for (uint32_t t = 0; t < n; t++)
            sums[r][t] = _mm512_setzero_si512();
    }
    add_digit(n, 2, w, x, sums);
    shift_sums(n, sums);
    add_digit(n, 1, w, x, sums);
    shift_sums(n, sums);
    add_digit(n, 0, w, x, sums);
    MF_UNROLL(3)
    for (uint32_t t = 0; t < n; t++) {
        const __m512i offset = _mm512_loadu_si512(x[t]->bytes.offsets);
        const __m512 units = _mm512_loadu_ps(x[t]->units);
        MF_UNROLL(8)
        for (uint32_t r = 0; r < SET; r++)
            acc[r * apart + t] =
                add_sum(with_min, _mm512_add_epi32(sums[r][t], offset), &w[r], x[t], units,
                        _mm512_maskz_load_ps(so_far, acc + r * apart + t));
    }
}

#include "kernels/x86/blocks_tokens.h"

#include "kernels/x86/blocks_product.h"

#endif

/* SPDX-License-Identifier: MIT */
/* A token's activations as scaled_token.h has them. */
#ifndef MF_KERNELS_SCALED_PREPARE_H
#define MF_KERNELS_SCALED_PREPARE_H

#include "kernels/x86/scaled_few.h"

/* The largest activation as an integer. Of weights of 8 bits 32 of them come to four times that at
 * most (scaled_reach), to which their own roundings add 16 and those of floats on the way some 10:
 * below 2^24, times a weight of at most 128 below 2^31. Of 4 bits 32 * 8 * LIMIT < 2^31. Shifted by
 * three bits, both parts of an activation have 11 bits. */
#define SCALED_LIMIT 4194288.0f
#define SCALED_LIMIT_SHORT 2095104.0f /* 1023 * 2048 */

/* The order of a block's columns where two neighbours share a byte. */
MF_INLINE __m256i scaled_order(mf_weight_kind kind, __m256i v)
{
    if (!mf_blocks_is_paired(kind))
        return v;
    const __m256i apart = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(v, apart), 0xd8);
}

/* The low bytes of a block's 32 integers, to a tile's row. */
MF_INLINE void scaled_put(mf_weight_kind kind, const __m512i v[2], signed char out[MF_SCALED_COLS])
{
    const __m256i bytes = _mm256_set_m128i(_mm512_cvtepi32_epi8(v[1]), _mm512_cvtepi32_epi8(v[0]));
    _mm256_storeu_si256((__m256i *)(void *)out, scaled_order(kind, bytes));
}

/* Both parts of each, and of those the digits. */
static void scaled_put_halves(mf_weight_kind kind, uint32_t shift, const __m512i v[2],
                              signed char out[2][2][MF_SCALED_COLS])
{
    const __m512i mask = _mm512_set1_epi32((1 << shift) - 1);
    __m512i part[2][2];
    for (uint32_t i = 0; i < 2; i++) {
        part[0][i] = _mm512_srai_epi32(_mm512_slli_epi32(v[i], 24 - shift), 24 - shift);
        part[1][i] = _mm512_srai_epi32(_mm512_sub_epi32(v[i], part[0][i]), 8 + shift);
    }
    for (uint32_t p = 0; p < 2; p++) {
        const __m512i low[2] = {_mm512_and_si512(part[p][0], mask),
                                _mm512_and_si512(part[p][1], mask)};
        const __m512i high[2] = {_mm512_srai_epi32(part[p][0], shift),
                                 _mm512_srai_epi32(part[p][1], shift)};
        scaled_put(kind, low, out[p][0]);
        scaled_put(kind, high, out[p][1]);
    }
}

static void scaled_put_digits(mf_weight_kind kind, const __m512i v[2],
                              signed char out[3][MF_SCALED_COLS])
{
    __m512i left[2] = {v[0], v[1]};
    for (uint32_t d = 0; d < DIGITS; d++) {
        scaled_put(kind, left, out[d]);
        left[0] = mf_above_digit_avx512(left[0]);
        left[1] = mf_above_digit_avx512(left[1]);
    }
}

/* What 64 columns' unit is to reach to, the kind's limit times. */
static float scaled_reach(mf_weight_kind kind, const float *x, uint32_t n, const __m512 columns[4])
{
    const __m512 quarter = _mm512_set1_ps(0.25f);
    float max = largest(x, n);
    if (mf_scaled_shift(kind) == 0)
        for (uint32_t b = 0; b < 2; b++) {
            const __m512 sums =
                _mm512_add_ps(_mm512_mul_ps(_mm512_abs_ps(columns[2 * b]), quarter),
                              _mm512_mul_ps(_mm512_abs_ps(columns[2 * b + 1]), quarter));
            const float sum = _mm512_reduce_add_ps(sums);
            max = sum > max ? sum : max; /* one that is not a number is max */
        }
    return max < MF_FIXED_SMALLEST ? MF_FIXED_SMALLEST : max;
}

/* 64 columns' integers, of which those past n are 0; their unit. */
static float scaled_integers(mf_weight_kind kind, const float *x, uint32_t n, __m512i out[4])
{
    const float limit = mf_scaled_shift(kind) == 3 ? SCALED_LIMIT_SHORT : SCALED_LIMIT;
    __m512 columns[4];
    for (uint32_t i = 0; i < 4; i++)
        columns[i] = _mm512_maskz_loadu_ps(n > 16 * i ? mf_tail_avx512(n, 16 * i) : 0, x + 16 * i);
    const float reach = scaled_reach(kind, x, n, columns);
    for (uint32_t i = 0; i < 4; i++)
        out[i] = _mm512_cvtps_epi32(_mm512_mul_ps(columns[i], _mm512_set1_ps(limit / reach)));
    return reach / limit;
}

/* Digits of 256 columns in the order of lanes. */
static void scaled_put_lanes(mf_weight_kind kind, const signed char bytes[DIGITS][CHUNKS][CHUNK],
                             mf_scaled_lanes *out)
{
    __m512i all = _mm512_setzero_si512();
    for (uint32_t d = DIGITS; d-- > 0;) {
        __m512i rows[CHUNKS], columns[CHUNKS], sum = _mm512_setzero_si512();
        for (uint32_t c = 0; c < CHUNKS; c++)
            rows[c] = _mm512_loadu_si512(bytes[d][c]);
        order_lanes(kind, rows, columns);
        for (uint32_t k = 0; k < CHUNKS; k++) {
            _mm512_storeu_si512(out->digits[d][k], columns[k]);
            sum = add_products(sum, _mm512_set1_epi8(1), columns[k]);
        }
        all = _mm512_add_epi32(_mm512_slli_epi32(all, 8), sum);
    }
    _mm512_storeu_si512(out->offsets,
                        _mm512_sub_epi32(_mm512_setzero_si512(),
                                         _mm512_slli_epi32(all, is_by_codes(kind) ? 3 : 7)));
}

/* The units of blocks in the order of their sums (scaled_few.h). */
static void scaled_put_units(mf_weight_kind kind, const float units[CHUNKS], float out[2][16])
{
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t lane = 0; lane < 16; lane++)
            out[i][lane] = units[mf_blocks_is_paired(kind) ? 2 * i + lane / 8 : lane / 4];
}

static void scaled_prepare_span(mf_weight_kind kind, const float *x, uint32_t n,
                                const mf_scaled_token *out, uint32_t span)
{
    const uint32_t shift = mf_scaled_shift(kind);
    mf_scaled_digits *digits = &out->digits[span];
    signed char bytes[DIGITS][CHUNKS][CHUNK];
    for (uint32_t c = 0; c < CHUNKS; c++) {
        const uint32_t left = n > c * CHUNK ? n - c * CHUNK : 0;
        __m512i v[4];
        out->units[span][c] =
            scaled_integers(kind, x + (size_t)c * CHUNK, left < CHUNK ? left : CHUNK, v);
        for (uint32_t b = 0; b < 2; b++) {
            if (shift != 0)
                scaled_put_halves(kind, shift, v + 2 * b, digits->halves[2 * c + b]);
            else
                scaled_put_digits(kind, v + 2 * b, digits->bytes[2 * c + b]);
        }
        for (uint32_t i = 0; i < 4; i++)
            for (uint32_t d = 0; d < DIGITS; d++) {
                _mm_storeu_si128((__m128i *)(void *)(bytes[d][c] + 16 * i),
                                 _mm512_cvtepi32_epi8(v[i]));
                v[i] = mf_above_digit_avx512(v[i]);
            }
    }
    scaled_put_lanes(kind, bytes, &out->lanes[span]);
    scaled_put_units(kind, out->units[span], out->lanes[span].units);
}

/* mf_kernels.prepare_token. Activations that are not finite get a unit that is not. */
static void scaled_prepare(const mf_matrix *w, const float *x, void *out)
{
    const mf_scaled_token token = mf_scaled_token_at(out, mf_blocks_spans(w));
    for (uint32_t i = 0; i < w->shape.n_cols; i += MF_SPAN)
        scaled_prepare_span(w->shape.kind, x + i,
                            w->shape.n_cols - i < MF_SPAN ? w->shape.n_cols - i : MF_SPAN, &token,
                            i / MF_SPAN);
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Weights of more than 6 bits and those of codebooks, for blocks_avx2.c, AVX2: each row has an
 * accumulator of its own, a lane for each eight of a pair's columns.
 */
#ifndef MF_KERNELS_BLOCKS_WIDE_AVX2_H
#define MF_KERNELS_BLOCKS_WIDE_AVX2_H

#include "kernels/x86/blocks_span_avx2.h"

MF_INLINE void sum_wide_rows(const vec v[4], float out[4])
{
    const __m256 ab = _mm256_hadd_ps(v[0], v[1]), cd = _mm256_hadd_ps(v[2], v[3]);
    const __m256 all = _mm256_hadd_ps(ab, cd);
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}

enum { WIDE_TILE = 2 /* tokens */ };

/* The scales of a pair's lanes. */
MF_INLINE __m256 wide_scales(bool has_sixteens, const span_scales *s, uint32_t b)
{
    if (!has_sixteens)
        return _mm256_permutevar_ps(_mm256_loadu_ps(s->scale), _mm256_set1_epi32((int)b));
    const int i = (int)(b % 2) * 2;
    return _mm256_permutevar_ps(load_apart(s->scale + b / 2 * 4),
                                _mm256_setr_epi32(i, i, i + 1, i + 1, i, i, i + 1, i + 1));
}

/* The sums of each eight products. */
MF_INLINE __m256 sum_wide(const weights_64 *w, const mf_blocks_span *x, uint32_t b)
{
    __m256i sum = _mm256_setzero_si256();
    MF_UNROLL(2)
    for (uint32_t half = 0; half < 2; half++) {
        const __m256i low = _mm256_add_epi32(add_pairs(by_digit(w, x, b, half, 0), 1),
                                             add_pairs(by_digit(w, x, b, half, 1), 1 << WIDE_BITS));
        const __m256i high = add_pairs(by_digit(w, x, b, half, 2), 1 << (2 * WIDE_BITS));
        sum = _mm256_add_epi32(sum, _mm256_add_epi32(low, high));
    }
    const __m256i own = _mm256_loadu_si256((const __m256i *)(const void *)x->pairs.sums[b]);
    sum = _mm256_sub_epi32(sum, own);
    return _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_loadu_ps(x->pairs.units[b]));
}

/* Four rows' spans as they are stored, by a token. */
MF_INLINE void add_wide_span(mf_weight_kind kind, const span_tables *t, const mf_blocks_rows *w,
                             const unsigned char *const v[4], const unsigned char *const s[4],
                             const mf_blocks_span *x, vec acc[4])
{
    span_scales scales[4];
    __m256 sums[4];
    MF_UNROLL(4)
    for (uint32_t r = 0; r < 4; r++) {
        scales_of(kind, v[r], s[r], w, &scales[r]);
        sums[r] = _mm256_setzero_ps();
    }
    MF_UNROLL(4)
    for (uint32_t b = 0; b < PAIRS; b++) {
        MF_UNROLL(4)
        for (uint32_t r = 0; r < 4; r++) {
            const weights_64 weights = pair_weights(kind, t, v[r], b);
            sums[r] = _mm256_fmadd_ps(sum_wide(&weights, x, b), wide_scales(false, &scales[r], b),
                                      sums[r]);
        }
    }
    MF_UNROLL(4)
    for (uint32_t r = 0; r < 4; r++)
        acc[r] = _mm256_add_ps(acc[r], sums[r]);
}

/* Unpacked spans of n_rows rows by n tokens, both constants. */
MF_INLINE void add_wide_tile(bool has_sixteens, uint32_t n_rows, uint32_t n, const unpacked_span *w,
                             const unsigned char *tokens, size_t token_bytes, vec *acc)
{
    const mf_blocks_span *x[WIDE_TILE];
    __m256 sums[WIDE_TILE][SET];
    MF_UNROLL(2)
    for (uint32_t t = 0; t < n; t++) {
        x[t] = (const void *)(tokens + t * token_bytes);
        MF_UNROLL(4)
        for (uint32_t r = 0; r < n_rows; r++)
            sums[t][r] = _mm256_setzero_ps();
    }
    MF_ROLLED
    for (uint32_t b = 0; b < PAIRS; b++) {
        MF_UNROLL(4)
        for (uint32_t r = 0; r < n_rows; r++) {
            const __m256 scales = wide_scales(has_sixteens, &w[r].scales, b);
            MF_UNROLL(2)
            for (uint32_t t = 0; t < n; t++)
                sums[t][r] =
                    _mm256_fmadd_ps(sum_wide(&w[r].weights[b], x[t], b), scales, sums[t][r]);
        }
    }
    MF_UNROLL(2)
    for (uint32_t t = 0; t < n; t++) {
        MF_UNROLL(4)
        for (uint32_t r = 0; r < n_rows; r++)
            acc[r * GROUP + t] = _mm256_add_ps(acc[r * GROUP + t], sums[t][r]);
    }
}

/* A span of codebooks of four rows by a token. */
static void add_grid_span(mf_weight_kind kind, const unsigned char *const v[4],
                          const mf_blocks_span *x, vec acc[4])
{
    for (uint32_t r = 0; r < 4; r++) {
        unpacked_span row;
        unpack_grid(kind, v[r], &row);
        if (mf_blocks_has_sixteens(kind))
            add_wide_tile(true, 1, 1, &row, (const void *)x, 0, &acc[r]);
        else
            add_wide_tile(false, 1, 1, &row, (const void *)x, 0, &acc[r]);
    }
}

/* Unpacked spans by a group's tokens. */
MF_INLINE void add_wide_rows(bool has_sixteens, const unpacked_span *w, const group_tokens *x,
                             vec *acc)
{
    uint32_t t = 0;
    for (; t + WIDE_TILE <= x->n; t += WIDE_TILE)
        add_wide_tile(has_sixteens, SET, WIDE_TILE, w, x->tokens + t * x->token_bytes,
                      x->token_bytes, acc + t);
    for (; t < x->n; t++)
        add_wide_tile(has_sixteens, SET, 1, w, x->tokens + t * x->token_bytes, x->token_bytes,
                      acc + t);
}

__attribute__((noinline)) static void add_wide(const unpacked_span *w, const group_tokens *x,
                                               vec *acc)
{
    add_wide_rows(false, w, x, acc);
}

__attribute__((noinline)) static void add_wide_sixteens(const unpacked_span *w,
                                                        const group_tokens *x, vec *acc)
{
    add_wide_rows(true, w, x, acc);
}

#endif

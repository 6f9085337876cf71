/* SPDX-License-Identifier: MIT */
/*
 * The fixed-point product, AVX2: what its tiers have in common, the packed weights of panels of
 * eight rows, and their scales.
 */
#ifndef MF_KERNELS_FIXED_ROWS_AVX2_H
#define MF_KERNELS_FIXED_ROWS_AVX2_H

#include "kernels/x86/fixed_avx2.h"

#include "kernels/x86/lanes_avx2.h"
#include "kernels/x86/vector_avx2.h"

#include <string.h>

enum {
    ROWS = LANES, /* of a panel */
    TILE = 4,     /* tokens whose sums are held in registers */
    FEW = TILE,
    HALF = 8 /* fours of columns of one parity, in a group */
};

typedef __m256i ints;

MF_INLINE ints ints_load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

MF_INLINE ints ints_set(int32_t value)
{
    return _mm256_set1_epi32(value);
}

MF_INLINE ints ints_add(ints a, ints b)
{
    return _mm256_add_epi32(a, b);
}

MF_INLINE lanes ints_to_lanes(ints v)
{
    return _mm256_cvtepi32_ps(v);
}

#include "kernels/x86/fixed_panel.h"

/* Eight 16-bit values of each row, transposed: columns[c] has lane r of lane c of rows[r]. */
MF_INLINE void transpose_halves(const __m128i rows[8], __m128i columns[8])
{
    __m128i pairs[8], fours[8];
    MF_UNROLL(4)
    for (int i = 0; i < 4; i++) {
        pairs[2 * i] = _mm_unpacklo_epi16(rows[2 * i], rows[2 * i + 1]);
        pairs[2 * i + 1] = _mm_unpackhi_epi16(rows[2 * i], rows[2 * i + 1]);
    }
    MF_UNROLL(2)
    for (int i = 0; i < 8; i += 4) {
        fours[i] = _mm_unpacklo_epi32(pairs[i], pairs[i + 2]);
        fours[i + 1] = _mm_unpackhi_epi32(pairs[i], pairs[i + 2]);
        fours[i + 2] = _mm_unpacklo_epi32(pairs[i + 1], pairs[i + 3]);
        fours[i + 3] = _mm_unpackhi_epi32(pairs[i + 1], pairs[i + 3]);
    }
    MF_UNROLL(4)
    for (int i = 0; i < 4; i++) {
        columns[2 * i] = _mm_unpacklo_epi64(fours[i], fours[4 + i]);
        columns[2 * i + 1] = _mm_unpackhi_epi64(fours[i], fours[4 + i]);
    }
}

MF_INLINE __m256 widen(__m128i halves, mf_dtype type)
{
    if (type == MF_F16)
        return _mm256_cvtph_ps(halves);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

/* Scales or biases of 16 bits, of eight groups from `first` on. */
MF_INLINE void load_groups(const panel *p, const unsigned char *values, uint32_t first,
                           __m128i columns[8])
{
    const size_t row_bytes = 2 * (size_t)(p->w->shape.n_cols / p->w->shape.group);
    __m128i rows[ROWS];
    MF_UNROLL(8)
    for (uint32_t r = 0; r < ROWS; r++) {
        const unsigned char *at = values + p->rows[r] * row_bytes + 2 * (size_t)first;
        rows[r] = _mm_loadu_si128((const __m128i *)(const void *)at);
        _mm_prefetch((const char *)at + p->next * row_bytes, _MM_HINT_T0);
    }
    transpose_halves(rows, columns);
}

/* Groups in eights, from the first on; how many were done. */
MF_INLINE uint32_t expand_eights(const panel *p, mf_dtype type)
{
    const uint32_t n_groups = p->w->shape.n_cols / p->w->shape.group;
    uint32_t g = 0;
    for (; g + 8 <= n_groups; g += 8) {
        __m128i scales[8], biases[8];
        load_groups(p, p->w->scales, g, scales);
        load_groups(p, p->w->biases, g, biases);
        MF_UNROLL(8)
        for (uint32_t i = 0; i < 8; i++)
            store_group(p, g + i, widen(scales[i], type), widen(biases[i], type));
    }
    return g;
}

/* One group, of any type, value by value. */
static void expand_group(const panel *p, uint32_t g)
{
    const mf_matrix *w = p->w;
    float scales[ROWS], biases[ROWS];
    for (uint32_t r = 0; r < ROWS; r++) {
        size_t at = (size_t)p->rows[r] * (w->shape.n_cols / w->shape.group) + g;
        scales[r] = mf_float_at_avx2(w->scales, w->shape.float_type, at);
        biases[r] = mf_float_at_avx2(w->biases, w->shape.float_type, at);
    }
    store_group(p, g, _mm256_loadu_ps(scales), _mm256_loadu_ps(biases));
}

static void expand_scales(const panel *p)
{
    uint32_t g = 0;
    if (p->w->shape.float_type == MF_BF16)
        g = expand_eights(p, MF_BF16);
    else if (p->w->shape.float_type == MF_F16)
        g = expand_eights(p, MF_F16);
    for (; g < p->w->shape.n_cols / p->w->shape.group; g++)
        expand_group(p, g);
}

MF_INLINE __m256i low_nibbles(__m256i v)
{
    return _mm256_and_si256(v, _mm256_set1_epi8(0x0f));
}

MF_INLINE __m256i high_nibbles(__m256i v)
{
    return low_nibbles(_mm256_srli_epi32(v, 4));
}

/* Lane r is what the lanes of sums[r] add up to. */
MF_INLINE __m128i add_fours(const __m256i sums[4])
{
    __m256i a = _mm256_add_epi32(_mm256_unpacklo_epi32(sums[0], sums[1]),
                                 _mm256_unpackhi_epi32(sums[0], sums[1]));
    __m256i b = _mm256_add_epi32(_mm256_unpacklo_epi32(sums[2], sums[3]),
                                 _mm256_unpackhi_epi32(sums[2], sums[3]));
    __m256i c = _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    return _mm_add_epi32(_mm256_castsi256_si128(c), _mm256_extracti128_si256(c, 1));
}

/* Four neighbours, in every lane. */
MF_INLINE __m256i four(const signed char *digits)
{
    int32_t word;
    memcpy(&word, digits, sizeof word);
    return _mm256_set1_epi32(word);
}

#endif

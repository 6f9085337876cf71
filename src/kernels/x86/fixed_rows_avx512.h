/* SPDX-License-Identifier: MIT */
/*
 * The fixed-point product, AVX-512: what its tiers have in common, the packed weights of panels of
 * 16 rows, and their scales.
 */
#ifndef MF_KERNELS_FIXED_ROWS_AVX512_H
#define MF_KERNELS_FIXED_ROWS_AVX512_H

#include "kernels/x86/fixed_avx512.h"
#include "kernels/x86/lanes_avx512.h"
#include "kernels/x86/vector_avx512.h"

#include <string.h>

enum {
    ROWS = LANES, /* of a panel */
    TILE = 4,     /* tokens whose sums are held in registers, those of each digit by itself */
    FEW = TILE,
    STEP_BYTES = 64 /* two groups of a row of 4 bits */
};

typedef __m512i ints;

MF_INLINE ints ints_load(const int32_t *p)
{
    return _mm512_loadu_si512(p);
}

MF_INLINE ints ints_set(int32_t value)
{
    return _mm512_set1_epi32(value);
}

MF_INLINE ints ints_add(ints a, ints b)
{
    return _mm512_add_epi32(a, b);
}

MF_INLINE lanes ints_to_lanes(ints v)
{
    return _mm512_cvtepi32_ps(v);
}

#include "kernels/x86/fixed_panel.h"

/* Two groups, as their weights lie side by side: [digit][even or odd columns][group]. */
typedef struct ordered {
    signed char digit[DIGITS][2][2][GROUP / 2];
} ordered;

/* Bytes of a token in its order. */
MF_INLINE size_t ordered_bytes(uint32_t n_groups)
{
    return (size_t)(n_groups + 1) / 2 * sizeof(ordered);
}

/* Columns of one parity of group g and of the next; of the last of all groups twice its own. */
MF_INLINE __m512i pair_digits(const mf_fixed_digits *x, uint32_t g, uint32_t n_groups, int digit,
                              int parity)
{
    const void *first = x[g].digit[digit][parity];
    const void *second = x[g + 1 < n_groups ? g + 1 : g].digit[digit][parity];
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(first)),
                              _mm256_loadu_si256(second), 1);
}

/* The groups from g on, an even one, two side by side as they lie; returns `to`. */
MF_INLINE const ordered *order_as_they_lie(const mf_fixed_digits *x, uint32_t g, uint32_t n_groups,
                                           ordered *to)
{
    for (; g < n_groups; g += 2)
        for (int d = 0; d < DIGITS; d++)
            for (int i = 0; i < 2; i++)
                _mm512_storeu_si512(to[g / 2].digit[d][i], pair_digits(x, g, n_groups, d, i));
    return to;
}

MF_INLINE __m128i load_128(const unsigned char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* Four words of each row, all that it has, transposed. */
MF_INLINE void load_words(const panel *p, const unsigned char *values, __m512i columns[4])
{
    __m512i v[4];
    MF_UNROLL(4)
    for (uint32_t i = 0; i < 4; i++) {
        v[i] = _mm512_castsi128_si512(load_128(values + (size_t)p->rows[i] * 16));
        v[i] = _mm512_inserti32x4(v[i], load_128(values + (size_t)p->rows[4 + i] * 16), 1);
        v[i] = _mm512_inserti32x4(v[i], load_128(values + (size_t)p->rows[8 + i] * 16), 2);
        v[i] = _mm512_inserti32x4(v[i], load_128(values + (size_t)p->rows[12 + i] * 16), 3);
    }
    mf_transpose_fours_avx512(v, columns);
}

/* n (at most 16 words' worth) scales or biases of each row from group `first` on, transposed. */
MF_INLINE void load_groups(const panel *p, const unsigned char *values, uint32_t first, uint32_t n,
                           __m512i columns[ROWS])
{
    const size_t value_bytes = p->w->shape.float_type == MF_F32 ? 4 : 2;
    const size_t row_bytes = value_bytes * (p->w->shape.n_cols / p->w->shape.group);
    const size_t n_bytes = n * value_bytes;
    const __mmask32 mask = n_bytes >= 64 ? 0xffffffffu : (1u << (n_bytes / 2)) - 1;
    __m512i rows[ROWS];
    if (row_bytes == 16) {
        load_words(p, values, columns);
        return;
    }
    MF_UNROLL(16)
    for (uint32_t r = 0; r < ROWS; r++) {
        const unsigned char *at = values + p->rows[r] * row_bytes + first * value_bytes;
        rows[r] = _mm512_maskz_loadu_epi16(mask, at);
        _mm_prefetch((const char *)at + p->next * row_bytes, _MM_HINT_T0);
    }
    mf_transpose_avx512(rows, columns);
}

/* Word's low (0) or high (1) half as a float. */
MF_INLINE __m512 half_of(__m512i words, mf_dtype type, uint32_t half)
{
    if (type == MF_BF16)
        return _mm512_castsi512_ps(half == 0 ? _mm512_slli_epi32(words, 16)
                                             : _mm512_and_si512(words, _mm512_set1_epi32(-65536)));
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(half == 0 ? words : _mm512_srli_epi32(words, 16)));
}

MF_INLINE void expand_halves(const panel *p, mf_dtype type)
{
    const uint32_t n_groups = p->w->shape.n_cols / p->w->shape.group;
    for (uint32_t first = 0; first < n_groups; first += 2 * ROWS) {
        const uint32_t n = n_groups - first < 2 * ROWS ? n_groups - first : 2 * ROWS;
        __m512i scales[ROWS], biases[ROWS];
        load_groups(p, p->w->scales, first, n, scales);
        load_groups(p, p->w->biases, first, n, biases);
        for (uint32_t g = 0; g < n; g++)
            store_group(p, first + g, half_of(scales[g / 2], type, g % 2),
                        half_of(biases[g / 2], type, g % 2));
    }
}

static void expand_floats(const panel *p)
{
    const uint32_t n_groups = p->w->shape.n_cols / p->w->shape.group;
    for (uint32_t first = 0; first < n_groups; first += ROWS) {
        const uint32_t n = n_groups - first < ROWS ? n_groups - first : ROWS;
        __m512i scales[ROWS], biases[ROWS];
        load_groups(p, p->w->scales, first, n, scales);
        load_groups(p, p->w->biases, first, n, biases);
        for (uint32_t g = 0; g < n; g++)
            store_group(p, first + g, _mm512_castsi512_ps(scales[g]),
                        _mm512_castsi512_ps(biases[g]));
    }
}

static void expand_scales(const panel *p)
{
    if (p->w->shape.float_type == MF_F32)
        expand_floats(p);
    else if (p->w->shape.float_type == MF_BF16)
        expand_halves(p, MF_BF16);
    else
        expand_halves(p, MF_F16);
}

MF_INLINE __m512i low_nibbles(__m512i v)
{
    return _mm512_and_si512(v, _mm512_set1_epi8(0x0f));
}

MF_INLINE __m512i high_nibbles(__m512i v)
{
    return low_nibbles(_mm512_srli_epi32(v, 4));
}

/* Four neighbours, in every lane. */
MF_INLINE __m512i four(const signed char *digits)
{
    int32_t word;
    memcpy(&word, digits, sizeof word);
    return _mm512_set1_epi32(word);
}

/* Lane 4 * i + r is what lanes 4 * i .. 4 * i + 3 of sums[r] add up to. */
MF_INLINE __m512i add_fours(const __m512i sums[4])
{
    __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(sums[0], sums[1]),
                                 _mm512_unpackhi_epi32(sums[0], sums[1]));
    __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(sums[2], sums[3]),
                                 _mm512_unpackhi_epi32(sums[2], sums[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

/* A step of n (one or two, a constant) groups: columns[8 * i + j] are eight columns of group i. */
MF_INLINE void load_step(const panel *p, uint32_t step, uint32_t n, __m512i columns[ROWS])
{
    const size_t row_bytes = mf_fixed_row_bytes(p->w), at = (size_t)step * STEP_BYTES;
    __m512i rows[ROWS];
    MF_UNROLL(16)
    for (uint32_t r = 0; r < ROWS; r++) {
        const unsigned char *from = p->w->data + p->rows[r] * row_bytes + at;
        rows[r] = n == 2 ? _mm512_loadu_si512(from)
                         : _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)from));
        /* the next panel's, past the nearest cache: that is full with this one's */
        _mm_prefetch((const char *)from + ROWS * row_bytes, _MM_HINT_T1);
    }
    mf_transpose_avx512(rows, columns);
}

/* 4 bits. */
static void unpack_nibbles(const panel *p, __m512i *out)
{
    const uint32_t n_groups = mf_fixed_groups(p->w);
    for (uint32_t g = 0; g < n_groups; g += 2) {
        const uint32_t n = n_groups - g < 2 ? 1 : 2;
        __m512i columns[ROWS];
        if (n == 2)
            load_step(p, g / 2, 2, columns);
        else
            load_step(p, g / 2, 1, columns);
        for (uint32_t i = 0; i < n; i++, out += QUADS) {
            for (uint32_t j = 0; j < QUADS / 2; j++) {
                _mm512_store_si512(out + j, low_nibbles(columns[8 * i + j]));
                _mm512_store_si512(out + QUADS / 2 + j, high_nibbles(columns[8 * i + j]));
            }
        }
    }
}

#endif

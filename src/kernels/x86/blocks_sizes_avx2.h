/* SPDX-License-Identifier: MIT */
/* What the products of blocks_span_avx2.h are made of: sizes, an unpacked span, a turned one, and
 * integers. */
#ifndef MF_KERNELS_BLOCKS_SIZES_AVX2_H
#define MF_KERNELS_BLOCKS_SIZES_AVX2_H

#include "kernels/x86/blocks_unpack_avx2.h"
#include "kernels/x86/fixed_token.h"

enum {
    SET = 4,
    TILE = 8,
    FEW = 1,
    GROUP = 16,
    PAIRS = 4, /* of blocks of 32 columns, in a span */
    DIGITS = 3,
    DIGIT_BITS = 8 /* of a digit beside weights that are not wide */
};

typedef __m256 vec;

/* A span of a row. */
typedef struct unpacked_span {
    weights_64 weights[PAIRS];
    span_scales scales;
} unpacked_span;

enum {
    EIGHT = 8,                                           /* tokens */
    LEAST = 6,                                           /* of them for which it pays */
    SUMS_AT = offsetof(mf_blocks_span, pairs.sums) / 32, /* which of a span's vectors */
    TOTALS_AT = offsetof(mf_blocks_span, pairs.totals) / 32,
    DIGITS_AT = offsetof(mf_blocks_span, pairs.digits) / 32,
    WORDS_AT = offsetof(mf_blocks_span, pairs.words) / 32,
    VECTORS = DIGITS_AT + sizeof((mf_blocks_span *)NULL)->pairs.digits / 32
};

/* A span of eight tokens: a token's lanes are here a lane each. */
typedef struct turned_span {
    __m256i v[VECTORS][EIGHT];
} turned_span;

/* Sums of products; those by the highest digit apart where all together would not fit. */
typedef struct digit_sums {
    __m256i low, high;
} digit_sums;

/* What `kind`, a constant, has. */
typedef struct blocks_form {
    bool has_sixteens, has_min, has_excess;
    bool by_sixteens; /* sums become floats by 16 columns, not by 32 */
    bool has_units;   /* activations have a unit for each 32 columns */
    bool has_high;    /* of digit_sums both */
    int excess;       /* excess_of */
    uint32_t bits;    /* of the largest weight with that */
} blocks_form;

/* Digits of 64 columns, those of a half. */
MF_INLINE __m256i digits_of(const mf_blocks_span *x, uint32_t b, uint32_t half, uint32_t d)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)x->pairs.digits[b][half][d]);
}

/* Words of 64 columns, those of a half. */
MF_INLINE __m256i words_of(const mf_blocks_span *x, uint32_t b, uint32_t half, uint32_t parity,
                           uint32_t i)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)x->pairs.words[b][half][parity][i]);
}

/* acc + products of words, added in pairs. By hand, as gcc 12 adds products up first and has no
 * registers for them. */
MF_INLINE __m256i add_word_products(__m256i acc, __m256i weights, __m256i words)
{
    const __m256i products = _mm256_madd_epi16(weights, words);
    __asm__("vpaddd %1, %0, %0" : "+x"(acc) : "x"(products));
    return acc;
}

/* Four weights of a row, those of lane l of a half, in all lanes. */
MF_INLINE __m256i four_weights(const unpacked_span *w, uint32_t b, uint32_t half, uint32_t l)
{
    int32_t four;
    memcpy(&four, (const unsigned char *)&w->weights[b].half[half] + 4 * (size_t)l, sizeof four);
    return _mm256_set1_epi32(four);
}

/* What the four lanes of sums of a block stand for: all of its integers, or the first and the last
 * 16 in turn. */
static void sum_block(bool has_sixteens, const int32_t v[32], int32_t out[4])
{
    uint32_t sums[2] = {0, 0};
    for (uint32_t i = 0; i < 32; i++)
        sums[i / 16] += (uint32_t)v[i];
    for (uint32_t l = 0; l < 4; l++)
        out[l] = (int32_t)(has_sixteens ? sums[l % 2] : sums[0] + sums[1]);
}

#endif

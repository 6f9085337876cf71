/* SPDX-License-Identifier: MIT */
/*
 * Unpacked spans of weights of more than 6 bits, those of codebooks too, by eight tokens, for
 * blocks_many_avx2.h where 16 bits hold but one pair of their products (WIDE_APART): the words of
 * one token, turned. Two rows together share what is loaded of the tokens. The integers are those
 * of one token (blocks_few_avx2.h), so the bits are.
 */
#ifndef MF_KERNELS_BLOCKS_WIDE_AVX2_H
#define MF_KERNELS_BLOCKS_WIDE_AVX2_H

#include "kernels/x86/blocks_few_avx2.h"

enum {
    CHAINS = 4,      /* of a row's sums: the lanes 2 c and 2 c + 1 of a pair's halves */
    CHAIN_WORDS = 8, /* of two columns, in such lanes */
    WIDE_ROWS = 2
};

/* A span of eight tokens. A lane has two columns of a token, of a lane of digits the even or the
 * odd ones. */
typedef struct turned_words {
    __m256i words[PAIRS][CHAINS][CHAIN_WORDS][2]; /* the lowest digit, and what is above it */
    __m256i units[PAIRS][2];                      /* of either block of a pair */
} turned_words;

/* Where lane l of a half has its even or its odd columns. */
MF_INLINE uint32_t word_of(uint32_t half, uint32_t l, uint32_t parity)
{
    return 4 * (l % 2) + 2 * parity + half;
}

/* Signed bytes as words: the even ones, the odd ones. */
MF_INLINE __m256i widen_bytes(__m256i v, uint32_t parity)
{
    return _mm256_srai_epi16(parity == 0 ? _mm256_slli_epi16(v, 8) : v, 8);
}

/* Vector i of eight tokens, of which there are n, a token a lane. */
MF_INLINE void turn_vector(const unsigned char *tokens, size_t token_bytes, uint32_t n, size_t i,
                           __m256i out[EIGHT])
{
    __m256i rows[EIGHT];
    MF_UNROLL(8)
    for (uint32_t t = 0; t < EIGHT; t++)
        rows[t] =
            t < n
                ? _mm256_loadu_si256((const __m256i *)(const void *)(tokens + t * token_bytes) + i)
                : _mm256_setzero_si256();
    mf_transpose_avx2(rows, out);
}

static void turn_wide_span(const unsigned char *tokens, size_t token_bytes, uint32_t n,
                           turned_words *out)
{
    for (uint32_t b = 0; b < PAIRS; b++) {
        __m256i words[EIGHT], units[EIGHT];
        for (uint32_t i = 0; i < 8; i++) {
            const uint32_t half = i / 4, parity = i / 2 % 2;
            turn_vector(tokens, token_bytes, n, WORDS_AT + 8 * b + i, words);
            for (uint32_t l = 0; l < EIGHT; l++)
                out->words[b][l / 2][word_of(half, l, parity)][i % 2] = words[l];
        }
        turn_vector(tokens, token_bytes, n, TOTALS_AT + b, units); /* they lie where totals would */
        out->units[b][0] = units[0];
        out->units[b][1] = units[4];
    }
}

/* A row's span in words. */
typedef struct wide_words {
    int32_t v[PAIRS][2][2][EIGHT]; /* of a half, even and odd columns, two in a lane */
} wide_words;

MF_INLINE void widen_row(const unpacked_span *w, wide_words *out)
{
    const __m256i excess = _mm256_set1_epi8((char)(1 << WIDE_EXCESS));
    for (uint32_t b = 0; b < PAIRS; b++)
        for (uint32_t i = 0; i < 4; i++) {
            const __m256i bytes = _mm256_xor_si256(w->weights[b].half[i / 2], excess);
            _mm256_storeu_si256((__m256i *)(void *)out->v[b][i / 2][i % 2],
                                widen_bytes(bytes, i % 2));
        }
}

/* Two rows' columns of chain c of pair b. */
MF_INLINE void sum_words(const wide_words *w, const turned_words *x, uint32_t b, uint32_t c,
                         __m256i out[WIDE_ROWS])
{
    __m256i low[WIDE_ROWS], high[WIDE_ROWS];
    MF_UNROLL(2)
    for (uint32_t r = 0; r < WIDE_ROWS; r++)
        low[r] = high[r] = _mm256_setzero_si256();
    MF_UNROLL(8)
    for (uint32_t i = 0; i < CHAIN_WORDS; i++) {
        const uint32_t half = i % 2, parity = i / 2 % 2, l = 2 * c + i / 4;
        __m256i x0 = x->words[b][c][i][0], x1 = x->words[b][c][i][1];
        __asm__("" : "+x"(x0), "+x"(x1)); /* loaded once */
        MF_UNROLL(2)
        for (uint32_t r = 0; r < WIDE_ROWS; r++) {
            const __m256i weights = _mm256_set1_epi32(w[r].v[b][half][parity][l]);
            low[r] = add_word_products(low[r], weights, x0);
            high[r] = add_word_products(high[r], weights, x1);
        }
    }
    MF_UNROLL(2)
    for (uint32_t r = 0; r < WIDE_ROWS; r++)
        out[r] = _mm256_add_epi32(low[r], _mm256_slli_epi32(high[r], WIDE_BITS));
}

/* Two rows' spans: their chains. */
MF_INLINE void sum_wide_chains(const blocks_form *f, const unpacked_span *w,
                               const wide_words *words, const turned_words *x,
                               vec out[WIDE_ROWS][CHAINS])
{
    MF_UNROLL(4)
    for (uint32_t c = 0; c < CHAINS; c++) {
        __m256 sums[WIDE_ROWS] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        MF_ROLLED
        for (uint32_t b = 0; b < PAIRS; b++) {
            const uint32_t block = f->has_sixteens ? 2 * b + c / 2 * 8 + c % 2 : b + c / 2 * 4;
            __m256i columns[WIDE_ROWS];
            sum_words(words, x, b, c, columns);
            MF_UNROLL(2)
            for (uint32_t r = 0; r < WIDE_ROWS; r++) {
                const __m256 sum = _mm256_mul_ps(_mm256_cvtepi32_ps(columns[r]),
                                                 _mm256_castsi256_ps(x->units[b][c / 2]));
                sums[r] = _mm256_fmadd_ps(sum, _mm256_set1_ps(w[r].scales.scale[block]), sums[r]);
            }
        }
        MF_UNROLL(2)
        for (uint32_t r = 0; r < WIDE_ROWS; r++)
            out[r][c] = sums[r];
    }
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The fixed-point product by VNNI of AVX2's width, weights of all bits. Few tokens: the lanes are
 * positions along a row. Many: rows go in panels of eight, which become the lanes; a panel's
 * weights are transposed, so that a vector holds the same four columns of each row. Either way one
 * instruction multiplies four of one parity by four activations and adds up. As sums of groups are
 * exact, both give the same bits.
 */
#include "kernels/x86/avx_vnni.h"
#include "kernels/x86/fixed_unpack_avx2.h"

enum { MIN_BITS = 2, MAX_BITS = 8 };

/* acc + the sums of each lane's four products of unsigned by signed bytes. By hand, as gcc 12
 * copies and stores the intrinsic's accumulators at each use. */
MF_INLINE __m256i add_products(__m256i acc, __m256i weights, __m256i digits)
{
    __asm__(MF_DPBUSD " %2, %1, %0" : "+x"(acc) : "x"(weights), "x"(digits));
    return acc;
}

/* -------------------------------------------------------------------------------- few tokens -- */

MF_INLINE __m256i add_digit(__m256i acc, const group_64 *weights, const group_64 *digits)
{
    return add_products(add_products(acc, weights->half[0], digits->half[0]), weights->half[1],
                        digits->half[1]);
}

/* A group of four rows, in one part or two (of 4 bits and fewer, and of more). */
MF_INLINE void sum_group_rows(uint32_t bits, const unsigned char *const rows[4], size_t at,
                              size_t ahead, const mf_fixed_digits *x, int32_t *sums, int32_t *highs)
{
    __m256i low[4], high[4];
    group_64 digits[DIGITS];
    MF_UNROLL(3)
    for (int d = 0; d < DIGITS; d++)
        digits[d] = group_digits(bits, x, d);
    MF_UNROLL(4)
    for (int r = 0; r < 4; r++) {
        const group_64 weights = group_weights(bits, rows[r] + at);
        _mm_prefetch((const char *)rows[r] + at + ahead, _MM_HINT_T0);
        high[r] = add_digit(_mm256_setzero_si256(), &weights, &digits[2]);
        low[r] = bits > 4 ? _mm256_setzero_si256() : _mm256_slli_epi32(high[r], 8);
        low[r] = _mm256_slli_epi32(add_digit(low[r], &weights, &digits[1]), 8);
        low[r] = add_digit(low[r], &weights, &digits[0]);
    }
    _mm_storeu_si128((__m128i *)(void *)sums, add_fours(low));
    if (bits > 4)
        _mm_storeu_si128((__m128i *)(void *)highs, add_fours(high));
}

/* Group g's sums of four rows at sums + g * ROWS, those by the highest digit alone after all
 * others.
 */
MF_INLINE void sum_rows(uint32_t bits, const unsigned char *const rows[4], uint32_t n_groups,
                        size_t ahead, const mf_fixed_digits *x, int32_t *sums)
{
    int32_t *highs = sums + (size_t)n_groups * ROWS;
    for (uint32_t g = 0; g < n_groups; g++, sums += ROWS, highs += ROWS)
        sum_group_rows(bits, rows, (size_t)g * bits * (GROUP / 8), ahead, x + g, sums, highs);
}

/* ------------------------------------------------------------------------------- many tokens -- */

/* A group by one digit of n_tokens (a constant) tokens: the sums, [n_tokens, PANELS]. */
MF_INLINE void multiply_digit(uint32_t n_tokens, const __m256i *w0, const __m256i *w1,
                              const signed char *x, size_t x_stride, __m256i *sums)
{
    __m256i acc0[TILE], acc1[TILE];
    MF_UNROLL(4)
    for (uint32_t t = 0; t < n_tokens; t++)
        acc0[t] = acc1[t] = _mm256_setzero_si256();
    MF_ROLLED
    for (uint32_t j = 0; j < QUADS; j++) {
        const __m256i a = w0[j], b = w1[j];
        MF_UNROLL(4)
        for (uint32_t t = 0; t < n_tokens; t++) {
            const __m256i digits = four(x + t * x_stride + (size_t)j * 4);
            acc0[t] = add_products(acc0[t], a, digits);
            acc1[t] = add_products(acc1[t], b, digits);
        }
    }
    MF_UNROLL(4)
    for (uint32_t t = 0; t < n_tokens; t++) {
        sums[PANELS * t] = acc0[t];
        sums[PANELS * t + 1] = acc1[t];
    }
}

/* A function of its own: within the others gcc 12 does not keep the sums in registers. */
__attribute__((noinline)) static void multiply_digit_of_tile(const __m256i *w0, const __m256i *w1,
                                                             const signed char *x, size_t x_stride,
                                                             __m256i *sums)
{
    multiply_digit(TILE, w0, w1, x, x_stride, sums);
}

MF_INLINE void sum_group_tokens(bool wide, uint32_t n_tokens, const __m256i *w0, const __m256i *w1,
                                const mf_fixed_digits *x, size_t x_stride, __m256i *sums)
{
    __m256i parts[DIGITS][PANELS * TILE];
    for (uint32_t d = 0; d < DIGITS; d++) {
        if (n_tokens == TILE)
            multiply_digit_of_tile(w0, w1, x->digit[d][0], x_stride, parts[d]);
        else
            multiply_digit(n_tokens, w0, w1, x->digit[d][0], x_stride, parts[d]);
    }
    for (uint32_t i = 0; i < PANELS * n_tokens; i++) {
        __m256i high = parts[1][i];
        if (wide)
            sums[PANELS * TILE + i] = parts[2][i];
        else
            high = _mm256_add_epi32(_mm256_slli_epi32(parts[2][i], 8), high);
        sums[i] = _mm256_add_epi32(_mm256_slli_epi32(high, 8), parts[0][i]);
    }
}

#include "kernels/x86/fixed_as_it_lies.h"
#include "kernels/x86/fixed_product.h"

size_t mf_fixed_scratch_bytes_avx_vnni(const mf_matrix *w, uint32_t n_tokens)
{
    return product_scratch_bytes(w, n_tokens);
}

void mf_fixed_matmul_avx_vnni(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                              uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    multiply(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

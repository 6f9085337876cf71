/* SPDX-License-Identifier: MIT */
/*
 * The fixed-point product, AVX-512 without VNNI, up to 4 bits; and tokens' form for all AVX-512
 * tiers. Few tokens: the lanes are positions along a row, as the packed weights lie in memory.
 * Many: rows go in panels of 16, which become the lanes; a panel's packed weights are transposed,
 * so that a vector holds the same columns of each row. As sums of groups are exact, both give the
 * same bits.
 *
 * Products of a nibble and a digit are added in pairs by one instruction; 15 * 128 times 16 still
 * fits the 16 bits that they are added in.
 */
#include "kernels/x86/fixed_rows_avx512.h"
#include "kernels/x86/fixed_unpack_avx512.h"

enum {
    MIN_BITS = 2, /* of the weights */
    MAX_BITS = 4,
    HALF = QUADS / 2 /* fours of columns of one parity, in a group */
};

/* ------------------------------------------------------------------------------- activations -- */

/* The largest magnitude; NaN if there is one. */
MF_INLINE float largest(const __m512 x[4])
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i max = _mm512_setzero_si512();
    for (int i = 0; i < 4; i++)
        max = _mm512_max_epu32(max, _mm512_and_si512(_mm512_castps_si512(x[i]), magnitude));
    uint32_t bits = _mm512_reduce_max_epu32(max);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The lowest bytes of 64 integers, those of even columns first. */
MF_INLINE __m512i low_bytes(const __m512i v[4])
{
    const __m128i parity = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    __m512i bytes = _mm512_castsi128_si512(_mm512_cvtepi32_epi8(v[0]));
    bytes = _mm512_inserti32x4(bytes, _mm512_cvtepi32_epi8(v[1]), 1);
    bytes = _mm512_inserti32x4(bytes, _mm512_cvtepi32_epi8(v[2]), 2);
    bytes = _mm512_inserti32x4(bytes, _mm512_cvtepi32_epi8(v[3]), 3);
    bytes = _mm512_shuffle_epi8(bytes, _mm512_broadcast_i32x4(parity));
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), bytes);
}

/* The sum of 64 integers, modulo 2^32: what is not finite became integers of any size. (The
 * intrinsic for a vector's sum adds its last ones as signed integers, which must not overflow.) */
MF_INLINE int32_t sum_integers(const __m512i v[4])
{
    __m512i all = _mm512_add_epi32(_mm512_add_epi32(v[0], v[1]), _mm512_add_epi32(v[2], v[3]));
    __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1)));
}

/* Activations that are not finite get a unit that is not. */
void mf_fixed_prepare_avx512(const mf_matrix *w, const float *x, void *out)
{
    const uint32_t n_groups = mf_fixed_groups(w);
    mf_fixed_digits *digits = out;
    float *units = (float *)(void *)(digits + n_groups), *sums = units + n_groups;
    int32_t *offsets = (int32_t *)(void *)(sums + n_groups);
    for (uint32_t g = 0; g < n_groups; g++, x += GROUP) {
        __m512 values[4];
        __m512i v[4];
        for (int i = 0; i < 4; i++)
            values[i] = _mm512_loadu_ps(x + i * MF_LANES_AVX512);
        float max = largest(values);
        max = max < MF_FIXED_SMALLEST ? MF_FIXED_SMALLEST : max;
        const __m512 per_unit = _mm512_set1_ps(MF_FIXED_LIMIT / max);
        for (int i = 0; i < 4; i++)
            v[i] = _mm512_cvtps_epi32(_mm512_mul_ps(values[i], per_unit));
        int32_t sum = sum_integers(v);
        units[g] = max / MF_FIXED_LIMIT;
        sums[g] = (float)sum * units[g];
        offsets[g] = (int32_t)(-8 * (int64_t)sum);
        for (int d = 0; d < DIGITS; d++) {
            _mm512_storeu_si512(digits[g].digit[d], low_bytes(v));
            for (int i = 0; i < 4; i++) /* what is left, above this byte as a signed one */
                v[i] = mf_above_digit_avx512(v[i]);
        }
    }
}

/* -------------------------------------------------------------------------------- few tokens -- */

/* The sums of two groups of one row by one digit, spread over lanes of 16 bits. */
MF_INLINE __m512i sum_digit(__m512i low, __m512i high, const ordered *x, int digit)
{
    return _mm512_add_epi16(_mm512_maddubs_epi16(low, _mm512_loadu_si512(x->digit[digit][0])),
                            _mm512_maddubs_epi16(high, _mm512_loadu_si512(x->digit[digit][1])));
}

/* The sums of two groups of one row, spread over eight lanes each. */
MF_INLINE __m512i multiply_step(__m512i weights, const ordered *x)
{
    const __m512i one = _mm512_set1_epi16(1), shift = _mm512_set1_epi16(256);
    const __m512i low = low_nibbles(weights), high = high_nibbles(weights);
    const __m512i digit0 = _mm512_madd_epi16(sum_digit(low, high, x, 0), one);
    const __m512i digit1 = _mm512_madd_epi16(sum_digit(low, high, x, 1), shift);
    const __m512i digit2 = _mm512_madd_epi16(sum_digit(low, high, x, 2), shift);
    return _mm512_add_epi32(_mm512_add_epi32(digit0, digit1), _mm512_slli_epi32(digit2, 8));
}

/* One step of n (one or two, a constant) groups of four rows. */
MF_INLINE __m512i multiply_rows(const unsigned char *const rows[4], size_t at, size_t ahead,
                                uint32_t n, const ordered *x)
{
    __m512i sums[4];
    MF_UNROLL(4)
    for (int r = 0; r < 4; r++) {
        const unsigned char *p = rows[r] + at;
        __m512i weights =
            n == 2 ? _mm512_loadu_si512(p)
                   : _mm512_zextsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)p));
        _mm_prefetch((const char *)p + ahead, _MM_HINT_T0);
        sums[r] = multiply_step(weights, x);
    }
    return add_fours(sums);
}

/* 4 bits: sums of all groups of four rows, group g's at sums + g * ROWS. */
static void sum_nibbles(const unsigned char *const rows[4], uint32_t n_groups, size_t ahead,
                        const ordered *x, int32_t *sums)
{
    uint32_t g = 0;
    for (; g + 2 <= n_groups; g += 2, sums += 2 * ROWS) {
        __m512i s = multiply_rows(rows, (size_t)g * GROUP_BYTES, ahead, 2, x + g / 2);
        s = _mm512_add_epi32(s, _mm512_shuffle_i32x4(s, s, 0xb1));
        _mm_storeu_si128((__m128i *)(void *)sums, _mm512_castsi512_si128(s));
        _mm_storeu_si128((__m128i *)(void *)(sums + ROWS), _mm512_extracti32x4_epi32(s, 2));
    }
    if (g < n_groups) {
        __m512i s = multiply_rows(rows, (size_t)g * GROUP_BYTES, ahead, 1, x + g / 2);
        s = _mm512_add_epi32(s, _mm512_shuffle_i32x4(s, s, 0xb1));
        _mm_storeu_si128((__m128i *)(void *)sums, _mm512_castsi512_si128(s));
    }
}

/* Other bits: a group of four rows. */
MF_INLINE void sum_group_rows(uint32_t bits, const unsigned char *const rows[4], size_t at,
                              const ordered *x, uint32_t group, int32_t *sums)
{
    const __m512i one = _mm512_set1_epi16(1), shift = _mm512_set1_epi16(256);
    __m512i digits[DIGITS], s[4];
    MF_UNROLL(3)
    for (int d = 0; d < DIGITS; d++)
        digits[d] = group_digits(x, d, group);
    MF_UNROLL(4)
    for (int r = 0; r < 4; r++) {
        const __m512i w = group_weights(bits, rows[r] + at);
        const __m512i digit0 = _mm512_madd_epi16(_mm512_maddubs_epi16(w, digits[0]), one);
        const __m512i digit1 = _mm512_madd_epi16(_mm512_maddubs_epi16(w, digits[1]), shift);
        const __m512i digit2 = _mm512_madd_epi16(_mm512_maddubs_epi16(w, digits[2]), shift);
        s[r] = _mm512_add_epi32(_mm512_add_epi32(digit0, digit1), _mm512_slli_epi32(digit2, 8));
    }
    __m512i all = add_fours(s);
    all = _mm512_add_epi32(all, _mm512_shuffle_i32x4(all, all, 0x4e));
    all = _mm512_add_epi32(all, _mm512_shuffle_i32x4(all, all, 0xb1));
    _mm_storeu_si128((__m128i *)(void *)sums, _mm512_castsi512_si128(all));
}

MF_INLINE void sum_rows(uint32_t bits, const unsigned char *const rows[4], uint32_t n_groups,
                        size_t ahead, const ordered *x, int32_t *sums)
{
    if (bits == 4) {
        sum_nibbles(rows, n_groups, ahead, x, sums);
        return;
    }
    for (uint32_t g = 0; g < n_groups; g++, sums += ROWS) {
        const size_t at = (size_t)g * bits * (GROUP / 8);
        for (int r = 0; r < 4; r++)
            _mm_prefetch((const char *)rows[r] + at + ahead, _MM_HINT_T0);
        sum_group_rows(bits, rows, at, x + g / 2, g % 2, sums);
    }
}

/* ------------------------------------------------------------------------------- many tokens -- */

/* acc + products, of 16 bits. By hand, as gcc 12 copies the intrinsic's accumulators at each use.
 */
MF_INLINE ints add_words(ints acc, ints products)
{
    __asm__("vpaddw %1, %0, %0" : "+v"(acc) : "v"(products));
    return acc;
}

MF_INLINE ints words_of_bytes(ints weights, ints digits)
{
    return _mm512_maddubs_epi16(weights, digits);
}

MF_INLINE ints ints_of_words(ints words)
{
    return _mm512_madd_epi16(words, _mm512_set1_epi16(1));
}

MF_INLINE ints ints_times_256(ints sums)
{
    return _mm512_slli_epi32(sums, 8);
}

#include "kernels/x86/fixed_halves.h"

/* fixed_product.h's. */
MF_INLINE const ordered *order_token(uint32_t bits, const mf_fixed_digits *x, uint32_t n_groups,
                                     ordered *to)
{
    (void)bits;
    return order_as_they_lie(x, 0, n_groups, to);
}

#include "kernels/x86/fixed_product.h"

size_t mf_fixed_scratch_bytes_avx512_bw(const mf_matrix *w, uint32_t n_tokens)
{
    return product_scratch_bytes(w, n_tokens);
}

void mf_fixed_matmul_avx512_bw(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                               uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    multiply(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

/* SPDX-License-Identifier: MIT */
/*
 * The fixed-point product of up to 4 bits, AVX2; and tokens' form. Few tokens: the lanes are
 * positions along a row, as the packed weights lie in memory. Many: rows go in panels of eight,
 * which become the lanes; a panel's weights are transposed, so that a vector holds the same four
 * columns of each row. As sums of groups are exact, both give the same bits.
 *
 * Products of a nibble and a digit are added in pairs by one instruction; 15 * 128 times 16 still
 * fits the 16 bits that they are added in.
 */
#include "kernels/x86/fixed_unpack_avx2.h"

enum { MIN_BITS = 2, MAX_BITS = 4 };

/* ------------------------------------------------------------------------------- activations -- */

MF_INLINE int32_t sum_integers(const __m256i v[8])
{
    __m256i a = _mm256_add_epi32(_mm256_add_epi32(v[0], v[1]), _mm256_add_epi32(v[2], v[3]));
    __m256i b = _mm256_add_epi32(_mm256_add_epi32(v[4], v[5]), _mm256_add_epi32(v[6], v[7]));
    a = _mm256_add_epi32(a, b);
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

/* The lowest bytes of 32 integers: those of even columns, then those of odd ones. */
MF_INLINE __m256i low_bytes(const __m256i v[4])
{
    const __m256i byte = _mm256_set1_epi32(0xff);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i parity = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    __m256i a = _mm256_packus_epi32(_mm256_and_si256(v[0], byte), _mm256_and_si256(v[1], byte));
    __m256i b = _mm256_packus_epi32(_mm256_and_si256(v[2], byte), _mm256_and_si256(v[3], byte));
    __m256i in_order = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(a, b), order);
    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(in_order, parity), 0xd8);
}

MF_INLINE void store_digit(mf_fixed_digits *to, int digit, const __m256i v[8])
{
    const __m256i a = low_bytes(v), b = low_bytes(v + 4);
    _mm256_storeu_si256((__m256i *)(void *)to->digit[digit][0],
                        _mm256_permute2x128_si256(a, b, 0x20));
    _mm256_storeu_si256((__m256i *)(void *)to->digit[digit][1],
                        _mm256_permute2x128_si256(a, b, 0x31));
}

/* Activations that are not finite get a unit that is not. */
void mf_fixed_prepare_avx2(const mf_matrix *w, const float *x, void *out)
{
    const uint32_t n_groups = mf_fixed_groups(w);
    mf_fixed_digits *digits = out;
    float *units = (float *)(void *)(digits + n_groups), *sums = units + n_groups;
    int32_t *offsets = (int32_t *)(void *)(sums + n_groups);
    for (uint32_t g = 0; g < n_groups; g++, x += GROUP) {
        __m256i v[8];
        float max = mf_largest_avx2(x, GROUP);
        max = max < MF_FIXED_SMALLEST ? MF_FIXED_SMALLEST : max;
        const __m256 per_unit = _mm256_set1_ps(MF_FIXED_LIMIT / max);
        for (int i = 0; i < 8; i++)
            v[i] =
                _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i * MF_LANES_AVX2), per_unit));
        const int32_t sum = sum_integers(v);
        units[g] = max / MF_FIXED_LIMIT;
        sums[g] = (float)sum * units[g];
        offsets[g] = (int32_t)(-8 * (int64_t)sum);
        for (int d = 0; d < DIGITS; d++) {
            store_digit(&digits[g], d, v);
            for (int i = 0; i < 8; i++) /* what is left, above this byte as a signed one */
                v[i] = _mm256_srai_epi32(_mm256_add_epi32(v[i], _mm256_set1_epi32(128)), 8);
        }
    }
}

/* -------------------------------------------------------------------------------- few tokens -- */

/* The sums of a group of one row by one digit, spread over lanes of 16 bits. */
MF_INLINE __m256i sum_digit(const group_64 *weights, const group_64 *digits)
{
    return _mm256_add_epi16(_mm256_maddubs_epi16(weights->half[0], digits->half[0]),
                            _mm256_maddubs_epi16(weights->half[1], digits->half[1]));
}

/* The sums of two rows' groups by a digit: words of each row next to each other. */
MF_INLINE __m256i sum_two_rows(const group_64 weights[2], const group_64 *digits)
{
    const __m256i first = sum_digit(&weights[0], digits), second = sum_digit(&weights[1], digits);
    return _mm256_add_epi16(_mm256_unpacklo_epi32(first, second),
                            _mm256_unpackhi_epi32(first, second));
}

/* Sums of a group of four rows. They are words as long as they fit (16 * 15 * 128): widening takes
 * a product, of which many processors do one where they do three additions. */
MF_INLINE void sum_group_rows(uint32_t bits, const unsigned char *const rows[4], uint32_t g,
                              const mf_fixed_digits *x, int32_t *sums)
{
    const __m256i one = _mm256_set1_epi16(1), shift = _mm256_set1_epi16(256);
    group_64 weights[4];
    __m256i words[2][DIGITS], digit[DIGITS];
    MF_UNROLL(2)
    for (int i = 0; i < 2; i++) {
        MF_UNROLL(2)
        for (int r = 2 * i; r < 2 * i + 2; r++)
            weights[r] = group_weights(bits, rows[r] + (size_t)g * bits * (GROUP / 8));
        MF_UNROLL(3)
        for (int d = 0; d < DIGITS; d++) {
            const group_64 digits = group_digits(bits, x, d);
            words[i][d] = sum_two_rows(weights + 2 * i, &digits);
        }
    }
    MF_UNROLL(3)
    for (int d = 0; d < DIGITS; d++)
        digit[d] =
            _mm256_madd_epi16(_mm256_add_epi16(_mm256_unpacklo_epi64(words[0][d], words[1][d]),
                                               _mm256_unpackhi_epi64(words[0][d], words[1][d])),
                              d == 0 ? one : shift);
    const __m256i all =
        _mm256_add_epi32(_mm256_add_epi32(digit[0], digit[1]), _mm256_slli_epi32(digit[2], 8));
    _mm_storeu_si128((__m128i *)(void *)sums,
                     _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)));
}

/* Sums of all groups of four rows, group g's at sums + g * ROWS. */
MF_INLINE void sum_rows(uint32_t bits, const unsigned char *const rows[4], uint32_t n_groups,
                        size_t ahead, const mf_fixed_digits *x, int32_t *sums)
{
    uint32_t g = 0;
    for (; g + 2 <= n_groups; g += 2, sums += 2 * ROWS) {
        for (int r = 0; r < 4; r++)
            _mm_prefetch((const char *)rows[r] + (size_t)g * bits * (GROUP / 8) + ahead,
                         _MM_HINT_T0);
        sum_group_rows(bits, rows, g, x + g, sums);
        sum_group_rows(bits, rows, g + 1, x + g + 1, sums + ROWS);
    }
    if (g < n_groups)
        sum_group_rows(bits, rows, g, x + g, sums);
}

/* ------------------------------------------------------------------------------- many tokens -- */

MF_INLINE ints add_words(ints acc, ints products)
{
    return mf_add_words_avx2(acc, products);
}

MF_INLINE ints words_of_bytes(ints weights, ints digits)
{
    return _mm256_maddubs_epi16(weights, digits);
}

MF_INLINE ints ints_of_words(ints words)
{
    return _mm256_madd_epi16(words, _mm256_set1_epi16(1));
}

MF_INLINE ints ints_times_256(ints sums)
{
    return _mm256_slli_epi32(sums, 8);
}

#include "kernels/x86/fixed_halves.h"

#include "kernels/x86/fixed_as_it_lies.h"
#include "kernels/x86/fixed_product.h"

size_t mf_fixed_scratch_bytes_avx2(const mf_matrix *w, uint32_t n_tokens)
{
    return product_scratch_bytes(w, n_tokens);
}

void mf_fixed_matmul_avx2(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                          uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    multiply(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

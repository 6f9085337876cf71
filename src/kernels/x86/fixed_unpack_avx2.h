/* SPDX-License-Identifier: MIT */
/*
 * 64 columns of a row of affine weights, a byte each, for the fixed-point product, AVX2. A value's
 * two bytes become a word, a product moves it to its top, and a shift back drops what was below.
 *
 * `bits` is a constant everywhere.
 */
#ifndef MF_KERNELS_FIXED_UNPACK_AVX2_H
#define MF_KERNELS_FIXED_UNPACK_AVX2_H

#include "kernels/x86/fixed_rows_avx2.h"

/* A group of 64 columns, a byte each. Of 4 bits: the even ones, and the odd ones. Of others: eight
 * even columns, the eight odd ones between them, and so on. */
typedef struct group_64 {
    __m256i half[2];
} group_64;

/* The 16 bytes that hold columns 16 * i .. 16 * i + 15 of a group, none of another group's. */
MF_INLINE uint32_t window_of(uint32_t bits, uint32_t i)
{
    const uint32_t first = 2 * bits * i, last = 8 * bits - 16;
    return first < last ? first : last;
}

/* Which of a window's bytes a value begins in, and the one after it: of eight even or odd values.
 */
MF_INLINE __m128i bytes_of(uint32_t bits, uint32_t i, uint32_t parity)
{
    const __m128i value =
        _mm_add_epi16(_mm_setr_epi16(0, 2, 4, 6, 8, 10, 12, 14), _mm_set1_epi16((short)parity));
    const __m128i first_bit = _mm_mullo_epi16(value, _mm_set1_epi16((short)bits));
    const __m128i byte = _mm_add_epi16(_mm_srli_epi16(first_bit, 3),
                                       _mm_set1_epi16((short)(2 * bits * i - window_of(bits, i))));
    return _mm_add_epi16(_mm_or_si128(byte, _mm_slli_epi16(byte, 8)), _mm_set1_epi16(256));
}

/* The factor that moves value v from its place in such a word to the top. */
MF_INLINE short raise_of(uint32_t bits, uint32_t v)
{
    return (short)(1u << (16 - bits - v * bits % 8));
}

/* Eight even or odd values of each 16 in the windows i and i + 1, in words. */
MF_INLINE __m256i eight_of_sixteen(uint32_t bits, uint32_t i, uint32_t parity, __m256i windows)
{
    const __m256i order = _mm256_inserti128_si256(_mm256_castsi128_si256(bytes_of(bits, i, parity)),
                                                  bytes_of(bits, i + 1, parity), 1);
    const __m128i raise = _mm_setr_epi16(raise_of(bits, parity), raise_of(bits, 2 + parity),
                                         raise_of(bits, 4 + parity), raise_of(bits, 6 + parity),
                                         raise_of(bits, 8 + parity), raise_of(bits, 10 + parity),
                                         raise_of(bits, 12 + parity), raise_of(bits, 14 + parity));
    const __m256i words = _mm256_shuffle_epi8(windows, order);
    return _mm256_srli_epi16(_mm256_mullo_epi16(words, _mm256_broadcastsi128_si256(raise)),
                             (int)(16 - bits));
}

/* Columns 32 * h .. 32 * h + 31. */
MF_INLINE __m256i unpack_half(uint32_t bits, uint32_t h, const unsigned char *p)
{
    const __m256i parity = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    if (bits == 8)
        return _mm256_shuffle_epi8(ints_load(p + (size_t)32 * h), parity);
    const __m128i first =
        _mm_loadu_si128((const __m128i *)(const void *)(p + window_of(bits, 2 * h)));
    const __m128i second =
        _mm_loadu_si128((const __m128i *)(const void *)(p + window_of(bits, 2 * h + 1)));
    const __m256i windows = _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
    return _mm256_packus_epi16(eight_of_sixteen(bits, 2 * h, 0, windows),
                               eight_of_sixteen(bits, 2 * h, 1, windows));
}

MF_INLINE group_64 group_weights(uint32_t bits, const unsigned char *p)
{
    if (bits == 4) {
        const __m256i v = ints_load(p);
        return (group_64){{low_nibbles(v), high_nibbles(v)}};
    }
    return (group_64){{unpack_half(bits, 0, p), unpack_half(bits, 1, p)}};
}

/* A group's digits in the order of the weights. */
MF_INLINE group_64 group_digits(uint32_t bits, const mf_fixed_digits *x, int digit)
{
    const __m256i even = ints_load(x->digit[digit][0]);
    const __m256i odd = ints_load(x->digit[digit][1]);
    if (bits == 4)
        return (group_64){{even, odd}};
    const __m256i a = _mm256_permute4x64_epi64(even, 0xd8), b = _mm256_permute4x64_epi64(odd, 0xd8);
    return (group_64){{_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)}};
}

/* Which four of the even columns (0 to 7), or of the odd ones (8 to 15), lane c of a half is. */
MF_INLINE uint32_t quad_of_lane(uint32_t bits, uint32_t h, uint32_t c)
{
    if (bits == 4)
        return HALF * h + c;
    return 4 * h + c / 4 * 2 + c % 2 + c / 2 % 2 * HALF;
}

/* A panel's weights, [n_groups][QUADS]. */
MF_INLINE void unpack_panel(uint32_t bits, const panel *p, __m256i *out)
{
    const uint32_t n_groups = mf_fixed_groups(p->w);
    const size_t row_bytes = mf_fixed_row_bytes(p->w);
    for (uint32_t g = 0; g < n_groups; g++, out += QUADS) {
        __m256i halves[2][ROWS];
        MF_UNROLL(8)
        for (uint32_t r = 0; r < ROWS; r++) {
            const unsigned char *from =
                p->w->data + p->rows[r] * row_bytes + (size_t)g * bits * (GROUP / 8);
            const group_64 weights = group_weights(bits, from);
            halves[0][r] = weights.half[0];
            halves[1][r] = weights.half[1];
            _mm_prefetch((const char *)from + ROWS * row_bytes, _MM_HINT_T0);
        }
        MF_UNROLL(2)
        for (uint32_t h = 0; h < 2; h++) {
            __m256i columns[ROWS];
            mf_transpose_avx2(halves[h], columns);
            MF_UNROLL(8)
            for (uint32_t c = 0; c < ROWS; c++)
                _mm256_store_si256(out + quad_of_lane(bits, h, c), columns[c]);
        }
    }
}

#endif

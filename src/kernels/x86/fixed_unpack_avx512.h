/* SPDX-License-Identifier: MIT */
/*
 * 64 columns of a row of affine weights that are not of 4 bits, a byte each, for the fixed-point
 * product. They come in an order of fours of one parity, as the digits of a token do, and what goes
 * with a vector of them says where each four lies. CPUs with VBMI pick any bytes and any bits of
 * them at once; others pick words, and then the two bytes that a value begins in.
 *
 * `bits` is a constant everywhere.
 */
#ifndef MF_KERNELS_FIXED_UNPACK_AVX512_H
#define MF_KERNELS_FIXED_UNPACK_AVX512_H

#include "kernels/x86/fixed_rows_avx512.h"

/* The bytes of a group of 64 columns, zeros behind them; reads no others. */
MF_INLINE __m512i load_group(uint32_t bits, const unsigned char *p)
{
    if (bits == 8)
        return _mm512_loadu_si512(p);
    return _mm512_maskz_loadu_epi8(((uint64_t)1 << (8 * bits)) - 1, p);
}

#if defined(__AVX512VBMI__)

/* The order: four even columns, the four odd ones between them, and so on. */

/* Which four of the even columns (0 to 7), or of the odd ones (8 to 15), lane c is. */
MF_INLINE uint32_t quad_of_lane(uint32_t c)
{
    return c / 2 + c % 2 * 8;
}

/* Even and odd columns' digits in that order. */
MF_INLINE __m512i order_digits(__m256i even, __m256i odd)
{
    const __m512i order = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return _mm512_permutex2var_epi32(_mm512_castsi256_si512(even), order,
                                     _mm512_castsi256_si512(odd));
}

/* Eight values lie in `bits` bytes, from which a word of 64 bits takes them. */
MF_INLINE long long bytes_of_eight(uint32_t bits, uint32_t i)
{
    return 0x0706050403020100 + 0x0101010101010101 * (long long)(bits * i);
}

/* Columns 8 i to 8 i + 7 of v lie at `low` + i * bits for the first four i, and at `high` + (i - 4)
 * * bits for the others. */
MF_INLINE __m512i values_of(uint32_t bits, __m512i v, long long low, long long high)
{
    const long long each = 0x0101010101010101;
    if (bits == 8)
        return _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(_mm_setr_epi8(
                                          0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15)));
    const __m512i four =
        _mm512_setr_epi64(bytes_of_eight(bits, 0), bytes_of_eight(bits, 1), bytes_of_eight(bits, 2),
                          bytes_of_eight(bits, 3), bytes_of_eight(bits, 0), bytes_of_eight(bits, 1),
                          bytes_of_eight(bits, 2), bytes_of_eight(bits, 3));
    const __m512i from = _mm512_setr_epi64(low * each, low * each, low * each, low * each,
                                           high * each, high * each, high * each, high * each);
    const __m512i first_bits = _mm512_set1_epi64(0x0705030106040200 * (long long)bits);
    const __m512i q = _mm512_multishift_epi64_epi8(
        first_bits, _mm512_permutexvar_epi8(_mm512_add_epi8(four, from), v));
    return _mm512_and_si512(q, _mm512_set1_epi8((char)((1 << bits) - 1)));
}

MF_INLINE __m512i group_weights(uint32_t bits, const unsigned char *p)
{
    return values_of(bits, load_group(bits, p), 0, 4 * bits);
}

/* The 32 bytes that end with the half of a group that lies `at` bytes from p, or that begin at p;
 * *begin: where that half begins in them. */
MF_INLINE __m256i load_half(uint32_t bits, const unsigned char *p, uint32_t at, uint32_t *begin)
{
    const uint32_t end = at + 4 * bits, from = end > 32 ? end - 32 : 0;
    *begin = at - from;
    return _mm256_loadu_si256((const __m256i *)(const void *)(p + from));
}

/* Two groups: half of each, and the other half of each. */
MF_INLINE void pair_weights(uint32_t bits, const unsigned char *p, __m512i out[2])
{
    const uint32_t half = 4 * bits;
    if (bits < 4) { /* both in a vector */
        const __m512i v = _mm512_maskz_loadu_epi8(((uint64_t)1 << (16 * bits)) - 1, p);
        out[0] = values_of(bits, v, 0, 2 * half);
        out[1] = values_of(bits, v, half, 3 * half);
        return;
    }
    MF_UNROLL(2)
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t low, high;
        const __m256i a = load_half(bits, p, i * half, &low);
        const __m256i b = load_half(bits, p, (2 + i) * half, &high);
        out[i] =
            values_of(bits, _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1), low, 32 + high);
    }
}

/* The digits of two groups in the order of pair_weights. */
MF_INLINE void order_pair(const mf_fixed_digits *x, int digit, ordered *to)
{
    const __m512i a = _mm512_loadu_si512(x[0].digit[digit]);
    const __m512i b = _mm512_loadu_si512(x[1].digit[digit]);
    const __m512i first =
        _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 16, 24, 17, 25, 18, 26, 19, 27);
    const __m512i other = _mm512_add_epi32(first, _mm512_set1_epi32(4));
    _mm512_storeu_si512(to->digit[digit][0], _mm512_permutex2var_epi32(a, first, b));
    _mm512_storeu_si512(to->digit[digit][1], _mm512_permutex2var_epi32(a, other, b));
}

#else

/* The order: eight even columns, the eight odd ones between them, and so on. */

/* Which four of the even columns (0 to 7), or of the odd ones (8 to 15), lane c is. */
MF_INLINE uint32_t quad_of_lane(uint32_t c)
{
    return c / 4 * 2 + c % 2 + c / 2 % 2 * 8;
}

/* Even and odd columns' digits in that order. */
MF_INLINE __m512i order_digits(__m256i even, __m256i odd)
{
    return _mm512_permutex2var_epi64(_mm512_castsi256_si512(even),
                                     _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11),
                                     _mm512_castsi256_si512(odd));
}

/* Of 16 values of each quarter the even or the odd ones, in words. */
MF_INLINE __m512i eight_of_sixteen(uint32_t bits, uint32_t parity, __m512i sixteens)
{
    const __m128i value = _mm_setr_epi16(0, 2, 4, 6, 8, 10, 12, 14);
    const __m128i first_bit = _mm_mullo_epi16(_mm_add_epi16(value, _mm_set1_epi16((short)parity)),
                                              _mm_set1_epi16((short)bits));
    const __m128i byte = _mm_srli_epi16(first_bit, 3); /* it and the next, side by side */
    const __m128i both =
        _mm_add_epi16(_mm_or_si128(byte, _mm_slli_epi16(byte, 8)), _mm_set1_epi16(256));
    const __m128i shift = _mm_and_si128(first_bit, _mm_set1_epi16(7));
    const __m512i words = _mm512_shuffle_epi8(sixteens, _mm512_broadcast_i32x4(both));
    return _mm512_and_si512(_mm512_srlv_epi16(words, _mm512_broadcast_i32x4(shift)),
                            _mm512_set1_epi16((short)((1 << bits) - 1)));
}

MF_INLINE __m512i group_weights(uint32_t bits, const unsigned char *p)
{
    const __m512i v = load_group(bits, p);
    if (bits == 8)
        return _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(_mm_setr_epi8(
                                          0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15)));
    /* 16 values lie in as many words as they have bits */
    const __m512i lane = _mm512_set_epi16(7, 6, 5, 4, 3, 2, 1, 0, 7, 6, 5, 4, 3, 2, 1, 0, 7, 6, 5,
                                          4, 3, 2, 1, 0, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i quarter = _mm512_set_epi16(3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1,
                                             1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i words =
        _mm512_add_epi16(lane, _mm512_mullo_epi16(quarter, _mm512_set1_epi16((short)bits)));
    const __m512i sixteens = _mm512_permutexvar_epi16(words, v);
    return _mm512_packus_epi16(eight_of_sixteen(bits, 0, sixteens),
                               eight_of_sixteen(bits, 1, sixteens));
}

/* Two groups: half of each, and the other half of each. */
MF_INLINE void pair_weights(uint32_t bits, const unsigned char *p, __m512i out[2])
{
    const __m512i a = group_weights(bits, p), b = group_weights(bits, p + (size_t)8 * bits);
    out[0] = _mm512_shuffle_i64x2(a, b, 0x44);
    out[1] = _mm512_shuffle_i64x2(a, b, 0xee);
}

/* The digits of two groups in the order of pair_weights. */
MF_INLINE void order_pair(const mf_fixed_digits *x, int digit, ordered *to)
{
    const __m512i a = _mm512_loadu_si512(x[0].digit[digit]);
    const __m512i b = _mm512_loadu_si512(x[1].digit[digit]);
    const __m512i first = _mm512_setr_epi64(0, 4, 1, 5, 8, 12, 9, 13);
    const __m512i other = _mm512_add_epi64(first, _mm512_set1_epi64(2));
    _mm512_storeu_si512(to->digit[digit][0], _mm512_permutex2var_epi64(a, first, b));
    _mm512_storeu_si512(to->digit[digit][1], _mm512_permutex2var_epi64(a, other, b));
}

#endif

/* A group's digits, one of two that lie side by side, in the order of the weights. */
MF_INLINE __m512i group_digits(const ordered *x, int digit, uint32_t group)
{
    const void *even = x->digit[digit][0][group], *odd = x->digit[digit][1][group];
    return order_digits(_mm256_loadu_si256(even), _mm256_loadu_si256(odd));
}

/* A panel's weights, [n_groups][QUADS]. */
MF_INLINE void unpack_panel(uint32_t bits, const panel *p, __m512i *out)
{
    const uint32_t n_groups = mf_fixed_groups(p->w);
    const size_t row_bytes = mf_fixed_row_bytes(p->w);
    if (bits == 4) {
        unpack_nibbles(p, out);
        return;
    }
    for (uint32_t g = 0; g < n_groups; g++, out += QUADS) {
        __m512i rows[ROWS], columns[ROWS];
        MF_UNROLL(16)
        for (uint32_t r = 0; r < ROWS; r++) {
            const unsigned char *from =
                p->w->data + p->rows[r] * row_bytes + (size_t)g * bits * (GROUP / 8);
            rows[r] = group_weights(bits, from);
            /* the next panel's, past the nearest cache: that is full with this one's */
            _mm_prefetch((const char *)from + ROWS * row_bytes, _MM_HINT_T1);
        }
        mf_transpose_avx512(rows, columns);
        MF_UNROLL(16)
        for (uint32_t c = 0; c < ROWS; c++)
            _mm512_store_si512(out + quad_of_lane(c), columns[c]);
    }
}

#endif

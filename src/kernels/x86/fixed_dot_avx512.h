/* SPDX-License-Identifier: MIT */
/*
 * The fixed-point product by VNNI, AVX-512, weights of all bits. Few tokens: the lanes are
 * positions along a row, as the packed weights lie in memory. Many: rows go in panels of 16, which
 * become the lanes; a panel's packed weights are transposed, so that a vector holds the same
 * columns of each row: of 4 bits eight, of which low and high nibbles are the even and odd ones; of
 * others four of one parity, for which they are unpacked before. Either way one instruction
 * multiplies four of them by four activations and adds up. As sums of groups are exact, both give
 * the same bits.
 */
#ifndef MF_KERNELS_FIXED_DOT_AVX512_H
#define MF_KERNELS_FIXED_DOT_AVX512_H

#include "kernels/x86/fetch.h"
#include "kernels/x86/fixed_rows_avx512.h"
#include "kernels/x86/fixed_unpack_avx512.h"

enum { MIN_BITS = 2, MAX_BITS = 8 };

/* acc + the sums of each lane's four products of unsigned by signed bytes. By hand, as gcc 12
 * copies and stores the intrinsic's accumulators at each use. */
MF_INLINE __m512i add_products(__m512i acc, __m512i weights, __m512i digits)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(weights), "v"(digits));
    return acc;
}

/* A group's sums by the digits, put together: the highest apart if they are wide. */
MF_INLINE void store_sums(bool wide, const __m512i digits[DIGITS], __m512i *sums)
{
    __m512i high = wide ? digits[1] : _mm512_add_epi32(_mm512_slli_epi32(digits[2], 8), digits[1]);
    *sums = _mm512_add_epi32(_mm512_slli_epi32(high, 8), digits[0]);
    if (wide)
        sums[PANELS * TILE] = digits[2];
}

/* Few tokens: the sums over the lanes of a group are exact like the rest. */
typedef struct step_digits {
    __m512i even[DIGITS], odd[DIGITS]; /* two groups' */
} step_digits;

MF_INLINE step_digits load_digits(const ordered *x)
{
    step_digits s;
    MF_UNROLL(3)
    for (int d = 0; d < DIGITS; d++) {
        s.even[d] = _mm512_loadu_si512(x->digit[d][0]);
        s.odd[d] = _mm512_loadu_si512(x->digit[d][1]);
    }
    return s;
}

/* Sums of two groups of one row, spread over eight lanes each. */
MF_INLINE __m512i multiply_step(__m512i weights, const step_digits *x)
{
    const __m512i low = low_nibbles(weights), high = high_nibbles(weights);
    __m512i sum = add_products(_mm512_setzero_si512(), low, x->even[2]);
    sum = _mm512_slli_epi32(add_products(sum, high, x->odd[2]), 8);
    sum = add_products(sum, low, x->even[1]);
    sum = _mm512_slli_epi32(add_products(sum, high, x->odd[1]), 8);
    sum = add_products(sum, low, x->even[0]);
    return add_products(sum, high, x->odd[0]);
}

/* One step of n (one or two, a constant) groups of four rows. */
MF_INLINE __m512i multiply_rows(const unsigned char *const rows[4], size_t at, size_t ahead,
                                uint32_t n, const ordered *x)
{
    const step_digits digits = load_digits(x);
    __m512i sums[4];
    MF_UNROLL(4)
    for (int r = 0; r < 4; r++) {
        const unsigned char *p = rows[r] + at;
        __m512i weights = n == 2 ? _mm512_loadu_si512(p)
                                 : _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)p));
        mf_fetch(p + ahead);
        sums[r] = multiply_step(weights, &digits);
    }
    return add_fours(sums);
}

/* 4 bits: sums of all groups of four rows, group g's at sums + g * ROWS. */
__attribute__((noinline)) static void sum_rows_4(const unsigned char *const rows[4],
                                                 uint32_t n_groups, size_t ahead, const ordered *x,
                                                 int32_t *sums)
{
    uint32_t g = 0;
    for (; g + 2 <= n_groups; g += 2, sums += 2 * ROWS) {
        __m512i s = multiply_rows(rows, (size_t)g * GROUP_BYTES, ahead, 2, x + g / 2);
        s = _mm512_add_epi32(s, _mm512_shuffle_i32x4(s, s, 0xb1));
        _mm_storeu_si128((__m128i *)sums, _mm512_castsi512_si128(s));
        _mm_storeu_si128((__m128i *)(sums + ROWS), _mm512_extracti32x4_epi32(s, 2));
    }
    if (g < n_groups) {
        __m512i s = multiply_rows(rows, (size_t)g * GROUP_BYTES, ahead, 1, x + g / 2);
        s = _mm512_add_epi32(s, _mm512_shuffle_i32x4(s, s, 0xb1));
        _mm_storeu_si128((__m128i *)sums, _mm512_castsi512_si128(s));
    }
}

/* What four rows' sums by the higher digit and the others add up to, of one group or of two side by
 * side; in one part or two (of 4 bits and fewer, and of more). */
MF_INLINE void store_rows(uint32_t bits, uint32_t n, const __m512i low[4], const __m512i high[4],
                          int32_t *sums, int32_t *highs)
{
    for (uint32_t part = 0; part < (bits > 4 ? 2u : 1u); part++) {
        int32_t *to = part == 0 ? sums : highs;
        __m512i s = add_fours(part == 0 ? low : high);
        s = _mm512_add_epi32(s, _mm512_shuffle_i32x4(s, s, 0xb1));
        if (n == 1)
            s = _mm512_add_epi32(s, _mm512_shuffle_i32x4(s, s, 0x4e));
        _mm_storeu_si128((__m128i *)(void *)to, _mm512_castsi512_si128(s));
        if (n == 2)
            _mm_storeu_si128((__m128i *)(void *)(to + ROWS), _mm512_extracti32x4_epi32(s, 2));
    }
}

/* Other bits: a group of four rows that has no partner. Digits as they lie. */
MF_INLINE void sum_group_rows(uint32_t bits, const unsigned char *const rows[4], size_t at,
                              size_t ahead, const ordered *x, uint32_t group, int32_t *sums,
                              int32_t *highs)
{
    __m512i low[4], high[4];
    MF_UNROLL(4)
    for (int r = 0; r < 4; r++) {
        const __m512i weights = group_weights(bits, rows[r] + at);
        mf_fetch(rows[r] + at + ahead);
        high[r] = add_products(_mm512_setzero_si512(), weights, group_digits(x, 2, group));
        low[r] = bits > 4 ? _mm512_setzero_si512() : _mm512_slli_epi32(high[r], 8);
        low[r] = add_products(low[r], weights, group_digits(x, 1, group));
        low[r] = _mm512_slli_epi32(low[r], 8);
        low[r] = add_products(low[r], weights, group_digits(x, 0, group));
    }
    store_rows(bits, 1, low, high, sums, highs);
}

/* Two groups of four rows: half the sums to be added up. Digits in the order of pair_weights. */
MF_INLINE void sum_pair_rows(uint32_t bits, const unsigned char *const rows[4], size_t at,
                             size_t ahead, const ordered *x, int32_t *sums, int32_t *highs)
{
    __m512i digits[2][DIGITS], low[4], high[4];
    MF_UNROLL(3)
    for (int d = 0; d < DIGITS; d++) {
        digits[0][d] = _mm512_loadu_si512(x->digit[d][0]);
        digits[1][d] = _mm512_loadu_si512(x->digit[d][1]);
    }
    MF_UNROLL(4)
    for (int r = 0; r < 4; r++) {
        const unsigned char *p = rows[r] + at;
        __m512i w[2];
        pair_weights(bits, p, w);
        mf_fetch(p + ahead);
        if (bits > 4) /* two groups are more than a line */
            mf_fetch(p + ahead + 64);
        high[r] = add_products(_mm512_setzero_si512(), w[0], digits[0][2]);
        high[r] = add_products(high[r], w[1], digits[1][2]);
        low[r] = bits > 4 ? _mm512_setzero_si512() : _mm512_slli_epi32(high[r], 8);
        low[r] = add_products(low[r], w[0], digits[0][1]);
        low[r] = _mm512_slli_epi32(add_products(low[r], w[1], digits[1][1]), 8);
        low[r] = add_products(low[r], w[0], digits[0][0]);
        low[r] = add_products(low[r], w[1], digits[1][0]);
    }
    store_rows(bits, 2, low, high, sums, highs);
}

MF_INLINE void sum_all_groups(uint32_t bits, const unsigned char *const rows[4], uint32_t n_groups,
                              size_t ahead, const ordered *x, int32_t *sums)
{
    const size_t group_bytes = (size_t)bits * (GROUP / 8);
    int32_t *highs = sums + (size_t)n_groups * ROWS;
    uint32_t g = 0;
    for (; g + 2 <= n_groups; g += 2, sums += 2 * ROWS, highs += 2 * ROWS)
        sum_pair_rows(bits, rows, g * group_bytes, ahead, x + g / 2, sums, highs);
    if (g < n_groups)
        sum_group_rows(bits, rows, g * group_bytes, ahead, x + g / 2, 0, sums, highs);
}

/* 2 bits: a byte of the weights has four neighbours, so that one shift of 64 bytes leaves every
 * fourth column of four groups. Those of a digit, by the first column. */
MF_INLINE void order_every_fourth(const mf_fixed_digits *x, int digit, ordered *to)
{
    const __m512i order =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    const __m512i even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
    const __m512i odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
    MF_UNROLL(2)
    for (int i = 0; i < 2; i++) {
        const __m512i a = _mm512_shuffle_epi8(pair_digits(x, 0, 4, digit, i), order);
        const __m512i b = _mm512_shuffle_epi8(pair_digits(x, 2, 4, digit, i), order);
        _mm512_storeu_si512(to[0].digit[digit][i], _mm512_permutex2var_epi64(a, even, b));
        _mm512_storeu_si512(to[1].digit[digit][i], _mm512_permutex2var_epi64(a, odd, b));
    }
}

/* fixed_product.h's. Groups of which there are not as many as go together stay as they lie. */
MF_INLINE const ordered *order_token(uint32_t bits, const mf_fixed_digits *x, uint32_t n_groups,
                                     ordered *to)
{
    const uint32_t n_together = bits == 2 ? 4 : 2;
    uint32_t g = 0;
    for (; bits != 4 && g + n_together <= n_groups; g += n_together)
        for (int d = 0; d < DIGITS; d++) {
            if (bits == 2)
                order_every_fourth(x + g, d, to + g / 2);
            else
                order_pair(x + g, d, to + g / 2);
        }
    return order_as_they_lie(x, g, n_groups, to);
}

/* Four groups of four rows of 2 bits. */
MF_INLINE void sum_four_groups(const unsigned char *const rows[4], size_t at, size_t ahead,
                               const ordered *x, int32_t *sums)
{
    const __m512i low = _mm512_set1_epi8(3);
    __m512i s[4];
    MF_UNROLL(4)
    for (int r = 0; r < 4; r++) {
        const __m512i v = _mm512_loadu_si512(rows[r] + at);
        const __m512i w[4] = {_mm512_and_si512(v, low),
                              _mm512_and_si512(_mm512_srli_epi32(v, 2), low),
                              _mm512_and_si512(_mm512_srli_epi32(v, 4), low),
                              _mm512_and_si512(_mm512_srli_epi32(v, 6), low)};
        mf_fetch(rows[r] + at + ahead);
        s[r] = _mm512_setzero_si512();
        MF_UNROLL(3)
        for (int d = DIGITS - 1; d >= 0; d--) {
            s[r] = _mm512_slli_epi32(s[r], 8);
            MF_UNROLL(4)
            for (int i = 0; i < 4; i++)
                s[r] = add_products(s[r], w[i], _mm512_loadu_si512(x[i / 2].digit[d][i % 2]));
        }
    }
    const __m512i all = add_fours(s); /* of group i its lanes 4 * i .. */
    _mm_storeu_si128((__m128i *)(void *)sums, _mm512_castsi512_si128(all));
    _mm_storeu_si128((__m128i *)(void *)(sums + ROWS), _mm512_extracti32x4_epi32(all, 1));
    _mm_storeu_si128((__m128i *)(void *)(sums + (size_t)2 * ROWS),
                     _mm512_extracti32x4_epi32(all, 2));
    _mm_storeu_si128((__m128i *)(void *)(sums + (size_t)3 * ROWS),
                     _mm512_extracti32x4_epi32(all, 3));
}

/* A function of its own for each width: within the others gcc 12 keeps no sums in registers. */
__attribute__((noinline)) static void sum_rows_2(const unsigned char *const rows[4],
                                                 uint32_t n_groups, size_t ahead, const ordered *x,
                                                 int32_t *sums)
{
    uint32_t g = 0;
    for (; g + 4 <= n_groups; g += 4, sums += (size_t)4 * ROWS)
        sum_four_groups(rows, (size_t)g * (GROUP / 4), ahead, x + g / 2, sums);
    for (; g < n_groups; g++, sums += ROWS)
        sum_group_rows(2, rows, (size_t)g * (GROUP / 4), ahead, x + g / 2, g % 2, sums, NULL);
}

__attribute__((noinline)) static void sum_rows_3(const unsigned char *const rows[4],
                                                 uint32_t n_groups, size_t ahead, const ordered *x,
                                                 int32_t *sums)
{
    sum_all_groups(3, rows, n_groups, ahead, x, sums);
}

__attribute__((noinline)) static void sum_rows_5(const unsigned char *const rows[4],
                                                 uint32_t n_groups, size_t ahead, const ordered *x,
                                                 int32_t *sums)
{
    sum_all_groups(5, rows, n_groups, ahead, x, sums);
}

__attribute__((noinline)) static void sum_rows_6(const unsigned char *const rows[4],
                                                 uint32_t n_groups, size_t ahead, const ordered *x,
                                                 int32_t *sums)
{
    sum_all_groups(6, rows, n_groups, ahead, x, sums);
}

__attribute__((noinline)) static void sum_rows_8(const unsigned char *const rows[4],
                                                 uint32_t n_groups, size_t ahead, const ordered *x,
                                                 int32_t *sums)
{
    sum_all_groups(8, rows, n_groups, ahead, x, sums);
}

/* Group g's sums at sums + g * ROWS, those by the highest digit alone after all others. */
MF_INLINE void sum_rows(uint32_t bits, const unsigned char *const rows[4], uint32_t n_groups,
                        size_t ahead, const ordered *x, int32_t *sums)
{
    switch (bits) {
    case 2:
        sum_rows_2(rows, n_groups, ahead, x, sums);
        break;
    case 3:
        sum_rows_3(rows, n_groups, ahead, x, sums);
        break;
    case 5:
        sum_rows_5(rows, n_groups, ahead, x, sums);
        break;
    case 6:
        sum_rows_6(rows, n_groups, ahead, x, sums);
        break;
    case 8:
        sum_rows_8(rows, n_groups, ahead, x, sums);
        break;
    default:
        sum_rows_4(rows, n_groups, ahead, x, sums);
        break;
    }
}

/* All digits at once: sums that do not wait for each other, and of a whole tile as many as there
 * are registers for. */
MF_INLINE void add_digits(bool wide, uint32_t n_tokens, const __m512i *w0, const __m512i *w1,
                          const signed char *x, size_t x_stride, __m512i *sums)
{
    __m512i acc0[FEW][DIGITS], acc1[FEW][DIGITS];
    MF_UNROLL(4)
    for (uint32_t t = 0; t < n_tokens; t++) {
        MF_UNROLL(3)
        for (uint32_t d = 0; d < DIGITS; d++)
            acc0[t][d] = acc1[t][d] = _mm512_setzero_si512();
    }
    MF_ROLLED
    for (uint32_t j = 0; j < QUADS; j++) {
        const __m512i a = w0[j], b = w1[j];
        MF_UNROLL(4)
        for (uint32_t t = 0; t < n_tokens; t++) {
            MF_UNROLL(3)
            for (uint32_t d = 0; d < DIGITS; d++) {
                const __m512i digits = four(x + t * x_stride + d * GROUP + (size_t)j * 4);
                acc0[t][d] = add_products(acc0[t][d], a, digits);
                acc1[t][d] = add_products(acc1[t][d], b, digits);
            }
        }
    }
    MF_UNROLL(4)
    for (uint32_t t = 0; t < n_tokens; t++) {
        store_sums(wide, acc0[t], sums + PANELS * t);
        store_sums(wide, acc1[t], sums + PANELS * t + 1);
    }
}

/* Functions of their own: within the others gcc 12 does not keep the sums in registers. */
__attribute__((noinline)) static void add_digits_of_tile(const __m512i *w0, const __m512i *w1,
                                                         const signed char *x, size_t x_stride,
                                                         __m512i *sums)
{
    add_digits(false, TILE, w0, w1, x, x_stride, sums);
}

__attribute__((noinline)) static void add_digits_of_wide_tile(const __m512i *w0, const __m512i *w1,
                                                              const signed char *x, size_t x_stride,
                                                              __m512i *sums)
{
    add_digits(true, TILE, w0, w1, x, x_stride, sums);
}

MF_INLINE void sum_group_tokens(bool wide, uint32_t n_tokens, const __m512i *w0, const __m512i *w1,
                                const mf_fixed_digits *x, size_t x_stride, __m512i *sums)
{
    const signed char *digits = x->digit[0][0];
    if (n_tokens < TILE)
        add_digits(wide, n_tokens, w0, w1, digits, x_stride, sums);
    else if (wide)
        add_digits_of_wide_tile(w0, w1, digits, x_stride, sums);
    else
        add_digits_of_tile(w0, w1, digits, x_stride, sums);
}

#include "kernels/x86/fixed_product.h"

#endif

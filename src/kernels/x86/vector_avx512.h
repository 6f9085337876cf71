/* SPDX-License-Identifier: MIT */
/*
 * AVX-512 vectors: tails, 16-bit floats, and the sum over lanes that every dot product ends with.
 * Private to the AVX-512 tier's files.
 */
#ifndef MF_KERNELS_VECTOR_AVX512_H
#define MF_KERNELS_VECTOR_AVX512_H

#include "base/half.h"
#include "kernels/kernels.h"
#include "kernels/x86/unroll.h"

#include <immintrin.h>

#define MF_INLINE static inline __attribute__((always_inline))

enum { MF_LANES_AVX512 = 16 };

/* The lanes that hold elements i .. n - 1: all of them, or the tail's. */
MF_INLINE __mmask16 mf_tail_avx512(size_t n, size_t i)
{
    return n - i >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << (n - i)) - 1);
}

/* 16 values of a float type, from any address; lanes outside the mask read nothing and are 0. */
MF_INLINE __m512 mf_load_float_avx512(const unsigned char *p, mf_dtype type, __mmask16 mask)
{
    if (type == MF_F32)
        return _mm512_maskz_loadu_ps(mask, p);
    __m256i half = _mm256_maskz_loadu_epi16(mask, p);
    if (type == MF_F16)
        return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* In each quarter of the vectors, lane r of column c is lane c of rows[r]. */
MF_INLINE void mf_transpose_fours_avx512(const __m512i rows[4], __m512i columns[4])
{
    const __m512i a0 = _mm512_unpacklo_epi32(rows[0], rows[1]);
    const __m512i a1 = _mm512_unpackhi_epi32(rows[0], rows[1]);
    const __m512i a2 = _mm512_unpacklo_epi32(rows[2], rows[3]);
    const __m512i a3 = _mm512_unpackhi_epi32(rows[2], rows[3]);
    columns[0] = _mm512_unpacklo_epi64(a0, a2);
    columns[1] = _mm512_unpackhi_epi64(a0, a2);
    columns[2] = _mm512_unpacklo_epi64(a1, a3);
    columns[3] = _mm512_unpackhi_epi64(a1, a3);
}

/* Quarter r of column c is quarter c of rows[r]. */
MF_INLINE void mf_transpose_quarters_avx512(const __m512i rows[4], __m512i columns[4])
{
    const __m512i even0 = _mm512_shuffle_i32x4(rows[0], rows[1], 0x88);
    const __m512i odd0 = _mm512_shuffle_i32x4(rows[0], rows[1], 0xdd);
    const __m512i even1 = _mm512_shuffle_i32x4(rows[2], rows[3], 0x88);
    const __m512i odd1 = _mm512_shuffle_i32x4(rows[2], rows[3], 0xdd);
    columns[0] = _mm512_shuffle_i32x4(even0, even1, 0x88);
    columns[1] = _mm512_shuffle_i32x4(odd0, odd1, 0x88);
    columns[2] = _mm512_shuffle_i32x4(even0, even1, 0xdd);
    columns[3] = _mm512_shuffle_i32x4(odd0, odd1, 0xdd);
}

/* Lane r of column c of the result is lane c of rows[r]. */
MF_INLINE void mf_transpose_avx512(const __m512i rows[MF_LANES_AVX512],
                                   __m512i columns[MF_LANES_AVX512])
{
    __m512i b[MF_LANES_AVX512];
    MF_UNROLL(4)
    for (int i = 0; i < MF_LANES_AVX512; i += 4)
        mf_transpose_fours_avx512(rows + i, b + i);
    MF_UNROLL(4)
    for (int k = 0; k < 4; k++) {
        const __m512i fours[4] = {b[k], b[4 + k], b[8 + k], b[12 + k]};
        __m512i quarters[4];
        mf_transpose_quarters_avx512(fours, quarters);
        MF_UNROLL(4)
        for (int i = 0; i < 4; i++)
            columns[4 * i + k] = quarters[i];
    }
}

/* The four words of 32 bits at rows[r] + at: lane r of out[i] is word i. */
MF_INLINE void mf_load_fours_avx512(const unsigned char *const rows[MF_LANES_AVX512], size_t at,
                                    __m512i out[4])
{
    __m512i fours[4];
    MF_UNROLL(4)
    for (int i = 0; i < 4; i++) {
        __m128i v[4];
        MF_UNROLL(4)
        for (int q = 0; q < 4; q++)
            v[q] = _mm_loadu_si128((const __m128i *)(const void *)(rows[4 * q + i] + at));
        const __m256i half = _mm256_inserti128_si256(_mm256_castsi128_si256(v[0]), v[1], 1);
        fours[i] =
            _mm512_inserti32x4(_mm512_inserti32x4(_mm512_castsi256_si512(half), v[2], 2), v[3], 3);
    }
    mf_transpose_fours_avx512(fours, out);
}

/* What is left of integers above their lowest digit, a signed byte. */
MF_INLINE __m512i mf_above_digit_avx512(__m512i v)
{
    return _mm512_srai_epi32(_mm512_add_epi32(v, _mm512_set1_epi32(128)), 8);
}

/* The lower halves of lanes, float16. */
MF_INLINE __m512 mf_low_halves_avx512(__m512i v)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}

/*
 * The sums over the lanes of four vectors. The order is fixed, and part of what "the same bits"
 * means: lane i + lane i + 8, then + 4, + 2, + 1.
 */
MF_INLINE __m128 mf_sum4_avx512(__m512 a, __m512 b, __m512 c, __m512 d)
{
    __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    __m512 quarters =
        _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    quarters = _mm512_add_ps(quarters, _mm512_permute_ps(quarters, 0x4e));
    quarters = _mm512_add_ps(quarters, _mm512_permute_ps(quarters, 0xb1));
    __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, quarters));
}

#endif

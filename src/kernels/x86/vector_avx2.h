/* SPDX-License-Identifier: MIT */
/*
 * AVX2 vectors of the matrix products: loads of every float type and of FP8, tails, and the sum
 * that every dot product ends with. Private to the AVX2 tier's files.
 */
#ifndef MF_KERNELS_VECTOR_AVX2_H
#define MF_KERNELS_VECTOR_AVX2_H

#include "base/fp8.h"
#include "kernels/kernels.h"
#include "kernels/x86/unroll.h"

#include <immintrin.h>

#define MF_INLINE static inline __attribute__((always_inline))

/* A dot product has four accumulators of eight positions each, taken in turn. */
enum { MF_LANES_AVX2 = 8, MF_CHAINS_AVX2 = 4, MF_STEP_AVX2 = MF_LANES_AVX2 * MF_CHAINS_AVX2 };

static inline float mf_float_at_avx2(const unsigned char *p, mf_dtype type, size_t i)
{
    if (type == MF_F32) {
        float value;
        memcpy(&value, p + 4 * i, sizeof value);
        return value;
    }
    uint16_t half;
    memcpy(&half, p + 2 * i, sizeof half);
    return type == MF_BF16 ? mf_f32_from_bf16(half) : mf_f32_from_f16(half);
}

/* 8 values of a float type, from any address. */
MF_INLINE __m256 mf_load_float_avx2(const unsigned char *p, mf_dtype type)
{
    if (type == MF_F32)
        return _mm256_loadu_ps((const float *)(const void *)p);
    __m128i half = _mm_loadu_si128((const __m128i *)(const void *)p);
    if (type == MF_F16)
        return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/*
 * 16 e4m3 values times 2^-8, in order: moved into place their bits are those of float16 numbers,
 * subnormals included. NaN comes out as 480 * 2^-8; whoever calls this looks for it.
 */
MF_INLINE void mf_load_fp8_avx2(const unsigned char *p, __m256 out[2])
{
    __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    words = _mm256_and_si256(_mm256_slli_epi16(words, 7), _mm256_set1_epi16((short)0xbf80));
    out[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(words));
    out[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(words, 1));
}

/* The larger of each byte of `most` and twice (mod 256) the code of p[0 .. 31]: 254 where there was
 * a NaN. */
MF_INLINE __m256i mf_fp8_most_avx2(__m256i most, const unsigned char *p)
{
    __m256i codes = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm256_max_epu8(most, _mm256_add_epi8(codes, codes));
}

MF_INLINE bool mf_fp8_has_nan_avx2(__m256i most)
{
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(most, _mm256_set1_epi8((char)254))) != 0;
}

/* The scale of a row's 128 columns from `first` on (a multiple of 128). */
MF_INLINE float mf_fp8_scale_avx2(const mf_matrix *w, uint32_t row, uint32_t first)
{
    float scale;
    size_t at = row / MF_FP8_BLOCK * mf_matrix_fp8_scale_cols(w) + first / MF_FP8_BLOCK;
    memcpy(&scale, w->scales + 4 * at, sizeof scale);
    return scale;
}

/* The first n (1 to 8) lanes at p, zeros after them; reads nothing past them. */
MF_INLINE __m256 mf_load_tail_avx2(const float *p, uint32_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane));
}

MF_INLINE float mf_sum_lanes_avx2(const __m256 acc[MF_CHAINS_AVX2])
{
    __m256 v = _mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3]));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    s = _mm_add_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}

#endif

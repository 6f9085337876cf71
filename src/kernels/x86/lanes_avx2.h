/* SPDX-License-Identifier: MIT */
/* The vectors that lanes_ops.h is written in, AVX2 with FMA. A tail's missing lanes load as 0. */
#ifndef MF_KERNELS_LANES_AVX2_H
#define MF_KERNELS_LANES_AVX2_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define MF_LANE_OP static inline __attribute__((always_inline))

enum { LANES = 8 };
typedef __m256 lanes;

MF_LANE_OP __m256i lanes_mask(size_t n)
{
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n >= LANES ? LANES : (int)n), lane);
}

/* The first n (at most LANES) lanes. */
MF_LANE_OP lanes lanes_load(const float *p, size_t n)
{
    return n >= LANES ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, lanes_mask(n));
}

/* In a register from here on: gcc 12 would load it once more for each product that it is part of.
 */
MF_LANE_OP lanes lanes_hold(lanes v)
{
    __asm__("" : "+x"(v));
    return v;
}

/* A whole vector of bfloat16; of signed bytes. */
MF_LANE_OP lanes lanes_load_bf16(const void *p)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}

MF_LANE_OP lanes lanes_load_bytes(const void *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

/* Past the caches, to an address that is a multiple of the vector; lanes_fence before others look.
 */
MF_LANE_OP void lanes_stream(float *p, lanes v)
{
    _mm256_stream_ps(p, v);
}

MF_LANE_OP void lanes_fence(void)
{
    _mm_sfence();
}

MF_LANE_OP void lanes_store(float *p, size_t n, lanes v)
{
    if (n >= LANES)
        _mm256_storeu_ps(p, v);
    else
        _mm256_maskstore_ps(p, lanes_mask(n), v);
}

/* p[0], p[stride], ... */
MF_LANE_OP lanes lanes_load_strided(const float *p, uint32_t stride, size_t n)
{
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i index = _mm256_mullo_epi32(lane, _mm256_set1_epi32((int)stride));
    return _mm256_mask_i32gather_ps(_mm256_setzero_ps(), p, index,
                                    _mm256_castsi256_ps(lanes_mask(n)), 4);
}

/* Lanes from n on replaced by `value`. */
MF_LANE_OP lanes lanes_pad(lanes v, size_t n, float value)
{
    return _mm256_blendv_ps(_mm256_set1_ps(value), v, _mm256_castsi256_ps(lanes_mask(n)));
}

MF_LANE_OP lanes lanes_set(float a)
{
    return _mm256_set1_ps(a);
}

MF_LANE_OP lanes lanes_add(lanes a, lanes b)
{
    return _mm256_add_ps(a, b);
}

MF_LANE_OP lanes lanes_sub(lanes a, lanes b)
{
    return _mm256_sub_ps(a, b);
}

MF_LANE_OP lanes lanes_mul(lanes a, lanes b)
{
    return _mm256_mul_ps(a, b);
}

MF_LANE_OP lanes lanes_div(lanes a, lanes b)
{
    return _mm256_div_ps(a, b);
}

/* a * b + c, rounded once. */
MF_LANE_OP lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* b where a or b is NaN, as the instruction has it. */
MF_LANE_OP lanes lanes_max(lanes a, lanes b)
{
    return _mm256_max_ps(a, b);
}

MF_LANE_OP lanes lanes_min(lanes a, lanes b)
{
    return _mm256_min_ps(a, b);
}

MF_LANE_OP lanes lanes_round(lanes a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* a * 2^n for whole n, |n| <= 252: by two exact halves, so rounded once for a near 1. */
MF_LANE_OP lanes lanes_scale_by_power(lanes a, lanes n)
{
    __m256i whole = _mm256_cvtps_epi32(n);
    __m256i half = _mm256_srai_epi32(whole, 1);
    __m256i rest = _mm256_sub_epi32(whole, half);
    __m256i one = _mm256_set1_epi32(127);
    __m256 x = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, one), 23));
    __m256 y = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, one), 23));
    return _mm256_mul_ps(_mm256_mul_ps(a, x), y);
}

/* Lane i + lane i + 4, then + 2, + 1. */
MF_LANE_OP float lanes_sum(lanes a)
{
    __m128 v4 = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    v4 = _mm_add_ps(v4, _mm_permute_ps(v4, 0x4e));
    v4 = _mm_add_ps(v4, _mm_permute_ps(v4, 0xb1));
    return _mm_cvtss_f32(v4);
}

MF_LANE_OP void lanes_sum_four(const lanes *v, float *out)
{
    for (int i = 0; i < 4; i++)
        out[i] = lanes_sum(v[i]);
}

MF_LANE_OP float lanes_largest(lanes a)
{
    __m128 v4 = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    v4 = _mm_max_ps(v4, _mm_permute_ps(v4, 0x4e));
    v4 = _mm_max_ps(v4, _mm_permute_ps(v4, 0xb1));
    return _mm_cvtss_f32(v4);
}

#endif

/* SPDX-License-Identifier: MIT */
/* The vectors that lanes_ops.h is written in, AVX-512. A tail's missing lanes load as 0. */
#ifndef MF_KERNELS_LANES_AVX512_H
#define MF_KERNELS_LANES_AVX512_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define MF_LANE_OP static inline __attribute__((always_inline))

enum { LANES = 16 };
typedef __m512 lanes;

MF_LANE_OP __mmask16 lanes_mask(size_t n)
{
    return n >= LANES ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1);
}

/* The first n (at most LANES) lanes. */
MF_LANE_OP lanes lanes_load(const float *p, size_t n)
{
    return n >= LANES ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(lanes_mask(n), p);
}

/* In a register from here on: gcc 12 would load it once more for each product that it is part of.
 */
MF_LANE_OP lanes lanes_hold(lanes v)
{
    __asm__("" : "+v"(v));
    return v;
}

/* A whole vector of bfloat16; of signed bytes. */
MF_LANE_OP lanes lanes_load_bf16(const void *p)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}

MF_LANE_OP lanes lanes_load_bytes(const void *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

/* Past the caches, to an address that is a multiple of the vector; lanes_fence before others look.
 */
MF_LANE_OP void lanes_stream(float *p, lanes v)
{
    _mm512_stream_ps(p, v);
}

MF_LANE_OP void lanes_fence(void)
{
    _mm_sfence();
}

MF_LANE_OP void lanes_store(float *p, size_t n, lanes v)
{
    if (n >= LANES)
        _mm512_storeu_ps(p, v);
    else
        _mm512_mask_storeu_ps(p, lanes_mask(n), v);
}

/* p[0], p[stride], ... */
MF_LANE_OP lanes lanes_load_strided(const float *p, uint32_t stride, size_t n)
{
    __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i index = _mm512_mullo_epi32(lane, _mm512_set1_epi32((int)stride));
    return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), lanes_mask(n), index, p, 4);
}

/* Lanes from n on replaced by `value`. */
MF_LANE_OP lanes lanes_pad(lanes v, size_t n, float value)
{
    return _mm512_mask_mov_ps(_mm512_set1_ps(value), lanes_mask(n), v);
}

MF_LANE_OP lanes lanes_set(float a)
{
    return _mm512_set1_ps(a);
}

MF_LANE_OP lanes lanes_add(lanes a, lanes b)
{
    return _mm512_add_ps(a, b);
}

MF_LANE_OP lanes lanes_sub(lanes a, lanes b)
{
    return _mm512_sub_ps(a, b);
}

MF_LANE_OP lanes lanes_mul(lanes a, lanes b)
{
    return _mm512_mul_ps(a, b);
}

MF_LANE_OP lanes lanes_div(lanes a, lanes b)
{
    return _mm512_div_ps(a, b);
}

/* a * b + c, rounded once. */
MF_LANE_OP lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* b where a or b is NaN, as the instruction has it. */
MF_LANE_OP lanes lanes_max(lanes a, lanes b)
{
    return _mm512_max_ps(a, b);
}

MF_LANE_OP lanes lanes_min(lanes a, lanes b)
{
    return _mm512_min_ps(a, b);
}

MF_LANE_OP lanes lanes_round(lanes a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* a * 2^n for whole n, |n| <= 252, rounded once. */
MF_LANE_OP lanes lanes_scale_by_power(lanes a, lanes n)
{
    return _mm512_scalef_ps(a, n);
}

/* Lane i + lane i + 8, then + 4, + 2, + 1. */
MF_LANE_OP float lanes_sum(lanes a)
{
    __m256 high = _mm512_extractf32x8_ps(a, 1);
    __m256 v8 = _mm256_add_ps(_mm512_castps512_ps256(a), high);
    __m128 v4 = _mm_add_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps(v8, 1));
    v4 = _mm_add_ps(v4, _mm_permute_ps(v4, 0x4e));
    v4 = _mm_add_ps(v4, _mm_permute_ps(v4, 0xb1));
    return _mm_cvtss_f32(v4);
}

/* lanes_sum of each of four, the same bits. */
MF_LANE_OP void lanes_sum_four(const lanes *v, float *out)
{
    __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x44),
                              _mm512_shuffle_f32x4(v[0], v[1], 0xee));
    __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(v[2], v[3], 0x44),
                              _mm512_shuffle_f32x4(v[2], v[3], 0xee));
    __m512 v4 =
        _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    v4 = _mm512_add_ps(v4, _mm512_permute_ps(v4, 0x4e));
    v4 = _mm512_add_ps(v4, _mm512_permute_ps(v4, 0xb1));
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, v4)));
}

MF_LANE_OP float lanes_largest(lanes a)
{
    return _mm512_reduce_max_ps(a);
}

#endif

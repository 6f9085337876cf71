/* SPDX-License-Identifier: MIT */
/* Activations as digits in the order of lanes (blocks_dot_avx512.h), and products by them. */
#ifndef MF_KERNELS_BLOCKS_LANES_AVX512_H
#define MF_KERNELS_BLOCKS_LANES_AVX512_H

#include "kernels/x86/vector_avx512.h"

#include <string.h>

/* acc + the sums of each lane's four products of unsigned by signed bytes. By hand, as gcc 12
 * copies and stores the intrinsic's accumulators at each use. */
MF_INLINE __m512i add_products(__m512i acc, __m512i weights, __m512i digits)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(weights), "v"(digits));
    return acc;
}

/* Of 256 bytes in their order: vector k has of each 32 the eight from 8 * k on, or as crossed ones
 * do. */
MF_INLINE void weave(bool crossed, const __m512i rows[4], __m512i columns[4])
{
    MF_UNROLL(4)
    for (uint32_t k = 0; k < 4; k++) {
        const uint32_t odd = crossed ? k ^ 1 : k;
        const __m512i at = _mm512_setr_epi64(k, odd + 4, k + 8, odd + 12, 0, 0, 0, 0);
        const __m512i first = _mm512_permutex2var_epi64(rows[0], at, rows[crossed ? 2 : 1]);
        const __m512i last = _mm512_permutex2var_epi64(rows[crossed ? 1 : 2], at, rows[3]);
        columns[k] = _mm512_inserti64x4(first, _mm512_castsi512_si256(last), 1);
    }
}

/* The largest magnitude of n values; NaN if there is one. */
MF_INLINE float largest(const float *x, uint32_t n)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i max = _mm512_setzero_si512();
    for (uint32_t i = 0; i < n; i += 16) {
        const __m512i v = _mm512_maskz_loadu_epi32(mf_tail_avx512(n, i), x + i);
        max = _mm512_max_epu32(max, _mm512_and_si512(v, magnitude));
    }
    uint32_t bits = _mm512_reduce_max_epu32(max);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* -128 times v. */
MF_INLINE __m512i offset_of(__m512i v)
{
    return _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(v, 7));
}

#endif

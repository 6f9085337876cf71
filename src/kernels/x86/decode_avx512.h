/* SPDX-License-Identifier: MIT */
/*
 * Affine weights, 32 at a time, from packed bits to float32 lanes, AVX-512. Every function here is
 * a template: `bits` is a constant at each use.
 *
 * A weight is fma(q, scale, bias). Up to 5 bits the group's 2^bits possible weights are computed
 * once (the same fma, so the same bits) and looked up by vpermps, which ignores the high bits of
 * its index: packed values need shifting into place but no masking.
 *
 * Lane order: vector 0 and 1 of a block of 32 hold values 0..15 and 16..31 in order, but for 2 and
 * 4 bits, where the order that takes one shift a vector is kept and the activations are brought
 * into the same order instead (mf_order_avx512). 4 bits: lanes 2m and 2m + 1 of a vector hold its
 * values m and m + 8. 2 bits: lanes 2m and 2m + 1 of vector s hold the block's values 8s + m and
 * 8s + m + 16.
 */
#ifndef MF_KERNELS_DECODE_AVX512_H
#define MF_KERNELS_DECODE_AVX512_H

#include "kernels/x86/vector_avx512.h"

/* A group's weights: a table of up to 16 (low) or 32 (low, high) entries, or scale and bias. */
typedef struct mf_group_avx512 {
    __m512 low;
    __m512 high;
} mf_group_avx512;

MF_INLINE bool mf_bits_reordered_avx512(uint32_t bits)
{
    return bits == 2 || bits == 4;
}

MF_INLINE mf_group_avx512 mf_group_load_avx512(uint32_t bits, const float *scale, const float *bias)
{
    mf_group_avx512 g;
    __m512 s = _mm512_set1_ps(*scale), b = _mm512_set1_ps(*bias);
    if (bits > 5) {
        g.low = s;
        g.high = b;
        return g;
    }
    __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    if (bits < 4)
        lane = _mm512_and_si512(lane, _mm512_set1_epi32((1 << bits) - 1));
    __m512 q = _mm512_cvtepi32_ps(lane);
    g.low = _mm512_fmadd_ps(q, s, b);
    g.high = bits == 5 ? _mm512_fmadd_ps(_mm512_add_ps(q, _mm512_set1_ps(16)), s, b) : g.low;
    return g;
}

/* The 16 values in the 2 * bits bytes at p: in each lane the byte where its value begins, and the
 * one after it; the other two bytes of the lane are don't-cares that a mask removes. */
MF_INLINE __m512i mf_spread_avx512(uint32_t bits, const unsigned char *p)
{
    const __m128i bytes = _mm_maskz_loadu_epi8((__mmask16)((1u << (2 * bits)) - 1), p);
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i first_bit = _mm512_mullo_epi32(lane, _mm512_set1_epi32((int)bits));
    const __m512i byte = _mm512_srli_epi32(first_bit, 3);
    const __m512i index =
        _mm512_or_si512(byte, _mm512_slli_epi32(_mm512_add_epi32(byte, _mm512_set1_epi32(1)), 8));
    const __m512i shift = _mm512_and_si512(first_bit, _mm512_set1_epi32(7));
    return _mm512_srlv_epi32(_mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), index), shift);
}

MF_INLINE __m512i mf_qword_avx512(const unsigned char *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return _mm512_set1_epi64((int64_t)word);
}

/* The 32 values at p, as table indices (up to 5 bits) or as integers. */
MF_INLINE void mf_unpack_avx512(uint32_t bits, const unsigned char *p, __m512i q[2])
{
    __m512i steps = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    if (bits == 8) {
        q[0] = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
        q[1] = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(p + 16)));
    } else if (bits == 4) {
        __m512i shift = _mm512_slli_epi64(steps, 2);
        q[0] = _mm512_srlv_epi64(mf_qword_avx512(p), shift);
        q[1] = _mm512_srlv_epi64(mf_qword_avx512(p + 8), shift);
    } else if (bits == 2) {
        __m512i shift = _mm512_slli_epi64(steps, 1);
        __m512i word = mf_qword_avx512(p);
        q[0] = _mm512_srlv_epi64(word, shift);
        q[1] = _mm512_srlv_epi64(word, _mm512_add_epi64(shift, _mm512_set1_epi64(16)));
    } else {
        q[0] = mf_spread_avx512(bits, p);
        q[1] = mf_spread_avx512(bits, p + 2 * (size_t)bits);
        if (bits == 6) {
            q[0] = _mm512_and_si512(q[0], _mm512_set1_epi32(63));
            q[1] = _mm512_and_si512(q[1], _mm512_set1_epi32(63));
        }
    }
}

MF_INLINE __m512 mf_weights_avx512(uint32_t bits, __m512i q, const mf_group_avx512 *g)
{
    if (bits > 5)
        return _mm512_fmadd_ps(_mm512_cvtepi32_ps(q), g->low, g->high);
    if (bits == 5)
        return _mm512_permutex2var_ps(g->low, q, g->high);
    return _mm512_permutexvar_ps(q, g->low);
}

/* Brings 32 activations into the lane order of the weights. */
MF_INLINE void mf_order_avx512(uint32_t bits, __m512 x[2])
{
    if (bits == 4) {
        __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
        x[0] = _mm512_permutexvar_ps(order, x[0]);
        x[1] = _mm512_permutexvar_ps(order, x[1]);
    } else if (bits == 2) {
        __m512i order = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        __m512i next = _mm512_add_epi32(order, _mm512_set1_epi32(8));
        __m512 first = _mm512_permutex2var_ps(x[0], order, x[1]);
        x[1] = _mm512_permutex2var_ps(x[0], next, x[1]);
        x[0] = first;
    }
}

#endif

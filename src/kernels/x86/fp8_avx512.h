/* SPDX-License-Identifier: MIT */
/*
 * FP8 weights in blocks, AVX-512 with VBMI: e4m3 bytes, 64 at a time, to float32 lanes.
 *
 * Every e4m3 number is a bfloat16 number too. The two bytes of each are looked up by the code
 * without its sign, brought together, and moved to the upper half of a float32: exact, NaN and
 * subnormals included. The block's scale goes into the activations, which are copied once for
 * every block of rows: a multiplication for each weight becomes one for each activation and block.
 *
 * Lane order: lanes 4q .. 4q + 3 of the four vectors are, of the values 16q .. 16q + 15, the even
 * ones of the first 8, their odd ones, the even ones of the last 8, and their odd ones. The copies
 * of the activations are in the same order, with zeros up to a multiple of 64.
 */
#ifndef MF_KERNELS_FP8_AVX512_H
#define MF_KERNELS_FP8_AVX512_H

#include "kernels/x86/vector_avx512.h"

enum { MF_FP8_STEP_AVX512 = 64 };

/* The bytes that hold columns i .. n - 1. */
MF_INLINE __mmask64 mf_fp8_tail_avx512(uint32_t n, uint32_t i)
{
    return n - i >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (n - i)) - 1;
}

/* The upper and lower bytes of bfloat16 for the e4m3 codes 0x00 .. 0x7f. */
extern _Alignas(64) const unsigned char mf_fp8_bf16_high[128], mf_fp8_bf16_low[128];

/* The same in registers: codes 0 .. 63, 64 .. 127. */
typedef struct mf_fp8_tables {
    __m512i high[2], low[2];
} mf_fp8_tables;

MF_INLINE mf_fp8_tables mf_fp8_tables_load(void)
{
    return (mf_fp8_tables){
        {_mm512_load_si512(mf_fp8_bf16_high), _mm512_load_si512(mf_fp8_bf16_high + 64)},
        {_mm512_load_si512(mf_fp8_bf16_low), _mm512_load_si512(mf_fp8_bf16_low + 64)}};
}

/* 64 codes as bfloat16: of each 16 the first 8 and the last 8. */
MF_INLINE void mf_fp8_to_bf16(const mf_fp8_tables *tables, __m512i codes, __m512i *first,
                              __m512i *last)
{
    const __m512i sign = _mm512_set1_epi8((char)0x80);
    __m512i low = _mm512_permutex2var_epi8(tables->low[0], codes, tables->low[1]);
    __m512i high = _mm512_permutex2var_epi8(tables->high[0], codes, tables->high[1]);
    high = _mm512_ternarylogic_epi32(high, codes, sign, 0xf8); /* high | (codes & sign) */
    *first = _mm512_unpacklo_epi8(low, high);
    *last = _mm512_unpackhi_epi8(low, high);
}

/* Vector k of the four in lane order, of 64 columns. */
MF_INLINE __m512 mf_fp8_lanes(const __m512 v[4], uint32_t k)
{
    /* of two vectors: the even ones of the first 8 of each, and where those of the others are;
     * + 1: the odd ones; + 8: of the last 8 */
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 16, 18, 20, 22, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i from = _mm512_add_epi32(even, _mm512_set1_epi32((int)(k % 2 + k / 2 * 8)));
    return _mm512_shuffle_f32x4(_mm512_permutex2var_ps(v[0], from, v[1]),
                                _mm512_permutex2var_ps(v[2], from, v[3]), 0x44);
}

size_t mf_fp8_scratch_bytes_avx512(const mf_matrix *w, uint32_t n_tokens);
/* mf_kernels.matmul of FP8 blocks. */
void mf_fp8_matmul_avx512(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                          size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride,
                          void *scratch);

#endif

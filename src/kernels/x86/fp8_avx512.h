/* SPDX-License-Identifier: MIT */
/*
 * FP8 weights in blocks, AVX-512: e4m3 bytes, 64 at a time, to float32 lanes.
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

/* The bytes of a bfloat16 by the code of its magnitude: codes 0 .. 63, 64 .. 127. */
typedef struct mf_fp8_tables_avx512 {
    __m512i high[2], low[2];
} mf_fp8_tables_avx512;

MF_INLINE void mf_fp8_weights_avx512(const mf_fp8_tables_avx512 *tables, __m512i codes,
                                     __m512 out[4])
{
    const __m512i sign = _mm512_set1_epi8((char)0x80), upper = _mm512_set1_epi32((int)0xffff0000);
    __m512i low = _mm512_permutex2var_epi8(tables->low[0], codes, tables->low[1]);
    __m512i high = _mm512_permutex2var_epi8(tables->high[0], codes, tables->high[1]);
    high = _mm512_ternarylogic_epi32(high, codes, sign, 0xf8); /* high | (codes & sign) */
    __m512i first = _mm512_unpacklo_epi8(low, high), last = _mm512_unpackhi_epi8(low, high);
    out[0] = _mm512_castsi512_ps(_mm512_slli_epi32(first, 16));
    out[1] = _mm512_castsi512_ps(_mm512_and_si512(first, upper));
    out[2] = _mm512_castsi512_ps(_mm512_slli_epi32(last, 16));
    out[3] = _mm512_castsi512_ps(_mm512_and_si512(last, upper));
}

/* Columns [first, first + n) of one token, scaled for the blocks of rows that `row` is in; first is
 * a multiple of 128. */
void mf_fp8_pack_avx512(const mf_matrix *w, uint32_t row, const float *token, uint32_t first,
                        uint32_t n, float *out);
/* Columns [first, first + n) of one row without its scales, zeros up to a multiple of 64. */
void mf_fp8_tile_avx512(const mf_matrix *w, uint32_t row, uint32_t first, uint32_t n, float *out);

size_t mf_fp8_scratch_bytes_avx512(const mf_matrix *w, uint32_t n_tokens);
/* mf_kernels.matmul of FP8 blocks. */
void mf_fp8_matmul_avx512(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                          size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride,
                          void *scratch);

#endif

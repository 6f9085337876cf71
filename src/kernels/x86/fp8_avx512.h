/* SPDX-License-Identifier: MIT */
/*
 * FP8 weights in blocks, AVX-512: e4m3 bytes, 64 at a time, to float32 lanes.
 *
 * Moved into place, the bits of an e4m3 number are those of a float16 whose value is 2^-8 of it,
 * subnormals included; only NaN becomes 480 * 2^-8 and needs a look of its own. The missing 2^8 and
 * the block's scale go into the activations, which are copied once for every block of rows: a
 * multiplication for each weight becomes one for each activation and block.
 *
 * Lane order: of 64 values the four vectors hold the even ones of the first 32, the even ones of
 * the last 32, and the odd ones likewise. The copies of the activations are in the same order,
 * with zeros up to a multiple of 64.
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

MF_INLINE __m512i mf_fp8_even_avx512(__m512i codes)
{
    __m512i words = _mm512_srai_epi16(_mm512_slli_epi16(codes, 8), 1);
    return _mm512_and_si512(words, _mm512_set1_epi16((short)0xbf80));
}

MF_INLINE __m512i mf_fp8_odd_avx512(__m512i codes)
{
    return _mm512_and_si512(_mm512_srai_epi16(codes, 1), _mm512_set1_epi16((short)0xbf80));
}

MF_INLINE void mf_fp8_widen_avx512(__m512i even, __m512i odd, __m512 out[4])
{
    out[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(even));
    out[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(even, 1));
    out[2] = _mm512_cvtph_ps(_mm512_castsi512_si256(odd));
    out[3] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(odd, 1));
}

/* Rows of scratch for tokens are this long. */
size_t mf_fp8_padded_avx512(uint32_t n_cols);
/* Columns [first, first + n) of one token, scaled for the blocks of rows that `row` is in; first is
 * a multiple of 128. */
void mf_fp8_pack_avx512(const mf_matrix *w, uint32_t row, const float *token, uint32_t first,
                        uint32_t n, float *out);
/* Columns [first, first + n) of one row, times 2^-8, zeros up to a multiple of 64. */
void mf_fp8_tile_avx512(const mf_matrix *w, uint32_t row, uint32_t first, uint32_t n, float *out);

size_t mf_fp8_scratch_bytes_avx512(const mf_matrix *w, uint32_t n_tokens);
/* mf_kernels.matmul of FP8 blocks. */
void mf_fp8_matmul_avx512(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                          size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride,
                          void *scratch);

#endif

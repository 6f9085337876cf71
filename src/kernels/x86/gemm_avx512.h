/* SPDX-License-Identifier: MIT */
/* Affine weights times several tokens, AVX-512: dequantised panels and a register-blocked product.
 */
#ifndef MF_KERNELS_GEMM_AVX512_H
#define MF_KERNELS_GEMM_AVX512_H

#include "kernels/kernels.h"

/* From this many tokens on the panels are worth their cost. */
enum { MF_GEMM_MIN_TOKENS_AVX512 = 5 };

size_t mf_gemm_scratch_bytes_avx512(const mf_matrix *w, uint32_t n_tokens);
/* mf_kernels.matmul for any n_tokens; the same bits as the matrix-vector product. */
void mf_gemm_avx512(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                    size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride, void *scratch);

/* Tokens, a multiple of four, that stay in the L2 cache while rows meet them. */
static inline uint32_t mf_tokens_together_avx512(uint32_t n_cols)
{
    const size_t n = ((size_t)1 << 19) / sizeof(float) / ((size_t)n_cols + 1) / 4 * 4;
    return n < 16 ? 16 : n > 64 ? 64 : (uint32_t)n;
}

#endif

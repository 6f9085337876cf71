/* SPDX-License-Identifier: MIT */
/* Matrix times several tokens, AVX-512: dequantised panels and a register-blocked product. */
#ifndef MF_KERNELS_GEMM_AVX512_H
#define MF_KERNELS_GEMM_AVX512_H

#include "kernels/kernels.h"

/* From this many tokens on the panels are worth their cost. */
enum { MF_GEMM_MIN_TOKENS_AVX512 = 5 };

size_t mf_gemm_scratch_bytes_avx512(const mf_matrix *w, uint32_t n_tokens);
/* mf_kernels.matmul for any n_tokens; the same bits as the matrix-vector product. The rows of FP8
 * weights must lie in one block. */
void mf_gemm_avx512(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                    size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride, void *scratch);

#endif

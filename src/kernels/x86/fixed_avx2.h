/* SPDX-License-Identifier: MIT */
/* The fixed-point product (fixed_token.h), AVX2: tokens' form, the product of 4 bits, and those of
 * all bits by VNNI. */
#ifndef MF_KERNELS_FIXED_AVX2_H
#define MF_KERNELS_FIXED_AVX2_H

#include "kernels/x86/fixed_token.h"

void mf_fixed_prepare_avx2(const mf_matrix *w, const float *x, void *out);
size_t mf_fixed_scratch_bytes_avx2(const mf_matrix *w, uint32_t n_tokens);
void mf_fixed_matmul_avx2(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                          uint32_t n_tokens, float *y, size_t y_stride, void *scratch);

size_t mf_fixed_scratch_bytes_avx_vnni(const mf_matrix *w, uint32_t n_tokens);
void mf_fixed_matmul_avx_vnni(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                              uint32_t n_tokens, float *y, size_t y_stride, void *scratch);

#endif

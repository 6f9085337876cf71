/* SPDX-License-Identifier: MIT */
/*
 * 4-bit affine weights times activations in fixed point, AVX-512 with VNNI. A token's activations
 * become integers of 23 bits and a unit in each group of 64 columns; the sum of a group's products
 * of integers is exact, whatever its order, and only the sums of groups are added as float32, in
 * the order of the columns. That takes half the instructions of the float32 product, and its error
 * is of the same size: at most 2^-23 of the group's largest activation for each weight.
 */
#ifndef MF_KERNELS_FIXED_AVX512_H
#define MF_KERNELS_FIXED_AVX512_H

#include "kernels/kernels.h"

/* Whether a matrix is multiplied in fixed point: 4 bits, in groups of at least 64. */
bool mf_is_fixed_avx512(const mf_matrix *w);
/* mf_kernels.token_bytes and .prepare_token, of such a matrix. */
size_t mf_fixed_token_bytes_avx512(const mf_matrix *w);
void mf_fixed_prepare_avx512(const mf_matrix *w, const float *x, void *out);
/* mf_kernels.matmul of such a matrix by prepared tokens. */
size_t mf_fixed_scratch_bytes_avx512(const mf_matrix *w, uint32_t n_tokens);
void mf_fixed_matmul_avx512(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                            uint32_t n_tokens, float *y, size_t y_stride, void *scratch);

#endif

/* SPDX-License-Identifier: MIT */
/* The fixed-point product (fixed_token.h), AVX-512: tokens' form, the product of 4 bits by what F
 * and BW have, and those of all bits by VNNI, without and with VBMI, and by tiles. */
#ifndef MF_KERNELS_FIXED_AVX512_H
#define MF_KERNELS_FIXED_AVX512_H

#include "kernels/x86/fixed_token.h"

void mf_fixed_prepare_avx512(const mf_matrix *w, const float *x, void *out);

size_t mf_fixed_scratch_bytes_avx512_bw(const mf_matrix *w, uint32_t n_tokens);
void mf_fixed_matmul_avx512_bw(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                               uint32_t n_tokens, float *y, size_t y_stride, void *scratch);

size_t mf_fixed_scratch_bytes_avx512_vnni(const mf_matrix *w, uint32_t n_tokens);
void mf_fixed_matmul_avx512_vnni(const mf_matrix *w, uint32_t row0, uint32_t row1,
                                 const void *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                                 void *scratch);

size_t mf_fixed_scratch_bytes_avx512(const mf_matrix *w, uint32_t n_tokens);
void mf_fixed_matmul_avx512(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                            uint32_t n_tokens, float *y, size_t y_stride, void *scratch);

size_t mf_fixed_scratch_bytes_avx512_amx(const mf_matrix *w, uint32_t n_tokens);
void mf_fixed_matmul_avx512_amx(const mf_matrix *w, uint32_t row0, uint32_t row1,
                                const void *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                                void *scratch);

#endif

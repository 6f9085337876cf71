/* SPDX-License-Identifier: MIT */
/* Formats of blocks in fixed point (blocks_token.h), AVX-512 with VNNI: without VBMI, and with it.
 */
#ifndef MF_KERNELS_BLOCKS_AVX512_H
#define MF_KERNELS_BLOCKS_AVX512_H

#include "kernels/x86/blocks_token.h"

void mf_blocks_prepare_avx512_vnni(const mf_matrix *w, const float *x, void *out);
size_t mf_blocks_scratch_bytes_avx512_vnni(const mf_matrix *w, uint32_t n_tokens);
void mf_blocks_matmul_avx512_vnni(const mf_matrix *w, uint32_t row0, uint32_t row1,
                                  const void *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                                  void *scratch);

void mf_blocks_prepare_avx512(const mf_matrix *w, const float *x, void *out);
size_t mf_blocks_scratch_bytes_avx512(const mf_matrix *w, uint32_t n_tokens);
void mf_blocks_matmul_avx512(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                             uint32_t n_tokens, float *y, size_t y_stride, void *scratch);

#endif

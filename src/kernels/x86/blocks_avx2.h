/* SPDX-License-Identifier: MIT */
/* Formats of blocks in fixed point (blocks_token.h), AVX2, without VNNI and with it. */
#ifndef MF_KERNELS_BLOCKS_AVX2_H
#define MF_KERNELS_BLOCKS_AVX2_H

#include "kernels/x86/blocks_token.h"

void mf_blocks_prepare_avx2(const mf_matrix *w, const float *x, void *out);
size_t mf_blocks_scratch_bytes_avx2(const mf_matrix *w, uint32_t n_tokens);
void mf_blocks_matmul_avx2(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                           uint32_t n_tokens, float *y, size_t y_stride, void *scratch);

void mf_blocks_prepare_avx_vnni(const mf_matrix *w, const float *x, void *out);
size_t mf_blocks_scratch_bytes_avx_vnni(const mf_matrix *w, uint32_t n_tokens);
void mf_blocks_matmul_avx_vnni(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                               uint32_t n_tokens, float *y, size_t y_stride, void *scratch);

#endif

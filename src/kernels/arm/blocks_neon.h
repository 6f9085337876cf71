/* SPDX-License-Identifier: MIT */
/* Formats of blocks in fixed point (kernels/x86/blocks_token.h), ARM: mf_fixed_kernels of each
 * tier. Tokens have one form for all. */
#ifndef MF_KERNELS_BLOCKS_NEON_H
#define MF_KERNELS_BLOCKS_NEON_H

#include "kernels/x86/blocks_token.h"

void mf_blocks_prepare_neon(const mf_matrix *w, const float *x, void *out);
size_t mf_blocks_scratch_bytes_neon(const mf_matrix *w, uint32_t n_tokens);
size_t mf_blocks_scratch_bytes_neon_dotprod(const mf_matrix *w, uint32_t n_tokens);
size_t mf_blocks_scratch_bytes_neon_i8mm(const mf_matrix *w, uint32_t n_tokens);
void mf_blocks_matmul_neon(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                           uint32_t n_tokens, float *y, size_t y_stride, void *scratch);
void mf_blocks_matmul_neon_dotprod(const mf_matrix *w, uint32_t row0, uint32_t row1,
                                   const void *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                                   void *scratch);
void mf_blocks_matmul_neon_i8mm(const mf_matrix *w, uint32_t row0, uint32_t row1,
                                const void *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                                void *scratch);

#endif

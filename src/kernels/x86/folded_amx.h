/* SPDX-License-Identifier: MIT */
/* GGUF's blocks with integer scales (folded_token.h) by AMX's tiles. */
#ifndef MF_KERNELS_FOLDED_AMX_H
#define MF_KERNELS_FOLDED_AMX_H

#include "kernels/x86/folded_token.h"

void mf_folded_prepare_amx(const mf_matrix *w, const float *x, void *out);
size_t mf_folded_scratch_bytes_amx(const mf_matrix *w, uint32_t n_tokens);
void mf_folded_matmul_amx(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                          uint32_t n_tokens, float *y, size_t y_stride, void *scratch);

#endif

/* SPDX-License-Identifier: MIT */
/* Blocks with a float for their scale (scaled_token.h) by AMX's tiles. */
#ifndef MF_KERNELS_SCALED_AMX_H
#define MF_KERNELS_SCALED_AMX_H

#include "kernels/x86/scaled_token.h"

void mf_scaled_prepare_amx(const mf_matrix *w, const float *x, void *out);
size_t mf_scaled_scratch_bytes_amx(const mf_matrix *w, uint32_t n_tokens);
void mf_scaled_matmul_amx(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                          uint32_t n_tokens, float *y, size_t y_stride, void *scratch);

#endif

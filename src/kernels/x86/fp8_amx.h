/* SPDX-License-Identifier: MIT */
/* FP8 weights in blocks by AMX's tiles of bfloat16 (fp8_tiles.h), any number of tokens:
 * mf_kernels.matmul and .matmul_scratch_bytes. */
#ifndef MF_KERNELS_FP8_AMX_H
#define MF_KERNELS_FP8_AMX_H

#include "kernels/kernels.h"

size_t mf_fp8_scratch_bytes_amx(const mf_matrix *w, uint32_t n_tokens);
void mf_fp8_matmul_amx(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                       size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride,
                       void *scratch);

#endif

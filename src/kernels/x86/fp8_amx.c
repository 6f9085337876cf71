/* SPDX-License-Identifier: MIT */
/* FP8 weights in blocks by AMX's tiles of bfloat16. */
#include "kernels/x86/fp8_amx.h"

#include "kernels/x86/tiles_amx.h"

#include "kernels/x86/fp8_tiles.h"

size_t mf_fp8_scratch_bytes_amx(const mf_matrix *w, uint32_t n_tokens)
{
    return fp8_scratch_bytes(w, n_tokens);
}

void mf_fp8_matmul_amx(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                       size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    fp8_multiply_all(w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
}

/* SPDX-License-Identifier: MIT */
/* kernels/x86/fp8_amx.c over tiles in plain C. */
#include "plain_tiles.h"

#include "kernels/x86/fp8_tiles.h"

size_t mf_plain_fp8_scratch_bytes(const mf_matrix *w, uint32_t n_tokens)
{
    return fp8_scratch_bytes(w, n_tokens);
}

void mf_plain_fp8_matmul(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                         size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride,
                         void *scratch)
{
    fp8_multiply_all(w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
}

/* SPDX-License-Identifier: MIT */
/* kernels/x86/bf16_amx.c over tiles in plain C. */
#include "plain_tiles.h"

#include "kernels/x86/bf16_tiles.h"

size_t mf_plain_bf16_scratch_bytes(const mf_matrix *w, uint32_t n_tokens)
{
    return bf16_scratch_bytes(w, n_tokens);
}

void mf_plain_bf16_matmul(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                          size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride,
                          void *scratch)
{
    bf16_multiply(w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
}

/* SPDX-License-Identifier: MIT */
/* kernels/x86/scaled_amx.c over tiles in plain C. */
#include "plain_tiles.h"

#include "kernels/x86/scaled_tiles.h"

void mf_plain_scaled_prepare(const mf_matrix *w, const float *x, void *out)
{
    scaled_prepare(w, x, out);
}

size_t mf_plain_scaled_scratch_bytes(const mf_matrix *w, uint32_t n_tokens)
{
    return scaled_scratch_bytes(w, n_tokens);
}

void mf_plain_scaled_matmul(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                            uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    scaled_multiply(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

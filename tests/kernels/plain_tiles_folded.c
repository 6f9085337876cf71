/* SPDX-License-Identifier: MIT */
/* kernels/x86/folded_amx.c over tiles in plain C. */
#include "plain_tiles.h"

#include "kernels/x86/folded_tiles.h"

void mf_plain_folded_prepare(const mf_matrix *w, const float *x, void *out)
{
    folded_prepare(w, x, out);
}

size_t mf_plain_folded_scratch_bytes(const mf_matrix *w, uint32_t n_tokens)
{
    return folded_scratch_bytes(w, n_tokens);
}

void mf_plain_folded_matmul(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                            uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    folded_multiply(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

/* SPDX-License-Identifier: MIT */
/* The fixed-point product by tokens that nobody has prepared: some at a time, into scratch. */
#include "kernels/x86/fixed_token.h"

size_t mf_fixed_plain_scratch_bytes(const mf_fixed_kernels *k, const mf_matrix *w,
                                    uint32_t n_tokens)
{
    size_t n = n_tokens < MF_FIXED_TOGETHER ? n_tokens : MF_FIXED_TOGETHER;
    return k->scratch_bytes(w, n_tokens) + n * k->token_bytes(w);
}

void mf_fixed_plain_matmul(const mf_fixed_kernels *k, const mf_matrix *w, uint32_t row0,
                           uint32_t row1, const float *x, size_t x_stride, uint32_t n_tokens,
                           float *y, size_t y_stride, unsigned char *scratch)
{
    const size_t token_bytes = k->token_bytes(w);
    unsigned char *tokens = scratch + k->scratch_bytes(w, n_tokens);
    for (uint32_t first = 0, n; first < n_tokens; first += n) {
        n = n_tokens - first < MF_FIXED_TOGETHER ? n_tokens - first : MF_FIXED_TOGETHER;
        for (uint32_t t = 0; t < n; t++)
            k->prepare(w, x + (first + t) * x_stride, tokens + t * token_bytes);
        k->matmul(w, row0, row1, tokens, n, y + first * y_stride, y_stride, scratch);
    }
}

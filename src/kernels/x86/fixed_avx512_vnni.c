/* SPDX-License-Identifier: MIT */
/* The fixed-point product by VNNI, AVX-512 without VBMI. */
#define MF_FETCH_FAR
#include "kernels/x86/fixed_dot_avx512.h"

size_t mf_fixed_scratch_bytes_avx512_vnni(const mf_matrix *w, uint32_t n_tokens)
{
    return product_scratch_bytes(w, n_tokens);
}

void mf_fixed_matmul_avx512_vnni(const mf_matrix *w, uint32_t row0, uint32_t row1,
                                 const void *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                                 void *scratch)
{
    multiply(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

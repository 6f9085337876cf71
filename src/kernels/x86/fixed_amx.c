/* SPDX-License-Identifier: MIT */
/* The fixed-point product of affine weights by AMX's tiles; few tokens by VNNI. */
#include "kernels/x86/tiles_amx.h"

#include "kernels/x86/fixed_tiles.h"

size_t mf_fixed_scratch_bytes_avx512_amx(const mf_matrix *w, uint32_t n_tokens)
{
    return tiled_scratch_bytes(w, n_tokens);
}

void mf_fixed_matmul_avx512_amx(const mf_matrix *w, uint32_t row0, uint32_t row1,
                                const void *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                                void *scratch)
{
    multiply_tiled_or_few(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

/* SPDX-License-Identifier: MIT */
/* Formats of blocks in fixed point by SDOT. */
#include "kernels/arm/lanes_neon.h"

MF_LANE_OP int32x4_t dot(int32x4_t acc, int8x16_t a, int8x16_t b)
{
    return vdotq_s32(acc, a, b);
}

#include "kernels/arm/blocks_tiles_neon.h"

size_t mf_blocks_scratch_bytes_neon_dotprod(const mf_matrix *w, uint32_t n_tokens)
{
    return scratch_bytes(w, n_tokens);
}

void mf_blocks_matmul_neon_dotprod(const mf_matrix *w, uint32_t row0, uint32_t row1,
                                   const void *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                                   void *scratch)
{
    multiply(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

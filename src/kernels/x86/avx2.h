/* SPDX-License-Identifier: MIT */
/* The AVX2 tier and that with VNNI beside it: their kernels. What is no product is that of both. */
#ifndef MF_KERNELS_AVX2_H
#define MF_KERNELS_AVX2_H

#include "kernels/tier.h"

/* Whether the x86 tiers decode a format themselves. A row of any other is decoded by the table of
 * formats, and if it is none of blocks_token.h multiplied as AVX2 does. */
static inline bool mf_has_x86_kernels(const mf_matrix *w)
{
    return w->shape.kind == MF_WEIGHT_FLOAT || w->shape.kind == MF_WEIGHT_AFFINE ||
           w->shape.kind == MF_WEIGHT_FP8_BLOCK;
}

MF_DECLARE_PRODUCTS(avx2);
void mf_dequant_row_avx2(const mf_matrix *w, uint32_t row, float *out);
void mf_prepare_token_avx2(const mf_matrix *w, const float *x, void *out);
MF_DECLARE_PREPARED_PRODUCTS(avx2);

MF_DECLARE_PRODUCTS(avx_vnni);
void mf_prepare_token_avx_vnni(const mf_matrix *w, const float *x, void *out);
MF_DECLARE_PREPARED_PRODUCTS(avx_vnni);

MF_DECLARE_OPS(avx2);

#endif

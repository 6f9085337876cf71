/* SPDX-License-Identifier: MIT */
/* The tiers of 64-bit ARM. They differ in the integer products alone, which are exact: they give
 * the same bits. All else is NEON. */
#ifndef MF_KERNELS_NEON_H
#define MF_KERNELS_NEON_H

#include "kernels/tier.h"

size_t mf_token_bytes_neon(const mf_matrix *w);
void mf_prepare_token_neon(const mf_matrix *w, const float *x, void *out);
void mf_dequant_row_neon(const mf_matrix *w, uint32_t row, float *out);

MF_DECLARE_PRODUCTS(neon);
MF_DECLARE_PREPARED_PRODUCTS(neon);

MF_DECLARE_PRODUCTS(neon_dotprod);
MF_DECLARE_PREPARED_PRODUCTS(neon_dotprod);

MF_DECLARE_PRODUCTS(neon_i8mm);
MF_DECLARE_PREPARED_PRODUCTS(neon_i8mm);

MF_DECLARE_OPS(neon);

#endif

/* SPDX-License-Identifier: MIT */
/* The scalar tier: plain loops that say what each op means. Contracts are in kernels/kernels.h. */
#ifndef MF_KERNELS_SCALAR_H
#define MF_KERNELS_SCALAR_H

#include "kernels/tier.h"

MF_DECLARE_PRODUCTS(scalar);
void mf_dequant_row_scalar(const mf_matrix *w, uint32_t row, float *out);

MF_DECLARE_OPS(scalar);

#endif

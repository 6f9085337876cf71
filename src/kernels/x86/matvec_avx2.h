/* SPDX-License-Identifier: MIT */
/* One token by rows of floats or FP8 without a detour through memory, AVX2. */
#ifndef MF_KERNELS_MATVEC_AVX2_H
#define MF_KERNELS_MATVEC_AVX2_H

#include "kernels/kernels.h"

/* One row of FP8 blocks as floats. */
void mf_fp8_expand_avx2(const mf_matrix *w, uint32_t row, float *out);
/* mf_kernels.matmul for one token of a matrix that is not affine. */
void mf_matvec_avx2(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x, float *y);

#endif

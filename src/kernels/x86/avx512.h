/* SPDX-License-Identifier: MIT */
/* The AVX-512 tier: its kernels. */
#ifndef MF_KERNELS_AVX512_H
#define MF_KERNELS_AVX512_H

#include "kernels/tier.h"

MF_DECLARE_PRODUCTS(avx512);
void mf_prepare_token_avx512(const mf_matrix *w, const float *x, void *out);
MF_DECLARE_PREPARED_PRODUCTS(avx512);

MF_DECLARE_OPS(avx512);

#endif

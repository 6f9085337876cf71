/* SPDX-License-Identifier: MIT */
/* The AVX-512 tiers: their kernels. What is no product is that of all of them. */
#ifndef MF_KERNELS_AVX512_H
#define MF_KERNELS_AVX512_H

#include "kernels/tier.h"

MF_DECLARE_PRODUCTS(avx512_bw);
void mf_prepare_token_avx512_bw(const mf_matrix *w, const float *x, void *out);
MF_DECLARE_PREPARED_PRODUCTS(avx512_bw);

MF_DECLARE_PRODUCTS(avx512_vnni);
void mf_prepare_token_avx512_vnni(const mf_matrix *w, const float *x, void *out);
MF_DECLARE_PREPARED_PRODUCTS(avx512_vnni);

MF_DECLARE_PRODUCTS(avx512);
void mf_prepare_token_avx512(const mf_matrix *w, const float *x, void *out);
MF_DECLARE_PREPARED_PRODUCTS(avx512);

MF_DECLARE_PRODUCTS(avx512_amx);
size_t mf_token_bytes_avx512_amx(const mf_matrix *w);
void mf_prepare_token_avx512_amx(const mf_matrix *w, const float *x, void *out);
MF_DECLARE_PREPARED_PRODUCTS(avx512_amx);
MF_DECLARE_PRODUCTS(avx512_amx_bf16); /* prepared ones are avx512_amx's */

MF_DECLARE_OPS(avx512);

#endif

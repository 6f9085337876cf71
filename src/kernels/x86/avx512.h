/* SPDX-License-Identifier: MIT */
/* The AVX-512 tier: its kernels. */
#ifndef MF_KERNELS_AVX512_H
#define MF_KERNELS_AVX512_H

#include "kernels/kernels.h"

size_t mf_matmul_scratch_bytes_avx512(const mf_matrix *w, uint32_t n_tokens);
void mf_matmul_avx512(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                      size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride, void *scratch);
void mf_rmsnorm_avx512(const float *x, const float *weight, float eps, uint32_t n, float *out);
void mf_rmsnorm_gated_avx512(const float *x, const float *z, const float *weight, float eps,
                             uint32_t n, float *out);
void mf_l2norm_avx512(const float *x, float eps, float scale, uint32_t n, float *out);

void mf_swiglu_avx512(const float *gate, const float *up, uint32_t n, float *out);
void mf_sigmoid_mul_avx512(float *x, const float *gate, uint32_t n);
void mf_axpy_avx512(float *y, const float *x, float a, uint32_t n);
void mf_add_avx512(const float *a, const float *b, uint32_t n, float *out);
void mf_rope_avx512(float *x, const float *cos, const float *sin, uint32_t n_rot);

void mf_attention_avx512(const mf_attention_args *args);
void mf_latent_attention_avx512(const mf_latent_args *args);
void mf_softmax_avx512(float *x, uint32_t n);
void mf_conv1d_silu_avx512(const float *x, const float *w, float *state, size_t state_stride,
                           uint32_t n_channels, uint32_t width, float *out);
void mf_delta_rule_avx512(const mf_delta_args *args);

uint64_t mf_read_bytes_avx512(const unsigned char *p, size_t n);
uint64_t mf_fma_peak_avx512(uint64_t n_iterations, float *sink);

#endif

/* SPDX-License-Identifier: MIT */
/* The scalar tier: plain loops that say what each op means. Contracts are in kernels/kernels.h. */
#ifndef MF_KERNELS_SCALAR_H
#define MF_KERNELS_SCALAR_H

#include "kernels/kernels.h"

size_t mf_matmul_scratch_bytes_scalar(const mf_matrix *w, uint32_t n_tokens);
void mf_matmul_scalar(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                      size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride, void *scratch);
void mf_dequant_row_scalar(const mf_matrix *w, uint32_t row, float *out);

void mf_rmsnorm_scalar(const float *x, const float *weight, float eps, uint32_t n, float *out);
void mf_rmsnorm_gated_scalar(const float *x, const float *z, const float *weight, float eps,
                             uint32_t n, float *out);
void mf_l2norm_scalar(const float *x, float eps, float scale, uint32_t n, float *out);

void mf_swiglu_scalar(const float *gate, const float *up, uint32_t n, float *out);
void mf_sigmoid_mul_scalar(float *x, const float *gate, uint32_t n);
void mf_axpy_scalar(float *y, const float *x, float a, uint32_t n);
void mf_add_scalar(const float *a, const float *b, uint32_t n, float *out);
void mf_rope_scalar(float *x, const float *cos, const float *sin, uint32_t n_rot);

void mf_attention_scalar(const mf_attention_args *args);
void mf_latent_attention_scalar(const mf_latent_args *args);
void mf_softmax_scalar(float *x, uint32_t n);
void mf_conv1d_silu_scalar(const float *x, const float *w, float *state, size_t state_stride,
                           uint32_t n_channels, uint32_t width, float *out);
void mf_delta_rule_scalar(const mf_delta_args *args);

uint64_t mf_read_bytes_scalar(const unsigned char *p, size_t n);
uint64_t mf_fma_peak_scalar(uint64_t n_iterations, float *sink);

#endif

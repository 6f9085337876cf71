/* SPDX-License-Identifier: MIT */
/* What each tier has under names of its own, said once: mf_NAME_TIER. Contracts are in
 * kernels/kernels.h. */
#ifndef MF_KERNELS_TIER_H
#define MF_KERNELS_TIER_H

#include "kernels/kernels.h"

/* clang-format off */
/* All ops but the matrix products, and what measures a machine. */
#define MF_DECLARE_OPS(tier)                                                                       \
    void mf_rmsnorm_##tier(const float *x, const float *weight, float eps, uint32_t n, float *out);\
    void mf_rmsnorm_gated_##tier(const float *x, const float *z, const float *weight, float eps,   \
                                 uint32_t n, float *out);                                          \
    void mf_l2norm_##tier(const float *x, float eps, float scale, uint32_t n, float *out);         \
    void mf_swiglu_##tier(const float *gate, const float *up, uint32_t n, float *out);             \
    void mf_swiglu_clamped_##tier(const float *gate, const float *up, float limit, float alpha,    \
                                  uint32_t n, float *out);                                         \
    void mf_sigmoid_mul_##tier(float *x, const float *gate, uint32_t n);                           \
    void mf_axpy_##tier(float *y, const float *x, float a, uint32_t n);                            \
    void mf_add_##tier(const float *a, const float *b, uint32_t n, float *out);                    \
    void mf_rope_##tier(float *x, const float *cos, const float *sin, uint32_t n_rot);             \
    void mf_attention_##tier(const mf_attention_args *args);                                       \
    void mf_latent_attention_##tier(const mf_latent_args *args);                                   \
    void mf_softmax_##tier(float *x, uint32_t n);                                                  \
    void mf_conv1d_silu_##tier(const float *x, const float *w, float *state, size_t state_stride,  \
                               uint32_t n_channels, uint32_t width, float *out);                   \
    void mf_delta_rule_##tier(const mf_delta_args *args);                                          \
    uint64_t mf_read_bytes_##tier(const unsigned char *p, size_t n);                               \
    uint64_t mf_fma_peak_##tier(uint64_t n_iterations, float *sink)

/* The same as members of mf_kernels. */
#define MF_OPS_OF(tier)                                                                            \
    .rmsnorm = mf_rmsnorm_##tier, .rmsnorm_gated = mf_rmsnorm_gated_##tier,                        \
    .l2norm = mf_l2norm_##tier, .swiglu = mf_swiglu_##tier,                                        \
    .swiglu_clamped = mf_swiglu_clamped_##tier, .sigmoid_mul = mf_sigmoid_mul_##tier,              \
    .axpy = mf_axpy_##tier, .add = mf_add_##tier, .rope = mf_rope_##tier,                          \
    .attention = mf_attention_##tier, .latent_attention = mf_latent_attention_##tier,              \
    .conv1d_silu = mf_conv1d_silu_##tier, .delta_rule = mf_delta_rule_##tier,                      \
    .softmax = mf_softmax_##tier, .read_bytes = mf_read_bytes_##tier,                              \
    .fma_peak = mf_fma_peak_##tier

#define MF_DECLARE_PRODUCTS(tier)                                                                  \
    size_t mf_matmul_scratch_bytes_##tier(const mf_matrix *w, uint32_t n_tokens);                  \
    void mf_matmul_##tier(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,        \
                          size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride,           \
                          void *scratch)

#define MF_PRODUCTS_OF(tier)                                                                       \
    .matmul_scratch_bytes = mf_matmul_scratch_bytes_##tier, .matmul = mf_matmul_##tier

/* Products by tokens that were prepared once. */
#define MF_DECLARE_PREPARED_PRODUCTS(tier)                                                         \
    void mf_matmul_prepared_##tier(const mf_matrix *w, uint32_t row0, uint32_t row1,               \
                                   const void *tokens, uint32_t n_tokens, float *y,                \
                                   size_t y_stride, void *scratch)
/* clang-format on */

#endif

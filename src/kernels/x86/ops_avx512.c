/* SPDX-License-Identifier: MIT */
/* All ops but the matrix products, AVX-512: the bodies of lanes_ops.h and lanes_sequence.h. */
#include "kernels/x86/avx512.h"

#include "kernels/x86/lanes_avx512.h"

#include "kernels/x86/lanes_ops.h"

#include "kernels/x86/lanes_latent.h"
#include "kernels/x86/lanes_sequence.h"

void mf_rmsnorm_avx512(const float *x, const float *weight, float eps, uint32_t n, float *out)
{
    rmsnorm_lanes(x, weight, eps, n, out);
}

void mf_rmsnorm_gated_avx512(const float *x, const float *z, const float *weight, float eps,
                             uint32_t n, float *out)
{
    rmsnorm_gated_lanes(x, z, weight, eps, n, out);
}

void mf_l2norm_avx512(const float *x, float eps, float scale, uint32_t n, float *out)
{
    l2norm_lanes(x, eps, scale, n, out);
}

void mf_swiglu_avx512(const float *gate, const float *up, uint32_t n, float *out)
{
    swiglu_lanes(gate, up, n, out);
}

void mf_sigmoid_mul_avx512(float *x, const float *gate, uint32_t n)
{
    sigmoid_mul_lanes(x, gate, n);
}

void mf_axpy_avx512(float *y, const float *x, float a, uint32_t n)
{
    axpy_lanes(y, x, a, n);
}

void mf_add_avx512(const float *a, const float *b, uint32_t n, float *out)
{
    add_lanes(a, b, n, out);
}

void mf_rope_avx512(float *x, const float *cos, const float *sin, uint32_t n_rot)
{
    rope_lanes(x, cos, sin, n_rot);
}

void mf_softmax_avx512(float *x, uint32_t n)
{
    softmax_lanes(x, n);
}

void mf_conv1d_silu_avx512(const float *x, const float *w, float *state, size_t state_stride,
                           uint32_t n_channels, uint32_t width, float *out)
{
    conv1d_silu_lanes(x, w, state, state_stride, n_channels, width, out);
}

void mf_attention_avx512(const mf_attention_args *args)
{
    attention_lanes(args);
}

void mf_delta_rule_avx512(const mf_delta_args *args)
{
    delta_rule_lanes(args);
}

void mf_latent_attention_avx512(const mf_latent_args *args)
{
    latent_attention_lanes(args);
}

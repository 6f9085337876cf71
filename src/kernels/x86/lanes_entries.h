/* SPDX-License-Identifier: MIT */
/* All ops but the matrix products as a tier's functions: the including file has included its lanes
 * and defines MF_TIER, the end of their names. */
#ifndef MF_KERNELS_LANES_ENTRIES_H
#define MF_KERNELS_LANES_ENTRIES_H

#include "kernels/x86/lanes_ops.h"

#include "kernels/x86/lanes_attention.h"
#include "kernels/x86/lanes_latent.h"
#include "kernels/x86/lanes_sequence.h"

#define MF_NAME_OF(name, tier) mf_##name##_##tier
#define MF_EXPANDED(name, tier) MF_NAME_OF(name, tier)
#define MF_ENTRY(name) MF_EXPANDED(name, MF_TIER)

void MF_ENTRY(rmsnorm)(const float *x, const float *weight, float eps, uint32_t n, float *out)
{
    rmsnorm_lanes(x, weight, eps, n, out);
}

void MF_ENTRY(rmsnorm_gated)(const float *x, const float *z, const float *weight, float eps,
                             uint32_t n, float *out)
{
    rmsnorm_gated_lanes(x, z, weight, eps, n, out);
}

void MF_ENTRY(l2norm)(const float *x, float eps, float scale, uint32_t n, float *out)
{
    l2norm_lanes(x, eps, scale, n, out);
}

void MF_ENTRY(swiglu)(const float *gate, const float *up, uint32_t n, float *out)
{
    swiglu_lanes(gate, up, n, out);
}

void MF_ENTRY(swiglu_clamped)(const float *gate, const float *up, float limit, float alpha,
                              uint32_t n, float *out)
{
    swiglu_clamped_lanes((swiglu_limits){limit, alpha}, gate, up, n, out);
}

void MF_ENTRY(sigmoid_mul)(float *x, const float *gate, uint32_t n)
{
    sigmoid_mul_lanes(x, gate, n);
}

void MF_ENTRY(axpy)(float *y, const float *x, float a, uint32_t n)
{
    axpy_lanes(y, x, a, n);
}

void MF_ENTRY(add)(const float *a, const float *b, uint32_t n, float *out)
{
    add_lanes(a, b, n, out);
}

void MF_ENTRY(rope)(float *x, const float *cos, const float *sin, uint32_t n_rot)
{
    rope_lanes(x, cos, sin, n_rot);
}

void MF_ENTRY(softmax)(float *x, uint32_t n)
{
    softmax_lanes(x, n);
}

void MF_ENTRY(conv1d_silu)(const float *x, const float *w, float *state, size_t state_stride,
                           uint32_t n_channels, uint32_t width, float *out)
{
    conv1d_silu_lanes(x, w, state, state_stride, n_channels, width, out);
}

void MF_ENTRY(attention)(const mf_attention_args *args)
{
    attention_lanes(args);
}

void MF_ENTRY(delta_rule)(const mf_delta_args *args)
{
    delta_rule_lanes(args);
}

void MF_ENTRY(latent_attention)(const mf_latent_args *args)
{
    latent_attention_lanes(args);
}

#endif

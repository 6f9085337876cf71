/* SPDX-License-Identifier: MIT */
/* Elementwise ops, rotary embedding, softmax and the short convolution, scalar. */
#include "kernels/scalar/scalar.h"

#include <math.h>

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static float silu(float x)
{
    return x / (1.0f + expf(-x));
}

void mf_swiglu_scalar(const float *gate, const float *up, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = silu(gate[i]) * up[i];
}

void mf_swiglu_clamped_scalar(const float *gate, const float *up, float limit, float alpha,
                              uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++) {
        const float g = gate[i] > limit ? limit : gate[i];
        const float u = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
        out[i] = g * sigmoid(alpha * g) * (u + 1.0f);
    }
}

void mf_sigmoid_mul_scalar(float *x, const float *gate, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] *= sigmoid(gate[i]);
}

void mf_axpy_scalar(float *y, const float *x, float a, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = fmaf(a, x[i], y[i]);
}

void mf_add_scalar(const float *a, const float *b, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = a[i] + b[i];
}

void mf_rope_scalar(float *x, const float *cos, const float *sin, uint32_t n_rot)
{
    uint32_t half = n_rot / 2;
    for (uint32_t i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];
        x[i] = fmaf(a, cos[i], -(b * sin[i]));
        x[i + half] = fmaf(b, cos[i], a * sin[i]);
    }
}

void mf_softmax_scalar(float *x, uint32_t n)
{
    float max = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (uint32_t i = 0; i < n; i++) {
        x[i] = expf(x[i] - max);
        sum += x[i];
    }
    for (uint32_t i = 0; i < n; i++)
        x[i] /= sum;
}

void mf_conv1d_silu_scalar(const float *x, const float *w, float *state, size_t state_stride,
                           uint32_t n_channels, uint32_t width, float *out)
{
    for (uint32_t c = 0; c < n_channels; c++) {
        float newest = x[c], sum = 0;
        for (uint32_t j = 0; j + 1 < width; j++) {
            float *slot = state + j * state_stride + c;
            sum = fmaf(*slot, w[(size_t)c * width + j], sum);
            *slot = j + 2 < width ? slot[state_stride] : newest;
        }
        sum = fmaf(newest, w[(size_t)c * width + width - 1], sum);
        out[c] = silu(sum);
    }
}

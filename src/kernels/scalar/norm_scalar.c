/* SPDX-License-Identifier: MIT */
/* Normalisations, scalar. */
#include "kernels/scalar/scalar.h"

#include <math.h>

static float sum_of_squares(const float *x, uint32_t n)
{
    float sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum = fmaf(x[i], x[i], sum);
    return sum;
}

static float inverse_rms(const float *x, float eps, uint32_t n)
{
    return 1.0f / sqrtf(sum_of_squares(x, n) / (float)n + eps);
}

void mf_rmsnorm_scalar(const float *x, const float *weight, float eps, uint32_t n, float *out)
{
    float factor = inverse_rms(x, eps, n);
    for (uint32_t i = 0; i < n; i++)
        out[i] = weight ? x[i] * factor * weight[i] : x[i] * factor;
}

void mf_rmsnorm_gated_scalar(const float *x, const float *z, const float *weight, float eps,
                             uint32_t n, float *out)
{
    float factor = inverse_rms(x, eps, n);
    for (uint32_t i = 0; i < n; i++) {
        float silu = z[i] / (1.0f + expf(-z[i]));
        out[i] = x[i] * factor * weight[i] * silu;
    }
}

void mf_l2norm_scalar(const float *x, float eps, float scale, uint32_t n, float *out)
{
    float factor = scale / sqrtf(sum_of_squares(x, n) + eps);
    for (uint32_t i = 0; i < n; i++)
        out[i] = x[i] * factor;
}

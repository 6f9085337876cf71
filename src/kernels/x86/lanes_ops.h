/* SPDX-License-Identifier: MIT */
/*
 * Norms, elementwise ops, softmax, rotary embedding and the short convolution, written once over
 * the vectors of lanes_<isa>.h, which the including file includes first. A tail goes through the
 * same operations as a full vector, so no result depends on its place. `out` may be an input: each
 * vector is read before it is written.
 */
#ifndef MF_KERNELS_LANES_OPS_H
#define MF_KERNELS_LANES_OPS_H

#include <math.h>

/*
 * exp(x): x = n ln 2 + r, |r| <= ln 2 / 2, Taylor to r^7 (its remainder is below 1e-8), times 2^n.
 * At most 2 ulp; 0 below -104, infinity above 89; NaN stays NaN.
 */
MF_LANE_OP lanes lanes_exp(lanes x)
{
    x = lanes_max(lanes_set(-104.0f), lanes_min(lanes_set(89.0f), x));
    lanes n = lanes_round(lanes_mul(x, lanes_set(1.44269504f)));
    lanes r = lanes_fma(n, lanes_set(-0x1.62e4p-1f), x);
    r = lanes_fma(n, lanes_set(-0x1.7f7d1cp-20f), r);
    lanes p = lanes_fma(lanes_set(1.0f / 5040), r, lanes_set(1.0f / 720));
    p = lanes_fma(p, r, lanes_set(1.0f / 120));
    p = lanes_fma(p, r, lanes_set(1.0f / 24));
    p = lanes_fma(p, r, lanes_set(1.0f / 6));
    p = lanes_fma(p, r, lanes_set(0.5f));
    p = lanes_fma(p, lanes_mul(r, r), r);
    return lanes_scale_by_power(lanes_add(p, lanes_set(1.0f)), n);
}

/* 1 + exp(-x), the divisor of sigmoid and silu. */
MF_LANE_OP lanes lanes_sigmoid_divisor(lanes x)
{
    return lanes_add(lanes_set(1.0f), lanes_exp(lanes_sub(lanes_set(0.0f), x)));
}

MF_LANE_OP lanes lanes_silu(lanes x)
{
    return lanes_div(x, lanes_sigmoid_divisor(x));
}

MF_LANE_OP float sum_of_squares(const float *x, uint32_t n)
{
    lanes sum[4] = {lanes_set(0), lanes_set(0), lanes_set(0), lanes_set(0)};
    uint32_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        for (uint32_t j = 0; j < 4; j++) {
            lanes v = lanes_load(x + i + j * LANES, LANES);
            sum[j] = lanes_fma(v, v, sum[j]);
        }
    }
    for (; i < n; i += LANES) {
        lanes v = lanes_load(x + i, n - i);
        sum[0] = lanes_fma(v, v, sum[0]);
    }
    return lanes_sum(lanes_add(lanes_add(sum[0], sum[1]), lanes_add(sum[2], sum[3])));
}

MF_LANE_OP void scale_by(const float *x, float factor, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i += LANES)
        lanes_store(out + i, n - i, lanes_mul(lanes_load(x + i, n - i), lanes_set(factor)));
}

MF_LANE_OP void rmsnorm_lanes(const float *x, const float *weight, float eps, uint32_t n,
                              float *out)
{
    float factor = 1.0f / sqrtf(sum_of_squares(x, n) / (float)n + eps);
    if (!weight) {
        scale_by(x, factor, n, out);
        return;
    }
    for (uint32_t i = 0; i < n; i += LANES) {
        lanes w = lanes_load(weight + i, n - i);
        lanes v = lanes_mul(lanes_load(x + i, n - i), lanes_set(factor));
        lanes_store(out + i, n - i, lanes_mul(v, w));
    }
}

MF_LANE_OP void rmsnorm_gated_lanes(const float *x, const float *z, const float *weight, float eps,
                                    uint32_t n, float *out)
{
    float factor = 1.0f / sqrtf(sum_of_squares(x, n) / (float)n + eps);
    for (uint32_t i = 0; i < n; i += LANES) {
        lanes v = lanes_mul(lanes_load(x + i, n - i), lanes_set(factor));
        v = lanes_mul(v, lanes_load(weight + i, n - i));
        lanes_store(out + i, n - i, lanes_mul(v, lanes_silu(lanes_load(z + i, n - i))));
    }
}

MF_LANE_OP void l2norm_lanes(const float *x, float eps, float scale, uint32_t n, float *out)
{
    scale_by(x, scale / sqrtf(sum_of_squares(x, n) + eps), n, out);
}

MF_LANE_OP void swiglu_lanes(const float *gate, const float *up, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i += LANES) {
        lanes v = lanes_silu(lanes_load(gate + i, n - i));
        lanes_store(out + i, n - i, lanes_mul(v, lanes_load(up + i, n - i)));
    }
}

typedef struct swiglu_limits {
    float limit, alpha;
} swiglu_limits;

MF_LANE_OP void swiglu_clamped_lanes(swiglu_limits l, const float *gate, const float *up,
                                     uint32_t n, float *out)
{
    const lanes most = lanes_set(l.limit), least = lanes_set(-l.limit);
    for (uint32_t i = 0; i < n; i += LANES) {
        /* the limit first: what is not a number stays none */
        const lanes g = lanes_min(most, lanes_load(gate + i, n - i));
        const lanes u = lanes_max(least, lanes_min(most, lanes_load(up + i, n - i)));
        const lanes divisor = lanes_sigmoid_divisor(lanes_mul(lanes_set(l.alpha), g));
        lanes_store(out + i, n - i,
                    lanes_mul(lanes_div(g, divisor), lanes_add(u, lanes_set(1.0f))));
    }
}

MF_LANE_OP void sigmoid_mul_lanes(float *x, const float *gate, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += LANES) {
        lanes divisor = lanes_sigmoid_divisor(lanes_load(gate + i, n - i));
        lanes sigmoid = lanes_div(lanes_set(1.0f), divisor);
        lanes_store(x + i, n - i, lanes_mul(lanes_load(x + i, n - i), sigmoid));
    }
}

MF_LANE_OP void axpy_lanes(float *y, const float *x, float a, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += LANES) {
        lanes v = lanes_load(y + i, n - i);
        lanes_store(y + i, n - i, lanes_fma(lanes_set(a), lanes_load(x + i, n - i), v));
    }
}

MF_LANE_OP void add_lanes(const float *a, const float *b, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i += LANES)
        lanes_store(out + i, n - i, lanes_add(lanes_load(a + i, n - i), lanes_load(b + i, n - i)));
}

MF_LANE_OP void rope_lanes(float *x, const float *cos, const float *sin, uint32_t n_rot)
{
    uint32_t half = n_rot / 2;
    for (uint32_t i = 0; i < half; i += LANES) {
        lanes a = lanes_load(x + i, half - i), b = lanes_load(x + half + i, half - i);
        lanes c = lanes_load(cos + i, half - i), s = lanes_load(sin + i, half - i);
        lanes minus_bs = lanes_sub(lanes_set(0.0f), lanes_mul(b, s));
        lanes_store(x + i, half - i, lanes_fma(a, c, minus_bs));
        lanes_store(x + half + i, half - i, lanes_fma(b, c, lanes_mul(a, s)));
    }
}

MF_LANE_OP void softmax_lanes(float *x, uint32_t n)
{
    lanes largest = lanes_set(-INFINITY), sum = lanes_set(0.0f);
    for (uint32_t i = 0; i < n; i += LANES)
        largest = lanes_max(largest, lanes_pad(lanes_load(x + i, n - i), n - i, -INFINITY));
    lanes max = lanes_set(lanes_largest(largest));
    for (uint32_t i = 0; i < n; i += LANES) {
        lanes e = lanes_exp(lanes_sub(lanes_load(x + i, n - i), max));
        lanes_store(x + i, n - i, e);
        sum = lanes_add(sum, lanes_pad(e, n - i, 0.0f));
    }
    lanes total = lanes_set(lanes_sum(sum));
    for (uint32_t i = 0; i < n; i += LANES)
        lanes_store(x + i, n - i, lanes_div(lanes_load(x + i, n - i), total));
}

MF_LANE_OP void conv1d_silu_lanes(const float *x, const float *w, float *state, size_t state_stride,
                                  uint32_t n_channels, uint32_t width, float *out)
{
    for (uint32_t c = 0; c < n_channels; c += LANES) {
        uint32_t n = n_channels - c;
        const float *taps = w + (size_t)c * width;
        lanes newest = lanes_load(x + c, n), sum = lanes_set(0.0f);
        for (uint32_t j = 0; j + 1 < width; j++) {
            float *slot = state + j * state_stride + c;
            sum = lanes_fma(lanes_load(slot, n), lanes_load_strided(taps + j, width, n), sum);
            lanes_store(slot, n, j + 2 < width ? lanes_load(slot + state_stride, n) : newest);
        }
        sum = lanes_fma(newest, lanes_load_strided(taps + width - 1, width, n), sum);
        lanes_store(out + c, n, lanes_silu(sum));
    }
}

#endif

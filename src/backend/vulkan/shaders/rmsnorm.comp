#version 460
// SPDX-License-Identifier: MIT
// result = rmsnorm(x) * weight; a workgroup has one row. With GATED it is a head of a row, and the
// result is multiplied by silu(z). An invocation keeps its first columns in registers, so that all
// that most rows have is on its way at once. The sum has the order of norm.glsl. CENTRED: of x less
// its mean.
//! variant rmsnorm
//! variant rmsnorm_centred -DCENTRED
//! variant rmsnorm_gated -DGATED
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 1) const uint IS_ALIGNED = 0; // for loads of 16 bytes

shared float norm_parts[gl_WorkGroupSize.x];
#include "norm.glsl"
#include "quads.glsl"

layout(push_constant, scalar) uniform Push {
    Floats x, weight, result;
#ifdef GATED
    Floats z;
#endif
    uint n_cols, stride; // of a row, or of a head
    float eps;
} p;

const uint KEPT = 2; // vectors of 4 columns

#ifdef CENTRED
float mean;

float total(vec4 x)
{
    precise float y = (x.x + x.y) + (x.z + x.w);
    return y;
}

// Columns 4i .. 4i + 3, zeros beyond the row's end as they were.
vec4 less_mean(vec4 x, uint i)
{
    vec4 y = vec4(0.0);
    [[unroll]] for (uint e = 0; e < 4; e++)
        if (4 * i + e < p.n_cols)
            y[e] = x[e] - mean;
    return y;
}
#else
#define less_mean(x, i) x
#endif

void store4(uint64_t row, uint i, vec4 v, vec4 z)
{
#ifdef GATED
    v = gated(v, z);
#endif
    store_quad(row, i, p.n_cols, v);
}

void main()
{
    const uint64_t at = uint64_t(gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x) *
                        p.stride * 4;
    const uint64_t x_at = uint64_t(p.x) + at, weight_at = uint64_t(p.weight);
    const uint t = lane_number(), step = gl_WorkGroupSize.x, n = (p.n_cols + 3) / 4;
#ifdef GATED
    const uint64_t z_at = uint64_t(p.z) + at;
#endif
    vec4 x[KEPT], weight[KEPT], z[KEPT];
    [[unroll]] for (uint k = 0; k < KEPT; k++) {
        x[k] = load_quad(x_at, t + k * step, p.n_cols);
        weight[k] = load_quad(weight_at, t + k * step, p.n_cols);
        z[k] = vec4(0.0);
#ifdef GATED
        z[k] = load_quad(z_at, t + k * step, p.n_cols);
#endif
    }
#ifdef CENTRED
    precise float all = 0.0;
    [[unroll]] for (uint k = 0; k < KEPT; k++)
        all += total(x[k]);
    for (uint i = t + KEPT * step; i < n; i += step)
        all += total(load_quad(x_at, i, p.n_cols));
    mean = sum_of_lanes(all, t) / float(p.n_cols);
    [[unroll]] for (uint k = 0; k < KEPT; k++)
        x[k] = less_mean(x[k], t + k * step);
#endif
    precise float sum = 0.0;
    [[unroll]] for (uint k = 0; k < KEPT; k++)
        sum += squared(x[k]);
    for (uint i = t + KEPT * step; i < n; i += step)
        sum += squared(less_mean(load_quad(x_at, i, p.n_cols), i));
    const float scale = norm_scale(sum_of_lanes(sum, t), p.n_cols, p.eps);
    [[unroll]] for (uint k = 0; k < KEPT; k++)
        store4(uint64_t(p.result) + at, t + k * step, normed(x[k], scale, weight[k]), z[k]);
    for (uint i = t + KEPT * step; i < n; i += step) {
        vec4 gate = vec4(0.0);
#ifdef GATED
        gate = load_quad(z_at, i, p.n_cols);
#endif
        const vec4 y = less_mean(load_quad(x_at, i, p.n_cols), i);
        store4(uint64_t(p.result) + at, i, normed(y, scale, load_quad(weight_at, i, p.n_cols)),
               gate);
    }
}

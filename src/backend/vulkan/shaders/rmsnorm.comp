#version 460
// SPDX-License-Identifier: MIT
// result = rmsnorm(x) * weight; a workgroup has one row. With GATED it is a head of a row, and the
// result is multiplied by silu(z). An invocation keeps its first columns in registers, so that all
// that most rows have is on its way at once. The sum has the order of norm.glsl.
//! variant rmsnorm
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
    precise float sum = 0.0;
    [[unroll]] for (uint k = 0; k < KEPT; k++)
        sum += squared(x[k]);
    for (uint i = t + KEPT * step; i < n; i += step)
        sum += squared(load_quad(x_at, i, p.n_cols));
    const float scale = norm_scale(sum_of_lanes(sum, t), p.n_cols, p.eps);
    [[unroll]] for (uint k = 0; k < KEPT; k++)
        store4(uint64_t(p.result) + at, t + k * step, normed(x[k], scale, weight[k]), z[k]);
    for (uint i = t + KEPT * step; i < n; i += step) {
        vec4 gate = vec4(0.0);
#ifdef GATED
        gate = load_quad(z_at, i, p.n_cols);
#endif
        const vec4 y = load_quad(x_at, i, p.n_cols);
        store4(uint64_t(p.result) + at, i, normed(y, scale, load_quad(weight_at, i, p.n_cols)),
               gate);
    }
}

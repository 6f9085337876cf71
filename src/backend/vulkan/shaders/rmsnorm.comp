#version 460
// SPDX-License-Identifier: MIT
// result = rmsnorm(x) * weight; a workgroup has one row. With GATED it is a head of a row, and the
// result is multiplied by silu(z). An invocation keeps its first columns in registers, so that all
// that most rows have is on its way at once.
//! variant rmsnorm
//! variant rmsnorm_gated -DGATED
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"

layout(constant_id = 1) const uint IS_ALIGNED = 0; // for loads of 16 bytes

layout(push_constant, scalar) uniform Push {
    Floats x, weight, result;
#ifdef GATED
    Floats z;
#endif
    uint n_cols, stride; // of a row, or of a head
    float eps;
} p;

const uint KEPT = 2; // vectors of 4 columns

// Columns 4i .. 4i + 3; zeros beyond the end.
vec4 load4(uint64_t row, uint i)
{
    vec4 v = vec4(0.0);
    if (IS_ALIGNED != 0) {
        if (4 * i < p.n_cols)
            v = Floats4(row).v[i];
    } else {
        [[unroll]] for (uint e = 0; e < 4; e++)
            if (4 * i + e < p.n_cols)
                v[e] = Floats(row).v[4 * i + e];
    }
    return v;
}

void store4(uint64_t row, uint i, vec4 v)
{
    if (IS_ALIGNED != 0) {
        if (4 * i < p.n_cols)
            Floats4(row).v[i] = v;
    } else {
        [[unroll]] for (uint e = 0; e < 4; e++)
            if (4 * i + e < p.n_cols)
                Floats(row).v[4 * i + e] = v[e];
    }
}

// Precise: the same whether loads are of 16 bytes or not.
float squared(vec4 x)
{
    precise float y = (x.x * x.x + x.y * x.y) + (x.z * x.z + x.w * x.w);
    return y;
}

vec4 normed(vec4 x, float scale, vec4 weight, vec4 z)
{
    precise vec4 y = x * scale * weight;
#ifdef GATED
    [[unroll]] for (uint e = 0; e < 4; e++)
        y[e] *= silu(z[e]);
#endif
    return y;
}

void main()
{
    const uint64_t at = uint64_t(gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x) *
                        p.stride * 4;
    const uint64_t x_at = uint64_t(p.x) + at, weight_at = uint64_t(p.weight);
    const uint t = gl_LocalInvocationID.x, step = gl_WorkGroupSize.x, n = (p.n_cols + 3) / 4;
#ifdef GATED
    const uint64_t z_at = uint64_t(p.z) + at;
#endif
    vec4 x[KEPT], weight[KEPT], z[KEPT];
    [[unroll]] for (uint k = 0; k < KEPT; k++) {
        x[k] = load4(x_at, t + k * step);
        weight[k] = load4(weight_at, t + k * step);
        z[k] = vec4(0.0);
#ifdef GATED
        z[k] = load4(z_at, t + k * step);
#endif
    }
    precise float sum = 0.0;
    [[unroll]] for (uint k = 0; k < KEPT; k++)
        sum += squared(x[k]);
    for (uint i = t + KEPT * step; i < n; i += step)
        sum += squared(load4(x_at, i));
    const float scale = inversesqrt(workgroup_sum(sum) / float(p.n_cols) + p.eps);
    [[unroll]] for (uint k = 0; k < KEPT; k++)
        store4(uint64_t(p.result) + at, t + k * step, normed(x[k], scale, weight[k], z[k]));
    for (uint i = t + KEPT * step; i < n; i += step) {
        vec4 gate = vec4(0.0);
#ifdef GATED
        gate = load4(z_at, i);
#endif
        store4(uint64_t(p.result) + at, i,
               normed(load4(x_at, i), scale, load4(weight_at, i), gate));
    }
}

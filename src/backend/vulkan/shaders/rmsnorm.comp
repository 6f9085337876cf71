#version 460
// SPDX-License-Identifier: MIT
// result = rmsnorm(x) * weight; a workgroup has one row. With GATED it is a head of a row, and the
// result is multiplied by silu(z).
//! variant rmsnorm
//! variant rmsnorm_gated -DGATED
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"

layout(push_constant, scalar) uniform Push {
    Floats x, weight, result;
#ifdef GATED
    Floats z;
#endif
    uint n_cols, stride; // of a row, or of a head
    float eps;
} p;

void main()
{
    const uint64_t at = uint64_t(gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x) *
                        p.stride * 4;
    Floats x = Floats(uint64_t(p.x) + at), result = Floats(uint64_t(p.result) + at);
    float sum = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < p.n_cols; i += gl_WorkGroupSize.x)
        sum += x.v[i] * x.v[i];
    const float scale = inversesqrt(workgroup_sum(sum) / float(p.n_cols) + p.eps);
#ifdef GATED
    Floats z = Floats(uint64_t(p.z) + at);
#endif
    for (uint i = gl_LocalInvocationID.x; i < p.n_cols; i += gl_WorkGroupSize.x) {
        float y = x.v[i] * scale * p.weight.v[i];
#ifdef GATED
        y *= silu(z.v[i]);
#endif
        result.v[i] = y;
    }
}

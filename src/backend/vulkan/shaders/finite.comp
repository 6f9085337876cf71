#version 460
// SPDX-License-Identifier: MIT
// Whether the parts of a row (y) have finite numbers only, a workgroup each. By their bits: what is
// no number compares as a device likes.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant, scalar) uniform Push {
    Words x, result;
    uint n_cols, unused;
} p;

shared uint any_other;

void main()
{
    const uint n_part = (p.n_cols + gl_NumWorkGroups.x - 1) / gl_NumWorkGroups.x;
    const uint first = gl_WorkGroupID.x * n_part, end = min(first + n_part, p.n_cols);
    const uint64_t row = uint64_t(p.x) + uint64_t(gl_WorkGroupID.y) * p.n_cols * 4;
    const uint exponent = 0x7f800000u;
    bool is_other = false;
    if (gl_LocalInvocationID.x == 0)
        any_other = 0;
    barrier();
    for (uint i = first + gl_LocalInvocationID.x; i < end; i += gl_WorkGroupSize.x)
        is_other = is_other || (Words(row).v[i] & exponent) == exponent;
    if (is_other)
        atomicOr(any_other, 1);
    barrier();
    if (gl_LocalInvocationID.x == 0)
        p.result.v[gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x] = 1 - any_other;
}

#version 460
// SPDX-License-Identifier: MIT
// x += y, element by element; y may be one row, which is added to each.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant, scalar) uniform Push {
    Floats x, y;
    uint n;      // elements of x
    uint period; // elements of y
} p;

void main()
{
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step)
        p.x.v[i] += p.y.v[i % p.period];
}

#version 460
// SPDX-License-Identifier: MIT
// Reads n vectors of 16 bytes, as fast as memory gives them.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant, scalar) uniform Push {
    Words4 x;
    Words result; // hardly ever written, but nobody knows that before all has been read
    uint n;
} p;

void main()
{
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    uvec4 sum = uvec4(0);
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step)
        sum = sum * 3 + p.x.v[i];
    if ((sum.x ^ sum.y ^ sum.z ^ sum.w) == 0x12345678u)
        p.result.v[0] = sum.x;
}

#version 460
// SPDX-License-Identifier: MIT
// out = silu(gate) * up, element by element; out may be gate.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant, scalar) uniform Push {
    Floats gate, up, result;
    uint n;
} p;

void main()
{
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step)
        p.result.v[i] = silu(p.gate.v[i]) * p.up.v[i];
}

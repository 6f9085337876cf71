#version 460
// SPDX-License-Identifier: MIT
// x *= sigmoid(gate), element by element.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant, scalar) uniform Push {
    Floats x, gate;
    uint n;
} p;

void main()
{
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step)
        p.x.v[i] *= sigmoid(p.gate.v[i]);
}

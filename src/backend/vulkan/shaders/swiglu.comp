#version 460
// SPDX-License-Identifier: MIT
// out = silu(gate) * up, element by element; out may be gate. With a limit (0: none) gate is at most
// that, and up lies between -limit and limit.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "limited.glsl"

layout(push_constant, scalar) uniform Push {
    Floats gate, up, result;
    uint n;
    float limit;
} p;

void main()
{
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        float gate = p.gate.v[i], up = p.up.v[i];
        if (p.limit != 0.0) {
            gate = at_most(gate, p.limit);
            up = within(up, p.limit);
        }
        p.result.v[i] = silu(gate) * up;
    }
}

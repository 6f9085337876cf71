#version 460
// SPDX-License-Identifier: MIT
// 16 independent chains of n multiply-adds each.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant, scalar) uniform Push {
    Floats result; // hardly ever written
    uint n;
    float factor, summand;
} p;

void main()
{
    const vec4 factor = vec4(p.factor), summand = vec4(p.summand);
    const float x = float(gl_LocalInvocationID.x);
    vec4 a = vec4(x), b = a + 1.0, c = a + 2.0, d = a + 3.0;
    for (uint i = 0; i < p.n; i++) {
        a = fma(a, factor, summand);
        b = fma(b, factor, summand);
        c = fma(c, factor, summand);
        d = fma(d, factor, summand);
    }
    a += b + c + d;
    if (a.x + a.y + a.z + a.w == 0.125)
        p.result.v[0] = a.x;
}

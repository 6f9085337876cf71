#version 460
// SPDX-License-Identifier: MIT
// In place, for heads: rmsnorm with a weight, then rotation of the first n_rot dims by the row's
// position. A workgroup has one head (x) of a row (y).
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"

layout(push_constant, scalar) uniform Push {
    Floats x, weight, cosine, sine;
    Sequences sequences;
    uint n_sequences, first_row;
    uint n_heads, head_dim, n_rot;
    float eps;
} p;

void main()
{
    const uint row = p.first_row + gl_WorkGroupID.y, n_half = p.n_rot / 2;
    const Sequence s = p.sequences.v[sequence_of(p.sequences, p.n_sequences, row)];
    const uint64_t angle = uint64_t(s.position + row - s.first_row) * n_half * 4;
    Floats cosine = Floats(uint64_t(p.cosine) + angle), sine = Floats(uint64_t(p.sine) + angle);
    const uint64_t head = uint64_t(gl_WorkGroupID.y) * p.n_heads + gl_WorkGroupID.x;
    Floats x = Floats(uint64_t(p.x) + head * p.head_dim * 4);
    float sum = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < p.head_dim; i += gl_WorkGroupSize.x)
        sum += x.v[i] * x.v[i];
    const float scale = inversesqrt(workgroup_sum(sum) / float(p.head_dim) + p.eps);
    // Whoever writes an element is the only one that reads it from here on.
    for (uint i = gl_LocalInvocationID.x; i < n_half; i += gl_WorkGroupSize.x) {
        const float u = x.v[i] * scale * p.weight.v[i];
        const float v = x.v[i + n_half] * scale * p.weight.v[i + n_half];
        x.v[i] = u * cosine.v[i] - v * sine.v[i];
        x.v[i + n_half] = v * cosine.v[i] + u * sine.v[i];
    }
    for (uint i = p.n_rot + gl_LocalInvocationID.x; i < p.head_dim; i += gl_WorkGroupSize.x)
        x.v[i] = x.v[i] * scale * p.weight.v[i];
}

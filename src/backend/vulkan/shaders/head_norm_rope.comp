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

const uint KEPT = 4;

void main()
{
    const uint row = p.first_row + gl_WorkGroupID.y, n_half = p.n_rot / 2;
    const uint t = gl_LocalInvocationID.x, step = gl_WorkGroupSize.x;
    const uint64_t head = uint64_t(gl_WorkGroupID.y) * p.n_heads + gl_WorkGroupID.x;
    Floats x = Floats(uint64_t(p.x) + head * p.head_dim * 4);
    float kept[KEPT], sum = 0.0; // on their way while the row's position is fetched
    [[unroll]] for (uint k = 0; k < KEPT; k++)
        kept[k] = t + k * step < p.head_dim ? x.v[t + k * step] : 0.0;
    const Sequence s = p.sequences.v[sequence_of(p.sequences, p.n_sequences, row)];
    const uint64_t angle = uint64_t(s.position + row - s.first_row) * n_half * 4;
    Floats cosine = Floats(uint64_t(p.cosine) + angle), sine = Floats(uint64_t(p.sine) + angle);
    float first_cosine = 0.0, first_sine = 0.0; // of most heads all
    if (t < n_half) {
        first_cosine = cosine.v[t];
        first_sine = sine.v[t];
    }
    [[unroll]] for (uint k = 0; k < KEPT; k++)
        sum += kept[k] * kept[k];
    for (uint i = t + KEPT * step; i < p.head_dim; i += step)
        sum += x.v[i] * x.v[i];
    const float scale = inversesqrt(workgroup_sum(sum) / float(p.head_dim) + p.eps);
    // Whoever writes an element is the only one that reads it from here on.
    for (uint i = t; i < n_half; i += step) {
        const float u = x.v[i] * scale * p.weight.v[i];
        const float v = x.v[i + n_half] * scale * p.weight.v[i + n_half];
        const float c = i == t ? first_cosine : cosine.v[i];
        const float d = i == t ? first_sine : sine.v[i];
        x.v[i] = u * c - v * d;
        x.v[i + n_half] = v * c + u * d;
    }
    for (uint i = p.n_rot + t; i < p.head_dim; i += step)
        x.v[i] = x.v[i] * scale * p.weight.v[i];
}

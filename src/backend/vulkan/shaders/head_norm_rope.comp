#version 460
// SPDX-License-Identifier: MIT
// In place, for heads: rmsnorm with a weight, then rotation of the first n_rot dims by the row's
// position. A workgroup of HEAD_LANES invocations has one head (x) of a row (y).
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

shared float norm_parts[64];
#include "norm.glsl"
#include "head_norm.glsl"

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
    const uint t = lane_number(), step = HEAD_LANES;
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
        sum = add_square(sum, kept[k]);
    for (uint i = t + KEPT * step; i < p.head_dim; i += step)
        sum = add_square(sum, x.v[i]);
    const float scale = norm_scale(sum_of_head(sum, t), p.head_dim, p.eps);
    // Whoever writes an element is the only one that reads it from here on.
    for (uint i = t; i < n_half; i += step) {
        const float u = normed_column(x.v[i], scale, p.weight.v[i]);
        const float v = normed_column(x.v[i + n_half], scale, p.weight.v[i + n_half]);
        const float c = i == t ? first_cosine : cosine.v[i];
        const float d = i == t ? first_sine : sine.v[i];
        x.v[i] = rotated(u, v, c, d);
        x.v[i + n_half] = rotated(v, u, c, -d);
    }
    for (uint i = p.n_rot + t; i < p.head_dim; i += step)
        x.v[i] = normed_column(x.v[i], scale, p.weight.v[i]);
}

#version 460
// SPDX-License-Identifier: MIT
// Rotation in place, by the row's position or back, of heads of n_rot floats. A workgroup's y is a row, its
// x cuts the row's pairs of all heads.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "rotate.glsl"

layout(push_constant, scalar) uniform Push {
    Floats x, cosine, sine;
    Sequences sequences;
    uint n_sequences, first_row;
    uint n_heads, n_rot, row_stride, head_stride;
    uint is_interleaved, is_inverse;
} p;

void main()
{
    const uint row = p.first_row + gl_WorkGroupID.y, n_half = p.n_rot / 2;
    const Sequence s = p.sequences.v[sequence_of(p.sequences, p.n_sequences, row)];
    const uint position = s.position + row - s.first_row;
    Floats x = Floats(uint64_t(p.x) + uint64_t(gl_WorkGroupID.y) * p.row_stride * 4);
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n_heads * n_half; i += step) {
        const uint pair = i % n_half, head = i / n_half * p.head_stride;
        const uint a = head + (p.is_interleaved != 0 ? 2 * pair : pair);
        const uint b = p.is_interleaved != 0 ? a + 1 : a + n_half;
        const float c = p.cosine.v[position * n_half + pair];
        const float sine = p.sine.v[position * n_half + pair];
        const float d = p.is_inverse != 0 ? -sine : sine;
        const float u = x.v[a], v = x.v[b];
        x.v[a] = rotated(u, v, c, d);
        x.v[b] = rotated(v, u, c, -d);
    }
}

#version 460
// SPDX-License-Identifier: MIT
// Rows of up to two arrays into the pages of their sequences: a workgroup's x cuts a row, y is the
// row, z the array.
//! variant cache_append
//! variant cache_append_bf16 -DBF16_CACHE
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant, scalar) uniform Push {
    Floats x[2];
    uint64_t page_offset[2];
    Sequences sequences;
    uint n_sequences, first_row;
    uint width;
} p;

void main()
{
    const uint i = gl_GlobalInvocationID.x, row = p.first_row + gl_WorkGroupID.y;
    const uint which = gl_WorkGroupID.z;
    if (i >= p.width)
        return;
    const Sequence s = p.sequences.v[sequence_of(p.sequences, p.n_sequences, row)];
    const uint position = s.position + row - s.first_row;
    const uint64_t page = Addresses(s.pages).v[position / 32] +
                          (which == 0 ? p.page_offset[0] : p.page_offset[1]);
    Floats from = which == 0 ? p.x[0] : p.x[1];
    const uint64_t at = uint64_t(position % 32) * p.width + i;
    const float x = Floats(uint64_t(from) + uint64_t(gl_WorkGroupID.y) * p.width * 4).v[i];
#ifdef BF16_CACHE
    Halves(page + at * 2).v[0] = uint16_t(bfloat_of(x));
#else
    Floats(page + at * 4).v[0] = x;
#endif
}

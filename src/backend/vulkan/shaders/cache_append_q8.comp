#version 460
// SPDX-License-Identifier: MIT
// Rows of up to two arrays into the pages of their sequences in 8 bits, as base/cache_rows.h has
// them: an invocation has a block of a row (x), y is the row, z the array.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant, scalar) uniform Push {
    Floats x[2];
    uint64_t page_offset[2];
    Sequences sequences;
    uint n_sequences, first_row;
    uint width, dim; // of all heads, of one
} p;

const uint BLOCK = 32;

// largest / 127 as the next bfloat16 that is not less
uint scale_of(float largest)
{
    return floatBitsToUint(max(largest / 127.0, uintBitsToFloat(0x00800000u))) + 0xffffu >> 16;
}

void main()
{
    const uint n_blocks = (p.dim + BLOCK - 1) / BLOCK, n_heads = p.width / p.dim;
    const uint i = gl_GlobalInvocationID.x, row = p.first_row + gl_WorkGroupID.y;
    const uint which = gl_WorkGroupID.z;
    if (i >= n_heads * n_blocks)
        return;
    const uint first = i / n_blocks * p.dim + i % n_blocks * BLOCK;
    const uint n = min(p.dim - i % n_blocks * BLOCK, BLOCK);
    const Sequence s = p.sequences.v[sequence_of(p.sequences, p.n_sequences, row)];
    const uint position = s.position + row - s.first_row;
    const uint64_t page = Addresses(s.pages).v[position / 32] +
                          (which == 0 ? p.page_offset[0] : p.page_offset[1]);
    const uint64_t to = page + uint64_t(position % 32) * (p.width + 2 * n_heads * n_blocks);
    Floats from = Floats(uint64_t(which == 0 ? p.x[0] : p.x[1]) +
                         (uint64_t(gl_WorkGroupID.y) * p.width + first) * 4);
    uint largest = 0; // as bits, which say what is not finite, too
    for (uint j = 0; j < n; j++)
        largest = max(largest, floatBitsToUint(from.v[j]) & 0x7fffffffu);
    const bool is_finite = largest < 0x7f800000u, is_there = is_finite && largest != 0;
    const uint scale = is_there ? scale_of(uintBitsToFloat(largest)) : is_finite ? 0 : 0x7fc0u;
    const float inverse = is_there ? 1.0 / bfloat_to_float(scale) : 0.0;
    for (uint j = 0; j < n; j++) {
        const float x = is_there ? clamp(roundEven(from.v[j] * inverse), -127.0, 127.0) : 0.0;
        Bytes(to + first).v[j] = uint8_t(int(x));
    }
    Bytes scale_at = Bytes(to + p.width + 2 * i);
    scale_at.v[0] = uint8_t(scale);
    scale_at.v[1] = uint8_t(scale >> 8);
}

#version 460
// SPDX-License-Identifier: MIT
// After attention with SPLIT: merges blocks first_block .. first_block + n_blocks - 1 of a head (x)
// of a row (y), in their order, to what rounds before this one have left in the result. An
// invocation has one value of the head.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"

layout(push_constant, scalar) uniform Push {
    Floats result, sums, ends, sinks;
    Floats kept_before, kept; // [rows, heads, 2], maximum and sum of the rounds before; and with this
    Sequences sequences;
    uint n_sequences, first_row;
    uint n_heads, value_dim, window, first_block, n_blocks;
} p;

void main()
{
    const uint head = gl_WorkGroupID.x, row = p.first_row + gl_WorkGroupID.y;
    const Sequence s = p.sequences.v[sequence_of(p.sequences, p.n_sequences, row)];
    const uint position = s.position + row - s.first_row;
    const uint low = p.window != 0 && position >= p.window ? (position + 1 - p.window) / BLOCK : 0;
    const uint high = position / BLOCK, end = p.first_block + p.n_blocks;
    if (high < p.first_block || low >= end)
        return;
    const uint64_t at = uint64_t(gl_WorkGroupID.y) * p.n_heads + head;
    Floats result = Floats(uint64_t(p.result) + at * p.value_dim * 4);
    Floats kept = Floats(uint64_t(p.kept_before) + at * 8);
    Floats sums = Floats(uint64_t(p.sums) + at * p.n_blocks * p.value_dim * 4);
    Floats ends = Floats(uint64_t(p.ends) + at * p.n_blocks * 8);
    const bool is_first = low >= p.first_block;
    const uint from = is_first ? low - p.first_block : 0, to = min(high + 1, end) - p.first_block;
    const float kept_most = is_first ? NOTHING : kept.v[0], kept_sum = is_first ? 0.0 : kept.v[1];
    float most, total;
    for (uint d = gl_LocalInvocationID.x; d < p.value_dim; d += gl_WorkGroupSize.x) {
        float value = is_first ? 0.0 : result.v[d];
        most = kept_most;
        total = kept_sum;
        for (uint i = from; i < to; i++) {
            const float new_most = max(most, ends.v[i * 2]);
            const float old = power(most - new_most), fresh = power(ends.v[i * 2] - new_most);
            total = total * old + ends.v[i * 2 + 1] * fresh;
            value = value * old + sums.v[i * p.value_dim + d] * fresh;
            most = new_most;
        }
        if (high < end) {
            const bool has_sink = uint64_t(p.sinks) != 0;
            const float sink = has_sink ? p.sinks.v[head] * 1.44269504 : 0.0;
            value *= last_factor(most, total, has_sink, sink);
        }
        result.v[d] = value;
    }
    if (gl_LocalInvocationID.x == 0) {
        Floats(uint64_t(p.kept) + at * 8).v[0] = most;
        Floats(uint64_t(p.kept) + at * 8).v[1] = total;
    }
}

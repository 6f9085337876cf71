#version 460
// SPDX-License-Identifier: MIT
// After attention of blocks apart: merges blocks first_block .. first_block + n_blocks - 1 of a head
// (x) of a row (y), in their order, to what rounds before this one have left in the result. An
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
    uint n_positions; // of the only row's sequence with it; 0: rows are to be looked up
} p;

const uint MOST = 128; // blocks at a time

shared float mosts[MOST], totals[MOST], old_factors[MOST], new_factors[MOST];

// Of n blocks: what is multiplied when each is merged to those before it, whose maximum is `most`.
// Returns the maximum of all.
float find_factors(Floats ends, uint n, float most)
{
    const uint t = gl_LocalInvocationID.x;
    barrier(); // the last ones have been read
    for (uint i = t; i < n; i += gl_WorkGroupSize.x) {
        mosts[i] = ends.v[2 * i];
        totals[i] = ends.v[2 * i + 1];
    }
    barrier();
    float all = most;
    for (uint i = t; i < n; i += gl_WorkGroupSize.x) {
        float before = most;
        for (uint j = 0; j < i; j++)
            before = max(before, mosts[j]);
        const float after = max(before, mosts[i]);
        old_factors[i] = power(before - after);
        new_factors[i] = power(mosts[i] - after);
    }
    for (uint i = 0; i < n; i++)
        all = max(all, mosts[i]);
    barrier();
    return all;
}

uint position_of(uint row)
{
    if (p.n_positions != 0)
        return p.n_positions - 1;
    const Sequence s = p.sequences.v[sequence_of(p.sequences, p.n_sequences, row)];
    return s.position + row - s.first_row;
}

void main()
{
    const uint head = gl_WorkGroupID.x, position = position_of(p.first_row + gl_WorkGroupID.y);
    const uint low = first_seen(p.window, position) / BLOCK;
    const uint high = position / BLOCK, end = p.first_block + p.n_blocks;
    if (high < p.first_block || low >= end)
        return;
    const uint64_t at = uint64_t(gl_WorkGroupID.y) * p.n_heads + head;
    Floats result = Floats(uint64_t(p.result) + at * p.value_dim * 4);
    const bool is_first = low >= p.first_block;
    const uint from = is_first ? low - p.first_block : 0, to = min(high + 1, end) - p.first_block;
    const uint d = gl_WorkGroupID.z * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    float value = 0.0, most = NOTHING, total = 0.0;
    if (!is_first) {
        value = d < p.value_dim ? result.v[d] : 0.0;
        most = Floats(uint64_t(p.kept_before) + at * 8).v[0];
        total = Floats(uint64_t(p.kept_before) + at * 8).v[1];
    }
    [[dont_unroll]] for (uint i = from; i < to; i += MOST) {
        const uint n = min(to - i, MOST);
        const uint64_t block = at * p.n_blocks + i;
        most = find_factors(Floats(uint64_t(p.ends) + block * 8), n, most);
        [[dont_unroll]] for (uint j = 0; j < n; j += 8) {
            float sums[8];
            [[unroll]] for (uint k = 0; k < 8; k++)
                sums[k] = j + k < n && d < p.value_dim
                              ? Floats(uint64_t(p.sums) + (block + j + k) * p.value_dim * 4).v[d]
                              : 0.0;
            [[unroll]] for (uint k = 0; k < 8; k++)
                if (j + k < n) {
                    value = value * old_factors[j + k] + sums[k] * new_factors[j + k];
                    total = total * old_factors[j + k] + totals[j + k] * new_factors[j + k];
                }
        }
    }
    if (gl_WorkGroupID.z == 0 && gl_LocalInvocationID.x == 0) {
        Floats(uint64_t(p.kept) + at * 8).v[0] = most;
        Floats(uint64_t(p.kept) + at * 8).v[1] = total;
    }
    if (high < end)
        value *= last_factor(most, total,
                             uint64_t(p.sinks) != 0 ? p.sinks.v[head] * LOG2_E : NOTHING);
    if (d < p.value_dim)
        result.v[d] = value;
}

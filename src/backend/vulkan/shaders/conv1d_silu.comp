#version 460
// SPDX-License-Identifier: MIT
// Depthwise causal convolution and SiLU. An invocation has one channel of an item, a run of rows of
// one sequence, and goes through them with the last inputs in registers. Where sequences are cut
// into several items, what each begins with has been copied aside before (HALO): output may
// overwrite input, and the state after the run the one before it.
//! variant conv1d_silu
//! variant conv1d_silu_halo -DHALO
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 1) const uint WIDTH = 4; // 2 or more
#include "conv.glsl"
const uint BEFORE = WIDTH - 1;

struct Item {
    uint sequence, first_row, n_rows; // the row of the batch
    uint halo;                        // where its first inputs are; NONE: where they always were
};
layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer Items { Item v[]; };

const uint NONE = ~0u;

layout(push_constant, scalar) uniform Push {
    Floats x, weight, result;
    Floats halo; // [n, BEFORE, n_channels]
    Items items;
    Sequences sequences;
    uint64_t state_offset;
    uint n_channels, is_single; // one sequence and one item of it, which come here
    Single single;
} p;

Single sequence_of_item(Item item)
{
    if (p.is_single != 0)
        return p.single;
    const Sequence s = p.sequences.v[item.sequence];
    return Single(s.before, s.after, s.first_row, s.n_rows);
}

// The input `back` rows before the first of the item.
float earlier(Item item, Single s, uint back, uint channel)
{
    const uint n = item.first_row - s.first_row;
    if (back <= n)
        return Floats(uint64_t(p.x) + uint64_t(item.first_row - back) * p.n_channels * 4).v[channel];
    if (s.before == 0)
        return 0.0;
    const uint64_t row = BEFORE + n - back;
    return Floats(s.before + p.state_offset + row * p.n_channels * 4).v[channel];
}

void main()
{
    Item item = Item(0, p.single.first_row, p.single.n_rows, NONE);
    if (p.is_single == 0)
        item = p.items.v[gl_WorkGroupID.y];
    const Single s = sequence_of_item(item);
    const uint channel = gl_GlobalInvocationID.x, n = p.n_channels;
    if (channel >= n)
        return;
    Floats halo = Floats(uint64_t(p.halo) + uint64_t(item.halo) * BEFORE * n * 4);
#ifdef HALO
    for (uint j = 0; j < BEFORE && item.halo != NONE; j++)
        halo.v[j * n + channel] = earlier(item, s, BEFORE - j, channel);
#else
    float w[WIDTH], last[WIDTH]; // oldest first
    [[unroll]] for (uint j = 0; j < WIDTH; j++)
        w[j] = p.weight.v[channel * WIDTH + j];
    [[unroll]] for (uint j = 0; j < BEFORE; j++)
        last[j] = item.halo != NONE ? halo.v[j * n + channel]
                                        : earlier(item, s, BEFORE - j, channel);
    for (uint r = 0; r < item.n_rows; r++) {
        const uint64_t at = uint64_t(item.first_row + r) * n * 4;
        float sum = 0.0;
        last[BEFORE] = Floats(uint64_t(p.x) + at).v[channel];
        [[unroll]] for (uint j = 0; j < WIDTH; j++)
            sum = conv_step(sum, last[j], w[j]);
        Floats(uint64_t(p.result) + at).v[channel] = silu(sum);
        [[unroll]] for (uint j = 0; j < BEFORE; j++)
            last[j] = last[j + 1];
    }
    if (item.first_row + item.n_rows != s.first_row + s.n_rows)
        return;
    Floats after = Floats(s.after + p.state_offset);
    [[unroll]] for (uint j = 0; j < BEFORE; j++)
        after.v[j * n + channel] = last[j];
#endif
}

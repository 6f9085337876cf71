#version 460
// SPDX-License-Identifier: MIT
// Attention of one row of one sequence, as attention.comp has it and with its bits: a workgroup has a
// block of positions (z) and a few of the heads (x) that share a key head (y). All of the block's keys
// and values are on their way before any is used. The row that the operation appends is taken from
// where it comes.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"

layout(constant_id = 1) const uint TYPE = F32;
layout(constant_id = 2) const uint HEAD = 256;  // columns of keys, and of values
layout(constant_id = 3) const uint N_KEYS = 1;  // key heads
layout(constant_id = 4) const uint PER_KEY = 1; // heads of each
layout(constant_id = 5) const uint QUERIES = 1; // of a workgroup, up to 4
layout(constant_id = 6) const uint SLICE = 32;  // columns of keys in shared memory, a divisor of HEAD

layout(push_constant, scalar) uniform Push {
    Floats q;
    uint64_t sinks; // Floats; 0: none
    Floats result;
    Floats sums, ends; // of n_blocks: as attention.comp's
    Addresses pages;
    uint64_t k_offset, v_offset;
    uint64_t fresh_k, fresh_v;
    uint position, window, first_block, n_blocks; // n_blocks 0: there is one
    float scale;                                  // and log2(e)
} p;

const uint THREADS = 256;
const uint SLICE4 = SLICE / 4, HEAD4 = HEAD / 4, STRIDE = SLICE4 + 1; // vec4s

shared vec4 keys[BLOCK * STRIDE];
shared vec4 queries[QUERIES * HEAD4];
shared vec4 powers[QUERIES * BLOCK / 4];

const uint N_VALUES = BLOCK;

#define KEY_QUAD(i) keys[i]
#define QUERY_QUAD(i) queries[i]
#define POWER_QUAD(i) powers[i]
#include "attention_block.glsl"

void put(uint head, uint block, uint t, float value, float most, float total)
{
    const uint at = head * p.n_blocks + block;
    if (p.n_blocks == 0) {
        const float sink = p.sinks != 0 ? Floats(p.sinks).v[head] * LOG2_E : NOTHING;
        p.result.v[head * HEAD + t] = value * last_factor(most, total, sink);
        return;
    }
    p.sums.v[at * HEAD + t] = value;
    if (t == 0) {
        p.ends.v[2 * at] = most;
        p.ends.v[2 * at + 1] = total;
    }
}

void main()
{
    const uint t = gl_LocalInvocationID.x, query = t / BLOCK, key = t % BLOCK;
    const uint key_head = gl_WorkGroupID.y, first_query = gl_WorkGroupID.x * QUERIES;
    const uint first_head = key_head * PER_KEY + first_query;
    const uint n_queries = min(QUERIES, PER_KEY - first_query);
    const uint base = (p.first_block + gl_WorkGroupID.z) * BLOCK;
    const uint n_keys = min(p.position + 1 - base, BLOCK), fresh = p.position - base;
    const uint limit = min(n_keys, fresh);
    const uint64_t first = p.pages.v[base / PAGE];
    const uint64_t last = n_keys > PAGE ? p.pages.v[base / PAGE + 1] : first;
    vec4 fresh_k = vec4(0.0);
    float fresh_v = 0.0;
    if (fresh < BLOCK && t < HEAD4)
        fresh_k = Floats4(p.fresh_k).v[key_head * HEAD4 + t];
    if (fresh < BLOCK && t < HEAD)
        fresh_v = kept(Floats(p.fresh_v).v[key_head * HEAD + t]);
    [[unroll]] for (uint e = 0; e < 4; e++)
        fresh_k[e] = kept(fresh_k[e]);
    const uint64_t head_at = key_head * (HEAD * BYTES);
    load_keys(first + p.k_offset + head_at, last + p.k_offset + head_at, t);
    load_values(first + p.v_offset + head_at, last + p.v_offset + head_at, 0, t < HEAD ? limit : 0, t);
    for (uint i = t; i < QUERIES * HEAD4; i += THREADS)
        queries[i] =
            i / HEAD4 < n_queries ? Floats4(uint64_t(p.q)).v[first_head * HEAD4 + i] : vec4(0.0);
    const float sum = score(t, query, key, fresh_k, fresh);
    const bool is_seen = base + key <= p.position && base + key >= first_seen(p.window, p.position);
    const float x = is_seen ? sum * p.scale : NOTHING;
    weigh_keys(query, key, x);
    float sums[QUERIES];
    [[unroll]] for (uint i = 0; i < QUERIES; i++)
        sums[i] = 0.0;
    [[unroll]] for (uint k = 0; k < BLOCK / 4; k++)
        [[unroll]] for (uint i = 0; i < QUERIES; i++) {
            const vec4 w = powers[i * BLOCK / 4 + k];
            [[unroll]] for (uint e = 0; e < 4; e++)
                sums[i] = fma(w[e], uintBitsToFloat(values_ahead[4 * k + e]), sums[i]);
        }
    if (fresh < BLOCK) // the last one; so far it was zeros
        [[unroll]] for (uint i = 0; i < QUERIES; i++)
            sums[i] = fma(powers[(i * BLOCK + fresh) / 4][fresh % 4], fresh_v, sums[i]);
    if (t >= HEAD)
        return;
    [[unroll]] for (uint i = 0; i < QUERIES; i++)
        if (i < n_queries)
            put(first_head + i, gl_WorkGroupID.z, t, sums[i], block_mosts[i], sum_of(i));
}

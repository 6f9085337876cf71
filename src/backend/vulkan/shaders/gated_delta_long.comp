#version 460
// SPDX-License-Identifier: MIT
// gated_delta.comp for runs of many rows, with the same bits: a column's shards are side by side in a
// subgroup, so that no token waits for a barrier. What gated_delta_ready.comp leaves is read TOKENS
// rows at a time, the next while these are gone through. Rows beyond the last change nothing: their
// gates are 1 and 0 and their keys -0, which added to a zero leaves its sign. With KEYED what is ready
// stands where the operands did.
//! variant gated_delta_long
//! variant keyed_delta_long -DKEYED
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "common.glsl"

layout(constant_id = 1) const uint N4 = 4; // vec4s of a shard

const uint COLS = 32, SHARDS = 8, TOKENS = 8;
const uint KEYS4 = N4 * SHARDS; // of a head's key, filled up with zeros
const uint N_LOADS = (TOKENS * KEYS4 + COLS * SHARDS - 1) / (COLS * SHARDS); // of an invocation

layout(push_constant, scalar) uniform Push {
#ifdef KEYED
    Floats q, k, v, decays, betas, result;
#else
    Floats qkv, gates, result;
#endif
    Sequences sequences;
    uint64_t state_offset;
#ifdef KEYED
    uint n_v_heads, key_dim, value_dim;
#else
    uint n_k_heads, n_v_heads, key_dim, value_dim, is_tiled;
#endif
} p;

// Of these rows and of those before by turns.
shared vec4 keys[2 * TOKENS * KEYS4], queries[2 * TOKENS * KEYS4];
shared float values[2 * TOKENS * COLS];
#ifdef KEYED
shared vec4 decays[2 * TOKENS * KEYS4];
#else
shared float decays[2 * TOKENS];
#endif
shared float betas[2 * TOKENS];

// What is on its way of the next rows.
vec4 next_queries[N_LOADS], next_keys[N_LOADS];
#ifdef KEYED
vec4 next_decays[N_LOADS];
float next_value, next_beta;
#else
float next_value, next_decay, next_beta;
#endif

vec4 state[N4];

vec4 load4(Floats row, uint first, uint at)
{
    vec4 x = vec4(0.0);
    [[unroll]] for (uint j = 0; j < 4; j++)
        if (at + j < p.key_dim)
            x[j] = row.v[first + at + j];
    return x;
}

#ifdef KEYED
// Rows first .. first + n - 1 of the batch.
void fetch(uint id, uint first, uint n)
{
    const uint head = gl_WorkGroupID.y, token = id / COLS;
    const uint col = gl_WorkGroupID.x * COLS + id % COLS;
    [[unroll]] for (uint l = 0; l < N_LOADS; l++) {
        const uint i = id + l * COLS * SHARDS, at = i % KEYS4 * 4;
        next_queries[l] = vec4(0.0);
        next_keys[l] = vec4(uintBitsToFloat(0x80000000u));
        next_decays[l] = vec4(1.0);
        if (i < n * KEYS4) {
            const uint64_t row =
                (uint64_t(first + i / KEYS4) * p.n_v_heads + head) * p.key_dim * 4;
            const uint64_t q = uint64_t(p.q) + row, k = uint64_t(p.k) + row;
            const uint64_t decay = uint64_t(p.decays) + row;
            if (((q | k | decay | p.key_dim * 4) & 15) == 0 && at < p.key_dim) {
                next_queries[l] = Floats4(q).v[at / 4];
                next_keys[l] = Floats4(k).v[at / 4];
                next_decays[l] = Floats4(decay).v[at / 4];
            } else {
                next_queries[l] = load4(Floats(q), 0, at);
                next_keys[l] = load4(Floats(k), 0, at);
                next_decays[l] = load4(Floats(decay), 0, at);
            }
        }
    }
    next_value = next_beta = 0.0;
    if (token < n && col < p.value_dim)
        next_value = Floats(uint64_t(p.v) + uint64_t(first + token) * p.n_v_heads * p.value_dim * 4)
                         .v[head * p.value_dim + col];
    if (id < n)
        next_beta = p.betas.v[(first + id) * p.n_v_heads + head];
}
#else
// Rows first .. first + n - 1 of the batch.
void fetch(uint id, uint first, uint n)
{
    const uint head = gl_WorkGroupID.y;
    // key heads by turns where they are tiled, else in runs
    const uint key_head = p.is_tiled != 0 ? head % p.n_k_heads : head / (p.n_v_heads / p.n_k_heads);
    const uint n_keys = p.n_k_heads * p.key_dim, width = 2 * n_keys + p.n_v_heads * p.value_dim;
    const uint token = id / COLS, col = gl_WorkGroupID.x * COLS + id % COLS;
    [[unroll]] for (uint l = 0; l < N_LOADS; l++) {
        const uint i = id + l * COLS * SHARDS, at = i % KEYS4 * 4;
        next_queries[l] = vec4(0.0);
        next_keys[l] = vec4(uintBitsToFloat(0x80000000u));
        if (i < n * KEYS4) {
            Floats row = Floats(uint64_t(p.qkv) + uint64_t(first + i / KEYS4) * width * 4);
            if (((uint64_t(row) | p.key_dim * 4) & 15) == 0 && at < p.key_dim) {
                Floats4 row4 = Floats4(row);
                next_queries[l] = row4.v[(key_head * p.key_dim + at) / 4];
                next_keys[l] = row4.v[(n_keys + key_head * p.key_dim + at) / 4];
            } else {
                next_queries[l] = load4(row, key_head * p.key_dim, at);
                next_keys[l] = load4(row, n_keys + key_head * p.key_dim, at);
            }
        }
    }
    next_value = next_beta = 0.0;
    next_decay = 1.0;
    if (token < n && col < p.value_dim)
        next_value = Floats(uint64_t(p.qkv) + uint64_t(first + token) * width * 4)
                         .v[2 * n_keys + head * p.value_dim + col];
    if (id < n) {
        const uint at = (first + id) * 2 * p.n_v_heads + head;
        next_decay = p.gates.v[at];
        next_beta = p.gates.v[at + p.n_v_heads];
    }
}
#endif

void keep(uint id, uint turn)
{
    [[unroll]] for (uint l = 0; l < N_LOADS; l++) {
        const uint i = id + l * COLS * SHARDS;
        if (i < TOKENS * KEYS4) {
            queries[turn * TOKENS * KEYS4 + i] = next_queries[l];
            keys[turn * TOKENS * KEYS4 + i] = next_keys[l];
#ifdef KEYED
            decays[turn * TOKENS * KEYS4 + i] = next_decays[l];
#endif
        }
    }
    values[turn * TOKENS * COLS + id] = next_value;
    if (id < TOKENS) {
#ifndef KEYED
        decays[turn * TOKENS + id] = next_decay;
#endif
        betas[turn * TOKENS + id] = next_beta;
    }
}

float sum4(vec4 x)
{
    return (x.x + x.y) + (x.z + x.w);
}

// Goes through TOKENS rows: the output of row `shard`.
float go_on(uint turn, uint shard, uint lane)
{
    float parts[TOKENS];
    [[unroll]] for (uint t = 0; t < TOKENS; t++) {
        const uint key = (turn * TOKENS + t) * KEYS4 + shard;
#ifndef KEYED
        const float decay = decays[turn * TOKENS + t];
#endif
        vec4 sum = vec4(0.0);
        [[unroll]] for (uint i = 0; i < N4; i++) {
#ifdef KEYED
            state[i] *= decays[key + i * SHARDS];
#else
            state[i] *= decay;
#endif
            sum = fma(state[i], keys[key + i * SHARDS], sum);
        }
        float old = sum4(sum);
        [[unroll]] for (uint d = 1; d < SHARDS; d *= 2)
            old += subgroupShuffleXor(old, d);
        const float delta =
            (values[(turn * TOKENS + t) * COLS + lane] - old) * betas[turn * TOKENS + t];
        sum = vec4(0.0);
        [[unroll]] for (uint i = 0; i < N4; i++) {
            state[i] = fma(keys[key + i * SHARDS], vec4(delta), state[i]);
            sum = fma(state[i], queries[key + i * SHARDS], sum);
        }
        parts[t] = sum4(sum);
    }
    // a shard keeps every second row, of those every second, of those one
    const bool odd1 = (shard & 1) != 0, odd2 = (shard & 2) != 0, odd4 = (shard & 4) != 0;
    float half_parts[4], quarter[2];
    [[unroll]] for (uint i = 0; i < 4; i++) {
        const float mine = odd1 ? parts[2 * i + 1] : parts[2 * i];
        half_parts[i] = mine + subgroupShuffleXor(odd1 ? parts[2 * i] : parts[2 * i + 1], 1);
    }
    [[unroll]] for (uint i = 0; i < 2; i++) {
        const float mine = odd2 ? half_parts[2 * i + 1] : half_parts[2 * i];
        quarter[i] = mine + subgroupShuffleXor(odd2 ? half_parts[2 * i] : half_parts[2 * i + 1], 2);
    }
    const float mine = odd4 ? quarter[1] : quarter[0];
    return mine + subgroupShuffleXor(odd4 ? quarter[0] : quarter[1], 4);
}

void main()
{
    // an invocation's number such that subgroups are runs of numbers
    const uint id = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
    const uint lane = id / SHARDS, shard = id % SHARDS;
    const uint head = gl_WorkGroupID.y, col = gl_WorkGroupID.x * COLS + lane;
    const Sequence s = p.sequences.v[gl_WorkGroupID.z];
    const uint64_t at = p.state_offset + uint64_t(head) * p.key_dim * p.value_dim * 4;
    [[unroll]] for (uint i = 0; i < 4 * N4; i++) {
        const uint row = (i / 4 * SHARDS + shard) * 4 + i % 4;
        state[i / 4][i % 4] = s.before != 0 && row < p.key_dim && col < p.value_dim
                                  ? Floats(s.before + at).v[row * p.value_dim + col]
                                  : 0.0;
    }
    fetch(id, s.first_row, min(s.n_rows, TOKENS));
    uint turn = 0;
    for (uint first = 0; first < s.n_rows; first += TOKENS) {
        keep(id, turn);
        barrier();
        if (first + TOKENS < s.n_rows)
            fetch(id, s.first_row + first + TOKENS, min(s.n_rows - first - TOKENS, TOKENS));
        const float x = go_on(turn, shard, lane);
        if (first + shard < s.n_rows && col < p.value_dim)
            Floats(uint64_t(p.result) +
                   uint64_t(s.first_row + first + shard) * p.n_v_heads * p.value_dim * 4)
                .v[head * p.value_dim + col] = x;
        turn ^= 1;
    }
    [[unroll]] for (uint i = 0; i < 4 * N4; i++) {
        const uint row = (i / 4 * SHARDS + shard) * 4 + i % 4;
        if (row < p.key_dim && col < p.value_dim)
            Floats(s.after + at).v[row * p.value_dim + col] = state[i / 4][i % 4];
    }
}

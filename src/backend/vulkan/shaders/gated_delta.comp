#version 460
// SPDX-License-Identifier: MIT
// The gated delta rule. A workgroup has COLS columns of the state of one value head (y) of one
// sequence (z), kept in registers over all rows of its run: a column is cut into SHARDS, one for
// each invocation; vec4s of a column go to shards by turns. Per token two sums go over the shards, in
// pairs, fours, eights, through shared memory, with one barrier: the second is read after the next
// token's. Queries, keys and gates are made ready for TOKENS rows at a time, by every workgroup for
// itself; the next ones are on their way meanwhile. With KEYED queries, keys and values have rows of
// their own and each row of a state its decay; 4 rows at a time are ready then, so that 16 KiB of shared
// memory are enough for heads of 128.
//! variant gated_delta
//! variant keyed_delta -DKEYED
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "gated_delta.glsl"

layout(constant_id = 1) const uint N4 = 4; // vec4s of a shard

#ifdef KEYED
const uint TOKENS = 4;
#else
const uint TOKENS = 8;
#endif
const uint COLS = 32, SHARDS = 8;
const uint KEYS4 = N4 * SHARDS; // of a head's key, filled up with zeros
const uint N_LOADS = (TOKENS * KEYS4 + COLS * SHARDS - 1) / (COLS * SHARDS); // of an invocation

layout(push_constant, scalar) uniform Push {
#ifdef KEYED
    Floats q, k, v;
#else
    Floats qkv;
#endif
    Floats a, b, a_log, dt_bias, result;
    Sequences sequences;
    uint64_t state_offset;
#ifndef KEYED
    uint n_k_heads;
#endif
    uint n_v_heads, key_dim, value_dim;
    float eps, q_scale;
#ifndef KEYED
    uint is_tiled;
#endif
    Single single;
} p;

shared vec4 keys[TOKENS * KEYS4], queries[TOKENS * KEYS4];
shared float values[TOKENS * COLS];
#ifdef KEYED
shared vec4 decays[TOKENS * KEYS4];
#else
shared float decays[TOKENS];
#endif
shared float betas[TOKENS];
shared float squares[COLS * SHARDS], factors[2 * TOKENS];
shared float foretold[2 * SHARDS * COLS], outputs[2 * SHARDS * COLS];

// What is on its way of the next rows.
vec4 next_queries[N_LOADS], next_keys[N_LOADS];
float next_value, next_b, a_log;
#ifdef KEYED
float next_a[4 * N_LOADS], dt_bias[4 * N_LOADS]; // of the next rows' keys one after another
#else
float next_a, dt_bias;
#endif

#ifdef KEYED
uint64_t keys_of(uint row)
{
    return (uint64_t(row) * p.n_v_heads + gl_WorkGroupID.y) * p.key_dim * 4;
}

// Rows first .. first + n - 1 of the batch, n <= TOKENS.
void fetch(uint first, uint n)
{
    const uint t = gl_LocalInvocationID.x, head = gl_WorkGroupID.y;
    [[unroll]] for (uint l = 0; l < N_LOADS; l++) {
        const uint i = t + l * COLS * SHARDS, at = i % KEYS4 * 4;
        vec4 q = vec4(0.0), k = vec4(0.0);
        if (i < n * KEYS4) {
            const uint64_t row = keys_of(first + i / KEYS4);
            [[unroll]] for (uint j = 0; j < 4; j++)
                if (at + j < p.key_dim) {
                    q[j] = Floats(uint64_t(p.q) + row).v[at + j];
                    k[j] = Floats(uint64_t(p.k) + row).v[at + j];
                }
        }
        next_queries[l] = q;
        next_keys[l] = k;
    }
    [[unroll]] for (uint l = 0; l < 4 * N_LOADS; l++) {
        const uint i = t + l * COLS * SHARDS, key = i % (4 * KEYS4);
        next_a[l] = dt_bias[l] = 0.0;
        if (i < n * 4 * KEYS4 && key < p.key_dim) {
            next_a[l] = Floats(uint64_t(p.a) + keys_of(first + i / (4 * KEYS4))).v[key];
            dt_bias[l] = p.dt_bias.v[head * p.key_dim + key];
        }
    }
    a_log = p.a_log.v[head];
    const uint token = t / COLS, col = gl_WorkGroupID.x * COLS + t % COLS;
    next_value = next_b = 0.0;
    if (token < n && col < p.value_dim)
        next_value = Floats(uint64_t(p.v) + uint64_t(first + token) * p.n_v_heads * p.value_dim * 4)
                         .v[head * p.value_dim + col];
    if (t < n)
        next_b = p.b.v[(first + t) * p.n_v_heads + head];
}
#else
// Rows first .. first + n - 1 of the batch, n <= TOKENS.
void fetch(uint first, uint n)
{
    const uint t = gl_LocalInvocationID.x, head = gl_WorkGroupID.y;
    // key heads by turns where they are tiled, else in runs
    const uint key_head = p.is_tiled != 0 ? head % p.n_k_heads : head / (p.n_v_heads / p.n_k_heads);
    const uint n_keys = p.n_k_heads * p.key_dim, width = 2 * n_keys + p.n_v_heads * p.value_dim;
    [[unroll]] for (uint l = 0; l < N_LOADS; l++) {
        const uint i = t + l * COLS * SHARDS, at = i % KEYS4 * 4;
        vec4 q = vec4(0.0), k = vec4(0.0);
        if (i < n * KEYS4) {
            Floats row = Floats(uint64_t(p.qkv) + uint64_t(first + i / KEYS4) * width * 4);
            [[unroll]] for (uint j = 0; j < 4; j++)
                if (at + j < p.key_dim) {
                    q[j] = row.v[key_head * p.key_dim + at + j];
                    k[j] = row.v[n_keys + key_head * p.key_dim + at + j];
                }
        }
        next_queries[l] = q;
        next_keys[l] = k;
    }
    const uint token = t / COLS, col = gl_WorkGroupID.x * COLS + t % COLS;
    next_value = next_a = next_b = 0.0;
    if (token < n && col < p.value_dim)
        next_value = Floats(uint64_t(p.qkv) + uint64_t(first + token) * width * 4)
                         .v[2 * n_keys + head * p.value_dim + col];
    if (t < n) {
        const uint at = (first + t) * p.n_v_heads + head;
        next_a = p.a.v[at];
        next_b = p.b.v[at];
        a_log = p.a_log.v[head];
        dt_bias = p.dt_bias.v[head];
    }
}
#endif

// What has been fetched, for every invocation. What was there before has been read.
void make_ready(uint n)
{
    const uint t = gl_LocalInvocationID.x;
    [[unroll]] for (uint l = 0; l < N_LOADS; l++) {
        const uint i = t + l * COLS * SHARDS;
        if (i < n * KEYS4) {
            queries[i] = next_queries[l];
            keys[i] = next_keys[l];
        }
    }
#ifdef KEYED
    [[unroll]] for (uint l = 0; l < 4 * N_LOADS; l++) {
        const uint i = t + l * COLS * SHARDS;
        if (i < n * 4 * KEYS4)
            decays[i / 4][i % 4] = decay_of(a_log, next_a[l] + dt_bias[l]);
    }
    if (t < TOKENS * COLS)
        values[t] = next_value;
    if (t < n)
        betas[t] = sigmoid(next_b);
#else
    values[t] = next_value;
    if (t < n) {
        decays[t] = decay_of(a_log, next_a + dt_bias);
        betas[t] = sigmoid(next_b);
    }
#endif
    barrier();
    // 16 invocations for the norm of each vector: first the queries, then the keys
    const uint vector = t / 16 % TOKENS;
    float sum = 0.0;
    if (vector < n)
        for (uint i = t % 16; i < KEYS4; i += 16)
            sum += squared(t < 16 * TOKENS ? queries[vector * KEYS4 + i] : keys[vector * KEYS4 + i]);
    squares[t] = sum;
    barrier();
    if (t < 2 * TOKENS) {
        sum = 0.0;
        for (uint i = 0; i < 16; i++)
            sum += squares[t * 16 + i];
        factors[t] = inversesqrt(sum + p.eps) * (t < TOKENS ? p.q_scale : 1.0);
    }
    barrier();
    for (uint i = t; i < n * KEYS4; i += gl_WorkGroupSize.x) {
        queries[i] *= factors[i / KEYS4];
        keys[i] *= factors[TOKENS + i / KEYS4];
    }
    barrier();
}

float sum_of_shards(bool is_output, uint turn, uint col)
{
    float sums[SHARDS];
    [[unroll]] for (uint i = 0; i < SHARDS; i++) {
        const uint at = (turn * SHARDS + i) * COLS + col;
        sums[i] = is_output ? outputs[at] : foretold[at];
    }
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

vec4 state[N4];

float sum4(vec4 x)
{
    return (x.x + x.y) + (x.z + x.w);
}

// The invocation's part of the value that the state foretells for key 0 .. TOKENS - 1.
#ifdef KEYED
float foretell(uint key)
#else
float foretell(uint key, float decay)
#endif
{
    vec4 sum = vec4(0.0);
    [[unroll]] for (uint i = 0; i < N4; i++) {
#ifdef KEYED
        state[i] *= decays[key + i * SHARDS];
#else
        state[i] *= decay;
#endif
        sum = fma(state[i], keys[key + i * SHARDS], sum);
    }
    return sum4(sum);
}

// The state learns; the invocation's part of the output.
float learn(uint key, float delta)
{
    vec4 sum = vec4(0.0);
    [[unroll]] for (uint i = 0; i < N4; i++) {
        state[i] = fma(keys[key + i * SHARDS], vec4(delta), state[i]);
        sum = fma(state[i], queries[key + i * SHARDS], sum);
    }
    return sum4(sum);
}

void put_output(uint64_t row, uint col, float x)
{
    if (col < p.value_dim)
        Floats(uint64_t(p.result) + row * p.n_v_heads * p.value_dim * 4)
            .v[gl_WorkGroupID.y * p.value_dim + col] = x;
}

// n rows, from row `first` of the batch on.
void go_on(uint first, uint n, uint shard, uint lane)
{
    const uint col = gl_WorkGroupID.x * COLS + lane;
    [[dont_unroll]] for (uint t = 0; t <= n; t++) {
        const uint turn = t & 1, key = t * KEYS4 + shard;
        if (t < n)
#ifdef KEYED
            foretold[(turn * SHARDS + shard) * COLS + lane] = foretell(key);
#else
            foretold[(turn * SHARDS + shard) * COLS + lane] = foretell(key, decays[t]);
#endif
        barrier();
        if (t > 0 && shard == (t & 7))
            put_output(first + t - 1, col, sum_of_shards(true, turn ^ 1, lane));
        if (t < n) {
            const float old = sum_of_shards(false, turn, lane);
            outputs[(turn * SHARDS + shard) * COLS + lane] =
                learn(key, (values[t * COLS + lane] - old) * betas[t]);
        }
    }
}

void main()
{
    const uint head = gl_WorkGroupID.y, lane = gl_LocalInvocationID.x % COLS;
    const uint shard = gl_LocalInvocationID.x / COLS, col = gl_WorkGroupID.x * COLS + lane;
    Single s = p.single;
    if (s.n_rows == 0) {
        const Sequence of = p.sequences.v[gl_WorkGroupID.z];
        s = Single(of.before, of.after, of.first_row, of.n_rows);
    }
    const uint64_t at = p.state_offset + uint64_t(head) * p.key_dim * p.value_dim * 4;
    [[unroll]] for (uint i = 0; i < 4 * N4; i++) {
        const uint row = (i / 4 * SHARDS + shard) * 4 + i % 4;
        state[i / 4][i % 4] = s.before != 0 && row < p.key_dim && col < p.value_dim
                                  ? Floats(s.before + at).v[row * p.value_dim + col]
                                  : 0.0;
    }
    fetch(s.first_row, min(s.n_rows, TOKENS));
    [[dont_unroll]] for (uint first = 0; first < s.n_rows; first += TOKENS) {
        const uint n = min(s.n_rows - first, TOKENS);
        barrier(); // the rows before have been read
        make_ready(n);
        if (first + TOKENS < s.n_rows)
            fetch(s.first_row + first + TOKENS, min(s.n_rows - first - TOKENS, TOKENS));
        go_on(s.first_row + first, n, shard, lane);
    }
    [[unroll]] for (uint i = 0; i < 4 * N4; i++) {
        const uint row = (i / 4 * SHARDS + shard) * 4 + i % 4;
        if (row < p.key_dim && col < p.value_dim)
            Floats(s.after + at).v[row * p.value_dim + col] = state[i / 4][i % 4];
    }
}

#version 460
// SPDX-License-Identifier: MIT
// The gated delta rule. A workgroup has COLS columns of the state of one value head (y) of one
// sequence (z), kept in registers over all rows of its run: a column is cut into SHARDS, one for
// each invocation. Per token two sums go over the shards, through shared memory, with one barrier:
// the second is read after the next token's. Queries, keys and gates are made ready for TOKENS rows
// at a time, by every workgroup for itself.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 1) const uint N4 = 4; // vec4s of a shard

const uint COLS = 32, SHARDS = 8, TOKENS = 8;
const uint KEYS4 = N4 * SHARDS; // of a head's key, filled up with zeros

layout(push_constant, scalar) uniform Push {
    Floats qkv, a, b, a_log, dt_bias, result;
    Sequences sequences;
    uint64_t state_offset;
    uint n_k_heads, n_v_heads, key_dim, value_dim;
    float eps, q_scale;
    Single single;
} p;

shared vec4 keys[TOKENS * KEYS4], queries[TOKENS * KEYS4];
shared float values[TOKENS * COLS];
shared float decays[TOKENS], betas[TOKENS];
shared float squares[2 * TOKENS * 16], factors[2 * TOKENS];
shared float foretold[2 * SHARDS * COLS], outputs[2 * SHARDS * COLS];

// log(1 + e), 0 <= e <= 1: log of a device is coarse near 1
float log1p(float e)
{
    const float z = e / (2.0 + e), y = z * z;
    float sum = 1.0 / 17.0;
    sum = sum * y + 1.0 / 15.0;
    sum = sum * y + 1.0 / 13.0;
    sum = sum * y + 1.0 / 11.0;
    sum = sum * y + 1.0 / 9.0;
    sum = sum * y + 1.0 / 7.0;
    sum = sum * y + 1.0 / 5.0;
    sum = sum * y + 1.0 / 3.0;
    return 2.0 * (z + z * y * sum);
}

float softplus(float x)
{
    return max(x, 0.0) + log1p(exp(-abs(x)));
}

float squared(vec4 x)
{
    const vec4 y = x * x;
    return (y.x + y.y) + (y.z + y.w);
}

// Rows first .. first + n - 1 of the batch, n <= TOKENS. All that comes from memory is asked for before
// anything is waited for.
void make_ready(uint first, uint n)
{
    const uint t = gl_LocalInvocationID.x, head = gl_WorkGroupID.y;
    const uint key_head = head / (p.n_v_heads / p.n_k_heads);
    const uint n_keys = p.n_k_heads * p.key_dim, width = 2 * n_keys + p.n_v_heads * p.value_dim;
    const uint token = t / COLS, col = gl_WorkGroupID.x * COLS + t % COLS;
    float a = 0.0, b = 0.0, a_log = 0.0, dt_bias = 0.0, value = 0.0;
    if (t < n) {
        const uint at = (first + t) * p.n_v_heads + head;
        a = p.a.v[at];
        b = p.b.v[at];
        a_log = p.a_log.v[head];
        dt_bias = p.dt_bias.v[head];
    }
    if (token < n && col < p.value_dim)
        value = Floats(uint64_t(p.qkv) + uint64_t(first + token) * width * 4)
                    .v[2 * n_keys + head * p.value_dim + col];
    for (uint i = t; i < n * KEYS4; i += gl_WorkGroupSize.x) {
        const uint at = i % KEYS4 * 4;
        Floats row = Floats(uint64_t(p.qkv) + uint64_t(first + i / KEYS4) * width * 4);
        vec4 q = vec4(0.0), k = vec4(0.0);
        [[unroll]] for (uint j = 0; j < 4; j++)
            if (at + j < p.key_dim) {
                q[j] = row.v[key_head * p.key_dim + at + j];
                k[j] = row.v[n_keys + key_head * p.key_dim + at + j];
            }
        queries[i] = q;
        keys[i] = k;
    }
    values[t] = value;
    if (t < n) {
        decays[t] = exp(-exp(a_log) * softplus(a + dt_bias));
        betas[t] = sigmoid(b);
    }
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
    float sum = 0.0;
    [[unroll]] for (uint i = 0; i < SHARDS; i++) {
        const uint at = (turn * SHARDS + i) * COLS + col;
        sum += is_output ? outputs[at] : foretold[at];
    }
    return sum;
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
    vec4 state[N4];
    [[unroll]] for (uint i = 0; i < 4 * N4; i++) {
        const uint row = shard * N4 * 4 + i;
        state[i / 4][i % 4] = s.before != 0 && row < p.key_dim && col < p.value_dim
                                  ? Floats(s.before + at).v[row * p.value_dim + col]
                                  : 0.0;
    }
    for (uint first = 0; first < s.n_rows; first += TOKENS) {
        const uint n = min(s.n_rows - first, TOKENS);
        make_ready(s.first_row + first, n);
        for (uint t = 0; t <= n; t++) {
            const uint turn = t & 1, key = t * KEYS4 + shard * N4;
            vec4 sum = vec4(0.0);
            if (t < n) {
                [[unroll]] for (uint i = 0; i < N4; i++) {
                    state[i] *= decays[t];
                    sum += state[i] * keys[key + i];
                }
                foretold[(turn * SHARDS + shard) * COLS + lane] = (sum.x + sum.y) + (sum.z + sum.w);
            }
            barrier();
            if (t > 0 && shard == (t & 7) && col < p.value_dim) {
                const uint64_t row = s.first_row + first + t - 1;
                Floats(uint64_t(p.result) + row * p.n_v_heads * p.value_dim * 4)
                    .v[head * p.value_dim + col] = sum_of_shards(true, turn ^ 1, lane);
            }
            if (t < n) {
                const float delta =
                    (values[t * COLS + lane] - sum_of_shards(false, turn, lane)) * betas[t];
                sum = vec4(0.0);
                [[unroll]] for (uint i = 0; i < N4; i++) {
                    state[i] += keys[key + i] * delta;
                    sum += state[i] * queries[key + i];
                }
                outputs[(turn * SHARDS + shard) * COLS + lane] = (sum.x + sum.y) + (sum.z + sum.w);
            }
        }
        // the next rows' overwrite what the last pass has not read: keys, queries, values
    }
    [[unroll]] for (uint i = 0; i < 4 * N4; i++) {
        const uint row = shard * N4 * 4 + i;
        if (row < p.key_dim && col < p.value_dim)
            Floats(s.after + at).v[row * p.value_dim + col] = state[i / 4][i % 4];
    }
}

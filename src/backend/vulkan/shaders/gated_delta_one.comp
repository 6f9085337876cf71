#version 460
// SPDX-License-Identifier: MIT
// gated_delta.comp's rule for sequences of one row each, as when several decode together: a workgroup has
// 128 columns of one value head's state (y) of one sequence (z), an invocation four columns of a shard of
// their rows, so that all loads and stores are of 16 bytes. The sums are gated_delta.comp's, in its order.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "gated_delta.glsl"

layout(constant_id = 1) const uint N4 = 4; // quads of rows of a shard

const uint QUADS = 32, SHARDS = 8; // of columns; 256 invocations
const uint KEYS4 = N4 * SHARDS;    // of a head's key
const uint NORM_LANES = 16;        // of a vector's norm

layout(push_constant, scalar) uniform Push {
    Floats4 qkv;
    Floats a, b, a_log, dt_bias;
    Floats4 result;
    Sequences sequences;
    uint64_t state_offset;
    uint n_k_heads, n_v_heads, key_dim, value_dim;
    float eps, q_scale;
    uint is_tiled;
} p;

shared vec4 vectors[2 * KEYS4]; // the query, the key
shared float squares[2 * NORM_LANES];
shared vec4 sums[SHARDS * QUADS];

vec4 state[4 * N4]; // of four columns: rows of the shard, four after another

float factor_of(uint vector)
{
    float sum = 0.0;
    [[unroll]] for (uint i = 0; i < NORM_LANES; i++)
        sum += squares[vector * NORM_LANES + i];
    return inversesqrt(sum + p.eps) * (vector == 0 ? p.q_scale : 1.0);
}

// A query's or key's quad goes with each of four rows.
vec4 sum4(vec4 s[4])
{
    return (s[0] + s[1]) + (s[2] + s[3]);
}

vec4 sum_of_shards(uint quad)
{
    vec4 s[SHARDS];
    [[unroll]] for (uint i = 0; i < SHARDS; i++)
        s[i] = sums[i * QUADS + quad];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

// The value that the state foretells for the key, of the shard.
vec4 foretell(float decay, float factor, uint shard)
{
    vec4 sum[4] = {vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0)};
    [[unroll]] for (uint i = 0; i < N4; i++) {
        const vec4 key = vectors[KEYS4 + i * SHARDS + shard] * factor;
        [[unroll]] for (uint e = 0; e < 4; e++) {
            state[4 * i + e] *= decay;
            sum[e] = fma(state[4 * i + e], vec4(key[e]), sum[e]);
        }
    }
    return sum4(sum);
}

// The state learns; the output, of the shard.
vec4 learn(vec4 delta, float factor, float q_factor, uint shard)
{
    vec4 sum[4] = {vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0)};
    [[unroll]] for (uint i = 0; i < N4; i++) {
        const vec4 key = vectors[KEYS4 + i * SHARDS + shard] * factor;
        const vec4 query = vectors[i * SHARDS + shard] * q_factor;
        [[unroll]] for (uint e = 0; e < 4; e++) {
            state[4 * i + e] = fma(vec4(key[e]), delta, state[4 * i + e]);
            sum[e] = fma(state[4 * i + e], vec4(query[e]), sum[e]);
        }
    }
    return sum4(sum);
}

void main()
{
    const uint t = gl_LocalInvocationID.x, quad = t % QUADS, shard = t / QUADS;
    const uint head = gl_WorkGroupID.y, col4 = gl_WorkGroupID.x * QUADS + quad;
    const Sequence s = p.sequences.v[gl_WorkGroupID.z];
    const uint row_quads = p.value_dim / 4;
    const uint64_t at = p.state_offset + uint64_t(head) * p.key_dim * p.value_dim * 4;
    [[unroll]] for (uint i = 0; i < 4 * N4; i++) {
        const uint row = (i / 4 * SHARDS + shard) * 4 + i % 4;
        state[i] = vec4(0.0);
        if (s.before != 0)
            state[i] = Floats4(s.before + at).v[row * row_quads + col4];
    }
    // key heads by turns where they are tiled, else in runs
    const uint key_head = p.is_tiled != 0 ? head % p.n_k_heads : head / (p.n_v_heads / p.n_k_heads);
    const uint n_keys4 = p.n_k_heads * p.key_dim / 4, n_values4 = p.n_v_heads * row_quads;
    const uint row = s.first_row * (2 * n_keys4 + n_values4);
    const uint gate = s.first_row * p.n_v_heads + head;
    if (t < 2 * KEYS4)
        vectors[t] = p.qkv.v[row + t / KEYS4 * n_keys4 + key_head * KEYS4 + t % KEYS4];
    const vec4 value = p.qkv.v[row + 2 * n_keys4 + head * row_quads + col4];
    const float decay = decay_of(p.a_log.v[head], p.a.v[gate] + p.dt_bias.v[head]);
    const float beta = sigmoid(p.b.v[gate]);
    barrier();
    if (t < 2 * NORM_LANES) {
        float sum = 0.0;
        for (uint i = t % NORM_LANES; i < KEYS4; i += NORM_LANES)
            sum += squared(vectors[t / NORM_LANES * KEYS4 + i]);
        squares[t] = sum;
    }
    barrier();
    const float q_factor = factor_of(0), factor = factor_of(1);
    sums[t] = foretell(decay, factor, shard);
    barrier();
    const vec4 delta = (value - sum_of_shards(quad)) * beta;
    const vec4 sum = learn(delta, factor, q_factor, shard);
    barrier(); // the others' have been read
    sums[t] = sum;
    [[unroll]] for (uint i = 0; i < 4 * N4; i++) {
        const uint to = (i / 4 * SHARDS + shard) * 4 + i % 4;
        Floats4(s.after + at).v[to * row_quads + col4] = state[i];
    }
    barrier();
    if (shard == 0)
        p.result.v[s.first_row * n_values4 + head * row_quads + col4] = sum_of_shards(quad);
}

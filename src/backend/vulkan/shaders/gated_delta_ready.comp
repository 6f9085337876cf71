#version 460
// SPDX-License-Identifier: MIT
// Queries, keys and gates of the delta rule made ready for gated_delta_long.comp: a workgroup's y is
// a row of the batch, its x runs of 16 of its queries and keys, which are normed in place. With KEYED
// the gates, too, become what they stand for in place.
//! variant gated_delta_ready
//! variant keyed_delta_ready -DKEYED
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "gated_delta.glsl"

layout(push_constant, scalar) uniform Push {
#ifdef KEYED
    Floats q, k, a, b, a_log, dt_bias;
    uint n_k_heads, key_dim;
#else
    Floats qkv, a, b, a_log, dt_bias;
    Floats gates; // [rows, 2, n_v_heads]: decays, betas
    uint n_k_heads, n_v_heads, key_dim, value_dim;
#endif
    float eps, q_scale;
} p;

const uint TEAM = 16;

shared float squares[16 * TEAM];

void main()
{
    const uint t = gl_LocalInvocationID.x, lane = t % TEAM, row = gl_WorkGroupID.y;
    const uint vector = gl_WorkGroupID.x * (gl_WorkGroupSize.x / TEAM) + t / TEAM;
#ifdef KEYED
    const bool is_there = vector < 2 * p.n_k_heads;
    const uint head = vector % p.n_k_heads, n_keys = p.n_k_heads * p.key_dim;
    Floats x = Floats((vector < p.n_k_heads ? uint64_t(p.q) : uint64_t(p.k)) +
                      (uint64_t(row) * n_keys + head * p.key_dim) * 4);
#else
    const uint width = 2 * p.n_k_heads * p.key_dim + p.n_v_heads * p.value_dim;
    const bool is_there = vector < 2 * p.n_k_heads;
    Floats x = Floats(uint64_t(p.qkv) + (uint64_t(row) * width + vector * p.key_dim) * 4);
#endif
    float sum = 0.0;
    for (uint at = lane * 4; at < p.key_dim && is_there; at += TEAM * 4) {
        vec4 v = vec4(0.0);
        [[unroll]] for (uint j = 0; j < 4; j++)
            if (at + j < p.key_dim)
                v[j] = x.v[at + j];
        sum += squared(v);
    }
    squares[t] = sum;
    barrier();
    sum = 0.0;
    for (uint i = 0; i < TEAM; i++)
        sum += squares[t / TEAM * TEAM + i];
    const float factor = inversesqrt(sum + p.eps) * (vector < p.n_k_heads ? p.q_scale : 1.0);
    for (uint at = lane * 4; at < p.key_dim && is_there; at += TEAM * 4)
        [[unroll]] for (uint j = 0; j < 4; j++)
            if (at + j < p.key_dim)
                x.v[at + j] *= factor;
#ifdef KEYED
    Floats a = Floats(uint64_t(p.a) + uint64_t(row) * n_keys * 4);
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_WorkGroupID.x * gl_WorkGroupSize.x + t; i < n_keys; i += step)
        a.v[i] = decay_of(p.a_log.v[i / p.key_dim], a.v[i] + p.dt_bias.v[i]);
    for (uint i = t; i < p.n_k_heads && gl_WorkGroupID.x == 0; i += gl_WorkGroupSize.x)
        p.b.v[row * p.n_k_heads + i] = sigmoid(p.b.v[row * p.n_k_heads + i]);
#else
    for (uint head = t; head < p.n_v_heads && gl_WorkGroupID.x == 0; head += gl_WorkGroupSize.x) {
        const uint at = row * p.n_v_heads + head, to = row * 2 * p.n_v_heads + head;
        p.gates.v[to] = decay_of(p.a_log.v[head], p.a.v[at] + p.dt_bias.v[head]);
        p.gates.v[to + p.n_v_heads] = sigmoid(p.b.v[at]);
    }
#endif
}

#version 460
// SPDX-License-Identifier: MIT
// What an indexer makes of the keys that a row sees: a workgroup has KEYS of them (x) for a row (y).
// An entry's key stands for `rate` positions (1: it is a position's own). Left are numbers that are
// in the order of the scores; nothing where a row sees no more keys than are chosen. A score's sum
// has the same order for every row: head by head within a team, then team by team.
//! variant index_scores
//! variant index_scores_bf16 -DBF16_CACHE
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "index.glsl"

layout(constant_id = 1) const uint IS_ALIGNED = 0; // for loads of 4 values
#include "quads.glsl"

layout(push_constant, scalar) uniform Push {
    uint64_t q, weights; // of the first row: [rows, n_heads, dim], [rows, n_heads]
    uint64_t scores;     // [rows, 2, n_room]
    Sequences sequences;
    uint64_t key_offset;
    uint n_sequences, first_row, n_heads, dim, rate, n_most, n_room;
    float scale;
} p;

const uint THREADS = 256, PAGE = 32; // MF_PAGE_TOKENS
const uint KEYS = 64, HEADS = 64;    // of a tile
const uint EACH = 4;                 // keys, and heads, of an invocation
const uint LANES = KEYS / EACH, TEAMS = HEADS / EACH;
const uint SLICE = 4, STRIDE = SLICE + 1; // vectors of 4; one more than needed, for the banks

// Slices of the queries and of the keys, then the sums of teams.
shared vec4 memory[(HEADS + KEYS) * STRIDE];

// Where key i of the row begins.
uint64_t key_at(Sequence s, uint i)
{
    const uint last = (i + 1) * p.rate - 1, place = p.rate < PAGE ? last % PAGE / p.rate : 0;
#ifdef BF16_CACHE
    const uint n_bytes = p.dim * 2;
#else
    const uint n_bytes = p.dim * 4;
#endif
    return Addresses(s.pages).v[last / PAGE] + p.key_offset + uint64_t(place) * n_bytes;
}

// Columns 4i .. 4i + 3 of a key, zeros beyond its end.
vec4 load_key(uint64_t key, uint i)
{
#ifdef BF16_CACHE
    if (IS_ALIGNED != 0) {
        if (4 * i >= p.dim)
            return vec4(0.0);
        const uvec2 x = Words2(key).v[i];
        return uintBitsToFloat(uvec4(x.x << 16, x.x & 0xffff0000u, x.y << 16, x.y & 0xffff0000u));
    }
    vec4 v = vec4(0.0);
    [[unroll]] for (uint e = 0; e < 4; e++)
        if (4 * i + e < p.dim)
            v[e] = bfloat_to_float(uint(Halves(key).v[4 * i + e]));
    return v;
#else
    return load_quad(key, i, p.dim);
#endif
}

// scores[i][j]: of head i and key j of the invocation.
void add_slice(inout float scores[EACH * EACH], uint head, uint key)
{
    [[unroll]] for (uint d = 0; d < SLICE; d++) {
        vec4 k[EACH];
        [[unroll]] for (uint j = 0; j < EACH; j++)
            k[j] = memory[(HEADS + key + j * LANES) * STRIDE + d];
        [[unroll]] for (uint i = 0; i < EACH; i++) {
            const vec4 q = memory[(head + i) * STRIDE + d];
            [[unroll]] for (uint j = 0; j < EACH; j++) {
                float sum = scores[i * EACH + j];
                sum = fma(q.x, k[j].x, sum);
                sum = fma(q.y, k[j].y, sum);
                sum = fma(q.z, k[j].z, sum);
                scores[i * EACH + j] = fma(q.w, k[j].w, sum);
            }
        }
    }
}

// Heads first .. first + HEADS - 1 are added to the invocation's sums of its keys. my_key: the key
// whose slices it fetches; 0: there is none.
void add_heads(uint first, uint64_t my_key, inout float sums[EACH])
{
    const uint t = gl_LocalInvocationID.x, line = t / SLICE, column = t % SLICE;
    const uint key = t % LANES, head = t / LANES * EACH;
    const uint n_quads = (p.dim + 3) / 4;
    const uint64_t row = gl_WorkGroupID.y;
    const uint64_t my_query = p.q + (row * p.n_heads + first + line) * p.dim * 4;
    float scores[EACH * EACH];
    [[unroll]] for (uint i = 0; i < EACH * EACH; i++)
        scores[i] = 0.0;
    [[dont_unroll]] for (uint slice = 0; slice < n_quads; slice += SLICE) {
        const bool has_query = first + line < p.n_heads;
        const vec4 q = has_query ? load_quad(my_query, slice + column, p.dim) : vec4(0.0);
        const vec4 k = my_key != 0 ? load_key(my_key, slice + column) : vec4(0.0);
        barrier(); // what lay there has been read
        memory[line * STRIDE + column] = q;
        memory[(HEADS + line) * STRIDE + column] = k;
        barrier();
        add_slice(scores, head, key);
    }
    [[unroll]] for (uint i = 0; i < EACH; i++) {
        const uint at = first + head + i;
        const float weight = at < p.n_heads ? Floats(p.weights + (row * p.n_heads + at) * 4).v[0]
                                            : 0.0;
        [[unroll]] for (uint j = 0; j < EACH; j++)
            sums[j] = fma(max(scores[i * EACH + j] * p.scale, 0.0), weight, sums[j]);
    }
}

void main()
{
    const uint t = gl_LocalInvocationID.x, row = p.first_row + gl_WorkGroupID.y;
    const Sequence s = p.sequences.v[sequence_of(p.sequences, p.n_sequences, row)];
    const uint n = n_keys_seen(s, row, p.rate), first = gl_WorkGroupID.x * KEYS;
    if (n <= p.n_most || first >= n)
        return;
    const uint mine = first + t / SLICE;
    const uint64_t my_key = mine < n ? key_at(s, mine) : 0;
    float sums[EACH];
    [[unroll]] for (uint j = 0; j < EACH; j++)
        sums[j] = 0.0;
    [[dont_unroll]] for (uint head = 0; head < p.n_heads; head += HEADS)
        add_heads(head, my_key, sums);
    barrier();
    [[unroll]] for (uint j = 0; j < EACH; j++) // [KEYS, TEAMS]
        memory[(t % LANES + j * LANES) * (TEAMS / 4 + 1) + t / LANES / 4][t / LANES % 4] = sums[j];
    barrier();
    if (t >= KEYS || first + t >= n)
        return;
    float sum = 0.0;
    [[unroll]] for (uint i = 0; i < TEAMS / 4; i++) {
        const vec4 x = memory[t * (TEAMS / 4 + 1) + i];
        sum += (x.x + x.y) + (x.z + x.w);
    }
    const uint64_t at = p.scores + uint64_t(gl_WorkGroupID.y) * 8 * p.n_room;
    Words(at).v[first + t] = in_order(sum);
}

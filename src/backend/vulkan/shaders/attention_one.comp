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
const uint LOADS = BLOCK * SLICE4 / THREADS, N_SLICES = HEAD / SLICE; // LOADS: of a slice
const uint N_LOADS = LOADS * N_SLICES;
const uint WIDTH = N_KEYS * HEAD, BYTES = TYPE == F32 ? 4 : 2;

shared vec4 keys[BLOCK * STRIDE];
shared vec4 queries[QUERIES * HEAD4];
shared vec4 powers[QUERIES * BLOCK / 4];

uvec4 keys_ahead[N_LOADS];
uint values_ahead[BLOCK];

vec4 unpacked(uvec4 x)
{
    if (TYPE == F32)
        return uintBitsToFloat(x);
    return uintBitsToFloat(uvec4(x.x << 16, x.x & 0xffff0000u, x.y << 16, x.y & 0xffff0000u));
}

// As it will be read from the cache.
float kept(float x)
{
    return TYPE == F32 ? x : uintBitsToFloat(bfloat_of(x) << 16);
}

uvec4 load_quad(uint64_t row, uint quad)
{
    if (TYPE == F32)
        return floatBitsToUint(Floats4(row).v[quad]);
    return uvec4(Words2(row).v[quad], 0, 0);
}

uint load_value(uint64_t row, uint col)
{
    return TYPE == F32 ? Words(row).v[col] : uint(Halves(row).v[col]) << 16;
}

// Those of the block's positions before `limit`; of others zeros.
void load_keys(uint64_t first, uint64_t last, uint limit, uint t)
{
    [[unroll]] for (uint i = 0; i < N_LOADS; i++) {
        const uint key = i % LOADS * (THREADS / SLICE4) + t / SLICE4;
        const uint64_t page = i % LOADS * (THREADS / SLICE4) < PAGE ? first : last;
        keys_ahead[i] = uvec4(0);
        if (key < limit)
            keys_ahead[i] = load_quad(page + key % PAGE * (WIDTH * BYTES),
                                      i / LOADS * SLICE4 + t % SLICE4);
    }
}

void load_values(uint64_t first, uint64_t last, uint limit, uint col)
{
    [[unroll]] for (uint i = 0; i < BLOCK; i++) {
        values_ahead[i] = 0;
        if (i < limit)
            values_ahead[i] = load_value((i < PAGE ? first : last) + i % PAGE * (WIDTH * BYTES), col);
    }
}

// The score of a query and a key; every invocation comes here. fresh_k: a quad of the row that is
// appended, of whoever has the quad's number; it is position `fresh` of the block.
float score(uint t, uint query, uint key, vec4 fresh_k, uint fresh)
{
    float sum = 0.0;
    [[unroll]] for (uint s = 0; s < N_SLICES; s++) {
        if (s != 0)
            barrier();
        [[unroll]] for (uint i = 0; i < LOADS; i++) {
            const uint k = i * (THREADS / SLICE4) + t / SLICE4;
            if (k != fresh)
                keys[k * STRIDE + t % SLICE4] = unpacked(keys_ahead[s * LOADS + i]);
        }
        if (fresh < BLOCK && t / SLICE4 == s)
            keys[fresh * STRIDE + t % SLICE4] = fresh_k;
        barrier();
        if (query < QUERIES)
            [[dont_unroll]] for (uint d = 0; d < SLICE4; d += 8)
                [[unroll]] for (uint e = 0; e < 8; e++) {
                    const vec4 x = queries[query * HEAD4 + s * SLICE4 + d + e];
                    const vec4 k = keys[key * STRIDE + d + e];
                    sum = fma(x.x, k.x, sum);
                    sum = fma(x.y, k.y, sum);
                    sum = fma(x.z, k.z, sum);
                    sum = fma(x.w, k.w, sum);
                }
    }
    return sum;
}

float most_of(uint query)
{
    vec4 most = powers[query * BLOCK / 4];
    [[unroll]] for (uint i = 1; i < BLOCK / 4; i++)
        most = max(most, powers[query * BLOCK / 4 + i]);
    return ceil(max(max(most.x, most.y), max(most.z, most.w)));
}

float sum_of(uint query)
{
    float sums[4];
    [[unroll]] for (uint l = 0; l < 4; l++) {
        sums[l] = 0.0;
        [[unroll]] for (uint i = 0; i < BLOCK / 16; i++) {
            const vec4 x = powers[query * BLOCK / 4 + l * BLOCK / 16 + i];
            sums[l] += (x.x + x.y) + (x.z + x.w);
        }
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

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
    load_keys(first + p.k_offset + head_at, last + p.k_offset + head_at, limit, t);
    load_values(first + p.v_offset + head_at, last + p.v_offset + head_at, t < HEAD ? limit : 0, t);
    for (uint i = t; i < QUERIES * HEAD4; i += THREADS)
        queries[i] =
            i / HEAD4 < n_queries ? Floats4(uint64_t(p.q)).v[first_head * HEAD4 + i] : vec4(0.0);
    const float sum = score(t, query, key, fresh_k, fresh);
    const bool is_seen = base + key <= p.position && base + key >= first_seen(p.window, p.position);
    const float x = is_seen ? sum * p.scale : NOTHING;
    if (query < QUERIES)
        powers[t / 4][t % 4] = x;
    barrier();
    float most[QUERIES];
    [[unroll]] for (uint i = 0; i < QUERIES; i++)
        most[i] = most_of(i);
    barrier();
    [[unroll]] for (uint i = 0; i < QUERIES; i++)
        if (query == i)
            powers[t / 4][t % 4] = x > NOTHING ? exp2(x - most[i]) : 0.0;
    barrier();
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
            put(first_head + i, gl_WorkGroupID.z, t, sums[i], most[i], sum_of(i));
}

#version 460
// SPDX-License-Identifier: MIT
// Attention of a tile of queries over the cached rows of its sequence. The queries are the heads
// that share a key head (y), row by row. Not SPLIT, a workgroup goes over all blocks of positions and
// keeps what it has merged in registers; SPLIT, it has one block (z), and attention_merge follows.
// LATENT: one key head, all of a cached row being its key and the beginning of it its value.
//! variant attention
//! variant attention_latent -DLATENT
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"

layout(constant_id = 1) const uint TYPE = F32;
layout(constant_id = 2) const uint IS_ALIGNED = 0; // for loads of 16 bytes
layout(constant_id = 3) const uint IS_SPLIT = 0;
layout(constant_id = 4) const uint QUERIES = 8;   // of a tile
layout(constant_id = 5) const uint KEYS_EACH = 2; // scores of an invocation: keys of
layout(constant_id = 6) const uint ROWS_EACH = 1; // each of so many queries
layout(constant_id = 7) const uint DIMS = 2;      // invocations side by side, with 4 values each,
layout(constant_id = 8) const uint SUMS_EACH = 1; // for so many queries each

const uint SLICE = 32, STRIDE = SLICE / 4 + 1; // vec4s; one more than needed, for the banks
const uint KEY_LANES = BLOCK / KEYS_EACH;
const uint P_STRIDE = BLOCK / 4 + 1;
const uint LANES = 4; // for the softmax of a query

// From row `first_row` of the operation on, at `position`, query i of the tile is head
// (first_query + i) % per_key of row (first_query + i) / per_key.
struct Tile {
    uint first_row, position, first_query, n_queries;
    uint64_t pages;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Tiles { Tile v[]; };

layout(push_constant, scalar) uniform Push {
    Floats q;
    Floats q_rot; // or the sinks
    Floats result;
    Floats sums; // SPLIT: [rows, heads, blocks, value_dim]
    Floats ends; // SPLIT: [rows, heads, blocks, 2], maximum and sum
    Tiles tiles;
    uint64_t k_offset, v_offset;
    uint n_heads, n_kv_heads;
    uint key_dim, value_dim, q_rot_row, q_rot_head;
    uint window, first_block, n_blocks;
    float scale; // and log2(e)
} p;

// First slices of the queries and of the block's keys, then what has become of their scores.
shared vec4 memory[QUERIES * P_STRIDE > (QUERIES + BLOCK) * STRIDE ? QUERIES * P_STRIDE
                                                                  : (QUERIES + BLOCK) * STRIDE];
shared float parts[QUERIES * LANES];
shared float old_factors[QUERIES], new_factors[QUERIES];

Tile tile;
uint per_key;

uint row_of(uint query)
{
    return tile.first_row + (tile.first_query + query) / per_key;
}

uint position_of(uint query)
{
    return tile.position + (tile.first_query + query) / per_key;
}

uint head_of(uint query)
{
    return gl_WorkGroupID.y * per_key + (tile.first_query + query) % per_key;
}

// 4 values from an array of floats.
vec4 load4(uint64_t array, uint n)
{
    if (IS_ALIGNED != 0)
        return Floats4(array).v[0];
    vec4 x = vec4(0.0);
    [[unroll]] for (uint i = 0; i < 4; i++)
        if (i < n)
            x[i] = Floats(array).v[i];
    return x;
}

// Dims d .. d + 3 of a query, 0 beyond the last.
vec4 load_query(uint query, uint d)
{
    if (query >= tile.n_queries || d >= p.key_dim)
        return vec4(0.0);
    const uint64_t row = row_of(query), head = head_of(query);
#ifdef LATENT
    Floats q = Floats(uint64_t(p.q) + (row * p.n_heads + head) * p.value_dim * 4);
    Floats rot = Floats(uint64_t(p.q_rot) + (row * p.q_rot_row + head * p.q_rot_head) * 4);
    if (IS_ALIGNED != 0)
        return Floats4(d < p.value_dim ? uint64_t(q) + d * 4
                                       : uint64_t(rot) + (d - p.value_dim) * 4).v[0];
    vec4 x = vec4(0.0);
    [[unroll]] for (uint i = 0; i < 4; i++)
        if (d + i < p.key_dim)
            x[i] = d + i < p.value_dim ? q.v[d + i] : rot.v[d + i - p.value_dim];
    return x;
#else
    return load4(uint64_t(p.q) + ((row * p.n_heads + head) * p.key_dim + d) * 4, p.key_dim - d);
#endif
}

// n values, at most 4, of the cache from the i-th of a page's array on.
vec4 load_cached(uint64_t array, uint i, uint n)
{
    if (TYPE == F32)
        return load4(array + i * 4, n);
    if (IS_ALIGNED != 0) {
        const uvec2 w = uvec2(Words(array + i * 2).v[0], Words(array + i * 2).v[1]);
        return uintBitsToFloat(uvec4(w.x << 16, w.x & 0xffff0000u, w.y << 16, w.y & 0xffff0000u));
    }
    vec4 x = vec4(0.0);
    [[unroll]] for (uint j = 0; j < 4; j++)
        if (j < n)
            x[j] = bfloat_to_float(uint(Halves(array + i * 2).v[j]));
    return x;
}

// A slice of the queries and of the keys of the block's first n_keys positions.
void load_slice(uint64_t pages[2], uint n_keys, uint width, uint slice)
{
    const uint t = gl_LocalInvocationID.x;
    for (uint i = t; i < QUERIES * (SLICE / 4); i += gl_WorkGroupSize.x)
        memory[i / 8 * STRIDE + i % 8] = load_query(i / 8, slice + i % 8 * 4);
    for (uint i = t; i < BLOCK * (SLICE / 4); i += gl_WorkGroupSize.x) {
        const uint key = i / 8, d = slice + i % 8 * 4;
        vec4 x = vec4(0.0);
        if (key < n_keys && d < p.key_dim)
            x = load_cached(key < PAGE ? pages[0] : pages[1],
                            key % PAGE * width + gl_WorkGroupID.y * p.key_dim + d, p.key_dim - d);
        memory[(QUERIES + key) * STRIDE + i % 8] = x;
    }
}

// The block's scores, in powers of two, into memory: [QUERIES, BLOCK]
void score(uint64_t pages[2], uint base, uint n_keys, uint width)
{
    const uint t = gl_LocalInvocationID.x, key = t % KEY_LANES, query = t / KEY_LANES * ROWS_EACH;
    float sums[ROWS_EACH * KEYS_EACH];
    [[unroll]] for (uint i = 0; i < ROWS_EACH * KEYS_EACH; i++)
        sums[i] = 0.0;
    for (uint slice = 0; slice < p.key_dim; slice += SLICE) {
        barrier(); // what lay there has been read
        load_slice(pages, n_keys, width, slice);
        barrier();
        if (query < QUERIES)
            [[unroll]] for (uint d = 0; d < SLICE / 4; d++) {
                vec4 k[KEYS_EACH];
                [[unroll]] for (uint j = 0; j < KEYS_EACH; j++)
                    k[j] = memory[(QUERIES + key + j * KEY_LANES) * STRIDE + d];
                [[unroll]] for (uint i = 0; i < ROWS_EACH; i++) {
                    const vec4 q = memory[(query + i) * STRIDE + d];
                    [[unroll]] for (uint j = 0; j < KEYS_EACH; j++) {
                        float sum = sums[i * KEYS_EACH + j];
                        sum = fma(q.x, k[j].x, sum);
                        sum = fma(q.y, k[j].y, sum);
                        sum = fma(q.z, k[j].z, sum);
                        sums[i * KEYS_EACH + j] = fma(q.w, k[j].w, sum);
                    }
                }
            }
    }
    barrier();
    if (query < QUERIES)
        [[unroll]] for (uint i = 0; i < ROWS_EACH; i++)
            [[unroll]] for (uint j = 0; j < KEYS_EACH; j++) {
                const uint k = key + j * KEY_LANES, position = position_of(query + i);
                const bool is_seen = query + i < tile.n_queries && base + k <= position &&
                                     (p.window == 0 || base + k + p.window > position);
                memory[(query + i) * P_STRIDE + k / 4][k % 4] =
                    is_seen ? sums[i * KEYS_EACH + j] * p.scale : NOTHING;
            }
    barrier();
}

// Of the query that invocation t has with LANES - 1 others: the block's maximum; its scores become
// powers, whose sum is in parts[query * LANES ..] after the next barrier.
float soften(uint t)
{
    const uint first = t / LANES * P_STRIDE + t % LANES * (BLOCK / 4 / LANES);
    float most = NOTHING;
    if (t < QUERIES * LANES) {
        [[unroll]] for (uint i = 0; i < BLOCK / 4 / LANES; i++) {
            const vec4 x = memory[first + i];
            most = max(most, max(max(x.x, x.y), max(x.z, x.w)));
        }
        parts[t] = most;
    }
    barrier();
    if (t < QUERIES * LANES) {
        const uint q = t / LANES * LANES;
        most = ceil(max(max(parts[q], parts[q + 1]), max(parts[q + 2], parts[q + 3])));
    }
    barrier();
    if (t < QUERIES * LANES) {
        float sum = 0.0;
        [[unroll]] for (uint i = 0; i < BLOCK / 4 / LANES; i++) {
            vec4 x = memory[first + i];
            [[unroll]] for (uint j = 0; j < 4; j++)
                x[j] = x[j] > NOTHING ? exp2(x[j] - most) : 0.0;
            memory[first + i] = x;
            sum += (x.x + x.y) + (x.z + x.w);
        }
        parts[t] = sum;
    }
    return most;
}

// Values 4 * lane .. of the block, weighted, for SUMS_EACH queries from `first` on.
void weigh(uint64_t pages[2], uint n_keys, uint width, uint first, out vec4 sums[SUMS_EACH])
{
    const uint d = gl_LocalInvocationID.x % DIMS * 4, at = gl_WorkGroupID.y * p.value_dim + d;
    [[unroll]] for (uint i = 0; i < SUMS_EACH; i++)
        sums[i] = vec4(0.0);
    if (d >= p.value_dim || first >= QUERIES)
        return;
    for (uint key = 0; key < n_keys; key += 4) {
        const uint64_t page = key < PAGE ? pages[0] : pages[1];
        vec4 v[4];
        [[unroll]] for (uint j = 0; j < 4; j++)
            v[j] = key + j < n_keys
                       ? load_cached(page, (key + j) % PAGE * width + at, p.value_dim - d)
                       : vec4(0.0);
        [[unroll]] for (uint i = 0; i < SUMS_EACH; i++) {
            const vec4 x = memory[(first + i) * P_STRIDE + key / 4];
            sums[i] = fma(x.xxxx, v[0], sums[i]);
            sums[i] = fma(x.yyyy, v[1], sums[i]);
            sums[i] = fma(x.zzzz, v[2], sums[i]);
            sums[i] = fma(x.wwww, v[3], sums[i]);
        }
    }
}

void store(uint64_t array, uint d, vec4 x)
{
    if (IS_ALIGNED != 0) {
        Floats4(array + d * 4).v[0] = x;
        return;
    }
    [[unroll]] for (uint i = 0; i < 4; i++)
        if (d + i < p.value_dim)
            Floats(array).v[d + i] = x[i];
}

void main()
{
    const uint t = gl_LocalInvocationID.x, d = t % DIMS * 4, first = t / DIMS * SUMS_EACH;
    per_key = p.n_heads / p.n_kv_heads;
    tile = p.tiles.v[gl_WorkGroupID.x];
    const uint low = position_of(0), high = position_of(tile.n_queries - 1);
    uint block = p.window != 0 && low >= p.window ? (low + 1 - p.window) / BLOCK : 0;
    uint end = high / BLOCK + 1;
    if (IS_SPLIT != 0) {
        const uint mine = p.first_block + gl_WorkGroupID.z;
        if (mine < block || mine >= end)
            return;
        block = mine;
        end = mine + 1;
    }
#ifdef LATENT
    const uint width = p.key_dim;
#else
    const uint width = p.key_dim * p.n_kv_heads;
#endif
    vec4 merged[SUMS_EACH];
    [[unroll]] for (uint i = 0; i < SUMS_EACH; i++)
        merged[i] = vec4(0.0);
    float most = NOTHING, total = 0.0;
    for (; block < end; block++) {
        const uint base = block * BLOCK, n_keys = min(high + 1 - base, BLOCK);
        const uint64_t first_page = Addresses(tile.pages).v[base / PAGE];
        const uint64_t last_page =
            n_keys > PAGE ? Addresses(tile.pages).v[base / PAGE + 1] : first_page;
        score(uint64_t[2](first_page + p.k_offset, last_page + p.k_offset), base, n_keys, width);
        const float block_most = soften(t);
        const float new_most = max(most, block_most);
        if (t < QUERIES * LANES && t % LANES == 0) {
            old_factors[t / LANES] = power(most - new_most);
            new_factors[t / LANES] = power(block_most - new_most);
        }
        barrier();
        if (t < QUERIES * LANES) {
            const uint q = t / LANES * LANES;
            const float sum = (parts[q] + parts[q + 1]) + (parts[q + 2] + parts[q + 3]);
            total = total * power(most - new_most) + sum * power(block_most - new_most);
            most = new_most;
        }
        vec4 sums[SUMS_EACH];
        weigh(uint64_t[2](first_page + p.v_offset, last_page + p.v_offset), n_keys, width, first, sums);
        [[unroll]] for (uint i = 0; i < SUMS_EACH; i++)
            if (first + i < QUERIES)
                merged[i] = merged[i] * old_factors[first + i] + sums[i] * new_factors[first + i];
    }
    if (IS_SPLIT != 0) {
        const uint n = p.n_blocks;
        if (t < tile.n_queries * LANES && t % LANES == 0) {
            const uint64_t at = (uint64_t(row_of(t / LANES)) * p.n_heads + head_of(t / LANES)) * n +
                                gl_WorkGroupID.z;
            Floats(uint64_t(p.ends) + at * 8).v[0] = most;
            Floats(uint64_t(p.ends) + at * 8).v[1] = total;
        }
        [[unroll]] for (uint i = 0; i < SUMS_EACH; i++)
            if (first + i < tile.n_queries && d < p.value_dim) {
                const uint64_t at =
                    (uint64_t(row_of(first + i)) * p.n_heads + head_of(first + i)) * n +
                    gl_WorkGroupID.z;
                store(uint64_t(p.sums) + at * p.value_dim * 4, d, merged[i]);
            }
        return;
    }
    barrier();
    if (t < tile.n_queries * LANES && t % LANES == 0) {
#ifdef LATENT
        const bool has_sink = false;
        const float sink = 0.0;
#else
        const bool has_sink = uint64_t(p.q_rot) != 0;
        const float sink = has_sink ? p.q_rot.v[head_of(t / LANES)] * 1.44269504 : 0.0;
#endif
        new_factors[t / LANES] = last_factor(most, total, has_sink, sink);
    }
    barrier();
    [[unroll]] for (uint i = 0; i < SUMS_EACH; i++)
        if (first + i < tile.n_queries && d < p.value_dim) {
            const uint64_t at = uint64_t(row_of(first + i)) * p.n_heads + head_of(first + i);
            store(uint64_t(p.result) + at * p.value_dim * 4, d, merged[i] * new_factors[first + i]);
        }
}

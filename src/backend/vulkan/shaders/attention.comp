#version 460
// SPDX-License-Identifier: MIT
// Attention of a tile of queries over the cached rows of its sequence. The queries are the heads
// that share a key head (y), row by row. A workgroup goes over all blocks of positions and
// keeps what it has merged in registers; or, with n_blocks, it has one of them (z), and
// attention_merge follows. IS_FRESH: the rows that the operation appends are taken from where they
// come, so that nothing has to wait until they are in the pages.
// LATENT: one key head, all of a cached row being its key and the beginning of it its value.
// Q8_CACHE: rows of signed bytes, with a scale for each block (base/cache_rows.h); TYPE is F32 then.
//! variant attention
//! variant attention_latent -DLATENT
//! variant attention_q8 -DQ8_CACHE
//! variant attention_latent_q8 -DLATENT -DQ8_CACHE
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"

layout(constant_id = 1) const uint TYPE = F32;
layout(constant_id = 2) const uint IS_ALIGNED = 0; // for loads of 16 bytes
layout(constant_id = 3) const uint IS_FRESH = 0;
layout(constant_id = 4) const uint QUERIES = 8;   // of a tile
layout(constant_id = 5) const uint KEYS_EACH = 2; // scores of an invocation: keys of
layout(constant_id = 6) const uint ROWS_EACH = 1; // each of so many queries
layout(constant_id = 7) const uint DIMS = 2;      // invocations side by side, with 4 values each,
layout(constant_id = 8) const uint SUMS_EACH = 1; // for so many queries each,
layout(constant_id = 9) const uint PART = 1;      // so many of them at a time
layout(constant_id = 10) const uint SLICES_AHEAD = 1;
layout(constant_id = 11) const uint VALUES_AHEAD = 4; // a multiple of 4

const uint THREADS = 256;
const uint SLICE = 32, STRIDE = SLICE / 4 + 1; // vec4s; one more than needed, for the banks
const uint KEY_LOADS = BLOCK * (SLICE / 4) / THREADS, KEYS_A_LOAD = THREADS / (SLICE / 4);
const uint QUERY_LOADS = (QUERIES * (SLICE / 4) + THREADS - 1) / THREADS;
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
    Floats sums; // of n_blocks: [rows, heads, blocks, value_dim]
    Floats ends; // of n_blocks: [rows, heads, blocks, 2], maximum and sum
    Tiles tiles;
    uint64_t k_offset, v_offset;
    uint64_t fresh_k, fresh_v; // [rows, width]
    uint n_heads, n_kv_heads;
    uint key_dim, value_dim, q_rot_row, q_rot_head;
    uint window, first_block, n_blocks; // n_blocks 0: all
    float scale; // and log2(e)
} p;

// First slices of the queries and of the block's keys, then what has become of their scores.
shared vec4 memory[QUERIES * P_STRIDE > (QUERIES + BLOCK) * STRIDE ? QUERIES * P_STRIDE
                                                                  : (QUERIES + BLOCK) * STRIDE];
shared float parts[QUERIES * LANES];
shared float old_factors[QUERIES], new_factors[QUERIES];

Tile tile;
uint per_key;
uint width;       // of a cached row
uint64_t keys[2]; // the pages of the block at hand
uint64_t values[2];
uint base, n_keys; // its first position, and how many are there

// What is on its way from memory.
uint64_t query_at[QUERY_LOADS]; // 0: none
#ifdef LATENT
uint64_t rot_at[QUERY_LOADS];
#endif
vec4 queries_ahead[SLICES_AHEAD * QUERY_LOADS];
uvec4 keys_ahead[SLICES_AHEAD * KEY_LOADS];
uvec4 values_ahead[VALUES_AHEAD];

float scores[ROWS_EACH * KEYS_EACH];

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

// 4 floats, or the n < 4 that there are.
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

// -------------------------------------------------------------------------- values of the cache

uvec4 packed(vec4 x)
{
    if (TYPE == F32)
        return floatBitsToUint(x);
    return uvec4(bfloat_of(x.x) | bfloat_of(x.y) << 16, bfloat_of(x.z) | bfloat_of(x.w) << 16, 0, 0);
}

vec4 unpacked(uvec4 x)
{
    if (TYPE == F32)
        return uintBitsToFloat(x);
    return uintBitsToFloat(uvec4(x.x << 16, x.x & 0xffff0000u, x.y << 16, x.y & 0xffff0000u));
}

#ifdef Q8_CACHE
const uint Q8_BLOCK = 32;

// 4 values, or the n < 4 that there are, of column `col` of the row of the block's position `key`:
// of the workgroup's head.
uvec4 load_cached(uint64_t page, uint64_t fresh, uint key, uint col, uint n)
{
    const uint n_blocks = (p.key_dim + Q8_BLOCK - 1) / Q8_BLOCK, head = gl_WorkGroupID.y;
    const uint64_t row = page + uint64_t(key % PAGE) * (width + 2 * p.n_kv_heads * n_blocks);
    const uint block = head * n_blocks + (col - head * p.key_dim) / Q8_BLOCK;
    Bytes scale_at = Bytes(row + width + 2 * block);
    const float scale = bfloat_to_float(uint(scale_at.v[0]) | uint(scale_at.v[1]) << 8);
    uint x = 0;
    if (((row + col) & 3) == 0 && n >= 4) {
        x = Words(row + col).v[0];
    } else {
        [[unroll]] for (uint j = 0; j < 4; j++)
            if (j < n)
                x |= uint(Bytes(row + col).v[j]) << 8 * j;
    }
    return floatBitsToUint(vec4(bitfieldExtract(int(x), 0, 8), bitfieldExtract(int(x), 8, 8),
                                bitfieldExtract(int(x), 16, 8), bitfieldExtract(int(x), 24, 8)) *
                           scale);
}
#else
// 4 values, or the n < 4 that there are, of column `col` of the row of the block's position `key`.
uvec4 load_cached(uint64_t page, uint64_t fresh, uint key, uint col, uint n)
{
    if (IS_FRESH != 0 && base + key >= tile.position) {
        const uint64_t row = tile.first_row + (base + key - tile.position);
        return packed(load4(fresh + (row * width + col) * 4, n));
    }
    const uint i = key % PAGE * width + col;
    if (TYPE == F32)
        return floatBitsToUint(load4(page + i * 4, n));
    if (IS_ALIGNED != 0)
        return uvec4(Words2(page + i * 2).v[0], 0, 0);
    uint x[4] = uint[4](0, 0, 0, 0);
    [[unroll]] for (uint j = 0; j < 4; j++)
        if (j < n)
            x[j] = uint(Halves(page + i * 2).v[j]);
    return uvec4(x[0] | x[1] << 16, x[2] | x[3] << 16, 0, 0);
}
#endif

// --------------------------------------------------------------------------------------- scores

void find_queries()
{
    [[unroll]] for (uint i = 0; i < QUERY_LOADS; i++) {
        const uint query = (gl_LocalInvocationID.x + i * THREADS) / (SLICE / 4);
        query_at[i] = 0;
        if (query >= tile.n_queries)
            continue;
        const uint64_t row = row_of(query), head = head_of(query);
#ifdef LATENT
        query_at[i] = uint64_t(p.q) + (row * p.n_heads + head) * p.value_dim * 4;
        rot_at[i] = uint64_t(p.q_rot) + (row * p.q_rot_row + head * p.q_rot_head) * 4;
#else
        query_at[i] = uint64_t(p.q) + (row * p.n_heads + head) * p.key_dim * 4;
#endif
    }
}

// Dims d .. d + 3 of query i of the invocation, 0 beyond the last.
vec4 load_query(uint i, uint d)
{
    if (query_at[i] == 0 || d >= p.key_dim)
        return vec4(0.0);
#ifdef LATENT
    if (d >= p.value_dim)
        return load4(rot_at[i] + (d - p.value_dim) * 4, p.key_dim - d);
    vec4 x = load4(query_at[i] + d * 4, p.value_dim - d);
    [[unroll]] for (uint j = 1; j < 4; j++)
        if (IS_ALIGNED == 0 && d + j >= p.value_dim && d + j < p.key_dim)
            x[j] = Floats(rot_at[i]).v[d + j - p.value_dim];
    return x;
#else
    return load4(query_at[i] + d * 4, p.key_dim - d);
#endif
}

void load_slice(uint slot, uint slice)
{
    const uint t = gl_LocalInvocationID.x, d = slice * SLICE + t % (SLICE / 4) * 4;
    [[unroll]] for (uint i = 0; i < QUERY_LOADS; i++)
        queries_ahead[slot * QUERY_LOADS + i] = load_query(i, d);
    [[unroll]] for (uint i = 0; i < KEY_LOADS; i++) {
        const uint key = i * KEYS_A_LOAD + t / (SLICE / 4);
        uvec4 x = uvec4(0);
        if (key < n_keys && d < p.key_dim)
            x = load_cached(keys[i * KEYS_A_LOAD / PAGE], p.fresh_k, key,
                            gl_WorkGroupID.y * p.key_dim + d, p.key_dim - d);
        keys_ahead[slot * KEY_LOADS + i] = x;
    }
}

void keep_slice(uint slot)
{
    const uint t = gl_LocalInvocationID.x, row = t / (SLICE / 4), d = t % (SLICE / 4);
    [[unroll]] for (uint i = 0; i < QUERY_LOADS; i++)
        if (i * KEYS_A_LOAD + row < QUERIES)
            memory[(i * KEYS_A_LOAD + row) * STRIDE + d] = queries_ahead[slot * QUERY_LOADS + i];
    [[unroll]] for (uint i = 0; i < KEY_LOADS; i++)
        memory[(QUERIES + i * KEYS_A_LOAD + row) * STRIDE + d] =
            unpacked(keys_ahead[slot * KEY_LOADS + i]);
}

void score_slice(uint query, uint key)
{
    [[unroll]] for (uint d = 0; d < SLICE / 4; d++) {
        vec4 k[KEYS_EACH];
        [[unroll]] for (uint j = 0; j < KEYS_EACH; j++)
            k[j] = memory[(QUERIES + key + j * KEY_LANES) * STRIDE + d];
        [[unroll]] for (uint i = 0; i < ROWS_EACH; i++) {
            const vec4 q = memory[(query + i) * STRIDE + d];
            [[unroll]] for (uint j = 0; j < KEYS_EACH; j++) {
                float sum = scores[i * KEYS_EACH + j];
                sum = fma(q.x, k[j].x, sum);
                sum = fma(q.y, k[j].y, sum);
                sum = fma(q.z, k[j].z, sum);
                scores[i * KEYS_EACH + j] = fma(q.w, k[j].w, sum);
            }
        }
    }
}

// The block's scores, in powers of two, into memory: [QUERIES, BLOCK]. The first slices are on their
// way.
void score()
{
    const uint t = gl_LocalInvocationID.x, key = t % KEY_LANES, query = t / KEY_LANES * ROWS_EACH;
    const uint n_slices = (p.key_dim + SLICE - 1) / SLICE;
    [[unroll]] for (uint i = 0; i < ROWS_EACH * KEYS_EACH; i++)
        scores[i] = 0.0;
    [[dont_unroll]] for (uint slice = 0; slice < n_slices; slice += SLICES_AHEAD)
        [[unroll]] for (uint slot = 0; slot < SLICES_AHEAD; slot++)
            if (slice + slot < n_slices) {
                barrier(); // what lay there has been read
                keep_slice(slot);
                barrier();
                if (slice + slot + SLICES_AHEAD < n_slices)
                    load_slice(slot, slice + slot + SLICES_AHEAD);
                if (query < QUERIES)
                    score_slice(query, key);
            }
    barrier();
    if (query < QUERIES)
        [[unroll]] for (uint i = 0; i < ROWS_EACH; i++)
            [[unroll]] for (uint j = 0; j < KEYS_EACH; j++) {
                const uint k = key + j * KEY_LANES, position = position_of(query + i);
                const bool is_seen = query + i < tile.n_queries && base + k <= position &&
                                     base + k >= first_seen(p.window, position);
                memory[(query + i) * P_STRIDE + k / 4][k % 4] =
                    is_seen ? scores[i * KEYS_EACH + j] * p.scale : NOTHING;
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
                x[j] = weight_of(x[j], most);
            memory[first + i] = x;
            sum += (x.x + x.y) + (x.z + x.w);
        }
        parts[t] = sum;
    }
    return most;
}

// --------------------------------------------------------------------------------------- values

// The value of a position of the block: the invocation's 4 columns. Zeros where there is none.
uvec4 load_value(uint key, uint d)
{
    if (key >= n_keys || d >= p.value_dim)
        return uvec4(0);
    return load_cached(key < PAGE ? values[0] : values[1], p.fresh_v, key,
                       gl_WorkGroupID.y * p.value_dim + d, p.value_dim - d);
}

void load_first_values(uint d)
{
    [[unroll]] for (uint i = 0; i < VALUES_AHEAD; i++)
        values_ahead[i] = load_value(i, d);
}

// The block's values, weighted, for PART queries from `first` on; those that load_first_values
// fetches are on their way. Positions beyond the last count 0 times 0.
void weigh(uint first, uint d, out vec4 sums[PART])
{
    [[unroll]] for (uint i = 0; i < PART; i++)
        sums[i] = vec4(0.0);
    [[dont_unroll]] for (uint key = 0; key < n_keys; key += VALUES_AHEAD)
        [[unroll]] for (uint j = 0; j < VALUES_AHEAD; j += 4) {
            const vec4 a = unpacked(values_ahead[j]), b = unpacked(values_ahead[j + 1]);
            const vec4 c = unpacked(values_ahead[j + 2]), e = unpacked(values_ahead[j + 3]);
            if (key + VALUES_AHEAD < n_keys)
                [[unroll]] for (uint i = 0; i < 4; i++)
                    values_ahead[j + i] = load_value(key + VALUES_AHEAD + j + i, d);
            [[unroll]] for (uint i = 0; i < PART; i++) {
                const vec4 x = memory[(first + i) * P_STRIDE + (key + j) / 4];
                sums[i] = fma(x.xxxx, a, sums[i]);
                sums[i] = fma(x.yyyy, b, sums[i]);
                sums[i] = fma(x.zzzz, c, sums[i]);
                sums[i] = fma(x.wwww, e, sums[i]);
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

void take_block(uint block, uint high)
{
    base = block * BLOCK;
    n_keys = min(high + 1 - base, BLOCK);
    const uint64_t first = Addresses(tile.pages).v[base / PAGE];
    const uint64_t last = n_keys > PAGE ? Addresses(tile.pages).v[base / PAGE + 1] : first;
    keys[0] = first + p.k_offset;
    keys[1] = last + p.k_offset;
    values[0] = first + p.v_offset;
    values[1] = last + p.v_offset;
}

float sink_of(uint query)
{
#ifdef LATENT
    return NOTHING;
#else
    return uint64_t(p.q_rot) != 0 ? p.q_rot.v[head_of(query)] * LOG2_E : NOTHING;
#endif
}

void main()
{
    const uint t = gl_LocalInvocationID.x, d = t % DIMS * 4, first = t / DIMS * SUMS_EACH;
    const bool is_weighing = first < QUERIES;
    tile = p.tiles.v[gl_WorkGroupID.x];
    per_key = p.n_heads / p.n_kv_heads;
#ifdef LATENT
    width = p.key_dim;
#else
    width = p.key_dim * p.n_kv_heads;
#endif
    const uint low = position_of(0), high = position_of(tile.n_queries - 1);
    uint block = first_seen(p.window, low) / BLOCK;
    uint end = high / BLOCK + 1;
    if (p.n_blocks != 0) {
        const uint mine = p.first_block + gl_WorkGroupID.z;
        if (mine < block || mine >= end)
            return;
        block = mine;
        end = mine + 1;
    }
    find_queries();
    vec4 merged[SUMS_EACH];
    [[unroll]] for (uint i = 0; i < SUMS_EACH; i++)
        merged[i] = vec4(0.0);
    float most = NOTHING, total = 0.0;
    [[dont_unroll]] for (; block < end; block++) {
        take_block(block, high);
        [[unroll]] for (uint slot = 0; slot < SLICES_AHEAD; slot++)
            load_slice(slot, slot);
        load_first_values(d);
        score();
        const float block_most = soften(t), new_most = max(most, block_most);
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
        if (is_weighing)
            [[unroll]] for (uint part = 0; part < SUMS_EACH; part += PART) {
                vec4 sums[PART];
                if (part != 0)
                    load_first_values(d);
                weigh(first + part, d, sums);
                [[unroll]] for (uint i = 0; i < PART; i++)
                    merged[part + i] = merged[part + i] * old_factors[first + part + i] +
                                       sums[i] * new_factors[first + part + i];
            }
    }
    barrier(); // the factors have been read
    if (t < tile.n_queries * LANES && t % LANES == 0) {
        const uint query = t / LANES;
        if (p.n_blocks != 0) {
            const uint64_t at =
                (uint64_t(row_of(query)) * p.n_heads + head_of(query)) * p.n_blocks +
                gl_WorkGroupID.z;
            Floats(uint64_t(p.ends) + at * 8).v[0] = most;
            Floats(uint64_t(p.ends) + at * 8).v[1] = total;
        }
        new_factors[query] = p.n_blocks != 0 ? 1.0 : last_factor(most, total, sink_of(query));
    }
    barrier();
    [[unroll]] for (uint i = 0; i < SUMS_EACH; i++)
        if (first + i < tile.n_queries && d < p.value_dim) {
            uint64_t at = uint64_t(row_of(first + i)) * p.n_heads + head_of(first + i);
            if (p.n_blocks != 0)
                at = at * p.n_blocks + gl_WorkGroupID.z;
            store(uint64_t(p.n_blocks != 0 ? p.sums : p.result) + at * p.value_dim * 4, d,
                  merged[i] * new_factors[first + i]);
        }
}

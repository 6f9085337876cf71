#version 460
// SPDX-License-Identifier: MIT
// Attention of a tile of 64 queries, of rows that are long, on matrix units (PLAIN: without): float16
// queries, keys, values and weights, float32 scores and sums. Queries are the heads that share a key
// head (y), row by row, as attention.comp has them; their rows are in the pages already. A workgroup
// goes over blocks of 64 positions, counted from 0, in slices of SLICE columns. Two teams of 32 have
// 16 queries together: of the scores each has half of the keys, of the sums half of a slice.
// What is summed up is multiplied by powers of two when the maximum rises, so that blocks which a
// query does not see leave no trace: a row's bits do not depend on who shares its tile.
//! variant attention_units
//! variant attention_plain -DPLAIN
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_shader_subgroup_shuffle : require
#ifndef PLAIN
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#endif
#include "common.glsl"
#include "attention.glsl"

layout(constant_id = 1) const uint TYPE = F32;
layout(constant_id = 2) const uint IS_ALIGNED = 0; // for loads of 16 bytes
layout(constant_id = 3) const uint N_DIMS = 64;
layout(constant_id = 4) const uint SLICE = 64; // 64 or 128; divides N_DIMS

const uint Q8 = 4, Q8_BLOCK = 32; // a cache of 8 bits (base/cache_rows.h): of whole blocks here
const uint THREADS = 256, QUERIES = 64, UNIT = 16;
const uint N_SLICES = N_DIMS / SLICE, TILES = SLICE / (2 * UNIT); // of a team's half of a slice
const uint STRIDE = SLICE / 4 + 2;                 // of a key, 4 values each
const uint N_LOADS = BLOCK * (SLICE / 4) / THREADS; // of an invocation, 4 values each
const uint S_STRIDE = BLOCK / 4 + 1;               // of a query's scores, 16 bytes each
const uint FACTORS = BLOCK / 8;                    // where its factor is, 16 times, in them

// As in attention.comp.
struct Tile {
    uint first_row, position, first_query, n_queries;
    uint64_t pages;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Tiles { Tile v[]; };

layout(push_constant, scalar) uniform Push {
    Floats q;
    Floats sinks;
    Floats result;
    Tiles tiles;
    uint64_t k_offset, v_offset;
    uint n_heads, n_kv_heads;
    uint window;
    float scale; // and log2(e)
} p;

shared uvec2 slice_memory[BLOCK * STRIDE];
shared uvec4 scores[QUERIES * S_STRIDE]; // then weights in float16 and factors; then results

Tile tile;
uint per_key;
uvec4 ahead[N_LOADS]; // of the next slice

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

uint64_t place_of(uint query)
{
    return (uint64_t(row_of(query)) * p.n_heads + head_of(query)) * N_DIMS * 4;
}

uvec4 load4(uint64_t at)
{
    if (IS_ALIGNED != 0)
        return Words4(at).v[0];
    return uvec4(Words(at).v[0], Words(at).v[1], Words(at).v[2], Words(at).v[3]);
}

uvec2 halves(vec4 x)
{
    return uvec2(packHalf2x16(x.xy), packHalf2x16(x.zw));
}

// A slice of the queries.
void put_queries(uint id, uint slice)
{
    [[unroll]] for (uint i = 0; i < N_LOADS; i++) {
        const uint at = i * THREADS + id, query = at / (SLICE / 4), d = at % (SLICE / 4);
        vec4 x = vec4(0.0);
        if (query < tile.n_queries)
            x = uintBitsToFloat(load4(uint64_t(p.q) + place_of(query) + (slice * SLICE + d * 4) * 4));
        slice_memory[query * STRIDE + d] = halves(x);
    }
}

// A slice of the block's keys or values is on its way.
void fetch(uint id, uint64_t offset, uint base, uint high, uint slice)
{
    const uint64_t first = Addresses(tile.pages).v[base / PAGE] + offset;
    uint64_t last = first;
    if (high - base >= PAGE)
        last = Addresses(tile.pages).v[base / PAGE + 1] + offset;
    const uint width = p.n_kv_heads * N_DIMS, n_blocks = N_DIMS / Q8_BLOCK;
    [[unroll]] for (uint i = 0; i < N_LOADS; i++) {
        const uint at = i * THREADS + id, key = at / (SLICE / 4), d = at % (SLICE / 4);
        const uint64_t page = i < N_LOADS / 2 ? first : last;
        const uint col = gl_WorkGroupID.y * N_DIMS + slice * SLICE + d * 4;
        const uint64_t x = uint64_t(key % PAGE) * width + col;
        ahead[i] = uvec4(0);
        if (base + key > high)
            continue;
        if (TYPE == Q8) { // values, and then the scales of all heads
            const uint64_t row = page + uint64_t(key % PAGE) * (width + 2 * p.n_kv_heads * n_blocks);
            ahead[i].x = Words(row + col).v[0];
            ahead[i].y = uint(Halves(row + width + 2 * (col / Q8_BLOCK)).v[0]);
        } else if (TYPE == F32)
            ahead[i] = load4(page + x * 4);
        else if (IS_ALIGNED != 0)
            ahead[i].xy = Words2(page + x * 2).v[0];
        else
            [[unroll]] for (uint e = 0; e < 4; e++)
                ahead[i][e / 2] |= uint(Halves(page + x * 2).v[e]) << (16 * (e % 2));
    }
}

// Four signed bytes times their scale.
uvec4 bytes_times(uint x, float scale)
{
    return floatBitsToUint(vec4(bitfieldExtract(int(x), 0, 8), bitfieldExtract(int(x), 8, 8),
                                bitfieldExtract(int(x), 16, 8), bitfieldExtract(int(x), 24, 8)) *
                           scale);
}

void put_slice(uint id)
{
    [[unroll]] for (uint i = 0; i < N_LOADS; i++) {
        const uint at = i * THREADS + id;
        uvec4 x = ahead[i];
        if (TYPE == Q8)
            x = bytes_times(x.x, bfloat_to_float(x.y));
        else if (TYPE != F32)
            x = uvec4(x.x << 16, x.x & 0xffff0000u, x.y << 16, x.y & 0xffff0000u);
        slice_memory[at / (SLICE / 4) * STRIDE + at % (SLICE / 4)] = halves(uintBitsToFloat(x));
    }
}

// ------------------------------------------------------------------------------------ products

#ifdef PLAIN
// Two invocations have a query of a team's 16, each 8 of every 16 columns.
const uint SHARE = 8;
uint queries[N_DIMS / 2];
float block_scores[2 * SHARE];
float sums[N_DIMS / 32 * SHARE];
uint team, lane;

vec2 half_at(uint row, uint col2)
{
    return unpackHalf2x16(slice_memory[row * STRIDE + col2 / 2][col2 % 2]);
}

uint score_at(uint col)
{
    return ((team / 2 * UNIT + lane / 2) * S_STRIDE) * 4 + col;
}

void take_queries(uint slice)
{
    [[unroll]] for (uint i = 0; i < SLICE / 2; i++)
        queries[slice * (SLICE / 2) + i] =
            slice_memory[(team / 2 * UNIT + lane / 2) * STRIDE + i / 2][i % 2];
}

void clear_scores()
{
    [[unroll]] for (uint i = 0; i < 2 * SHARE; i++)
        block_scores[i] = 0.0;
}

void clear_sums()
{
    [[unroll]] for (uint i = 0; i < N_DIMS / 32 * SHARE; i++)
        sums[i] = 0.0;
}

void add_scores(uint slice)
{
    [[unroll]] for (uint k = 0; k < SLICE / 2; k++) {
        const vec2 q = unpackHalf2x16(queries[slice * (SLICE / 2) + k]);
        [[unroll]] for (uint i = 0; i < 2 * SHARE; i++) {
            const vec2 x =
                half_at(team % 2 * 32 + i / SHARE * UNIT + lane % 2 * SHARE + i % SHARE, k);
            block_scores[i] = fma(q.y, x.y, fma(q.x, x.x, block_scores[i]));
        }
    }
}

void put_scores()
{
    [[unroll]] for (uint i = 0; i < 2 * SHARE; i++) {
        const uint at = score_at(team % 2 * 32 + i / SHARE * UNIT + lane % 2 * SHARE + i % SHARE);
        scores[at / 4][at % 4] = floatBitsToUint(block_scores[i]);
    }
}

void scale_sums()
{
    const float factor = uintBitsToFloat(scores[score_at(0) / 4 + FACTORS].x);
    [[unroll]] for (uint i = 0; i < N_DIMS / 32 * SHARE; i++)
        sums[i] *= factor;
}

void add_values(uint slice)
{
    for (uint key = 0; key < BLOCK; key += 2) {
        const vec2 w = unpackHalf2x16(scores[score_at(0) / 4 + key / 8][key / 2 % 4]);
        [[unroll]] for (uint i = 0; i < TILES * SHARE; i += 2) {
            const uint col = team % 2 * (SLICE / 2) + i / SHARE * UNIT + lane % 2 * SHARE + i % SHARE;
            const vec2 a = half_at(key, col / 2), b = half_at(key + 1, col / 2);
            const uint to = slice * TILES * SHARE + i;
            sums[to] = fma(w.y, b.x, fma(w.x, a.x, sums[to]));
            sums[to + 1] = fma(w.y, b.y, fma(w.x, a.y, sums[to + 1]));
        }
    }
}

void put_sums(uint which)
{
    [[unroll]] for (uint e = 0; e < SHARE; e++) {
        const uint at = score_at(team % 2 * 32 + lane % 2 * SHARE + e);
        scores[at / 4][at % 4] = floatBitsToUint(sums[which * SHARE + e]);
    }
}
#else
coopmat<float16_t, gl_ScopeSubgroup, UNIT, UNIT, gl_MatrixUseA> queries[N_DIMS / UNIT];
coopmat<float, gl_ScopeSubgroup, UNIT, UNIT, gl_MatrixUseAccumulator> block_scores[2];
coopmat<float, gl_ScopeSubgroup, UNIT, UNIT, gl_MatrixUseAccumulator> sums[N_DIMS / 32];
uint team, lane;

void take_queries(uint slice)
{
    [[unroll]] for (uint k = 0; k < SLICE / UNIT; k++)
        coopMatLoad(queries[slice * (SLICE / UNIT) + k], slice_memory,
                    team / 2 * UNIT * STRIDE + k * (UNIT / 4), STRIDE,
                    gl_CooperativeMatrixLayoutRowMajor);
}

void clear_scores()
{
    [[unroll]] for (uint j = 0; j < 2; j++)
        block_scores[j] = coopmat<float, gl_ScopeSubgroup, UNIT, UNIT, gl_MatrixUseAccumulator>(0.0);
}

void clear_sums()
{
    [[unroll]] for (uint i = 0; i < N_DIMS / 32; i++)
        sums[i] = coopmat<float, gl_ScopeSubgroup, UNIT, UNIT, gl_MatrixUseAccumulator>(0.0);
}

void add_scores(uint slice)
{
    [[unroll]] for (uint k = 0; k < SLICE / UNIT; k++) {
        [[unroll]] for (uint j = 0; j < 2; j++) {
            coopmat<float16_t, gl_ScopeSubgroup, UNIT, UNIT, gl_MatrixUseB> x;
            coopMatLoad(x, slice_memory,
                        (team % 2 * 32 + j * UNIT) * STRIDE + k * (UNIT / 4), STRIDE,
                        gl_CooperativeMatrixLayoutColumnMajor);
            block_scores[j] =
                coopMatMulAdd(queries[slice * (SLICE / UNIT) + k], x, block_scores[j]);
        }
    }
}

void put_scores()
{
    [[unroll]] for (uint j = 0; j < 2; j++)
        coopMatStore(block_scores[j], scores,
                     team / 2 * UNIT * S_STRIDE + (team % 2 * 32 + j * UNIT) / 4, S_STRIDE,
                     gl_CooperativeMatrixLayoutRowMajor);
}

void scale_sums()
{
    coopmat<float, gl_ScopeSubgroup, UNIT, UNIT, gl_MatrixUseAccumulator> factors;
    coopMatLoad(factors, scores, team / 2 * UNIT * S_STRIDE + FACTORS, S_STRIDE,
                gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint i = 0; i < N_DIMS / 32; i++)
        for (uint e = 0; e < factors.length(); e++)
            sums[i][e] *= factors[e];
}

void add_values(uint slice)
{
    [[unroll]] for (uint k = 0; k < BLOCK / UNIT; k++) {
        coopmat<float16_t, gl_ScopeSubgroup, UNIT, UNIT, gl_MatrixUseA> w;
        coopMatLoad(w, scores, team / 2 * UNIT * S_STRIDE + k * (UNIT / 8), S_STRIDE,
                    gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint j = 0; j < TILES; j++) {
            coopmat<float16_t, gl_ScopeSubgroup, UNIT, UNIT, gl_MatrixUseB> x;
            coopMatLoad(x, slice_memory,
                        k * UNIT * STRIDE + (team % 2 * (SLICE / 2) + j * UNIT) / 4, STRIDE,
                        gl_CooperativeMatrixLayoutRowMajor);
            sums[slice * TILES + j] = coopMatMulAdd(w, x, sums[slice * TILES + j]);
        }
    }
}

void put_sums(uint which)
{
    coopMatStore(sums[which], scores, team / 2 * UNIT * S_STRIDE + team % 2 * 8, S_STRIDE,
                 gl_CooperativeMatrixLayoutRowMajor);
}
#endif

// ------------------------------------------------------------------------------------- softmax

// Of four invocations side by side that have a query.
float most_of_query(float x)
{
    x = max(x, subgroupShuffleXor(x, 1));
    return max(x, subgroupShuffleXor(x, 2));
}

float sum_of_query(float x)
{
    x += subgroupShuffleXor(x, 1);
    return x + subgroupShuffleXor(x, 2);
}

void put_factor(uint id, float factor)
{
    scores[id / 4 * S_STRIDE + FACTORS + id % 4] = uvec4(floatBitsToUint(factor));
}

// The block's scores become weights, and what the sums until now are to be multiplied by.
void soften(uint id, uint base, inout float most, inout float total)
{
    const uint query = id / 4, key = id % 4 * 16, at = query * S_STRIDE;
    const uint position = position_of(query);
    vec4 x[4];
    float block_most = NOTHING, sum = 0.0;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        x[i] = uintBitsToFloat(scores[at + key / 4 + i]) * p.scale;
        [[unroll]] for (uint e = 0; e < 4; e++) {
            const uint k = base + key + i * 4 + e;
            const bool is_seen = query < tile.n_queries && k <= position &&
                                 k >= first_seen(p.window, position);
            x[i][e] = is_seen ? x[i][e] : NOTHING;
            block_most = max(block_most, x[i][e]);
        }
    }
    const float new_most = max(most, ceil(most_of_query(block_most)));
    [[unroll]] for (uint i = 0; i < 4; i++)
        [[unroll]] for (uint e = 0; e < 4; e++) {
            x[i][e] = weight_of(x[i][e], new_most);
            sum += x[i][e];
        }
    const float factor = power(most - new_most);
    total = total * factor + sum_of_query(sum);
    most = new_most;
    subgroupBarrier(); // the query's scores have been read
    [[unroll]] for (uint i = 0; i < 2; i++)
        scores[at + id % 4 * 2 + i] = uvec4(halves(x[2 * i]), halves(x[2 * i + 1]));
    put_factor(id, factor);
}

void put_results(uint id)
{
    [[unroll]] for (uint slice = 0; slice < N_SLICES; slice++)
        [[unroll]] for (uint j = 0; j < TILES; j++) {
            barrier();
            put_sums(slice * TILES + j);
            barrier();
            const uint query = team / 2 * UNIT + lane / 2, part = team % 2 * 8 + lane % 2 * 2;
            const uint col = slice * SLICE + team % 2 * (SLICE / 2) + j * UNIT + lane % 2 * 8;
            const uint64_t to = uint64_t(p.result) + place_of(query) + col * 4;
            if (query < tile.n_queries)
                [[unroll]] for (uint i = 0; i < 2; i++) {
                    const uvec4 x = scores[query * S_STRIDE + part + i];
                    if (IS_ALIGNED != 0)
                        Words4(to).v[i] = x;
                    else
                        [[unroll]] for (uint e = 0; e < 4; e++)
                            Words(to).v[i * 4 + e] = x[e];
                }
        }
}

void main()
{
    // an invocation's number such that subgroups are runs of numbers
    const uint id = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
    team = id / 32;
    lane = id % 32;
    tile = p.tiles.v[gl_WorkGroupID.x];
    per_key = p.n_heads / p.n_kv_heads;
    const uint low = position_of(0), high = position_of(tile.n_queries - 1);
    const uint first = first_seen(p.window, low) / BLOCK;
    [[unroll]] for (uint slice = 0; slice < N_SLICES; slice++) {
        barrier();
        put_queries(id, slice);
        barrier();
        take_queries(slice);
    }
    clear_sums();
    float most = NOTHING, total = 0.0;
    fetch(id, p.k_offset, first * BLOCK, high, 0);
    for (uint base = first * BLOCK; base <= high; base += BLOCK) {
        clear_scores();
        [[unroll]] for (uint slice = 0; slice < N_SLICES; slice++) {
            barrier(); // what lay there has been read
            put_slice(id);
            barrier();
            if (slice + 1 < N_SLICES)
                fetch(id, p.k_offset, base, high, slice + 1);
            else
                fetch(id, p.v_offset, base, high, 0);
            add_scores(slice);
        }
        put_scores();
        barrier();
        soften(id, base, most, total);
        [[unroll]] for (uint slice = 0; slice < N_SLICES; slice++) {
            barrier();
            put_slice(id);
            barrier();
            if (slice + 1 < N_SLICES)
                fetch(id, p.v_offset, base, high, slice + 1);
            else if (base + BLOCK <= high)
                fetch(id, p.k_offset, base + BLOCK, high, 0);
            if (slice == 0)
                scale_sums();
            add_values(slice);
        }
    }
    barrier(); // weights have been read
    const uint query = min(id / 4, tile.n_queries - 1);
    const float sink = uint64_t(p.sinks) != 0 ? p.sinks.v[head_of(query)] * LOG2_E : NOTHING;
    put_factor(id, last_factor(most, total, sink));
    barrier();
    scale_sums();
    put_results(id);
}

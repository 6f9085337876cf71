#version 460
// SPDX-License-Identifier: MIT
// y[t, o] = sum over i of weight[first_row + o, i] * x[t, i], for jobs of one form; of pairs
// silu(weight x) * (up x). A workgroup's y is a job, its x some rows of it, its z some tokens.
//
// 16 lanes have N_ROWS rows and N_TOKENS tokens: a weight is read once for them. Columns go by tiles
// of 512, of which a lane has 32, so that 4 bits are a load of 16 bytes; x waits in shared memory.
// The sum of a row and a token is the same whatever N_ROWS, N_TOKENS and IS_WIDE are: a lane adds up
// its 32 columns one after another, then its tiles, and lanes are added in pairs, fours, eights.
//! variant matvec_any -DANY
//! variant matvec_any_pair -DANY -DPAIR
//! variant matvec_affine -DAFFINE
//! variant matvec_affine_pair -DAFFINE -DPAIR
//! variant matvec_fp8 -DFP8
//! variant matvec_fp8_pair -DFP8 -DPAIR
//! variant matvec_float -DFLOATS
//! variant matvec_float_pair -DFLOATS -DPAIR
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "jobs.glsl"
#extension GL_KHR_shader_subgroup_shuffle : require

layout(constant_id = 6) const uint N_TOKENS = 1; // 1, 2, 4, 8
layout(constant_id = 7) const uint N_ROWS = 1;   // at most 4, with pairs 2
layout(constant_id = 8) const uint IS_WIDE = 0;  // a lane's weights are aligned to a load

layout(push_constant, scalar) uniform Push {
    Jobs jobs;
    uint n_cols, unused;
} p;

#ifdef PAIR
const uint N_MATRICES = 2;
#else
const uint N_MATRICES = 1;
#endif
const uint MOST_ROWS = 4, MOST_TOKENS = 8;
const uint N_SUMS = N_MATRICES * N_ROWS;
const uint TEAM = 16, CHUNK = 32, TILE = TEAM * CHUNK, QUADS = TILE / 4;
const uint STAGE_TILES = MOST_TOKENS / N_TOKENS; // tiles whose x is in shared memory at once

// Lanes' columns come in pieces: the lanes' first ones side by side, then their second ones.
#ifdef FLOATS
const uint PIECE = FLOAT_TYPE == F32 ? 4 : 8;
const uint N_WORDS = 32;
#elif defined(ANY)
const uint PIECE = 4;
const uint N_WORDS = 32;
#else
const uint PIECE = 32;
const uint N_WORDS = 8;
#endif

// 16 KiB: four columns of a token each, where no two lanes want the same bank.
shared vec4 xs[MOST_TOKENS * QUADS];

uint quad_at(uint tile, uint token, uint j, uint lane)
{
    return ((tile * N_TOKENS + token) * CHUNK / 4 + j) * TEAM + (lane ^ j);
}

// The column of four at j of a lane, within a tile.
uint column_of(uint j, uint lane)
{
    const uint per_piece = PIECE / 4;
    return (j / per_piece * TEAM + lane) * PIECE + j % per_piece * 4;
}

// Puts the tiles from column `first` on of x into shared memory, zeros beyond its end.
void stage(Job job, uint first_token, uint first, uint n_tiles)
{
    const uint per_piece = PIECE / 4;
    for (uint token = 0; token < N_TOKENS; token++) {
        const uint t = min(first_token + token, job.n_tokens - 1);
        uint row = t;
        if (job.rows != 0)
            row = Words(job.rows).v[t];
        const uint64_t x = job.x + uint64_t(row) * job.x_stride * 4;
        const bool is_aligned = (x & 15) == 0 && p.n_cols % 4 == 0;
        for (uint i = gl_LocalInvocationID.x; i < n_tiles * QUADS; i += gl_WorkGroupSize.x) {
            const uint tile = i / QUADS, quad = i % QUADS, col = first + i * 4;
            vec4 v = vec4(0.0);
            if (is_aligned) {
                if (col < p.n_cols)
                    v = Floats4(x).v[col / 4];
            } else {
                [[unroll]] for (uint e = 0; e < 4; e++)
                    if (col + e < p.n_cols)
                        v[e] = Floats(x).v[col + e];
            }
            const uint of_piece = quad / per_piece;
            xs[quad_at(tile, token, of_piece / TEAM * per_piece + quad % per_piece,
                       of_piece % TEAM)] = v;
        }
    }
}

// What a lane has of a row in a tile.
struct Chunk {
    uint words[N_WORDS];
    float scale, bias;
};

#ifdef AFFINE
Chunk load_chunk(Weight w, uint row, uint tile, uint lane)
{
    Chunk c;
    const bool is_inside = tile + lane * CHUNK < p.n_cols;
    const uint col = is_inside ? tile + lane * CHUNK : 0;
    const uint64_t at = w.values + (uint64_t(row) * (p.n_cols / CHUNK) + col / CHUNK) * (BITS * 4);
    if (IS_WIDE != 0 && BITS % 4 == 0) {
        [[unroll]] for (uint i = 0; i < BITS / 4; i++) {
            const uvec4 v = Words4(at).v[i];
            [[unroll]] for (uint e = 0; e < 4; e++)
                c.words[i * 4 + e] = v[e];
        }
    } else {
        [[unroll]] for (uint i = 0; i < BITS; i++)
            c.words[i] = Words(at).v[i];
    }
    const uint64_t group = uint64_t(row) * (p.n_cols / GROUP) + col / GROUP;
    c.scale = is_inside ? load_float(w.scales, FLOAT_TYPE, group) : 0.0;
    c.bias = is_inside ? load_float(w.biases, FLOAT_TYPE, group) : 0.0;
    return c;
}

// Value i as 1 + q / 2^BITS: its bits are those of a float's fraction.
float value(Chunk c, uint i)
{
    const uint word = i * BITS / 32, at = i * BITS % 32, to = 23 - BITS;
    const uint mask = ((1u << BITS) - 1) << to;
    uint q;
    if (at + BITS > 32)
        q = (c.words[word] >> at | c.words[word + 1] << (32 - at)) << to;
    else
        q = at > to ? c.words[word] >> (at - to) : c.words[word] << (to - at);
    return uintBitsToFloat((q & mask) | 0x3f800000u);
}

// The sum with the chunk's part: dot is of the values above, x_sum of x.
float add_chunk(float sum, Chunk c, float dot, float x_sum)
{
    const float scale = c.scale * float(1u << BITS);
    return fma(scale, dot - x_sum, fma(c.bias, x_sum, sum));
}
#endif

#ifdef FP8
Chunk load_chunk(Weight w, uint row, uint tile, uint lane)
{
    Chunk c;
    const uint col = tile + lane * CHUNK;
    const uint64_t at = w.values + uint64_t(row) * p.n_cols;
    if (IS_WIDE != 0) { // n_cols is a multiple of 16
        [[unroll]] for (uint i = 0; i < 2; i++) {
            const uvec4 v = col + i * 16 < p.n_cols ? Words4(at + col).v[i] : uvec4(0);
            [[unroll]] for (uint e = 0; e < 4; e++)
                c.words[i * 4 + e] = v[e];
        }
    } else {
        [[unroll]] for (uint i = 0; i < 8; i++) {
            c.words[i] = 0;
            [[unroll]] for (uint e = 0; e < 4; e++)
                if (col + i * 4 + e < p.n_cols)
                    c.words[i] |= byte_at(at, col + i * 4 + e) << (8 * e);
        }
    }
    const uint64_t block = uint64_t(row / SCALE_ROWS) * ((p.n_cols + 127) / 128) + col / 128;
    c.scale = col < p.n_cols ? Floats(w.scales + block * 4).v[0] : 0.0;
    return c;
}

float value(Chunk c, uint i)
{
    return e4m3(c.words[i / 4] >> (i % 4 * 8) & 255);
}

float add_chunk(float sum, Chunk c, float dot, float x_sum)
{
    return fma(c.scale, dot, sum);
}
#endif

#ifdef FLOATS
uint load_half(uint64_t at, uint col)
{
    return col < p.n_cols ? uint(Halves(at).v[col]) : 0;
}

Chunk load_chunk(Weight w, uint row, uint tile, uint lane)
{
    Chunk c;
    const uint n_pieces = CHUNK / PIECE;
    const uint64_t at = w.values + uint64_t(row) * p.n_cols * (FLOAT_TYPE == F32 ? 4 : 2);
    [[unroll]] for (uint i = 0; i < n_pieces; i++) {
        const uint col = tile + (i * TEAM + lane) * PIECE;
        if (IS_WIDE != 0) { // n_cols is a multiple of PIECE
            uvec4 v = uvec4(0);
            if (col < p.n_cols)
                v = Words4(at + uint64_t(col) * (16 / PIECE)).v[0];
            [[unroll]] for (uint e = 0; e < 4; e++)
                c.words[i * 4 + e] = v[e];
        } else if (FLOAT_TYPE == F32) {
            [[unroll]] for (uint e = 0; e < 4; e++)
                c.words[i * 4 + e] = col + e < p.n_cols ? Words(at).v[col + e] : 0;
        } else {
            [[unroll]] for (uint e = 0; e < 4; e++)
                c.words[i * 4 + e] =
                    load_half(at, col + 2 * e) | load_half(at, col + 2 * e + 1) << 16;
        }
    }
    return c;
}

float value(Chunk c, uint i)
{
    if (FLOAT_TYPE == F32)
        return uintBitsToFloat(c.words[i]);
    const uint word = c.words[i / 2];
    if (FLOAT_TYPE == BF16)
        return uintBitsToFloat(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
    return half_to_float(i % 2 == 0 ? word & 0xffffu : word >> 16);
}
#endif

#ifdef ANY
Chunk load_chunk(Weight w, uint row, uint tile, uint lane)
{
    Chunk c;
    for (uint i = 0; i < CHUNK; i++) {
        const uint col = tile + column_of(i / 4, lane) + i % 4;
        c.words[i] = 0;
        if (col < p.n_cols)
            c.words[i] = floatBitsToUint(weight_value(w, row, col, p.n_cols));
    }
    return c;
}

float value(Chunk c, uint i)
{
    return uintBitsToFloat(c.words[i]);
}
#endif

#if defined(ANY) || defined(FLOATS)
float add_chunk(float sum, Chunk c, float dot, float x_sum)
{
    return sum + dot;
}
#endif

// The sum over the lanes of a team, in the same order for any size of subgroups. Small ones exchange
// through what x has been in.
float team_sum(float v, uint id)
{
    [[unroll]] for (uint d = 1; d < TEAM; d *= 2) {
        if (d < gl_SubgroupSize) {
            v += subgroupShuffleXor(v, d);
        } else {
            barrier();
            xs[id].x = v;
            barrier();
            v += xs[id ^ d].x;
        }
    }
    return v;
}

void product(Job job, uint first_row, uint first_token, uint id)
{
    const uint lane = id % TEAM;
    float sums[MOST_ROWS][MOST_TOKENS];
    [[unroll]] for (uint r = 0; r < N_SUMS; r++)
        [[unroll]] for (uint t = 0; t < N_TOKENS; t++)
            sums[r][t] = 0.0;
    const uint n_tiles = (p.n_cols + TILE - 1) / TILE;
    for (uint first = 0; first < n_tiles; first += STAGE_TILES) {
        const uint n = min(STAGE_TILES, n_tiles - first);
        barrier(); // what was there has been read
        stage(job, first_token, first * TILE, n);
        barrier();
        for (uint tile = 0; tile < n; tile++) {
            Chunk c[MOST_ROWS];
            float dots[MOST_ROWS][MOST_TOKENS], x_sums[MOST_TOKENS];
            [[unroll]] for (uint r = 0; r < N_SUMS; r++) {
                const uint row = job.first_row + min(first_row + r / N_MATRICES, job.n_rows - 1);
                if (r % N_MATRICES == 0)
                    c[r] = load_chunk(job.weight, row, (first + tile) * TILE, lane);
                else
                    c[r] = load_chunk(job.up, row, (first + tile) * TILE, lane);
                [[unroll]] for (uint t = 0; t < N_TOKENS; t++)
                    dots[r][t] = x_sums[t] = 0.0;
            }
            [[unroll]] for (uint j = 0; j < CHUNK / 4; j++) {
                [[unroll]] for (uint t = 0; t < N_TOKENS; t++) {
                    const vec4 x = xs[quad_at(tile, t, j, lane)];
                    x_sums[t] += (x.x + x.y) + (x.z + x.w);
                    [[unroll]] for (uint r = 0; r < N_SUMS; r++) {
                        float dot = dots[r][t];
                        [[unroll]] for (uint e = 0; e < 4; e++)
                            dot = fma(value(c[r], j * 4 + e), x[e], dot);
                        dots[r][t] = dot;
                    }
                }
            }
            [[unroll]] for (uint r = 0; r < N_SUMS; r++)
                [[unroll]] for (uint t = 0; t < N_TOKENS; t++)
                    sums[r][t] = add_chunk(sums[r][t], c[r], dots[r][t], x_sums[t]);
        }
    }
    [[unroll]] for (uint r = 0; r < N_SUMS; r += N_MATRICES) {
        const uint row = first_row + r / N_MATRICES;
        [[unroll]] for (uint t = 0; t < N_TOKENS; t++) {
            float y = team_sum(sums[r][t], id);
#ifdef PAIR
            y = silu(y) * team_sum(sums[r + 1][t], id);
#endif
            if (lane == 0 && row < job.n_rows && first_token + t < job.n_tokens)
                Floats(job.y + uint64_t(first_token + t) * job.y_stride * 4).v[row] = y;
        }
    }
}

void main()
{
    const Job job = p.jobs.v[gl_WorkGroupID.y];
    const uint per_group = gl_WorkGroupSize.x / TEAM * N_ROWS;
    if (gl_WorkGroupID.x * per_group >= job.n_rows)
        return;
    // an invocation's number such that subgroups are runs of numbers
    const uint id = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
    const uint first_row = gl_WorkGroupID.x * per_group + id / TEAM * N_ROWS;
    const uint step = gl_NumWorkGroups.z * N_TOKENS;
    for (uint t = gl_WorkGroupID.z * N_TOKENS; t < job.n_tokens; t += step)
        product(job, first_row, t, id);
}

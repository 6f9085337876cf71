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
#include "chunks.glsl"
#extension GL_KHR_shader_subgroup_shuffle : require

layout(constant_id = 6) const uint N_TOKENS = 1; // 1, 2, 4, 8
layout(constant_id = 7) const uint N_ROWS = 1;   // at most 4, with pairs 2

layout(constant_id = 9) const uint IS_EARLY = 0;
// Workgroups' y are picks of routed experts, of which there is one job.
layout(constant_id = 10) const uint IS_ROUTED = 0;

layout(push_constant, scalar) uniform Push {
    Jobs jobs;
    uint n_cols, unused;
    Routing routing;
} p;

#ifdef PAIR
const uint N_MATRICES = 2;
#else
const uint N_MATRICES = 1;
#endif
const uint MOST_ROWS = 4, MOST_TOKENS = 8;
const uint N_SUMS = N_MATRICES * N_ROWS;
const uint TEAM = 16, TILE = TEAM * CHUNK, QUADS = TILE / 4;
const uint STAGE_TILES = MOST_TOKENS / N_TOKENS; // tiles whose x is in shared memory at once

// 16 KiB: four columns of a token each, where no two lanes want the same bank.
shared vec4 xs[MOST_TOKENS * QUADS];

uint quad_at(uint tile, uint token, uint j, uint lane)
{
    return ((tile * N_TOKENS + token) * CHUNK / 4 + j) * TEAM + (lane ^ j);
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

// What a lane has of its rows in a tile; of pairs gate and up by turns.
void load_rows(Job job, uint first_row, uint tile, uint lane, out Chunk c[MOST_ROWS])
{
    const uint col = tile * TILE + lane * PIECE;
    [[unroll]] for (uint r = 0; r < N_SUMS; r++) {
        const uint row = job.first_row + min(first_row + r / N_MATRICES, job.n_rows - 1);
        if (r % N_MATRICES == 0)
            c[r] = load_chunk(job.weight, row, col, TEAM * PIECE, p.n_cols);
        else
            c[r] = load_chunk(job.up, row, col, TEAM * PIECE, p.n_cols);
    }
}

void add_tile(uint tile, uint lane, Chunk c[MOST_ROWS], inout float sums[MOST_ROWS][MOST_TOKENS])
{
    float dots[MOST_ROWS][MOST_TOKENS], x_sums[MOST_TOKENS];
    [[unroll]] for (uint r = 0; r < N_SUMS; r++)
        [[unroll]] for (uint t = 0; t < N_TOKENS; t++)
            dots[r][t] = x_sums[t] = 0.0;
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

// With IS_EARLY a tile's weights are on their way while x is fetched, or the tile before multiplied.
void product(Job job, uint first_row, uint first_token, uint id)
{
    const uint lane = id % TEAM, n_tiles = (p.n_cols + TILE - 1) / TILE;
    float sums[MOST_ROWS][MOST_TOKENS];
    Chunk c[MOST_ROWS], next[MOST_ROWS];
    [[unroll]] for (uint r = 0; r < N_SUMS; r++)
        [[unroll]] for (uint t = 0; t < N_TOKENS; t++)
            sums[r][t] = 0.0;
    if (IS_EARLY != 0)
        load_rows(job, first_row, 0, lane, next);
    for (uint first = 0; first < n_tiles; first += STAGE_TILES) {
        const uint n = min(STAGE_TILES, n_tiles - first);
        barrier(); // what was there has been read
        stage(job, first_token, first * TILE, n);
        barrier();
        for (uint tile = 0; tile < n; tile++) {
            if (IS_EARLY == 0) {
                load_rows(job, first_row, first + tile, lane, c);
            } else {
                [[unroll]] for (uint r = 0; r < N_SUMS; r++)
                    c[r] = next[r];
                if (first + tile + 1 < n_tiles)
                    load_rows(job, first_row, first + tile + 1, lane, next);
            }
            add_tile(tile, lane, c, sums);
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
    Job job;
    if (IS_ROUTED != 0)
        job = routed_job(p.jobs, p.routing, gl_WorkGroupID.y);
    else
        job = p.jobs.v[gl_WorkGroupID.y];
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

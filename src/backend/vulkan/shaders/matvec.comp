#version 460
// SPDX-License-Identifier: MIT
// y[t, o] = sum over i of weight[first_row + o, i] * x[t, i], for jobs of one form; of pairs
// silu(weight x) * (up x). A workgroup's y is a job, its x some rows of it, its z some tokens.
//
// 16 lanes have N_ROWS rows and N_TOKENS tokens: a weight is read once for them. Columns go by tiles
// of 512, of which a lane has 32, so that 4 bits are a load of 16 bytes; x waits in shared memory,
// and what comes after is on its way. The sum of a row and a token is the same whatever N_ROWS,
// N_TOKENS and IS_WIDE are, and as matvec_one.comp has it: a lane's 32 columns are summed one
// after another, then its tiles, and lanes are added in pairs, fours, eights.
//! variant matvec_any -DANY
//! variant matvec_any_pair -DANY -DPAIR
//! variant matvec_affine -DAFFINE
//! variant matvec_affine_small -DAFFINE -DSUBNORMAL
//! variant matvec_affine_pair -DAFFINE -DPAIR
//! variant matvec_affine_pair_small -DAFFINE -DPAIR -DSUBNORMAL
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

layout(constant_id = 6) const uint N_TOKENS = 2; // 2, 4, 8
layout(constant_id = 7) const uint N_ROWS = 1;   // at most 4, with pairs 2

layout(push_constant, scalar) uniform Push {
    Jobs jobs;
    uint n_cols, n_jobs;
} p;

layout(constant_id = 9) const uint IS_EARLY = 0;

#ifdef PAIR
const uint N_MATRICES = 2;
#else
const uint N_MATRICES = 1;
#endif
const uint MOST_TOKENS = 8, N_SUMS = N_MATRICES * N_ROWS;
const uint THREADS = 128, TEAM = 16, TILE = TEAM * CHUNK, QUADS = TILE / 4;
const uint STAGE_TILES = MOST_TOKENS / N_TOKENS; // tiles whose x is in shared memory at once

// 16 KiB: four columns of a token each, where no two lanes want the same bank.
shared vec4 xs[MOST_TOKENS * QUADS];
shared float x_sums[THREADS]; // of a tile, a token and a lane

uint64_t x_at[N_TOKENS];
vec4 x_ahead[MOST_TOKENS]; // an invocation's of the next stage: of each tile and token one
float sums[N_SUMS * N_TOKENS];

uint quad_at(uint slice, uint j, uint lane)
{
    return (slice * CHUNK / 4 + j) * TEAM + (lane ^ j);
}

void find_x(Job job, uint first_token)
{
    [[unroll]] for (uint i = 0; i < N_TOKENS; i++) {
        const uint t = min(first_token + i, job.n_tokens - 1);
        uint row = t;
        if (job.rows != 0)
            row = Words(job.rows).v[t];
        x_at[i] = job.x + uint64_t(row) * job.x_stride * 4;
    }
}

// The tiles from `tile` on, zeros beyond the end.
void load_x(uint tile, uint id)
{
    [[unroll]] for (uint i = 0; i < MOST_TOKENS; i++) {
        const uint64_t x = x_at[i % N_TOKENS];
        const uint col = (tile + i / N_TOKENS) * TILE + id * 4;
        vec4 v = vec4(0.0);
        if (IS_WIDE != 0) {
            if (col < p.n_cols)
                v = Floats4(x + uint64_t(col) * 4).v[0];
        } else {
            [[unroll]] for (uint e = 0; e < 4; e++)
                if (col + e < p.n_cols)
                    v[e] = Floats(x).v[col + e];
        }
        x_ahead[i] = v;
    }
}

// Puts what has been loaded into shared memory.
void stage(uint id)
{
    const uint per_piece = PIECE / 4, of_piece = id / per_piece;
    const uint j = of_piece / TEAM * per_piece + id % per_piece;
    barrier(); // what was there has been read
    [[unroll]] for (uint i = 0; i < MOST_TOKENS; i++)
        xs[quad_at(i, j, of_piece % TEAM)] = x_ahead[i] * QUAD_FACTORS(j);
    barrier();
    if (HAS_MIN) {
        vec4 x[CHUNK / 4];
        [[unroll]] for (uint i = 0; i < CHUNK / 4; i++)
            x[i] = xs[quad_at(id / TEAM, i, id % TEAM)] * QUAD_POWERS(i);
        x_sums[id] = sum_of_quads(x);
        barrier();
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
void load_rows(Job job, uint first_row, uint tile, uint lane, out Chunk c[N_SUMS])
{
    const uint col = tile * TILE + lane * PIECE;
    [[unroll]] for (uint r = 0; r < N_SUMS; r++) {
        const uint row = job.first_row + min(first_row + r / N_MATRICES, job.n_rows - 1);
        if (r % N_MATRICES == 0)
            c[r] = fetch_chunk(job.weight, row, col, TEAM * PIECE, p.n_cols);
        else
            c[r] = fetch_chunk(job.up, row, col, TEAM * PIECE, p.n_cols);
    }
}

// A tile of those in shared memory.
void add_tile(uint tile, uint lane, Chunk c[N_SUMS])
{
    float dots[N_SUMS * N_TOKENS];
    [[unroll]] for (uint i = 0; i < N_SUMS * N_TOKENS; i++)
        dots[i] = 0.0;
    [[unroll]] for (uint j = 0; j < CHUNK / 4; j++) {
        vec4 w[N_SUMS];
        [[unroll]] for (uint r = 0; r < N_SUMS; r++)
            w[r] = quad(c[r], j);
        [[unroll]] for (uint t = 0; t < N_TOKENS; t++) {
            const vec4 x = xs[quad_at(tile * N_TOKENS + t, j, lane)];
            [[unroll]] for (uint e = 0; e < 4; e++)
                [[unroll]] for (uint r = 0; r < N_SUMS; r++)
                    dots[r * N_TOKENS + t] = add_product(dots[r * N_TOKENS + t], w[r][e], x[e]);
        }
    }
    [[unroll]] for (uint t = 0; t < N_TOKENS; t++) {
        const float x_sum = x_sums[(tile * N_TOKENS + t) * TEAM + lane];
        [[unroll]] for (uint r = 0; r < N_SUMS; r++)
            sums[r * N_TOKENS + t] = add_part(sums[r * N_TOKENS + t],
                                              part_of(c[r], dots[r * N_TOKENS + t], x_sum));
    }
}

void put_rows(Job job, uint first_row, uint first_token, uint id)
{
    [[unroll]] for (uint r = 0; r < N_SUMS; r += N_MATRICES) {
        const uint row = first_row + r / N_MATRICES;
        [[unroll]] for (uint t = 0; t < N_TOKENS; t++) {
            float y = team_sum(sums[r * N_TOKENS + t], id);
#ifdef PAIR
            y = silu(y) * team_sum(sums[(r + 1) * N_TOKENS + t], id);
#endif
            if (id % TEAM == 0 && row < job.n_rows && first_token + t < job.n_tokens) {
                uint y_row = first_token + t;
                if (job.y_rows != 0)
                    y_row = Words(job.rows).v[job.y_rows + y_row];
                Floats(job.y + uint64_t(y_row) * job.y_stride * 4).v[row] = y;
            }
        }
    }
}

// With IS_EARLY a tile's weights are on their way while x is fetched, or the tile before multiplied.
void product(Job job, uint first_row, uint first_token, uint id)
{
    const uint lane = id % TEAM, n_tiles = (p.n_cols + TILE - 1) / TILE;
    Chunk c[N_SUMS];
    [[unroll]] for (uint i = 0; i < N_SUMS * N_TOKENS; i++)
        sums[i] = 0.0;
    if (IS_EARLY != 0)
        load_rows(job, first_row, 0, lane, c);
    find_x(job, first_token);
    load_x(0, id);
    for (uint first = 0; first < n_tiles; first += STAGE_TILES) {
        stage(id);
        if (first + STAGE_TILES < n_tiles)
            load_x(first + STAGE_TILES, id);
        for (uint tile = 0; tile < STAGE_TILES && first + tile < n_tiles; tile++) {
            if (IS_EARLY == 0) {
                load_rows(job, first_row, first + tile, lane, c);
                add_tile(tile, lane, c);
            } else {
                Chunk next[N_SUMS];
                load_rows(job, first_row, min(first + tile + 1, n_tiles - 1), lane, next);
                add_tile(tile, lane, c);
                [[unroll]] for (uint r = 0; r < N_SUMS; r++)
                    c[r] = next[r];
            }
        }
    }
    put_rows(job, first_row, first_token, id);
}

void main()
{
    const uint per_group = THREADS / TEAM * N_ROWS;
    // an invocation's number such that subgroups are runs of numbers
    const uint id = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
    begin_chunks(id, p.n_cols >> 31);
    const uint first_row = gl_WorkGroupID.x * per_group + id / TEAM * N_ROWS;
    const uint step = gl_NumWorkGroups.z * N_TOKENS;
    [[dont_unroll]] for (uint i = gl_WorkGroupID.y; i < p.n_jobs; i += gl_NumWorkGroups.y) {
        const Job job = p.jobs.v[i];
        if (gl_WorkGroupID.x * per_group >= job.n_rows)
            return; // as of all that follow: those that the device made, and then none, or the last
        for (uint t = gl_WorkGroupID.z * N_TOKENS; t < job.n_tokens; t += step)
            product(job, first_row, t, id);
    }
}

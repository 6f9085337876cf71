#version 460
// SPDX-License-Identifier: MIT
// The products of matvec.comp for few tokens and rows of at most SPAN tiles: a lane keeps its 32 columns
// of a tile of N_TOKENS tokens' x in registers and goes through rows with them, of which the next two
// are on their way. So a weight is unpacked once for them, and what is left to do for each of its
// products is the product. The SPAN tiles of a row are multiplied side by side. Parts are added in the
// order that matvec.comp has: a row's tiles one after another, then lanes in pairs, fours, eights.
// A workgroup's y is a job, its x some rows of it, its z some tokens.
//! variant matvec_few_any -DANY
//! variant matvec_few_any_pair -DANY -DPAIR
//! variant matvec_few_affine -DAFFINE
//! variant matvec_few_affine_small -DAFFINE -DSUBNORMAL
//! variant matvec_few_affine_pair -DAFFINE -DPAIR
//! variant matvec_few_affine_pair_small -DAFFINE -DPAIR -DSUBNORMAL
//! variant matvec_few_fp8 -DFP8
//! variant matvec_few_fp8_pair -DFP8 -DPAIR
//! variant matvec_few_float -DFLOATS
//! variant matvec_few_float_pair -DFLOATS -DPAIR
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "jobs.glsl"
#include "chunks.glsl"
#extension GL_KHR_shader_subgroup_shuffle : require

layout(constant_id = 6) const uint N_TOKENS = 2;  // 2, 4
layout(constant_id = 7) const uint SPAN = 1;      // 1, 2, 4, 8
layout(constant_id = 9) const uint N_BATCHES = 1; // of BATCH rows, of a team

layout(push_constant, scalar) uniform Push {
    Jobs jobs;
    uint n_cols, n_jobs;
} p;
#define N_COLS p.n_cols

const uint THREADS = 128, TEAM = 16, TILE = TEAM * CHUNK, QUADS = TILE / 4;
#ifdef PAIR
const uint N_MATRICES = 2, BATCH = 2;
#else
const uint N_MATRICES = 1, BATCH = 4;
#endif
const uint N_TEAMS = THREADS / TEAM, N_RUNS = N_TEAMS / SPAN; // of rows
const uint AHEAD = 2;
const uint PER_GROUP = N_RUNS * BATCH * N_BATCHES;
const uint N_RESULTS = (N_RUNS * BATCH * N_TOKENS + N_TEAMS - 1) / N_TEAMS; // of a batch, a team's
const uint X_LOADS = SPAN;
const uint N_PARTS4 = N_MATRICES * BATCH * N_TOKENS * THREADS / 4;

// First x, where no two lanes want the same bank; then parts.
shared vec4 memory[SPAN * QUADS > N_PARTS4 ? SPAN * QUADS : N_PARTS4];
shared float exchange[THREADS];
const uint IS_REGULAR = 0;
#include "cursor.glsl"

vec4 x[N_TOKENS * CHUNK / 4]; // of the lane, times QUAD_FACTORS
float x_sums[N_TOKENS];       // before that

uint quad_at(uint tile, uint j, uint lane)
{
    return (tile * CHUNK / 4 + j) * TEAM + (lane ^ j);
}

// What an invocation brings of a row of x, zeros beyond its end.
void load_x(Job job, uint token, uint id, out vec4 loads[X_LOADS])
{
    const uint t = min(token, job.n_tokens - 1);
    uint row = t;
    if (job.rows != 0)
        row = Words(job.rows).v[t];
    const uint64_t from = job.x + uint64_t(row) * job.x_stride * 4;
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        const uint col = (i * THREADS + id) * 4;
        vec4 v = vec4(0.0);
        if (IS_WIDE != 0) {
            if (col < N_COLS)
                v = Floats4(from + uint64_t(col) * 4).v[0];
        } else {
            [[unroll]] for (uint e = 0; e < 4; e++)
                if (col + e < N_COLS)
                    v[e] = Floats(from).v[col + e];
        }
        loads[i] = v;
    }
}

// Shares them, and takes the lane's own.
void take_x(vec4 loads[X_LOADS], uint token, uint id)
{
    const uint per_piece = PIECE / 4, lane = id % TEAM, tile = id / TEAM % SPAN;
    barrier(); // what was there has been read
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        const uint quad = i * THREADS + id, of_piece = quad % QUADS / per_piece;
        const uint j = of_piece / TEAM * per_piece + quad % per_piece;
        memory[quad_at(quad / QUADS, j, of_piece % TEAM)] = loads[i];
    }
    barrier();
    vec4 mine[CHUNK / 4];
    [[unroll]] for (uint j = 0; j < CHUNK / 4; j++)
        mine[j] = memory[quad_at(tile, j, lane)];
    x_sums[token] = sum_of_quads(mine);
    [[unroll]] for (uint j = 0; j < CHUNK / 4; j++)
        x[token * CHUNK / 4 + j] = mine[j] * QUAD_FACTORS(j);
}

// The lane's parts of a row's products with all tokens, to where add_parts finds them.
void multiply(Chunk c, uint matrix, uint row, uint id)
{
    float dots[N_TOKENS];
    [[unroll]] for (uint t = 0; t < N_TOKENS; t++)
        dots[t] = 0.0;
    [[unroll]] for (uint j = 0; j < CHUNK / 4; j++) {
        const vec4 w = quad(c, j);
        [[unroll]] for (uint e = 0; e < 4; e++)
            [[unroll]] for (uint t = 0; t < N_TOKENS; t++)
                dots[t] = add_product(dots[t], w[e], x[t * CHUNK / 4 + j][e]);
    }
    [[unroll]] for (uint t = 0; t < N_TOKENS; t++) {
        const uint at = ((matrix * BATCH + row) * N_TOKENS + t) * THREADS + id;
        memory[at / 4][at % 4] = part_of(c, dots[t], x_sums[t]);
    }
}

float add_parts(uint matrix, uint row, uint token, uint run, uint lane)
{
    const uint n_tiles = (N_COLS + TILE - 1) / TILE;
    float sum = 0.0;
    [[unroll]] for (uint i = 0; i < SPAN; i++) {
        const uint at = ((matrix * BATCH + row) * N_TOKENS + token) * THREADS +
                        (run * SPAN + i) * TEAM + lane;
        if (i < n_tiles)
            sum = add_part(sum, memory[at / 4][at % 4]);
    }
    return sum;
}

// The sum over the lanes of a team, in the same order for any size of subgroups.
float team_sum(float v, uint id)
{
    [[unroll]] for (uint d = 1; d < TEAM; d *= 2) {
        if (d < gl_SubgroupSize) {
            v += subgroupShuffleXor(v, d);
        } else {
            barrier();
            exchange[id] = v;
            barrier();
            v += exchange[id ^ d];
        }
    }
    return v;
}

// The results of a batch of each run of rows: each team has some of them.
void put_batch(Job job, uint first_row, uint batch, uint first_token, uint id)
{
    [[unroll]] for (uint i = 0; i < N_RESULTS; i++) {
        const uint which = i * N_TEAMS + id / TEAM, of_run = which / N_RUNS % (BATCH * N_TOKENS);
        const uint run = which % N_RUNS, r = of_run / N_TOKENS, t = of_run % N_TOKENS;
        float y = team_sum(add_parts(0, r, t, run, id % TEAM), id);
#ifdef PAIR
        y = silu(y) * team_sum(add_parts(1, r, t, run, id % TEAM), id);
#endif
        const uint row = first_row + (run * N_BATCHES + batch) * BATCH + r;
        if (id % TEAM == 0 && which < N_RUNS * BATCH * N_TOKENS && row < job.n_rows &&
            first_token + t < job.n_tokens) {
            uint y_row = first_token + t;
            if (job.y_rows != 0)
                y_row = Words(job.rows).v[job.y_rows + y_row];
            Floats(job.y + uint64_t(y_row) * job.y_stride * 4).v[row] = y;
        }
    }
}

void product(Job job, uint first_row, uint first_token, uint id)
{
    const uint lane = id % TEAM, tile = id / TEAM % SPAN, run = id / (TEAM * SPAN);
    Cursor cursor =
        begin_rows(job, first_row + run * N_BATCHES * BATCH, tile * TILE + lane * PIECE);
    Chunk chunks[AHEAD * N_MATRICES];
    [[unroll]] for (uint a = 0; a < AHEAD; a++) {
        [[unroll]] for (uint m = 0; m < N_MATRICES; m++)
            chunks[a * N_MATRICES + m] = fetch(cursor, m);
        next_row(cursor);
    }
    vec4 loads[X_LOADS], next[X_LOADS];
    load_x(job, first_token, id, loads);
    [[unroll]] for (uint t = 0; t < N_TOKENS; t++) {
        if (t + 1 < N_TOKENS)
            load_x(job, first_token + t + 1, id, next);
        take_x(loads, t, id);
        [[unroll]] for (uint i = 0; i < X_LOADS; i++)
            loads[i] = next[i];
    }
    [[dont_unroll]] for (uint batch = 0; batch < N_BATCHES; batch++) {
        barrier(); // x has been taken, or the parts before
        [[dont_unroll]] for (uint r = 0; r < BATCH; r += AHEAD) {
            [[unroll]] for (uint a = 0; a < AHEAD; a++) {
                [[unroll]] for (uint m = 0; m < N_MATRICES; m++) {
                    const uint i = a * N_MATRICES + m;
                    multiply(chunks[i], m, r + a, id);
                    chunks[i] = fetch(cursor, m);
                }
                next_row(cursor);
            }
        }
        barrier();
        put_batch(job, first_row, batch, first_token, id);
    }
}

void main()
{
    const uint first_row = gl_WorkGroupID.x * PER_GROUP;
    // an invocation's number such that subgroups are runs of numbers
    const uint id = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
    const uint step = gl_NumWorkGroups.z * N_TOKENS;
    begin_chunks(id, p.n_cols >> 31);
    [[dont_unroll]] for (uint i = gl_WorkGroupID.y; i < p.n_jobs; i += gl_NumWorkGroups.y) {
        const Job job = p.jobs.v[i];
        if (first_row >= job.n_rows)
            return; // as of all that follow: those that the device made, and then none, or the last
        for (uint t = gl_WorkGroupID.z * N_TOKENS; t < job.n_tokens; t += step)
            product(job, first_row, t, id);
    }
}

#version 460
// SPDX-License-Identifier: MIT
// y[t, c] = sum over r of weight[first_row + r, c] * x[t, r], for jobs that are heads. A workgroup's x
// is a tile of columns, its y a job, its z some tokens.
// A team of lanes has the tile's columns, 32 a lane as in the other products. ROWS neighbouring rows
// are a group: their part of a column is summed first, then groups are added one after another. Of few
// tokens a team has a group, of many N_TOKENS tokens and all groups: a token gets the same bits.
//! variant head_transposed_any -DANY
//! variant head_transposed_affine -DAFFINE
//! variant head_transposed_fp8 -DFP8
//! variant head_transposed_float -DFLOATS
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "jobs.glsl"
#include "chunks.glsl"

layout(constant_id = 6) const uint N_TOKENS = 1; // of a team; 1: a team has a group

layout(push_constant, scalar) uniform Push {
    Jobs jobs;
    uint n_cols, unused;
} p;

const uint TEAM = 16, TILE = TEAM * CHUNK, QUADS = CHUNK / 4;
const uint THREADS = 256, N_TEAMS = THREADS / TEAM;
const uint ROWS = N_WORDS == 8 ? 8 : 4; // of so many chunks as there are registers for
const uint TOGETHER = 8;                // groups whose parts are in shared memory at a time

shared vec4 memory[N_TOKENS == 1 ? TOGETHER * TILE / 4 : 1];

vec4 sums[N_TOKENS * QUADS]; // of a lane's columns

float x_at(Job job, uint token, uint row)
{
    const uint t = min(token, job.n_tokens - 1);
    return row < job.n_rows ? Floats(job.x + uint64_t(t) * job.x_stride * 4).v[row] : 0.0;
}

// A group's parts for the tokens from `first` on.
void add_group(Job job, uint group, uint col, uint first)
{
    Chunk chunks[ROWS];
    float x[ROWS * N_TOKENS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        const uint row = group * ROWS + r, at = job.first_row + min(row, job.n_rows - 1);
        chunks[r] = fetch_chunk(job.weight, at, col, TEAM * PIECE, p.n_cols);
        [[unroll]] for (uint t = 0; t < N_TOKENS; t++)
            x[r * N_TOKENS + t] = x_at(job, first + t, row);
    }
    vec2 lines[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        lines[r] = line_of(chunks[r]);
    [[unroll]] for (uint j = 0; j < QUADS; j++) {
        precise vec4 parts[N_TOKENS];
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            const vec4 w = values_of(chunks[r], j, lines[r]);
            [[unroll]] for (uint t = 0; t < N_TOKENS; t++)
                parts[t] = r == 0 ? w * x[t] : fma(w, vec4(x[r * N_TOKENS + t]), parts[t]);
        }
        [[unroll]] for (uint t = 0; t < N_TOKENS; t++) {
            precise vec4 sum = sums[t * QUADS + j] + parts[t];
            sums[t * QUADS + j] = sum;
        }
    }
}

void clear()
{
    [[unroll]] for (uint i = 0; i < N_TOKENS * QUADS; i++)
        sums[i] = vec4(0.0);
}

// The tile's column of value e of a lane's quad.
uint column(uint lane, uint j, uint e)
{
    return gl_WorkGroupID.x * TILE + lane * PIECE + quad_col(j, TEAM * PIECE) + e;
}

// Tokens of a team.
void multiply_many(Job job, uint team, uint lane)
{
    const uint n_groups = (job.n_rows + ROWS - 1) / ROWS, col = column(lane, 0, 0);
    [[dont_unroll]] for (uint first = (gl_WorkGroupID.z * N_TEAMS + team) * N_TOKENS;
                         first < job.n_tokens; first += gl_NumWorkGroups.z * N_TEAMS * N_TOKENS) {
        clear();
        [[dont_unroll]] for (uint group = 0; group < n_groups; group++)
            add_group(job, group, col, first);
        [[unroll]] for (uint t = 0; t < N_TOKENS; t++)
            [[unroll]] for (uint i = 0; i < CHUNK; i++) {
                const uint c = column(lane, i / 4, i % 4), token = first + t;
                if (token < job.n_tokens && c < p.n_cols)
                    Floats(job.y + uint64_t(token) * job.y_stride * 4).v[c] =
                        sums[t * QUADS + i / 4][i % 4];
            }
    }
}

// What is in shared memory of the groups that there are, to the columns that an invocation adds up: two
// of a quad.
void add_parts(uint id, uint n, inout vec2 totals)
{
    const uint quad = id / 2, e = id % 2 * 2;
    for (uint i = 0; i < TOGETHER; i++) {
        const vec4 part = memory[i * (TILE / 4) + quad];
        precise vec2 sum = totals + vec2(part[e], part[e + 1]);
        totals = i < n ? sum : totals;
    }
}

// Groups of a team, for one token.
void multiply_one(Job job, uint id, uint token)
{
    const uint n_groups = (job.n_rows + ROWS - 1) / ROWS, team = id / TEAM, lane = id % TEAM;
    vec2 totals = vec2(0.0);
    [[dont_unroll]] for (uint first = 0; first < n_groups; first += N_TEAMS) {
        clear();
        if (first + team < n_groups)
            add_group(job, first + team, column(lane, 0, 0), token);
        [[unroll]] for (uint at = 0; at < N_TEAMS; at += TOGETHER) {
            barrier(); // what lay there has been read
            if (team >= at && team < at + TOGETHER)
                [[unroll]] for (uint j = 0; j < QUADS; j++)
                    memory[((team - at) * QUADS + j) * TEAM + lane] = sums[j];
            barrier();
            add_parts(id, n_groups - min(n_groups, first + at), totals);
        }
    }
    const uint quad = id / 2; // of lane quad % TEAM the (quad / TEAM)-th
    [[unroll]] for (uint e = 0; e < 2; e++) {
        const uint c = column(quad % TEAM, quad / TEAM, id % 2 * 2 + e);
        if (c < p.n_cols)
            Floats(job.y + uint64_t(token) * job.y_stride * 4).v[c] = totals[e];
    }
}

void main()
{
    const Job job = p.jobs.v[gl_WorkGroupID.y];
    const uint id = gl_LocalInvocationID.x;
    begin_chunks(id, p.n_cols >> 31);
    if (N_TOKENS != 1) {
        multiply_many(job, id / TEAM, id % TEAM);
        return;
    }
    [[dont_unroll]] for (uint token = gl_WorkGroupID.z; token < job.n_tokens;
                         token += gl_NumWorkGroups.z)
        multiply_one(job, id, token);
}

#version 460
// SPDX-License-Identifier: MIT
// The last product of one row's routed experts with what is made of it: x += sigmoid(shared_gate) *
// shared + sum over picks j of weights[j] * (down of expert ids[j]) act[j]. A team of a workgroup
// multiplies rows of one pick's expert, and the picks' results meet there: the bits are those of
// matvec_one.comp and combine.comp one after the other.
//! variant experts_out_any -DANY
//! variant experts_out_affine -DAFFINE
//! variant experts_out_affine_small -DAFFINE -DSUBNORMAL
//! variant experts_out_fp8 -DFP8
//! variant experts_out_float -DFLOATS
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "jobs.glsl"
#include "chunks.glsl"
#extension GL_KHR_shader_subgroup_shuffle : require

layout(constant_id = 6) const uint K = 1;
layout(constant_id = 7) const uint N_ROWS = 4; // of a team
layout(constant_id = 9) const uint COLS = 0;   // 0: p.n_cols says it
layout(constant_id = 10) const uint IS_REGULAR = 0; // rows are whole workgroups'
layout(constant_id = 11) const uint IS_TURNED = 0;  // act lies as `turned` says

layout(push_constant, scalar) uniform Push {
    Jobs jobs; // one, of the first pick with its expert in slot 0
    Floats x, weights;
    uint64_t shared_rows, shared_gate; // Floats; 0: none
    Ints ids;
    Words slot;
    uint64_t slot_bytes;
    uint n_cols, scales_stride, biases_stride; // strides: as matvec_one.comp has them
} p;
#define N_COLS (COLS != 0 ? COLS : p.n_cols)

const uint THREADS = 128, TEAM = 16, TILE = TEAM * CHUNK, TEAMS = THREADS / TEAM;
const uint SIDE = K <= 1 ? 1 : K == 2 ? 2 : K <= 4 ? 4 : TEAMS; // picks side by side
const uint PER_GROUP = TEAMS / SIDE * N_ROWS;

shared float results[K * PER_GROUP];
shared float exchange[THREADS];
#include "teams.glsl"

Weight expert_weight(Weight w, uint pick)
{
    const uint expert = uint(p.ids.v[pick]);
    const uint64_t to = uint64_t(p.slot.v[expert]) * p.slot_bytes;
    w.values += to;
    w.scales += p.scales_stride == 0 ? to : uint64_t(expert) * p.scales_stride;
    w.biases += p.biases_stride == 0 ? to : uint64_t(expert) * p.biases_stride;
    return w;
}

// The lane's columns of a tile, from `first` on; zeros beyond the end.
void load_x(uint64_t from, uint first)
{
    [[unroll]] for (uint j = 0; j < CHUNK / 4; j++) {
        const uint at = first + quad_col(j, TEAM * PIECE), col = IS_TURNED != 0 ? turned(at) : at;
        x[j] = vec4(0.0);
        if (IS_WIDE != 0) {
            if (col < N_COLS)
                x[j] = Floats4(from + uint64_t(col) * 4).v[0];
        } else {
            [[unroll]] for (uint e = 0; e < 4; e++)
                if (col + e < N_COLS)
                    x[j][e] = Floats(from).v[col + e];
        }
    }
    x_sum = sum_of_quads(x);
    [[unroll]] for (uint j = 0; j < CHUNK / 4; j++)
        x[j] *= QUAD_FACTORS(j);
}

// The lane's part of N_ROWS rows from `row` on; beyond the last it is the last's.
void fetch_rows(Weight w, uint row, uint n_rows, uint first, out Chunk chunks[N_ROWS])
{
#ifdef HAS_PLACES
    if (HAS_PLACES) {
        Weight at = chunk_at(w, IS_REGULAR != 0 ? row : min(row, n_rows - 1), first, N_COLS);
        [[unroll]] for (uint i = 0; i < N_ROWS; i++) {
            chunks[i] = fetch_at(at, first);
            if (IS_REGULAR != 0 || row + i + 1 < n_rows) {
                at.values += row_bytes(N_COLS);
                at.scales += scale_row_bytes(N_COLS);
                at.biases += scale_row_bytes(N_COLS);
            }
        }
        return;
    }
#endif
    [[unroll]] for (uint i = 0; i < N_ROWS; i++)
        chunks[i] = fetch_chunk(w, min(row + i, n_rows - 1), first, TEAM * PIECE, N_COLS);
}

// N_ROWS rows of a pick's product, from `row` on, to results from `to` on.
void multiply_rows(Job job, uint pick, uint row, uint to, bool is_pick, uint id)
{
    const Weight w = expert_weight(job.weight, min(pick, K - 1));
    const uint64_t from = job.x + uint64_t(min(pick, K - 1)) * job.x_stride * 4;
    float totals[N_ROWS];
    [[unroll]] for (uint i = 0; i < N_ROWS; i++)
        totals[i] = 0.0;
    [[dont_unroll]] for (uint tile = 0; tile * TILE < N_COLS; tile++) {
        const uint first = tile * TILE + id % TEAM * PIECE;
        Chunk chunks[N_ROWS];
        fetch_rows(w, row, job.n_rows, first, chunks);
        load_x(from, first);
        [[unroll]] for (uint i = 0; i < N_ROWS; i++)
            totals[i] = add_part(totals[i], multiply(chunks[i]));
    }
    [[unroll]] for (uint i = 0; i < N_ROWS; i++) {
        const float y = team_sum(totals[i], id);
        if (id % TEAM == 0 && is_pick)
            results[to + i] = y;
    }
}

void main()
{
    const uint id = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID, team = id / TEAM;
    const uint first_row = gl_WorkGroupID.x * PER_GROUP, at = team / SIDE * N_ROWS;
    const uint row = first_row + id;
    const Job job = p.jobs.v[0];
    const bool is_last = id < PER_GROUP && row < job.n_rows;
    float weights[K], old = 0.0, sum = 0.0, gate = 0.0; // on their way while others multiply
    if (is_last) {
        old = sum = p.x.v[row];
        if (p.shared_rows != 0)
            sum = Floats(p.shared_rows).v[row];
        if (p.shared_gate != 0)
            gate = Floats(p.shared_gate).v[0];
        [[unroll]] for (uint j = 0; j < K; j++)
            weights[j] = p.weights.v[j];
    }
    begin_chunks(id, p.n_cols >> 31);
    [[dont_unroll]] for (uint first = 0; first < K; first += SIDE) {
        const uint pick = first + team % SIDE;
        multiply_rows(job, pick, first_row + at, pick * PER_GROUP + at, pick < K, id);
    }
    barrier();
    if (!is_last)
        return;
    if (p.shared_rows != 0 && p.shared_gate != 0)
        sum *= sigmoid(gate);
    [[unroll]] for (uint j = 0; j < K; j++)
        sum = fma(weights[j], results[j * PER_GROUP + id], sum);
    p.x.v[row] = p.shared_rows != 0 ? old + sum : sum;
}

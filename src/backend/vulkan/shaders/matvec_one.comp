#version 460
// SPDX-License-Identifier: MIT
// The products of matvec.comp for jobs of one token, where what counts is how soon memory answers.
// A lane keeps its 32 columns of x of a tile in registers and goes through N_ROWS rows with them, of
// which AHEAD are on their way at once; SPAN tiles of a row are multiplied side by side. x comes by
// shared memory: so it is read in one piece. Then nothing is waited for but weights, until the parts
// are added up, in the order that matvec.comp has: a lane's tiles one after another, then lanes in
// pairs, fours, eights.
// Jobs that fit come with the push constants: their workgroups are numbered through (x); of pairs each
// takes two places. Else a workgroup's y is a job.
// What stands before or after a product of one row may be done here (mf_input_step, mf_output_step):
// every workgroup makes its input anew. It has the bits that it has by itself.
//! variant matvec_one_any -DANY
//! variant matvec_one_any_pair -DANY -DPAIR
//! inlined matvec_one_any
//! inlined matvec_one_any_pair
//! variant matvec_one_affine -DAFFINE
//! variant matvec_one_affine_small -DAFFINE -DSUBNORMAL
//! variant matvec_one_affine_pair -DAFFINE -DPAIR
//! variant matvec_one_affine_pair_small -DAFFINE -DPAIR -DSUBNORMAL
//! variant matvec_one_fp8 -DFP8
//! variant matvec_one_fp8_pair -DFP8 -DPAIR
//! variant matvec_one_float -DFLOATS
//! variant matvec_one_float_pair -DFLOATS -DPAIR
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "jobs.glsl"
#include "chunks.glsl"

layout(constant_id = 6) const uint SPAN = 1; // 1, 2, 4, 8
layout(constant_id = 7) const uint N_ROWS = 1;
layout(constant_id = 9) const uint AHEAD = 1; // a divisor of N_ROWS; N_ROWS where SPAN is 1
// Workgroups' y are picks of routed experts (mf_vk_routing), of which there is one job.
layout(constant_id = 10) const uint IS_ROUTED = 0;
layout(constant_id = 11) const uint BEFORE = 0; // mf_input_kind
layout(constant_id = 12) const uint AFTER = 0;  // mf_output_kind
layout(constant_id = 13) const uint EPS = 0;    // of the norm: a float's bits
layout(constant_id = 14) const uint HEAD = 4;   // columns of a norm's head
layout(constant_id = 15) const uint WIDTH = 2;  // of the convolution
layout(constant_id = 16) const uint COLS = 0;   // of all jobs; 0: p.sizes says it
// No job has fewer rows than N_ROWS: the last lanes have the last N_ROWS, some of them once more.
layout(constant_id = 17) const uint IS_REGULAR = 0;
layout(constant_id = 18) const uint IS_TURNED = 0; // results lie as lanes take columns (teams.glsl)

const uint NORMED = 1, HEADS_GATED = 2, SIGMOID = 3; // of BEFORE
const uint ADDED = 1, CONVOLVED = 2;                 // of AFTER

// A job whose arrays and result are so many units of 4 bytes from others. Where there are no such
// jobs, what picks are is in their place: see job_of_pick.
struct Direct {
    uint64_t values;
    int scales, biases; // from values
    int y;              // from the push's
    uint n_rows;
};

layout(push_constant, scalar) uniform Push {
    uint64_t jobs; // Jobs; of direct ones the norm's weight, which otherwise is direct[3].values
    uint64_t y;    // of direct ones; of picks x
    uint64_t more; // the gate; Convolution
    int x;         // of direct ones, from y; of picks from one row to the next
    uint sizes;    // the number of columns times 8, and of direct places
    Direct direct[4];
} p;
#define N_COLS (COLS != 0 ? COLS : p.sizes >> 3)
#define N_DIRECT (p.sizes & 7)

struct Convolution {
    Floats weight;
    uint64_t before, after; // Floats [width - 1, channels]; before 0: all zero
    uint64_t y;             // of the job whose results are convolved
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Convolutions {
    Convolution v[];
};

const uint TEAM = 16, TILE = TEAM * CHUNK;
#ifdef PAIR
const uint N_MATRICES = 2;
#else
const uint N_MATRICES = 1;
#endif
const uint THREADS = gl_WorkGroupSize.x, QUADS = TILE / 4;
const uint PER_GROUP = THREADS / (TEAM * SPAN) * N_ROWS; // rows
const uint N_TOTALS = SPAN == 1 ? N_ROWS : (N_ROWS + SPAN - 1) / SPAN;
const uint X_LOADS = (SPAN * QUADS + THREADS - 1) / THREADS;
const uint N_PARTS4 = SPAN == 1 ? 0 : N_MATRICES * N_ROWS * THREADS / 4;

// First x, where no two lanes want the same bank; then parts.
shared vec4 memory[SPAN * QUADS > N_PARTS4 ? SPAN * QUADS : N_PARTS4];
shared float exchange[THREADS];
#define norm_parts exchange
#include "norm.glsl"
#include "teams.glsl"
#include "conv.glsl"

float totals[N_MATRICES * N_TOTALS];

void move(inout Weight w, uint64_t to, uint expert)
{
    const uint scales_stride = uint(p.direct[0].scales), biases_stride = uint(p.direct[0].biases);
    w.values += to;
    w.scales += scales_stride == 0 ? to : uint64_t(expert) * scales_stride;
    w.biases += biases_stride == 0 ? to : uint64_t(expert) * biases_stride;
}

// A pick's row of x.
uint64_t x_of_pick(uint i)
{
    return p.y + uint64_t(i / uint(p.direct[0].y)) * uint(p.x) * 4;
}

// What a pick multiplies. Its expert's number and slot are fetched beside the job.
Job job_of_pick(uint i)
{
    const uint expert = uint(Ints(p.direct[0].values).v[i]);
    const uint64_t to = uint64_t(Words(p.direct[1].values).v[expert]) * p.direct[2].values;
    Job job = Jobs(p.jobs).v[0];
    move(job.weight, to, expert);
    move(job.up, to, expert);
    job.x = x_of_pick(i);
    job.y += uint64_t(i) * job.y_stride * 4;
    return job;
}

Weight weight_of_place(uint i)
{
    const Direct d = p.direct[i];
    return Weight(d.values, d.values + int64_t(d.scales) * 4, d.values + int64_t(d.biases) * 4);
}

// The direct job of a workgroup, which becomes its number among those of the job.
Job direct_job(inout uint group)
{
    Job job;
    uint which = 0;
    for (; which + N_MATRICES < N_DIRECT; which += N_MATRICES) {
        const uint n = (p.direct[which].n_rows + PER_GROUP - 1) / PER_GROUP;
        if (group < n)
            break;
        group -= n;
    }
    job.weight = weight_of_place(which);
#ifdef PAIR
    job.up = weight_of_place(which + 1);
#endif
    job.x = p.y + int64_t(p.x) * 4;
    job.y = p.y + int64_t(p.direct[which].y) * 4;
    job.rows = 0;
    job.first_row = 0;
    job.n_rows = p.direct[which].n_rows;
    job.n_tokens = 1;
    job.x_stride = 0;
    job.y_rows = 0;
    return job;
}

// Which rows of which job: false where there are none.
bool find_job(out Job job, out uint first_row)
{
    uint group = gl_WorkGroupID.x;
    if (IS_ROUTED != 0)
        job = job_of_pick(gl_WorkGroupID.y);
    else if (N_DIRECT == 0)
        job = Jobs(p.jobs).v[gl_WorkGroupID.y];
    else
        job = direct_job(group);
    first_row = group * PER_GROUP;
    return first_row < job.n_rows && job.n_tokens != 0;
}

uint quad_at(uint tile, uint j, uint lane)
{
    return (tile * CHUNK / 4 + j) * TEAM + (lane ^ j);
}

vec4 load4(uint64_t from, uint col)
{
    vec4 v = vec4(0.0);
    if (IS_WIDE != 0) {
        if (col < N_COLS)
            v = Floats4(from + uint64_t(col) * 4).v[0];
    } else {
        [[unroll]] for (uint e = 0; e < 4; e++)
            if (col + e < N_COLS)
                v[e] = Floats(from).v[col + e];
    }
    return v;
}

// What an invocation brings of the tiles from `tile` on, zeros beyond the end.
void load_x(uint64_t from, uint tile, uint id, out vec4 loads[X_LOADS])
{
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        const uint quad = i * THREADS + id;
        loads[i] = vec4(0.0);
        if (quad < SPAN * QUADS)
            loads[i] = load4(from, tile * TILE + quad * 4);
    }
}

uint64_t norm_weight()
{
    return IS_ROUTED == 0 && N_DIRECT != 0 ? p.jobs : p.direct[3].values;
}

// The norm's factor for the whole row, of which `loads` are the first.
float scale_of_row(uint64_t from, vec4 loads[X_LOADS], uint id)
{
    precise float even = 0.0, odd = 0.0; // of quads id and, of 128 lanes, id + 128, and so on
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        if (THREADS == 256 || i % 2 == 0)
            even += squared(loads[i]);
        else
            odd += squared(loads[i]);
    }
    uint i = X_LOADS;
    [[dont_unroll]] for (uint quad = i * THREADS + id; quad * 4 < N_COLS; quad += THREADS, i++) {
        const float s = squared(load4(from, quad * 4));
        even += THREADS == 256 || i % 2 == 0 ? s : 0.0;
        odd += THREADS == 256 || i % 2 == 0 ? 0.0 : s;
    }
    return norm_scale(sum_of_lanes(even + odd, id), N_COLS, uintBitsToFloat(EPS));
}

float row_scale;

// What an invocation has on its way of the input of a block of tiles.
struct Input {
    vec4 loads[X_LOADS], weights[X_LOADS], gates[X_LOADS];
};

void load_input(uint64_t from, uint tile, uint id, out Input given)
{
    load_x(from, tile, id, given.loads);
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        const uint col = tile * TILE + (i * THREADS + id) * 4;
        given.weights[i] = given.gates[i] = vec4(0.0);
        if (BEFORE == NORMED)
            given.weights[i] = load4(norm_weight(), col);
        if (BEFORE == HEADS_GATED)
            given.weights[i] = load4(norm_weight(), col % HEAD);
        if (BEFORE == HEADS_GATED || BEFORE == SIGMOID)
            given.gates[i] = load4(p.more, col);
    }
}

// What stands before the product.
void make_input(uint64_t from, uint tile, uint id, inout Input given)
{
    if (BEFORE == NORMED && tile == 0)
        row_scale = scale_of_row(from, given.loads, id);
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        if (BEFORE == NORMED)
            given.loads[i] = normed(given.loads[i], row_scale, given.weights[i]);
        if (BEFORE == HEADS_GATED) {
            const float sum = sum_of_run(squared(given.loads[i]), HEAD / 4, id);
            const float scale = norm_scale(sum, HEAD, uintBitsToFloat(EPS));
            given.loads[i] = gated(normed(given.loads[i], scale, given.weights[i]), given.gates[i]);
        }
        if (BEFORE == SIGMOID)
            [[unroll]] for (uint e = 0; e < 4; e++)
                given.loads[i][e] *= sigmoid(given.gates[i][e]);
    }
}

// Shares it, and takes the lane's own.
void share_x(vec4 loads[X_LOADS], uint id, uint span, uint lane)
{
    const uint per_piece = PIECE / 4;
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        const uint quad = i * THREADS + id, of_piece = quad % QUADS / per_piece;
        const uint j = of_piece / TEAM * per_piece + quad % per_piece;
        if (quad < SPAN * QUADS)
            memory[quad_at(quad / QUADS, j, of_piece % TEAM)] = loads[i];
    }
    barrier();
    [[unroll]] for (uint j = 0; j < CHUNK / 4; j++)
        x[j] = memory[quad_at(span, j, lane)];
    x_sum = sum_of_quads(x);
    [[unroll]] for (uint j = 0; j < CHUNK / 4; j++)
        x[j] *= QUAD_FACTORS(j);
    if (SPAN != 1 || N_COLS > TILE)
        barrier(); // parts come here, or the next tile
}

#include "cursor.glsl"

uint part_index(uint matrix, uint row, uint tile, uint lane)
{
    return ((matrix * PER_GROUP + row) * SPAN + tile) * TEAM + lane;
}

float part_at(uint matrix, uint row, uint tile, uint lane)
{
    const uint i = part_index(matrix, row, tile, lane);
    return memory[i / 4][i % 4];
}

// Adds what a block of tiles gave: each lane of a row is an invocation's.
void add_parts(uint id, uint n_tiles)
{
    barrier();
    [[unroll]] for (uint i = 0; i < N_TOTALS; i++) {
        const uint row = id / TEAM + i * (THREADS / TEAM);
        [[unroll]] for (uint m = 0; m < N_MATRICES; m++)
            [[unroll]] for (uint t = 0; t < SPAN; t++)
                if (t < n_tiles && row < PER_GROUP)
                    totals[i * N_MATRICES + m] += part_at(m, row, t, id % TEAM);
    }
    barrier();
}

// The row of the job that is the i-th of the workgroup's; none: it is another lane's.
const uint NO_ROW = 0xffffffffu;
uint row_at(Job job, uint first_row, uint i)
{
    uint row = first_row + i;
    if (IS_REGULAR != 0) {
        const uint first = first_row + i / N_ROWS * N_ROWS;
        row = min(first, job.n_rows - N_ROWS) + i % N_ROWS;
        if (row < first)
            return NO_ROW;
    }
    return i < PER_GROUP && row < job.n_rows ? row : NO_ROW;
}

uint row_of(Job job, uint first_row, uint id, uint i)
{
    if (id % TEAM != 0)
        return NO_ROW;
    const uint team = id / TEAM;
    return row_at(job, first_row, SPAN == 1 ? team * N_ROWS + i : team + i * (THREADS / TEAM));
}

// What a row's result is added to, on its way.
void load_old(Job job, uint first_row, uint id, out float old[N_TOTALS])
{
    [[unroll]] for (uint i = 0; i < N_TOTALS; i++) {
        const uint row = row_of(job, first_row, id, i);
        old[i] = 0.0;
        if (AFTER == ADDED && row != NO_ROW)
            old[i] = Floats(job.y).v[row];
    }
}

// Rows' results, and what comes after them.
void put_rows(Job job, uint first_row, uint id, Convolution c, float old[N_TOTALS])
{
    if (job.y_rows != 0)
        job.y += uint64_t(Words(job.rows).v[job.y_rows]) * job.y_stride * 4;
    [[unroll]] for (uint i = 0; i < N_TOTALS; i++) {
        float y = team_sum(totals[i * N_MATRICES], id);
#ifdef PAIR
        y = silu(y) * team_sum(totals[i * N_MATRICES + 1], id);
#endif
        const uint row = row_of(job, first_row, id, i);
        if (row == NO_ROW)
            continue;
        if (AFTER == ADDED)
            y = old[i] + y;
        if (AFTER == CONVOLVED && job.y == c.y) {
            float last[WIDTH], w[WIDTH];
            load_past(c.weight, c.before, job.n_rows, row, last, w);
            y = convolved(last, w, c.after, job.n_rows, row, y);
        }
        Floats(job.y).v[IS_TURNED != 0 ? turned(row) : row] = y;
    }
}

void main()
{
    Job job;
    uint first_row;
    Convolution c;
    Input given;
    float old[N_TOTALS];
    const uint id = lane_number();
    if (IS_ROUTED != 0)
        load_input(x_of_pick(gl_WorkGroupID.y), 0, id, given); // waits for nothing
    if (!find_job(job, first_row))
        return;
    if (AFTER == CONVOLVED)
        c = Convolutions(p.more).v[0];
    begin_chunks(id, p.sizes >> 31);
    const uint lane = id % TEAM, span = id / TEAM % SPAN, part = id / (TEAM * SPAN);
    const uint n_tiles = (N_COLS + TILE - 1) / TILE;
    [[unroll]] for (uint i = 0; i < N_MATRICES * N_TOTALS; i++)
        totals[i] = 0.0;
    uint64_t from = job.x;
    if (job.rows != 0)
        from += uint64_t(Words(job.rows).v[0]) * job.x_stride * 4;
    uint row = first_row + part * N_ROWS;
    if (IS_REGULAR != 0)
        row = min(row, job.n_rows - N_ROWS);
    [[dont_unroll]] for (uint first = 0; first < n_tiles; first += SPAN) {
        if (IS_ROUTED == 0 || first != 0)
            load_input(from, first, id, given);
        Cursor cursor = begin_rows(job, row, (first + span) * TILE + lane * PIECE);
        Chunk chunks[AHEAD * N_MATRICES];
        [[unroll]] for (uint a = 0; a < AHEAD; a++) {
            [[unroll]] for (uint m = 0; m < N_MATRICES; m++)
                chunks[a * N_MATRICES + m] = fetch(cursor, m);
            next_row(cursor);
        }
        if (first == 0)
            load_old(job, first_row, id, old);
        if (BEFORE != 0)
            make_input(from, first, id, given);
        share_x(given.loads, id, span, lane);
        [[dont_unroll]] for (uint k = 0; k < N_ROWS; k += AHEAD) {
            [[unroll]] for (uint a = 0; a < AHEAD; a++) {
                [[unroll]] for (uint m = 0; m < N_MATRICES; m++) {
                    const uint i = a * N_MATRICES + m;
                    const float v = multiply(chunks[i]);
                    if (k + AHEAD < N_ROWS)
                        chunks[i] = fetch(cursor, m);
                    if (SPAN == 1) {
                        totals[i] = add_part(totals[i], v);
                    } else {
                        const uint at = part_index(m, part * N_ROWS + k + a, span, 0);
                        memory[at / 4 + lane / 4][lane % 4] = v;
                    }
                }
                next_row(cursor);
            }
        }
        if (SPAN != 1)
            add_parts(id, min(SPAN, n_tiles - first));
    }
    put_rows(job, first_row, id, c, old);
}

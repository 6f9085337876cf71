#version 460
// SPDX-License-Identifier: MIT
// One row of linear attention by the gated delta rule in one dispatch, whose workgroups are all there at once:
// products of norm(x), the causal convolution of the first; the rule of each head, its norm and gate; x += the
// last product. What a workgroup makes the others take from memory as soon as it is there (grid.glsl). Sums and
// their order are those of matvec_one.comp and gated_delta.comp.
//! variant linear_row_affine -DAFFINE
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "chunks.glsl"
#include "gated_delta.glsl"
#include "grid_pairs.glsl"
#include "places.glsl"

layout(constant_id = 6) const uint N_COLS = 2048;
layout(constant_id = 7) const uint N_K_HEADS = 16;
layout(constant_id = 9) const uint N_V_HEADS = 32;
layout(constant_id = 10) const uint IS_TILED = 0;
layout(constant_id = 11) const uint IN_ROWS = 12; // of a team, in a workgroup's part of the first products
layout(constant_id = 12) const uint EPS = 0;      // a float's bits
layout(constant_id = 13) const uint HEAD_EPS = 0; // likewise, of the heads' norms
layout(constant_id = 14) const uint AHEAD = 4;    // a divisor of IN_ROWS
layout(constant_id = 15) const uint IS_WHOLE = 0; // subgroups have 32 invocations
layout(constant_id = 16) const uint WIDTH = 4;    // of the convolution
#define TEAM_SHUFFLES(d) (IS_WHOLE != 0 || (d) < gl_SubgroupSize)

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Linear {
    uint64_t conv, conv_before, conv_after; // Floats, also those below; [WIDTH - 1, CHANNELS], before 0: all zero
    uint64_t a_log, dt_bias, before, after; // [N_V_HEADS, DIM, DIM]; likewise
    uint64_t head_norm, fault;              // fault: Words
    float l2_eps, q_scale;
};

layout(push_constant, scalar) uniform Push {
    Floats x;
    Floats norm;
    Linear more;
    Pairs pairs;
    Near qkv, z, b, a, last;
    uint epoch;
} p;

const uint THREADS = gl_WorkGroupSize.x, TEAM = 16, TILE = TEAM * CHUNK, TEAMS = THREADS / TEAM;
const uint DIM = THREADS / 4; // of a head's key, and of its value
const uint KEYS = N_K_HEADS * DIM, TAKEN = N_V_HEADS * DIM, CHANNELS = 2 * KEYS + TAKEN;
const uint SPAN = N_COLS / TILE, QUADS = N_COLS / 4, X_LOADS = (QUADS + THREADS - 1) / THREADS;
const uint IN_ITEM = TEAMS / SPAN * IN_ROWS, MY_ROWS = IN_ITEM / TEAMS; // MY_ROWS: of a team when they are added up
const uint OUT_ROWS = 4, OUT_SPAN = TAKEN / TILE, OUT_ITEM = TEAMS / OUT_SPAN * OUT_ROWS;
// Where values lie among pairs: rows of the first products, then the heads.
const uint AT_Z = CHANNELS, AT_B = AT_Z + TAKEN, AT_A = AT_B + N_V_HEADS, N_IN = AT_A + N_V_HEADS, HEADS = N_IN;
const uint IN_PARTS = IN_ROWS * TEAMS * TEAM, OUT_PARTS = OUT_ROWS * TEAMS * TEAM; // behind what is taken
const uint N_MEMORY = IN_PARTS > TAKEN + OUT_PARTS ? IN_PARTS : TAKEN + OUT_PARTS;

shared vec4 memory[N_MEMORY / 4];
shared float exchange[THREADS];
shared float squares[QUADS];
#define norm_parts exchange
#include "norm.glsl"
#include "teams.glsl"
#include "conv.glsl"

#define GRID_PAIRS p.pairs
#define GRID_EPOCH p.epoch
#define GRID_FAULT p.more.fault
#include "grid.glsl"
#include "row_input.glsl"

// Parts of n_rows from `first` on become their sums: lane i of a team has that of the row i * TEAMS + its number.
float row_sums(uint first, const uint n_rows, const uint n_tiles, uint id)
{
    float mine = 0.0;
    [[unroll]] for (uint i = 0; i * TEAMS < n_rows; i++) {
        const uint row = first + (i * TEAMS + id / TEAM) % n_rows;
        float total = 0.0;
        [[unroll]] for (uint t = 0; t < n_tiles; t++) {
            const uint at = part_at(row, n_tiles, t, id % TEAM);
            total = add_part(total, memory[at / 4][at % 4]);
        }
        total = team_sum(total, id);
        mine = id % TEAM == i ? total : mine;
    }
    return mine;
}

// ---- the first products
// A row of them, and how many of its weight come after it.
struct Cursor {
    Weight at;
    uint n_left;
};

Cursor begin_rows(uint row, uint col)
{
    const uint first = row < AT_Z ? 0 : row < AT_B ? AT_Z : row < AT_A ? AT_B : AT_A;
    const Weight w = weight_of(p.qkv), z = weight_of(p.z), b = weight_of(p.b), a = weight_of(p.a);
    Cursor c;
    c.at = Weight(row < AT_Z ? w.values : row < AT_B ? z.values : row < AT_A ? b.values : a.values,
                  row < AT_Z ? w.scales : row < AT_B ? z.scales : row < AT_A ? b.scales : a.scales,
                  row < AT_Z ? w.biases : row < AT_B ? z.biases : row < AT_A ? b.biases : a.biases);
    c.at = chunk_at(c.at, row - first, col, N_COLS);
    c.n_left = (row < AT_Z ? AT_Z : row < AT_B ? AT_B : row < AT_A ? AT_A : N_IN) - row - 1;
    return c;
}

// After the last one it stays there.
void next_in(inout Cursor c, uint row, uint col)
{
    if (c.n_left != 0) {
        next_row(c.at, N_COLS);
        c.n_left--;
    } else if (row < N_IN) {
        c = begin_rows(row, col);
    }
}

// What comes after a product of a row.
void finish_row(Linear m, uint row, float y, float last[WIDTH], float w[WIDTH])
{
    if (row < AT_Z)
        y = convolved(last, w, m.conv_after, CHANNELS, row, y);
    else if (row < AT_B)
        y = silu(y);
    put(row, y);
}

vec4 state[8]; // of an invocation: two shards of a column, as of gated_delta.comp

uint state_row(uint i)
{
    return ((i % 4 * 8) + gl_LocalInvocationID.x / DIM * 2 + i / 4) * 4;
}

void load_state(Linear m, uint head)
{
    const uint64_t at = m.before + uint64_t(head) * (DIM * DIM * 4);
    [[unroll]] for (uint i = 0; i < 8; i++)
        [[unroll]] for (uint e = 0; e < 4; e++)
            state[i][e] = m.before != 0
                              ? Floats(at).v[(state_row(i) + e) * DIM + gl_LocalInvocationID.x % DIM]
                              : 0.0;
}

void multiply_in(Linear m, uint id)
{
    const uint lane = id % TEAM, team = id / TEAM, span = team % SPAN, slot = team / SPAN;
    const uint col = span * TILE + lane * CHUNK, G = gl_NumWorkGroups.x;
    vec4 loads[X_LOADS], weights[X_LOADS];
    load_x(p.x, p.norm, id, loads, weights);
    [[dont_unroll]] for (uint first = gl_WorkGroupID.x * IN_ITEM; first < N_IN; first += G * IN_ITEM) {
        const uint mine = first + lane * TEAMS + team; // the row that is finished here, if it is one
        uint row = first + slot * IN_ROWS;
        Cursor cursor = begin_rows(min(row, N_IN - 1), col);
        Chunk c[AHEAD];
        [[unroll]] for (uint i = 0; i < AHEAD; i++) {
            c[i] = fetch_at(cursor.at, col);
            next_in(cursor, ++row, col);
        }
        float last[WIDTH], w[WIDTH];
        load_past(Floats(m.conv), m.conv_before, CHANNELS, lane < MY_ROWS && mine < CHANNELS ? mine : 0, last, w);
        if (first == gl_WorkGroupID.x * IN_ITEM) {
            share_x(loads, weights, uintBitsToFloat(EPS), id);
            take_x(span, lane);
            barrier();
        }
        [[dont_unroll]] for (uint k = 0; k < IN_ROWS; k += AHEAD)
            [[unroll]] for (uint i = 0; i < AHEAD; i++) {
                put_part(slot * IN_ROWS + k + i, SPAN, span, lane, multiply(c[i]));
                if (k + AHEAD < IN_ROWS) {
                    c[i] = fetch_at(cursor.at, col);
                    next_in(cursor, ++row, col);
                }
            }
        barrier();
        const float y = row_sums(0, IN_ITEM, SPAN, id);
        if (lane < MY_ROWS && mine < N_IN)
            finish_row(m, mine, y, last, w);
        barrier();
    }
}

// ---- the rule
// What an invocation leaves in `memory` there: a head's query, key, value and gate, and what columns' parts come to.
const uint FORETOLD = THREADS, OUTPUTS = 2 * THREADS;
shared float key_squares[32], decay_shared, beta_shared;

void leave(uint at, float v)
{
    memory[at / 4][at % 4] = v;
}

float left(uint at)
{
    return memory[at / 4][at % 4];
}

float sum4(vec4 x)
{
    return (x.x + x.y) + (x.z + x.w);
}

// 1 / the norm of the query (0) or the key (1).
float l2_factor(uint which, float eps)
{
    float sum = 0.0;
    [[unroll]] for (uint i = 0; i < 16; i++)
        sum += key_squares[which * 16 + i];
    return inversesqrt(sum + eps);
}

// What the shards of a column have, two of them added up already.
float sum_of_shards(uint at)
{
    return (left(at) + left(at + DIM)) + (left(at + 2 * DIM) + left(at + 3 * DIM));
}

// Whose state is in `state`, and is written.
float ruled(Linear m, float decay, float beta, uint i)
{
    const uint col = i % DIM, part = i / DIM;
    const float q_factor = l2_factor(0, m.l2_eps) * m.q_scale, k_factor = l2_factor(1, m.l2_eps);
    float sums[2];
    [[unroll]] for (uint s = 0; s < 2; s++) {
        vec4 sum = vec4(0.0);
        [[unroll]] for (uint j = 0; j < 4; j++) {
            state[s * 4 + j] *= decay;
            sum = fma(state[s * 4 + j], memory[DIM / 4 + j * 8 + part * 2 + s] * k_factor, sum);
        }
        sums[s] = sum4(sum);
    }
    leave(FORETOLD + i, sums[0] + sums[1]);
    barrier();
    const float delta = (left(2 * DIM + col) - sum_of_shards(FORETOLD + col)) * beta;
    [[unroll]] for (uint s = 0; s < 2; s++) {
        vec4 sum = vec4(0.0);
        [[unroll]] for (uint j = 0; j < 4; j++) {
            const uint at = j * 8 + part * 2 + s;
            state[s * 4 + j] = fma(memory[DIM / 4 + at] * k_factor, vec4(delta), state[s * 4 + j]);
            sum = fma(state[s * 4 + j], memory[at] * q_factor, sum);
        }
        sums[s] = sum4(sum);
    }
    leave(OUTPUTS + i, sums[0] + sums[1]);
    barrier();
    return sum_of_shards(OUTPUTS + col);
}

// The head's result, normed and gated.
void finish_head(Linear m, uint head, float o, float weight, uint id)
{
    const uint i = gl_LocalInvocationID.x, col = i % DIM;
    if (i < DIM)
        leave(FORETOLD + col, o);
    barrier();
    const vec4 quad = memory[FORETOLD / 4 + id % (DIM / 4)];
    const float scale = norm_scale(sum_of_run(squared(quad), DIM / 4, id), DIM, uintBitsToFloat(HEAD_EPS));
    precise float y = o * scale * weight;
    y *= left(3 * DIM + col);
    if (i < DIM)
        put(HEADS + head * DIM + col, y);
}

void run_head(Linear m, uint head, uint id)
{
    const uint i = gl_LocalInvocationID.x, col = i % DIM, part = i / DIM;
    // key heads by turns where they are tiled, else in runs
    const uint key_head = IS_TILED != 0 ? head % N_K_HEADS : head / (N_V_HEADS / N_K_HEADS);
    const uint from = part < 2 ? part * KEYS + key_head * DIM : 2 * KEYS + (part - 2) * TAKEN + head * DIM;
    const float a_log = Floats(m.a_log).v[head], dt_bias = Floats(m.dt_bias).v[head], weight = Floats(m.head_norm).v[col];
    leave(i, take(from + col));
    if (i == 0)
        decay_shared = decay_of(a_log, take(AT_A + head) + dt_bias);
    if (i == THREADS - 1)
        beta_shared = sigmoid(take(AT_B + head));
    barrier();
    if (i < 32) {
        float sum = 0.0;
        [[unroll]] for (uint j = 0; j < DIM / 4; j += 16)
            sum += squared(memory[i / 16 * (DIM / 4) + i % 16 + j]);
        key_squares[i] = sum;
    }
    barrier();
    const float o = ruled(m, decay_shared, beta_shared, i);
    finish_head(m, head, o, weight, id);
    const uint64_t at = m.after + uint64_t(head) * (DIM * DIM * 4);
    [[unroll]] for (uint j = 0; j < 8; j++)
        [[unroll]] for (uint e = 0; e < 4; e++)
            Floats(at).v[(state_row(j) + e) * DIM + col] = state[j][e];
}

// ---- the last product
void multiply_out(uint id)
{
    const uint lane = id % TEAM, team = id / TEAM, span = team % OUT_SPAN, slot = team / OUT_SPAN;
    const uint col = span * TILE + lane * CHUNK, BEHIND = TAKEN / (OUT_SPAN * TEAM);
    const uint mine = lane * TEAMS + team; // the row of an item that is finished here, if it is one
    bool is_first = true;
    [[dont_unroll]] for (uint first = gl_WorkGroupID.x * OUT_ITEM; first < N_COLS;
                         first += gl_NumWorkGroups.x * OUT_ITEM) {
        Weight at = chunk_at(weight_of(p.last), first + slot * OUT_ROWS, col, TAKEN);
        Chunk c[OUT_ROWS];
        [[unroll]] for (uint i = 0; i < OUT_ROWS; i++) {
            c[i] = fetch_at(at, col);
            next_row(at, TAKEN);
        }
        const float old = p.x.v[first + (mine < OUT_ITEM ? mine : 0)];
        if (is_first) {
            take_row(HEADS, id);
            take_x(span, lane);
        }
        is_first = false;
        [[unroll]] for (uint i = 0; i < OUT_ROWS; i++)
            put_part(BEHIND + slot * OUT_ROWS + i, OUT_SPAN, span, lane, multiply(c[i]));
        barrier();
        const float y = row_sums(BEHIND, OUT_ITEM, OUT_SPAN, id);
        if (mine < OUT_ITEM)
            p.x.v[first + mine] = old + y;
        barrier();
    }
}

void main()
{
    const uint id = lane_number();
    Linear m = p.more;
    multiply_in(m, id);
    [[dont_unroll]] for (uint head = gl_WorkGroupID.x; head < N_V_HEADS; head += gl_NumWorkGroups.x) {
        load_state(m, head);
        run_head(m, head, id);
        barrier();
    }
    multiply_out(id);
}

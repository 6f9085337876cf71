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
    Near first[4], last; // of queries, keys and values; the gate z; b; a
    uint epoch;
    uint zero; // 0, which no compiler knows: it unrolls loops that it knows the end of
} p;

const uint THREADS = gl_WorkGroupSize.x, TEAM = 16, TILE = TEAM * CHUNK, TEAMS = THREADS / TEAM;
const uint DIM = THREADS / 4; // of a head's key, and of its value
const uint KEYS = N_K_HEADS * DIM, TAKEN = N_V_HEADS * DIM, CHANNELS = 2 * KEYS + TAKEN;
const uint SPAN = N_COLS / TILE, QUADS = N_COLS / 4, X_LOADS = (QUADS + THREADS - 1) / THREADS;
const uint SLOTS = TEAMS / SPAN, IN_ITEM = SLOTS * IN_ROWS;
const uint OUT_ROWS = 4, OUT_SPAN = TAKEN / TILE, OUT_ITEM = TEAMS / OUT_SPAN * OUT_ROWS;
// Where values lie among pairs: rows of the first products, then the heads.
const uint AT_Z = CHANNELS, AT_B = AT_Z + TAKEN, AT_A = AT_B + N_V_HEADS, N_IN = AT_A + N_V_HEADS, HEADS = N_IN;
const uint AT_1 = AT_Z, AT_2 = AT_B, AT_3 = AT_A;
const uint IN_PARTS = IN_ROWS * TEAMS * TEAM, OUT_PARTS = OUT_ROWS * TEAMS * TEAM; // behind what is taken
const uint N_PARTS = IN_PARTS > TAKEN + OUT_PARTS ? IN_PARTS : TAKEN + OUT_PARTS;
const uint N_RULE = THREADS + 17 * DIM; // see SUMS
const uint N_MEMORY = N_PARTS > N_RULE ? N_PARTS : N_RULE;

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
#include "row_products.glsl"

// ---- the state
vec4 state[8]; // of a head: four columns of rows of an invocation, see state_row

// Of a shard of gated_delta.comp, for each of its quads, one half.
uint state_row(uint i)
{
    const uint part = gl_LocalInvocationID.x / (DIM / 4);
    return (i / 2 * 8 + part / 2) * 4 + part % 2 * 2 + i % 2;
}

uint64_t state_at(uint64_t states, uint head)
{
    return states + (uint64_t(head) * (DIM * DIM / 4) + gl_LocalInvocationID.x % (DIM / 4)) * 16;
}

void load_state(Linear m, uint head)
{
    const uint64_t at = state_at(m.before, head);
    [[unroll]] for (uint i = 0; i < 8; i++)
        state[i] = m.before != 0 ? Floats4(at).v[state_row(i) * (DIM / 4)] : vec4(0.0);
}

void store_state(Linear m, uint head)
{
    const uint64_t at = state_at(m.after, head);
    [[unroll]] for (uint i = 0; i < 8; i++)
        Floats4(at).v[state_row(i) * (DIM / 4)] = state[i];
}

// ---- the first products
// What is done with a row's sum, and what that needs.
struct Finish {
    uint row; // N_IN: nothing
    float a_log, dt_bias;
};

// Of the item's runs that begin with `first`; the convolution's are apart.
Finish begin_finish(Linear m, uint first, uint id, out float last[WIDTH], out float w[WIDTH])
{
    Finish f = Finish(summed_row(first, id), 0.0, 0.0);
    load_past(Floats(m.conv), m.conv_before, CHANNELS, f.row < AT_Z ? f.row : 0, last, w);
    if (f.row >= AT_A && f.row < N_IN) {
        f.a_log = Floats(m.a_log).v[f.row - AT_A];
        f.dt_bias = Floats(m.dt_bias).v[f.row - AT_A];
    }
    return f;
}

void finish_row(Linear m, Finish f, float y, float last[WIDTH], float w[WIDTH])
{
    if (f.row < AT_Z)
        y = convolved(last, w, m.conv_after, CHANNELS, f.row, y);
    else if (f.row < AT_B)
        y = silu(y);
    else if (f.row < AT_A)
        y = sigmoid(y);
    else
        y = decay_of(f.a_log, y + f.dt_bias);
    if (f.row < N_IN)
        put(f.row, y);
}

// And the state of the workgroup's first head, which is on its way then.
void multiply_in(Linear m, uint id)
{
    const uint lane = id % TEAM, span = id / TEAM % SPAN, slot = id / TEAM / SPAN;
    const uint col = span * TILE + lane * CHUNK, G = gl_NumWorkGroups.x;
    vec4 loads[X_LOADS], weights[X_LOADS];
    load_x(p.x, p.norm, id, loads, weights);
    leave_weights(weights, id); // what is asked for before the input is there keeps it back
    share_squares(loads, id);
    [[dont_unroll]] for (uint first = gl_WorkGroupID.x * SLOTS; first < n_runs(); first += G * SLOTS) {
        Run run = run_of(first + slot, col);
        Chunk c[AHEAD];
        begin_run(run, col, c);
        if (first == gl_WorkGroupID.x * SLOTS) {
            fetch_weights(weights, id);
            share_x(loads, weights, uintBitsToFloat(EPS), id);
            take_x(span, lane);
            barrier();
        }
        float last[WIDTH], w[WIDTH];
        const Finish f = begin_finish(m, first, id, last, w);
        multiply_run(run, col, c, slot, span, lane);
        if (first + G * SLOTS >= n_runs() && gl_WorkGroupID.x < N_V_HEADS)
            load_state(m, gl_WorkGroupID.x);
        barrier();
        finish_row(m, f, row_sums(0, IN_ITEM, SPAN, id), last, w);
        barrier();
    }
}

// ---- the rule
// In `memory`: a head's query, key, value and gate; what sixteen parts of columns come to; a number of each column.
const uint SUMS = THREADS, NUMBERS = SUMS + 16 * DIM;
const uint NO_HEAD = ~0u;
shared float key_squares[32], decay_shared, beta_shared;

void leave(uint at, float v)
{
    memory[at / 4][at % 4] = v;
}

float left(uint at)
{
    return memory[at / 4][at % 4];
}

// A value of others' for each invocation, and one of the head's gates.
vec2 take_both(uint at, uint beside)
{
    uint64_t v = look(at), w = look(beside);
    [[dont_unroll]] for (uint n = 0; !(is_there(v) && is_there(w)) && !gives_up(n); n++) {
        v = look(at);
        w = look(beside);
    }
    return vec2(value_of(v), value_of(w));
}

// Queries and keys are normed.
void norm_keys(Linear m, uint i)
{
    if (i < 32) {
        float sum = 0.0;
        [[unroll]] for (uint j = 0; j < DIM / 4; j += 16)
            sum += squared(memory[i / 16 * (DIM / 4) + i % 16 + j]);
        key_squares[i] = sum;
    }
    barrier();
    if (i < 2 * DIM) {
        float sum = 0.0;
        [[unroll]] for (uint j = 0; j < 16; j++)
            sum += key_squares[i / DIM * 16 + j];
        leave(i, left(i) * (inversesqrt(sum + m.l2_eps) * (i < DIM ? m.q_scale : 1.0)));
    }
    barrier();
}

// A column's sum of what its parts left: halves of a shard's, then shards in pairs, fours, eights.
float sum_of_parts(uint col)
{
    float sums[8];
    [[unroll]] for (uint i = 0; i < 8; i++)
        sums[i] = left(SUMS + 2 * i * DIM + col) + left(SUMS + (2 * i + 1) * DIM + col);
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// What the state foretells for the key, decayed.
void foretell(float decay, uint i)
{
    vec4 sums[2] = vec4[2](vec4(0.0), vec4(0.0));
    [[unroll]] for (uint j = 0; j < 8; j++) {
        state[j] *= decay;
        sums[j % 2] = fma(state[j], vec4(left(DIM + state_row(j))), sums[j % 2]);
    }
    memory[SUMS / 4 + i] = sums[0] + sums[1];
}

// The state learns; what it makes of the query.
void learn(uint i)
{
    const vec4 delta = memory[NUMBERS / 4 + i % (DIM / 4)];
    vec4 sums[2] = vec4[2](vec4(0.0), vec4(0.0));
    [[unroll]] for (uint j = 0; j < 8; j++) {
        state[j] = fma(vec4(left(DIM + state_row(j))), delta, state[j]);
        sums[j % 2] = fma(state[j], vec4(left(state_row(j))), sums[j % 2]);
    }
    memory[SUMS / 4 + i] = sums[0] + sums[1];
}

// A head whose state is in `state`. The first one's workgroup asks for its last weights meanwhile.
void run_head(Linear m, uint head, uint id)
{
    const uint i = gl_LocalInvocationID.x, col = i % DIM, part = i / DIM;
    // key heads by turns where they are tiled, else in runs
    const uint key_head = IS_TILED != 0 ? head % N_K_HEADS : head / (N_V_HEADS / N_K_HEADS);
    const uint from = part < 2 ? part * KEYS + key_head * DIM : 2 * KEYS + (part - 2) * TAKEN + head * DIM;
    const float weight = Floats(m.head_norm).v[col];
    const vec2 taken = take_both(from + col, (part % 2 == 0 ? AT_A : AT_B) + head);
    leave(i, taken.x);
    if (i == 2 * DIM)
        decay_shared = taken.y;
    if (i == 3 * DIM)
        beta_shared = taken.y;
    barrier();
    if (head == gl_WorkGroupID.x)
        fetch_out(first_out(), id);
    norm_keys(m, i);
    foretell(decay_shared, i);
    barrier();
    if (i < DIM)
        leave(NUMBERS + i, (left(2 * DIM + i) - sum_of_parts(i)) * beta_shared);
    barrier();
    learn(i);
    barrier();
    if (i < DIM)
        leave(NUMBERS + i, sum_of_parts(i));
    barrier();
    const float squares = sum_of_run(squared(memory[NUMBERS / 4 + id % (DIM / 4)]), DIM / 4, id);
    precise float y = left(NUMBERS + col) * norm_scale(squares, DIM, uintBitsToFloat(HEAD_EPS)) * weight;
    y *= left(3 * DIM + col);
    if (i < DIM)
        put(HEADS + head * DIM + col, y);
}

// The workgroup's heads; the last one's state is left to be stored.
uint run_heads(Linear m, uint id)
{
    uint held = NO_HEAD;
    [[dont_unroll]] for (uint head = gl_WorkGroupID.x; head < N_V_HEADS; head += gl_NumWorkGroups.x) {
        if (held != NO_HEAD)
            store_state(m, held);
        if (held != NO_HEAD || head * SLOTS >= n_runs()) // else it is there
            load_state(m, head);
        run_head(m, head, id);
        held = head;
        barrier();
    }
    return held;
}

void main()
{
    const uint id = lane_number();
    Linear m = p.more;
    begin_chunks(id, p.zero);
    multiply_in(m, id);
    if (gl_WorkGroupID.x >= N_V_HEADS)
        fetch_out(first_out(), id);
    const uint held = run_heads(m, id);
    const float old = old_out(first_out(), id);
    take_row(HEADS, id);
    take_x(id / TEAM % OUT_SPAN, id % TEAM);
    if (held != NO_HEAD)
        store_state(m, held);
    multiply_out(old, id);
}

#version 460
// SPDX-License-Identifier: MIT
// One row of softmax attention in one dispatch, whose workgroups are all there at once: products of norm(x); norm and
// rotation of heads, attention of a few of them to a block of positions; what blocks gave merged, and gated; x += the
// last product. What a workgroup makes the others take from memory as soon as it is there (grid.glsl). Sums and their
// order are those of matvec_one.comp, head_norm_rope.comp, attention_one.comp and attention_merge.comp.
//! variant attend_row_affine -DAFFINE
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "chunks.glsl"
#include "attention.glsl"
#include "grid_pairs.glsl"
#include "places.glsl"

layout(constant_id = 6) const uint N_COLS = 2048;
layout(constant_id = 7) const uint HEAD = 256; // columns of keys, and of values: 64, 128, 256
layout(constant_id = 9) const uint N_KEYS = 2; // key heads
layout(constant_id = 10) const uint PER_KEY = 8; // heads of each
layout(constant_id = 11) const uint IN_ROWS = 12; // of a team, in a workgroup's part of the first products
layout(constant_id = 12) const uint EPS = 0;      // a float's bits
layout(constant_id = 13) const uint HEAD_EPS = 0; // likewise, of the heads' norms
layout(constant_id = 14) const uint AHEAD = 2;    // a divisor of IN_ROWS
layout(constant_id = 15) const uint IS_WHOLE = 0; // subgroups have 32 invocations
layout(constant_id = 16) const uint QUERIES = 1;  // that a workgroup has at a time: 1, 2, 4, a divisor of PER_KEY
layout(constant_id = 17) const uint TYPE = F32;   // of the cache
layout(constant_id = 18) const uint HAS_GATE = 1;
#define TEAM_SHUFFLES(d) (IS_WHOLE != 0 || (d) < gl_SubgroupSize)

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Attend {
    uint64_t pages, k_offset, v_offset; // Addresses, of positions from 0 on; bytes in each
    uint64_t query_norm, key_norm;      // Floats [HEAD]
    uint64_t cosine, sine;              // Floats [n_rot / 2], of the row's position
    uint64_t fault;
    uint position, window, first_block, n_blocks, n_rot;
    float scale; // and log2(e)
};

// The same in registers, so that nobody waits for it again.
struct Row {
    uint64_t pages, k_offset, v_offset, query_norm, key_norm, cosine, sine;
    uint position, window, first_block, n_blocks, n_rot;
    float scale;
};

Row row_of(Attend m)
{
    return Row(m.pages, m.k_offset, m.v_offset, m.query_norm, m.key_norm, m.cosine, m.sine, m.position, m.window,
               m.first_block, m.n_blocks, m.n_rot, m.scale);
}

layout(push_constant, scalar) uniform Push {
    Floats x;
    Floats norm;
    Attend more;
    Pairs pairs;
    Near first[4], last; // of queries, keys, values and the gate
    uint epoch;
    uint zero; // 0, which no compiler knows: it unrolls loops that it knows the end of
} p;

const uint THREADS = gl_WorkGroupSize.x, TEAM = 16, TILE = TEAM * CHUNK, TEAMS = THREADS / TEAM;
const uint KEYS = N_KEYS * HEAD, TAKEN = KEYS * PER_KEY;
const uint SPAN = N_COLS / TILE, QUADS = N_COLS / 4, X_LOADS = (QUADS + THREADS - 1) / THREADS;
const uint SLOTS = TEAMS / SPAN, IN_ITEM = SLOTS * IN_ROWS;
const uint OUT_ROWS = 4, OUT_SPAN = TAKEN / TILE, OUT_ITEM = TEAMS / OUT_SPAN * OUT_ROWS;
// Where values lie among pairs: rows of the first products; what heads come to; what blocks gave for each head, its
// sums, the maximum and the sum of the weights.
const uint AT_1 = TAKEN, AT_2 = AT_1 + KEYS, AT_3 = AT_2 + KEYS, N_IN = AT_3 + HAS_GATE * TAKEN;
const uint HEADS = N_IN, BLOCKS = HEADS + TAKEN, BLOCK_VALUES = HEAD + 2;
const uint IN_PARTS = IN_ROWS * TEAMS * TEAM, OUT_PARTS = OUT_ROWS * TEAMS * TEAM; // behind what is taken
// Of attention, in vec4s: keys; heads of queries, the row's key and value; weights.
const uint SLICE = 64, SLICE4 = SLICE / 4, HEAD4 = HEAD / 4, STRIDE = SLICE4 + 1;
const uint AT_HEADS = BLOCK * STRIDE, AT_POWERS = AT_HEADS + (QUERIES + 2) * HEAD4;
const uint ATTEND_PARTS = AT_POWERS * 4 + QUERIES * BLOCK;
const uint ROW_PARTS = IN_PARTS > TAKEN + OUT_PARTS ? IN_PARTS : TAKEN + OUT_PARTS;
const uint N_MEMORY = ROW_PARTS > ATTEND_PARTS ? ROW_PARTS : ATTEND_PARTS;

shared vec4 memory[N_MEMORY / 4];
shared float exchange[THREADS];
shared float squares[QUADS];
#define norm_parts exchange
#include "norm.glsl"
#include "head_norm.glsl"
#include "teams.glsl"

#define GRID_PAIRS p.pairs
#define GRID_EPOCH p.epoch
#define GRID_FAULT p.more.fault
#include "grid.glsl"
#include "row_input.glsl"
#include "row_products.glsl"

const uint VALUE_PARTS = THREADS / HEAD, N_VALUES = BLOCK / VALUE_PARTS;
#define KEY_QUAD(i) memory[i]
#define QUERY_QUAD(i) memory[AT_HEADS + (i)]
#define POWER_QUAD(i) memory[AT_POWERS + (i)]
#include "attention_block.glsl"

void leave(uint at, float v)
{
    memory[at / 4][at % 4] = v;
}

float left(uint at)
{
    return memory[at / 4][at % 4];
}

// ---- a block
const uint GROUPS = PER_KEY / QUERIES; // of a key head's queries

// A workgroup's turn: some heads that share a key head, and a block of positions.
struct Turn {
    uint key_head, first_query; // of those of the key head
    uint block;                 // from first_block on
    uint base, fresh;           // its first position; where the row's own is in it, if it is one of BLOCK
    uint64_t pages[2];
};

uint n_turns(Row m)
{
    return m.n_blocks * N_KEYS * GROUPS;
}

Turn turn_of(Row m, uint i)
{
    Turn t;
    t.first_query = i % GROUPS * QUERIES;
    t.key_head = i / GROUPS % N_KEYS;
    t.block = i / (GROUPS * N_KEYS);
    t.base = (m.first_block + t.block) * BLOCK;
    t.fresh = m.position - t.base;
    t.pages[0] = Addresses(m.pages).v[t.base / PAGE];
    t.pages[1] = Addresses(m.pages).v[(t.base + min(t.fresh, BLOCK - 1)) / PAGE];
    return t;
}

const uint COLUMNS = HEAD / HEAD_LANES;                  // of a lane
const uint KEY_SLOT = QUERIES, VALUE_SLOT = QUERIES + 1; // behind queries
float head_weight[COLUMNS], cosine[COLUMNS], sine[COLUMNS];

// What makes heads of a lane's columns.
void load_steps(Row m, uint id)
{
    const uint n_half = m.n_rot / 2;
    const uint64_t weights = id / HEAD_LANES == KEY_SLOT ? m.key_norm : m.query_norm;
    [[unroll]] for (uint k = 0; k < COLUMNS; k++) {
        const uint col = id % HEAD_LANES + k * HEAD_LANES, pair = col < n_half ? col : col - n_half;
        head_weight[k] = Floats(weights).v[col];
        if (col < m.n_rot) {
            cosine[k] = Floats(m.cosine).v[pair];
            sine[k] = Floats(m.sine).v[pair];
        }
    }
}

void load_block(Row m, Turn t, uint id)
{
    const uint64_t k = m.k_offset + t.key_head * (HEAD * BYTES), v = m.v_offset + t.key_head * (HEAD * BYTES);
    load_keys(t.pages[0] + k, t.pages[1] + k, id);
    load_values(t.pages[0] + v, t.pages[1] + v, id / HEAD * N_VALUES, min(t.fresh, BLOCK), id % HEAD);
}

// A lane's columns of the head of a slot: as they come, or of none zeros.
void take_columns(uint first, bool is_head, uint lane, out float y[COLUMNS])
{
    uint64_t v[COLUMNS];
    bool has_all = false;
    [[dont_unroll]] for (uint n = 0; !has_all && !gives_up(n); n++) {
        has_all = true;
        [[unroll]] for (uint k = 0; k < COLUMNS; k++) {
            if (is_head)
                v[k] = look(first + lane + k * HEAD_LANES);
            has_all = has_all && (!is_head || is_there(v[k]));
        }
    }
    [[unroll]] for (uint k = 0; k < COLUMNS; k++)
        y[k] = is_head ? value_of(v[k]) : 0.0;
}

// Heads that the turn needs go to shared memory, normed and rotated; whoever is the first of a key head puts the row
// into the cache.
void make_heads(Row m, Turn t, uint id)
{
    const uint slot = id / HEAD_LANES, lane = id % HEAD_LANES, n_half = m.n_rot / 2;
    const bool is_key = slot == KEY_SLOT, is_value = slot == VALUE_SLOT, is_query = slot < QUERIES;
    const uint query = t.key_head * PER_KEY + t.first_query + slot;
    const uint first = is_query ? query * HEAD : (is_key ? AT_1 : AT_2) + t.key_head * HEAD;
    const bool is_head = is_query || ((is_key || is_value) && t.fresh < BLOCK);
    float y[COLUMNS], sum = 0.0;
    take_columns(first, is_head, lane, y);
    [[unroll]] for (uint k = 0; k < COLUMNS; k++)
        sum = add_square(sum, y[k]);
    const float scale = norm_scale(sum_of_head(sum, id), HEAD, uintBitsToFloat(HEAD_EPS));
    [[unroll]] for (uint k = 0; k < COLUMNS; k++) {
        y[k] = is_value ? y[k] : normed_column(y[k], scale, head_weight[k]);
        if (slot <= VALUE_SLOT)
            leave(AT_HEADS * 4 + slot * HEAD + lane + k * HEAD_LANES, y[k]);
    }
    barrier();
    [[unroll]] for (uint k = 0; k < COLUMNS; k++) {
        const uint col = lane + k * HEAD_LANES;
        const bool is_low = col < n_half;
        if (!is_value && slot <= VALUE_SLOT && col < m.n_rot)
            y[k] = rotated(y[k], left(AT_HEADS * 4 + slot * HEAD + (is_low ? col + n_half : col - n_half)), cosine[k],
                           is_low ? sine[k] : -sine[k]);
    }
    barrier();
    const uint64_t row_at = (t.fresh < PAGE ? t.pages[0] : t.pages[1]) + (is_key ? m.k_offset : m.v_offset) +
                            t.key_head * (HEAD * BYTES) + t.fresh % PAGE * (WIDTH * BYTES);
    [[unroll]] for (uint k = 0; k < COLUMNS; k++) {
        const uint col = lane + k * HEAD_LANES;
        if (!is_query && slot <= VALUE_SLOT)
            y[k] = kept(y[k]);
        if (slot <= VALUE_SLOT)
            leave(AT_HEADS * 4 + slot * HEAD + col, y[k]);
        if (!is_query && is_head && t.first_query == 0)
            store_value(row_at, col, y[k]);
    }
    barrier();
}

// What the block's values come to, weighted: parts of positions one after the other. Those of the last one have them.
void weigh_values(Turn t, uint id, out float sums[QUERIES])
{
    const uint col = id % HEAD, mine = id / HEAD;
    [[unroll]] for (uint i = 0; i < QUERIES; i++)
        sums[i] = 0.0;
    [[unroll]] for (uint part = 0; part < VALUE_PARTS; part++) {
        if (part == mine) {
            [[unroll]] for (uint i = 0; i < QUERIES && part != 0; i++)
                sums[i] = left(i * HEAD + col);
            [[unroll]] for (uint k = 0; k < N_VALUES / 4; k++)
                [[unroll]] for (uint i = 0; i < QUERIES; i++) {
                    const vec4 w = POWER_QUAD((i * BLOCK + part * N_VALUES) / 4 + k);
                    [[unroll]] for (uint e = 0; e < 4; e++)
                        sums[i] = fma(w[e], uintBitsToFloat(values_ahead[4 * k + e]), sums[i]);
                }
            [[unroll]] for (uint i = 0; i < QUERIES && part + 1 < VALUE_PARTS; i++)
                leave(i * HEAD + col, sums[i]);
        }
        if (part + 1 < VALUE_PARTS)
            barrier();
    }
    const float fresh_v = left(AT_HEADS * 4 + VALUE_SLOT * HEAD + col);
    if (t.fresh < BLOCK) // the last one; so far it was zeros
        [[unroll]] for (uint i = 0; i < QUERIES; i++)
            sums[i] = fma(left(AT_POWERS * 4 + i * BLOCK + t.fresh), fresh_v, sums[i]);
}

// What the block gives for the turn's heads: its values so weighted, of the last invocations.
void attend(Row m, Turn t, uint id, out float sums[QUERIES])
{
    const uint query = id / BLOCK, key = id % BLOCK;
    make_heads(m, t, id);
    const float sum = score(id, query, key, QUERY_QUAD(KEY_SLOT * HEAD4 + id % HEAD4), t.fresh);
    const bool is_seen = key <= t.fresh && t.base + key >= first_seen(m.window, m.position);
    weigh_keys(query, key, is_seen ? sum * m.scale : NOTHING);
    weigh_values(t, id, sums);
}

void put_block(Row m, Turn t, uint id, float sums[QUERIES])
{
    const uint col = id % HEAD, head = t.key_head * PER_KEY + t.first_query;
    const uint at = BLOCKS + (head * m.n_blocks + t.block) * BLOCK_VALUES, each = m.n_blocks * BLOCK_VALUES;
    if (id < THREADS - HEAD)
        return;
    [[unroll]] for (uint i = 0; i < QUERIES; i++)
        put(at + i * each + col, sums[i]);
    if (col < QUERIES) {
        put(at + col * each + HEAD, block_mosts[col]);
        put(at + col * each + HEAD + 1, sum_of(col));
    }
}

// t: the workgroup's first turn, if it has one, whose keys and values are on their way.
void attend_all(Row m, Turn t, uint id)
{
    const uint G = gl_NumWorkGroups.x;
    [[dont_unroll]] for (uint i = gl_WorkGroupID.x; i < n_turns(m); i += G) {
        float sums[QUERIES];
        attend(m, t, id, sums);
        const Turn next = turn_of(m, min(i + G, n_turns(m) - 1));
        if (i + G < n_turns(m))
            load_block(m, next, id);
        put_block(m, t, id, sums);
        t = next;
        barrier();
    }
}

// ---- what blocks gave
const uint MERGED = 32, AT_A_TIME = THREADS / MERGED; // columns of a head; blocks

vec3 take_three(uint at, uint beside)
{
    uint64_t v[3];
    bool has_all = false;
    [[dont_unroll]] for (uint n = 0; !has_all && !gives_up(n); n++) {
        v[0] = look(at);
        v[1] = look(beside);
        v[2] = look(beside + 1);
        has_all = is_there(v[0]) && is_there(v[1]) && is_there(v[2]);
    }
    return vec3(value_of(v[0]), value_of(v[1]), value_of(v[2]));
}

// Columns of a head, from all blocks in their order.
void merge(Row m, uint first, uint id)
{
    const uint head = first / HEAD, col = id % MERGED, mine = id / MERGED, ENDS = THREADS;
    float value = 0.0, most = NOTHING, total = 0.0, gate = 1.0;
    uint64_t its_gate = 0; // it has long been there, mostly
    if (HAS_GATE != 0 && id < MERGED)
        its_gate = look(AT_3 + first + col);
    [[dont_unroll]] for (uint block = 0; block < m.n_blocks; block += AT_A_TIME) {
        const uint at = BLOCKS + (head * m.n_blocks + min(block + mine, m.n_blocks - 1)) * BLOCK_VALUES;
        const vec3 taken = take_three(at + first % HEAD + col, at + HEAD);
        leave(id, taken.x);
        if (col == 0) {
            leave(ENDS + 2 * mine, taken.y);
            leave(ENDS + 2 * mine + 1, taken.z);
        }
        barrier();
        if (id < MERGED)
            [[dont_unroll]] for (uint j = 0; j < min(AT_A_TIME, m.n_blocks - block); j++) {
                const float its = left(ENDS + 2 * j), after = max(most, its);
                const float old_factor = power(most - after), new_factor = power(its - after);
                value = value * old_factor + left(j * MERGED + col) * new_factor;
                total = total * old_factor + left(ENDS + 2 * j + 1) * new_factor;
                most = after;
            }
        barrier();
    }
    value *= last_factor(most, total, NOTHING);
    if (HAS_GATE != 0 && id < MERGED)
        gate = is_there(its_gate) ? value_of(its_gate) : take(AT_3 + first + col);
    if (id < MERGED)
        put(HEADS + first + col, value * gate);
}

void merge_all(Row m, uint id)
{
    [[dont_unroll]] for (uint first = gl_WorkGroupID.x * MERGED; first < TAKEN; first += gl_NumWorkGroups.x * MERGED)
        merge(m, first, id);
}

// ---- the first products
void multiply_in(uint id)
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
        const uint row = summed_row(first, id);
        multiply_run(run, col, c, slot, span, lane);
        barrier();
        const float y = row_sums(0, IN_ITEM, SPAN, id);
        if (row < N_IN)
            put(row, row < AT_3 ? y : sigmoid(y));
        barrier();
    }
}

void main()
{
    const uint id = lane_number();
    const Row m = row_of(p.more);
    const Turn t = turn_of(m, min(gl_WorkGroupID.x, n_turns(m) - 1));
    begin_chunks(id, p.zero);
    multiply_in(id);
    if (gl_WorkGroupID.x < n_turns(m)) { // not earlier: products need the registers
        load_steps(m, id);
        load_block(m, t, id);
    }
    attend_all(m, t, id);
    fetch_out(first_out(), id);
    const float old = old_out(first_out(), id);
    merge_all(m, id);
    take_row(HEADS, id);
    take_x(id / TEAM % OUT_SPAN, id % TEAM);
    multiply_out(old, id);
}

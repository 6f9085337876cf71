#version 460
// SPDX-License-Identifier: MIT
// One row's mixture of experts in one dispatch, whose workgroups are all there at once: x += sigmoid(shared
// gate) * shared expert + the sum of the chosen experts, each of them of norm(x). What a workgroup makes the
// others take from memory as soon as it is there (grid.glsl). Sums and their order are those of matvec_one.comp,
// route.comp and experts_out.comp.
// Of ANY, which are blocks, FLOAT_TYPE is the router's.
//! variant mixture_affine -DAFFINE
//! variant mixture_any -DANY
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "chunks.glsl"
#include "reduce.glsl"
#extension GL_KHR_shader_subgroup_ballot : require
#include "grid_pairs.glsl"
#include "places.glsl"

layout(constant_id = 6) const uint N_COLS = 2048;
layout(constant_id = 7) const uint N_EXPERTS = 256;
layout(constant_id = 9) const uint K = 8;
layout(constant_id = 10) const uint HIDDEN = 512;
layout(constant_id = 11) const uint SHARED = 512;
layout(constant_id = 12) const uint EPS = 0; // a float's bits
layout(constant_id = 13) const uint NORMALISE = 1;
layout(constant_id = 14) const uint AHEAD = 2;
layout(constant_id = 15) const uint IS_WHOLE = 0; // subgroups have 32 invocations
#define TEAM_SHUFFLES(d) (IS_WHOLE != 0 || (d) < gl_SubgroupSize)

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Mixture {
    Weight shared_down, gate, up, down;
    uint64_t slot, slot_bytes, ids, weights, fault; // Words, bytes, Ints, Floats, Words
    float route_eps, route_scale;
};

layout(push_constant, scalar) uniform Push {
    Floats x;
    Floats norm;
    Mixture more;
    Pairs pairs;
    Near router, shared_router, shared_gate, shared_up;
    uint epoch;
    uint zero; // 0, which no compiler knows: it unrolls loops that it knows the end of
} p;

const uint THREADS = gl_WorkGroupSize.x, TEAM = 16, TILE = TEAM * CHUNK;
const uint TEAMS = THREADS / TEAM, SPAN = N_COLS / TILE, SLOTS = TEAMS / SPAN, HALF = SLOTS / 2;
const uint QUADS = N_COLS / 4, X_LOADS = (QUADS + THREADS - 1) / THREADS;
const uint PAIRS = 4;                       // of a team, in a workgroup's part of the experts
const uint ITEM_PAIRS = SLOTS * PAIRS;      // 32 where there are as many teams
const uint OUT_ROWS = 4, ITEM_ROWS = TEAMS / K * OUT_ROWS;
const uint SHARED_ACT = N_EXPERTS + 1, ACT = SHARED_ACT + SHARED; // where they lie among pairs
const uint N_PARTS = 2 * ITEM_PAIRS * SPAN * TEAM;
const uint TAKEN = (K + 1) * HIDDEN; // activations
const uint N_MEMORY = N_PARTS > TAKEN ? N_PARTS : TAKEN;

shared vec4 memory[N_MEMORY / 4];
shared float exchange[THREADS];
shared float squares[QUADS];
#define norm_parts exchange
#include "norm.glsl"
#include "teams.glsl"

#define INFINITE uintBitsToFloat(0x7f800000u)
const uint SEGMENT = 32, N_LISTED = N_EXPERTS / SEGMENT * K; // the best of each segment
shared uvec4 keys[(N_EXPERTS + N_LISTED) / 4];
shared uint listed[N_LISTED];
shared float scores[N_EXPERTS];
shared uint slots[N_EXPERTS];
shared float picked[K];
shared uint pick_slot[K];
shared float pick_weight[K];
shared float out_parts[(K + 1) * ITEM_ROWS];

#define GRID_PAIRS p.pairs
#define GRID_EPOCH p.epoch
#define GRID_FAULT p.more.fault
#include "grid.glsl"
#include "row_input.glsl"

// Two rows' sums, each for all lanes of a team.
vec2 row_sums(uint a, uint b, uint id)
{
    float total[2] = float[2](0.0, 0.0), parts[2 * SPAN];
    [[unroll]] for (uint t = 0; t < 2 * SPAN; t++) {
        const uint at = part_at(t < SPAN ? a : b, SPAN, t % SPAN, id % TEAM);
        parts[t] = memory[at / 4][at % 4];
    }
    [[unroll]] for (uint t = 0; t < 2 * SPAN; t++)
        total[t / SPAN] = add_part(total[t / SPAN], parts[t]);
    return vec2(team_sum(total[0], id), team_sum(total[1], id));
}

// ---- the router's rows
#ifdef AFFINE
struct RouterChunk { // eight bits
    uvec4 words[2];
    uint scale, bias;
};

RouterChunk fetch_router(Weight w, uint row, uint tile, uint lane)
{
    RouterChunk c;
    const uint col = tile * TILE + lane * CHUNK;
    const uint64_t at = w.values + uint64_t(row) * N_COLS + col;
    c.words[0] = Words4(at).v[0];
    c.words[1] = Words4(at).v[1];
    const uint i = row * (N_COLS / GROUP) + col / GROUP;
    c.scale = load_bits(w.scales, i);
    c.bias = load_bits(w.biases, i);
    return c;
}

float multiply_router(RouterChunk c, uint tile, uint lane)
{
    float dot = 0.0;
    [[unroll]] for (uint j = 0; j < CHUNK / 4; j++) {
        const uint w = c.words[j / 4][j % 4];
        const uvec4 q = uvec4(w & 255, w >> 8 & 255, w >> 16 & 255, w >> 24);
        const vec4 v = uintBitsToFloat(q | code_base) - 8388608.0;
        dot = add_quad(dot, v * vec4(1.0, 16.0, 256.0, 4096.0), x[j]);
    }
    precise float part = fma(float_of(c.scale), dot, float_of(c.bias) * x_sum);
    return part;
}
#else
// Floats: a lane has pieces of 16 bytes, other columns than of blocks. So it takes x where it is shared.
const uint ROUTER_QUADS = FLOAT_TYPE == F32 ? 1 : 2;
struct RouterChunk {
    uvec4 words[CHUNK / 4]; // of 16 bits half of them
};

RouterChunk fetch_router(Weight w, uint row, uint tile, uint lane)
{
    RouterChunk c;
    const uint64_t at = w.values + uint64_t(row * (N_COLS / 4) + tile * (TILE / 4)) * (16 / ROUTER_QUADS);
    [[unroll]] for (uint i = 0; i < CHUNK / 4 / ROUTER_QUADS; i++)
        c.words[i] = Words4(at).v[i * TEAM + lane];
    return c;
}

float multiply_router(RouterChunk c, uint tile, uint lane)
{
    float dot = 0.0;
    [[unroll]] for (uint j = 0; j < CHUNK / 4; j++) {
        const uvec4 words = c.words[j / ROUTER_QUADS];
        const uint first = j % ROUTER_QUADS * 2;
        const uint quad = (j / ROUTER_QUADS * TEAM + lane) * ROUTER_QUADS + j % ROUTER_QUADS;
        const vec4 v = FLOAT_TYPE == F32 ? uintBitsToFloat(words)
                                         : vec4(floats_of(words[first]), floats_of(words[first + 1]));
        dot = add_quad(dot, v, memory[quad_at(tile, quad % (CHUNK / 4), quad / (CHUNK / 4))]);
    }
    return dot;
}
#endif

Weight router_row(inout uint row)
{
    const bool is_router = row < N_EXPERTS;
    row = is_router ? row : 0;
    return Weight(is_router ? weight_of(p.router).values : weight_of(p.shared_router).values,
                  is_router ? weight_of(p.router).scales : weight_of(p.shared_router).scales,
                  is_router ? weight_of(p.router).biases : weight_of(p.shared_router).biases);
}

// ---- the choice
// Scores are not negative: as numbers their bits have their order. What is no number comes last.
uint key_of(float score)
{
    const uint bits = floatBitsToUint(score);
    return (bits & 0x7fffffffu) > 0x7f800000u ? 1 : bits + 2;
}

// How many of `n` keys from `first` on come before the `at`-th of them all, which is `mine`: keys that are
// greater, and of equals those before it.
uint count_before(uint first, uint n, uint mine, uint at)
{
    const uint AT_ONCE = n % 16 == 0 ? 16 : 4; // n is a constant, a multiple of four
    uint count = 0;
    [[dont_unroll]] for (uint i = first; i < first + n + p.zero; i += AT_ONCE)
        [[unroll]] for (uint j = 0; j < AT_ONCE; j += 4) {
            const uvec4 k = keys[(i + j) / 4];
            [[unroll]] for (uint e = 0; e < 4; e++)
                count += uint(k[e] + uint(i + j + e < at) > mine);
        }
    return count;
}

void choose(Mixture m, float logit, uint slot)
{
    const uint i = gl_LocalInvocationID.x;
    const float largest = workgroup_max(i < N_EXPERTS ? logit : -INFINITE);
    float score = i < N_EXPERTS ? exp(logit - largest) : 0.0;
    const float sum = workgroup_sum(score);
    score /= sum;
    const uint key = key_of(score), segment = i / SEGMENT * SEGMENT;
    if (i < N_EXPERTS)
        keys[i / 4][i % 4] = key;
    barrier();
    if (i < N_EXPERTS) {
        const uint place = count_before(segment, SEGMENT, key, i);
        if (place < K) {
            keys[(N_EXPERTS + i / SEGMENT * K + place) / 4][place % 4] = key;
            listed[i / SEGMENT * K + place] = i;
        }
        scores[i] = score;
        slots[i] = slot;
    }
    barrier();
    if (i < N_LISTED) {
        const uint at = N_EXPERTS + i, place = count_before(N_EXPERTS, N_LISTED, keys[at / 4][at % 4], at);
        const uint expert = listed[i];
        if (place < K) {
            picked[place] = scores[expert];
            pick_slot[place] = slots[expert];
            if (gl_WorkGroupID.x == 0)
                Ints(m.ids).v[place] = int(expert);
        }
    }
    barrier();
}

// What the chosen weigh, once they are known to all.
void weigh(Mixture m)
{
    const uint j = gl_LocalInvocationID.x;
    float divisor = 1.0, all[K];
    [[unroll]] for (uint i = 0; i < K; i++)
        all[i] = picked[i];
    if (NORMALISE != 0) {
        float sum = 0.0;
        [[unroll]] for (uint i = 0; i < K; i++)
            sum += all[i];
        divisor = sum + m.route_eps;
    }
    const float w = picked[min(j, K - 1)] / divisor * m.route_scale;
    if (j < K)
        pick_weight[j] = w;
    if (gl_WorkGroupID.x == 0 && j < K)
        Floats(m.weights).v[j] = w;
}

// Gate and up of the chosen.
void multiply_in(Mixture m, uint id)
{
    const uint lane = id % TEAM, team = id / TEAM, span = team % SPAN, slot = team / SPAN;
    const uint col = span * TILE + lane * CHUNK;
    [[dont_unroll]] for (uint item = gl_WorkGroupID.x; item < K * HIDDEN / ITEM_PAIRS;
                         item += gl_NumWorkGroups.x) {
        const uint pick = item * ITEM_PAIRS / HIDDEN, first = item * ITEM_PAIRS % HIDDEN;
        const uint64_t to = uint64_t(pick_slot[pick]) * m.slot_bytes;
        Weight at[2];
        at[0] = chunk_at(moved(m.gate, to), first + slot * PAIRS, col, N_COLS);
        at[1] = chunk_at(moved(m.up, to), first + slot * PAIRS, col, N_COLS);
        Chunk c[2 * AHEAD];
        [[unroll]] for (uint i = 0; i < 2 * AHEAD; i++)
            c[i] = fetch_at(row_after(at[i % 2], i / 2, N_COLS), col);
        [[dont_unroll]] for (uint k = 0; k < PAIRS + p.zero; k += AHEAD) {
            at[0] = row_after(at[0], AHEAD, N_COLS);
            at[1] = row_after(at[1], AHEAD, N_COLS);
            [[unroll]] for (uint i = 0; i < 2 * AHEAD; i++) {
                put_part((slot * PAIRS + k) * 2 + i, SPAN, span, lane, multiply(c[i]));
                if (k + AHEAD < PAIRS)
                    c[i] = fetch_at(row_after(at[i % 2], i / 2, N_COLS), col);
            }
        }
        barrier();
        [[dont_unroll]] for (uint q = 0; q < ITEM_PAIRS; q += TEAMS) { // uniform: sums over teams are slow elsewhere
            const uint r = q + team;
            const vec2 sums = row_sums(2 * r, 2 * r + 1, id);
            const float y = silu(sums.x) * sums.y;
            if (lane == 0)
                put(ACT + pick * HIDDEN + first + r, y);
        }
        barrier();
    }
}

// What the row's norm goes into first: the router, the shared expert's gate and its first products.
void multiply_first(uint id)
{
    const uint lane = id % TEAM, team = id / TEAM, span = team % SPAN, slot = team / SPAN;
    const uint col = span * TILE + lane * CHUNK, G = gl_NumWorkGroups.x, g = gl_WorkGroupID.x;
    const uint N_ROUTER = N_EXPERTS + 1, PARTS = TILE / TEAM; // behind x, which stays where it is
    Chunk c[2];
    RouterChunk routed;
    vec4 loads[X_LOADS], weights[X_LOADS];
    load_x(p.x, p.norm, id, loads, weights);
    [[dont_unroll]] for (uint turn = 0; turn * G * HALF < max(N_ROUTER, SHARED); turn++) {
        const uint pair = (turn * G + g) * HALF + slot, route = turn * G * HALF + g + G * (slot - HALF);
        if (slot < HALF) {
            c[0] = fetch_at(chunk_at(weight_of(p.shared_gate), min(pair, SHARED - 1), col, N_COLS), col);
            c[1] = fetch_at(chunk_at(weight_of(p.shared_up), min(pair, SHARED - 1), col, N_COLS), col);
        } else {
            uint row = min(route, N_EXPERTS);
            const Weight w = router_row(row);
            routed = fetch_router(w, row, span, lane);
        }
        if (turn == 0) {
            share_squares(loads, id);
            share_x(loads, weights, uintBitsToFloat(EPS), id);
            take_x(span, lane);
        }
        if (slot < HALF) {
            [[dont_unroll]] for (uint i = 0; i < 2 + p.zero; i++) {
                put_part(PARTS + slot * 2 + i, SPAN, span, lane, multiply(c[0]));
                c[0] = c[1];
            }
        } else {
            put_part(PARTS + HALF + slot, SPAN, span, lane, multiply_router(routed, span, lane));
        }
        barrier();
        // every team comes here, as sums over teams may need barriers
        const uint first = PARTS + (team < HALF ? team * 2 : HALF + team % SLOTS);
        const vec2 sums = row_sums(first, team < HALF ? first + 1 : first, id);
        const uint to_pair = (turn * G + g) * HALF + team;
        const uint to_route = turn * G * HALF + g + G * (team - HALF);
        if (lane == 0 && team < HALF && to_pair < SHARED)
            put(SHARED_ACT + to_pair, silu(sums.x) * sums.y);
        if (lane == 0 && team >= HALF && team < SLOTS && to_route < N_ROUTER)
            put(to_route, sums.x);
        barrier();
    }
}

void fetch_out(Mixture m, uint item, uint id, out Chunk c[OUT_ROWS + 1])
{
    const uint lane = id % TEAM, team = id / TEAM, pick = team % K;
    const uint col = lane * CHUNK, first = item * ITEM_ROWS;
    Weight at = chunk_at(moved(m.down, uint64_t(pick_slot[pick]) * m.slot_bytes),
                         first + team / K * OUT_ROWS, col, HIDDEN);
    [[unroll]] for (uint i = 0; i < OUT_ROWS; i++) {
        c[i + 1] = fetch_at(at, col);
        next_row(at, HIDDEN);
    }
    c[0] = fetch_at(chunk_at(m.shared_down, first + team % ITEM_ROWS, col, SHARED), col);
}

void multiply_out(Mixture m, uint id, float gate)
{
    const uint lane = id % TEAM, team = id / TEAM, pick = team % K, G = gl_NumWorkGroups.x;
    const uint N_ITEMS = N_COLS / ITEM_ROWS;
    uint item = gl_WorkGroupID.x;
    Chunk c[OUT_ROWS + 1];
    float old = 0.0;
    if (id < ITEM_ROWS)
        old = p.x.v[min(item, N_ITEMS - 1) * ITEM_ROWS + id];
    fetch_out(m, min(item, N_ITEMS - 1), id, c);
    take_row(SHARED_ACT, id);
    [[dont_unroll]] for (; item < N_ITEMS; item += G) {
        [[dont_unroll]] for (uint k = 0; k <= OUT_ROWS + p.zero; k++) { // the shared expert's row, then the pick's
            if (k <= 1)
                take_x(k == 0 ? 0 : 1 + pick, lane);
            const float y = team_sum(add_part(0.0, multiply(c[0])), id);
            const uint row = k == 0 ? K * ITEM_ROWS + team : pick * ITEM_ROWS + team / K * OUT_ROWS + k - 1;
            if (lane == 0 && (k != 0 || team < ITEM_ROWS))
                out_parts[row] = y;
            [[unroll]] for (uint i = 0; i < OUT_ROWS; i++)
                c[i] = c[i + 1];
        }
        barrier();
        if (id < ITEM_ROWS) {
            float sum = out_parts[K * ITEM_ROWS + id] * sigmoid(gate);
            [[unroll]] for (uint j = 0; j < K; j++)
                sum = fma(pick_weight[j], out_parts[j * ITEM_ROWS + id], sum);
            p.x.v[item * ITEM_ROWS + id] = old + sum;
        }
        if (item + G < N_ITEMS) {
            barrier();
            fetch_out(m, item + G, id, c);
            if (id < ITEM_ROWS)
                old = p.x.v[(item + G) * ITEM_ROWS + id];
        }
    }
}

void main()
{
    const uint id = lane_number(), i = gl_LocalInvocationID.x;
    Mixture m = p.more;
    uint slot = 0;
    if (i < N_EXPERTS)
        slot = Words(m.slot).v[i];
    begin_chunks(id, p.zero);
    multiply_first(id);
    choose(m, i < N_EXPERTS ? take(i) : 0.0, slot);
    weigh(m); // seen by all after the next barrier
    const float gate = id < ITEM_ROWS ? take(N_EXPERTS) : 0.0;
    multiply_in(m, id);
    multiply_out(m, id, gate);
}

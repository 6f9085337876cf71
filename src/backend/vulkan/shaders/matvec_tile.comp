#version 460
// SPDX-License-Identifier: MIT
// What matvec.comp multiplies, of forms and for numbers of rows and tokens that are known when this is
// compiled, so that tools/build_shaders.sh can unroll it and all that a lane has lies in registers.
//
// 16 lanes have N_ROWS rows and N_TOKENS tokens: a weight is read and unpacked once for them. Columns
// go by tiles of 512, of which a lane has 32. x waits in shared memory; while a tile is multiplied,
// the next one's weights and x are on their way. The sum of a row and a token is the same whatever
// N_ROWS, N_TOKENS and THREADS are, and as matvec_one.comp has it: a lane's 32 columns are summed one
// after another, then its tiles, and lanes are added in pairs, fours, eights.
// A workgroup's y is a job, its z some tokens, its x a block of rows, after which it goes on with the
// next one as with the next tile, so that the device fetches while it multiplies.
//! variant matvec_tile_affine4_8x4 -DAFFINE -DLIT_BITS=4 -DLIT_WIDE=1 -DLIT_TOKENS=8 -DLIT_ROWS=4 -DLIT_THREADS=256
//! unrolled matvec_tile_affine4_8x4
//! variant matvec_tile_affine4_8x2 -DAFFINE -DLIT_BITS=4 -DLIT_WIDE=1 -DLIT_TOKENS=8 -DLIT_ROWS=2 -DLIT_THREADS=128
//! unrolled matvec_tile_affine4_8x2
//! variant matvec_tile_affine4_4x4 -DAFFINE -DLIT_BITS=4 -DLIT_WIDE=1 -DLIT_TOKENS=4 -DLIT_ROWS=4 -DLIT_THREADS=128
//! unrolled matvec_tile_affine4_4x4
//! variant matvec_tile_affine4_pair_8x2 -DAFFINE -DPAIR -DLIT_BITS=4 -DLIT_WIDE=1 -DLIT_TOKENS=8 -DLIT_ROWS=2 -DLIT_THREADS=128
//! unrolled matvec_tile_affine4_pair_8x2
//! variant matvec_tile_affine4_pair_4x2 -DAFFINE -DPAIR -DLIT_BITS=4 -DLIT_WIDE=1 -DLIT_TOKENS=4 -DLIT_ROWS=2 -DLIT_THREADS=128
//! unrolled matvec_tile_affine4_pair_4x2
//! variant matvec_tile_q4_0_8x2 -DANY -DLIT_KIND=KIND_Q4_0 -DLIT_WIDE=1 -DLIT_TOKENS=8 -DLIT_ROWS=2 -DLIT_THREADS=128
//! unrolled matvec_tile_q4_0_8x2
//! variant matvec_tile_q4_0_4x2 -DANY -DLIT_KIND=KIND_Q4_0 -DLIT_WIDE=1 -DLIT_TOKENS=4 -DLIT_ROWS=2 -DLIT_THREADS=128
//! unrolled matvec_tile_q4_0_4x2
//! variant matvec_tile_q4_0_pair_8x1 -DANY -DPAIR -DLIT_KIND=KIND_Q4_0 -DLIT_WIDE=1 -DLIT_TOKENS=8 -DLIT_ROWS=1 -DLIT_THREADS=128
//! unrolled matvec_tile_q4_0_pair_8x1
//! variant matvec_tile_q4_0_pair_4x1 -DANY -DPAIR -DLIT_KIND=KIND_Q4_0 -DLIT_WIDE=1 -DLIT_TOKENS=4 -DLIT_ROWS=1 -DLIT_THREADS=128
//! unrolled matvec_tile_q4_0_pair_4x1
//! variant matvec_tile_q4_k_8x2 -DANY -DLIT_KIND=KIND_Q4_K -DLIT_WIDE=1 -DLIT_TOKENS=8 -DLIT_ROWS=2 -DLIT_THREADS=128
//! unrolled matvec_tile_q4_k_8x2
//! variant matvec_tile_q4_k_4x2 -DANY -DLIT_KIND=KIND_Q4_K -DLIT_WIDE=1 -DLIT_TOKENS=4 -DLIT_ROWS=2 -DLIT_THREADS=128
//! unrolled matvec_tile_q4_k_4x2
//! variant matvec_tile_q4_k_pair_8x1 -DANY -DPAIR -DLIT_KIND=KIND_Q4_K -DLIT_WIDE=1 -DLIT_TOKENS=8 -DLIT_ROWS=1 -DLIT_THREADS=128
//! unrolled matvec_tile_q4_k_pair_8x1
//! variant matvec_tile_q4_k_pair_4x1 -DANY -DPAIR -DLIT_KIND=KIND_Q4_K -DLIT_WIDE=1 -DLIT_TOKENS=4 -DLIT_ROWS=1 -DLIT_THREADS=128
//! unrolled matvec_tile_q4_k_pair_4x1
//! variant matvec_tile_q8_0_8x2 -DANY -DLIT_KIND=KIND_Q8_0 -DLIT_WIDE=1 -DLIT_TOKENS=8 -DLIT_ROWS=2 -DLIT_THREADS=128
//! unrolled matvec_tile_q8_0_8x2
//! variant matvec_tile_q8_0_4x2 -DANY -DLIT_KIND=KIND_Q8_0 -DLIT_WIDE=1 -DLIT_TOKENS=4 -DLIT_ROWS=2 -DLIT_THREADS=128
//! unrolled matvec_tile_q8_0_4x2
//! variant matvec_tile_q8_0_pair_8x1 -DANY -DPAIR -DLIT_KIND=KIND_Q8_0 -DLIT_WIDE=1 -DLIT_TOKENS=8 -DLIT_ROWS=1 -DLIT_THREADS=128
//! unrolled matvec_tile_q8_0_pair_8x1
//! variant matvec_tile_q8_0_pair_4x1 -DANY -DPAIR -DLIT_KIND=KIND_Q8_0 -DLIT_WIDE=1 -DLIT_TOKENS=4 -DLIT_ROWS=1 -DLIT_THREADS=128
//! unrolled matvec_tile_q8_0_pair_4x1
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "jobs.glsl"
#include "chunks.glsl"
#extension GL_KHR_shader_subgroup_shuffle : require

const uint N_TOKENS = LIT_TOKENS; // 4, 8
const uint N_ROWS = LIT_ROWS;     // of a lane: with pairs of either matrix
const uint THREADS = LIT_THREADS; // a multiple of 128, N_TOKENS times 128 at most

layout(push_constant, scalar) uniform Push {
    Jobs jobs;
    uint n_cols, n_jobs;
} p;

#ifdef PAIR
const uint N_MATRICES = 2;
#else
const uint N_MATRICES = 1;
#endif
const uint N_SUMS = N_MATRICES * N_ROWS, N_RESULTS = N_ROWS * N_TOKENS;
const uint TEAM = 16, TILE = TEAM * CHUNK, QUADS = TILE / 4;
const uint PER_GROUP = THREADS / TEAM * N_ROWS;  // rows of a block
const uint N_LOADS = N_TOKENS * QUADS / THREADS; // of x, of an invocation and a tile

// Four columns of a token each, where no two lanes want the same bank.
shared vec4 xs[N_TOKENS * QUADS];
shared float x_sums[N_TOKENS * TEAM];
shared float exchange[THREADS]; // of lanes that are not of one subgroup

uint x_rows[N_LOADS];   // where in x the invocation's tokens begin, in floats
vec4 x_ahead[N_LOADS];  // what is on its way of the next tile
float sums[N_SUMS * N_TOKENS];

uint quad_at(uint token, uint j, uint lane)
{
    return (token * CHUNK / 4 + j) * TEAM + (lane ^ j);
}

void find_x(Job job, uint first_token, uint id)
{
    [[unroll]] for (uint i = 0; i < N_LOADS; i++) {
        const uint t = min(first_token + (i * THREADS + id) / QUADS, job.n_tokens - 1);
        uint row = t;
        if (job.rows != 0)
            row = Words(job.rows).v[t];
        x_rows[i] = row * job.x_stride;
    }
}

// A tile's, zeros beyond the end.
void load_x(uint64_t x, uint tile, uint id)
{
    const uint col = tile * TILE + id % QUADS * 4;
    [[unroll]] for (uint i = 0; i < N_LOADS; i++) {
        x_ahead[i] = vec4(0.0);
        if (col < p.n_cols)
            x_ahead[i] = Floats4(x + (uint64_t(x_rows[i]) + col) * 4).v[0];
    }
}

// The sum over the 8 invocations that have a lane's columns, as sum_of_quads has it.
float sum_of_eight(vec4 x, uint id)
{
    precise float sum = (x.x + x.y) + (x.z + x.w);
    precise float two = sum + subgroupShuffleXor(sum, 1);
    precise float four = two + subgroupShuffleXor(two, 2);
    precise float eight = four + subgroupShuffleXor(four, 4);
    return eight;
}

// Puts what has been loaded into shared memory.
void stage(uint id)
{
    const uint per_piece = PIECE / 4, of_piece = id % QUADS / per_piece;
    const uint j = of_piece / TEAM * per_piece + id % per_piece, lane = of_piece % TEAM;
    [[unroll]] for (uint i = 0; i < N_LOADS; i++) {
        const uint token = (i * THREADS + id) / QUADS;
        xs[quad_at(token, j, lane)] = x_ahead[i] * QUAD_FACTORS(j);
        if (HAS_MIN && gl_SubgroupSize >= CHUNK / 4) {
            const float sum = sum_of_eight(x_ahead[i], id);
            if (j == 0)
                x_sums[token * TEAM + lane] = sum;
        }
    }
    if (HAS_MIN && gl_SubgroupSize < CHUNK / 4) {
        barrier();
        for (uint i = id; i < N_TOKENS * TEAM; i += THREADS) {
            vec4 x[CHUNK / 4];
            [[unroll]] for (uint q = 0; q < CHUNK / 4; q++)
                x[q] = xs[quad_at(i / TEAM, q, i % TEAM)] * QUAD_POWERS(q);
            x_sums[i] = sum_of_quads(x);
        }
    }
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
void add_tile(uint lane, Chunk c[N_SUMS])
{
    float dots[N_SUMS * N_TOKENS];
    [[unroll]] for (uint i = 0; i < N_SUMS * N_TOKENS; i++)
        dots[i] = 0.0;
    [[unroll]] for (uint j = 0; j < CHUNK / 4; j++) {
        vec4 w[N_SUMS];
        [[unroll]] for (uint r = 0; r < N_SUMS; r++)
            w[r] = quad(c[r], j);
        [[unroll]] for (uint t = 0; t < N_TOKENS; t++) {
            const vec4 x = xs[quad_at(t, j, lane)];
            [[unroll]] for (uint e = 0; e < 4; e++)
                [[unroll]] for (uint r = 0; r < N_SUMS; r++)
                    dots[r * N_TOKENS + t] = add_product(dots[r * N_TOKENS + t], w[r][e], x[e]);
        }
    }
    [[unroll]] for (uint t = 0; t < N_TOKENS; t++) {
        const float x_sum = HAS_MIN ? x_sums[t * TEAM + lane] : 0.0;
        [[unroll]] for (uint r = 0; r < N_SUMS; r++)
            sums[r * N_TOKENS + t] = add_part(sums[r * N_TOKENS + t],
                                              part_of(c[r], dots[r * N_TOKENS + t], x_sum));
    }
}

// What the invocation whose number differs by d has.
float from_lane(float v, uint d, uint id)
{
    if (d < gl_SubgroupSize)
        return subgroupShuffleXor(v, d);
    barrier();
    exchange[id] = v;
    barrier();
    return exchange[id ^ d];
}

// A step of add_lanes: lanes whose numbers differ by d, that have n results.
void add_step(inout float v[N_RESULTS], uint d, uint n, uint id)
{
    if (n <= 1) {
        v[0] += from_lane(v[0], d, id);
        return;
    }
    const bool is_odd = (id & d) != 0;
    [[unroll]] for (uint i = 0; i < N_RESULTS / 2; i++) {
        if (i < n / 2) {
            const float kept = is_odd ? v[2 * i + 1] : v[2 * i];
            const float sent = is_odd ? v[2 * i] : v[2 * i + 1];
            v[i] = kept + from_lane(sent, d, id);
        }
    }
}

// The sums over a team's lanes of what each has of N_RESULTS results, in pairs, fours, eights: with
// each of these steps a lane keeps half of the results, so that in the end lane l has those whose number
// ends with its bits, in v[0], v[1] and so on.
void add_lanes(inout float v[N_RESULTS], uint id)
{
    add_step(v, 1, N_RESULTS, id);
    add_step(v, 2, N_RESULTS / 2, id);
    add_step(v, 4, N_RESULTS / 4, id);
    add_step(v, 8, N_RESULTS / 8, id);
}

void put_rows(Job job, uint first_row, uint first_token, uint id)
{
    const uint n_put = N_RESULTS > TEAM ? N_RESULTS / TEAM : 1, n_each = min(N_RESULTS, TEAM);
    float v[N_RESULTS];
    [[unroll]] for (uint i = 0; i < N_RESULTS; i++)
        v[i] = sums[i / N_TOKENS * N_MATRICES * N_TOKENS + i % N_TOKENS];
    add_lanes(v, id);
#ifdef PAIR
    float up[N_RESULTS];
    [[unroll]] for (uint i = 0; i < N_RESULTS; i++)
        up[i] = sums[(i / N_TOKENS * N_MATRICES + 1) * N_TOKENS + i % N_TOKENS];
    add_lanes(up, id);
    [[unroll]] for (uint i = 0; i < n_put; i++)
        v[i] = silu(v[i]) * up[i];
#endif
    [[unroll]] for (uint i = 0; i < n_put; i++) {
        const uint which = i * TEAM + id % n_each, t = first_token + which % N_TOKENS;
        const uint row = first_row + which / N_TOKENS;
        if (id % TEAM < n_each && row < job.n_rows && t < job.n_tokens) {
            uint y_row = t;
            if (job.y_rows != 0)
                y_row = Words(job.rows).v[job.y_rows + t];
            Floats(job.y + uint64_t(y_row) * job.y_stride * 4).v[row] = v[i];
        }
    }
}

// Where a workgroup goes on: after a block of rows' tiles those of its next block.
struct Place {
    uint block, tile;
};

Place after(Place at, uint n_tiles)
{
    if (at.tile + 1 < n_tiles)
        return Place(at.block, at.tile + 1);
    return Place(at.block + gl_NumWorkGroups.x, 0);
}

uint row_at(Place at, uint id)
{
    return at.block * PER_GROUP + id / TEAM * N_ROWS;
}

void clear_sums()
{
    [[unroll]] for (uint i = 0; i < N_SUMS * N_TOKENS; i++)
        sums[i] = 0.0;
}

void product(Job job, uint first_token, uint id)
{
    const uint lane = id % TEAM, n_tiles = (p.n_cols + TILE - 1) / TILE;
    Place at = Place(gl_WorkGroupID.x, 0);
    Chunk c[N_SUMS];
    clear_sums();
    find_x(job, first_token, id);
    load_x(job.x, 0, id);
    load_rows(job, row_at(at, id), 0, lane, c);
    barrier(); // what was there has been read
    stage(id);
    load_x(job.x, n_tiles > 1 ? 1 : 0, id);
    barrier();
    [[dont_unroll]] for (;;) {
        const Place then = after(at, n_tiles);
        Chunk next[N_SUMS];
        load_rows(job, row_at(then, id), then.tile, lane, next);
        add_tile(lane, c);
        [[unroll]] for (uint r = 0; r < N_SUMS; r++)
            c[r] = next[r];
        if (then.tile == 0) {
            put_rows(job, row_at(at, id), first_token, id);
            clear_sums();
        }
        if (then.block * PER_GROUP >= job.n_rows)
            break;
        at = then;
        if (n_tiles > 1) { // else it is the same x
            barrier();
            stage(id);
            load_x(job.x, after(at, n_tiles).tile, id);
            barrier();
        }
    }
}

void main()
{
    // an invocation's number such that subgroups are runs of numbers
    const uint id = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
    begin_chunks(id, p.n_cols >> 31);
    const uint step = gl_NumWorkGroups.z * N_TOKENS;
    [[dont_unroll]] for (uint i = gl_WorkGroupID.y; i < p.n_jobs; i += gl_NumWorkGroups.y) {
        const Job job = p.jobs.v[i];
        if (gl_WorkGroupID.x * PER_GROUP >= job.n_rows) {
            if (job.n_rows == 0)
                return; // as of all that follow: those that the device made, and then none
            continue;
        }
        [[dont_unroll]] for (uint t = gl_WorkGroupID.z * N_TOKENS; t < job.n_tokens; t += step)
            product(job, t, id);
    }
}

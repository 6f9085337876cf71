#version 460
// SPDX-License-Identifier: MIT
// The products of matvec.comp for many tokens: float16 values, float32 sums, on matrix units
// (PLAIN: without). A workgroup's y is a job, its x 128 rows of the weight (of pairs 64 and 64), its
// z N_TILES * 16 tokens. Weights become float16 on their way to shared memory; x is float16 already,
// with a scale of its own for each row and 8 columns in an order of its own (to_half.comp). The next
// 64 columns are loaded while these are multiplied.
// A sum goes over the columns by 16, in their order: whatever N_TILES and IS_WIDE are.
//! variant units_any -DANY
//! variant units_any_pair -DANY -DPAIR
//! variant units_affine -DAFFINE
//! variant units_affine_pair -DAFFINE -DPAIR
//! variant units_fp8 -DFP8
//! variant units_fp8_pair -DFP8 -DPAIR
//! variant units_float -DFLOATS
//! variant units_float_pair -DFLOATS -DPAIR
//! variant plain_any -DPLAIN -DANY
//! variant plain_any_pair -DPLAIN -DANY -DPAIR
//! variant plain_affine -DPLAIN -DAFFINE
//! variant plain_affine_pair -DPLAIN -DAFFINE -DPAIR
//! variant plain_fp8 -DPLAIN -DFP8
//! variant plain_fp8_pair -DPLAIN -DFP8 -DPAIR
//! variant plain_float -DPLAIN -DFLOATS
//! variant plain_float_pair -DPLAIN -DFLOATS -DPAIR
//! inlined units_affine
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#ifndef PLAIN
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#endif
#include "common.glsl"
#include "weights.glsl"
#include "jobs.glsl"
#include "chunks.glsl"

layout(constant_id = 6) const uint N_TILES = 1; // of 16 tokens
layout(constant_id = 7) const uint HAS_SCALES = 0; // of 8 groups of 64 columns in 16 bytes

layout(push_constant, scalar) uniform Push {
    Jobs jobs;
    uint n_cols, n_padded; // columns of x as it lies, a multiple of 64
} p;

const uint UNIT = 16, N_THREADS = 128, TEAMS = 4; // subgroups of 32
const uint ROWS = 128, COLS = 64, STRIDE = COLS / 8 + 1; // of a row in shared memory, 16 bytes each
const uint TOKENS = N_TILES * UNIT, X_LOADS = TOKENS * (COLS / 8) / N_THREADS;
#ifdef PAIR
const uint RESULT_ROWS = ROWS / 2;
#else
const uint RESULT_ROWS = ROWS;
#endif

shared uvec4 ws[ROWS * STRIDE]; // in the end results: of each team two tiles of 16 by 16 floats
shared uvec4 xs[TOKENS * STRIDE];

// Where the invocation's part of x and of two rows of the weight is, and what has been loaded of it.
uint64_t x_at[X_LOADS];
uvec4 x[X_LOADS];
Weight from[2];
uint from_row[2];
Chunk chunks[2];
uvec4 scales[2], biases[2];

#ifdef PLAIN
const uint SHARE = 8; // two invocations have a token of a tile, each 8 of its rows
#else
// The sums are named by numbers, not by a loop's variable: of those of the larger shaders a driver
// makes memory otherwise, and an H200 multiplies at a quarter of its speed.
#define EACH_TILE(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7)
const uint MOST_TILES = 8;
#define SUM coopmat<float, gl_ScopeSubgroup, UNIT, UNIT, gl_MatrixUseAccumulator>
#define CLEAR(t) \
    if (t < N_TILES) \
        sums[t][0] = sums[t][1] = SUM(0.0);
#define MULTIPLY(t) \
    if (t < N_TILES) { \
        coopmat<float16_t, gl_ScopeSubgroup, UNIT, UNIT, gl_MatrixUseA> a; \
        coopMatLoad(a, xs, t * UNIT * STRIDE + k * 2, STRIDE, gl_CooperativeMatrixLayoutRowMajor); \
        sums[t][0] = coopMatMulAdd(a, w[0], sums[t][0]); \
        sums[t][1] = coopMatMulAdd(a, w[1], sums[t][1]); \
    }
#define PUT_RESULTS(t) \
    if (t < N_TILES) { \
        coopMatStore(sums[t][0], ws, team * 2 * UNIT * UNIT / 4, UNIT / 4, \
                     gl_CooperativeMatrixLayoutRowMajor); \
        coopMatStore(sums[t][1], ws, (team * 2 + 1) * UNIT * UNIT / 4, UNIT / 4, \
                     gl_CooperativeMatrixLayoutRowMajor); \
        subgroupBarrier(); \
        put_results(job, team, lane, t * UNIT); \
        subgroupBarrier(); \
    }
#endif

#ifdef AFFINE
// Weights of 4 bits become float16 in pairs, 16 times as large: few scales are too small for it then.
const bool IS_FAST = BITS == 4 && FLOAT_TYPE != F32;
const float FACTOR = 16.0;
#else
const bool IS_FAST = false;
const float FACTOR = 1.0;
#endif

uint weight_row(uint r, uint n_rows)
{
#ifdef PAIR
    // pairs have 16 of the one and 16 of the other by turns, so that a team has both
    return min(gl_WorkGroupID.x * RESULT_ROWS + r / 32 * UNIT + r % UNIT, n_rows - 1);
#else
    return min(gl_WorkGroupID.x * RESULT_ROWS + r, n_rows - 1);
#endif
}

Weight weight_of_row(Job job, uint r)
{
#ifdef PAIR
    if (r % 32 >= UNIT)
        return job.up;
#endif
    return job.weight;
}

#ifdef AFFINE
uint bits_of(uvec4 v, uint i)
{
    const uint word = (i & 4) != 0 ? ((i & 2) != 0 ? v.w : v.z) : ((i & 2) != 0 ? v.y : v.x);
    return (i & 1) != 0 ? word >> 16 : word & 0xffffu;
}

void put_fast(uint at, Chunk c)
{
    const f16vec2 scale = f16vec2(float16_t(float_of(c.scale) * FACTOR));
    const f16vec2 bias = f16vec2(float16_t(float_of(c.bias) * FACTOR));
    [[unroll]] for (uint i = 0; i < 4; i++) {
        uvec4 v;
        [[unroll]] for (uint e = 0; e < 4; e++) {
            // 1024 + q, of value e and of value e + 4
            const uint q = (c.words[i] >> (e * 4) & 0x000f000fu) | 0x64006400u;
            v[e] = packFloat2x16(fma(unpackFloat2x16(q) - f16vec2(1024.0), scale, bias));
        }
        ws[at + i] = v;
    }
}
#endif

#ifdef ANY
// A value of these is a code times a scale that is float16 itself: their product is rounded once,
// of float16 as of float32.
const bool IS_SCALED = KIND == KIND_Q4_0 || KIND == KIND_Q5_0 || KIND == KIND_Q8_0;

void put_scaled(uint at, Chunk c)
{
    const f16vec2 scale = f16vec2(unpackFloat2x16(small_word(c, 0, 0)).x);
    [[unroll]] for (uint i = 0; i < 4; i++) {
        const uint a = codes_at(c, 2 * i), b = codes_at(c, 2 * i + 1);
        uvec4 v;
        [[unroll]] for (uint e = 0; e < 4; e++) {
            // 1024 + code, of value e and of value e + 4
            const uint q = (a >> (8 * e) & 255) | (b >> (8 * e) & 255) << 16 | 0x64006400u;
            v[e] = packFloat2x16((unpackFloat2x16(q) - f16vec2(1024.0 + ZERO)) * scale);
        }
        ws[at + i] = v;
    }
}
#endif

void put_row(uint r, uint half_row, Chunk c)
{
    const uint to = r * STRIDE + half_row * 4;
#ifdef ANY
    if (IS_SCALED) {
        put_scaled(to, c);
        return;
    }
#endif
#ifdef AFFINE
    if (IS_FAST) {
        put_fast(to, c);
        return;
    }
#endif
    const vec2 line = line_of(c);
    [[unroll]] for (uint i = 0; i < 4; i++) {
        const vec4 a = values_of(c, 2 * i, line), b = values_of(c, 2 * i + 1, line);
        ws[to + i] = uvec4(packHalf2x16(vec2(a.x, b.x)), packHalf2x16(vec2(a.y, b.y)),
                           packHalf2x16(vec2(a.z, b.z)), packHalf2x16(vec2(a.w, b.w)));
    }
}

// The row of x of a token of the tile; beyond the last it is the last.
uint row_of_token(Job job, uint i)
{
    const uint t = min(gl_WorkGroupID.z * TOKENS + i, job.n_tokens - 1);
    if (job.rows != 0)
        return Words(job.rows).v[t];
    return t;
}

// The invocation's part of the columns from `col` on.
void load(uint col, uint half_row)
{
    const uint first = col + half_row * CHUNK;
    [[unroll]] for (uint i = 0; i < X_LOADS; i++)
        x[i] = Words4(x_at[i]).v[col / 8];
    [[unroll]] for (uint i = 0; i < 2; i++) {
#ifdef AFFINE
        if (HAS_SCALES != 0) {
            const uint64_t at = uint64_t(from_row[i]) * p.n_cols;
            const uvec4 v = Words4(from[i].values + (at + first) / 2).v[0];
            [[unroll]] for (uint e = 0; e < 4; e++)
                chunks[i].words[e] = v[e];
            if (col % (8 * COLS) == 0) {
                scales[i] = Words4(from[i].scales + (at + col) / 32).v[0];
                biases[i] = Words4(from[i].biases + (at + col) / 32).v[0];
            }
            continue;
        }
#endif
#ifdef ANY
        if (IS_BLOCK) {
            chunks[i] = load_of_row(from[i], first, p.n_cols);
            continue;
        }
#endif
        chunks[i] = load_chunk(from[i], from_row[i], first, PIECE, p.n_cols);
    }
}

// What has been loaded goes to shared memory.
void put(uint id, uint col)
{
    [[unroll]] for (uint i = 0; i < 2; i++) {
#ifdef AFFINE
        if (HAS_SCALES != 0) {
            chunks[i].scale = bits_of(scales[i], col / COLS % 8);
            chunks[i].bias = bits_of(biases[i], col / COLS % 8);
        }
#endif
        put_row(id / 2 + i * 64, id % 2, chunks[i]);
    }
    [[unroll]] for (uint i = 0; i < X_LOADS; i++)
        xs[(i * N_THREADS + id) / 8 * STRIDE + (i * N_THREADS + id) % 8] = x[i];
}

float result_at(uint i)
{
    return uintBitsToFloat(ws[i / 4][i % 4]);
}

void put_results(Job job, uint team, uint lane, uint first_token)
{
    const uint64_t y = job.y + uint64_t(gl_WorkGroupID.z) * TOKENS * job.y_stride * 4;
    for (uint i = lane; i < UNIT * UNIT; i += 32) {
        const uint t = first_token + i / UNIT, r = i % UNIT, at = team * 2 * UNIT * UNIT + i;
        if (gl_WorkGroupID.z * TOKENS + t >= job.n_tokens)
            continue;
        Floats to = Floats(y + uint64_t(t) * job.y_stride * 4);
        const float scale =
            Floats(job.x_scales).v[row_of_token(job, t)] * (IS_FAST ? 1.0 / FACTOR : 1.0);
        const float a = result_at(at) * scale, b = result_at(at + UNIT * UNIT) * scale;
#ifdef PAIR
        const uint row = gl_WorkGroupID.x * RESULT_ROWS + team * UNIT + r;
        if (row < job.n_rows)
            to.v[row] = silu(a) * b;
#else
        const uint row = gl_WorkGroupID.x * RESULT_ROWS + team * 2 * UNIT + r;
        if (row < job.n_rows)
            to.v[row] = a;
        if (row + UNIT < job.n_rows)
            to.v[row + UNIT] = b;
#endif
    }
}

void main()
{
    const Job job = p.jobs.v[gl_WorkGroupID.y];
    if (gl_WorkGroupID.x * RESULT_ROWS >= job.n_rows ||
        gl_WorkGroupID.z * TOKENS >= job.n_tokens)
        return;
#ifdef PLAIN
    const uint id = gl_LocalInvocationID.x;
#else
    const uint id = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
#endif
    const uint team = id / 32, lane = id % 32;
    const uint row = id / 2, half_row = id % 2; // two invocations have neighbouring chunks
    begin_chunks(id, p.n_cols >> 31);
    [[unroll]] for (uint i = 0; i < X_LOADS; i++)
        x_at[i] = job.x + uint64_t(row_of_token(job, (i * N_THREADS + id) / 8)) * p.n_padded * 2 +
                  (i * N_THREADS + id) % 8 * 16;
    [[unroll]] for (uint i = 0; i < 2; i++) {
        from[i] = weight_of_row(job, row + i * 64);
        from_row[i] = job.first_row + weight_row(row + i * 64, job.n_rows);
#ifdef ANY
        if (IS_BLOCK)
            from[i] = block_row(from[i], from_row[i], p.n_cols);
#endif
    }

#ifdef PLAIN
    float sums[N_TILES * 2 * SHARE];
    [[unroll]] for (uint i = 0; i < N_TILES * 2 * SHARE; i++)
        sums[i] = 0.0;
#else
    SUM sums[MOST_TILES][2];
    EACH_TILE(CLEAR)
#endif

    load(0, half_row);
    for (uint col = 0; col < p.n_cols; col += COLS) {
        put(id, col);
        barrier();
        if (col + COLS < p.n_cols)
            load(col + COLS, half_row);
#ifdef PLAIN
        for (uint k = 0; k < COLS / 2; k++) {
            float w[2 * SHARE][2];
            [[unroll]] for (uint i = 0; i < 2 * SHARE; i++) {
                const uint r = team * 32 + i / SHARE * UNIT + lane % 2 * SHARE + i % SHARE;
                const vec2 v = unpackHalf2x16(ws[r * STRIDE + k / 4][k % 4]);
                w[i][0] = v.x;
                w[i][1] = v.y;
            }
            [[unroll]] for (uint t = 0; t < N_TILES; t++) {
                const vec2 a = unpackHalf2x16(xs[(t * UNIT + lane / 2) * STRIDE + k / 4][k % 4]);
                [[unroll]] for (uint i = 0; i < 2 * SHARE; i++)
                    sums[t * 2 * SHARE + i] =
                        fma(a.y, w[i][1], fma(a.x, w[i][0], sums[t * 2 * SHARE + i]));
            }
        }
#else
        [[unroll]] for (uint k = 0; k < COLS / UNIT; k++) {
            coopmat<float16_t, gl_ScopeSubgroup, UNIT, UNIT, gl_MatrixUseB> w[2];
            [[unroll]] for (uint j = 0; j < 2; j++)
                coopMatLoad(w[j], ws, (team * 32 + j * UNIT) * STRIDE + k * 2, STRIDE,
                            gl_CooperativeMatrixLayoutColumnMajor);
            EACH_TILE(MULTIPLY)
        }
#endif
        barrier();
    }
#ifdef PLAIN
    [[unroll]] for (uint t = 0; t < N_TILES; t++) {
        [[unroll]] for (uint i = 0; i < 2 * SHARE; i += 4) {
            const uint to = team * 2 * UNIT * UNIT + i / SHARE * UNIT * UNIT + lane / 2 * UNIT +
                            lane % 2 * SHARE + i % SHARE;
            uvec4 v;
            [[unroll]] for (uint e = 0; e < 4; e++)
                v[e] = floatBitsToUint(sums[t * 2 * SHARE + i + e]);
            ws[to / 4] = v;
        }
        barrier();
        put_results(job, team, lane, t * UNIT);
        barrier();
    }
#else
    EACH_TILE(PUT_RESULTS)
#endif
}

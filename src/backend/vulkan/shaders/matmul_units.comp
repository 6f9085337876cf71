#version 460
// SPDX-License-Identifier: MIT
// The products of matvec.comp for many tokens, on matrix units: float16 values, float32 sums.
// A workgroup's y is a job, its x 128 rows of the weight (of pairs 64 and 64), its z N_TILES * 16
// tokens. Weights become float16 on their way to shared memory; x is float16 already, with a scale
// of its own for each row (to_half.comp), rows one after another. The next 64 columns are loaded while these are multiplied.
// A sum goes over the columns by 16, in their order: whatever N_TILES and IS_WIDE are.
//! variant units_any -DANY
//! variant units_any_pair -DANY -DPAIR
//! variant units_affine -DAFFINE
//! variant units_affine_pair -DAFFINE -DPAIR
//! variant units_fp8 -DFP8
//! variant units_fp8_pair -DFP8 -DPAIR
//! variant units_float -DFLOATS
//! variant units_float_pair -DFLOATS -DPAIR
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "common.glsl"
#include "weights.glsl"
#include "jobs.glsl"
#include "chunks.glsl"

layout(constant_id = 6) const uint N_TILES = 1; // of 16 tokens; at most 8

layout(push_constant, scalar) uniform Push {
    Jobs jobs;
    uint n_cols, n_padded; // columns of x as it lies, a multiple of 64
} p;

const uint UNIT = 16, N_THREADS = 128, SUBGROUPS = 4; // of 32
const uint ROWS = 128, COLS = 64, STRIDE = COLS / 8 + 1; // of a row in shared memory, 16 bytes each
const uint TOKENS = N_TILES * UNIT, X_LOADS = TOKENS * (COLS / 8) / N_THREADS;
#ifdef PAIR
const uint RESULT_ROWS = ROWS / 2;
#else
const uint RESULT_ROWS = ROWS;
#endif

shared uvec4 ws[ROWS * STRIDE];
shared uvec4 xs[TOKENS * STRIDE];
shared float results[SUBGROUPS * 2 * UNIT * UNIT];

// Row r of the tile: pairs have 16 of the one and 16 of the other, so that a subgroup has both.
Chunk load_row(Job job, uint r, uint col)
{
#ifdef PAIR
    const uint row = gl_WorkGroupID.x * RESULT_ROWS + r / 32 * UNIT + r % UNIT;
    const uint at = job.first_row + min(row, job.n_rows - 1);
    if (r % 32 >= UNIT)
        return load_chunk(job.up, at, col, PIECE, p.n_cols);
#else
    const uint at = job.first_row + min(gl_WorkGroupID.x * RESULT_ROWS + r, job.n_rows - 1);
#endif
    return load_chunk(job.weight, at, col, PIECE, p.n_cols);
}

void put_row(uint r, uint half_row, Chunk c)
{
    [[unroll]] for (uint i = 0; i < 4; i++) {
        uvec4 v;
        [[unroll]] for (uint e = 0; e < 4; e++) {
            const uint at = i * 8 + e * 2;
            v[e] = packHalf2x16(vec2(weight_of(c, at), weight_of(c, at + 1)));
        }
        ws[r * STRIDE + half_row * 4 + i] = v;
    }
}

// Where the i-th token of the tile begins in x.
uint64_t token_at(Job job, uint i)
{
    const uint t = min(gl_WorkGroupID.z * TOKENS + i, job.n_tokens - 1);
    return job.x + uint64_t(t) * p.n_padded * 2;
}

void put_results(Job job, uint id, uint first_token)
{
    const uint subgroup = id / 32, lane = id % 32;
    const uint64_t y = job.y + uint64_t(gl_WorkGroupID.z) * TOKENS * job.y_stride * 4;
    for (uint i = lane; i < UNIT * UNIT; i += 32) {
        const uint t = first_token + i / UNIT, r = i % UNIT, at = subgroup * 2 * UNIT * UNIT + i;
        const uint token = gl_WorkGroupID.z * TOKENS + t;
        if (token >= job.n_tokens)
            continue;
        Floats to = Floats(y + uint64_t(t) * job.y_stride * 4);
        const float scale = Floats(job.x_scales).v[token];
        const float a = results[at] * scale, b = results[at + UNIT * UNIT] * scale;
#ifdef PAIR
        const uint row = gl_WorkGroupID.x * RESULT_ROWS + subgroup * UNIT + r;
        if (row < job.n_rows)
            to.v[row] = silu(a) * b;
#else
        const uint row = gl_WorkGroupID.x * RESULT_ROWS + subgroup * 2 * UNIT + r;
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
    const uint id = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
    const uint row = id / 2, half_row = id % 2; // two invocations have neighbouring chunks
    uint64_t x_at[X_LOADS];
    [[unroll]] for (uint i = 0; i < X_LOADS; i++)
        x_at[i] = token_at(job, (i * N_THREADS + id) / 8) + (i * N_THREADS + id) % 8 * 16;

    coopmat<float, gl_ScopeSubgroup, UNIT, UNIT, gl_MatrixUseAccumulator> sums[N_TILES][2];
    [[unroll]] for (uint t = 0; t < N_TILES; t++)
        [[unroll]] for (uint j = 0; j < 2; j++)
            sums[t][j] = coopmat<float, gl_ScopeSubgroup, UNIT, UNIT, gl_MatrixUseAccumulator>(0.0);

    Chunk c0 = load_row(job, row, half_row * CHUNK);
    Chunk c1 = load_row(job, row + 64, half_row * CHUNK);
    uvec4 x[X_LOADS];
    [[unroll]] for (uint i = 0; i < X_LOADS; i++)
        x[i] = Words4(x_at[i]).v[0];
    for (uint col = 0; col < p.n_cols; col += COLS) {
        put_row(row, half_row, c0);
        put_row(row + 64, half_row, c1);
        [[unroll]] for (uint i = 0; i < X_LOADS; i++)
            xs[(i * N_THREADS + id) / 8 * STRIDE + (i * N_THREADS + id) % 8] = x[i];
        barrier();
        const uint next = col + COLS;
        if (next < p.n_cols) {
            c0 = load_row(job, row, next + half_row * CHUNK);
            c1 = load_row(job, row + 64, next + half_row * CHUNK);
            [[unroll]] for (uint i = 0; i < X_LOADS; i++)
                x[i] = Words4(x_at[i]).v[next / 8];
        }
        [[unroll]] for (uint k = 0; k < COLS / UNIT; k++) {
            coopmat<float16_t, gl_ScopeSubgroup, UNIT, UNIT, gl_MatrixUseB> w[2];
            [[unroll]] for (uint j = 0; j < 2; j++)
                coopMatLoad(w[j], ws, (gl_SubgroupID * 32 + j * UNIT) * STRIDE + k * 2, STRIDE,
                            gl_CooperativeMatrixLayoutColumnMajor);
            [[unroll]] for (uint t = 0; t < N_TILES; t++) {
                coopmat<float16_t, gl_ScopeSubgroup, UNIT, UNIT, gl_MatrixUseA> a;
                coopMatLoad(a, xs, t * UNIT * STRIDE + k * 2, STRIDE,
                            gl_CooperativeMatrixLayoutRowMajor);
                [[unroll]] for (uint j = 0; j < 2; j++)
                    sums[t][j] = coopMatMulAdd(a, w[j], sums[t][j]);
            }
        }
        barrier();
    }
    [[unroll]] for (uint t = 0; t < N_TILES; t++) {
        [[unroll]] for (uint j = 0; j < 2; j++)
            coopMatStore(sums[t][j], results, (gl_SubgroupID * 2 + j) * UNIT * UNIT, UNIT,
                         gl_CooperativeMatrixLayoutRowMajor);
        barrier();
        put_results(job, id, t * UNIT);
        barrier();
    }
}

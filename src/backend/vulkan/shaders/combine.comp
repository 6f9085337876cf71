#version 460
// SPDX-License-Identifier: MIT
// x[r] += sigmoid(shared_gate[r]) * shared[r] + sum over j of weights[r, j] * experts[place[r, j]], or x[r] = that.
// With NORM a workgroup has a row, and result = rmsnorm(x) * weight. An invocation has four columns.
//! variant combine
//! variant combine_norm -DNORM
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 1) const uint K = 1;
layout(constant_id = 2) const uint IS_ALIGNED = 0; // for loads of 16 bytes

#include "quads.glsl"
#ifdef NORM
shared float norm_parts[gl_WorkGroupSize.x];
#include "norm.glsl"
#include "norm_after.glsl"
#endif

layout(push_constant, scalar) uniform Push {
    uint64_t x, weights, experts;
    uint64_t shared_rows, shared_gate; // Floats; 0: none
    uint64_t place; // Words; 0: they lie in the order of the picks
    uint n_cols;
    float eps;
    uint64_t norm, result;
    uint is_put, unused;
} p;

vec4 combined(uint64_t x, uint row, uint i)
{
    const uint64_t row_bytes = uint64_t(p.n_cols) * 4;
    vec4 old = vec4(0.0);
    if (p.is_put == 0)
        old = load_quad(x, i, p.n_cols);
    vec4 sum = old;
    if (p.shared_rows != 0) {
        sum = load_quad(p.shared_rows + row * row_bytes, i, p.n_cols);
        if (p.shared_gate != 0)
            sum *= sigmoid(Floats(p.shared_gate).v[row]);
    }
    [[unroll]] for (uint j = 0; j < K; j++) {
        const uint pick = row * K + j;
        uint from = pick;
        if (p.place != 0)
            from = Words(p.place).v[pick];
        const vec4 expert = load_quad(p.experts + from * row_bytes, i, p.n_cols);
        sum = fma(vec4(Floats(p.weights).v[pick]), expert, sum);
    }
    sum = p.shared_rows != 0 ? old + sum : sum;
    store_quad(x, i, p.n_cols, sum);
    return sum;
}

void main()
{
    const uint row = gl_WorkGroupID.y;
    const uint64_t at = uint64_t(row) * p.n_cols * 4;
#ifdef NORM
    const uint first = lane_number(), step = gl_WorkGroupSize.x;
    [[unroll]] for (uint i = 0; i < KEPT; i++)
        kept[i] = combined(p.x + at, row, first + i * step);
    for (uint i = first + KEPT * step; i < (p.n_cols + 3) / 4; i += step)
        combined(p.x + at, row, i);
    norm_row(p.x + at, p.norm, p.result + at, p.n_cols, p.eps, first);
#else
    combined(p.x + at, row, gl_GlobalInvocationID.x);
#endif
}

#version 460
// SPDX-License-Identifier: MIT
// x[r] += sigmoid(shared_gate[r]) * shared[r] + sum over j of weights[r, j] * experts[place[r, j]].
// With NORM a workgroup has a row, and result = rmsnorm(x) * weight.
//! variant combine
//! variant combine_norm -DNORM
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#ifdef NORM
#include "reduce.glsl"
#include "norm_after.glsl"
#endif

layout(constant_id = 1) const uint K = 1;

layout(push_constant, scalar) uniform Push {
    Floats x, weights, experts;
    uint64_t shared_rows, shared_gate; // Floats; 0: none
    uint64_t place; // Words; 0: they lie in the order of the picks
    uint n_cols;
    float eps;
    Floats norm, result;
} p;

float combined(Floats x, uint row, uint col)
{
    const uint64_t at = (uint64_t(row) * p.n_cols + col) * 4;
    const float old = x.v[col];
    float sum = old;
    if (p.shared_rows != 0) {
        sum = Floats(p.shared_rows + at).v[0];
        if (p.shared_gate != 0)
            sum *= sigmoid(Floats(p.shared_gate).v[row]);
    }
    [[unroll]] for (uint j = 0; j < K; j++) {
        const uint pick = row * K + j;
        uint from = pick;
        if (p.place != 0)
            from = Words(p.place).v[pick];
        Floats expert = Floats(uint64_t(p.experts) + uint64_t(from) * p.n_cols * 4);
        sum = fma(p.weights.v[pick], expert.v[col], sum);
    }
    sum = p.shared_rows != 0 ? old + sum : sum;
    x.v[col] = sum;
    return sum;
}

void main()
{
    const uint row = gl_WorkGroupID.y, first = gl_GlobalInvocationID.x;
    Floats x = Floats(uint64_t(p.x) + uint64_t(row) * p.n_cols * 4);
#ifdef NORM
    const uint step = gl_WorkGroupSize.x;
    [[unroll]] for (uint i = 0; i < KEPT; i++)
        if (first + i * step < p.n_cols)
            kept[i] = combined(x, row, first + i * step);
    for (uint col = first + KEPT * step; col < p.n_cols; col += step)
        combined(x, row, col);
    norm_row(x, p.norm, Floats(uint64_t(p.result) + uint64_t(row) * p.n_cols * 4), p.n_cols, p.eps);
#else
    if (first < p.n_cols)
        combined(x, row, first);
#endif
}

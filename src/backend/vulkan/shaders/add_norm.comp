#version 460
// SPDX-License-Identifier: MIT
// x += y, result = rmsnorm(x) * weight; a workgroup has one row. y may be one row, for all.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"
#include "norm_after.glsl"

layout(push_constant, scalar) uniform Push {
    Floats x, y, weight, result;
    uint n_cols, y_stride;
    float eps;
    uint unused;
} p;

float added(Floats x, Floats y, uint col)
{
    const float sum = x.v[col] + y.v[col];
    x.v[col] = sum;
    return sum;
}

void main()
{
    const uint row = gl_WorkGroupID.y, first = gl_LocalInvocationID.x, step = gl_WorkGroupSize.x;
    const uint64_t at = uint64_t(row) * p.n_cols * 4;
    Floats x = Floats(uint64_t(p.x) + at);
    Floats y = Floats(uint64_t(p.y) + uint64_t(row) * p.y_stride * 4);
    [[unroll]] for (uint i = 0; i < KEPT; i++)
        if (first + i * step < p.n_cols)
            kept[i] = added(x, y, first + i * step);
    for (uint col = first + KEPT * step; col < p.n_cols; col += step)
        added(x, y, col);
    norm_row(x, p.weight, Floats(uint64_t(p.result) + at), p.n_cols, p.eps);
}

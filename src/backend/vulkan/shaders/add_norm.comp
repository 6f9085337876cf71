#version 460
// SPDX-License-Identifier: MIT
// x += y, result = rmsnorm(x) * weight; a workgroup has one row. y may be one row, for all.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 1) const uint IS_ALIGNED = 0; // for loads of 16 bytes

shared float norm_parts[gl_WorkGroupSize.x];
#include "norm.glsl"
#include "quads.glsl"
#include "norm_after.glsl"

layout(push_constant, scalar) uniform Push {
    uint64_t x, y, weight, result;
    uint n_cols, y_stride;
    float eps;
    uint unused;
} p;

vec4 added(uint64_t x, uint64_t y, uint i)
{
    const vec4 sum = load_quad(x, i, p.n_cols) + load_quad(y, i, p.n_cols);
    store_quad(x, i, p.n_cols, sum);
    return sum;
}

void main()
{
    const uint row = gl_WorkGroupID.y, first = lane_number(), step = gl_WorkGroupSize.x;
    const uint64_t at = uint64_t(row) * p.n_cols * 4, x = p.x + at;
    const uint64_t y = p.y + uint64_t(row) * p.y_stride * 4;
    [[unroll]] for (uint i = 0; i < KEPT; i++)
        kept[i] = added(x, y, first + i * step);
    for (uint i = first + KEPT * step; i < (p.n_cols + 3) / 4; i += step)
        added(x, y, i);
    norm_row(x, p.weight, p.result + at, p.n_cols, p.eps, first);
}

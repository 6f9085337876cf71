#version 460
// SPDX-License-Identifier: MIT
// Row i of the result is row rows[i] of x. A workgroup's y is a row.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant, scalar) uniform Push {
    Words x, result;
    Words rows;
    uint n_cols;
} p;

void main()
{
    const uint row = gl_WorkGroupID.y;
    Words from = Words(uint64_t(p.x) + uint64_t(p.rows.v[row]) * p.n_cols * 4);
    Words to = Words(uint64_t(p.result) + uint64_t(row) * p.n_cols * 4);
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n_cols; i += step)
        to.v[i] = from.v[i];
}

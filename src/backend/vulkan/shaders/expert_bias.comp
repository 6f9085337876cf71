#version 460
// SPDX-License-Identifier: MIT
// What experts add to their results: rows of n_cols, y of the workgroup says which.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant, scalar) uniform Push {
    Floats result, bias;
    Words rows;   // 0: their numbers
    Ints experts; // of each
    uint n_cols, unused;
} p;

void main()
{
    const uint group = gl_WorkGroupID.y;
    const uint row = uint64_t(p.rows) != 0 ? p.rows.v[group] : group;
    const uint expert = uint(p.experts.v[group]);
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    Floats result = Floats(uint64_t(p.result) + uint64_t(row) * p.n_cols * 4);
    Floats bias = Floats(uint64_t(p.bias) + uint64_t(expert) * p.n_cols * 4);
    for (uint i = gl_GlobalInvocationID.x; i < p.n_cols; i += step)
        result.v[i] += bias.v[i];
}

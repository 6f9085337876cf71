#version 460
// SPDX-License-Identifier: MIT
// Row i of the result is row tokens[i] of the weight, as float32. A workgroup's y is a row.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"

layout(push_constant, scalar) uniform Push {
    Weight weight;
    Ints tokens;
    Floats result;
    uint n_cols;
} p;

void main()
{
    const uint row = gl_WorkGroupID.y, i = gl_GlobalInvocationID.x;
    if (i >= p.n_cols)
        return;
    Floats result = Floats(uint64_t(p.result) + uint64_t(row) * p.n_cols * 4);
    result.v[i] = weight_value(p.weight, uint(p.tokens.v[row]), i, p.n_cols);
}

#version 460
// SPDX-License-Identifier: MIT
// Row i of the result is row tokens[i] of the weight, as float32. A workgroup's y is a row.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 1) const uint FLOAT_TYPE = 1; // mf_dtype

layout(push_constant, scalar) uniform Push {
    Bytes weight;
    Ints tokens;
    Floats result;
    uint n_cols;
} p;

void main()
{
    const uint row = gl_WorkGroupID.y, i = gl_GlobalInvocationID.x;
    if (i >= p.n_cols)
        return;
    const uint64_t at = uint64_t(p.tokens.v[row]) * p.n_cols + i;
    Floats result = Floats(uint64_t(p.result) + uint64_t(row) * p.n_cols * 4);
    result.v[i] = load_float(uint64_t(p.weight), FLOAT_TYPE, at);
}

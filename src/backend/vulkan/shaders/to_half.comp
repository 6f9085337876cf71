#version 460
// SPDX-License-Identifier: MIT
// Rows of x as float16 times a power of two of the row's own, such that its largest value is below
// 2^14; and what to multiply by afterwards. Rows are filled up with zeros to n_padded columns. Of
// every 8 columns the order is 0 4 1 5 2 6 3 7: as matmul_units.comp unpacks weights.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"

layout(push_constant, scalar) uniform Push {
    Floats x;
    uint64_t rows; // Words: which rows of x; 0: one after another
    Words result;
    Floats scales;
    uint n_cols, n_padded, x_stride, unused;
} p;

void main()
{
    const uint row = gl_WorkGroupID.x;
    uint from = row;
    if (p.rows != 0)
        from = Words(p.rows).v[row];
    Floats x = Floats(uint64_t(p.x) + uint64_t(from) * p.x_stride * 4);
    Words result = Words(uint64_t(p.result) + uint64_t(row) * p.n_padded * 2);
    float largest = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < p.n_cols; i += gl_WorkGroupSize.x)
        largest = max(largest, abs(x.v[i]));
    const uint exponent = floatBitsToUint(workgroup_max(largest)) >> 23 & 255;
    // 2^(13 - its exponent); what is not a number, or hardly one, stays as it is
    const bool is_number = exponent > 20 && exponent < 255;
    const float factor = is_number ? uintBitsToFloat((127 + 13 + 127 - exponent) << 23) : 1.0;
    for (uint i = gl_LocalInvocationID.x; i < p.n_padded / 2; i += gl_WorkGroupSize.x) {
        const uint col = i / 4 * 8 + i % 4;
        const float a = col < p.n_cols ? x.v[col] * factor : 0.0;
        const float b = col + 4 < p.n_cols ? x.v[col + 4] * factor : 0.0;
        result.v[i] = packHalf2x16(vec2(a, b));
    }
    if (gl_LocalInvocationID.x == 0)
        p.scales.v[row] = is_number ? uintBitsToFloat((exponent - 13) << 23) : 1.0;
}

#version 460
// SPDX-License-Identifier: MIT
// The highest number of a block (x) of a row (y), a workgroup each, and whether all of them are finite; on the way the
// row is copied. By their bits: what is no number compares as a device likes, and what is hardly one may count as 0.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant, scalar) uniform Push {
    uint64_t x, copy; // copy: 0: nowhere
    Words result;
    uint n_cols, is_wide; // wide: both may be reached by four
} p;

const uint BLOCK = 1024; // MF_FINITE_BLOCK

shared uint highest, any_other;

// Numbers that are in the order of the floats.
uint order_of(uint bits)
{
    return bits ^ (0x80000000u | uint(int(bits) >> 31));
}

uint bits_of(uint order)
{
    return order ^ (0x80000000u | ((order >> 31) - 1));
}

void look(uint bits, inout uint most, inout bool is_other)
{
    const uint exponent = 0x7f800000u;
    most = max(most, order_of(bits));
    is_other = (bits & exponent) == exponent ? true : is_other;
}

void look_at_fours(uint64_t x, uint64_t copy, uint first, uint end, inout uint most, inout bool is_other)
{
    for (uint i = first + gl_LocalInvocationID.x * 4; i < end; i += gl_WorkGroupSize.x * 4) {
        const uvec4 bits = Words4(x).v[i / 4];
        [[unroll]] for (uint e = 0; e < 4; e++)
            look(bits[e], most, is_other);
        if (p.copy != 0)
            Words4(copy).v[i / 4] = bits;
    }
}

void main()
{
    const uint first = gl_WorkGroupID.x * BLOCK, end = min(first + BLOCK, p.n_cols);
    const uint64_t before = uint64_t(gl_WorkGroupID.y) * p.n_cols * 4, x = p.x + before, copy = p.copy + before;
    uint most = 0;
    bool is_other = false;
    if (gl_LocalInvocationID.x == 0)
        highest = any_other = 0;
    barrier();
    if (p.is_wide != 0)
        look_at_fours(x, copy, first, end, most, is_other);
    else
        for (uint i = first + gl_LocalInvocationID.x; i < end; i += gl_WorkGroupSize.x) {
            const uint bits = Words(x).v[i];
            look(bits, most, is_other);
            if (p.copy != 0)
                Words(copy).v[i] = bits;
        }
    most = subgroupMax(most);
    if (subgroupElect())
        atomicMax(highest, most);
    if (is_other)
        atomicOr(any_other, 1);
    barrier();
    if (gl_LocalInvocationID.x == 0)
        p.result.v[gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x] =
            any_other != 0 ? 0x7fc00000u : bits_of(highest);
}

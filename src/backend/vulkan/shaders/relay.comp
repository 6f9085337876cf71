#version 460
// SPDX-License-Identifier: MIT
// What passes between the stream and the host while the stream goes on. A value lies beside a number in one
// word of 64 bits, which is written and read at once: whoever needs it asks for it until it has that number.
//! variant relay_to_host -DTO_HOST
//! variant relay_from_host
//! variant relay_from_host_software -DSOFTWARE
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "grid_pairs.glsl"

#ifdef TO_HOST
// Three arrays, one after the other.
layout(push_constant, scalar) uniform Push {
    Pairs pairs;
    Words a, b, c;
    uint n_a, n_b, n_c, number;
} p;

uint value_at(uint i)
{
    if (i < p.n_a)
        return p.a.v[i];
    i -= p.n_a;
    if (i < p.n_b)
        return p.b.v[i];
    return p.c.v[i - p.n_b];
}

void main()
{
    const uint i = gl_GlobalInvocationID.x;
    if (i < p.n_a + p.n_b + p.n_c)
        atomicStore(p.pairs.v[i], uint64_t(value_at(i)) | uint64_t(p.number) << 32, gl_ScopeDevice,
                    gl_StorageSemanticsNone, gl_SemanticsRelaxed);
}
#else
layout(constant_id = 1) const uint MOST_SPINS = 1;

layout(push_constant, scalar) uniform Push {
    Pairs pairs;
    Words result, late;
    uint n, number;
} p;

uint64_t look(uint i)
{
    return atomicLoad(p.pairs.v[i], gl_ScopeDevice, gl_StorageSemanticsNone, gl_SemanticsRelaxed);
}

#ifdef SOFTWARE
// A round is as long as it may be: rounds are counted.
#define LOOK if (uint(v >> 32) != p.number) v = look(i);
#define LOOKS_8 LOOK LOOK LOOK LOOK LOOK LOOK LOOK LOOK
#define LOOKS LOOKS_8 LOOKS_8 LOOKS_8 LOOKS_8 LOOKS_8 LOOKS_8 LOOKS_8 LOOKS_8
#else
#define LOOKS v = look(i);
#endif

// Whether result[i] is put in time; workgroups of another y may have it before or after.
bool take(uint i)
{
    uint64_t v = look(i);
    [[dont_unroll]] for (uint n = 0; n < MOST_SPINS && uint(v >> 32) != p.number; n++) {
        LOOKS
    }
    if (uint(v >> 32) == p.number)
        p.result.v[i] = uint(v);
    else if (gl_WorkGroupID.y + 1 == gl_NumWorkGroups.y)
        p.late.v[0] = 1;
    return uint(v >> 32) == p.number;
}

shared bool has_first;

// One invocation of each workgroup asks for its own value; once that is there, the others are, or nearly.
void main()
{
    const uint i = gl_GlobalInvocationID.x;
    if (gl_LocalInvocationID.x == 0)
        has_first = i < p.n && take(i);
    barrier();
    if (has_first && gl_LocalInvocationID.x != 0 && i < p.n)
        take(i);
}
#endif

// SPDX-License-Identifier: MIT
// Norms of rows, with the same bits wherever they are taken: the squares of columns 4q .. 4q + 3 are
// added up, then of every 256th q, then those 256 sums with the one 128 further on, 64, 32, and what is
// left in pairs, fours, eights. Whoever includes this has `shared float norm_parts[...]`, a float for
// each invocation.
#extension GL_KHR_shader_subgroup_shuffle : require

// 1 / the root of the mean square.
float norm_scale(float sum, uint n_cols, float eps)
{
    precise float mean = sum / float(n_cols) + eps;
    return inversesqrt(mean);
}

vec4 normed(vec4 x, float scale, vec4 weight)
{
    precise vec4 y = x * scale * weight;
    return y;
}

vec4 gated(vec4 x, vec4 gate)
{
    precise vec4 y = x;
    [[unroll]] for (uint e = 0; e < 4; e++)
        y[e] *= silu(gate[e]);
    return y;
}

// An invocation's number such that subgroups are runs of numbers.
uint lane_number()
{
    return gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
}

#ifndef TEAM_SHUFFLES // whether lanes that are d apart are of one subgroup
#define TEAM_SHUFFLES(d) ((d) < gl_SubgroupSize)
#endif

// The sum over runs of n lanes, n <= 32, for each of them; every invocation comes here.
float sum_of_run(float v, uint n, uint id)
{
    [[unroll]] for (uint d = 1; d < 32; d *= 2) {
        if (d >= n)
            break;
        if (TEAM_SHUFFLES(d)) {
            v += subgroupShuffleXor(v, d);
        } else {
            barrier();
            norm_parts[id] = v;
            barrier();
            v += norm_parts[id ^ d];
        }
    }
    return v;
}

// The sum over a workgroup of 32, 64, 128 or 256 lanes; of 128 and fewer, each has what is 128 further
// on in it.
float sum_of_lanes(float v, uint id)
{
    const uint n = gl_WorkGroupSize.x, l = id % 32;
    if (n > 32) {
        barrier();
        norm_parts[id] = v;
        barrier();
        v = norm_parts[l];
        if (n == 256)
            v += norm_parts[l + 128];
        if (n >= 128)
            v += n == 256 ? norm_parts[l + 64] + norm_parts[l + 192] : norm_parts[l + 64];
        float w = norm_parts[l + 32];
        if (n == 256)
            w += norm_parts[l + 160];
        if (n >= 128)
            w += n == 256 ? norm_parts[l + 96] + norm_parts[l + 224] : norm_parts[l + 96];
        v += w;
    }
    return sum_of_run(v, 32, id);
}

// SPDX-License-Identifier: MIT
// A head's norm and rotation, with the same bits wherever they are taken: HEAD_LANES lanes have columns HEAD_LANES
// apart, of which each adds up the squares; then these sums with the one 32 further on, and what is left in pairs,
// fours, eights. Whoever includes this has norm.glsl.
const uint HEAD_LANES = 64;

float add_square(float sum, float x)
{
    precise float y = x * x;
    precise float result = sum + y;
    return result;
}

// The sum over each run of HEAD_LANES lanes; every invocation comes here.
float sum_of_head(float v, uint id)
{
    const uint l = id / HEAD_LANES * HEAD_LANES + id % 32;
    barrier();
    norm_parts[id] = v;
    barrier();
    return sum_of_run(norm_parts[l] + norm_parts[l + 32], 32, id);
}

float normed_column(float x, float scale, float weight)
{
    precise float y = x * scale * weight;
    return y;
}

#include "rotate.glsl"

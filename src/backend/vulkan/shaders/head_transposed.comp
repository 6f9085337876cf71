#version 460
// SPDX-License-Identifier: MIT
// y[t, c] = sum over r of weight[first_row + r, c] * x[t, r], in the order of r, for jobs that are
// heads. A workgroup's y is a job, its x some columns, its z tokens.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "jobs.glsl"

layout(push_constant, scalar) uniform Push {
    Jobs jobs;
    uint n_cols, unused;
} p;

const uint N_TOKENS = 4;

void product(Job job, uint col, uint first)
{
    float sums[N_TOKENS];
    [[unroll]] for (uint t = 0; t < N_TOKENS; t++)
        sums[t] = 0.0;
    for (uint r = 0; r < job.n_rows; r++) {
        const float w = weight_value(job.weight, job.first_row + r, col, p.n_cols);
        [[unroll]] for (uint t = 0; t < N_TOKENS; t++) {
            const uint token = min(first + t, job.n_tokens - 1);
            const float x = Floats(job.x + uint64_t(token) * job.x_stride * 4).v[r];
            sums[t] = fma(w, x, sums[t]);
        }
    }
    [[unroll]] for (uint t = 0; t < N_TOKENS; t++)
        if (first + t < job.n_tokens)
            Floats(job.y + uint64_t(first + t) * job.y_stride * 4).v[col] = sums[t];
}

void main()
{
    const Job job = p.jobs.v[gl_WorkGroupID.y];
    const uint col = gl_GlobalInvocationID.x;
    if (col >= p.n_cols)
        return;
    for (uint t = gl_WorkGroupID.z * N_TOKENS; t < job.n_tokens; t += gl_NumWorkGroups.z * N_TOKENS)
        product(job, col, t);
}

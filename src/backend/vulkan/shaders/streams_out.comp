#version 460
// SPDX-License-Identifier: MIT
// A block's result goes into all streams of the residual, and these into one another: stream[j] =
// gates[j] * y + the sum of gates[n + i n + j] * stream[i]; the mean of them, which may take y's
// place. A workgroup's y is a row, its x cuts the columns.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant, scalar) uniform Push {
    Floats streams, y, gates, mean;
    uint n_streams, n_cols;
} p;

const uint MOST = 8; // MF_MAX_STREAMS

void main()
{
    const uint row = gl_WorkGroupID.y, c = gl_GlobalInvocationID.x, n = p.n_streams;
    if (c >= p.n_cols)
        return;
    Floats streams = Floats(uint64_t(p.streams) + uint64_t(row) * n * p.n_cols * 4);
    Floats gates = Floats(uint64_t(p.gates) + uint64_t(row) * (n + n * n) * 4);
    const uint64_t at = uint64_t(row) * p.n_cols * 4;
    const float y = Floats(uint64_t(p.y) + at).v[c];
    float before[MOST];
    precise float sum = 0.0;
    for (uint i = 0; i < n; i++)
        before[i] = streams.v[i * p.n_cols + c];
    for (uint j = 0; j < n; j++) {
        precise float mixed = gates.v[j] * y;
        for (uint i = 0; i < n; i++)
            mixed += gates.v[n + i * n + j] * before[i];
        streams.v[j * p.n_cols + c] = mixed;
        sum += mixed;
    }
    Floats(uint64_t(p.mean) + at).v[c] = sum / float(n);
}

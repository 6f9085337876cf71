#version 460
// SPDX-License-Identifier: MIT
// x[r] += sigmoid(shared_gate[r]) * shared[r] + sum over j of weights[r, j] * experts[place[r, j]].
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant, scalar) uniform Push {
    Floats x, weights, experts;
    uint64_t shared_rows, shared_gate; // Floats; 0: none
    uint64_t place; // Words; 0: they lie in the order of the picks
    uint n_cols, k;
} p;

void main()
{
    const uint row = gl_WorkGroupID.y, col = gl_GlobalInvocationID.x;
    if (col >= p.n_cols)
        return;
    const uint64_t at = (uint64_t(row) * p.n_cols + col) * 4;
    Floats x = Floats(uint64_t(p.x) + at);
    float sum = x.v[0];
    if (p.shared_rows != 0) {
        sum = Floats(p.shared_rows + at).v[0];
        if (p.shared_gate != 0)
            sum *= sigmoid(Floats(p.shared_gate).v[row]);
    }
    for (uint j = 0; j < p.k; j++) {
        const uint pick = row * p.k + j;
        uint at = pick;
        if (p.place != 0)
            at = Words(p.place).v[pick];
        const uint64_t from = uint64_t(p.experts) + uint64_t(at) * p.n_cols * 4;
        sum = fma(p.weights.v[pick], Floats(from).v[col], sum);
    }
    x.v[0] = p.shared_rows != 0 ? x.v[0] + sum : sum;
}

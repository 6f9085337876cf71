#version 460
// SPDX-License-Identifier: MIT
// Between the products of experts, where these have biases, pairs or another activation: the first
// half of a row of act = f(gate + bias, up + bias). A workgroup is a row; in place, by blocks, of
// which the next are read from beyond what one writes.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "limited.glsl"

layout(push_constant, scalar) uniform Push {
    Floats act, gate_bias, up_bias;
    Words rows;   // of act, of each workgroup; 0: its number
    Ints experts; // whose biases, of each workgroup
    uint hidden, is_paired, is_clamped;
    float limit, alpha, silu_limit;
} p;

float activated(float gate, float up)
{
    if (p.is_clamped == 0 && p.silu_limit == 0.0)
        return silu(gate) * up;
    if (p.is_clamped == 0)
        return silu(at_most(gate, p.silu_limit)) * within(up, p.silu_limit);
    const float g = at_most(gate, p.limit), u = within(up, p.limit);
    return g * sigmoid(p.alpha * g) * (u + 1.0);
}

void main()
{
    const uint group = gl_WorkGroupID.x, hidden = p.hidden;
    const uint row = uint64_t(p.rows) != 0 ? p.rows.v[group] : group;
    const uint expert = uint(p.experts.v[group]);
    const uint step = p.is_paired != 0 ? 2 : 1, gate_width = step * hidden;
    Floats act = Floats(uint64_t(p.act) + uint64_t(row) * hidden * 8);
    for (uint first = 0; first < hidden; first += gl_WorkGroupSize.x) {
        const uint i = first + gl_LocalInvocationID.x;
        float gate = 0.0, up = 0.0;
        if (i < hidden) {
            const uint at_up = p.is_paired != 0 ? 2 * i + 1 : hidden + i;
            gate = act.v[step * i];
            up = act.v[at_up];
            if (uint64_t(p.gate_bias) != 0) {
                Floats bias = Floats(uint64_t(p.gate_bias) + uint64_t(expert) * gate_width * 4);
                gate += bias.v[step * i];
                up += p.is_paired != 0 ? bias.v[2 * i + 1] : 0.0;
            }
            if (uint64_t(p.up_bias) != 0)
                up += Floats(uint64_t(p.up_bias) + uint64_t(expert) * hidden * 4).v[i];
        }
        memoryBarrierBuffer();
        barrier();
        if (i < hidden)
            act.v[i] = activated(gate, up);
    }
}

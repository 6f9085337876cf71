#version 460
// SPDX-License-Identifier: MIT
// The router's choice; a workgroup has one row. An expert's place among the chosen is the number of
// experts before it, so that nothing is sorted; logits become scores.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"

layout(push_constant, scalar) uniform Push {
    Floats logits;
    uint64_t bias; // Floats; 0: none
    Ints ids;
    Floats weights;
    uint n_experts, k, n_groups, k_groups;
    uint score, group_rule, normalise;
    float eps, scale;
    uint unused;
} p;

const uint SOFTMAX = 0;   // mf_score
const uint GROUP_MAX = 0; // mf_group_rule
#define INFINITE uintBitsToFloat(0x7f800000u)
const uint MOST_EXPERTS = 2048, MOST_PICKS = 64, MOST_GROUPS = 256;

shared float choice[MOST_EXPERTS];
shared float ranks[MOST_GROUPS];
shared uint is_kept[MOST_GROUPS];
shared float picks[MOST_PICKS];

// NaN comes after every number.
float number(float x)
{
    return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u ? -INFINITE : x;
}

bool is_before(float a, uint a_index, float b, uint b_index)
{
    return a > b || (a == b && a_index < b_index);
}

void score_row(Floats logits)
{
    const uint first = gl_LocalInvocationID.x, step = gl_WorkGroupSize.x;
    float largest = -INFINITE, sum = 0.0, factor = 1.0;
    if (p.score == SOFTMAX) {
        for (uint i = first; i < p.n_experts; i += step)
            largest = max(largest, logits.v[i]);
        largest = workgroup_max(largest);
        for (uint i = first; i < p.n_experts; i += step) {
            const float e = exp(logits.v[i] - largest);
            logits.v[i] = e;
            sum += e;
        }
        sum = workgroup_sum(sum);
    }
    for (uint i = first; i < p.n_experts; i += step) {
        const float s = p.score == SOFTMAX ? logits.v[i] / sum : sigmoid(logits.v[i]);
        logits.v[i] = s;
        choice[i] = number(p.bias != 0 ? s + Floats(p.bias).v[i] : s);
    }
    barrier();
}

float group_rank(uint first, uint n)
{
    float best = -INFINITE, second = -INFINITE;
    for (uint i = first; i < first + n; i++) {
        const float c = choice[i];
        second = c > best ? best : max(second, c);
        best = max(best, c);
    }
    return number(p.group_rule == GROUP_MAX || n == 1 ? best : best + second);
}

// Takes the experts outside of the best groups out of the choice.
void limit_groups(Floats logits)
{
    const uint first = gl_LocalInvocationID.x, step = gl_WorkGroupSize.x;
    const uint n = p.n_experts / p.n_groups;
    for (uint g = first; g < p.n_groups; g += step)
        ranks[g] = group_rank(g * n, n);
    barrier();
    for (uint g = first; g < p.n_groups; g += step) {
        uint place = 0;
        for (uint i = 0; i < p.n_groups; i++)
            place += uint(is_before(ranks[i], i, ranks[g], g));
        is_kept[g] = uint(place < p.k_groups);
    }
    barrier();
    for (uint i = first; i < p.n_experts; i += step) {
        if (is_kept[i / n] == 0) {
            choice[i] = p.group_rule == GROUP_MAX ? 0.0 : -INFINITE;
            if (p.group_rule == GROUP_MAX)
                logits.v[i] = 0.0;
        }
    }
    barrier();
}

void main()
{
    const uint row = gl_WorkGroupID.y, first = gl_LocalInvocationID.x, step = gl_WorkGroupSize.x;
    Floats logits = Floats(uint64_t(p.logits) + uint64_t(row) * p.n_experts * 4);
    score_row(logits);
    if (p.n_groups > 1)
        limit_groups(logits);
    for (uint i = first; i < p.n_experts; i += step) {
        const float mine = choice[i];
        uint place = 0;
        for (uint j = 0; j < p.n_experts; j++)
            place += uint(is_before(choice[j], j, mine, i));
        if (place < p.k) {
            p.ids.v[row * p.k + place] = int(i);
            picks[place] = logits.v[i];
        }
    }
    barrier();
    float divisor = 1.0;
    if (p.normalise != 0) {
        float sum = 0.0;
        for (uint j = 0; j < p.k; j++)
            sum += picks[j];
        divisor = sum + p.eps;
    }
    for (uint j = first; j < p.k; j += step)
        p.weights.v[row * p.k + j] = picks[j] / divisor * p.scale;
}

#version 460
// SPDX-License-Identifier: MIT
// The router's choice; a workgroup has one row, an invocation EACH experts of it. An expert's place
// is the number of experts before it, so that nothing is sorted: first its place in a segment, then,
// of those that may be chosen, the one among all of them. With `found` rows are counted whose experts
// all have a slot: whoever counts the last of them says so. With a table the row's token names its
// experts, and nothing is chosen.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"

layout(constant_id = 1) const uint EACH = 1;

layout(push_constant, scalar) uniform Push {
    Floats logits;
    uint64_t bias; // Floats; 0: none
    Ints ids;
    Floats weights;
    Words slot;
    uint64_t found; // Words; 0: nobody asks
    uint n_experts, k, n_groups, k_groups;
    uint score, group_rule, normalise;
    float eps, scale;
    uint n_to_find, n_table;
    uint64_t table, tokens; // Ints; 0: none
} p;

const uint SOFTMAX = 0, SIGMOID = 1; // mf_score; else the root of the softplus
const uint GROUP_MAX = 0; // mf_group_rule
#define INFINITE uintBitsToFloat(0x7f800000u)
const uint NO_SLOT = 0xffffffffu;
const uint MOST_EXPERTS = 2048, MOST_PICKS = 64, MOST_GROUPS = 256, SEGMENT = 32;

shared float choice[MOST_EXPERTS];
shared float ranks[MOST_GROUPS];
shared uint is_kept[MOST_GROUPS];
shared float picks[MOST_PICKS];
shared uint n_missing;

float scores[EACH];

// NaN comes after every number.
float number(float x)
{
    return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u ? -INFINITE : x;
}

bool is_before(float a, uint a_index, float b, uint b_index)
{
    return a > b || (a == b && a_index < b_index);
}

// log(1 + y), y > 0. Near 1 a device's log need not have more than 21 bits behind the point.
float log_of_more(float y)
{
    if (y > 1.0)
        return log(1.0 + y);
    const float s = y / (2.0 + y), t = s * s; // the series of its hyperbolic arctangent
    float sum = 1.0 / 13.0;
    for (int i = 11; i > 0; i -= 2)
        sum = sum * t + 1.0 / float(i);
    return 2.0 * s * sum;
}

// Beyond 20 the softplus is its argument.
float root_of_softplus(float x)
{
    return sqrt(x > 20.0 ? x : log_of_more(exp(x)));
}

float score_of(float x)
{
    return p.score == SIGMOID ? sigmoid(x) : root_of_softplus(x);
}

void score_row(Floats logits)
{
    const uint first = gl_LocalInvocationID.x, step = gl_WorkGroupSize.x;
    float largest = -INFINITE, sum = 0.0, bias[EACH];
    [[unroll]] for (uint k = 0; k < EACH; k++) {
        const uint i = first + k * step;
        scores[k] = i < p.n_experts ? logits.v[i] : -INFINITE;
        bias[k] = p.bias != 0 && i < p.n_experts ? Floats(p.bias).v[i] : 0.0;
        largest = max(largest, scores[k]);
    }
    if (p.score == SOFTMAX) {
        largest = workgroup_max(largest);
        [[unroll]] for (uint k = 0; k < EACH; k++) {
            scores[k] = first + k * step < p.n_experts ? exp(scores[k] - largest) : 0.0;
            sum += scores[k];
        }
        sum = workgroup_sum(sum);
    }
    [[unroll]] for (uint k = 0; k < EACH; k++) {
        const uint i = first + k * step;
        scores[k] = p.score == SOFTMAX ? scores[k] / sum : score_of(scores[k]);
        if (i < p.n_experts)
            choice[i] = number(p.bias != 0 ? scores[k] + bias[k] : scores[k]);
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
void limit_groups()
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
    [[unroll]] for (uint k = 0; k < EACH; k++) {
        const uint i = first + k * step;
        if (i < p.n_experts && is_kept[i / n] == 0) {
            choice[i] = p.group_rule == GROUP_MAX ? 0.0 : -INFINITE;
            if (p.group_rule == GROUP_MAX)
                scores[k] = 0.0;
        }
    }
    barrier();
}

// How many of choice[first .. first + n - 1] come before the `at`-th of all, which is `mine`.
uint count_before(uint first, uint n, float mine, uint at)
{
    uint count = 0;
    for (uint j = first; j < first + n; j++)
        count += uint(is_before(choice[j], j, mine, at));
    return count;
}

// Those who may be chosen, per of each segment, come to the front of choice, in the order of segments
// and of their places there: equals are still in the order of their numbers. places: where; of others
// beyond any.
void list_best(uint per, out float mine[EACH], out uint places[EACH])
{
    const uint first = gl_LocalInvocationID.x, step = gl_WorkGroupSize.x;
    [[unroll]] for (uint k = 0; k < EACH; k++) {
        const uint i = first + k * step, segment = i / SEGMENT * SEGMENT;
        places[k] = ~0u;
        if (i >= p.n_experts)
            continue;
        mine[k] = choice[i];
        const uint place = count_before(segment, min(SEGMENT, p.n_experts - segment), mine[k], i);
        if (place < per)
            places[k] = i / SEGMENT * per + place;
    }
    barrier();
    [[unroll]] for (uint k = 0; k < EACH; k++)
        if (places[k] != ~0u)
            choice[places[k]] = mine[k];
    const uint in_last = (p.n_experts - 1) % SEGMENT + 1;
    if (in_last + first < per)
        choice[(p.n_experts - 1) / SEGMENT * per + in_last + first] = -INFINITE;
    barrier();
}

void count_row()
{
    Words found = Words(p.found);
    if (gl_LocalInvocationID.x == 0 && n_missing == 0 &&
        atomicAdd(found.v[1], 1u) + 1 == p.n_to_find)
        found.v[0] = 1;
}

// The experts that the row's token names; all scores are in `choice`.
void look_up(uint row)
{
    const uint first = gl_LocalInvocationID.x, token = uint(Ints(p.tokens).v[row]);
    for (uint j = first; j < p.k; j += gl_WorkGroupSize.x) {
        const uint expert = uint(Ints(p.table).v[token * p.n_table + j]);
        p.ids.v[row * p.k + j] = int(expert);
        picks[j] = choice[expert];
        if (p.found != 0 && p.slot.v[expert] == NO_SLOT)
            atomicAdd(n_missing, 1u);
    }
}

void choose(uint row)
{
    const uint first = gl_LocalInvocationID.x, step = gl_WorkGroupSize.x;
    const uint per = min(p.k, SEGMENT), n_listed = (p.n_experts + SEGMENT - 1) / SEGMENT * per;
    float mine[EACH];
    uint places[EACH];
    list_best(per, mine, places);
    [[unroll]] for (uint k = 0; k < EACH; k++) {
        if (places[k] == ~0u)
            continue;
        const uint place = count_before(0, n_listed, mine[k], places[k]);
        if (place < p.k) {
            p.ids.v[row * p.k + place] = int(first + k * step);
            picks[place] = scores[k];
            if (p.found != 0 && p.slot.v[first + k * step] == NO_SLOT)
                atomicAdd(n_missing, 1u);
        }
    }
}

void main()
{
    const uint row = gl_WorkGroupID.y, first = gl_LocalInvocationID.x, step = gl_WorkGroupSize.x;
    Floats logits = Floats(uint64_t(p.logits) + uint64_t(row) * p.n_experts * 4);
    if (first == 0)
        n_missing = 0;
    score_row(logits);
    if (p.n_groups > 1)
        limit_groups();
    if (p.table != 0)
        look_up(row);
    else
        choose(row);
    barrier();
    if (p.found != 0)
        count_row();
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

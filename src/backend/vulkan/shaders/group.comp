#version 460
// SPDX-License-Identifier: MIT
// Picks of routed experts by their experts, so that an expert's weights are read once for all rows
// that chose it. One workgroup; an invocation is a pick, and the first of an expert's makes its job of
// each product: of the class that its number of rows has, in the order of picks. Nothing depends on
// who comes first.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "jobs.glsl"

layout(buffer_reference, scalar, buffer_reference_align = 8) writeonly buffer Made { Job v[]; };

layout(push_constant, scalar) uniform Push {
    Ints ids;
    Words slot;
    Jobs of_slot_0; // of either product
    Made made;      // of either product CLASSES times n_picks
    Words lists;    // of picks by expert: their rows of x, themselves, themselves
    uint64_t slot_bytes;
    uint n_picks, k;
    uint scales_stride[2], biases_stride[2]; // of arrays that are not in slots; 0: are
} p;

const uint MOST = 256, CLASSES = 4;
const uint AT_ONCE = 8; // fours of picks; behind the last one is no expert
const int NO_EXPERT = 0x7fffffff;

shared ivec4 experts[MOST / 4];
shared uint firsts[CLASSES][MOST / 32]; // a bit of each expert's first pick, by class

uint class_of(uint n)
{
    return n <= 1 ? 0 : n == 2 ? 1 : n <= 4 ? 2 : 3;
}

void move(inout Weight w, uint64_t to, uint expert, uint product)
{
    const uint scales = p.scales_stride[product], biases = p.biases_stride[product];
    w.values += to;
    w.scales += scales == 0 ? to : uint64_t(expert) * scales;
    w.biases += biases == 0 ? to : uint64_t(expert) * biases;
}

void make_jobs(uint pick, uint expert, uint slot, uint at, uint n_rows, uint place)
{
    const uint64_t to = uint64_t(slot) * p.slot_bytes;
    [[unroll]] for (uint product = 0; product < 2; product++) {
        Job job = p.of_slot_0.v[product];
        move(job.weight, to, expert, product);
        move(job.up, to, expert, product);
        if (n_rows == 1) { // nothing has to be looked up
            job.x += uint64_t(product == 0 ? pick / p.k : pick) * job.x_stride * 4;
            job.y += uint64_t(pick) * job.y_stride * 4;
        } else {
            job.rows = uint64_t(p.lists) + (product * p.n_picks + at) * 4;
            job.y_rows = p.n_picks;
        }
        job.n_tokens = n_rows;
        p.made.v[product * CLASSES * p.n_picks + place] = job;
    }
}

// Places that no job has.
void make_none(uint place)
{
    [[unroll]] for (uint product = 0; product < 2; product++) {
        const uint at = product * CLASSES * p.n_picks + place;
        p.made.v[at].n_rows = 0;
        p.made.v[at].n_tokens = 0;
    }
}

void main()
{
    const uint i = gl_LocalInvocationID.x;
    const bool is_pick = i < p.n_picks;
    const int mine = is_pick ? p.ids.v[i] : NO_EXPERT;
    experts[i / 4][i % 4] = mine;
    if (i < CLASSES * (MOST / 32))
        firsts[i / (MOST / 32)][i % (MOST / 32)] = 0;
    barrier();
    uint slot = 0; // on its way meanwhile
    if (is_pick)
        slot = p.slot.v[mine];
    uint at = 0, n_rows = 0, n_before = 0;
    for (uint first = 0; first < (p.n_picks + 3) / 4; first += AT_ONCE) {
        [[unroll]] for (uint four = first; four < first + AT_ONCE; four++) {
            const ivec4 others = experts[four];
            [[unroll]] for (uint e = 0; e < 4; e++) {
                const uint is_same = uint(others[e] == mine);
                const uint is_before = 4 * four + e < i ? is_same : 0;
                at += uint(others[e] < mine) + is_before;
                n_rows += is_same;
                n_before += is_before;
            }
        }
    }
    const bool is_first = is_pick && n_before == 0;
    const uint own = class_of(n_rows);
    if (is_first)
        atomicOr(firsts[own][i / 32], 1u << (i % 32));
    barrier();
    if (!is_pick)
        return;
    uint place = 0;
    [[unroll]] for (uint c = 0; c < CLASSES; c++) {
        uint n_jobs = 0;
        [[unroll]] for (uint w = 0; w < MOST / 32; w++) {
            const uint bits = firsts[c][w];
            const uint before = w < i / 32 ? bits : w == i / 32 ? bits & ((1u << (i % 32)) - 1) : 0;
            n_jobs += bitCount(bits);
            place += c == own ? bitCount(before) : 0;
        }
        if (i >= n_jobs)
            make_none(c * p.n_picks + i);
    }
    p.lists.v[at] = i / p.k;
    p.lists.v[p.n_picks + at] = i;
    p.lists.v[2 * p.n_picks + at] = i;
    if (is_first)
        make_jobs(i, uint(mine), slot, at, n_rows, own * p.n_picks + place);
}

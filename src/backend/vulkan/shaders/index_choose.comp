#version 460
// SPDX-License-Identifier: MIT
// Of the keys that a row (y) has scores of, the n_most of the largest, the first among equals, in
// rising order: their numbers. Digit by digit the least number that is chosen is found, from how
// many there are of each digit; so what is chosen depends on nobody's order. Nothing where a row
// sees no more keys.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "index.glsl"

layout(push_constant, scalar) uniform Push {
    uint64_t scores; // [rows, 2, n_room]; the second of a row is what is chosen
    Sequences sequences;
    uint n_sequences, first_row, rate, n_most, n_room;
} p;

const uint THREADS = 256, DIGITS = 2048, EACH = DIGITS / THREADS;

shared uint counts[DIGITS];
shared uint parts[THREADS]; // of subgroups
shared uint found_digit, found_left;

// A number of the invocation such that subgroups are runs of numbers.
uint lane_number()
{
    return gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
}

// What all lanes before this one have, and all together; every invocation comes here.
uint sum_before(uint x, out uint all)
{
    const uint before = subgroupExclusiveAdd(x), own = subgroupAdd(x);
    barrier(); // earlier parts have been read
    if (subgroupElect())
        parts[gl_SubgroupID] = own;
    barrier();
    uint sum = 0;
    all = 0;
    for (uint i = 0; i < gl_NumSubgroups; i++) {
        sum += i < gl_SubgroupID ? parts[i] : 0;
        all += parts[i];
    }
    return sum + before;
}

// Of the scores whose bits of `known` are those of `prefix`: how many there are of each digit.
void count_digits(Words scores, uint n, uint known, uint prefix, uint shift)
{
    const uint t = lane_number();
    [[unroll]] for (uint i = 0; i < EACH; i++)
        counts[t + i * THREADS] = 0;
    barrier();
    for (uint base = t; base < n; base += THREADS * EACH) {
        uint x[EACH]; // all on their way at once
        [[unroll]] for (uint i = 0; i < EACH; i++)
            x[i] = base + i * THREADS < n ? scores.v[base + i * THREADS] : 0;
        [[unroll]] for (uint i = 0; i < EACH; i++)
            if (base + i * THREADS < n && (x[i] & known) == prefix)
                atomicAdd(counts[x[i] >> shift & (DIGITS - 1)], 1);
    }
    barrier();
}

// The digit, from the largest down, with which the count reaches `left`; what is left of it then.
void find_digit(uint left)
{
    const uint t = lane_number(), first = DIGITS - 1 - t * EACH;
    uint own = 0, all;
    [[unroll]] for (uint i = 0; i < EACH; i++)
        own += counts[first - i];
    uint before = sum_before(own, all);
    if (before < left && left <= before + own)
        for (uint i = 0; i < EACH; i++) {
            const uint n = counts[first - i];
            if (left <= before + n) {
                found_digit = first - i;
                found_left = left - before;
                break;
            }
            before += n;
        }
    barrier();
}

// All numbers above the least, and the first n_equal of those equal to it.
void list_chosen(Words scores, Words chosen, uint n, uint least, uint n_equal)
{
    const uint t = lane_number();
    uint n_above = 0, n_alike = 0; // before those at hand
    for (uint base = 0; base < n; base += THREADS * EACH) {
        const uint first = base + t * EACH;
        uint x[EACH], own = 0, all; // above in the low half, equal in the high half
        [[unroll]] for (uint i = 0; i < EACH; i++) {
            x[i] = first + i < n ? scores.v[first + i] : 0;
            own += first + i >= n || x[i] < least ? 0 : x[i] > least ? 1 : 0x10000u;
        }
        const uint before = sum_before(own, all);
        uint above = n_above + (before & 0xffffu), alike = n_alike + (before >> 16);
        [[unroll]] for (uint i = 0; i < EACH; i++) {
            if (first + i >= n || x[i] < least)
                continue;
            if (x[i] > least || alike < n_equal)
                chosen.v[above + min(alike, n_equal)] = first + i;
            above += uint(x[i] > least);
            alike += uint(x[i] == least);
        }
        n_above += all & 0xffffu;
        n_alike += all >> 16;
    }
}

void main()
{
    const uint row = p.first_row + gl_WorkGroupID.y;
    const Sequence s = p.sequences.v[sequence_of(p.sequences, p.n_sequences, row)];
    const uint n = n_keys_seen(s, row, p.rate);
    if (n <= p.n_most)
        return;
    const uint64_t at = p.scores + uint64_t(gl_WorkGroupID.y) * 8 * p.n_room;
    Words scores = Words(at);
    const uint shifts[] = {21, 10, 0}; // the last one's digit begins with a bit that is known
    uint prefix = 0, known = 0, left = p.n_most;
    for (uint i = 0; i < 3; i++) {
        const uint shift = shifts[i];
        count_digits(scores, n, known, prefix, shift);
        find_digit(left);
        left = found_left;
        prefix |= found_digit << shift;
        known = 0xffffffffu << shift;
    }
    list_chosen(scores, Words(at + uint64_t(p.n_room) * 4), n, prefix, left);
}

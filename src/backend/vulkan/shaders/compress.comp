#version 460
// SPDX-License-Identifier: MIT
// Entries that stand for runs of positions (mf_compress_params has the mathematics), of rows that end
// a run: what they are made of is in the pages of the window. A workgroup has one row, an invocation
// every 256th column.
//! variant compress
//! variant compress_bf16 -DBF16_CACHE
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"

layout(push_constant, scalar) uniform Push {
    Floats bias, norm, cosine, sine;
    Sequences sequences, windows; // the latter with the window's pages
    uint64_t kv_offset, gate_offset, entry_offset;
    uint n_sequences, first_row, dim, n_series, rate, n_rot;
    float eps;
} p;

const uint PAGE = 32, MOST = 1024; // MF_PAGE_TOKENS; columns

shared float entry[MOST];

float cached(uint64_t page, uint i)
{
#ifdef BF16_CACHE
    return bfloat_to_float(uint(Halves(page + uint64_t(i) * 2).v[0]));
#else
    return Floats(page + uint64_t(i) * 4).v[0];
#endif
}

// A column of a position's row of what begins at an offset of the window's pages.
float at(uint64_t pages, uint64_t offset, uint position, uint col)
{
    return cached(Addresses(pages).v[position / PAGE] + offset,
                  position % PAGE * p.n_series * p.dim + col);
}

float gate_at(uint64_t pages, uint position, uint col)
{
    return at(pages, p.gate_offset, position, col) +
           p.bias.v[position % p.rate * p.n_series * p.dim + col];
}

// Of the run that begins at `first`, and of the one before it, if there is one and it counts: the
// columns of the first series are of that one.
float column(uint64_t pages, uint first, uint c)
{
    const bool has_before = p.n_series == 2 && first != 0;
    const uint begin = has_before ? first - p.rate : first, own = (p.n_series - 1) * p.dim + c;
    float largest = uintBitsToFloat(0xff800000u);
    for (uint i = begin; i < first + p.rate; i++)
        largest = max(largest, gate_at(pages, i, i < first ? c : own));
    precise float sum = 0.0, weighted = 0.0;
    for (uint i = begin; i < first + p.rate; i++) {
        const uint col = i < first ? c : own;
        const float weight = exp(gate_at(pages, i, col) - largest);
        sum += weight;
        weighted += weight * at(pages, p.kv_offset, i, col);
    }
    return weighted / sum;
}

// Column c of the rotated entry.
float rotated(uint c, uint first)
{
    const uint from = p.dim - p.n_rot;
    if (c < from)
        return entry[c];
    const uint pair = (c - from) / 2, angle = first * (p.n_rot / 2) + pair;
    const float u = entry[from + 2 * pair], v = entry[from + 2 * pair + 1];
    const float a = p.cosine.v[angle], b = p.sine.v[angle];
    return (c - from) % 2 == 0 ? u * a - v * b : v * a + u * b;
}

void main()
{
    const uint row = p.first_row + gl_WorkGroupID.y, t = gl_LocalInvocationID.x;
    const uint number = sequence_of(p.sequences, p.n_sequences, row);
    const Sequence s = p.sequences.v[number];
    const uint last = s.position + row - s.first_row;
    if ((last + 1) % p.rate != 0)
        return;
    const uint first = last + 1 - p.rate, step = gl_WorkGroupSize.x;
    const uint64_t pages = p.windows.v[number].pages;
    precise float sum = 0.0;
    for (uint c = t; c < p.dim; c += step) {
        entry[c] = column(pages, first, c);
        sum += entry[c] * entry[c];
    }
    precise float mean = workgroup_sum(sum) / float(p.dim) + p.eps;
    const float factor = inversesqrt(mean);
    for (uint c = t; c < p.dim; c += step)
        entry[c] = entry[c] * factor * p.norm.v[c];
    barrier();
    const uint place = p.rate < PAGE ? last % PAGE / p.rate : 0;
    const uint64_t to = Addresses(s.pages).v[last / PAGE] + p.entry_offset;
    for (uint c = t; c < p.dim; c += step) {
        const float x = rotated(c, first);
#ifdef BF16_CACHE
        Halves(to + uint64_t(place * p.dim + c) * 2).v[0] = uint16_t(bfloat_of(x));
#else
        Floats(to + uint64_t(place * p.dim + c) * 4).v[0] = x;
#endif
    }
}

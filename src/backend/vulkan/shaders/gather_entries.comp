#version 460
// SPDX-License-Identifier: MIT
// What a row attends to, side by side: the entries that it sees, and then the rows of its window,
// the last of which is its own. A workgroup's y is a row, its x cuts what is copied.
//! variant gather_entries
//! variant gather_entries_bf16 -DBF16_CACHE
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant, scalar) uniform Push {
    uint64_t to, stride; // of a row, bytes
    Sequences sequences, windows;
    uint64_t page_offset, entry_offset;
    uint n_sequences, first_row, dim, window, rate;
} p;

const uint PAGE = 32; // MF_PAGE_TOKENS

#ifdef BF16_CACHE
const uint EACH = 2;
#else
const uint EACH = 4;
#endif

// Where the row's key begins that is number i.
uint64_t key_at(Sequence s, uint64_t window_pages, uint i, uint n_entries, uint first)
{
    if (i >= n_entries) {
        const uint position = first + i - n_entries;
        return Addresses(window_pages).v[position / PAGE] + p.page_offset +
               uint64_t(position % PAGE) * p.dim * EACH;
    }
    const uint last = (i + 1) * p.rate - 1, place = p.rate < PAGE ? last % PAGE / p.rate : 0;
    return Addresses(s.pages).v[last / PAGE] + p.entry_offset + uint64_t(place) * p.dim * EACH;
}

void main()
{
    const uint row = p.first_row + gl_WorkGroupID.y;
    const uint number = sequence_of(p.sequences, p.n_sequences, row);
    const Sequence s = p.sequences.v[number];
    const uint position = s.position + row - s.first_row;
    const uint n_entries = p.rate != 0 ? (position + 1) / p.rate : 0;
    const uint first = position < p.window ? 0 : position + 1 - p.window;
    const uint n_keys = n_entries + position + 1 - first;
    const uint64_t to = p.to + gl_WorkGroupID.y * p.stride;
    const uint64_t window_pages = p.windows.v[number].pages;
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < n_keys * p.dim; i += step) {
        const uint64_t from = key_at(s, window_pages, i / p.dim, n_entries, first);
#ifdef BF16_CACHE
        Halves(to + uint64_t(i) * 2).v[0] = Halves(from + uint64_t(i % p.dim) * 2).v[0];
#else
        Floats(to + uint64_t(i) * 4).v[0] = Floats(from + uint64_t(i % p.dim) * 4).v[0];
#endif
    }
}

#version 460
// SPDX-License-Identifier: MIT
// What a row attends to, side by side: the entries that it sees, or those of them that are chosen,
// and then the rows of its window, the last of which is its own. Without a window, and entries that
// stand for one position each, it is chosen positions. A workgroup's y is a row, its x cuts what is
// copied.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "index.glsl"

layout(constant_id = 1) const uint UNIT = 4; // bytes, of what is copied at once: 2, 4 or 16

layout(push_constant, scalar) uniform Push {
    uint64_t to, stride; // of a row, bytes
    Sequences sequences, windows;
    uint64_t page_offset, entry_offset;
    uint64_t chosen; // Words, of rows chosen_stride apart; 0: all are seen
    uint n_sequences, first_row, row_bytes, window, rate, n_most, chosen_stride;
} p;

const uint PAGE = 32; // MF_PAGE_TOKENS

// Where the row's key begins that is number i. chosen: 0, all entries are seen.
uint64_t key_at(Sequence s, uint64_t window_pages, uint64_t chosen, uint i, uint n_entries,
                uint first)
{
    if (i >= n_entries) {
        const uint position = first + i - n_entries;
        return Addresses(window_pages).v[position / PAGE] + p.page_offset +
               uint64_t(position % PAGE) * p.row_bytes;
    }
    const uint entry = chosen != 0 ? Words(chosen).v[i] : i;
    const uint last = (entry + 1) * p.rate - 1, place = p.rate < PAGE ? last % PAGE / p.rate : 0;
    return Addresses(s.pages).v[last / PAGE] + p.entry_offset + uint64_t(place) * p.row_bytes;
}

void main()
{
    const uint row = p.first_row + gl_WorkGroupID.y;
    const uint number = sequence_of(p.sequences, p.n_sequences, row);
    const Sequence s = p.sequences.v[number];
    const uint position = s.position + row - s.first_row;
    const uint n_seen = p.rate != 0 ? n_keys_seen(s, row, p.rate) : 0;
    const bool is_chosen = p.chosen != 0 && n_seen > p.n_most;
    const uint n_entries = is_chosen ? p.n_most : n_seen;
    const uint64_t chosen =
        is_chosen ? p.chosen + uint64_t(gl_WorkGroupID.y) * p.chosen_stride * 4 : 0;
    const uint first = position < p.window ? 0 : position + 1 - p.window;
    const uint n_keys = n_entries + position + 1 - first;
    const uint64_t to = p.to + gl_WorkGroupID.y * p.stride;
    const uint64_t window_pages = p.windows.v[number].pages;
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    const uint n_units = p.row_bytes / UNIT;
    for (uint i = gl_GlobalInvocationID.x; i < n_keys * n_units; i += step) {
        const uint64_t from = key_at(s, window_pages, chosen, i / n_units, n_entries, first) +
                              i % n_units * UNIT;
        if (UNIT == 16)
            Words4(to).v[i] = Words4(from).v[0];
        else if (UNIT == 4)
            Words(to).v[i] = Words(from).v[0];
        else
            Halves(to).v[i] = Halves(from).v[0];
    }
}

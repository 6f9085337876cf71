/* SPDX-License-Identifier: MIT */
/* Plans of reads: sorting, merging and cutting one expert's parts. */
#include "experts/expert_plan.h"

#include "base/checked.h"

#include <string.h>

typedef struct part_range {
    uint64_t begin, end;
    uint32_t file;
    uint32_t part;
} part_range;

/* Room for rounding up and for sums over nine parts; no file system holds larger files. */
#define OFFSET_MAX ((uint64_t)1 << 62)

static bool locate(const mf_expert_part *part, uint32_t expert, part_range *out)
{
    uint64_t offset = part->offset, skip;
    out->file = part->each_file != NULL ? part->each_file[expert] : part->file;
    if (part->each_offset != NULL)
        offset = part->each_offset[expert];
    else if (!mf_mul_u64(part->stride, expert, &skip) || !mf_add_u64(offset, skip, &offset))
        return false;
    out->begin = offset;
    return mf_add_u64(offset, mf_expert_part_bytes(part, expert), &out->end) &&
           out->end <= OFFSET_MAX;
}

static bool comes_before(const part_range *a, const part_range *b)
{
    return a->file != b->file ? a->file < b->file : a->begin < b->begin;
}

static uint64_t round_down(uint64_t n)
{
    return n & ~(uint64_t)(MF_IO_ALIGN - 1);
}

/* The parts that have bytes, sorted by place. */
static bool sort_parts(const mf_expert_map *map, uint32_t layer, uint32_t expert,
                       part_range *sorted, uint32_t *n)
{
    uint32_t n_parts;
    const mf_expert_part *parts = mf_expert_stored_parts(map, layer, &n_parts);
    *n = 0;
    for (uint32_t p = 0; p < n_parts; p++) {
        part_range range = {.part = p};
        if (!locate(&parts[p], expert, &range))
            return false;
        if (range.begin == range.end)
            continue;
        uint32_t i = (*n)++;
        for (; i > 0 && comes_before(&range, &sorted[i - 1]); i--)
            sorted[i] = sorted[i - 1];
        sorted[i] = range;
    }
    return true;
}

typedef struct wide_extent {
    uint64_t begin, end; /* aligned */
    uint64_t needed_end;
    uint32_t file;
} wide_extent;

static bool touches(const wide_extent *extent, const part_range *range)
{
    return extent->file == range->file && round_down(range->begin) <= extent->end;
}

/* The extent that the i-th of the sorted parts ends up in, begun or made longer by it. */
static uint32_t merge_part(wide_extent *extents, uint32_t n_extents, const part_range *range)
{
    if (n_extents == 0 || !touches(&extents[n_extents - 1], range))
        extents[n_extents++] =
            (wide_extent){.begin = round_down(range->begin), .file = range->file};
    wide_extent *extent = &extents[n_extents - 1];
    uint64_t end = mf_round_up(range->end, MF_IO_ALIGN);
    if (end > extent->end)
        extent->end = end;
    if (range->end > extent->needed_end)
        extent->needed_end = range->end;
    return n_extents;
}

/* Lays the extents one after another; false if the slot would be too large. */
static bool lay_extents(const wide_extent *extents, mf_expert_plan *plan)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < plan->n_extents; i++) {
        const wide_extent *wide = &extents[i];
        uint64_t n_bytes = wide->end - wide->begin;
        if (n_bytes > MF_EXPERT_SLOT_BYTES_MAX || at + n_bytes > MF_EXPERT_SLOT_BYTES_MAX)
            return false;
        plan->extents[i] =
            (mf_expert_extent){.offset = wide->begin,
                               .n_bytes = (uint32_t)n_bytes,
                               .n_needed = (uint32_t)(wide->needed_end - wide->begin),
                               .at = (uint32_t)at,
                               .file = wide->file};
        at += n_bytes;
    }
    plan->n_bytes = (uint32_t)at;
    return true;
}

bool mf_expert_plan_make(const mf_expert_map *map, uint32_t layer, uint32_t expert,
                         mf_expert_plan *plan)
{
    part_range sorted[MF_MAX_STORED_PARTS];
    wide_extent extents[MF_MAX_STORED_PARTS] = {{0}};
    uint32_t in_extent[MF_MAX_STORED_PARTS];
    uint32_t n;
    *plan = (mf_expert_plan){0};
    if (!sort_parts(map, layer, expert, sorted, &n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        plan->n_extents = merge_part(extents, plan->n_extents, &sorted[i]);
        in_extent[i] = plan->n_extents - 1;
    }
    if (!lay_extents(extents, plan))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const mf_expert_extent *extent = &plan->extents[in_extent[i]];
        plan->part_at[sorted[i].part] = extent->at + (uint32_t)(sorted[i].begin - extent->offset);
    }
    return true;
}

uint64_t mf_expert_lay_parts(const mf_expert_map *map, uint32_t layer, uint32_t expert,
                             uint32_t part_at[MF_MAX_EXPERT_PARTS])
{
    const mf_expert_part *parts = map->parts + (size_t)layer * map->n_parts;
    uint64_t end = 0;
    for (uint32_t p = 0; p < map->n_parts; p++) {
        const uint64_t n_bytes = mf_expert_part_bytes(&parts[p], expert);
        part_at[p] = (uint32_t)end;
        if (n_bytes > MF_EXPERT_SLOT_BYTES_MAX)
            return UINT64_MAX;
        end = mf_round_up(end + n_bytes, MF_EXPERT_PART_ALIGN);
        if (end > MF_EXPERT_SLOT_BYTES_MAX)
            return UINT64_MAX;
    }
    return end;
}

/* Where the first part that has bytes was read to; *bits: of the distances of the others. */
static uint32_t first_part(const mf_expert_map *map, uint32_t layer, uint32_t expert,
                           const mf_expert_plan *plan, uint32_t *bits)
{
    const mf_expert_part *parts = map->parts + (size_t)layer * map->n_parts;
    uint32_t first = UINT32_MAX;
    *bits = 0;
    for (uint32_t p = 0; p < map->n_parts; p++)
        if (mf_expert_part_bytes(&parts[p], expert) != 0 && plan->part_at[p] < first)
            first = plan->part_at[p];
    for (uint32_t p = 0; p < map->n_parts; p++)
        if (mf_expert_part_bytes(&parts[p], expert) != 0)
            *bits |= plan->part_at[p] - first;
    return first;
}

bool mf_expert_layer_is_even(const mf_expert_map *map, uint32_t layer, uint32_t align,
                             uint32_t *first)
{
    mf_expert_plan one, plan;
    uint32_t bits, begin = 0;
    if (mf_expert_is_made(map, layer))
        return false;
    for (uint32_t e = 0; e < map->n_experts; e++) {
        if (!mf_expert_plan_make(map, layer, e, &plan))
            return false;
        const uint32_t at = first_part(map, layer, e, &plan, &bits);
        if (e == 0) {
            one = plan;
            begin = at;
        }
        if (at != begin || bits % align != 0 ||
            memcmp(plan.part_at, one.part_at, sizeof plan.part_at) != 0)
            return false;
    }
    *first = begin;
    return true;
}

static bool goes_on(const mf_slot_piece *last, const mf_slot_piece *piece)
{
    return last->slot_at + last->n_bytes == piece->slot_at &&
           last->from + last->n_bytes == piece->from;
}

uint32_t mf_expert_cut_pieces(const mf_expert_map *map, uint32_t layer, uint32_t expert,
                              const mf_expert_way *way, mf_slot_piece pieces[MF_MAX_EXPERT_PARTS])
{
    const mf_expert_part *parts = map->parts + (size_t)layer * map->n_parts;
    uint32_t n = 0;
    for (uint32_t p = 0; p < map->n_parts; p++) {
        const mf_slot_piece piece = {way->slot_at + way->to_at[p], way->from + way->from_at[p],
                                     mf_expert_part_bytes(&parts[p], expert)};
        if (piece.n_bytes == 0)
            continue;
        if (n > 0 && goes_on(&pieces[n - 1], &piece))
            pieces[n - 1].n_bytes += piece.n_bytes;
        else
            pieces[n++] = piece;
    }
    return n;
}

mf_slot_piece mf_expert_whole_piece(const mf_expert_map *map, uint32_t layer, uint32_t expert,
                                    const mf_expert_way *way, uint32_t first)
{
    const mf_expert_part *parts = map->parts + (size_t)layer * map->n_parts;
    uint64_t end = first;
    for (uint32_t p = 0; p < map->n_parts; p++) {
        const uint64_t n_bytes = mf_expert_part_bytes(&parts[p], expert);
        if (n_bytes != 0 && way->from_at[p] + n_bytes > end)
            end = way->from_at[p] + n_bytes;
    }
    return (mf_slot_piece){way->slot_at, way->from + first, end - first};
}

bool mf_expert_map_is_even(const mf_expert_map *map)
{
    uint32_t first;
    for (uint32_t layer = 0; layer < map->n_layers; layer++)
        if (!mf_expert_layer_is_even(map, layer, 16, &first) || first % 16 != 0)
            return false;
    return true;
}

uint32_t mf_expert_plan_lanes(const mf_expert_plan *plan, const mf_io *io)
{
    uint32_t lanes = 0;
    for (uint32_t i = 0; i < plan->n_extents; i++)
        lanes |= 1u << mf_io_file_lane(io, plan->extents[i].file);
    return lanes;
}

/* The extent that the lane's next read is of; n_extents: there is none. */
static uint32_t next_extent(const mf_expert_plan *plan, const mf_io *io, uint32_t lane,
                            const mf_expert_cursor *cursor)
{
    uint32_t i = cursor->extent;
    while (i < plan->n_extents && mf_io_file_lane(io, plan->extents[i].file) != lane)
        i++;
    return i;
}

bool mf_expert_plan_has_next(const mf_expert_plan *plan, const mf_io *io, uint32_t lane,
                             const mf_expert_cursor *cursor)
{
    return next_extent(plan, io, lane, cursor) < plan->n_extents;
}

bool mf_expert_plan_next(const mf_expert_plan *plan, const mf_io *io, uint32_t lane,
                         mf_expert_cursor *cursor, unsigned char *memory, mf_io_read *read)
{
    cursor->extent = next_extent(plan, io, lane, cursor);
    if (cursor->extent == plan->n_extents)
        return false;
    const mf_expert_extent *extent = &plan->extents[cursor->extent];
    uint32_t done = cursor->done_bytes;
    uint32_t n_bytes = extent->n_bytes - done;
    if (n_bytes > MF_EXPERT_READ_BYTES)
        n_bytes = MF_EXPERT_READ_BYTES;
    uint32_t n_needed = extent->n_needed - done;
    *read = (mf_io_read){.file = extent->file,
                         .offset = extent->offset + done,
                         .n_bytes = n_bytes,
                         .n_needed = n_needed < n_bytes ? n_needed : n_bytes,
                         .dest = memory + extent->at + done};
    cursor->done_bytes += n_bytes;
    if (cursor->done_bytes == extent->n_bytes)
        *cursor = (mf_expert_cursor){.extent = cursor->extent + 1};
    return true;
}

/* SPDX-License-Identifier: MIT */
/* Plans of reads: sorting, merging and cutting one expert's parts. */
#include "experts/expert_plan.h"

#include "base/checked.h"

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
    return mf_add_u64(offset, part->n_bytes, &out->end) && out->end <= OFFSET_MAX;
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
    const mf_expert_part *parts = map->parts + (size_t)layer * map->n_parts;
    *n = 0;
    for (uint32_t p = 0; p < map->n_parts; p++) {
        part_range range = {.part = p};
        if (!locate(&parts[p], expert, &range))
            return false;
        if (parts[p].n_bytes == 0)
            continue;
        uint32_t i = (*n)++;
        for (; i > 0 && comes_before(&range, &sorted[i - 1]); i--)
            sorted[i] = sorted[i - 1];
        sorted[i] = range;
    }
    return true;
}

/* Puts a part behind those before it: into the last extent if their aligned ranges touch. */
static void append_part(mf_expert_plan *plan, const part_range *range)
{
    uint64_t begin = round_down(range->begin);
    uint64_t end = mf_round_up(range->end, MF_IO_ALIGN);
    mf_expert_extent *extent = plan->n_extents > 0 ? &plan->extents[plan->n_extents - 1] : NULL;
    if (extent == NULL || extent->file != range->file || begin > extent->offset + extent->n_bytes) {
        uint64_t at = extent == NULL ? 0 : extent->at + extent->n_bytes;
        extent = &plan->extents[plan->n_extents++];
        *extent = (mf_expert_extent){.offset = begin, .at = at, .file = range->file};
    }
    if (end - extent->offset > extent->n_bytes)
        extent->n_bytes = end - extent->offset;
    if (range->end - extent->offset > extent->n_needed)
        extent->n_needed = range->end - extent->offset;
    plan->part_at[range->part] = extent->at + (range->begin - extent->offset);
}

bool mf_expert_plan_make(const mf_expert_map *map, uint32_t layer, uint32_t expert,
                         mf_expert_plan *plan)
{
    part_range sorted[MF_MAX_EXPERT_PARTS];
    uint32_t n;
    *plan = (mf_expert_plan){0};
    if (!sort_parts(map, layer, expert, sorted, &n))
        return false;
    for (uint32_t i = 0; i < n; i++)
        append_part(plan, &sorted[i]);
    for (uint32_t i = 0; i < plan->n_extents; i++) {
        uint64_t n_bytes = plan->extents[i].n_bytes;
        uint64_t n_reads = mf_round_up(n_bytes, MF_EXPERT_READ_BYTES) / MF_EXPERT_READ_BYTES;
        if (n_reads > UINT32_MAX / MF_MAX_EXPERT_PARTS ||
            !mf_add_u64(plan->n_bytes, n_bytes, &plan->n_bytes))
            return false;
        plan->n_reads += (uint32_t)n_reads;
    }
    return true;
}

bool mf_expert_plan_next(const mf_expert_plan *plan, mf_expert_cursor *cursor, unsigned char *slot,
                         mf_io_read *read)
{
    if (cursor->extent == plan->n_extents)
        return false;
    const mf_expert_extent *extent = &plan->extents[cursor->extent];
    uint64_t done = cursor->done_bytes;
    uint64_t n_bytes = extent->n_bytes - done;
    if (n_bytes > MF_EXPERT_READ_BYTES)
        n_bytes = MF_EXPERT_READ_BYTES;
    uint64_t n_needed = extent->n_needed - done;
    *read = (mf_io_read){.file = extent->file,
                         .offset = extent->offset + done,
                         .n_bytes = (uint32_t)n_bytes,
                         .n_needed = (uint32_t)(n_needed < n_bytes ? n_needed : n_bytes),
                         .dest = slot + extent->at + done};
    cursor->done_bytes += n_bytes;
    if (cursor->done_bytes == extent->n_bytes)
        *cursor = (mf_expert_cursor){.extent = cursor->extent + 1};
    return true;
}

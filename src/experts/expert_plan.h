/* SPDX-License-Identifier: MIT */
/*
 * From the map to the reads of one expert: its parts sorted by file and offset, merged into
 * extents where their aligned ranges touch, the extents laid one after another into a slot, and cut
 * into requests of bounded size. Made anew whenever it is needed: nine parts are cheaper to sort
 * than a plan of every expert is to keep.
 */
#ifndef MF_EXPERTS_EXPERT_PLAN_H
#define MF_EXPERTS_EXPERT_PLAN_H

#include "experts/store.h"

/* Requests are cut here: bench_io --sweep shows nothing gained beyond, and io_uring hands direct
 * reads that need several bios to worker threads. */
#define MF_EXPERT_READ_BYTES (1u << 20)

typedef struct mf_expert_extent {
    uint64_t offset;  /* in the file, aligned */
    uint64_t n_bytes; /* aligned; may reach past the end of the file */
    uint64_t n_needed;
    uint64_t at; /* in the slot, aligned */
    uint32_t file;
} mf_expert_extent;

typedef struct mf_expert_plan {
    uint32_t n_extents;
    uint32_t n_reads;
    uint64_t n_bytes;                      /* of the slot */
    uint64_t part_at[MF_MAX_EXPERT_PARTS]; /* in the slot: the part's first byte */
    mf_expert_extent extents[MF_MAX_EXPERT_PARTS];
} mf_expert_plan;

/* False if an offset or a sum of the map overflows, *plan then being undefined. */
bool mf_expert_plan_make(const mf_expert_map *map, uint32_t layer, uint32_t expert,
                         mf_expert_plan *plan);

/* The reads of a plan one by one; a zeroed cursor starts. */
typedef struct mf_expert_cursor {
    uint32_t extent;
    uint64_t done_bytes; /* of the extent */
} mf_expert_cursor;

/* Fills all but the tag; false when there are no more. */
bool mf_expert_plan_next(const mf_expert_plan *plan, mf_expert_cursor *cursor, unsigned char *slot,
                         mf_io_read *read);

#endif

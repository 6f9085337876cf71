/* SPDX-License-Identifier: MIT */
/*
 * From the map to the reads of one expert: its parts sorted by file and offset, merged into
 * extents where their aligned ranges touch, the extents laid one after another into a slot, and cut
 * into requests of bounded size. Made once for each time an expert is brought in: nine parts are
 * cheaper to sort than a plan of every expert is to keep.
 */
#ifndef MF_EXPERTS_EXPERT_PLAN_H
#define MF_EXPERTS_EXPERT_PLAN_H

#include "experts/expert_map.h"
#include "experts/slot_memory.h"
#include "io/io.h"

/* Requests are cut here: bench_io --sweep shows nothing gained beyond, and io_uring hands direct
 * reads that need several bios to worker threads. */
#define MF_EXPERT_READ_BYTES (1u << 20)

/* No slot is larger: places in it are 32 bits. */
#define MF_EXPERT_SLOT_BYTES_MAX ((uint64_t)UINT32_MAX & ~(uint64_t)(MF_IO_ALIGN - 1))

typedef struct mf_expert_extent {
    uint64_t offset;  /* in the file, aligned */
    uint32_t n_bytes; /* aligned; may reach past the end of the file */
    uint32_t n_needed;
    uint32_t at; /* in the slot, aligned */
    uint32_t file;
} mf_expert_extent;

typedef struct mf_expert_plan {
    uint32_t n_extents;
    uint32_t n_bytes;                      /* of the slot */
    uint32_t part_at[MF_MAX_STORED_PARTS]; /* in the slot: the part's first byte, as it is read */
    mf_expert_extent extents[MF_MAX_STORED_PARTS];
} mf_expert_plan;

/* False if an offset or a sum of the map overflows or a slot would be too large, *plan then being
 * undefined. */
bool mf_expert_plan_make(const mf_expert_map *map, uint32_t layer, uint32_t expert,
                         mf_expert_plan *plan);

/* Where each part of an expert lies in a slot that it is uploaded to, without what was read around
 * it: one after the other, each at a multiple of MF_EXPERT_PART_ALIGN, at the same places for all
 * experts of the layer that have the same form. Returns the bytes of all; UINT64_MAX: too many. */
#define MF_EXPERT_PART_ALIGN ((uint64_t)64)
uint64_t mf_expert_lay_parts(const mf_expert_map *map, uint32_t layer, uint32_t expert,
                             uint32_t part_at[MF_MAX_EXPERT_PARTS]);

/* Where an expert lies and goes: its parts behind `from`, and in a slot. */
typedef struct mf_expert_way {
    const unsigned char *from;
    const uint32_t *from_at;
    uint64_t slot_at;
    const uint32_t *to_at;
} mf_expert_way;

/* Part by part: those that go on on both sides are one piece. Returns how many there are. */
uint32_t mf_expert_cut_pieces(const mf_expert_map *map, uint32_t layer, uint32_t expert,
                              const mf_expert_way *way, mf_slot_piece pieces[MF_MAX_EXPERT_PARTS]);
/* As it was read, in one, from byte `first` on to the slot's first one (to_at is not looked at):
 * copies cost a device something whatever their bytes. */
mf_slot_piece mf_expert_whole_piece(const mf_expert_map *map, uint32_t layer, uint32_t expert,
                                    const mf_expert_way *way, uint32_t first);

/* Whether reads alone put the parts of all experts of a layer at the same places, a multiple of
 * `align` from the first of them, which is *first then; not where they are made of what was read.
 */
bool mf_expert_layer_is_even(const mf_expert_map *map, uint32_t layer, uint32_t align,
                             uint32_t *first);
/* Whether reads alone put the parts of all experts of a layer at the same places in their slots,
 * each at a multiple of 16; not where they are made of what was read. */
bool mf_expert_map_is_even(const mf_expert_map *map);

/* The reads of a plan one by one, those of one lane; a zeroed cursor starts. */
typedef struct mf_expert_cursor {
    uint32_t extent;
    uint32_t done_bytes; /* of the extent */
} mf_expert_cursor;

bool mf_expert_plan_has_next(const mf_expert_plan *plan, const mf_io *io, uint32_t lane,
                             const mf_expert_cursor *cursor);
/* Fills all but the tag, for an expert that is read to `memory`; false when there are no more. */
bool mf_expert_plan_next(const mf_expert_plan *plan, const mf_io *io, uint32_t lane,
                         mf_expert_cursor *cursor, unsigned char *memory, mf_io_read *read);
/* The lanes in which an expert has reads, by bit. */
uint32_t mf_expert_plan_lanes(const mf_expert_plan *plan, const mf_io *io);

#endif

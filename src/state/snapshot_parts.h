/* SPDX-License-Identifier: MIT */
/* Many parts of a snapshot in one call: memory to memory by several threads, else one by one. */
#ifndef MF_STATE_SNAPSHOT_PARTS_H
#define MF_STATE_SNAPSHOT_PARTS_H

#include "state/snapshot_format.h"

/* A run of a state's bytes, and which of the snapshot's parts it is. */
typedef struct mf_snapshot_part {
    unsigned char *bytes; /* NULL: they lie in the parts' memory */
    uint32_t buffer;
    uint64_t from;
    size_t n_bytes;
    uint64_t number;
    size_t offset; /* in the snapshot, from the list's first part */
} mf_snapshot_part;

/* Parts that follow each other in the snapshot as they do here. */
typedef struct mf_snapshot_parts {
    mf_part_memory memory;
    mf_snapshot_part *list; /* [capacity] */
    uint32_t capacity, n_parts;
    size_t n_bytes; /* of all, their checksums included */
} mf_snapshot_parts;

/* Error: MF_ERR_NO_MEMORY. */
mf_status mf_snapshot_parts_init(mf_snapshot_parts *parts, const mf_allocator *a, uint32_t capacity,
                                 mf_error *error);
void mf_snapshot_parts_free(mf_snapshot_parts *parts, const mf_allocator *a);
/* At most `capacity` times. */
void mf_snapshot_parts_add(mf_snapshot_parts *parts, uint64_t number, void *bytes, size_t n_bytes);
/* Likewise, of bytes in parts->memory, which is then the caller's to set. */
void mf_snapshot_parts_add_place(mf_snapshot_parts *parts, uint64_t number, uint32_t buffer,
                                 uint64_t offset, size_t n_bytes);

/* Who does it. Threads are started for the call where sink or source is memory, as many of
 * n_threads as the bytes are worth. */
typedef struct mf_snapshot_crew {
    const mf_allocator *allocator;
    uint32_t n_threads; /* at least 1, the caller's included */
} mf_snapshot_crew;

/* Errors: those of mf_snapshot_write_part and mf_snapshot_read_part, of the first part that has
 * one; MF_ERR_NO_MEMORY. */
mf_status mf_snapshot_write_parts(mf_byte_sink *sink, const mf_snapshot_head *head,
                                  const mf_snapshot_parts *parts, const mf_snapshot_crew *crew,
                                  mf_error *error);
mf_status mf_snapshot_read_parts(mf_byte_source *source, const mf_snapshot_head *head,
                                 const mf_snapshot_parts *parts, const mf_snapshot_crew *crew,
                                 mf_error *error);

#endif

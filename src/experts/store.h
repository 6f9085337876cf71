/* SPDX-License-Identifier: MIT */
/*
 * The expert store: where every expert's bytes lie on disk, a fixed pool of aligned slots that hold
 * some of them, and the reads that bring the others in. It knows nothing of models or of
 * arithmetic: an expert is up to nine parts of bytes.
 *
 * One fetch is open at a time: begin names the distinct experts of one layer, next hands them out
 * as they become ready (those already held first, then in order of arrival), release gives a slot
 * back to the cache, end closes the fetch. Fewer slots than experts is legal: reads go on as slots
 * are released. One thread.
 */
#ifndef MF_EXPERTS_STORE_H
#define MF_EXPERTS_STORE_H

#include "base/alloc.h"
#include "base/weight_format.h"
#include "io/io.h"

/* An expert's parts are the arrays of its matrices: part MF_MAX_WEIGHT_ARRAYS * j + i is array i of
 * matrix j. */
#define MF_EXPERT_MATRICES 3 /* gate, up, down */
#define MF_MAX_EXPERT_PARTS (MF_EXPERT_MATRICES * MF_MAX_WEIGHT_ARRAYS)

/* One part of every expert of a layer: expert e lies at offset + e * stride, or, where each expert
 * has tensors of its own, at the e-th entry of each_file/each_offset (both owned by the map's
 * creator, n_experts long; NULL otherwise). */
typedef struct mf_expert_part {
    uint32_t file; /* as mf_io_add_file numbered it */
    uint64_t offset;
    uint64_t stride;
    uint64_t n_bytes;
    const uint32_t *each_file;
    const uint64_t *each_offset;
} mf_expert_part;

/* Where the experts lie. Parts of the same expert that are adjacent in a file are read by one
 * request. */
typedef struct mf_expert_map {
    uint32_t n_layers;
    uint32_t n_experts;
    uint32_t n_parts;
    const mf_expert_part *parts; /* [n_layers][n_parts] */
} mf_expert_map;

typedef struct mf_expert_store mf_expert_store;

/* Which expert leaves when a slot is needed; experts in use are never asked about. State in ctx,
 * sized at open. */
typedef struct mf_cache_policy {
    const char *name;
    size_t (*state_bytes)(uint32_t n_slots);
    void (*init)(void *state, uint32_t n_slots);
    void (*touch)(void *state,
                  uint32_t slot); /* the slot's expert was asked for (also at insertion) */
    void (*forget)(void *state, uint32_t slot); /* the slot became empty */
    /* The slot to empty next among those for which evictable() is true; UINT32_MAX if none. */
    uint32_t (*victim)(void *state, bool (*evictable)(void *ctx, uint32_t slot), void *ctx);
} mf_cache_policy;

extern const mf_cache_policy mf_cache_policy_lru;

typedef struct mf_expert_store_options {
    mf_allocator allocator;
    mf_io *io;                     /* borrowed; its files are registered */
    mf_expert_map map;             /* borrowed arrays, valid as long as the store */
    unsigned char *pool;           /* slot memory, aligned to 4096; borrowed */
    size_t pool_bytes;             /* n_slots * mf_expert_slot_bytes */
    const mf_cache_policy *policy; /* NULL: LRU */
} mf_expert_store_options;

/* Bytes of one slot for this map: the largest expert's parts with the alignment of direct reads, a
 * multiple of 4096. */
uint64_t mf_expert_slot_bytes(const mf_expert_map *map, const mf_io *io);
/* Bytes the store itself allocates for this many slots (bookkeeping, not the pool). */
uint64_t mf_expert_store_bytes(const mf_expert_map *map, uint64_t n_slots);

mf_status mf_expert_store_open(const mf_expert_store_options *options, mf_expert_store **out,
                               mf_error *error);
void mf_expert_store_close(mf_expert_store **store);

typedef struct mf_expert_ready {
    uint32_t index; /* into begin's experts */
    const unsigned char
        *part[MF_MAX_EXPERT_PARTS]; /* the parts' bytes, in slot memory, valid until release */
} mf_expert_ready;

/* Starts a fetch of n distinct experts of a layer. Hits are pinned first; reads for the misses are
 * then in flight, all together as far as slots allow, in the order given. n >= 1. On failure no
 * fetch is open. */
mf_status mf_expert_store_begin(mf_expert_store *store, uint32_t layer, const uint32_t *experts,
                                uint32_t n, mf_error *error);
/* Hands out up to `max` experts that are ready now; waits for one if none is. *n is 0 only when all
 * were handed out. An I/O error names the file and offset; then call end. */
mf_status mf_expert_store_next(mf_expert_store *store, mf_expert_ready *out, uint32_t max,
                               uint32_t *n, mf_error *error);
/* The expert's bytes are no longer needed by this fetch; it stays cached until its slot is wanted.
 */
void mf_expert_store_release(mf_expert_store *store, uint32_t index);
/* Closes the fetch, waiting for outstanding reads (also after a failure; experts half read are
 * forgotten). */
void mf_expert_store_end(mf_expert_store *store);

/* Forgets every cached expert. No fetch may be open. */
void mf_expert_store_clear(mf_expert_store *store);

typedef struct mf_expert_stats {
    uint64_t n_hits, n_misses, n_reads, read_bytes, wait_us, reading_us;
} mf_expert_stats;

void mf_expert_store_stats(const mf_expert_store *store, mf_expert_stats *out);
void mf_expert_store_stats_reset(mf_expert_store *store);
uint64_t mf_expert_store_n_slots(const mf_expert_store *store);

/* Reads random experts with the same requests as fetches make, at most n_at_once experts in flight,
 * for about n_milliseconds, into the slots, which hold them afterwards; after a failed read the
 * slot is empty. The counters are untouched. No fetch may be open. Errors: MF_ERR_ARGUMENT, _STATE,
 * and those of a read. */
mf_status mf_expert_store_measure(mf_expert_store *store, uint32_t n_at_once,
                                  uint32_t n_milliseconds, double *bytes_per_second,
                                  mf_error *error);

#endif

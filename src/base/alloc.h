/* SPDX-License-Identifier: MIT */
/* Memory: the caller's allocator with the C library as default, large aligned regions, and a bump
 * arena over one block. */
#ifndef MF_BASE_ALLOC_H
#define MF_BASE_ALLOC_H

#include "base/status.h"

#include <stdbool.h>

/* The C library's malloc family. */
mf_allocator mf_allocator_default(void);
/* `given` if it is complete, else the default. */
mf_allocator mf_allocator_or_default(const mf_allocator *given);
/* The same of a caller's: MF_ERR_ARGUMENT where some of its functions are there and others are not,
 * as what it was to count or bound would be taken from the C library. */
mf_status mf_allocator_take(const mf_allocator *given, mf_allocator *out, mf_error *error);

void *mf_alloc(const mf_allocator *a, size_t n_bytes);
void *mf_alloc_zeroed(const mf_allocator *a, size_t n_bytes);
/* Checked n * size; NULL on overflow. Zeroed. */
void *mf_alloc_array(const mf_allocator *a, size_t n, size_t size);
void *mf_realloc(const mf_allocator *a, void *ptr, size_t old_bytes, size_t new_bytes);
/* Takes NULL. */
void mf_free(const mf_allocator *a, void *ptr, size_t n_bytes);

/* Blocks that carry their own size, for libraries that do not say it when they give memory back.
 * NULL: none, for all three. */
void *mf_block_alloc(const mf_allocator *a, size_t n_bytes);
void *mf_block_realloc(const mf_allocator *a, void *ptr, size_t n_bytes);
void mf_block_free(const mf_allocator *a, void *ptr);

/* Large memory that is touched lazily: anonymous pages, aligned to 2 MiB, huge pages advised. */
typedef struct mf_region {
    unsigned char *base;
    size_t n_bytes; /* usable, rounded up to the page size */
    void *mapping;  /* what was mapped or allocated */
    size_t n_mapped;
} mf_region;

/*
 * Region memory comes from the allocator where the caller gave one (so that a failing allocator is
 * felt here too), else from anonymous pages. Zero-filled.
 */
mf_status mf_region_create(const mf_allocator *a, size_t n_bytes, const char *what, mf_region *out,
                           mf_error *error);
void mf_region_free(const mf_allocator *a, mf_region *region);
/* Gives the memory of the whole pages within these bytes back to the system; whoever touches them
 * again finds anything there. False where the memory is the caller's allocator's: nothing was done.
 */
bool mf_region_discard(const mf_allocator *a, const mf_region *region, size_t offset,
                       size_t n_bytes);

/* Whether regions are the system's pages, not the caller's allocator's. */
bool mf_region_is_mapped(const mf_allocator *a);

/* A bump arena: one block, freed as a whole. */
typedef struct mf_arena {
    mf_allocator allocator;
    unsigned char *base;
    size_t n_bytes;
    size_t used_bytes;
} mf_arena;

mf_status mf_arena_create(const mf_allocator *a, size_t n_bytes, const char *what, mf_arena *out,
                          mf_error *error);
/* 64-byte aligned, zeroed; NULL when the arena is too small. */
void *mf_arena_take(mf_arena *arena, size_t n_bytes);
void mf_arena_free(mf_arena *arena);

#endif

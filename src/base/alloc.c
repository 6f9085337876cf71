/* SPDX-License-Identifier: MIT */
/* Allocators, lazily touched regions, arenas. */
#include "base/alloc.h"

#include "base/checked.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define REGION_ALIGN ((size_t)2 << 20)
#define ARENA_ALIGN ((size_t)64)

static void *default_alloc(void *ctx, size_t n_bytes)
{
    (void)ctx;
    return malloc(n_bytes);
}

static void *default_realloc(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    (void)ctx;
    (void)old_bytes;
    return realloc(ptr, new_bytes);
}

static void default_free(void *ctx, void *ptr, size_t n_bytes)
{
    (void)ctx;
    (void)n_bytes;
    free(ptr);
}

mf_allocator mf_allocator_default(void)
{
    return (mf_allocator){NULL, default_alloc, default_realloc, default_free};
}

mf_allocator mf_allocator_or_default(const mf_allocator *given)
{
    if (given != NULL && given->alloc != NULL && given->realloc != NULL && given->free != NULL)
        return *given;
    return mf_allocator_default();
}

mf_status mf_allocator_take(const mf_allocator *given, mf_allocator *out, mf_error *error)
{
    const int n = given == NULL
                      ? 0
                      : (given->alloc != NULL) + (given->realloc != NULL) + (given->free != NULL);
    if (n != 0 && n != 3)
        return mf_fail(
            error, MF_ERR_ARGUMENT,
            "mf_allocator: %s is NULL; expected alloc, realloc and free, or none of them",
            given->alloc == NULL     ? "alloc"
            : given->realloc == NULL ? "realloc"
                                     : "free");
    *out = mf_allocator_or_default(given);
    return MF_OK;
}

void *mf_alloc(const mf_allocator *a, size_t n_bytes)
{
    return a->alloc(a->ctx, n_bytes == 0 ? 1 : n_bytes);
}

void *mf_alloc_zeroed(const mf_allocator *a, size_t n_bytes)
{
    void *ptr = mf_alloc(a, n_bytes);
    if (ptr != NULL)
        memset(ptr, 0, n_bytes);
    return ptr;
}

void *mf_alloc_array(const mf_allocator *a, size_t n, size_t size)
{
    size_t n_bytes;
    if (!mf_mul_size(n, size, &n_bytes))
        return NULL;
    return mf_alloc_zeroed(a, n_bytes);
}

void *mf_realloc(const mf_allocator *a, void *ptr, size_t old_bytes, size_t new_bytes)
{
    if (ptr == NULL)
        return mf_alloc(a, new_bytes);
    return a->realloc(a->ctx, ptr, old_bytes == 0 ? 1 : old_bytes, new_bytes == 0 ? 1 : new_bytes);
}

void mf_free(const mf_allocator *a, void *ptr, size_t n_bytes)
{
    if (ptr != NULL)
        a->free(a->ctx, ptr, n_bytes == 0 ? 1 : n_bytes);
}

/* In front of a block: its size, and as much as keeps the block aligned for anything. */
typedef union block_header {
    size_t n_total;
    max_align_t align;
} block_header;

void *mf_block_alloc(const mf_allocator *a, size_t n_bytes)
{
    size_t n_total;
    if (!mf_add_size(n_bytes, sizeof(block_header), &n_total))
        return NULL;
    block_header *block = mf_alloc(a, n_total);
    if (block == NULL)
        return NULL;
    block->n_total = n_total;
    return block + 1;
}

void *mf_block_realloc(const mf_allocator *a, void *ptr, size_t n_bytes)
{
    size_t n_total;
    if (ptr == NULL)
        return mf_block_alloc(a, n_bytes);
    block_header *block = (block_header *)ptr - 1;
    if (!mf_add_size(n_bytes, sizeof *block, &n_total))
        return NULL;
    block = mf_realloc(a, block, block->n_total, n_total);
    if (block == NULL)
        return NULL;
    block->n_total = n_total;
    return block + 1;
}

void mf_block_free(const mf_allocator *a, void *ptr)
{
    if (ptr == NULL)
        return;
    block_header *block = (block_header *)ptr - 1;
    mf_free(a, block, block->n_total);
}

static bool is_default(const mf_allocator *a)
{
    return a->alloc == default_alloc;
}

mf_status mf_region_create(const mf_allocator *a, size_t n_bytes, const char *what, mf_region *out,
                           mf_error *error)
{
    size_t n_usable, n_mapped;
    if (!mf_add_size(n_bytes, REGION_ALIGN - 1, &n_usable) || n_bytes == 0)
        return mf_fail_memory(error, n_bytes, what);
    n_usable &= ~(REGION_ALIGN - 1);
    if (!mf_add_size(n_usable, REGION_ALIGN, &n_mapped))
        return mf_fail_memory(error, n_bytes, what);

    void *mapping;
    if (is_default(a)) {
        mapping = mmap(NULL, n_mapped, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapping == MAP_FAILED)
            return mf_fail_memory(error, n_bytes, what);
    } else {
        mapping = mf_alloc_zeroed(a, n_mapped);
        if (mapping == NULL)
            return mf_fail_memory(error, n_bytes, what);
    }
    unsigned char *base =
        (unsigned char *)(((uintptr_t)mapping + REGION_ALIGN - 1) & ~(uintptr_t)(REGION_ALIGN - 1));
    if (is_default(a))
        (void)madvise(base, n_usable, MADV_HUGEPAGE); /* only a hint: small pages work too */
    *out = (mf_region){base, n_usable, mapping, n_mapped};
    return MF_OK;
}

void mf_region_free(const mf_allocator *a, mf_region *region)
{
    if (region->mapping != NULL) {
        if (is_default(a))
            munmap(region->mapping, region->n_mapped);
        else
            mf_free(a, region->mapping, region->n_mapped);
    }
    *region = (mf_region){0};
}

bool mf_region_discard(const mf_allocator *a, const mf_region *region, size_t offset,
                       size_t n_bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t from = (size_t)mf_round_up(offset, page), to = (offset + n_bytes) / page * page;
    if (!is_default(a))
        return false;
    return from >= to || madvise(region->base + from, to - from, MADV_DONTNEED) == 0;
}

bool mf_region_is_mapped(const mf_allocator *a)
{
    return is_default(a);
}

mf_status mf_arena_create(const mf_allocator *a, size_t n_bytes, const char *what, mf_arena *out,
                          mf_error *error)
{
    size_t n_total;
    if (!mf_add_size(n_bytes, ARENA_ALIGN, &n_total))
        return mf_fail_memory(error, n_bytes, what);
    unsigned char *base = mf_alloc_zeroed(a, n_total);
    if (base == NULL)
        return mf_fail_memory(error, n_total, what);
    size_t skip = (size_t)(-(uintptr_t)base & (ARENA_ALIGN - 1));
    *out = (mf_arena){*a, base, n_total, skip};
    return MF_OK;
}

void *mf_arena_take(mf_arena *arena, size_t n_bytes)
{
    assert(arena->base != NULL);
    size_t rounded;
    if (!mf_add_size(n_bytes, ARENA_ALIGN - 1, &rounded))
        return NULL;
    rounded &= ~(ARENA_ALIGN - 1);
    size_t left = arena->n_bytes - arena->used_bytes;
    if (n_bytes > left)
        return NULL;
    void *ptr = arena->base + arena->used_bytes;
    arena->used_bytes += rounded < left ? rounded : left;
    return ptr;
}

void mf_arena_free(mf_arena *arena)
{
    if (arena->base != NULL)
        mf_free(&arena->allocator, arena->base, arena->n_bytes);
    *arena = (mf_arena){0};
}

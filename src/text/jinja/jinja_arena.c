/* SPDX-License-Identifier: MIT */
/* Chunks of memory. */
#include "text/jinja/jinja_arena.h"

#include "base/checked.h"

#define CHUNK_BYTES ((size_t)32 << 10)
#define ALIGN ((size_t)16)

typedef struct mf_jchunk {
    struct mf_jchunk *next;
    size_t n_bytes; /* this header included */
} mf_jchunk;

_Static_assert(sizeof(mf_jchunk) % ALIGN == 0, "what follows a header is aligned");

static size_t rounded(size_t n_bytes)
{
    return (n_bytes + ALIGN - 1) & ~(ALIGN - 1);
}

void mf_jarena_init(mf_jarena *arena, const mf_allocator *a, size_t max_bytes)
{
    *arena = (mf_jarena){.allocator = *a, .max_bytes = max_bytes};
}

void mf_jarena_free(mf_jarena *arena)
{
    while (arena->chunks != NULL) {
        mf_jchunk *chunk = arena->chunks;
        arena->chunks = chunk->next;
        mf_free(&arena->allocator, chunk, chunk->n_bytes);
    }
    *arena = (mf_jarena){.allocator = arena->allocator, .max_bytes = arena->max_bytes};
}

static bool add_chunk(mf_jarena *arena, size_t n_wanted)
{
    size_t n_bytes = n_wanted + sizeof(mf_jchunk);
    /* Larger ones as there is more, so that their number stays small. */
    size_t n_usual = arena->n_bytes / 4 > CHUNK_BYTES ? arena->n_bytes / 4 : CHUNK_BYTES;
    if (n_bytes < n_usual)
        n_bytes = rounded(n_usual);
    if (n_bytes > arena->max_bytes - arena->n_bytes)
        n_bytes = n_wanted + sizeof(mf_jchunk);
    if (n_bytes > arena->max_bytes - arena->n_bytes) {
        arena->is_over = true;
        return false;
    }
    mf_jchunk *chunk = mf_alloc(&arena->allocator, n_bytes);
    if (chunk == NULL)
        return false;
    *chunk = (mf_jchunk){arena->chunks, n_bytes};
    arena->chunks = chunk;
    arena->at = (unsigned char *)(chunk + 1);
    arena->end = (unsigned char *)chunk + n_bytes;
    arena->n_bytes += n_bytes;
    return true;
}

void *mf_jarena_take(mf_jarena *arena, size_t n_bytes)
{
    if (n_bytes > arena->max_bytes) {
        arena->is_over = true;
        return NULL;
    }
    size_t n = rounded(n_bytes == 0 ? 1 : n_bytes);
    if ((size_t)(arena->end - arena->at) < n && !add_chunk(arena, n))
        return NULL;
    void *block = arena->at;
    arena->at += n;
    return block;
}

bool mf_jarena_extend(mf_jarena *arena, const void *block, size_t old_bytes, size_t new_bytes)
{
    size_t n_old = rounded(old_bytes == 0 ? 1 : old_bytes);
    if (new_bytes > arena->max_bytes || (const unsigned char *)block + n_old != arena->at)
        return false;
    size_t n_new = rounded(new_bytes);
    if (n_new > n_old && (size_t)(arena->end - arena->at) < n_new - n_old)
        return false;
    if (n_new > n_old)
        arena->at += n_new - n_old;
    return true;
}

/* SPDX-License-Identifier: MIT */
/* The memory of a template or of one run of it: chunks, given back together, with a limit. */
#ifndef MF_TEXT_JINJA_ARENA_H
#define MF_TEXT_JINJA_ARENA_H

#include "base/alloc.h"

#include <string.h>

typedef struct mf_jarena {
    mf_allocator allocator;
    struct mf_jchunk *chunks; /* the last one first */
    unsigned char *at, *end;  /* what is left of it */
    size_t n_bytes, max_bytes;
    bool is_over; /* the limit, not the allocator, said no */
} mf_jarena;

void mf_jarena_init(mf_jarena *arena, const mf_allocator *a, size_t max_bytes);
void mf_jarena_free(mf_jarena *arena);
/* 16-byte aligned; NULL: no memory, or the limit. */
void *mf_jarena_take(mf_jarena *arena, size_t n_bytes);
/* Makes the block that was taken last larger where it is; false: not possible. */
bool mf_jarena_extend(mf_jarena *arena, const void *block, size_t old_bytes, size_t new_bytes);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The pool of an engine's per-sequence state: units of few sizes (pages of the caches, recurrent
 * states), counted by reference. Units are cut from slabs of backend memory, which are taken as
 * they are needed. What was ever written in them counts against the limit, which is promised
 * memory; it stays when nothing uses it, for clearing new memory takes longer than filling it, and
 * is given back when the other kind of unit needs the room. A unit's bytes are its holders'
 * business: the pool neither reads nor writes them. One thread at a time (the engine's state lock).
 */
#ifndef MF_SESSION_STATE_POOL_H
#define MF_SESSION_STATE_POOL_H

#include "backend/backend.h"
#include "model/plan.h"

/* Names a unit of its kind; 0 is none. */
typedef uint32_t mf_unit;

#define MF_UNIT_UNTOUCHED UINT32_MAX

typedef struct mf_state_slab {
    mf_buffer buffer;   /* id 0: this entry is free */
    uint32_t *refs;     /* [units_per_slab]; MF_UNIT_UNTOUCHED: the unit has no memory */
    uint32_t n_used;    /* with references */
    uint32_t n_touched; /* with memory: used or left behind */
} mf_state_slab;

typedef struct mf_state_units {
    uint64_t unit_bytes;
    uint32_t units_per_slab;
    uint32_t n_used;
    mf_state_slab slabs[MF_STATE_SLABS];
} mf_state_units;

typedef struct mf_state_pool {
    mf_allocator allocator;
    mf_backend *backend;
    uint64_t limit_bytes, touched_bytes;
    mf_state_units kinds[MF_N_UNIT_KINDS];
} mf_state_pool;

/* Takes no memory yet. */
void mf_state_pool_init(mf_state_pool *pool, const mf_allocator *a, mf_backend *backend,
                        const uint64_t unit_bytes[MF_N_UNIT_KINDS], uint64_t limit_bytes);
/* All units must have been dropped. */
void mf_state_pool_free(mf_state_pool *pool);

/* A unit with one reference and any content. Errors: MF_ERR_BUDGET (the limit is reached),
 * MF_ERR_NO_MEMORY. */
mf_status mf_unit_take(mf_state_pool *pool, mf_unit_kind kind, mf_unit *out, mf_error *error);
void mf_unit_hold(mf_state_pool *pool, mf_unit_kind kind, mf_unit unit);
/* Takes 0. */
void mf_unit_drop(mf_state_pool *pool, mf_unit_kind kind, mf_unit unit);
uint32_t mf_unit_refs(const mf_state_pool *pool, mf_unit_kind kind, mf_unit unit);
/* {0} for unit 0. Stays the same as long as the unit is held. */
mf_span mf_unit_span(const mf_state_pool *pool, mf_unit_kind kind, mf_unit unit);

#endif

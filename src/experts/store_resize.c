/* SPDX-License-Identifier: MIT */
/*
 * A pool of slots that shrinks and grows. The slots in force are those below n_active; beyond them
 * none is taken, and what they hold leaves as soon as nobody uses it: it moves to a slot in force
 * where that holds something worth less, else it is forgotten, and the slot's memory goes back to
 * the system. So what is given back lies together, at the end. How many slots there are to be may
 * be said by any thread; it is done by whoever has the turn.
 */
#include "experts/store_impl.h"

#include <string.h>

/* Slots emptied before whoever computes goes on. */
#define SLOTS_AT_ONCE 16u

void mf_expert_store_want_slots(mf_expert_store *store, uint64_t n)
{
    if (n < store->n_least)
        n = store->n_least;
    atomic_store(&store->n_wanted, n < store->n_slots ? (uint32_t)n : store->n_slots);
}

void mf_expert_slot_give_back(mf_expert_store *store, uint32_t slot)
{
    const mf_slot_memory *memory = &store->memory;
    if (memory->discard != NULL)
        (void)memory->discard(memory->ctx, store->slot_at[slot],
                              mf_expert_slot_bytes_of(store, slot));
}

void mf_expert_store_forget(mf_expert_store *store, uint32_t layer)
{
    const uint32_t *slot_of = store->slot_of + mf_expert_key(store, layer, 0);
    for (uint32_t e = 0; e < store->map.n_experts; e++)
        if (slot_of[e] != MF_NONE && mf_expert_slot_evictable(store, slot_of[e]))
            mf_expert_slot_empty(store, slot_of[e]);
}

typedef struct rivals {
    mf_expert_store *store;
    uint32_t number; /* and all that are in force, for its expert's size */
    uint32_t size;
} rivals;

static bool is_rival(void *ctx, uint32_t slot)
{
    const rivals *r = ctx;
    const bool is_in_force = slot < atomic_load(&r->store->n_active);
    return (slot == r->number || (is_in_force && mf_expert_slot_fits(r->store, r->size, slot))) &&
           mf_expert_slot_evictable(r->store, slot);
}

/* A slot in force that holds what is worth less than the slot's expert; MF_NONE: none does. */
static uint32_t find_worse(mf_expert_store *store, uint32_t number)
{
    const uint32_t key = store->slots[number].key, n = store->map.n_experts;
    rivals all = {store, number, mf_expert_size_of(store, key)};
    const mf_cache_request request = {MF_CACHE_MEASURE, key / n, key % n, all.size,
                                      is_rival,         NULL,    &all};
    const uint32_t victim = store->policy->victim(store->policy_state, &request);
    return victim < atomic_load(&store->n_active) ? victim : MF_NONE;
}

/* The expert moves to the slot that holds something worth less. */
static void move(mf_expert_store *store, uint32_t from, uint32_t to)
{
    const mf_expert_slot moved = store->slots[from];
    unsigned char *host = store->memory.host;
    mf_expert_slot_empty(store, to);
    mf_expert_slot_take_empty(store, to);
    const uint64_t n_from = mf_expert_slot_bytes_of(store, from);
    const uint64_t n_to = mf_expert_slot_bytes_of(store, to);
    memcpy(host + store->slot_at[to], host + store->slot_at[from], n_from < n_to ? n_from : n_to);
    mf_expert_note(store, MF_CACHE_EMPTY, moved.key, from);
    const uint32_t size = mf_expert_size_of(store, moved.key);
    store->n_guests -= store->slot_size[from] != size;
    store->n_guests += store->slot_size[to] != size;
    store->slots[to] = moved;
    store->slot_of[moved.key] = to;
    store->versions[moved.key / store->map.n_experts]++;
    mf_expert_note(store, MF_CACHE_MEASURE, moved.key, to);
    store->slots[from] = (mf_expert_slot){.load = MF_NONE};
    mf_expert_slot_give_back(store, from);
}

/* False: it is in use. */
static bool retire(mf_expert_store *store, uint32_t number)
{
    if (store->slots[number].state == MF_SLOT_EMPTY)
        return true;
    if (!mf_expert_slot_evictable(store, number))
        return false;
    const uint32_t worse = store->memory.host != NULL ? find_worse(store, number) : MF_NONE;
    if (worse != MF_NONE)
        move(store, number, worse);
    else
        mf_expert_slot_empty(store, number);
    return true;
}

/* From the end of the pool: false if there is more to be done later. */
static bool retire_some(mf_expert_store *store)
{
    const uint32_t n_active = atomic_load(&store->n_active);
    uint32_t n_left = SLOTS_AT_ONCE;
    bool are_all = true;
    for (uint32_t i = store->n_held; i > n_active && n_left > 0; i--) {
        const bool was_empty = store->slots[i - 1].state == MF_SLOT_EMPTY;
        are_all &= retire(store, i - 1);
        store->n_held = are_all ? i - 1 : store->n_held;
        n_left -= !was_empty;
    }
    return store->n_held <= n_active;
}

/* Nothing is taken that would stay empty. */
static void grow(mf_expert_store *store, uint32_t n_wanted)
{
    const uint32_t n_active = atomic_load(&store->n_active);
    if (store->n_empty > 0 || store->n_held > n_active)
        return;
    for (uint32_t i = n_wanted; i > n_active; i--)
        mf_expert_slot_put_empty(store, i - 1);
    atomic_store(&store->n_active, n_wanted);
    mf_expert_slots_recount(store);
    store->n_held = n_wanted;
}

bool mf_expert_store_resize(mf_expert_store *store)
{
    const uint32_t n_wanted = atomic_load(&store->n_wanted);
    const uint32_t n_active = atomic_load(&store->n_active);
    if (store->is_broken || (n_wanted == n_active && store->n_held <= n_active))
        return true;
    if (n_wanted < n_active) {
        atomic_store(&store->n_active, n_wanted);
        mf_expert_slots_recount(store);
    } else if (n_wanted > n_active) {
        grow(store, n_wanted);
    }
    return retire_some(store);
}

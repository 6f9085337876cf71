/* SPDX-License-Identifier: MIT */
/*
 * What other threads may see of the store while one works with it: for each expert a byte that says
 * where it is, and a count of how often it was asked for. The thread that works writes them beside
 * what it changes, one relaxed store each; nobody waits for anybody, and no two of them are
 * promised to be of one moment.
 */
#include "experts/store_impl.h"

static bool is_below(const mf_expert_store *store, uint32_t key)
{
    const uint32_t place = store->n_places == 0 ? MF_NONE : store->place_of[key];
    return place != MF_NONE && store->places[place].state == MF_PLACE_HELD;
}

static mf_expert_state state_of(const mf_expert_store *store, uint32_t key)
{
    if (store->slot_of[key] == MF_NONE)
        return is_below(store, key) ? MF_EXPERT_BELOW : MF_EXPERT_ABSENT;
    const mf_expert_slot *slot = &store->slots[store->slot_of[key]];
    if (slot->state == MF_SLOT_HELD)
        return MF_EXPERT_HELD;
    if (slot->load != MF_NONE && store->loads[slot->load].state == MF_LOAD_READING)
        return MF_EXPERT_READING;
    return MF_EXPERT_QUEUED;
}

void mf_expert_show(mf_expert_store *store, uint32_t key)
{
    atomic_store_explicit(&store->shown[key], (unsigned char)state_of(store, key),
                          memory_order_relaxed);
}

void mf_expert_store_count_use(mf_expert_store *store, uint32_t layer, uint32_t expert)
{
    atomic_uint *n = &store->n_asked[mf_expert_key(store, layer, expert)];
    if (store->is_uncounted)
        return;
    /* Nobody else writes. */
    atomic_store_explicit(n, atomic_load_explicit(n, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

void mf_expert_store_look(const mf_expert_store *store, uint32_t layer, uint8_t *states,
                          uint32_t *n_asked, size_t capacity)
{
    const uint32_t first = mf_expert_key(store, layer, 0);
    for (uint32_t e = 0; e < store->map.n_experts && e < capacity; e++) {
        if (states != NULL)
            states[e] = atomic_load_explicit(&store->shown[first + e], memory_order_relaxed);
        if (n_asked != NULL)
            n_asked[e] = atomic_load_explicit(&store->n_asked[first + e], memory_order_relaxed);
    }
}

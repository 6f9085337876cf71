/* SPDX-License-Identifier: MIT */
/* Least recently used: the slots that hold an expert, in a ring from oldest to newest. */
#include "experts/cache_policy.h"

/* Entry i is slot i; the last entry, n_slots, is the ring's anchor: its next is the oldest. A slot
 * outside the ring points to itself. */
typedef struct lru_link {
    uint32_t before, after;
} lru_link;

typedef struct lru {
    uint32_t n_slots;
    lru_link links[];
} lru;

static size_t lru_bytes(const mf_cache_shape *shape)
{
    return sizeof(lru) + ((size_t)shape->n_slots + 1) * sizeof(lru_link);
}

static void lru_init(void *state, const mf_cache_shape *shape)
{
    lru *l = state;
    l->n_slots = shape->n_slots;
    for (uint32_t i = 0; i <= shape->n_slots; i++)
        l->links[i] = (lru_link){i, i};
}

static void lru_forget(void *state, uint32_t slot)
{
    lru_link *links = ((lru *)state)->links;
    links[links[slot].before].after = links[slot].after;
    links[links[slot].after].before = links[slot].before;
    links[slot] = (lru_link){slot, slot};
}

static void lru_touch(void *state, uint32_t slot)
{
    lru *l = state;
    lru_forget(state, slot);
    const uint32_t anchor = l->n_slots, newest = l->links[anchor].before;
    l->links[slot] = (lru_link){newest, anchor};
    l->links[newest].after = slot;
    l->links[anchor].before = slot;
}

static void lru_visit(void *state, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    (void)state, (void)layer, (void)experts, (void)n;
}

static void lru_note(void *state, const mf_cache_event *event)
{
    if (event->why == MF_CACHE_EMPTY)
        lru_forget(state, event->slot);
    else if (event->why != MF_CACHE_RELEASE)
        lru_touch(state, event->slot);
}

static uint32_t lru_victim(void *state, const mf_cache_request *request)
{
    const lru *l = state;
    for (uint32_t slot = l->links[l->n_slots].after; slot != l->n_slots;
         slot = l->links[slot].after) {
        if (request->is_evictable(request->ctx, slot))
            return slot;
    }
    return UINT32_MAX;
}

const mf_cache_policy mf_cache_policy_lru = {"lru",    lru_bytes,  lru_init, lru_visit,
                                             lru_note, lru_victim, NULL};

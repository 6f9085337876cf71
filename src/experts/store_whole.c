/* SPDX-License-Identifier: MIT */
/* Which slots hold a layer's experts, for devices that find them by a table; and a store with a
 * slot for every expert: all are read once, and stay where they are. */
#include "experts/store_impl.h"

#include <string.h>

/* Experts of a fetch, and fetches that are open, so that the drive never waits for the next. */
#define EXPERTS_AT_ONCE 32u
#define FETCHES_AT_ONCE 4u

static bool is_whole(const mf_expert_store *store)
{
    return mf_expert_store_n_slots(store) >= (uint64_t)store->map.n_layers * store->map.n_experts;
}

uint64_t mf_expert_store_unit_bytes(const mf_expert_store *store)
{
    return store->sizes.n == 1 ? store->slot_bytes : MF_IO_ALIGN;
}

uint64_t mf_expert_store_n_units(const mf_expert_store *store)
{
    return store->slot_at[mf_expert_store_n_slots(store)] / mf_expert_store_unit_bytes(store);
}

static uint32_t unit_of(const mf_expert_store *store, uint32_t slot)
{
    return (uint32_t)(store->slot_at[slot] / mf_expert_store_unit_bytes(store));
}

bool mf_expert_store_layer(const mf_expert_store *store, uint32_t layer, uint32_t *slots,
                           uint32_t part_at[MF_MAX_EXPERT_PARTS])
{
    const uint32_t *slot_of = store->slot_of + mf_expert_key(store, layer, 0);
    const size_t n_bytes = store->map.n_parts * sizeof *part_at;
    for (uint32_t e = 0; e < store->map.n_experts && is_whole(store); e++) {
        const mf_expert_slot *slot = slot_of[e] != MF_NONE ? &store->slots[slot_of[e]] : NULL;
        if (slot == NULL || slot->state != MF_SLOT_HELD)
            return false;
        if (e == 0)
            memcpy(part_at, slot->part_at, n_bytes);
        if (memcmp(part_at, slot->part_at, n_bytes) != 0)
            return false;
        slots[e] = unit_of(store, slot_of[e]);
    }
    return is_whole(store);
}

void mf_expert_store_held(const mf_expert_store *store, uint32_t layer, uint32_t *slots,
                          uint32_t part_at[MF_MAX_EXPERT_PARTS])
{
    const uint32_t *slot_of = store->slot_of + mf_expert_key(store, layer, 0);
    const size_t n_bytes = store->map.n_parts * sizeof *part_at;
    bool is_first = true;
    memset(part_at, 0, n_bytes);
    for (uint32_t e = 0; e < store->map.n_experts; e++) {
        const mf_expert_slot *slot = slot_of[e] != MF_NONE ? &store->slots[slot_of[e]] : NULL;
        slots[e] = MF_NONE;
        if (slot == NULL || slot->state != MF_SLOT_HELD)
            continue;
        if (is_first)
            memcpy(part_at, slot->part_at, n_bytes);
        is_first = false;
        if (memcmp(part_at, slot->part_at, n_bytes) == 0)
            slots[e] = unit_of(store, slot_of[e]);
    }
}

uint64_t mf_expert_store_version(const mf_expert_store *store, uint32_t layer)
{
    return store->versions[layer];
}

void mf_expert_store_keep(mf_expert_store *store, uint32_t first, uint32_t n)
{
    store->first_kept = first;
    store->n_kept = n;
}

uint64_t mf_expert_store_n_given_up(const mf_expert_store *store)
{
    return store->n_given_up;
}

void mf_expert_store_count_hits(mf_expert_store *store, uint64_t n)
{
    mf_expert_count(store, &store->stats.n_hits, n);
}

static mf_status begin(mf_expert_store *store, uint64_t first, mf_expert_fetch **out,
                       mf_error *error)
{
    const uint32_t n_experts = store->map.n_experts, from = (uint32_t)(first % n_experts);
    uint32_t experts[EXPERTS_AT_ONCE], n = 0;
    while (n < EXPERTS_AT_ONCE && from + n < n_experts) {
        experts[n] = from + n;
        n++;
    }
    return mf_expert_fetch_begin(store, (uint32_t)(first / n_experts), experts, n, out, error);
}

static mf_status take_all(mf_expert_fetch *fetch, mf_error *error)
{
    mf_expert_ready ready[EXPERTS_AT_ONCE];
    mf_status status = MF_OK;
    for (uint32_t n = 1; n != 0 && status == MF_OK;)
        status = mf_expert_fetch_next(fetch, ready, EXPERTS_AT_ONCE, &n, error);
    mf_expert_fetch_end(fetch, 0);
    return status;
}

/* The first expert of the next fetch: they do not go beyond a layer. */
static uint64_t next_first(const mf_expert_store *store, uint64_t first)
{
    const uint64_t n = store->map.n_experts, end = (first / n + 1) * n;
    return first + EXPERTS_AT_ONCE < end ? first + EXPERTS_AT_ONCE : end;
}

static mf_status fill(mf_expert_store *store, mf_error *error)
{
    const uint64_t n_keys = (uint64_t)store->map.n_layers * store->map.n_experts;
    mf_expert_fetch *open[FETCHES_AT_ONCE];
    uint32_t head = 0, n_open = 0;
    mf_status status = MF_OK;
    for (uint64_t next = 0; n_open != 0 || (next < n_keys && status == MF_OK);) {
        if (next < n_keys && status == MF_OK && n_open < FETCHES_AT_ONCE) {
            status = begin(store, next, &open[(head + n_open) % FETCHES_AT_ONCE], error);
            n_open += status == MF_OK;
            next = next_first(store, next);
            continue;
        }
        const mf_status taken = take_all(open[head], status == MF_OK ? error : NULL);
        status = status == MF_OK ? taken : status;
        head = (head + 1) % FETCHES_AT_ONCE;
        n_open--;
    }
    return status;
}

mf_status mf_expert_store_fill(mf_expert_store *store, mf_error *error)
{
    if (!is_whole(store))
        return MF_OK;
    store->is_uncounted = true;
    const mf_status status = fill(store, error);
    store->is_uncounted = false;
    return status;
}

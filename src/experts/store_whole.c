/* SPDX-License-Identifier: MIT */
/* Which slots hold a layer's experts, for devices that find them by a table; and a store with a
 * slot for every expert: all are read once, and stay where they are. */
#include "experts/store_impl.h"

#include <string.h>

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

mf_status mf_expert_store_fill(mf_expert_store *store, mf_error *error)
{
    if (!is_whole(store))
        return MF_OK;
    store->is_uncounted = true;
    const mf_status status = mf_expert_store_each(store, 0, store->map.n_layers, NULL, NULL, error);
    store->is_uncounted = false;
    return status;
}

/* SPDX-License-Identifier: MIT */
/*
 * Foresight: experts that will be wanted, in the order they were named. A hint gets a slot only
 * when no demand waits for one, an empty one or one whose expert is expected later; it is sent only
 * when its drive has no demand to read. Until then it is given up at the first need.
 */
#include "experts/store_impl.h"

static void add_hint(mf_expert_store *store, mf_expert_hint hint)
{
    if (store->n_hints == MF_EXPERT_HINTS) {
        store->hints_head = (store->hints_head + 1) % MF_EXPERT_HINTS;
        store->n_hints--;
    }
    store->hints[(store->hints_head + store->n_hints++) % MF_EXPERT_HINTS] = hint;
}

static void add_hints(mf_expert_store *store, uint32_t layer, const uint32_t *experts, uint32_t n,
                      bool are_sure)
{
    if (layer >= store->map.n_layers)
        return;
    for (uint32_t i = 0; i < n; i++) {
        if (experts[i] < store->map.n_experts)
            add_hint(store, (mf_expert_hint){mf_expert_key(store, layer, experts[i]), are_sure});
    }
    mf_expert_store_poll(store);
}

void mf_expert_store_hint(mf_expert_store *store, uint32_t layer, const uint32_t *experts,
                          uint32_t n)
{
    add_hints(store, layer, experts, n, false);
}

void mf_expert_store_expect(mf_expert_store *store, uint32_t layer, const uint32_t *experts,
                            uint32_t n)
{
    add_hints(store, layer, experts, n, true);
}

/* Whether there is a load for one more that is foreseen. */
static bool is_load_left(mf_expert_store *store, mf_expert_hint hint)
{
    return store->n_foreseen < (hint.is_sure ? MF_EXPERT_SURE_LOADS : MF_EXPERT_HINT_LOADS) &&
           mf_expert_load_find(store, MF_CACHE_HINT, hint.key);
}

/* False if the hint has to wait. */
static bool serve_hint(mf_expert_store *store, mf_expert_hint hint)
{
    const uint32_t key = hint.key;
    uint32_t slot = store->slot_of[key];
    if (slot != MF_NONE) {
        mf_expert_note(store, MF_CACHE_HINT, key, slot);
        return true;
    }
    const uint32_t place = mf_expert_place_with(store, MF_CACHE_HINT, key);
    if (place == MF_NONE && !is_load_left(store, hint))
        return false;
    slot = mf_expert_slot_take(store, MF_CACHE_HINT, key);
    if (slot == MF_NONE)
        return false;
    mf_profile_requests *requests = mf_expert_profile_of(store, key);
    mf_expert_count(store, &store->stats.n_hints, 1);
    if (requests != NULL)
        requests->n_hints++;
    if (place == MF_NONE)
        mf_expert_load_start(store, slot, false)->is_sure = hint.is_sure;
    else
        (void)mf_expert_load_from(store, place, slot, NULL); /* else who asks for it is told */
    return true;
}

void mf_expert_hints_serve(mf_expert_store *store)
{
    while (store->n_hints > 0 && serve_hint(store, store->hints[store->hints_head])) {
        store->hints_head = (store->hints_head + 1) % MF_EXPERT_HINTS;
        store->n_hints--;
    }
}

static bool is_of(const mf_expert_store *store, uint32_t key, uint32_t layer)
{
    return layer == MF_NONE || key / store->map.n_experts == layer;
}

void mf_expert_hints_drop(mf_expert_store *store, uint32_t layer)
{
    uint32_t n_kept = 0;
    for (uint32_t i = 0; i < store->n_hints; i++) {
        const mf_expert_hint hint = store->hints[(store->hints_head + i) % MF_EXPERT_HINTS];
        if (!is_of(store, hint.key, layer))
            store->hints[(store->hints_head + n_kept++) % MF_EXPERT_HINTS] = hint;
    }
    store->n_hints = n_kept;
    uint32_t before;
    for (uint32_t i = store->foreseen.last; i != MF_NONE; i = before) {
        mf_expert_load *load = &store->loads[i];
        before = load->before;
        if (load->is_warm || !is_of(store, store->slots[load->slot].key, layer))
            continue;
        if (load->state == MF_LOAD_QUEUED)
            mf_expert_load_cancel(store, load);
        else
            mf_expert_load_abandon(store, load);
    }
}

void mf_expert_store_cancel_hints(mf_expert_store *store)
{
    mf_expert_hints_drop(store, MF_NONE);
}

void mf_expert_store_cancel_hints_of(mf_expert_store *store, uint32_t layer)
{
    mf_expert_hints_drop(store, layer);
}

void mf_expert_store_warm(mf_expert_store *store, const float *shares, const uint32_t *keys,
                          uint32_t n)
{
    const uint32_t n_experts = store->map.n_experts;
    for (uint32_t i = 0; i < store->map.n_layers && shares != NULL; i++) {
        const float *of = shares + (size_t)i * n_experts;
        if (store->policy->prime != NULL)
            store->policy->prime(store->policy_state, i, of);
        if (store->policy->prime != NULL && store->n_places > 0)
            store->policy->prime(store->place_policy, i, of);
    }
    store->warm = keys;
    store->n_warm = n;
    store->next_warm = 0;
    mf_expert_store_poll(store);
}

/* Nothing makes room for it. */
void mf_expert_warm_serve(mf_expert_store *store)
{
    while (store->next_warm < store->n_warm && store->n_empty > 0 && store->n_hints == 0 &&
           store->n_foreseen < MF_EXPERT_WARM_LOADS) {
        const uint32_t key = store->warm[store->next_warm];
        const uint32_t size = mf_expert_size_of(store, key);
        if (store->slot_of[key] == MF_NONE && mf_expert_slot_find_empty(store, size) != MF_NONE) {
            if (!mf_expert_load_find(store, MF_CACHE_HINT, key))
                return;
            const uint32_t slot = mf_expert_slot_take(store, MF_CACHE_HINT, key);
            if (slot == MF_NONE)
                return;
            store->slots[slot].is_hinted = false; /* nobody is judged by it */
            mf_expert_load_start(store, slot, false)->is_warm = true;
        }
        store->next_warm++;
    }
    if (store->n_empty == 0)
        store->next_warm = store->n_warm; /* what is held by now is wanted more */
}

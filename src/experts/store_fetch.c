/* SPDX-License-Identifier: MIT */
/*
 * Fetches: demand for some experts of one layer. An item goes WAITING (for a slot) -> LOADING ->
 * READY -> HANDED_OUT -> RELEASED; one whose expert is held starts at READY. From LOADING to
 * RELEASED it is a user of its slot. Items of several fetches may use the same slot and wait for
 * the same load.
 *
 * Who is waited for goes first: slots are given to its items before the other fetches', and where
 * none is left, what is ready for other fetches and was not handed out goes back to WAITING. So one
 * fetch can always be brought to its end as long as slots that were handed out are released.
 */
#include "experts/store_impl.h"

#include "base/clock.h"

#include <assert.h>

/* ---------------------------------------------------------------------------------- items -- */

static mf_expert_fetch *fetch_of(mf_expert_store *store, uint32_t item)
{
    return &store->fetches[item / store->map.n_experts];
}

static void make_ready(mf_expert_fetch *f, uint32_t index)
{
    f->items[index].state = MF_ITEM_READY;
    f->ready[f->ready_end++] = index;
}

/* The item becomes a user of the slot that holds its expert or will. */
static void attach(mf_expert_fetch *f, uint32_t index, uint32_t number)
{
    mf_expert_store *store = f->store;
    mf_fetch_item *item = &f->items[index];
    mf_expert_slot *slot = &store->slots[number];
    item->slot = number;
    mf_expert_slot_use(store, number);
    if (slot->state == MF_SLOT_HELD) {
        make_ready(f, index);
        return;
    }
    mf_expert_load *load = &store->loads[slot->load];
    mf_expert_load_adopt(store, load);
    item->state = MF_ITEM_LOADING;
    item->next = load->first_item;
    load->first_item = f->first_item + index;
    f->n_loading++;
}

void mf_expert_fetch_loaded(mf_expert_store *store, mf_expert_load *load, const mf_error *error)
{
    uint32_t next;
    for (uint32_t i = load->first_item; i != MF_NONE; i = next) {
        mf_expert_fetch *f = fetch_of(store, i);
        mf_fetch_item *item = &store->items[i];
        next = item->next;
        f->n_loading--;
        if (load->failure == MF_OK) {
            make_ready(f, i - f->first_item);
            continue;
        }
        item->state = MF_ITEM_RELEASED;
        mf_expert_slot_unuse(store, item->slot, 0);
        if (f->failure == MF_OK) {
            f->failure = load->failure;
            f->failure_error = *error;
        }
    }
    load->first_item = MF_NONE;
}

/* An item that waits for a load does so no longer. */
static void leave_load(mf_expert_fetch *f, uint32_t index)
{
    mf_expert_store *store = f->store;
    mf_fetch_item *item = &f->items[index];
    mf_expert_load *load = &store->loads[store->slots[item->slot].load];
    uint32_t *link = &load->first_item;
    while (*link != f->first_item + index)
        link = &store->items[*link].next;
    *link = item->next;
    f->n_loading--;
    mf_expert_slot_unuse(store, item->slot, 0);
    if (load->first_item == MF_NONE && load->state == MF_LOAD_QUEUED)
        mf_expert_load_cancel(store, load);
}

/* ---------------------------------------------------------------------------------- slots -- */

/* A slot for an expert that is to be read; MF_NONE if there is no slot or no load for it now. */
static uint32_t read_to_slot(mf_expert_store *store, uint32_t key)
{
    if (!mf_expert_load_find(store, MF_CACHE_MISS, key)) {
        mf_expert_load *foreseen = mf_expert_load_last_foreseen(store, MF_NONE);
        if (foreseen == NULL)
            return MF_NONE;
        mf_expert_load_cancel(store, foreseen); /* its place is free then, too */
    }
    const uint32_t slot = mf_expert_slot_take(store, MF_CACHE_MISS, key);
    store->lacks_slots = slot == MF_NONE;
    if (slot != MF_NONE)
        (void)mf_expert_load_start(store, slot, true);
    return slot;
}

/* A slot for an expert that a place holds; MF_NONE if there is none now, or the upload failed. */
static uint32_t upload_to_slot(mf_expert_fetch *f, uint32_t place, uint32_t key)
{
    mf_expert_store *store = f->store;
    const uint32_t slot = mf_expert_slot_take(store, MF_CACHE_MISS, key);
    if (slot == MF_NONE)
        return MF_NONE;
    f->failure = mf_expert_load_from(store, place, slot, &f->failure_error);
    mf_expert_count(store, &store->stats.n_place_hits, f->failure == MF_OK);
    return f->failure == MF_OK ? slot : MF_NONE;
}

/* Makes the item's expert come; false if there is no slot or no load for it now. */
static bool serve_item(mf_expert_fetch *f, uint32_t index)
{
    mf_expert_store *store = f->store;
    uint32_t key = mf_expert_key(store, f->layer, f->items[index].expert);
    uint32_t slot = store->slot_of[key];
    if (slot == MF_NONE) {
        const uint32_t place = mf_expert_place_with(store, MF_CACHE_HIT, key);
        slot = place != MF_NONE ? upload_to_slot(f, place, key) : read_to_slot(store, key);
        if (slot == MF_NONE)
            return false;
    }
    attach(f, index, slot);
    return true;
}

/* False if an item had to be left waiting. */
static bool serve_fetch(mf_expert_fetch *f)
{
    for (; f->first_waiting < f->n_items && f->failure == MF_OK; f->first_waiting++) {
        if (f->items[f->first_waiting].state == MF_ITEM_WAITING && !serve_item(f, f->first_waiting))
            return false;
    }
    return true;
}

void mf_expert_store_advance(mf_expert_store *store, mf_expert_fetch *first)
{
    if (store->is_broken)
        return;
    store->lacks_slots = false;
    bool is_served = first == NULL || serve_fetch(first);
    for (uint32_t i = 0; i < store->n_open && is_served; i++)
        is_served = serve_fetch(store->open[i]);
    if (is_served)
        mf_expert_hints_serve(store);
    if (is_served)
        mf_expert_warm_serve(store);
    mf_expert_loads_send(store);
}

/* The newest ready item of another fetch that was not handed out goes back to waiting. */
static bool take_back(mf_expert_fetch *f)
{
    mf_expert_store *store = f->store;
    for (uint32_t i = store->n_open; i-- > 0;) {
        mf_expert_fetch *other = store->open[i];
        if (other == f || other->ready_head == other->ready_end)
            continue;
        uint32_t index = other->ready[--other->ready_end];
        other->items[index].state = MF_ITEM_WAITING;
        mf_expert_slot_unuse(store, other->items[index].slot, 0);
        if (index < other->first_waiting)
            other->first_waiting = index;
        return true;
    }
    return false;
}

/* ----------------------------------------------------------------------------------- begin -- */

static mf_status check_fetch(mf_expert_store *store, uint32_t layer, const uint32_t *experts,
                             uint32_t n, mf_error *error)
{
    if (store->n_open == MF_EXPERT_FETCHES)
        return mf_fail(error, MF_ERR_STATE, "expert store: %u fetches are open already",
                       store->n_open);
    if (layer >= store->map.n_layers || n == 0 || n > store->map.n_experts)
        return mf_fail(error, MF_ERR_ARGUMENT, "expert store: %u experts of layer %u asked for", n,
                       layer);
    store->n_fetches++;
    for (uint32_t i = 0; i < n; i++) {
        if (experts[i] >= store->map.n_experts || store->seen_in[experts[i]] == store->n_fetches)
            return mf_fail(error, MF_ERR_ARGUMENT,
                           "expert store: expert %u of layer %u is out of range or named twice",
                           experts[i], layer);
        store->seen_in[experts[i]] = store->n_fetches;
    }
    return mf_expert_loads_recover(store, error);
}

static mf_expert_fetch *free_fetch(mf_expert_store *store)
{
    mf_expert_fetch *f = store->fetches;
    while (f->is_open)
        f++;
    return f;
}

/* Those that are held are used from now on, before a slot is taken for any other. */
static void take_present(mf_expert_fetch *f, const uint32_t *experts)
{
    mf_expert_store *store = f->store;
    uint32_t n_missed = 0;
    for (uint32_t i = 0; i < f->n_items; i++) {
        uint32_t key = mf_expert_key(store, f->layer, experts[i]);
        uint32_t slot = store->slot_of[key];
        f->items[i] = (mf_fetch_item){.expert = experts[i], .slot = MF_NONE, .next = MF_NONE};
        mf_expert_store_count_use(store, f->layer, experts[i]);
        if (slot == MF_NONE || store->slots[slot].state != MF_SLOT_HELD)
            store->missed[n_missed++] = experts[i];
        if (slot == MF_NONE)
            continue;
        mf_expert_note(store, MF_CACHE_HIT, key, slot);
        attach(f, i, slot);
    }
    f->n_missed = n_missed;
    mf_expert_places_visit(store, f->layer, store->missed, n_missed);
    mf_expert_count(store, &store->stats.n_hits, f->n_items - n_missed);
    mf_profile_asked(store->profile, f->layer, experts, f->n_items);
    mf_profile_requests *requests = mf_profile_of(store->profile, f->layer);
    if (requests != NULL)
        requests->n_hits += f->n_items - n_missed;
    mf_expert_count(store, &store->stats.n_misses, n_missed);
}

mf_status mf_expert_fetch_begin(mf_expert_store *store, uint32_t layer, const uint32_t *experts,
                                uint32_t n, mf_expert_fetch **out, mf_error *error)
{
    MF_TRY(check_fetch(store, layer, experts, n, error));
    mf_expert_fetch *f = free_fetch(store);
    f->is_open = true;
    f->layer = layer;
    f->n_items = n;
    f->n_handed_out = f->n_loading = f->first_waiting = f->ready_head = f->ready_end = 0;
    f->failure = MF_OK;
    store->open[store->n_open++] = f;
    mf_expert_loads_collect(store, false);
    (void)mf_expert_store_resize(store);
    store->policy->visit(store->policy_state, layer, experts, n);
    take_present(f, experts);
    mf_expert_hints_drop(store, layer);
    mf_expert_store_advance(store, NULL);
    *out = f;
    return MF_OK;
}

bool mf_expert_fetch_is_ready(const mf_expert_fetch *f)
{
    return f->ready_end == f->n_items && f->n_handed_out == 0;
}

bool mf_expert_fetch_was_held(const mf_expert_fetch *f)
{
    return f->n_missed == 0;
}

/* ---------------------------------------------------------------------------------- next -- */

static void hand_out(mf_expert_fetch *f, uint32_t index, mf_expert_ready *out)
{
    mf_fetch_item *item = &f->items[index];
    const mf_expert_slot *slot = &f->store->slots[item->slot];
    *out = (mf_expert_ready){.index = index, .slot = item->slot};
    for (uint32_t p = 0; p < f->store->map.n_parts; p++)
        out->part_at[p] = f->store->slot_at[item->slot] + slot->part_at[p];
    item->state = MF_ITEM_HANDED_OUT;
    f->n_handed_out++;
}

/* Whether all slots for the first that waits are, and will stay, in the hands of whoever did not
 * release them. */
static bool is_stuck(const mf_expert_fetch *f)
{
    const mf_expert_store *store = f->store;
    const uint32_t first = f->first_waiting < f->n_items ? f->first_waiting : 0;
    const uint32_t key = mf_expert_key(store, f->layer, f->items[first].expert);
    bool is_stuck =
        store->n_queued == 0; /* the engine may have failed since, and been started anew */
    const uint32_t n_active = atomic_load(&store->n_active);
    for (uint32_t i = 0; i < store->n_slots && is_stuck; i++)
        is_stuck = store->slots[i].n_users > 0 ||
                   (i >= n_active && store->slots[i].state == MF_SLOT_EMPTY) ||
                   !mf_expert_slot_fits(store, mf_expert_size_of(store, key), i);
    return is_stuck;
}

/* Nothing of the fetch is on its way: makes room for what waits for a slot. */
static mf_status make_room(mf_expert_fetch *f, mf_error *error)
{
    mf_expert_store *store = f->store;
    bool found = false;
    if (store->is_broken)
        return mf_expert_loads_recover(store, error);
    MF_TRY(mf_expert_places_wait(store, &found, error));
    if (found)
        return MF_OK;
    MF_TRY(mf_expert_slot_wait(store, &found, error));
    if (found || take_back(f))
        return MF_OK;
    if (mf_io_in_flight(store->io) == 0 && is_stuck(f))
        return mf_fail(error, MF_ERR_STATE,
                       "expert store: all %u slots are handed out and none released",
                       (unsigned)mf_expert_store_n_slots(store));
    mf_expert_loads_collect(store, true);
    return MF_OK;
}

static mf_status wait_for_one(mf_expert_fetch *f, mf_error *error)
{
    mf_expert_store *store = f->store;
    mf_status status = MF_OK;
    uint64_t start_us = mf_now_us();
    const mf_stage before = mf_profile_enter(store->profile, MF_STAGE_WAITING);
    while (status == MF_OK && f->failure == MF_OK && f->ready_head == f->ready_end) {
        if (f->n_loading > 0)
            mf_expert_loads_collect(store, true);
        else
            status = make_room(f, error);
        mf_expert_store_advance(store, f);
    }
    (void)mf_profile_enter(store->profile, before);
    mf_expert_count(store, &store->stats.wait_us, mf_now_us() - start_us);
    return status;
}

mf_status mf_expert_fetch_next(mf_expert_fetch *f, mf_expert_ready *out, uint32_t max, uint32_t *n,
                               mf_error *error)
{
    mf_expert_store *store = f->store;
    mf_expert_loads_collect(store, false);
    mf_expert_store_advance(store, f);
    if (f->failure == MF_OK && f->ready_head == f->ready_end && f->n_handed_out < f->n_items)
        MF_TRY(wait_for_one(f, error));
    if (f->failure != MF_OK) {
        if (error != NULL)
            *error = f->failure_error;
        return f->failure;
    }
    const bool is_short = store->lacks_slots && store->memory.host != NULL;
    const uint32_t most = is_short && max > 1 ? 1 : max;
    uint32_t n_out = 0;
    while (n_out < most && f->ready_head < f->ready_end)
        hand_out(f, f->ready[f->ready_head++], &out[n_out++]);
    *n = n_out;
    return MF_OK;
}

/* ------------------------------------------------------------------------- release and end -- */

void mf_expert_fetch_release(mf_expert_fetch *f, uint32_t index, mf_ticket ticket)
{
    assert(f->is_open && index < f->n_items);
    mf_fetch_item *item = &f->items[index];
    assert(item->state == MF_ITEM_HANDED_OUT);
    item->state = MF_ITEM_RELEASED;
    mf_expert_slot_unuse(f->store, item->slot, ticket);
    /* Between two experts' computations: notes when reading ended, and keeps it going. */
    mf_expert_store_poll(f->store);
}

static void drop_item(mf_expert_fetch *f, uint32_t index, mf_ticket ticket)
{
    const mf_fetch_item *item = &f->items[index];
    switch (item->state) {
    case MF_ITEM_LOADING:
        leave_load(f, index);
        break;
    case MF_ITEM_READY:
        mf_expert_slot_unuse(f->store, item->slot, 0);
        break;
    case MF_ITEM_HANDED_OUT:
        mf_expert_slot_unuse(f->store, item->slot, ticket);
        break;
    case MF_ITEM_WAITING:
    case MF_ITEM_RELEASED:
        break;
    }
}

void mf_expert_fetch_end(mf_expert_fetch *f, mf_ticket ticket)
{
    mf_expert_store *store = f->store;
    assert(f->is_open);
    for (uint32_t i = 0; i < f->n_items; i++)
        drop_item(f, i, ticket);
    uint32_t n = 0;
    for (uint32_t i = 0; i < store->n_open; i++) {
        if (store->open[i] != f)
            store->open[n++] = store->open[i];
    }
    store->n_open = n;
    f->is_open = false;
    mf_expert_store_poll(store);
}

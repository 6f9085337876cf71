/* SPDX-License-Identifier: MIT */
/*
 * Slots: which expert each holds, who uses it, and which one is emptied for another. slot_of and
 * slots[].key agree at all times. Only a slot that holds its expert whole, that no item uses and
 * whose ticket is done can be emptied.
 */
#include "experts/store_impl.h"

#include <assert.h>
#include <string.h>

/* Of which size each expert's slot is to be. */
static void find_sizes(mf_expert_store *store, uint32_t layer)
{
    uint8_t *key_size = store->key_size + mf_expert_key(store, layer, 0);
    mf_slot_forms forms = {0};
    if (store->sizes.n > 1)
        (void)mf_slot_forms_of(&store->map, layer, true, &forms);
    store->sizes_in[layer] = 0;
    for (uint32_t e = 0; e < store->map.n_experts; e++) {
        const uint64_t n_bytes = forms.bytes[mf_expert_map_form(&store->map, layer, e)];
        key_size[e] = n_bytes != 0 ? (uint8_t)mf_slot_sizes_find(&store->sizes, n_bytes) : 0;
        store->sizes_in[layer] |= (uint8_t)(1u << key_size[e]);
    }
}

/* Where each slot is, and of which size. */
static void lay_slots(mf_expert_store *store)
{
    mf_slot_order order = {.sizes = &store->sizes};
    uint32_t n_before = 0;
    store->slot_at[0] = 0;
    for (uint32_t slot = 0; slot < store->n_slots; slot++) {
        const uint32_t size = mf_slot_order_next(&order);
        store->slot_size[slot] = (uint8_t)size;
        store->slot_at[slot + 1] = store->slot_at[slot] + store->sizes.bytes[size];
    }
    for (uint32_t size = 0; size < store->sizes.n; size++) {
        store->empty_at[size] = n_before;
        n_before += (uint32_t)order.n_of[size];
    }
    for (uint32_t layer = 0; layer < store->map.n_layers; layer++)
        find_sizes(store, layer);
}

void mf_expert_slots_init(mf_expert_store *store)
{
    lay_slots(store);
    for (uint32_t slot = 0; slot < store->n_slots; slot++) {
        store->slots[slot] = (mf_expert_slot){.load = MF_NONE};
    }
    const uint32_t n_active = atomic_load(&store->n_active);
    for (uint32_t slot = n_active; slot > 0; slot--)
        mf_expert_slot_put_empty(store, slot - 1); /* slot 0 is taken first */
    mf_expert_slots_recount(store);
    store->n_held = n_active;
    size_t n_keys = (size_t)store->map.n_layers * store->map.n_experts;
    for (size_t key = 0; key < n_keys; key++)
        store->slot_of[key] = MF_NONE;
    for (uint32_t layer = 0; layer < store->map.n_layers; layer++)
        store->versions[layer] = 1;
    const mf_cache_shape shape = {store->n_slots, store->map.n_layers, store->map.n_experts};
    store->policy->init(store->policy_state, &shape);
}

void mf_expert_note(mf_expert_store *store, mf_cache_why why, uint32_t key, uint32_t slot)
{
    const uint32_t n = store->map.n_experts;
    const mf_cache_event event = {.why = why, .layer = key / n, .expert = key % n, .slot = slot};
    store->policy->note(store->policy_state, &event);
}

bool mf_expert_ticket_done(const mf_expert_store *store, mf_ticket ticket)
{
    return ticket == 0 || store->memory.is_done(store->memory.ctx, ticket);
}

static bool is_unused(const mf_expert_slot *slot)
{
    return slot->state == MF_SLOT_HELD && slot->n_users == 0;
}

/* ----------------------------------------------------------------------------------- sizes -- */

void mf_expert_slot_put_empty(mf_expert_store *store, uint32_t slot)
{
    const uint32_t size = store->slot_size[slot];
    store->empty[store->empty_at[size] + store->n_empty_of[size]++] = slot;
    store->n_empty++;
}

void mf_expert_slot_take_empty(mf_expert_store *store, uint32_t slot)
{
    const uint32_t size = store->slot_size[slot];
    uint32_t *empty = store->empty + store->empty_at[size], i = --store->n_empty_of[size];
    const uint32_t last = empty[i];
    while (empty[i] != slot) /* it is the last, as a rule */
        i--;
    empty[i] = last;
    store->n_empty--;
}

static bool has_few(const mf_expert_store *store, uint32_t size)
{
    return store->n_active_of[size] < store->sizes.n_first;
}

/* More slots of a size than there are experts for: those that come first may be. */
static bool has_spare(const mf_expert_store *store, uint32_t size)
{
    return store->n_active_of[size] > store->sizes.n_experts[size];
}

static bool is_fit(const mf_expert_store *store, uint32_t size, uint32_t of_slot)
{
    return of_slot == size ||
           (of_slot < size && (has_few(store, size) || has_spare(store, of_slot)));
}

bool mf_expert_slot_fits(const mf_expert_store *store, uint32_t size, uint32_t slot)
{
    return is_fit(store, size, store->slot_size[slot]);
}

uint32_t mf_expert_slot_find_empty(const mf_expert_store *store, uint32_t size)
{
    for (uint32_t i = size + 1; i > 0; i--)
        if (store->n_empty_of[i - 1] > 0 && is_fit(store, size, i - 1))
            return store->empty[store->empty_at[i - 1] + store->n_empty_of[i - 1] - 1];
    return MF_NONE;
}

void mf_expert_slots_recount(mf_expert_store *store)
{
    const uint32_t n_active = atomic_load(&store->n_active);
    memset(store->n_active_of, 0, sizeof store->n_active_of);
    for (uint32_t slot = 0; slot < n_active; slot++)
        store->n_active_of[store->slot_size[slot]]++;
    store->n_empty = 0;
    for (uint32_t size = 0; size < store->sizes.n; size++) {
        uint32_t *empty = store->empty + store->empty_at[size], n = 0;
        for (uint32_t i = 0; i < store->n_empty_of[size]; i++)
            if (empty[i] < n_active)
                empty[n++] = empty[i];
            else /* it may have held something before */
                mf_expert_slot_give_back(store, empty[i]);
        store->n_empty_of[size] = n;
        store->n_empty += n;
    }
}

/* Slots that hold the layer's experts may be of the size that is wanted. */
static bool is_of_use(void *ctx, uint32_t layer)
{
    const mf_expert_store *store = ctx;
    const uint32_t wanted = store->wanted_size;
    if ((store->sizes_in[layer] >> wanted & 1) != 0 || store->n_guests > 0)
        return true;
    for (uint32_t size = 0; size < wanted; size++)
        if ((store->sizes_in[layer] >> size & 1) != 0 && is_fit(store, wanted, size))
            return true;
    return false;
}

static bool is_wanted(void *ctx, uint32_t slot)
{
    const mf_expert_store *store = ctx;
    return mf_expert_slot_fits(store, store->wanted_size, slot) &&
           mf_expert_slot_evictable(ctx, slot);
}

/* ----------------------------------------------------------------------- taking and emptying -- */

bool mf_expert_slot_evictable(void *ctx, uint32_t number)
{
    const mf_expert_store *store = ctx;
    const mf_expert_slot *slot = &store->slots[number];
    const uint32_t layer = slot->key / store->map.n_experts;
    return is_unused(slot) && layer - store->first_kept >= store->n_kept &&
           mf_expert_ticket_done(store, slot->ticket);
}

void mf_expert_slot_hold(mf_expert_store *store, uint32_t number)
{
    mf_expert_slot *slot = &store->slots[number];
    slot->state = MF_SLOT_HELD;
    slot->load = MF_NONE;
    store->versions[slot->key / store->map.n_experts]++;
    mf_expert_show(store, slot->key);
}

void mf_expert_slot_disown(mf_expert_store *store, uint32_t slot)
{
    uint32_t *slot_of = &store->slot_of[store->slots[slot].key];
    if (*slot_of != slot)
        return;
    *slot_of = MF_NONE;
    store->n_given_up++;
    mf_expert_show(store, store->slots[slot].key);
    store->versions[store->slots[slot].key / store->map.n_experts]++;
}

static void count_wasted(mf_expert_store *store, const mf_expert_slot *slot)
{
    mf_expert_count(store, &store->stats.n_hints_wasted, 1);
    mf_expert_count(store, &store->stats.hint_wasted_bytes, slot->n_read_bytes);
    mf_expert_count(store, &store->stats.hint_wasted_us, slot->read_us);
    mf_profile_requests *requests = mf_expert_profile_of(store, slot->key);
    if (requests != NULL)
        requests->n_wasted++;
}

/* What a demand would have waited longer without the hint, if the drive had been idle. */
static void count_asked_for(mf_expert_store *store, const mf_expert_slot *slot)
{
    const bool is_held = slot->state == MF_SLOT_HELD;
    mf_expert_stats *s = &store->stats;
    mf_profile_requests *requests = mf_expert_profile_of(store, slot->key);
    mf_expert_count(store, is_held ? &s->n_hints_useful : &s->n_hints_late, 1);
    if (requests != NULL)
        ++*(is_held ? &requests->n_useful : &requests->n_late);
    if (is_held)
        mf_expert_count(store, &s->hint_saved_us, slot->read_us);
    else if (store->loads[slot->load].state == MF_LOAD_READING)
        mf_expert_count(store, &s->hint_saved_us,
                        mf_io_now_us(store->io) - store->loads[slot->load].sent_us);
}

void mf_expert_slot_empty(mf_expert_store *store, uint32_t number)
{
    mf_expert_slot *slot = &store->slots[number];
    assert(slot->n_users == 0);
    mf_expert_note(store, MF_CACHE_EMPTY, slot->key, number);
    if (slot->is_hinted) /* not asked for, or not held: a read has failed */
        count_wasted(store, slot);
    mf_expert_slot_disown(store, number);
    store->n_guests -= store->slot_size[number] != mf_expert_size_of(store, slot->key);
    *slot = (mf_expert_slot){.load = MF_NONE};
    if (store->is_broken) {
        slot->state = MF_SLOT_LOST;
        return;
    }
    if (number < atomic_load(&store->n_active))
        mf_expert_slot_put_empty(store, number);
    else
        mf_expert_slot_give_back(store, number);
}

/* Empties the slot that the policy names, or gives up what is foreseen, until there is an empty
 * one; MF_NONE: neither is to be had. A slot that is not in force any more makes no room. */
static uint32_t make_room_for(mf_expert_store *store, mf_cache_why why, uint32_t key)
{
    const uint32_t n = store->map.n_experts, size = mf_expert_size_of(store, key);
    const mf_cache_request request = {why, key / n, key % n, size, is_wanted, is_of_use, store};
    uint32_t empty;
    store->wanted_size = size;
    while ((empty = mf_expert_slot_find_empty(store, size)) == MF_NONE) {
        const uint32_t victim = store->policy->victim(store->policy_state, &request);
        mf_expert_load *foreseen = NULL;
        if (victim != MF_NONE)
            mf_expert_slot_empty(store, victim);
        else if (why != MF_CACHE_HINT)
            foreseen = mf_expert_load_last_foreseen(store, size);
        if (foreseen != NULL)
            mf_expert_load_cancel(store, foreseen);
        if (victim == MF_NONE && foreseen == NULL)
            return MF_NONE;
    }
    return empty;
}

uint32_t mf_expert_slot_take(mf_expert_store *store, mf_cache_why why, uint32_t key)
{
    const uint32_t slot = make_room_for(store, why, key);
    if (slot == MF_NONE)
        return MF_NONE;
    mf_expert_slot_take_empty(store, slot);
    store->n_guests += store->slot_size[slot] != mf_expert_size_of(store, key);
    store->slots[slot] = (mf_expert_slot){
        .key = key, .load = MF_NONE, .state = MF_SLOT_LOADING, .is_hinted = why == MF_CACHE_HINT};
    store->slot_of[key] = slot;
    mf_expert_show(store, key);
    mf_expert_note(store, why, key, slot);
    return slot;
}

void mf_expert_slot_use(mf_expert_store *store, uint32_t number)
{
    mf_expert_slot *slot = &store->slots[number];
    slot->n_users++;
    if (slot->is_hinted)
        count_asked_for(store, slot);
    slot->is_hinted = false;
}

void mf_expert_slot_unuse(mf_expert_store *store, uint32_t number, mf_ticket ticket)
{
    mf_expert_slot *slot = &store->slots[number];
    assert(slot->n_users > 0);
    slot->n_users--;
    if (ticket > slot->ticket) /* tickets are done in their order */
        slot->ticket = ticket;
    if (slot->n_users == 0)
        mf_expert_note(store, MF_CACHE_RELEASE, slot->key, number);
}

mf_status mf_expert_slot_wait(mf_expert_store *store, bool *found, mf_error *error)
{
    uint32_t first = MF_NONE;
    for (uint32_t i = 0; i < store->n_slots; i++) {
        const mf_expert_slot *slot = &store->slots[i];
        if (is_unused(slot) && !mf_expert_ticket_done(store, slot->ticket) &&
            (first == MF_NONE || slot->ticket < store->slots[first].ticket))
            first = i;
    }
    *found = first != MF_NONE;
    if (first == MF_NONE)
        return MF_OK;
    return store->memory.wait_for(store->memory.ctx, store->slots[first].ticket, error);
}

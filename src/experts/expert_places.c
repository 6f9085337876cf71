/* SPDX-License-Identifier: MIT */
/*
 * Places: the host's memory before slots that the host cannot reach. An expert is read into a place
 * and uploaded from it, and stays there until the place is wanted for another: who misses it in the
 * slots later has it without a read.
 *
 * A policy of its own says which expert leaves. It sees only what the slots miss: an expert that
 * stays in a slot is not asked for here and gives way, so that both levels together hold nearly as
 * many experts as they have room for, and no byte ever comes back from the device. (Were it to see
 * all requests, places would hold what slots hold already: tests/io/test_cache_policy.c.)
 *
 * Only a place that holds its expert whole, and whose last upload is done, is written to.
 */
#include "experts/store_impl.h"

#include <assert.h>

void mf_expert_places_init(mf_expert_store *store, const mf_expert_room *rooms, uint32_t n_rooms)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_rooms; i++)
        for (uint64_t at = 0; at + store->slot_bytes <= rooms[i].n_bytes && n < store->n_places;
             at += store->slot_bytes)
            store->places[n++] = (mf_expert_place){.bytes = rooms[i].bytes + at};
    assert(n == store->n_places);
    for (uint32_t place = 0; place < n; place++)
        store->empty_places[place] = n - 1 - place;
    store->n_empty_places = n;
    for (uint32_t layer = 0; layer < store->map.n_layers && n > 0; layer++)
        if (!mf_expert_layer_is_even(&store->map, layer, MF_EXPERT_PART_ALIGN,
                                     &store->whole_at[layer]))
            store->whole_at[layer] = MF_NONE;
    const size_t n_keys = n == 0 ? 0 : (size_t)store->map.n_layers * store->map.n_experts;
    for (size_t key = 0; key < n_keys; key++)
        store->place_of[key] = MF_NONE;
    const mf_cache_shape shape = {n, store->map.n_layers, store->map.n_experts};
    if (n > 0)
        store->policy->init(store->place_policy, &shape);
}

static void note(mf_expert_store *store, mf_cache_why why, uint32_t number)
{
    const uint32_t n = store->map.n_experts, key = store->places[number].key;
    const mf_cache_event event = {why, key / n, key % n, number};
    store->policy->note(store->place_policy, &event);
}

void mf_expert_places_visit(mf_expert_store *store, uint32_t layer, const uint32_t *missed,
                            uint32_t n)
{
    if (store->n_places > 0)
        store->policy->visit(store->place_policy, layer, missed, n);
}

static bool is_idle(const mf_expert_store *store, const mf_expert_place *place)
{
    return place->state == MF_PLACE_HELD && mf_expert_ticket_done(store, place->ticket);
}

static bool is_evictable(void *ctx, uint32_t number)
{
    const mf_expert_store *store = ctx;
    return is_idle(store, &store->places[number]);
}

void mf_expert_place_disown(mf_expert_store *store, uint32_t number)
{
    if (number == MF_NONE)
        return;
    uint32_t *place_of = &store->place_of[store->places[number].key];
    if (*place_of != number)
        return;
    *place_of = MF_NONE;
    mf_expert_show(store, store->places[number].key);
}

void mf_expert_place_empty(mf_expert_store *store, uint32_t number)
{
    if (number == MF_NONE)
        return;
    mf_expert_place *place = &store->places[number];
    note(store, MF_CACHE_EMPTY, number);
    mf_expert_place_disown(store, number);
    *place = (mf_expert_place){.bytes = place->bytes};
    if (store->is_broken) {
        place->state = MF_PLACE_LOST;
        return;
    }
    store->empty_places[store->n_empty_places++] = number;
}

bool mf_expert_place_find(mf_expert_store *store, mf_cache_why why, uint32_t key)
{
    const uint32_t n = store->map.n_experts;
    if (store->n_places == 0)
        return true;
    const uint32_t held = store->place_of[key];
    if (held != MF_NONE)
        return is_idle(store, &store->places[held]);
    if (store->n_empty_places > 0)
        return true;
    const mf_cache_request request = {why, key / n, key % n, 0, is_evictable, NULL, store};
    const uint32_t victim = store->policy->victim(store->place_policy, &request);
    if (victim == MF_NONE)
        return false;
    mf_expert_place_empty(store, victim);
    return true;
}

uint32_t mf_expert_place_take(mf_expert_store *store, mf_cache_why why, uint32_t key)
{
    if (store->n_places == 0)
        return MF_NONE;
    uint32_t number = store->place_of[key];
    if (number == MF_NONE) {
        assert(store->n_empty_places > 0);
        number = store->empty_places[--store->n_empty_places];
        store->places[number].key = key;
        store->place_of[key] = number;
    }
    store->places[number].state = MF_PLACE_READING;
    note(store, why, number);
    return number;
}

uint32_t mf_expert_place_with(mf_expert_store *store, mf_cache_why why, uint32_t key)
{
    const uint32_t number = store->n_places == 0 ? MF_NONE : store->place_of[key];
    if (number == MF_NONE || store->places[number].state != MF_PLACE_HELD)
        return MF_NONE;
    note(store, why, number);
    return number;
}

/* The pieces of the place's expert: as it was read, or to where all like it have their parts.
 */
static uint32_t cut_pieces(const mf_expert_store *store, uint32_t number, uint32_t slot,
                           const mf_expert_plan *plan, mf_slot_piece *pieces)
{
    const mf_expert_map *map = &store->map;
    const mf_expert_place *place = &store->places[number];
    const uint32_t layer = place->key / map->n_experts, expert = place->key % map->n_experts;
    const uint32_t *to_at = store->slots[slot].part_at, first = store->whole_at[layer];
    /* what was made lies in the place as in the slot */
    const mf_expert_way way = {.from = place->bytes,
                               .from_at = mf_expert_is_made(map, layer) ? to_at : plan->part_at,
                               .slot_at = store->slot_at[slot],
                               .to_at = to_at};
    if (first == MF_NONE)
        return mf_expert_cut_pieces(map, layer, expert, &way, pieces);
    pieces[0] = mf_expert_whole_piece(map, layer, expert, &way, first);
    return 1;
}

void mf_expert_place_lay(const mf_expert_store *store, uint32_t key, const mf_expert_plan *plan,
                         uint32_t part_at[MF_MAX_EXPERT_PARTS])
{
    const uint32_t n = store->map.n_experts, first = store->whole_at[key / n];
    if (first == MF_NONE) {
        (void)mf_expert_lay_parts(&store->map, key / n, key % n, part_at);
        return;
    }
    for (uint32_t p = 0; p < store->map.n_parts; p++)
        part_at[p] = plan->part_at[p] > first ? plan->part_at[p] - first : 0;
}

mf_status mf_expert_place_upload(mf_expert_store *store, uint32_t number, uint32_t slot,
                                 const mf_expert_plan *plan, mf_error *error)
{
    mf_expert_place *place = &store->places[number];
    mf_slot_piece pieces[MF_MAX_EXPERT_PARTS];
    const uint32_t n = cut_pieces(store, number, slot, plan, pieces);
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        n_bytes += pieces[i].n_bytes;
    MF_TRY(store->memory.upload(store->memory.ctx, pieces, n, &place->ticket, error));
    place->state = MF_PLACE_HELD;
    mf_expert_count(store, &store->stats.upload_bytes, n_bytes);
    return MF_OK;
}

mf_status mf_expert_places_wait(mf_expert_store *store, bool *found, mf_error *error)
{
    mf_expert_place *first = NULL;
    for (uint32_t i = 0; i < store->n_places; i++) {
        mf_expert_place *place = &store->places[i];
        if (place->ticket == 0)
            continue;
        if (mf_expert_ticket_done(store, place->ticket))
            place->ticket = 0;
        else if (first == NULL || place->ticket < first->ticket)
            first = place;
    }
    *found = first != NULL;
    if (first == NULL)
        return MF_OK;
    MF_TRY(store->memory.wait_for(store->memory.ctx, first->ticket, error));
    first->ticket = 0;
    return MF_OK;
}

void mf_expert_places_recover(mf_expert_store *store)
{
    for (uint32_t i = 0; i < store->n_places; i++) {
        if (store->places[i].state != MF_PLACE_LOST)
            continue;
        store->places[i].state = MF_PLACE_EMPTY;
        store->empty_places[store->n_empty_places++] = i;
    }
}

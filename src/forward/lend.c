/* SPDX-License-Identifier: MIT */
/*
 * Experts that lie in the process's memory and are multiplied there, for a few rows. For many, a
 * GPU is so much faster that it pays to send them to it: they are lent to the dense layers' device,
 * in slots that it has for a moment. While one half of these is multiplied, the other is filled.
 * Which way a row goes depends on its own run alone (mf_batch_part.is_long).
 *
 * An expert leaves the hands of its fetch once its bytes have arrived.
 */
#include "forward/forward.h"

#include "experts/expert_plan.h"

uint32_t mf_lend_most(const mf_runner *r)
{
    return r->lending.n_slots / 2;
}

uint64_t mf_lend_slots_bytes(const mf_runner *r)
{
    return (uint64_t)mf_given_end(r) * r->lending.slot_bytes;
}

static size_t shapes_bytes(const mf_runner *r)
{
    return mf_all_layers(&r->h) * sizeof *r->lending.shapes;
}

mf_status mf_lend_prepare(mf_runner *r, mf_error *error)
{
    mf_lending *l = &r->lending;
    l->is_on = mf_plan_lends(&r->plan) && r->map.n_layers != 0;
    if (!l->is_on)
        return MF_OK;
    l->slot_bytes = mf_expert_slot_bytes_anywhere(&r->map);
    l->n_slots = mf_plan_lent_slots(&r->plan, l->slot_bytes);
    l->shapes = mf_alloc(&r->allocator, shapes_bytes(r));
    l->used = mf_alloc_zeroed(&r->allocator, l->n_slots * sizeof *l->used);
    l->at_hand = mf_alloc_zeroed(&r->allocator, l->n_slots * sizeof *l->at_hand);
    if (l->shapes == NULL || l->used == NULL || l->at_hand == NULL)
        return mf_fail_memory(error, shapes_bytes(r), "lists of experts that are lent");
    for (uint32_t i = 0; i < mf_all_layers(&r->h); i++)
        l->shapes[i] = r->weights.layers[i].experts;
    uint32_t first;
    for (uint32_t i = 0; i < r->map.n_layers; i++) /* looks at every expert */
        l->is_even[i] = mf_expert_layer_is_even(&r->map, i, MF_EXPERT_PART_ALIGN, &first);
    return MF_OK;
}

/* Each pick's result comes by itself, as it does where experts have no device of their own. */
static mf_status reserve_sum(mf_runner *r, uint32_t layer, mf_error *error)
{
    const mf_op op = {
        .kind = MF_OP_COMBINE,
        .n_rows = r->plan.n_chunk,
        .u.combine = {.n_cols = r->h.hidden_size, .k = r->plan.k, .norm = mf_next_input(r, layer)}};
    return mf_backend_reserve(r->backend, &op, error);
}

mf_status mf_lend_reserve(mf_runner *r, mf_error *error)
{
    for (uint32_t i = 0; r->lending.is_on && i < mf_all_layers(&r->h); i++) {
        if (r->h.is_dense[i])
            continue;
        MF_TRY(mf_reserve_experts(r, r->backend, &r->lending.shapes[i], error));
        MF_TRY(reserve_sum(r, i, error));
    }
    return MF_OK;
}

void mf_lend_from(mf_runner *r, unsigned char *slots, uint64_t n_bytes, uint64_t slot_bytes)
{
    r->lending.from = slots;
    if (r->lending.is_on && r->backend->ops->reach != NULL)
        r->backend->ops->reach(r->backend, slots, n_bytes, slot_bytes);
}

void mf_lend_begin(mf_runner *r, const mf_batch *batch)
{
    r->lending.is_at_hand = r->lending.is_on && batch->n_parts != 0 && batch->parts[0].is_long;
}

/* Of the parts that have bytes the first one. */
static uint64_t first_part(const mf_expert_map *map, uint32_t moe, uint32_t expert,
                           const uint64_t *part_at)
{
    const mf_expert_part *parts = map->parts + (size_t)moe * map->n_parts;
    uint64_t first = UINT64_MAX;
    for (uint32_t p = 0; p < map->n_parts; p++)
        if (mf_expert_part_bytes(&parts[p], expert) != 0 && part_at[p] < first)
            first = part_at[p];
    return first;
}

uint32_t mf_lend_pieces(const mf_runner *r, uint32_t moe, uint32_t expert, uint64_t slot_at,
                        mf_expert_ready *ready, mf_slot_piece *pieces)
{
    const mf_expert_map *map = &r->map;
    const bool is_even = r->lending.is_even[moe];
    const uint64_t first = first_part(map, moe, expert, ready->part_at);
    uint32_t from_at[MF_MAX_EXPERT_PARTS], laid_at[MF_MAX_EXPERT_PARTS];
    const uint32_t *to_at = is_even ? from_at : laid_at;
    const mf_expert_way way = {r->lending.from + first, from_at, slot_at, to_at};
    if (!is_even)
        (void)mf_expert_lay_parts(map, moe, expert, laid_at);
    for (uint32_t p = 0; p < map->n_parts; p++) {
        from_at[p] = (uint32_t)(ready->part_at[p] - first);
        ready->part_at[p] = slot_at + to_at[p];
    }
    if (!is_even)
        return mf_expert_cut_pieces(map, moe, expert, &way, pieces);
    pieces[0] = mf_expert_whole_piece(map, moe, expert, &way, 0);
    return 1;
}

mf_status mf_lend(mf_runner *r, uint32_t layer, uint32_t n, mf_error *error)
{
    mf_lending *l = &r->lending;
    mf_slot_piece pieces[MF_MAX_EXPERT_PARTS];
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t slot = (l->next_slot + i) % l->n_slots;
        mf_expert_ready *ready = &r->moe.ready[i];
        MF_TRY(r->backend->ops->wait_for(r->backend, l->used[slot], error));
        const uint32_t n_pieces =
            mf_lend_pieces(r, r->h.moe_index[layer], r->moe.wanted[ready->index],
                           slot * l->slot_bytes, ready, pieces);
        l->used[slot] = mf_upload_to_slots(r->backend, pieces, n_pieces);
    }
    return MF_OK;
}

/* Waits for what was lent last. */
static mf_status release(mf_runner *r, mf_expert_fetch *fetch, mf_error *error)
{
    mf_lending *l = &r->lending;
    const mf_stage before = mf_profile_enter(r->profile, MF_STAGE_COPYING);
    const mf_status status = r->backend->ops->wait_for(r->backend, l->sent, error);
    (void)mf_profile_enter(r->profile, before);
    for (uint32_t i = 0; i < l->n_at_hand; i++)
        mf_expert_fetch_release(fetch, l->at_hand[i], 0);
    l->n_at_hand = 0;
    return status;
}

mf_status mf_lend_used(mf_runner *r, mf_expert_fetch *fetch, uint32_t n, mf_error *error)
{
    mf_lending *l = &r->lending;
    const mf_ticket ticket = r->backend->ops->mark(r->backend);
    const mf_status status = release(r, fetch, error);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t slot = (l->next_slot + i) % l->n_slots;
        l->sent = l->used[slot];
        l->used[slot] = ticket;
        l->at_hand[i] = r->moe.ready[i].index;
    }
    l->n_at_hand = n;
    l->next_slot = (l->next_slot + n) % l->n_slots;
    return status;
}

mf_status mf_lend_end(mf_runner *r, mf_expert_fetch *fetch, mf_error *error)
{
    return r->lending.is_at_hand ? release(r, fetch, error) : MF_OK;
}

void mf_lend_close(mf_runner *r)
{
    mf_lending *l = &r->lending;
    if (l->shapes != NULL)
        mf_free(&r->allocator, l->shapes, shapes_bytes(r));
    if (l->used != NULL)
        mf_free(&r->allocator, l->used, l->n_slots * sizeof *l->used);
    if (l->at_hand != NULL)
        mf_free(&r->allocator, l->at_hand, l->n_slots * sizeof *l->at_hand);
}

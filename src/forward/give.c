/* SPDX-License-Identifier: MIT */
/*
 * Layers whose experts the dense layers' device has for good, while those of the others lie in the
 * process's memory and are lent to it at most (lend.c). They are the first ones, so many as was
 * said when the model was opened, and never change: which device multiplies a row is so settled
 * before there are any. They are read once, through the store's slots, which then are others'.
 * What the router chooses of them stays on the device as if it had all layers' (routed.c); where
 * that cannot be, the host names them.
 */
#include "forward/forward.h"

#include "experts/expert_plan.h"

uint32_t mf_given_first(const mf_runner *r, uint32_t moe)
{
    return r->lending.n_slots + moe * r->h.n_experts;
}

uint32_t mf_given_end(const mf_runner *r)
{
    return mf_given_first(r, r->plan.n_given);
}

static uint64_t slot_at(const mf_runner *r, uint32_t moe, uint32_t expert)
{
    return (uint64_t)(mf_given_first(r, moe) + expert) * r->lending.slot_bytes;
}

static uint32_t *part_at(const mf_runner *r, uint32_t moe)
{
    return r->routed.part_at + (size_t)moe * MF_MAX_EXPERT_PARTS;
}

/* Where an expert's parts lie in its slot: in all of a layer alike, unless some have other forms.
 */
static const uint32_t *parts_in_slot(const mf_runner *r, uint32_t moe, uint32_t expert,
                                     uint32_t laid[MF_MAX_EXPERT_PARTS])
{
    if (r->lending.is_even[moe])
        return part_at(r, moe);
    (void)mf_expert_lay_parts(&r->map, moe, expert, laid);
    return laid;
}

/* What is ready of a layer is copied. */
static mf_status give(void *user, uint32_t moe, mf_expert_ready *ready, uint32_t n, mf_error *error)
{
    mf_runner *r = user;
    mf_slot_piece pieces[MF_MAX_EXPERT_PARTS];
    mf_ticket last = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t expert = ready[i].index;
        const uint64_t at = slot_at(r, moe, expert);
        const uint32_t n_pieces = mf_lend_pieces(r, moe, expert, at, &ready[i], pieces);
        last = mf_upload_to_slots(r->backend, pieces, n_pieces);
        for (uint32_t p = 0; p < r->map.n_parts; p++)
            part_at(r, moe)[p] = (uint32_t)(ready[i].part_at[p] - at);
    }
    return r->backend->ops->wait_for(r->backend, last, error);
}

/* The table that the device looks them up in. */
static void write_slots(mf_runner *r, uint32_t layer)
{
    const uint32_t moe = r->h.moe_index[layer];
    for (uint32_t i = 0; i < r->h.n_experts; i++)
        r->moe.wanted[i] = mf_given_first(r, moe) + i;
    mf_routed_write_slots(r, layer, r->moe.wanted);
}

mf_status mf_give(mf_runner *r, mf_error *error)
{
    if (r->plan.n_given == 0)
        return MF_OK;
    MF_TRY(mf_expert_store_each(r->store, 0, r->plan.n_given, give, r, error));
    mf_expert_store_stats_reset(r->store); /* nobody asked for them */
    for (uint32_t i = 0; i < r->h.n_layers; i++)
        if (mf_is_given(r, i))
            write_slots(r, i);
    return MF_OK;
}

void mf_given_ready(mf_runner *r, uint32_t layer, uint32_t first, uint32_t n)
{
    const uint32_t moe = r->h.moe_index[layer];
    for (uint32_t i = 0; i < n; i++) {
        mf_expert_ready *ready = &r->moe.ready[i];
        const uint32_t expert = r->moe.wanted[first + i];
        uint32_t laid[MF_MAX_EXPERT_PARTS];
        const uint32_t *at = parts_in_slot(r, moe, expert, laid);
        *ready = (mf_expert_ready){.index = first + i, .slot = mf_given_first(r, moe) + expert};
        for (uint32_t p = 0; p < r->map.n_parts; p++)
            ready->part_at[p] = slot_at(r, moe, expert) + at[p];
        mf_expert_store_count_use(r->store, moe, expert);
    }
    mf_expert_store_count_hits(r->store, n);
}

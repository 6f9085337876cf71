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

/* The first n of moe.ready are copied, and wanted no longer. Parts lie alike in all slots of a
 * layer. */
static mf_status give_ready(mf_runner *r, uint32_t moe, mf_expert_fetch *fetch, uint32_t n,
                            mf_error *error)
{
    mf_slot_piece pieces[MF_MAX_EXPERT_PARTS];
    mf_status status = MF_OK;
    for (uint32_t i = 0; i < n; i++) {
        mf_expert_ready *ready = &r->moe.ready[i];
        const uint32_t expert = r->moe.wanted[ready->index];
        const uint64_t at = slot_at(r, moe, expert);
        const uint32_t n_pieces = mf_lend_pieces(r, moe, expert, at, ready, pieces);
        r->lending.used[i] = mf_upload_to_slots(r->backend, pieces, n_pieces);
        for (uint32_t p = 0; p < r->map.n_parts; p++)
            part_at(r, moe)[p] = (uint32_t)(ready->part_at[p] - at);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (status == MF_OK)
            status = r->backend->ops->wait_for(r->backend, r->lending.used[i], error);
        mf_expert_fetch_release(fetch, r->moe.ready[i].index, 0);
    }
    return status;
}

static mf_status give_layer(mf_runner *r, uint32_t moe, mf_error *error)
{
    const uint32_t n = r->h.n_experts;
    mf_expert_fetch *fetch;
    mf_status status = MF_OK;
    for (uint32_t i = 0; i < n; i++)
        r->moe.wanted[i] = i;
    MF_TRY(mf_expert_fetch_begin(r->store, moe, r->moe.wanted, n, &fetch, error));
    for (uint32_t done = 0, n_ready = 0; done < n && status == MF_OK; done += n_ready) {
        status = mf_expert_fetch_next(fetch, r->moe.ready, mf_lend_most(r), &n_ready, error);
        if (status == MF_OK)
            status = give_ready(r, moe, fetch, n_ready, error);
    }
    mf_expert_fetch_end(fetch, 0);
    return status;
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
    for (uint32_t i = 0; i < r->h.n_layers && r->plan.n_given != 0; i++) {
        if (!mf_is_given(r, i))
            continue;
        MF_TRY(give_layer(r, r->h.moe_index[i], error));
        mf_expert_store_forget(r->store, r->h.moe_index[i]);
        write_slots(r, i);
    }
    if (r->plan.n_given != 0)
        mf_expert_store_stats_reset(r->store); /* nobody asked for them */
    return MF_OK;
}

void mf_given_ready(mf_runner *r, uint32_t layer, uint32_t first, uint32_t n)
{
    const uint32_t moe = r->h.moe_index[layer];
    for (uint32_t i = 0; i < n; i++) {
        mf_expert_ready *ready = &r->moe.ready[i];
        const uint32_t expert = r->moe.wanted[first + i];
        *ready = (mf_expert_ready){.index = first + i, .slot = mf_given_first(r, moe) + expert};
        for (uint32_t p = 0; p < r->map.n_parts; p++)
            ready->part_at[p] = slot_at(r, moe, expert) + part_at(r, moe)[p];
        mf_expert_store_count_use(r->store, moe, expert);
    }
    mf_expert_store_count_hits(r->store, n);
}

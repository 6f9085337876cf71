/* SPDX-License-Identifier: MIT */
/*
 * Layers recorded before it is known whether the experts that they choose are held. A table on the
 * device has the slots of those that are; the router's choice looks there, and what follows it is
 * recorded under a word that says whether all were found. Where one was not, all that follows is
 * left undone, the host is told when it waits, brings what is missing as ever, and records from
 * there. So nothing is computed twice, no state is touched by what was left undone, and the results
 * are those of the other way, in the same order.
 *
 * Meanwhile none of those layers' experts leaves its slot. The store learns of what was used once
 * it is known, layer by layer, as if each had been asked for in its turn.
 *
 * What is recorded in vain still passes through the device, so that as many layers go ahead as it
 * is worth: one more whenever all went well, half as many after a miss. Where each of them misses
 * with probability q these are about sqrt(2 / q), which balances the round trips saved and what was
 * recorded in vain where both cost alike.
 */
#include "forward/forward.h"

#include <assert.h>
#include <string.h>

bool mf_ahead_can(const mf_runner *r, const mf_batch *batch)
{
    const mf_ahead *a = &r->ahead;
    if (!a->is_on || batch->watch->trace != NULL || r->tap != NULL || r->inputs != NULL ||
        r->n_long_rows != 0 || batch->n_rows > mf_routed_most_rows(r))
        return false;
    if (a->n == 0 && r->foresight != NULL && mf_foresight_asks(r->foresight))
        return false; /* who goes ahead is foretold nothing */
    return a->n != 0 || a->n_most > 1;
}

static mf_span found_of(const mf_runner *r, uint32_t moe)
{
    return mf_span_at(r->plan.found, (uint64_t)moe * 2 * sizeof(uint32_t));
}

/* The layer's slots to the device, if they are not what it has. */
static void write_slots(mf_runner *r, uint32_t layer)
{
    const uint32_t moe = r->h.moe_index[layer];
    const uint64_t version = mf_expert_store_version(r->store, moe);
    uint32_t *slots = r->moe.wanted;
    if (r->ahead.versions[moe] == version)
        return;
    mf_expert_store_held(r->store, moe, slots,
                         r->routed.part_at + (size_t)moe * MF_MAX_EXPERT_PARTS);
    mf_routed_write_slots(r, layer, slots);
    r->ahead.versions[moe] = version;
}

mf_span mf_ahead_begin(mf_runner *r, uint32_t layer)
{
    mf_ahead *a = &r->ahead;
    const uint32_t moe = r->h.moe_index[layer];
    const size_t n_left = r->h.n_moe_layers - moe;
    if (a->n == 0) {
        a->first = moe;
        memset(a->found, 0, n_left * 2 * sizeof *a->found);
        r->backend->ops->write(r->backend, found_of(r, moe), a->found,
                               n_left * 2 * sizeof *a->found);
    }
    assert(moe == a->first + a->n);
    mf_expert_store_poll(r->store); /* what was foreseen may be there */
    mf_expert_store_keep(r->store, a->first, ++a->n);
    write_slots(r, layer);
    return found_of(r, moe);
}

void mf_ahead_under(mf_runner *r, mf_span found)
{
    r->ahead.when = found;
}

void mf_ahead_record(mf_runner *r, const mf_op *op)
{
    mf_op conditional = *op;
    conditional.when = r->ahead.when;
    r->backend->ops->record(r->backend, &conditional);
}

bool mf_ahead_is_full(const mf_runner *r)
{
    return r->ahead.n >= r->ahead.n_most;
}

bool mf_ahead_is_open(const mf_runner *r)
{
    return r->ahead.n != 0;
}

/* Of the first layer that is recorded ahead. */
static uint64_t first_pick(const mf_runner *r, uint32_t n_rows)
{
    return (uint64_t)r->ahead.first * n_rows * r->plan.k;
}

void mf_ahead_ask(mf_runner *r, uint32_t n_rows)
{
    const mf_ahead *a = &r->ahead;
    const uint64_t first = first_pick(r, n_rows), n_picks = (uint64_t)n_rows * r->plan.k;
    if (a->n == 0)
        return;
    r->backend->ops->read(r->backend, found_of(r, a->first), a->found, a->n * 2 * sizeof *a->found);
    r->backend->ops->read(r->backend, mf_span_at(r->plan.routed_ids, first * sizeof(int32_t)),
                          r->routed.ids + first, a->n * n_picks * sizeof *r->routed.ids);
}

static uint32_t layer_of(const mf_runner *r, uint32_t moe)
{
    uint32_t layer = 0;
    while (r->h.is_dense[layer] || r->h.moe_index[layer] != moe)
        layer++;
    return layer;
}

static void adapt(mf_ahead *a, bool is_missed, uint32_t n_moe_layers)
{
    if (is_missed)
        a->n_most = a->n_most > 2 ? a->n_most / 2 : 1;
    else if (a->n >= a->n_most && a->n_most < n_moe_layers)
        a->n_most++;
}

mf_status mf_ahead_settle(mf_runner *r, const mf_batch *batch, uint32_t *next, mf_error *error)
{
    mf_ahead *a = &r->ahead;
    const size_t n_picks = (size_t)batch->n_rows * r->plan.k;
    const int32_t *ids = r->routed.ids + first_pick(r, batch->n_rows);
    const uint32_t n = a->n;
    uint32_t n_found = 0;
    *next = 0;
    if (n == 0)
        return MF_OK;
    while (n_found < n && a->found[2 * n_found] != 0)
        n_found++;
    adapt(a, n_found < n, r->h.n_moe_layers);
    a->when = (mf_span){{0}, 0};
    a->n_done += n_found;
    a->n_missed += n_found < n;
    for (uint32_t i = 0; i < n_found; i++)
        MF_TRY(
            mf_forward_used(r, layer_of(r, a->first + i), batch->n_rows, ids + i * n_picks, error));
    const uint32_t first = a->first;
    mf_ahead_end(r);
    if (n_found == n)
        return MF_OK;
    const uint32_t layer = layer_of(r, first + n_found);
    MF_TRY(mf_forward_chosen(r, batch, layer, ids + n_found * n_picks, error));
    *next = layer + 1;
    return MF_OK;
}

void mf_ahead_note(mf_runner *r, bool was_held)
{
    if (r->ahead.is_on && r->ahead.n_most == 1 && was_held && r->h.n_moe_layers > 1)
        r->ahead.n_most = 2;
}

void mf_ahead_end(mf_runner *r)
{
    r->ahead.n = 0;
    r->ahead.when = (mf_span){{0}, 0};
    if (r->store != NULL)
        mf_expert_store_keep(r->store, 0, 0);
}

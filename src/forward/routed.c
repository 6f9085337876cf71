/* SPDX-License-Identifier: MIT */
/*
 * Experts that the device finds by their numbers and a table of slots; those of layers that are all
 * held for good here, others in ahead.c. What the router chose need not be known here: the
 * device finds the experts by their numbers and a table of slots, which is written once. So passes
 * of few rows are recorded from the first layer to the logits without waiting. Their sums are those
 * of the other way, in the same order. A layer that is not whole waits for its ids, and so for all
 * that was recorded before it: when its fetch gives up an expert, nothing reads that any more.
 */
#include "forward/forward.h"

#include <string.h>

/* Of one row: from its norm to what is added to plan.x. */
static void fuse(const mf_runner *r, mf_input_step before, mf_routed_experts_params *p)
{
    const mf_span none = {{0}, 0};
    p->x = r->plan.x;
    p->before = before;
    p->sum = (mf_expert_sum){.x = r->plan.x,
                             .weights = r->plan.weights,
                             .shared = r->h.shared_hidden != 0 ? r->plan.mlp_out : none,
                             .shared_gate = r->h.shared_hidden != 0 && r->h.shared_is_gated
                                                ? r->plan.shared_router
                                                : none};
}

/* The layer's experts are, or will be, all on this device. */
static bool are_here(const mf_runner *r, uint32_t layer)
{
    return mf_experts_are_apart(r) ? mf_is_given(r, layer) : r->routed.is_whole;
}

bool mf_routed_has_all(const mf_runner *r)
{
    bool has = r->h.n_moe_layers == 0 || r->routed.is_on;
    for (uint32_t layer = 0; layer < r->h.n_layers && has; layer++)
        has = r->h.is_dense[layer] || are_here(r, layer);
    return has;
}

static mf_op routed_op(const mf_runner *r, uint32_t layer, uint32_t n_rows)
{
    const mf_plan *p = &r->plan;
    const bool is_given = mf_is_given(r, layer);
    const mf_expert_shape *shape =
        is_given ? &r->lending.shapes[layer] : &r->weights.layers[layer].experts;
    return (mf_op){.kind = MF_OP_ROUTED_EXPERTS,
                   .n_rows = n_rows,
                   .u.routed = {.x = p->moe_x,
                                .ids = mf_routed_ids(r, layer, n_rows),
                                .act = is_given ? p->lent_act : p->expert_act,
                                .out = p->expert_out,
                                .slots = {{MF_BUFFER_SLOTS}, 0},
                                .n_experts = r->h.n_experts,
                                .k = p->k,
                                .has_resident_scales = shape->has_resident_scales,
                                .gate = shape->gate,
                                .up = shape->up,
                                .down = shape->down,
                                .steps = shape->steps}};
}

uint32_t mf_routed_most_rows(const mf_runner *r)
{
    const uint32_t n = MF_MAX_ROUTED_PICKS / r->plan.k;
    return n < r->plan.n_chunk ? n : r->plan.n_chunk;
}

mf_status mf_routed_reserve(mf_runner *r, uint32_t layer, mf_error *error)
{
    mf_op op = routed_op(r, layer, mf_routed_most_rows(r));
    if (!r->routed.is_on || (mf_experts_are_apart(r) && !mf_is_given(r, layer)))
        return MF_OK;
    if (!are_here(r, layer))
        op.when = r->plan.found;
    /* a device that finds experts by itself takes all of a layer for alike */
    r->routed.is_on = op.n_rows != 0 && r->weights.layers[layer].experts.n_forms == 0 &&
                      r->backend->ops->supports_op(r->backend, &op);
    r->ahead.is_on = r->ahead.is_on && r->routed.is_on;
    if (!r->routed.is_on)
        return MF_OK;
    MF_TRY(mf_backend_reserve(r->backend, &op, error));
    fuse(r, mf_fused_norm(r, r->weights.layers[layer].post_norm), &op.u.routed);
    op.n_rows = 1;
    r->fused.has_experts = r->fused.is_on && r->fused.has_experts && are_here(r, layer) &&
                           !r->h.router.scales_input &&
                           r->backend->ops->supports_op(r->backend, &op);
    return r->fused.has_experts ? mf_backend_reserve(r->backend, &op, error) : MF_OK;
}

mf_status mf_mixture_reserve(mf_runner *r, uint32_t layer, mf_error *error)
{
    const mf_input_step before = mf_fused_norm(r, r->weights.layers[layer].post_norm);
    mf_mixture m = {.experts = routed_op(r, layer, 1)};
    bool *has = &r->fused.has_mixture[layer];
    *has = r->fused.has_experts && are_here(r, layer) && r->h.shared_hidden != 0 &&
           r->weights.layers[layer].router_logit_bias.buffer.id == 0;
    fuse(r, before, &m.experts.u.routed);
    const mf_op op = mf_mixture_op(r, layer, &before, &m);
    return mf_joined_reserve(r, &op, has, error);
}

mf_span mf_routed_ids(const mf_runner *r, uint32_t layer, uint32_t n_rows)
{
    const uint64_t at = (uint64_t)r->h.moe_index[layer] * n_rows * r->plan.k;
    return mf_span_at(r->plan.routed_ids, at * sizeof(int32_t));
}

mf_span mf_routed_slots(const mf_runner *r, uint32_t layer)
{
    const uint64_t at = (uint64_t)r->h.moe_index[layer] * r->h.n_experts;
    return mf_span_at(r->plan.slot_numbers, at * sizeof(uint32_t));
}

void mf_routed_write_slots(mf_runner *r, uint32_t layer, const uint32_t *slots)
{
    r->backend->ops->write(r->backend, mf_routed_slots(r, layer), slots,
                           r->h.n_experts * sizeof *slots);
}

bool mf_routed_can(mf_runner *r, uint32_t layer, uint32_t n_rows)
{
    mf_routed *routed = &r->routed;
    const uint32_t moe = r->h.moe_index[layer];
    if (!routed->is_on || !are_here(r, layer) || n_rows > mf_routed_most_rows(r) ||
        r->n_long_rows != 0 || r->lending.is_at_hand || r->tap != NULL || r->inputs != NULL)
        return false;
    if (mf_is_given(r, layer))
        return true;
    if (routed->n_given_up != mf_expert_store_n_given_up(r->store)) {
        memset(routed->is_ready, 0, r->h.n_moe_layers * sizeof *routed->is_ready);
        routed->n_given_up = mf_expert_store_n_given_up(r->store);
    }
    if (routed->is_ready[moe])
        return true;
    uint32_t *slots = r->moe.wanted;
    if (!mf_expert_store_layer(r->store, moe, slots,
                               routed->part_at + (size_t)moe * MF_MAX_EXPERT_PARTS))
        return false;
    mf_routed_write_slots(r, layer, slots);
    routed->is_ready[moe] = true;
    return true;
}

static void put_in_slot(mf_weight *w, bool has_resident_scales, const uint32_t *part_at)
{
    const mf_weight_format *format = mf_weight_format_of(&w->shape);
    for (uint32_t i = 0; i < format->n_arrays; i++)
        if (!has_resident_scales || !format->arrays[i].is_float32)
            w->arrays[i] = (mf_span){{MF_BUFFER_SLOTS}, part_at[i]};
}

mf_op mf_routed_op(const mf_runner *r, uint32_t layer, uint32_t n_rows, const mf_input_step *before)
{
    const uint32_t moe = r->h.moe_index[layer];
    const uint32_t *part_at = r->routed.part_at + (size_t)moe * MF_MAX_EXPERT_PARTS;
    mf_op op = routed_op(r, layer, n_rows);
    mf_routed_experts_params *p = &op.u.routed;
    p->slot = mf_routed_slots(r, layer);
    const bool is_given = mf_is_given(r, layer);
    p->n_slots = is_given ? mf_given_end(r) : (uint32_t)mf_expert_store_n_units(r->store);
    p->slot_bytes = is_given ? r->lending.slot_bytes : mf_expert_store_unit_bytes(r->store);
    put_in_slot(&p->gate, p->has_resident_scales, part_at);
    put_in_slot(&p->up, p->has_resident_scales, part_at + MF_MAX_WEIGHT_ARRAYS);
    put_in_slot(&p->down, p->has_resident_scales, part_at + 2 * MF_MAX_WEIGHT_ARRAYS);
    if (before != NULL)
        fuse(r, *before, p);
    return op;
}

void mf_routed_record(mf_runner *r, uint32_t layer, uint32_t n_rows, const mf_input_step *before)
{
    const mf_op op = mf_routed_op(r, layer, n_rows, before);
    mf_record(r, &op);
    mf_routed_note(r, layer);
}

void mf_routed_note(mf_runner *r, uint32_t layer)
{
    const uint32_t moe = r->h.moe_index[layer];
    if (r->ahead.n != 0)
        return;
    r->routed.was_routed[moe] = true;
    r->routed.n_routed++;
}

void mf_routed_begin(mf_runner *r)
{
    memset(r->routed.was_routed, 0, r->h.n_moe_layers * sizeof *r->routed.was_routed);
    r->routed.n_routed = 0;
}

void mf_routed_ask(mf_runner *r, uint32_t n_rows)
{
    const uint64_t n = (uint64_t)r->h.n_moe_layers * n_rows * r->plan.k;
    if (r->routed.n_routed != 0)
        r->backend->ops->read(r->backend, r->plan.routed_ids, r->routed.ids,
                              n * sizeof *r->routed.ids);
}

/* How many different experts are among the picks of a layer; each row's are, so that a single row
 * between two tokens needs no list of those seen. */
static uint32_t count_distinct(mf_runner *r, uint32_t moe, const int32_t *ids, uint32_t n_rows)
{
    uint32_t *seen = n_rows > 1 ? r->moe.first : NULL, n_distinct = 0;
    if (seen != NULL)
        memset(seen, 0, r->h.n_experts * sizeof *seen);
    for (uint32_t i = 0; i < n_rows * r->plan.k; i++) {
        if ((uint32_t)ids[i] >= r->h.n_experts || (seen != NULL && seen[ids[i]]++ != 0))
            continue;
        n_distinct++;
        mf_expert_store_count_use(r->store, moe, (uint32_t)ids[i]);
    }
    return n_distinct;
}

void mf_routed_count(mf_runner *r, uint32_t n_rows)
{
    uint64_t n_hits = 0;
    for (uint32_t i = 0; i < r->h.n_layers && r->routed.n_routed != 0; i++) {
        const uint32_t moe = r->h.moe_index[i];
        const mf_expert_shape *shape = &r->weights.layers[i].experts;
        if (r->h.is_dense[i] || !r->routed.was_routed[moe])
            continue;
        const size_t n_picks = (size_t)n_rows * r->plan.k;
        const uint32_t n = count_distinct(r, moe, r->routed.ids + moe * n_picks, n_rows);
        n_hits += n;
        r->expert_bytes_touched +=
            n * (mf_weight_bytes(&shape->gate.shape) + mf_weight_bytes(&shape->up.shape) +
                 mf_weight_bytes(&shape->down.shape));
    }
    if (n_hits != 0)
        mf_expert_store_count_hits(r->store, n_hits);
}

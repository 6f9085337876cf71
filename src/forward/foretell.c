/* SPDX-License-Identifier: MIT */
/*
 * What the next layer's router says of the state before this layer's experts: their sum is a small
 * part of it, so that most of its choices are right. Nothing of it is used but to read ahead. It is
 * computed in what this layer has no more use for: y, the router's logits, rows for experts'
 * results.
 */
#include "forward/forward.h"

/* The layer after this one has experts, and somebody wants to know which. */
static bool is_wanted(const mf_runner *r, uint32_t layer)
{
    return layer + 1 < r->h.n_layers && !r->h.is_dense[layer + 1] && r->foresight != NULL &&
           mf_foresight_wants_router(r->foresight, r->h.moe_index[layer + 1]);
}

/* Of each row: twice as many as will be chosen, as far as the groups allow. */
static uint32_t n_foretold(const mf_runner *r)
{
    const mf_router *how = &r->h.router;
    const uint32_t n =
        how->n_groups > 1 ? r->h.n_experts / how->n_groups * how->k_groups : r->h.n_experts;
    const uint32_t wide = r->backend->ops->runs_later ? r->plan.k : 2 * r->plan.k;
    return wide < n ? wide : n;
}

bool mf_foretell(mf_runner *r, uint32_t layer, uint32_t n_rows)
{
    const mf_plan *p = &r->plan;
    const mf_layer_weights *next = &r->weights.layers[layer + 1];
    const uint32_t n = n_foretold(r);
    const uint64_t n_bytes = (uint64_t)n_rows * n * sizeof(int32_t);
    if (!is_wanted(r, layer) || 2 * n > r->h.hidden_size)
        return false;
    const mf_span weights = p->expert_out;
    const mf_span ids = mf_span_at(weights, (n_bytes + 63) / 64 * 64);
    mf_record_rmsnorm(r, n_rows, p->x, next->post_norm, p->y);
    mf_record_matmul(r, n_rows, &next->router, p->y, p->router);
    const mf_op op = mf_route_op(r, layer + 1, n_rows, n, ids, weights);
    mf_record(r, &op);
    r->backend->ops->read(r->backend, ids, r->moe.foretold, n_bytes);
    r->foretold_bytes += mf_weight_bytes(&next->router.shape);
    return true;
}

void mf_foretell_hint(mf_runner *r, uint32_t layer, bool is_foretold, uint32_t n_rows)
{
    const bool has_next = layer + 1 < r->h.n_layers && !r->h.is_dense[layer + 1];
    if (r->foresight == NULL || !has_next)
        return;
    const uint32_t next = r->h.moe_index[layer + 1], n = n_foretold(r);
    if (is_foretold && r->tap != NULL)
        r->tap->foretold(r->tap->ctx, next, r->moe.foretold, n, n_rows);
    mf_foresight_hint(r->foresight, next, is_foretold ? r->moe.foretold : NULL, n);
}

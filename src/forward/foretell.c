/* SPDX-License-Identifier: MIT */
/*
 * What the next layers' routers say of the state before this layer's experts: their sum is a small
 * part of it, so that most of the choices are right, fewer the farther the layer is. Where it helps
 * the shared expert's part is added first. Nothing of it is used but to read ahead. It is computed
 * in what this layer has no more use for: y, the router's logits, rows for experts' results.
 */
#include "forward/forward.h"

/* Of rows for experts' results: where the choices go, the state, the shared expert's part, and what
 * stands between them. */
#define SCRATCH_ROWS 4u
#define BETWEEN 64u

static bool has_experts(const mf_runner *r, uint32_t layer)
{
    return layer < r->h.n_layers && !r->h.is_dense[layer];
}

/* The layer has experts, and somebody wants to know which. */
static bool is_wanted(const mf_runner *r, uint32_t layer)
{
    return has_experts(r, layer) && r->foresight != NULL && !mf_is_given(r, layer) &&
           r->h.n_streams == 0 && /* the state is in them, and not to be had so early */
           mf_foresight_wants_router(r->foresight, r->h.moe_index[layer]);
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

bool mf_foretell_can_fold(const mf_runner *r)
{
    return r->h.shared_hidden != 0 && !r->backend->ops->runs_later && !mf_experts_are_apart(r) &&
           (uint64_t)r->plan.n_chunk * r->plan.k >= SCRATCH_ROWS * (uint64_t)MF_FORESIGHT_ROWS;
}

bool mf_foretell_folds(const mf_runner *r)
{
    return r->foresight != NULL && mf_foresight_folds_shared(r->foresight);
}

/* x with the shared expert's part, which is left as it is for what sums it up later. */
static mf_span fold(mf_runner *r, uint32_t n_rows)
{
    static const uint32_t in_order[MF_FORESIGHT_ROWS] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                         8, 9, 10, 11, 12, 13, 14, 15};
    const mf_plan *p = &r->plan;
    const uint64_t n_bytes = (uint64_t)n_rows * r->h.hidden_size * sizeof(float);
    const mf_span state = mf_span_at(p->expert_out, n_bytes + BETWEEN);
    const mf_span shared = mf_span_at(state, n_bytes);
    mf_record_copy_rows(r, n_rows, p->x, in_order, state, r->h.hidden_size);
    mf_record_copy_rows(r, n_rows, p->mlp_out, in_order, shared, r->h.hidden_size);
    const mf_op sum = {
        .kind = MF_OP_COMBINE,
        .n_rows = n_rows,
        .u.combine = {.x = state,
                      .weights = p->weights,
                      .experts = p->expert_out,
                      .shared = shared,
                      .shared_gate = r->h.shared_is_gated ? p->shared_router : (mf_span){{0}, 0},
                      .n_cols = r->h.hidden_size}};
    mf_record(r, &sum);
    return state;
}

static int32_t *list_of(const mf_runner *r, uint32_t distance)
{
    return r->moe.foretold + (size_t)(distance - 1) * MF_FORESIGHT_ROWS * 2 * r->plan.k;
}

/* What the router of the layer, which is so many turns away, says of the state. */
static void ask(mf_runner *r, uint32_t layer, uint32_t distance, mf_span state, uint32_t n_rows)
{
    const mf_plan *p = &r->plan;
    const mf_layer_weights *w = &r->weights.layers[layer];
    const uint32_t n = n_foretold(r);
    const uint64_t n_bytes = (uint64_t)n_rows * n * sizeof(int32_t);
    const mf_span weights = p->expert_out;
    const mf_span ids = mf_span_at(weights, (n_bytes + 63) / 64 * 64);
    mf_record_rmsnorm(r, n_rows, state, w->post_norm, p->y);
    mf_record_matmul(r, n_rows, &w->router, p->y, p->router);
    mf_record_bias(r, n_rows, p->router, w->router_logit_bias, r->h.n_experts);
    const mf_op op = mf_route_op(r, layer, n_rows, n, ids, weights);
    mf_record(r, &op);
    r->backend->ops->read(r->backend, ids, list_of(r, distance), n_bytes);
    r->foretold_bytes += mf_weight_bytes(&w->router.shape);
    r->n_multiply_adds -= (uint64_t)n_rows * w->router.shape.n_rows * w->router.shape.n_cols;
}

/* Once it is folded it lies there until the experts are multiplied. */
static mf_span state_of(const mf_runner *r, uint32_t n_rows)
{
    const uint64_t n_bytes = (uint64_t)n_rows * r->h.hidden_size * sizeof(float);
    return mf_foretell_folds(r) ? mf_span_at(r->plan.expert_out, n_bytes + BETWEEN) : r->plan.x;
}

bool mf_foretell(mf_runner *r, uint32_t layer, uint32_t n_rows)
{
    if (!is_wanted(r, layer + 1) || 2 * n_foretold(r) > r->h.hidden_size)
        return false;
    ask(r, layer + 1, 1, mf_foretell_folds(r) ? fold(r, n_rows) : r->plan.x, n_rows);
    return true;
}

/* Of the layers after the next one; after that one's hints, which are nearer. */
static void hint_far(mf_runner *r, uint32_t layer, uint32_t n_rows)
{
    for (uint32_t d = 2; d <= mf_foresight_depth(r->foresight) && has_experts(r, layer + d); d++) {
        ask(r, layer + d, d, state_of(r, n_rows), n_rows);
        mf_foresight_hint_far(r->foresight, r->h.moe_index[layer + d], d, list_of(r, d),
                              n_foretold(r));
    }
}

void mf_foretell_hint(mf_runner *r, uint32_t layer, bool is_foretold, uint32_t n_rows)
{
    if (r->foresight == NULL || !has_experts(r, layer + 1) || mf_is_given(r, layer + 1))
        return;
    const uint32_t next = r->h.moe_index[layer + 1], n = n_foretold(r);
    if (is_foretold && r->tap != NULL)
        r->tap->foretold(r->tap->ctx, next, r->moe.foretold, n, n_rows);
    mf_foresight_hint(r->foresight, next, is_foretold ? r->moe.foretold : NULL, n);
    if (is_foretold && !r->backend->ops->runs_later)
        hint_far(r, layer, n_rows);
}

void mf_foretell_first(mf_runner *r, uint32_t n_rows)
{
    if (n_rows > MF_FORESIGHT_ROWS && r->plan.n_given == 0) /* swept */
        mf_foresight_hint(r->foresight, 0, NULL, 0);
}

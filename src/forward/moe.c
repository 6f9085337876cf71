/* SPDX-License-Identifier: MIT */
/*
 * The mixture of experts of one layer: the router chooses, the store brings the bytes, the backend
 * multiplies each expert with all rows that chose it as soon as it is there. Each pick's result has
 * a row of its own, and the sum is taken over a row's picks in the router's order, so that the
 * order of arrival leaves no trace.
 */
#include "forward/forward.h"

#include <string.h>

mf_op mf_route_op(const mf_runner *r, uint32_t layer, uint32_t n_rows, uint32_t k, mf_span ids,
                  mf_span weights)
{
    const mf_router *how = &r->h.router;
    const mf_layer_weights *w = &r->weights.layers[layer];
    const mf_span none = {{0}, 0};
    const bool is_hashed = r->h.is_hashed[layer];
    const mf_score score = how->is_sqrt_softplus ? MF_SCORE_SQRT_SOFTPLUS
                           : how->is_sigmoid     ? MF_SCORE_SIGMOID
                                                 : MF_SCORE_SOFTMAX;
    return (mf_op){.kind = MF_OP_ROUTE,
                   .n_rows = n_rows,
                   .u.route = {.logits = r->plan.router,
                               .bias = how->has_bias && !is_hashed ? w->router_bias : none,
                               .table = is_hashed ? w->router_table : none,
                               .tokens = r->row_tokens,
                               .n_table = r->h.n_experts_per_token,
                               .ids = ids,
                               .weights = weights,
                               .n_experts = r->h.n_experts,
                               .k = k,
                               .n_groups = how->n_groups,
                               .k_groups = how->k_groups,
                               .score = score,
                               .group_rule = how->has_bias ? MF_GROUP_TOP2 : MF_GROUP_MAX,
                               .normalise = how->normalise,
                               .eps = how->eps,
                               .scale = how->scale}};
}

/* The k experts of each row to ids, their weights to plan.weights, of the scores in plan.router.
 * found: as mf_route_params has it, of the layer's slots. */
static void choose(mf_runner *r, uint32_t layer, uint32_t n_rows, mf_span ids, mf_span found)
{
    mf_record_bias(r, n_rows, r->plan.router, r->weights.layers[layer].router_logit_bias,
                   r->h.n_experts);
    mf_op op = mf_route_op(r, layer, n_rows, r->plan.k, ids, r->plan.weights);
    op.u.route.slot = mf_routed_slots(r, layer);
    op.u.route.found = found;
    op.u.route.n_to_find = n_rows;
    mf_record(r, &op);
}

/* plan.moe_x = plan.h scaled by the weights of one expert a row, where the family has it so. */
static void scale_inputs(mf_runner *r, uint32_t n_rows)
{
    const mf_plan *p = &r->plan;
    if (!r->h.router.scales_input)
        return;
    mf_record_copy_rows(r, n_rows, p->zeros, r->same_row, p->moe_x, r->h.hidden_size);
    const mf_op op = {.kind = MF_OP_COMBINE,
                      .n_rows = n_rows,
                      .u.combine = {.x = p->moe_x,
                                    .weights = p->weights,
                                    .experts = p->h,
                                    .n_cols = r->h.hidden_size,
                                    .k = 1}};
    mf_record(r, &op);
}

/* Sorts the picks by expert: first[x] .. first[x + 1] are expert x's rows, tokens rising. Returns
 * how many experts are wanted. */
static uint32_t group_by_expert(mf_runner *r, const int32_t *ids, uint32_t n_rows)
{
    mf_moe_lists *l = &r->moe;
    uint32_t n_experts = r->h.n_experts, k = r->plan.k, n_wanted = 0;
    memset(l->first, 0, (n_experts + 1) * sizeof *l->first);
    for (uint32_t i = 0; i < n_rows * k; i++)
        l->first[ids[i] + 1]++;
    for (uint32_t x = 0; x < n_experts; x++) {
        if (l->first[x + 1] != 0)
            l->wanted[n_wanted++] = x;
        l->first[x + 1] += l->first[x];
    }
    for (uint32_t i = 0; i < n_rows * k; i++) {
        uint32_t at = l->first[ids[i]]++;
        l->x_rows[at] = i / k;
        l->place[i] = at;
    }
    /* Filling moved every start to its end: the next expert's start. */
    memmove(l->first + 1, l->first, n_experts * sizeof *l->first);
    l->first[0] = 0;
    return n_wanted;
}

/* What a gated MLP makes of plan.h first, and plan.shared_router beside it if `gate` is given. */
static mf_op mlp_in(const mf_runner *r, const mf_mlp_weights *w, const mf_weight *gate,
                    uint32_t n_rows)
{
    const mf_plan *p = &r->plan;
    mf_op in = {
        .kind = MF_OP_MATMUL,
        .n_rows = n_rows,
        .u.matmul = {.x = p->h, .n = 2, .weight = {w->gate, w->up}, .y = {p->mlp_gate, p->mlp_up}}};
    if (gate != NULL) {
        in.u.matmul.weight[in.u.matmul.n] = *gate;
        in.u.matmul.y[in.u.matmul.n++] = p->shared_router;
    }
    return in;
}

static void run_mlp_act(mf_runner *r, const mf_mlp_weights *w, uint32_t n_rows)
{
    const mf_plan *p = &r->plan;
    const mf_op act = {.kind = MF_OP_SWIGLU,
                       .n_rows = n_rows,
                       .u.swiglu = {.gate = p->mlp_gate,
                                    .up = p->mlp_up,
                                    .out = p->mlp_gate,
                                    .n_cols = w->gate.shape.n_rows,
                                    .limit = r->h.silu_limit}};
    mf_record(r, &act);
}

/* And the rest of it, to plan.mlp_out. */
static void run_mlp_down(mf_runner *r, const mf_mlp_weights *w, uint32_t n_rows)
{
    mf_record_matmul(r, n_rows, &w->down, r->plan.mlp_gate, r->plan.mlp_out);
}

/* Of one row, whose norm is left to it. */
static void forward_mlp_fused(mf_runner *r, uint32_t layer, const mf_input_step *before)
{
    const mf_mlp_weights *w = &r->weights.layers[layer].mlp;
    const mf_op in = mf_fused_pair(r, w, before->weight);
    const mf_op out =
        mf_fused_out(r, &w->down, r->plan.mlp_gate, (mf_input_step){.kind = MF_INPUT_AS_IT_IS});
    mf_record(r, &in);
    mf_record(r, &out);
    (void)mf_fused_leave_norm(r, mf_next_input(r, layer));
}

void mf_forward_mlp(mf_runner *r, uint32_t layer, uint32_t n_rows)
{
    const mf_mlp_weights *w = &r->weights.layers[layer].mlp;
    mf_input_step before;
    if (mf_fused_take_norm(r, &before)) {
        forward_mlp_fused(r, layer, &before);
        return;
    }
    const mf_op in = mlp_in(r, w, NULL, n_rows);
    mf_record_matmuls(r, &in);
    run_mlp_act(r, w, n_rows);
    run_mlp_down(r, w, n_rows);
    mf_record_add(r, n_rows, r->plan.mlp_out, mf_next_input(r, layer));
    mf_streams_out(r, n_rows, r->plan.x);
}

static mf_op shared_in(const mf_runner *r, const mf_layer_weights *w, uint32_t n_rows)
{
    return mlp_in(r, &w->mlp, r->h.shared_is_gated ? &w->shared_router : NULL, n_rows);
}

static void run_shared_act(mf_runner *r, const mf_layer_weights *w, uint32_t n_rows)
{
    (void)mf_profile_enter(r->profile, MF_STAGE_SHARED);
    if (r->h.shared_hidden != 0)
        run_mlp_act(r, &w->mlp, n_rows);
}

static void run_shared_down(mf_runner *r, const mf_layer_weights *w, uint32_t n_rows)
{
    (void)mf_profile_enter(r->profile, MF_STAGE_SHARED);
    if (r->h.shared_hidden != 0)
        run_mlp_down(r, &w->mlp, n_rows);
}

/* All products of the layer's input. */
static void run_router_and_shared_in(mf_runner *r, const mf_layer_weights *w, uint32_t n_rows)
{
    mf_op op = shared_in(r, w, n_rows);
    mf_matmul_params *m = &op.u.matmul;
    m->n = r->h.shared_hidden != 0 ? m->n : 0;
    m->weight[m->n] = w->router;
    m->y[m->n++] = r->plan.router;
    mf_record(r, &op);
}

/* Where nothing is read, the shared expert's first products need not wait for what the router
 * chooses: together they are enough for all threads. */
static bool is_shared_with_router(const mf_runner *r)
{
    return r->routed.is_whole && !r->backend->ops->runs_later && r->n_long_rows == 0;
}

/* The router's choice to moe.ids, which are there once the ticket is done, and with it what a
 * device foretells of the next layer. The only host round trip of a layer. */
static mf_ticket route(mf_runner *r, uint32_t layer, uint32_t n_rows, bool with_shared,
                       bool *is_foretold)
{
    const mf_plan *p = &r->plan;
    if (with_shared)
        run_router_and_shared_in(r, &r->weights.layers[layer], n_rows);
    else
        mf_record_matmul(r, n_rows, &r->weights.layers[layer].router, p->h, p->router);
    choose(r, layer, n_rows, p->ids, (mf_span){{0}, 0});
    scale_inputs(r, n_rows);
    r->backend->ops->read(r->backend, p->ids, r->moe.ids,
                          (uint64_t)n_rows * p->k * sizeof *r->moe.ids);
    if (r->tap != NULL)
        r->backend->ops->read(r->backend, p->weights, r->moe.weights,
                              (uint64_t)n_rows * p->k * sizeof *r->moe.weights);
    if (r->inputs != NULL)
        r->backend->ops->read(r->backend, p->moe_x, r->inputs->rows,
                              (uint64_t)n_rows * r->h.hidden_size * sizeof *r->inputs->rows);
    mf_expert_rows_ask(r, n_rows);
    *is_foretold = r->backend->ops->runs_later && mf_foretell(r, layer, n_rows);
    return r->backend->ops->mark(r->backend);
}

static mf_weight in_slot(const mf_weight *shape, bool has_resident_scales, uint32_t expert,
                         const uint64_t *part_at)
{
    const mf_buffer slots = {MF_BUFFER_SLOTS};
    const mf_weight_format *format = mf_weight_format_of(&shape->shape);
    mf_weight w = *shape;
    for (uint32_t i = 0; i < format->n_arrays; i++) {
        if (has_resident_scales && format->arrays[i].is_float32)
            w.arrays[i] = mf_span_at(shape->arrays[i], expert * mf_weight_array_bytes(&w.shape, i));
        else
            w.arrays[i] = (mf_span){slots, part_at[i]};
    }
    return w;
}

static uint64_t expert_bytes(const mf_expert_shape *shape)
{
    return mf_weight_bytes(&shape->gate.shape) + mf_weight_bytes(&shape->up.shape) +
           mf_weight_bytes(&shape->down.shape);
}

/* The expert's rows that are of long runs, or the others: tokens rise, and those come first. */
static void take_rows(const mf_runner *r, bool is_long, mf_expert_item *item)
{
    uint32_t n_long = 0;
    while (n_long < item->n_rows && item->x_rows[n_long] < r->n_long_rows)
        n_long++;
    if (is_long) {
        item->n_rows = n_long;
        return;
    }
    item->x_rows += n_long;
    item->out_row += n_long;
    item->n_rows -= n_long;
}

/* Of the batch's experts. */
static mf_backend *multiplier(const mf_runner *r)
{
    return mf_experts_are_away(r) ? r->experts : r->backend;
}

/* The experts of a form that are there, with their rows of long runs or with the others. */
static void run_form(mf_runner *r, const mf_expert_shape *all, uint32_t form, uint32_t n_ready,
                     bool is_long)
{
    const mf_expert_shape of_form = mf_expert_shape_of(all, form), *shape = &of_form;
    mf_moe_lists *l = &r->moe;
    uint32_t n_rows = 0, n_items = 0;
    for (uint32_t i = 0; i < n_ready; i++) {
        const mf_expert_ready *ready = &l->ready[i];
        uint32_t expert = l->wanted[ready->index];
        if (mf_expert_form_of(all, expert) != form)
            continue;
        mf_expert_item *item = &l->items[n_items];
        *item = (mf_expert_item){
            .gate = in_slot(&shape->gate, shape->has_resident_scales, expert, ready->part_at),
            .up = in_slot(&shape->up, shape->has_resident_scales, expert,
                          ready->part_at + MF_MAX_WEIGHT_ARRAYS),
            .down = in_slot(&shape->down, shape->has_resident_scales, expert,
                            ready->part_at + 2 * MF_MAX_WEIGHT_ARRAYS),
            .x_rows = l->x_rows + l->first[expert],
            .n_rows = l->first[expert + 1] - l->first[expert],
            .out_row = l->first[expert],
            .expert = expert,
        };
        take_rows(r, is_long, item);
        if (item->n_rows == 0)
            continue;
        n_rows += item->n_rows;
        n_items++;
        r->expert_bytes_touched += expert_bytes(shape);
    }
    if (n_items == 0)
        return;
    const mf_plan *p = &r->plan;
    const bool are_lent = mf_experts_are_apart(r) && !mf_experts_are_away(r); /* or given */
    mf_backend *be = multiplier(r);
    const mf_op op = {.kind = MF_OP_EXPERTS,
                      .n_rows = n_rows,
                      .is_long = is_long,
                      .u.experts = {.x = are_lent ? p->moe_x : p->expert_x,
                                    .act = are_lent ? p->lent_act : p->expert_act,
                                    .out = are_lent ? p->expert_out : p->expert_y,
                                    .steps = shape->steps,
                                    .items = l->items,
                                    .n_items = n_items}};
    mf_count_op(r, &op);
    be->ops->record(be, &op);
}

/* An operation for each form that there is: a backend prepares tokens for one alone. */
static void run_ready(mf_runner *r, const mf_expert_shape *shape, uint32_t n_ready, bool is_long)
{
    run_form(r, shape, 0, n_ready, is_long);
    for (uint32_t form = 1; form < shape->n_forms; form++)
        run_form(r, shape, form, n_ready, is_long);
}

static void run_all_ready(mf_runner *r, const mf_expert_shape *shape, uint32_t n_ready)
{
    if (r->n_long_rows != 0)
        run_ready(r, shape, n_ready, true);
    run_ready(r, shape, n_ready, false);
}

/* Each is given back with the ticket after which the backend no longer reads it. */
static void release_ready(mf_runner *r, mf_expert_fetch *fetch, uint32_t n_ready)
{
    mf_backend *be = multiplier(r);
    const mf_ticket ticket = be->ops->mark(be);
    for (uint32_t i = 0; i < n_ready; i++)
        mf_expert_fetch_release(fetch, r->moe.ready[i].index, ticket);
}

/* Takes experts as they arrive until all are recorded. */
static mf_status run_experts(mf_runner *r, const mf_batch *batch, uint32_t layer,
                             mf_expert_fetch *fetch, uint32_t n_wanted, mf_error *error)
{
    const bool are_lent = r->lending.is_at_hand;
    const mf_expert_shape *shape =
        are_lent ? &r->lending.shapes[layer] : &r->weights.layers[layer].experts;
    const uint32_t most = are_lent ? mf_lend_most(r) : MF_READY_MAX;
    for (uint32_t done = 0, n_ready = 0; done < n_wanted; done += n_ready) {
        MF_TRY(mf_batch_check(batch, error));
        (void)mf_profile_enter(r->profile, MF_STAGE_EXPERTS);
        MF_TRY(mf_expert_fetch_next(fetch, r->moe.ready, most, &n_ready, error));
        if (are_lent)
            MF_TRY(mf_lend(r, layer, n_ready, error));
        run_all_ready(r, shape, n_ready);
        if (are_lent)
            MF_TRY(mf_lend_used(r, fetch, n_ready, error));
        else
            release_ready(r, fetch, n_ready);
    }
    return MF_OK;
}

/* All that are wanted are there. */
static void run_given(mf_runner *r, uint32_t layer, uint32_t n_wanted)
{
    const uint32_t most = r->h.n_experts < MF_READY_MAX ? r->h.n_experts : MF_READY_MAX;
    (void)mf_profile_enter(r->profile, MF_STAGE_EXPERTS);
    for (uint32_t done = 0, n = 0; done < n_wanted; done += n) {
        n = n_wanted - done < most ? n_wanted - done : most;
        mf_given_ready(r, layer, done, n);
        run_all_ready(r, &r->lending.shapes[layer], n);
    }
}

/* has_in: its first products are there. */
static void run_shared(mf_runner *r, const mf_layer_weights *w, uint32_t n_rows, bool has_in)
{
    const mf_op in = shared_in(r, w, n_rows);
    (void)mf_profile_enter(r->profile, MF_STAGE_SHARED);
    if (r->h.shared_hidden != 0 && !has_in)
        mf_record_matmuls(r, &in);
    run_shared_act(r, w, n_rows);
    run_shared_down(r, w, n_rows);
}

/* place: as mf_combine_params. What comes from experts of another device is summed already. */
static void combine(mf_runner *r, uint32_t layer, uint32_t n_rows, const uint32_t *place)
{
    const mf_plan *p = &r->plan;
    const mf_span none = {{0}, 0};
    const bool is_sum = mf_experts_are_away(r);
    const mf_op op = {
        .kind = MF_OP_COMBINE,
        .n_rows = n_rows,
        .u.combine = {.x = p->x,
                      .weights = is_sum || r->h.router.scales_input ? p->ones : p->weights,
                      .experts = p->expert_out,
                      .shared = r->h.shared_hidden != 0 ? p->mlp_out : none,
                      .shared_gate = r->h.shared_is_gated ? p->shared_router : none,
                      .place = is_sum ? NULL : place,
                      .n_cols = r->h.hidden_size,
                      .k = is_sum ? 1 : p->k,
                      .norm = mf_next_input(r, layer)}};
    mf_record(r, &op);
    mf_streams_out(r, n_rows, p->x);
}

mf_op mf_mixture_op(const mf_runner *r, uint32_t layer, const mf_input_step *before, mf_mixture *m)
{
    const mf_mlp_weights *w = &r->weights.layers[layer].mlp;
    m->router = mf_fused_router(r, layer);
    m->shared_in = mf_fused_pair(r, w, before->weight);
    m->route = mf_route_op(r, layer, 1, r->plan.k, mf_routed_ids(r, layer, 1), r->plan.weights);
    m->route.u.route.slot = mf_routed_slots(r, layer);
    m->shared_out = (mf_op){
        .kind = MF_OP_MATMUL,
        .n_rows = 1,
        .u.matmul = {.x = r->plan.mlp_gate, .n = 1, .weight = {w->down}, .y = {r->plan.mlp_out}}};
    return (mf_op){
        .kind = MF_OP_MIXTURE,
        .n_rows = 1,
        .u.mixture = {&m->router, &m->shared_in, &m->route, &m->shared_out, &m->experts}};
}

static void forward_mixture(mf_runner *r, uint32_t layer, const mf_input_step *before)
{
    mf_mixture m = {.experts = mf_routed_op(r, layer, 1, before)};
    const mf_op op = mf_mixture_op(r, layer, before, &m);
    mf_record(r, &op);
    mf_routed_note(r, layer);
    (void)mf_fused_leave_norm(r, mf_next_input(r, layer));
}

/* One row, whose norm is left to products. */
static void forward_fused(mf_runner *r, uint32_t layer, const mf_input_step *before)
{
    const mf_layer_weights *w = &r->weights.layers[layer];
    const mf_op pair = mf_fused_pair(r, &w->mlp, before->weight), in = mf_fused_router(r, layer);
    mf_record(r, &in);
    if (r->h.shared_hidden != 0)
        mf_record(r, &pair);
    choose(r, layer, 1, mf_routed_ids(r, layer, 1), (mf_span){{0}, 0});
    run_shared_down(r, w, 1);
    mf_routed_record(r, layer, 1, before);
    (void)mf_fused_leave_norm(r, mf_next_input(r, layer));
}

/* Nothing is waited for. What depends on the same comes together: products of the layer's input,
 * then the choice beside the shared expert's activation, then its last product beside the experts'
 * first.
 */
static void forward_routed(mf_runner *r, uint32_t layer, uint32_t n_rows)
{
    const mf_layer_weights *w = &r->weights.layers[layer];
    run_router_and_shared_in(r, w, n_rows);
    choose(r, layer, n_rows, mf_routed_ids(r, layer, n_rows), (mf_span){{0}, 0});
    scale_inputs(r, n_rows);
    run_shared_act(r, w, n_rows);
    run_shared_down(r, w, n_rows);
    mf_routed_record(r, layer, n_rows, NULL);
    combine(r, layer, n_rows, NULL);
}

/* The same; what follows the choice is done if all that was chosen is held, and begins with what
 * waits for the choice. */
static void forward_ahead(mf_runner *r, uint32_t layer, uint32_t n_rows)
{
    const mf_layer_weights *w = &r->weights.layers[layer];
    const mf_span found = mf_ahead_begin(r, layer);
    run_router_and_shared_in(r, w, n_rows);
    choose(r, layer, n_rows, mf_routed_ids(r, layer, n_rows), found);
    scale_inputs(r, n_rows);
    run_shared_act(r, w, n_rows);
    mf_ahead_under(r, found);
    mf_routed_record(r, layer, n_rows, NULL);
    run_shared_down(r, w, n_rows);
    combine(r, layer, n_rows, NULL);
}

/* The experts are multiplied later, while the stream goes on. */
static mf_status forward_relayed(mf_runner *r, const mf_batch *batch, uint32_t layer,
                                 mf_error *error)
{
    const mf_layer_weights *w = &r->weights.layers[layer];
    const uint32_t n_rows = batch->n_rows;
    run_router_and_shared_in(r, w, n_rows);
    choose(r, layer, n_rows, r->plan.ids, (mf_span){{0}, 0});
    scale_inputs(r, n_rows);
    MF_TRY(mf_relay_pass_on(r, batch, error));
    run_shared_act(r, w, n_rows);
    run_shared_down(r, w, n_rows);
    mf_relay_await(r, layer, n_rows);
    combine(r, layer, n_rows, NULL);
    return MF_OK;
}

/* Experts that the host knows, each pick's result for itself. */
static mf_status multiply(mf_runner *r, const mf_batch *batch, uint32_t layer,
                          mf_expert_fetch *fetch, uint32_t n_wanted, mf_error *error)
{
    const mf_status status = run_experts(r, batch, layer, fetch, n_wanted, error);
    const mf_status lent = mf_lend_end(r, fetch, status == MF_OK ? error : NULL);
    mf_expert_fetch_end(fetch, r->experts->ops->mark(r->experts));
    return status == MF_OK ? lent : status;
}

static void add_inputs(const mf_runner *r, uint32_t moe_layer, uint32_t n_rows)
{
    const uint32_t n_cols = r->h.hidden_size;
    double *sums = r->inputs->sums + (size_t)moe_layer * n_cols;
    for (size_t i = 0; i < (size_t)n_rows * n_cols; i++) {
        const double x = (double)r->inputs->rows[i];
        sums[i % n_cols] += x * x;
    }
}

/* The choice is here: for whoever watches, and whoever named it before. */
static void take_choice(mf_runner *r, uint32_t layer, uint32_t n_rows)
{
    const uint32_t moe = r->h.moe_index[layer];
    if (r->tap != NULL)
        r->tap->chosen(r->tap->ctx, moe, r->moe.ids, r->moe.weights, n_rows);
    if (r->inputs != NULL)
        add_inputs(r, moe, n_rows);
    if (r->foresight != NULL && !r->lending.is_given)
        mf_foresight_chosen(r->foresight, moe, r->moe.ids);
}

mf_status mf_forward_there(mf_runner *r, const mf_batch *batch, uint32_t layer, mf_error *error)
{
    mf_expert_fetch *fetch = NULL;
    mf_expert_rows_send(r, batch->n_rows);
    take_choice(r, layer, batch->n_rows);
    const uint32_t n_wanted = group_by_expert(r, r->moe.ids, batch->n_rows);
    MF_TRY(mf_expert_fetch_begin(r->store, r->h.moe_index[layer], r->moe.wanted, n_wanted, &fetch,
                                 error));
    MF_TRY(multiply(r, batch, layer, fetch, n_wanted, error));
    return mf_expert_rows_sum(r, batch->n_rows, error);
}

/* And what becomes of them. */
static mf_status forward_wanted(mf_runner *r, const mf_batch *batch, uint32_t layer,
                                mf_expert_fetch *fetch, uint32_t n_wanted, mf_error *error)
{
    MF_TRY(multiply(r, batch, layer, fetch, n_wanted, error));
    (void)mf_profile_enter(r->profile, MF_STAGE_COPYING);
    MF_TRY(mf_expert_rows_sum(r, batch->n_rows, error));
    mf_expert_rows_return(r, batch->n_rows);
    (void)mf_profile_enter(r->profile, MF_STAGE_EXPERTS);
    combine(r, layer, batch->n_rows, r->moe.place);
    return MF_OK;
}

mf_status mf_forward_chosen(mf_runner *r, const mf_batch *batch, uint32_t layer, const int32_t *ids,
                            mf_error *error)
{
    const uint32_t n_wanted = group_by_expert(r, ids, batch->n_rows);
    mf_expert_fetch *fetch = NULL;
    MF_TRY(mf_expert_fetch_begin(r->store, r->h.moe_index[layer], r->moe.wanted, n_wanted, &fetch,
                                 error));
    run_shared_down(r, &r->weights.layers[layer], batch->n_rows);
    return forward_wanted(r, batch, layer, fetch, n_wanted, error);
}

mf_status mf_forward_used(mf_runner *r, uint32_t layer, uint32_t n_rows, const int32_t *ids,
                          mf_error *error)
{
    const uint32_t n_used = group_by_expert(r, ids, n_rows);
    mf_expert_fetch *fetch = NULL;
    MF_TRY(mf_expert_fetch_begin(r->store, r->h.moe_index[layer], r->moe.wanted, n_used, &fetch,
                                 error));
    mf_expert_fetch_end(fetch, 0); /* they are done with */
    r->expert_bytes_touched += n_used * expert_bytes(&r->weights.layers[layer].experts);
    return MF_OK;
}

/* Of a layer whose experts are there for good, where the host has to name them. */
static void forward_given(mf_runner *r, uint32_t layer, uint32_t n_rows, uint32_t n_wanted,
                          bool is_foretold)
{
    run_given(r, layer, n_wanted);
    combine(r, layer, n_rows, r->moe.place);
    mf_foretell_hint(r, layer, is_foretold, n_rows);
}

static mf_status forward_moe(mf_runner *r, const mf_batch *batch, uint32_t layer, mf_error *error)
{
    const uint32_t n_rows = batch->n_rows;
    const mf_layer_weights *w = &r->weights.layers[layer];
    mf_input_step before;
    if (mf_routed_can(r, layer, n_rows)) {
        if (r->fused.has_experts && mf_fused_take_norm(r, &before)) {
            if (r->fused.has_mixture[layer])
                forward_mixture(r, layer, &before);
            else
                forward_fused(r, layer, &before);
            return MF_OK;
        }
        mf_need_h(r);
        forward_routed(r, layer, n_rows);
        return MF_OK;
    }
    mf_need_h(r);
    if (mf_ahead_can(r, batch)) {
        forward_ahead(r, layer, n_rows);
        return MF_OK;
    }
    if (r->relay.is_at_hand && !r->lending.is_given)
        return forward_relayed(r, batch, layer, error);
    bool is_foretold = false;
    const bool has_in = is_shared_with_router(r);
    const mf_ticket ticket = route(r, layer, n_rows, has_in, &is_foretold);
    /* The shared expert needs no read. A device computes it while the ids come back; where they are
     * here already, it is computed while the others are read. */
    const bool is_early = !r->backend->ops->done(r->backend, ticket);
    if (is_early)
        run_shared(r, w, n_rows, has_in);
    (void)mf_profile_enter(r->profile, is_early ? MF_STAGE_DEVICE : MF_STAGE_ROUTER);
    MF_TRY(r->backend->ops->wait_for(r->backend, ticket, error));
    (void)mf_profile_enter(r->profile, MF_STAGE_COPYING);
    mf_expert_rows_send(r, n_rows);
    (void)mf_profile_enter(r->profile, MF_STAGE_ROUTER);
    take_choice(r, layer, n_rows);
    uint32_t n_wanted = group_by_expert(r, r->moe.ids, n_rows);
    if (r->lending.is_given) {
        if (!is_early)
            run_shared(r, w, n_rows, has_in);
        forward_given(r, layer, n_rows, n_wanted, is_foretold);
        return MF_OK;
    }
    mf_expert_fetch *fetch = NULL;
    MF_TRY(mf_expert_fetch_begin(r->store, r->h.moe_index[layer], r->moe.wanted, n_wanted, &fetch,
                                 error));
    mf_ahead_note(r, mf_expert_fetch_was_held(fetch));
    const bool is_first = !is_early && mf_foretell_folds(r);
    if (is_first)
        run_shared(r, w, n_rows, has_in);
    (void)mf_profile_enter(r->profile, MF_STAGE_FORETELLING);
    if (!r->backend->ops->runs_later) /* done at once, while the experts are read */
        is_foretold = mf_foretell(r, layer, n_rows);
    /* What is foreseen is not to be uploaded before what this layer waits for. */
    const bool is_hinted_late = r->backend->ops->runs_later && r->experts->ops->runs_later &&
                                mf_expert_fetch_is_ready(fetch);
    if (!is_hinted_late)
        mf_foretell_hint(r, layer, is_foretold, n_rows);
    if (!is_early && !is_first)
        run_shared(r, w, n_rows, has_in);
    MF_TRY(forward_wanted(r, batch, layer, fetch, n_wanted, error));
    if (is_hinted_late) {
        (void)mf_profile_enter(r->profile, MF_STAGE_FORETELLING);
        mf_foretell_hint(r, layer, is_foretold, n_rows);
    }
    return MF_OK;
}

mf_status mf_forward_moe(mf_runner *r, const mf_batch *batch, uint32_t layer, mf_error *error)
{
    r->lending.is_given = mf_is_given(r, layer);
    const mf_status status = forward_moe(r, batch, layer, error);
    r->lending.is_given = false;
    return status;
}

mf_status mf_forward_choose(mf_runner *r, uint32_t layer, uint32_t n_rows, mf_expert_fetch **fetch,
                            uint32_t *n_wanted, mf_error *error)
{
    bool is_foretold;
    MF_TRY(
        r->backend->ops->wait_for(r->backend, route(r, layer, n_rows, false, &is_foretold), error));
    *n_wanted = group_by_expert(r, r->moe.ids, n_rows);
    return mf_expert_fetch_begin(r->store, r->h.moe_index[layer], r->moe.wanted, *n_wanted, fetch,
                                 error);
}

mf_status mf_forward_multiply(mf_runner *r, const mf_batch *batch, uint32_t layer,
                              mf_expert_fetch *fetch, uint32_t n_wanted, mf_error *error)
{
    run_shared(r, &r->weights.layers[layer], batch->n_rows, false);
    return forward_wanted(r, batch, layer, fetch, n_wanted, error);
}

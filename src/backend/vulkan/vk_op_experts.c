/* SPDX-License-Identifier: MIT */
/* The mixture of experts: the router's choice, the experts chosen, their sum. */
#include "backend/vulkan/vk_product.h"

/* -------------------------------------------------------------------------------- experts -- */

/* What is dispatched together at most: more goes in several pieces. */
#define PIECE_ITEMS 64u
#define PIECE_ROWS 16384u

static bool experts_supports(const mf_vk_backend *be, const mf_op *op)
{
    (void)be;
    for (uint32_t i = 0; i < op->u.experts.n_items; i++) {
        const mf_expert_item *item = &op->u.experts.items[i];
        if (!mf_vk_same_form(&item->gate.shape, &item->up.shape) ||
            !mf_vk_product_supports(&item->gate.shape) ||
            !mf_vk_product_supports(&item->down.shape))
            return false;
    }
    return true;
}

static uint64_t piece_bytes(uint64_t most_rows)
{
    return (PIECE_ROWS + most_rows) * sizeof(uint32_t) + 2 * mf_vk_product_bytes(PIECE_ITEMS);
}

static mf_status experts_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_expert_item *item = op->u.experts.items;
    const uint64_t hidden = item->gate.shape.n_rows, n_cols = item->down.shape.n_rows;
    MF_TRY(mf_vk_product_reserve(be, &item->gate.shape, true, op->n_rows, PIECE_ITEMS * hidden,
                                 error));
    MF_TRY(mf_vk_product_reserve(be, &item->down.shape, false, op->n_rows, PIECE_ITEMS * n_cols,
                                 error));
    return mf_vk_ring_need(be, MF_VK_RING_PARAMETERS, piece_bytes(op->n_rows), error);
}

/* Items of one form. */
typedef struct expert_jobs {
    const mf_vk_backend *be;
    const mf_op *op;
    const mf_expert_item *items;
    uint64_t rows; /* where their lists of rows begin, one after the other */
    uint64_t at;   /* within them */
} expert_jobs;

static mf_span item_rows(mf_span span, const mf_expert_item *item, uint64_t n_cols)
{
    return mf_span_at(span, item->out_row * n_cols * sizeof(float));
}

static void in_job(void *ctx, uint32_t i, mf_vk_job *out)
{
    expert_jobs *jobs = ctx;
    const mf_expert_item *item = &jobs->items[i];
    const mf_experts_params *p = &jobs->op->u.experts;
    jobs->at = i == 0 ? 0 : jobs->at;
    out->weight = mf_vk_weight_at(jobs->be, &item->gate);
    out->up = mf_vk_weight_at(jobs->be, &item->up);
    out->x = mf_vk_address(jobs->be, p->x);
    out->n_rows = item->gate.shape.n_rows;
    out->y_stride = 2 * out->n_rows;
    out->y = mf_vk_address(jobs->be, item_rows(p->act, item, out->y_stride));
    out->rows = jobs->rows + jobs->at;
    out->n_tokens = item->n_rows;
    out->x_stride = item->gate.shape.n_cols;
    jobs->at += item->n_rows * sizeof(uint32_t);
}

static void out_job(void *ctx, uint32_t i, mf_vk_job *out)
{
    const expert_jobs *jobs = ctx;
    const mf_expert_item *item = &jobs->items[i];
    const mf_experts_params *p = &jobs->op->u.experts;
    out->weight = mf_vk_weight_at(jobs->be, &item->down);
    out->x_stride = 2 * item->down.shape.n_cols;
    out->x = mf_vk_address(jobs->be, item_rows(p->act, item, out->x_stride));
    out->n_rows = out->y_stride = item->down.shape.n_rows;
    out->y = mf_vk_address(jobs->be, item_rows(p->out, item, out->y_stride));
    out->n_tokens = item->n_rows;
}

static bool put_rows(mf_vk_backend *be, const mf_expert_item *items, uint32_t n, uint64_t *address)
{
    uint64_t n_rows = 0;
    for (uint32_t i = 0; i < n; i++)
        n_rows += items[i].n_rows;
    uint32_t *rows = mf_vk_parameters(be, n_rows * sizeof *rows, address);
    if (rows == NULL)
        return false;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t r = 0; r < items[i].n_rows; r++)
            *rows++ = items[i].x_rows[r];
    return true;
}

static void record_piece(mf_vk_backend *be, const mf_op *op, const mf_expert_item *items,
                         uint32_t n)
{
    expert_jobs jobs = {be, op, items, 0, 0};
    const mf_vk_product in = {&items->gate.shape, true, n, in_job, &jobs};
    const mf_vk_product out = {&items->down.shape, false, n, out_job, &jobs};
    if (!put_rows(be, items, n, &jobs.rows))
        return;
    mf_vk_product_record(be, &in);
    mf_vk_step(be);
    mf_vk_product_record(be, &out);
    for (uint32_t i = 0; i < n; i++)
        be->weight_bytes += mf_weight_bytes(&items[i].gate.shape) +
                            mf_weight_bytes(&items[i].up.shape) +
                            mf_weight_bytes(&items[i].down.shape);
}

static void experts_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_experts_params *p = &op->u.experts;
    for (uint32_t first = 0; first < p->n_items;) {
        uint32_t n = 1;
        uint64_t n_rows = p->items[first].n_rows;
        while (first + n < p->n_items && n < PIECE_ITEMS &&
               n_rows + p->items[first + n].n_rows <= PIECE_ROWS &&
               mf_vk_same_form(&p->items[first].gate.shape, &p->items[first + n].gate.shape) &&
               mf_vk_same_form(&p->items[first].down.shape, &p->items[first + n].down.shape))
            n_rows += p->items[first + n++].n_rows;
        record_piece(be, op, p->items + first, n);
        first += n;
    }
}

const mf_vk_op mf_vk_op_experts = {experts_supports, experts_reserve, experts_record};

/* ---------------------------------------------------------------------------------- route -- */

/* As in route.comp. */
#define MOST_EXPERTS 2048u
#define MOST_PICKS 64u
#define ROUTE_THREADS 256u

static bool route_supports(const mf_vk_backend *be, const mf_op *op)
{
    (void)be;
    return op->u.route.n_experts <= MOST_EXPERTS && op->u.route.k <= MOST_PICKS &&
           op->u.route.n_groups <= MF_MAX_GROUPS;
}

static mf_status route_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    (void)op;
    const mf_vk_kernel kernel = {MF_VK_SHADER_route, 1, {ROUTE_THREADS}};
    return mf_vk_prepare(be, &kernel, error);
}

static void route_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_route_params *p = &op->u.route;
    const mf_vk_kernel kernel = {MF_VK_SHADER_route, 1, {ROUTE_THREADS}};
    const struct {
        uint64_t logits, bias, ids, weights;
        uint32_t n_experts, k, n_groups, k_groups, score, group_rule, normalise;
        float eps, scale;
        uint32_t unused;
    } push = {mf_vk_address(be, p->logits),
              mf_vk_address(be, p->bias),
              mf_vk_address(be, p->ids),
              mf_vk_address(be, p->weights),
              p->n_experts,
              p->k,
              p->n_groups,
              p->k_groups,
              (uint32_t)p->score,
              (uint32_t)p->group_rule,
              p->normalise,
              p->eps,
              p->scale,
              0};
    mf_vk_dispatch(be, &kernel, &push, sizeof push, (const uint32_t[]){1, op->n_rows, 1});
}

const mf_vk_op mf_vk_op_route = {route_supports, route_reserve, route_record};

/* -------------------------------------------------------------------------------- combine -- */

#define COMBINE_THREADS 128u

static bool combine_supports(const mf_vk_backend *be, const mf_op *op)
{
    (void)be;
    return op->u.combine.k <= MOST_PICKS;
}

static mf_status combine_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_vk_kernel kernel = {MF_VK_SHADER_combine, 1, {COMBINE_THREADS}};
    MF_TRY(mf_vk_prepare(be, &kernel, error));
    const uint64_t k = op->u.combine.k != 0 ? op->u.combine.k : MOST_PICKS;
    return mf_vk_ring_need(be, MF_VK_RING_PARAMETERS, op->n_rows * k * sizeof(uint32_t), error);
}

static void combine_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_combine_params *p = &op->u.combine;
    const mf_vk_kernel kernel = {MF_VK_SHADER_combine, 1, {COMBINE_THREADS}};
    const uint64_t n_places = (uint64_t)op->n_rows * p->k;
    const struct {
        uint64_t x, weights, experts, shared, shared_gate, place;
        uint32_t n_cols, k;
    } push = {mf_vk_address(be, p->x),
              mf_vk_address(be, p->weights),
              mf_vk_address(be, p->experts),
              mf_vk_address(be, p->shared),
              mf_vk_address(be, p->shared_gate),
              mf_vk_array(be, p->place, n_places * sizeof *p->place),
              p->n_cols,
              p->k};
    mf_vk_dispatch(be, &kernel, &push, sizeof push,
                   (const uint32_t[]){mf_vk_groups(p->n_cols, COMBINE_THREADS), op->n_rows, 1});
}

const mf_vk_op mf_vk_op_combine = {combine_supports, combine_reserve, combine_record};

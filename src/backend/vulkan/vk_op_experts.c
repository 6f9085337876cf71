/* SPDX-License-Identifier: MIT */
/* The mixture of experts: the router's choice, the experts chosen, their sum. */
#include "backend/vulkan/vk_product.h"

/* -------------------------------------------------------------------------------- experts -- */

/* What is dispatched together at most: more goes in several pieces. */
#define PIECE_ITEMS 256u
#define PIECE_ROWS 16384u

/* Gate and up of one form are multiplied together, if nothing stands between them and what becomes
 * of them. */
static bool are_together(const mf_expert_steps *steps, const mf_weight *gate, const mf_weight *up)
{
    return !mf_has_expert_steps(steps) && mf_vk_same_form(&gate->shape, &up->shape);
}

static bool experts_supports(const mf_vk_backend *be, const mf_op *op)
{
    const bool is_paired = op->u.experts.steps.is_paired;
    (void)be;
    for (uint32_t i = 0; i < op->u.experts.n_items; i++) {
        const mf_expert_item *item = &op->u.experts.items[i];
        if ((!is_paired && !mf_vk_product_supports(&item->up.shape)) ||
            !mf_vk_product_supports(&item->gate.shape) ||
            !mf_vk_product_supports(&item->down.shape))
            return false;
    }
    return true;
}

/* Rows of a piece; an item of more is a piece of its own. */
static uint32_t piece_rows(const mf_expert_item *item, bool is_half)
{
    return is_half ? mf_vk_halves_rows(item->down.shape.n_cols) : PIECE_ROWS;
}

/* The rows of x that items take, and what becomes of them between the products of a piece. */
static mf_status reserve_halves(mf_vk_backend *be, const mf_expert_item *item, uint32_t n_rows,
                                mf_error *error)
{
    const uint32_t most = piece_rows(item, true), n = n_rows > most ? n_rows : most;
    return mf_vk_ring_need(be, MF_VK_RING_SCRATCH,
                           mf_vk_halves_bytes(n_rows, item->gate.shape.n_cols) +
                               mf_vk_halves_bytes(n, item->down.shape.n_cols),
                           error);
}

static mf_status experts_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_expert_item *item = op->u.experts.items;
    const uint64_t hidden = item->gate.shape.n_rows, n_cols = item->down.shape.n_rows;
    const uint64_t most = piece_rows(item, be->is_mixed);
    const bool is_pair = are_together(&op->u.experts.steps, &item->gate, &item->up);
    const mf_vk_product in = {.shape = &item->gate.shape, .is_pair = is_pair, .is_expert = true};
    const mf_vk_product up = {.shape = &item->up.shape, .is_expert = true};
    const mf_vk_product out = {.shape = &item->down.shape, .is_expert = true};
    MF_TRY(mf_vk_product_reserve(be, &in, op->n_rows, PIECE_ITEMS * hidden * (is_pair ? 1 : 2),
                                 error));
    if (!is_pair)
        MF_TRY(mf_vk_expert_steps_reserve(be, error));
    if (!is_pair && !op->u.experts.steps.is_paired)
        MF_TRY(mf_vk_product_reserve(be, &up, op->n_rows, PIECE_ITEMS * hidden, error));
    MF_TRY(mf_vk_product_reserve(be, &out, op->n_rows, PIECE_ITEMS * n_cols, error));
    if (be->is_mixed)
        MF_TRY(reserve_halves(be, item, op->n_rows, error));
    return mf_vk_ring_need(be, MF_VK_RING_PARAMETERS,
                           (is_pair ? 2 : 4) * (most + op->n_rows) * sizeof(uint32_t) +
                               (is_pair ? 2 : 3) * mf_vk_product_bytes(PIECE_ITEMS),
                           error);
}

/* Items of one form. */
typedef struct expert_jobs {
    const mf_vk_backend *be;
    const mf_op *op;
    const mf_expert_item *items;
    uint32_t n_each;         /* products of an item that go together, where each is by itself: */
    bool is_up;              /* of up, if it is one, not of gate */
    const mf_vk_halves *in;  /* rows of x; NULL: not in float16 */
    const mf_vk_halves *out; /* what goes to `down`, one after the other */
    uint64_t rows;           /* where their lists of rows of x begin */
    uint64_t row;            /* the next of them */
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
    jobs->row = i == 0 ? 0 : jobs->row;
    out->weight = mf_vk_weight_at(jobs->be, &item->gate);
    out->up = mf_vk_weight_at(jobs->be, &item->up);
    out->n_rows = item->gate.shape.n_rows;
    out->y_stride = 2 * out->n_rows;
    out->y = mf_vk_address(jobs->be, item_rows(p->act, item, out->y_stride));
    out->n_tokens = item->n_rows;
    out->x = mf_vk_address(jobs->be, p->x);
    out->x_stride = item->gate.shape.n_cols;
    out->rows = jobs->rows + jobs->row * sizeof(uint32_t);
    if (jobs->in != NULL)
        mf_vk_halves_at(jobs->in, 0, out);
    jobs->row += item->n_rows;
}

/* Products by themselves, where gate and up are not multiplied together: gate of an item, then up;
 * or only one of them. gate may have the rows of up in pairs with its own. */
static void lone_job(void *ctx, uint32_t i, mf_vk_job *out)
{
    expert_jobs *jobs = ctx;
    const mf_experts_params *p = &jobs->op->u.experts;
    const mf_expert_item *item = &jobs->items[i / jobs->n_each];
    const uint32_t hidden = item->down.shape.n_cols;
    const bool is_last = i % jobs->n_each == jobs->n_each - 1;
    const bool is_up = jobs->n_each == 1 ? jobs->is_up : is_last;
    jobs->row = i == 0 ? 0 : jobs->row;
    out->weight = mf_vk_weight_at(jobs->be, is_up ? &item->up : &item->gate);
    out->n_rows = is_up ? item->up.shape.n_rows : item->gate.shape.n_rows;
    out->y_stride = 2 * hidden;
    out->y = mf_vk_address(jobs->be, item_rows(p->act, item, out->y_stride)) +
             (is_up ? hidden * sizeof(float) : 0);
    out->n_tokens = item->n_rows;
    out->x = mf_vk_address(jobs->be, p->x);
    out->x_stride = item->gate.shape.n_cols;
    out->rows = jobs->rows + jobs->row * sizeof(uint32_t);
    if (jobs->in != NULL)
        mf_vk_halves_at(jobs->in, 0, out);
    jobs->row += is_last ? item->n_rows : 0;
}

static void out_job(void *ctx, uint32_t i, mf_vk_job *out)
{
    expert_jobs *jobs = ctx;
    const mf_expert_item *item = &jobs->items[i];
    const mf_experts_params *p = &jobs->op->u.experts;
    jobs->row = i == 0 ? 0 : jobs->row;
    out->weight = mf_vk_weight_at(jobs->be, &item->down);
    out->x_stride = 2 * item->down.shape.n_cols;
    out->x = mf_vk_address(jobs->be, item_rows(p->act, item, out->x_stride));
    out->n_rows = out->y_stride = item->down.shape.n_rows;
    out->y = mf_vk_address(jobs->be, item_rows(p->out, item, out->y_stride));
    out->n_tokens = item->n_rows;
    if (jobs->out != NULL)
        mf_vk_halves_at(jobs->out, jobs->row, out);
    jobs->row += item->n_rows;
}

static uint32_t rows_of(const mf_expert_item *items, uint32_t n)
{
    uint32_t n_rows = 0;
    for (uint32_t i = 0; i < n; i++)
        n_rows += items[i].n_rows;
    return n_rows;
}

/* The items' rows of x, or of act and out. */
static uint64_t put_rows(mf_vk_backend *be, const mf_expert_item *items, uint32_t n, bool is_out)
{
    uint64_t address = 0;
    uint32_t *rows = mf_vk_parameters(be, rows_of(items, n) * sizeof *rows, &address);
    for (uint32_t i = 0; i < n && rows != NULL; i++)
        for (uint32_t r = 0; r < items[i].n_rows; r++)
            *rows++ = is_out ? items[i].out_row + r : items[i].x_rows[r];
    return address;
}

/* The expert of each of the items' rows. */
static uint64_t put_experts(mf_vk_backend *be, const mf_expert_item *items, uint32_t n)
{
    uint64_t address = 0;
    uint32_t *experts = mf_vk_parameters(be, rows_of(items, n) * sizeof *experts, &address);
    for (uint32_t i = 0; i < n && experts != NULL; i++)
        for (uint32_t r = 0; r < items[i].n_rows; r++)
            *experts++ = items[i].expert;
    return address;
}

static mf_vk_expert_rows step_rows(mf_vk_backend *be, const expert_jobs *jobs, uint32_t n)
{
    const mf_experts_params *p = &jobs->op->u.experts;
    return (mf_vk_expert_rows){.act = mf_vk_address(be, p->act),
                               .out = mf_vk_address(be, p->out),
                               .rows = put_rows(be, jobs->items, n, true),
                               .experts = put_experts(be, jobs->items, n),
                               .n_rows = rows_of(jobs->items, n),
                               .hidden = jobs->items->down.shape.n_cols,
                               .n_cols = jobs->items->down.shape.n_rows};
}

/* Gate and up of n items, each by itself. */
static void record_lone(mf_vk_backend *be, expert_jobs *jobs, uint32_t n, mf_vk_product product)
{
    const mf_expert_item *item = jobs->items;
    const bool is_paired = jobs->op->u.experts.steps.is_paired;
    const bool is_one_form = !is_paired && mf_vk_same_form(&item->gate.shape, &item->up.shape);
    jobs->n_each = is_one_form ? 2 : 1;
    product.is_pair = jobs->is_up = false;
    product.job = lone_job;
    product.n_jobs = n * jobs->n_each;
    mf_vk_product_record(be, &product);
    if (is_paired || is_one_form)
        return;
    jobs->is_up = true;
    product.shape = &item->up.shape;
    mf_vk_product_record(be, &product);
}

static void record_products(mf_vk_backend *be, expert_jobs *jobs, uint32_t n, uint64_t out_rows)
{
    const mf_experts_params *p = &jobs->op->u.experts;
    const mf_expert_item *items = jobs->items;
    const bool is_half = jobs->in != NULL;
    const bool is_pair = are_together(&p->steps, &items->gate, &items->up);
    const mf_vk_product in = {.shape = &items->gate.shape,
                              .is_pair = true,
                              .n_jobs = n,
                              .job = in_job,
                              .ctx = jobs,
                              .is_expert = true,
                              .is_half = is_half};
    const mf_vk_product out = {.shape = &items->down.shape,
                               .n_jobs = n,
                               .job = out_job,
                               .ctx = jobs,
                               .is_expert = true,
                               .is_half = is_half};
    mf_vk_expert_rows rows = {0};
    if (is_pair)
        mf_vk_product_record(be, &in);
    else
        record_lone(be, jobs, n, in);
    mf_vk_step(be);
    if (!is_pair) {
        rows = step_rows(be, jobs, n);
        mf_vk_expert_act(be, &p->steps, &rows);
        mf_vk_step(be);
    }
    if (is_half) {
        mf_vk_halves_fill(be, jobs->out, mf_vk_address(be, p->act), 2 * items->down.shape.n_cols,
                          out_rows, rows_of(items, n));
        mf_vk_step(be);
    }
    mf_vk_product_record(be, &out);
    mf_vk_expert_bias(be, &p->steps, &rows);
}

/* halves: of x, and room for the piece's; or NULL */
static void record_piece(mf_vk_backend *be, const mf_op *op, const mf_vk_halves halves[2],
                         const mf_expert_item *items, uint32_t n)
{
    expert_jobs jobs = {.be = be, .op = op, .items = items, .rows = put_rows(be, items, n, false)};
    uint64_t out_rows = 0;
    if (halves != NULL) {
        jobs.in = &halves[0];
        jobs.out = &halves[1];
        out_rows = put_rows(be, items, n, true);
    }
    record_products(be, &jobs, n, out_rows);
    for (uint32_t i = 0; i < n; i++)
        be->weight_bytes += mf_weight_bytes(&items[i].gate.shape) +
                            mf_weight_bytes(&items[i].up.shape) +
                            mf_weight_bytes(&items[i].down.shape);
}

/* Items that go with the first one. */
static uint32_t piece_items(const mf_expert_item *items, uint32_t n_items, uint32_t most_rows)
{
    uint32_t n = 1;
    uint64_t n_rows = items->n_rows;
    while (n < n_items && n < PIECE_ITEMS && n_rows + items[n].n_rows <= most_rows &&
           mf_vk_same_form(&items->gate.shape, &items[n].gate.shape) &&
           mf_vk_same_form(&items->up.shape, &items[n].up.shape) &&
           mf_vk_same_form(&items->down.shape, &items[n].down.shape))
        n_rows += items[n++].n_rows;
    return n;
}

/* The rows of x that items may take, as matrix units want them; and room for those of a piece. */
static void make_halves(mf_vk_backend *be, const mf_experts_params *p, mf_vk_halves out[2])
{
    const uint32_t n_cols = p->items->gate.shape.n_cols, n_rows = rows_of(p->items, p->n_items);
    uint32_t last = 0, most = piece_rows(p->items, true);
    most = most < n_rows ? most : n_rows;
    for (uint32_t i = 0; i < p->n_items; i++) {
        most = p->items[i].n_rows > most ? p->items[i].n_rows : most;
        for (uint32_t r = 0; r < p->items[i].n_rows; r++)
            last = p->items[i].x_rows[r] > last ? p->items[i].x_rows[r] : last;
    }
    out[0] = mf_vk_halves_take(be, last + 1, n_cols);
    out[1] = mf_vk_halves_take(be, most, p->items->down.shape.n_cols);
    mf_vk_halves_fill(be, out, mf_vk_address(be, p->x), n_cols, 0, last + 1);
    mf_vk_step(be);
}

static void experts_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_experts_params *p = &op->u.experts;
    const bool is_half = mf_vk_wants_units(be, op);
    mf_vk_halves halves[2];
    if (is_half)
        make_halves(be, p, halves);
    for (uint32_t first = 0, n; first < p->n_items; first += n) {
        const mf_expert_item *items = p->items + first;
        n = piece_items(items, p->n_items - first, piece_rows(items, is_half));
        if (first != 0)
            mf_vk_step(be); /* what the piece before has may be overwritten */
        record_piece(be, op, is_half ? halves : NULL, items, n);
    }
}

const mf_vk_op mf_vk_op_experts = {experts_supports, experts_reserve, experts_record};

/* --------------------------------------------------------------------------------- routed -- */

#define MOST_PICKS 64u /* as in route.comp */

static bool routed_supports(const mf_vk_backend *be, const mf_op *op)
{
    const mf_routed_experts_params *p = &op->u.routed;
    (void)be;
    if (mf_routed_has_steps(p) &&
        (op->n_rows > 1 || !are_together(&p->steps, &p->gate, &p->up) || p->k > MOST_PICKS ||
         (p->before.kind != MF_INPUT_AS_IT_IS && p->before.kind != MF_INPUT_NORMED)))
        return false;
    return (p->steps.is_paired || mf_vk_product_supports(&p->up.shape)) &&
           mf_vk_product_supports(&p->gate.shape) && mf_vk_product_supports(&p->down.shape);
}

static mf_vk_steps steps_of(const mf_vk_backend *be, const mf_routed_experts_params *p)
{
    return (mf_vk_steps){.before = p->before.kind,
                         .weight = mf_vk_address(be, p->before.weight),
                         .eps = p->before.eps};
}

static mf_status fused_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_routed_experts_params *p = &op->u.routed;
    const mf_vk_steps steps = steps_of(be, p);
    const mf_vk_routing routing = {0};
    const mf_vk_product in = {.shape = &p->gate.shape,
                              .is_pair = true,
                              .routing = &routing,
                              .is_turned = mf_vk_is_turned(p),
                              .steps = steps.before != MF_INPUT_AS_IT_IS ? &steps : NULL};
    MF_TRY(mf_vk_steps_reserve(be, &in, (uint64_t)p->gate.shape.n_rows * p->k, error));
    if (p->sum.x.buffer.id != 0)
        MF_TRY(mf_vk_experts_out_reserve(be, op, error));
    else
        MF_TRY(mf_vk_routed_reserve(be, &p->down.shape, false, p->k, error));
    return mf_vk_ring_need(be, MF_VK_RING_PARAMETERS, 3 * mf_vk_product_bytes(1), error);
}

static mf_status routed_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_routed_experts_params *p = &op->u.routed;
    const uint32_t n = op->n_rows * p->k;
    const bool is_pair = are_together(&p->steps, &p->gate, &p->up);
    if (mf_routed_has_steps(p))
        return fused_reserve(be, op, error);
    MF_TRY(mf_vk_routed_reserve(be, &p->gate.shape, is_pair, n, error));
    MF_TRY(mf_vk_routed_reserve(be, &p->down.shape, false, n, error));
    if (!is_pair && !p->steps.is_paired)
        MF_TRY(mf_vk_routed_reserve(be, &p->up.shape, false, n, error));
    if (is_pair)
        MF_TRY(mf_vk_grouped_reserve(be, op, error));
    else
        MF_TRY(mf_vk_expert_steps_reserve(be, error));
    return mf_vk_ring_need(be, MF_VK_RING_PARAMETERS, 3 * mf_vk_product_bytes(1), error);
}

/* One job of all picks. */
typedef struct routed_job {
    const mf_vk_backend *be;
    const mf_routed_experts_params *p;
} routed_job;

static void routed_in(void *ctx, uint32_t i, mf_vk_job *out)
{
    const routed_job *job = ctx;
    const mf_routed_experts_params *p = job->p;
    (void)i;
    out->weight = mf_vk_weight_at(job->be, &p->gate);
    out->up = mf_vk_weight_at(job->be, &p->up);
    out->x = mf_vk_address(job->be, p->x);
    out->y = mf_vk_address(job->be, p->act);
    out->n_tokens = 1;
    out->n_rows = p->gate.shape.n_rows;
    out->x_stride = p->gate.shape.n_cols;
    out->y_stride = 2 * p->down.shape.n_cols;
}

/* up by itself, behind gate. */
static void routed_up(void *ctx, uint32_t i, mf_vk_job *out)
{
    const routed_job *job = ctx;
    routed_in(ctx, i, out);
    out->weight = out->up;
    out->y += job->p->down.shape.n_cols * sizeof(float);
}

static void routed_out(void *ctx, uint32_t i, mf_vk_job *out)
{
    const routed_job *job = ctx;
    const mf_routed_experts_params *p = job->p;
    (void)i;
    out->weight = mf_vk_weight_at(job->be, &p->down);
    out->x = mf_vk_address(job->be, p->act);
    out->y = mf_vk_address(job->be, p->out);
    out->n_tokens = 1;
    out->n_rows = out->y_stride = p->down.shape.n_rows;
    out->x_stride = 2 * p->down.shape.n_cols;
}

static mf_vk_routing routing_of(const mf_vk_backend *be, const mf_routed_experts_params *p,
                                const mf_weight *w, uint32_t per_row)
{
    const mf_weight_format *format = mf_weight_format_of(&w->shape);
    uint32_t stride[MF_MAX_WEIGHT_ARRAYS] = {0};
    for (uint32_t i = 0; i < format->n_arrays; i++)
        if (p->has_resident_scales && format->arrays[i].is_float32)
            stride[i] = (uint32_t)mf_weight_array_bytes(&w->shape, i);
    return (mf_vk_routing){.ids = mf_vk_address(be, p->ids),
                           .slot = mf_vk_address(be, p->slot),
                           .slot_bytes = p->slot_bytes,
                           .scales_stride = stride[1],
                           .biases_stride = stride[2],
                           .per_row = per_row};
}

/* Each product by itself, and what stands between them. */
static void routed_record_steps(mf_vk_backend *be, const mf_vk_product *gate_up,
                                const mf_vk_product *down)
{
    const mf_routed_experts_params *p = ((const routed_job *)gate_up->ctx)->p;
    mf_vk_product one = *gate_up;
    one.is_pair = false;
    mf_vk_product_record(be, &one);
    if (!p->steps.is_paired) {
        const mf_vk_routing up = routing_of(be, p, &p->up, p->k);
        one.job = routed_up;
        one.shape = &p->up.shape;
        one.routing = &up;
        mf_vk_product_record(be, &one);
    }
    mf_vk_step(be);
    const mf_vk_expert_rows rows = {.act = mf_vk_address(be, p->act),
                                    .out = mf_vk_address(be, p->out),
                                    .experts = mf_vk_address(be, p->ids),
                                    .n_rows = gate_up->n_picks,
                                    .hidden = p->down.shape.n_cols,
                                    .n_cols = p->down.shape.n_rows};
    mf_vk_expert_act(be, &p->steps, &rows);
    mf_vk_step(be);
    mf_vk_product_record(be, down);
    mf_vk_expert_bias(be, &p->steps, &rows);
}

static void routed_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_routed_experts_params *p = &op->u.routed;
    const uint32_t n_picks = op->n_rows * p->k;
    routed_job job = {be, p};
    const mf_vk_routing in = routing_of(be, p, &p->gate, p->k);
    const mf_vk_routing out = routing_of(be, p, &p->down, 1);
    const mf_vk_steps steps = steps_of(be, p);
    const mf_vk_product gate_up = {.shape = &p->gate.shape,
                                   .is_pair = true,
                                   .job = routed_in,
                                   .ctx = &job,
                                   .routing = &in,
                                   .n_picks = n_picks,
                                   .is_expert = true,
                                   .is_turned = mf_vk_is_turned(p),
                                   .steps = steps.before != MF_INPUT_AS_IT_IS ? &steps : NULL};
    const mf_vk_product down = {.shape = &p->down.shape,
                                .job = routed_out,
                                .ctx = &job,
                                .routing = &out,
                                .n_picks = n_picks,
                                .is_expert = true};
    if (!are_together(&p->steps, &p->gate, &p->up)) {
        routed_record_steps(be, &gate_up, &down);
    } else if (mf_vk_grouped_wants(op)) {
        mf_vk_grouped_record(be, op, &gate_up, &down);
    } else {
        mf_vk_product_record(be, &gate_up);
        mf_vk_step(be);
        if (p->sum.x.buffer.id != 0)
            mf_vk_experts_out_record(be, op, &down);
        else
            mf_vk_product_record(be, &down);
    }
    be->weight_bytes += n_picks * (mf_weight_bytes(&p->gate.shape) + mf_weight_bytes(&p->up.shape) +
                                   mf_weight_bytes(&p->down.shape));
}

const mf_vk_op mf_vk_op_routed_experts = {routed_supports, routed_reserve, routed_record};

/* ---------------------------------------------------------------------------------- route -- */

/* As in route.comp. */
#define MOST_EXPERTS 2048u
#define ROUTE_THREADS 256u

static bool route_supports(const mf_vk_backend *be, const mf_op *op)
{
    (void)be;
    return op->u.route.n_experts <= MOST_EXPERTS && op->u.route.k <= MOST_PICKS &&
           op->u.route.n_groups <= MF_MAX_GROUPS;
}

static mf_vk_kernel route_kernel(const mf_op *op)
{
    const uint32_t n_each = mf_vk_groups(op->u.route.n_experts, ROUTE_THREADS);
    return (mf_vk_kernel){MF_VK_SHADER_route, 2, {ROUTE_THREADS, n_each}};
}

static mf_status route_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_vk_kernel kernel = route_kernel(op);
    MF_TRY(mf_vk_prepare(be, &kernel, error));
    return mf_vk_ring_need(be, MF_VK_RING_PARAMETERS, op->n_rows * sizeof(int32_t), error);
}

static void route_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_route_params *p = &op->u.route;
    const mf_vk_kernel kernel = route_kernel(op);
    const bool has_table = p->table.buffer.id != 0;
    const struct {
        uint64_t logits, bias, ids, weights, slot, found;
        uint32_t n_experts, k, n_groups, k_groups, score, group_rule, normalise;
        float eps, scale;
        uint32_t n_to_find, n_table;
        uint64_t table, tokens;
    } push = {mf_vk_address(be, p->logits),
              mf_vk_address(be, p->bias),
              mf_vk_address(be, p->ids),
              mf_vk_address(be, p->weights),
              mf_vk_address(be, p->slot),
              mf_vk_address(be, p->found),
              p->n_experts,
              p->k,
              p->n_groups,
              p->k_groups,
              (uint32_t)p->score,
              (uint32_t)p->group_rule,
              p->normalise,
              p->eps,
              p->scale,
              p->n_to_find,
              p->n_table,
              mf_vk_address(be, p->table),
              has_table ? mf_vk_array(be, p->tokens, op->n_rows * sizeof *p->tokens) : 0};
    mf_vk_dispatch(be, &kernel, &push, sizeof push, (const uint32_t[]){1, op->n_rows, 1});
    be->stream.has_unseen_conditions |= p->found.buffer.id != 0; /* by barriers before it, too */
}

const mf_vk_op mf_vk_op_route = {route_supports, route_reserve, route_record};

/* -------------------------------------------------------------------------------- combine -- */

#define COMBINE_THREADS 64u
#define COMBINE_NORM_THREADS 256u /* norm.glsl's most */
#define COMBINE_COLS 4u           /* of an invocation */

static bool combine_supports(const mf_vk_backend *be, const mf_op *op)
{
    (void)be;
    return op->u.combine.k <= MOST_PICKS;
}

static mf_vk_kernel combine_kernel(const mf_combine_params *p, bool is_aligned)
{
    if (p->norm.weight.buffer.id != 0)
        return (mf_vk_kernel){
            MF_VK_SHADER_combine_norm, 3, {COMBINE_NORM_THREADS, p->k, is_aligned}};
    return (mf_vk_kernel){MF_VK_SHADER_combine, 3, {COMBINE_THREADS, p->k, is_aligned}};
}

static mf_status combine_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    for (uint32_t is_aligned = 0; is_aligned < 2; is_aligned++) {
        const mf_vk_kernel kernel = combine_kernel(&op->u.combine, is_aligned != 0);
        MF_TRY(mf_vk_prepare(be, &kernel, error));
    }
    return mf_vk_ring_need(be, MF_VK_RING_PARAMETERS,
                           (uint64_t)op->n_rows * op->u.combine.k * sizeof(uint32_t), error);
}

static void combine_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_combine_params *p = &op->u.combine;
    const uint64_t n_places = (uint64_t)op->n_rows * p->k;
    const struct {
        uint64_t x, weights, experts, shared, shared_gate, place;
        uint32_t n_cols;
        float eps;
        uint64_t norm, result;
        uint32_t is_put, unused;
    } push = {mf_vk_address(be, p->x),
              mf_vk_address(be, p->weights),
              mf_vk_address(be, p->experts),
              mf_vk_address(be, p->shared),
              mf_vk_address(be, p->shared_gate),
              p->place != NULL ? mf_vk_array(be, p->place, n_places * sizeof *p->place) : 0,
              p->n_cols,
              p->norm.eps,
              mf_vk_address(be, p->norm.weight),
              mf_vk_address(be, p->norm.out),
              p->is_put,
              0};
    const uint64_t bits =
        push.x | push.experts | push.shared | push.norm | push.result | push.n_cols * (uint64_t)4;
    const mf_vk_kernel kernel = combine_kernel(p, bits % 16 == 0);
    const bool is_whole = p->norm.weight.buffer.id != 0;
    const uint32_t n_groups = mf_vk_groups(p->n_cols, COMBINE_COLS * COMBINE_THREADS);
    mf_vk_dispatch(be, &kernel, &push, sizeof push,
                   (const uint32_t[]){is_whole ? 1 : n_groups, op->n_rows, 1});
}

const mf_vk_op mf_vk_op_combine = {combine_supports, combine_reserve, combine_record};

/* SPDX-License-Identifier: MIT */
/* The experts of a batch: three sets of products, of the tokens that each expert was chosen for. */
#include "backend/cpu/cpu_internal.h"

#include <string.h>

#define MAX_ITEMS (MF_CPU_MAX_PRODUCTS / 2)

/* Items whose gathered tokens fit the buffers together, and their products. */
typedef struct expert_set {
    mf_cpu_backend *be;
    const mf_op *op;
    uint32_t first, n;                /* items */
    uint32_t first_row[MAX_ITEMS];    /* where each one's tokens begin among those gathered */
    mf_cpu_product in[2 * MAX_ITEMS]; /* gate, up, gate, up, ... */
    mf_cpu_product down[MAX_ITEMS];
} expert_set;

static const mf_expert_item *item_at(const expert_set *set, uint32_t i)
{
    return &set->op->u.experts.items[set->first + i];
}

/* Tokens that the buffers hold. */
static uint32_t row_capacity(const mf_cpu_backend *be, const mf_expert_item *item)
{
    size_t n = be->gather_bytes / sizeof(float) / item->gate.shape.n_cols;
    const mf_weight *weights[] = {&item->gate, &item->up, &item->down};
    for (int i = 0; i < 3; i++) {
        mf_matrix w = mf_cpu_matrix(be, weights[i]);
        size_t token_bytes = be->kernels->token_bytes(&w);
        if (token_bytes != 0 && be->prepared_bytes / token_bytes < n)
            n = be->prepared_bytes / token_bytes;
    }
    return (uint32_t)n;
}

static void choose_items(expert_set *set)
{
    const mf_expert_item *items = set->op->u.experts.items;
    uint32_t capacity = row_capacity(set->be, &items[set->first]), n_rows = 0;
    set->n = 0;
    while (set->first + set->n < set->op->u.experts.n_items && set->n < MAX_ITEMS) {
        if (set->n > 0 && n_rows + item_at(set, set->n)->n_rows > capacity)
            break;
        set->first_row[set->n] = n_rows;
        n_rows += item_at(set, set->n)->n_rows;
        set->n++;
    }
}

/* A product of the item's tokens, prepared if w is multiplied so. */
static mf_cpu_product product_of(const expert_set *set, uint32_t i, const mf_weight *w,
                                 const float *x, size_t x_stride, float *y, size_t y_stride)
{
    const mf_cpu_backend *be = set->be;
    mf_cpu_product p = {.w = mf_cpu_matrix(be, w),
                        .x = x,
                        .x_stride = x_stride,
                        .n_tokens = item_at(set, i)->n_rows,
                        .y = y,
                        .y_stride = y_stride};
    size_t token_bytes = be->kernels->token_bytes(&p.w);
    size_t end = (set->first_row[i] + p.n_tokens) * token_bytes;
    if (token_bytes != 0 && end <= be->prepared_bytes) /* one item alone may not fit */
        p.prepared = be->prepared + set->first_row[i] * token_bytes;
    return p;
}

static void make_products(expert_set *set)
{
    const mf_cpu_backend *be = set->be;
    float *act = mf_cpu_floats(be, set->op->u.experts.act);
    float *out = mf_cpu_floats(be, set->op->u.experts.out);
    for (uint32_t i = 0; i < set->n; i++) {
        const mf_expert_item *item = item_at(set, i);
        size_t hidden = item->gate.shape.n_rows, n_cols = item->gate.shape.n_cols;
        const float *x = be->gather + set->first_row[i] * n_cols;
        float *gate = act + (size_t)item->out_row * 2 * hidden;
        set->in[2 * i] = product_of(set, i, &item->gate, x, n_cols, gate, 2 * hidden);
        set->in[2 * i + 1] = product_of(set, i, &item->up, x, n_cols, gate + hidden, 2 * hidden);
        set->down[i] = product_of(set, i, &item->down, gate, 2 * hidden,
                                  out + (size_t)item->out_row * n_cols, n_cols);
    }
}

static void prepare_tokens(const expert_set *set, uint32_t i, const mf_cpu_product *p)
{
    const mf_kernels *kernels = set->be->kernels;
    if (p->prepared == NULL)
        return;
    const size_t token_bytes = kernels->token_bytes(&p->w);
    unsigned char *out = set->be->prepared + set->first_row[i] * token_bytes;
    for (uint32_t t = 0; t < p->n_tokens; t++)
        kernels->prepare_token(&p->w, p->x + t * p->x_stride, out + t * token_bytes);
}

static void run_gather(void *ctx, uint32_t i, uint32_t thread)
{
    (void)thread;
    const expert_set *set = ctx;
    const mf_expert_item *item = item_at(set, i);
    const float *x = mf_cpu_floats(set->be, set->op->u.experts.x);
    const size_t n_cols = item->gate.shape.n_cols;
    float *out = set->be->gather + set->first_row[i] * n_cols;
    for (uint32_t r = 0; r < item->n_rows; r++, out += n_cols)
        memcpy(out, x + item->x_rows[r] * n_cols, n_cols * sizeof *out);
    const bool gate_is_prepared = set->in[2 * i].prepared != NULL;
    prepare_tokens(set, i, &set->in[2 * i + (gate_is_prepared ? 0 : 1)]);
}

static void run_swiglu(void *ctx, uint32_t i, uint32_t thread)
{
    (void)thread;
    const expert_set *set = ctx;
    const mf_cpu_product *gate = &set->in[2 * i], *up = &set->in[2 * i + 1];
    for (uint32_t t = 0; t < gate->n_tokens; t++)
        set->be->kernels->swiglu(gate->y + t * gate->y_stride, up->y + t * up->y_stride,
                                 gate->w.shape.n_rows, gate->y + t * gate->y_stride);
    prepare_tokens(set, i, &set->down[i]);
}

void mf_cpu_experts(mf_cpu_backend *be, const mf_op *op)
{
    expert_set set = {.be = be, .op = op};
    for (; set.first < op->u.experts.n_items; set.first += set.n) {
        choose_items(&set);
        make_products(&set);
        mf_thread_pool_run(be->pool, set.n, run_gather, &set);
        mf_cpu_products(be, set.in, 2 * set.n);
        mf_thread_pool_run(be->pool, set.n, run_swiglu, &set);
        mf_cpu_products(be, set.down, set.n);
    }
}

/* The ids are here when this is recorded: each pick is an item of its own. */
void mf_cpu_routed_experts(mf_cpu_backend *be, const mf_op *op)
{
    const mf_routed_experts_params *p = &op->u.routed;
    const int32_t *ids = (const int32_t *)(const void *)mf_cpu_bytes(be, p->ids);
    const uint32_t *slot = (const uint32_t *)(const void *)mf_cpu_bytes(be, p->slot);
    const uint32_t n_picks = op->n_rows * p->k;
    uint32_t row[MF_CPU_ROUTED_ITEMS];
    mf_expert_item items[MF_CPU_ROUTED_ITEMS];
    mf_op some = {.kind = MF_OP_EXPERTS,
                  .u.experts = {.x = p->x, .act = p->act, .out = p->out, .items = items}};
    for (uint32_t first = 0; first < n_picks; first += MF_CPU_ROUTED_ITEMS) {
        const uint32_t left = n_picks - first,
                       n = left < MF_CPU_ROUTED_ITEMS ? left : MF_CPU_ROUTED_ITEMS;
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t expert = (uint32_t)ids[first + i], at = slot[expert];
            row[i] = (first + i) / p->k;
            items[i] = (mf_expert_item){.gate = mf_routed_weight(p, &p->gate, expert, at),
                                        .up = mf_routed_weight(p, &p->up, expert, at),
                                        .down = mf_routed_weight(p, &p->down, expert, at),
                                        .x_rows = &row[i],
                                        .n_rows = 1,
                                        .out_row = first + i};
        }
        some.n_rows = some.u.experts.n_items = n;
        mf_cpu_experts(be, &some);
    }
}

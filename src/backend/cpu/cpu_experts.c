/* SPDX-License-Identifier: MIT */
/*
 * The experts of a batch: three sets of products, of the tokens that each expert was chosen for.
 * They are one run of tasks, each of which waits for what it needs of its own expert and for no
 * other: so no thread waits for all others between an expert's steps.
 */
#include "backend/cpu/cpu_internal.h"

#include <string.h>

/* Tasks that are sorted by their homes, at most: more than those of few tokens for 500 threads. */
#define MAX_SORTED 8192u

#define MAX_ITEMS (MF_CPU_MAX_PRODUCTS / 2)

/* Items whose gathered tokens fit the buffers together, and their products. */
typedef struct expert_set {
    mf_cpu_backend *be;
    const mf_op *op;
    uint32_t first, n;                /* items */
    uint32_t first_row[MAX_ITEMS];    /* where each one's tokens begin among those gathered */
    size_t token_apart;               /* bytes from a prepared token to the next item's */
    uint32_t n_in;                    /* products of an item's tokens: 1 where they are paired */
    mf_cpu_product in[2 * MAX_ITEMS]; /* gate, up, gate, up, ... */
    mf_cpu_product down[MAX_ITEMS];
} expert_set;

/* Pairs that are taken apart at a time. */
#define PAIRS 256u

static const mf_expert_item *item_at(const expert_set *set, uint32_t i)
{
    return &set->op->u.experts.items[set->first + i];
}

/* The most bytes that a token of an item takes, prepared: experts need not be stored alike. */
static size_t token_bytes_of(const mf_cpu_backend *be, const mf_expert_item *item)
{
    const mf_weight *weights[] = {&item->gate, &item->up, &item->down};
    size_t most = 0;
    for (int i = 0; i < 3; i++) {
        const mf_matrix w = {.shape = weights[i]->shape};
        if (w.shape.n_rows == 0) /* up, where it is paired with gate */
            continue;
        const size_t n_bytes = be->kernels->token_bytes(&w);
        most = n_bytes > most ? n_bytes : most;
    }
    return most;
}

/* Tokens that the buffers hold. */
static uint32_t row_capacity(const mf_cpu_backend *be, const mf_expert_item *item)
{
    size_t n = be->gather_bytes / sizeof(float) / item->gate.shape.n_cols;
    const size_t token_bytes = token_bytes_of(be, item);
    if (token_bytes != 0 && be->prepared_bytes / token_bytes < n)
        n = be->prepared_bytes / token_bytes;
    return (uint32_t)n;
}

static void choose_items(expert_set *set)
{
    const mf_expert_item *items = set->op->u.experts.items;
    uint32_t capacity = row_capacity(set->be, &items[set->first]), n_rows = 0;
    set->n = 0;
    set->token_apart = 0;
    while (set->first + set->n < set->op->u.experts.n_items && set->n < MAX_ITEMS) {
        if (set->n > 0 && n_rows + item_at(set, set->n)->n_rows > capacity)
            break;
        set->first_row[set->n] = n_rows;
        n_rows += item_at(set, set->n)->n_rows;
        const size_t n_bytes = token_bytes_of(set->be, item_at(set, set->n));
        set->token_apart = n_bytes > set->token_apart ? n_bytes : set->token_apart;
        set->n++;
    }
}

/* A product of the item's tokens, prepared if w is multiplied so. */
static mf_cpu_product product_of(const expert_set *set, uint32_t i, const mf_weight *w,
                                 const float *x, size_t x_stride, float *y, size_t y_stride)
{
    const mf_cpu_backend *be = set->be;
    mf_cpu_product p = {.w = mf_cpu_matrix(be, w),
                        .n_rows = w->shape.n_rows,
                        .x = x,
                        .x_stride = x_stride,
                        .n_tokens = item_at(set, i)->n_rows,
                        .y = y,
                        .y_stride = y_stride};
    size_t token_bytes = be->kernels->token_bytes(&p.w);
    size_t end = (set->first_row[i] + p.n_tokens) * set->token_apart;
    if (token_bytes != 0 && end <= be->prepared_bytes) /* one item alone may not fit */
        p.prepared = be->prepared + set->first_row[i] * set->token_apart;
    return p;
}

/* Whether tokens that are prepared for one serve the other, if both are multiplied so. */
static bool have_one_form(const mf_cpu_backend *be, const mf_matrix *a, const mf_matrix *b)
{
    const size_t a_bytes = be->kernels->token_bytes(a), b_bytes = be->kernels->token_bytes(b);
    return a_bytes == 0 || b_bytes == 0 || a_bytes == b_bytes;
}

static void make_products(expert_set *set)
{
    const mf_cpu_backend *be = set->be;
    float *act = mf_cpu_floats(be, set->op->u.experts.act);
    float *out = mf_cpu_floats(be, set->op->u.experts.out);
    for (uint32_t i = 0; i < set->n; i++) {
        const mf_expert_item *item = item_at(set, i);
        size_t hidden = item->down.shape.n_cols, n_cols = item->gate.shape.n_cols;
        const float *x = be->gather + set->first_row[i] * n_cols;
        float *gate = act + (size_t)item->out_row * 2 * hidden;
        mf_cpu_product *in = &set->in[set->n_in * i];
        in[0] = product_of(set, i, &item->gate, x, n_cols, gate, 2 * hidden);
        if (set->n_in == 2)
            in[1] = product_of(set, i, &item->up, x, n_cols, gate + hidden, 2 * hidden);
        if (set->n_in == 2 && !have_one_form(be, &in[0].w, &in[1].w))
            in[1].prepared = NULL;
        set->down[i] = product_of(set, i, &item->down, gate, 2 * hidden,
                                  out + (size_t)item->out_row * n_cols, n_cols);
    }
}

/* The item's r-th token. */
static void prepare_token(const expert_set *set, uint32_t i, const mf_cpu_product *p,
                          const float *x, uint32_t r)
{
    const mf_kernels *kernels = set->be->kernels;
    unsigned char *out = set->be->prepared + set->first_row[i] * set->token_apart;
    kernels->prepare_token(&p->w, x, out + r * kernels->token_bytes(&p->w));
}

/* Rows that every product takes prepared need not be gathered as they are. */
static void gather(const expert_set *set, uint32_t i)
{
    const mf_expert_item *item = item_at(set, i);
    const float *x = mf_cpu_floats(set->be, set->op->u.experts.x);
    const size_t n_cols = item->gate.shape.n_cols;
    float *out = set->be->gather + set->first_row[i] * n_cols;
    const mf_cpu_product *in = &set->in[set->n_in * i], *last = in + set->n_in - 1;
    const mf_cpu_product *prepared = in->prepared != NULL ? in : last;
    for (uint32_t r = 0; r < item->n_rows; r++, out += n_cols) {
        const float *row = x + item->x_rows[r] * n_cols;
        if (prepared->prepared != NULL)
            prepare_token(set, i, prepared, row, r);
        if (in->prepared == NULL || last->prepared == NULL)
            memcpy(out, row, n_cols * sizeof *out);
    }
}

static void add_bias(const expert_set *set, mf_span bias, uint32_t expert, uint32_t n, float *row)
{
    if (bias.buffer.id != 0)
        set->be->kernels->add(row, mf_cpu_floats(set->be, bias) + (size_t)expert * n, n, row);
}

static void activate(const expert_set *set, float *gate, float *up, uint32_t n, float *out)
{
    const mf_kernels *kernels = set->be->kernels;
    const mf_expert_steps *steps = &set->op->u.experts.steps;
    mf_cpu_limit(gate, up, n, steps->silu_limit);
    if (steps->is_clamped)
        kernels->swiglu_clamped(gate, up, steps->limit, steps->alpha, n, out);
    else
        kernels->swiglu(gate, up, n, out);
}

/* In place: what is written lies before what is still to be read. */
static void activate_pairs(const expert_set *set, float *row, uint32_t n)
{
    float gate[PAIRS], up[PAIRS];
    for (uint32_t first = 0; first < n; first += PAIRS) {
        const uint32_t n_now = n - first < PAIRS ? n - first : PAIRS;
        const float *pairs = row + 2 * (size_t)first;
        for (uint32_t i = 0; i < n_now; i++) {
            gate[i] = pairs[2 * i];
            up[i] = pairs[2 * i + 1];
        }
        activate(set, gate, up, n_now, row + first);
    }
}

/* What item i's last product takes, of what its first ones gave. */
static void make_active(const expert_set *set, uint32_t i)
{
    const mf_expert_steps *steps = &set->op->u.experts.steps;
    const mf_expert_item *item = item_at(set, i);
    const mf_cpu_product *in = &set->in[set->n_in * i];
    const uint32_t hidden = item->down.shape.n_cols;
    for (uint32_t t = 0; t < in->n_tokens; t++) {
        float *row = in->y + t * in->y_stride;
        add_bias(set, steps->gate_bias, item->expert, item->gate.shape.n_rows, row);
        add_bias(set, steps->up_bias, item->expert, item->up.shape.n_rows, row + hidden);
        if (steps->is_paired)
            activate_pairs(set, row, hidden);
        else
            activate(set, row, row + hidden, hidden, row);
    }
    const mf_cpu_product *down = &set->down[i];
    for (uint32_t t = 0; t < down->n_tokens && down->prepared != NULL; t++)
        prepare_token(set, i, down, down->x + t * down->x_stride, t);
}

/* How far an item is, for those who need what others make of it. */
typedef struct item_progress {
    _Alignas(64) atomic_uint n_in_left; /* tasks of its first products */
    atomic_bool is_gathered, is_active;
} item_progress;

typedef struct expert_tasks {
    const expert_set *set;
    mf_cpu_product_tasks in, down;
    uint32_t n_gather; /* tasks before those of products: an item each, or none */
    bool is_sorted;    /* by homes: the i-th is order[i] */
    uint16_t order[MAX_SORTED];
    item_progress item[MAX_ITEMS];
} expert_tasks;

static void set_true(atomic_bool *flag)
{
    atomic_store_explicit(flag, true, memory_order_release);
}

/* Whoever ends an item's first products goes on with what is made of them. */
static void run_in(expert_tasks *t, uint32_t task, uint32_t thread)
{
    const uint32_t i = mf_cpu_product_of_task(&t->in, task) / t->set->n_in;
    item_progress *item = &t->item[i];
    mf_thread_await(&item->is_gathered);
    mf_cpu_run_product_task(&t->in, task, thread);
    if (atomic_fetch_sub(&item->n_in_left, 1) != 1)
        return;
    make_active(t->set, i);
    set_true(&item->is_active);
}

static void run_down(expert_tasks *t, uint32_t task, uint32_t thread)
{
    mf_thread_await(&t->item[mf_cpu_product_of_task(&t->down, task)].is_active);
    mf_cpu_run_product_task(&t->down, task, thread);
}

/* A task waits for tasks before it alone, which began before it, or, sorted, for those of phases
 * before its own: gathering, first products, last ones. */
static void run_expert_task(void *ctx, uint32_t task, uint32_t thread)
{
    expert_tasks *t = ctx;
    task = t->is_sorted ? t->order[task] : task;
    const uint32_t first_down = t->n_gather + t->in.first_task[t->in.n];
    if (task >= first_down) {
        run_down(t, task - first_down, thread);
    } else if (task >= t->n_gather) {
        run_in(t, task - t->n_gather, thread);
    } else {
        gather(t->set, task);
        set_true(&t->item[task].is_gathered);
    }
}

/* Whether all items are of the same single token, and take it prepared: so it is, once, behind what
 * their last products take. */
static bool share_token(expert_set *set)
{
    const mf_cpu_product *first = &set->in[0];
    const uint32_t row = item_at(set, 0)->x_rows[0];
    bool is_shared = (set->n + 1) * set->token_apart <= set->be->prepared_bytes;
    for (uint32_t i = 0; i < set->n; i++)
        is_shared = is_shared && item_at(set, i)->n_rows == 1 && item_at(set, i)->x_rows[0] == row;
    for (uint32_t j = 0; j < set->n_in * set->n; j++)
        is_shared = is_shared && set->in[j].prepared != NULL &&
                    have_one_form(set->be, &first->w, &set->in[j].w);
    if (!is_shared)
        return false;
    unsigned char *token = set->be->prepared + set->n * set->token_apart;
    const float *x = mf_cpu_floats(set->be, set->op->u.experts.x);
    set->be->kernels->prepare_token(&first->w, x + (size_t)row * first->w.shape.n_cols, token);
    for (uint32_t j = 0; j < set->n_in * set->n; j++)
        set->in[j].prepared = token;
    return true;
}

static bool have_few_tokens(const expert_set *set)
{
    bool have = true;
    for (uint32_t i = 0; i < set->n; i++)
        have = have && mf_cpu_has_few_tokens(&set->down[i]);
    return have;
}

/* Each task by threads of the node that its rows lie on, as far as these come to it. */
static void run_at_home(expert_tasks *t)
{
    mf_cpu_backend *be = t->set->be;
    uint32_t end[MF_TASK_PHASES * MF_NUMA_MAX_NODES];
    for (uint32_t home = 0; home < be->n_homes; home++)
        end[home] = t->n_gather * (home + 1) / be->n_homes;
    for (uint32_t i = 0; i < t->n_gather; i++)
        t->order[i] = (uint16_t)i;
    mf_cpu_sort_tasks(&t->in, t->n_gather, t->order, end + be->n_homes);
    mf_cpu_sort_tasks(&t->down, end[2 * be->n_homes - 1], t->order, end + 2 * (size_t)be->n_homes);
    mf_thread_pool_run_at_home(be->pool, MF_TASK_PHASES, end, run_expert_task, t);
}

static void run_set(expert_set *set)
{
    expert_tasks t;
    t.set = set;
    const bool is_gathered = share_token(set);
    t.n_gather = is_gathered ? 0 : set->n;
    mf_cpu_cut_products(set->be, set->in, set->n_in * set->n, &t.in);
    mf_cpu_cut_products(set->be, set->down, set->n, &t.down);
    for (uint32_t i = 0; i < set->n; i++) {
        const uint32_t *first = &t.in.first_task[(size_t)set->n_in * i];
        atomic_init(&t.item[i].n_in_left, first[set->n_in] - first[0]);
        atomic_init(&t.item[i].is_gathered, is_gathered);
        atomic_init(&t.item[i].is_active, false);
    }
    const uint32_t n_tasks = t.n_gather + t.in.first_task[t.in.n] + t.down.first_task[t.down.n];
    t.is_sorted = set->be->n_homes > 1 && have_few_tokens(set) && n_tasks <= MAX_SORTED;
    if (t.is_sorted)
        run_at_home(&t);
    else
        mf_thread_pool_run(set->be->pool, n_tasks, run_expert_task, &t);
}

static void run_down_bias(void *ctx, uint32_t i, uint32_t thread)
{
    (void)thread;
    const expert_set *set = ctx;
    const mf_cpu_product *down = &set->down[i];
    for (uint32_t t = 0; t < down->n_tokens; t++)
        add_bias(set, set->op->u.experts.steps.down_bias, item_at(set, i)->expert,
                 down->w.shape.n_rows, down->y + t * down->y_stride);
}

void mf_cpu_experts(mf_cpu_backend *be, const mf_op *op)
{
    const mf_expert_steps *steps = &op->u.experts.steps;
    expert_set set = {.be = be, .op = op, .n_in = steps->is_paired ? 1 : 2};
    for (; set.first < op->u.experts.n_items; set.first += set.n) {
        choose_items(&set);
        make_products(&set);
        run_set(&set);
        if (steps->down_bias.buffer.id != 0)
            mf_thread_pool_run(be->pool, set.n, run_down_bias, &set);
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
    mf_op some = {
        .kind = MF_OP_EXPERTS,
        .u.experts = {.x = p->x, .act = p->act, .out = p->out, .steps = p->steps, .items = items}};
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
                                        .out_row = first + i,
                                        .expert = expert};
        }
        some.n_rows = some.u.experts.n_items = n;
        mf_cpu_experts(be, &some);
    }
}

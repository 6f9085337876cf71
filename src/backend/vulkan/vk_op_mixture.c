/* SPDX-License-Identifier: MIT */
/*
 * One row's mixture of experts as one dispatch (mixture.comp), whose workgroups wait for each
 * other. So all of them have to be there at once: it is dispatched with as many as the device
 * surely runs (mf_vk_device.n_resident, where 0 says that nobody knows), and a workgroup that waits
 * in vain gives up after a while and says so. What they hand each other lies beside the number of
 * the dispatch, so that nothing has to be cleared: numbers do not come again before the memory is
 * cleared.
 */
#include "backend/vulkan/vk_product.h"

#include <string.h>

#define THREADS 512u /* as in mixture.comp, what follows too */
#define TEAMS (THREADS / 16u)
#define TILE 512u
#define OUT_ROWS 4u
#define IN_PAIRS 4u
#define AHEAD 2u

/* The last number, after which memory is cleared. */
#define LAST_EPOCH UINT32_MAX

static bool is_form(const mf_weight *w, uint32_t bits, const mf_weight *like, uint32_t n_rows,
                    uint32_t n_cols)
{
    const mf_weight_shape *s = &w->shape;
    return s->kind == MF_WEIGHT_AFFINE && s->bits == bits && s->group == like->shape.group &&
           s->float_type == like->shape.float_type && s->n_rows == n_rows && s->n_cols == n_cols;
}

static bool is_power(uint32_t n, uint32_t least, uint32_t most)
{
    return n >= least && n <= most && (n & (n - 1)) == 0;
}

/* With these the shader has at most 32 KiB of shared memory. */
static bool has_sizes(const mf_routed_experts_params *p)
{
    const uint32_t n_cols = p->gate.shape.n_cols, n_tiles = n_cols / TILE;
    const uint32_t item_pairs = TEAMS / (n_tiles != 0 ? n_tiles : 1) * IN_PAIRS;
    return n_cols % TILE == 0 && is_power(n_tiles, 1, 4) && is_power(p->k, 4, 8) &&
           p->gate.shape.n_rows == TILE && TILE % item_pairs == 0 && p->n_experts <= THREADS &&
           p->k <= p->n_experts && p->n_experts % 32 == 0;
}

static bool has_forms(const mf_mixture_params *m)
{
    const mf_routed_experts_params *p = &m->experts->u.routed;
    const uint32_t n_cols = p->gate.shape.n_cols, hidden = p->gate.shape.n_rows;
    const mf_matmul_params *router = &m->router->u.matmul, *in = &m->shared_in->u.matmul;
    const mf_matmul_params *out = &m->shared_out->u.matmul;
    return router->n == 2 && in->n == 2 && out->n == 1 &&
           is_form(&p->gate, 4, &p->gate, hidden, n_cols) &&
           is_form(&p->up, 4, &p->gate, hidden, n_cols) &&
           is_form(&p->down, 4, &p->gate, n_cols, hidden) &&
           is_form(&in->weight[0], 4, &p->gate, hidden, n_cols) &&
           is_form(&in->weight[1], 4, &p->gate, hidden, n_cols) &&
           is_form(&out->weight[0], 4, &p->gate, n_cols, hidden) &&
           is_form(&router->weight[0], 8, &p->gate, p->n_experts, n_cols) &&
           is_form(&router->weight[1], 8, &p->gate, 1, n_cols);
}

/* A choice among all experts by the softmax of their logits, and nobody counts it. */
static bool has_choice(const mf_mixture_params *m)
{
    const mf_route_params *p = &m->route->u.route;
    const mf_routed_experts_params *e = &m->experts->u.routed;
    return p->score == MF_SCORE_SOFTMAX && p->n_groups <= 1 && p->bias.buffer.id == 0 &&
           p->table.buffer.id == 0 && p->found.buffer.id == 0 && p->n_experts == e->n_experts &&
           p->k == e->k;
}

/* The same weights, rows and norms everywhere. */
static bool has_steps(const mf_mixture_params *m)
{
    const mf_routed_experts_params *p = &m->experts->u.routed;
    const mf_input_step *a = &m->router->u.matmul.before, *b = &m->shared_in->u.matmul.before;
    return !mf_has_expert_steps(&p->steps) && !p->has_resident_scales &&
           p->before.kind == MF_INPUT_NORMED && a->kind == MF_INPUT_NORMED &&
           b->kind == MF_INPUT_NORMED && a->eps == p->before.eps && b->eps == p->before.eps &&
           m->shared_in->u.matmul.is_paired && m->router->u.matmul.after.kind == MF_OUTPUT_PUT &&
           m->shared_in->u.matmul.after.kind == MF_OUTPUT_PUT &&
           !mf_has_steps(&m->shared_out->u.matmul) && p->sum.x.buffer.id != 0 &&
           p->sum.shared.buffer.id != 0 && p->sum.shared_gate.buffer.id != 0;
}

static bool mixture_supports(const mf_vk_backend *be, const mf_op *op)
{
    const mf_mixture_params *m = &op->u.mixture;
    return be->device.n_resident != 0 && op->n_rows == 1 && has_steps(m) && has_choice(m) &&
           has_forms(m) && has_sizes(&m->experts->u.routed);
}

static mf_vk_kernel kernel_of(const mf_vk_backend *be, const mf_mixture_params *m)
{
    const mf_routed_experts_params *p = &m->experts->u.routed;
    mf_vk_kernel k = {MF_VK_SHADER_mixture_affine, 1, {THREADS}};
    mf_vk_weight_constants(&p->gate.shape, &k);
    k.constants[k.n_constants++] = p->gate.shape.n_cols;
    k.constants[k.n_constants++] = p->n_experts;
    k.constants[k.n_constants++] = true; /* loads are wide */
    k.constants[k.n_constants++] = p->k;
    k.constants[k.n_constants++] = p->gate.shape.n_rows;
    k.constants[k.n_constants++] = m->shared_in->u.matmul.weight[0].shape.n_rows;
    memcpy(&k.constants[k.n_constants++], &p->before.eps, sizeof p->before.eps);
    k.constants[k.n_constants++] = m->route->u.route.normalise;
    k.constants[k.n_constants++] = AHEAD;
    k.constants[k.n_constants++] =
        be->device.info.least_subgroup == 32 && be->device.info.most_subgroup == 32;
    return k;
}

/* As mixture.comp has them. */
typedef struct mixture {
    mf_vk_weight shared_down, gate, up, down;
    uint64_t slot, slot_bytes, ids, weights, fault;
    float eps, scale;
} mixture;

/* Values that workgroups hand each other, and the word that says that one of them gave up. */
static mf_status reserve_grid(mf_vk_backend *be, uint64_t n_bytes, mf_error *error)
{
    mf_vk_grid *g = &be->grid;
    const mf_vk_request values = {n_bytes, MF_VK_ON_DEVICE, MF_USE_DEVICE, true,
                                  "values between workgroups"};
    const mf_vk_request fault = {sizeof(uint32_t), MF_VK_ON_HOST, MF_USE_HOST, true,
                                 "a word for those who wait"};
    mf_buffer buffer = {0};
    if (g->n_bytes >= n_bytes)
        return MF_OK;
    mf_vk_submit(be);
    mf_vk_wait_in_lock(be, be->stream.submitted);
    if (g->fault.id == 0) {
        MF_TRY(mf_vk_buffer_create(be, &fault, &g->fault, error));
        memset(be->buffers[g->fault.id - 1].host, 0, sizeof(uint32_t));
    }
    MF_TRY(mf_vk_buffer_create(be, &values, &buffer, error));
    mf_vk_buffer_drop(be, g->values);
    g->values = buffer;
    g->n_bytes = n_bytes;
    g->epoch = LAST_EPOCH; /* nobody has cleared it */
    return MF_OK;
}

static mf_status mixture_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_mixture_params *m = &op->u.mixture;
    const mf_routed_experts_params *p = &m->experts->u.routed;
    const mf_vk_kernel k = kernel_of(be, m);
    const uint64_t n_values = p->n_experts + 1 + (uint64_t)(p->k + 1) * p->gate.shape.n_rows;
    MF_TRY(mf_vk_prepare(be, &k, error));
    MF_TRY(reserve_grid(be, n_values * sizeof(uint64_t), error));
    /* the operations themselves, where weights are not aligned */
    return mf_vk_ring_need(be, MF_VK_RING_PARAMETERS,
                           sizeof(mixture) + 8 * mf_vk_product_bytes(2) + 4096, error);
}

static mixture mixture_of(const mf_vk_backend *be, const mf_mixture_params *m)
{
    const mf_routed_experts_params *p = &m->experts->u.routed;
    return (mixture){.shared_down = mf_vk_weight_at(be, &m->shared_out->u.matmul.weight[0]),
                     .gate = mf_vk_weight_at(be, &p->gate),
                     .up = mf_vk_weight_at(be, &p->up),
                     .down = mf_vk_weight_at(be, &p->down),
                     .slot = mf_vk_address(be, p->slot),
                     .slot_bytes = p->slot_bytes,
                     .ids = mf_vk_address(be, m->route->u.route.ids),
                     .weights = mf_vk_address(be, m->route->u.route.weights),
                     .fault = mf_vk_address(be, (mf_span){be->grid.fault, 0}),
                     .eps = m->route->u.route.eps,
                     .scale = m->route->u.route.scale};
}

typedef struct near {
    uint64_t values;
    int32_t scales, biases; /* units of 4 bytes from the values */
} near;

typedef struct mixture_push {
    uint64_t x, norm, more, values;
    near router, shared_router, shared_gate, shared_up;
    uint32_t epoch, unused;
} mixture_push;

/* Whether the weight's arrays are near each other, and aligned. */
static bool put_near(const mf_vk_backend *be, const mf_weight *w, near *out)
{
    const mf_vk_weight at = mf_vk_weight_at(be, w);
    const int64_t scales = (int64_t)(at.scales - at.values),
                  biases = (int64_t)(at.biases - at.values);
    *out = (near){at.values, (int32_t)(scales / 4), (int32_t)(biases / 4)};
    return at.values % 16 == 0 && (int64_t)out->scales * 4 == scales &&
           (int64_t)out->biases * 4 == biases;
}

/* But for what is in memory. False: the weights do not lie so that the shader can read them. */
static bool put_push(const mf_vk_backend *be, const mf_mixture_params *m, const mixture *at,
                     mixture_push *push)
{
    const mf_routed_experts_params *p = &m->experts->u.routed;
    const mf_matmul_params *router = &m->router->u.matmul, *in = &m->shared_in->u.matmul;
    push->x = mf_vk_address(be, p->sum.x);
    push->norm = mf_vk_address(be, p->before.weight);
    return ((at->shared_down.values | at->gate.values | at->up.values | at->down.values |
             at->slot_bytes | push->x | push->norm) &
            15) == 0 &&
           put_near(be, &router->weight[0], &push->router) &&
           put_near(be, &router->weight[1], &push->shared_router) &&
           put_near(be, &in->weight[0], &push->shared_gate) &&
           put_near(be, &in->weight[1], &push->shared_up);
}

static void record_each(mf_vk_backend *be, const mf_mixture_params *m)
{
    mf_vk_op_matmul.record(be, m->router);
    mf_vk_op_matmul.record(be, m->shared_in);
    mf_vk_step(be);
    mf_vk_op_route.record(be, m->route);
    mf_vk_op_matmul.record(be, m->shared_out);
    mf_vk_step(be);
    mf_vk_op_routed_experts.record(be, m->experts);
}

static void touch(void *ctx, mf_span span, uint64_t n_bytes, uint32_t access)
{
    mf_vk_touch(ctx, span, n_bytes, access);
}

/* Before the operation's dispatch: what it touches is said again. */
static void clear(mf_vk_backend *be, const mf_op *op)
{
    static const unsigned char zeros[4096];
    const mf_vk_grid *g = &be->grid;
    for (uint64_t at = 0; at < g->n_bytes; at += sizeof zeros)
        mf_vk_write(be, (mf_span){g->values, at}, zeros,
                    g->n_bytes - at < sizeof zeros ? g->n_bytes - at : sizeof zeros);
    mf_vk_next(be);
    mf_op_spans(op, NULL, 0, touch, be);
}

/* The number of the next dispatch. */
static uint32_t next_epoch(mf_vk_backend *be, const mf_op *op)
{
    mf_vk_grid *g = &be->grid;
    if (g->epoch == LAST_EPOCH) {
        clear(be, op);
        g->epoch = 0;
    }
    return ++g->epoch;
}

static void mixture_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_mixture_params *m = &op->u.mixture;
    const mf_routed_experts_params *p = &m->experts->u.routed;
    const mf_vk_kernel k = kernel_of(be, m);
    const mixture at = mixture_of(be, m);
    mixture_push push = {0};
    if (!put_push(be, m, &at, &push)) {
        record_each(be, m);
        return;
    }
    push.epoch = next_epoch(be, op);
    push.more = mf_vk_array(be, &at, sizeof at);
    push.values = mf_vk_address(be, (mf_span){be->grid.values, 0});
    mf_vk_touch(be, (mf_span){be->grid.values, 0}, be->grid.n_bytes, MF_READS | MF_WRITES);
    mf_vk_dispatch(be, &k, &push, sizeof push, (const uint32_t[]){be->device.n_resident, 1, 1});
    const mf_op *const products[] = {m->router, m->shared_in, m->shared_out};
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        for (uint32_t j = 0; j < products[i]->u.matmul.n; j++)
            be->weight_bytes += mf_weight_bytes(&products[i]->u.matmul.weight[j].shape);
    be->weight_bytes += p->k * (mf_weight_bytes(&p->gate.shape) + mf_weight_bytes(&p->up.shape) +
                                mf_weight_bytes(&p->down.shape));
}

bool mf_vk_grid_failed(mf_vk_backend *be)
{
    mf_error error = {0};
    const mf_buffer fault = be->grid.fault;
    if (fault.id == 0 || *(volatile uint32_t *)be->buffers[fault.id - 1].host == 0)
        return false;
    (void)mf_fail(&error, MF_ERR_IO, "%s does not run the workgroups of a dispatch side by side",
                  be->device.info.name);
    mf_vk_give_up(be, &error);
    return true;
}

const mf_vk_op mf_vk_op_mixture = {mixture_supports, mixture_reserve, mixture_record};

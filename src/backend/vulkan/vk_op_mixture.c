/* SPDX-License-Identifier: MIT */
/*
 * One row's mixture of experts as one dispatch (mixture.comp), whose workgroups wait for each
 * other.
 */
#include "backend/vulkan/vk_grid.h"
#include "backend/vulkan/vk_product.h"

#include <string.h>

#define THREADS MF_VK_GRID_THREADS
#define TEAMS (THREADS / 16u)
#define TILE 512u /* as in mixture.comp, what follows too */
#define IN_PAIRS 4u
#define AHEAD 2u

/* With these the shader has at most 32 KiB of shared memory. */
static bool has_sizes(const mf_routed_experts_params *p)
{
    const uint32_t n_cols = p->gate.shape.n_cols, n_tiles = n_cols / TILE;
    const uint32_t item_pairs = TEAMS / (n_tiles != 0 ? n_tiles : 1) * IN_PAIRS;
    return n_cols % TILE == 0 && mf_vk_is_power(n_tiles, 1, 4) && mf_vk_is_power(p->k, 4, 8) &&
           p->gate.shape.n_rows == TILE && TILE % item_pairs == 0 && p->n_experts <= THREADS &&
           p->k <= p->n_experts && p->n_experts % 32 == 0;
}

static bool is_like(const mf_weight *w, const mf_weight_shape *form, uint32_t n_rows,
                    uint32_t n_cols)
{
    mf_weight_shape shape = *form;
    shape.n_cols = n_cols;
    return mf_vk_same_form(&w->shape, &shape) && w->shape.n_rows == n_rows;
}

/* Of affine experts affine ones of 8 bits, like theirs otherwise; of blocks floats. */
static bool has_router(const mf_mixture_params *m)
{
    const mf_routed_experts_params *p = &m->experts->u.routed;
    const mf_matmul_params *router = &m->router->u.matmul;
    mf_weight_shape form = p->gate.shape;
    if (form.kind == MF_WEIGHT_AFFINE)
        form.bits = 8;
    else
        form = router->weight[0].shape;
    return router->n == 2 && (form.kind == MF_WEIGHT_AFFINE || form.kind == MF_WEIGHT_FLOAT) &&
           is_like(&router->weight[0], &form, p->n_experts, p->gate.shape.n_cols) &&
           is_like(&router->weight[1], &form, 1, p->gate.shape.n_cols);
}

static bool has_forms(const mf_mixture_params *m)
{
    const mf_routed_experts_params *p = &m->experts->u.routed;
    const uint32_t n_cols = p->gate.shape.n_cols, hidden = p->gate.shape.n_rows;
    const mf_matmul_params *in = &m->shared_in->u.matmul, *out = &m->shared_out->u.matmul;
    const mf_weight_shape *form = &p->gate.shape;
    return in->n == 2 && out->n == 1 && has_router(m) &&
           ((form->kind == MF_WEIGHT_AFFINE && form->bits == 4) || mf_vk_is_blocks(form)) &&
           is_like(&p->up, form, hidden, n_cols) && is_like(&p->down, form, n_cols, hidden) &&
           is_like(&in->weight[0], form, hidden, n_cols) &&
           is_like(&in->weight[1], form, hidden, n_cols) &&
           is_like(&out->weight[0], form, n_cols, hidden);
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
    const bool is_affine = p->gate.shape.kind == MF_WEIGHT_AFFINE;
    mf_vk_kernel k = {
        is_affine ? MF_VK_SHADER_mixture_affine : MF_VK_SHADER_mixture_any, 1, {THREADS}};
    mf_vk_weight_constants(&p->gate.shape, &k);
    if (!is_affine)
        k.constants[2] /* FLOAT_TYPE */ = (uint32_t)m->router->u.matmul.weight[0].shape.float_type;
    k.constants[k.n_constants++] = p->gate.shape.n_cols;
    k.constants[k.n_constants++] = p->n_experts;
    k.constants[k.n_constants++] = true; /* loads are wide */
    k.constants[k.n_constants++] = p->k;
    k.constants[k.n_constants++] = p->gate.shape.n_rows;
    k.constants[k.n_constants++] = m->shared_in->u.matmul.weight[0].shape.n_rows;
    memcpy(&k.constants[k.n_constants++], &p->before.eps, sizeof p->before.eps);
    k.constants[k.n_constants++] = m->route->u.route.normalise;
    k.constants[k.n_constants++] = AHEAD;
    k.constants[k.n_constants++] = mf_vk_has_whole_subgroups(be);
    return k;
}

/* As mixture.comp has them. */
typedef struct mixture {
    mf_vk_weight shared_down, gate, up, down;
    uint64_t slot, slot_bytes, ids, weights, fault;
    float eps, scale;
} mixture;

static mf_status mixture_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_mixture_params *m = &op->u.mixture;
    const mf_routed_experts_params *p = &m->experts->u.routed;
    const mf_vk_kernel k = kernel_of(be, m);
    const uint64_t n_values = p->n_experts + 1 + (uint64_t)(p->k + 1) * p->gate.shape.n_rows;
    MF_TRY(mf_vk_prepare(be, &k, error));
    MF_TRY(mf_vk_grid_reserve(be, n_values, error));
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
                     .fault = mf_vk_grid_fault(be),
                     .eps = m->route->u.route.eps,
                     .scale = m->route->u.route.scale};
}

typedef struct mixture_push {
    uint64_t x, norm, more, values;
    mf_vk_near router, shared_router, shared_gate, shared_up;
    uint32_t epoch, zero;
} mixture_push;

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
           mf_vk_put_near(be, &router->weight[0], &push->router) &&
           mf_vk_put_near(be, &router->weight[1], &push->shared_router) &&
           mf_vk_put_near(be, &in->weight[0], &push->shared_gate) &&
           mf_vk_put_near(be, &in->weight[1], &push->shared_up);
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
    push.epoch = mf_vk_grid_next(be, op);
    push.more = mf_vk_array(be, &at, sizeof at);
    push.values = mf_vk_grid_values(be);
    mf_vk_grid_dispatch(be, &k, &push, sizeof push);
    const mf_op *const products[] = {m->router, m->shared_in, m->shared_out};
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        for (uint32_t j = 0; j < products[i]->u.matmul.n; j++)
            be->weight_bytes += mf_weight_bytes(&products[i]->u.matmul.weight[j].shape);
    be->weight_bytes += p->k * (mf_weight_bytes(&p->gate.shape) + mf_weight_bytes(&p->up.shape) +
                                mf_weight_bytes(&p->down.shape));
}

const mf_vk_op mf_vk_op_mixture = {mixture_supports, mixture_reserve, mixture_record};

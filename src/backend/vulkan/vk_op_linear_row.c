/* SPDX-License-Identifier: MIT */
/*
 * One row of linear attention by the gated delta rule as one dispatch (linear_row.comp), whose
 * workgroups wait for each other.
 */
#include "backend/vulkan/vk_grid.h"
#include "backend/vulkan/vk_product.h"

#include <string.h>

#define TILE 512u /* as in linear_row.comp, what follows too */
#define HEAD_DIM (MF_VK_GRID_THREADS / 4u)
#define AHEAD 2u
#define ROW_STEP 4u /* of a team's rows */

/* With these the shader has at most 32 KiB of shared memory. */
static bool has_sizes(const mf_linear_row_params *p)
{
    const mf_matmul_params *in = &p->in->u.matmul;
    const mf_gated_delta_params *rule = &p->rule->u.gated_delta;
    const uint32_t n_cols = in->weight[0].shape.n_cols;
    const uint32_t n_values = rule->n_v_heads * rule->value_dim;
    return n_cols % TILE == 0 && mf_vk_is_power(n_cols / TILE, 1, 4) && n_values % TILE == 0 &&
           mf_vk_is_power(n_values / TILE, 1, 8) && rule->key_dim == HEAD_DIM &&
           rule->value_dim == HEAD_DIM && rule->n_k_heads != 0 &&
           rule->n_v_heads % rule->n_k_heads == 0;
}

static bool has_forms(const mf_linear_row_params *p)
{
    const mf_matmul_params *in = &p->in->u.matmul, *out = &p->out->u.matmul;
    const mf_gated_delta_params *rule = &p->rule->u.gated_delta;
    const mf_weight *like = &in->weight[0];
    const uint32_t n_cols = like->shape.n_cols, n_values = rule->n_v_heads * rule->value_dim;
    const uint32_t n_keys = rule->n_k_heads * rule->key_dim;
    return in->n == 4 && out->n == 1 &&
           mf_vk_is_affine(like, 4, like, 2 * n_keys + n_values, n_cols) &&
           mf_vk_is_affine(&in->weight[1], 4, like, n_values, n_cols) &&
           mf_vk_is_affine(&in->weight[2], 4, like, rule->n_v_heads, n_cols) &&
           mf_vk_is_affine(&in->weight[3], 4, like, rule->n_v_heads, n_cols) &&
           mf_vk_is_affine(&out->weight[0], 4, like, n_cols, n_values);
}

static bool has_steps(const mf_linear_row_params *p)
{
    const mf_matmul_params *in = &p->in->u.matmul, *out = &p->out->u.matmul;
    return in->before.kind == MF_INPUT_NORMED && in->after.kind == MF_OUTPUT_CONVOLVED &&
           in->after.width >= 2 && in->after.width <= MF_VK_CONV_WIDTH &&
           out->before.kind == MF_INPUT_HEADS_GATED && out->before.head_dim == HEAD_DIM &&
           out->after.kind == MF_OUTPUT_ADDED && !in->is_paired &&
           !p->rule->u.gated_delta.has_key_decays;
}

static bool linear_row_supports(const mf_vk_backend *be, const mf_op *op)
{
    const mf_linear_row_params *p = &op->u.linear_row;
    return be->device.n_resident != 0 && op->n_rows == 1 && has_steps(p) && has_sizes(p) &&
           has_forms(p);
}

static mf_vk_kernel kernel_of(const mf_vk_backend *be, const mf_linear_row_params *p)
{
    const mf_matmul_params *in = &p->in->u.matmul, *out = &p->out->u.matmul;
    const mf_gated_delta_params *rule = &p->rule->u.gated_delta;
    mf_vk_kernel k = {MF_VK_SHADER_linear_row_affine, 1, {MF_VK_GRID_THREADS}};
    mf_vk_weight_constants(&in->weight[0].shape, &k);
    k.constants[k.n_constants++] = in->weight[0].shape.n_cols;
    k.constants[k.n_constants++] = rule->n_k_heads;
    k.constants[k.n_constants++] = true; /* loads are wide */
    k.constants[k.n_constants++] = rule->n_v_heads;
    k.constants[k.n_constants++] = rule->is_tiled;
    k.constants[k.n_constants++] = mf_vk_team_rows(be, in, ROW_STEP);
    memcpy(&k.constants[k.n_constants++], &in->before.eps, sizeof in->before.eps);
    memcpy(&k.constants[k.n_constants++], &out->before.eps, sizeof out->before.eps);
    k.constants[k.n_constants++] = AHEAD;
    k.constants[k.n_constants++] = mf_vk_has_whole_subgroups(be);
    k.constants[k.n_constants++] = in->after.width;
    return k;
}

/* As linear_row.comp has them. */
typedef struct linear {
    uint64_t conv, conv_before, conv_after, a_log, dt_bias, before, after, head_norm, fault;
    float l2_eps, q_scale;
} linear;

typedef struct linear_push {
    uint64_t x, norm, more, values;
    mf_vk_row_products weights;
    uint32_t epoch, zero;
} linear_push;

static mf_status linear_row_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_linear_row_params *p = &op->u.linear_row;
    const mf_vk_kernel k = kernel_of(be, p);
    const uint64_t n_values =
        mf_vk_in_rows(&p->in->u.matmul) + p->out->u.matmul.weight[0].shape.n_cols;
    MF_TRY(mf_vk_prepare(be, &k, error));
    MF_TRY(mf_vk_grid_reserve(be, n_values, error));
    /* the operations themselves, where weights are not aligned */
    return mf_vk_ring_need(be, MF_VK_RING_PARAMETERS,
                           sizeof(linear) + 3 * mf_vk_product_bytes(4) + 4096, error);
}

static linear linear_of(const mf_vk_backend *be, const mf_linear_row_params *p)
{
    const mf_output_step *after = &p->in->u.matmul.after;
    const mf_gated_delta_params *rule = &p->rule->u.gated_delta;
    const mf_vk_single s = mf_vk_batch_single(be);
    return (linear){.conv = mf_vk_address(be, after->weight),
                    .conv_before = s.before != 0 ? s.before + after->state_offset : 0,
                    .conv_after = s.after + after->state_offset,
                    .a_log = mf_vk_address(be, rule->a_log),
                    .dt_bias = mf_vk_address(be, rule->dt_bias),
                    .before = s.before != 0 ? s.before + rule->state_offset : 0,
                    .after = s.after + rule->state_offset,
                    .head_norm = mf_vk_address(be, p->out->u.matmul.before.weight),
                    .fault = mf_vk_grid_fault(be),
                    .l2_eps = rule->eps,
                    .q_scale = mf_vk_query_scale(rule)};
}

/* But for what is in memory. False: the weights do not lie so that the shader can read them. */
static bool put_push(const mf_vk_backend *be, const mf_linear_row_params *p, const linear *more,
                     linear_push *push)
{
    const mf_matmul_params *in = &p->in->u.matmul;
    push->x = mf_vk_address(be, in->x);
    push->norm = mf_vk_address(be, in->before.weight);
    return ((push->x | push->norm | more->before | more->after) & 15) == 0 &&
           mf_vk_put_row_products(be, in, &p->out->u.matmul, &push->weights);
}

static void record_each(mf_vk_backend *be, const mf_linear_row_params *p)
{
    mf_vk_op_matmul.record(be, p->in);
    mf_vk_step(be);
    mf_vk_op_gated_delta.record(be, p->rule);
    mf_vk_step(be);
    mf_vk_op_matmul.record(be, p->out);
}

static void linear_row_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_linear_row_params *p = &op->u.linear_row;
    const mf_vk_kernel k = kernel_of(be, p);
    const linear more = linear_of(be, p);
    linear_push push = {0};
    if (!put_push(be, p, &more, &push)) {
        record_each(be, p);
        return;
    }
    push.epoch = mf_vk_grid_next(be, op);
    push.more = mf_vk_array(be, &more, sizeof more);
    push.values = mf_vk_grid_values(be);
    mf_vk_grid_dispatch(be, &k, &push, sizeof push);
    mf_vk_count_row_products(be, &p->in->u.matmul, &p->out->u.matmul);
}

const mf_vk_op mf_vk_op_linear_row = {linear_row_supports, linear_row_reserve, linear_row_record};

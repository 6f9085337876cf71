/* SPDX-License-Identifier: MIT */
/*
 * One row of softmax attention as one dispatch (attend_row.comp), whose workgroups wait for each
 * other. Contexts that attention_one.comp does not take, because many workgroups would read the
 * same keys, have their operations one after the other.
 */
#include "backend/vulkan/vk_attention.h"
#include "backend/vulkan/vk_grid.h"
#include "backend/vulkan/vk_product.h"

#include <string.h>

#define TILE 512u /* as in attend_row.comp, what follows too */
#define AHEAD 2u
#define ROW_STEP 2u /* of a team's rows: a multiple of AHEAD */
#define MOST_QUERIES 4u
/* Blocks with heads that share keys: one a workgroup, or a few one after the other. */
#define MOST_TURNS (4 * MF_VK_ONE_GROUPS)
#define LOG2_E 1.44269504f

static bool has_gate(const mf_attend_row_params *p)
{
    return p->in->u.matmul.n == 4;
}

/* With these the shader has at most 32 KiB of shared memory. */
static bool has_sizes(const mf_attend_row_params *p)
{
    const mf_attention_params *a = &p->attend->u.attention;
    const uint32_t n_cols = p->in->u.matmul.weight[0].shape.n_cols;
    const uint32_t n_values = a->n_heads * a->head_dim;
    return n_cols % TILE == 0 && mf_vk_is_power(n_cols / TILE, 1, 4) && n_values % TILE == 0 &&
           mf_vk_is_power(n_values / TILE, 1, 8) && mf_vk_is_power(a->head_dim, 64, 256) &&
           a->n_kv_heads != 0 && a->n_heads % a->n_kv_heads == 0;
}

static bool has_forms(const mf_attend_row_params *p)
{
    const mf_matmul_params *in = &p->in->u.matmul, *out = &p->out->u.matmul;
    const mf_attention_params *a = &p->attend->u.attention;
    const mf_weight *like = &in->weight[0];
    const uint32_t n_cols = like->shape.n_cols, n_values = a->n_heads * a->head_dim;
    const uint32_t n_keys = a->n_kv_heads * a->head_dim;
    return (in->n == 3 || in->n == 4) && out->n == 1 &&
           mf_vk_is_affine(like, 4, like, n_values, n_cols) &&
           mf_vk_is_affine(&in->weight[1], 4, like, n_keys, n_cols) &&
           mf_vk_is_affine(&in->weight[2], 4, like, n_keys, n_cols) &&
           (in->n == 3 || mf_vk_is_affine(&in->weight[3], 4, like, n_values, n_cols)) &&
           mf_vk_is_affine(&out->weight[0], 4, like, n_cols, n_values);
}

/* Heads are normed, and rotated alike. */
static bool has_heads(const mf_op *heads, uint32_t n_heads, const mf_attend_row_params *p)
{
    const mf_head_norm_rope_params *h = &heads->u.head_norm_rope;
    const mf_head_norm_rope_params *like = &p->queries->u.head_norm_rope;
    return heads->kind == MF_OP_HEAD_NORM_ROPE && h->n_heads == n_heads &&
           h->head_dim == p->attend->u.attention.head_dim && h->n_rot == like->n_rot &&
           h->eps == like->eps;
}

static bool has_steps(const mf_attend_row_params *p)
{
    const mf_matmul_params *in = &p->in->u.matmul, *out = &p->out->u.matmul;
    const mf_attention_params *a = &p->attend->u.attention;
    return in->before.kind == MF_INPUT_NORMED && in->after.kind == MF_OUTPUT_PUT &&
           !in->is_paired && p->attend->kind == MF_OP_ATTENTION && a->sinks.buffer.id == 0 &&
           has_heads(p->queries, a->n_heads, p) && has_heads(p->keys, a->n_kv_heads, p) &&
           out->before.kind == (has_gate(p) ? MF_INPUT_SIGMOID : MF_INPUT_AS_IT_IS) &&
           out->after.kind == MF_OUTPUT_ADDED;
}

uint32_t mf_vk_attend_row_blocks(const mf_op *attend)
{
    return mf_vk_one_blocks(attend, MOST_TURNS);
}

static bool attend_row_supports(const mf_vk_backend *be, const mf_op *op)
{
    const mf_attend_row_params *p = &op->u.attend_row;
    return be->device.n_resident != 0 && op->n_rows == 1 && has_steps(p) && has_sizes(p) &&
           has_forms(p) && mf_vk_one_supports(be, p->attend) &&
           mf_vk_attend_row_blocks(p->attend) != 0;
}

static mf_vk_kernel kernel_of(const mf_vk_backend *be, const mf_attend_row_params *p,
                              uint32_t n_queries)
{
    const mf_matmul_params *in = &p->in->u.matmul;
    const mf_attention_params *a = &p->attend->u.attention;
    mf_vk_kernel k = {MF_VK_SHADER_attend_row_affine, 1, {MF_VK_GRID_THREADS}};
    mf_vk_weight_constants(&in->weight[0].shape, &k);
    k.constants[k.n_constants++] = in->weight[0].shape.n_cols;
    k.constants[k.n_constants++] = a->head_dim;
    k.constants[k.n_constants++] = true; /* loads are wide */
    k.constants[k.n_constants++] = a->n_kv_heads;
    k.constants[k.n_constants++] = a->n_heads / a->n_kv_heads;
    k.constants[k.n_constants++] = mf_vk_team_rows(be, in, ROW_STEP);
    memcpy(&k.constants[k.n_constants++], &in->before.eps, sizeof in->before.eps);
    memcpy(&k.constants[k.n_constants++], &p->queries->u.head_norm_rope.eps, sizeof(float));
    k.constants[k.n_constants++] = AHEAD;
    k.constants[k.n_constants++] = mf_vk_has_whole_subgroups(be);
    k.constants[k.n_constants++] = n_queries;
    k.constants[k.n_constants++] = (uint32_t)a->cache_type;
    k.constants[k.n_constants++] = has_gate(p);
    return k;
}

/* As attend_row.comp has them. */
typedef struct attend {
    uint64_t pages, k_offset, v_offset, query_norm, key_norm, cosine, sine, fault;
    uint32_t position, window, first_block, n_blocks, n_rot;
    float scale;
} attend;

typedef struct attend_push {
    uint64_t x, norm, more, values;
    mf_vk_row_products weights;
    uint32_t epoch, zero;
} attend_push;

static mf_status attend_row_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_attend_row_params *p = &op->u.attend_row;
    const mf_attention_params *a = &p->attend->u.attention;
    const uint64_t n_of_blocks =
        (uint64_t)mf_vk_attend_row_blocks(p->attend) * a->n_heads * (a->head_dim + 2);
    const uint64_t n_values =
        mf_vk_in_rows(&p->in->u.matmul) + (uint64_t)a->n_heads * a->head_dim + n_of_blocks;
    for (uint32_t n = 1; n <= MOST_QUERIES && n <= a->n_heads / a->n_kv_heads; n *= 2) {
        const mf_vk_kernel k = kernel_of(be, p, n);
        MF_TRY(mf_vk_prepare(be, &k, error));
    }
    MF_TRY(mf_vk_grid_reserve(be, n_values, error));
    /* the operations themselves, for other contexts and weights that are not aligned */
    return mf_vk_ring_need(be, MF_VK_RING_PARAMETERS,
                           sizeof(attend) + 3 * mf_vk_product_bytes(4) + 4096, error);
}

static attend attend_of(const mf_vk_backend *be, const mf_attend_row_params *p,
                        const mf_vk_one *one)
{
    const mf_attention_params *a = &p->attend->u.attention;
    const mf_head_norm_rope_params *h = &p->queries->u.head_norm_rope;
    const uint64_t angles = (uint64_t)one->position * (h->n_rot / 2) * sizeof(float);
    return (attend){.pages = one->pages,
                    .k_offset = a->page_offset[0],
                    .v_offset = a->page_offset[1],
                    .query_norm = mf_vk_address(be, h->weight),
                    .key_norm = mf_vk_address(be, p->keys->u.head_norm_rope.weight),
                    .cosine = mf_vk_address(be, h->cos) + angles,
                    .sine = mf_vk_address(be, h->sin) + angles,
                    .fault = mf_vk_grid_fault(be),
                    .position = one->position,
                    .window = one->window,
                    .first_block = one->first_block,
                    .n_blocks = one->n_blocks,
                    .n_rot = h->n_rot,
                    .scale = a->scale * LOG2_E};
}

/* But for what is in memory. False: the weights do not lie so that the shader can read them. */
static bool put_push(const mf_vk_backend *be, const mf_attend_row_params *p, attend_push *push)
{
    const mf_matmul_params *in = &p->in->u.matmul;
    push->x = mf_vk_address(be, in->x);
    push->norm = mf_vk_address(be, in->before.weight);
    return ((push->x | push->norm) & 15) == 0 &&
           mf_vk_put_row_products(be, in, &p->out->u.matmul, &push->weights);
}

static void record_each(mf_vk_backend *be, const mf_attend_row_params *p)
{
    mf_vk_op_matmul.record(be, p->in);
    mf_vk_step(be);
    mf_vk_op_head_norm_rope.record(be, p->queries);
    mf_vk_op_head_norm_rope.record(be, p->keys);
    mf_vk_step(be);
    mf_vk_op_attention.record(be, p->attend);
    mf_vk_step(be);
    mf_vk_op_matmul.record(be, p->out);
}

static void attend_row_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_attend_row_params *p = &op->u.attend_row;
    attend_push push = {0};
    mf_vk_one one;
    if (!mf_vk_one_of(be, p->attend, MOST_TURNS, &one) || !put_push(be, p, &push)) {
        record_each(be, p);
        return;
    }
    const mf_vk_kernel k = kernel_of(be, p, one.n_queries);
    const attend more = attend_of(be, p, &one);
    push.epoch = mf_vk_grid_next(be, op);
    push.more = mf_vk_array(be, &more, sizeof more);
    push.values = mf_vk_grid_values(be);
    mf_vk_grid_dispatch(be, &k, &push, sizeof push);
    mf_vk_count_row_products(be, &p->in->u.matmul, &p->out->u.matmul);
}

const mf_vk_op mf_vk_op_attend_row = {attend_row_supports, attend_row_reserve, attend_row_record};

/* SPDX-License-Identifier: MIT */
/*
 * One row of latent attention with the norm and the rotations before it as one dispatch
 * (latent_row.comp), and another one that merges blocks where there are several. Contexts of which
 * many workgroups would read the same keys have their operations one after the other.
 */
#include "backend/vulkan/vk_attention.h"

#include <string.h>

#define THREADS 512u /* as in latent_row.comp, what follows too */
#define SLICE 64u
#define MOST_QUERIES 8u
#define MOST_GROUPS (4 * MF_VK_ONE_GROUPS)
#define LOG2_E 1.44269504f

/* As latent_row.comp's push constants. */
typedef struct latent_push {
    uint64_t q, q_rot, kv, norm, cosine, sine, out, sums, ends, pages, page_offset;
    uint32_t n_heads, q_rot_head, position, n_blocks;
    float scale;
    uint32_t zero;
} latent_push;

static uint32_t shared_bytes(const mf_latent_attention_params *a, uint32_t n_queries)
{
    const uint32_t n_dims = a->n_latent + a->n_rot;
    const uint32_t keys = MF_VK_BLOCK * (SLICE + 4), queries = n_queries * (n_dims + MF_VK_BLOCK);
    return 4 * (keys + queries + n_dims + a->n_latent / 4 + 31 + THREADS + 2 * n_queries);
}

/* Heads of a workgroup, at most; 0: the device has no room for one. */
static uint32_t most_queries(const mf_vk_backend *be, const mf_latent_attention_params *a)
{
    uint32_t n = MOST_QUERIES;
    while (n != 0 && shared_bytes(a, n) > be->device.info.shared_bytes)
        n /= 2;
    return n;
}

/* Of what the attention has. */
static bool has_rotations(const mf_latent_row_params *p)
{
    const mf_latent_attention_params *a = &p->attend->u.latent_attention;
    if (p->rotate_q == NULL || p->rotate_kv == NULL)
        return p->rotate_q == p->rotate_kv;
    const mf_rope_params *q = &p->rotate_q->u.rope, *kv = &p->rotate_kv->u.rope;
    return p->rotate_q->kind == MF_OP_ROPE && p->rotate_kv->kind == MF_OP_ROPE &&
           q->n_rot == a->n_rot && kv->n_rot == a->n_rot && q->n_heads == a->n_heads &&
           kv->n_heads == 1 && q->head_stride == a->q_rot_head &&
           q->interleaved == kv->interleaved && !q->is_inverse && !kv->is_inverse &&
           a->n_rot % 8 == 0;
}

static bool latent_row_supports(const mf_vk_backend *be, const mf_op *op)
{
    const mf_latent_row_params *p = &op->u.latent_row;
    const mf_latent_attention_params *a = &p->attend->u.latent_attention;
    const VkPhysicalDeviceLimits *limits = &be->device.properties.limits;
    return op->n_rows == 1 && p->attend->kind == MF_OP_LATENT_ATTENTION &&
           p->norm->kind == MF_OP_RMSNORM && !p->norm->u.rmsnorm.is_centred &&
           p->norm->u.rmsnorm.n_cols == a->n_latent && has_rotations(p) && a->index.n_most == 0 &&
           (a->cache_type == MF_F32 || a->cache_type == MF_BF16) && a->n_latent % 4 == 0 &&
           a->n_rot % 4 == 0 && (a->n_latent + a->n_rot) % SLICE == 0 && a->n_latent <= THREADS &&
           limits->maxComputeWorkGroupInvocations >= THREADS &&
           limits->maxComputeWorkGroupSize[0] >= THREADS && most_queries(be, a) != 0;
}

static mf_vk_kernel kernel_of(const mf_latent_row_params *p, uint32_t n_queries)
{
    const mf_latent_attention_params *a = &p->attend->u.latent_attention;
    mf_vk_kernel k = {MF_VK_SHADER_latent_row,
                      7,
                      {THREADS, (uint32_t)a->cache_type, a->n_latent, a->n_rot, n_queries, 0,
                       p->rotate_q != NULL && p->rotate_q->u.rope.interleaved}};
    memcpy(&k.constants[5], &p->norm->u.rmsnorm.eps, sizeof p->norm->u.rmsnorm.eps);
    return k;
}

static mf_status latent_row_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_latent_row_params *p = &op->u.latent_row;
    for (uint32_t n = most_queries(be, &p->attend->u.latent_attention); n != 0; n /= 2) {
        const mf_vk_kernel k = kernel_of(p, n);
        MF_TRY(mf_vk_prepare(be, &k, error));
    }
    return MF_OK; /* the operations themselves have been reserved */
}

/* As few heads a workgroup as leave no more of them than run at once; else as many as there is room
 * for. */
static uint32_t queries_of(const mf_vk_backend *be, const mf_latent_attention_params *a,
                           uint32_t n_blocks)
{
    uint32_t n = most_queries(be, a);
    while (n > 1 && mf_vk_groups(a->n_heads, n / 2) * n_blocks <= MF_VK_ONE_GROUPS)
        n /= 2;
    return n;
}

uint32_t mf_vk_latent_row_blocks(const mf_vk_backend *be, const mf_op *attend)
{
    const mf_latent_attention_params *a = &attend->u.latent_attention;
    const uint32_t n_queries = most_queries(be, a);
    return n_queries == 0 ? 0 : MOST_GROUPS / mf_vk_groups(a->n_heads, n_queries);
}

/* Whether the row is attended to so. */
static bool takes(const mf_vk_backend *be, const mf_latent_row_params *p, const mf_vk_attention *a,
                  mf_vk_one *one)
{
    const mf_latent_attention_params *l = &p->attend->u.latent_attention;
    if (!mf_vk_row_of(be, a, one) || mf_vk_address(be, p->norm->u.rmsnorm.weight) % 16 != 0)
        return false;
    one->n_queries = queries_of(be, l, one->n_blocks);
    return one->n_blocks <= mf_vk_latent_row_blocks(be, p->attend) &&
           mf_vk_can_split(be, a, one->n_blocks);
}

static void record_each(mf_vk_backend *be, const mf_latent_row_params *p)
{
    mf_vk_op_rmsnorm.record(be, p->norm);
    if (p->rotate_q != NULL) { /* none of these touches what another one does */
        mf_vk_op_rope.record(be, p->rotate_q);
        mf_vk_op_rope.record(be, p->rotate_kv);
    }
    mf_vk_step(be);
    mf_vk_op_latent_attention.record(be, p->attend);
}

static latent_push push_of(const mf_vk_backend *be, const mf_latent_row_params *p,
                           const mf_vk_one *one)
{
    const mf_latent_attention_params *a = &p->attend->u.latent_attention;
    latent_push push = {.q = mf_vk_address(be, a->q),
                        .q_rot = mf_vk_address(be, a->q_rot),
                        .kv = mf_vk_address(be, a->kv),
                        .norm = mf_vk_address(be, p->norm->u.rmsnorm.weight),
                        .out = mf_vk_address(be, a->out),
                        .pages = one->pages,
                        .page_offset = a->page_offset,
                        .n_heads = a->n_heads,
                        .q_rot_head = a->q_rot_head,
                        .position = one->position,
                        .scale = a->scale * LOG2_E};
    if (p->rotate_q != NULL) {
        const uint64_t angles = (uint64_t)one->position * (a->n_rot / 2) * sizeof(float);
        push.cosine = mf_vk_address(be, p->rotate_q->u.rope.cos) + angles;
        push.sine = mf_vk_address(be, p->rotate_q->u.rope.sin) + angles;
    }
    return push;
}

static void latent_row_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_latent_row_params *p = &op->u.latent_row;
    const mf_vk_attention a = mf_vk_attention_of(be, p->attend);
    mf_vk_one one;
    if (!takes(be, p, &a, &one)) {
        record_each(be, p);
        return;
    }
    const mf_vk_kernel k = kernel_of(p, one.n_queries);
    const uint32_t groups[] = {mf_vk_groups(a.n_heads, one.n_queries), 1, one.n_blocks};
    latent_push push = push_of(be, p, &one);
    if (one.n_blocks == 1) {
        mf_vk_dispatch(be, &k, &push, sizeof push, groups);
        return;
    }
    const mf_vk_merge_push join = mf_vk_row_split(be, &a, &one);
    push.sums = join.sums;
    push.ends = join.ends;
    push.n_blocks = one.n_blocks;
    mf_vk_dispatch(be, &k, &push, sizeof push, groups);
    mf_vk_merge(be, &a, &join);
}

const mf_vk_op mf_vk_op_latent_row = {latent_row_supports, latent_row_reserve, latent_row_record};

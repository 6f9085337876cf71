/* SPDX-License-Identifier: MIT */
/*
 * Routed experts of several rows: the device sorts the picks by expert and makes a job of each
 * expert for each product, which the kernels for several tokens multiply: its weights are read once
 * for up to 8 rows. A row's bits are those that it has alone.
 */
#include "backend/vulkan/vk_product.h"

#include <string.h>

/* As in group.comp. */
#define MOST_PICKS 256u
/* Fewer rows share few experts. */
#define LEAST_ROWS 4u

bool mf_vk_grouped_wants(const mf_op *op)
{
    return op->n_rows >= LEAST_ROWS && op->n_rows * op->u.routed.k <= MOST_PICKS;
}

static uint64_t jobs_bytes(uint32_t n_picks)
{
    return (uint64_t)MF_VK_MADE_CLASSES * n_picks * sizeof(mf_vk_job);
}

static mf_vk_kernel group_kernel(void)
{
    return (mf_vk_kernel){MF_VK_SHADER_group, 1, {MOST_PICKS}};
}

static mf_status reserve_product(mf_vk_backend *be, const mf_weight_shape *shape, bool is_pair,
                                 const mf_op *op, mf_error *error)
{
    const uint64_t n_rows = (uint64_t)op->n_rows * op->u.routed.k * shape->n_rows;
    const mf_vk_product product = {.shape = shape, .is_pair = is_pair, .is_expert = true};
    return mf_vk_product_reserve(be, &product, op->n_rows, n_rows, error);
}

mf_status mf_vk_grouped_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_routed_experts_params *p = &op->u.routed;
    const uint32_t most = op->n_rows * p->k < MOST_PICKS ? op->n_rows * p->k : MOST_PICKS;
    const mf_vk_kernel kernel = group_kernel();
    if (op->n_rows < LEAST_ROWS)
        return MF_OK;
    MF_TRY(mf_vk_prepare(be, &kernel, error));
    MF_TRY(reserve_product(be, &p->gate.shape, true, op, error));
    MF_TRY(reserve_product(be, &p->down.shape, false, op, error));
    return mf_vk_ring_need(be, MF_VK_RING_SCRATCH,
                           2 * jobs_bytes(most) + 3 * most * sizeof(uint32_t) + 512, error);
}

void mf_vk_grouped_record(mf_vk_backend *be, const mf_op *op, const mf_vk_product *in,
                          const mf_vk_product *out)
{
    const uint32_t n_picks = op->n_rows * op->u.routed.k;
    const mf_vk_kernel kernel = group_kernel();
    const mf_vk_routing *routing = in->routing;
    const uint64_t jobs = mf_vk_scratch(be, 2 * jobs_bytes(n_picks));
    const uint64_t lists = mf_vk_scratch(be, 3 * n_picks * sizeof(uint32_t));
    mf_vk_job of_slot_0[2];
    memset(of_slot_0, 0, sizeof of_slot_0);
    in->job(in->ctx, 0, &of_slot_0[0]);
    out->job(out->ctx, 0, &of_slot_0[1]);
    const struct {
        uint64_t ids, slot, of_slot_0, made, lists, slot_bytes;
        uint32_t n_picks, k, scales_stride[2], biases_stride[2];
    } push = {routing->ids,
              routing->slot,
              mf_vk_array(be, of_slot_0, sizeof of_slot_0),
              jobs,
              lists,
              routing->slot_bytes,
              n_picks,
              op->u.routed.k,
              {routing->scales_stride, out->routing->scales_stride},
              {routing->biases_stride, out->routing->biases_stride}};
    mf_vk_dispatch(be, &kernel, &push, sizeof push, (const uint32_t[]){1, 1, 1});
    mf_vk_step(be);
    const mf_vk_made made = {jobs, n_picks, op->n_rows};
    mf_vk_product_record_made(be, in, &made);
    mf_vk_step(be);
    const mf_vk_made made_out = {jobs + jobs_bytes(n_picks), n_picks, op->n_rows};
    mf_vk_product_record_made(be, out, &made_out);
}

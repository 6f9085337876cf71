/* SPDX-License-Identifier: MIT */
/* The last product of one row's routed experts together with their sum: one dispatch, and no result
 * of a single expert in memory. Its bits are those of the product and MF_OP_COMBINE. */
#include "backend/vulkan/vk_product.h"

#define THREADS 128u /* as in experts_out.comp */
#define TEAMS (THREADS / 16u)
#define TILE 512u /* columns */

static mf_vk_shader shader_of(const mf_vk_backend *be, const mf_weight_shape *shape)
{
    static const mf_vk_shader shaders[MF_VK_CHUNKS] = {
        [MF_VK_CHUNKS_ANY] = MF_VK_SHADER_experts_out_any,
        [MF_VK_CHUNKS_AFFINE] = MF_VK_SHADER_experts_out_affine,
        [MF_VK_CHUNKS_FP8] = MF_VK_SHADER_experts_out_fp8,
        [MF_VK_CHUNKS_FLOATS] = MF_VK_SHADER_experts_out_float,
    };
    if (be->device.keeps_small && shape->kind == MF_WEIGHT_AFFINE)
        return MF_VK_SHADER_experts_out_affine_small;
    return shaders[mf_vk_chunks_of(shape)];
}

/* Whether a lane's columns are 32 that lie together. */
static bool has_runs(const mf_weight_shape *down)
{
    return down->kind == MF_WEIGHT_AFFINE || mf_vk_is_blocks(down);
}

bool mf_vk_is_turned(const mf_routed_experts_params *p)
{
    const mf_weight_shape *down = &p->down.shape;
    return p->sum.x.buffer.id != 0 && has_runs(down) && down->n_cols % TILE == 0;
}

/* Rows of a workgroup. */
static uint32_t group_rows(const mf_vk_backend *be, uint32_t k)
{
    const uint32_t side = k <= 1 ? 1 : k == 2 ? 2 : k <= 4 ? 4 : TEAMS;
    return TEAMS / side * be->tuning.team_rows;
}

static mf_vk_kernel kernel_of(const mf_vk_backend *be, const mf_routed_experts_params *p,
                              bool is_wide)
{
    const mf_weight_shape *down = &p->down.shape;
    mf_vk_kernel k = {shader_of(be, down), 1, {THREADS}};
    mf_vk_weight_constants(down, &k);
    k.constants[k.n_constants++] = p->k;
    k.constants[k.n_constants++] = be->tuning.team_rows;
    k.constants[k.n_constants++] = is_wide;
    k.constants[k.n_constants++] = has_runs(down) ? down->n_cols : 0;
    k.constants[k.n_constants++] = down->n_rows % group_rows(be, p->k) == 0;
    k.constants[k.n_constants++] = mf_vk_is_turned(p);
    return k;
}

mf_status mf_vk_experts_out_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    for (uint32_t is_wide = 0; is_wide <= mf_vk_has_wide(&op->u.routed.down.shape); is_wide++) {
        const mf_vk_kernel k = kernel_of(be, &op->u.routed, is_wide != 0);
        MF_TRY(mf_vk_prepare(be, &k, error));
    }
    return MF_OK;
}

void mf_vk_experts_out_record(mf_vk_backend *be, const mf_op *op, const mf_vk_product *down)
{
    const mf_routed_experts_params *p = &op->u.routed;
    const mf_vk_routing *routing = down->routing;
    mf_vk_job job = {0};
    down->job(down->ctx, 0, &job);
    const mf_vk_kernel k = kernel_of(be, p, mf_vk_job_is_wide(down, &job));
    const struct {
        uint64_t jobs, x, weights, shared, shared_gate, ids, slot, slot_bytes;
        uint32_t n_cols, scales_stride, biases_stride, unused;
    } push = {mf_vk_array(be, &job, sizeof job),
              mf_vk_address(be, p->sum.x),
              mf_vk_address(be, p->sum.weights),
              mf_vk_address(be, p->sum.shared),
              mf_vk_address(be, p->sum.shared_gate),
              routing->ids,
              routing->slot,
              routing->slot_bytes,
              p->down.shape.n_cols,
              routing->scales_stride,
              routing->biases_stride,
              0};
    const uint32_t n_groups = mf_vk_groups(job.n_rows, group_rows(be, p->k));
    mf_vk_dispatch(be, &k, &push, sizeof push, (const uint32_t[]){n_groups, 1, 1});
}

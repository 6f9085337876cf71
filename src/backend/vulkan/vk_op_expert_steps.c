/* SPDX-License-Identifier: MIT */
/* What experts may have beside their products: biases, rows of gate and up in pairs, another
 * activation. Dispatched between the products, which are then each by itself. */
#include "backend/vulkan/vk_product.h"

#define THREADS 256u

mf_status mf_vk_expert_steps_reserve(mf_vk_backend *be, mf_error *error)
{
    MF_TRY(mf_vk_prepare_shader(be, MF_VK_SHADER_expert_act, THREADS, error));
    return mf_vk_prepare_shader(be, MF_VK_SHADER_expert_bias, THREADS, error);
}

void mf_vk_expert_act(mf_vk_backend *be, const mf_expert_steps *steps,
                      const mf_vk_expert_rows *rows)
{
    const mf_vk_kernel kernel = {MF_VK_SHADER_expert_act, 1, {THREADS}};
    const struct {
        uint64_t act, gate_bias, up_bias, rows, experts;
        uint32_t hidden, is_paired, is_clamped;
        float limit, alpha, silu_limit;
    } push = {rows->act,
              mf_vk_address(be, steps->gate_bias),
              mf_vk_address(be, steps->up_bias),
              rows->rows,
              rows->experts,
              rows->hidden,
              steps->is_paired,
              steps->is_clamped,
              steps->limit,
              steps->alpha,
              steps->silu_limit};
    mf_vk_dispatch(be, &kernel, &push, sizeof push, (const uint32_t[]){rows->n_rows, 1, 1});
}

void mf_vk_expert_bias(mf_vk_backend *be, const mf_expert_steps *steps,
                       const mf_vk_expert_rows *rows)
{
    const mf_vk_kernel kernel = {MF_VK_SHADER_expert_bias, 1, {THREADS}};
    if (steps->down_bias.buffer.id == 0)
        return;
    const struct {
        uint64_t out, bias, rows, experts;
        uint32_t n_cols, unused;
    } push = {
        rows->out, mf_vk_address(be, steps->down_bias), rows->rows, rows->experts, rows->n_cols, 0};
    mf_vk_step(be);
    mf_vk_dispatch(be, &kernel, &push, sizeof push,
                   (const uint32_t[]){mf_vk_groups(rows->n_cols, THREADS), rows->n_rows, 1});
}

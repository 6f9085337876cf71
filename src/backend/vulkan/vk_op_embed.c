/* SPDX-License-Identifier: MIT */
/* Rows of a weight, decoded. */
#include "backend/vulkan/vk_product.h"

#include <string.h>

#define THREADS 256u

static bool embed_supports(const mf_vk_backend *be, const mf_op *op)
{
    (void)be;
    return mf_vk_product_supports(&op->u.embed.weight.shape);
}

static mf_vk_kernel kernel_for(const mf_op *op)
{
    mf_vk_kernel kernel = {MF_VK_SHADER_embed, 1, {THREADS}};
    mf_vk_weight_constants(&op->u.embed.weight.shape, &kernel);
    return kernel;
}

static mf_status embed_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_vk_kernel kernel = kernel_for(op);
    MF_TRY(mf_vk_prepare(be, &kernel, error));
    return mf_vk_ring_need(be, MF_VK_RING_PARAMETERS, op->n_rows * sizeof(int32_t), error);
}

static void embed_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_embed_params *p = &op->u.embed;
    const mf_vk_kernel kernel = kernel_for(op);
    const size_t n_bytes = op->n_rows * sizeof *p->tokens;
    uint64_t address = 0;
    void *tokens = mf_vk_parameters(be, n_bytes, &address);
    if (tokens == NULL)
        return;
    memcpy(tokens, p->tokens, n_bytes);
    mf_vk_early_tokens(be, tokens, op->n_rows);
    const struct {
        mf_vk_weight weight;
        uint64_t tokens, out;
        uint32_t n_cols, unused;
    } push = {mf_vk_weight_at(be, &p->weight), address, mf_vk_address(be, p->out),
              p->weight.shape.n_cols, 0};
    mf_vk_dispatch(be, &kernel, &push, sizeof push,
                   (const uint32_t[]){mf_vk_groups(push.n_cols, THREADS), op->n_rows, 1});
}

const mf_vk_op mf_vk_op_embed = {embed_supports, embed_reserve, embed_record};

/* SPDX-License-Identifier: MIT */
/* The table of operations. One that has no shaders yet is not in it, is not supported, and a model
 * that needs it is refused when it is opened, with the operation's name. */
#include "backend/vulkan/vk_internal.h"

#include <string.h>

static const mf_vk_op *const ops[] = {
    [MF_OP_EMBED] = &mf_vk_op_embed,
    [MF_OP_COPY_ROWS] = &mf_vk_op_copy_rows,
    [MF_OP_RMSNORM] = &mf_vk_op_rmsnorm,
    [MF_OP_RMSNORM_GATED] = &mf_vk_op_rmsnorm_gated,
    [MF_OP_SIGMOID_MUL] = &mf_vk_op_sigmoid_mul,
    [MF_OP_ADD] = &mf_vk_op_add,
    [MF_OP_SWIGLU] = &mf_vk_op_swiglu,
    [MF_OP_ROPE] = &mf_vk_op_rope,
    [MF_OP_HEAD_NORM_ROPE] = &mf_vk_op_head_norm_rope,
    [MF_OP_CONV1D_SILU] = &mf_vk_op_conv1d_silu,
    [MF_OP_GATED_DELTA] = &mf_vk_op_gated_delta,
    [MF_OP_ATTENTION] = &mf_vk_op_attention,
    [MF_OP_LATENT_ATTENTION] = &mf_vk_op_latent_attention,
    [MF_OP_MATMUL] = &mf_vk_op_matmul,
    [MF_OP_HEAD_MATMUL] = &mf_vk_op_head_matmul,
    [MF_OP_ROUTE] = &mf_vk_op_route,
    [MF_OP_EXPERTS] = &mf_vk_op_experts,
    [MF_OP_ROUTED_EXPERTS] = &mf_vk_op_routed_experts,
    [MF_OP_COMBINE] = &mf_vk_op_combine,
    [MF_OP_FINITE] = &mf_vk_op_finite,
    [MF_OP_MIXTURE] = &mf_vk_op_mixture,
    [MF_OP_LINEAR_ROW] = &mf_vk_op_linear_row,
    [MF_OP_ATTEND_ROW] = &mf_vk_op_attend_row,
    [MF_OP_LATENT_ROW] = &mf_vk_op_latent_row,
    [MF_OP_TO_HOST] = &mf_vk_op_to_host,
    [MF_OP_FROM_HOST] = &mf_vk_op_from_host,
    [MF_OP_STREAMS_IN] = &mf_vk_op_streams_in,
    [MF_OP_STREAMS_OUT] = &mf_vk_op_streams_out,
    [MF_OP_COMPRESS] = &mf_vk_op_compress,
    [MF_OP_ENTRY_ATTENTION] = &mf_vk_op_entry_attention,
};

bool mf_vk_op_supports(const mf_vk_backend *be, const mf_op *op)
{
    const uint32_t kind = (uint32_t)op->kind;
    if (op->when.buffer.id != 0 && !be->device.has_conditions)
        return false;
    return kind < sizeof ops / sizeof *ops && ops[kind] != NULL && ops[kind]->supports(be, op);
}

/* Whether the operation has any number of rows: others have one in each workgroup of y, and a chunk
 * is no larger than that. */
static bool has_any_rows(const mf_op *op)
{
    switch (op->kind) {
    case MF_OP_COPY_ROWS:
    case MF_OP_RMSNORM:
    case MF_OP_MATMUL:
    case MF_OP_HEAD_MATMUL:
    case MF_OP_EXPERTS:
    case MF_OP_SIGMOID_MUL:
    case MF_OP_SWIGLU:
        return true;
    case MF_OP_ADD:
        return op->u.add.norm.weight.buffer.id == 0;
    default:
        return false;
    }
}

mf_status mf_vk_op_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    if (op->n_rows > MF_VK_MOST_GROUPS && !has_any_rows(op))
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "n_chunk_tokens: %s takes %u rows of a chunk at most, not %u",
                       be->device.info.name, MF_VK_MOST_GROUPS, op->n_rows);
    return ops[op->kind]->reserve(be, op, error);
}

static void touch(void *ctx, mf_span span, uint64_t n_bytes, uint32_t access)
{
    mf_vk_touch(ctx, span, n_bytes, access);
}

void mf_vk_op_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_vk_batches *b = &be->batches;
    /* Within an operation nothing may have to wait for room: that would end the submission. */
    if (!mf_vk_ring_room(be, MF_VK_RING_PARAMETERS,
                         be->rings[MF_VK_RING_PARAMETERS].most_needed + 4096) ||
        !mf_vk_begin(be))
        return;
    mf_vk_next(be);
    be->stream.when = op->when;
    mf_op_spans(op, b->sequences, b->n_sequences, touch, be);
    mf_vk_ahead_await_touched(be);
    if (!mf_vk_begin(be))
        return;
    ops[op->kind]->record(be, op);
    be->stream.when = (mf_span){{0}, 0};
    mf_vk_timing_op(be, op->kind);
    be->batches.batches[b->current].last_use = mf_vk_present(be);
    mf_vk_command_done(be);
}

void mf_vk_step(mf_vk_backend *be)
{
    mf_vk_barrier(be);
}

void *mf_vk_parameters(mf_vk_backend *be, uint64_t n_bytes, uint64_t *address)
{
    mf_span span;
    if (!mf_vk_ring_take(be, MF_VK_RING_PARAMETERS, n_bytes, &span))
        return NULL;
    *address = mf_vk_address(be, span);
    return be->buffers[span.buffer.id - 1].host + span.offset;
}

uint64_t mf_vk_array(mf_vk_backend *be, const void *values, uint64_t n_bytes)
{
    uint64_t address = 0;
    void *to = mf_vk_parameters(be, n_bytes, &address);
    if (to != NULL && n_bytes != 0)
        memcpy(to, values, n_bytes);
    return address;
}

uint64_t mf_vk_scratch(mf_vk_backend *be, uint64_t n_bytes)
{
    mf_span span;
    if (!mf_vk_ring_take(be, MF_VK_RING_SCRATCH, n_bytes, &span))
        return 0;
    mf_vk_touch(be, span, n_bytes, MF_WRITES);
    return mf_vk_address(be, span);
}

void mf_vk_weight_constants(const mf_weight_shape *shape, mf_vk_kernel *kernel)
{
    const bool is_integer = shape->kind == MF_WEIGHT_INT4 || shape->kind == MF_WEIGHT_INT8;
    const bool is_indexed = shape->kind == MF_WEIGHT_AFFINE_INDEXED;
    const bool is_affine = shape->kind == MF_WEIGHT_AFFINE || is_indexed;
    const bool has_group = is_affine || is_integer;
    const bool has_floats = shape->kind == MF_WEIGHT_FLOAT || (has_group && !is_indexed);
    /* what a format does not use is the same for all, so that they share a pipeline */
    kernel->constants[1] = (uint32_t)shape->kind;
    kernel->constants[2] = (uint32_t)(has_floats ? shape->float_type : MF_F32);
    kernel->constants[3] = is_affine ? shape->bits : 8;
    kernel->constants[4] = has_group ? shape->group : 128;
    kernel->constants[5] = shape->kind == MF_WEIGHT_FP8_BLOCK && shape->scale_rows != 0
                               ? shape->scale_rows
                               : MF_FP8_BLOCK;
    kernel->n_constants = 1 + MF_VK_WEIGHT_CONSTANTS;
}

bool mf_vk_is_blocks(const mf_weight_shape *shape)
{
    switch (shape->kind) {
    case MF_WEIGHT_MXFP4:
    case MF_WEIGHT_GGUF_Q8_0:
    case MF_WEIGHT_GGUF_Q4_K:
    case MF_WEIGHT_GGUF_Q6_K:
    case MF_WEIGHT_GGUF_IQ4_XS:
    case MF_WEIGHT_GGUF_MXFP4:
    case MF_WEIGHT_GGUF_Q4_0:
    case MF_WEIGHT_GGUF_Q4_1:
    case MF_WEIGHT_GGUF_Q5_0:
    case MF_WEIGHT_GGUF_Q5_1:
    case MF_WEIGHT_GGUF_Q5_K:
    case MF_WEIGHT_GGUF_IQ4_NL:
        return true;
    default:
        return false;
    }
}

mf_vk_weight mf_vk_weight_at(const mf_vk_backend *be, const mf_weight *w)
{
    const uint32_t n = mf_weight_format_of(&w->shape)->n_arrays;
    return (mf_vk_weight){mf_vk_address(be, w->arrays[0]),
                          n > 1 ? mf_vk_address(be, w->arrays[1]) : 0,
                          n > 2 ? mf_vk_address(be, w->arrays[2]) : 0};
}

/* SPDX-License-Identifier: MIT */
/*
 * A single row: decoding. Where the backend's products take steps (mf_input_step, mf_output_step),
 * a norm is not an operation of its own, but left to the products that begin with it, and a sum to
 * those that end in it: a device spends as long between two small operations as on one. The results
 * have the same bits as of several rows, or without it.
 */
#include "forward/forward.h"

void mf_fused_begin(mf_runner *r, uint32_t n_rows)
{
    r->fused.is_at_hand = r->fused.is_on && n_rows == 1 && r->n_long_rows == 0;
    r->fused.norm = (mf_span){{0}, 0};
    r->fused.is_added = false;
}

mf_status mf_fused_reserve(mf_runner *r, const mf_op *op, mf_error *error)
{
    mf_op one = *op;
    one.n_rows = 1;
    r->fused.is_on = r->fused.is_on && r->backend->ops->supports_op(r->backend, &one);
    return r->fused.is_on ? mf_backend_reserve(r->backend, &one, error) : MF_OK;
}

mf_status mf_joined_reserve(mf_runner *r, const mf_op *op, bool *has, mf_error *error)
{
    mf_error why = {0};
    if (!*has)
        return MF_OK;
    *has = false;
    if (!r->backend->ops->supports_op(r->backend, op))
        return MF_OK;
    const mf_status status = mf_backend_reserve(r->backend, op, &why);
    *has = status == MF_OK;
    if (status == MF_OK || status == MF_ERR_NO_MEMORY) /* it only saves time */
        return MF_OK;
    if (error != NULL)
        *error = why;
    return status;
}

mf_input_step mf_fused_norm(const mf_runner *r, mf_span weight)
{
    return (mf_input_step){.kind = MF_INPUT_NORMED, .weight = weight, .eps = r->h.rms_eps};
}

mf_op mf_fused_pair(const mf_runner *r, const mf_mlp_weights *w, mf_span norm)
{
    return (mf_op){.kind = MF_OP_MATMUL,
                   .n_rows = 1,
                   .u.matmul = {.x = r->plan.x,
                                .n = 2,
                                .weight = {w->gate, w->up},
                                .y = {r->plan.mlp_gate, r->plan.mlp_up},
                                .before = mf_fused_norm(r, norm),
                                .is_paired = true}};
}

mf_op mf_fused_router(const mf_runner *r, uint32_t layer)
{
    const mf_layer_weights *w = &r->weights.layers[layer];
    mf_op op = {.kind = MF_OP_MATMUL,
                .n_rows = 1,
                .u.matmul = {.x = r->plan.x,
                             .n = 1,
                             .weight = {w->router},
                             .y = {r->plan.router},
                             .before = mf_fused_norm(r, w->post_norm)}};
    if (r->h.shared_hidden != 0 && r->h.shared_is_gated) {
        op.u.matmul.weight[op.u.matmul.n] = w->shared_router;
        op.u.matmul.y[op.u.matmul.n++] = r->plan.shared_router;
    }
    return op;
}

mf_op mf_fused_out(const mf_runner *r, const mf_weight *w, mf_span x, mf_input_step before)
{
    return (mf_op){.kind = MF_OP_MATMUL,
                   .n_rows = 1,
                   .u.matmul = {.x = x,
                                .n = 1,
                                .weight = {*w},
                                .y = {r->plan.x},
                                .before = before,
                                .after = {.kind = MF_OUTPUT_ADDED}}};
}

bool mf_fused_leave_norm(mf_runner *r, mf_norm_after norm)
{
    if (!r->fused.is_at_hand)
        return false;
    r->fused.norm = norm.weight;
    return true;
}

bool mf_fused_take_norm(mf_runner *r, mf_input_step *before)
{
    if (!r->fused.is_at_hand || r->fused.norm.buffer.id == 0)
        return false;
    *before = mf_fused_norm(r, r->fused.norm);
    r->fused.norm = (mf_span){{0}, 0};
    return true;
}

void mf_need_h(mf_runner *r)
{
    if (r->fused.norm.buffer.id == 0)
        return;
    mf_record_rmsnorm(r, 1, r->plan.x, r->fused.norm, r->plan.h);
    r->fused.norm = (mf_span){{0}, 0};
}

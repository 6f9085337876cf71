/* SPDX-License-Identifier: MIT */
/* What the files of the forward pass share: recording of the commonest operations, and the parts of
 * a layer. All take the layer's normed input in plan.h. */
#ifndef MF_SESSION_FORWARD_H
#define MF_SESSION_FORWARD_H

#include "session/session.h"

/* plan.y = attention of plan.h, of the layer's kind. */
void mf_forward_attention(mf_engine *e, const mf_batch *batch, uint32_t layer);
/* plan.x += the dense MLP of plan.h. */
void mf_forward_mlp(mf_engine *e, uint32_t layer, uint32_t n_rows);
/* plan.x += the mixture of experts of plan.h. */
mf_status mf_forward_moe(mf_engine *e, const mf_batch *batch, uint32_t layer, mf_error *error);

static inline void mf_record(mf_engine *e, const mf_op *op)
{
    e->backend->ops->record(e->backend, op);
}

/* Over rows of hidden_size. */
static inline void mf_record_rmsnorm(mf_engine *e, uint32_t n_rows, mf_span x, mf_span weight,
                                     mf_span out)
{
    const mf_op op = {
        .kind = MF_OP_RMSNORM,
        .n_rows = n_rows,
        .u.rmsnorm = {
            .x = x, .weight = weight, .out = out, .n_cols = e->h.hidden_size, .eps = e->h.rms_eps}};
    mf_record(e, &op);
}

static inline void mf_record_matmul(mf_engine *e, uint32_t n_rows, const mf_weight *w, mf_span x,
                                    mf_span y)
{
    const mf_op op = {.kind = MF_OP_MATMUL,
                      .n_rows = n_rows,
                      .u.matmul = {.x = x, .n = 1, .weight = {*w}, .y = {y}}};
    mf_record(e, &op);
}

/* x += y, rows of hidden_size */
static inline void mf_record_add(mf_engine *e, uint32_t n_rows, mf_span x, mf_span y)
{
    const mf_op op = {
        .kind = MF_OP_ADD, .n_rows = n_rows, .u.add = {.x = x, .y = y, .n_cols = e->h.hidden_size}};
    mf_record(e, &op);
}

#endif

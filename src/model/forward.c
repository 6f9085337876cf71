/* SPDX-License-Identifier: MIT */
/*
 * The forward pass of every family: embedding, layers of some attention (forward_attention.c) and
 * an MLP or a mixture of experts (moe.c) each, final norm and output head. Written once, against
 * the backend's operations; the only host round trip in a layer is the router's choice.
 */
#include "model/forward.h"

static mf_status trace(mf_engine *e, const mf_batch *batch, uint32_t layer, mf_error *error)
{
    uint32_t row = 0;
    for (uint32_t i = 0; i < batch->n_sessions; i++) {
        const mf_session *s = batch->sessions[i];
        if (s->trace != NULL) {
            /* Tests only: the backend's memory is read through its host view. */
            MF_TRY(e->backend->ops->wait(e->backend, error));
            const unsigned char *host = e->backend->ops->buffer_host(e->backend, e->act);
            const float *x = (const float *)(const void *)(host + e->plan.x.offset);
            s->trace(s->trace_user, layer, s->position, batch->n_rows_each[i],
                     x + (size_t)row * e->h.hidden_size);
        }
        row += batch->n_rows_each[i];
    }
    return MF_OK;
}

static mf_status report_progress(const mf_engine *e, const mf_batch *batch, uint32_t layer,
                                 mf_error *error)
{
    for (uint32_t i = 0; i < batch->n_sessions; i++) {
        const mf_session *s = batch->sessions[i];
        uint64_t done = batch->done + (uint64_t)(layer + 1) * batch->n_rows;
        if (s->progress != NULL && s->progress(s->progress_user, done, batch->total) != 0)
            return mf_fail(error, MF_ERR_CANCELLED, "evaluation cancelled at layer %u of %u",
                           layer + 1, e->h.n_layers);
    }
    return MF_OK;
}

static mf_status forward_layer(mf_engine *e, const mf_batch *batch, uint32_t layer, mf_error *error)
{
    const mf_plan *p = &e->plan;
    const mf_layer_weights *w = &e->weights.layers[layer];
    mf_record_rmsnorm(e, batch->n_rows, p->x, w->input_norm, p->h);
    mf_forward_attention(e, batch, layer);
    mf_record_add(e, batch->n_rows, p->x, p->y);
    mf_record_rmsnorm(e, batch->n_rows, p->x, w->post_norm, p->h);
    if (e->h.is_dense[layer])
        mf_forward_mlp(e, layer, batch->n_rows);
    else
        MF_TRY(mf_forward_moe(e, layer, batch->n_rows, error));
    MF_TRY(trace(e, batch, layer, error));
    return report_progress(e, batch, layer, error);
}

/* Logits of rows first .. first + n - 1 of plan.x into plan.logits. */
static mf_status head(mf_engine *e, uint32_t first, uint32_t n, mf_error *error)
{
    const mf_plan *p = &e->plan;
    for (uint32_t i = 0; i < n; i++)
        e->row_list[i] = first + i;
    const mf_op copy = {
        .kind = MF_OP_COPY_ROWS,
        .n_rows = n,
        .u.copy_rows = {
            .x = p->x, .out = p->last, .rows = e->row_list, .n_cols = e->h.hidden_size}};
    mf_record(e, &copy);
    mf_record_rmsnorm(e, n, p->last, e->weights.final_norm, p->last);
    mf_record_matmul(e, n, &e->weights.lm_head, p->last, p->logits);
    return e->backend->ops->wait(e->backend, error);
}

static void read_logits(mf_engine *e, uint32_t row, mf_session *s)
{
    uint64_t n_bytes = (uint64_t)e->h.n_vocab * sizeof(float);
    e->backend->ops->read(e->backend, mf_span_at(e->plan.logits, row * n_bytes), s->logits,
                          n_bytes);
    s->has_logits = true;
}

static mf_status all_logits(mf_engine *e, const mf_batch *batch, mf_error *error)
{
    mf_session *s = batch->sessions[0];
    for (uint32_t first = 0; first < batch->n_rows; first += MF_LOGIT_ROWS) {
        uint32_t n = batch->n_rows - first < MF_LOGIT_ROWS ? batch->n_rows - first : MF_LOGIT_ROWS;
        MF_TRY(head(e, first, n, error));
        for (uint32_t i = 0; i < n; i++) {
            read_logits(e, i, s);
            if (batch->each(batch->each_user, batch->first_index + first + i, s->logits) != 0)
                return mf_fail(error, MF_ERR_CANCELLED, "evaluation cancelled at token %zu",
                               batch->first_index + first + i);
        }
    }
    return MF_OK;
}

static mf_status last_logits(mf_engine *e, const mf_batch *batch, mf_error *error)
{
    uint32_t row = 0;
    for (uint32_t i = 0; i < batch->n_sessions; i++) {
        row += batch->n_rows_each[i];
        MF_TRY(head(e, row - 1, 1, error));
        read_logits(e, 0, batch->sessions[i]);
    }
    return MF_OK;
}

mf_status mf_forward(mf_engine *e, const mf_batch *batch, mf_error *error)
{
    const mf_op embed = {
        .kind = MF_OP_EMBED,
        .n_rows = batch->n_rows,
        .u.embed = {.weight = e->weights.embed, .tokens = batch->tokens, .out = e->plan.x}};
    mf_record(e, &embed);
    for (uint32_t layer = 0; layer < e->h.n_layers; layer++)
        MF_TRY(forward_layer(e, batch, layer, error));
    if (batch->want == MF_WANT_LAST)
        MF_TRY(last_logits(e, batch, error));
    else if (batch->want == MF_WANT_ALL)
        MF_TRY(all_logits(e, batch, error));
    for (uint32_t i = 0; i < batch->n_sessions; i++)
        batch->sessions[i]->position += batch->n_rows_each[i];
    e->n_tokens += batch->n_rows;
    return e->backend->ops->wait(e->backend, error);
}

/* SPDX-License-Identifier: MIT */
/*
 * The forward pass of every family: embedding, layers of some attention (forward_attention.c) and
 * an MLP or a mixture of experts (moe.c) each, final norm and output head. Written once, against
 * the backend's operations; the only host round trip in a layer is the router's choice.
 */
#include "session/forward.h"
#include "base/clock.h"

#include <string.h>

static mf_status trace(mf_engine *e, const mf_batch *batch, uint32_t layer, mf_error *error)
{
    uint32_t row = 0;
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        const mf_session *s = batch->parts[i].session;
        uint32_t n_rows = batch->parts[i].n_rows;
        if (s->trace != NULL) {
            /* Tests only: the backend's memory is read through its host view. */
            MF_TRY(e->backend->ops->wait(e->backend, error));
            const unsigned char *host = e->backend->ops->buffer_host(e->backend, e->act);
            const float *x = (const float *)(const void *)(host + e->plan.x.offset);
            s->trace(s->trace_user, layer, s->position, n_rows, x + (size_t)row * e->h.hidden_size);
        }
        row += n_rows;
    }
    return MF_OK;
}

mf_status mf_session_check_cancelled(mf_session *s, mf_error *error)
{
    if (atomic_load_explicit(&s->is_cancelled, memory_order_relaxed)) {
        atomic_store_explicit(&s->is_cancelled, false, memory_order_relaxed);
        return mf_fail(error, MF_ERR_CANCELLED, "evaluation cancelled");
    }
    if (s->deadline_us != 0 && mf_now_us() >= s->deadline_us)
        return mf_fail(error, MF_ERR_CANCELLED, "evaluation not done at its deadline");
    return MF_OK;
}

mf_status mf_check_cancelled(const mf_batch *batch, mf_error *error)
{
    for (uint32_t i = 0; i < batch->n_parts; i++)
        MF_TRY(mf_session_check_cancelled(batch->parts[i].session, error));
    return MF_OK;
}

static mf_status report_progress(const mf_engine *e, const mf_batch *batch, uint32_t layer,
                                 mf_error *error)
{
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        const mf_session *s = batch->parts[i].session;
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
    MF_TRY(mf_check_cancelled(batch, error));
    mf_record_rmsnorm(e, batch->n_rows, p->x, w->input_norm, p->h);
    mf_forward_attention(e, batch, layer);
    mf_record_add(e, batch->n_rows, p->x, p->y);
    mf_record_rmsnorm(e, batch->n_rows, p->x, w->post_norm, p->h);
    if (e->h.is_dense[layer])
        mf_forward_mlp(e, layer, batch->n_rows);
    else
        MF_TRY(mf_forward_moe(e, batch, layer, error));
    MF_TRY(trace(e, batch, layer, error));
    return report_progress(e, batch, layer, error);
}

/* Logits of the n rows of plan.x named by row_list into plan.logits. */
static mf_status head(mf_engine *e, uint32_t n, mf_error *error)
{
    const mf_plan *p = &e->plan;
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

static void read_logits(mf_engine *e, uint32_t row, float *out)
{
    uint64_t n_bytes = (uint64_t)e->h.n_vocab * sizeof(float);
    e->backend->ops->read(e->backend, mf_span_at(e->plan.logits, row * n_bytes), out, n_bytes);
}

/* Those of the last row will also be the session's. */
static mf_status all_logits(mf_engine *e, const mf_batch *batch, mf_error *error)
{
    for (uint32_t first = 0; first < batch->n_rows; first += e->plan.n_logit_rows) {
        uint32_t left = batch->n_rows - first;
        uint32_t n = left < e->plan.n_logit_rows ? left : e->plan.n_logit_rows;
        for (uint32_t i = 0; i < n; i++)
            e->row_list[i] = first + i;
        MF_TRY(head(e, n, error));
        for (uint32_t i = 0; i < n; i++) {
            size_t index = batch->first_index + first + i;
            read_logits(e, i, e->each_logits);
            if (batch->each(batch->each_user, index, e->each_logits) != 0)
                return mf_fail(error, MF_ERR_CANCELLED, "evaluation cancelled at token %zu", index);
        }
    }
    memcpy(batch->parts[0].session->next_logits, e->each_logits, e->h.n_vocab * sizeof(float));
    return MF_OK;
}

static mf_status last_logits(mf_engine *e, const mf_batch *batch, mf_error *error)
{
    uint32_t row = 0, n = 0, from = 0;
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        row += batch->parts[i].n_rows;
        if (batch->parts[i].wants_logits)
            e->row_list[n++] = row - 1;
        if (n == 0 || (n < e->plan.n_logit_rows && i + 1 < batch->n_parts))
            continue;
        MF_TRY(head(e, n, error));
        for (uint32_t at = 0; from <= i; from++)
            if (batch->parts[from].wants_logits)
                read_logits(e, at++, batch->parts[from].session->next_logits);
        n = 0;
    }
    return MF_OK;
}

static void gather_tokens(mf_engine *e, const mf_batch *batch)
{
    uint32_t row = 0;
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        const mf_batch_part *part = &batch->parts[i];
        memcpy(e->row_tokens + row, part->tokens, part->n_rows * sizeof *part->tokens);
        row += part->n_rows;
    }
}

mf_status mf_forward(mf_engine *e, const mf_batch *batch, mf_error *error)
{
    gather_tokens(e, batch);
    const mf_op embed = {
        .kind = MF_OP_EMBED,
        .n_rows = batch->n_rows,
        .u.embed = {.weight = e->weights.embed, .tokens = e->row_tokens, .out = e->plan.x}};
    mf_record(e, &embed);
    for (uint32_t layer = 0; layer < e->h.n_layers; layer++)
        MF_TRY(forward_layer(e, batch, layer, error));
    MF_TRY(batch->each != NULL ? all_logits(e, batch, error) : last_logits(e, batch, error));
    e->n_tokens += batch->n_rows;
    return e->backend->ops->wait(e->backend, error);
}

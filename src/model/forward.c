/* SPDX-License-Identifier: MIT */
/*
 * The forward pass of the hybrid families: embedding, layers of gated attention or gated delta rule
 * with a mixture of experts each, final norm and output head. Written once, against the backend's
 * operations; the only host round trip in a layer is the router's choice (moe.c).
 */
#include "model/session.h"

static void record(mf_engine *e, const mf_op *op)
{
    e->backend->ops->record(e->backend, op);
}

static void rmsnorm(mf_engine *e, uint32_t n_rows, mf_span x, mf_span weight, mf_span out)
{
    const mf_op op = {
        .kind = MF_OP_RMSNORM,
        .n_rows = n_rows,
        .u.rmsnorm = {
            .x = x, .weight = weight, .out = out, .n_cols = e->h.hidden_size, .eps = e->h.rms_eps}};
    record(e, &op);
}

static void matmul(mf_engine *e, uint32_t n_rows, const mf_weight *w, mf_span x, mf_span y)
{
    const mf_op op = {.kind = MF_OP_MATMUL,
                      .n_rows = n_rows,
                      .u.matmul = {.x = x, .n = 1, .weight = {*w}, .y = {y}}};
    record(e, &op);
}

/* The batch's runs of rows, with the sessions' state of this layer. */
static const mf_sequence *sequences_of(mf_engine *e, const mf_batch *batch, uint32_t layer)
{
    uint32_t row = 0;
    for (uint32_t i = 0; i < batch->n_sessions; i++) {
        const mf_session *s = batch->sessions[i];
        mf_sequence *seq = &e->sequences[i];
        *seq = (mf_sequence){
            .first_row = row, .n_rows = batch->n_rows_each[i], .position = s->position};
        for (int j = 0; j < 2; j++)
            seq->state[j] = (mf_span){s->state, s->layers[layer].offset[j]};
        row += batch->n_rows_each[i];
    }
    return e->sequences;
}

static void head_norm_rope(mf_engine *e, const mf_batch *batch, mf_span x, mf_span weight,
                           uint32_t n_heads)
{
    const mf_plan *p = &e->plan;
    const mf_op op = {.kind = MF_OP_HEAD_NORM_ROPE,
                      .n_rows = batch->n_rows,
                      .u.head_norm_rope = {.x = x,
                                           .weight = weight,
                                           .cos = p->cos,
                                           .sin = p->sin,
                                           .n_heads = n_heads,
                                           .head_dim = e->h.head_dim,
                                           .n_rot = e->h.n_rot,
                                           .eps = e->h.rms_eps,
                                           .sequences = e->sequences,
                                           .n_sequences = batch->n_sessions}};
    record(e, &op);
}

/* plan.y = gated attention of plan.h */
static void full_attention(mf_engine *e, const mf_batch *batch, uint32_t layer)
{
    const mf_plan *p = &e->plan;
    const mf_hparams *h = &e->h;
    const mf_full_weights *w = &e->weights.layers[layer].u.full;
    const mf_sequence *sequences = sequences_of(e, batch, layer);
    const mf_op project = {.kind = MF_OP_MATMUL,
                           .n_rows = batch->n_rows,
                           .u.matmul = {.x = p->h,
                                        .n = 4,
                                        .weight = {w->q, w->gate, w->k, w->v},
                                        .y = {p->q, p->gate, p->kv_k, p->kv_v}}};
    record(e, &project);
    head_norm_rope(e, batch, p->q, w->q_norm, h->n_heads);
    head_norm_rope(e, batch, p->kv_k, w->k_norm, h->n_kv_heads);
    const mf_op attend = {.kind = MF_OP_ATTENTION,
                          .n_rows = batch->n_rows,
                          .u.attention = {.q = p->q,
                                          .k = p->kv_k,
                                          .v = p->kv_v,
                                          .out = p->attn,
                                          .n_heads = h->n_heads,
                                          .n_kv_heads = h->n_kv_heads,
                                          .head_dim = h->head_dim,
                                          .scale = e->attention_scale,
                                          .sequences = sequences,
                                          .n_sequences = batch->n_sessions}};
    record(e, &attend);
    const mf_op gate = {
        .kind = MF_OP_SIGMOID_MUL,
        .n_rows = batch->n_rows,
        .u.sigmoid_mul = {.x = p->attn, .gate = p->gate, .n_cols = mf_query_width(h)}};
    record(e, &gate);
    matmul(e, batch->n_rows, &w->o, p->attn, p->y);
}

/* plan.y = gated delta rule of plan.h */
static void linear_attention(mf_engine *e, const mf_batch *batch, uint32_t layer)
{
    const mf_plan *p = &e->plan;
    const mf_hparams *h = &e->h;
    const mf_linear_weights *w = &e->weights.layers[layer].u.linear;
    mf_sequence *sequences = e->sequences;
    (void)sequences_of(e, batch, layer);
    const mf_op project = {.kind = MF_OP_MATMUL,
                           .n_rows = batch->n_rows,
                           .u.matmul = {.x = p->h,
                                        .n = 4,
                                        .weight = {w->qkv, w->z, w->b, w->a},
                                        .y = {p->qkv, p->z, p->b, p->a}}};
    record(e, &project);
    const mf_op conv = {.kind = MF_OP_CONV1D_SILU,
                        .n_rows = batch->n_rows,
                        .u.conv1d_silu = {.x = p->qkv,
                                          .weight = w->conv,
                                          .out = p->qkv,
                                          .n_channels = mf_conv_channels(h),
                                          .width = h->conv_width,
                                          .sequences = sequences,
                                          .n_sequences = batch->n_sessions}};
    record(e, &conv);
    for (uint32_t i = 0; i < batch->n_sessions; i++)
        sequences[i].state[0] =
            sequences[i].state[1]; /* from the convolution's inputs to the recurrent state */
    const mf_op delta = {.kind = MF_OP_GATED_DELTA,
                         .n_rows = batch->n_rows,
                         .u.gated_delta = {.qkv = p->qkv,
                                           .a = p->a,
                                           .b = p->b,
                                           .a_log = w->a_log,
                                           .dt_bias = w->dt_bias,
                                           .out = p->delta,
                                           .n_k_heads = h->n_k_heads,
                                           .n_v_heads = h->n_v_heads,
                                           .key_dim = h->key_dim,
                                           .value_dim = h->value_dim,
                                           .eps = 1e-6f,
                                           .sequences = sequences,
                                           .n_sequences = batch->n_sessions}};
    record(e, &delta);
    const mf_op norm = {.kind = MF_OP_RMSNORM_GATED,
                        .n_rows = batch->n_rows,
                        .u.rmsnorm_gated = {.x = p->delta,
                                            .z = p->z,
                                            .weight = w->norm,
                                            .n_heads = h->n_v_heads,
                                            .head_dim = h->value_dim,
                                            .eps = h->rms_eps}};
    record(e, &norm);
    matmul(e, batch->n_rows, &w->out, p->delta, p->y);
}

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
    rmsnorm(e, batch->n_rows, p->x, w->input_norm, p->h);
    if (e->h.layer_kind[layer] == MF_LAYER_FULL)
        full_attention(e, batch, layer);
    else
        linear_attention(e, batch, layer);
    const mf_op residual = {.kind = MF_OP_ADD,
                            .n_rows = batch->n_rows,
                            .u.add = {.x = p->x, .y = p->y, .n_cols = e->h.hidden_size}};
    record(e, &residual);
    rmsnorm(e, batch->n_rows, p->x, w->post_norm, p->h);
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
    record(e, &copy);
    rmsnorm(e, n, p->last, e->weights.final_norm, p->last);
    matmul(e, n, &e->weights.lm_head, p->last, p->logits);
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
    record(e, &embed);
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

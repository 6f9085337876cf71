/* SPDX-License-Identifier: MIT */
/*
 * The forward pass of every family: embedding, layers of some attention (layers/) and an MLP or a
 * mixture of experts (moe.c) each, final norm and output head. Written once, against the backend's
 * operations; the only host round trip in a layer is the router's choice, and none where the device
 * finds the experts itself (routed.c).
 */
#include "forward/forward.h"
#include "forward/finite.h"

#include <math.h>
#include <string.h>

static mf_status trace(mf_runner *r, const mf_batch *batch, uint32_t layer, mf_error *error)
{
    const mf_batch_watch *w = batch->watch;
    if (w->trace == NULL)
        return MF_OK;
    MF_TRY(mf_backend_read(r->backend, r->plan.x, w->trace_rows,
                           (uint64_t)batch->n_rows * r->h.hidden_size * sizeof *w->trace_rows,
                           error));
    w->trace(w->ctx, layer, w->trace_rows);
    return MF_OK;
}

mf_status mf_forward_report(mf_runner *r, const mf_batch *batch, uint32_t layer, mf_error *error)
{
    const mf_batch_watch *w = batch->watch;
    if (w->progress == NULL || layer < r->n_reported) /* it was recorded before */
        return MF_OK;
    r->n_reported = layer + 1;
    return w->progress(w->ctx, layer + 1, error);
}

void mf_forward_attention(mf_runner *r, uint32_t n_rows, uint32_t layer)
{
    const mf_layer_weights *w = &r->weights.layers[layer];
    (void)mf_profile_enter(r->profile, MF_STAGE_ATTENTION);
    mf_streams_in(r, n_rows, &w->attention_streams, w->input_norm);
    mf_layer_kind_table[r->h.layer_kind[layer]]->forward(r, n_rows, layer);
    if (r->h.n_streams != 0) {
        mf_streams_join(r, layer, n_rows);
    } else {
        const mf_norm_after norm = mf_to_h(r, w->post_norm);
        const bool is_left = mf_fused_leave_norm(r, norm);
        if (!r->fused.is_added)
            mf_record_add(r, n_rows, r->plan.y, is_left ? (mf_norm_after){.eps = 0.0f} : norm);
        r->fused.is_added = false;
    }
    (void)mf_profile_enter(r->profile, r->h.is_dense[layer] ? MF_STAGE_SHARED : MF_STAGE_ROUTER);
}

mf_status mf_forward_layer(mf_runner *r, const mf_batch *batch, uint32_t layer, mf_error *error)
{
    mf_forward_attention(r, batch->n_rows, layer);
    if (r->h.is_dense[layer])
        mf_forward_mlp(r, layer, batch->n_rows);
    else
        MF_TRY(mf_forward_moe(r, batch, layer, error));
    return MF_OK;
}

static mf_status forward_layer(mf_runner *r, const mf_batch *batch, uint32_t layer, mf_error *error)
{
    const mf_plan *p = &r->plan;
    if (!mf_relay_is_open(r))
        MF_TRY(mf_batch_check(batch, error));
    mf_profile_layer(r->profile, layer);
    const mf_span first_norm = r->weights.layers[0].input_norm;
    if (layer == 0 && r->h.n_streams == 0 &&
        !mf_fused_leave_norm(r, mf_to_h(r, first_norm))) /* later ones find it made */
        mf_record_rmsnorm(r, batch->n_rows, p->x, first_norm, p->h);
    MF_TRY(mf_forward_layer(r, batch, layer, error));
    mf_profile_layer(r->profile, r->h.n_layers);
    MF_TRY(trace(r, batch, layer, error));
    return mf_relay_is_open(r) ? MF_OK : mf_forward_report(r, batch, layer, error);
}

/* Waits for what is recorded ahead; *next as mf_ahead_settle. */
static mf_status settle(mf_runner *r, const mf_batch *batch, uint32_t *next, mf_error *error)
{
    mf_ahead_ask(r, batch->n_rows);
    MF_TRY(mf_relay_settle(r, batch, error));
    MF_TRY(mf_finish(r, r->backend, error));
    return mf_ahead_settle(r, batch, next, error);
}

/* The last of them may be recorded ahead. */
static mf_status forward_from(mf_runner *r, const mf_batch *batch, uint32_t layer, mf_error *error)
{
    while (layer < r->h.n_layers) {
        uint32_t next = 0;
        MF_TRY(forward_layer(r, batch, layer++, error));
        if (layer < r->h.n_layers && mf_ahead_is_full(r))
            MF_TRY(settle(r, batch, &next, error));
        layer = next != 0 ? next : layer;
    }
    return MF_OK;
}

/* All layers are done, or will be. */
static mf_status settle_all(mf_runner *r, const mf_batch *batch, mf_error *error)
{
    while (mf_ahead_is_open(r)) {
        uint32_t next = 0;
        MF_TRY(settle(r, batch, &next, error));
        MF_TRY(forward_from(r, batch, next != 0 ? next : r->h.n_layers, error));
    }
    return MF_OK;
}

void mf_record_matmuls(mf_runner *r, const mf_op *op)
{
    const uint32_t n_long = r->n_long_rows < op->n_rows ? r->n_long_rows : op->n_rows;
    const mf_matmul_params *p = &op->u.matmul;
    mf_op part = *op;
    part.n_rows = n_long;
    part.is_long = true;
    if (n_long != 0)
        mf_record(r, &part);
    part.n_rows = op->n_rows - n_long;
    part.is_long = false;
    if (part.n_rows == 0)
        return;
    part.u.matmul.x =
        mf_span_at(p->x, (uint64_t)n_long * p->weight[0].shape.n_cols * sizeof(float));
    for (uint32_t i = 0; i < p->n; i++)
        part.u.matmul.y[i] =
            mf_span_at(p->y[i], (uint64_t)n_long * p->weight[i].shape.n_rows * sizeof(float));
    mf_record(r, &part);
}

/* Logits of the n rows of plan.x named by row_list into plan.logits. In float32 always. */
static void head(mf_runner *r, uint32_t n)
{
    const mf_plan *p = &r->plan;
    const mf_stage before = mf_profile_enter(r->profile, MF_STAGE_HEAD);
    const uint64_t row_bytes = (uint64_t)r->h.hidden_size * sizeof(float);
    const bool is_made = r->h.n_streams != 0;
    if (is_made)
        mf_streams_last(r, n, &r->weights.head_streams);
    else if (n > 1)
        mf_record_copy_rows(r, n, p->x, r->row_list, p->last, r->h.hidden_size);
    const mf_span from = is_made || n > 1 ? p->last : mf_span_at(p->x, r->row_list[0] * row_bytes);
    mf_record_rmsnorm(r, n, from, r->weights.final_norm, p->last);
    const mf_op op = {
        .kind = MF_OP_MATMUL,
        .n_rows = n,
        .u.matmul = {.x = p->last, .n = 1, .weight = {r->weights.lm_head}, .y = {p->logits}}};
    mf_record(r, &op);
    (void)mf_profile_enter(r->profile, before);
}

/* Asks for the logits of row_list[i]. */
static void ask_logits(mf_runner *r, uint32_t i, float *out)
{
    uint64_t n_bytes = (uint64_t)r->h.n_vocab * sizeof(float);
    r->backend->ops->read(r->backend, mf_span_at(r->plan.logits, i * n_bytes), out, n_bytes);
}

static size_t bounds_bytes(const mf_runner *r)
{
    return mf_finite_blocks(r->h.n_vocab) * sizeof(float);
}

static float *bounds_of(const mf_runner *r, uint32_t i)
{
    return r->row_bounds + (size_t)i * mf_finite_blocks(r->h.n_vocab);
}

/* The same, and for their bounds, where the device finds those: it writes both where the host wants
 * them, or both are copied. */
static void ask_row(mf_runner *r, uint32_t i)
{
    const mf_logits *to = &r->row_logits[i];
    const uint64_t n_vocab = r->h.n_vocab;
    const bool is_shared = to->shared.buffer.id != 0;
    const mf_span bounds = is_shared ? mf_span_at(to->shared, n_vocab * sizeof(float))
                                     : mf_span_at(r->plan.bounds, i * bounds_bytes(r));
    const mf_op op = {.kind = MF_OP_FINITE,
                      .n_rows = 1,
                      .u.finite = {.x = mf_span_at(r->plan.logits, i * n_vocab * sizeof(float)),
                                   .out = bounds,
                                   .copy = to->shared,
                                   .n_cols = r->h.n_vocab}};
    const mf_stage before = mf_profile_enter(r->profile, MF_STAGE_COPYING);
    if (!is_shared || !r->asks_finite)
        ask_logits(r, i, to->logits);
    if (r->asks_finite)
        mf_record(r, &op);
    if (r->asks_finite && !is_shared)
        r->backend->ops->read(r->backend, bounds, bounds_of(r, i), bounds_bytes(r));
    (void)mf_profile_enter(r->profile, before);
}

static void find_bounds(const mf_runner *r, const float *logits, float *out)
{
    for (uint32_t at = 0; at < r->h.n_vocab; at += MF_FINITE_BLOCK) {
        const uint32_t left = r->h.n_vocab - at;
        *out++ = mf_finite_bound(logits + at, left < MF_FINITE_BLOCK ? left : MF_FINITE_BLOCK);
    }
}

static mf_status check_bounds(mf_runner *r, const mf_batch *batch, uint32_t i, const float *bounds,
                              mf_error *error)
{
    for (uint32_t j = 0; j < mf_finite_blocks(r->h.n_vocab); j++)
        if (isnan(bounds[j]))
            return mf_fail_not_finite(r, batch, r->row_list[i], error);
    return MF_OK;
}

/* Once the logits of row_list[i] have come, and their bounds, if the device finds them. */
static mf_status check_row(mf_runner *r, const mf_batch *batch, uint32_t i, mf_error *error)
{
    const mf_logits *row = &r->row_logits[i];
    if (row->is_proposal)
        return MF_OK;
    const bool is_there = row->shared.buffer.id != 0 && r->asks_finite;
    const float *bounds = is_there ? row->bounds : bounds_of(r, i);
    if (!r->asks_finite)
        find_bounds(r, row->logits, bounds_of(r, i));
    MF_TRY(check_bounds(r, batch, i, bounds, error));
    if (row->bounds != NULL && row->bounds != bounds)
        memcpy(row->bounds, bounds, bounds_bytes(r));
    return MF_OK;
}

/* Of every row. Those of a part's last one are also its own. */
static mf_status all_logits(mf_runner *r, const mf_batch *batch, mf_error *error)
{
    const mf_batch_part *part = batch->parts;
    uint32_t end = part->n_rows; /* of the part */
    for (uint32_t first = 0; first < batch->n_rows; first += r->plan.n_logit_rows) {
        uint32_t left = batch->n_rows - first;
        uint32_t n = left < r->plan.n_logit_rows ? left : r->plan.n_logit_rows;
        for (uint32_t i = 0; i < n; i++)
            r->row_list[i] = first + i;
        head(r, n);
        for (uint32_t i = 0; i < n; i++) {
            ask_logits(r, i, r->each_logits);
            MF_TRY(mf_finish(r, r->backend, error));
            find_bounds(r, r->each_logits, bounds_of(r, i));
            MF_TRY(check_bounds(r, batch, i, bounds_of(r, i), error));
            if (batch->watch->each(batch->watch->ctx, first + i, r->each_logits) != 0)
                return mf_fail(error, MF_ERR_CANCELLED, "evaluation cancelled by its callback");
            if (first + i + 1 != end)
                continue;
            if (part->logits != NULL)
                memcpy(part->logits, r->each_logits, r->h.n_vocab * sizeof *part->logits);
            if (part->logits != NULL && part->bounds != NULL)
                memcpy(part->bounds, bounds_of(r, i), bounds_bytes(r));
            end += end < batch->n_rows ? (++part)->n_rows : 0;
        }
    }
    return MF_OK;
}

/* Of the n rows in row_list. If layers that were recorded ahead were left undone, so was this. */
static mf_status some_logits(mf_runner *r, const mf_batch *batch, uint32_t n, mf_error *error)
{
    uint32_t next = 0;
    do {
        if (next != 0)
            MF_TRY(forward_from(r, batch, next, error));
        head(r, n);
        for (uint32_t i = 0; i < n; i++)
            ask_row(r, i);
        mf_early_record(r, batch);
        MF_TRY(settle(r, batch, &next, error));
    } while (next != 0);
    for (uint32_t i = 0; i < n; i++)
        MF_TRY(check_row(r, batch, i, error));
    return MF_OK;
}

/* Where the part's logits go, of the j-th row of those that are wanted. */
static mf_logits logits_of(const mf_runner *r, const mf_batch_part *part, uint32_t j)
{
    return (mf_logits){.logits = part->logits + (size_t)j * r->h.n_vocab,
                       .bounds = part->bounds,
                       .shared = part->shared_logits,
                       .is_proposal = j != 0};
}

static mf_status last_logits(mf_runner *r, const mf_batch *batch, mf_error *error)
{
    uint32_t end = 0, n = 0;
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        const mf_batch_part *part = &batch->parts[i];
        const uint32_t n_wanted = part->logits == NULL ? 0 : part->is_proposed ? part->n_rows : 1;
        end += part->n_rows;
        for (uint32_t j = 0; j < n_wanted; j++) {
            r->row_list[n] = end - n_wanted + j;
            r->row_logits[n++] = logits_of(r, part, j);
            if (n < r->plan.n_logit_rows)
                continue;
            MF_TRY(some_logits(r, batch, n, error));
            n = 0;
        }
    }
    return n != 0 ? some_logits(r, batch, n, error) : MF_OK;
}

/* The batch's tokens in one list, and whose rows they are told to the backend. */
static void begin(mf_runner *r, const mf_batch *batch)
{
    const bool is_mixed = mf_backend_is_mixed(r->backend) || mf_backend_is_mixed(r->experts);
    uint32_t row = 0;
    r->n_long_rows = 0;
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        const mf_batch_part *part = &batch->parts[i];
        r->n_long_rows += is_mixed && part->is_long ? part->n_rows : 0;
        memcpy(r->row_tokens + row, part->tokens, part->n_rows * sizeof *part->tokens);
        r->sequences[i] = (mf_sequence){.first_row = row,
                                        .n_rows = part->n_rows,
                                        .position = part->position,
                                        .pages = part->pages,
                                        .window_pages = part->window_pages,
                                        .state = {part->state[0], part->state[1]}};
        row += part->n_rows;
    }
    r->n_reported = 0;
    r->batch = NULL;
    for (uint32_t i = 0; i < batch->n_parts; i++)
        r->batch = batch->parts[i].states != NULL ? batch : r->batch;
    r->at_hand = r->sequences;
    r->n_at_hand = batch->n_parts;
    r->backend->ops->begin_batch(r->backend, r->sequences, batch->n_parts);
    mf_routed_begin(r);
    mf_lend_begin(r, batch);
    mf_relay_begin(r, batch);
    mf_fused_begin(r, batch->n_rows);
}

static void record_embed(mf_runner *r, uint32_t n_rows)
{
    const mf_op embed = {
        .kind = MF_OP_EMBED,
        .n_rows = n_rows,
        .u.embed = {.weight = r->weights.embed, .tokens = r->row_tokens, .out = r->plan.x}};
    mf_record(r, &embed);
    mf_streams_begin(r, n_rows);
}

mf_status mf_forward_layers(mf_runner *r, const mf_batch *batch, mf_error *error)
{
    begin(r, batch);
    record_embed(r, batch->n_rows);
    if (mf_split_begin(r, batch))
        return mf_split_layers(r, batch, error);
    return forward_from(r, batch, 0, error);
}

void mf_forward_want(mf_runner *r, const mf_batch *batch)
{
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        r->row_list[i] = i;
        r->row_logits[i] = logits_of(r, &batch->parts[i], 0);
    }
}

mf_status mf_forward_record(mf_runner *r, const mf_batch *batch, mf_error *error)
{
    begin(r, batch);
    record_embed(r, batch->n_rows);
    MF_TRY(forward_from(r, batch, 0, error));
    mf_routed_ask(r, batch->n_rows);
    mf_forward_want(r, batch);
    head(r, batch->n_parts);
    for (uint32_t i = 0; i < batch->n_parts; i++)
        ask_row(r, i);
    return MF_OK;
}

/* A batch that was foreseen is on its way. */
static mf_status follow(mf_runner *r, const mf_batch *batch, mf_error *error)
{
    MF_TRY(mf_batch_check(batch, error));
    for (uint32_t layer = 0; layer < r->h.n_layers; layer++)
        MF_TRY(mf_forward_report(r, batch, layer, error));
    mf_early_record(r, batch);
    MF_TRY(mf_finish(r, r->backend, error));
    for (uint32_t i = 0; i < batch->n_parts; i++)
        MF_TRY(check_row(r, batch, i, error));
    return MF_OK;
}

static mf_status run(mf_runner *r, const mf_batch *batch, mf_error *error)
{
    if (mf_early_take(r, batch))
        return follow(r, batch, error);
    if (r->tap != NULL)
        r->tap->begin(r->tap->ctx, batch);
    if (r->foresight != NULL) {
        mf_foresight_begin(r->foresight, batch->n_rows);
        mf_foretell_first(r, batch->n_rows);
    }
    MF_TRY(mf_forward_layers(r, batch, error));
    mf_routed_ask(r, batch->n_rows);
    if (batch->watch->each != NULL) {
        MF_TRY(mf_relay_settle(r, batch, error));
        MF_TRY(settle_all(r, batch, error));
        return all_logits(r, batch, error);
    }
    MF_TRY(last_logits(r, batch, error));
    MF_TRY(mf_relay_settle(r, batch, error)); /* if nobody wants logits */
    MF_TRY(settle_all(r, batch, error));
    if (batch->keeps_hidden)
        mf_draft_keep(r, batch);
    return MF_OK;
}

mf_status mf_forward(mf_runner *r, const mf_batch *batch, mf_error *error)
{
    mf_profile_begin(r->profile);
    mf_status status = run(r, batch, error);
    mf_relay_end(r);
    status = mf_finish_all(r, status, error);
    const mf_status relayed = mf_relay_check(r, status == MF_OK ? error : NULL);
    status = status == MF_OK ? relayed : status;
    if (r->tap != NULL)
        r->tap->end(r->tap->ctx, status == MF_OK);
    r->lending.is_at_hand = false;
    mf_ahead_end(r);
    mf_split_end(r, batch, status == MF_OK);
    if (r->foresight != NULL)
        mf_foresight_end(r->foresight, status == MF_OK);
    if (status == MF_OK) {
        r->n_tokens += batch->n_rows;
        mf_routed_count(r, batch->n_rows);
    }
    mf_profile_end(r->profile, batch->n_rows);
    return status;
}

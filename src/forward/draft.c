/* SPDX-License-Identifier: MIT */
/*
 * The layer that proposes tokens: multi-token prediction as DeepSeek-V3 (arXiv 2412.19437, section
 * 2.2) and Qwen3-Next publish it. Of a token and the model's normed state of the position before
 * it, both normed once more, a matrix makes the input of one further layer, whose output, normed,
 * goes through the model's own head: what comes after that token. It has a cache of its own, and
 * knows no more of sequences than where their parts of it lie.
 *
 * Where the residual stream is several (DeepSeek-V4, as its published inference/model.py has it) a
 * state is all of them, before they are joined: the embedding and each stream, normed, go through a
 * matrix each, their sums are the layer's streams, and it joins what it makes of them itself.
 */
#include "forward/forward.h"

/* Where the states are, after the chunk's embeddings. */
static mf_span states_of(const mf_runner *r)
{
    const uint64_t row_bytes = (uint64_t)r->h.hidden_size * sizeof(float);
    return mf_span_at(r->plan.draft.source, r->plan.n_chunk * row_bytes);
}

static uint64_t state_bytes(const mf_runner *r)
{
    return (uint64_t)mf_draft_width(&r->h) * sizeof(float);
}

/* Rows of draft_rows. */
static void copy_states(mf_runner *r, mf_span from, mf_span to, uint32_t n_rows)
{
    mf_record_copy_rows(r, n_rows, from, r->draft_rows, to, mf_draft_width(&r->h));
}

/* A norm of every other row of plan.draft.in: of embeddings, or of states. */
static mf_op norm_half(const mf_runner *r, uint32_t n_rows, bool is_state)
{
    const mf_draft_weights *w = &r->weights.draft;
    const uint32_t n = r->h.hidden_size;
    const mf_span x = mf_span_at(r->plan.draft.in, is_state ? n * sizeof(float) : 0);
    return (mf_op){.kind = MF_OP_RMSNORM,
                   .n_rows = n_rows,
                   .u.rmsnorm = {.x = x,
                                 .weight = is_state ? w->hidden_norm : w->embed_norm,
                                 .out = x,
                                 .n_cols = n,
                                 .stride = 2 * n,
                                 .eps = r->h.rms_eps}};
}

mf_status mf_draft_reserve(mf_runner *r, mf_error *error)
{
    const mf_draft_weights *w = &r->weights.draft;
    const uint32_t n = r->plan.n_chunk;
    const mf_op copy = {.kind = MF_OP_COPY_ROWS,
                        .n_rows = n * (r->h.n_streams > 2 ? r->h.n_streams : 2)};
    if (r->plan.draft.n_tokens == 0)
        return MF_OK;
    MF_TRY(mf_backend_reserve(r->backend, &copy, error));
    if (r->h.n_streams == 0)
        return mf_reserve_matmul(r, &w->in, n, error);
    MF_TRY(mf_reserve_matmul(r, &w->embed_in, n, error));
    MF_TRY(mf_reserve_matmul(r, &w->state_in, n, error));
    return mf_reserve_matmul(r, &w->streams.fn, r->plan.n_logit_rows, error);
}

/* Of all rows: the normed state, or the streams as they are. */
static void keep_states(mf_runner *r, uint32_t n_rows)
{
    if (r->h.n_streams == 0) {
        mf_record_rmsnorm(r, n_rows, r->plan.x, r->weights.final_norm, states_of(r));
        return;
    }
    for (uint32_t i = 0; i < n_rows; i++)
        r->draft_rows[i] = i;
    copy_states(r, r->plan.streams, states_of(r), n_rows);
}

void mf_draft_keep(mf_runner *r, const mf_batch *batch)
{
    const uint64_t row_bytes = state_bytes(r);
    const mf_span to = states_of(r);
    uint32_t end = 0;
    keep_states(r, batch->n_rows);
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        const mf_batch_part *p = &batch->parts[i];
        end += p->n_rows;
        if (p->hidden != NULL)
            r->backend->ops->read(r->backend, mf_span_at(to, (end - p->n_hidden) * row_bytes),
                                  p->hidden, p->n_hidden * row_bytes);
    }
}

/* Which embeddings and states are copied for a row: row 2i the embedding, row 2i + 1 the state; of
 * several streams, the state. */
static void list_row(mf_runner *r, uint32_t row, uint32_t state)
{
    if (r->h.n_streams != 0) {
        r->draft_rows[row] = state;
        return;
    }
    r->draft_rows[(size_t)2 * row] = row;
    r->draft_rows[(size_t)2 * row + 1] = r->plan.n_chunk + state;
}

/* The parts' embeddings to plan.draft.source, and what list_row says to plan.draft.in. */
static void gather(mf_runner *r, const mf_draft_part *parts, uint32_t n_parts, uint32_t n_rows)
{
    const mf_draft_plan *d = &r->plan.draft;
    const uint64_t row_bytes = state_bytes(r);
    uint32_t row = 0, n_given = 0;
    for (uint32_t i = 0; i < n_parts; i++) {
        const mf_draft_part *p = &parts[i];
        const uint32_t given = r->plan.n_chunk + n_given;
        if (p->n_states != 0)
            r->backend->ops->write(r->backend, mf_span_at(states_of(r), given * row_bytes),
                                   p->states, p->n_states * row_bytes);
        for (uint32_t j = 0; j < p->n_rows; j++, row++) {
            const uint32_t state = j < p->n_states ? given + j : p->first_row + j - p->n_states;
            list_row(r, row, state);
            r->row_tokens[row] = p->tokens[j];
        }
        n_given += p->n_states;
    }
    const mf_op embed = {
        .kind = MF_OP_EMBED,
        .n_rows = n_rows,
        .u.embed = {.weight = r->weights.embed, .tokens = r->row_tokens, .out = d->source}};
    mf_record(r, &embed);
    if (r->h.n_streams != 0)
        copy_states(r, states_of(r), d->in, n_rows);
    else
        mf_record_copy_rows(r, 2 * n_rows, d->source, r->draft_rows, d->in, r->h.hidden_size);
}

/* plan.h = the layer's normed input, of what was gathered. */
static void make_input(mf_runner *r, uint32_t n_rows)
{
    for (int i = 0; i < 2; i++) {
        const mf_op norm = norm_half(r, n_rows, i == 1);
        mf_record(r, &norm);
    }
    mf_record_matmul(r, n_rows, &r->weights.draft.in, r->plan.draft.in, r->plan.x);
    mf_record_rmsnorm(r, n_rows, r->plan.x, r->weights.layers[r->h.n_layers].input_norm, r->plan.h);
}

/* plan.streams likewise, which the layer norms itself. */
static void make_streams(mf_runner *r, uint32_t n_rows)
{
    const mf_plan *p = &r->plan;
    const mf_draft_weights *w = &r->weights.draft;
    const uint32_t n_all = n_rows * r->h.n_streams;
    const uint64_t row_bytes = (uint64_t)r->h.hidden_size * sizeof(float);
    mf_record_rmsnorm(r, n_rows, p->draft.source, w->embed_norm, p->draft.source);
    mf_record_rmsnorm(r, n_all, p->draft.in, w->hidden_norm, p->draft.in);
    mf_record_matmul(r, n_rows, &w->embed_in, p->draft.source, p->x);
    for (uint32_t i = 0; i < n_all; i += p->n_chunk) /* products are of a chunk's rows at most */
        mf_record_matmul(r, n_all - i < p->n_chunk ? n_all - i : p->n_chunk, &w->state_in,
                         mf_span_at(p->draft.in, i * row_bytes),
                         mf_span_at(p->streams, i * row_bytes));
    const mf_op add = {.kind = MF_OP_ADD,
                       .n_rows = n_all,
                       .u.add = {.x = p->streams, .y = p->draft.in, .n_cols = r->h.hidden_size}};
    mf_record_copy_rows(r, n_all, p->x, r->stream_rows, p->draft.in, r->h.hidden_size);
    mf_record(r, &add);
}

static void begin(mf_runner *r, const mf_draft_part *parts, uint32_t n_parts)
{
    const bool is_window = r->h.layer_kind[r->h.n_layers] == MF_LAYER_ENTRIES;
    uint32_t row = 0;
    for (uint32_t i = 0; i < n_parts; i++) {
        r->sequences[i] = (mf_sequence){.first_row = row,
                                        .n_rows = parts[i].n_rows,
                                        .position = parts[i].slot,
                                        .pages = is_window ? NULL : parts[i].pages,
                                        .window_pages = is_window ? parts[i].pages : NULL};
        row += parts[i].n_rows;
    }
    r->n_long_rows = 0;
    r->batch = NULL;
    r->at_hand = r->sequences;
    r->n_at_hand = n_parts;
    r->backend->ops->begin_batch(r->backend, r->sequences, n_parts);
}

/* Asks for what the n rows at `from` feed. */
static void ask_fed(mf_runner *r, const mf_draft_part *parts, uint32_t n, mf_span from)
{
    for (uint32_t i = 0; i < n; i++)
        if (parts[i].fed != NULL)
            r->backend->ops->read(r->backend, mf_span_at(from, i * state_bytes(r)), parts[i].fed,
                                  state_bytes(r));
}

/* Logits of the n rows in row_list, of parts from `first` on; and what those rows feed. */
static mf_status propose(mf_runner *r, const mf_draft_part *parts, uint32_t n, mf_error *error)
{
    const mf_plan *p = &r->plan;
    const uint64_t logits_bytes = (uint64_t)r->h.n_vocab * sizeof(float);
    if (r->h.n_streams != 0)
        mf_streams_last(r, n, &r->weights.draft.streams);
    else
        mf_record_copy_rows(r, n, p->x, r->row_list, p->last, r->h.hidden_size);
    if (!r->h.draft_feeds_normed)
        ask_fed(r, parts, n, r->h.n_streams != 0 ? p->last_streams : p->last);
    mf_record_rmsnorm(r, n, p->last, r->weights.draft.norm, p->last);
    if (r->h.draft_feeds_normed)
        ask_fed(r, parts, n, p->last);
    mf_record_matmul(r, n, &r->weights.lm_head, p->last, p->logits);
    for (uint32_t i = 0; i < n; i++)
        if (parts[i].logits != NULL)
            r->backend->ops->read(r->backend, mf_span_at(p->logits, i * logits_bytes),
                                  parts[i].logits, logits_bytes);
    return mf_finish(r, r->backend, error);
}

static mf_status run(mf_runner *r, const mf_draft_part *parts, uint32_t n_parts,
                     const mf_batch_watch *watch, mf_error *error)
{
    const uint32_t layer = r->h.n_layers;
    mf_batch batch = {.watch = watch};
    uint32_t row = 0;
    for (uint32_t i = 0; i < n_parts; i++)
        batch.n_rows += parts[i].n_rows;
    begin(r, parts, n_parts);
    mf_fused_begin(r, 0); /* it is a layer alone */
    gather(r, parts, n_parts, batch.n_rows);
    if (r->h.n_streams != 0)
        make_streams(r, batch.n_rows);
    else
        make_input(r, batch.n_rows);
    MF_TRY(mf_forward_layer(r, &batch, layer, error));
    (void)mf_profile_enter(r->profile, MF_STAGE_HEAD);
    for (uint32_t i = 0, n; i < n_parts; i += n) {
        for (n = 0; n < r->plan.n_logit_rows && i + n < n_parts; n++) {
            row += parts[i + n].n_rows;
            r->row_list[n] = row - 1;
        }
        if (parts[i].logits != NULL)
            MF_TRY(propose(r, parts + i, n, error));
    }
    return MF_OK;
}

/* Nobody watches what it chooses, and nothing of it is foreseen. */
mf_status mf_forward_draft(mf_runner *r, const mf_draft_part *parts, uint32_t n_parts,
                           const mf_batch_watch *watch, mf_error *error)
{
    const mf_route_tap *tap = r->tap;
    mf_foresight *foresight = r->foresight;
    mf_input_sums *inputs = r->inputs;
    const bool is_routed = r->routed.is_on, is_ahead = r->ahead.is_on;
    r->tap = NULL;
    r->foresight = NULL;
    r->inputs = NULL;
    r->routed.is_on = r->ahead.is_on = false;
    mf_profile_begin(r->profile);
    const mf_status status = mf_finish_all(r, run(r, parts, n_parts, watch, error), error);
    mf_profile_end(r->profile, 0);
    r->tap = tap;
    r->foresight = foresight;
    r->inputs = inputs;
    r->routed.is_on = is_routed;
    r->ahead.is_on = is_ahead;
    return status;
}

/* SPDX-License-Identifier: MIT */
/*
 * Evaluation: tokens of one session or several, cut into chunks. A chunk is prepared, run and
 * committed; whatever fails leaves every session at the chunks committed before.
 */
#include "session/session.h"

#include "base/clock.h"

#include <assert.h>

/* What is left to evaluate of one call. */
typedef struct eval_call {
    mf_engine *engine;
    const mf_batch_item *items;
    size_t n_items;
    size_t n_done; /* tokens, of all items */
    size_t n_total;
    size_t *done; /* [n_items] */
    mf_logits_fn each;
    void *each_user;
} eval_call;

static mf_status check_item(const mf_engine *e, const mf_batch_item *item, mf_error *error)
{
    const mf_session *s = item->session;
    if (s == NULL || s->engine != e || item->tokens == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "a session of the batch is NULL or of another engine, or has no tokens");
    if (item->n_tokens > e->runner.plan.n_context - s->position)
        return mf_fail(error, MF_ERR_CONTEXT,
                       "%zu tokens after %llu do not fit the context of %u tokens", item->n_tokens,
                       (unsigned long long)s->position, e->runner.plan.n_context);
    for (size_t i = 0; i < item->n_tokens; i++) {
        if (item->tokens[i] < 0 || (uint32_t)item->tokens[i] >= e->runner.h.n_vocab)
            return mf_fail(error, MF_ERR_ARGUMENT, "token %zu is %d, outside the vocabulary of %u",
                           i, item->tokens[i], e->runner.h.n_vocab);
    }
    return MF_OK;
}

/* The next chunk: rows are shared evenly among the items that have tokens left. */
static void cut_chunk(eval_call *call, mf_batch *batch)
{
    mf_engine *e = call->engine;
    uint32_t room = e->runner.plan.n_chunk, n_parts = 0, n_rows = 0;
    size_t n_open = 0;
    for (size_t i = 0; i < call->n_items; i++)
        n_open += call->done[i] < call->items[i].n_tokens;
    for (size_t i = 0; i < call->n_items && n_rows < room; i++) {
        const mf_batch_item *item = &call->items[i];
        size_t left = item->n_tokens - call->done[i];
        if (left == 0)
            continue;
        assert(n_open > 0); /* this item is one of them */
        size_t share = (room - n_rows) / n_open--;
        share = share == 0 ? 1 : share;
        uint32_t n = (uint32_t)(left < share ? left : share);
        const bool wants = n == left || call->each != NULL;
        e->parts_sessions[n_parts] = item->session;
        e->parts_list[n_parts++] =
            (mf_batch_part){.tokens = item->tokens + call->done[i],
                            .n_rows = n,
                            .logits = wants ? item->session->next_logits : NULL};
        call->done[i] += n;
        n_rows += n;
    }
    *batch = (mf_batch){.parts = e->parts_list, .n_parts = n_parts, .n_rows = n_rows};
}

/* Where the session's pages and states are, for the chunk that it is prepared for. */
static void place(mf_batch_part *part, const mf_session *s)
{
    part->position = s->position;
    part->pages = s->page_spans;
    part->state[0] = s->recurrent_span;
    part->state[1] = s->spare_span;
}

static mf_status prepare_chunk(mf_engine *e, const mf_batch *batch, mf_error *error)
{
    mf_session *const *sessions = e->parts_sessions;
    mf_status status = MF_OK;
    uint32_t n = 0;
    mf_engine_lock(e);
    for (uint32_t i = 0; i < batch->n_parts; i++)
        sessions[i]->in_batch = true;
    for (; n < batch->n_parts && status == MF_OK; n++) {
        mf_batch_part *part = &e->parts_list[n];
        status = mf_session_prepare(sessions[n], part->tokens, part->n_rows, error);
        place(part, sessions[n]);
    }
    for (uint32_t i = 0; status != MF_OK && i < batch->n_parts; i++) {
        mf_session_abandon(sessions[i]);
        sessions[i]->in_batch = false;
    }
    mf_engine_unlock(e);
    return status;
}

/* Checkpoints that the session's settings ask for now. One that does not fit is left out. */
static void auto_checkpoint(mf_session *s, bool is_end, bool is_long)
{
    const mf_checkpoint_state *newest = mf_checkpoint_find(s, s->position);
    uint64_t since = s->position - (newest == NULL ? 0 : newest->position);
    if ((s->auto_tokens != 0 && since >= s->auto_tokens) ||
        (s->auto_at_end && is_end && is_long && since > 0))
        (void)!mf_checkpoint_take(s, NULL);
}

static void finish_chunk(const eval_call *call, const mf_batch *batch, bool is_good)
{
    mf_engine_lock(call->engine);
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        const mf_batch_part *part = &batch->parts[i];
        mf_session *s = call->engine->parts_sessions[i];
        if (is_good)
            mf_session_commit(s, part->n_rows, part->logits != NULL);
        else
            mf_session_abandon(s);
        s->in_batch = false;
    }
    for (size_t i = 0; is_good && i < call->n_items; i++) {
        const mf_batch_item *item = &call->items[i];
        bool is_end = call->done[i] == item->n_tokens;
        auto_checkpoint(item->session, is_end, item->n_tokens > 1);
    }
    mf_engine_unlock(call->engine);
}

/* ------------------------------------------------------------------ what ends it from outside --
 */

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

/* The batch that the runner is at: the engine's lists. */
typedef struct chunk_watch {
    const eval_call *call;
    const mf_batch *batch;
} chunk_watch;

static mf_status check_chunk(void *ctx, mf_error *error)
{
    const chunk_watch *w = ctx;
    for (uint32_t i = 0; i < w->batch->n_parts; i++)
        MF_TRY(mf_session_check_cancelled(w->call->engine->parts_sessions[i], error));
    return MF_OK;
}

/* In layers times rows. */
static mf_status report_progress(void *ctx, uint32_t n_layers, mf_error *error)
{
    const chunk_watch *w = ctx;
    const eval_call *call = w->call;
    const uint64_t all = call->engine->runner.h.n_layers;
    uint64_t done = call->n_done * all + (uint64_t)n_layers * w->batch->n_rows;
    for (uint32_t i = 0; i < w->batch->n_parts; i++) {
        const mf_session *s = call->engine->parts_sessions[i];
        if (s->progress != NULL && s->progress(s->progress_user, done, call->n_total * all) != 0)
            return mf_fail(error, MF_ERR_CANCELLED, "evaluation cancelled at layer %u of %u",
                           n_layers, (uint32_t)all);
    }
    return MF_OK;
}

static int give_logits(void *ctx, uint32_t row, const float *logits)
{
    const chunk_watch *w = ctx;
    return w->call->each(w->call->each_user, w->call->n_done + row, logits);
}

static void trace(void *ctx, uint32_t layer, const float *hidden)
{
    const chunk_watch *w = ctx;
    const mf_engine *e = w->call->engine;
    for (uint32_t i = 0; i < w->batch->n_parts; i++) {
        const mf_session *s = e->parts_sessions[i];
        const uint32_t n = w->batch->parts[i].n_rows;
        if (s->trace != NULL)
            s->trace(s->trace_user, layer, s->position, n, hidden);
        hidden += (size_t)n * e->runner.h.hidden_size;
    }
}

static mf_status run_chunk(const eval_call *call, mf_batch *batch, mf_error *error)
{
    chunk_watch ctx = {call, batch};
    mf_batch_watch watch = {.ctx = &ctx,
                            .check = check_chunk,
                            .progress = report_progress,
                            .each = call->each != NULL ? give_logits : NULL};
    for (uint32_t i = 0; i < batch->n_parts && watch.trace == NULL; i++) {
        const mf_session *s = call->engine->parts_sessions[i];
        watch.trace = s->trace != NULL ? trace : NULL;
        watch.trace_rows = s->trace_rows;
    }
    batch->watch = &watch;
    return mf_forward(&call->engine->runner, batch, error);
}

/* What ends the waiting for a turn: any session that still has tokens was cancelled or is late. */
static mf_status check_waiting(void *ctx, mf_error *error)
{
    const eval_call *call = ctx;
    for (size_t i = 0; i < call->n_items; i++)
        if (call->done[i] < call->items[i].n_tokens)
            MF_TRY(mf_session_check_cancelled(call->items[i].session, error));
    return MF_OK;
}

static mf_status eval_chunk(eval_call *call, mf_error *error)
{
    mf_engine *e = call->engine;
    mf_batch batch;
    if (mf_turn_is_mine(&e->turn))
        return mf_fail(error, MF_ERR_STATE, "a callback of an evaluation may not evaluate");
    MF_TRY(mf_turn_take(&e->turn, check_waiting, call, error));
    cut_chunk(call, &batch);
    mf_status status = check_chunk(&(chunk_watch){call, &batch}, error);
    if (status == MF_OK)
        status = prepare_chunk(e, &batch, error);
    if (status == MF_OK) {
        status = run_chunk(call, &batch, error);
        finish_chunk(call, &batch, status == MF_OK);
    }
    call->n_done += batch.n_rows;
    mf_turn_end(&e->turn);
    return status;
}

static mf_status run(eval_call *call, mf_error *error)
{
    for (size_t i = 0; i < call->n_items; i++) {
        MF_TRY(check_item(call->engine, &call->items[i], error));
        call->n_total += call->items[i].n_tokens;
    }
    while (call->n_done < call->n_total)
        MF_TRY(eval_chunk(call, error));
    return MF_OK;
}

mf_status mf_session_eval(mf_session *session, const int32_t *tokens, size_t n_tokens,
                          mf_error *error)
{
    if (session == NULL || (tokens == NULL && n_tokens > 0))
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_session_eval: session or tokens is NULL");
    if (n_tokens == 0)
        return MF_OK;
    const mf_batch_item item = {session, tokens, n_tokens};
    size_t done = 0;
    eval_call call = {.engine = session->engine, .items = &item, .n_items = 1, .done = &done};
    return run(&call, error);
}

mf_status mf_session_eval_each(mf_session *session, const int32_t *tokens, size_t n_tokens,
                               mf_logits_fn fn, void *user, mf_error *error)
{
    if (session == NULL || fn == NULL || (tokens == NULL && n_tokens > 0))
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "mf_session_eval_each: session, tokens or fn is NULL");
    if (n_tokens == 0)
        return MF_OK;
    const mf_batch_item item = {session, tokens, n_tokens};
    size_t done = 0;
    eval_call call = {.engine = session->engine,
                      .items = &item,
                      .n_items = 1,
                      .done = &done,
                      .each = fn,
                      .each_user = user};
    return run(&call, error);
}

mf_status mf_engine_eval(mf_engine *engine, const mf_batch_item *items, size_t n_items,
                         mf_error *error)
{
    enum { N_MAX = 200 }; /* as mf_engine_options.n_sessions */
    size_t done[N_MAX] = {0};
    if (engine == NULL || (items == NULL && n_items > 0) || n_items > engine->options.n_sessions)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "mf_engine_eval: engine or items is NULL, or more items than sessions");
    for (size_t i = 0; i < n_items; i++) {
        if (items[i].n_tokens == 0)
            return mf_fail(error, MF_ERR_ARGUMENT, "mf_engine_eval: item %zu has no tokens", i);
        for (size_t j = 0; j < i; j++)
            if (items[i].session == items[j].session)
                return mf_fail(error, MF_ERR_ARGUMENT,
                               "mf_engine_eval: items %zu and %zu are the same session", j, i);
    }
    eval_call call = {.engine = engine, .items = items, .n_items = n_items, .done = done};
    return run(&call, error);
}

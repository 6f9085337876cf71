/* SPDX-License-Identifier: MIT */
/*
 * Evaluation: tokens of one session or several, cut into chunks. A chunk is prepared, run and
 * committed; whatever fails leaves every session at the chunks committed before.
 */
#include "session/session.h"

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
    if (item->n_tokens > e->plan.n_context - s->position)
        return mf_fail(error, MF_ERR_CONTEXT,
                       "%zu tokens after %llu do not fit the context of %u tokens", item->n_tokens,
                       (unsigned long long)s->position, e->plan.n_context);
    for (size_t i = 0; i < item->n_tokens; i++) {
        if (item->tokens[i] < 0 || (uint32_t)item->tokens[i] >= e->h.n_vocab)
            return mf_fail(error, MF_ERR_ARGUMENT, "token %zu is %d, outside the vocabulary of %u",
                           i, item->tokens[i], e->h.n_vocab);
    }
    return MF_OK;
}

/* The next chunk: rows are shared evenly among the items that have tokens left. */
static void cut_chunk(eval_call *call, mf_batch *batch)
{
    mf_engine *e = call->engine;
    uint32_t room = e->plan.n_chunk, n_parts = 0, n_rows = 0;
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
        e->parts_list[n_parts++] = (mf_batch_part){.session = item->session,
                                                   .tokens = item->tokens + call->done[i],
                                                   .n_rows = n,
                                                   .wants_logits = n == left};
        call->done[i] += n;
        n_rows += n;
    }
    *batch = (mf_batch){.parts = e->parts_list,
                        .n_parts = n_parts,
                        .n_rows = n_rows,
                        .each = call->each,
                        .each_user = call->each_user,
                        .first_index = call->n_done,
                        .done = (uint64_t)call->n_done * e->h.n_layers,
                        .total = (uint64_t)call->n_total * e->h.n_layers};
}

static mf_status prepare_chunk(mf_engine *e, const mf_batch *batch, mf_error *error)
{
    mf_status status = MF_OK;
    uint32_t n = 0;
    mf_engine_lock(e);
    for (uint32_t i = 0; i < batch->n_parts; i++)
        batch->parts[i].session->in_batch = true;
    for (; n < batch->n_parts && status == MF_OK; n++) {
        const mf_batch_part *part = &batch->parts[n];
        status = mf_session_prepare(part->session, part->tokens, part->n_rows, error);
    }
    for (uint32_t i = 0; status != MF_OK && i < batch->n_parts; i++) {
        mf_session_abandon(batch->parts[i].session);
        batch->parts[i].session->in_batch = false;
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
        mf_session *s = part->session;
        if (is_good) {
            mf_session_commit(s, part->n_rows, part->wants_logits || batch->each != NULL);
        } else {
            mf_session_abandon(s);
        }
        s->in_batch = false;
    }
    for (size_t i = 0; is_good && i < call->n_items; i++) {
        const mf_batch_item *item = &call->items[i];
        bool is_end = call->done[i] == item->n_tokens;
        auto_checkpoint(item->session, is_end, item->n_tokens > 1);
    }
    mf_engine_unlock(call->engine);
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
    mf_status status = mf_check_cancelled(&batch, error);
    if (status == MF_OK)
        status = prepare_chunk(e, &batch, error);
    if (status == MF_OK) {
        status = mf_forward(e, &batch, error);
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

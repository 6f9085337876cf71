/* SPDX-License-Identifier: MIT */
/* The calls that evaluate: of one session, of several, and one step of several. */
#include "session/session_call.h"

#include "base/sized.h"

/* ---------------------------------------- calls ---------------------------------------- */

mf_status mf_call_add(mf_call *call, mf_session *s, mf_error *error)
{
    mf_engine *e = call->engine;
    mf_status status = MF_OK;
    if (mf_turn_is_mine(&e->turn))
        return mf_fail(error, MF_ERR_STATE, "a callback of an evaluation may not evaluate");
    mf_engine_lock(e);
    if (s->part.call == call)
        status = mf_fail(error, MF_ERR_ARGUMENT, "item %zu is the same session as item %zu",
                         call->n_sessions, s->part.index);
    else
        status = mf_session_refuse(s, "an evaluation", error);
    if (status == MF_OK) {
        s->part = (mf_session_part){.call = call, .index = call->n_sessions, .wants_logits = true};
        atomic_store_explicit(&s->is_cancelled, false, memory_order_relaxed);
        if (call->first == NULL)
            call->first = s;
        else
            call->last->part.next = s;
        call->last = s;
        call->n_sessions++;
    }
    mf_engine_unlock(e);
    return status;
}

void mf_call_end(mf_call *call)
{
    mf_engine_lock(call->engine);
    for (mf_session *s = call->first, *next; s != NULL; s = next) {
        next = s->part.next;
        if (!call->is_step || s->part.status != MF_OK) /* a step's tokens may come again */
            s->n_long_left = 0;
        s->part = (mf_session_part){0};
    }
    mf_engine_unlock(call->engine);
    call->first = NULL;
}

mf_status mf_session_refuse(const mf_session *s, const char *what, mf_error *error)
{
    if (s->part.call != NULL)
        return mf_fail(error, MF_ERR_STATE, "%s of a session that is being evaluated", what);
    return MF_OK;
}

/* A session that can be in a call of this engine. */
static mf_status check_session(const mf_engine *e, const mf_session *s, const int32_t *tokens,
                               size_t n_tokens, size_t index, mf_error *error)
{
    if (s == NULL || s->engine != e || (tokens == NULL && n_tokens > 0))
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "item %zu: its session is NULL or of another engine, or it has no tokens",
                       index);
    return MF_OK;
}

/* ---------------------------------------- one session ---------------------------------------- */

static mf_status eval_one(mf_call *call, mf_session *s, const int32_t *tokens, size_t n_tokens)
{
    if (n_tokens == 0)
        return MF_OK;
    MF_TRY(mf_call_add(call, s, call->error));
    mf_call_set_tokens(call, s, tokens, n_tokens);
    mf_status status = mf_call_run(call);
    mf_call_end(call);
    return status;
}

mf_status mf_session_eval(mf_session *session, const int32_t *tokens, size_t n_tokens,
                          mf_error *error)
{
    if (session == NULL || (tokens == NULL && n_tokens > 0))
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_session_eval: session or tokens is NULL");
    mf_call call = {.engine = session->engine, .error = error};
    return eval_one(&call, session, tokens, n_tokens);
}

mf_status mf_session_eval_each(mf_session *session, const int32_t *tokens, size_t n_tokens,
                               mf_logits_fn fn, void *user, mf_error *error)
{
    if (session == NULL || fn == NULL || (tokens == NULL && n_tokens > 0))
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "mf_session_eval_each: session, tokens or fn is NULL");
    mf_call call = {.engine = session->engine, .each = fn, .each_user = user, .error = error};
    return eval_one(&call, session, tokens, n_tokens);
}

/* ---------------------------------------- several ---------------------------------------- */

static mf_status add_items(mf_call *call, const mf_batch_item *items, size_t n_items,
                           mf_error *error)
{
    for (size_t i = 0; i < n_items; i++) {
        const mf_batch_item *item = &items[i];
        if (item->n_tokens == 0)
            return mf_fail(error, MF_ERR_ARGUMENT, "item %zu has no tokens", i);
        MF_TRY(check_session(call->engine, item->session, item->tokens, item->n_tokens, i, error));
        MF_TRY(mf_call_add(call, item->session, error));
    }
    for (size_t i = 0; i < n_items; i++)
        mf_call_set_tokens(call, items[i].session, items[i].tokens, items[i].n_tokens);
    return MF_OK;
}

mf_status mf_engine_eval(mf_engine *engine, const mf_batch_item *items, size_t n_items,
                         mf_error *error)
{
    if (engine == NULL || (items == NULL && n_items > 0))
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_engine_eval: engine or items is NULL");
    mf_call call = {.engine = engine, .error = error};
    mf_status status = add_items(&call, items, n_items, error);
    if (status == MF_OK)
        status = mf_call_run(&call);
    mf_call_end(&call);
    return status;
}

/* ---------------------------------------- a step ---------------------------------------- */

/* What an item must have for the step to be done: the fields that were there from the beginning. */
#define STEP_ITEM_LEAST (offsetof(mf_step_item, n_done) + sizeof(size_t))

/* Items lie as far apart as the caller's compiler put them. */
static mf_step_item *item_at(mf_step_item *items, size_t i)
{
    return (mf_step_item *)(void *)((unsigned char *)items + i * items->struct_bytes);
}

static mf_status take_item(const mf_step_item *items, size_t i, mf_step_item *out, mf_error *error)
{
    const mf_step_item *given = item_at((mf_step_item *)items, i);
    *out = (mf_step_item){0};
    if (given->struct_bytes != items->struct_bytes || given->struct_bytes < STEP_ITEM_LEAST)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "item %zu: struct_bytes is %zu, expected sizeof(mf_step_item) in all", i,
                       given->struct_bytes);
    MF_TRY(mf_sized_get(out, sizeof *out, given, "mf_step_item", error));
    if ((out->flags & ~MF_STEP_NO_LOGITS) != 0)
        return mf_fail(error, MF_ERR_ARGUMENT, "item %zu: flags %#x are not known", i, out->flags);
    return MF_OK;
}

static mf_status add_steps(mf_call *call, const mf_step_item *items, size_t n_items,
                           mf_error *error)
{
    mf_step_item item;
    for (size_t i = 0; i < n_items; i++) {
        MF_TRY(take_item(items, i, &item, error));
        MF_TRY(check_session(call->engine, item.session, item.tokens, item.n_tokens, i, error));
        MF_TRY(mf_call_add(call, item.session, error));
        item.session->part.wants_logits = (item.flags & MF_STEP_NO_LOGITS) == 0;
        item.session->part.cancel = item.cancel;
    }
    for (size_t i = 0; i < n_items; i++) {
        const mf_step_item *given = item_at((mf_step_item *)items, i);
        mf_call_set_tokens(call, given->session, given->tokens, given->n_tokens);
    }
    return MF_OK;
}

mf_status mf_engine_step(mf_engine *engine, mf_step_item *items, size_t n_items, mf_error *error)
{
    if (engine == NULL || (items == NULL && n_items > 0))
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_engine_step: engine or items is NULL");
    mf_call call = {.engine = engine, .error = error, .is_step = true};
    mf_status status = add_steps(&call, items, n_items, error);
    if (status == MF_OK) {
        if (mf_call_is_open(&call))
            mf_call_run_chunk(&call);
        status = call.status;
        for (size_t i = 0; i < n_items; i++) {
            mf_step_item *item = item_at(items, i);
            item->status = item->session->part.status;
            item->n_done = item->session->part.n_done;
        }
    }
    mf_call_end(&call);
    return status;
}

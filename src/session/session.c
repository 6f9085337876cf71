/* SPDX-License-Identifier: MIT */
/* Sessions: creation, what they hold, going back, forking. */
#include "session/session_draft.h"

#include "base/checked.h"

#include <string.h>

/* Room for tokens grows by doubling from here. */
#define TOKENS_MIN 256u

void mf_engine_lock(mf_engine *engine)
{
    (void)pthread_mutex_lock(&engine->state_lock);
}

void mf_engine_unlock(mf_engine *engine)
{
    (void)pthread_mutex_unlock(&engine->state_lock);
}

/* ---------------------------------------------------------------------------------- lifetime -- */

static void link_session(mf_engine *e, mf_session *s)
{
    s->next = e->first_session;
    if (s->next != NULL)
        s->next->previous = s;
    e->first_session = s;
}

static void unlink_session(mf_engine *e, mf_session *s)
{
    if (s->next != NULL)
        s->next->previous = s->previous;
    if (s->previous != NULL)
        s->previous->next = s->next;
    else
        e->first_session = s->next;
}

static size_t trace_bytes(const mf_engine *e)
{
    return (size_t)e->runner.plan.n_chunk * e->runner.h.hidden_size * sizeof(float);
}

static uint32_t table_capacity(const mf_engine *e, int kind)
{
    return e->pool.kinds[kind].unit_bytes != 0 ? mf_pages_of(e->runner.plan.n_context) : 1;
}

static bool make_tables(mf_engine *e, mf_session *s)
{
    for (int k = 0; k < MF_N_PAGE_KINDS; k++) {
        mf_page_table *t = &s->pages[k];
        const size_t n = table_capacity(e, k);
        t->units = mf_alloc_zeroed(&e->allocator, n * sizeof *t->units);
        t->spans = mf_alloc_zeroed(&e->allocator, n * sizeof *t->spans);
        if (t->units == NULL || t->spans == NULL)
            return false;
    }
    return true;
}

/* Of logits and their bounds. Those that follow lie as a device likes. */
static size_t logits_bytes(const mf_engine *e)
{
    const uint32_t n_vocab = e->runner.h.n_vocab;
    return mf_round_up(((uint64_t)n_vocab + mf_finite_blocks(n_vocab)) * sizeof(float), 256);
}

/* logits: one of the session's two. */
static void put_logits(const mf_session *s, float *logits, mf_batch_part *part)
{
    const bool is_first = logits <= s->logits && logits <= s->next_logits;
    const uint64_t at = is_first || s->shared_logits.id == 0 ? 0 : logits_bytes(s->engine);
    part->logits = logits;
    part->bounds = logits + s->engine->runner.h.n_vocab;
    part->shared_logits = (mf_span){s->shared_logits, at};
}

void mf_session_part_logits(const mf_session *s, mf_batch_part *part)
{
    put_logits(s, s->next_logits, part);
}

void mf_session_other_logits(const mf_session *s, mf_batch_part *part)
{
    put_logits(s, s->logits, part);
}

static void free_logits(mf_engine *e, mf_session *s)
{
    const size_t n_bytes = logits_bytes(e);
    if (s->shared_logits.id != 0) {
        e->runner.backend->ops->buffer_free(e->runner.backend, s->shared_logits);
        return;
    }
    mf_free(&e->allocator, s->logits, n_bytes);
    mf_free(&e->allocator, s->next_logits, n_bytes);
}

/* Memory for logits, false: there is none. A device writes its own straight to where they stay, if
 * it has room for a buffer: megabytes a session and step. */
static bool make_logits(mf_engine *e, mf_session *s)
{
    const mf_backend_ops *ops = e->runner.backend->ops;
    const size_t n_bytes = logits_bytes(e);
    mf_error error = {0};
    if (ops->runs_later &&
        ops->buffer_create(e->runner.backend, 2 * n_bytes, MF_USE_STAGING, "a session's logits",
                           &s->shared_logits, &error) == MF_OK) {
        s->logits = (float *)(void *)ops->buffer_host(e->runner.backend, s->shared_logits);
        s->next_logits = s->logits + n_bytes / sizeof *s->logits;
        return true;
    }
    s->logits = mf_alloc(&e->allocator, n_bytes);
    s->next_logits = mf_alloc(&e->allocator, n_bytes);
    return s->logits != NULL && s->next_logits != NULL;
}

static void free_memory(mf_engine *e, mf_session *s)
{
    const mf_allocator *a = &e->allocator;
    mf_free(a, s->tokens, s->token_capacity * sizeof *s->tokens);
    for (int k = 0; k < MF_N_PAGE_KINDS; k++) {
        mf_free(a, s->pages[k].units, table_capacity(e, k) * sizeof *s->pages[k].units);
        mf_free(a, s->pages[k].spans, table_capacity(e, k) * sizeof *s->pages[k].spans);
    }
    mf_free(a, s->marks, s->mark_capacity * sizeof *s->marks);
    free_logits(e, s);
    mf_free(a, s->trace_rows, trace_bytes(e));
    mf_draft_free(s);
    mf_free(a, s, sizeof *s);
}

/* Memory for an empty session, not yet of the engine. */
static mf_status make_session(mf_engine *e, mf_session **out, mf_error *error)
{
    const mf_allocator *a = &e->allocator;
    mf_session *s = mf_alloc_zeroed(a, sizeof *s);
    if (s == NULL)
        return mf_fail_memory(error, sizeof *s, "a session");
    s->engine = e;
    atomic_init(&s->is_cancelled, false);
    if (!make_tables(e, s) || !make_logits(e, s)) {
        free_memory(e, s);
        return mf_fail_memory(error, logits_bytes(e), "a session");
    }
    mf_status status = mf_session_reserve_tokens(s, 1, error);
    if (status == MF_OK)
        status = mf_draft_make(s, error);
    if (status != MF_OK) {
        free_memory(e, s);
        return status;
    }
    *out = s;
    return MF_OK;
}

/* The least place that no open session has. */
static uint32_t free_place(const mf_engine *e)
{
    uint32_t place = 0;
    const mf_session *s = e->first_session;
    while (s != NULL) {
        const bool is_taken = s->place == place;
        place += is_taken;
        s = is_taken ? e->first_session : s->next;
    }
    return place;
}

mf_status mf_session_create(mf_engine *engine, mf_session **out, mf_error *error)
{
    if (engine == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_session_create: engine or out is NULL");
    mf_session *s = NULL;
    MF_TRY(make_session(engine, &s, error));
    mf_engine_lock(engine);
    bool fits = engine->n_sessions < engine->options.n_sessions;
    if (fits) {
        engine->n_sessions++;
        s->number = engine->n_sessions_ever++;
        mf_draft_place(s, free_place(engine));
        link_session(engine, s);
    }
    mf_engine_unlock(engine);
    if (!fits) {
        free_memory(engine, s);
        return mf_fail(error, MF_ERR_BUDGET,
                       "the engine was opened for %u sessions, and as many are open",
                       engine->options.n_sessions);
    }
    *out = s;
    return MF_OK;
}

void mf_session_free(mf_session **session)
{
    mf_session *s = session != NULL ? *session : NULL;
    if (s == NULL)
        return;
    mf_engine *e = s->engine;
    mf_engine_lock(e);
    const bool can_go = mf_session_refuse(s, "freeing", NULL) == MF_OK;
    if (can_go) {
        mf_session_drop_all(s);
        unlink_session(e, s);
        e->n_sessions--;
    }
    mf_engine_unlock(e);
    if (!can_go)
        return;
    free_memory(e, s);
    *session = NULL;
}

mf_status mf_session_fork(const mf_session *session, mf_session **out, mf_error *error)
{
    if (session == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_session_fork: session or out is NULL");
    mf_session *fork = NULL;
    mf_state *state = NULL;
    MF_TRY(mf_session_create(session->engine, &fork, error));
    mf_status status = mf_state_hold((mf_session *)session, session->position, &state, error);
    if (status == MF_OK)
        status = mf_session_adopt(fork, state, error);
    mf_state_release(&state);
    if (status != MF_OK) {
        mf_session_free(&fork);
        return status;
    }
    fork->auto_tokens = session->auto_tokens;
    fork->auto_at_end = session->auto_at_end;
    *out = fork;
    return MF_OK;
}

/* ---------------------------------------------------------------------- what it is asked for -- */

void mf_session_set_progress(mf_session *session, mf_progress_fn progress, void *user)
{
    session->progress = progress;
    session->progress_user = user;
}

mf_status mf_session_set_trace(mf_session *s, mf_trace_fn trace, void *user, mf_error *error)
{
    if (trace != NULL && s->trace_rows == NULL)
        s->trace_rows = mf_alloc(&s->engine->allocator, trace_bytes(s->engine));
    if (trace != NULL && s->trace_rows == NULL)
        return mf_fail_memory(error, trace_bytes(s->engine), "traced rows");
    s->trace = trace;
    s->trace_user = user;
    return MF_OK;
}

const float *mf_session_logits(const mf_session *session)
{
    return session->has_logits ? session->logits : NULL;
}

const float *mf_session_bounds(const mf_session *session)
{
    const bool has_bounds = session->has_logits && session->has_bounds;
    return has_bounds ? session->logits + session->engine->runner.h.n_vocab : NULL;
}

size_t mf_session_position(const mf_session *session)
{
    return (size_t)session->position;
}

const int32_t *mf_session_tokens(const mf_session *session)
{
    return session->tokens;
}

uint64_t mf_session_state_bytes(const mf_session *session)
{
    const mf_plan *p = &session->engine->runner.plan;
    mf_engine_lock(session->engine); /* another session may take those that wait */
    uint32_t n_states = (session->recurrent != 0) + (session->spare != 0);
    for (uint32_t i = 0; i <= MF_DRAFT_TOKENS_MOST; i++)
        n_states += session->draft.states[i] != 0;
    uint64_t n_bytes = n_states * p->recurrent_bytes;
    for (int k = 0; k < MF_N_PAGE_KINDS; k++)
        n_bytes += (session->pages[k].n - session->pages[k].first) *
                   session->engine->pool.kinds[k].unit_bytes;
    mf_engine_unlock(session->engine);
    return n_bytes;
}

void mf_session_cancel(mf_session *session)
{
    atomic_store_explicit(&session->is_cancelled, true, memory_order_relaxed);
}

void mf_session_set_cancel(mf_session *session, const mf_cancel *cancel)
{
    session->cancel = cancel;
}

void mf_session_set_deadline(mf_session *session, uint64_t monotonic_us)
{
    session->deadline_us = monotonic_us;
}

mf_session *mf_engine_next_session(const mf_engine *engine, const mf_session *previous)
{
    return previous == NULL ? engine->first_session : previous->next;
}

void mf_session_tell_change(mf_session *s, uint64_t n_kept)
{
    mf_engine *e = s->engine;
    if (e->tokens_changed != NULL)
        e->tokens_changed(e->tokens_changed_user, s, n_kept);
}

/* ----------------------------------------------------------------------------- going forward -- */

mf_status mf_session_reserve_tokens(mf_session *s, uint64_t n_tokens, mf_error *error)
{
    size_t n = s->token_capacity == 0 ? TOKENS_MIN : s->token_capacity;
    while (n < n_tokens)
        n *= 2;
    if (n == s->token_capacity)
        return MF_OK;
    int32_t *grown = mf_realloc(&s->engine->allocator, s->tokens, s->token_capacity * sizeof *grown,
                                n * sizeof *grown);
    if (grown == NULL)
        return mf_fail_memory(error, n * sizeof *grown, "a session's tokens");
    s->tokens = grown;
    s->token_capacity = n;
    return MF_OK;
}

static void drop_spare(mf_session *s)
{
    mf_unit_drop(&s->engine->pool, MF_UNIT_RECURRENT, s->spare);
    s->spare = 0;
    s->spare_span = (mf_span){{0}, 0};
}

static bool drop_idle_spares(mf_engine *e)
{
    bool any = false;
    for (mf_session *s = e->first_session; s != NULL; s = s->next)
        if (!s->in_batch && (s->spare != 0 || s->draft.n != 0)) {
            drop_spare(s);
            mf_draft_drop(s);
            any = true;
        }
    return any;
}

mf_status mf_take_unit(mf_engine *e, mf_unit_kind kind, mf_unit *out, mf_error *error)
{
    mf_status status = mf_unit_take(&e->pool, kind, out, error);
    if (status == MF_ERR_BUDGET && drop_idle_spares(e))
        status = mf_unit_take(&e->pool, kind, out, error);
    while (status == MF_ERR_BUDGET && mf_mark_drop_oldest(e))
        status = mf_unit_take(&e->pool, kind, out, error);
    return status;
}

static bool has_pages(const mf_engine *e, int kind)
{
    return e->pool.kinds[kind].unit_bytes != 0;
}

static void set_page(mf_session *s, mf_unit_kind kind, uint32_t index, mf_unit unit)
{
    s->pages[kind].units[index] = unit;
    s->pages[kind].spans[index] = mf_unit_span(&s->engine->pool, kind, unit);
}

static void drop_page(mf_session *s, mf_unit_kind kind, uint32_t index)
{
    mf_unit_drop(&s->engine->pool, kind, s->pages[kind].units[index]);
    set_page(s, kind, index, 0);
}

void mf_session_end_pages(mf_session *s, mf_unit_kind kind, uint32_t end)
{
    mf_page_table *t = &s->pages[kind];
    while (t->n > end && t->n > t->first)
        drop_page(s, kind, --t->n);
    if (t->n > end)
        t->first = t->n = end;
}

void mf_session_add_page(mf_session *s, mf_unit_kind kind, mf_unit unit)
{
    set_page(s, kind, s->pages[kind].n++, unit);
}

/* Rows that are committed, of every layer; others may be being written by whom they belong to. */
static void copy_rows(mf_engine *e, mf_unit_kind kind, mf_span to, mf_span from, uint64_t n_rows)
{
    for (uint32_t i = 0; i < e->runner.h.n_layers; i++) {
        const mf_layer_state *l = &e->runner.layers[i];
        for (uint32_t j = 0; j < MF_MOST_KEPT; j++) {
            const uint64_t n_bytes = l->unit[j] == kind ? mf_kept_bytes(l, j, n_rows) : 0;
            if (n_bytes != 0)
                e->runner.backend->ops->copy(e->runner.backend, mf_span_at(to, l->offset[j]),
                                             mf_span_at(from, l->offset[j]), n_bytes);
        }
    }
}

/* The last page, if it is not full, is to be this session's alone. */
static mf_status own_last_page(mf_session *s, mf_unit_kind kind, mf_error *error)
{
    mf_engine *e = s->engine;
    mf_page_table *t = &s->pages[kind];
    uint64_t n_rows = s->position % MF_PAGE_TOKENS;
    uint32_t last = t->n - 1;
    if (n_rows == 0 || mf_unit_refs(&e->pool, kind, t->units[last]) == 1)
        return MF_OK;
    mf_unit copy;
    MF_TRY(mf_take_unit(e, kind, &copy, error));
    if (mf_unit_refs(&e->pool, kind, t->units[last]) == 1) {
        mf_unit_drop(&e->pool, kind, copy); /* making room has dropped the other holder */
        return MF_OK;
    }
    copy_rows(e, kind, mf_unit_span(&e->pool, kind, copy), t->spans[last], n_rows);
    drop_page(s, kind, last);
    set_page(s, kind, last, copy);
    return MF_OK;
}

static mf_status take_pages(mf_session *s, mf_unit_kind kind, uint32_t n_pages, mf_error *error)
{
    while (s->pages[kind].n < n_pages) {
        mf_unit unit;
        MF_TRY(mf_take_unit(s->engine, kind, &unit, error));
        mf_session_add_page(s, kind, unit);
    }
    return MF_OK;
}

void mf_session_drop_behind_window(mf_session *s)
{
    mf_page_table *t = &s->pages[MF_UNIT_WINDOW];
    const uint32_t first = mf_window_kept(s->engine->runner.plan.window, s->position);
    while (t->first < first && t->first < t->n)
        drop_page(s, MF_UNIT_WINDOW, t->first++);
}

static mf_status prepare(mf_session *s, uint32_t n_rows, mf_error *error)
{
    mf_engine *e = s->engine;
    MF_TRY(mf_session_reserve_tokens(s, s->position + n_rows, error));
    for (int k = 0; k < MF_N_PAGE_KINDS; k++)
        if (has_pages(e, k)) {
            MF_TRY(own_last_page(s, k, error));
            MF_TRY(take_pages(s, k, mf_pages_of(s->position + n_rows), error));
        }
    if (e->runner.plan.recurrent_bytes != 0 && s->spare == 0) {
        MF_TRY(mf_take_unit(e, MF_UNIT_RECURRENT, &s->spare, error));
        s->spare_span = mf_unit_span(&e->pool, MF_UNIT_RECURRENT, s->spare);
    }
    return MF_OK;
}

mf_status mf_session_prepare(mf_session *s, const int32_t *tokens, uint32_t n_rows, mf_error *error)
{
    mf_status status = prepare(s, n_rows, error);
    if (status != MF_OK)
        mf_session_abandon(s);
    else
        memcpy(s->tokens + s->position, tokens, n_rows * sizeof *tokens);
    return status;
}

void mf_session_abandon(mf_session *s)
{
    for (int k = 0; k < MF_N_PAGE_KINDS; k++)
        mf_session_end_pages(s, k, mf_pages_of(s->position));
}

void mf_session_commit(mf_session *s, uint32_t n_rows, bool has_logits)
{
    mf_state_pool *pool = &s->engine->pool;
    uint64_t before = s->position;
    s->position += n_rows;
    s->has_logits = s->has_bounds = has_logits;
    if (has_logits) {
        float *logits = s->next_logits;
        s->next_logits = s->logits;
        s->logits = logits;
    }
    if (s->spare != 0) {
        mf_unit old = s->recurrent;
        mf_span old_span = s->recurrent_span;
        s->recurrent = s->spare;
        s->recurrent_span = s->spare_span;
        s->spare = 0;
        s->spare_span = (mf_span){{0}, 0};
        if (old != 0 && mf_unit_refs(pool, MF_UNIT_RECURRENT, old) == 1) {
            s->spare = old;
            s->spare_span = old_span;
        } else {
            mf_unit_drop(pool, MF_UNIT_RECURRENT, old);
        }
    }
    mf_session_drop_behind_window(s);
    mf_session_tell_change(s, before);
}

/* -------------------------------------------------------------------------------- going back -- */

/* The pages are the mark's from its first one on; those before it are the session's own. */
static void take_marked_pages(mf_session *s, mf_unit_kind kind, const mf_mark *mark)
{
    uint32_t first, n;
    const mf_unit *units = mf_mark_pages(mark, kind, &first, &n);
    for (uint32_t i = 0; i < n; i++)
        mf_unit_hold(&s->engine->pool, kind, units[i]);
    mf_session_end_pages(s, kind, first);
    for (uint32_t i = 0; i < n; i++)
        mf_session_add_page(s, kind, units[i]);
}

void mf_session_rewind(mf_session *s, uint64_t position, const mf_mark *mark)
{
    mf_state_pool *pool = &s->engine->pool;
    const mf_unit recurrent = mark != NULL ? mark->recurrent : 0;
    mf_draft_forget(s);
    if (recurrent != 0)
        mf_unit_hold(pool, MF_UNIT_RECURRENT, recurrent);
    mf_mark_drop_beyond(s, position);
    for (int k = 0; k < MF_N_PAGE_KINDS; k++)
        if (mark != NULL && has_pages(s->engine, k))
            take_marked_pages(s, k, mark);
        else
            mf_session_end_pages(s, k, mf_pages_of(position));
    mf_unit_drop(pool, MF_UNIT_RECURRENT, s->recurrent);
    s->recurrent = recurrent;
    s->recurrent_span = mf_unit_span(pool, MF_UNIT_RECURRENT, recurrent);
    s->position = position;
    s->n_long_left = 0;
    s->has_logits = false;
    mf_session_tell_change(s, position);
}

void mf_session_drop_all(mf_session *s)
{
    mf_session_rewind(s, 0, NULL);
    mf_mark_drop_beyond(s, UINT64_MAX);
    drop_spare(s);
}

void mf_session_clear(mf_session *session)
{
    mf_engine_lock(session->engine);
    if (mf_session_refuse(session, "clearing", NULL) == MF_OK)
        mf_session_drop_all(session);
    mf_engine_unlock(session->engine);
}

static mf_status truncate_locked(mf_session *s, size_t n_tokens, size_t *n_kept, mf_error *error)
{
    if (mf_session_reaches(s, n_tokens)) {
        mf_session_rewind(s, n_tokens, NULL);
        *n_kept = n_tokens;
        return MF_OK;
    }
    mf_mark *c = mf_mark_find(s, n_tokens);
    if (c == NULL || c->position == 0)
        return mf_fail(error, MF_ERR_NOT_FOUND,
                       "no mark at or before token %zu, and the %s of this "
                       "model cannot go back without one",
                       n_tokens,
                       s->engine->runner.plan.recurrent_bytes != 0
                           ? "recurrent layers"
                           : "layers with a window, which have given back what was before it,");
    c->last_use = ++s->engine->n_uses;
    *n_kept = (size_t)c->position;
    mf_session_rewind(s, c->position, c);
    return MF_OK;
}

mf_status mf_session_truncate(mf_session *session, size_t n_tokens, size_t *n_kept, mf_error *error)
{
    size_t ignored;
    if (session == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_session_truncate: session is NULL");
    if (n_tokens > session->position)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_session_truncate: to %zu tokens of %llu",
                       n_tokens, (unsigned long long)session->position);
    n_kept = n_kept != NULL ? n_kept : &ignored;
    mf_engine_lock(session->engine);
    mf_status status = mf_session_refuse(session, "mf_session_truncate", error);
    if (status == MF_OK && n_tokens == session->position)
        *n_kept = n_tokens;
    else if (status == MF_OK && n_tokens == 0)
        mf_session_drop_all(session), *n_kept = 0;
    else if (status == MF_OK)
        status = truncate_locked(session, n_tokens, n_kept, error);
    mf_engine_unlock(session->engine);
    return status;
}

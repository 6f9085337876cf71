/* SPDX-License-Identifier: MIT */
/*
 * Marks: positions of a session to go back to. What one costs is what only it may hold: a
 * last page that is not full, a recurrent state, and logits. The page counts where there is none
 * too, which bounds their number and so the logits, that are not taken from the state
 * (mf_mark_logits_bytes).
 */
#include "session/session.h"

#include <string.h>

static uint64_t bytes_of(const mf_engine *e, const mf_mark *c)
{
    return mf_plan_mark_bytes(&e->runner.plan) +
           (c->logits != NULL ? e->runner.h.n_vocab * sizeof *c->logits : 0);
}

const mf_unit *mf_mark_pages(const mf_mark *c, mf_unit_kind kind, uint32_t *first, uint32_t *n)
{
    const bool is_window = kind == MF_UNIT_WINDOW;
    *first = is_window ? c->window_first : (uint32_t)(c->position / MF_PAGE_TOKENS);
    *n = is_window ? c->n_window_pages : c->last_page != 0;
    return is_window ? c->window_pages : &c->last_page;
}

/* What the mark refers to, and its memory. */
static void free_mark(mf_engine *e, mf_mark *c)
{
    mf_unit_drop(&e->pool, MF_UNIT_PAGE, c->last_page);
    mf_unit_drop(&e->pool, MF_UNIT_RECURRENT, c->recurrent);
    for (uint32_t i = 0; i < c->n_window_pages; i++)
        mf_unit_drop(&e->pool, MF_UNIT_WINDOW, c->window_pages[i]);
    mf_free(&e->allocator, c->window_pages, c->n_window_pages * sizeof *c->window_pages);
    mf_free(&e->allocator, c->logits, e->runner.h.n_vocab * sizeof *c->logits);
}

static void drop_at(mf_session *s, uint32_t index)
{
    mf_engine *e = s->engine;
    mf_mark *c = &s->marks[index];
    e->mark_bytes -= bytes_of(e, c);
    free_mark(e, c);
    s->n_marks--;
    memmove(c, c + 1, (s->n_marks - index) * sizeof *c);
}

void mf_mark_drop_beyond(mf_session *s, uint64_t position)
{
    if (position == UINT64_MAX) {
        while (s->n_marks > 0)
            drop_at(s, s->n_marks - 1);
        return;
    }
    while (s->n_marks > 0 && s->marks[s->n_marks - 1].position > position)
        drop_at(s, s->n_marks - 1);
}

mf_mark *mf_mark_find(const mf_session *s, uint64_t position)
{
    for (uint32_t i = s->n_marks; i-- > 0;)
        if (s->marks[i].position <= position)
            return &s->marks[i];
    return NULL;
}

bool mf_mark_drop_oldest(mf_engine *e)
{
    mf_session *of = NULL;
    uint32_t oldest = 0;
    for (mf_session *s = e->first_session; s != NULL; s = s->next)
        for (uint32_t i = 0; i + 1 < s->n_marks; i++)
            if (of == NULL || s->marks[i].last_use < of->marks[oldest].last_use) {
                of = s;
                oldest = i;
            }
    if (of == NULL)
        return false;
    drop_at(of, oldest);
    return true;
}

static mf_status grow(mf_session *s, mf_error *error)
{
    uint32_t n = s->mark_capacity == 0 ? 4 : 2 * s->mark_capacity;
    if (s->n_marks < s->mark_capacity)
        return MF_OK;
    mf_mark *grown = mf_realloc(&s->engine->allocator, s->marks, s->mark_capacity * sizeof *grown,
                                n * sizeof *grown);
    if (grown == NULL)
        return mf_fail_memory(error, n * sizeof *grown, "marks");
    s->marks = grown;
    s->mark_capacity = n;
    return MF_OK;
}

/* Drops old marks until n_bytes more fit; the session's present newest, which will not be the
 * newest any more, may be among them. */
static mf_status make_room(mf_engine *e, uint64_t n_bytes, mf_error *error)
{
    if (n_bytes > e->mark_limit)
        return mf_fail(error, MF_ERR_BUDGET, "a mark of %llu bytes does not fit mark_bytes (%llu)",
                       (unsigned long long)n_bytes, (unsigned long long)e->mark_limit);
    while (e->mark_bytes > e->mark_limit && mf_mark_drop_oldest(e))
        continue;
    return MF_OK;
}

/* Pages of windows: those that the session will give back, or the last one alone where it will
 * not, if it is not full. */
static mf_status refer_to_window(mf_session *s, mf_mark *c, mf_error *error)
{
    mf_engine *e = s->engine;
    const mf_plan *p = &e->runner.plan;
    const mf_page_table *t = &s->pages[MF_UNIT_WINDOW];
    uint32_t first = (uint32_t)(s->position / MF_PAGE_TOKENS);
    if (p->mark_window_bytes != 0)
        first = mf_window_kept(p->window, s->position);
    c->window_first = first > t->first ? first : t->first;
    /* behind the position there may be those of tokens evaluated ahead */
    const uint32_t n = p->window_bytes != 0 ? mf_pages_of(s->position) - c->window_first : 0;
    if (n == 0)
        return MF_OK;
    c->window_pages = mf_alloc_array(&e->allocator, n, sizeof *c->window_pages);
    if (c->window_pages == NULL)
        return mf_fail_memory(error, n * sizeof *c->window_pages, "a mark");
    c->n_window_pages = n;
    for (uint32_t i = 0; i < n; i++) {
        c->window_pages[i] = t->units[c->window_first + i];
        mf_unit_hold(&e->pool, MF_UNIT_WINDOW, c->window_pages[i]);
    }
    return MF_OK;
}

/* References, and a copy of the logits. On failure the mark is to be freed too. */
static mf_status fill_mark(mf_session *s, mf_mark *c, mf_error *error)
{
    mf_engine *e = s->engine;
    const uint64_t n_bytes = e->runner.h.n_vocab * sizeof *c->logits;
    if (c->last_page != 0)
        mf_unit_hold(&e->pool, MF_UNIT_PAGE, c->last_page);
    if (c->recurrent != 0)
        mf_unit_hold(&e->pool, MF_UNIT_RECURRENT, c->recurrent);
    MF_TRY(refer_to_window(s, c, error));
    if (!s->has_logits)
        return MF_OK;
    c->logits = mf_alloc(&e->allocator, n_bytes);
    if (c->logits == NULL)
        return mf_fail_memory(error, n_bytes, "a mark");
    memcpy(c->logits, s->logits, n_bytes);
    return MF_OK;
}

mf_status mf_mark_take(mf_session *s, mf_error *error)
{
    mf_engine *e = s->engine;
    bool has_page = e->runner.plan.page_bytes != 0 && s->position % MF_PAGE_TOKENS != 0;
    mf_mark c = {.position = s->position,
                 .last_use = ++e->n_uses,
                 .last_page =
                     has_page ? s->pages[MF_UNIT_PAGE].units[s->position / MF_PAGE_TOKENS] : 0,
                 .recurrent = s->recurrent};
    mf_mark *same = mf_mark_find(s, s->position);
    if (same != NULL && same->position == s->position) {
        same->last_use = c.last_use;
        return MF_OK;
    }
    MF_TRY(grow(s, error));
    mf_status status = fill_mark(s, &c, error);
    if (status == MF_OK)
        status = make_room(e, bytes_of(e, &c), error);
    if (status != MF_OK) {
        free_mark(e, &c);
        return status;
    }
    s->marks[s->n_marks++] = c;
    e->mark_bytes += bytes_of(e, &c);
    return make_room(e, 0, error);
}

mf_status mf_mark_save(mf_session *session, mf_error *error)
{
    if (session == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_mark_save: session is NULL");
    mf_engine_lock(session->engine);
    mf_status status = mf_session_refuse(session, "mf_mark_save", error);
    if (status == MF_OK)
        status = mf_mark_take(session, error);
    mf_engine_unlock(session->engine);
    return status;
}

void mf_mark_auto(mf_session *session, size_t n_tokens, int at_end)
{
    session->auto_tokens = n_tokens;
    session->auto_at_end = at_end != 0;
}

size_t mf_mark_list(const mf_session *session, size_t *positions, size_t capacity)
{
    mf_engine_lock(session->engine);
    size_t n = session->n_marks;
    for (size_t i = 0; positions != NULL && i < n && i < capacity; i++)
        positions[i] = (size_t)session->marks[i].position;
    mf_engine_unlock(session->engine);
    return n;
}

static mf_status find_exactly(const mf_session *s, size_t position, mf_mark **out, mf_error *error)
{
    mf_mark *c = mf_mark_find(s, position);
    if (c == NULL || c->position != position)
        return mf_fail(error, MF_ERR_NOT_FOUND, "no mark at token %zu", position);
    *out = c;
    return MF_OK;
}

mf_status mf_mark_restore(mf_session *session, size_t position, mf_error *error)
{
    if (session == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_mark_restore: session is NULL");
    mf_engine *e = session->engine;
    mf_mark *c = NULL;
    mf_engine_lock(e);
    mf_status status = mf_session_refuse(session, "mf_mark_restore", error);
    if (status == MF_OK)
        status = find_exactly(session, position, &c, error);
    if (status == MF_OK) {
        c->last_use = ++e->n_uses;
        mf_session_rewind(session, position, c);
        if (c->logits != NULL) { /* the last one left, so it has not moved */
            memcpy(session->logits, c->logits, e->runner.h.n_vocab * sizeof *c->logits);
            session->has_logits = true;
            session->has_bounds = false;
        }
    }
    mf_engine_unlock(e);
    return status;
}

mf_status mf_mark_drop(mf_session *session, size_t position, mf_error *error)
{
    if (session == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_mark_drop: session is NULL");
    mf_mark *c = NULL;
    mf_engine_lock(session->engine);
    mf_status status = mf_session_refuse(session, "mf_mark_drop", error);
    if (status == MF_OK)
        status = find_exactly(session, position, &c, error);
    if (status == MF_OK)
        drop_at(session, (uint32_t)(c - session->marks));
    mf_engine_unlock(session->engine);
    return status;
}

/* SPDX-License-Identifier: MIT */
/*
 * Checkpoints: positions of a session to go back to. What one costs is what only it may hold: a
 * last page that is not full, a recurrent state, and logits. The page counts where there is none
 * too, which bounds their number and so the logits, that are not taken from the state
 * (mf_checkpoint_logits_bytes).
 */
#include "session/session.h"

#include <string.h>

static uint64_t bytes_of(const mf_engine *e, const mf_checkpoint_state *c)
{
    return e->runner.plan.page_bytes + e->runner.plan.recurrent_bytes +
           (c->logits != NULL ? e->runner.h.n_vocab * sizeof *c->logits : 0);
}

static void drop_at(mf_session *s, uint32_t index)
{
    mf_engine *e = s->engine;
    mf_checkpoint_state *c = &s->checkpoints[index];
    e->checkpoint_bytes -= bytes_of(e, c);
    mf_unit_drop(&e->pool, MF_UNIT_PAGE, c->last_page);
    mf_unit_drop(&e->pool, MF_UNIT_RECURRENT, c->recurrent);
    mf_free(&e->allocator, c->logits, e->runner.h.n_vocab * sizeof *c->logits);
    s->n_checkpoints--;
    memmove(c, c + 1, (s->n_checkpoints - index) * sizeof *c);
}

void mf_checkpoint_drop_beyond(mf_session *s, uint64_t position)
{
    if (position == UINT64_MAX) {
        while (s->n_checkpoints > 0)
            drop_at(s, s->n_checkpoints - 1);
        return;
    }
    while (s->n_checkpoints > 0 && s->checkpoints[s->n_checkpoints - 1].position > position)
        drop_at(s, s->n_checkpoints - 1);
}

mf_checkpoint_state *mf_checkpoint_find(const mf_session *s, uint64_t position)
{
    for (uint32_t i = s->n_checkpoints; i-- > 0;)
        if (s->checkpoints[i].position <= position)
            return &s->checkpoints[i];
    return NULL;
}

bool mf_checkpoint_drop_oldest(mf_engine *e)
{
    mf_session *of = NULL;
    uint32_t oldest = 0;
    for (mf_session *s = e->first_session; s != NULL; s = s->next)
        for (uint32_t i = 0; i + 1 < s->n_checkpoints; i++)
            if (of == NULL || s->checkpoints[i].last_use < of->checkpoints[oldest].last_use) {
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
    uint32_t n = s->checkpoint_capacity == 0 ? 4 : 2 * s->checkpoint_capacity;
    if (s->n_checkpoints < s->checkpoint_capacity)
        return MF_OK;
    mf_checkpoint_state *grown =
        mf_realloc(&s->engine->allocator, s->checkpoints, s->checkpoint_capacity * sizeof *grown,
                   n * sizeof *grown);
    if (grown == NULL)
        return mf_fail_memory(error, n * sizeof *grown, "checkpoints");
    s->checkpoints = grown;
    s->checkpoint_capacity = n;
    return MF_OK;
}

/* Drops old checkpoints until n_bytes more fit; the session's present newest, which will not be the
 * newest any more, may be among them. */
static mf_status make_room(mf_engine *e, uint64_t n_bytes, mf_error *error)
{
    if (n_bytes > e->checkpoint_limit)
        return mf_fail(error, MF_ERR_BUDGET,
                       "a checkpoint of %llu bytes does not fit checkpoint_bytes (%llu)",
                       (unsigned long long)n_bytes, (unsigned long long)e->checkpoint_limit);
    while (e->checkpoint_bytes > e->checkpoint_limit && mf_checkpoint_drop_oldest(e))
        continue;
    return MF_OK;
}

mf_status mf_checkpoint_take(mf_session *s, mf_error *error)
{
    mf_engine *e = s->engine;
    bool has_page = e->runner.plan.page_bytes != 0 && s->position % MF_PAGE_TOKENS != 0;
    mf_checkpoint_state c = {.position = s->position,
                             .last_use = ++e->n_uses,
                             .last_page = has_page ? s->pages[s->position / MF_PAGE_TOKENS] : 0,
                             .recurrent = s->recurrent};
    mf_checkpoint_state *same = mf_checkpoint_find(s, s->position);
    if (same != NULL && same->position == s->position) {
        same->last_use = c.last_use;
        return MF_OK;
    }
    MF_TRY(grow(s, error));
    if (s->has_logits) {
        c.logits = mf_alloc(&e->allocator, e->runner.h.n_vocab * sizeof *c.logits);
        if (c.logits == NULL)
            return mf_fail_memory(error, e->runner.h.n_vocab * sizeof *c.logits, "a checkpoint");
        memcpy(c.logits, s->logits, e->runner.h.n_vocab * sizeof *c.logits);
    }
    mf_status status = make_room(e, bytes_of(e, &c), error);
    if (status != MF_OK) {
        mf_free(&e->allocator, c.logits, e->runner.h.n_vocab * sizeof *c.logits);
        return status;
    }
    if (c.last_page != 0)
        mf_unit_hold(&e->pool, MF_UNIT_PAGE, c.last_page);
    if (c.recurrent != 0)
        mf_unit_hold(&e->pool, MF_UNIT_RECURRENT, c.recurrent);
    s->checkpoints[s->n_checkpoints++] = c;
    e->checkpoint_bytes += bytes_of(e, &c);
    return make_room(e, 0, error);
}

mf_status mf_checkpoint_save(mf_session *session, mf_error *error)
{
    if (session == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_checkpoint_save: session is NULL");
    mf_engine_lock(session->engine);
    mf_status status = mf_session_refuse(session, "mf_checkpoint_save", error);
    if (status == MF_OK)
        status = mf_checkpoint_take(session, error);
    mf_engine_unlock(session->engine);
    return status;
}

void mf_checkpoint_auto(mf_session *session, size_t n_tokens, int at_end)
{
    session->auto_tokens = n_tokens;
    session->auto_at_end = at_end != 0;
}

size_t mf_checkpoint_list(const mf_session *session, size_t *positions, size_t capacity)
{
    mf_engine_lock(session->engine);
    size_t n = session->n_checkpoints;
    for (size_t i = 0; positions != NULL && i < n && i < capacity; i++)
        positions[i] = (size_t)session->checkpoints[i].position;
    mf_engine_unlock(session->engine);
    return n;
}

static mf_status find_exactly(const mf_session *s, size_t position, mf_checkpoint_state **out,
                              mf_error *error)
{
    mf_checkpoint_state *c = mf_checkpoint_find(s, position);
    if (c == NULL || c->position != position)
        return mf_fail(error, MF_ERR_NOT_FOUND, "no checkpoint at token %zu", position);
    *out = c;
    return MF_OK;
}

mf_status mf_checkpoint_restore(mf_session *session, size_t position, mf_error *error)
{
    if (session == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_checkpoint_restore: session is NULL");
    mf_engine *e = session->engine;
    mf_checkpoint_state *c = NULL;
    mf_engine_lock(e);
    mf_status status = mf_session_refuse(session, "mf_checkpoint_restore", error);
    if (status == MF_OK)
        status = find_exactly(session, position, &c, error);
    if (status == MF_OK) {
        c->last_use = ++e->n_uses;
        mf_session_rewind(session, position, c->last_page, c->recurrent);
        if (c->logits != NULL) { /* the last one left, so it has not moved */
            memcpy(session->logits, c->logits, e->runner.h.n_vocab * sizeof *c->logits);
            session->has_logits = true;
        }
    }
    mf_engine_unlock(e);
    return status;
}

mf_status mf_checkpoint_drop(mf_session *session, size_t position, mf_error *error)
{
    if (session == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_checkpoint_drop: session is NULL");
    mf_checkpoint_state *c = NULL;
    mf_engine_lock(session->engine);
    mf_status status = mf_session_refuse(session, "mf_checkpoint_drop", error);
    if (status == MF_OK)
        status = find_exactly(session, position, &c, error);
    if (status == MF_OK)
        drop_at(session, (uint32_t)(c - session->checkpoints));
    mf_engine_unlock(session->engine);
    return status;
}

/* SPDX-License-Identifier: MIT */
/* States apart from sessions: held, built from bytes, and given to a session. */
#include "session/session.h"

#include <string.h>

/* ------------------------------------------------------------------------------------ holding --
 */

uint64_t mf_session_position_held(const mf_session *s, uint64_t at_most)
{
    if (s->position <= at_most)
        return s->position;
    if (s->engine->runner.plan.recurrent_bytes == 0)
        return at_most;
    const mf_mark *c = mf_mark_find(s, at_most);
    return c == NULL ? 0 : c->position;
}

bool mf_session_has_logits_at(const mf_session *s, uint64_t position)
{
    if (position == s->position)
        return s->has_logits;
    const mf_mark *c = mf_mark_find(s, position);
    return c != NULL && c->position == position && c->logits != NULL;
}

static void free_state(mf_engine *e, mf_state *st)
{
    const mf_allocator *a = &e->allocator;
    mf_free(a, st->tokens, (size_t)st->position * sizeof *st->tokens);
    mf_free(a, st->pages, mf_pages_of(st->position) * sizeof *st->pages);
    mf_free(a, st->logits, e->runner.h.n_vocab * sizeof *st->logits);
    mf_free(a, st, sizeof *st);
}

/* Without units. */
static mf_status make_state(mf_engine *e, const int32_t *tokens, uint64_t position, bool has_logits,
                            mf_state **out, mf_error *error)
{
    const mf_allocator *a = &e->allocator;
    mf_state *st = mf_alloc_zeroed(a, sizeof *st);
    if (st == NULL)
        return mf_fail_memory(error, sizeof *st, "a held state");
    st->engine = e;
    st->position = position;
    st->tokens = mf_alloc_array(a, (size_t)position, sizeof *st->tokens);
    st->pages = mf_alloc_array(a, mf_pages_of(position), sizeof *st->pages);
    st->logits = has_logits ? mf_alloc_array(a, e->runner.h.n_vocab, sizeof *st->logits) : NULL;
    if (st->tokens == NULL || st->pages == NULL || (has_logits && st->logits == NULL)) {
        free_state(e, st);
        return mf_fail_memory(error, (size_t)position * sizeof *st->tokens, "a held state");
    }
    memcpy(st->tokens, tokens, (size_t)position * sizeof *tokens);
    *out = st;
    return MF_OK;
}

/* What the session or its mark at this position refers to. */
static void refer(mf_session *s, mf_state *st, const mf_mark *c)
{
    mf_engine *e = s->engine;
    if (e->runner.plan.page_bytes != 0)
        st->n_pages = mf_pages_of(st->position);
    for (uint32_t i = 0; i < st->n_pages; i++) {
        bool is_last = i + 1 == st->n_pages && c != NULL && c->last_page != 0;
        st->pages[i] = is_last ? c->last_page : s->pages[i];
        mf_unit_hold(&e->pool, MF_UNIT_PAGE, st->pages[i]);
    }
    st->recurrent = c != NULL ? c->recurrent : s->recurrent;
    if (e->runner.plan.recurrent_bytes == 0 || st->position == 0)
        st->recurrent = 0;
    if (st->recurrent != 0)
        mf_unit_hold(&e->pool, MF_UNIT_RECURRENT, st->recurrent);
    if (st->logits != NULL)
        memcpy(st->logits, c != NULL ? c->logits : s->logits,
               e->runner.h.n_vocab * sizeof *st->logits);
}

mf_status mf_state_hold_locked(mf_session *s, uint64_t position, mf_state **out, mf_error *error)
{
    if (mf_session_position_held(s, position) != position)
        return mf_fail(error, MF_ERR_NOT_FOUND, "no state is held at token %llu",
                       (unsigned long long)position);
    mf_mark *c = NULL;
    if (position != s->position) {
        c = mf_mark_find(s, position);
        if (c != NULL && c->position != position)
            c = NULL;
    }
    mf_state *st = NULL;
    MF_TRY(make_state(s->engine, s->tokens, position, mf_session_has_logits_at(s, position), &st,
                      error));
    if (c != NULL)
        c->last_use = ++s->engine->n_uses;
    refer(s, st, c);
    *out = st;
    return MF_OK;
}

mf_status mf_state_hold(mf_session *session, uint64_t position, mf_state **out, mf_error *error)
{
    mf_engine_lock(session->engine);
    mf_status status = mf_state_hold_locked(session, position, out, error);
    mf_engine_unlock(session->engine);
    return status;
}

static void hold_mark(mf_state *st, const mf_mark *c)
{
    mf_unit_hold(&st->engine->pool, MF_UNIT_RECURRENT, c->recurrent);
    st->marks[st->n_marks] = c->position;
    st->mark_units[st->n_marks++] = c->recurrent;
}

/* All of the session's before this state's position, if they are at most n_max: whoever made them
 * by hand knew where. */
static bool hold_all(const mf_session *session, mf_state *st, uint32_t n_max)
{
    uint32_t n = 0;
    while (n < session->n_marks && session->marks[n].position < st->position)
        n++;
    if (n > n_max)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (session->marks[i].position > 0)
            hold_mark(st, &session->marks[i]);
    return true;
}

/* Of many, those near the end, where another question after the same text begins. */
static void hold_near_end(mf_session *session, mf_state *st, uint32_t n_max)
{
    enum { N = MF_STATE_MARKS };
    static const uint32_t eighths[N] = {4, 6, 7, 8};
    const mf_mark *last = NULL;
    for (uint32_t i = N - n_max; i < N; i++) {
        uint64_t most = i + 1 == N ? st->position - 1 : st->position * eighths[i] / 8;
        const mf_mark *c = mf_mark_find(session, most);
        if (c != NULL && c != last && c->position > 0)
            hold_mark(st, c);
        last = c;
    }
}

void mf_state_hold_marks(mf_session *session, mf_state *st, uint32_t n_max)
{
    if (st->engine->runner.plan.recurrent_bytes == 0 || st->position == 0)
        return;
    if (n_max > MF_STATE_MARKS)
        n_max = MF_STATE_MARKS;
    mf_engine_lock(st->engine);
    if (!hold_all(session, st, n_max))
        hold_near_end(session, st, n_max);
    mf_engine_unlock(st->engine);
}

static void drop_units(mf_state *st)
{
    mf_state_pool *pool = &st->engine->pool;
    while (st->n_pages > 0)
        mf_unit_drop(pool, MF_UNIT_PAGE, st->pages[--st->n_pages]);
    mf_unit_drop(pool, MF_UNIT_RECURRENT, st->recurrent);
    while (st->n_marks > 0)
        mf_unit_drop(pool, MF_UNIT_RECURRENT, st->mark_units[--st->n_marks]);
}

static mf_status take_units(mf_state *st, mf_error *error)
{
    mf_engine *e = st->engine;
    uint32_t n_pages = e->runner.plan.page_bytes != 0 ? mf_pages_of(st->position) : 0;
    for (; st->n_pages < n_pages; st->n_pages++)
        MF_TRY(mf_take_unit(e, MF_UNIT_PAGE, &st->pages[st->n_pages], error));
    if (e->runner.plan.recurrent_bytes != 0 && st->position != 0)
        MF_TRY(mf_take_unit(e, MF_UNIT_RECURRENT, &st->recurrent, error));
    return MF_OK;
}

mf_status mf_state_create(mf_engine *engine, const int32_t *tokens, uint64_t n_tokens,
                          bool has_logits, mf_state **out, mf_error *error)
{
    if (n_tokens > engine->runner.plan.n_context)
        return mf_fail(error, MF_ERR_CONTEXT, "%llu tokens do not fit the context of %u tokens",
                       (unsigned long long)n_tokens, engine->runner.plan.n_context);
    mf_state *st = NULL;
    MF_TRY(make_state(engine, tokens, n_tokens, has_logits, &st, error));
    mf_engine_lock(engine);
    mf_status status = take_units(st, error);
    mf_engine_unlock(engine);
    if (status != MF_OK) {
        mf_state_release(&st);
        return status;
    }
    *out = st;
    return MF_OK;
}

void mf_state_release(mf_state **state)
{
    mf_state *st = *state;
    if (st == NULL)
        return;
    mf_engine_lock(st->engine);
    drop_units(st);
    mf_engine_unlock(st->engine);
    free_state(st->engine, st);
    *state = NULL;
}

/* -------------------------------------------------------------------------------------- bytes --
 */

/* Where part i lies. */
typedef struct part_place {
    bool is_recurrent;
    uint32_t page;
    uint64_t offset, n_bytes;
} part_place;

/* The n-th of the layers' runs of bytes of one kind that are not empty; n_bytes 0 past the last. */
static part_place nth_run(const mf_engine *e, bool is_recurrent, uint32_t n)
{
    for (uint32_t i = 0; i < e->runner.h.n_layers; i++) {
        const mf_layer_state *l = &e->runner.layers[i];
        for (int j = 0; j < 2 && l->is_recurrent == is_recurrent; j++)
            if (l->n_bytes[j] != 0 && n-- == 0)
                return (part_place){is_recurrent, 0, l->offset[j], l->n_bytes[j]};
    }
    return (part_place){0};
}

static uint32_t count_runs(const mf_engine *e, bool is_recurrent)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->runner.h.n_layers; i++)
        for (int j = 0; j < 2; j++)
            n += e->runner.layers[i].is_recurrent == is_recurrent &&
                 e->runner.layers[i].n_bytes[j] != 0;
    return n;
}

static part_place place_of(const mf_engine *e, uint64_t position, uint32_t i)
{
    bool has_pages = e->runner.plan.page_bytes != 0;
    uint32_t n_full = has_pages ? (uint32_t)(position / MF_PAGE_TOKENS) : 0;
    uint64_t n_rows = has_pages ? position % MF_PAGE_TOKENS : 0;
    if (i < n_full)
        return (part_place){false, i, 0, e->runner.plan.page_bytes};
    i -= n_full;
    uint32_t n_runs = n_rows != 0 ? count_runs(e, false) : 0;
    if (i >= n_runs)
        return nth_run(e, true, i - n_runs);
    part_place place = nth_run(e, false, i);
    place.page = n_full;
    place.n_bytes *= n_rows;
    return place;
}

uint32_t mf_state_n_parts(const mf_engine *e, uint64_t position)
{
    uint32_t n = position != 0 ? count_runs(e, true) : 0;
    if (e->runner.plan.page_bytes == 0)
        return n;
    n += (uint32_t)(position / MF_PAGE_TOKENS);
    return position % MF_PAGE_TOKENS != 0 ? n + count_runs(e, false) : n;
}

uint64_t mf_state_part_bytes(const mf_engine *engine, uint64_t position, uint32_t i)
{
    return place_of(engine, position, i).n_bytes;
}

static mf_state_part part_in_unit(const mf_engine *engine, part_place place, mf_unit unit)
{
    mf_engine *e = (mf_engine *)engine; /* to be locked */
    mf_engine_lock(e);
    mf_span at =
        mf_unit_span(&e->pool, place.is_recurrent ? MF_UNIT_RECURRENT : MF_UNIT_PAGE, unit);
    mf_engine_unlock(e);
    return (mf_state_part){mf_span_at(at, place.offset), place.n_bytes};
}

mf_state_part mf_state_part_in(const mf_state *st, uint64_t position, uint32_t i)
{
    const part_place place = place_of(st->engine, position, i);
    return part_in_unit(st->engine, place,
                        place.is_recurrent ? st->recurrent : st->pages[place.page]);
}

mf_state_part mf_state_part_at(const mf_state *st, uint32_t i)
{
    return mf_state_part_in(st, st->position, i);
}

mf_state_part mf_state_recurrent_part(const mf_engine *e, mf_unit recurrent, uint32_t i)
{
    return part_in_unit(e, nth_run(e, true, i), recurrent);
}

uint32_t mf_state_n_recurrent_parts(const mf_engine *e)
{
    return count_runs(e, true);
}

uint32_t mf_state_n_page_parts(const mf_engine *e, uint64_t position, uint64_t n_tokens)
{
    uint32_t n_full = (uint32_t)(position / MF_PAGE_TOKENS), n = mf_pages_of(n_tokens);
    if (e->runner.plan.page_bytes == 0)
        return 0;
    return n <= n_full ? n : n_full + count_runs(e, false);
}

uint64_t mf_state_bytes(const mf_engine *e, uint64_t position)
{
    uint64_t n_bytes = 0;
    for (uint32_t i = 0, n = mf_state_n_parts(e, position); i < n; i++)
        n_bytes += mf_state_part_bytes(e, position, i);
    return n_bytes;
}

/* ------------------------------------------------------------------------------------- giving --
 */

static uint64_t common_prefix(const mf_session *s, const mf_state *st)
{
    uint64_t n = 0, end = s->position < st->position ? s->position : st->position;
    while (n < end && s->tokens[n] == st->tokens[n])
        n++;
    return n;
}

/* Pages before the common prefix's last full one are the session's own where marks need them:
 * they hold the same bits as the state's. */
static void take_over(mf_session *s, const mf_state *st)
{
    mf_engine *e = s->engine;
    mf_state_pool *pool = &e->pool;
    uint64_t n_same = common_prefix(s, st);
    mf_mark_drop_beyond(s, n_same);
    uint32_t n_kept = s->n_marks == 0 ? 0 : (uint32_t)(n_same / MF_PAGE_TOKENS);
    n_kept = n_kept < s->n_pages ? n_kept : s->n_pages;
    for (uint32_t i = n_kept; i < st->n_pages; i++)
        mf_unit_hold(pool, MF_UNIT_PAGE, st->pages[i]);
    if (st->recurrent != 0)
        mf_unit_hold(pool, MF_UNIT_RECURRENT, st->recurrent);
    while (s->n_pages > n_kept)
        mf_unit_drop(pool, MF_UNIT_PAGE, s->pages[--s->n_pages]);
    for (; s->n_pages < st->n_pages; s->n_pages++) {
        s->pages[s->n_pages] = st->pages[s->n_pages];
        s->page_spans[s->n_pages] = mf_unit_span(pool, MF_UNIT_PAGE, st->pages[s->n_pages]);
    }
    mf_unit_drop(pool, MF_UNIT_RECURRENT, s->recurrent);
    s->recurrent = st->recurrent;
    s->recurrent_span = mf_unit_span(pool, MF_UNIT_RECURRENT, s->recurrent);
    memcpy(s->tokens, st->tokens, (size_t)st->position * sizeof *st->tokens);
    s->position = st->position;
    s->has_logits = st->logits != NULL;
    if (s->has_logits)
        memcpy(s->logits, st->logits, e->runner.h.n_vocab * sizeof *s->logits);
    mf_session_tell_change(s, n_same);
}

mf_status mf_session_adopt(mf_session *session, const mf_state *state, mf_error *error)
{
    mf_engine_lock(session->engine);
    mf_status status = mf_session_reserve_tokens(session, state->position, error);
    if (status == MF_OK)
        take_over(session, state);
    mf_engine_unlock(session->engine);
    return status;
}

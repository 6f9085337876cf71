/* SPDX-License-Identifier: MIT */
/* States apart from sessions: held, built from bytes, and given to a session. */
#include "session/session_draft.h"

#include <string.h>

/* ----------------------------------------------------------------------------------- holding -- */

bool mf_session_reaches(const mf_session *s, uint64_t position)
{
    const mf_plan *p = &s->engine->runner.plan;
    if (p->recurrent_bytes != 0)
        return position == s->position;
    return p->window_bytes == 0 ||
           mf_window_first(p->window, position) >= s->pages[MF_UNIT_WINDOW].first;
}

uint32_t mf_engine_mark_pages(const mf_engine *e)
{
    const mf_plan *p = &e->runner.plan;
    return p->window_bytes != 0 ? mf_pages_of(p->window) + MF_WINDOW_PAGES : 0;
}

bool mf_state_reaches_back(const mf_engine *e, uint64_t held, uint64_t position)
{
    const mf_plan *p = &e->runner.plan;
    if (position == held || p->recurrent_bytes != 0)
        return position == held;
    return position < held && (p->window_bytes == 0 || mf_window_first(p->window, position) >=
                                                           mf_window_first(p->window, held));
}

uint64_t mf_session_position_held(const mf_session *s, uint64_t at_most)
{
    if (s->position <= at_most)
        return s->position;
    if (mf_session_reaches(s, at_most))
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
    for (int k = 0; k < MF_N_PAGE_KINDS; k++)
        mf_free(a, st->pages[k], mf_pages_of(st->position) * sizeof *st->pages[k]);
    mf_free(a, st->logits, e->runner.h.n_vocab * sizeof *st->logits);
    mf_free(a, st->mark_pages,
            (size_t)MF_STATE_MARKS * mf_engine_mark_pages(e) * sizeof *st->mark_pages);
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
    for (int k = 0; k < MF_N_PAGE_KINDS; k++)
        st->pages[k] = mf_alloc_array(a, mf_pages_of(position), sizeof *st->pages[k]);
    st->logits = has_logits ? mf_alloc_array(a, e->runner.h.n_vocab, sizeof *st->logits) : NULL;
    if (st->tokens == NULL || st->pages[0] == NULL || st->pages[1] == NULL ||
        (has_logits && st->logits == NULL)) {
        free_state(e, st);
        return mf_fail_memory(error, (size_t)position * sizeof *st->tokens, "a held state");
    }
    memcpy(st->tokens, tokens, (size_t)position * sizeof *tokens);
    *out = st;
    return MF_OK;
}

/* The pages are the mark's from its first one on, if there is a mark, and the session's before; of
 * windows those that are kept at this position, if they are held. */
static void refer_to_pages(mf_session *s, mf_state *st, const mf_mark *c, mf_unit_kind kind)
{
    mf_engine *e = s->engine;
    const mf_page_table *t = &s->pages[kind];
    uint32_t first = 0, marked = UINT32_MAX, n_marked = 0;
    const mf_unit *units = c != NULL ? mf_mark_pages(c, kind, &marked, &n_marked) : NULL;
    if (kind == MF_UNIT_WINDOW) {
        const uint32_t held = t->first < marked ? t->first : marked;
        first = mf_window_kept(e->runner.plan.window, st->position);
        first = first > held ? first : held;
    }
    st->first_page[kind] = first;
    st->n_pages[kind] = mf_pages_of(st->position);
    for (uint32_t i = first; i < st->n_pages[kind]; i++) {
        const mf_unit unit = units != NULL && i >= marked ? units[i - marked] : t->units[i];
        st->pages[kind][i - first] = unit;
        mf_unit_hold(&e->pool, kind, unit);
    }
}

/* What the session or its mark at this position refers to. */
static void refer(mf_session *s, mf_state *st, const mf_mark *c)
{
    mf_engine *e = s->engine;
    for (int k = 0; k < MF_N_PAGE_KINDS; k++)
        if (e->pool.kinds[k].unit_bytes != 0)
            refer_to_pages(s, st, c, k);
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

/* The pages of windows that a row at the mark's position reaches: the mark's own, and the session's
 * before. */
static void hold_mark_pages(const mf_session *s, const mf_mark *c, mf_unit *out)
{
    mf_engine *e = s->engine;
    const uint32_t n = mf_engine_mark_pages(e), end = mf_pages_of(c->position);
    uint32_t marked, n_marked, page = mf_window_first(e->runner.plan.window, c->position);
    const mf_unit *units = mf_mark_pages(c, MF_UNIT_WINDOW, &marked, &n_marked);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = page >= marked && n_marked != 0 ? units[page - marked]
                                                 : s->pages[MF_UNIT_WINDOW].units[page];
        mf_unit_hold(&e->pool, MF_UNIT_WINDOW, out[i]);
        page += page + 1 < end;
    }
}

static void hold_mark(const mf_session *s, mf_state *st, const mf_mark *c)
{
    if (c->recurrent != 0)
        mf_unit_hold(&st->engine->pool, MF_UNIT_RECURRENT, c->recurrent);
    if (st->mark_pages != NULL)
        hold_mark_pages(s, c, st->mark_pages + st->n_marks * mf_engine_mark_pages(st->engine));
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
            hold_mark(session, st, &session->marks[i]);
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
            hold_mark(session, st, c);
        last = c;
    }
}

void mf_state_hold_marks(mf_session *session, mf_state *st, uint32_t n_max)
{
    mf_engine *e = st->engine;
    const size_t n_pages = (size_t)MF_STATE_MARKS * mf_engine_mark_pages(e);
    if (st->position == 0 || mf_state_reaches_back(e, st->position, 0))
        return;
    if (n_max > MF_STATE_MARKS)
        n_max = MF_STATE_MARKS;
    if (n_pages != 0) {
        st->mark_pages = mf_alloc_array(&e->allocator, n_pages, sizeof *st->mark_pages);
        if (st->mark_pages == NULL)
            return;
    }
    mf_engine_lock(st->engine);
    if (!hold_all(session, st, n_max))
        hold_near_end(session, st, n_max);
    mf_engine_unlock(st->engine);
}

static void drop_units(mf_state *st)
{
    mf_state_pool *pool = &st->engine->pool;
    for (int k = 0; k < MF_N_PAGE_KINDS; k++)
        while (st->n_pages[k] > st->first_page[k])
            mf_unit_drop(pool, k, st->pages[k][--st->n_pages[k] - st->first_page[k]]);
    mf_unit_drop(pool, MF_UNIT_RECURRENT, st->recurrent);
    const uint32_t n_pages = st->mark_pages != NULL ? mf_engine_mark_pages(st->engine) : 0;
    while (st->n_marks > 0) {
        mf_unit_drop(pool, MF_UNIT_RECURRENT, st->mark_units[--st->n_marks]);
        for (uint32_t i = 0; i < n_pages; i++)
            mf_unit_drop(pool, MF_UNIT_WINDOW, st->mark_pages[st->n_marks * n_pages + i]);
    }
}

/* The first page of a state's bytes: what lies before it, no row reads any more. */
static uint32_t first_page_of(const mf_engine *e, mf_unit_kind kind, uint64_t position)
{
    return kind == MF_UNIT_WINDOW ? mf_window_first(e->runner.plan.window, position) : 0;
}

static mf_status take_units(mf_state *st, mf_error *error)
{
    mf_engine *e = st->engine;
    for (int k = 0; k < MF_N_PAGE_KINDS; k++) {
        const uint32_t n = e->pool.kinds[k].unit_bytes != 0 ? mf_pages_of(st->position) : 0;
        const uint32_t first = n != 0 ? first_page_of(e, k, st->position) : 0;
        st->first_page[k] = st->n_pages[k] = first;
        for (; st->n_pages[k] < n; st->n_pages[k]++)
            MF_TRY(mf_take_unit(e, k, &st->pages[k][st->n_pages[k] - first], error));
    }
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

/* ------------------------------------------------------------------------------------- bytes -- */

/* Where part i lies. */
typedef struct part_place {
    mf_unit_kind kind;
    uint32_t page;
    uint64_t offset, n_bytes;
} part_place;

/* The n-th of the layers' runs of bytes of one kind, of n_rows positions of a page, that are not
 * empty; n_bytes 0 past the last, *n_runs of them before. */
static part_place find_run(const mf_engine *e, mf_unit_kind kind, uint64_t n_rows, uint32_t n,
                           uint32_t *n_runs)
{
    *n_runs = 0;
    for (uint32_t i = 0; i < e->runner.h.n_layers; i++) {
        const mf_layer_state *l = &e->runner.layers[i];
        for (uint32_t j = 0; j < MF_MOST_KEPT; j++) {
            const uint64_t n_bytes = l->unit[j] == kind ? mf_kept_bytes(l, j, n_rows) : 0;
            if (n_bytes != 0 && (*n_runs)++ == n)
                return (part_place){kind, 0, l->offset[j], n_bytes};
        }
    }
    return (part_place){.kind = kind};
}

static part_place nth_run(const mf_engine *e, mf_unit_kind kind, uint64_t n_rows, uint32_t n)
{
    uint32_t n_runs;
    return find_run(e, kind, n_rows, n, &n_runs);
}

static uint32_t count_runs(const mf_engine *e, mf_unit_kind kind, uint64_t n_rows)
{
    uint32_t n_runs;
    (void)find_run(e, kind, n_rows, UINT32_MAX, &n_runs);
    return n_runs;
}

/* Whole pages, and the runs of one that is not full; of recurrent states their runs. */
static uint32_t count_parts(const mf_engine *e, mf_unit_kind kind, uint64_t position)
{
    if (e->pool.kinds[kind].unit_bytes == 0 || position == 0)
        return 0;
    if (kind == MF_UNIT_RECURRENT)
        return count_runs(e, kind, 0);
    const uint32_t n = (uint32_t)(position / MF_PAGE_TOKENS) - first_page_of(e, kind, position);
    const uint64_t n_rows = position % MF_PAGE_TOKENS;
    return n_rows != 0 ? n + count_runs(e, kind, n_rows) : n;
}

/* Part i of those of a kind. */
static part_place place_in_kind(const mf_engine *e, mf_unit_kind kind, uint64_t position,
                                uint32_t i)
{
    if (kind == MF_UNIT_RECURRENT)
        return nth_run(e, kind, 0, i);
    const uint32_t first = first_page_of(e, kind, position);
    const uint32_t n_full = (uint32_t)(position / MF_PAGE_TOKENS);
    if (i < n_full - first)
        return (part_place){kind, first + i, 0, e->pool.kinds[kind].unit_bytes};
    part_place place = nth_run(e, kind, position % MF_PAGE_TOKENS, i - (n_full - first));
    place.page = n_full;
    return place;
}

static part_place place_of(const mf_engine *e, uint64_t position, uint32_t i)
{
    for (mf_unit_kind k = 0; k < MF_UNIT_RECURRENT; k++) {
        const uint32_t n = count_parts(e, k, position);
        if (i < n)
            return place_in_kind(e, k, position, i);
        i -= n;
    }
    return nth_run(e, MF_UNIT_RECURRENT, 0, i);
}

uint32_t mf_state_n_parts(const mf_engine *e, uint64_t position)
{
    uint32_t n = 0;
    for (mf_unit_kind k = 0; k < MF_N_UNIT_KINDS; k++)
        n += count_parts(e, k, position);
    return n;
}

uint64_t mf_state_part_bytes(const mf_engine *engine, uint64_t position, uint32_t i)
{
    return place_of(engine, position, i).n_bytes;
}

static mf_state_part part_in_unit(const mf_engine *engine, part_place place, mf_unit unit)
{
    mf_engine *e = (mf_engine *)engine; /* to be locked */
    mf_engine_lock(e);
    mf_span at = mf_unit_span(&e->pool, place.kind, unit);
    mf_engine_unlock(e);
    return (mf_state_part){mf_span_at(at, place.offset), place.n_bytes};
}

mf_state_part mf_state_part_in(const mf_state *st, uint64_t position, uint32_t i)
{
    const part_place place = place_of(st->engine, position, i);
    const mf_unit unit = place.kind == MF_UNIT_RECURRENT
                             ? st->recurrent
                             : st->pages[place.kind][place.page - st->first_page[place.kind]];
    return part_in_unit(st->engine, place, unit);
}

mf_state_part mf_state_part_at(const mf_state *st, uint32_t i)
{
    return mf_state_part_in(st, st->position, i);
}

/* Part i of a mark's. */
static part_place place_in_mark(const mf_engine *e, uint32_t i)
{
    const uint32_t n = mf_engine_mark_pages(e);
    if (i >= n)
        return nth_run(e, MF_UNIT_RECURRENT, 0, i - n);
    return (part_place){MF_UNIT_WINDOW, i, 0, e->pool.kinds[MF_UNIT_WINDOW].unit_bytes};
}

uint32_t mf_state_n_mark_parts(const mf_engine *e)
{
    return mf_engine_mark_pages(e) + count_runs(e, MF_UNIT_RECURRENT, 0);
}

uint64_t mf_state_mark_part_bytes(const mf_engine *engine, uint32_t i)
{
    return place_in_mark(engine, i).n_bytes;
}

mf_state_part mf_state_mark_part(const mf_state *st, uint32_t k, uint32_t i)
{
    const part_place place = place_in_mark(st->engine, i);
    const mf_unit unit = place.kind == MF_UNIT_RECURRENT
                             ? st->mark_units[k]
                             : st->mark_pages[k * mf_engine_mark_pages(st->engine) + i];
    return part_in_unit(st->engine, place, unit);
}

mf_state_part mf_state_part_of_mark(const mf_state *st, uint32_t i)
{
    const part_place place = place_in_mark(st->engine, i);
    if (place.kind == MF_UNIT_RECURRENT)
        return part_in_unit(st->engine, place, st->recurrent);
    const uint32_t last = st->n_pages[MF_UNIT_WINDOW] - st->first_page[MF_UNIT_WINDOW] - 1;
    return part_in_unit(st->engine, place, st->pages[MF_UNIT_WINDOW][i < last ? i : last]);
}

mf_state_run mf_state_window_parts(const mf_engine *e, uint64_t position, uint64_t n_tokens)
{
    const uint32_t before = count_parts(e, MF_UNIT_PAGE, position);
    const uint32_t n = count_parts(e, MF_UNIT_WINDOW, position);
    if (n == 0)
        return (mf_state_run){before, before};
    const uint32_t first = first_page_of(e, MF_UNIT_WINDOW, position);
    const uint32_t end = mf_pages_of(n_tokens);
    return (mf_state_run){before + first_page_of(e, MF_UNIT_WINDOW, n_tokens) - first,
                          end <= position / MF_PAGE_TOKENS ? before + end - first : before + n};
}

mf_state_run mf_state_recurrent_parts(const mf_engine *e, uint64_t position)
{
    const uint32_t n = mf_state_n_parts(e, position);
    return (mf_state_run){n - count_parts(e, MF_UNIT_RECURRENT, position), n};
}

uint32_t mf_state_n_page_parts(const mf_engine *e, uint64_t position, uint64_t n_tokens)
{
    uint32_t n_full = (uint32_t)(position / MF_PAGE_TOKENS), n = mf_pages_of(n_tokens);
    if (e->runner.plan.page_bytes == 0)
        return 0;
    return n <= n_full ? n : n_full + count_runs(e, MF_UNIT_PAGE, position % MF_PAGE_TOKENS);
}

uint64_t mf_state_bytes(const mf_engine *e, uint64_t position)
{
    uint64_t n_bytes = 0;
    for (uint32_t i = 0, n = mf_state_n_parts(e, position); i < n; i++)
        n_bytes += mf_state_part_bytes(e, position, i);
    return n_bytes;
}

/* ------------------------------------------------------------------------------------ giving -- */

static uint64_t common_prefix(const mf_session *s, const mf_state *st)
{
    uint64_t n = 0, end = s->position < st->position ? s->position : st->position;
    while (n < end && s->tokens[n] == st->tokens[n])
        n++;
    return n;
}

/* Pages before the common prefix's last full one are the session's own where marks need them:
 * they hold the same bits as the state's. Of windows both may have given some back: where the
 * session has, of those that the state has, all are the state's. */
static void take_over_pages(mf_session *s, const mf_state *st, mf_unit_kind kind, uint64_t n_same)
{
    const uint32_t first = st->first_page[kind], end = st->n_pages[kind];
    uint32_t n_kept = s->n_marks == 0 ? 0 : (uint32_t)(n_same / MF_PAGE_TOKENS);
    n_kept = n_kept < s->pages[kind].n ? n_kept : s->pages[kind].n;
    if (n_kept < first || s->pages[kind].first > first)
        n_kept = first;
    for (uint32_t i = n_kept; i < end; i++)
        mf_unit_hold(&s->engine->pool, kind, st->pages[kind][i - first]);
    mf_session_end_pages(s, kind, n_kept == first ? 0 : n_kept);
    if (n_kept == first)
        s->pages[kind].first = s->pages[kind].n = first;
    for (uint32_t i = n_kept; i < end; i++)
        mf_session_add_page(s, kind, st->pages[kind][i - first]);
}

static void take_over(mf_session *s, const mf_state *st)
{
    mf_engine *e = s->engine;
    mf_state_pool *pool = &e->pool;
    uint64_t n_same = common_prefix(s, st);
    mf_draft_forget(s);
    mf_mark_drop_beyond(s, n_same);
    for (int k = 0; k < MF_N_PAGE_KINDS; k++)
        if (e->pool.kinds[k].unit_bytes != 0)
            take_over_pages(s, st, k, n_same);
    if (st->recurrent != 0)
        mf_unit_hold(pool, MF_UNIT_RECURRENT, st->recurrent);
    mf_unit_drop(pool, MF_UNIT_RECURRENT, s->recurrent);
    s->recurrent = st->recurrent;
    s->recurrent_span = mf_unit_span(pool, MF_UNIT_RECURRENT, s->recurrent);
    memcpy(s->tokens, st->tokens, (size_t)st->position * sizeof *st->tokens);
    s->position = st->position;
    s->n_long_left = 0; /* what comes next follows the state, not the run that was cut */
    s->has_logits = st->logits != NULL;
    s->has_bounds = false;
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

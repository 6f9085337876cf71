/* SPDX-License-Identifier: MIT */
/*
 * Every session has a record, and an entry in the tree for each position that it can be held at:
 * its own and, in families with recurrent layers, those of its marks. (Without such layers every
 * position can be held, so that its own entry says all.) Evaluation only marks records as changed;
 * their entries are made again by the next lookup. In families with windows and without recurrent
 * layers each session is asked.
 */
#include "session/session_index.h"

#include "session/session.h"
#include "state/prefix_index.h"

#include <string.h>

typedef struct record {
    mf_session *session; /* NULL: free */
    bool is_changed;
    uint64_t held; /* hash of the positions that the entries are of */
    mf_prefix_entry **entries;
    size_t n_entries, capacity;
} record;

struct mf_session_index {
    mf_allocator allocator;
    mf_prefix_index *tree;
    record *records;
    size_t n_records;
};

static void drop_entries(mf_session_index *index, record *r)
{
    while (r->n_entries > 0)
        mf_prefix_remove(index->tree, r->entries[--r->n_entries]);
}

static void drop_record(mf_session_index *index, record *r)
{
    drop_entries(index, r);
    mf_free(&index->allocator, r->entries, r->capacity * sizeof *r->entries);
    *r = (record){0};
}

static record *record_of(const mf_session_index *index, const mf_session *session)
{
    for (size_t i = 0; i < index->n_records; i++)
        if (index->records[i].session == session)
            return &index->records[i];
    return NULL;
}

static void on_change(void *user, mf_session *session, uint64_t n_kept)
{
    mf_session_index *index = user;
    record *r = record_of(index, session);
    (void)n_kept;
    if (r == NULL)
        return;
    r->is_changed = true;
    if (session->position == 0) /* it may be its end */
        drop_record(index, r);
}

static mf_session_index *make(mf_engine *e)
{
    const mf_allocator *a = &e->allocator;
    mf_session_index *index = mf_alloc_zeroed(a, sizeof *index);
    if (index == NULL)
        return NULL;
    index->allocator = *a;
    index->n_records = e->options.n_sessions;
    index->records = mf_alloc_array(a, index->n_records, sizeof *index->records);
    if (index->records == NULL || mf_prefix_index_create(a, &index->tree, NULL) != MF_OK) {
        mf_session_index_free(&index);
        return NULL;
    }
    return index;
}

void mf_session_index_free(mf_session_index **index)
{
    mf_session_index *i = *index;
    if (i == NULL)
        return;
    const mf_allocator a = i->allocator;
    if (i->records != NULL)
        for (size_t k = 0; k < i->n_records; k++)
            drop_record(i, &i->records[k]);
    mf_free(&a, i->records, i->n_records * sizeof *i->records);
    mf_prefix_index_free(&i->tree);
    mf_free(&a, i, sizeof *i);
    *index = NULL;
}

static uint64_t hash_of_held(const mf_session *s)
{
    uint64_t hash = s->position;
    for (uint32_t i = 0; i < s->n_marks; i++)
        hash = hash * UINT64_C(0x9E3779B97F4A7C15) + s->marks[i].position + 1;
    return hash;
}

static bool add_entry(mf_session_index *index, record *r, uint64_t position)
{
    const mf_allocator *a = &index->allocator;
    if (position == 0)
        return true;
    if (r->n_entries == r->capacity) {
        size_t capacity = r->capacity == 0 ? 4 : 2 * r->capacity;
        mf_prefix_entry **entries =
            mf_realloc(a, r->entries, r->capacity * sizeof *entries, capacity * sizeof *entries);
        if (entries == NULL)
            return false;
        r->entries = entries;
        r->capacity = capacity;
    }
    if (mf_prefix_insert(index->tree, r->session->tokens, (size_t)position, r->session,
                         &r->entries[r->n_entries], NULL) != MF_OK)
        return false;
    r->n_entries++;
    return true;
}

/* Entries of the present state. Without memory the record stays marked. */
static void bring_up_to_date(mf_session_index *index, record *r)
{
    const mf_session *s = r->session;
    uint64_t held = hash_of_held(s);
    if (!r->is_changed && r->held == held)
        return;
    drop_entries(index, r);
    bool good = add_entry(index, r, s->position);
    if (!mf_engine_keeps_all(s->engine))
        for (uint32_t i = 0; i < s->n_marks && good; i++)
            if (s->marks[i].position != s->position)
                good = add_entry(index, r, s->marks[i].position);
    r->held = held;
    r->is_changed = !good;
}

static void bring_all_up_to_date(mf_engine *e)
{
    mf_session_index *index = e->session_index;
    for (mf_session *s = mf_engine_next_session(e, NULL); s != NULL;
         s = mf_engine_next_session(e, s)) {
        record *r = record_of(index, s);
        if (r == NULL && s->position > 0 && (r = record_of(index, NULL)) != NULL)
            *r = (record){.session = s, .is_changed = true};
        if (r != NULL)
            bring_up_to_date(index, r);
    }
}

/* The best entry for these tokens; entries of `except` are out of the tree meanwhile. */
static mf_session *search(mf_engine *e, const int32_t *tokens, size_t n_tokens, uint64_t *position)
{
    const mf_prefix_index *tree = e->session_index->tree;
    const mf_prefix_match m = mf_engine_keeps_all(e) ? mf_prefix_find_common(tree, tokens, n_tokens)
                                                     : mf_prefix_find_whole(tree, tokens, n_tokens);
    *position = m.value == NULL ? 0 : m.n_common;
    return m.value;
}

/* The tree has one of those that hold the same tokens. */
static mf_session *find_with_logits(mf_engine *e, const mf_session *except, const int32_t *tokens,
                                    size_t n_tokens)
{
    for (mf_session *s = mf_engine_next_session(e, NULL); s != NULL;
         s = mf_engine_next_session(e, s))
        if (s != except && s->position >= n_tokens && mf_session_has_logits_at(s, n_tokens) &&
            memcmp(s->tokens, tokens, n_tokens * sizeof *tokens) == 0)
            return s;
    return NULL;
}

uint64_t mf_session_usable(const mf_session *s, const int32_t *tokens, size_t n_tokens)
{
    uint64_t n = 0;
    const uint64_t end = s->position < n_tokens ? s->position : n_tokens;
    while (n < end && s->tokens[n] == tokens[n])
        n++;
    n = mf_session_position_held(s, n);
    if (n == n_tokens && !mf_session_has_logits_at(s, n))
        n = mf_session_position_held(s, n - 1);
    return n;
}

/* How far back a window reaches is each session's own, which no tree of tokens says. */
static mf_session *ask_each(mf_engine *e, const mf_session *except, const int32_t *tokens,
                            size_t n_tokens, uint64_t *position)
{
    mf_session *best = NULL;
    for (mf_session *s = mf_engine_next_session(e, NULL); s != NULL;
         s = mf_engine_next_session(e, s)) {
        const uint64_t n = s != except ? mf_session_usable(s, tokens, n_tokens) : 0;
        if (n > *position) {
            *position = n;
            best = s;
        }
    }
    return best;
}

mf_session *mf_session_index_find(mf_engine *engine, const mf_session *except,
                                  const int32_t *tokens, size_t n_tokens, uint64_t *position)
{
    *position = 0;
    if (!mf_engine_keeps_all(engine) && engine->runner.plan.recurrent_bytes == 0)
        return ask_each(engine, except, tokens, n_tokens, position);
    if (engine->session_index == NULL) {
        engine->session_index = make(engine);
        if (engine->session_index == NULL)
            return NULL;
        engine->tokens_changed = on_change;
        engine->tokens_changed_user = engine->session_index;
    }
    mf_session_index *index = engine->session_index;
    bring_all_up_to_date(engine);
    record *own = record_of(index, except);
    if (own != NULL) {
        drop_entries(index, own);
        own->is_changed = true;
    }
    mf_session *found = search(engine, tokens, n_tokens, position);
    if (found != NULL && *position == n_tokens && !mf_session_has_logits_at(found, *position)) {
        mf_session *other = find_with_logits(engine, except, tokens, n_tokens);
        found = other != NULL ? other : search(engine, tokens, n_tokens - 1, position);
    }
    return *position != 0 ? found : NULL;
}

/* SPDX-License-Identifier: MIT */
/*
 * mf_session_reuse takes over the longest beginning of the tokens that anyone holds;
 * mf_session_sync evaluates the rest too. A state that holds all of the tokens serves only with the
 * logits of the last one; else that token is evaluated again.
 */
#include "session/session_call.h"
#include "session/session_index.h"
#include "session/snapshot.h"
#include "state/state_store.h"

#include <string.h>

/* Entries of the store that fail one after the other before it is left alone. */
#define MAX_TRIES 8

typedef struct sync_job {
    mf_session *session;
    mf_engine *engine;
    const int32_t *tokens;
    size_t n_tokens;
    mf_sync_source source;
    uint64_t n_reused;
    mf_snapshot_key key; /* where there is a store */
} sync_job;

static void forget(mf_session *s)
{
    mf_engine_lock(s->engine);
    mf_session_drop_all(s);
    mf_engine_unlock(s->engine);
}

/* From the engine's sessions, this one among them. */
static mf_status reuse_memory(sync_job *job, mf_error *error)
{
    mf_engine *e = job->engine;
    mf_state *state = NULL;
    mf_status status = MF_OK;
    uint64_t position = 0;
    mf_engine_lock(e);
    uint64_t own = mf_session_usable(job->session, job->tokens, job->n_tokens);
    mf_session *other =
        mf_session_index_find(e, job->session, job->tokens, job->n_tokens, &position);
    bool from_other = other != NULL && position > own;
    position = from_other ? position : own;
    bool stays = !from_other && own == job->session->position;
    if (!stays && position > 0)
        status = mf_state_hold_locked(from_other ? other : job->session, position, &state, error);
    mf_engine_unlock(e);
    MF_TRY(status);
    if (state != NULL)
        status = mf_session_adopt(job->session, state, error);
    else if (!stays)
        forget(job->session);
    mf_state_release(&state);
    MF_TRY(status);
    job->n_reused = position;
    job->source = position == 0 ? MF_SYNC_NONE : from_other ? MF_SYNC_SESSION : MF_SYNC_SELF;
    return MF_OK;
}

static bool reaches(const void *engine, uint64_t n_tokens, uint64_t n_common)
{
    return mf_state_reaches_back(engine, n_tokens, n_common);
}

/* The entry of the store that gives the most beyond what is held already, and how much. */
static bool find_stored(const sync_job *job, mf_store *store, mf_store_match *match,
                        uint64_t *n_usable)
{
    bool whole = !mf_engine_keeps_all(job->engine);
    size_t least = (size_t)job->n_reused, n = job->n_tokens;
    mf_store_query query = {.key = &job->key,
                            .tokens = job->tokens,
                            .n_tokens = n,
                            .n_least = least,
                            .whole = whole,
                            .reaches = reaches,
                            .ctx = job->engine};
    if (!mf_store_find(store, &query, match))
        return false;
    *n_usable = match->n_common;
    if (match->n_common < n || (match->n_tokens == n && match->has_logits))
        return true;
    *n_usable = query.n_tokens = n - 1;
    return whole ? n - 1 > least && mf_store_find(store, &query, match) &&
                       (*n_usable = match->n_common) > least
                 : n - 1 > least;
}

/* The entry's state after its first n_usable tokens, of which nothing else is read. The header has
 * been. */
static mf_status read_state(const sync_job *job, mf_state_reader *reader, mf_snapshot_head *head,
                            uint64_t n_usable, mf_state **out, mf_error *error)
{
    mf_engine *e = job->engine;
    int32_t *tokens = NULL;
    mf_snapshot_extent extent;
    MF_TRY(mf_snapshot_load_tokens(e, head, &reader->source, &tokens, error));
    bool is_it = head->n_tokens >= n_usable &&
                 memcmp(tokens, job->tokens, (size_t)n_usable * sizeof *tokens) == 0;
    mf_status status = MF_OK;
    if (!is_it || mf_snapshot_find_extent(e, head, n_usable, &extent, NULL) != MF_OK)
        status = mf_fail(error, MF_ERR_FORMAT, "the entry was exchanged for another");
    if (status == MF_OK) {
        mf_state_reader_skip(reader, extent.gap, extent.gap_end);
        mf_state_reader_extend(reader, extent.end);
        const mf_snapshot_body body = {head, tokens, &reader->source};
        status = mf_snapshot_read(e, &body, &extent, out, error);
    }
    mf_snapshot_free_tokens(e, head, &tokens);
    return status;
}

static mf_status read_entry(const sync_job *job, mf_state_reader *reader,
                            const mf_store_match *match, uint64_t n_usable, mf_state **out,
                            mf_error *error)
{
    mf_snapshot_head head;
    if (match->n_tokens == n_usable) /* all of it will be wanted: reading begins at once */
        mf_state_reader_extend(reader, match->state_end);
    MF_TRY(mf_snapshot_read_header(&reader->source, &head, error));
    mf_status status = mf_snapshot_check(job->engine, &head, error);
    if (status == MF_ERR_UNSUPPORTED) /* its tokens were found under this engine's key */
        return mf_fail(error, MF_ERR_FORMAT, "the entry was exchanged for another");
    MF_TRY(status);
    return read_state(job, reader, &head, n_usable, out, error);
}

/* Gives the state to the session, which makes a mark of it where it makes them by itself:
 * what it is stored with later can then be taken up there again. */
static mf_status take_state(sync_job *job, const mf_state *state, mf_error *error)
{
    mf_session *s = job->session;
    MF_TRY(mf_session_adopt(s, state, error));
    if (s->auto_tokens != 0 && !mf_engine_keeps_all(job->engine)) {
        mf_engine_lock(s->engine);
        (void)!mf_mark_take(s, NULL); /* one that does not fit is left out */
        mf_engine_unlock(s->engine);
    }
    job->n_reused = state->position;
    job->source = MF_SYNC_STORE;
    return MF_OK;
}

/* Nothing that goes wrong here is an error: the tokens can be evaluated. */
static void reuse_store(sync_job *job)
{
    mf_engine_lock(job->engine);
    mf_store *store = job->engine->prefix_store;
    mf_engine_unlock(job->engine);
    if (store == NULL || mf_engine_snapshot_key(job->engine, &job->key, NULL) != MF_OK)
        return;
    for (int i = 0; i < MAX_TRIES; i++) {
        mf_store_match match;
        mf_state_reader *reader;
        mf_state *state = NULL;
        uint64_t n_usable = 0;
        if (!find_stored(job, store, &match, &n_usable))
            return;
        if (mf_store_read_begin(store, &match, &reader, NULL) != MF_OK)
            continue;
        mf_status status = read_entry(job, reader, &match, n_usable, &state, NULL);
        if (status == MF_OK)
            status = take_state(job, state, NULL);
        mf_state_release(&state);
        mf_store_read_end(store, &match, status);
        if (status != MF_ERR_FORMAT) /* done, or the next one would fail the same way */
            return;
    }
}

static mf_status check(const mf_session *s, const int32_t *tokens, size_t n_tokens, mf_error *error)
{
    if (s == NULL || tokens == NULL || n_tokens == 0)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "a session to be given tokens: it or they are NULL, or there are none");
    const mf_engine *e = s->engine;
    if (n_tokens > e->runner.plan.n_context)
        return mf_fail(error, MF_ERR_CONTEXT, "%zu tokens do not fit the context of %u tokens",
                       n_tokens, e->runner.plan.n_context);
    for (size_t i = 0; i < n_tokens; i++) {
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= e->runner.h.n_vocab)
            return mf_fail(error, MF_ERR_ARGUMENT, "token %zu is %d, outside the vocabulary of %u",
                           i, tokens[i], e->runner.h.n_vocab);
    }
    return MF_OK;
}

static mf_status reuse(mf_session *s, const int32_t *tokens, size_t n_tokens, mf_sync_result *out,
                       mf_error *error)
{
    sync_job job = {.session = s, .engine = s->engine, .tokens = tokens, .n_tokens = n_tokens};
    MF_TRY(reuse_memory(&job, error));
    if (job.n_reused < n_tokens)
        reuse_store(&job);
    *out = (mf_sync_result){.source = job.source, .n_reused = (size_t)job.n_reused};
    return MF_OK;
}

mf_status mf_session_reuse(mf_session *session, const int32_t *tokens, size_t n_tokens,
                           mf_sync_result *out, mf_error *error)
{
    mf_sync_result result;
    MF_TRY(check(session, tokens, n_tokens, error));
    mf_engine_lock(session->engine);
    mf_status status = mf_session_refuse(session, "mf_session_reuse", error);
    mf_engine_unlock(session->engine);
    MF_TRY(status);
    MF_TRY(reuse(session, tokens, n_tokens, &result, error));
    if (out != NULL)
        *out = result;
    return MF_OK;
}

/* The session is the call's from the beginning: nothing changes if it may not be evaluated. */
mf_status mf_session_sync(mf_session *session, const int32_t *tokens, size_t n_tokens,
                          mf_sync_result *out, mf_error *error)
{
    mf_sync_result result;
    MF_TRY(check(session, tokens, n_tokens, error));
    mf_call call = {.engine = session->engine, .error = error};
    MF_TRY(mf_call_add(&call, session, error));
    mf_status status = reuse(session, tokens, n_tokens, &result, error);
    if (status == MF_OK) {
        result.n_evaluated = n_tokens - result.n_reused;
        mf_call_set_tokens(&call, session, tokens + result.n_reused, result.n_evaluated);
        status = mf_call_run(&call);
    }
    mf_call_end(&call);
    if (status == MF_OK && out != NULL)
        *out = result;
    return status;
}

void mf_engine_set_store(mf_engine *engine, mf_store *store)
{
    mf_engine_lock(engine);
    engine->prefix_store = store;
    mf_engine_unlock(engine);
}

static mf_status write_state(void *ctx, mf_byte_sink *sink, mf_error *error)
{
    return mf_snapshot_write(ctx, sink, error);
}

/* An entry's marks take at most this part of the store, so that they push out little else. */
#define MARK_SHARE 8

static uint32_t most_marks(const mf_engine *e, const mf_store *store)
{
    const mf_plan *p = &e->runner.plan;
    const uint64_t n_bytes = p->recurrent_bytes + mf_engine_mark_pages(e) * p->window_bytes;
    const uint64_t n = mf_store_max_bytes(store) / MARK_SHARE / (n_bytes + 1);
    return n < MF_STATE_MARKS ? (uint32_t)n : MF_STATE_MARKS;
}

mf_status mf_store_put(mf_store *store, const mf_session *session, mf_error *error)
{
    if (store == NULL || session == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_store_put: store or session is NULL");
    mf_engine *e = session->engine;
    mf_session *s = (mf_session *)session; /* holding counts references and nothing else */
    mf_state *state = NULL;
    mf_snapshot_key key;
    if (session->position < mf_store_min_tokens(store))
        return MF_OK;
    MF_TRY(mf_engine_snapshot_key(e, &key, error));
    if (mf_store_has(store, &key, session->tokens, (size_t)session->position))
        return MF_OK;
    MF_TRY(mf_state_hold(s, session->position, &state, error));
    mf_state_hold_marks(s, state, most_marks(e, store));
    const mf_snapshot_head head =
        mf_snapshot_head_of(e, state->position, state->logits != NULL, state->n_marks);
    const mf_store_addition addition = {.key = &key,
                                        .tokens = state->tokens,
                                        .n_tokens = (size_t)state->position,
                                        .n_bytes = mf_snapshot_total_bytes(&head),
                                        .write = write_state,
                                        .ctx = state};
    mf_status status = mf_store_add(store, &addition, error);
    mf_state_release(&state);
    return status;
}

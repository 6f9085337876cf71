/* SPDX-License-Identifier: MIT */
/* Sessions: creation, evaluation in chunks, clearing. */
#include "model/session.h"

#include <string.h>

/* The states that a new sequence starts from are all zero; cached rows are written before they are
 * read. */
static void zero_state(mf_session *s)
{
    static const unsigned char zeros[4096];
    const mf_engine *e = s->engine;
    for (uint32_t i = 0; i < e->h.n_layers; i++) {
        if (e->h.layer_kind[i] != MF_LAYER_LINEAR)
            continue;
        for (int j = 0; j < 2; j++) {
            uint64_t n = s->layers[i].n_bytes[j];
            for (uint64_t done = 0; done < n; done += sizeof zeros) {
                const mf_span at = {s->state, s->layers[i].offset[j] + done};
                e->backend->ops->write(e->backend, at, zeros,
                                       n - done < sizeof zeros ? n - done : sizeof zeros);
            }
        }
    }
}

mf_status mf_session_create(mf_engine *engine, mf_session **out, mf_error *error)
{
    if (engine == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_session_create: engine or out is NULL");
    if (engine->n_sessions >= engine->options.n_sessions)
        return mf_fail(error, MF_ERR_BUDGET,
                       "the engine was opened for %u sessions, and as many are open",
                       engine->options.n_sessions);
    const mf_allocator *a = &engine->allocator;
    mf_session *s = mf_alloc_zeroed(a, sizeof *s);
    if (s == NULL)
        return mf_fail_memory(error, sizeof *s, "a session");
    mf_status status;
    s->engine = engine;
    engine->n_sessions++;
    s->layers = mf_alloc_array(a, engine->h.n_layers, sizeof *s->layers);
    s->logits = mf_alloc_array(a, engine->h.n_vocab, sizeof *s->logits);
    if (s->layers == NULL || s->logits == NULL) {
        status = mf_fail_memory(error, engine->h.n_vocab * sizeof *s->logits, "a session");
        goto fail;
    }
    uint64_t n_bytes =
        mf_plan_session(&engine->h, engine->plan.n_context, engine->plan.cache_type, s->layers);
    MF_TRY_GOTO(engine->backend->ops->buffer_create(engine->backend, n_bytes, "session state",
                                                    &s->state, error));
    zero_state(s);
    *out = s;
    return MF_OK;
fail:
    mf_session_free(&s);
    return status;
}

void mf_session_free(mf_session **session)
{
    mf_session *s = *session;
    if (s == NULL)
        return;
    mf_engine *e = s->engine;
    e->backend->ops->buffer_free(e->backend, s->state);
    if (s->layers != NULL)
        mf_free(&e->allocator, s->layers, e->h.n_layers * sizeof *s->layers);
    if (s->logits != NULL)
        mf_free(&e->allocator, s->logits, e->h.n_vocab * sizeof *s->logits);
    e->n_sessions--;
    mf_free(&e->allocator, s, sizeof *s);
    *session = NULL;
}

void mf_session_set_progress(mf_session *session, mf_progress_fn progress, void *user)
{
    session->progress = progress;
    session->progress_user = user;
}

void mf_session_set_trace(mf_session *session, mf_trace_fn trace, void *user)
{
    session->trace = trace;
    session->trace_user = user;
}

const float *mf_session_logits(const mf_session *session)
{
    return session->has_logits ? session->logits : NULL;
}

size_t mf_session_position(const mf_session *session)
{
    return (size_t)session->position;
}

void mf_session_clear(mf_session *session)
{
    session->position = 0;
    session->has_logits = false;
    session->is_broken = false;
    zero_state(session);
}

static mf_status check_tokens(const mf_session *s, const int32_t *tokens, size_t n_tokens,
                              mf_error *error)
{
    const mf_engine *e = s->engine;
    if (s->is_broken)
        return mf_fail(error, MF_ERR_STATE,
                       "an earlier evaluation of this session failed; clear it first");
    if (n_tokens > e->plan.n_context - s->position)
        return mf_fail(error, MF_ERR_CONTEXT,
                       "%zu tokens after %llu do not fit the context of %u tokens", n_tokens,
                       (unsigned long long)s->position, e->plan.n_context);
    for (size_t i = 0; i < n_tokens; i++) {
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= e->h.n_vocab)
            return mf_fail(error, MF_ERR_ARGUMENT, "token %zu is %d, outside the vocabulary of %u",
                           i, tokens[i], e->h.n_vocab);
    }
    return MF_OK;
}

static mf_status eval_chunks(mf_session *s, const int32_t *tokens, size_t n_tokens,
                             mf_logits_fn each, void *user, mf_error *error)
{
    mf_engine *e = s->engine;
    for (size_t done = 0; done < n_tokens;) {
        size_t left = n_tokens - done;
        uint32_t n = left < e->plan.n_chunk ? (uint32_t)left : e->plan.n_chunk;
        const mf_batch batch = {
            .tokens = tokens + done,
            .n_rows = n,
            .sessions = &s,
            .n_rows_each = &n,
            .n_sessions = 1,
            .want = each != NULL           ? MF_WANT_ALL
                    : done + n == n_tokens ? MF_WANT_LAST
                                           : MF_WANT_NONE,
            .each = each,
            .each_user = user,
            .first_index = done,
            .done = (uint64_t)done * e->h.n_layers,
            .total = (uint64_t)n_tokens * e->h.n_layers,
        };
        MF_TRY(mf_forward(e, &batch, error));
        done += n;
    }
    return MF_OK;
}

static mf_status eval(mf_session *s, const int32_t *tokens, size_t n_tokens, mf_logits_fn each,
                      void *user, mf_error *error)
{
    MF_TRY(check_tokens(s, tokens, n_tokens, error));
    mf_status status = eval_chunks(s, tokens, n_tokens, each, user, error);
    if (status != MF_OK)
        s->is_broken = true;
    return status;
}

mf_status mf_session_eval(mf_session *session, const int32_t *tokens, size_t n_tokens,
                          mf_error *error)
{
    if (session == NULL || (tokens == NULL && n_tokens > 0))
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_session_eval: session or tokens is NULL");
    return eval(session, tokens, n_tokens, NULL, NULL, error);
}

mf_status mf_session_eval_each(mf_session *session, const int32_t *tokens, size_t n_tokens,
                               mf_logits_fn fn, void *user, mf_error *error)
{
    if (session == NULL || fn == NULL || (tokens == NULL && n_tokens > 0))
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "mf_session_eval_each: session, tokens or fn is NULL");
    return eval(session, tokens, n_tokens, fn, user, error);
}

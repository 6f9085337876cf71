/* SPDX-License-Identifier: MIT */
/*
 * A chunk: rows of the sessions of a call that have tokens left, prepared, run, and committed or
 * abandoned, each session for itself. A session that is cancelled or late while the chunk runs is
 * abandoned with it; the pass goes on as long as anybody wants it.
 */
#include "session/session_draft.h"

#include "base/clock.h"
#include "session/session_apart.h"

#include <stdio.h>

static size_t n_left(const mf_session *s)
{
    return s->part.status == MF_OK ? s->part.n_tokens - s->part.n_done : 0;
}

bool mf_call_is_open(const mf_call *call)
{
    for (const mf_session *s = call->first; s != NULL; s = s->part.next)
        if (n_left(s) > 0)
            return true;
    return false;
}

/* The session is out of the call, as others are for the same reason. The first to be so gives the
 * call its status and message. False: it was not the first, or nobody wants the message. */
static bool fail_with_others(mf_call *call, mf_session *s, mf_status status, const mf_error *why)
{
    const bool is_first = call->status == MF_OK;
    s->part.status = status;
    if (is_first)
        call->status = status;
    if (is_first && call->error != NULL)
        *call->error = *why;
    return is_first && call->error != NULL;
}

/* For its own sake: where there are several, the message names it. */
static void fail_part(mf_call *call, mf_session *s, mf_status status, const mf_error *why)
{
    if (fail_with_others(call, s, status, why) && call->n_sessions > 1)
        snprintf(call->error->message, sizeof call->error->message, "item %zu: %.990s",
                 s->part.index, why->message);
}

/* ---------------------------------------- tokens ---------------------------------------- */

static mf_status check_tokens(const mf_session *s, const int32_t *tokens, size_t n_tokens,
                              mf_error *error)
{
    const mf_runner *r = &s->engine->runner;
    if (n_tokens > r->plan.n_context - s->position)
        return mf_fail(error, MF_ERR_CONTEXT,
                       "%zu tokens after %llu do not fit the context of %u tokens", n_tokens,
                       (unsigned long long)s->position, r->plan.n_context);
    for (size_t i = 0; i < n_tokens; i++) {
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= r->h.n_vocab)
            return mf_fail(error, MF_ERR_ARGUMENT, "token %zu is %d, outside the vocabulary of %u",
                           i, tokens[i], r->h.n_vocab);
    }
    return MF_OK;
}

/* Tokens that a call brings are a run; it is long from so many on: fewer fill no tiles of a
 * mixture's many experts. However it is cut into chunks or steps, and whoever else is in them, all
 * of its rows are multiplied alike. */
#define LONG_RUN 128

void mf_call_set_tokens(mf_call *call, mf_session *s, const int32_t *tokens, size_t n_tokens)
{
    mf_error why;
    mf_status status = check_tokens(s, tokens, n_tokens, &why);
    s->part.tokens = tokens;
    s->part.n_tokens = n_tokens;
    call->n_total += n_tokens;
    if (status != MF_OK)
        fail_part(call, s, status, &why);
    else if (n_tokens >= LONG_RUN && n_tokens > s->n_long_left)
        s->n_long_left = n_tokens;
}

/* ------------------------------------ what ends it from outside ------------------------------- */

static bool is_requested(const mf_cancel *cancel)
{
    return cancel != NULL && mf_cancel_is_requested(cancel);
}

static mf_status check_session(const mf_session *s, mf_error *error)
{
    if (atomic_load_explicit(&s->is_cancelled, memory_order_relaxed) || is_requested(s->cancel) ||
        is_requested(s->part.cancel))
        return mf_fail(error, MF_ERR_CANCELLED, "evaluation cancelled");
    if (s->deadline_us != 0 && mf_now_us() >= s->deadline_us)
        return mf_fail(error, MF_ERR_CANCELLED, "evaluation not done at its deadline");
    return MF_OK;
}

/* Fails the parts that were cancelled or are late. Asked while it waits for its turn too, which
 * ends when nobody is left; and at once where the call is one for all. */
static mf_status check_call(void *ctx, mf_error *error)
{
    mf_call *call = ctx;
    mf_error why;
    for (mf_session *s = call->first; s != NULL; s = s->part.next) {
        mf_status status = n_left(s) > 0 ? check_session(s, &why) : MF_OK;
        if (status != MF_OK)
            fail_part(call, s, status, &why);
    }
    (void)error; /* fail_part has said it */
    const bool goes_on = call->is_step ? mf_call_is_open(call) : call->status == MF_OK;
    return goes_on ? MF_OK : MF_ERR_CANCELLED;
}

/* ---------------------------------------- cutting ---------------------------------------- */

/* How many rows everybody with as many tokens left gets, so that of `room` rows none is wasted and
 * nobody gets fewer than another who has no fewer left; *n_spare of the rows are over, fewer than
 * there are sessions that want more. */
static size_t fair_share(const mf_call *call, size_t room, size_t *n_spare)
{
    size_t share = 0;
    for (;;) {
        size_t n_open = 0, least = SIZE_MAX;
        for (const mf_session *s = call->first; s != NULL; s = s->part.next)
            if (n_left(s) > share) {
                n_open++;
                least = n_left(s) < least ? n_left(s) : least;
            }
        const size_t each = n_open == 0 ? 0 : room / n_open;
        const size_t more = least - share < each ? least - share : each;
        if (more == 0)
            break;
        share += more;
        room -= more * n_open;
    }
    *n_spare = room;
    return share;
}

static void add_part(mf_call *call, mf_session *s, uint32_t n, mf_batch *batch)
{
    mf_engine *e = call->engine;
    const bool wants = (s->part.wants_logits && n == n_left(s)) || call->each != NULL;
    mf_batch_part *part = &e->parts_list[batch->n_parts];
    e->parts_sessions[batch->n_parts++] = s;
    *part = (mf_batch_part){
        .tokens = s->part.tokens + s->part.n_done, .n_rows = n, .is_long = s->n_long_left != 0};
    if (wants)
        mf_session_part_logits(s, part);
    batch->n_rows += n;
}

/* Rows of long runs before the others. */
static void put_long_first(mf_engine *e, const mf_batch *batch)
{
    uint32_t n_long = 0;
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        const mf_batch_part part = e->parts_list[i];
        mf_session *s = e->parts_sessions[i];
        if (!part.is_long)
            continue;
        for (uint32_t j = i; j > n_long; j--) {
            e->parts_list[j] = e->parts_list[j - 1];
            e->parts_sessions[j] = e->parts_sessions[j - 1];
        }
        e->parts_list[n_long] = part;
        e->parts_sessions[n_long++] = s;
    }
}

/* Of a part's n tokens those that are of one run: long, or not. */
static size_t of_one_run(const mf_session *s, size_t n)
{
    return s->n_long_left != 0 && s->n_long_left < n ? (size_t)s->n_long_left : n;
}

/* The next chunk. Rows that do not divide evenly go to those whose turn it is: where there are more
 * sessions than rows, the next chunk begins behind the last that got one. */
static void cut_chunk(mf_call *call, mf_batch *batch)
{
    mf_engine *e = call->engine;
    size_t n_spare, share = fair_share(call, e->runner.plan.n_chunk, &n_spare);
    size_t first = share == 0 ? (size_t)(e->n_cuts % call->n_sessions) : 0, n_passed = 0;
    *batch = (mf_batch){.parts = e->parts_list};
    mf_session *s = call->first;
    for (size_t i = 0; i < first; i++)
        s = s->part.next;
    for (size_t i = 0; i < call->n_sessions;
         i++, s = s->part.next == NULL ? call->first : s->part.next) {
        size_t n = n_left(s) < share ? n_left(s) : share;
        if (n < n_left(s) && n_spare > 0) {
            n++;
            n_spare--;
        }
        if (n > 0) {
            add_part(call, s, (uint32_t)of_one_run(s, n), batch);
            n_passed = i + 1;
        }
    }
    if (share == 0)
        e->n_cuts += n_passed;
    put_long_first(e, batch);
}

/* ---------------------------------------- preparing ---------------------------------------- */

/* Where the session's pages and states are, for the chunk that it is prepared for. */
static void place(mf_batch_part *part, const mf_session *s)
{
    part->position = s->position;
    const mf_page_table *all = &s->pages[MF_UNIT_PAGE], *window = &s->pages[MF_UNIT_WINDOW];
    part->pages = all->n != 0 ? all->spans : NULL;
    part->window_pages = window->n != 0 ? window->spans : NULL;
    part->state[0] = s->recurrent_span;
    part->state[1] = s->spare_span;
}

/* Takes what each session's rows need; who does not get it is out of the call and the chunk. */
static void prepare_chunk(mf_call *call, mf_batch *batch)
{
    mf_engine *e = call->engine;
    mf_session **sessions = e->parts_sessions;
    mf_batch_part *parts = e->parts_list;
    uint32_t n = 0;
    mf_error why;
    mf_engine_lock(e);
    for (uint32_t i = 0; i < batch->n_parts; i++)
        sessions[i]->in_batch = true;
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        mf_status status = mf_session_prepare(sessions[i], parts[i].tokens, parts[i].n_rows, &why);
        if (status != MF_OK && parts[i].is_proposed) { /* it need not be so many */
            mf_draft_shrink(sessions[i], batch, &parts[i]);
            status = mf_session_prepare(sessions[i], parts[i].tokens, parts[i].n_rows, &why);
        }
        if (status == MF_OK) {
            sessions[n] = sessions[i];
            parts[n] = parts[i];
            place(&parts[n], sessions[i]);
            mf_draft_prepare(sessions[i], batch, &parts[n++]);
            continue;
        }
        sessions[i]->in_batch = false; /* mf_session_prepare has given back what it took */
        batch->n_rows -= parts[i].n_rows;
        fail_part(call, sessions[i], status, &why);
    }
    batch->n_parts = n;
    mf_engine_unlock(e);
}

void mf_call_auto_mark(mf_session *s)
{
    const mf_mark *newest = mf_mark_find(s, s->position);
    const bool is_end = s->part.n_done == s->part.n_tokens && s->part.n_tokens > 1;
    uint64_t since = s->position - (newest == NULL ? 0 : newest->position);
    if ((s->auto_tokens != 0 && since >= s->auto_tokens) || (s->auto_at_end && is_end && since > 0))
        (void)!mf_mark_take(s, NULL);
}

/* Commits the rows of all whose part has not failed. Marks come last: making room for one
 * must not meet states that are about to be committed. */
static void finish_chunk(mf_call *call, const mf_batch *batch)
{
    mf_session *const *sessions = call->engine->parts_sessions;
    mf_engine_lock(call->engine);
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        const mf_batch_part *part = &batch->parts[i];
        mf_session *s = sessions[i];
        const uint32_t n_rows = part->is_proposed ? 1 : part->n_rows;
        if (s->part.status == MF_OK) {
            if (part->is_proposed)
                mf_draft_commit(s);
            else
                mf_session_commit(s, n_rows, part->logits != NULL);
            s->part.n_done += n_rows;
            s->n_long_left -= part->is_long ? n_rows : 0;
            call->n_done += n_rows;
        } else {
            mf_draft_drop(s);
            mf_session_abandon(s);
        }
        s->in_batch = false;
    }
    for (uint32_t i = 0; i < batch->n_parts; i++)
        if (sessions[i]->part.status == MF_OK)
            mf_call_auto_mark(sessions[i]);
    mf_engine_count_locked(call->engine);
    mf_engine_unlock(call->engine);
}

/* ---------------------------------------- running ---------------------------------------- */

/* The batch that the runner is at: of the engine's lists, from part `first` on, n_before rows. */
typedef struct chunk_watch {
    mf_call *call;
    const mf_batch *batch;
    uint32_t first, n_before;
    uint32_t n_parts; /* of the chunk */
    bool is_apart;    /* each of which is a pass */
    bool has_end;     /* the pass was ended because nobody wants it any more */
} chunk_watch;

static mf_session *session_of(const chunk_watch *w, uint32_t part)
{
    return w->call->engine->parts_sessions[w->first + part];
}

/* The pass ends where nobody is left who wants it. */
static mf_status go_on(chunk_watch *w)
{
    for (uint32_t i = 0; i < w->batch->n_parts; i++)
        if (session_of(w, i)->part.status == MF_OK)
            return MF_OK;
    w->has_end = true;
    return MF_ERR_CANCELLED;
}

static mf_status check_chunk(void *ctx, mf_error *error)
{
    chunk_watch *w = ctx;
    mf_error why;
    (void)error; /* fail_part says it */
    for (uint32_t i = 0; i < w->batch->n_parts; i++) {
        mf_session *s = session_of(w, i);
        mf_status status = s->part.status == MF_OK ? check_session(s, &why) : MF_OK;
        if (status != MF_OK)
            fail_part(w->call, s, status, &why);
    }
    return go_on(w);
}

/* As it stands in the call. */
static mf_forecast_chunk forecast_chunk(const mf_call *call, uint64_t n_rows, uint64_t position)
{
    return (mf_forecast_chunk){
        .n_rows = n_rows, .position = position, .is_first = call->n_done == 0};
}

/* What the call will cost, where chunks differ: the last has fewer rows, and reads as much. */
static void plan_cost(mf_call *call)
{
    const mf_session *s = call->first;
    const uint64_t n_chunk = call->engine->runner.plan.n_chunk;
    mf_forecast_chunk c = {.is_first = true};
    call->cost = call->cost_done = 0;
    if (call->is_step || call->n_sessions != 1 || call->n_total <= n_chunk)
        return;
    c.position = s->position;
    mf_engine_lock(call->engine);
    call->rates = call->engine->rates;
    mf_engine_unlock(call->engine);
    for (uint64_t left = call->n_total; left > 0; left -= c.n_rows) {
        c.n_rows = left < n_chunk ? left : n_chunk;
        call->cost += mf_forecast_cost(call->engine, &call->rates, &c);
        c.position += c.n_rows;
        c.is_first = false;
    }
}

/* Of `all`, how much is done with these layers of the batch. */
static uint64_t work_done(const chunk_watch *w, uint32_t n_layers, uint64_t all)
{
    mf_call *call = w->call;
    const mf_batch *batch = w->batch;
    const uint64_t n_done = call->n_done + w->n_before;
    const uint32_t n = call->engine->runner.h.n_layers;
    const double part = (double)n_layers / n;
    if (n_layers == n && n_done + batch->n_rows == call->n_total)
        return all;
    double share = ((double)n_done + part * batch->n_rows) / (double)call->n_total;
    if (call->cost > 0) {
        mf_forecast_chunk c = forecast_chunk(call, batch->n_rows, batch->parts[0].position);
        const double cost = mf_forecast_cost(call->engine, &call->rates, &c);
        share = (call->cost_done + part * cost) / call->cost;
        call->cost_done += n_layers == n ? cost : 0;
    }
    return share < 1 ? (uint64_t)(share * (double)all) : all;
}

/* In layers times rows, shifted to where the time is. */
static mf_status report_progress(void *ctx, uint32_t n_layers, mf_error *error)
{
    chunk_watch *w = ctx;
    mf_call *call = w->call;
    const uint64_t all = call->engine->runner.h.n_layers;
    const uint64_t done = work_done(w, n_layers, call->n_total * all);
    mf_error why;
    (void)error;
    mf_engine_count(call->engine);
    for (uint32_t i = 0; i < w->batch->n_parts; i++) {
        mf_session *s = session_of(w, i);
        if (s->part.status == MF_OK && s->progress != NULL &&
            s->progress(s->progress_user, done, call->n_total * all) != 0)
            fail_part(call, s,
                      mf_fail(&why, MF_ERR_CANCELLED, "evaluation cancelled at layer %u of %u",
                              n_layers, (uint32_t)all),
                      &why);
    }
    return go_on(w);
}

static int give_logits(void *ctx, uint32_t row, const float *logits)
{
    const chunk_watch *w = ctx;
    return w->call->each(w->call->each_user, (size_t)w->call->n_done + w->n_before + row, logits);
}

static void trace(void *ctx, uint32_t layer, const float *hidden)
{
    const chunk_watch *w = ctx;
    const mf_engine *e = w->call->engine;
    for (uint32_t i = 0; i < w->batch->n_parts; i++) {
        const mf_session *s = session_of(w, i);
        const uint32_t n = w->batch->parts[i].n_rows;
        if (s->trace != NULL)
            s->trace(s->trace_user, layer, s->position, n, hidden);
        hidden += (size_t)n * e->runner.h.hidden_size;
    }
}

/* One more token of the session, once the chunk is committed; it has the page for it, and its
 * states change places. */
static bool foresee_token(const mf_engine *e, mf_session *s, const mf_batch_part *part,
                          mf_batch_part *next)
{
    const uint64_t position = part->position + part->n_rows;
    const bool is_last = s->part.n_done + part->n_rows == s->part.n_tokens;
    const bool is_first = part->state[1].buffer.id != 0 && part->state[0].buffer.id == 0;
    if (!is_last || is_first || s->draft.logits != NULL || position % MF_PAGE_TOKENS == 0 ||
        position >= e->runner.plan.n_context)
        return false;
    *next = *part;
    next->position = position;
    next->state[0] = part->state[1];
    next->state[1] = part->state[0];
    mf_session_other_logits(s, next);
    return true;
}

/* Of passes of a part each the next one's, or after the last the first one's of the next chunk. */
static bool foresee(void *ctx, uint32_t i, mf_batch_part *next)
{
    const chunk_watch *w = ctx;
    const mf_engine *e = w->call->engine;
    const uint32_t which = w->is_apart ? (w->first + 1) % w->n_parts : w->first + i;
    *next = e->parts_list[which];
    return (w->is_apart && which != 0) ||
           foresee_token(e, e->parts_sessions[which], &e->parts_list[which], next);
}

static uint64_t n_requests(const mf_expert_stats *s)
{
    return s->n_hits + s->n_misses;
}

/* mf_forward, of which forecasts learn. */
static mf_status run_layers(mf_call *call, const mf_batch *batch, mf_error *error)
{
    mf_runner *r = &call->engine->runner;
    mf_expert_stats before, after;
    mf_expert_store_stats(r->store, &before);
    const uint64_t start_us = mf_now_us();
    MF_TRY(mf_forward(r, batch, error));
    const uint64_t end_us = mf_now_us();
    mf_expert_store_stats(r->store, &after);
    const mf_forecast_chunk chunk = forecast_chunk(call, batch->n_rows, batch->parts[0].position);
    const mf_forecast_seen seen = {.n_us = end_us - start_us,
                                   .wait_us = after.wait_us - before.wait_us,
                                   .reading_us = after.reading_us - before.reading_us,
                                   .read_bytes = after.read_bytes - before.read_bytes,
                                   .n_wanted = n_requests(&after) - n_requests(&before)};
    mf_engine_lock(call->engine);
    mf_forecast_learn(call->engine, &call->engine->rates, &chunk, &seen);
    mf_engine_unlock(call->engine);
    return MF_OK;
}

/* False: nothing in it was proposed. */
static bool withdraw_proposals(const chunk_watch *w, mf_batch *pass)
{
    mf_engine *e = w->call->engine;
    bool has_any = false;
    mf_engine_lock(e);
    for (uint32_t i = 0; i < pass->n_parts; i++) {
        mf_batch_part *part = &e->parts_list[w->first + i];
        if (!part->is_proposed)
            continue;
        mf_draft_withdraw(session_of(w, i), pass, part);
        has_any = true;
    }
    mf_engine_unlock(e);
    return has_any;
}

/* One pass over the layers. An error of it is that of every session in it; not where a read may
 * have failed that nobody's own tokens need: without what was proposed it is made again. */
static void run_pass(chunk_watch *ctx, mf_batch *batch)
{
    mf_batch_watch watch = {.ctx = ctx,
                            .check = check_chunk,
                            .progress = report_progress,
                            .foresee = foresee,
                            .each = ctx->call->each != NULL ? give_logits : NULL};
    mf_error why;
    ctx->batch = batch;
    for (uint32_t i = 0; i < batch->n_parts && watch.trace == NULL; i++) {
        const mf_session *s = session_of(ctx, i);
        watch.trace = s->trace != NULL ? trace : NULL;
        watch.trace_rows = s->trace_rows;
    }
    batch->watch = &watch;
    mf_status status = run_layers(ctx->call, batch, &why);
    if (status != MF_OK && !ctx->has_end && withdraw_proposals(ctx, batch))
        status = run_layers(ctx->call, batch, &why);
    batch->watch = NULL;
    for (uint32_t i = 0; i < batch->n_parts && status != MF_OK && !ctx->has_end; i++) {
        mf_session *s = session_of(ctx, i);
        if (s->part.status == MF_OK)
            (void)fail_with_others(ctx->call, s, status, &why);
    }
}

/* Parts of the batch from `first` on that are of long runs, or are not, as the first is: all,
 * unless such rows go to different devices. Or one, where each is a pass. */
static mf_batch cut_pass(const chunk_watch *w, const mf_batch *batch)
{
    const bool are_apart = mf_plan_lends(&w->call->engine->runner.plan);
    mf_batch pass = *batch;
    pass.parts = batch->parts + w->first;
    pass.n_parts = pass.n_rows = 0;
    for (uint32_t i = w->first; i < batch->n_parts; i++) {
        const mf_batch_part *part = &batch->parts[i];
        if (pass.n_parts != 0 &&
            (w->is_apart || (are_apart && part->is_long != pass.parts[0].is_long)))
            break;
        pass.n_parts++;
        pass.n_rows += part->n_rows;
    }
    return pass;
}

static void run_chunk(mf_call *call, const mf_batch *batch)
{
    const mf_apart_chunk apart = mf_apart_begin(call, batch);
    chunk_watch ctx = {.call = call, .n_parts = batch->n_parts, .is_apart = apart.is_on};
    while (ctx.first < batch->n_parts) {
        mf_batch pass = cut_pass(&ctx, batch);
        ctx.has_end = false;
        run_pass(&ctx, &pass);
        ctx.first += pass.n_parts;
        ctx.n_before += pass.n_rows;
    }
    mf_apart_end(call, batch, &apart);
}

void mf_call_run_chunk(mf_call *call)
{
    mf_engine *e = call->engine;
    mf_batch batch;
    if (mf_turn_take(&e->turn, check_call, call, NULL) != MF_OK)
        return;
    if (check_call(call, NULL) == MF_OK) {
        mf_draft_take_up(call);
        cut_chunk(call, &batch);
        call->n_total = call->is_step ? call->n_done + batch.n_rows : call->n_total;
        mf_draft_propose(call, &batch);
        prepare_chunk(call, &batch);
        if (batch.n_parts > 0) {
            run_chunk(call, &batch);
            mf_draft_count(call, &batch);
            finish_chunk(call, &batch);
            mf_draft_follow(call, &batch);
        }
    }
    mf_turn_end(&e->turn);
}

mf_status mf_call_run(mf_call *call)
{
    if (call->status == MF_OK)
        plan_cost(call);
    while (call->status == MF_OK && mf_call_is_open(call))
        mf_call_run_chunk(call);
    return call->status;
}

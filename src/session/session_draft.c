/* SPDX-License-Identifier: MIT */
/* Proposals: made, evaluated with the token that they follow, and taken up or dropped. */
#include "session/session_draft.h"

#include "base/clock.h"
#include "forward/finite.h"

#include <stdio.h>
#include <string.h>

static uint32_t most_tokens(const mf_engine *e)
{
    return e->runner.plan.draft.n_tokens;
}

static size_t logits_bytes(const mf_engine *e)
{
    return e->runner.h.n_vocab * sizeof(float);
}

static size_t row_bytes(const mf_engine *e)
{
    return mf_draft_width(&e->runner.h) * sizeof(float);
}

/* ---------------------------------------- memory ---------------------------------------- */

void mf_draft_place(mf_session *s, uint32_t place)
{
    const mf_draft_plan *p = &s->engine->runner.plan.draft;
    s->place = place;
    for (uint32_t i = 0; i < p->n_pages && p->n_tokens != 0; i++)
        s->draft.pages[i] =
            mf_span_at(p->cache, ((uint64_t)place * p->n_pages + i) * p->page_bytes);
}

mf_status mf_draft_make(mf_session *s, mf_error *error)
{
    mf_engine *e = s->engine;
    mf_session_draft *d = &s->draft;
    const size_t n = most_tokens(e) + 1;
    if (n == 1)
        return MF_OK;
    d->logits = mf_alloc_array(&e->allocator, n, logits_bytes(e));
    d->waiting = mf_alloc_array(&e->allocator, n, row_bytes(e));
    d->fresh = mf_alloc_array(&e->allocator, n, row_bytes(e));
    d->pages = mf_alloc_array(&e->allocator, e->runner.plan.draft.n_pages, sizeof *d->pages);
    if (d->logits == NULL || d->waiting == NULL || d->fresh == NULL || d->pages == NULL)
        return mf_fail_memory(error, n * logits_bytes(e), "tokens evaluated ahead");
    return MF_OK;
}

void mf_draft_free(mf_session *s)
{
    mf_engine *e = s->engine;
    mf_session_draft *d = &s->draft;
    const size_t n = most_tokens(e) + 1;
    mf_free(&e->allocator, d->logits, n * logits_bytes(e));
    mf_free(&e->allocator, d->waiting, n * row_bytes(e));
    mf_free(&e->allocator, d->fresh, n * row_bytes(e));
    mf_free(&e->allocator, d->pages, e->runner.plan.draft.n_pages * sizeof *d->pages);
}

/* ---------------------------------------- taking up ---------------------------------------- */

void mf_draft_drop(mf_session *s)
{
    mf_session_draft *d = &s->draft;
    mf_state_pool *pool = &s->engine->pool;
    for (uint32_t i = 0; i <= MF_DRAFT_TOKENS_MOST; i++) {
        mf_unit_drop(pool, MF_UNIT_RECURRENT, d->states[i]);
        d->states[i] = 0;
    }
    if (d->n != 0)
        mf_session_abandon(s); /* pages past the position */
    d->n = d->n_done = 0;
}

void mf_draft_forget(mf_session *s)
{
    mf_draft_drop(s);
    s->draft.n_waiting = 0;
}

/* One more row of those evaluated ahead: all that a session has of its last token. */
static void commit_next(mf_session *s)
{
    mf_session_draft *d = &s->draft;
    mf_engine *e = s->engine;
    const uint32_t i = d->n_done++;
    const uint64_t before = s->position++;
    s->tokens[before] = d->tokens[i];
    memcpy(s->logits, d->logits + (size_t)i * e->runner.h.n_vocab, logits_bytes(e));
    s->has_logits = true;
    s->has_bounds = false;
    if (d->states[i] != 0) {
        mf_unit_drop(&e->pool, MF_UNIT_RECURRENT, s->recurrent);
        s->recurrent = d->states[i];
        s->recurrent_span = d->spans[i];
        d->states[i] = 0;
    }
    const size_t n = mf_draft_width(&e->runner.h);
    memcpy(d->waiting + d->n_waiting++ * n, d->fresh + i * n, row_bytes(e));
    mf_session_drop_behind_window(s);
    mf_session_tell_change(s, before);
}

void mf_draft_commit(mf_session *s)
{
    mf_session_draft *d = &s->draft;
    d->n = d->n_asked + 1;
    d->n_done = d->n_asked = 0;
    commit_next(s);
}

static bool is_next(const mf_call *call, const mf_session *s)
{
    const mf_session_draft *d = &s->draft;
    return s->part.status == MF_OK && call->each == NULL && s->trace == NULL && d->n_done < d->n &&
           s->part.n_done < s->part.n_tokens &&
           s->part.tokens[s->part.n_done] == d->tokens[d->n_done];
}

/* An item of a step that fails has done nothing: what the pass is to go on with is not begun here.
 */
static bool may_begin(const mf_call *call, const mf_session *s)
{
    const mf_session_draft *d = &s->draft;
    const size_t n = s->part.n_tokens - s->part.n_done;
    return !call->is_step ||
           (n <= d->n - d->n_done && memcmp(s->part.tokens + s->part.n_done, d->tokens + d->n_done,
                                            n * sizeof *d->tokens) == 0);
}

void mf_draft_take_up(mf_call *call)
{
    mf_engine *e = call->engine;
    if (most_tokens(e) == 0)
        return;
    mf_engine_lock(e);
    for (mf_session *s = call->first; s != NULL; s = s->part.next)
        while (is_next(call, s) && may_begin(call, s)) {
            commit_next(s);
            s->part.n_done++;
            call->n_done++;
            e->n_kept++;
            e->runner.n_tokens++;
            e->draft_profit.run.n_tokens++;
            mf_call_auto_mark(s);
        }
    mf_engine_count_locked(e);
    mf_engine_unlock(e);
}

/* ---------------------------------------- proposing ---------------------------------------- */

bool mf_draft_is_on(const mf_engine *e)
{
    return most_tokens(e) != 0 && !e->has_draft_failed &&
           (e->options.draft == MF_DRAFT_ALWAYS || e->draft_profit.is_on);
}

/* The layer that proposes knows all that comes before the session's next token. */
static bool knows_all(const mf_session *s)
{
    const mf_session_draft *d = &s->draft;
    return d->n_waiting != 0 && d->next - 1 + d->n_waiting == s->position;
}

/* Slots of its cache. */
static uint64_t room_of(const mf_engine *e)
{
    return (uint64_t)e->runner.plan.draft.n_pages * MF_PAGE_TOKENS;
}

/* How many may follow the part's one token, beside n_rows of the pass and of the layer that
 * proposes.
 */
static uint32_t n_wanted(const mf_call *call, const mf_session *s, const mf_batch_part *part,
                         const uint32_t *n_rows)
{
    const mf_engine *e = call->engine;
    const uint32_t most = most_tokens(e);
    const uint64_t left = e->runner.plan.n_context - s->position - 1;
    const bool is_last = part->n_rows == 1 && s->part.n_done + 1 == s->part.n_tokens;
    if (!is_last || part->logits == NULL || part->is_long || call->each != NULL ||
        s->trace != NULL || !knows_all(s) || n_rows[0] + most > e->runner.plan.n_chunk ||
        n_rows[1] + s->draft.n_waiting > e->runner.plan.n_chunk ||
        s->position + most - s->draft.start > room_of(e))
        return 0;
    return left < most ? (uint32_t)left : most;
}

/* The likeliest token; false: there are no logits that could be compared. */
static bool best_of(const float *logits, uint32_t n_vocab, int32_t *out)
{
    uint32_t best = 0;
    for (uint32_t i = 0; i < n_vocab; i++) {
        if (!(logits[i] > -1e30f && logits[i] < 1e30f))
            return false;
        best = logits[i] > logits[best] ? i : best;
    }
    *out = (int32_t)best;
    return true;
}

/* One more token for each session that has asked for more than it has: round 0 follows what is
 * known, later ones follow what was proposed. */
static mf_status propose_round(mf_call *call, const mf_batch *batch, uint32_t round,
                               const mf_batch_watch *watch, mf_error *error)
{
    mf_engine *e = call->engine;
    mf_draft_part *parts = e->draft_parts;
    uint32_t n = 0;
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        mf_session *s = e->parts_sessions[i];
        mf_session_draft *d = &s->draft;
        if (d->n_asked <= round)
            continue;
        const bool is_first = round == 0;
        const uint32_t n_rows = is_first ? d->n_waiting : 1;
        parts[n++] = (mf_draft_part){
            .tokens = is_first ? s->tokens + d->next : d->tokens + round,
            .n_rows = n_rows,
            .states = is_first ? d->waiting : d->fresh,
            .n_states = n_rows,
            .slot = (uint32_t)((is_first ? d->next : s->position + round) - 1 - d->start),
            .pages = d->pages,
            .logits = d->logits,
            .fed = d->fresh};
    }
    if (n == 0)
        return MF_OK;
    MF_TRY(mf_forward_draft(&e->runner, parts, n, watch, error));
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        mf_session_draft *d = &e->parts_sessions[i]->draft;
        if (d->n_asked > round && e->draft_watch != NULL)
            e->draft_watch(e->draft_watch_ctx, e->parts_sessions[i], round, d->logits);
        if (d->n_asked > round && !best_of(d->logits, e->runner.h.n_vocab, &d->tokens[round + 1]))
            d->n_asked = round;
    }
    return MF_OK;
}

/* The layer has failed: it is left alone from now on. */
static void give_up(mf_engine *e, const mf_error *why)
{
    char line[sizeof why->message + 64];
    e->has_draft_failed = true;
    snprintf(line, sizeof line, "tokens are proposed no longer: %s", why->message);
    if (e->options.log != NULL)
        e->options.log(e->options.log_user, MF_LOG_WARNING, line);
}

static void grow_parts(mf_call *call, mf_batch *batch)
{
    mf_engine *e = call->engine;
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        mf_session_draft *d = &e->parts_sessions[i]->draft;
        mf_batch_part *part = &e->parts_list[i];
        if (d->n_waiting != 0 && d->n_asked != 0) { /* the true states follow */
            d->next = e->parts_sessions[i]->position + 1;
            d->n_waiting = 0;
        }
        if (d->n_asked == 0)
            continue;
        part->tokens = d->tokens;
        part->n_rows = 1 + d->n_asked;
        part->is_proposed = true;
        part->logits = d->logits;
        part->bounds = NULL;
        part->shared_logits = (mf_span){{0}, 0};
        batch->n_rows += d->n_asked;
    }
}

/* What was evaluated ahead before is not next; the part's token is, behind those that are
 * committed.
 */
static void put_first(mf_session *s, const mf_batch_part *part)
{
    mf_session_draft *d = &s->draft;
    mf_engine_lock(s->engine);
    mf_draft_drop(s);
    if (mf_session_reserve_tokens(s, s->position + 1, NULL) != MF_OK)
        d->n_asked = 0;
    else
        s->tokens[s->position] = d->tokens[0] = part->tokens[0];
    mf_engine_unlock(s->engine);
}

void mf_draft_propose(mf_call *call, mf_batch *batch)
{
    mf_engine *e = call->engine;
    const mf_batch_watch watch = {0};
    mf_error why;
    mf_status status = MF_OK;
    uint32_t most = 0, n_rows[2] = {batch->n_rows, 0};
    if (most_tokens(e) == 0)
        return;
    mf_expert_stats stats = {0};
    mf_expert_store_stats(e->runner.store, &stats);
    e->draft_bytes = stats.read_bytes;
    e->draft_us = mf_now_us();
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        mf_session *s = e->parts_sessions[i];
        s->draft.n_asked = mf_draft_is_on(e) ? n_wanted(call, s, &e->parts_list[i], n_rows) : 0;
        put_first(s, &e->parts_list[i]);
        n_rows[0] += s->draft.n_asked;
        n_rows[1] += s->draft.n_asked != 0 ? s->draft.n_waiting : 0;
        most = s->draft.n_asked > most ? s->draft.n_asked : most;
    }
    for (uint32_t round = 0; round < most && status == MF_OK; round++)
        status = propose_round(call, batch, round, &watch, &why);
    if (status != MF_OK) {
        give_up(e, &why);
        for (uint32_t i = 0; i < batch->n_parts; i++)
            e->parts_sessions[i]->draft.n_asked = 0;
    }
    grow_parts(call, batch);
    batch->keeps_hidden = mf_draft_is_on(e) && call->each == NULL;
}

/* ---------------------------------------- the pass ---------------------------------------- */

void mf_draft_shrink(mf_session *s, mf_batch *batch, mf_batch_part *part)
{
    batch->n_rows -= part->n_rows - 1;
    part->tokens = s->part.tokens + s->part.n_done;
    part->n_rows = 1;
    part->is_proposed = false;
    mf_session_part_logits(s, part);
    part->states = NULL;
    part->n_hidden = 1;
    s->draft.n_asked = 0;
}

/* Shrinks a part that has units for its first n states: it is left with that of its own row. */
static void keep_first_state(mf_session *s, mf_batch *batch, mf_batch_part *part, uint32_t n)
{
    mf_session_draft *d = &s->draft;
    while (n > 1) {
        mf_unit_drop(&s->engine->pool, MF_UNIT_RECURRENT, d->states[--n]);
        d->states[n] = 0;
    }
    if (n != 0) {
        s->spare = d->states[0];
        part->state[1] = s->spare_span;
        d->states[0] = 0;
    }
    mf_draft_shrink(s, batch, part);
}

void mf_draft_prepare(mf_session *s, mf_batch *batch, mf_batch_part *part)
{
    mf_engine *e = s->engine;
    mf_session_draft *d = &s->draft;
    uint32_t n = 0;
    if (batch->keeps_hidden) {
        part->hidden = d->fresh;
        part->n_hidden = part->is_proposed ? part->n_rows : 1;
    }
    if (!part->is_proposed || e->runner.plan.recurrent_bytes == 0)
        return;
    d->states[0] = s->spare; /* taken for the pass */
    d->spans[0] = s->spare_span;
    s->spare = 0;
    n = 1;
    while (n < part->n_rows && mf_take_unit(e, MF_UNIT_RECURRENT, &d->states[n], NULL) == MF_OK) {
        d->spans[n] = mf_unit_span(&e->pool, MF_UNIT_RECURRENT, d->states[n]);
        n++;
    }
    part->states = d->spans;
    part->state[1] = d->spans[n - 1];
    if (n != part->n_rows)
        keep_first_state(s, batch, part, n);
}

void mf_draft_withdraw(mf_session *s, mf_batch *batch, mf_batch_part *part)
{
    keep_first_state(s, batch, part, part->states == NULL ? 0 : part->n_rows);
}

/* Rows of a part that the layer is to follow, beside n_others of other parts; false: none. The
 * first may need the state before the part, the others have those of the pass. */
static bool follow_part(mf_session *s, const mf_batch_part *part, uint32_t first_row,
                        uint32_t n_others, mf_draft_part *out)
{
    mf_session_draft *d = &s->draft;
    const uint64_t from = part->position, end = from + part->n_rows;
    const uint64_t room = room_of(s->engine);
    const bool goes_on =
        d->n_waiting != 0 && d->next - 1 + d->n_waiting == from && end - 1 - d->start <= room &&
        n_others + d->n_waiting + part->n_rows - 1 <= s->engine->runner.plan.n_chunk;
    uint64_t n_skipped = 0;
    if (!goes_on) {
        n_skipped = part->n_rows > room / 2 ? part->n_rows - room / 2 : 0;
        d->start = from + n_skipped;
        d->next = d->start + 1;
        d->n_waiting = 0;
    }
    *out = (mf_draft_part){.tokens = s->tokens + d->next,
                           .n_rows = (uint32_t)(end - d->next),
                           .states = d->waiting,
                           .n_states = d->n_waiting,
                           .first_row = first_row + (uint32_t)n_skipped,
                           .slot = (uint32_t)(d->next - 1 - d->start),
                           .pages = d->pages};
    d->next = end;
    return out->n_rows != 0;
}

/* A token that nobody proposed anything after: its state waits, if there is room. */
static bool waits(mf_session *s, const mf_batch_part *part)
{
    mf_session_draft *d = &s->draft;
    const size_t n = mf_draft_width(&s->engine->runner.h);
    if (part->n_rows != 1 || d->n_waiting == 0 || d->n_waiting > most_tokens(s->engine) ||
        d->next - 1 + d->n_waiting != part->position)
        return false;
    memcpy(d->waiting + d->n_waiting++ * n, d->fresh, n * sizeof *d->fresh);
    return true;
}

void mf_draft_follow(mf_call *call, const mf_batch *batch)
{
    mf_engine *e = call->engine;
    const mf_batch_watch watch = {0};
    mf_error why;
    uint32_t n = 0, row = 0, n_rows = 0;
    /* what the parts to come need at least: those before them leave that much of the chunk */
    uint32_t n_later = batch->n_rows - batch->n_parts;
    if (!batch->keeps_hidden)
        return;
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        const mf_batch_part *part = &batch->parts[i];
        mf_session *s = e->parts_sessions[i];
        const bool is_open = s->part.status == MF_OK && !part->is_proposed && s->trace == NULL;
        n_later -= part->n_rows - 1;
        if (is_open && !waits(s, part)) {
            mf_draft_part *to = &e->draft_parts[n];
            n += follow_part(s, part, row, n_rows + n_later, to);
            n_rows += to->n_rows;
            s->draft.n_asked = UINT32_MAX; /* its last state is to wait */
        }
        row += part->n_rows;
    }
    if (n != 0 && mf_forward_draft(&e->runner, e->draft_parts, n, &watch, &why) != MF_OK)
        give_up(e, &why);
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        mf_session_draft *d = &e->parts_sessions[i]->draft;
        if (d->n_asked != UINT32_MAX)
            continue;
        memcpy(d->waiting, d->fresh, row_bytes(e));
        d->n_waiting = 1;
        d->n_asked = 0;
    }
    mf_engine_count(e); /* it is of this call: whoever takes its time looks before the next one */
}

/* A proposal whose logits are not finite numbers is none, nor are those after it: the call that
 * brings that token evaluates it, and fails as it would have. */
static void leave_out_not_finite(const mf_engine *e, mf_session_draft *d)
{
    const size_t n_vocab = e->runner.h.n_vocab;
    uint32_t n = 0;
    while (n < d->n_asked && mf_all_finite(d->logits + (n + 1) * n_vocab, n_vocab))
        n++;
    d->n_asked = n;
}

void mf_draft_count(mf_call *call, const mf_batch *batch)
{
    mf_engine *e = call->engine;
    mf_draft_cost cost = {0};
    bool is_decode = true;
    if (most_tokens(e) == 0)
        return;
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        const mf_batch_part *part = &batch->parts[i];
        const bool is_kept = e->parts_sessions[i]->part.status == MF_OK;
        is_decode = is_decode && is_kept && (part->is_proposed || part->n_rows == 1);
        if (!part->is_proposed)
            continue;
        leave_out_not_finite(e, &e->parts_sessions[i]->draft);
        e->n_proposed += part->n_rows - 1;
        e->runner.n_tokens -= is_kept ? part->n_rows - 1 : 0;
    }
    mf_expert_stats stats = {0};
    mf_expert_store_stats(e->runner.store, &stats);
    cost.n_tokens = batch->n_parts;
    cost.n_bytes = stats.read_bytes - e->draft_bytes;
    cost.n_us = mf_now_us() - e->draft_us;
    if (is_decode)
        mf_draft_profit_add(&e->draft_profit, &cost);
}

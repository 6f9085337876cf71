/* SPDX-License-Identifier: MIT */
/*
 * Choices that run: one step of all, and what comes of it. While answers are running, prompts come
 * in pieces (pace.h).
 */
#include "answer.h"
#include "constraint.h"
#include "history.h"
#include "scheduler_impl.h"

#include <stdlib.h>
#include <string.h>

/* Steps that are faster than this have their tokens sent together, for a wake costs more than a
 * token's bytes: readers are told once in so many microseconds. */
#define FLUSH_US 16000.0
/* Tokens that a grammar forces, taken at once. */
#define MAX_FORCED 32
/* Tokens of a prompt whose logprobs are wanted that are evaluated between two steps. */
#define ECHO_PIECE 32

static size_t n_left(const mf_srv_choice *c)
{
    return c->n_tokens - c->n_evaluated;
}

static bool is_over(const mf_srv_choice *c)
{
    return c->job->is_over || c->finish != MF_SRV_RUNNING;
}

/* It has more to evaluate than its last token, and those that had to follow it. */
static bool is_reading(const mf_srv_choice *c)
{
    return n_left(c) > 1 + c->n_forced || !c->has_prompt;
}

static bool wants_echo_logits(const mf_srv_choice *c)
{
    return c->job->params.has_echo && c->job->params.has_logprobs && !c->has_prompt;
}

bool mf_srv_run_is_paused(const mf_srv_scheduler *s, mf_srv_choice *c)
{
    return c->job->params.streams &&
           mf_srv_channel_waiting(&c->job->channel) > s->options.max_unsent_bytes;
}

void mf_srv_run_remove(mf_srv_scheduler *s, mf_srv_choice *c)
{
    mf_srv_channel_flush(&c->job->channel);
    for (size_t i = 0; i < s->n_running; i++)
        if (s->running[i] == c) {
            memmove(&s->running[i], &s->running[i + 1], (--s->n_running - i) * sizeof *s->running);
            return;
        }
}

size_t mf_srv_run_n_of(const mf_srv_scheduler *s, uint64_t client)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_running; i++)
        n += s->running[i]->job->client == client;
    return n;
}

void mf_srv_run_fail(mf_srv_scheduler *s, mf_srv_choice *c, const mf_srv_refusal *refusal)
{
    mf_srv_job_fail(c->job, refusal);
    mf_srv_stats_add(s->stats, &s->stats->counts.n_failed, 1);
}

/* ------------------------------------------------------------------------------------ tokens -- */

/* The text that was held back was no stop string: nothing goes back there. */
static void drop_stop_mark(mf_srv_choice *c)
{
    if (c->stop_mark == 0)
        return;
    const mf_status status = mf_mark_drop(c->slot->session, c->stop_mark, NULL);
    (void)status; /* it may have given way to others, or be another session's */
    c->stop_mark = 0;
}

/* Before a token is evaluated that may be of a stop string: what is said next in the conversation
 * will follow what is there now, and most families' sessions go back to marks alone. */
static void keep_stop_mark(mf_srv_choice *c)
{
    if (c->held.n_bytes == 0)
        drop_stop_mark(c);
    else if (c->stop_mark == 0 && c->n_evaluated > c->prompt->n_tokens &&
             mf_mark_save(c->slot->session, NULL) == MF_OK)
        c->stop_mark = c->n_evaluated; /* else a convenience is missing */
}

static void finish(mf_srv_choice *c, mf_srv_finish why)
{
    mf_srv_answer_end(c, why != MF_SRV_END);
    if (why != MF_SRV_STOP)
        drop_stop_mark(c);
    mf_srv_history_keep(c, why);
    mf_srv_job_finish(c, why);
}

static bool push_token(mf_srv_choice *c, int32_t token)
{
    if (c->n_tokens == c->capacity) {
        size_t capacity = c->capacity * 2;
        int32_t *tokens = realloc(c->tokens, capacity * sizeof *tokens);
        if (!tokens)
            return false;
        c->tokens = tokens;
        c->capacity = capacity;
    }
    c->tokens[c->n_tokens++] = token;
    return true;
}

static void count_token(mf_srv_scheduler *s, mf_srv_choice *c, bool is_forced)
{
    const uint64_t now = mf_srv_now_us();
    mf_srv_counts *counts = &s->stats->counts;
    mf_srv_stats_add(s->stats, &counts->n_answer_tokens, 1);
    if (is_forced) {
        mf_srv_stats_add(s->stats, &counts->n_forced_tokens, 1);
        return;
    }
    if (c->n_answered == 0) {
        c->first_us = now;
        mf_srv_stats_time(s->stats, &counts->first_token,
                          (double)(now - c->job->arrived_us) * 1e-6);
    } else {
        mf_srv_stats_time(s->stats, &counts->between_tokens, (double)(now - c->last_us) * 1e-6);
    }
    c->last_us = now;
}

/* The sampler's choice, but for thoughts that took all their budget. */
static bool choose(const mf_srv_model *model, mf_srv_choice *c, int32_t *token, mf_srv_refusal *r)
{
    if (c->drawn >= 0) {
        *token = c->drawn;
        c->drawn = -1;
    } else if (!mf_srv_constraint_sample(c, c->slot->session, token, r)) {
        return false;
    }
    const bool is_thought = mf_srv_answer_is_thought(c);
    const bool is_too_long = is_thought && c->n_thought_tokens >= c->job->params.n_thought_max;
    if (!is_thought && c->n_closed == model->n_close_tokens)
        c->n_closed = 0; /* another thought is closed as well */
    if ((is_too_long || c->n_closed > 0) && c->n_closed < model->n_close_tokens)
        *token = model->close_tokens[c->n_closed++];
    return true;
}

/* How likely the model finds the answer, where that decides which are given out: its own
 * distribution, before sampling changes it. */
static void score(mf_srv_choice *c, int32_t token, const float *logits)
{
    const mf_srv_job *job = c->job;
    if (job->params.n_best == 0 || !logits)
        return;
    c->logprob_sum += (double)mf_logprob_of(logits, job->served->info.n_vocab, token, NULL, 0);
    c->n_scored++;
}

/* A token becomes the answer's. logits: NULL: nobody wants them. */
static void take_token(mf_srv_scheduler *s, mf_srv_choice *c, int32_t token, const float *logits)
{
    const mf_srv_params *p = &c->job->params;
    mf_srv_refusal refusal;
    if (!mf_srv_constraint_take(c, token, &refusal)) {
        mf_srv_run_fail(s, c, &refusal);
        return;
    }
    count_token(s, c, logits == NULL);
    score(c, token, logits);
    mf_sampler_accept(c->sampler, token);
    c->n_answered++;
    /* the last one is not evaluated, but it is the answer's */
    const bool has_room = c->n_tokens + 1 < s->model->info.n_context_tokens;
    const bool is_pushed = push_token(c, token);
    if (!mf_srv_answer_token(c, token, logits))
        finish(c, c->stopped_by ? MF_SRV_STOP : MF_SRV_END);
    else if (mf_srv_constraint_is_done(c))
        finish(c, MF_SRV_END);
    else if (c->n_answered >= p->n_max_tokens)
        finish(c, MF_SRV_LENGTH);
    else if (!has_room || !is_pushed)
        finish(c, MF_SRV_CONTEXT);
}

/* Where a grammar leaves one token alone it is taken as it is, and so is what must follow: all of
 * them are evaluated with the next step, as if they had been sampled one by one. */
static void take_forced(mf_srv_scheduler *s, mf_srv_choice *c)
{
    const bool is_closing = c->n_closed > 0 && c->n_closed < s->model->n_close_tokens;
    if (!c->guide || c->job->params.has_logprobs || c->job->params.n_best > 0 || is_closing)
        return;
    while (!is_over(c) && c->n_forced < MAX_FORCED) {
        const int32_t token = mf_srv_constraint_forced(c);
        if (token < 0)
            return;
        mf_sampler_skip(c->sampler);
        c->n_forced++;
        take_token(s, c, token, NULL);
    }
}

/* All tokens are evaluated: the next one. */
static void next_token(mf_srv_scheduler *s, mf_srv_choice *c)
{
    const mf_srv_params *p = &c->job->params;
    const float *logits = mf_session_logits(c->slot->session);
    if (!c->has_prompt)
        mf_srv_job_tell_reading(c->job, &(mf_srv_reading){0});
    c->has_prompt = true;
    c->n_forced = 0;
    if (c->n_answered >= p->n_max_tokens || !logits) {
        finish(c, MF_SRV_LENGTH);
        return;
    }
    mf_srv_refusal refusal;
    int32_t token;
    if (!choose(s->model, c, &token, &refusal)) {
        mf_srv_run_fail(s, c, &refusal);
        return;
    }
    if (mf_srv_model_ends(s->model, token) && (!p->ignores_end || c->guide)) {
        score(c, token, logits);
        finish(c, MF_SRV_END);
        return;
    }
    take_token(s, c, token, logits);
    if (!is_over(c))
        take_forced(s, c);
}

/* ------------------------------------------------------------------------------------ echoes -- */

typedef struct echo {
    mf_srv_choice *choice;
    size_t begin;
} echo;

/* Each once, though a prompt may be evaluated again. */
static void give_back_token(mf_srv_choice *c, size_t i, const float *logits)
{
    if (i != c->n_echoed || i >= c->prompt->n_tokens)
        return;
    c->n_echoed++;
    mf_srv_answer_echo(c, c->tokens[i], i > 0 || !c->prompt->has_start, logits);
}

static int on_echo(void *user, size_t token_index, const float *logits)
{
    const echo *e = user;
    const size_t next = e->begin + token_index + 1;
    give_back_token(e->choice, next, logits);
    return 0;
}

void mf_srv_run_begin_echo(mf_srv_choice *c)
{
    const mf_srv_params *p = &c->job->params;
    if (!p->has_echo || c->job->is_over)
        return;
    const size_t n = p->has_logprobs ? 1 : c->prompt->n_tokens;
    for (size_t i = 0; i < n; i++)
        give_back_token(c, i, NULL);
    mf_srv_channel_flush(&c->job->channel);
}

/* Which of two that run is put back: of the client with more, and then the newer. */
static bool goes_before(const mf_srv_choice *a, size_t n_a, const mf_srv_choice *b, size_t n_b)
{
    return n_a != n_b ? n_a > n_b : a->job->arrived_us >= b->job->arrived_us;
}

static void put_back(mf_srv_scheduler *s, mf_srv_choice *c)
{
    mf_srv_run_remove(s, c);
    mf_srv_slots_put_by(s, c);
    c->turn_us = mf_srv_now_us();
    c->next = s->waiting;
    s->waiting = c;
    mf_srv_stats_add(s->stats, &s->stats->counts.n_preempted, 1);
}

bool mf_srv_run_put_back(mf_srv_scheduler *s, size_t n_least)
{
    mf_srv_choice *c = NULL;
    size_t n_of_c = 0;
    for (size_t i = 0; i < s->n_running; i++) {
        const size_t n = mf_srv_run_n_of(s, s->running[i]->job->client);
        if (n >= n_least && !is_over(s->running[i]) &&
            (!c || goes_before(s->running[i], n, c, n_of_c))) {
            c = s->running[i];
            n_of_c = n;
        }
    }
    if (c)
        put_back(s, c);
    return c != NULL;
}

bool mf_srv_run_put_back_paused(mf_srv_scheduler *s)
{
    for (size_t i = 0; i < s->n_running; i++)
        if (!is_over(s->running[i]) && mf_srv_run_is_paused(s, s->running[i])) {
            put_back(s, s->running[i]);
            return true;
        }
    return false;
}
/* Memory was short for this choice, which is tried again with the next step: what is idle is given
 * up, or will be when it is stored; else somebody goes, and comes back when others are done. */
static void get_memory(mf_srv_scheduler *s, mf_srv_choice *c, mf_status status,
                       const mf_error *error)
{
    mf_srv_refusal refusal;
    if (mf_srv_slots_make_room(s) || mf_srv_slots_is_storing(s))
        return;
    if (s->n_running > 1) {
        s->is_short = mf_srv_run_put_back(s, 1);
        (void)mf_srv_slots_make_room(s);
        return;
    }
    mf_srv_refuse_status(&refusal, status, error);
    mf_srv_run_fail(s, c, &refusal);
}

/* A piece of a prompt whose logprobs are wanted. The step cannot give each token's logits. False:
 * it waits for memory. */
static bool read_echo(mf_srv_scheduler *s, mf_srv_choice *c, size_t piece)
{
    mf_error error = {0};
    mf_srv_refusal refusal;
    size_t n = n_left(c) < piece ? n_left(c) : piece;
    echo e = {c, c->n_evaluated};
    mf_session_set_cancel(c->slot->session, &c->job->cancel);
    mf_status status =
        mf_session_eval_each(c->slot->session, c->tokens + c->n_evaluated, n, on_echo, &e, &error);
    mf_session_set_cancel(c->slot->session, NULL);
    c->n_evaluated += status == MF_OK ? n : 0;
    mf_srv_stats_add(s->stats, &s->stats->counts.n_evaluated_tokens, status == MF_OK ? n : 0);
    if (status == MF_OK && n_left(c) == 0) {
        next_token(s, c);
    } else if (mf_srv_is_short_of_memory(status)) {
        get_memory(s, c, status, &error);
        return false;
    } else if (status != MF_OK && status != MF_ERR_CANCELLED) {
        mf_srv_refuse_status(&refusal, status, &error);
        mf_srv_run_fail(s, c, &refusal);
    }
    return true;
}

/* *has_worked: something came of it. Returns how many there were. */
static size_t read_echoes(mf_srv_scheduler *s, size_t piece, bool *has_worked)
{
    size_t n = 0;
    for (size_t i = s->n_running; i-- > 0;) {
        if (i >= s->n_running) /* one or another was put back */
            continue;
        mf_srv_choice *c = s->running[i];
        if (is_over(c) || !wants_echo_logits(c))
            continue;
        *has_worked = read_echo(s, c, piece) || *has_worked;
        n++;
    }
    return n;
}

/* ------------------------------------------------------------------------------------- steps -- */

/* The place of the next mark, or the end. */
static size_t next_stop(const mf_srv_choice *c)
{
    for (size_t i = 0; i < c->prompt->n_marks; i++)
        if (c->prompt->marks[i] > c->n_evaluated)
            return c->prompt->marks[i];
    return c->n_tokens;
}

/* What of its tokens a choice has in this step. piece: the most, of a prompt. */
static void fill_item(mf_srv_choice *c, size_t piece, mf_step_item *item)
{
    keep_stop_mark(c);
    size_t n = next_stop(c) - c->n_evaluated;
    n = n < n_left(c) ? n : n_left(c);
    if (is_reading(c) && n > piece)
        n = piece;
    *item = (mf_step_item){.struct_bytes = sizeof *item,
                           .session = c->slot->session,
                           .tokens = c->tokens + c->n_evaluated,
                           .n_tokens = n,
                           .cancel = &c->job->cancel,
                           .flags = n < n_left(c) ? MF_STEP_NO_LOGITS : 0,
                           .status = MF_ERR_STATE};
}

/* Who goes on now, but for echoes; into s->of. */
static size_t find_ready(mf_srv_scheduler *s)
{
    size_t n = 0, n_paused = 0;
    for (size_t i = 0; i < s->n_running; i++) {
        mf_srv_choice *c = s->running[i];
        if (is_over(c) || wants_echo_logits(c) || n_left(c) == 0)
            continue;
        if (mf_srv_run_is_paused(s, c)) {
            n_paused++;
            continue;
        }
        s->of[n++] = c;
    }
    mf_srv_stats_set(s->stats, &s->stats->counts.n_paused, n_paused);
    return n;
}

/* Those who have prompts to read, echoes among them, of all that go on now. */
static size_t count_readers(const mf_srv_scheduler *s, size_t n_ready, size_t *n_echoes)
{
    size_t n = 0;
    *n_echoes = 0;
    for (size_t i = 0; i < n_ready; i++)
        n += is_reading(s->of[i]);
    for (size_t i = 0; i < s->n_running; i++)
        *n_echoes += !is_over(s->running[i]) && wants_echo_logits(s->running[i]);
    return n + *n_echoes;
}

/* When its prompt will be read: as what it has read so far took, or as the engine foresees it. */
static void foresee(mf_srv_choice *c)
{
    const uint64_t now = mf_srv_now_us();
    mf_srv_reading r = {.n_done = c->n_evaluated, .n_all = c->n_tokens};
    mf_forecast forecast;
    if (c->n_evaluated > c->n_cached && c->turn_us > 0 && now > c->turn_us)
        r.end_us = now + (uint64_t)((double)(now - c->turn_us) * (double)n_left(c) /
                                    (double)(c->n_evaluated - c->n_cached));
    else if (mf_session_forecast(c->slot->session, n_left(c), 0, &forecast, NULL) == MF_OK &&
             forecast.seconds > 0)
        r.end_us = now + (uint64_t)(1e6 * forecast.seconds);
    mf_srv_job_tell_reading(c->job, &r);
}

/* What a step's readers share. */
typedef struct shares {
    size_t n_tokens, n_readers;
    bool is_whole; /* nobody answers: each reads as much as a chunk holds */
} shares;

static shares share_of(const mf_srv_scheduler *s, size_t n_readers, size_t n_all)
{
    if (n_readers == 0 || n_readers == n_all)
        return (shares){.n_tokens = s->model->info.n_chunk_tokens, .is_whole = true};
    return (shares){.n_tokens = s->pace.piece, .n_readers = n_readers};
}

/* The most that reader k reads: together no more than there is, the remainder goes to the first; 0:
 * it waits for those before it. */
static size_t piece_of(const shares *all, size_t k)
{
    if (all->is_whole)
        return all->n_tokens;
    return all->n_tokens / all->n_readers + (k < all->n_tokens % all->n_readers);
}

/* The items of the n that are ready, but for readers who wait. Returns how many; *n_read: tokens of
 * prompts in them. */
static size_t fill_items(mf_srv_scheduler *s, size_t n, const shares *all, size_t n_echoes,
                         size_t *n_read)
{
    size_t n_filled = 0, k = n_echoes;
    for (size_t i = 0; i < n; i++) {
        mf_srv_choice *c = s->of[i];
        const bool reads = is_reading(c);
        const size_t piece = reads ? piece_of(all, k++) : 1;
        if (piece == 0)
            continue;
        s->of[n_filled] = c;
        fill_item(c, piece, &s->items[n_filled]);
        if (reads) {
            *n_read += s->items[n_filled].n_tokens;
            foresee(c);
        }
        n_filled++;
    }
    return n_filled;
}

/* Learns how large pieces may be. */
static void learn(mf_srv_scheduler *s, size_t n_all, size_t n_readers, size_t n_prompt_tokens,
                  double us)
{
    if (n_readers == 0)
        mf_srv_pace_answers(&s->pace, us);
    else if (n_readers < n_all)
        mf_srv_pace_mixed(&s->pace, n_prompt_tokens, us);
}

/* False: there was no memory for it. */
static bool take_result(mf_srv_scheduler *s, mf_srv_choice *c, const mf_step_item *item,
                        const mf_error *error)
{
    mf_srv_refusal refusal;
    if (mf_srv_is_short_of_memory(item->status))
        return false;
    if (item->status == MF_ERR_CANCELLED)
        return true; /* the next look finds out why */
    if (item->status != MF_OK) {
        mf_srv_refuse_status(&refusal, item->status, error);
        refusal.status = 500;
        mf_srv_run_fail(s, c, &refusal);
        return true;
    }
    c->n_evaluated += item->n_done;
    mf_srv_stats_add(s->stats, &s->stats->counts.n_evaluated_tokens, item->n_done);
    for (size_t i = 0; i < c->prompt->n_marks; i++)
        if (c->prompt->marks[i] == c->n_evaluated && !c->has_prompt &&
            mf_mark_save(c->slot->session, NULL) != MF_OK)
            break; /* a convenience */
    if (n_left(c) == 0)
        next_token(s, c);
    return true;
}

/* The next tokens of all answers that go on and that no grammar holds, drawn side by side. */
static void draw_tokens(mf_srv_scheduler *s, size_t n)
{
    size_t n_draws = 0;
    if (!s->drawers)
        return;
    for (size_t i = 0; i < n; i++) {
        mf_srv_choice *c = s->of[i];
        const bool is_whole =
            s->items[i].status == MF_OK && c->n_evaluated + s->items[i].n_done == c->n_tokens;
        const float *logits = is_whole ? mf_session_logits(c->slot->session) : NULL;
        if (!logits || is_over(c) || c->guide || c->n_answered >= c->job->params.n_max_tokens)
            continue;
        s->drawn[n_draws] = c;
        s->draws[n_draws++] = (mf_srv_draw){
            .sampler = c->sampler, .logits = logits, .bounds = mf_session_bounds(c->slot->session)};
    }
    mf_srv_draw_all(s->drawers, s->draws, n_draws);
    for (size_t i = 0; i < n_draws; i++)
        s->drawn[i]->drawn = s->draws[i].token;
}

/* What came of the step's items. False: nothing, for lack of memory. */
static bool take_results(mf_srv_scheduler *s, size_t n, const mf_error *error)
{
    size_t n_short = 0, a_short_one = 0;
    draw_tokens(s, n);
    for (size_t i = 0; i < n; i++)
        if (!take_result(s, s->of[i], &s->items[i], error)) {
            n_short++;
            a_short_one = i;
        }
    if (n_short > 0)
        get_memory(s, s->of[a_short_one], s->items[a_short_one].status, error);
    return n_short < n;
}

/* A prompt that was found whole has its logits already. */
static bool begin_found(mf_srv_scheduler *s)
{
    bool has_begun = false;
    for (size_t i = 0; i < s->n_running; i++) {
        mf_srv_choice *c = s->running[i];
        if (is_over(c) || n_left(c) > 0)
            continue;
        next_token(s, c);
        has_begun = true;
    }
    return has_begun;
}

/* Readers are told of what was put for them: all together, so that none waits longer than FLUSH_US
 * for what is there, the next step taking so many microseconds. A first token goes at once. */
static void flush(mf_srv_scheduler *s, double next_us)
{
    const uint64_t now = mf_srv_now_us();
    const bool is_time = (double)(now - s->flushed_us) + next_us >= FLUSH_US;
    for (size_t i = 0; i < s->n_running; i++) {
        const mf_srv_choice *c = s->running[i];
        if (c->job->params.streams && (is_time || c->n_answered <= 1))
            mf_srv_channel_flush(&c->job->channel);
    }
    s->flushed_us = is_time ? now : s->flushed_us;
}

bool mf_srv_run_step(mf_srv_scheduler *s)
{
    mf_error error = {0};
    bool has_worked = begin_found(s);
    size_t n_echoes, n_prompt_tokens = 0, n = find_ready(s);
    const size_t n_readers = count_readers(s, n, &n_echoes), n_all = n + n_echoes;
    const shares all = share_of(s, n_readers, n_all);
    const uint64_t before = mf_srv_now_us();
    if (n_echoes > 0) {
        const size_t most = piece_of(&all, n_echoes - 1) > 0 ? piece_of(&all, n_echoes - 1) : 1;
        const size_t piece = most < ECHO_PIECE ? most : ECHO_PIECE;
        (void)read_echoes(s, piece, &has_worked);
        n = find_ready(s); /* some may have been put back, or have read all */
        n_prompt_tokens = n_echoes * piece;
    }
    n = fill_items(s, n, &all, n_echoes, &n_prompt_tokens);
    if (n == 0 || n_readers > 0 || s->pace.answer_us <= 0)
        flush(s, FLUSH_US);
    if (n == 0)
        return has_worked;
    mf_status status = mf_engine_step(s->model->engine, s->items, n, &error);
    (void)status; /* each item has its own */
    const uint64_t us = mf_srv_now_us() - before;
    learn(s, n_all, n_readers, n_prompt_tokens, (double)us);
    mf_srv_stats_add(s->stats, &s->stats->counts.n_steps, 1);
    mf_srv_stats_add(s->stats, &s->stats->counts.n_step_us, us);
    has_worked = take_results(s, n, &error) || has_worked;
    flush(s, has_worked && n_readers == 0 ? s->pace.answer_us : FLUSH_US);
    return has_worked;
}

/* SPDX-License-Identifier: MIT */
/*
 * Choices that run: one step of all, and what comes of it. While answers are running, prompts come
 * in pieces, as large as keeps a step below some times what a step of answers alone takes.
 */
#include "answer.h"
#include "constraint.h"
#include "history.h"
#include "scheduler_impl.h"

#include <stdlib.h>
#include <string.h>

/* A step with pieces of prompts may take so many times one without. */
#define MAX_STRETCH 2.2
#define MIN_PIECE 1
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

/* It has more to evaluate than its last token. */
static bool is_reading(const mf_srv_choice *c)
{
    return n_left(c) > 1 || !c->has_prompt;
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

/* --------------------------------------------------------------------------------------- tokens --
 */

static void finish(mf_srv_choice *c, mf_srv_finish why)
{
    mf_srv_answer_end(c, why != MF_SRV_END);
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

static void count_token(mf_srv_scheduler *s, mf_srv_choice *c)
{
    const uint64_t now = mf_srv_now_us();
    mf_srv_counts *counts = &s->stats->counts;
    if (c->n_answered == 0) {
        c->first_us = now;
        mf_srv_stats_time(s->stats, &counts->first_token,
                          (double)(now - c->job->arrived_us) * 1e-6);
    } else {
        mf_srv_stats_time(s->stats, &counts->between_tokens, (double)(now - c->last_us) * 1e-6);
    }
    mf_srv_stats_add(s->stats, &counts->n_answer_tokens, 1);
    c->last_us = now;
}

/* The sampler's choice, but for thoughts that took all their budget. */
static bool choose(const mf_srv_model *model, mf_srv_choice *c, const float *logits, int32_t *token,
                   mf_srv_refusal *r)
{
    if (!mf_srv_constraint_sample(c, logits, token, r))
        return false;
    const bool is_thought = mf_srv_answer_is_thought(c);
    const bool is_too_long = is_thought && c->n_thought_tokens >= c->job->params.n_thought_max;
    if (!is_thought && c->n_closed == model->n_close_tokens)
        c->n_closed = 0; /* another thought is closed as well */
    if ((is_too_long || c->n_closed > 0) && c->n_closed < model->n_close_tokens)
        *token = model->close_tokens[c->n_closed++];
    return true;
}

static bool is_end(const mf_srv_model *model, int32_t token)
{
    for (size_t i = 0; i < model->n_end_tokens; i++)
        if (model->end_tokens[i] == token)
            return true;
    return mf_tokenizer_is_end(model->tokenizer, token) != 0;
}

/* All tokens are evaluated: the next one. */
static void next_token(mf_srv_scheduler *s, mf_srv_choice *c)
{
    const mf_srv_params *p = &c->job->params;
    const float *logits = mf_session_logits(c->slot->session);
    c->has_prompt = true;
    if (c->n_answered >= p->n_max_tokens || !logits) {
        finish(c, MF_SRV_LENGTH);
        return;
    }
    mf_srv_refusal refusal;
    int32_t token;
    bool is_good = choose(s->model, c, logits, &token, &refusal);
    if (is_good && is_end(s->model, token) && (!p->ignores_end || c->guide)) {
        finish(c, MF_SRV_END);
        return;
    }
    if (!is_good || !mf_srv_constraint_take(c, token, &refusal)) {
        mf_srv_run_fail(s, c, &refusal);
        return;
    }
    count_token(s, c);
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

/* ---------------------------------------------------------------------------------------- echoes
 * --
 */

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
    mf_srv_answer_echo(c, c->tokens[i], logits);
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
}

static bool is_short_of_memory(mf_status status)
{
    return status == MF_ERR_BUDGET || status == MF_ERR_NO_MEMORY;
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
    } else if (is_short_of_memory(status)) {
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

/* ----------------------------------------------------------------------------------------- steps
 * --
 */

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

/* The most that each of them reads in this step. */
static size_t piece_of(const mf_srv_scheduler *s, size_t n_readers, size_t n_all)
{
    if (n_readers == 0 || n_readers == n_all)
        return s->model->info.n_chunk_tokens;
    return s->piece / n_readers > 0 ? s->piece / n_readers : 1;
}

/* Learns how large pieces may be. */
static void adapt(mf_srv_scheduler *s, size_t n_items, size_t n_readers, double us)
{
    const size_t most = s->model->info.n_chunk_tokens;
    if (n_readers == 0)
        s->answer_us = s->answer_us > 0 ? 0.8 * s->answer_us + 0.2 * us : us;
    else if (n_readers < n_items && s->answer_us > 0) {
        if (us > MAX_STRETCH * s->answer_us)
            s->piece = s->piece * 3 / 4;
        else if (us < 0.8 * MAX_STRETCH * s->answer_us)
            s->piece += s->piece / 4 + 1;
        s->piece = s->piece < MIN_PIECE ? MIN_PIECE : s->piece > most ? most : s->piece;
    }
}

/* False: there was no memory for it. */
static bool take_result(mf_srv_scheduler *s, mf_srv_choice *c, const mf_step_item *item,
                        const mf_error *error)
{
    mf_srv_refusal refusal;
    if (is_short_of_memory(item->status))
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

/* What came of the step's items. False: nothing, for lack of memory. */
static bool take_results(mf_srv_scheduler *s, size_t n, const mf_error *error)
{
    size_t n_short = 0, a_short_one = 0;
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

bool mf_srv_run_step(mf_srv_scheduler *s)
{
    mf_error error = {0};
    bool has_worked = begin_found(s);
    size_t n_echoes, n = find_ready(s);
    const size_t n_readers = count_readers(s, n, &n_echoes), n_all = n + n_echoes;
    size_t piece = piece_of(s, n_readers, n_all);
    const uint64_t before = mf_srv_now_us();
    if (n_echoes > 0) {
        (void)read_echoes(s, piece < ECHO_PIECE ? piece : ECHO_PIECE, &has_worked);
        n = find_ready(s); /* some may have been put back, or have read all */
    }
    for (size_t i = 0; i < n; i++)
        fill_item(s->of[i], piece, &s->items[i]);
    if (n == 0)
        return has_worked;
    mf_status status = mf_engine_step(s->model->engine, s->items, n, &error);
    (void)status; /* each item has its own */
    const uint64_t us = mf_srv_now_us() - before;
    adapt(s, n_all, n_readers, (double)us);
    mf_srv_stats_add(s->stats, &s->stats->counts.n_steps, 1);
    mf_srv_stats_add(s->stats, &s->stats->counts.n_step_us, us);
    return take_results(s, n, &error) || has_worked;
}

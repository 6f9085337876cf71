/* SPDX-License-Identifier: MIT */
/* The scheduler's thread: who comes in, who goes. */
#include "scheduler_impl.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* How long the thread sleeps at most when all wait for somebody else. */
#define NAP_NS (20 * 1000000L)
/* So long a client waits for the answers of one who has several. */
#define GIVES_WAY_US 2000000u
/* Tokens of several answers are drawn by several threads with a vocabulary of this size. */
#define MIN_DRAWN_VOCAB 32768u
#define MAX_DRAWERS 7u

/* -------------------------------------------------------------------------- from all threads -- */

/* With the lock held, as the next. */
static void count_waiting(mf_srv_scheduler *s, const mf_srv_job *job, int change)
{
    s->n_waiting_jobs += (size_t)change;
    s->n_waiting_of[job->client % MF_SRV_N_CLIENTS] += (uint32_t)change;
}

/* A client that has nothing waiting is not locked out by others who fill the queue: it may be twice
 * as long for such. */
static bool is_full(const mf_srv_scheduler *s, uint64_t client)
{
    const size_t most = s->options.max_waiting_jobs;
    const bool is_new = s->n_waiting_of[client % MF_SRV_N_CLIENTS] == 0;
    return s->n_waiting_jobs >= (is_new ? 2 * most : most);
}

mf_srv_taken mf_srv_scheduler_submit(mf_srv_scheduler *s, mf_srv_job *job)
{
    mf_srv_taken taken = MF_SRV_TAKEN;
    pthread_mutex_lock(&s->lock);
    if (s->is_closed) {
        taken = MF_SRV_CLOSED;
    } else if (is_full(s, job->client)) {
        taken = MF_SRV_FULL;
    } else {
        mf_srv_choice **end = &s->arrived;
        mf_srv_job_hold(job);
        s->n_jobs++;
        count_waiting(s, job, 1);
        while (*end)
            end = &(*end)->next;
        for (size_t i = 0; i < job->n_choices; i++) {
            *end = &job->choices[i];
            end = &job->choices[i].next;
        }
        *end = NULL;
        s->has_news = true;
        pthread_cond_signal(&s->woken);
    }
    pthread_mutex_unlock(&s->lock);
    if (taken == MF_SRV_TAKEN)
        mf_srv_stats_add(s->stats, &s->stats->counts.n_jobs, 1);
    else
        mf_srv_stats_add(s->stats, &s->stats->counts.n_rejected, 1);
    return taken;
}

static void set_flag(mf_srv_scheduler *s, bool *flag)
{
    pthread_mutex_lock(&s->lock);
    *flag = true;
    s->has_news = true;
    pthread_cond_signal(&s->woken);
    pthread_cond_signal(&s->stored);
    pthread_mutex_unlock(&s->lock);
}

void mf_srv_scheduler_wake(mf_srv_scheduler *s)
{
    set_flag(s, &s->has_news);
}

void mf_srv_scheduler_close(mf_srv_scheduler *s)
{
    set_flag(s, &s->is_closed);
}

void mf_srv_scheduler_cancel_all(mf_srv_scheduler *s)
{
    set_flag(s, &s->is_cancelling);
}

bool mf_srv_scheduler_is_idle(mf_srv_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    bool is_idle = s->is_closed && s->n_jobs == 0;
    pthread_mutex_unlock(&s->lock);
    return is_idle;
}

/* -------------------------------------------------------------------------- coming and going -- */

/* A choice is the scheduler's no more, and with the last one the job. */
static void leave(mf_srv_scheduler *s, mf_srv_choice *c)
{
    mf_srv_job *job = c->job;
    c->has_prompt = true; /* those who waited for it read it themselves */
    if (++job->n_left < job->n_choices)
        return;
    pthread_mutex_lock(&s->lock);
    s->n_jobs--;
    if (!job->has_begun)
        count_waiting(s, job, -1);
    pthread_mutex_unlock(&s->lock);
    mf_srv_stats_add(s->stats, &s->stats->counts.n_finished, job->n_finished == job->n_choices);
    mf_srv_job_drop(job);
}

/* Ends the job if it is not wanted any more, or late. */
static void look_at_job(mf_srv_scheduler *s, mf_srv_job *job, bool is_cancelling)
{
    mf_srv_refusal refusal;
    if (job->is_over)
        return;
    if (mf_cancel_is_requested(&job->cancel)) {
        mf_srv_job_cancel(job);
        mf_srv_stats_add(s->stats, &s->stats->counts.n_cancelled, 1);
    } else if (is_cancelling) {
        mf_srv_refuse(&refusal, 503, "the server is shutting down");
        mf_srv_job_fail(job, &refusal);
    } else if (job->deadline_us > 0 && mf_srv_now_us() >= job->deadline_us) {
        mf_srv_refuse(&refusal, 504, "the request took longer than the server allows");
        mf_srv_job_fail(job, &refusal);
        mf_srv_stats_add(s->stats, &s->stats->counts.n_failed, 1);
    }
}

static void drop_waiting(mf_srv_scheduler *s, bool is_cancelling)
{
    for (mf_srv_choice **at = &s->waiting; *at;) {
        mf_srv_choice *c = *at;
        look_at_job(s, c->job, is_cancelling);
        if (!c->job->is_over) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        leave(s, c);
    }
}

static void drop_running(mf_srv_scheduler *s, bool is_cancelling)
{
    for (size_t i = s->n_running; i-- > 0;) {
        mf_srv_choice *c = s->running[i];
        look_at_job(s, c->job, is_cancelling);
        if (!c->job->is_over && c->finish == MF_SRV_RUNNING)
            continue;
        mf_srv_run_remove(s, c);
        if (c->slot)
            mf_srv_slots_give_back(s, c, true);
        s->is_short = false;
        leave(s, c);
    }
}

/* Choices of one prompt come after the first of them has evaluated it; those whose reader is
 * behind, when it has caught up. */
static bool is_ready(const mf_srv_scheduler *s, mf_srv_choice *c)
{
    const size_t n = c->job->params.n_choices;
    if (mf_srv_run_is_paused(s, c))
        return false;
    return c->index % n == 0 || c->job->choices[c->index - c->index % n].has_prompt;
}

/* Of those who wait, the first of the client who has the least running. */
static mf_srv_choice **fairest(mf_srv_scheduler *s)
{
    mf_srv_choice **best = NULL;
    size_t n_best = 0;
    for (mf_srv_choice **at = &s->waiting; *at; at = &(*at)->next) {
        if (!is_ready(s, *at))
            continue;
        size_t n = mf_srv_run_n_of(s, (*at)->job->client);
        if (!best || n < n_best) {
            best = at;
            n_best = n;
        }
    }
    return best;
}

static uint64_t waits_since(const mf_srv_choice *c)
{
    return c->turn_us > 0 ? c->turn_us : c->job->arrived_us;
}

static void count_admitted(mf_srv_scheduler *s, const mf_srv_choice *c)
{
    mf_srv_counts *counts = &s->stats->counts;
    if (c->has_prompt)
        return;
    mf_srv_stats_add(s->stats, &counts->n_prompt_tokens, c->prompt->n_tokens);
    mf_srv_stats_add(s->stats, &counts->n_cached_tokens, c->n_cached);
}

static void admit(mf_srv_scheduler *s)
{
    mf_srv_choice **at;
    while (s->n_running < s->n_slots && !(s->is_short && s->n_running > 0) &&
           (at = fairest(s)) != NULL) {
        mf_srv_choice *c = *at;
        if (!mf_srv_slots_take(s, c))
            return;
        *at = c->next;
        c->next = NULL;
        c->turn_us = mf_srv_now_us();
        if (!c->job->has_begun) {
            pthread_mutex_lock(&s->lock);
            count_waiting(s, c->job, -1);
            pthread_mutex_unlock(&s->lock);
        }
        count_admitted(s, c);
        mf_srv_job_begin(c->job);
        mf_srv_run_begin_echo(c);
        s->running[s->n_running++] = c; /* a failed one, too: it goes with the next look */
    }
}

/* Where all places are taken: a reader who is behind gives way to those who wait, and the answers
 * of one who has several give way for a while to a client of whom nothing runs. */
static void make_way(mf_srv_scheduler *s)
{
    const uint64_t now = mf_srv_now_us();
    mf_srv_choice **at = NULL;
    if (s->n_running == s->n_slots || s->is_short)
        at = fairest(s);
    if (!at)
        return;
    if (mf_srv_run_put_back_paused(s)) {
        s->is_short = false;
        admit(s);
    } else if (mf_srv_run_n_of(s, (*at)->job->client) == 0 &&
               now - waits_since(*at) > GIVES_WAY_US && now - s->gave_way_us > GIVES_WAY_US &&
               mf_srv_run_put_back(s, 2)) {
        s->gave_way_us = now;
        s->is_short = false;
        admit(s);
    }
}

/* -------------------------------------------------------------------------------- the thread -- */

static void nap(mf_srv_scheduler *s)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += NAP_NS;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_cond_timedwait(&s->woken, &s->lock, &until);
}

/* With the lock held. The last job may have ended behind the news of it. */
static bool is_at_end(const mf_srv_scheduler *s)
{
    return s->is_stopping && s->n_jobs == 0;
}

/* Takes in what came. has_worked: the last step did something. False: the thread ends. */
static bool take_arrived(mf_srv_scheduler *s, bool has_worked, bool *is_cancelling)
{
    pthread_mutex_lock(&s->lock);
    while (!s->has_news && s->n_running == 0 && !s->waiting && !is_at_end(s))
        pthread_cond_wait(&s->woken, &s->lock);
    if (!s->has_news && !has_worked && !is_at_end(s))
        nap(s);
    s->has_news = false;
    mf_srv_choice **end = &s->waiting;
    while (*end)
        end = &(*end)->next;
    *end = s->arrived;
    s->arrived = NULL;
    *is_cancelling = s->is_cancelling;
    bool goes_on = !is_at_end(s);
    pthread_mutex_unlock(&s->lock);
    return goes_on;
}

static void count_now(mf_srv_scheduler *s)
{
    mf_srv_counts *counts = &s->stats->counts;
    size_t n_waiting = 0;
    for (const mf_srv_choice *c = s->waiting; c; c = c->next)
        n_waiting++;
    mf_srv_stats_set(s->stats, &counts->n_waiting, n_waiting);
    mf_srv_stats_set(s->stats, &counts->n_running, s->n_running);
    if (s->n_running == 0)
        mf_srv_stats_set(s->stats, &counts->n_paused, 0);
    mf_srv_stats_set(s->stats, &counts->n_sessions_idle, mf_srv_slots_n_idle(s));
}

static void *work(void *scheduler)
{
    mf_srv_scheduler *s = scheduler;
    bool has_worked = true, is_cancelling;
    while (take_arrived(s, has_worked, &is_cancelling)) {
        const uint64_t before = mf_srv_now_us();
        drop_waiting(s, is_cancelling);
        drop_running(s, is_cancelling);
        admit(s);
        make_way(s);
        count_now(s);
        has_worked = s->n_running > 0 && mf_srv_run_step(s);
        drop_running(s, is_cancelling);
        count_now(s);
        mf_srv_stats_add(s->stats, &s->stats->counts.n_busy_us, mf_srv_now_us() - before);
    }
    return NULL;
}

static void free_scheduler(mf_srv_scheduler *s)
{
    for (size_t i = 0; s->slots && i < s->n_slots; i++)
        mf_session_free(&s->slots[i].session);
    free(s->slots);
    free(s->running);
    free(s->items);
    free(s->of);
    free(s->draws);
    free(s->drawn);
    mf_srv_drawers_stop(&s->drawers);
    free(s->to_store);
    pthread_cond_destroy(&s->woken);
    pthread_cond_destroy(&s->stored);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* Threads beside this one, where a vocabulary is worth waking them for. */
static size_t n_drawers(const mf_srv_scheduler *s)
{
    const long n_processors = sysconf(_SC_NPROCESSORS_ONLN);
    const size_t n_others = n_processors > 1 ? (size_t)n_processors - 1 : 0;
    size_t n = s->n_slots > 0 ? s->n_slots - 1 : 0;
    n = n < n_others ? n : n_others;
    return s->model->info.n_vocab < MIN_DRAWN_VOCAB ? 0 : n < MAX_DRAWERS ? n : MAX_DRAWERS;
}

static bool set_up(mf_srv_scheduler *s)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->woken, &attributes);
    pthread_cond_init(&s->stored, NULL);
    pthread_condattr_destroy(&attributes);
    s->n_slots = s->model->info.n_sessions;
    mf_srv_pace_begin(&s->pace, s->model->info.n_chunk_tokens, s->options.max_stall_us);
    s->slots = calloc(s->n_slots, sizeof *s->slots);
    s->running = calloc(s->n_slots, sizeof(mf_srv_choice *));
    s->items = calloc(s->n_slots, sizeof *s->items);
    s->of = calloc(s->n_slots, sizeof(mf_srv_choice *));
    s->draws = calloc(s->n_slots, sizeof *s->draws);
    s->drawn = calloc(s->n_slots, sizeof(mf_srv_choice *));
    s->to_store = calloc(s->n_slots, sizeof(mf_srv_slot *));
    s->drawers = mf_srv_drawers_start(n_drawers(s));
    return s->slots && s->running && s->items && s->of && s->draws && s->drawn && s->to_store;
}

mf_srv_scheduler *mf_srv_scheduler_start(const mf_srv_scheduler_options *options)
{
    mf_srv_scheduler *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->options = *options;
    s->model = options->model;
    s->stats = options->stats;
    if (!set_up(s)) {
        free_scheduler(s);
        return NULL;
    }
    s->has_keeper =
        s->model->store && pthread_create(&s->keeper, NULL, mf_srv_slots_keeper, s) == 0;
    if (pthread_create(&s->thread, NULL, work, s) == 0)
        return s;
    set_flag(s, &s->is_stopping);
    if (s->has_keeper)
        pthread_join(s->keeper, NULL);
    free_scheduler(s);
    return NULL;
}

void mf_srv_scheduler_stop(mf_srv_scheduler **scheduler)
{
    mf_srv_scheduler *s = *scheduler;
    *scheduler = NULL;
    if (!s)
        return;
    set_flag(s, &s->is_closed);
    set_flag(s, &s->is_stopping);
    pthread_join(s->thread, NULL);
    if (s->has_keeper)
        pthread_join(s->keeper, NULL);
    free_scheduler(s);
}

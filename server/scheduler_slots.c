/* SPDX-License-Identifier: MIT */
/*
 * Sessions as places for choices. A place whose sequence the new prompt goes on with is the best; a
 * place that is used anew takes what other sessions, marks or the store hold of the prompt.
 */
#include "constraint.h"
#include "scheduler_impl.h"

#include <stdio.h>
#include <string.h>

/* Marks in long prompts, for later ones that part from them anywhere. */
#define MARK_EVERY_TOKENS 1024

static bool is_storing(mf_srv_scheduler *s, const mf_srv_slot *slot)
{
    pthread_mutex_lock(&s->lock);
    const bool is = slot->is_storing;
    pthread_mutex_unlock(&s->lock);
    return is;
}

static bool is_free(mf_srv_scheduler *s, const mf_srv_slot *slot)
{
    return !slot->user && !is_storing(s, slot);
}

/* What taking a slot for a choice means for the sequence that its session holds, the worst first.
 */
typedef enum fit {
    FIT_OTHER,  /* lost: another conversation */
    FIT_BRANCH, /* its end is lost: at least half of it is the choice's too */
    FIT_EMPTY,  /* there is none */
    FIT_GOES_ON /* the choice begins with all of it */
} fit;

/* *n_shared: tokens that both begin with. */
static fit fit_of(const mf_srv_slot *slot, const mf_srv_choice *c, size_t *n_shared)
{
    const size_t n_held = slot->session ? mf_session_position(slot->session) : 0;
    const int32_t *held = n_held > 0 ? mf_session_tokens(slot->session) : NULL;
    size_t n = 0;
    while (n < n_held && n < c->n_tokens && held[n] == c->tokens[n])
        n++;
    *n_shared = n;
    if (n_held == 0)
        return FIT_EMPTY;
    return n == n_held ? FIT_GOES_ON : n >= n_held - n ? FIT_BRANCH : FIT_OTHER;
}

/* The best fit; of those the one that shares most, and then the one that was used longest ago. A
 * conversation that parts from what is held of it (it asks for another answer, or its old thoughts
 * are left out) takes its own slot again, so that as many go on side by side as there are slots. */
static mf_srv_slot *find_slot(mf_srv_scheduler *s, const mf_srv_choice *c)
{
    mf_srv_slot *best = NULL;
    fit best_fit = FIT_OTHER;
    size_t n_best = 0;
    for (mf_srv_slot *slot = s->slots; slot < s->slots + s->n_slots; slot++) {
        if (!is_free(s, slot))
            continue;
        size_t n;
        const fit how = fit_of(slot, c, &n);
        n = how == FIT_OTHER ? 0 : n; /* the little that all begin with does not count */
        if (!best || how > best_fit ||
            (how == best_fit && (n > n_best || (n == n_best && slot->used < best->used)))) {
            best = slot;
            best_fit = how;
            n_best = n;
        }
    }
    return best;
}

static mf_status no_memory(mf_error *error)
{
    error->code = MF_ERR_NO_MEMORY;
    snprintf(error->message, sizeof error->message, "out of memory for an answer's form");
    return MF_ERR_NO_MEMORY;
}

static mf_status open_sampler(const mf_srv_scheduler *s, mf_srv_choice *c, mf_error *error)
{
    const mf_srv_params *p = &c->job->params;
    if (c->sampler)
        return MF_OK;
    mf_sampler_options options = p->sampler;
    options.seed += c->index % p->n_choices;
    mf_status status =
        mf_sampler_create(&options, s->model->info.n_vocab, NULL, &c->sampler, error);
    if (status == MF_OK)
        mf_sampler_accept_prompt(c->sampler, c->prompt->tokens, c->prompt->n_tokens);
    if (status == MF_OK && !mf_srv_constraint_begin(c))
        status = no_memory(error);
    return status;
}

static mf_status fill(mf_srv_scheduler *s, mf_srv_slot *slot, mf_srv_choice *c, mf_error *error)
{
    const mf_srv_params *p = &c->job->params;
    mf_sync_result found = {0};
    mf_status status = open_sampler(s, c, error);
    if (status == MF_OK && !slot->session)
        status = mf_session_create(s->model->engine, &slot->session, error);
    if (status != MF_OK)
        return status;
    mf_mark_auto(slot->session, MARK_EVERY_TOKENS, 0);
    if (p->has_echo && p->has_logprobs && !c->has_prompt)
        mf_session_clear(slot->session); /* each token's logits are wanted */
    else
        status = mf_session_reuse(slot->session, c->tokens, c->n_tokens, &found, error);
    if (status != MF_OK)
        return status;
    mf_session_set_deadline(slot->session, c->job->deadline_us);
    c->n_evaluated = found.n_reused;
    if (!c->has_prompt)
        c->n_cached = found.n_reused < c->prompt->n_tokens ? found.n_reused : c->prompt->n_tokens;
    return MF_OK;
}

bool mf_srv_slots_take(mf_srv_scheduler *s, mf_srv_choice *c)
{
    mf_error error = {0};
    mf_srv_refusal refusal;
    if (!mf_srv_job_give_tokens(c)) {
        mf_srv_refuse(&refusal, 503, "out of memory for the prompt");
        mf_srv_job_fail(c->job, &refusal);
        return true;
    }
    if (c->left && is_storing(s, c->left)) /* it is what comes back */
        return false;
    mf_srv_slot *slot = find_slot(s, c);
    if (!slot)
        return false;
    slot->used = ++s->n_uses;
    const size_t n_had = c->left ? c->n_evaluated : 0;
    mf_status status = fill(s, slot, c, &error);
    while ((mf_srv_is_short_of_memory(status) || (status == MF_OK && c->n_evaluated < n_had)) &&
           mf_srv_slots_make_room(s))
        status = fill(s, slot, c, &error);
    if (status == MF_OK && c->n_evaluated < n_had && mf_srv_slots_is_storing(s)) {
        mf_session_clear(slot->session); /* there is room for what it had when that is done */
        c->n_evaluated = n_had;
        return false;
    }
    if (mf_srv_is_short_of_memory(status) && s->n_running > 0) {
        s->is_short = true; /* until somebody goes */
        return false;
    }
    if (status != MF_OK) {
        mf_srv_refuse_status(&refusal, status, &error);
        mf_srv_job_fail(c->job, &refusal);
        return true;
    }
    slot->user = c;
    c->slot = slot;
    c->left = NULL;
    return true;
}

static void store(mf_srv_scheduler *s, mf_srv_slot *slot)
{
    if (!s->has_keeper || mf_session_position(slot->session) == 0)
        return;
    pthread_mutex_lock(&s->lock);
    slot->is_storing = true;
    s->to_store[s->n_to_store++] = slot;
    pthread_cond_signal(&s->stored);
    pthread_mutex_unlock(&s->lock);
}

void mf_srv_slots_give_back(mf_srv_scheduler *s, mf_srv_choice *c, bool keeps)
{
    mf_srv_slot *slot = c->slot;
    c->slot = NULL;
    mf_session_set_deadline(slot->session, 0);
    slot->user = NULL;
    slot->used = ++s->n_uses;
    if (keeps)
        store(s, slot);
}

void mf_srv_slots_put_by(mf_srv_scheduler *s, mf_srv_choice *c)
{
    c->left = c->slot;
    mf_srv_slots_give_back(s, c, true);
    c->left->used = 0;
}

bool mf_srv_slots_is_storing(mf_srv_scheduler *s)
{
    for (size_t i = 0; i < s->n_slots; i++)
        if (is_storing(s, &s->slots[i]))
            return true;
    return false;
}

bool mf_srv_slots_make_room(mf_srv_scheduler *s)
{
    mf_srv_slot *oldest = NULL;
    for (mf_srv_slot *slot = s->slots; slot < s->slots + s->n_slots; slot++)
        if (slot->session && mf_session_position(slot->session) > 0 && is_free(s, slot) &&
            (!oldest || slot->used < oldest->used))
            oldest = slot;
    if (oldest)
        mf_session_clear(oldest->session);
    return oldest != NULL;
}

size_t mf_srv_slots_n_idle(const mf_srv_scheduler *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_slots; i++)
        n += s->slots[i].session && !s->slots[i].user;
    return n;
}

/* The next slot to store; NULL: the thread ends. What is there when the server stops is stored. */
static mf_srv_slot *next_to_store(mf_srv_scheduler *s)
{
    mf_srv_slot *slot = NULL;
    pthread_mutex_lock(&s->lock);
    while (s->n_to_store == 0 && !s->is_stopping)
        pthread_cond_wait(&s->stored, &s->lock);
    if (s->n_to_store > 0) {
        slot = s->to_store[0];
        memmove(s->to_store, s->to_store + 1, --s->n_to_store * sizeof *s->to_store);
    }
    pthread_mutex_unlock(&s->lock);
    return slot;
}

void *mf_srv_slots_keeper(void *scheduler)
{
    mf_srv_scheduler *s = scheduler;
    mf_srv_slot *slot;
    while ((slot = next_to_store(s)) != NULL) {
        mf_error error = {0};
        mf_status status = mf_store_put(s->model->store, slot->session, &error);
        if (status == MF_OK)
            mf_srv_stats_add(s->stats, &s->stats->counts.n_stored, 1);
        else
            fprintf(stderr, "moeflux: a session was not stored: %s\n", error.message);
        pthread_mutex_lock(&s->lock);
        slot->is_storing = false;
        s->has_news = true;
        pthread_cond_signal(&s->woken);
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

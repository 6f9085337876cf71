/* SPDX-License-Identifier: MIT */
#include "fake_engine.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TOKENS 16384u

typedef struct fake_session {
    int32_t tokens[MAX_TOKENS];
    size_t n_tokens;
} fake_session;

static struct fake {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    fake_costs costs;
    uint64_t now_us, random;
    size_t n_allowed; /* steps */
    bool is_held;
    fake_step steps[FAKE_MAX_STEPS];
    size_t n_steps;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Under the names that the linker gives them; nothing else calls them. */
uint64_t __wrap_mf_srv_now_us(void);
mf_status __wrap_mf_engine_step(mf_engine *e, mf_step_item *items, size_t n, mf_error *error);
mf_status __wrap_mf_session_create(mf_engine *e, mf_session **out, mf_error *error);
void __wrap_mf_session_free(mf_session **session);
void __wrap_mf_session_clear(mf_session *session);
size_t __wrap_mf_session_position(const mf_session *session);
const int32_t *__wrap_mf_session_tokens(const mf_session *session);
const float *__wrap_mf_session_logits(const mf_session *session);
const float *__wrap_mf_session_bounds(const mf_session *session);
void __wrap_mf_session_set_deadline(mf_session *session, uint64_t us);
void __wrap_mf_mark_auto(mf_session *session, size_t n, int at_end);
mf_status __wrap_mf_session_forecast_sized(mf_session *session, size_t n, uint32_t n_milliseconds,
                                           mf_forecast *out, size_t struct_bytes, mf_error *error);
mf_status __wrap_mf_session_reuse(mf_session *session, const int32_t *tokens, size_t n,
                                  mf_sync_result *out, mf_error *error);

void fake_begin(const fake_costs *costs)
{
    pthread_mutex_lock(&fake.lock);
    fake.costs = *costs;
    fake.now_us = 1000000;
    fake.random = 88172645463325252u;
    fake.n_allowed = fake.n_steps = 0;
    fake.is_held = false;
    pthread_mutex_unlock(&fake.lock);
}

uint64_t fake_now_us(void)
{
    pthread_mutex_lock(&fake.lock);
    const uint64_t now = fake.now_us;
    pthread_mutex_unlock(&fake.lock);
    return now;
}

uint64_t __wrap_mf_srv_now_us(void)
{
    return fake_now_us();
}

void fake_let_go(size_t n_steps)
{
    pthread_mutex_lock(&fake.lock);
    fake.n_allowed = n_steps;
    fake.is_held = false;
    pthread_cond_broadcast(&fake.changed);
    pthread_mutex_unlock(&fake.lock);
}

void fake_wait_held(void)
{
    pthread_mutex_lock(&fake.lock);
    while (!fake.is_held)
        pthread_cond_wait(&fake.changed, &fake.lock);
    pthread_mutex_unlock(&fake.lock);
}

size_t fake_steps(const fake_step **steps)
{
    pthread_mutex_lock(&fake.lock);
    const size_t n = fake.n_steps;
    *steps = fake.steps;
    pthread_mutex_unlock(&fake.lock);
    return n;
}

static double uniform(void)
{
    fake.random ^= fake.random << 13;
    fake.random ^= fake.random >> 7;
    fake.random ^= fake.random << 17;
    return (double)(fake.random >> 11) * 0x1p-53;
}

/* With the lock held. */
static void note_step(const mf_step_item *items, size_t n)
{
    fake_step *step = &fake.steps[fake.n_steps < FAKE_MAX_STEPS ? fake.n_steps++ : 0];
    size_t n_read = 0;
    *step = (fake_step){.begin_us = fake.now_us, .n_items = n};
    for (size_t i = 0; i < n && i < FAKE_MAX_ITEMS; i++) {
        const bool reads = items[i].n_tokens > 1 || items[i].flags & MF_STEP_NO_LOGITS;
        step->items[i] = (fake_item){items[i].session, items[i].n_tokens, reads};
        n_read += reads ? items[i].n_tokens : 0;
    }
    const fake_costs *c = &fake.costs;
    const double us =
        c->answer_us + (n_read > 0 ? c->token_us * pow((double)n_read, c->exponent) : 0);
    fake.now_us += (uint64_t)(us * (1 + c->jitter * uniform()));
    step->end_us = fake.now_us;
}

mf_status __wrap_mf_engine_step(mf_engine *e, mf_step_item *items, size_t n, mf_error *error)
{
    (void)e;
    (void)error;
    pthread_mutex_lock(&fake.lock);
    while (fake.n_allowed == 0) {
        fake.is_held = true;
        pthread_cond_broadcast(&fake.changed);
        pthread_cond_wait(&fake.changed, &fake.lock);
    }
    fake.n_allowed -= fake.n_allowed != SIZE_MAX;
    note_step(items, n);
    pthread_mutex_unlock(&fake.lock);
    for (size_t i = 0; i < n; i++) {
        fake_session *s = (fake_session *)(void *)items[i].session;
        if (s->n_tokens + items[i].n_tokens > MAX_TOKENS)
            abort();
        memcpy(s->tokens + s->n_tokens, items[i].tokens, items[i].n_tokens * sizeof *s->tokens);
        s->n_tokens += items[i].n_tokens;
        items[i].n_done = items[i].n_tokens;
        items[i].status = MF_OK;
    }
    return MF_OK;
}

mf_status __wrap_mf_session_create(mf_engine *e, mf_session **out, mf_error *error)
{
    (void)e;
    (void)error;
    fake_session *s = calloc(1, sizeof *s);
    *out = (mf_session *)(void *)s;
    return s ? MF_OK : MF_ERR_NO_MEMORY;
}

void __wrap_mf_session_free(mf_session **session)
{
    free(*session);
    *session = NULL;
}

void __wrap_mf_session_clear(mf_session *session)
{
    ((fake_session *)(void *)session)->n_tokens = 0;
}

size_t __wrap_mf_session_position(const mf_session *session)
{
    return ((const fake_session *)(const void *)session)->n_tokens;
}

const int32_t *__wrap_mf_session_tokens(const mf_session *session)
{
    return ((const fake_session *)(const void *)session)->tokens;
}

const float *__wrap_mf_session_logits(const mf_session *session)
{
    static const float logits[FAKE_VOCAB] = {[7] = 1};
    (void)session;
    return logits;
}

const float *__wrap_mf_session_bounds(const mf_session *session)
{
    (void)session;
    return NULL;
}

void __wrap_mf_session_set_deadline(mf_session *session, uint64_t us)
{
    (void)session;
    (void)us;
}

void __wrap_mf_mark_auto(mf_session *session, size_t n, int at_end)
{
    (void)session;
    (void)n;
    (void)at_end;
}

/* Nothing is foreseen. */
mf_status __wrap_mf_session_forecast_sized(mf_session *session, size_t n, uint32_t n_milliseconds,
                                           mf_forecast *out, size_t struct_bytes, mf_error *error)
{
    (void)session;
    (void)n;
    (void)n_milliseconds;
    (void)error;
    memset(out, 0, struct_bytes);
    return MF_OK;
}

/* What the session holds itself. */
mf_status __wrap_mf_session_reuse(mf_session *session, const int32_t *tokens, size_t n,
                                  mf_sync_result *out, mf_error *error)
{
    fake_session *s = (fake_session *)(void *)session;
    size_t k = 0;
    (void)error;
    while (k < n - 1 && k < s->n_tokens && s->tokens[k] == tokens[k])
        k++;
    s->n_tokens = k;
    *out = (mf_sync_result){.n_reused = k};
    return MF_OK;
}

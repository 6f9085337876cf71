/* SPDX-License-Identifier: MIT */
/* The thread that looks at the memory. */
#include "session/engine_memory.h"

#include "session/session.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#define PERIOD_NS 200000000

struct mf_engine_memory {
    mf_engine *engine;
    pthread_t thread;
    pthread_mutex_t lock; /* of is_ending */
    pthread_cond_t ending;
    bool is_ending;
    mf_memory_governor governor;
    void (*sample)(void *ctx, mf_memory_sample *out);
    void *ctx;
    long period_ns;
};

static void take_sample(void *ctx, mf_memory_sample *out)
{
    (void)ctx;
    mf_memory_take_sample(out);
}

/* Until the engine is closed (true) or the period is over. */
static bool nap(struct mf_engine_memory *m)
{
    struct timespec until;
    int failure = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += m->period_ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&m->lock);
    while (!m->is_ending && failure == 0)
        failure = pthread_cond_timedwait(&m->ending, &m->lock, &until);
    const bool is_ending = m->is_ending;
    pthread_mutex_unlock(&m->lock);
    return is_ending;
}

static void look(struct mf_engine_memory *m)
{
    mf_engine *e = m->engine;
    mf_expert_store *store = e->runner.store;
    const uint64_t each = e->info.slot_bytes;
    mf_memory_sample sample;
    m->sample(m->ctx, &sample);
    const mf_memory_holding holding = {.n_bytes = mf_expert_store_n_slots(store) * each,
                                       .least_bytes = e->info.n_experts_per_token * each,
                                       .most_bytes = mf_expert_store_n_slots_most(store) * each,
                                       .unit_bytes = each};
    mf_expert_store_want_slots(store, mf_memory_govern(&m->governor, &sample, &holding) / each);
    if (!mf_turn_try(&e->turn))
        return; /* who evaluates does it */
    mf_expert_store_poll(store);
    for (uint64_t i = mf_expert_store_n_slots_most(store); i > 0; i--)
        if (mf_expert_store_resize(store))
            break;
    mf_turn_end(&e->turn);
}

static void *watch(void *arg)
{
    struct mf_engine_memory *m = arg;
    while (!nap(m))
        look(m);
    return NULL;
}

static int start(struct mf_engine_memory *m)
{
    /* Signals belong to the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failure = pthread_create(&m->thread, NULL, watch, m);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}

static bool can_change(const mf_engine *e)
{
    return e->runner.store != NULL && e->options.ram_bytes == 0 &&
           e->options.expert_cache_bytes == MF_EXPERT_CACHE_AUTO &&
           mf_runner_can_discard_slots(&e->runner);
}

mf_status mf_engine_memory_begin(mf_engine *e, const mf_engine_hooks *hooks, mf_error *error)
{
    pthread_condattr_t monotonic;
    mf_memory_sample first;
    if (!can_change(e))
        return MF_OK;
    struct mf_engine_memory *m = mf_alloc_zeroed(&e->allocator, sizeof *m);
    if (m == NULL)
        return mf_fail_memory(error, sizeof *m, "looking at the memory");
    m->engine = e;
    m->sample = hooks->memory_sample != NULL ? hooks->memory_sample : take_sample;
    m->ctx = hooks->memory_ctx;
    m->period_ns = hooks->memory_sample != NULL ? PERIOD_NS / 10 : PERIOD_NS;
    m->sample(m->ctx, &first);
    mf_memory_governor_init(&m->governor, &first);
    pthread_mutex_init(&m->lock, NULL); /* these cannot fail on Linux */
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&m->ending, &monotonic);
    pthread_condattr_destroy(&monotonic);
    const int failure = start(m);
    if (failure == 0) {
        e->memory = m;
        return MF_OK;
    }
    pthread_cond_destroy(&m->ending);
    pthread_mutex_destroy(&m->lock);
    mf_free(&e->allocator, m, sizeof *m);
    return mf_fail_os(error, MF_ERR_NO_MEMORY, failure, "cannot start a thread");
}

void mf_engine_memory_end(mf_engine *e)
{
    struct mf_engine_memory *m = e->memory;
    if (m == NULL)
        return;
    e->memory = NULL;
    pthread_mutex_lock(&m->lock);
    m->is_ending = true;
    pthread_cond_signal(&m->ending);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    pthread_cond_destroy(&m->ending);
    pthread_mutex_destroy(&m->lock);
    mf_free(&e->allocator, m, sizeof *m);
}

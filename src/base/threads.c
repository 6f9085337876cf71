/* SPDX-License-Identifier: MIT */
/*
 * The compute thread pool.
 *
 * One 64-bit word holds the job's number and how many of its tasks are unclaimed. A thread claims a
 * task by compare-and-swap of the whole word, so a late thread can never take a task of a job other
 * than the one whose function it has read. No thread has to take part in a job: whoever sleeps or
 * is preempted is simply not waited for unless it holds a task.
 *
 * A thread without work spins for SPIN_US (jobs of one token follow each other within
 * microseconds), or EXPECTING_US where more is expected, then sleeps on a condition variable, so an
 * idle pool costs nothing.
 */
#include "base/threads.h"

#include "base/clock.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#define SPIN_US 40u
#define EXPECTING_US 1000u
#define MAX_THREADS 1024u
#define CACHE_LINE 64

typedef struct worker {
    mf_thread_pool *pool;
    pthread_t handle;
    uint32_t index;
} worker;

struct mf_thread_pool {
    mf_allocator allocator;
    uint32_t n_threads; /* the caller included */
    uint32_t n_started; /* workers to join */
    pthread_mutex_t mutex;
    pthread_cond_t work_ready;
    pthread_cond_t work_done;

    /* The job. Written only while no task is unclaimed or running; atomic because a late worker may
     * read them meanwhile, for nothing. */
    _Atomic(mf_task_fn) fn;
    void *_Atomic ctx;
    atomic_uint n_tasks;
    _Atomic(mf_timeline *) timeline; /* or NULL; as the job */

    char pad_claim[CACHE_LINE];
    atomic_ullong claim; /* job number << 32 | unclaimed tasks */
    char pad_pending[CACHE_LINE];
    atomic_uint n_pending; /* tasks not yet finished */
    char pad_sleep[CACHE_LINE];
    atomic_uint n_sleeping; /* workers in or before pthread_cond_wait */
    atomic_bool caller_sleeps;
    atomic_bool is_expecting;
    atomic_bool stop;

    worker workers[];
};

static void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint32_t unclaimed(unsigned long long claim)
{
    return (uint32_t)claim;
}

static void finish_tasks(mf_thread_pool *pool, uint32_t n)
{
    if (atomic_fetch_sub(&pool->n_pending, n) == n && atomic_load(&pool->caller_sleeps)) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_signal(&pool->work_done);
        pthread_mutex_unlock(&pool->mutex);
    }
}

/* A thread's part of a job, before the job is done. The caller's is its operation. */
static void tell_tasks(mf_timeline *timeline, uint32_t thread, uint32_t n, uint64_t began_ns)
{
    const mf_timeline_note notes[MF_TIMELINE_NOTES] = {{"tasks", n}};
    if (thread != 0)
        mf_timeline_span(timeline, (mf_timeline_track){MF_TIMELINE_THREADS, thread},
                         mf_timeline_work(timeline), began_ns, mf_now_ns(), notes);
}

/*
 * Claims and runs tasks of the job in `claim` until none is left. The job is read before the swap:
 * a swap that succeeds proves that the job was still open, hence that what was read was its own.
 */
static void run_tasks(mf_thread_pool *pool, unsigned long long claim, uint32_t thread)
{
    const unsigned long long job = claim >> 32;
    mf_task_fn fn = atomic_load_explicit(&pool->fn, memory_order_relaxed);
    void *ctx = atomic_load_explicit(&pool->ctx, memory_order_relaxed);
    uint32_t n_tasks = atomic_load_explicit(&pool->n_tasks, memory_order_relaxed);
    mf_timeline *timeline = atomic_load_explicit(&pool->timeline, memory_order_relaxed);
    const uint64_t began_ns = timeline != NULL ? mf_now_ns() : 0;
    uint32_t n_run = 0;
    while (claim >> 32 == job && unclaimed(claim) != 0) {
        if (!atomic_compare_exchange_weak(&pool->claim, &claim, claim - 1))
            continue;
        fn(ctx, n_tasks - unclaimed(claim), thread);
        n_run++;
        claim = atomic_load(&pool->claim);
    }
    if (n_run == 0)
        return;
    if (timeline != NULL)
        tell_tasks(timeline, thread, n_run, began_ns);
    finish_tasks(pool, n_run);
}

static bool worker_has_reason(const void *of)
{
    const mf_thread_pool *pool = of;
    return unclaimed(atomic_load(&pool->claim)) != 0 || atomic_load(&pool->stop);
}

static bool is_done(const void *of)
{
    const mf_thread_pool *pool = of;
    return atomic_load(&pool->n_pending) == 0;
}

static bool is_set(const void *of)
{
    const atomic_bool *flag = of;
    return atomic_load_explicit(flag, memory_order_acquire);
}

/* Whether it holds of that in one of a few looks, between which no clock is read. */
static bool looks(bool (*holds)(const void *), const void *of)
{
    for (int i = 0; i < 32; i++) {
        if (holds(of))
            return true;
        cpu_relax();
    }
    return false;
}

/* Whether it came to hold within so long. */
static bool spins_until(bool (*holds)(const void *), const void *of, uint64_t n_us)
{
    const uint64_t start_us = mf_now_us();
    do {
        if (looks(holds, of))
            return true;
    } while (mf_now_us() - start_us < n_us);
    return false;
}

static void wait_for_work(mf_thread_pool *pool)
{
    const bool is_expecting = atomic_load_explicit(&pool->is_expecting, memory_order_relaxed);
    if (spins_until(worker_has_reason, pool, is_expecting ? EXPECTING_US : SPIN_US))
        return;
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->n_sleeping, 1);
    while (!worker_has_reason(pool))
        pthread_cond_wait(&pool->work_ready, &pool->mutex);
    atomic_fetch_sub(&pool->n_sleeping, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void *worker_main(void *arg)
{
    worker *self = arg;
    mf_thread_pool *pool = self->pool;
    while (!atomic_load(&pool->stop)) {
        unsigned long long claim = atomic_load(&pool->claim);
        if (unclaimed(claim) != 0)
            run_tasks(pool, claim, self->index);
        else
            wait_for_work(pool);
    }
    return NULL;
}

static void wake_workers(mf_thread_pool *pool, uint32_t n_wanted)
{
    if (atomic_load(&pool->n_sleeping) == 0)
        return;
    pthread_mutex_lock(&pool->mutex);
    if (n_wanted >= pool->n_started)
        pthread_cond_broadcast(&pool->work_ready);
    else
        for (uint32_t i = 0; i < n_wanted; i++)
            pthread_cond_signal(&pool->work_ready);
    pthread_mutex_unlock(&pool->mutex);
}

static void wait_until_done(mf_thread_pool *pool)
{
    if (spins_until(is_done, pool, SPIN_US))
        return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->caller_sleeps, true);
    while (!is_done(pool))
        pthread_cond_wait(&pool->work_done, &pool->mutex);
    atomic_store(&pool->caller_sleeps, false);
    pthread_mutex_unlock(&pool->mutex);
}

void mf_thread_pool_watch(mf_thread_pool *pool, mf_timeline *timeline)
{
    atomic_store(&pool->timeline, timeline);
}

void mf_thread_pool_expect(mf_thread_pool *pool, bool is_expecting)
{
    atomic_store_explicit(&pool->is_expecting, is_expecting, memory_order_relaxed);
}

void mf_thread_pool_run(mf_thread_pool *pool, uint32_t n_tasks, mf_task_fn fn, void *ctx)
{
    if (pool->n_threads == 1 || n_tasks <= 1) {
        for (uint32_t i = 0; i < n_tasks; i++)
            fn(ctx, i, 0);
        return;
    }
    atomic_store_explicit(&pool->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&pool->ctx, ctx, memory_order_relaxed);
    atomic_store_explicit(&pool->n_tasks, n_tasks, memory_order_relaxed);
    atomic_store_explicit(&pool->n_pending, n_tasks, memory_order_relaxed);
    unsigned long long job = (atomic_load(&pool->claim) >> 32) + 1;
    unsigned long long claim = job << 32 | n_tasks;
    atomic_store(&pool->claim, claim);
    wake_workers(pool, n_tasks - 1);
    run_tasks(pool, claim, 0);
    wait_until_done(pool);
}

void mf_thread_await(const atomic_bool *flag)
{
    if (looks(is_set, flag) || spins_until(is_set, flag, SPIN_US))
        return;
    while (!looks(is_set, flag)) /* whoever is to set it may have lost the core to us */
        (void)sched_yield();
}

static int start_workers(mf_thread_pool *pool)
{
    /* Signals belong to the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = 0;
    for (uint32_t i = 0; i + 1 < pool->n_threads && failure == 0; i++) {
        worker *w = &pool->workers[i];
        w->pool = pool;
        w->index = i + 1;
        failure = pthread_create(&w->handle, NULL, worker_main, w);
        if (failure == 0)
            pool->n_started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}

static size_t pool_bytes(uint32_t n_threads)
{
    return sizeof(mf_thread_pool) + n_threads * sizeof(worker);
}

mf_status mf_thread_pool_create(const mf_allocator *a, uint32_t n_threads, mf_thread_pool **out,
                                mf_error *error)
{
    if (n_threads < 1 || n_threads > MAX_THREADS)
        return mf_fail(error, MF_ERR_ARGUMENT, "number of threads is %u, expected 1 to %u",
                       n_threads, MAX_THREADS);
    mf_thread_pool *pool = mf_alloc_zeroed(a, pool_bytes(n_threads));
    if (pool == NULL)
        return mf_fail_memory(error, pool_bytes(n_threads), "the thread pool");
    pool->allocator = *a;
    pool->n_threads = n_threads;
    pthread_mutex_init(&pool->mutex, NULL); /* these three cannot fail on Linux */
    pthread_cond_init(&pool->work_ready, NULL);
    pthread_cond_init(&pool->work_done, NULL);
    int failure = start_workers(pool);
    if (failure != 0) {
        mf_thread_pool_free(&pool);
        return mf_fail_os(error, MF_ERR_NO_MEMORY, failure, "cannot start %u threads",
                          n_threads - 1);
    }
    *out = pool;
    return MF_OK;
}

void mf_thread_pool_free(mf_thread_pool **pool_ptr)
{
    mf_thread_pool *pool = *pool_ptr;
    if (pool == NULL)
        return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->stop, true);
    pthread_cond_broadcast(&pool->work_ready);
    pthread_mutex_unlock(&pool->mutex);
    for (uint32_t i = 0; i < pool->n_started; i++)
        pthread_join(pool->workers[i].handle, NULL);
    pthread_cond_destroy(&pool->work_done);
    pthread_cond_destroy(&pool->work_ready);
    pthread_mutex_destroy(&pool->mutex);
    mf_allocator allocator = pool->allocator;
    mf_free(&allocator, pool, pool_bytes(pool->n_threads));
    *pool_ptr = NULL;
}

uint32_t mf_thread_pool_size(const mf_thread_pool *pool)
{
    return pool->n_threads;
}

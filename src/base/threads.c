/* SPDX-License-Identifier: MIT */
/*
 * The compute thread pool.
 *
 * One 64-bit word, a queue, holds the job's number and how many of its tasks are unclaimed. A
 * thread claims a task by compare-and-swap of the whole word, so a late thread can never take a
 * task of a job other than the one whose function it has read. No thread has to take part in a job:
 * whoever sleeps or is preempted is simply not waited for unless it holds a task.
 *
 * On a machine of several nodes workers have homes: each stays with its node, and a job has a queue
 * for each phase and node. A thread goes through the phases, in each first to its own home's queue,
 * then to the others'. The caller, which goes there like all, is at home where it runs just then.
 *
 * A thread without work spins for SPIN_US (jobs of one token follow each other within
 * microseconds), or EXPECTING_US where more is expected, then sleeps on a condition variable, so an
 * idle pool costs nothing.
 */
#include "base/threads.h"

#include "base/clock.h"

#include <assert.h>
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
    uint32_t index, home;
} worker;

/* Tasks that follow each other, the last of which is before `end`. */
typedef struct task_queue {
    atomic_ullong claim; /* job number << 32 | unclaimed tasks */
    atomic_uint end;     /* as the job */
} task_queue;

typedef struct task_home {
    char pad[CACHE_LINE];
    task_queue queue[MF_TASK_PHASES];
} task_home;

struct mf_thread_pool {
    mf_allocator allocator;
    uint32_t n_threads;         /* the caller included */
    uint32_t n_started;         /* workers to join */
    const mf_numa_nodes *nodes; /* the homes; NULL: there is one, and one phase */
    uint32_t n_homes, n_phases;
    pthread_mutex_t mutex;
    pthread_cond_t work_ready;
    pthread_cond_t work_done;

    /* The job. Written only while no task is unclaimed or running; atomic because a late worker may
     * read them meanwhile, for nothing. */
    _Atomic(mf_task_fn) fn;
    void *_Atomic ctx;
    _Atomic(mf_timeline *) timeline; /* or NULL; as the job */

    task_home homes[MF_NUMA_MAX_NODES];
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
 * Claims and runs tasks of the queue until none of the job is left; returns how many. What is read
 * of the job is read before the swap: a swap that succeeds proves that the job was still open,
 * hence that what was read was its own.
 */
static uint32_t run_queue(mf_thread_pool *pool, task_queue *queue, unsigned long long job,
                          uint32_t thread)
{
    unsigned long long claim = atomic_load(&queue->claim);
    mf_task_fn fn = atomic_load_explicit(&pool->fn, memory_order_relaxed);
    void *ctx = atomic_load_explicit(&pool->ctx, memory_order_relaxed);
    const uint32_t end = atomic_load_explicit(&queue->end, memory_order_relaxed);
    uint32_t n_run = 0;
    while (claim >> 32 == job && unclaimed(claim) != 0) {
        if (!atomic_compare_exchange_weak(&queue->claim, &claim, claim - 1))
            continue;
        fn(ctx, end - unclaimed(claim), thread);
        n_run++;
        claim = atomic_load(&queue->claim);
    }
    return n_run;
}

/* A thread's way through a job. */
static void run_tasks(mf_thread_pool *pool, uint32_t home, uint32_t thread)
{
    const unsigned long long job = atomic_load(&pool->homes[home].queue[0].claim) >> 32;
    mf_timeline *timeline = atomic_load_explicit(&pool->timeline, memory_order_relaxed);
    const uint64_t began_ns = timeline != NULL ? mf_now_ns() : 0;
    uint32_t n_run = 0;
    for (uint32_t phase = 0; phase < pool->n_phases; phase++)
        for (uint32_t i = 0; i < pool->n_homes; i++)
            n_run +=
                run_queue(pool, &pool->homes[(home + i) % pool->n_homes].queue[phase], job, thread);
    if (n_run == 0)
        return;
    if (timeline != NULL)
        tell_tasks(timeline, thread, n_run, began_ns);
    finish_tasks(pool, n_run);
}

static bool has_unclaimed(const mf_thread_pool *pool)
{
    for (uint32_t home = 0; home < pool->n_homes; home++)
        for (uint32_t phase = 0; phase < pool->n_phases; phase++)
            if (unclaimed(atomic_load(&pool->homes[home].queue[phase].claim)) != 0)
                return true;
    return false;
}

static bool worker_has_reason(const void *of)
{
    const mf_thread_pool *pool = of;
    return has_unclaimed(pool) || atomic_load(&pool->stop);
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
    if (pool->nodes != NULL)
        (void)mf_numa_stay(&pool->nodes->node[self->home]);
    while (!atomic_load(&pool->stop)) {
        if (has_unclaimed(pool))
            run_tasks(pool, self->home, self->index);
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

static void run_alone(uint32_t n_tasks, mf_task_fn fn, void *ctx)
{
    for (uint32_t i = 0; i < n_tasks; i++)
        fn(ctx, i, 0);
}

/* Opens the job whose queues' tasks end where `end` says, phase by phase and home by home. */
static void run_job(mf_thread_pool *pool, const uint32_t *end, uint32_t n_tasks, mf_task_fn fn,
                    void *ctx)
{
    const uint32_t n_queues = pool->n_phases * pool->n_homes;
    const unsigned long long job = (atomic_load(&pool->homes[0].queue[0].claim) >> 32) + 1;
    atomic_store_explicit(&pool->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&pool->ctx, ctx, memory_order_relaxed);
    atomic_store_explicit(&pool->n_pending, n_tasks, memory_order_relaxed);
    for (uint32_t i = 0, first = 0; i < n_queues; first = end[i++]) {
        task_queue *queue = &pool->homes[i % pool->n_homes].queue[i / pool->n_homes];
        atomic_store_explicit(&queue->end, end[i], memory_order_relaxed);
        atomic_store(&queue->claim, (job & UINT32_MAX) << 32 | (end[i] - first));
    }
    wake_workers(pool, n_tasks - 1);
    run_tasks(pool, pool->nodes != NULL ? mf_numa_here(pool->nodes) : 0, 0);
    wait_until_done(pool);
}

void mf_thread_pool_run(mf_thread_pool *pool, uint32_t n_tasks, mf_task_fn fn, void *ctx)
{
    uint32_t end[MF_TASK_PHASES * MF_NUMA_MAX_NODES];
    if (pool->n_threads == 1 || n_tasks <= 1) {
        run_alone(n_tasks, fn, ctx);
        return;
    }
    for (uint32_t i = 0; i < pool->n_phases * pool->n_homes; i++)
        end[i] = n_tasks;
    run_job(pool, end, n_tasks, fn, ctx);
}

void mf_thread_pool_run_at_home(mf_thread_pool *pool, uint32_t n_phases, const uint32_t *end,
                                mf_task_fn fn, void *ctx)
{
    uint32_t ends[MF_TASK_PHASES * MF_NUMA_MAX_NODES];
    const uint32_t n_tasks = end[n_phases * pool->n_homes - 1];
    assert(n_phases >= 1 && n_phases <= MF_TASK_PHASES);
    if (pool->n_homes == 1 || n_tasks <= 1) {
        mf_thread_pool_run(pool, n_tasks, fn, ctx);
        return;
    }
    for (uint32_t i = 0; i < pool->n_phases * pool->n_homes; i++)
        ends[i] = i < n_phases * pool->n_homes ? end[i] : n_tasks;
    run_job(pool, ends, n_tasks, fn, ctx);
}

void mf_thread_await(const atomic_bool *flag)
{
    if (looks(is_set, flag) || spins_until(is_set, flag, SPIN_US))
        return;
    while (!looks(is_set, flag)) /* whoever is to set it may have lost the core to us */
        (void)sched_yield();
}

/* Of the i-th of all threads, dealt to nodes by the number of their CPUs. */
static uint32_t dealt_home(const mf_thread_pool *pool, uint32_t i)
{
    const mf_numa_nodes *nodes = pool->nodes;
    uint64_t n_cpus = 0, n_before = 0;
    for (uint32_t home = 0; home < nodes->n; home++)
        n_cpus += nodes->node[home].n_cpus;
    uint32_t home = 0;
    while (home + 1 < nodes->n &&
           (n_before + nodes->node[home].n_cpus) * pool->n_threads <= n_cpus * i)
        n_before += nodes->node[home++].n_cpus;
    return home;
}

/* The worker's: the caller counts as one of those where it is now. */
static uint32_t home_of(const mf_thread_pool *pool, uint32_t index)
{
    if (pool->nodes == NULL)
        return 0;
    const uint32_t here = mf_numa_here(pool->nodes);
    uint32_t caller = 0;
    while (caller + 1 < pool->n_threads && dealt_home(pool, caller) != here)
        caller++;
    return dealt_home(pool, index <= caller ? index - 1 : index);
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
        w->home = home_of(pool, w->index);
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
    return mf_thread_pool_create_at_home(a, n_threads, NULL, out, error);
}

mf_status mf_thread_pool_create_at_home(const mf_allocator *a, uint32_t n_threads,
                                        const mf_numa_nodes *nodes, mf_thread_pool **out,
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
    pool->nodes = nodes != NULL && nodes->n > 1 && nodes->n <= n_threads ? nodes : NULL;
    pool->n_homes = pool->nodes != NULL ? nodes->n : 1;
    pool->n_phases = pool->nodes != NULL ? MF_TASK_PHASES : 1;
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

uint32_t mf_thread_pool_homes(const mf_thread_pool *pool)
{
    return pool->n_homes;
}

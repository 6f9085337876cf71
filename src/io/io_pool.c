/* SPDX-License-Identifier: MIT */
/*
 * The thread pool engine: pread on a fixed number of threads, everywhere. Queued reads and results
 * are rings of `depth` entries, so neither ever overflows.
 */
#include "io/io_engine.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* Blocked threads cost little; this many reads keep a drive's queue busy. */
#define POOL_THREADS_MAX 16u

typedef struct pool {
    mf_allocator allocator;
    pthread_mutex_t mutex;
    pthread_cond_t work_came;
    pthread_cond_t result_came;
    /* Under the mutex: */
    mf_io_op *queue;
    mf_io_result *results;
    uint32_t queue_head, n_queued;
    uint32_t results_head, n_results;
    bool is_closing;
    bool is_collector_waiting;
    /* Fixed after open: */
    uint32_t depth;
    uint32_t n_threads;
    pthread_t threads[POOL_THREADS_MAX];
} pool;

static void *run_reads(void *arg)
{
    pool *p = arg;
    pthread_mutex_lock(&p->mutex);
    for (;;) {
        while (p->n_queued == 0 && !p->is_closing)
            pthread_cond_wait(&p->work_came, &p->mutex);
        if (p->n_queued == 0)
            break;
        mf_io_op op = p->queue[p->queue_head];
        p->queue_head = (p->queue_head + 1) % p->depth;
        p->n_queued--;
        pthread_mutex_unlock(&p->mutex);

        ssize_t n_read = pread(op.fd, op.dest, op.n_bytes, (off_t)op.offset);
        mf_io_result result = {op.request, n_read < 0 ? -errno : (int32_t)n_read};

        pthread_mutex_lock(&p->mutex);
        p->results[(p->results_head + p->n_results) % p->depth] = result;
        p->n_results++;
        if (p->is_collector_waiting)
            pthread_cond_signal(&p->result_came);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

static void close_pool(void *state)
{
    pool *p = state;
    if (p == NULL)
        return;
    pthread_mutex_lock(&p->mutex);
    p->is_closing = true;
    pthread_cond_broadcast(&p->work_came);
    pthread_mutex_unlock(&p->mutex);
    for (uint32_t i = 0; i < p->n_threads; i++)
        pthread_join(p->threads[i], NULL);
    pthread_cond_destroy(&p->result_came);
    pthread_cond_destroy(&p->work_came);
    pthread_mutex_destroy(&p->mutex);
    mf_allocator allocator = p->allocator;
    mf_free(&allocator, p->results, p->depth * sizeof *p->results);
    mf_free(&allocator, p->queue, p->depth * sizeof *p->queue);
    mf_free(&allocator, p, sizeof *p);
}

/* With every signal blocked: the program's handlers run on its own threads. */
static int start_threads(pool *p)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    uint32_t n_wanted = p->depth < POOL_THREADS_MAX ? p->depth : POOL_THREADS_MAX;
    int failure = 0;
    while (p->n_threads < n_wanted && failure == 0) {
        failure = pthread_create(&p->threads[p->n_threads], NULL, run_reads, p);
        if (failure == 0)
            p->n_threads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return p->n_threads > 0 ? 0 : failure; /* fewer than wanted still work */
}

static mf_status open_pool(const mf_allocator *allocator, uint32_t depth, void *arg, void **state,
                           mf_error *error)
{
    (void)arg;
    pool *p = mf_alloc_zeroed(allocator, sizeof *p);
    if (p == NULL)
        return mf_fail_memory(error, sizeof *p, "the read threads");
    p->allocator = *allocator;
    p->depth = depth;
    pthread_mutex_init(&p->mutex, NULL); /* cannot fail with default attributes on Linux */
    pthread_cond_init(&p->work_came, NULL);
    pthread_cond_init(&p->result_came, NULL);
    mf_status status;
    p->queue = mf_alloc_array(allocator, depth, sizeof *p->queue);
    p->results = mf_alloc_array(allocator, depth, sizeof *p->results);
    if (p->queue == NULL || p->results == NULL) {
        status = mf_fail_memory(error, depth * sizeof *p->queue, "the queue of reads");
        goto fail;
    }
    int failure = start_threads(p);
    if (failure != 0) {
        status = mf_fail_os(error, MF_ERR_IO, failure, "no thread for reading could be started");
        goto fail;
    }
    *state = p;
    return MF_OK;
fail:
    close_pool(p);
    return status;
}

static mf_status submit_to_pool(void *state, const mf_io_op *ops, uint32_t n, mf_error *error)
{
    (void)error;
    pool *p = state;
    pthread_mutex_lock(&p->mutex);
    for (uint32_t i = 0; i < n; i++)
        p->queue[(p->queue_head + p->n_queued + i) % p->depth] = ops[i];
    p->n_queued += n;
    if (n == 1)
        pthread_cond_signal(&p->work_came);
    else
        pthread_cond_broadcast(&p->work_came);
    pthread_mutex_unlock(&p->mutex);
    return MF_OK;
}

static mf_status collect_from_pool(void *state, bool wait, mf_io_result *out, uint32_t max,
                                   uint32_t *n, mf_error *error)
{
    (void)error;
    pool *p = state;
    pthread_mutex_lock(&p->mutex);
    p->is_collector_waiting = true;
    while (wait && p->n_results == 0)
        pthread_cond_wait(&p->result_came, &p->mutex);
    p->is_collector_waiting = false;
    uint32_t n_taken = p->n_results < max ? p->n_results : max;
    for (uint32_t i = 0; i < n_taken; i++)
        out[i] = p->results[(p->results_head + i) % p->depth];
    p->results_head = (p->results_head + n_taken) % p->depth;
    p->n_results -= n_taken;
    pthread_mutex_unlock(&p->mutex);
    *n = n_taken;
    return MF_OK;
}

const mf_io_engine mf_io_engine_pool = {"pool", open_pool, close_pool, submit_to_pool,
                                        collect_from_pool};

/* SPDX-License-Identifier: MIT */
/*
 * The thread pool engine: pread on a fixed number of threads, everywhere. Queued reads are lists,
 * one a lane, through a table by request; results are a ring of `depth` entries; so neither ever
 * overflows. The threads are dealt to the lanes, so that a slow drive holds none of a fast one's.
 * Its argument is an mf_await or NULL: the thread that is to read waits for what is still coming.
 */
#include "base/await.h"
#include "io/io_engine.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* Blocked threads cost little; this many reads keep a drive's queue busy. */
#define POOL_THREADS_MAX 16u
#define POOL_LANES_MAX 8u
#define NO_REQUEST UINT32_MAX

typedef struct queued_op {
    mf_io_op op;
    uint32_t next;
} queued_op;

typedef struct lane {
    uint32_t first, last;
} lane;

typedef struct pool {
    mf_allocator allocator;
    pthread_mutex_t mutex;
    pthread_cond_t work_came;
    pthread_cond_t result_came;
    /* Under the mutex: */
    queued_op *queued; /* [depth], by request */
    mf_io_result *results;
    lane lanes[POOL_LANES_MAX];
    uint32_t n_lanes;
    uint32_t n_running;
    uint32_t results_head, n_results;
    uint32_t n_numbered; /* threads that took their number */
    uint64_t n_calls;
    bool is_closing;
    bool is_collector_waiting;
    /* Fixed after open: */
    uint32_t depth;
    mf_await await;
    uint32_t n_threads;
    pthread_t threads[POOL_THREADS_MAX];
} pool;

/* Thread i of n serves lane i modulo the lanes; where lanes are more than threads, each serves
 * several. */
static bool serves(const pool *p, uint32_t thread, uint32_t number)
{
    return p->n_lanes > p->n_threads ? number % p->n_threads == thread
                                     : thread % p->n_lanes == number;
}

static bool take_op(pool *p, uint32_t thread, mf_io_op *op)
{
    for (uint32_t i = 0; i < p->n_lanes; i++) {
        lane *l = &p->lanes[i];
        if (l->first == NO_REQUEST || !serves(p, thread, i))
            continue;
        *op = p->queued[l->first].op;
        l->first = p->queued[l->first].next;
        return true;
    }
    return false;
}

static mf_io_result read_one(const pool *p, const mf_io_op *op)
{
    const int refused = mf_await_bytes(&p->await, op->fd, op->offset, op->n_bytes);
    if (refused != 0)
        return (mf_io_result){op->request, -refused};
    const ssize_t n_read = pread(op->fd, op->dest, op->n_bytes, (off_t)op->offset);
    return (mf_io_result){op->request, n_read < 0 ? -errno : (int32_t)n_read};
}

static void *run_reads(void *arg)
{
    pool *p = arg;
    mf_io_op op;
    pthread_mutex_lock(&p->mutex);
    uint32_t thread = p->n_numbered++;
    for (;;) {
        bool has_op;
        while (!(has_op = take_op(p, thread, &op)) && !p->is_closing)
            pthread_cond_wait(&p->work_came, &p->mutex);
        if (!has_op)
            break;
        p->n_running++;
        p->n_calls++;
        pthread_mutex_unlock(&p->mutex);

        const mf_io_result result = read_one(p, &op);

        pthread_mutex_lock(&p->mutex);
        p->n_running--;
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
    mf_free(&allocator, p->queued, p->depth * sizeof *p->queued);
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
    pthread_mutex_lock(&p->mutex); /* threads read how many they are */
    while (p->n_threads < n_wanted && failure == 0) {
        failure = pthread_create(&p->threads[p->n_threads], NULL, run_reads, p);
        if (failure == 0)
            p->n_threads++;
    }
    pthread_mutex_unlock(&p->mutex);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return p->n_threads > 0 ? 0 : failure; /* fewer than wanted still work */
}

static void clear_lanes(pool *p)
{
    for (uint32_t i = 0; i < POOL_LANES_MAX; i++)
        p->lanes[i] = (lane){NO_REQUEST, NO_REQUEST};
}

static mf_status open_pool(const mf_allocator *allocator, uint32_t depth, void *arg, void **state,
                           mf_error *error)
{
    pool *p = mf_alloc_zeroed(allocator, sizeof *p);
    if (p == NULL)
        return mf_fail_memory(error, sizeof *p, "the read threads");
    if (arg != NULL)
        p->await = *(const mf_await *)arg;
    p->allocator = *allocator;
    p->depth = depth;
    p->n_lanes = 1;
    clear_lanes(p);
    pthread_mutex_init(&p->mutex, NULL); /* cannot fail with default attributes on Linux */
    pthread_cond_init(&p->work_came, NULL);
    pthread_cond_init(&p->result_came, NULL);
    mf_status status;
    p->queued = mf_alloc_array(allocator, depth, sizeof *p->queued);
    p->results = mf_alloc_array(allocator, depth, sizeof *p->results);
    if (p->queued == NULL || p->results == NULL) {
        status = mf_fail_memory(error, depth * sizeof *p->queued, "the queue of reads");
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
    for (uint32_t i = 0; i < n; i++) {
        uint32_t request = ops[i].request;
        lane *l = &p->lanes[ops[i].lane];
        p->queued[request] = (queued_op){ops[i], NO_REQUEST};
        if (l->first == NO_REQUEST)
            l->first = request;
        else
            p->queued[l->last].next = request;
        l->last = request;
    }
    /* With several lanes the one thread woken might be another lane's. */
    if (n == 1 && p->n_lanes == 1)
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

static void set_pool_lanes(void *state, uint32_t n_lanes)
{
    pool *p = state;
    pthread_mutex_lock(&p->mutex);
    p->n_lanes = n_lanes;
    pthread_mutex_unlock(&p->mutex);
}

static mf_status reset_pool(void *state, mf_error *error)
{
    (void)error;
    pool *p = state;
    pthread_mutex_lock(&p->mutex);
    clear_lanes(p);
    p->is_collector_waiting = true;
    while (p->n_running > 0)
        pthread_cond_wait(&p->result_came, &p->mutex);
    p->is_collector_waiting = false;
    p->n_results = 0;
    pthread_mutex_unlock(&p->mutex);
    return MF_OK;
}

/* Of the reads themselves: those that the threads wake each other by are not counted. */
static uint64_t n_calls(void *state)
{
    pool *p = state;
    pthread_mutex_lock(&p->mutex);
    const uint64_t n = p->n_calls;
    pthread_mutex_unlock(&p->mutex);
    return n;
}

const mf_io_engine mf_io_engine_pool = {
    "pool", open_pool, close_pool, submit_to_pool, collect_from_pool, set_pool_lanes, reset_pool,
    NULL,   NULL,      NULL,       n_calls};

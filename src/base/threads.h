/* SPDX-License-Identifier: MIT */
/*
 * The compute thread pool. Work is a range of indices cut into tasks; which thread runs which task
 * is unspecified, so a task's result must not depend on it. The caller takes part. No allocation
 * after creation.
 */
#ifndef MF_BASE_THREADS_H
#define MF_BASE_THREADS_H

#include "base/alloc.h"
#include "base/numa.h"
#include "base/timeline.h"

#include <stdatomic.h>

typedef struct mf_thread_pool mf_thread_pool;

/* Runs one task; `thread` is in [0, n_threads) and unique among those running at once (for
 * per-thread scratch). */
typedef void (*mf_task_fn)(void *ctx, uint32_t task, uint32_t thread);

/* n_threads >= 1 counts the caller: 1 starts no thread. */
mf_status mf_thread_pool_create(const mf_allocator *a, uint32_t n_threads, mf_thread_pool **out,
                                mf_error *error);
/* Where there are nodes, and threads for each (NULL: none), workers stay with one: its number of
 * homes is theirs, else 1. The nodes outlive the pool. */
mf_status mf_thread_pool_create_at_home(const mf_allocator *a, uint32_t n_threads,
                                        const mf_numa_nodes *nodes, mf_thread_pool **out,
                                        mf_error *error);
void mf_thread_pool_free(mf_thread_pool **pool);
uint32_t mf_thread_pool_size(const mf_thread_pool *pool);
uint32_t mf_thread_pool_homes(const mf_thread_pool *pool);
/* Writes what each thread does from now on to a timeline; NULL: no longer. While nothing runs. */
void mf_thread_pool_watch(mf_thread_pool *pool, mf_timeline *timeline);
/* Whether jobs will come every few dozen microseconds, so that sleeping costs more than it saves.
 */
void mf_thread_pool_expect(mf_thread_pool *pool, bool is_expecting);
/* Returns when all tasks have run. They are begun in rising order. One caller at a time. */
void mf_thread_pool_run(mf_thread_pool *pool, uint32_t n_tasks, mf_task_fn fn, void *ctx);
/* The same of tasks that have homes: those of phase p and home h are the ones before end[p * homes
 * + h], from where the range before ends, or 0. In each phase threads of a home run its own tasks
 * before others'; a task may wait for those of phases before its own, for no other. */
#define MF_TASK_PHASES 3u
void mf_thread_pool_run_at_home(mf_thread_pool *pool, uint32_t n_phases, const uint32_t *end,
                                mf_task_fn fn, void *ctx);
/* Of a task: waits until one that it may wait for has set this, and sees what that wrote before.
 * For what takes microseconds: the thread does nothing else meanwhile, but lets others run. */
void mf_thread_await(const atomic_bool *flag);

#endif

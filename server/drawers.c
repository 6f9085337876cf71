/* SPDX-License-Identifier: MIT */
/* Draws are claimed one by one under the lock; the caller claims as well, and waits for the last of
 * the others awake for a while, for that comes soon. */
#include "drawers.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>

#define MAX_THREADS 8
#define MAX_LOOKS 200

struct mf_srv_drawers {
    pthread_mutex_t lock;
    pthread_cond_t has_work, is_done;
    mf_srv_draw *draws;
    size_t n, n_claimed;
    size_t n_left; /* atomic where it is looked at without the lock */
    bool is_stopping;
    pthread_t threads[MAX_THREADS];
    size_t n_threads;
};

static void draw(mf_srv_draw *d)
{
    d->token = mf_sampler_sample_bounded(d->sampler, d->logits, d->bounds, NULL);
}

/* With the lock held, which is let go meanwhile. */
static void draw_next(mf_srv_drawers *d)
{
    mf_srv_draw *own = &d->draws[d->n_claimed++];
    pthread_mutex_unlock(&d->lock);
    draw(own);
    pthread_mutex_lock(&d->lock);
    if (__atomic_sub_fetch(&d->n_left, 1, __ATOMIC_RELEASE) == 0)
        pthread_cond_signal(&d->is_done);
}

static void *work(void *drawers)
{
    mf_srv_drawers *d = drawers;
    pthread_mutex_lock(&d->lock);
    while (!d->is_stopping) {
        if (d->n_claimed < d->n)
            draw_next(d);
        else
            pthread_cond_wait(&d->has_work, &d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

mf_srv_drawers *mf_srv_drawers_start(size_t n_threads)
{
    mf_srv_drawers *d = n_threads > 0 ? calloc(1, sizeof *d) : NULL;
    if (!d)
        return NULL;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->has_work, NULL);
    pthread_cond_init(&d->is_done, NULL);
    while (d->n_threads < n_threads && d->n_threads < MAX_THREADS &&
           pthread_create(&d->threads[d->n_threads], NULL, work, d) == 0)
        d->n_threads++;
    if (d->n_threads == 0)
        mf_srv_drawers_stop(&d);
    return d;
}

void mf_srv_draw_all(mf_srv_drawers *d, mf_srv_draw *draws, size_t n)
{
    if (!d || n < 2) {
        for (size_t i = 0; i < n; i++)
            draw(&draws[i]);
        return;
    }
    pthread_mutex_lock(&d->lock);
    d->draws = draws;
    d->n = n;
    d->n_claimed = 0;
    __atomic_store_n(&d->n_left, n, __ATOMIC_RELAXED);
    pthread_cond_broadcast(&d->has_work);
    while (d->n_claimed < d->n)
        draw_next(d);
    pthread_mutex_unlock(&d->lock);
    for (int i = 0; i < MAX_LOOKS && __atomic_load_n(&d->n_left, __ATOMIC_ACQUIRE) > 0; i++)
        sched_yield();
    pthread_mutex_lock(&d->lock);
    while (d->n_left > 0)
        pthread_cond_wait(&d->is_done, &d->lock);
    d->n = d->n_claimed = 0;
    pthread_mutex_unlock(&d->lock);
}

void mf_srv_drawers_stop(mf_srv_drawers **drawers)
{
    mf_srv_drawers *d = *drawers;
    *drawers = NULL;
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->is_stopping = true;
    pthread_cond_broadcast(&d->has_work);
    pthread_mutex_unlock(&d->lock);
    for (size_t i = 0; i < d->n_threads; i++)
        pthread_join(d->threads[i], NULL);
    pthread_cond_destroy(&d->has_work);
    pthread_cond_destroy(&d->is_done);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* SPDX-License-Identifier: MIT */
/*
 * A mutex and a condition. Cancelling is done from signal handlers too, which may signal no
 * condition: whoever waits looks for it every few milliseconds.
 */
#include "session/turn.h"

#include <time.h>

#define LOOK_NS 2000000

mf_status mf_turn_init(mf_turn *t, mf_error *error)
{
    pthread_condattr_t monotonic;
    *t = (mf_turn){.depth = 0};
    if (pthread_condattr_init(&monotonic) != 0)
        return mf_fail(error, MF_ERR_NO_MEMORY, "no memory for a lock");
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    int failed = pthread_cond_init(&t->changed, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    if (failed == 0 && (failed = pthread_mutex_init(&t->mutex, NULL)) != 0)
        (void)pthread_cond_destroy(&t->changed);
    return failed == 0 ? MF_OK : mf_fail(error, MF_ERR_NO_MEMORY, "no memory for a lock");
}

void mf_turn_destroy(mf_turn *t)
{
    (void)pthread_mutex_destroy(&t->mutex);
    (void)pthread_cond_destroy(&t->changed);
}

static bool is_mine(const mf_turn *t)
{
    return t->depth > 0 && pthread_equal(t->holder, pthread_self());
}

static void nap(mf_turn *t)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    (void)pthread_cond_timedwait(&t->changed, &t->mutex, &until);
}

/* Until it is free and nobody else came earlier. Who leaves need wake nobody: it asks only while
 * somebody has it or is to have it before, and at their end all are woken. */
static mf_status wait_for(mf_turn *t, mf_turn_check_fn check, void *ctx, mf_error *error)
{
    mf_turn_waiter self = {NULL}, **link = &t->waiting;
    mf_status status = MF_OK;
    while (*link != NULL)
        link = &(*link)->next;
    *link = &self;
    while (status == MF_OK && (t->depth > 0 || t->waiting != &self)) {
        if (check == NULL)
            (void)pthread_cond_wait(&t->changed, &t->mutex);
        else if ((status = check(ctx, error)) == MF_OK)
            nap(t);
    }
    link = &t->waiting;
    while (*link != &self)
        link = &(*link)->next;
    *link = self.next;
    return status;
}

mf_status mf_turn_take(mf_turn *t, mf_turn_check_fn check, void *ctx, mf_error *error)
{
    mf_status status = MF_OK;
    (void)pthread_mutex_lock(&t->mutex);
    if (!is_mine(t))
        status = wait_for(t, check, ctx, error);
    if (status == MF_OK) {
        t->holder = pthread_self();
        t->depth++;
    }
    (void)pthread_mutex_unlock(&t->mutex);
    return status;
}

bool mf_turn_try(mf_turn *t)
{
    (void)pthread_mutex_lock(&t->mutex);
    const bool is_free = t->depth == 0 && t->waiting == NULL;
    if (is_free) {
        t->holder = pthread_self();
        t->depth = 1;
    }
    (void)pthread_mutex_unlock(&t->mutex);
    return is_free;
}

void mf_turn_end(mf_turn *t)
{
    (void)pthread_mutex_lock(&t->mutex);
    if (--t->depth == 0 && t->waiting != NULL)
        (void)pthread_cond_broadcast(&t->changed);
    (void)pthread_mutex_unlock(&t->mutex);
}

bool mf_turn_is_mine(mf_turn *t)
{
    (void)pthread_mutex_lock(&t->mutex);
    bool mine = is_mine(t);
    (void)pthread_mutex_unlock(&t->mutex);
    return mine;
}

uint32_t mf_turn_n_waiting(mf_turn *t)
{
    uint32_t n = 0;
    (void)pthread_mutex_lock(&t->mutex);
    for (const mf_turn_waiter *w = t->waiting; w != NULL; w = w->next)
        n++;
    (void)pthread_mutex_unlock(&t->mutex);
    return n;
}

/* SPDX-License-Identifier: MIT */
/* Bytes from the scheduler to connections. The lock is held while a connection is suspended or
 * resumed: else a wake could come between the look and the sleep. */
#include "channel.h"

#include <microhttpd.h>
#include <string.h>
#include <time.h>

uint64_t mf_srv_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

bool mf_srv_channel_init(mf_srv_channel *c)
{
    *c = (mf_srv_channel){.put_us = mf_srv_now_us(), .taken_us = mf_srv_now_us()};
    return pthread_mutex_init(&c->lock, NULL) == 0;
}

void mf_srv_channel_free(mf_srv_channel *c)
{
    pthread_mutex_destroy(&c->lock);
    mf_srv_bytes_free(&c->out);
}

/* With the lock held. */
static void wake(mf_srv_channel *c)
{
    c->is_due = false;
    if (!c->is_suspended || !c->connection)
        return;
    c->is_suspended = false;
    MHD_resume_connection(c->connection);
}

static void sleep_until_woken(mf_srv_channel *c)
{
    c->is_suspended = true;
    MHD_suspend_connection(c->connection);
}

void mf_srv_channel_put(mf_srv_channel *c, const mf_srv_bytes *bytes)
{
    if (c->sink) {
        mf_srv_log_put(c->sink, bytes);
        return;
    }
    pthread_mutex_lock(&c->lock);
    if (c->connection) {
        if (c->out.n_bytes == c->n_taken)
            c->taken_us = mf_srv_now_us(); /* the reader is as far as it can be */
        mf_srv_put(&c->out, bytes->data ? bytes->data : "", bytes->n_bytes);
        if (c->out.has_failed || bytes->has_failed)
            c->is_broken = true;
        c->put_us = mf_srv_now_us();
        c->is_due = true;
    }
    pthread_mutex_unlock(&c->lock);
}

void mf_srv_channel_flush(mf_srv_channel *c)
{
    if (c->sink) {
        mf_srv_log_tell(c->sink);
        return;
    }
    pthread_mutex_lock(&c->lock);
    if (c->is_due)
        wake(c);
    pthread_mutex_unlock(&c->lock);
}

void mf_srv_channel_wake(mf_srv_channel *c)
{
    pthread_mutex_lock(&c->lock);
    wake(c);
    pthread_mutex_unlock(&c->lock);
}

void mf_srv_channel_end(mf_srv_channel *c, int status)
{
    pthread_mutex_lock(&c->lock);
    c->is_done = true;
    c->status = status;
    wake(c);
    pthread_mutex_unlock(&c->lock);
    if (c->sink) {
        mf_srv_log_end(c->sink);
        mf_srv_log_tell(c->sink);
    }
}

size_t mf_srv_channel_waiting(mf_srv_channel *c)
{
    pthread_mutex_lock(&c->lock);
    size_t n = c->connection ? c->out.n_bytes - c->n_taken : 0;
    pthread_mutex_unlock(&c->lock);
    return n;
}

static size_t take(mf_srv_channel *c, char *buffer, size_t capacity)
{
    size_t n = c->out.n_bytes - c->n_taken;
    n = n < capacity ? n : capacity;
    memcpy(buffer, c->out.data + c->n_taken, n);
    c->n_taken += n;
    c->taken_us = mf_srv_now_us();
    c->is_due = false;
    if (c->n_taken == c->out.n_bytes) {
        c->out.n_bytes = 0;
        c->n_taken = 0;
    }
    return n;
}

static ssize_t take_from_log(mf_srv_channel *c, char *buffer, size_t capacity)
{
    const ssize_t n = mf_srv_log_take(c->source, &c->place, buffer, capacity);
    if (n == 0)
        sleep_until_woken(c);
    if (n > 0)
        c->put_us = mf_srv_now_us();
    c->taken_us = mf_srv_now_us();
    return n;
}

ssize_t mf_srv_channel_take(mf_srv_channel *c, char *buffer, size_t capacity)
{
    ssize_t n = 0;
    pthread_mutex_lock(&c->lock);
    if (c->is_broken)
        n = -2;
    else if (c->n_taken < c->out.n_bytes)
        n = (ssize_t)take(c, buffer, capacity);
    else if (c->source)
        n = take_from_log(c, buffer, capacity);
    else if (c->is_done)
        n = -1;
    else
        sleep_until_woken(c);
    pthread_mutex_unlock(&c->lock);
    return n;
}

bool mf_srv_channel_is_whole(mf_srv_channel *c)
{
    pthread_mutex_lock(&c->lock);
    bool is_whole = c->is_done || c->is_broken;
    if (!is_whole)
        sleep_until_woken(c);
    pthread_mutex_unlock(&c->lock);
    return is_whole;
}

void mf_srv_channel_leave(mf_srv_channel *c)
{
    if (c->source)
        mf_srv_log_leave(c->source, c);
    pthread_mutex_lock(&c->lock);
    c->connection = NULL;
    c->is_suspended = false;
    mf_srv_bytes_free(&c->out);
    c->n_taken = 0;
    pthread_mutex_unlock(&c->lock);
}

mf_srv_channel_state mf_srv_channel_look(mf_srv_channel *c, uint64_t stalled_since_us,
                                         uint64_t silent_since_us)
{
    pthread_mutex_lock(&c->lock);
    const bool has_bytes =
        c->out.n_bytes > c->n_taken || (c->source && mf_srv_log_has_more(c->source, &c->place));
    const mf_srv_channel_state state = {.is_stalled = has_bytes && c->taken_us < stalled_since_us,
                                        .is_silent = !has_bytes && !c->is_done &&
                                                     c->connection != NULL &&
                                                     c->put_us < silent_since_us};
    pthread_mutex_unlock(&c->lock);
    return state;
}

void mf_srv_channel_break(mf_srv_channel *c)
{
    pthread_mutex_lock(&c->lock);
    c->is_broken = true;
    wake(c);
    pthread_mutex_unlock(&c->lock);
}

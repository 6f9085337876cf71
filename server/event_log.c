/* SPDX-License-Identifier: MIT */
/* Two locks: one of the text, which readers take with their channel's held, and one of the list of
 * readers, under which their channels' are taken. */
#include "event_log.h"

#include "channel.h"

#include <stdlib.h>
#include <string.h>

struct mf_srv_log {
    pthread_mutex_t lock; /* of the next four */
    mf_srv_bytes text;
    bool is_over, is_lost, is_due;
    pthread_mutex_t readers_lock; /* of the next two */
    mf_srv_channel **readers;
    size_t n_readers;
};

mf_srv_log *mf_srv_log_new(void)
{
    mf_srv_log *log = calloc(1, sizeof *log);
    if (!log)
        return NULL;
    pthread_mutex_init(&log->lock, NULL);
    pthread_mutex_init(&log->readers_lock, NULL);
    return log;
}

void mf_srv_log_free(mf_srv_log **log)
{
    mf_srv_log *l = *log;
    if (!l)
        return;
    mf_srv_bytes_free(&l->text);
    free(l->readers);
    pthread_mutex_destroy(&l->lock);
    pthread_mutex_destroy(&l->readers_lock);
    free(l);
    *log = NULL;
}

void mf_srv_log_put(mf_srv_log *log, const mf_srv_bytes *events)
{
    pthread_mutex_lock(&log->lock);
    if (log->text.n_bytes + events->n_bytes > MF_SRV_LOG_BYTES || events->has_failed)
        log->is_lost = true;
    else if (!log->is_lost)
        mf_srv_put(&log->text, events->data ? events->data : "", events->n_bytes);
    log->is_lost = log->is_lost || log->text.has_failed;
    log->is_due = true;
    pthread_mutex_unlock(&log->lock);
}

void mf_srv_log_end(mf_srv_log *log)
{
    pthread_mutex_lock(&log->lock);
    log->is_over = log->is_due = true;
    pthread_mutex_unlock(&log->lock);
}

void mf_srv_log_tell(mf_srv_log *log)
{
    pthread_mutex_lock(&log->lock);
    const bool is_due = log->is_due;
    log->is_due = false;
    pthread_mutex_unlock(&log->lock);
    if (!is_due)
        return;
    pthread_mutex_lock(&log->readers_lock);
    for (size_t i = 0; i < log->n_readers; i++)
        mf_srv_channel_wake(log->readers[i]);
    pthread_mutex_unlock(&log->readers_lock);
}

bool mf_srv_log_copy(mf_srv_log *log, mf_srv_bytes *out)
{
    pthread_mutex_lock(&log->lock);
    const bool is_whole = !log->is_lost;
    if (is_whole)
        mf_srv_put(out, log->text.data ? log->text.data : "", log->text.n_bytes);
    pthread_mutex_unlock(&log->lock);
    return is_whole && !out->has_failed;
}

bool mf_srv_log_join(mf_srv_log *log, mf_srv_channel *reader)
{
    pthread_mutex_lock(&log->readers_lock);
    mf_srv_channel **readers =
        realloc(log->readers, (log->n_readers + 1) * sizeof(mf_srv_channel *));
    if (readers) {
        log->readers = readers;
        readers[log->n_readers++] = reader;
    }
    pthread_mutex_unlock(&log->readers_lock);
    return readers != NULL;
}

void mf_srv_log_leave(mf_srv_log *log, const mf_srv_channel *reader)
{
    pthread_mutex_lock(&log->readers_lock);
    for (size_t i = 0; i < log->n_readers; i++)
        if (log->readers[i] == reader)
            log->readers[i--] = log->readers[--log->n_readers];
    pthread_mutex_unlock(&log->readers_lock);
}

void mf_srv_skip_events(const char *text, size_t n_bytes, mf_srv_log_place *place)
{
    while (place->n_skip > 0) {
        const char *end = memmem(text + place->at, n_bytes - place->at, "\n\n", 2);
        if (!end)
            return;
        place->at = (size_t)(end - text) + 2;
        place->n_skip--;
    }
}

/* With the lock held: bytes behind the place. */
static size_t n_behind(const mf_srv_log *log, mf_srv_log_place *place)
{
    if (log->text.n_bytes == 0)
        return 0;
    mf_srv_skip_events(log->text.data, log->text.n_bytes, place);
    return place->n_skip > 0 ? 0 : log->text.n_bytes - place->at;
}

ssize_t mf_srv_log_take(mf_srv_log *log, mf_srv_log_place *place, char *buffer, size_t capacity)
{
    pthread_mutex_lock(&log->lock);
    size_t n = n_behind(log, place);
    n = n < capacity ? n : capacity;
    ssize_t taken = (ssize_t)n;
    if (n > 0) {
        memcpy(buffer, log->text.data + place->at, n);
        place->at += n;
    } else if (log->is_lost) {
        taken = -2;
    } else if (log->is_over) {
        taken = -1;
    }
    pthread_mutex_unlock(&log->lock);
    return taken;
}

bool mf_srv_log_has_more(mf_srv_log *log, mf_srv_log_place *place)
{
    pthread_mutex_lock(&log->lock);
    const bool has_more = n_behind(log, place) > 0 || log->is_lost || log->is_over;
    pthread_mutex_unlock(&log->lock);
    return has_more;
}

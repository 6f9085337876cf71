/* SPDX-License-Identifier: MIT */
/* The hashing thread. */
#include "hub_verify.h"
#include "hub_fail.h"
#include "hub_hash.h"
#include "hub_rooms.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Less than the caches nearest to a core. */
#define PIECE_BYTES ((size_t)1 << 18)

/* Waits until there is more of the item than `position`. False: stopped, or begun anew. */
static bool wait_front(mf_hub_verifier *v, mf_hub_item *item, uint32_t epoch, uint64_t position,
                       uint64_t *front)
{
    pthread_mutex_lock(&v->lock);
    while (!v->is_stopped && item->epoch == epoch &&
           item->front_units * MF_HUB_UNIT_BYTES <= position)
        pthread_cond_wait(&v->changed, &v->lock);
    const bool good = !v->is_stopped && item->epoch == epoch;
    *front = item->front_units * MF_HUB_UNIT_BYTES;
    pthread_mutex_unlock(&v->lock);
    if (*front > item->file->n_bytes)
        *front = item->file->n_bytes;
    return good;
}

static bool fail_hash(mf_hub_item *item)
{
    return mf_hub_fail(&item->error, MF_ERR_NO_MEMORY, "%s: cannot hash", item->part.path);
}

/* Hashes of the file up to end; false: it cannot be read. */
static bool hash_file(mf_hub_item *item, mf_hub_hash *hash, char *buffer, uint64_t position,
                      uint64_t end)
{
    while (position < end) {
        const size_t n = end - position < PIECE_BYTES ? (size_t)(end - position) : PIECE_BYTES;
        const ssize_t n_read = pread(item->part.fd, buffer, n, (off_t)position);
        if (n_read < 0 && errno == EINTR)
            continue;
        if (n_read <= 0)
            return mf_hub_fail_os(&item->error, n_read < 0 ? errno : EIO, "%s: cannot read",
                                  item->part.path);
        if (!mf_hub_hash_take(hash, buffer, (size_t)n_read))
            return fail_hash(item);
        position += (uint64_t)n_read;
    }
    return true;
}

/* Hashes up to front, which is a unit's end or the file's. */
static bool hash_to(const mf_hub_verifier *v, mf_hub_item *item, uint32_t epoch, mf_hub_hash *hash,
                    char *buffer, uint64_t *position, uint64_t front)
{
    while (*position < front) {
        const uint64_t left = front - *position;
        const uint64_t end = *position + (left < MF_HUB_UNIT_BYTES ? left : MF_HUB_UNIT_BYTES);
        mf_hub_room *room = mf_hub_rooms_lend(v->rooms, item, epoch, *position / MF_HUB_UNIT_BYTES);
        bool good;
        if (room) {
            good = mf_hub_hash_take(hash, room->data, room->n_bytes) || fail_hash(item);
            mf_hub_rooms_return(v->rooms, room);
        } else {
            good = hash_file(item, hash, buffer, *position, end);
        }
        if (!good)
            return false;
        *position = end;
    }
    return true;
}

static mf_hub_verdict finish(const mf_hub_verifier *v, mf_hub_item *item, mf_hub_hash *hash)
{
    char blob[MF_HUB_PATH_CHARS];
    if (!mf_hub_hash_end(hash, item->file, item->digits))
        return MF_HUB_WRONG;
    const int n = snprintf(blob, sizeof blob, "%s/%s", v->blobs_dir, item->file->blob);
    if (n < 0 || (size_t)n >= sizeof blob)
        return MF_HUB_FAILED;
    return mf_hub_partial_finish(&item->part, blob, &item->error) ? MF_HUB_CHECKED : MF_HUB_FAILED;
}

/* One pass over the item; MF_HUB_NO_VERDICT: it was cut short. */
static mf_hub_verdict hash_item(mf_hub_verifier *v, mf_hub_item *item, uint32_t epoch, char *buffer)
{
    uint64_t position = 0, front;
    mf_hub_hash *hash = mf_hub_hash_begin(item->file);
    if (!hash) {
        mf_hub_fail(&item->error, MF_ERR_NO_MEMORY, "no memory for hashing");
        return MF_HUB_FAILED;
    }
    while (position < item->file->n_bytes) {
        const bool goes_on = wait_front(v, item, epoch, position, &front);
        if (goes_on && hash_to(v, item, epoch, hash, buffer, &position, front))
            continue;
        mf_hub_hash_free(hash);
        return goes_on ? MF_HUB_FAILED : MF_HUB_NO_VERDICT;
    }
    return finish(v, item, hash);
}

/* Until the item has its right content, the thread is stopped, or nothing can be done. */
static bool verify_item(mf_hub_verifier *v, mf_hub_item *item, char *buffer)
{
    for (;;) {
        pthread_mutex_lock(&v->lock);
        while (!v->is_stopped && (!item->is_begun || item->verdict != MF_HUB_NO_VERDICT))
            pthread_cond_wait(&v->changed, &v->lock);
        const bool stopped = v->is_stopped;
        const uint32_t epoch = item->epoch;
        pthread_mutex_unlock(&v->lock);
        if (stopped)
            return false;
        const mf_hub_verdict verdict = hash_item(v, item, epoch, buffer);
        pthread_mutex_lock(&v->lock);
        if (item->epoch == epoch)
            item->verdict = verdict;
        pthread_mutex_unlock(&v->lock);
        mf_hub_client_wake(v->client);
        if (verdict == MF_HUB_CHECKED || verdict == MF_HUB_FAILED)
            return verdict == MF_HUB_CHECKED;
    }
}

static void *run(void *user)
{
    mf_hub_verifier *v = user;
    char *buffer = malloc(PIECE_BYTES);
    for (size_t i = 0; i < v->n_items; i++) {
        if (buffer && verify_item(v, &v->items[i], buffer))
            continue;
        if (!buffer) {
            pthread_mutex_lock(&v->lock);
            mf_hub_fail(&v->items[i].error, MF_ERR_NO_MEMORY, "no memory for hashing");
            v->items[i].verdict = MF_HUB_FAILED;
            pthread_mutex_unlock(&v->lock);
            mf_hub_client_wake(v->client);
        }
        break;
    }
    free(buffer);
    return NULL;
}

bool mf_hub_verifier_start(mf_hub_verifier *v, mf_hub_item *items, size_t n_items,
                           const char *blobs_dir, mf_hub_client *client, mf_hub_rooms *rooms,
                           mf_error *error)
{
    *v = (mf_hub_verifier){.items = items,
                           .n_items = n_items,
                           .blobs_dir = blobs_dir,
                           .client = client,
                           .rooms = rooms};
    pthread_mutex_init(&v->lock, NULL);
    pthread_cond_init(&v->changed, NULL);
    const int failed = pthread_create(&v->thread, NULL, run, v);
    if (failed == 0)
        return true;
    pthread_cond_destroy(&v->changed);
    pthread_mutex_destroy(&v->lock);
    return mf_hub_fail_os(error, failed, "cannot start a thread");
}

void mf_hub_verifier_stop(mf_hub_verifier *v)
{
    pthread_mutex_lock(&v->lock);
    v->is_stopped = true;
    pthread_cond_broadcast(&v->changed);
    pthread_mutex_unlock(&v->lock);
    pthread_join(v->thread, NULL);
    pthread_cond_destroy(&v->changed);
    pthread_mutex_destroy(&v->lock);
}

void mf_hub_verifier_advance(mf_hub_verifier *v, mf_hub_item *item, uint64_t front_units)
{
    pthread_mutex_lock(&v->lock);
    item->is_begun = true;
    item->front_units = front_units;
    pthread_cond_signal(&v->changed);
    pthread_mutex_unlock(&v->lock);
}

void mf_hub_verifier_restart(mf_hub_verifier *v, mf_hub_item *item)
{
    pthread_mutex_lock(&v->lock);
    item->epoch++;
    item->front_units = 0;
    item->verdict = MF_HUB_NO_VERDICT;
    pthread_cond_signal(&v->changed);
    pthread_mutex_unlock(&v->lock);
}

mf_hub_verdict mf_hub_verifier_verdict(mf_hub_verifier *v, const mf_hub_item *item)
{
    pthread_mutex_lock(&v->lock);
    const mf_hub_verdict verdict = item->verdict;
    pthread_mutex_unlock(&v->lock);
    return verdict;
}

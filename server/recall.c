/* SPDX-License-Identifier: MIT */
/* A list, the one used last at its end. */
#include "recall.h"

#include "random.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_KEPT 8192

struct mf_srv_recall {
    pthread_mutex_t lock;
    mf_srv_digest_key key;
    size_t max_bytes, n_bytes;
    size_t n_kept;
    mf_srv_kept *kept[MAX_KEPT];
};

mf_srv_recall *mf_srv_recall_new(size_t max_bytes)
{
    mf_srv_recall *recall = calloc(1, sizeof *recall);
    if (!recall)
        return NULL;
    pthread_mutex_init(&recall->lock, NULL);
    mf_srv_random(&recall->key, sizeof recall->key);
    recall->max_bytes = max_bytes;
    return recall;
}

const mf_srv_digest_key *mf_srv_recall_key(const mf_srv_recall *recall)
{
    return &recall->key;
}

mf_srv_kept *mf_srv_kept_new(void)
{
    mf_srv_kept *kept = calloc(1, sizeof *kept);
    if (kept)
        kept->n_refs = 1;
    return kept;
}

void mf_srv_kept_drop(mf_srv_kept *kept)
{
    if (!kept || __atomic_sub_fetch(&kept->n_refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    mf_srv_message_free(&kept->message);
    free(kept->tokens);
    free(kept);
}

void mf_srv_recall_free(mf_srv_recall **recall)
{
    if (!*recall)
        return;
    for (size_t i = 0; i < (*recall)->n_kept; i++)
        mf_srv_kept_drop((*recall)->kept[i]);
    pthread_mutex_destroy(&(*recall)->lock);
    free(*recall);
    *recall = NULL;
}

static size_t n_bytes_of(const mf_srv_kept *kept)
{
    size_t n = sizeof *kept + kept->n_tokens * sizeof *kept->tokens +
               kept->message.content.capacity + kept->message.thoughts.capacity;
    for (size_t i = 0; i < kept->message.n_calls; i++) {
        const mf_srv_call *call = &kept->message.calls[i];
        n += sizeof *call + strlen(call->name) + strlen(call->arguments) + 64;
    }
    return n;
}

static void take_out(mf_srv_recall *r, size_t i)
{
    r->n_bytes -= n_bytes_of(r->kept[i]);
    memmove(&r->kept[i], &r->kept[i + 1], (--r->n_kept - i) * sizeof *r->kept);
}

static size_t find(const mf_srv_recall *r, const mf_srv_digest *key)
{
    size_t i = r->n_kept;
    while (i > 0 && !mf_srv_digest_is(&r->kept[i - 1]->key, key))
        i--;
    return i > 0 ? i - 1 : SIZE_MAX;
}

void mf_srv_recall_put(mf_srv_recall *r, mf_srv_kept *kept)
{
    const size_t n_bytes = n_bytes_of(kept);
    if (n_bytes > r->max_bytes) {
        mf_srv_kept_drop(kept);
        return;
    }
    pthread_mutex_lock(&r->lock);
    size_t i = find(r, &kept->key);
    while (i != SIZE_MAX || r->n_kept == MAX_KEPT || r->n_bytes + n_bytes > r->max_bytes) {
        mf_srv_kept *old = r->kept[i != SIZE_MAX ? i : 0];
        take_out(r, i != SIZE_MAX ? i : 0);
        mf_srv_kept_drop(old);
        i = SIZE_MAX;
    }
    r->kept[r->n_kept++] = kept;
    r->n_bytes += n_bytes;
    pthread_mutex_unlock(&r->lock);
}

mf_srv_kept *mf_srv_recall_find(mf_srv_recall *r, const mf_srv_digest *key)
{
    mf_srv_kept *kept = NULL;
    pthread_mutex_lock(&r->lock);
    const size_t i = find(r, key);
    if (i != SIZE_MAX) {
        kept = r->kept[i];
        memmove(&r->kept[i], &r->kept[i + 1], (r->n_kept - 1 - i) * sizeof *r->kept);
        r->kept[r->n_kept - 1] = kept;
        __atomic_add_fetch(&kept->n_refs, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&r->lock);
    return kept;
}

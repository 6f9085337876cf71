/* SPDX-License-Identifier: MIT */
/* A list, the one used last at its end. */
#include "responses_kept.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RESPONSES 1024

typedef struct kept_response {
    char *id; /* from malloc */
    size_t who;
    mf_srv_bytes items, response;
} kept_response;

struct mf_srv_responses {
    pthread_mutex_t lock;
    size_t max_bytes, n_bytes, n;
    kept_response kept[MAX_RESPONSES];
};

mf_srv_responses *mf_srv_responses_new(size_t max_bytes)
{
    mf_srv_responses *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    pthread_mutex_init(&r->lock, NULL);
    r->max_bytes = max_bytes;
    return r;
}

static size_t n_bytes_of(const kept_response *k)
{
    return k->items.capacity + k->response.capacity + sizeof *k;
}

static void free_one(kept_response *k)
{
    free(k->id);
    mf_srv_bytes_free(&k->items);
    mf_srv_bytes_free(&k->response);
}

/* Takes it off the list; it is the caller's. */
static kept_response take(mf_srv_responses *r, size_t i)
{
    const kept_response k = r->kept[i];
    r->n_bytes -= n_bytes_of(&k);
    r->n--;
    memmove(r->kept + i, r->kept + i + 1, (r->n - i) * sizeof *r->kept);
    return k;
}

void mf_srv_responses_free(mf_srv_responses **responses)
{
    mf_srv_responses *r = *responses;
    if (!r)
        return;
    for (size_t i = 0; i < r->n; i++)
        free_one(&r->kept[i]);
    pthread_mutex_destroy(&r->lock);
    free(r);
    *responses = NULL;
}

void mf_srv_responses_put(mf_srv_responses *r, const char *id, size_t who, mf_srv_bytes *items,
                          mf_srv_bytes *response)
{
    kept_response k = {strdup(id), who, *items, *response};
    *items = *response = (mf_srv_bytes){0};
    if (!k.id || k.items.has_failed || k.response.has_failed || n_bytes_of(&k) > r->max_bytes) {
        free_one(&k);
        return;
    }
    pthread_mutex_lock(&r->lock);
    while (r->n > 0 && (r->n == MAX_RESPONSES || r->n_bytes + n_bytes_of(&k) > r->max_bytes)) {
        kept_response oldest = take(r, 0);
        free_one(&oldest);
    }
    r->kept[r->n++] = k;
    r->n_bytes += n_bytes_of(&k);
    pthread_mutex_unlock(&r->lock);
}

/* r->n: there is none. */
static size_t find(const mf_srv_responses *r, const char *id, size_t who)
{
    size_t i = 0;
    while (i < r->n && (r->kept[i].who != who || strcmp(r->kept[i].id, id) != 0))
        i++;
    return i;
}

bool mf_srv_responses_find(mf_srv_responses *r, const char *id, size_t who, mf_srv_bytes *items,
                           mf_srv_bytes *response)
{
    pthread_mutex_lock(&r->lock);
    const size_t i = find(r, id, who);
    const bool is_there = i < r->n;
    if (is_there) {
        const kept_response k = take(r, i);
        r->kept[r->n++] = k; /* it was used last */
        r->n_bytes += n_bytes_of(&k);
        if (items && k.items.n_bytes > 0)
            mf_srv_put(items, k.items.data, k.items.n_bytes);
        if (response)
            mf_srv_put(response, k.response.data, k.response.n_bytes);
    }
    pthread_mutex_unlock(&r->lock);
    return is_there;
}

bool mf_srv_responses_drop(mf_srv_responses *r, const char *id, size_t who)
{
    pthread_mutex_lock(&r->lock);
    const size_t i = find(r, id, who);
    const bool is_there = i < r->n;
    kept_response k = {0};
    if (is_there)
        k = take(r, i);
    pthread_mutex_unlock(&r->lock);
    free_one(&k);
    return is_there;
}

/* SPDX-License-Identifier: MIT */
/* A list, the one used last at its end. */
#include "responses_kept.h"

#include "job.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RESPONSES 1024

typedef struct entry {
    char *id; /* from malloc */
    size_t who;
    mf_srv_stored kept;
    mf_srv_job *job; /* held; NULL: it is over, and kept */
    bool is_cancelled, is_settled;
} entry;

struct mf_srv_responses {
    pthread_mutex_t lock;
    pthread_cond_t settled;
    size_t max_bytes, n_bytes, n;
    entry list[MAX_RESPONSES];
};

mf_srv_responses *mf_srv_responses_new(size_t max_bytes)
{
    mf_srv_responses *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->settled, NULL);
    r->max_bytes = max_bytes;
    return r;
}

static size_t n_bytes_of(const entry *e)
{
    return e->kept.items.capacity + e->kept.response.capacity + e->kept.events.capacity + sizeof *e;
}

static void free_kept(mf_srv_stored *k)
{
    mf_srv_bytes_free(&k->items);
    mf_srv_bytes_free(&k->response);
    mf_srv_bytes_free(&k->events);
}

static void free_one(entry *e)
{
    free(e->id);
    free_kept(&e->kept);
    mf_srv_job_drop(e->job);
}

/* Takes it off the list; it is the caller's. */
static entry take(mf_srv_responses *r, size_t i)
{
    const entry e = r->list[i];
    r->n_bytes -= n_bytes_of(&e);
    r->n--;
    memmove(r->list + i, r->list + i + 1, (r->n - i) * sizeof *r->list);
    return e;
}

void mf_srv_responses_free(mf_srv_responses **responses)
{
    mf_srv_responses *r = *responses;
    if (!r)
        return;
    for (size_t i = 0; i < r->n; i++)
        free_one(&r->list[i]);
    pthread_cond_destroy(&r->settled);
    pthread_mutex_destroy(&r->lock);
    free(r);
    *responses = NULL;
}

/* r->n: there is none. */
static size_t find(const mf_srv_responses *r, const char *id, size_t who)
{
    size_t i = 0;
    while (i < r->n && (r->list[i].who != who || strcmp(r->list[i].id, id) != 0))
        i++;
    return i;
}

/* Adds it, in the place of the oldest that are over, as many as it takes. False: too many are in
 * the making, and it is still the caller's. */
static bool add(mf_srv_responses *r, const entry *e)
{
    size_t i = 0;
    while (r->n == MAX_RESPONSES || r->n_bytes + n_bytes_of(e) > r->max_bytes) {
        while (i < r->n && r->list[i].job)
            i++;
        if (i == r->n)
            break;
        entry oldest = take(r, i);
        free_one(&oldest);
    }
    if (r->n == MAX_RESPONSES)
        return false;
    r->list[r->n++] = *e;
    r->n_bytes += n_bytes_of(e);
    return true;
}

/* What is kept has no room to grow. */
static void trim(mf_srv_bytes *b)
{
    char *data = b->data && b->capacity > b->n_bytes + 1 ? realloc(b->data, b->n_bytes + 1) : NULL;
    if (!data)
        return;
    b->data = data;
    b->capacity = b->n_bytes + 1;
}

static bool has_failed(const mf_srv_stored *k)
{
    return k->items.has_failed || k->response.has_failed || k->events.has_failed;
}

bool mf_srv_responses_fit(const mf_srv_responses *r, const mf_srv_stored *k)
{
    const size_t n_ends = 3; /* of the texts, which keep no other room (trim) */
    return !has_failed(k) &&
           k->items.n_bytes + k->response.n_bytes + k->events.n_bytes + n_ends + sizeof(entry) <=
               r->max_bytes;
}

/* With the lock held: takes the id and the texts over, in any case. False: they are not kept. */
static bool keep(mf_srv_responses *r, char *id, size_t who, mf_srv_stored *kept)
{
    entry e = {.id = id, .who = who, .kept = *kept};
    *kept = (mf_srv_stored){0};
    trim(&e.kept.items);
    trim(&e.kept.response);
    trim(&e.kept.events);
    const bool is_kept = id && !has_failed(&e.kept) && n_bytes_of(&e) <= r->max_bytes && add(r, &e);
    if (!is_kept)
        free_one(&e);
    return is_kept;
}

bool mf_srv_responses_put(mf_srv_responses *r, const char *id, size_t who, mf_srv_stored *kept)
{
    pthread_mutex_lock(&r->lock);
    const bool is_kept = keep(r, strdup(id), who, kept);
    pthread_mutex_unlock(&r->lock);
    return is_kept;
}

static void copy(const mf_srv_bytes *from, mf_srv_bytes *to)
{
    if (to && from->n_bytes > 0)
        mf_srv_put(to, from->data, from->n_bytes);
}

/* may_run: also one in the making. */
static bool find_texts(mf_srv_responses *r, const char *id, size_t who, bool may_run,
                       mf_srv_bytes *items, mf_srv_bytes *response, mf_srv_bytes *events)
{
    pthread_mutex_lock(&r->lock);
    const size_t i = find(r, id, who);
    const bool is_there = i < r->n && (may_run || !r->list[i].job);
    if (is_there) {
        const entry e = take(r, i);
        r->list[r->n++] = e; /* it was used last */
        r->n_bytes += n_bytes_of(&e);
        copy(&e.kept.items, items);
        copy(&e.kept.response, response);
        copy(&e.kept.events, events);
    }
    pthread_mutex_unlock(&r->lock);
    return is_there;
}

bool mf_srv_responses_find(mf_srv_responses *r, const char *id, size_t who, mf_srv_bytes *items,
                           mf_srv_bytes *response, mf_srv_bytes *events)
{
    return find_texts(r, id, who, false, items, response, events);
}

bool mf_srv_responses_search(mf_srv_responses *r, size_t who, const char *text, size_t *n_seen,
                             size_t *n_bytes, mf_srv_bytes *items)
{
    bool is_found = false;
    pthread_mutex_lock(&r->lock);
    while (!is_found && *n_seen < r->n) {
        const entry *e = &r->list[r->n - ++*n_seen];
        const mf_srv_bytes *in = &e->kept.items;
        if (e->who != who || e->job || in->n_bytes == 0)
            continue;
        *n_bytes += in->n_bytes;
        is_found = memmem(in->data, in->n_bytes, text, strlen(text)) != NULL;
        if (is_found)
            copy(in, items);
    }
    pthread_mutex_unlock(&r->lock);
    return is_found;
}

bool mf_srv_responses_find_input(mf_srv_responses *r, const char *id, size_t who,
                                 mf_srv_bytes *items, mf_srv_bytes *response)
{
    return find_texts(r, id, who, true, items, response, NULL);
}

bool mf_srv_responses_drop(mf_srv_responses *r, const char *id, size_t who)
{
    pthread_mutex_lock(&r->lock);
    const size_t i = find(r, id, who);
    const bool is_there = i < r->n;
    entry e = {0};
    if (is_there)
        e = take(r, i);
    pthread_mutex_unlock(&r->lock);
    if (e.job)
        mf_cancel_request(&e.job->cancel);
    free_one(&e);
    return is_there;
}

/* --------------------------------------------------------------------------- conversations -- */

/* With the lock held: other texts in the place of an entry's, which is the one used last then, or
 * all is as it was. Those that are given are taken over in any case. */
static mf_srv_change exchange(mf_srv_responses *r, size_t i, mf_srv_bytes *items,
                              mf_srv_bytes *response)
{
    mf_srv_stored given = {0};
    entry now = r->list[i];
    if (items) {
        trim(items);
        given.items = now.kept.items = *items;
    }
    if (response) {
        trim(response);
        given.response = now.kept.response = *response;
    }
    mf_srv_change change = has_failed(&now.kept)             ? MF_SRV_NO_MEMORY
                           : n_bytes_of(&now) > r->max_bytes ? MF_SRV_TOO_LARGE
                                                             : MF_SRV_CHANGED;
    if (change == MF_SRV_CHANGED) {
        const entry old = take(r, i);
        given.items = items ? old.kept.items : given.items;
        given.response = response ? old.kept.response : given.response;
        (void)add(r, &now); /* there is room: it was there */
    }
    free_kept(&given);
    return change;
}

/* Both, one behind the other, in no more bytes than it takes. */
static void join(const mf_srv_bytes *a, const mf_srv_bytes *b, mf_srv_bytes *out)
{
    out->data = malloc(a->n_bytes + b->n_bytes + 2);
    out->has_failed = !out->data || a->has_failed || b->has_failed;
    if (out->has_failed)
        return;
    out->capacity = a->n_bytes + b->n_bytes + 2;
    copy(a, out);
    mf_srv_puts(out, a->n_bytes > 0 && b->n_bytes > 0 ? "," : "");
    copy(b, out);
}

mf_srv_change mf_srv_responses_add(mf_srv_responses *r, const char *id, size_t who,
                                   const mf_srv_bytes *items)
{
    mf_srv_change change = MF_SRV_NOT_THERE;
    pthread_mutex_lock(&r->lock);
    const size_t i = find(r, id, who);
    if (i < r->n && !r->list[i].job) {
        mf_srv_bytes joined = {0};
        join(&r->list[i].kept.items, items, &joined);
        change = exchange(r, i, &joined, NULL);
    }
    pthread_mutex_unlock(&r->lock);
    return change;
}

static void forget(mf_srv_bytes *taken)
{
    if (taken)
        *taken = (mf_srv_bytes){0};
}

static bool is_same(const mf_srv_bytes *a, const mf_srv_bytes *b)
{
    return a->n_bytes == b->n_bytes &&
           (a->n_bytes == 0 || memcmp(a->data, b->data, a->n_bytes) == 0);
}

mf_srv_change mf_srv_responses_change(mf_srv_responses *r, const char *id, size_t who,
                                      const mf_srv_bytes *was, mf_srv_bytes *items,
                                      mf_srv_bytes *response)
{
    mf_srv_change change = MF_SRV_NOT_THERE;
    pthread_mutex_lock(&r->lock);
    const size_t i = find(r, id, who);
    if (i < r->n && !r->list[i].job) {
        change = MF_SRV_CHANGED_MEANWHILE;
        if (!was || is_same(&r->list[i].kept.items, was)) {
            change = exchange(r, i, items, response);
            forget(items);
            forget(response);
        }
    }
    pthread_mutex_unlock(&r->lock);
    return change;
}

/* ----------------------------------------------------------------------------- in the making -- */

bool mf_srv_responses_begin(mf_srv_responses *r, mf_srv_job *job)
{
    entry e = {.id = strdup(job->id), .who = job->key, .job = job};
    bool is_added = false;
    copy(&job->items, &e.kept.items);
    mf_srv_job_hold(job);
    pthread_mutex_lock(&r->lock);
    if (e.id && !e.kept.items.has_failed)
        is_added = add(r, &e);
    pthread_mutex_unlock(&r->lock);
    if (!is_added)
        free_one(&e);
    return is_added;
}

mf_srv_job *mf_srv_responses_running(mf_srv_responses *r, const char *id, size_t who,
                                     bool *is_cancelled)
{
    mf_srv_job *job = NULL;
    pthread_mutex_lock(&r->lock);
    const size_t i = find(r, id, who);
    if (i < r->n && r->list[i].job) {
        job = r->list[i].job;
        *is_cancelled = r->list[i].is_cancelled;
        mf_srv_job_hold(job);
    }
    pthread_mutex_unlock(&r->lock);
    return job;
}

mf_srv_job *mf_srv_responses_cancel(mf_srv_responses *r, const char *id, size_t who)
{
    mf_srv_job *job = NULL;
    size_t i;
    pthread_mutex_lock(&r->lock);
    while ((i = find(r, id, who)) < r->n && r->list[i].job && r->list[i].is_settled)
        pthread_cond_wait(&r->settled, &r->lock);
    if (i < r->n && r->list[i].job) {
        job = r->list[i].job;
        r->list[i].is_cancelled = true;
        mf_srv_job_hold(job);
    }
    pthread_mutex_unlock(&r->lock);
    return job;
}

mf_srv_wanted mf_srv_responses_settle(mf_srv_responses *r, const mf_srv_job *job)
{
    mf_srv_wanted wanted = MF_SRV_IS_DROPPED;
    pthread_mutex_lock(&r->lock);
    const size_t i = find(r, job->id, job->key);
    if (i < r->n) {
        r->list[i].is_settled = true;
        wanted = r->list[i].is_cancelled ? MF_SRV_IS_CANCELLED : MF_SRV_IS_WANTED;
    }
    pthread_mutex_unlock(&r->lock);
    return wanted;
}

void mf_srv_responses_settled(mf_srv_responses *r, const mf_srv_job *job, mf_srv_stored *kept)
{
    entry before = {0};
    pthread_mutex_lock(&r->lock);
    const size_t i = find(r, job->id, job->key);
    if (i < r->n)
        before = take(r, i);
    if (before.id)
        keep(r, before.id, before.who, kept);
    before.id = NULL;
    pthread_cond_broadcast(&r->settled);
    pthread_mutex_unlock(&r->lock);
    free_kept(kept);
    free_one(&before);
}

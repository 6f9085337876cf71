/* SPDX-License-Identifier: MIT */
/* The loop over requests, and when one that failed is tried again. */
#include "hub_client.h"
#include "hub_fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FIRST_WAIT_SECONDS 0.25
#define LONGEST_WAIT_SECONDS 30.0

struct mf_hub_client {
    mf_hub_places places;
    mf_hub_options options;
    CURLM *multi;
    mf_hub_request *requests;
    uint32_t n_active;
    uint32_t n_failures; /* in a row */
    double hold_until;   /* no request begins before */
    char why[300];
};

static double now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

const mf_hub_places *mf_hub_client_places(const mf_hub_client *client)
{
    return &client->places;
}

void mf_hub_client_gained(mf_hub_client *client)
{
    client->n_failures = 0;
    client->why[0] = '\0';
}

void mf_hub_client_wake(mf_hub_client *client)
{
    curl_multi_wakeup(client->multi);
}

double mf_hub_client_waits(const mf_hub_client *client, const char **why)
{
    const double seconds = client->hold_until - now_seconds();
    *why = client->why;
    return seconds > 0 ? seconds : 0;
}

bool mf_hub_client_open(const mf_hub_places *places, const mf_hub_options *options,
                        mf_hub_client **out, mf_error *error)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return mf_hub_fail(error, MF_ERR_NO_MEMORY, "libcurl does not start");
    mf_hub_client *c = calloc(1, sizeof *c);
    if (!c)
        return mf_hub_fail(error, MF_ERR_NO_MEMORY, "no memory for the hub's connections");
    c->places = *places;
    c->options = *options;
    c->multi = curl_multi_init();
    c->requests = calloc(options->n_connections, sizeof *c->requests);
    bool good = c->multi && c->requests;
    for (uint32_t i = 0; good && i < options->n_connections; i++)
        good = (c->requests[i].easy = curl_easy_init()) != NULL;
    if (good) {
        *out = c;
        return true;
    }
    mf_hub_client_close(&c);
    return mf_hub_fail(error, MF_ERR_NO_MEMORY, "no memory for the hub's connections");
}

void mf_hub_client_close(mf_hub_client **client)
{
    mf_hub_client *c = *client;
    *client = NULL;
    if (!c)
        return;
    for (uint32_t i = 0; c->requests && i < c->options.n_connections; i++) {
        if (c->requests[i].is_active)
            curl_multi_remove_handle(c->multi, c->requests[i].easy);
        curl_easy_cleanup(c->requests[i].easy);
        curl_slist_free_all(c->requests[i].headers);
    }
    curl_multi_cleanup(c->multi);
    free(c->requests);
    free(c);
    curl_global_cleanup();
}

/* Begins a request's life; its handle and headers stay. */
static void clear_request(mf_hub_request *r)
{
    CURL *easy = r->easy;
    struct curl_slist *headers = r->headers;
    *r = (mf_hub_request){.easy = easy, .headers = headers};
}

static bool start_requests(mf_hub_client *c, const mf_hub_work *work, mf_error *error)
{
    if (now_seconds() < c->hold_until)
        return true;
    for (uint32_t i = 0; i < c->options.n_connections; i++) {
        mf_hub_request *r = &c->requests[i];
        if (r->is_active)
            continue;
        clear_request(r);
        if (!work->next(work->user, r))
            return true;
        if (!mf_hub_request_start(c, r, c->multi))
            return mf_hub_fail(error, MF_ERR_NO_MEMORY, "%.600s: libcurl cannot begin", r->url);
        c->n_active++;
    }
    return true;
}

/* Later each time: 0.25 s, 0.5 s, ... or as the hub has it. */
static bool count_failure(mf_hub_client *c, const mf_hub_request *r, mf_error *error)
{
    double wait = FIRST_WAIT_SECONDS;
    const double now = now_seconds();
    /* those that were under way when another failed fail with it */
    const bool is_counted = now >= c->hold_until;
    for (uint32_t i = 0; i < c->n_failures && wait < LONGEST_WAIT_SECONDS; i++)
        wait *= 2;
    if (wait > LONGEST_WAIT_SECONDS)
        wait = LONGEST_WAIT_SECONDS;
    if (wait < (double)r->retry_after_seconds)
        wait = (double)r->retry_after_seconds;
    const double until = now + wait;
    if (is_counted || (r->retry_after_seconds > 0 && until > c->hold_until))
        c->hold_until = until;
    snprintf(c->why, sizeof c->why, "%.299s", r->error.message);
    if (!is_counted || c->n_failures++ < c->options.n_retries)
        return true;
    *error = r->error;
    return false;
}

static bool end_request(mf_hub_client *c, const mf_hub_work *work, mf_hub_request *r, CURLcode code,
                        mf_error *error)
{
    curl_multi_remove_handle(c->multi, r->easy);
    if (mf_hub_request_end(c, r, code)) {
        /* redirected: asked again at once, elsewhere; the first answer's link stays known */
        char linked[MF_HUB_ETAG_CHARS];
        const uint32_t n_redirects = r->n_redirects;
        memcpy(linked, r->linked_etag, sizeof linked);
        if (!mf_hub_request_start(c, r, c->multi))
            return mf_hub_fail(error, MF_ERR_NO_MEMORY, "%.600s: libcurl cannot begin", r->url);
        r->n_redirects = n_redirects;
        memcpy(r->linked_etag, linked, sizeof linked);
        return true;
    }
    c->n_active--;
    work->done(work->user, r);
    if (r->outcome == MF_HUB_AGAIN)
        return count_failure(c, r, error);
    if (r->outcome == MF_HUB_REFUSED) {
        *error = r->error;
        return false;
    }
    return true;
}

static bool take_ends(mf_hub_client *c, const mf_hub_work *work, mf_error *error)
{
    int n_left;
    for (CURLMsg *m = curl_multi_info_read(c->multi, &n_left); m;
         m = curl_multi_info_read(c->multi, &n_left)) {
        mf_hub_request *r = NULL;
        if (m->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)(void *)&r);
        if (!end_request(c, work, r, m->data.result, error))
            return false;
    }
    return true;
}

static void drop_requests(mf_hub_client *c, const mf_hub_work *work)
{
    for (uint32_t i = 0; i < c->options.n_connections; i++) {
        mf_hub_request *r = &c->requests[i];
        if (!r->is_active)
            continue;
        curl_multi_remove_handle(c->multi, r->easy);
        r->is_active = false;
        r->outcome = MF_HUB_STALE;
        work->done(work->user, r);
    }
    c->n_active = 0;
}

bool mf_hub_client_run(mf_hub_client *c, const mf_hub_work *work, mf_error *error)
{
    mf_error failed = {0};
    bool good = true;
    double last_tick = 0;
    int n_running;
    c->n_failures = 0;
    c->hold_until = 0;
    c->why[0] = '\0';
    while (good && !work->is_over(work->user)) {
        good = start_requests(c, work, &failed);
        if (good && curl_multi_perform(c->multi, &n_running) != CURLM_OK)
            good = mf_hub_fail(&failed, MF_ERR_IO, "libcurl failed");
        good = good && take_ends(c, work, &failed);
        if (good && work->tick && now_seconds() - last_tick > 0.1) {
            last_tick = now_seconds();
            good = work->tick(work->user, &failed);
        }
        if (good && !work->is_over(work->user) &&
            curl_multi_poll(c->multi, NULL, 0, 100, NULL) != CURLM_OK)
            good = mf_hub_fail(&failed, MF_ERR_IO, "libcurl failed");
    }
    drop_requests(c, work);
    if (!good && error)
        *error = failed;
    return good;
}

bool mf_hub_url(const mf_hub_client *client, const char *prefix, const char *path,
                char url[MF_HUB_URL_CHARS])
{
    const int n = snprintf(url, MF_HUB_URL_CHARS, "%s%s", client->places.endpoint, prefix);
    size_t at = n > 0 ? (size_t)n : MF_HUB_URL_CHARS;
    while (*path && at < MF_HUB_URL_CHARS) {
        const size_t n_part = strcspn(path, "/");
        char *part = curl_easy_escape(NULL, path, (int)n_part);
        at += part ? (size_t)snprintf(url + at, MF_HUB_URL_CHARS - at, "/%s", part)
                   : MF_HUB_URL_CHARS;
        curl_free(part);
        path += n_part + (path[n_part] == '/');
    }
    return at < MF_HUB_URL_CHARS;
}

/* ---- texts ---- */

typedef struct gets {
    mf_hub_text *texts;
    size_t n_texts, n_done;
    mf_hub_client *client;
    const mf_hub_options *options;
} gets;

static bool take_text(mf_hub_request *r, const char *data, size_t n_bytes)
{
    mf_hub_text *text = r->owner;
    /* of a server without ranges: all up to where the part ends */
    const bool is_beginning = r->is_whole && text->end != MF_HUB_ALL;
    const size_t n_most = is_beginning ? (size_t)text->end : text->n_max_bytes;
    if (is_beginning && n_bytes > n_most - text->n_bytes) {
        r->has_enough = true;
        n_bytes = n_most - text->n_bytes;
    }
    if (n_bytes > n_most - text->n_bytes) {
        r->outcome = MF_HUB_REFUSED;
        return mf_hub_fail(&r->error, MF_ERR_FORMAT, "%.600s: longer than %zu bytes", r->url,
                           text->n_max_bytes);
    }
    if ((text->n_bytes + n_bytes) / 65536 != text->n_bytes / 65536 || !text->data) {
        char *longer = realloc(text->data, (text->n_bytes + n_bytes) / 65536 * 65536 + 65537);
        if (!longer) {
            r->outcome = MF_HUB_REFUSED;
            return mf_hub_fail(&r->error, MF_ERR_NO_MEMORY, "%.600s: no memory", r->url);
        }
        text->data = longer;
    }
    memcpy(text->data + text->n_bytes, data, n_bytes);
    text->n_bytes += n_bytes;
    text->data[text->n_bytes] = '\0';
    return !r->has_enough;
}

static bool next_text(void *user, mf_hub_request *r)
{
    gets *g = user;
    for (size_t i = 0; i < g->n_texts; i++) {
        mf_hub_text *text = &g->texts[i];
        if (text->is_begun)
            continue;
        text->is_begun = true;
        text->n_bytes = 0;
        memcpy(r->url, text->url, sizeof r->url);
        r->begin = text->begin;
        r->end = text->end;
        r->n_file_bytes = text->n_file_bytes;
        r->take = take_text;
        r->owner = text;
        return true;
    }
    return false;
}

/* Where ranges are not known, the whole file came: the part of it that was asked for. */
static void cut_text(mf_hub_text *text, const mf_hub_request *r)
{
    if (!r->is_whole || text->end == MF_HUB_ALL || !text->data)
        return;
    const uint64_t begin = text->begin < text->n_bytes ? text->begin : text->n_bytes;
    const uint64_t end = text->end < text->n_bytes ? text->end : text->n_bytes;
    memmove(text->data, text->data + begin, (size_t)(end - begin));
    text->n_bytes = (size_t)(end - begin);
    text->data[text->n_bytes] = '\0';
}

static void done_text(void *user, mf_hub_request *r)
{
    gets *g = user;
    mf_hub_text *text = r->owner;
    if (r->outcome != MF_HUB_DONE) {
        text->is_begun = false;
        return;
    }
    if (!text->data && (text->data = calloc(1, 1)) == NULL) {
        text->is_begun = false;
        return;
    }
    cut_text(text, r);
    text->is_done = true;
    g->n_done++;
    mf_hub_client_gained(g->client);
}

static bool all_done(void *user)
{
    const gets *g = user;
    return g->n_done == g->n_texts;
}

static bool tick_texts(void *user, mf_error *error)
{
    gets *g = user;
    mf_hub_progress progress = {.n_files = g->n_texts, .n_files_done = g->n_done};
    progress.waits_seconds = mf_hub_client_waits(g->client, &progress.why);
    if (!g->options->tick || g->options->tick(g->options->user, &progress))
        return true;
    return mf_hub_fail(error, MF_ERR_CANCELLED, "interrupted");
}

bool mf_hub_get(mf_hub_client *client, mf_hub_text *texts, size_t n_texts, mf_error *error)
{
    gets g = {texts, n_texts, 0, client, &client->options};
    const mf_hub_work work = {next_text, done_text, all_done, tick_texts, &g};
    for (size_t i = 0; i < n_texts; i++)
        g.n_done += texts[i].is_done;
    return mf_hub_client_run(client, &work, error);
}

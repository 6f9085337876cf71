/* SPDX-License-Identifier: MIT */
/*
 * Requests to the hub, several at once, in one thread. A request is one GET, of a range or of all,
 * that may be redirected: the token goes to the hub's own origin and nowhere else. What fails for
 * now is tried again, later each time, or when the hub says so.
 */
#ifndef MF_HUB_CLIENT_H
#define MF_HUB_CLIENT_H

#include "hub_pull.h"

#include <curl/curl.h>

#define MF_HUB_URL_CHARS 4096
#define MF_HUB_ETAG_CHARS 160
#define MF_HUB_ALL UINT64_MAX

typedef enum mf_hub_outcome {
    MF_HUB_DONE,
    MF_HUB_AGAIN,  /* it may work later */
    MF_HUB_STALE,  /* not wanted any more; no failure */
    MF_HUB_REFUSED /* it will not work; the request's error says why */
} mf_hub_outcome;

typedef struct mf_hub_client mf_hub_client;
typedef struct mf_hub_request mf_hub_request;

struct mf_hub_request {
    /* Set by who starts it. */
    char url[MF_HUB_URL_CHARS];
    uint64_t begin, end;   /* the range; end MF_HUB_ALL with begin 0: all of it */
    uint64_t n_file_bytes; /* MF_HUB_ALL: not known */
    /* Takes the next bytes, which begin at `position`; false: outcome is set, and no more is
     * wanted. */
    bool (*take)(mf_hub_request *request, const char *data, size_t n_bytes);
    void *owner, *context;
    struct mf_hub_room *room; /* its owner's */
    uint64_t tag;

    /* As it goes. */
    mf_hub_client *client;
    uint64_t position;
    mf_hub_outcome outcome;
    mf_error error;
    long status;
    bool is_checked; /* the answer's headers were found good */
    bool has_enough; /* what came is all that is wanted */
    bool is_whole;   /* an answer without ranges: position began at 0 */
    uint32_t n_redirects;
    bool was_elsewhere;                           /* the URL is a redirection's */
    uint64_t range_begin, range_end, range_total; /* as answered; MF_HUB_ALL: not */
    uint64_t retry_after_seconds;
    char etag[MF_HUB_ETAG_CHARS], linked_etag[MF_HUB_ETAG_CHARS];
    char said[256]; /* X-Error-Message */
    char curl_error[CURL_ERROR_SIZE];
    CURL *easy;
    struct curl_slist *headers;
    bool is_active;
};

/* What is asked for, by whoever has it to ask. */
typedef struct mf_hub_work {
    /* Fills in a request's own part; false: nothing to ask for now. */
    bool (*next)(void *user, mf_hub_request *request);
    /* The request is over. MF_HUB_AGAIN: it is counted as a failure afterwards. */
    void (*done)(void *user, mf_hub_request *request);
    /* Everything is there, and no request is needed any more. */
    bool (*is_over)(void *user);
    /* Several times a second; false: stop (*error is filled). May be NULL. */
    bool (*tick)(void *user, mf_error *error);
    void *user;
} mf_hub_work;

bool mf_hub_client_open(const mf_hub_places *places, const mf_hub_options *options,
                        mf_hub_client **out, mf_error *error);
void mf_hub_client_close(mf_hub_client **client);
/* Until the work is over, or fails. */
bool mf_hub_client_run(mf_hub_client *client, const mf_hub_work *work, mf_error *error);
/* Something was gained: failures are counted anew. */
void mf_hub_client_gained(mf_hub_client *client);
/* Interrupts a wait of mf_hub_client_run, from any thread. */
void mf_hub_client_wake(mf_hub_client *client);
/* Of the retries: seconds until the next, and why ("": none is waited for). */
double mf_hub_client_waits(const mf_hub_client *client, const char **why);

/* ENDPOINT/prefix/PATH, the path's parts escaped. False: too long. */
bool mf_hub_url(const mf_hub_client *client, const char *prefix, const char *path,
                char url[MF_HUB_URL_CHARS]);

/* A text, or the beginning of a file. */
typedef struct mf_hub_text {
    char url[MF_HUB_URL_CHARS];
    uint64_t begin, end;   /* as of a request */
    uint64_t n_file_bytes; /* as of a request */
    size_t n_max_bytes;
    char *data; /* the caller frees it; one NUL behind it */
    size_t n_bytes;
    bool is_begun, is_done;
} mf_hub_text;

/* Fetches all of them, several at once. */
bool mf_hub_get(mf_hub_client *client, mf_hub_text *texts, size_t n_texts, mf_error *error);

/* hub_request.c: one request through libcurl. */
bool mf_hub_request_start(mf_hub_client *client, mf_hub_request *request, CURLM *multi);
/* The transfer ended; true: it was redirected and goes on. Sets outcome and error. */
bool mf_hub_request_end(mf_hub_client *client, mf_hub_request *request, CURLcode code);
const mf_hub_places *mf_hub_client_places(const mf_hub_client *client);

#endif

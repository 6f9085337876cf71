/* SPDX-License-Identifier: MIT */
/* A client of bench_serve that notes when each event of its answer comes. */
#include "bench_serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define DONE "[DONE]"

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "bench_serve: %s\n", what);
    exit(1);
}

/* What is known of the text so far; an event or its end may be cut between two looks. */
typedef struct scan {
    bool was_newline;
    size_t n_of_done; /* bytes of DONE that have come in a row */
} scan;

/* Events that begin in what came. */
static size_t n_events(const char *text, size_t n, scan *s)
{
    size_t count = 0;
    for (size_t i = 0; i < n && s->n_of_done < sizeof DONE - 1; i++) {
        count += text[i] == 'd' && s->was_newline;
        s->was_newline = text[i] == '\n';
        s->n_of_done = text[i] == DONE[s->n_of_done] ? s->n_of_done + 1 : text[i] == DONE[0];
    }
    return count;
}

static void *watch(void *context)
{
    bench_serve_answer *a = context;
    char buffer[65536];
    scan s = {0};
    ssize_t k;
    while (s.n_of_done < sizeof DONE - 1 && (k = recv(a->fd, buffer, sizeof buffer, 0)) > 0) {
        const double now = mf_st_now();
        for (size_t i = n_events(buffer, (size_t)k, &s); i > 0 && a->n < BENCH_MAX_TIMES; i--) {
            a->times[a->n] = now;
            __atomic_store_n(&a->n, a->n + 1, __ATOMIC_RELEASE);
        }
    }
    a->is_whole = s.n_of_done == sizeof DONE - 1;
    __atomic_store_n(&a->is_done, true, __ATOMIC_RELEASE);
    return NULL;
}

void bench_serve_ask(bench_serve_answer *a)
{
    size_t n = 0;
    char *request = bench_serve_request(a->prompt, a->of->n_short, a->n_tokens, &n);
    a->fd = mf_st_connect(&a->of->server, 0);
    a->begin_s = mf_st_now();
    if (a->fd < 0 || !mf_st_send(a->fd, request, n) ||
        pthread_create(&a->thread, NULL, watch, a) != 0)
        die("no connection, or no thread");
    free(request);
}

void bench_serve_join(bench_serve_answer *a)
{
    pthread_join(a->thread, NULL);
    close(a->fd);
}

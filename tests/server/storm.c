/* SPDX-License-Identifier: MIT */
/*
 * Requests that no client should send: wrong types, deep JSON, huge bodies, broken text, heads that
 * two readers could read in two ways, senders that dawdle, close one half or leave at any event.
 * What comes back is an HTTP answer of a kind that is meant, or nothing; behind an
 * ambiguous head nothing is answered; in between, a good request gets what it always gets; and
 * nothing stays behind.
 *
 *     server_storm TEXT REQUESTS CLIENTS SEED PROGRAM serve MODEL [OPTION...]
 */
#include "server_attacks.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define N_QUESTIONS 12
#define MAX_CLIENTS 64
#define GOOD_ONE_IN 50
/* Connections that a client leaves open, with half a request sent. */
#define N_DAWDLERS 12
#define MAX_KIB_GROWN (48L << 10)
#define MAX_DESCRIPTORS_LEFT 8

typedef struct storm {
    mf_st_server server;
    mf_st_question *questions;
    size_t n_each;
    int has_failed; /* atomic */
} storm;

typedef struct client {
    storm *of;
    pthread_t thread;
    mf_st_random random;
    unsigned index;
    size_t n_done, n_answered;
    int dawdlers[N_DAWDLERS];
} client;

static bool is_meant(int status)
{
    static const int meant[] = {200, 204, 400, 403, 404, 405, 408, 411, 413,
                                414, 415, 417, 429, 431, 501, 503, 505};
    for (size_t i = 0; i < sizeof meant / sizeof *meant; i++)
        if (meant[i] == status)
            return true;
    return false;
}

static bool fail(client *c, const char *why, const mf_st_attack *attack, const mf_st_answer *a)
{
    __atomic_store_n(&c->of->has_failed, 1, __ATOMIC_RELAXED);
    fprintf(stderr, "client %u, request %zu, %s: %s\nsent: %.600s\ngot: %.1000s\n", c->index,
            c->n_done, attack->name, why, attack->text, a->n_raw > 0 ? a->raw : "(nothing)");
    return false;
}

static bool check(client *c, const mf_st_attack *attack, const mf_st_answer *a)
{
    const bool is_refusal = a->status >= 400;
    if (a->n_raw == 0)
        return true;
    c->n_answered++;
    if (a->status == 0 || !is_meant(a->status))
        return fail(c, "not an answer that is meant", attack, a);
    if (attack->must_be_refused && !is_refusal)
        return fail(c, "it was not refused", attack, a);
    /* (libmicrohttpd 0.9.75 says its own refusal's head twice.) */
    if (attack->is_ambiguous && memmem(a->raw, a->n_raw, "HTTP/1.1 200", 12))
        return fail(c, "what stands behind an ambiguous head was answered", attack, a);
    return true;
}

/* What still comes, after one answer, on a connection that is told nothing more. */
static void drain(int fd, mf_st_answer *a)
{
    char rest[4096];
    ssize_t n;
    shutdown(fd, SHUT_WR);
    mf_st_set_patience(fd, 5);
    while ((n = recv(fd, rest, sizeof rest, 0)) > 0 && a->n_raw + (size_t)n < a->capacity) {
        memcpy(a->raw + a->n_raw, rest, (size_t)n);
        a->n_raw += (size_t)n;
    }
}

static bool send_slowly(int fd, const mf_st_attack *attack)
{
    for (size_t i = 0; i < attack->n_text; i += 7) {
        const size_t n = attack->n_text - i < 7 ? attack->n_text - i : 7;
        if (!mf_st_send(fd, attack->text + i, n))
            return false;
        if (i % 49 == 0)
            mf_st_sleep(0.001);
    }
    return true;
}

/* The body goes on and on, until the other does not take it. */
static void send_endlessly(int fd, size_t n_bytes)
{
    static const char filler[65536] = {' '};
    mf_st_set_patience(fd, 20);
    for (size_t n = 0; n < n_bytes; n += sizeof filler)
        if (!mf_st_send(fd, filler, sizeof filler))
            return;
}

/* It stays open, with what was sent so far; an older one goes. */
static void dawdle(client *c, int fd)
{
    int *place = &c->dawdlers[mf_st_below(&c->random, N_DAWDLERS)];
    if (*place > 0)
        close(*place);
    *place = fd;
}

static bool attack_once(client *c)
{
    mf_st_attack attack;
    mf_st_answer a = {0};
    bool is_good = true;
    mf_st_attack_make(&attack, c->of->questions, N_QUESTIONS, &c->random);
    int fd = mf_st_connect(&c->of->server, 2 + c->index);
    if (fd < 0) {
        is_good = fail(c, "no connection", &attack, &a);
        mf_st_attack_free(&attack);
        return is_good;
    }
    const bool is_sent =
        attack.is_slow ? send_slowly(fd, &attack) : mf_st_send(fd, attack.text, attack.n_text);
    if (is_sent && attack.n_endless > 0)
        send_endlessly(fd, attack.n_endless);
    if (attack.end == MF_ST_DAWDLES) {
        dawdle(c, fd);
    } else if (attack.end == MF_ST_LEAVES) {
        mf_st_reset(fd);
    } else {
        if (attack.end == MF_ST_HALF_CLOSES)
            shutdown(fd, SHUT_WR);
        mf_st_set_patience(fd, attack.is_unfinished ? 1 : 300);
        mf_st_read(fd, attack.n_most, &a);
        if (a.is_whole && attack.is_ambiguous)
            drain(fd, &a);
        is_good = check(c, &attack, &a);
        close(fd);
    }
    mf_st_answer_free(&a);
    mf_st_attack_free(&attack);
    return is_good;
}

/* A good request among the others. */
static bool ask_well(client *c)
{
    mf_st_question *q = &c->of->questions[mf_st_below(&c->random, N_QUESTIONS)];
    const mf_st_attack as = {.name = "a good request", .text = q->request};
    mf_st_answer a = {0};
    bool is_good = true;
    int fd = mf_st_connect(&c->of->server, 2 + c->index);
    if (fd >= 0 && mf_st_send(fd, q->request, q->n_request))
        mf_st_read(fd, SIZE_MAX / 2, &a);
    if (fd >= 0)
        close(fd);
    if (a.status == 200 && a.is_whole)
        mf_st_make_comparable(a.body);
    if (a.status != 429 && (a.status != 200 || !a.is_whole || strcmp(a.body, q->expected) != 0))
        is_good = fail(c, "it got something else than alone", &as, &a);
    mf_st_answer_free(&a);
    return is_good;
}

static void *run_client(void *context)
{
    client *c = context;
    for (size_t i = 0; i < c->of->n_each; i++, c->n_done++) {
        if (__atomic_load_n(&c->of->has_failed, __ATOMIC_RELAXED))
            break;
        if (!(mf_st_below(&c->random, GOOD_ONE_IN) == 0 ? ask_well(c) : attack_once(c)))
            break;
    }
    for (size_t i = 0; i < N_DAWDLERS; i++)
        if (c->dawdlers[i] > 0)
            close(c->dawdlers[i]);
    return NULL;
}

static bool run_round(storm *h, size_t n_clients, size_t n_each, uint64_t seed)
{
    static client clients[MAX_CLIENTS];
    size_t n_done = 0, n_answered = 0;
    h->n_each = n_each;
    for (size_t i = 0; i < n_clients; i++) {
        clients[i] = (client){.of = h, .index = (unsigned)i, .random = {seed * 1000 + i}};
        if (pthread_create(&clients[i].thread, NULL, run_client, &clients[i]) != 0)
            abort();
    }
    for (size_t i = 0; i < n_clients; i++) {
        pthread_join(clients[i].thread, NULL);
        n_done += clients[i].n_done;
        n_answered += clients[i].n_answered;
    }
    bool is_idle = mf_st_wait_for(&h->server, "answers_running", 0, 120) &&
                   mf_st_wait_for(&h->server, "answers_waiting", 0, 120) &&
                   mf_st_wait_for(&h->server, "connections", 1, 120);
    printf("seed %llu: %zu requests, %zu of them answered; memory %ld KiB, %ld descriptors\n",
           (unsigned long long)seed, n_done, n_answered, mf_st_memory_kib(&h->server),
           mf_st_n_descriptors(&h->server));
    if (!is_idle)
        fprintf(stderr, "the server did not come to rest\n");
    return is_idle && n_answered > 0 && !h->has_failed;
}

/* The first round shows how much memory such requests take; the next ones may take no more. */
static bool run_rounds(storm *h, size_t n_clients, size_t n_requests, uint64_t seed)
{
    const size_t n_rounds = 4, n_each = n_requests / n_clients / n_rounds + 1;
    long kib = 0, n_descriptors = 0;
    for (size_t i = 0; i < n_rounds; i++) {
        if (!run_round(h, n_clients, n_each, seed + i))
            return false;
        if (i == 0) {
            kib = mf_st_memory_kib(&h->server);
            n_descriptors = mf_st_n_descriptors(&h->server);
        }
    }
    const long n_jobs = mf_st_figure(&h->server, "jobs_total");
    const long n_over = mf_st_figure(&h->server, "jobs_finished_total") +
                        mf_st_figure(&h->server, "jobs_cancelled_total");
    const long kib_now = mf_st_memory_kib(&h->server), n_now = mf_st_n_descriptors(&h->server);
    const bool is_kept = getenv("MF_NO_MEMORY_CHECK") || kib_now <= kib + MAX_KIB_GROWN;
    if (n_jobs != n_over || !is_kept || n_now > n_descriptors + MAX_DESCRIPTORS_LEFT)
        fprintf(stderr, "%ld taken in, %ld over; memory %ld to %ld KiB; descriptors %ld to %ld\n",
                n_jobs, n_over, kib, kib_now, n_descriptors, n_now);
    return n_jobs == n_over && is_kept && n_now <= n_descriptors + MAX_DESCRIPTORS_LEFT;
}

int main(int argc, char **argv)
{
    storm h = {0};
    if (argc < 7) {
        fprintf(stderr, "usage: server_storm TEXT REQUESTS CLIENTS SEED PROGRAM serve ...\n");
        return 2;
    }
    char *text = mf_st_read_text(argv[1]);
    const size_t n_requests = strtoul(argv[2], NULL, 10), n_clients = strtoul(argv[3], NULL, 10);
    const uint64_t seed = strtoull(argv[4], NULL, 10);
    if (n_clients < 1 || n_clients > MAX_CLIENTS || !mf_st_start(&h.server, argv + 5))
        return 1;
    h.questions = mf_st_questions_make(N_QUESTIONS, seed, text);
    bool is_good = mf_st_questions_ask(&h.server, h.questions, N_QUESTIONS) &&
                   run_rounds(&h, n_clients, n_requests, seed);
    const int code = mf_st_stop(&h.server, SIGTERM);
    if (code != 0)
        fprintf(stderr, "the server ended with %d\n", code);
    mf_st_questions_free(h.questions, N_QUESTIONS);
    free(text);
    puts(is_good && code == 0 ? "passed" : "FAILED");
    return is_good && code == 0 ? 0 : 1;
}

/* SPDX-License-Identifier: MIT */
/*
 * Many clients at once, of which some leave at any moment: each answer is what the same request
 * gets alone, none is lost, nobody is left out, and nothing stays behind.
 *
 *     server_load TEXT SECONDS CLIENTS SEED QUESTIONS PROGRAM serve MODEL [OPTION...]
 */
#include "server_questions.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LEAVES_ONE_IN 3
#define MAX_CLIENTS 200
/* What may stay of memory and of descriptors when all have gone. */
#define MAX_KIB_LEFT (64L << 10)
#define MAX_DESCRIPTORS_LEFT 8

typedef struct load {
    mf_st_server server;
    mf_st_question *questions;
    size_t n_questions;
    double until;
    int has_failed; /* atomic */
} load;

typedef struct client {
    load *of;
    pthread_t thread;
    mf_st_random random;
    unsigned index;
    size_t n_answers, n_left, n_again, n_wrong, n_lost;
    double longest_s;
} client;

static void say_wrong(const char *what, const mf_st_question *q, const mf_st_answer *a)
{
    fprintf(stderr, "%s: %s %s\nstatus %d%s, expected:\n%.2000s\ngot:\n%.2000s\n", what, q->path,
            q->body, a->status, a->is_whole ? "" : ", not whole", q->expected,
            a->body ? a->body : "(nothing)");
}

/* Sends some of it, reads some of what comes, and goes, in one of several ways. */
static void leave(client *c, int fd, const mf_st_question *q)
{
    const size_t how = mf_st_below(&c->random, 4);
    mf_st_answer a = {0};
    if (how == 0) {
        (void)mf_st_send(fd, q->request, mf_st_below(&c->random, q->n_request));
    } else if (mf_st_send(fd, q->request, q->n_request)) {
        if (how == 1)
            mf_st_sleep((double)mf_st_below(&c->random, 200) * 1e-3);
        else
            mf_st_read(fd, mf_st_below(&c->random, strlen(q->expected) + 500), &a);
    }
    c->n_left++;
    mf_st_answer_free(&a);
    if (how == 2)
        shutdown(fd, SHUT_WR); /* and it is closed right behind */
    if (mf_st_below(&c->random, 2))
        mf_st_reset(fd);
    else
        close(fd);
}

/* True: the connection may be used again. */
static bool stay(client *c, int fd, const mf_st_question *q)
{
    mf_st_answer a = {0};
    const double before = mf_st_now();
    if (mf_st_send(fd, q->request, q->n_request))
        mf_st_read(fd, SIZE_MAX / 2, &a);
    const bool keeps_open = a.is_whole && a.keeps_open;
    const double seconds = mf_st_now() - before;
    c->longest_s = seconds > c->longest_s ? seconds : c->longest_s;
    if (a.status == 429) {
        c->n_again++;
    } else if (a.status != 200 || !a.is_whole) {
        c->n_lost++;
        say_wrong("lost", q, &a);
    } else {
        mf_st_make_comparable(a.body);
        c->n_answers++;
        if (strcmp(a.body, q->expected) != 0) {
            c->n_wrong++;
            say_wrong("another answer than alone", q, &a);
        }
    }
    if (a.status == 429)
        mf_st_sleep(0.2);
    mf_st_answer_free(&a);
    return keeps_open;
}

/* Goes on until the time is over, and until it was answered once. */
static void *run_client(void *context)
{
    client *c = context;
    int fd = -1;
    while ((mf_st_now() < c->of->until || c->n_answers == 0) &&
           !__atomic_load_n(&c->of->has_failed, __ATOMIC_RELAXED)) {
        const mf_st_question *q = &c->of->questions[mf_st_below(&c->random, c->of->n_questions)];
        if (fd < 0)
            fd = mf_st_connect(&c->of->server, 2 + c->index);
        if (fd < 0) {
            c->n_lost++;
            fprintf(stderr, "a client was not let in\n");
        } else if (mf_st_below(&c->random, LEAVES_ONE_IN) == 0) {
            leave(c, fd, q);
            fd = -1;
        } else if (!stay(c, fd, q)) {
            close(fd);
            fd = -1;
        }
        if (c->n_wrong + c->n_lost > 0)
            __atomic_store_n(&c->of->has_failed, 1, __ATOMIC_RELAXED);
    }
    if (fd >= 0)
        close(fd);
    return NULL;
}

static bool run_clients(load *l, client *clients, size_t n, uint64_t seed)
{
    client sum = {0};
    size_t n_fewest = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        clients[i] = (client){.of = l, .index = (unsigned)i, .random = {seed * 1000 + i}};
        if (pthread_create(&clients[i].thread, NULL, run_client, &clients[i]) != 0)
            abort();
    }
    for (size_t i = 0; i < n; i++) {
        const client *c = &clients[i];
        pthread_join(c->thread, NULL);
        sum.n_answers += c->n_answers;
        sum.n_left += c->n_left;
        sum.n_again += c->n_again;
        sum.n_wrong += c->n_wrong;
        sum.n_lost += c->n_lost;
        sum.longest_s = c->longest_s > sum.longest_s ? c->longest_s : sum.longest_s;
        n_fewest = c->n_answers < n_fewest ? c->n_answers : n_fewest;
    }
    printf("%zu clients: %zu answers, %zu left before the end, %zu told to come again; fewest of a "
           "client %zu, longest %.2f s; %zu wrong, %zu lost\n",
           n, sum.n_answers, sum.n_left, sum.n_again, n_fewest, sum.longest_s, sum.n_wrong,
           sum.n_lost);
    return sum.n_wrong + sum.n_lost == 0 && n_fewest > 0 && sum.n_left > 0;
}

/* All that was taken in was answered or cancelled, and what it held is free again. */
static bool check_rest(const mf_st_server *s, long kib, long n_descriptors)
{
    bool is_idle = mf_st_wait_for(s, "answers_running", 0, 300) &&
                   mf_st_wait_for(s, "answers_waiting", 0, 300) &&
                   mf_st_wait_for(s, "connections", 1, 300);
    const long n_jobs = mf_st_figure(s, "jobs_total");
    const long n_finished = mf_st_figure(s, "jobs_finished_total");
    const long n_cancelled = mf_st_figure(s, "jobs_cancelled_total");
    const long kib_now = mf_st_memory_kib(s), n_now = mf_st_n_descriptors(s);
    printf("%ld requests taken in: %ld answered, %ld cancelled; preempted %ld; memory %ld KiB "
           "before, %ld after; descriptors %ld before, %ld after\n",
           n_jobs, n_finished, n_cancelled, mf_st_figure(s, "preemptions_total"), kib, kib_now,
           n_descriptors, n_now);
    if (!is_idle)
        fprintf(stderr, "the server did not come to rest\n");
    return is_idle && n_jobs == n_finished + n_cancelled && n_now >= 0 &&
           n_now <= n_descriptors + MAX_DESCRIPTORS_LEFT &&
           (getenv("MF_NO_MEMORY_CHECK") || kib_now <= kib + MAX_KIB_LEFT);
}

int main(int argc, char **argv)
{
    static client clients[MAX_CLIENTS];
    load l = {0};
    if (argc < 8) {
        fprintf(stderr,
                "usage: server_load TEXT SECONDS CLIENTS SEED QUESTIONS PROGRAM serve ...\n");
        return 2;
    }
    char *text = mf_st_read_text(argv[1]);
    const double seconds = strtod(argv[2], NULL);
    const size_t n_clients = strtoul(argv[3], NULL, 10);
    const uint64_t seed = strtoull(argv[4], NULL, 10);
    l.n_questions = strtoul(argv[5], NULL, 10);
    if (n_clients < 1 || n_clients > MAX_CLIENTS || l.n_questions < 1 ||
        !mf_st_start(&l.server, argv + 6))
        return 1;
    l.questions = mf_st_questions_make(l.n_questions, seed, text);
    bool is_good = mf_st_questions_ask(&l.server, l.questions, l.n_questions);
    if (is_good) {
        const long kib = mf_st_memory_kib(&l.server), n = mf_st_n_descriptors(&l.server);
        l.until = mf_st_now() + seconds;
        is_good = run_clients(&l, clients, n_clients, seed);
        is_good = check_rest(&l.server, kib, n) && is_good;
    }
    const int code = mf_st_stop(&l.server, SIGTERM);
    if (code != 0)
        fprintf(stderr, "the server ended with %d\n", code);
    mf_st_questions_free(l.questions, l.n_questions);
    free(text);
    puts(is_good && code == 0 ? "passed" : "FAILED");
    return is_good && code == 0 ? 0 : 1;
}

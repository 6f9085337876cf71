/* SPDX-License-Identifier: MIT */
/*
 * A server that is killed in the middle of its work: the next one finds in the store all that was
 * stored by then, nothing of it damaged, and gives the same answers.
 *
 *     server_killed TEXT ROUNDS CLIENTS SEED PROGRAM serve MODEL --state-dir DIR [OPTION...]
 */
#include "server_questions.h"

#include <ctype.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_QUESTIONS 40
#define PROMPT_BYTES 500
#define MAX_CLIENTS 64

typedef struct question {
    char *body;
    char *text; /* of the answer that came whole; NULL: none did */
} question;

typedef struct killed {
    mf_st_server server;
    question questions[N_QUESTIONS];
    size_t n_asked; /* atomic */
} killed;

/* Each begins in its own way. */
static char *body_of(const char *text, size_t round, size_t i, mf_st_random *r)
{
    char prompt[PROMPT_BYTES + 1], *body = NULL;
    const char *from = text + mf_st_below(r, strlen(text) - PROMPT_BYTES);
    const int n = snprintf(prompt, sizeof prompt, "%zu %zu: ", round, i);
    memcpy(prompt + n, from, PROMPT_BYTES - (size_t)n);
    prompt[PROMPT_BYTES] = '\0';
    for (char *c = prompt; *c; c++)
        if (!isprint((unsigned char)*c) || *c == '"' || *c == '\\')
            *c = ' ';
    if (asprintf(&body, "{\"prompt\":\"%s\",\"max_tokens\":%zu,\"seed\":%zu,\"ignore_eos\":true}",
                 prompt, 5 + mf_st_below(r, 40), i) < 0)
        abort();
    return body;
}

/* The text of the answer, from malloc, if it is whole. */
static char *ask(const killed *k, const char *body, bool *is_found)
{
    mf_st_answer a;
    char *text = NULL;
    mf_st_ask(&k->server, "/v1/completions", body, &a);
    if (a.status == 200 && a.is_whole) {
        *is_found =
            mf_st_number(a.body, "cached_tokens") >= mf_st_number(a.body, "prompt_tokens") - 1;
        mf_st_make_comparable(a.body);
        text = strdup(a.body);
    }
    mf_st_answer_free(&a);
    return text;
}

static void *run_client(void *context)
{
    killed *k = context;
    size_t i;
    while ((i = __atomic_fetch_add(&k->n_asked, 1, __ATOMIC_RELAXED)) < N_QUESTIONS) {
        bool is_found;
        k->questions[i].text = ask(k, k->questions[i].body, &is_found);
    }
    return NULL;
}

/* Until some of the answers are in the store; then the server is killed. Returns how many. */
static long run_until_killed(killed *k, size_t n_clients, long n_enough)
{
    pthread_t threads[MAX_CLIENTS];
    long n = 0;
    k->n_asked = 0;
    for (size_t i = 0; i < n_clients; i++)
        if (pthread_create(&threads[i], NULL, run_client, k) != 0)
            abort();
    const double until = mf_st_now() + 120;
    do {
        long now = mf_st_figure(&k->server, "sessions_stored_total");
        n = now > n ? now : n;
    } while (n < n_enough && mf_st_now() < until);
    (void)mf_st_stop(&k->server, SIGKILL);
    for (size_t i = 0; i < n_clients; i++)
        pthread_join(threads[i], NULL);
    return n;
}

/* All are asked again. */
static bool check_all(const killed *k, long n_stored)
{
    long n_found = 0, n_again = 0;
    for (size_t i = 0; i < N_QUESTIONS; i++) {
        const question *q = &k->questions[i];
        bool is_found = false;
        char *text = ask(k, q->body, &is_found);
        const bool is_same = text && (!q->text || strcmp(text, q->text) == 0);
        n_found += is_found;
        n_again += q->text != NULL;
        if (!is_same)
            fprintf(stderr, "%s\nbefore: %s\nnow: %s\n", q->body, q->text, text ? text : "nothing");
        free(text);
        if (!is_same)
            return false;
    }
    printf("%ld answers were stored and %ld had been read when it was killed; %ld prompts were "
           "found\n",
           n_stored, n_again, n_found);
    return n_found >= n_stored && n_stored > 0;
}

static bool run_round(killed *k, char *const *argv, size_t n_clients, const char *text,
                      mf_st_random *r, size_t round)
{
    bool is_good = false;
    for (size_t i = 0; i < N_QUESTIONS; i++)
        k->questions[i] = (question){.body = body_of(text, round, i, r)};
    if (mf_st_start(&k->server, argv)) {
        const long n_stored =
            run_until_killed(k, n_clients, (long)(1 + mf_st_below(r, N_QUESTIONS / 2)));
        is_good = mf_st_start(&k->server, argv) && check_all(k, n_stored);
        const int code = mf_st_stop(&k->server, SIGTERM);
        if (code != 0)
            fprintf(stderr, "the server ended with %d\n", code);
        is_good = is_good && code == 0;
    }
    for (size_t i = 0; i < N_QUESTIONS; i++) {
        free(k->questions[i].body);
        free(k->questions[i].text);
    }
    return is_good;
}

int main(int argc, char **argv)
{
    static killed k;
    bool is_good = true;
    if (argc < 9) {
        fprintf(stderr, "usage: server_killed TEXT ROUNDS CLIENTS SEED PROGRAM serve MODEL "
                        "--state-dir DIR ...\n");
        return 2;
    }
    char *text = mf_st_read_text(argv[1]);
    const size_t n_rounds = strtoul(argv[2], NULL, 10), n_clients = strtoul(argv[3], NULL, 10);
    mf_st_random r = {strtoull(argv[4], NULL, 10)};
    if (n_clients < 1 || n_clients > MAX_CLIENTS)
        return 2;
    for (size_t round = 0; round < n_rounds && is_good; round++)
        is_good = run_round(&k, argv + 5, n_clients, text, &r, round);
    free(text);
    puts(is_good ? "passed" : "FAILED");
    return is_good ? 0 : 1;
}

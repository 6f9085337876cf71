/* SPDX-License-Identifier: MIT */
/* What the parts of bench_serve share. */
#ifndef MF_BENCH_SERVE_H
#define MF_BENCH_SERVE_H

#include "bench_median.h"
#include "server_child.h"

#include <moeflux/moeflux.h>

#include <pthread.h>
#include <unistd.h>

#define BENCH_MAX_CLIENTS 8u
#define BENCH_MAX_ROUNDS 99u
#define BENCH_MAX_TIMES 65536u
/* Prompts and answers are made of these, which are text to every tokenizer; also of a model whose
 * weights are random, and whose vocabulary is larger than its tokenizer. */
#define BENCH_FIRST_TOKEN 1000
#define BENCH_N_TOKENS 2000

typedef struct bench_serve {
    const char *model, *program, *part, *device;
    uint32_t n_tokens_option, n_rounds, n_long, n_context, n_threads, n_connections;
    size_t n_tokens; /* of an answer */
    size_t n_short;
    int32_t *prompts[BENCH_MAX_CLIENTS]; /* [n_short] */
    int32_t *long_prompt;                /* [n_long] */
    mf_engine *engine;                   /* NULL: not wanted */
    mf_session *sessions[BENCH_MAX_CLIENTS];
    mf_model_info info;
    mf_st_server server;
    double token_s;         /* what one takes the engine alone */
    double engine_worked_s; /* processor time of its steps */
} bench_serve;

void bench_serve_start(bench_serve *b);
/* A streamed request that goes on with these tokens, greedily; from malloc. */
char *bench_serve_request(const int32_t *tokens, size_t n, size_t n_answer, size_t *n_bytes);

/* A streamed answer that a thread reads, and when each of its events came. The server sends one for
 * each token, then those that end the answer. */
typedef struct bench_serve_answer {
    const bench_serve *of;
    const int32_t *prompt; /* [of->n_short] */
    size_t n_tokens;       /* that are asked for */
    pthread_t thread;
    int fd;
    double begin_s;
    double times[BENCH_MAX_TIMES];
    size_t n;      /* events; atomic */
    bool is_done;  /* atomic */
    bool is_whole; /* its end was seen */
} bench_serve_answer;

/* Sends the request and starts the thread. Exits where that cannot be done. */
void bench_serve_ask(bench_serve_answer *a);
/* Waits for the end of the answer. */
void bench_serve_join(bench_serve_answer *a);

/* The first byte of an answer whose prompt is held, on an idle server. */
void bench_serve_first(bench_serve *b);
/* The time between tokens while a long prompt comes in. */
void bench_serve_prompt(bench_serve *b);
/* Memory with many connections open. */
void bench_serve_idle(bench_serve *b);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * What serving costs: tokens per second of clients over HTTP beside mf_engine_step alone in this
 * process, in turns; the time between tokens of an answer while a long prompt comes in; the first
 * byte of an answer whose prompt is held; memory with many connections open.
 *
 *     bench_serve MODEL PROGRAM [--tokens N] [--rounds N] [--prompt N] [--context N] [--threads N]
 *                               [--connections N] [--device NAME]
 *                               [--part speed|prompt|first|idle]
 *
 * PROGRAM is moeflux. Both have the same options; each waits while the other is measured.
 */
#include "bench_serve.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_serve: %s: %s\n", what, why);
    exit(1);
}

#define TRY(call)                      \
    do {                               \
        mf_error error = {0};          \
        if ((call) != MF_OK)           \
            die(#call, error.message); \
    } while (0)

/* -------------------------------------------------------------------------------- the engine -- */

/* Of those that answers are made of. */
static int32_t greatest(const float *logits)
{
    int32_t best = BENCH_FIRST_TOKEN;
    for (int32_t i = best + 1; i < BENCH_FIRST_TOKEN + BENCH_N_TOKENS; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* Processor time of a process, all its threads, in seconds: what else the machine does is no part
 * of it. pid 0: this one. */
static double processor_seconds(pid_t pid)
{
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0)
        die("the processor time of a process", "it cannot be had");
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Seconds of mf_engine_step alone for n answers of n_tokens each; choosing the tokens is not in it.
 */
static double engine_seconds(bench_serve *b, size_t n)
{
    mf_step_item items[BENCH_MAX_CLIENTS];
    int32_t tokens[BENCH_MAX_CLIENTS];
    double seconds = 0;
    for (size_t i = 0; i < n; i++) {
        mf_session_clear(b->sessions[i]);
        TRY(mf_session_eval(b->sessions[i], b->prompts[i], b->n_short, &error));
    }
    for (size_t k = 0; k < b->n_tokens; k++) {
        for (size_t i = 0; i < n; i++) {
            tokens[i] = greatest(mf_session_logits(b->sessions[i]));
            items[i] = (mf_step_item){.struct_bytes = sizeof *items,
                                      .session = b->sessions[i],
                                      .tokens = &tokens[i],
                                      .n_tokens = 1};
        }
        const double before = mf_st_now(), worked = processor_seconds(0);
        TRY(mf_engine_step(b->engine, items, n, &error));
        b->engine_worked_s += processor_seconds(0) - worked;
        seconds += mf_st_now() - before;
    }
    return seconds;
}

static void open_engine(bench_serve *b)
{
    mf_engine_options o;
    mf_engine_options_default(&o);
    o.n_sessions = BENCH_MAX_CLIENTS;
    o.n_context_tokens = b->n_context;
    o.n_threads = b->n_threads;
    o.device = b->device;
    TRY(mf_engine_open(b->model, &o, &b->engine, &error));
    mf_engine_info(b->engine, &b->info);
    for (size_t i = 0; i < BENCH_MAX_CLIENTS; i++)
        TRY(mf_session_create(b->engine, &b->sessions[i], &error));
}

/* Tokens of a prompt, the same for both. */
static int32_t *make_prompt(size_t n, uint64_t seed)
{
    mf_st_random r = {seed};
    int32_t *tokens = malloc(n * sizeof *tokens);
    if (!tokens)
        die("a prompt", "no memory");
    for (size_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(BENCH_FIRST_TOKEN + mf_st_below(&r, BENCH_N_TOKENS));
    return tokens;
}

/* -------------------------------------------------------------------------------- the server -- */

void bench_serve_start(bench_serve *b)
{
    char context[16], threads[16], sessions[16], connections[16];
    char *argv[24];
    size_t n = 0;
    snprintf(context, sizeof context, "%u", b->n_context);
    snprintf(threads, sizeof threads, "%u", b->n_threads);
    snprintf(sessions, sizeof sessions, "%u", BENCH_MAX_CLIENTS);
    snprintf(connections, sizeof connections, "%u", b->n_connections + 64);
    char *const fixed[] = {(char *)b->program, "serve",  (char *)b->model, "--ctx",     context,
                           "--sessions",       sessions, "--connections",  connections, "--device",
                           (char *)b->device};
    memcpy(argv, fixed, sizeof fixed);
    n = sizeof fixed / sizeof *fixed;
    if (b->n_threads > 0) {
        argv[n++] = "--threads";
        argv[n++] = threads;
    }
    argv[n] = NULL;
    if (!mf_st_start(&b->server, argv))
        die(b->program, "did not start");
}

/* The body of a streamed request that goes on with these tokens, greedily. */
char *bench_serve_request(const int32_t *tokens, size_t n, size_t n_answer, size_t *n_bytes)
{
    char *body = malloc((n + BENCH_N_TOKENS) * 16 + 512), *at = body;
    if (!body)
        die("a request", "no memory");
    at += sprintf(at, "{\"prompt\":[");
    for (size_t i = 0; i < n; i++)
        at += sprintf(at, "%s%d", i > 0 ? "," : "", tokens[i]);
    at += sprintf(at, "],\"logit_bias\":{");
    for (int i = 0; i < BENCH_N_TOKENS; i++)
        at += sprintf(at, "%s\"%d\":100", i > 0 ? "," : "", BENCH_FIRST_TOKEN + i);
    sprintf(at,
            "},\"max_tokens\":%zu,\"temperature\":0,\"repetition_penalty\":1,"
            "\"ignore_eos\":true,\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
            n_answer);
    char *request = mf_st_request("/v1/completions", body, n_bytes);
    free(body);
    return request;
}

/* Tokens a second of n answers at once. */
typedef struct rates {
    double all;    /* from the first request to the last token */
    double steady; /* while all of them run; 0: they never did, the answers are too short */
} rates;

/* When the last token of an answer came. */
static double last_token_s(const bench_serve_answer *a)
{
    return a->times[a->n_tokens - 1];
}

static size_t n_between(const bench_serve_answer *a, double from, double to)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n_tokens; i++)
        n += a->times[i] > from && a->times[i] <= to;
    return n;
}

static rates rates_of(const bench_serve_answer *answers, size_t n)
{
    double begin = answers[0].begin_s, end = 0, from = 0, to = last_token_s(&answers[0]);
    size_t n_all = 0, n_steady = 0;
    for (size_t i = 0; i < n; i++) {
        const bench_serve_answer *a = &answers[i];
        if (!a->is_whole || a->n < a->n_tokens)
            die("an answer", "it is not whole");
        begin = a->begin_s < begin ? a->begin_s : begin;
        from = a->times[0] > from ? a->times[0] : from;
        to = last_token_s(a) < to ? last_token_s(a) : to;
        end = last_token_s(a) > end ? last_token_s(a) : end;
        n_all += a->n_tokens;
    }
    for (size_t i = 0; i < n; i++)
        n_steady += n_between(&answers[i], from, to);
    return (rates){.all = (double)n_all / (end - begin),
                   .steady = to > from ? (double)n_steady / (to - from) : 0};
}

static rates server_rates(bench_serve *b, size_t n)
{
    static bench_serve_answer answers[BENCH_MAX_CLIENTS];
    for (size_t i = 0; i < n; i++) {
        answers[i] =
            (bench_serve_answer){.of = b, .prompt = b->prompts[i], .n_tokens = b->n_tokens};
        bench_serve_ask(&answers[i]);
    }
    for (size_t i = 0; i < n; i++)
        bench_serve_join(&answers[i]);
    return rates_of(answers, n);
}

/* ----------------------------------------------------------------------------------- figures -- */

static void measure_speed(bench_serve *b, size_t n)
{
    double engine[BENCH_MAX_ROUNDS], server[BENCH_MAX_ROUNDS], ratio[BENCH_MAX_ROUNDS];
    double steady[BENCH_MAX_ROUNDS];
    const double n_all = (double)(n * b->n_tokens);
    (void)server_rates(b, n); /* prompts are held from then on */
    const long step_us = mf_st_figure(&b->server, "step_microseconds_total");
    const long busy_us = mf_st_figure(&b->server, "busy_microseconds_total");
    (void)engine_seconds(b, n);
    b->engine_worked_s = 0;
    const double worked = processor_seconds(b->server.pid);
    for (uint32_t i = 0; i < b->n_rounds; i++) {
        if (i % 2)
            engine[i] = n_all / engine_seconds(b, n);
        const rates r = server_rates(b, n);
        server[i] = r.all;
        if (i % 2 == 0)
            engine[i] = n_all / engine_seconds(b, n);
        ratio[i] = r.all / engine[i];
        steady[i] = r.steady / engine[i];
    }
    const double middle = bench_median(ratio, b->n_rounds); /* sorts them */
    printf("%zu clients, %zu tokens each: server %.1f tokens/s, mf_engine_step alone %.1f, ratio "
           "%.3f (%.3f to %.3f)\n",
           n, b->n_tokens, bench_median(server, b->n_rounds), bench_median(engine, b->n_rounds),
           middle, ratio[0], ratio[b->n_rounds - 1]);
    const double middle_steady = bench_median(steady, b->n_rounds);
    printf("while all of them run: ratio %.3f (%.3f to %.3f)\n", middle_steady, steady[0],
           steady[b->n_rounds - 1]);
    printf("of the time of the server's thread that owns the engine, within mf_engine_step: %.3f\n",
           (double)(mf_st_figure(&b->server, "step_microseconds_total") - step_us) /
               (double)(mf_st_figure(&b->server, "busy_microseconds_total") - busy_us));
    const double server_worked_s = processor_seconds(b->server.pid) - worked;
    printf("processor time: %.3f ms a token, mf_engine_step alone %.3f, ratio %.3f\n",
           server_worked_s * 1e3 / (n_all * b->n_rounds),
           b->engine_worked_s * 1e3 / (n_all * b->n_rounds), b->engine_worked_s / server_worked_s);
    fflush(stdout);
    b->token_s = n == 1 ? 1.0 / bench_median(engine, b->n_rounds) : b->token_s;
}

static uint32_t number(const char *text)
{
    char *end;
    const unsigned long n = strtoul(text, &end, 10);
    if (*end != '\0' || n < 1 || n > 1u << 20)
        die(text, "not a number in range");
    return (uint32_t)n;
}

static void read_options(bench_serve *b, int argc, char **argv)
{
    const struct {
        const char *name;
        uint32_t *value;
    } numbers[] = {{"--tokens", &b->n_tokens_option}, {"--rounds", &b->n_rounds},
                   {"--prompt", &b->n_long},          {"--context", &b->n_context},
                   {"--threads", &b->n_threads},      {"--connections", &b->n_connections}};
    if (argc < 3)
        die("usage", "bench_serve MODEL PROGRAM [OPTION VALUE]...");
    b->model = argv[1];
    b->program = argv[2];
    for (int i = 3; i + 1 < argc; i += 2) {
        const bool is_device = strcmp(argv[i], "--device") == 0;
        bool is_known = is_device || strcmp(argv[i], "--part") == 0;
        if (is_known)
            *(is_device ? &b->device : &b->part) = argv[i + 1];
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
            if (strcmp(argv[i], numbers[k].name) == 0) {
                *numbers[k].value = number(argv[i + 1]);
                is_known = true;
            }
        if (!is_known)
            die(argv[i], "not an option");
    }
    if (b->n_rounds > BENCH_MAX_ROUNDS)
        die("--rounds", "too many");
    if (b->n_tokens_option > BENCH_MAX_TIMES / 2)
        die("--tokens", "too many");
    b->n_tokens = b->n_tokens_option;
}

static bool wants(const bench_serve *b, const char *part)
{
    return !b->part || strcmp(b->part, part) == 0;
}

int main(int argc, char **argv)
{
    static bench_serve b = {.device = "cpu",
                            .n_tokens_option = 256,
                            .n_rounds = 5,
                            .n_short = 8,
                            .n_long = 4096,
                            .n_context = 8192,
                            .n_connections = 1000};
    read_options(&b, argc, argv);
    for (size_t i = 0; i < BENCH_MAX_CLIENTS; i++)
        b.prompts[i] = make_prompt(b.n_short, i + 1);
    b.long_prompt = make_prompt(b.n_long, 99);
    if (wants(&b, "speed") || wants(&b, "first"))
        open_engine(&b);
    bench_serve_start(&b);
    if (b.engine)
        measure_speed(&b, 1);
    if (wants(&b, "speed"))
        measure_speed(&b, BENCH_MAX_CLIENTS);
    if (wants(&b, "first"))
        bench_serve_first(&b);
    if (wants(&b, "prompt"))
        bench_serve_prompt(&b);
    if (wants(&b, "idle"))
        bench_serve_idle(&b);
    (void)mf_st_stop(&b.server, SIGTERM);
    for (size_t i = 0; i < BENCH_MAX_CLIENTS; i++)
        free(b.prompts[i]);
    free(b.long_prompt);
    mf_engine_close(&b.engine);
    return 0;
}

/* SPDX-License-Identifier: MIT */
/* Times and memory of bench_serve: what a client waits for. */
#include "bench_serve.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define N_FIRST 50
/* Of the answer, before the long prompt comes. */
#define N_BEFORE 100

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "bench_serve: %s\n", what);
    exit(1);
}

/* Gaps of the times between two moments; sorted. */
static size_t gaps_of(const bench_serve_answer *w, double from, double to, double *gaps)
{
    size_t n = 0;
    for (size_t i = 1; i < w->n; i++)
        if (w->times[i] > from && w->times[i - 1] < to)
            gaps[n++] = (w->times[i] - w->times[i - 1]) * 1e3;
    qsort(gaps, n, sizeof *gaps, bench_by_value);
    return n;
}

typedef struct gaps {
    double usual, usual_p99, p50, p99, most, prompt_s; /* ms, but prompt_s */
    size_t n;
} gaps;

/* Events come several at once where tokens are short: no gap says what one usually takes. */
static double mean(const double *values, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += values[i];
    return sum / (double)n;
}

/* One answer, and the long prompt in the middle of it. */
static gaps measure_prompt(const bench_serve *b, uint32_t round)
{
    static double sorted[BENCH_MAX_TIMES];
    static bench_serve_answer w;
    w = (bench_serve_answer){
        .of = b, .prompt = b->prompts[0], .n_tokens = b->n_context - b->n_short - 8};
    mf_st_answer answer = {0};
    gaps g = {0};
    size_t n_request = 0, n;
    b->long_prompt[0] = (int32_t)(1000 + round); /* none of it is held */
    char *request = bench_serve_request(b->long_prompt, b->n_long, 1, &n_request);
    bench_serve_ask(&w);
    while (__atomic_load_n(&w.n, __ATOMIC_ACQUIRE) < N_BEFORE)
        mf_st_sleep(0.01);
    const double begin = mf_st_now();
    int fd = mf_st_connect(&b->server, 0);
    if (fd < 0 || !mf_st_send(fd, request, n_request))
        die("no connection");
    mf_st_read(fd, SIZE_MAX / 2, &answer);
    const double end = mf_st_now();
    if (__atomic_load_n(&w.is_done, __ATOMIC_ACQUIRE) || !answer.is_whole || answer.status != 200)
        die("the prompt was not read while an answer was running");
    close(fd);
    shutdown(w.fd, SHUT_RDWR);
    bench_serve_join(&w);
    n = gaps_of(&w, w.times[8], begin, sorted);
    g.usual = mean(sorted, n);
    g.usual_p99 = sorted[n * 99 / 100];
    g.n = n = gaps_of(&w, begin, end, sorted);
    g.p50 = sorted[n / 2];
    g.p99 = sorted[n * 99 / 100];
    g.most = sorted[n - 1];
    g.prompt_s = end - begin;
    free(request);
    mf_st_answer_free(&answer);
    return g;
}

void bench_serve_prompt(bench_serve *b)
{
    double ratios[BENCH_MAX_ROUNDS], of_p99[BENCH_MAX_ROUNDS];
    for (uint32_t i = 0; i < b->n_rounds; i++) {
        const gaps g = measure_prompt(b, i);
        ratios[i] = g.p99 / g.usual;
        of_p99[i] = g.p99 / g.usual_p99;
        printf("a prompt of %u tokens in %.2f s: between tokens %.2f ms (p99 %.2f, most %.2f, of "
               "%zu), before it %.2f ms (p99 %.2f)\n",
               b->n_long, g.prompt_s, g.p50, g.p99, g.most, g.n, g.usual, g.usual_p99);
        fflush(stdout);
        while (mf_st_figure(&b->server, "answers_running") > 0)
            mf_st_sleep(0.05);
    }
    printf("between tokens while a prompt comes in, p99 over the usual mean %.2f, over the usual "
           "p99 %.2f (medians of %u)\n",
           bench_median(ratios, b->n_rounds), bench_median(of_p99, b->n_rounds), b->n_rounds);
}

/* Milliseconds to the first token's event. */
static double first_ms(int fd, const char *request, size_t n)
{
    char buffer[65536];
    size_t n_got = 0;
    const double before = mf_st_now();
    if (!mf_st_send(fd, request, n))
        die("no connection");
    for (double at = 0;;) {
        ssize_t k = recv(fd, buffer + n_got, sizeof buffer - n_got - 1, 0);
        if (k <= 0)
            die("no answer");
        n_got += (size_t)k;
        buffer[n_got] = '\0';
        if (at == 0 && strstr(buffer, "data: "))
            at = mf_st_now();
        if (at > 0 && strstr(buffer, "[DONE]") && strstr(buffer, "\r\n0\r\n\r\n"))
            return (at - before) * 1e3;
    }
}

void bench_serve_first(bench_serve *b)
{
    double kept[N_FIRST], fresh[N_FIRST];
    size_t n = 0;
    char *request = bench_serve_request(b->prompts[0], b->n_short, 2, &n);
    int fd = mf_st_connect(&b->server, 0);
    (void)first_ms(fd, request, n);
    for (size_t i = 0; i < N_FIRST; i++) {
        mf_st_sleep(0.02);
        kept[i] = first_ms(fd, request, n);
        mf_st_sleep(0.02);
        int one = mf_st_connect(&b->server, 0);
        fresh[i] = first_ms(one, request, n);
        close(one);
    }
    close(fd);
    free(request);
    const double middle = bench_median(kept, N_FIRST); /* sorts them */
    printf("first token after a request, prefix held: %.2f ms (new connection %.2f), most %.2f; "
           "one token takes the engine %.2f ms\n",
           middle, bench_median(fresh, N_FIRST), kept[N_FIRST - 1], b->token_s * 1e3);
}

void bench_serve_idle(bench_serve *b)
{
    static const char health[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    int *fds = calloc(b->n_connections, sizeof *fds);
    mf_st_stop(&b->server, SIGTERM);
    bench_serve_start(b); /* one that has done nothing yet */
    const long before = mf_st_memory_kib(&b->server);
    for (uint32_t i = 0; fds && i < b->n_connections; i++) {
        mf_st_answer a = {0};
        fds[i] = mf_st_connect(&b->server, 0);
        if (fds[i] < 0 || !mf_st_send(fds[i], health, sizeof health - 1))
            die("no connection");
        mf_st_read(fds[i], SIZE_MAX / 2, &a);
        if (a.status != 200)
            die("a connection was not served");
        mf_st_answer_free(&a);
    }
    const long after = mf_st_memory_kib(&b->server);
    printf("%u open connections: %.1f MiB more than the %.1f MiB of the server before\n",
           b->n_connections, (double)(after - before) / 1024, (double)before / 1024);
    for (uint32_t i = 0; fds && i < b->n_connections; i++)
        close(fds[i]);
    free(fds);
}

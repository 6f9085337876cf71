/* SPDX-License-Identifier: MIT */
/*
 * Sessions decoding together. Each session alone tells which experts its steps want; the union over
 * the sessions, step by step and layer by layer, is what evaluating them together has to ask for.
 */
#include "bench_sessions.h"

#include <stdlib.h>
#include <string.h>

/* The experts that the sessions' steps want: [n_sessions][n_steps][n_layers][k]. */
typedef struct wanted {
    int32_t *ids;
    uint32_t session, step;
    const bench *b;
} wanted;

typedef struct run {
    double seconds;
    mf_stats stats;
} run;

#define MOST_OPERATIONS 64u
typedef struct operation_times {
    mf_operation_time list[MOST_OPERATIONS];
    size_t n;
} operation_times;

static int32_t *ids_at(const wanted *w, uint32_t session, uint32_t step, uint32_t layer)
{
    const mf_engine *e = w->b->engine;
    size_t row = ((size_t)session * w->b->n_steps + step) * e->runner.h.n_layers + layer;
    return w->ids + row * e->runner.plan.k;
}

/* After a layer the engine's list still holds the router's choice for it. */
static void note_experts(void *user, uint32_t layer, uint64_t first_position, uint32_t n_tokens,
                         const float *hidden)
{
    wanted *w = user;
    const mf_engine *e = w->b->engine;
    (void)hidden;
    if (n_tokens == 1 && first_position >= w->b->n_prompt && !e->runner.h.is_dense[layer])
        memcpy(ids_at(w, w->session, (uint32_t)(first_position - w->b->n_prompt), layer),
               e->runner.moe.ids, e->runner.plan.k * sizeof *w->ids);
}

static uint64_t distinct(const wanted *w, uint32_t step, uint32_t layer, unsigned char *seen)
{
    const mf_engine *e = w->b->engine;
    uint64_t n = 0;
    memset(seen, 0, e->runner.h.n_experts);
    for (uint32_t s = 0; s < w->b->n_sessions; s++) {
        const int32_t *ids = ids_at(w, s, step, layer);
        for (uint32_t i = 0; i < e->runner.plan.k; i++) {
            n += !seen[ids[i]];
            seen[ids[i]] = 1;
        }
    }
    return n;
}

static uint64_t union_of_experts(const wanted *w)
{
    const mf_engine *e = w->b->engine;
    unsigned char *seen = malloc(e->runner.h.n_experts);
    uint64_t n = 0;
    if (seen == NULL)
        bench_die("no memory", NULL);
    for (uint32_t step = 0; step < w->b->n_steps; step++)
        for (uint32_t layer = 0; layer < e->runner.h.n_layers; layer++)
            if (!e->runner.h.is_dense[layer])
                n += distinct(w, step, layer, seen);
    free(seen);
    return n;
}

/* Each session's prompt and steps are a stretch of the text of its own. */
static int32_t *tokens_of(const bench *b, uint32_t session)
{
    return b->tokens + (size_t)session * (b->n_prompt + b->n_steps);
}

/* The first session's prompt becomes that of all, and each session's steps a continuation of it,
 * sampled as the model's makers recommend. */
static void sample_steps(bench *b)
{
    mf_sampler_options options;
    mf_sampler_options_default(&options);
    BENCH_TRY(mf_sampler_options_load(b->model, &options, &error));
    for (uint32_t s = 0; s < b->n_sessions; s++) {
        int32_t *tokens = tokens_of(b, s);
        mf_session *session = NULL;
        mf_sampler *sampler = NULL;
        options.seed = s;
        memcpy(tokens, tokens_of(b, 0), b->n_prompt * sizeof *tokens);
        BENCH_TRY(mf_sampler_create(&options, b->info.n_vocab, NULL, &sampler, &error));
        BENCH_TRY(mf_session_create(b->engine, &session, &error));
        for (uint32_t i = 0; i < b->n_prompt; i++)
            mf_sampler_accept(sampler, tokens[i]);
        BENCH_TRY(mf_session_eval(session, tokens, b->n_prompt, &error));
        for (uint32_t i = b->n_prompt; i < b->n_prompt + b->n_steps; i++) {
            tokens[i] = mf_sampler_sample(sampler, mf_session_logits(session));
            mf_sampler_accept(sampler, tokens[i]);
            BENCH_TRY(mf_session_eval(session, tokens + i, 1, &error));
        }
        mf_session_free(&session);
        mf_sampler_free(&sampler);
    }
}

static void add_stats(mf_stats *sum, const mf_stats *s)
{
    sum->n_tokens += s->n_tokens;
    sum->n_expert_hits += s->n_expert_hits;
    sum->n_expert_misses += s->n_expert_misses;
    sum->read_bytes += s->read_bytes;
    sum->wait_us += s->wait_us;
    sum->reading_us += s->reading_us;
}

static run decode_alone(bench *b, wanted *w)
{
    run r = {0};
    for (uint32_t s = 0; s < b->n_sessions; s++) {
        mf_session *session = NULL;
        mf_stats stats;
        const int32_t *tokens = tokens_of(b, s);
        BENCH_TRY(mf_session_create(b->engine, &session, &error));
        BENCH_TRY(mf_session_eval(session, tokens, b->n_prompt, &error));
        w->session = s;
        BENCH_TRY(mf_session_set_trace(session, note_experts, w, &error));
        mf_engine_stats_reset(b->engine);
        uint64_t start = mf_now_us();
        for (uint32_t t = 0; t < b->n_steps; t++)
            BENCH_TRY(mf_session_eval(session, tokens + b->n_prompt + t, 1, &error));
        r.seconds += (double)(mf_now_us() - start) * 1e-6;
        mf_engine_stats(b->engine, &stats);
        add_stats(&r.stats, &stats);
        mf_session_free(&session);
    }
    return r;
}

/* times: of the steps' operations on a device, which cost a little; NULL: not taken. */
static run decode_together(bench *b, operation_times *times)
{
    run r = {0};
    mf_batch_item items[BENCH_MAX_SESSIONS];
    mf_session *sessions[BENCH_MAX_SESSIONS] = {NULL};
    for (uint32_t s = 0; s < b->n_sessions; s++) {
        BENCH_TRY(mf_session_create(b->engine, &sessions[s], &error));
        BENCH_TRY(mf_session_eval(sessions[s], tokens_of(b, s), b->n_prompt, &error));
    }
    if (times != NULL) {
        BENCH_TRY(mf_engine_time_operations(b->engine, 1, &error));
        BENCH_TRY(mf_engine_profile(b->engine, 1, &error));
    }
    mf_engine_stats_reset(b->engine);
    uint64_t start = mf_now_us();
    for (uint32_t t = 0; t < b->n_steps; t++) {
        for (uint32_t s = 0; s < b->n_sessions; s++)
            items[s] = (mf_batch_item){sessions[s], tokens_of(b, s) + b->n_prompt + t, 1};
        BENCH_TRY(mf_engine_eval(b->engine, items, b->n_sessions, &error));
    }
    r.seconds = (double)(mf_now_us() - start) * 1e-6;
    mf_engine_stats(b->engine, &r.stats);
    if (times != NULL) {
        times->n = mf_engine_operation_times(b->engine, times->list, MOST_OPERATIONS);
        BENCH_TRY(mf_engine_time_operations(b->engine, 0, &error));
        BENCH_TRY(mf_engine_profile(b->engine, 0, &error));
    }
    for (uint32_t s = 0; s < b->n_sessions; s++)
        mf_session_free(&sessions[s]);
    return r;
}

static double requests(const run *r)
{
    return (double)(r->stats.n_expert_hits + r->stats.n_expert_misses);
}

/* What a run did for each token, in three lines. */
static void print_run(const char *name, const run *r, double n_tokens)
{
    printf("%s:\n", name);
    bench_line("  tokens/s", n_tokens / r->seconds, "");
    bench_line("  experts wanted a token", requests(r) / n_tokens, "");
    bench_line("  of these found in the cache", 100 * (double)r->stats.n_expert_hits / requests(r),
               "%");
    bench_line("  read a token", (double)r->stats.read_bytes / n_tokens / 1024, "KiB");
    bench_line("  waiting, of the time", 1e-4 * (double)r->stats.wait_us / r->seconds, "%");
    bench_line("  reads under way, of the time", 1e-4 * (double)r->stats.reading_us / r->seconds,
               "%");
    bench_line("  read a second", 1e-6 * (double)r->stats.read_bytes / r->seconds, "MB/s");
    if (r->stats.n_split_passes > 0)
        bench_line("  passes in halves", (double)r->stats.n_split_passes, "");
}

/* Where a device's time of a step goes, in a round of its own. */
static void print_operations(bench *b)
{
    operation_times times = {.n = 0};
    const run r = decode_together(b, &times);
    const double n_steps = b->n_steps;
    double all = 0;
    for (size_t i = 0; i < times.n && i < MOST_OPERATIONS; i++)
        all += times.list[i].seconds;
    printf("a step together, with timestamps:\n");
    for (size_t i = 0; i < times.n && i < MOST_OPERATIONS; i++)
        printf("  %-34s %13.1f us %14.1f %% %12.1f\n", times.list[i].name,
               1e6 * times.list[i].seconds / n_steps, 100 * times.list[i].seconds / all,
               (double)times.list[i].n / n_steps);
    printf("  %-34s %13.1f us\n", "all on the device", 1e6 * all / n_steps);
    printf("  %-34s %13.1f us, of which the evaluating thread has\n", "all",
           1e6 * r.seconds / n_steps);
    for (int i = 0; i < MF_STAGES; i++)
        if (r.stats.stage_us[i] != 0)
            printf("    %-32s %13.1f us\n", mf_stage_name((mf_stage)i),
                   (double)r.stats.stage_us[i] / n_steps);
}

/* What the drive gives without anybody computing. */
static void print_drive(bench *b)
{
    double rate;
    BENCH_TRY(mf_engine_measure_drive(b->engine, 1000, &rate, &error));
    bench_line("the raw drive", 1e-6 * rate, "MB/s");
}

void bench_together(bench *b)
{
    for (uint32_t i = 0; i < b->n_rounds; i++) {
        const run together = decode_together(b, NULL);
        print_run("together", &together, (double)b->n_sessions * b->n_steps);
    }
    print_drive(b);
}

void bench_decode(bench *b)
{
    const mf_engine *e = b->engine;
    size_t n_ids = (size_t)b->n_sessions * b->n_steps * e->runner.h.n_layers * e->runner.plan.k;
    wanted w = {.ids = calloc(n_ids, sizeof *w.ids), .b = b};
    double speed[BENCH_MAX_ROUNDS], n_tokens = (double)b->n_sessions * b->n_steps;
    run alone = {0}, together = {0};
    if (w.ids == NULL)
        bench_die("no memory", NULL);
    if (b->has_one_prompt)
        sample_steps(b);
    for (uint32_t i = 0; i < b->n_rounds; i++) {
        alone = decode_alone(b, &w);
        together = decode_together(b, NULL);
        speed[i] = alone.seconds / together.seconds;
    }
    printf("decoding, %u sessions of %u tokens after %u, %llu expert slots, %s:\n", b->n_sessions,
           b->n_steps, b->n_prompt, (unsigned long long)b->info.n_slots,
           b->has_one_prompt ? "answers to one prompt"
           : b->text != NULL ? "real text"
                             : "random tokens");
    print_run("one after the other", &alone, n_tokens);
    print_run("together", &together, n_tokens);
    double fewer = (double)together.stats.read_bytes / (double)alone.stats.read_bytes;
    double predicted = (double)union_of_experts(&w) / requests(&alone);
    double faster = bench_median(speed, b->n_rounds);
    printf("together over one after the other:\n");
    bench_line("  experts wanted", 100 * requests(&together) / requests(&alone), "%");
    bench_line("  union of their experts (predicts it)", 100 * predicted, "%");
    bench_line("  bytes read", 100 * fewer, "%");
    bench_line("  bytes read over the prediction", fewer / predicted, "");
    bench_line("  tokens/s", faster, "times");
    bench_line("  tokens/s over what the saved bytes predict", faster * fewer, "");
    if (b->has_operations)
        print_operations(b);
    print_drive(b);
    free(w.ids);
}

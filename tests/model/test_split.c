/* SPDX-License-Identifier: MIT */
/*
 * Passes of several sequences in two halves: the same bits, for every kind of layer, for any number
 * of rows each, few slots and many, with reads that fail, held back or in disorder, and where one
 * or all are cancelled; what they read is no more than one pass reads; and whether they are made is
 * decided by what they cost.
 */
#include "golden.h"

#include "io/io_fault.h"
#include "session/session.h"

#define N_SESSIONS 5u
#define N_STEPS 6u

typedef struct setup {
    mf_split_mode mode;
    uint64_t n_slots; /* 0: the least */
    mf_predict predict;
    mf_io_fault *fault;
    bool is_alone;    /* one session after the other */
    uint32_t n_chunk; /* 0: the default */
} setup;

typedef struct open_engine {
    mf_engine *engine;
    mf_session *sessions[N_SESSIONS];
} open_engine;

static open_engine open_it(const golden_case *c, const setup *s)
{
    open_engine o = {0};
    mf_error error = {0};
    mf_model_info info;
    mf_engine_options options = golden_options(c);
    mf_engine_hooks hooks = {0};
    options.n_threads = 2;
    options.n_sessions = N_SESSIONS;
    options.predict = s->predict;
    options.n_chunk_tokens = s->n_chunk;
    options.expert_cache_bytes = 0;
    REQUIRE_OK(mf_model_inspect(golden_path(c->name), &options, &info, &error), &error);
    options.expert_cache_bytes = s->n_slots * info.slot_bytes;
    if (s->fault != NULL) {
        hooks.io_engine = &mf_io_engine_fault;
        hooks.io_arg = s->fault;
    }
    REQUIRE_OK(mf_engine_open_with(golden_path(c->name), &options, &hooks, &o.engine, &error),
               &error);
    o.engine->runner.split.mode = s->mode;
    for (uint32_t i = 0; i < N_SESSIONS; i++)
        REQUIRE_OK(mf_session_create(o.engine, &o.sessions[i], &error), &error);
    return o;
}

static void close_it(open_engine *o)
{
    for (uint32_t i = 0; i < N_SESSIONS; i++)
        mf_session_free(&o->sessions[i]);
    mf_engine_close(&o->engine);
}

/* Tokens of a session in a step: at first some have a few, later one each. */
static size_t n_tokens_of(uint32_t session, uint32_t step)
{
    return step == 0 ? 1 + (session * 3) % 5 : 1;
}

static uint32_t list_items(const open_engine *o, const golden *g, uint32_t step,
                           mf_batch_item *items)
{
    for (uint32_t i = 0; i < N_SESSIONS; i++)
        items[i] =
            (mf_batch_item){o->sessions[i], g->tokens + i + mf_session_position(o->sessions[i]),
                            n_tokens_of(i, step)};
    return N_SESSIONS;
}

/* Logits of all sessions after all steps, to be freed. */
static float *evaluate(const golden_case *c, const golden *g, const setup *s, uint64_t *n_split,
                       mf_stats *stats)
{
    mf_error error = {0};
    open_engine o = open_it(c, s);
    mf_batch_item items[N_SESSIONS];
    const size_t n = g->n_vocab;
    float *all = malloc(N_SESSIONS * n * sizeof *all);
    REQUIRE(all != NULL);
    for (uint32_t step = 0; step < N_STEPS; step++) {
        const uint32_t n_items = list_items(&o, g, step, items);
        for (uint32_t i = 0; i < (s->is_alone ? n_items : 1); i++)
            REQUIRE_OK(mf_engine_eval(o.engine, items + i, s->is_alone ? 1 : n_items, &error),
                       &error);
    }
    for (uint32_t i = 0; i < N_SESSIONS; i++)
        memcpy(all + i * n, mf_session_logits(o.sessions[i]), n * sizeof *all);
    mf_engine_stats(o.engine, stats);
    *n_split = stats->n_split_passes;
    close_it(&o);
    return all;
}

static void check_same(const golden_case *c, const golden *g, const setup *s, const float *expected,
                       mf_stats *stats)
{
    uint64_t n_split;
    float *got = evaluate(c, g, s, &n_split, stats);
    CHECK_MSG(memcmp(got, expected, (size_t)N_SESSIONS * g->n_vocab * sizeof *got) == 0,
              "%s: other logits in halves, %llu slots", c->name, (unsigned long long)s->n_slots);
    CHECK_U64(n_split, s->mode == MF_SPLIT_ALWAYS ? N_STEPS : 0);
    free(got);
}

static void test_same_bits(const golden_case *c)
{
    golden g;
    uint64_t n_split;
    mf_stats stats, before;
    golden_read(c, &g);
    float *expected =
        evaluate(c, &g, &(setup){.mode = MF_SPLIT_NEVER, .is_alone = true}, &n_split, &stats);
    for (uint64_t n_slots = 0; n_slots <= 1000; n_slots += n_slots == 0 ? 12 : 988)
        for (uint32_t i = 0; i < 2; i++) {
            setup s = {.n_slots = n_slots, .predict = i == 0 ? MF_PREDICT_OFF : MF_PREDICT_AUTO};
            s.mode = MF_SPLIT_NEVER;
            check_same(c, &g, &s, expected, &before);
            s.mode = MF_SPLIT_ALWAYS;
            check_same(c, &g, &s, expected, &stats);
            CHECK_U64(stats.n_tokens, before.n_tokens);
            if (n_slots == 1000 && s.predict == MF_PREDICT_OFF) /* all: each is read once */
                CHECK_U64(stats.read_bytes, before.read_bytes);
        }
    free(expected);
    golden_free(&g);
}

/* Chunks of as many rows as there are sessions: what they choose takes less room than a list of all
 * experts does. */
static void test_small_chunks(const golden_case *c)
{
    golden g;
    uint64_t n_split;
    mf_stats stats;
    golden_read(c, &g);
    const setup one = {.mode = MF_SPLIT_NEVER, .is_alone = true};
    const setup s = {.mode = MF_SPLIT_ALWAYS, .n_chunk = N_SESSIONS};
    float *expected = evaluate(c, &g, &one, &n_split, &stats);
    float *got = evaluate(c, &g, &s, &n_split, &stats);
    open_engine o = open_it(c, &s);
    const mf_runner *r = &o.engine->runner;
    CHECK(r->plan.n_chunk * r->plan.k < 2 * r->h.n_experts);
    close_it(&o);
    CHECK(memcmp(got, expected, (size_t)N_SESSIONS * g.n_vocab * sizeof *got) == 0);
    CHECK(n_split >= N_STEPS - 1); /* each step after the first is one pass */
    free(got);
    free(expected);
    golden_free(&g);
}

/* ---------------------------------------------------------------------------------- faults -- */

static void test_disorder(const golden_case *c)
{
    golden g;
    uint64_t n_split;
    mf_stats stats;
    golden_read(c, &g);
    float *expected = evaluate(c, &g, &(setup){.mode = MF_SPLIT_NEVER}, &n_split, &stats);
    for (uint64_t seed = 1; seed <= 4; seed++) {
        mf_io_fault fault = {.inner = &mf_io_engine_pool,
                             .seed = seed,
                             .short_chance = 200,
                             .interrupt_chance = 200,
                             .hold_chance = 300,
                             .shuffle = 1};
        const setup s = {.mode = MF_SPLIT_ALWAYS, .n_slots = seed * 4, .fault = &fault};
        check_same(c, &g, &s, expected, &stats);
        CHECK(fault.n_short > 0 && fault.n_held > 0);
    }
    free(expected);
    golden_free(&g);
}

/* A read that fails in either half fails the call, and the next one works. */
static void test_failures(const golden_case *c)
{
    golden g;
    golden_read(c, &g);
    for (uint64_t from = 1; from < 60; from += 7) {
        mf_error error = {0};
        mf_io_fault fault = {.inner = &mf_io_engine_pool, .seed = from};
        const setup s = {.mode = MF_SPLIT_ALWAYS, .fault = &fault};
        open_engine o = open_it(c, &s);
        mf_batch_item items[N_SESSIONS];
        const uint32_t n = list_items(&o, &g, 1, items);
        fault.fail_from = fault.n_reads + from;
        fault.fail_count = 1;
        fault.fail_errno = 5;
        CHECK_STATUS(mf_engine_eval(o.engine, items, n, &error), MF_ERR_IO);
        CHECK(o.engine->runner.store == NULL || error.message[0] != '\0');
        REQUIRE_OK(mf_engine_eval(o.engine, items, n, &error), &error);
        CHECK_U64(o.engine->runner.split.n_split, 1);
        close_it(&o);
    }
    golden_free(&g);
}

static int stop_at(void *user, uint64_t n_done, uint64_t n_total)
{
    uint32_t *n_left = user;
    (void)n_done;
    (void)n_total;
    return (*n_left)-- == 0;
}

/* Ended between layers, and with reads of both halves under way. */
static void test_cancelled(const golden_case *c)
{
    golden g;
    golden_read(c, &g);
    for (uint32_t at = 0; at < 3; at++) {
        mf_error error = {0};
        uint32_t n_left = at;
        const setup s = {.mode = MF_SPLIT_ALWAYS};
        open_engine o = open_it(c, &s);
        mf_batch_item items[N_SESSIONS];
        const uint32_t n = list_items(&o, &g, 1, items);
        mf_session_set_progress(o.sessions[3], stop_at, &n_left);
        CHECK_STATUS(mf_engine_eval(o.engine, items, n, &error), MF_ERR_CANCELLED);
        mf_session_set_progress(o.sessions[3], NULL, NULL);
        CHECK_U64(mf_session_position(o.sessions[3]), 0);
        close_it(&o); /* at once */
    }
    golden_free(&g);
}

/* ---------------------------------------------------------------------------------- profit -- */

/* Runs of passes that cost so much whole or in halves; how many were in halves. */
static uint32_t n_in_halves(uint64_t whole_us, uint64_t halves_us, uint64_t wait_us, uint32_t n)
{
    mf_split_profit p = {0};
    uint32_t n_split = 0;
    for (uint32_t i = 0; i < n; i++) {
        n_split += p.is_on;
        mf_split_profit_add(&p, &(mf_split_cost){.n_rows = 8,
                                                 .n_us = p.is_on ? halves_us : whole_us,
                                                 .wait_us = wait_us});
    }
    return n_split;
}

static void test_profit(void)
{
    CHECK_U64(n_in_halves(1000, 700, 10, 1000), 0); /* nobody waits */
    const uint32_t n_kept = n_in_halves(1000, 700, 500, 1000);
    CHECK_MSG(n_kept > 900, "of 1000 passes %u in halves, which pay", n_kept);
    const uint32_t n_tried = n_in_halves(1000, 1300, 500, 1000);
    CHECK_MSG(n_tried >= 8 && n_tried < 80, "of 1000 passes %u in halves, which do not", n_tried);
}

int main(void)
{
    static const char *const cases[] = {
        "mlx_4bit",           "hf_tied_f32",    "v3_mlx_4bit_split", "gpt_oss_mlx_4bit",
        "qwen3_moe_mlx_4bit", "minimax_m2_f32", "llama4_mlx_bf16",   "kimi_linear_bf16"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        test_same_bits(golden_case_find(cases[i]));
    const golden_case *c = golden_case_find("mlx_4bit");
    test_small_chunks(c);
    test_disorder(c);
    test_failures(c);
    test_cancelled(c);
    test_profit();
    return test_result();
}

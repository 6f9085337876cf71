/* SPDX-License-Identifier: MIT */
/*
 * Experts that are chosen where they are multiplied. With slots for all, single tokens and small
 * batches take no choice of the host's: the same bits as with few slots, the same counters, and
 * nothing is waited for before the logits. On the strict backend, or with "vulkan" on a Vulkan
 * device.
 */
#include "backend/vulkan_open.h"
#include "golden.h"
#include "io/io_fault.h"
#include "session/engine.h"
#include "strict_backend.h"

#include <errno.h>

#define PROMPT 11u
#define MOST_STEPS 12u

static bool is_vulkan;
static strict_options strict = {.seed = 3};

typedef struct run {
    golden g;
    mf_engine *engine;
    mf_session *session;
    float *logits; /* [PROMPT + steps, n_vocab] of what was evaluated */
    mf_stats stats;
} run;

static mf_engine_options options_of(const golden_case *c, bool has_all)
{
    mf_engine_options options = golden_options(c);
    mf_model_info info;
    mf_error error = {0};
    options.n_chunk_tokens = 16;
    options.n_sessions = 3;
    options.n_threads = 2;
    options.expert_cache_bytes = 0;
    if (is_vulkan)
        options.device = vulkan_test_device();
    REQUIRE_OK(mf_model_inspect(golden_path(c->name), &options, &info, &error), &error);
    /* what strict slots take may be more than is known before they are there */
    options.expert_cache_bytes = (uint64_t)info.n_layers * info.n_experts * info.slot_bytes * 2;
    if (!has_all)
        options.expert_cache_bytes = 0;
    return options;
}

static void open_with(run *r, const golden_case *c, bool has_all, mf_io_fault *fault)
{
    const mf_engine_options options = options_of(c, has_all);
    mf_engine_hooks hooks = {0};
    mf_error error = {0};
    if (!is_vulkan)
        hooks = (mf_engine_hooks){.open_backend = strict_backend_open, .backend_ctx = &strict};
    if (fault != NULL) {
        hooks.io_engine = &mf_io_engine_fault;
        hooks.io_arg = fault;
    }
    *r = (run){0};
    golden_read(c, &r->g);
    REQUIRE_OK(mf_engine_open_with(golden_path(c->name), &options, &hooks, &r->engine, &error),
               &error);
    REQUIRE_OK(mf_session_create(r->engine, &r->session, &error), &error);
    r->logits = calloc((size_t)(PROMPT + MOST_STEPS) * r->g.n_vocab, sizeof *r->logits);
    REQUIRE(r->logits != NULL);
}

static void close_run(run *r)
{
    mf_session_free(&r->session);
    mf_engine_close(&r->engine);
    golden_free(&r->g);
    free(r->logits);
}

static void step(run *r, uint32_t at)
{
    mf_error error = {0};
    REQUIRE_OK(mf_session_eval(r->session, r->g.tokens + at, 1, &error), &error);
    memcpy(r->logits + (size_t)at * r->g.n_vocab, mf_session_logits(r->session),
           r->g.n_vocab * sizeof *r->logits);
}

/* A prompt, then single tokens. */
static void eval(run *r)
{
    mf_error error = {0};
    mf_engine_stats_reset(r->engine);
    REQUIRE_OK(golden_eval(r->session, r->g.tokens, PROMPT, r->g.n_vocab, r->logits, &error),
               &error);
    for (uint32_t i = 0; i < MOST_STEPS; i++)
        step(r, PROMPT + i);
    mf_engine_stats(r->engine, &r->stats);
}

static void check_same(const golden_case *c, const run *a, const run *b)
{
    const size_t n = (size_t)(PROMPT + MOST_STEPS) * a->g.n_vocab;
    CHECK_MSG(memcmp(a->logits, b->logits, n * sizeof *a->logits) == 0,
              "%s: other bits where experts are chosen on the device", c->name);
}

static uint32_t n_routed(const run *r)
{
    return r->engine->runner.routed.n_routed;
}

static uint64_t n_waits(const run *r)
{
    strict_stats stats = {0};
    if (!is_vulkan)
        strict_backend_stats(r->engine->runner.backend, &stats);
    return stats.n_runs;
}

/* Slots for all, and for as few as may be. */
static void check_case(const golden_case *c)
{
    run all, few;
    open_with(&all, c, true, NULL);
    open_with(&few, c, false, NULL);
    eval(&all);
    eval(&few);
    check_same(c, &all, &few);
    CHECK_U64(n_routed(&all), all.engine->runner.h.n_moe_layers);
    CHECK_U64(n_routed(&few), 0);
    CHECK_U64(all.stats.n_expert_misses, 0);
    CHECK_U64(all.stats.n_expert_hits, few.stats.n_expert_hits + few.stats.n_expert_misses);
    CHECK_U64(all.stats.expert_bytes_touched, few.stats.expert_bytes_touched);
    CHECK_U64(all.stats.read_bytes, 0);
    const uint64_t before = n_waits(&all), before_few = n_waits(&few);
    step(&all, PROMPT);
    step(&few, PROMPT);
    if (!is_vulkan) {
        CHECK_U64(n_waits(&all) - before, 1);
        CHECK(n_waits(&few) - before_few > all.engine->runner.h.n_moe_layers);
    }
    close_run(&all);
    close_run(&few);
}

/* Tokens of several sessions in one pass. */
static void check_batch(const golden_case *c)
{
    run all, few;
    run *both[] = {&all, &few};
    open_with(&all, c, true, NULL);
    open_with(&few, c, false, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        run *r = both[i];
        mf_session *sessions[3] = {r->session, NULL, NULL};
        mf_error error = {0};
        for (uint32_t j = 0; j < 3; j++) {
            if (j != 0)
                REQUIRE_OK(mf_session_create(r->engine, &sessions[j], &error), &error);
            REQUIRE_OK(mf_session_eval(sessions[j], r->g.tokens + j, 3 + j, &error), &error);
        }
        mf_batch_item items[3];
        for (uint32_t j = 0; j < 3; j++)
            items[j] = (mf_batch_item){
                .session = sessions[j], .tokens = r->g.tokens, .n_tokens = j == 1 ? 2 : 1};
        REQUIRE_OK(mf_engine_eval(r->engine, items, 3, &error), &error);
        CHECK_U64(n_routed(r), i == 0 ? r->engine->runner.h.n_moe_layers : 0);
        for (uint32_t j = 0; j < 3; j++)
            memcpy(r->logits + (size_t)j * r->g.n_vocab, mf_session_logits(sessions[j]),
                   r->g.n_vocab * sizeof *r->logits);
        mf_engine_stats(r->engine, &r->stats);
        mf_session_free(&sessions[1]);
        mf_session_free(&sessions[2]);
    }
    check_same(c, &all, &few);
    CHECK_U64(all.stats.n_expert_hits, few.stats.n_expert_hits + few.stats.n_expert_misses);
    close_run(&all);
    close_run(&few);
}

/* An expert that cannot be read when the model is opened is asked for as ever, and its layer is
 * whole once it has come. */
static void check_unreadable(const golden_case *c)
{
    run few, all;
    mf_io_fault fault = {.inner = &mf_io_engine_pool, .fail_errno = EIO, .fail_count = 1};
    open_with(&few, c, false, NULL);
    eval(&few);
    fault.fail_from = 40;
    open_with(&all, c, true, &fault);
    CHECK_U64(fault.n_failed, 1);
    eval(&all);
    check_same(c, &all, &few);
    CHECK(all.stats.n_expert_misses > 0 && all.stats.read_bytes > 0);
    CHECK_U64(all.stats.n_expert_hits + all.stats.n_expert_misses,
              few.stats.n_expert_hits + few.stats.n_expert_misses);
    CHECK(n_routed(&all) + 1 >= all.engine->runner.h.n_moe_layers);
    close_run(&few);
    close_run(&all);
}

/* Measuring reads experts into the slots again; where that fails one is not held any more. */
static void check_measured(const golden_case *c)
{
    run r, few;
    mf_io_fault fault = {.inner = &mf_io_engine_pool};
    double rate = 0.0;
    mf_error error = {0};
    open_with(&few, c, false, NULL);
    eval(&few);
    open_with(&r, c, true, &fault);
    REQUIRE_OK(mf_engine_measure_drive(r.engine, 20, &rate, &error), &error);
    eval(&r);
    check_same(c, &r, &few);
    CHECK_U64(n_routed(&r), r.engine->runner.h.n_moe_layers);
    fault.fail_from = fault.n_reads + 1;
    fault.fail_count = 1;
    fault.fail_errno = EIO;
    CHECK_STATUS(mf_engine_measure_drive(r.engine, 20, &rate, &error), MF_ERR_IO);
    mf_session_clear(r.session);
    eval(&r);
    check_same(c, &r, &few);
    CHECK(n_routed(&r) + 1 >= r.engine->runner.h.n_moe_layers);
    close_run(&r);
    close_run(&few);
}

static const char *const names[] = {"mlx_4bit", "next_mlx_4bit", "hf_bf16",
                                    "v3_fp8",   "packed",        "v2_lite_bf16"};

int main(int argc, char **argv)
{
    is_vulkan = argc > 1 && strcmp(argv[1], "vulkan") == 0;
    if (is_vulkan && !vulkan_is_there())
        return TEST_SKIPPED;
    const bool is_short = is_vulkan && vulkan_is_short();
    for (size_t i = is_short ? 1 : 0; i < (is_short ? 2 : sizeof names / sizeof *names); i++)
        check_case(golden_case_find(names[i]));
    check_batch(golden_case_find(is_short ? "v3_fp8" : "mlx_4bit"));
    if (is_short)
        return test_result();
    check_unreadable(golden_case_find("mlx_4bit"));
    check_measured(golden_case_find("mlx_4bit"));
    return test_result();
}

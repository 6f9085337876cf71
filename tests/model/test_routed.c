/* SPDX-License-Identifier: MIT */
/*
 * Experts that are chosen where they are multiplied. With slots for all, single tokens and small
 * batches take no choice of the host's: the same bits as with few slots, the same counters, and
 * nothing is waited for before the logits. With slots for some, layers are recorded ahead and left
 * undone from the first on that misses one: the same bits, the store asked for the same, and fewer
 * waits. On the strict backend, or with "vulkan" on a Vulkan device.
 */
#include "backend/vulkan_open.h"
#include "golden.h"
#include "io/io_fault.h"
#include "session/session.h"
#include "strict_impl.h"

#include <errno.h>

#define PROMPT 11u
#define MOST_STEPS 12u
#define MANY 6u /* sessions in a pass */
/* Layers enough to record ahead; its tokens are made here. */
#define DEMO "../../../models/demo"

static bool is_vulkan;
static strict_options strict = {.seed = 3};

/* Hundredths of all experts that have slots. */
#define LEAST 0u
#define FEW 30u
#define HALF 50u
#define MOST 80u
#define ALL 400u /* what strict slots take may be more than is known before they are there */

typedef struct run {
    const golden_case *of;
    golden g;
    mf_engine *engine;
    mf_session *session;
    float *logits; /* [PROMPT + steps, n_vocab] of what was evaluated */
    mf_stats stats;
} run;

static mf_engine_options options_of(const golden_case *c, uint32_t share)
{
    mf_engine_options options = golden_options(c);
    mf_model_info info;
    mf_error error = {0};
    options.n_chunk_tokens = 16;
    options.n_sessions = MANY + 1;
    options.n_threads = 2;
    options.expert_cache_bytes = 0;
    if (is_vulkan)
        options.device = vulkan_test_device();
    REQUIRE_OK(mf_model_inspect(golden_path(c->name), &options, &info, &error), &error);
    const uint64_t n_slots = (uint64_t)info.n_moe_layers * info.n_experts * share / 100;
    options.expert_cache_bytes = n_slots * info.slot_bytes;
    options.predict = MF_PREDICT_OFF; /* what is foretold is not recorded ahead */
    return options;
}

static void read_case(const golden_case *c, golden *out)
{
    static int32_t tokens[PROMPT + MOST_STEPS];
    if (c->golden != NULL) {
        golden_read(c, out);
        return;
    }
    for (uint32_t i = 0; i < PROMPT + MOST_STEPS; i++)
        tokens[i] = (int32_t)(100 + i * i % 7 * 300);
    *out = (golden){.n_tokens = PROMPT + MOST_STEPS, .n_vocab = 4096, .tokens = tokens};
}

static void free_case(const golden_case *c, golden *g)
{
    if (c->golden != NULL)
        golden_free(g);
}

static void open_with(run *r, const golden_case *c, uint32_t share, mf_io_fault *fault)
{
    const mf_engine_options options = options_of(c, share);
    mf_engine_hooks hooks = {0};
    mf_error error = {0};
    if (!is_vulkan)
        hooks = (mf_engine_hooks){.open_backend = strict_backend_open, .backend_ctx = &strict};
    if (fault != NULL) {
        hooks.io_engine = &mf_io_engine_fault;
        hooks.io_arg = fault;
    }
    *r = (run){.of = c};
    read_case(c, &r->g);
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
    free_case(r->of, &r->g);
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

/* The same tokens with some slots, layers recorded ahead or not. */
static void eval_some(run *r, const golden_case *c, uint32_t share, bool is_ahead)
{
    open_with(r, c, share, NULL);
    CHECK(r->engine->runner.ahead.is_on);
    r->engine->runner.ahead.is_on = is_ahead;
    eval(r);
    CHECK_U64(n_routed(r), 0);
}

static void check_some(const golden_case *c, uint32_t share, const run *all)
{
    run ahead, not ;
    eval_some(&ahead, c, share, true);
    eval_some(&not, c, share, false);
    const mf_ahead *a = &ahead.engine->runner.ahead;
    check_same(c, all, &ahead);
    check_same(c, all, &not );
    CHECK_MSG(a->n_done > 0, "%s, %u of 100 slots: nothing went ahead", c->name, share);
    CHECK_MSG(a->n_missed > 0, "%s, %u of 100 slots: nothing was missed", c->name, share);
    CHECK_U64(not .engine->runner.ahead.n_done, 0);
    CHECK_U64(ahead.stats.n_expert_hits, not .stats.n_expert_hits);
    CHECK_U64(ahead.stats.n_expert_misses, not .stats.n_expert_misses);
    CHECK_U64(ahead.stats.expert_bytes_touched, not .stats.expert_bytes_touched);
    CHECK_U64(ahead.stats.read_bytes, not .stats.read_bytes);
    if (!is_vulkan)
        CHECK(n_waits(&ahead) < n_waits(&not ));
    close_run(&ahead);
    close_run(&not );
}

/* The model with layers enough. */
static void check_demo(const golden_case *c, bool is_short)
{
    run all;
    open_with(&all, c, ALL, NULL);
    eval(&all);
    if (!is_short)
        check_some(c, HALF, &all);
    check_some(c, MOST, &all);
    close_run(&all);
}

/* Slots for all, and for as few as may be. */
static void check_case(const golden_case *c)
{
    run all, few;
    open_with(&all, c, ALL, NULL);
    open_with(&few, c, LEAST, NULL);
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

/* Three sessions in one pass, of which one brings two tokens: their logits to the first rows. */
static void eval_batch(run *r)
{
    mf_session *sessions[3] = {r->session, NULL, NULL};
    mf_error error = {0};
    mf_engine_stats_reset(r->engine);
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
    for (uint32_t j = 0; j < 3; j++)
        memcpy(r->logits + (size_t)j * r->g.n_vocab, mf_session_logits(sessions[j]),
               r->g.n_vocab * sizeof *r->logits);
    mf_engine_stats(r->engine, &r->stats);
    mf_session_free(&sessions[1]);
    mf_session_free(&sessions[2]);
}

/* Tokens of several sessions in one pass. */
static void check_batch(const golden_case *c)
{
    run all, few, some;
    open_with(&all, c, ALL, NULL);
    open_with(&few, c, LEAST, NULL);
    open_with(&some, c, MOST, NULL);
    eval(&some); /* it has seen the tokens */
    some.engine->runner.ahead.n_most = some.engine->runner.h.n_moe_layers;
    some.engine->runner.ahead.n_done = 0;
    mf_session_clear(some.session);
    memset(some.logits, 0, (size_t)(PROMPT + MOST_STEPS) * some.g.n_vocab * sizeof *some.logits);
    eval_batch(&all);
    eval_batch(&few);
    eval_batch(&some);
    CHECK_U64(n_routed(&all), all.engine->runner.h.n_moe_layers);
    CHECK_U64(n_routed(&few) + n_routed(&some), 0);
    check_same(c, &all, &few);
    check_same(c, &all, &some);
    CHECK(c->golden != NULL || some.engine->runner.ahead.n_done > 0);
    CHECK_U64(all.stats.n_expert_hits, few.stats.n_expert_hits + few.stats.n_expert_misses);
    CHECK_U64(all.stats.n_expert_hits, some.stats.n_expert_hits + some.stats.n_expert_misses);
    close_run(&all);
    close_run(&few);
    close_run(&some);
}

/* Rows enough for a device to sort their picks by expert: half of them are alike and choose the
 * same ones. Each has the bits that it has alone. */
static void check_many(const golden_case *c)
{
    run r;
    mf_error error = {0};
    mf_session *many[MANY] = {NULL};
    mf_batch_item items[MANY];
    int32_t tokens[MANY];
    open_with(&r, c, MOST, NULL);
    r.engine->runner.ahead.n_most = r.engine->runner.h.n_moe_layers;
    for (uint32_t i = 0; i < MANY; i++) {
        tokens[i] = r.g.tokens[i % 2 == 0 ? 0 : i];
        REQUIRE_OK(mf_session_create(r.engine, &many[i], &error), &error);
        items[i] = (mf_batch_item){.session = many[i], .tokens = &tokens[i], .n_tokens = 1};
    }
    for (uint32_t n = MANY; n > 3; n--) /* classes of other sizes */
        REQUIRE_OK(mf_engine_eval(r.engine, items, n, &error), &error);
    for (uint32_t i = 0; i < MANY; i++) {
        const uint32_t n = MANY - 3 - (i < 4 ? 0 : i - 3);
        mf_session_clear(r.session);
        for (uint32_t j = 0; j < n; j++)
            REQUIRE_OK(mf_session_eval(r.session, &tokens[i], 1, &error), &error);
        CHECK_BYTES(mf_session_logits(many[i]), mf_session_logits(r.session),
                    r.g.n_vocab * sizeof(float));
        mf_session_free(&many[i]);
    }
    close_run(&r);
}

typedef struct asked {
    run *r;
    uint32_t n, end_at; /* counted from 1; 0: never */
} asked;

/* While layers are recorded ahead, all experts are foreseen: those of other layers may come, none
 * that may be in use leaves. */
static mf_status foresee(void *ctx, uint32_t n_done, mf_error *error)
{
    asked *a = ctx;
    mf_runner *r = &a->r->engine->runner;
    uint32_t experts[64], n = 0;
    (void)n_done;
    for (; n < r->h.n_experts && n < 64; n++)
        experts[n] = (n * 7 + a->n) % r->h.n_experts;
    for (uint32_t layer = 0; layer < r->h.n_moe_layers; layer++)
        mf_expert_store_hint(r->store, layer, experts, n);
    return ++a->n == a->end_at ? mf_fail(error, MF_ERR_CANCELLED, "ended at %u", a->n) : MF_OK;
}

/* The session's tokens again, beside it. */
static mf_status pass(run *r, asked *a, float *logits, mf_error *error)
{
    const mf_session *s = r->session;
    const mf_batch_watch watch = {.ctx = a, .progress = foresee};
    const mf_batch_part part = {.tokens = s->tokens,
                                .n_rows = (uint32_t)s->position,
                                .pages = s->pages[MF_UNIT_PAGE].spans,
                                .window_pages = s->pages[MF_UNIT_WINDOW].spans,
                                .state = {{{0}, 0}, s->recurrent_span},
                                .logits = logits};
    const mf_batch batch = {.parts = &part, .n_parts = 1, .n_rows = part.n_rows, .watch = &watch};
    *a = (asked){.r = r, .end_at = a->end_at};
    r->engine->runner.ahead.n_most = r->engine->runner.h.n_moe_layers;
    return mf_forward(&r->engine->runner, &batch, error);
}

/* Ended after any layer, with foresight at work meanwhile: nothing stays behind. */
static void check_ended(const golden_case *c)
{
    run r;
    asked a = {0};
    mf_error error = {0};
    open_with(&r, c, FEW, NULL);
    const size_t n_bytes = r.g.n_vocab * sizeof(float);
    for (uint32_t i = 0; i < 3; i++)
        step(&r, i);
    REQUIRE_OK(pass(&r, &a, r.logits, &error), &error);
    CHECK_BYTES(r.logits, mf_session_logits(r.session), n_bytes);
    const uint32_t n_all = a.n;
    CHECK_U64(n_all, r.engine->runner.h.n_layers);
    for (uint32_t end_at = 1; end_at <= n_all; end_at++) {
        a.end_at = end_at;
        CHECK_STATUS(pass(&r, &a, r.logits, &error), MF_ERR_CANCELLED);
        CHECK(r.engine->runner.ahead.n == 0 && r.engine->runner.ahead.when.buffer.id == 0);
    }
    a.end_at = 0;
    REQUIRE_OK(pass(&r, &a, r.logits, &error), &error);
    CHECK_BYTES(r.logits, mf_session_logits(r.session), n_bytes);
    CHECK(r.engine->runner.ahead.n_done > 0 && r.engine->runner.ahead.n_missed > 0);
    close_run(&r);
}

/* A missing expert that cannot be read: the token fails, and the next works. */
static void check_missing_unreadable(const golden_case *c)
{
    run some, few;
    mf_io_fault fault = {.inner = &mf_io_engine_pool, .fail_errno = EIO, .fail_count = 1};
    mf_error error = {0};
    uint32_t n_failed = 0;
    open_with(&few, c, LEAST, NULL);
    eval(&few);
    open_with(&some, c, MOST, &fault);
    REQUIRE_OK(
        golden_eval(some.session, some.g.tokens, PROMPT, some.g.n_vocab, some.logits, &error),
        &error);
    for (uint32_t i = 0; i < MOST_STEPS; i++) {
        some.engine->runner.ahead.n_most = some.engine->runner.h.n_moe_layers;
        fault.fail_from = fault.n_reads + 1;
        fault.n_failed = 0;
        const mf_status status =
            mf_session_eval(some.session, some.g.tokens + PROMPT + i, 1, &error);
        CHECK(status == (fault.n_failed != 0 ? MF_ERR_IO : MF_OK));
        n_failed += status != MF_OK;
        fault.fail_from = 0;
        if (status != MF_OK)
            step(&some, PROMPT + i);
        else
            memcpy(some.logits + (size_t)(PROMPT + i) * some.g.n_vocab,
                   mf_session_logits(some.session), some.g.n_vocab * sizeof *some.logits);
    }
    CHECK(n_failed > 0);
    check_same(c, &few, &some);
    close_run(&some);
    close_run(&few);
}

/* At any time when the device is waited for. */
static void check_lost(const golden_case *c)
{
    uint32_t n_lost = 0;
    for (uint32_t at = 1; at < 60; at += 4) {
        run r;
        mf_error error = {0};
        open_with(&r, c, MOST, NULL);
        strict_backend *be = (strict_backend *)r.engine->runner.backend;
        be->options.lost_at_run = be->stats.n_runs + at;
        mf_status status = mf_session_eval(r.session, r.g.tokens, 3, &error);
        for (uint32_t i = 3; i < 20 && status == MF_OK; i++) {
            r.engine->runner.ahead.n_most = r.engine->runner.h.n_moe_layers;
            status = mf_session_eval(r.session, r.g.tokens + i, 1, &error);
        }
        n_lost += status == MF_ERR_IO;
        CHECK(status == MF_OK || status == MF_ERR_IO);
        close_run(&r);
    }
    CHECK(n_lost > 10);
}

/* An expert that cannot be read when the model is opened is asked for as ever, and its layer is
 * whole once it has come. */
static void check_unreadable(const golden_case *c)
{
    run few, all;
    mf_io_fault fault = {.inner = &mf_io_engine_pool, .fail_errno = EIO, .fail_count = 1};
    open_with(&few, c, LEAST, NULL);
    eval(&few);
    fault.fail_from = 40;
    open_with(&all, c, ALL, &fault);
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
    double rate = 0.0, latency_us = -1.0;
    mf_error error = {0};
    open_with(&few, c, LEAST, NULL);
    eval(&few);
    open_with(&r, c, ALL, &fault);
    REQUIRE_OK(mf_engine_measure_drive(r.engine, 20, &rate, &error), &error);
    REQUIRE_OK(mf_engine_measure_latency(r.engine, 20, &latency_us, &error), &error);
    CHECK(rate > 0 && latency_us >= 0);
    eval(&r);
    check_same(c, &r, &few);
    CHECK_U64(n_routed(&r), r.engine->runner.h.n_moe_layers);
    fault.fail_from = fault.n_reads + 1;
    fault.fail_count = 1;
    fault.fail_errno = EIO;
    CHECK_STATUS(mf_engine_measure_drive(r.engine, 60000, &rate, &error), MF_ERR_IO);
    fault.fail_from = fault.n_reads + 1;
    CHECK_STATUS(mf_engine_measure_latency(r.engine, 60000, &latency_us, &error), MF_ERR_IO);
    mf_session_clear(r.session);
    eval(&r);
    check_same(c, &r, &few);
    CHECK(n_routed(&r) + 1 >= r.engine->runner.h.n_moe_layers);
    close_run(&r);
    close_run(&few);
}

static const golden_case demo = {.name = DEMO, .n_context = 160};

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
    check_demo(&demo, is_short);
    check_many(&demo);
    if (is_short)
        return test_result();
    check_batch(&demo);
    check_ended(&demo);
    check_missing_unreadable(&demo);
    if (!is_vulkan)
        check_lost(&demo);
    check_unreadable(golden_case_find("mlx_4bit"));
    check_measured(golden_case_find("mlx_4bit"));
    return test_result();
}

/* SPDX-License-Identifier: MIT */
/*
 * Two or three sequences with a token each, as one pass and as a pass each: the same bits as alone,
 * at each step, over the borders of pages; nearly all passes are recorded while the one before them
 * is computed; one that is cancelled leaves the others as they are; and which way is taken is
 * decided by what they cost. On the strict backend, or with "vulkan" on a Vulkan device.
 */
#include "backend/vulkan_open.h"
#include "golden.h"
#include "session/session.h"
#include "strict_impl.h"

#define MOST 4u /* sessions */
#define N_STEPS 40u

static bool is_vulkan;
static strict_options strict = {.seed = 3};

typedef struct run {
    golden g;
    mf_engine *engine;
    mf_session *sessions[MOST];
    float *logits; /* [N_STEPS, MOST, n_vocab] */
} run;

static void open_run(run *r, const golden_case *c, mf_split_mode mode)
{
    mf_engine_options options = golden_options(c);
    mf_engine_hooks hooks = {0};
    mf_error error = {0};
    mf_model_info info;
    options.n_sessions = MOST;
    options.n_threads = 2;
    options.n_context_tokens = N_STEPS + 8;
    options.predict = MF_PREDICT_OFF;
    options.expert_cache_bytes = 0;
    if (is_vulkan)
        options.device = vulkan_test_device();
    else
        hooks = (mf_engine_hooks){.open_backend = strict_backend_open, .backend_ctx = &strict};
    REQUIRE_OK(mf_model_inspect(golden_path(c->name), &options, &info, &error), &error);
    /* all, and what strict slots take beside them */
    options.expert_cache_bytes = 4 * (uint64_t)info.n_moe_layers * info.n_experts * info.slot_bytes;
    *r = (run){.engine = NULL};
    golden_read(c, &r->g);
    REQUIRE_OK(mf_engine_open_with(golden_path(c->name), &options, &hooks, &r->engine, &error),
               &error);
    r->engine->runner.split.mode = mode;
    for (uint32_t i = 0; i < MOST; i++)
        REQUIRE_OK(mf_session_create(r->engine, &r->sessions[i], &error), &error);
    r->logits = calloc((size_t)N_STEPS * MOST * r->g.n_vocab, sizeof *r->logits);
    REQUIRE(r->logits != NULL);
}

static void close_run(run *r)
{
    for (uint32_t i = 0; i < MOST; i++)
        mf_session_free(&r->sessions[i]);
    mf_engine_close(&r->engine);
    golden_free(&r->g);
    free(r->logits);
}

static int32_t *token_of(const run *r, uint32_t session, uint32_t step)
{
    return &r->g.tokens[(session * 5 + step * (session + 1)) % r->g.n_tokens];
}

static uint32_t list(const run *r, uint32_t n, uint32_t step, mf_step_item *items)
{
    for (uint32_t i = 0; i < n; i++)
        items[i] = (mf_step_item){.struct_bytes = sizeof *items,
                                  .session = r->sessions[i],
                                  .tokens = token_of(r, i, step),
                                  .n_tokens = 1};
    return n;
}

/* All steps of n sessions, each step in calls of so many. */
static void evaluate(run *r, uint32_t n, uint32_t n_together)
{
    mf_error error = {0};
    mf_step_item items[MOST];
    for (uint32_t step = 0; step < N_STEPS; step++) {
        list(r, n, step, items);
        for (uint32_t i = 0; i < n; i += n_together)
            REQUIRE_OK(mf_engine_step(r->engine, items + i, n_together, &error), &error);
        for (uint32_t i = 0; i < n; i++)
            memcpy(r->logits + ((size_t)step * MOST + i) * r->g.n_vocab,
                   mf_session_logits(r->sessions[i]), r->g.n_vocab * sizeof *r->logits);
    }
}

static void check_same(const golden_case *c, const run *a, const run *b, uint32_t n)
{
    for (uint32_t step = 0; step < N_STEPS; step++)
        for (uint32_t i = 0; i < n; i++) {
            const size_t at = ((size_t)step * MOST + i) * a->g.n_vocab;
            CHECK_MSG(memcmp(a->logits + at, b->logits + at, a->g.n_vocab * sizeof *a->logits) == 0,
                      "%s, %u sessions: other logits of session %u at step %u", c->name, n, i,
                      step);
        }
}

static void check_way(const golden_case *c, const run *alone, uint32_t n, mf_split_mode mode)
{
    run r;
    open_run(&r, c, mode);
    evaluate(&r, n, n);
    check_same(c, alone, &r, n);
    const uint64_t n_apart = r.engine->apart.n_chunks, n_taken = r.engine->runner.early.n_taken;
    if (n > MF_APART_MOST || mode == MF_SPLIT_NEVER)
        CHECK_U64(n_apart, 0);
    else if (mode == MF_SPLIT_ALWAYS)
        CHECK_U64(n_apart, N_STEPS);
    else
        CHECK(n_apart >= 8 && n_apart < N_STEPS); /* one run of each way at least */
    /* But for the first chunk, and one at the beginning of a page. The strict backend drops some.
     */
    const uint64_t n_foreseen = (uint64_t)n * N_STEPS - 2 * n - 2;
    if (mode == MF_SPLIT_ALWAYS && n <= MF_APART_MOST)
        CHECK_MSG(n_taken >= (is_vulkan ? n_foreseen : n_foreseen / 2),
                  "%s, %u sessions: %llu taken", c->name, n, (unsigned long long)n_taken);
    close_run(&r);
}

static void check_case(const golden_case *c, bool is_short)
{
    run alone;
    open_run(&alone, c, MF_SPLIT_AUTO);
    evaluate(&alone, MOST, 1);
    CHECK_U64(alone.engine->apart.n_chunks, 0);
    for (uint32_t n = 2; n <= (is_short ? 2 : MOST); n++)
        for (mf_split_mode mode = MF_SPLIT_AUTO; mode <= MF_SPLIT_ALWAYS; mode++)
            if (!is_short || mode == MF_SPLIT_ALWAYS)
                check_way(c, &alone, n, mode);
    close_run(&alone);
}

static int stop(void *user, uint64_t n_done, uint64_t n_total)
{
    (void)n_total;
    (void)n_done;
    return *(const bool *)user;
}

/* The second of three is cancelled while it is computed; the others have their tokens, and all go
 * on. */
static void check_cancelled(const golden_case *c)
{
    run alone, r;
    mf_error error = {0};
    mf_step_item items[MOST];
    bool stops = true;
    open_run(&alone, c, MF_SPLIT_NEVER);
    open_run(&r, c, MF_SPLIT_ALWAYS);
    evaluate(&alone, 3, 1);
    mf_session_set_progress(r.sessions[1], stop, &stops);
    for (uint32_t step = 0; step < 5; step++) {
        list(&r, 3, step, items);
        stops = step == 3;
        const mf_status status = mf_engine_step(r.engine, items, 3, &error);
        CHECK_STATUS(status, stops ? MF_ERR_CANCELLED : MF_OK);
        for (uint32_t i = 0; i < 3; i++)
            CHECK_U64(mf_session_position(r.sessions[i]), step + 1 - (stops && i == 1));
        stops = false;
        if (status != MF_OK)
            REQUIRE_OK(mf_engine_step(r.engine, &items[1], 1, &error), &error);
        for (uint32_t i = 0; i < 3; i++)
            CHECK_BYTES(mf_session_logits(r.sessions[i]),
                        alone.logits + ((size_t)step * MOST + i) * r.g.n_vocab,
                        r.g.n_vocab * sizeof *r.logits);
    }
    close_run(&alone);
    close_run(&r);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"mlx_4bit", "v3_mlx_4bit_split", "gpt_oss_mxfp4",
                                        "qwen3_dense_mlx_4bit"};
    is_vulkan = argc > 1 && strcmp(argv[1], "vulkan") == 0;
    if (is_vulkan && !vulkan_is_there())
        return TEST_SKIPPED;
    const bool is_short = is_vulkan && vulkan_is_short();
    for (size_t i = 0; i < (is_short ? 1 : sizeof names / sizeof *names); i++) {
        check_case(golden_case_find(names[i]), is_short);
        if (!is_short)
            check_cancelled(golden_case_find(names[i]));
    }
    return test_result();
}

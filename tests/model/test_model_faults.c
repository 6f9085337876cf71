/* SPDX-License-Identifier: MIT */
/*
 * Whole models on a drive that misbehaves: short reads, interruptions, delays and completions out
 * of order change nothing; a read that fails gives one clear error, and after mf_session_clear the
 * same bits as ever.
 */
#include "golden.h"

#include "io/io_fault.h"
#include "session/engine.h"

#include <errno.h>

static mf_engine_options small_options(const golden_case *c)
{
    mf_engine_options options = golden_options(c);
    options.expert_cache_bytes = 0;
    options.n_chunk_tokens = 16;
    options.n_threads = 2;
    options.predict = MF_PREDICT_OFF; /* each read is asked for: test_predict has the others */
    return options;
}

static mf_engine *open_faulty(const golden_case *c, mf_io_fault *fault)
{
    mf_engine_options options = small_options(c);
    mf_engine *engine = NULL;
    mf_error error = {0};
    const mf_engine_hooks hooks = {.io_engine = &mf_io_engine_fault, .io_arg = fault};
    REQUIRE_OK(mf_engine_open_with(golden_path(c->name), &options, &hooks, &engine, &error),
               &error);
    return engine;
}

static bool same_run(mf_session *session, const golden *g, const float *base, float *scratch,
                     mf_error *error)
{
    mf_status status = golden_eval(session, g->tokens, g->n_tokens, g->n_vocab, scratch, error);
    return status == MF_OK &&
           memcmp(scratch, base, (size_t)g->n_tokens * g->n_vocab * sizeof(float)) == 0;
}

static void check_harmless(const golden_case *c, const golden *g, const float *base, float *scratch)
{
    const mf_io_fault scripts[] = {
        {.short_chance = 500},
        {.interrupt_chance = 500},
        {.hold_chance = 600},
        {.hold_chance = 800, .shuffle = 1},
        {.short_chance = 300, .interrupt_chance = 200, .hold_chance = 500, .shuffle = 1},
    };
    /* of a short run only the last, which has all of them */
    for (size_t i = golden_is_short() ? 4 : 0; i < sizeof scripts / sizeof *scripts; i++)
        for (uint64_t seed = 1; seed <= (GOLDEN_ON_DEVICE ? 1 : 3); seed++) {
            mf_io_fault fault = scripts[i];
            fault.inner = &mf_io_engine_pool;
            fault.seed = seed;
            mf_engine *engine = open_faulty(c, &fault);
            mf_session *session = NULL;
            mf_error error = {0};
            REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
            CHECK_MSG(same_run(session, g, base, scratch, &error), "%s: script %zu, seed %d: %s",
                      c->name, i, (int)seed, error.message[0] ? error.message : "other bits");
            CHECK(fault.n_short + fault.n_interrupted + fault.n_held > 0);
            mf_session_free(&session);
            mf_engine_close(&engine);
        }
}

/* The n-th read fails: a clean error, and after it all is well again. */
static void check_failed_read(const golden_case *c, const golden *g, const float *base,
                              float *scratch, mf_io_fault *fault, mf_session *session)
{
    mf_error error = {0};
    uint64_t failed = fault->n_failed;
    mf_status status = golden_eval(session, g->tokens, g->n_tokens, g->n_vocab, scratch, &error);
    fault->fail_errno = 0;
    CHECK(fault->n_failed > failed);
    CHECK_MSG(status == MF_ERR_IO && error.code == MF_ERR_IO && error.os_errno == EIO,
              "%s: a failed read gave %s, \"%s\"", c->name, mf_status_name(status), error.message);
    CHECK_CONTAINS(error.message, c->name); /* the file's path */
    mf_session_clear(session);
    CHECK_U64(mf_session_position(session), 0);
    error = (mf_error){0};
    CHECK_MSG(same_run(session, g, base, scratch, &error), "%s: after a failed read: %s", c->name,
              error.message[0] ? error.message : "other bits");
    mf_session_clear(session);
}

static void check_failures(const golden_case *c, const golden *g, const float *base, float *scratch)
{
    mf_io_fault fault = {.inner = &mf_io_engine_pool, .seed = 9, .hold_chance = 200, .shuffle = 1};
    mf_engine *engine = open_faulty(c, &fault);
    mf_session *session = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    CHECK(same_run(session, g, base, scratch, &error));
    uint64_t n_reads = fault.n_reads;
    mf_session_clear(session);
    const uint64_t most = golden_is_short() ? 2 : 9;
    for (uint64_t n = 1; n < n_reads; n += 1 + n_reads / most) {
        fault.fail_from = fault.n_reads + n;
        fault.fail_count = n % 2 == 0 ? 1 : 1000;
        fault.fail_errno = EIO;
        check_failed_read(c, g, base, scratch, &fault, session);
    }
    /* closing with a failed session */
    fault.fail_from = fault.n_reads + 1;
    fault.fail_count = UINT32_MAX;
    fault.fail_errno = EIO;
    CHECK_STATUS(mf_session_eval(session, g->tokens, 5, NULL), MF_ERR_IO);
    mf_session_free(&session);
    mf_engine_close(&engine);
}

/* A read that several sessions wait for is no one's: the message names the file and no item. */
static void check_failed_step(const golden_case *c, const golden *g)
{
    mf_io_fault fault = {.inner = &mf_io_engine_pool, .seed = 5};
    mf_session *sessions[2] = {NULL, NULL};
    mf_error error = {0};
    mf_engine_options options = small_options(c);
    mf_engine *engine = NULL;
    const mf_engine_hooks hooks = {.io_engine = &mf_io_engine_fault, .io_arg = &fault};
    options.n_sessions = 2;
    REQUIRE_OK(mf_engine_open_with(golden_path(c->name), &options, &hooks, &engine, &error),
               &error);
    mf_step_item items[2];
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(mf_session_create(engine, &sessions[i], &error), &error);
        items[i] = (mf_step_item){.struct_bytes = sizeof items[i],
                                  .session = sessions[i],
                                  .tokens = g->tokens,
                                  .n_tokens = 3};
    }
    fault.fail_from = fault.n_reads + 1;
    fault.fail_count = UINT32_MAX;
    fault.fail_errno = EIO;
    CHECK_STATUS(mf_engine_step(engine, items, 2, &error), MF_ERR_IO);
    CHECK(items[0].status == MF_ERR_IO && items[1].status == MF_ERR_IO);
    CHECK_CONTAINS(error.message, c->name);
    CHECK_MSG(strstr(error.message, "item ") == NULL, "%s", error.message);
    for (int i = 0; i < 2; i++)
        mf_session_free(&sessions[i]);
    mf_engine_close(&engine);
}

/* The I/O engine itself fails, at any of its calls: an error, and after it all is well again. */
static void check_broken_engine(const golden_case *c, const golden *g, const float *base,
                                float *scratch)
{
    mf_io_fault fault = {.inner = &mf_io_engine_pool, .seed = 11, .hold_chance = 200, .shuffle = 1};
    mf_engine *engine = open_faulty(c, &fault);
    mf_session *session = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    for (uint64_t nth = 1; nth < 200; nth += golden_is_short() ? 66 : 2 + nth / 2) {
        fault.break_at = fault.n_calls + nth;
        fault.reset_fails = nth % 4 == 3;
        mf_status status =
            golden_eval(session, g->tokens, g->n_tokens, g->n_vocab, scratch, &error);
        CHECK_MSG(status == MF_ERR_IO && error.code == MF_ERR_IO && fault.n_resets > 0,
                  "%s: a broken engine gave %s, \"%s\"", c->name, mf_status_name(status),
                  error.message);
        mf_session_clear(session);
        if (fault.reset_fails)
            CHECK_STATUS(mf_session_eval(session, g->tokens, 3, NULL), MF_ERR_IO);
        fault.reset_fails = false;
        mf_session_clear(session);
        error = (mf_error){0};
        CHECK_MSG(same_run(session, g, base, scratch, &error), "%s: after a broken engine: %s",
                  c->name, error.message[0] ? error.message : "other bits");
        mf_session_clear(session);
    }
    mf_session_free(&session);
    mf_engine_close(&engine);
}

/* Every read fails from the start: opening or evaluating says so. */
static void check_dead_drive(const golden_case *c, const golden *g)
{
    mf_io_fault fault = {.inner = &mf_io_engine_pool,
                         .seed = 1,
                         .fail_from = 1,
                         .fail_count = UINT32_MAX,
                         .fail_errno = EIO};
    mf_engine_options options = small_options(c);
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_error error = {0};
    const mf_engine_hooks hooks = {.io_engine = &mf_io_engine_fault, .io_arg = &fault};
    mf_status status = mf_engine_open_with(golden_path(c->name), &options, &hooks, &engine, &error);
    if (status == MF_OK)
        status = mf_session_create(engine, &session, &error);
    if (status == MF_OK)
        status = mf_session_eval(session, g->tokens, 3, &error);
    CHECK_STATUS(status, MF_ERR_IO);
    CHECK_CONTAINS(error.message, c->name);
    mf_session_free(&session);
    mf_engine_close(&engine);
}

int main(void)
{
    static const char *const names[] = {"mlx_4bit", "hf_bf16", "next_bf16", "packed"};
    for (size_t i = golden_is_short() ? 2 : 0; i < (golden_is_short() ? 3 : 4); i++) {
        const golden_case *c = golden_case_find(names[i]);
        golden g;
        golden_read(c, &g);
        mf_engine_options options = small_options(c);
        mf_error error = {0};
        float *base = golden_run(c, &g, &options, &error);
        float *scratch = malloc((size_t)g.n_tokens * g.n_vocab * sizeof(float));
        REQUIRE(base != NULL && scratch != NULL);
        check_harmless(c, &g, base, scratch);
        check_failures(c, &g, base, scratch);
        check_failed_step(c, &g);
        check_broken_engine(c, &g, base, scratch);
        check_dead_drive(c, &g);
        free(base);
        free(scratch);
        golden_free(&g);
    }
    return test_result();
}

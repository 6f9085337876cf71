/* SPDX-License-Identifier: MIT */
/*
 * A checkpoint with mirrors: the same bits from two directories, from a part of a mirror, and when
 * either drive fails in the middle, which the log is told; what no drive gives is an error, and the
 * next evaluation works again.
 */
#include "golden.h"
#include "scratch_dir.h"

#include "io/io_fault.h"
#include "session/session.h"

#include <errno.h>
#include <unistd.h>

#define N_TOKENS 10u

typedef struct log_lines {
    char last[512];
    uint32_t n;
} log_lines;

static void take_line(void *user, mf_log_level level, const char *line)
{
    log_lines *l = user;
    if (level != MF_LOG_WARNING || strstr(line, "left out") == NULL)
        return;
    snprintf(l->last, sizeof l->last, "%s", line);
    l->n++;
}

static mf_status open_it(const golden_case *c, const char *mirror, mf_io_fault *fault,
                         log_lines *lines, mf_engine **out, mf_error *error)
{
    mf_engine_options options = golden_options(c);
    const mf_engine_hooks hooks = {.io_engine = &mf_io_engine_fault, .io_arg = fault};
    const char *const mirrors[] = {mirror};
    options.expert_cache_bytes = 0;
    options.mirrors = mirrors;
    options.n_mirrors = mirror != NULL ? 1 : 0;
    options.log = take_line;
    options.log_user = lines;
    return mf_engine_open_with(golden_path(c->name), &options, &hooks, out, error);
}

/* The first failure; *logits those of the last token. */
static mf_status evaluate(mf_engine *engine, const golden *g, float *logits, mf_error *error)
{
    mf_session *session = NULL;
    mf_status status = mf_session_create(engine, &session, error);
    for (uint32_t i = 0; i < N_TOKENS && status == MF_OK; i++)
        status = mf_session_eval(session, g->tokens + i, 1, error);
    if (status == MF_OK)
        memcpy(logits, mf_session_logits(session), g->n_vocab * sizeof *logits);
    mf_session_free(&session);
    return status;
}

static void check_same(mf_engine *engine, const golden *g, const float *expected)
{
    mf_error error = {0};
    float *got = malloc(g->n_vocab * sizeof *got);
    REQUIRE(got != NULL);
    REQUIRE_OK(evaluate(engine, g, got, &error), &error);
    CHECK(memcmp(got, expected, g->n_vocab * sizeof *got) == 0);
    free(got);
}

static void test_mirror(const golden_case *c)
{
    golden g;
    mf_error error = {0};
    log_lines lines = {0};
    mf_io_fault fault = {.inner = &mf_io_engine_pool, .seed = 3};
    mf_engine *engine = NULL;
    golden_read(c, &g);
    float *expected = malloc(g.n_vocab * sizeof *expected);
    REQUIRE(expected != NULL);
    REQUIRE_OK(open_it(c, NULL, &fault, &lines, &engine, &error), &error);
    REQUIRE_OK(evaluate(engine, &g, expected, &error), &error);
    mf_engine_close(&engine);
    const char *mirror = scratch_copy(c->name);
    for (uint32_t lost = 0; lost < 2; lost++) {
        fault.fail_lanes = 0;
        fault.fail_errno = 0;
        lines.n = 0;
        REQUIRE_OK(open_it(c, mirror, &fault, &lines, &engine, &error), &error);
        const mf_io *io = engine->runner.io;
        check_same(engine, &g, expected);
        CHECK(mf_io_copy_bytes(io, 0) > 0 && mf_io_copy_bytes(io, UINT32_MAX) > 0);
        fault.fail_lanes = 1u << lost;
        fault.fail_errno = EIO;
        check_same(engine, &g, expected);
        CHECK_MSG(lines.n == 1, "the log says '%s'", lines.last);
        CHECK((strstr(lines.last, mirror) != NULL) == (lost == 1));
        fault.fail_lanes = 3;
        CHECK_STATUS(evaluate(engine, &g, expected, &error), MF_ERR_IO);
        fault.fail_lanes = 0;
        check_same(engine, &g, expected);
        mf_engine_close(&engine);
    }
    scratch_cut("model.safetensors", -4096);
    CHECK_STATUS(open_it(c, mirror, &fault, &lines, &engine, &error), MF_ERR_FORMAT);
    scratch_unlink("model.safetensors");
    CHECK_STATUS(open_it(c, mirror, &fault, &lines, &engine, &error), MF_ERR_NOT_FOUND);
    CHECK(strstr(error.message, mirror) != NULL && engine == NULL);
    scratch_remove();
    free(expected);
    golden_free(&g);
}

/* What snapshots are known by is read of a mirror, too, where the checkpoint's own files cannot be
 * read any more. */
static void test_fingerprint(const golden_case *c)
{
    const char *const mirrors[] = {golden_path(c->name)};
    uint8_t expected[MF_FINGERPRINT_BYTES], got[MF_FINGERPRINT_BYTES];
    mf_engine_options options = golden_options(c);
    mf_engine *engine = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_engine_open(golden_path(c->name), &options, &engine, &error), &error);
    REQUIRE_OK(mf_engine_fingerprint(engine, expected, &error), &error);
    mf_engine_close(&engine);
    options.mirrors = mirrors;
    options.n_mirrors = 1;
    REQUIRE_OK(mf_engine_open(scratch_copy(c->name), &options, &engine, &error), &error);
    scratch_cut("model.safetensors", 0);
    CHECK_MSG(mf_engine_fingerprint(engine, got, &error) == MF_OK &&
                  memcmp(got, expected, sizeof got) == 0,
              "%s", error.message);
    mf_engine_close(&engine);
    scratch_remove();
}

int main(void)
{
    test_fingerprint(golden_case_find("mlx_4bit"));
    test_mirror(golden_case_find("mlx_4bit"));
    return test_result();
}

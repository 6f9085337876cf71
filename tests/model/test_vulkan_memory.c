/* SPDX-License-Identifier: MIT */
/*
 * Engines on a Vulkan device as if its memory were its own, whatever it is: the least promise that
 * inspection names is accepted and kept, with the same logits as in the process's memory; a byte
 * less is refused. The link is measured on weights that stay as they are; the device's time is
 * taken by operations only while it is asked for.
 */
#include "backend/vulkan/vk_internal.h"
#include "backend/vulkan_open.h"
#include "golden.h"
#include "session/engine.h"
#include "vulkan_shared.h"

static mf_status open_apart(void *ctx, const mf_backend_options *options, mf_backend **out,
                            mf_error *error)
{
    mf_vk_hooks hooks = {0};
    (void)ctx;
    vulkan_share(&hooks);
    MF_TRY(mf_vk_backend_create(options, &hooks, out, error));
    ((mf_vk_backend *)*out)->device.info.is_unified = false;
    return MF_OK;
}

static mf_engine_options device_options(const golden_case *c)
{
    mf_engine_options options = golden_options(c);
    options.device = vulkan_test_device();
    options.n_chunk_tokens = 8;
    options.n_context_tokens = 64;
    return options;
}

static void eval(mf_engine *engine, const golden *g, float *logits)
{
    mf_session *session = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    REQUIRE_OK(mf_session_eval(session, g->tokens, 12, &error), &error);
    memcpy(logits, mf_session_logits(session), g->n_vocab * sizeof *logits);
    mf_session_free(&session);
}

static void check_link(mf_engine *engine, bool is_apart)
{
    double to = -1, from = -1;
    mf_error error = {0};
    REQUIRE_OK(mf_engine_measure_link(engine, 5, &to, &from, &error), &error);
    CHECK(is_apart ? to > 1e3 && to < 1e14 && from > 1e3 && from < 1e14 : to == 0 && from == 0);
    CHECK_STATUS(mf_engine_measure_link(engine, 5, NULL, &from, &error), MF_ERR_ARGUMENT);
}

/* Kinds and numbers of what an evaluation was. */
static void check_times(mf_engine *engine, const golden *g, float *logits)
{
    mf_operation_time times[64];
    mf_error error = {0};
    CHECK_U64(mf_engine_operation_times(engine, times, 64), 0);
    REQUIRE_OK(mf_engine_time_operations(engine, 1, &error), &error);
    eval(engine, g, logits);
    const size_t n = mf_engine_operation_times(engine, times, 64);
    uint64_t n_experts = 0, n_embed = 0;
    REQUIRE(n > 4 && n <= 64);
    for (size_t i = 0; i < n; i++) {
        CHECK(times[i].n > 0 && times[i].seconds >= 0 && times[i].seconds < 600);
        n_experts += strstr(times[i].name, "experts") != NULL ? times[i].n : 0;
        n_embed += strcmp(times[i].name, "embed") == 0 ? times[i].n : 0;
    }
    CHECK_U64(n_embed, 2); /* two chunks */
    CHECK(n_experts >= 2 * (uint64_t)engine->info.n_moe_layers);
    CHECK_U64(mf_engine_operation_times(engine, times, 1), n);
    REQUIRE_OK(mf_engine_time_operations(engine, 0, &error), &error);
    CHECK_U64(mf_engine_operation_times(engine, times, 64), 0);
}

static void check_case(const char *name)
{
    const golden_case *c = golden_case_find(name);
    mf_engine_options options = device_options(c);
    const mf_engine_hooks apart = {.open_backend = open_apart};
    mf_engine *engine = NULL;
    mf_error error = {0};
    mf_model_info info;
    mf_stats stats;
    golden g;
    golden_read(c, &g);
    float *want = malloc(2 * g.n_vocab * sizeof *want), *got = want + g.n_vocab;
    REQUIRE(want != NULL);
    REQUIRE_OK(mf_engine_open(golden_path(name), &options, &engine, &error), &error);
    const bool is_apart = !((mf_vk_backend *)engine->runner.backend)->device.info.is_unified;
    eval(engine, &g, want);
    check_link(engine, is_apart);
    check_times(engine, &g, got);
    CHECK_BYTES(got, want, g.n_vocab * sizeof *got);
    mf_engine_close(&engine);

    REQUIRE_OK(mf_model_inspect(golden_path(name), &options, &info, &error), &error);
    options.device_bytes = info.device_floor_bytes;
    REQUIRE(options.device_bytes != 0);
    REQUIRE_OK(mf_engine_open_with(golden_path(name), &options, &apart, &engine, &error), &error);
    CHECK_U64(engine->info.n_slots, info.n_experts_per_token);
    CHECK_U64(engine->info.device_floor_bytes, info.device_floor_bytes);
    CHECK_U64(engine->info.device_bytes, options.device_bytes);
    eval(engine, &g, got);
    CHECK_BYTES(got, want, g.n_vocab * sizeof *got);
    check_link(engine, true);
    eval(engine, &g, got);
    CHECK_BYTES(got, want, g.n_vocab * sizeof *got);
    mf_engine_stats(engine, &stats);
    CHECK(stats.device_bytes_taken > 0 && stats.device_bytes_taken <= options.device_bytes);
    fprintf(stderr, "%s: %llu KiB taken of %llu KiB, the least\n", name,
            (unsigned long long)stats.device_bytes_taken >> 10,
            (unsigned long long)options.device_bytes >> 10);
    mf_engine_close(&engine);
    options.device_bytes--;
    CHECK_STATUS(mf_engine_open_with(golden_path(name), &options, &apart, &engine, &error),
                 MF_ERR_BUDGET);
    CHECK_CONTAINS(error.message, "below the floor of");
    CHECK(engine == NULL);
    free(want);
    golden_free(&g);
}

int main(int argc, char **argv)
{
    if (!vulkan_is_there())
        return TEST_SKIPPED;
    for (int i = 1; i < argc; i++)
        check_case(argv[i]);
    return test_result();
}

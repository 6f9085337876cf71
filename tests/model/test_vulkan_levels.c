/* SPDX-License-Identifier: MIT */
/*
 * Models on a Vulkan device as if it had memory of its own and a queue for copies: experts in slots
 * there, in places in RAM, on the drive. Wherever they are found the bits are the same, those of
 * the device as it is. Skipped where there is none.
 */
#include "backend/vulkan/vk_internal.h"
#include "backend/vulkan_open.h"
#include "golden.h"
#include "session/engine.h"
#include "vulkan_shared.h"

#define N_TOKENS 12u

static mf_vk_hooks as_is;
static mf_vk_hooks own = {.has_own_memory = true, .has_copy_queue = true};

static mf_engine *open_engine(const golden_case *c, const mf_engine_options *options,
                              mf_vk_hooks *hooks)
{
    mf_engine *engine = NULL;
    mf_error error = {0};
    const mf_engine_hooks with = {.open_backend = vulkan_open_here, .backend_ctx = hooks};
    REQUIRE_OK(mf_engine_open_with(golden_path(c->name), options, &with, &engine, &error), &error);
    return engine;
}

/* The logits of the tokens, a few together and then one by one; twice. Returns how many layers were
 * recorded in vain, ahead of what was known. */
static uint64_t evaluate(mf_engine *engine, const golden *g, float *logits, mf_stats stats[2])
{
    mf_session *session = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    for (int i = 0; i < 2; i++) {
        mf_session_clear(session);
        REQUIRE_OK(mf_session_eval(session, g->tokens, N_TOKENS / 2, &error), &error);
        for (uint32_t t = N_TOKENS / 2; t < N_TOKENS; t++)
            REQUIRE_OK(mf_session_eval(session, g->tokens + t, 1, &error), &error);
        mf_engine_stats(engine, &stats[i]);
    }
    memcpy(logits, mf_session_logits(session), g->n_vocab * sizeof *logits);
    mf_session_free(&session);
    const uint64_t n_in_vain = engine->runner.ahead.n_missed;
    mf_engine_close(&engine);
    return n_in_vain;
}

static void check_case(const golden_case *c)
{
    golden g;
    golden_read(c, &g);
    float *as_it_is = malloc(2 * g.n_vocab * sizeof *as_it_is), *got = as_it_is + g.n_vocab;
    REQUIRE(as_it_is != NULL);
    mf_engine_options options = golden_options(c);
    mf_model_info info;
    mf_stats stats[2];
    options.device = vulkan_test_device();
    options.expert_cache_bytes = MF_EXPERT_CACHE_AUTO;
    (void)evaluate(open_engine(c, &options, &as_is), &g, as_it_is, stats);
    CHECK_U64(stats[0].n_host_slots, 0);
    mf_engine *engine = open_engine(c, &options, &own); /* slots for all */
    mf_engine_info(engine, &info);
    CHECK(info.n_slots == (uint64_t)info.n_moe_layers * info.n_experts);
    CHECK(info.device_floor_bytes > 0);
    (void)evaluate(engine, &g, got, stats);
    CHECK_BYTES(got, as_it_is, g.n_vocab * sizeof *got);
    options.device_bytes = info.device_floor_bytes; /* the fewest; then all in RAM, or few */
    for (int i = 0; i < 4; i++) {
        own.has_copy_queue = i % 2 == 0;
        options.expert_cache_bytes = i < 2 ? MF_EXPERT_CACHE_AUTO : 0;
        /* what comes from RAM was not held: a token's experts of one layer are */
        options.predict = MF_PREDICT_OFF;
        CHECK_U64(evaluate(open_engine(c, &options, &own), &g, got, stats), 0);
        CHECK_BYTES(got, as_it_is, g.n_vocab * sizeof *got);
        options.predict = MF_PREDICT_NEXT_LAYER; /* what is foreseen is uploaded, too */
        (void)evaluate(open_engine(c, &options, &own), &g, got, stats);
        CHECK(stats[1].n_hints > 0);
        CHECK_BYTES(got, as_it_is, g.n_vocab * sizeof *got);
        CHECK_U64(stats[1].n_slots, info.n_experts_per_token);
        CHECK(stats[1].upload_bytes > stats[0].upload_bytes);
        CHECK((stats[1].n_reads == stats[0].n_reads) ==
              (stats[1].n_host_slots == (uint64_t)info.n_moe_layers * info.n_experts));
        CHECK(i >= 2 || stats[1].n_expert_host_hits > 0);
        if (i % 2 != 0)
            continue;
        options.predict = MF_PREDICT_AUTO; /* that, or, where experts are read, as trials say */
        (void)evaluate(open_engine(c, &options, &own), &g, got, stats);
        CHECK(stats[1].n_hints > 0);
        CHECK_BYTES(got, as_it_is, g.n_vocab * sizeof *got);
    }
    own.has_copy_queue = true;
    free(as_it_is);
    golden_free(&g);
}

int main(void)
{
    if (!vulkan_is_there())
        return TEST_SKIPPED;
    vulkan_share(&as_is);
    vulkan_share(&own);
    check_case(golden_case_find("mlx_4bit"));
    return test_result();
}

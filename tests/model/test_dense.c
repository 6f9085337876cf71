/* SPDX-License-Identifier: MIT */
/* Families that lack what others have. A model without experts: nothing is streamed, no slots are
 * asked for, and what is about experts says so. What it computes is the goldens' to say. */
#include "golden.h"

static const char name[] = "qwen3_dense_mlx_4bit";

static void test_info(void)
{
    mf_model_info info;
    mf_error error = {0};
    REQUIRE_OK(mf_model_inspect(golden_path(name), NULL, &info, &error), &error);
    CHECK_STR(info.family, "qwen3");
    CHECK_STR(info.form, "mlx-affine");
    CHECK_U64(info.expert_bits, 4); /* of its MLPs */
    CHECK_U64(info.n_moe_layers, 0);
    CHECK_U64(info.n_experts, 0);
    CHECK_U64(info.expert_bytes, 0);
    CHECK_U64(info.n_slots, 0);
    CHECK(info.floor_bytes > info.resident_bytes && info.ram_bytes >= info.floor_bytes);
}

/* The floor is enough, a little less is not. */
static void test_budget(void)
{
    mf_engine_options options = golden_options(golden_case_find(name));
    mf_engine *engine = NULL;
    mf_model_info info;
    mf_error error = {0};
    REQUIRE_OK(mf_model_inspect(golden_path(name), &options, &info, &error), &error);
    options.ram_bytes = info.floor_bytes + ((uint64_t)8 << 20);
    REQUIRE_OK(mf_engine_open(golden_path(name), &options, &engine, &error), &error);
    mf_engine_close(&engine);
    options.ram_bytes = info.floor_bytes / 2;
    CHECK_STATUS(mf_engine_open(golden_path(name), &options, &engine, &error), MF_ERR_BUDGET);
}

static void test_what_is_about_experts(void)
{
    mf_engine_options options = golden_options(golden_case_find(name));
    mf_engine *engine = golden_open(golden_case_find(name), &options);
    mf_error error = {0};
    double speed = 1.0;
    uint8_t state;
    uint32_t n_uses;
    REQUIRE_OK(mf_engine_measure_latency(engine, 5, &speed, &error), &error);
    CHECK(speed == 0.0);
    speed = 1.0;
    REQUIRE_OK(mf_engine_measure_drive(engine, 5, &speed, &error), &error);
    CHECK(speed == 0.0);
    CHECK_STATUS(mf_engine_record_routing(engine, "/dev/null", &error), MF_ERR_UNSUPPORTED);
    CHECK_CONTAINS(error.message, "without experts");
    CHECK_U64(mf_engine_expert_states(engine, 0, &state, &n_uses, 1), 0);
    mf_engine_close(&engine);
    options.n_experts_per_token = 1;
    CHECK_STATUS(mf_engine_open(golden_path(name), &options, &engine, &error), MF_ERR_ARGUMENT);
}

/* Reads nothing but its weights, once. */
static void test_reads_nothing(void)
{
    const golden_case *c = golden_case_find(name);
    mf_engine_options options = golden_options(c);
    mf_engine *engine = golden_open(c, &options);
    mf_session *session = NULL;
    mf_error error = {0};
    mf_stats stats;
    golden g;
    golden_read(c, &g);
    float *logits = malloc((size_t)g.n_tokens * g.n_vocab * sizeof *logits);
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    REQUIRE_OK(golden_eval(session, g.tokens, g.n_tokens, g.n_vocab, logits, &error), &error);
    mf_engine_stats(engine, &stats);
    CHECK_U64(stats.n_tokens, g.n_tokens);
    CHECK_U64(stats.n_reads, 0);
    CHECK_U64(stats.n_expert_misses, 0);
    CHECK(stats.weight_bytes_touched > 0);
    mf_session_free(&session);
    mf_engine_close(&engine);
    free(logits);
    golden_free(&g);
}

/* Where an indexer begins to choose positions, its keys are kept beside the latents. */
static void test_context_of_indexer(void)
{
    const golden_case *c = golden_case_find("deepseek_v32_bf16");
    mf_engine_options options = golden_options(c);
    mf_engine *engine = NULL;
    mf_model_info info, longer;
    mf_error error = {0};
    options.n_context_tokens = 2048;
    REQUIRE_OK(mf_model_inspect(golden_path(c->name), &options, &info, &error), &error);
    CHECK_U64(info.n_context_tokens_model, 4096);
    options.n_context_tokens = 2049;
    REQUIRE_OK(mf_model_inspect(golden_path(c->name), &options, &longer, &error), &error);
    /* 16 values of each position in three layers */
    CHECK_U64(longer.page_bytes, info.page_bytes + 3 * 32 * 16 * sizeof(float));
    REQUIRE_OK(mf_engine_open(golden_path(c->name), &options, &engine, &error), &error);
    mf_engine_close(&engine);
}

int main(void)
{
    test_context_of_indexer();
    test_info();
    test_budget();
    test_what_is_about_experts();
    test_reads_nothing();
    return test_result();
}

/* SPDX-License-Identifier: MIT */
/*
 * Which experts the forward pass asks for: those of a batch's rows together, each once; and how
 * well the cache does by them, on the demo model's own routing of text.
 */
#include "golden.h"

#include "../io/cache_sim.h"
#include "experts/store_impl.h"
#include "session/engine.h"

#define DEMO "models/demo"
#define N_TOGETHER 3
#define N_TOKENS 8
#define N_DEMO_TOKENS 768

/* ----------------------------------------------------------------------------- the union -- */

typedef struct asked {
    uint64_t n_requests, n_misses, read_bytes;
} asked;

static asked asked_for(const mf_engine *engine)
{
    mf_stats s;
    mf_engine_stats(engine, &s);
    return (asked){s.n_expert_hits + s.n_expert_misses, s.n_expert_misses, s.read_bytes};
}

static mf_engine *open_all_cached(const golden_case *c, mf_session **sessions, uint32_t n)
{
    mf_error error = {0};
    mf_model_info info;
    mf_engine_options options = golden_options(c);
    options.n_sessions = n;
    options.predict = MF_PREDICT_OFF;
    mf_engine *engine = golden_open(c, &options);
    engine->runner.split.mode = MF_SPLIT_NEVER; /* each half asks for its own */
    mf_engine_info(engine, &info);
    REQUIRE(info.n_slots == (uint64_t)info.n_moe_layers * info.n_experts);
    for (uint32_t i = 0; i < n; i++)
        REQUIRE_OK(mf_session_create(engine, &sessions[i], &error), &error);
    return engine;
}

static void close_all(mf_engine *engine, mf_session **sessions, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        mf_session_free(&sessions[i]);
    mf_engine_close(&engine);
}

/* What is asked for together is what was missing when the same was asked for one after another of a
 * cache that forgets nothing: the union, each expert once. */
static void check_union(const char *name, const asked *apart, const asked *together)
{
    CHECK_MSG(together->n_requests == apart->n_misses,
              "%s: %llu requests together, %llu distinct experts", name,
              (unsigned long long)together->n_requests, (unsigned long long)apart->n_misses);
    CHECK_U64(together->n_misses, together->n_requests);
    CHECK_U64(together->read_bytes, apart->read_bytes);
    CHECK(apart->n_requests > apart->n_misses); /* or there was nothing to share */
}

static void test_sessions_together(const golden_case *c, const golden *g)
{
    mf_error error = {0};
    mf_session *sessions[N_TOGETHER];
    mf_batch_item items[N_TOGETHER];
    mf_engine *engine = open_all_cached(c, sessions, N_TOGETHER);
    for (uint32_t i = 0; i < N_TOGETHER; i++)
        REQUIRE_OK(mf_session_eval(sessions[i], g->tokens + 2 * i, 2, &error), &error);
    asked apart = asked_for(engine);
    close_all(engine, sessions, N_TOGETHER);
    engine = open_all_cached(c, sessions, N_TOGETHER);
    for (uint32_t i = 0; i < N_TOGETHER; i++)
        items[i] = (mf_batch_item){sessions[i], g->tokens + 2 * i, 2};
    REQUIRE_OK(mf_engine_eval(engine, items, N_TOGETHER, &error), &error);
    asked together = asked_for(engine);
    close_all(engine, sessions, N_TOGETHER);
    check_union(c->name, &apart, &together);
}

static void test_tokens_together(const golden_case *c, const golden *g)
{
    mf_error error = {0};
    mf_session *session;
    mf_engine *engine = open_all_cached(c, &session, 1);
    for (uint32_t i = 0; i < N_TOKENS; i++)
        REQUIRE_OK(mf_session_eval(session, g->tokens + i, 1, &error), &error);
    asked apart = asked_for(engine);
    close_all(engine, &session, 1);
    engine = open_all_cached(c, &session, 1);
    REQUIRE_OK(mf_session_eval(session, g->tokens, N_TOKENS, &error), &error);
    asked together = asked_for(engine);
    close_all(engine, &session, 1);
    check_union(c->name, &apart, &together);
}

/* ------------------------------------------------------------------------- a routing trace -- */

static cache_trace recorded;

static void record_visit(void *state, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    trace_add(&recorded, layer, experts, n);
    mf_cache_policy_next_use.visit(state, layer, experts, n);
}

static void record_demo(uint32_t n_tokens, uint32_t n_chunk)
{
    mf_error error = {0};
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_tokenizer *tokenizer = NULL;
    mf_engine_options options;
    size_t n_bytes, n_all;
    unsigned char *text = read_file(DEMO "/heldout.txt", &n_bytes);
    REQUIRE_OK(mf_tokenizer_open(DEMO, NULL, &tokenizer, &error), &error);
    int32_t *tokens = malloc(n_bytes * sizeof *tokens);
    REQUIRE(tokens != NULL);
    REQUIRE_OK(mf_tokenizer_encode(tokenizer, (const char *)text, n_bytes, 0, tokens, n_bytes,
                                   &n_all, &error),
               &error);
    REQUIRE(n_all >= n_tokens);
    mf_engine_options_default(&options);
    options.n_context_tokens = n_tokens;
    options.n_chunk_tokens = n_chunk;
    REQUIRE_OK(mf_engine_open(DEMO, &options, &engine, &error), &error);
    mf_cache_policy policy = mf_cache_policy_next_use;
    policy.visit = record_visit;
    engine->runner.store->policy = &policy;
    recorded = (cache_trace){.n_layers = engine->runner.map.n_layers,
                             .n_experts = engine->runner.map.n_experts};
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    REQUIRE_OK(mf_session_eval(session, tokens, n_tokens, &error), &error);
    mf_session_free(&session);
    mf_engine_close(&engine);
    mf_tokenizer_free(&tokenizer);
    free(tokens);
    free(text);
}

static void check_demo(uint32_t n_tokens, uint32_t n_chunk)
{
    const uint32_t percents[] = {10, 25, 50, 75};
    record_demo(n_tokens, n_chunk);
    CHECK_U64(recorded.n_visits, recorded.n_layers * ((n_tokens + n_chunk - 1) / n_chunk));
    for (size_t i = 0; i < sizeof percents / sizeof *percents; i++) {
        uint32_t n_slots = recorded.n_layers * recorded.n_experts * percents[i] / 100;
        double by_lru = sim_hit_rate(&recorded, &mf_cache_policy_lru, n_slots, NULL);
        double got = sim_hit_rate(&recorded, &mf_cache_policy_next_use, n_slots, NULL);
        double best = sim_hit_rate(&recorded, NULL, n_slots, NULL);
        fprintf(stderr,
                "demo, chunks of %3u, slots for %u %%: LRU %.3f, next use %.3f, Belady %.3f\n",
                n_chunk, percents[i], by_lru, got, best);
        CHECK(got >= by_lru && got <= best);
        CHECK(n_chunk < 64 || got >= 0.8 * best);
    }
    trace_free(&recorded);
}

int main(void)
{
    static const char *const names[] = {"mlx_4bit", "next_bf16", "packed"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const golden_case *c = golden_case_find(names[i]);
        golden g;
        golden_read(c, &g);
        test_sessions_together(c, &g);
        test_tokens_together(c, &g);
        golden_free(&g);
    }
    check_demo(N_DEMO_TOKENS, 1);
    check_demo(4 * 256, 256);
    return test_result();
}

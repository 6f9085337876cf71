/* SPDX-License-Identifier: MIT */
/* The counters: in one chunk every expert is read at most once, a cache that holds everything reads
 * nothing twice, and requests add up. */
#include "golden.h"

#include "session/session.h"

typedef struct opened {
    golden g;
    mf_engine *engine;
    mf_session *session;
    mf_model_info info;
} opened;

static opened open_case(const char *name, uint32_t chunk, bool everything)
{
    const golden_case *c = golden_case_find(name);
    mf_engine_options options = golden_options(c);
    opened o = {0};
    mf_error error = {0};
    golden_read(c, &o.g);
    options.n_chunk_tokens = chunk;
    options.predict = MF_PREDICT_OFF; /* what is read is what is asked for */
    options.expert_cache_bytes = 0;
    REQUIRE_OK(mf_model_inspect(golden_path(name), &options, &o.info, &error), &error);
    if (everything)
        options.expert_cache_bytes =
            (uint64_t)o.info.n_layers * o.info.n_experts * o.info.slot_bytes;
    o.engine = golden_open(c, &options);
    mf_engine_info(o.engine, &o.info);
    REQUIRE_OK(mf_session_create(o.engine, &o.session, &error), &error);
    return o;
}

static void close_case(opened *o)
{
    mf_session_free(&o->session);
    mf_engine_close(&o->engine);
    golden_free(&o->g);
}

static mf_stats run(opened *o, size_t n_tokens)
{
    mf_error error = {0};
    mf_stats stats;
    mf_session_clear(o->session);
    mf_engine_stats_reset(o->engine);
    REQUIRE_OK(mf_session_eval(o->session, o->g.tokens, n_tokens, &error), &error);
    mf_engine_stats(o->engine, &stats);
    CHECK_U64(stats.n_tokens, n_tokens);
    CHECK(stats.weight_bytes_touched > stats.expert_bytes_touched);
    CHECK_U64(stats.n_slots, o->info.n_slots);
    CHECK((stats.n_expert_misses == 0) == (stats.read_bytes == 0));
    CHECK(stats.read_bytes >= stats.n_expert_misses * o->info.one_expert_bytes);
    /* direct reads come in whole blocks, at each end of each part */
    CHECK(stats.read_bytes <= stats.n_expert_misses * o->info.slot_bytes);
    CHECK(stats.n_reads >= stats.n_expert_misses && stats.n_reads <= 9 * stats.n_expert_misses);
    return stats;
}

static void test_one_chunk(const char *name)
{
    opened o = open_case(name, 512, false);
    uint64_t n_experts = (uint64_t)o.info.n_layers * o.info.n_experts;
    mf_stats stats = run(&o, o.g.n_tokens);
    CHECK(stats.n_expert_hits + stats.n_expert_misses <= n_experts);
    CHECK(stats.n_expert_misses > n_experts / 2);
    close_case(&o);
}

static void test_decode(const char *name)
{
    opened o = open_case(name, 1, false);
    mf_stats stats = run(&o, 40);
    CHECK_U64(stats.n_expert_hits + stats.n_expert_misses,
              40ull * o.info.n_layers * o.info.n_experts_per_token);
    CHECK_U64(stats.expert_bytes_touched,
              40ull * o.info.n_layers * o.info.n_experts_per_token * o.info.one_expert_bytes);
    close_case(&o);
}

static void test_everything_cached(const char *name)
{
    opened o = open_case(name, 7, true);
    uint64_t n_experts = (uint64_t)o.info.n_layers * o.info.n_experts;
    CHECK_U64(o.info.n_slots, n_experts);
    mf_stats first = run(&o, o.g.n_tokens);
    CHECK(first.n_expert_misses <= n_experts && first.n_expert_hits > 0);
    mf_stats second = run(&o, o.g.n_tokens);
    CHECK_U64(second.n_expert_misses, 0);
    CHECK_U64(second.n_expert_hits, first.n_expert_hits + first.n_expert_misses);
    CHECK_U64(second.n_reads, 0);
    close_case(&o);
}

/* What evaluation costs at least, from the shapes of the config: token by token, and in one chunk,
 * which reads its own cache once. */
static void test_costs(const char *name)
{
    for (uint32_t chunk = 1; chunk <= 64; chunk += 63) {
        opened o = open_case(name, chunk, true);
        const mf_model_info *i = &o.info;
        const uint64_t n = 40, q = (uint64_t)i->n_heads * i->head_dim;
        const uint64_t kv = (uint64_t)i->n_kv_heads * i->head_dim;
        const uint64_t expert = 3ull * i->hidden_size * i->expert_hidden_size;
        const uint64_t layer =
            (2 * q + 2 * kv + i->n_experts) * i->hidden_size + i->n_experts_per_token * expert;
        const uint64_t seen = n * (n + 1) / 2;
        const mf_stats stats = run(&o, n);
        CHECK_U64(stats.n_multiply_adds,
                  i->n_layers * (n * layer + seen * 2 * q) + (uint64_t)i->n_vocab * i->hidden_size);
        CHECK_U64(stats.state_bytes_touched,
                  i->n_layers * (chunk == 1 ? seen : n) * 2 * kv * sizeof(float));
        close_case(&o);
    }
}

/* The same products in any chunks; recurrent states are read and written once for each. */
static void test_costs_by_chunks(const char *name)
{
    opened one = open_case(name, 1, true), all = open_case(name, 64, true);
    const mf_stats a = run(&one, 40), b = run(&all, 40);
    CHECK(a.n_multiply_adds != 0 && b.state_bytes_touched != 0);
    CHECK_U64(a.n_multiply_adds, b.n_multiply_adds);
    CHECK(a.state_bytes_touched > 20 * b.state_bytes_touched);
    close_case(&one);
    close_case(&all);
}

/* What can be seen of each expert adds up to what is counted. */
static void test_states(const char *name)
{
    opened o = open_case(name, 7, true);
    uint8_t states[512];
    uint32_t n_uses[512];
    uint64_t n_asked = 0, n_held = 0;
    mf_stats stats = run(&o, o.g.n_tokens);
    REQUIRE(o.info.n_experts <= 512);
    for (uint32_t layer = 0; layer < o.info.n_moe_layers; layer++) {
        CHECK_U64(mf_engine_expert_states(o.engine, layer, states, n_uses, 512), o.info.n_experts);
        for (uint32_t e = 0; e < o.info.n_experts; e++) {
            n_asked += n_uses[e];
            n_held += states[e] == MF_EXPERT_HELD;
            CHECK(states[e] == MF_EXPERT_HELD || (states[e] == MF_EXPERT_ABSENT && n_uses[e] == 0));
        }
    }
    CHECK_U64(n_asked, stats.n_expert_hits + stats.n_expert_misses);
    CHECK_U64(n_held, stats.n_expert_misses);
    states[1] = 77;
    CHECK_U64(mf_engine_expert_states(o.engine, 0, states, NULL, 1), o.info.n_experts);
    CHECK_U64(states[1], 77);
    CHECK_U64(mf_engine_expert_states(o.engine, o.info.n_moe_layers, states, n_uses, 512), 0);
    CHECK_U64(mf_engine_expert_states(o.engine, UINT32_MAX, NULL, NULL, 0), 0);
    close_case(&o);
}

static int stop(void *user, uint64_t n_done, uint64_t n_total)
{
    (void)user, (void)n_done, (void)n_total;
    return 1;
}

/* Times are those of the store, and what was stopped is not counted. */
static void test_times_and_stops(const char *name)
{
    opened o = open_case(name, 512, false);
    mf_error error = {0};
    mf_expert_stats store;
    mf_stats stats;
    REQUIRE_OK(mf_session_eval(o.session, o.g.tokens, 5, &error), &error);
    mf_session_set_progress(o.session, stop, NULL);
    CHECK_STATUS(mf_session_eval(o.session, o.g.tokens, 3, &error), MF_ERR_CANCELLED);
    mf_session_set_progress(o.session, NULL, NULL);
    mf_engine_stats(o.engine, &stats);
    CHECK_U64(stats.n_tokens, 5);
    /* Which is which is seen where they differ: sooner or later they do. */
    bool differ = false;
    for (uint32_t i = 0; i < 20 && !differ; i++) {
        REQUIRE_OK(mf_session_eval(o.session, o.g.tokens + 5 + i % 3, 1, &error), &error);
        mf_engine_stats(o.engine, &stats);
        mf_expert_store_stats(o.engine->runner.store, &store);
        CHECK_U64(stats.wait_us, store.wait_us);
        CHECK_U64(stats.reading_us, store.reading_us);
        differ = store.reading_us != store.wait_us;
    }
    CHECK(differ);
    close_case(&o);
}

/* What somebody foresaw: taken once, and gone when counters begin anew. */
static void test_foresight(const char *name)
{
    opened o = open_case(name, 64, true);
    const uint32_t experts[] = {0, 1, 2};
    mf_expert_store *store = o.engine->runner.store;
    mf_expert_store_hint(store, 0, experts, 3);
    mf_expert_store_hint(store, 1, experts, 3);
    mf_expert_store_cancel_hints(store); /* what the drive has been asked for comes all the same */
    mf_stats stats;
    mf_expert_stats inside;
    mf_error error = {0};
    REQUIRE_OK(mf_session_eval(o.session, o.g.tokens, 1, &error), &error);
    mf_engine_stats(o.engine, &stats);
    mf_expert_store_stats(store, &inside);
    CHECK_U64(stats.n_hints, 6);
    CHECK_U64(stats.n_hints_useful, inside.n_hints_useful);
    CHECK_U64(stats.n_hints_late, inside.n_hints_late);
    CHECK_U64(stats.n_hints_cancelled, inside.n_hints_cancelled);
    CHECK_U64(stats.n_hints_wasted, 0);
    CHECK(stats.n_hints_useful + stats.n_hints_late + stats.n_hints_cancelled <= 6);
    CHECK_U64(stats.n_queued, 0);
    mf_engine_stats_reset(o.engine);
    mf_engine_stats(o.engine, &stats);
    CHECK(stats.n_hints == 0 && stats.n_hints_cancelled == 0);
    close_case(&o);
}

static void count_warnings(void *user, mf_log_level level, const char *line)
{
    *(int *)user += level == MF_LOG_WARNING && strstr(line, "the expert cache holds") != NULL;
}

/* A cache that holds fewer experts than a token uses is warned of; one that holds them is not. */
static void test_warning(const char *name)
{
    const golden_case *c = golden_case_find(name);
    mf_engine_options options = golden_options(c);
    mf_model_info info;
    mf_error error = {0};
    REQUIRE_OK(mf_model_inspect(golden_path(name), &options, &info, &error), &error);
    const uint64_t n_used = (uint64_t)info.n_moe_layers * info.n_experts_per_token;
    for (uint64_t n = n_used - 1; n <= n_used; n++) {
        int n_warnings = 0;
        options.expert_cache_bytes = n * info.slot_bytes;
        options.log = count_warnings;
        options.log_user = &n_warnings;
        mf_engine *engine = golden_open(c, &options);
        mf_engine_info(engine, &info);
        CHECK_U64(info.n_slots, n);
        CHECK_U64(n_warnings, n < n_used);
        mf_engine_close(&engine);
    }
}

int main(void)
{
    static const char *const names[] = {"mlx_4bit", "hf_bf16", "next_bf16", "packed"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        test_one_chunk(names[i]);
        test_decode(names[i]);
        test_everything_cached(names[i]);
        test_states(names[i]);
        test_times_and_stops(names[i]);
        test_foresight(names[i]);
        test_warning(names[i]);
    }
    test_costs("qwen3_moe_bf16");
    test_costs_by_chunks("next_bf16");
    test_costs_by_chunks("v3_bf16");
    return test_result();
}

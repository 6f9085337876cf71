/* SPDX-License-Identifier: MIT */
/* What replaying a trace counts is what the engine counted when it was recorded. */
#include "golden.h"

#include "../io/cache_sim.h"
#include "routing/routing_format.h"

#include <unistd.h>

#define DEMO "models/demo"
#define TRACE "/tmp/moeflux-replay-test"

typedef struct text {
    int32_t *tokens;
    size_t n;
} text;

static text read_text(void)
{
    mf_error error = {0};
    mf_tokenizer *tokenizer = NULL;
    size_t n_bytes;
    text t;
    unsigned char *bytes = read_file(DEMO "/heldout.txt", &n_bytes);
    REQUIRE_OK(mf_tokenizer_open(DEMO, NULL, &tokenizer, &error), &error);
    t.tokens = malloc(n_bytes * sizeof *t.tokens);
    REQUIRE(t.tokens != NULL);
    REQUIRE_OK(mf_tokenizer_encode(tokenizer, (const char *)bytes, n_bytes, 0, t.tokens, n_bytes,
                                   &t.n, &error),
               &error);
    mf_tokenizer_free(&tokenizer);
    free(bytes);
    return t;
}

/* Slots for a share of all experts, at least those of a token and layer. */
static mf_engine *open_demo(const char *policy, uint32_t n_slots, uint32_t n_chunk,
                            mf_session **session)
{
    mf_error error = {0};
    mf_engine *engine = NULL;
    mf_model_info info;
    mf_engine_options options;
    mf_engine_options_default(&options);
    options.n_context_tokens = 512;
    options.n_chunk_tokens = n_chunk;
    options.cache_policy = policy;
    options.predict = MF_PREDICT_OFF;
    REQUIRE_OK(mf_model_inspect(DEMO, &options, &info, &error), &error);
    options.expert_cache_bytes = n_slots * info.slot_bytes;
    REQUIRE_OK(mf_engine_open(DEMO, &options, &engine, &error), &error);
    mf_engine_info(engine, &info);
    CHECK_U64(info.n_slots, n_slots);
    REQUIRE_OK(mf_session_create(engine, session, &error), &error);
    return engine;
}

/* The trace of the first n tokens, and what the engine counted. */
static mf_stats record(const text *t, const char *policy, uint32_t n_slots, uint32_t n_chunk,
                       size_t n, char *path)
{
    mf_error error = {0};
    mf_session *session = NULL;
    mf_stats stats;
    mf_engine *engine = open_demo(policy, n_slots, n_chunk, &session);
    sprintf(path, "%s.%d", TRACE, (int)getpid());
    REQUIRE_OK(mf_engine_record_routing(engine, path, &error), &error);
    REQUIRE_OK(mf_session_eval(session, t->tokens, n, &error), &error);
    REQUIRE_OK(mf_engine_record_routing(engine, NULL, &error), &error);
    mf_engine_stats(engine, &stats);
    mf_session_free(&session);
    mf_engine_close(&engine);
    return stats;
}

static void check_counts(const char *what, const mf_stats *engine, const mf_replay_result *replay)
{
    CHECK_MSG(
        engine->n_expert_hits == replay->n_expert_hits &&
            engine->n_expert_misses == replay->n_expert_misses,
        "%s: %llu hits and %llu misses, replayed %llu and %llu", what,
        (unsigned long long)engine->n_expert_hits, (unsigned long long)engine->n_expert_misses,
        (unsigned long long)replay->n_expert_hits, (unsigned long long)replay->n_expert_misses);
    CHECK_U64(engine->n_tokens, replay->n_tokens);
    CHECK_U64(engine->n_reads, replay->n_reads);
    /* where blocks of the drive begin in an expert is not in the trace */
    const double share = (double)replay->read_bytes / (double)engine->read_bytes;
    CHECK_MSG(share > 0.97 && share < 1.03, "%s: %.3f of the bytes read", what, share);
}

/* Belady's rule as the tests of policies have it. */
static double best_by_list(const mf_routing *t, uint32_t n_slots)
{
    cache_trace list = {.n_layers = t->head.n_layers, .n_experts = t->head.n_experts};
    for (size_t pass = 0; pass < t->n_passes; pass++)
        for (uint32_t layer = 0; layer < t->head.n_layers; layer++) {
            const mf_routing_pass *p = &t->passes[pass];
            const size_t n = (size_t)p->n_rows * t->head.k;
            uint32_t experts[64], n_experts = 0;
            bool is_wanted[64] = {false};
            for (size_t i = 0; i < n; i++)
                is_wanted[t->ids[p->first_choice + layer * n + i]] = true;
            for (uint32_t e = 0; e < t->head.n_experts; e++)
                if (is_wanted[e])
                    experts[n_experts++] = e;
            trace_add(&list, layer, experts, n_experts);
        }
    const double rate = sim_hit_rate(&list, NULL, n_slots, NULL);
    trace_free(&list);
    return rate;
}

static void check_best(const mf_routing *trace, uint32_t n_slots, const mf_replay_result *r)
{
    const double n = (double)(r->n_expert_hits + r->n_expert_misses);
    const double by_list = best_by_list(trace, n_slots);
    CHECK_MSG(fabs((double)r->n_best_hits / n - by_list) < 1e-9, "Belady: %.6f, by a list %.6f",
              (double)r->n_best_hits / n, by_list);
    CHECK(r->n_best_hits >= r->n_expert_hits);
}

/* One by one: all that a token and layer wants has slots, so that nothing depends on time. */
static void test_agrees(const text *t, const char *policy, uint32_t n_slots, uint32_t n_chunk)
{
    char path[64], what[96];
    mf_error error = {0};
    mf_routing *trace = NULL;
    mf_replay_options options;
    mf_replay_result result;
    const mf_stats counted = record(t, policy, n_slots, n_chunk, 120, path);
    REQUIRE_OK(mf_routing_open(path, NULL, &trace, &error), &error);
    mf_replay_options_default(&options);
    options.n_slots = n_slots;
    options.cache_policy = policy;
    REQUIRE_OK(mf_routing_replay(trace, &options, &result, &error), &error);
    sprintf(what, "%s, %u slots, chunks of %u", policy, n_slots, n_chunk);
    check_counts(what, &counted, &result);
    check_best(trace, n_slots, &result);
    CHECK(result.seconds > 0 && result.wait_seconds < result.seconds);
    mf_routing_close(&trace);
    (void)unlink(path);
}

/* A faster drive is not slower; the same trace gives the same figures. */
static void test_machines(const text *t)
{
    char path[64];
    mf_error error = {0};
    mf_routing *trace = NULL;
    mf_replay_options options;
    mf_replay_result slow, fast, again;
    (void)record(t, "next-use", 64, 1, 100, path);
    REQUIRE_OK(mf_routing_open(path, NULL, &trace, &error), &error);
    mf_replay_options_default(&options);
    options.n_slots = 64;
    options.compute_us = 1000;
    options.drive_bytes_per_second = 1e8;
    REQUIRE_OK(mf_routing_replay(trace, &options, &slow, &error), &error);
    options.drive_bytes_per_second = 1e12;
    options.latency_us = 0;
    REQUIRE_OK(mf_routing_replay(trace, &options, &fast, &error), &error);
    REQUIRE_OK(mf_routing_replay(trace, &options, &again, &error), &error);
    CHECK(memcmp(&fast, &again, sizeof fast) == 0);
    CHECK_U64(slow.n_expert_hits, fast.n_expert_hits);
    CHECK(fabs(fast.seconds - 0.1) < 0.01); /* a millisecond a token */
    /* reading alone, at 0.1 GB/s, and no more than that and computing */
    const double reading = (double)slow.read_bytes / 1e8;
    CHECK(slow.seconds > reading && slow.seconds < 1.2 * (reading + 0.1));
    for (uint32_t reads = 8; reads <= 64; reads += 8) { /* a slot has nine parts at most */
        trace->head.reads_per_expert = reads;
        REQUIRE_OK(mf_routing_replay(trace, &options, &again, &error), &error);
        CHECK_U64(again.n_expert_hits, fast.n_expert_hits);
        CHECK(again.read_bytes > 0);
    }
    options.n_slots = 0;
    options.ram_bytes = 1 << 20;
    CHECK(mf_routing_replay(trace, &options, &slow, &error) == MF_ERR_BUDGET);
    options.cache_policy = "best";
    CHECK(mf_routing_replay(trace, &options, &slow, &error) == MF_ERR_ARGUMENT);
    mf_routing_close(&trace);
    (void)unlink(path);
}

static mf_replay_result replay(const mf_routing *trace, mf_predict predict, double bytes_per_second)
{
    mf_error error = {0};
    mf_replay_options options;
    mf_replay_result result;
    mf_replay_options_default(&options);
    options.n_slots = 64;
    options.compute_us = 4000;
    options.drive_bytes_per_second = bytes_per_second;
    options.predict = predict;
    REQUIRE_OK(mf_routing_replay(trace, &options, &result, &error), &error);
    return result;
}

/* Where the drive would be idle, the next layer's router makes waiting less; what is always wrong
 * costs next to nothing; and where the drive is all there is, neither does harm. */
static void test_foresight(const text *t)
{
    char path[64];
    mf_error error = {0};
    mf_routing *trace = NULL;
    mf_session *session = NULL;
    sprintf(path, "%s.%d", TRACE, (int)getpid());
    mf_engine *engine = NULL;
    mf_engine_options options;
    mf_engine_options_default(&options);
    options.n_context_tokens = 512;
    options.n_chunk_tokens = 1;
    options.expert_cache_bytes = 1 << 20;
    options.predict = MF_PREDICT_NEXT_LAYER;
    REQUIRE_OK(mf_engine_open(DEMO, &options, &engine, &error), &error);
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    REQUIRE_OK(mf_engine_record_routing(engine, path, &error), &error);
    REQUIRE_OK(mf_session_eval(session, t->tokens, 200, &error), &error);
    REQUIRE_OK(mf_engine_record_routing(engine, NULL, &error), &error);
    REQUIRE_OK(mf_routing_open(path, NULL, &trace, &error), &error);
    /* in every pass, whether or not it paid */
    CHECK_U64(trace->n_foretold, (uint64_t)200 * (trace->head.n_layers - 1));
    for (int i = 0; i < 2; i++) {
        const double rate = i == 0 ? 6e8 : 3e7;
        const mf_replay_result off = replay(trace, MF_PREDICT_OFF, rate);
        const mf_replay_result next = replay(trace, MF_PREDICT_NEXT_LAYER, rate);
        const mf_replay_result by_itself = replay(trace, MF_PREDICT_AUTO, rate);
        const mf_replay_result wrong = replay(trace, MF_PREDICT_WRONG, rate);
        fprintf(stderr, "%.0f MB/s: %.3f s, next layer %.3f, auto %.3f, wrong %.3f\n", 1e-6 * rate,
                off.seconds, next.seconds, by_itself.seconds, wrong.seconds);
        CHECK(off.n_hints == 0 && next.n_hints > 0);
        CHECK(i == 1 || next.wait_seconds < 0.7 * off.wait_seconds);
        CHECK(i == 1 || next.n_expert_hits > off.n_expert_hits);
        CHECK(next.seconds <= 1.02 * off.seconds && by_itself.seconds <= 1.02 * off.seconds);
        CHECK(wrong.seconds <= 1.02 * off.seconds);
        CHECK(next.n_hints_useful + next.n_hints_late > 2 * next.n_hints_wasted);
    }
    mf_routing_close(&trace);
    mf_session_free(&session);
    mf_engine_close(&engine);
    (void)unlink(path);
}

/* An engine that follows a trace asks for what the trace asked for. */
static void test_follow(const text *t)
{
    char path[64], other[80];
    mf_error error = {0};
    mf_session *session = NULL;
    mf_routing *trace = NULL, *followed = NULL;
    int32_t any[100] = {0};
    mf_stats stats;
    const mf_stats counted = record(t, "next-use", 64, 1, 100, path);
    sprintf(other, "%s.followed", path);
    mf_engine *engine = open_demo("next-use", 64, 1, &session);
    REQUIRE_OK(mf_routing_open(path, NULL, &trace, &error), &error);
    REQUIRE_OK(mf_engine_follow_routing(engine, trace, &error), &error);
    REQUIRE_OK(mf_engine_record_routing(engine, other, &error), &error);
    REQUIRE_OK(mf_session_eval(session, any, 100, &error), &error);
    REQUIRE_OK(mf_engine_record_routing(engine, NULL, &error), &error);
    mf_engine_stats(engine, &stats);
    CHECK_U64(stats.n_expert_hits, counted.n_expert_hits);
    REQUIRE_OK(mf_routing_open(other, NULL, &followed, &error), &error);
    CHECK(trace->n_choices == followed->n_choices &&
          memcmp(trace->ids, followed->ids, trace->n_choices * sizeof *trace->ids) == 0);
    REQUIRE_OK(mf_engine_follow_routing(engine, NULL, &error), &error);
    mf_session_free(&session);
    mf_engine_close(&engine);
    mf_routing_close(&trace);
    mf_routing_close(&followed);
    (void)unlink(path);
    (void)unlink(other);
}

/* Of the layer that a made-up trace has, the experts of its only token. */
static int32_t made_up(uint32_t layer, uint32_t i)
{
    return (int32_t)(4 * layer + i);
}

/* A trace of one token and three layers: layer l chooses 4 l to 4 l + 3, as was foretold of all but
 * the first. */
static mf_routing *make_trace(const mf_routing_head *of, const char *path)
{
    static const float weights[4] = {1, 1, 1, 1};
    const mf_routing_part part = {.n_rows = 1};
    mf_error error = {0};
    mf_routing_head head = *of;
    mf_routing_writer *writer = NULL;
    mf_routing *trace = NULL;
    head.n_layers = 3;
    REQUIRE(head.k == 4);
    REQUIRE_OK(mf_routing_writer_open(NULL, path, &head, 1, 1, &writer, &error), &error);
    mf_routing_writer_begin(writer, &part, 1, 1);
    for (uint32_t layer = 0; layer < head.n_layers; layer++) {
        int32_t ids[4];
        for (uint32_t i = 0; i < head.k; i++)
            ids[i] = made_up(layer, i);
        mf_routing_writer_layer(writer, layer, ids, weights);
        if (layer > 0)
            mf_routing_writer_foretold(writer, layer, ids, head.k);
    }
    REQUIRE_OK(mf_routing_writer_commit(writer, 10, 0, &error), &error);
    REQUIRE_OK(mf_routing_writer_close(&writer, &error), &error);
    REQUIRE_OK(mf_routing_open(path, NULL, &trace, &error), &error);
    return trace;
}

/* A model that has more layers than the trace: of all but its first one the trace has something,
 * and what it has was foretold. */
static void test_follow_deeper(const text *t)
{
    char path[64], other[80];
    mf_error error = {0};
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_engine_options options;
    mf_routing *own = NULL, *followed = NULL;
    const int32_t any = 0;
    (void)record(t, "next-use", 64, 1, 1, path);
    REQUIRE_OK(mf_routing_open(path, NULL, &own, &error), &error);
    REQUIRE(own->head.n_layers > 5);
    sprintf(other, "%s.followed", path);
    mf_routing *trace = make_trace(&own->head, path);
    mf_engine_options_default(&options);
    options.predict = MF_PREDICT_NEXT_LAYER;
    options.n_context_tokens = 16;
    REQUIRE_OK(mf_engine_open(DEMO, &options, &engine, &error), &error);
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    REQUIRE_OK(mf_engine_follow_routing(engine, trace, &error), &error);
    REQUIRE_OK(mf_engine_record_routing(engine, other, &error), &error);
    REQUIRE_OK(mf_session_eval(session, &any, 1, &error), &error);
    REQUIRE_OK(mf_engine_record_routing(engine, NULL, &error), &error);
    REQUIRE_OK(mf_routing_open(other, NULL, &followed, &error), &error);
    for (uint32_t layer = 0; layer < own->head.n_layers; layer++)
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t of = layer == 0 ? 0 : layer % 2 == 1 ? 1 : 2;
            CHECK_U64(followed->ids[layer * 4 + i], (uint64_t)made_up(of, i));
            CHECK(layer == 0 || followed->foretold[layer * 4 + i] == made_up(of, i));
        }
    CHECK_U64(followed->n_foretold, own->head.n_layers - 1);
    REQUIRE_OK(mf_engine_follow_routing(engine, NULL, &error), &error);
    mf_session_free(&session);
    mf_engine_close(&engine);
    mf_routing_close(&own);
    mf_routing_close(&trace);
    mf_routing_close(&followed);
    (void)unlink(path);
    (void)unlink(other);
}

int main(void)
{
    static const char *const policies[] = {"next-use", "lru", "lfu"};
    static const uint32_t slots[] = {4, 25, 128, 256};
    text t = read_text();
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        for (size_t j = 0; j < sizeof slots / sizeof *slots; j++)
            test_agrees(&t, policies[i], slots[j], 1);
    test_agrees(&t, "next-use", 64, 8); /* at most 32 a layer */
    test_agrees(&t, "lru", 128, 100);
    test_machines(&t);
    test_follow(&t);
    test_follow_deeper(&t);
    test_foresight(&t);
    free(t.tokens);
    return test_result();
}

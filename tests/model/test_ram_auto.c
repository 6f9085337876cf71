/* SPDX-License-Identifier: MIT */
/*
 * A cache that follows the memory, by a machine made of numbers: slots are given back within a
 * second, while tokens are evaluated and while nothing is, and their memory goes back to the kernel
 * in fact; they are taken again; not a bit changes. Where a budget was given nothing moves.
 */
#include "golden.h"

#include "base/clock.h"
#include "experts/store_impl.h"
#include "session/engine_memory.h"
#include "session/session.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define N_TOKENS 16u

typedef struct machine {
    atomic_ullong available;
    atomic_uint n_samples;
} machine;

/* Its seconds are short, so that the test is. */
static void take_sample(void *ctx, mf_memory_sample *out)
{
    machine *m = ctx;
    m->n_samples++;
    *out = (mf_memory_sample){
        .now_us = 10 * mf_now_us(), .available_bytes = m->available, .total_bytes = 16 * GIB};
}

static mf_engine *open_it(const golden_case *c, machine *m, uint64_t ram_bytes)
{
    const mf_engine_hooks hooks = {.memory_sample = take_sample, .memory_ctx = m};
    mf_engine_options options = golden_options(c);
    mf_engine *engine = NULL;
    mf_error error = {0};
    options.ram_bytes = ram_bytes;
    options.n_threads = 2;
    REQUIRE_OK(mf_engine_open_with(golden_path(c->name), &options, &hooks, &engine, &error),
               &error);
    return engine;
}

/* Logits of all tokens, one by one, which are to be those that were expected, if any are. */
static void evaluate(mf_engine *engine, const golden *g, float *expected, bool is_first)
{
    mf_error error = {0};
    mf_session *session = NULL;
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        float *at = expected + (size_t)i * g->n_vocab;
        REQUIRE_OK(mf_session_eval(session, g->tokens + i, 1, &error), &error);
        if (is_first)
            memcpy(at, mf_session_logits(session), g->n_vocab * sizeof *at);
        CHECK(memcmp(at, mf_session_logits(session), g->n_vocab * sizeof *at) == 0);
    }
    mf_session_free(&session);
}

static uint64_t slots_now(const mf_engine *engine)
{
    mf_stats stats;
    mf_engine_stats(engine, &stats);
    return stats.n_slots;
}

/* Whatever else runs here: only what never comes fails. */
#define LONG_US 60000000u

static bool wait_for_slots(const mf_engine *engine, uint64_t least, uint64_t most)
{
    for (const uint64_t began_us = mf_now_us(); mf_now_us() < began_us + LONG_US; usleep(1000)) {
        const uint64_t n = slots_now(engine);
        if (n >= least && n <= most)
            return true;
    }
    return false;
}

/* In a turn: the thread that looks at the memory has its own. */
static uint32_t count_held(mf_engine *engine)
{
    const mf_expert_store *store = engine->runner.store;
    mf_error error = {0};
    uint32_t n = 0;
    REQUIRE_OK(mf_engine_take_turn(engine, &error), &error);
    for (uint32_t i = 0; i < store->n_slots; i++) {
        n += store->slots[i].state != MF_SLOT_EMPTY;
        CHECK(store->slots[i].state == MF_SLOT_EMPTY || store->slot_of[store->slots[i].key] == i);
    }
    mf_engine_end_turn(engine);
    return n;
}

/* The expert store lets go of some at a time. */
static void wait_for_held(mf_engine *engine, uint64_t most)
{
    for (const uint64_t began_us = mf_now_us();
         count_held(engine) > most && mf_now_us() < began_us + LONG_US;)
        usleep(1000);
}

static void test_follows(const golden_case *c)
{
    golden g;
    golden_read(c, &g);
    machine m = {8 * GIB, 0};
    float *expected = malloc((size_t)N_TOKENS * g.n_vocab * sizeof *expected);
    REQUIRE(expected != NULL);
    mf_engine *engine = open_it(c, &m, 0);
    const uint64_t all = slots_now(engine), least = engine->info.n_experts_per_token;
    REQUIRE(engine->memory != NULL && all > 2 * least);
    evaluate(engine, &g, expected, true);
    const uint32_t n_held = count_held(engine);
    m.available = 1; /* while nothing is evaluated */
    CHECK(wait_for_slots(engine, least, least));
    wait_for_held(engine, least);
    CHECK_MSG(count_held(engine) <= least && n_held > least, "%u are held", count_held(engine));
    evaluate(engine, &g, expected, false);
    m.available = 8 * GIB; /* while tokens are: only what is filled grows */
    const uint64_t began_us = mf_now_us();
    while (slots_now(engine) < n_held && mf_now_us() < began_us + LONG_US)
        evaluate(engine, &g, expected, false);
    CHECK(slots_now(engine) >= n_held);
    for (uint32_t i = 0; i < 20; i++) { /* and both at once */
        m.available = i % 2 == 0 ? 1 : 8 * GIB;
        evaluate(engine, &g, expected, false);
    }
    mf_engine_close(&engine);
    m.available = 1;
    m.n_samples = 0;
    engine = open_it(c, &m, 2 * GIB); /* a promise */
    CHECK(engine->memory == NULL);
    evaluate(engine, &g, expected, false);
    CHECK_U64(slots_now(engine), all);
    CHECK_U64(m.n_samples, 0);
    mf_engine_close(&engine);
    free(expected);
    golden_free(&g);
}

/* Of the slots' memory, by the page tables: what the whole process holds is also what a sanitizer
 * notes of memory, which grows as this is given back. */
static uint64_t resident_bytes(const mf_engine *engine)
{
    const mf_expert_store *store = engine->runner.store;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), n_slots = store->n_slots;
    unsigned char *begin = store->memory.host;
    const size_t n_bytes = store->slot_at[n_slots - 1] + engine->info.slot_bytes;
    const size_t n_pages = n_bytes / page;
    unsigned char *is_held = malloc(n_pages);
    uint64_t n = 0;
    REQUIRE(is_held != NULL && (uintptr_t)begin % page == 0);
    REQUIRE(mincore(begin, n_pages * page, is_held) == 0);
    for (size_t i = 0; i < n_pages; i++)
        n += is_held[i] & 1;
    free(is_held);
    return n * page;
}

/* The demo model: of many pages. */
static void test_resident(void)
{
    machine m = {8 * GIB, 0};
    const mf_engine_hooks hooks = {.memory_sample = take_sample, .memory_ctx = &m};
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_error error = {0};
    int32_t tokens[256];
    if (access("models/demo/config.json", R_OK) != 0)
        return;
    for (int32_t i = 0; i < 256; i++)
        tokens[i] = 3 + 17 * i % 900;
    REQUIRE_OK(mf_engine_open_with("models/demo", NULL, &hooks, &engine, &error), &error);
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    REQUIRE_OK(mf_session_eval(session, tokens, 256, &error), &error);
    const uint64_t held = count_held(engine) * engine->info.slot_bytes;
    const uint64_t before = resident_bytes(engine);
    CHECK(held > 16 * MIB && before >= held / 10 * 9);
    m.available = 1;
    CHECK(wait_for_slots(engine, 1, engine->info.n_experts_per_token));
    wait_for_held(engine, engine->info.n_experts_per_token);
    const uint64_t after = resident_bytes(engine);
    CHECK_MSG(after <= held / 10, "of %llu KiB held, %llu KiB are there still",
              (unsigned long long)held / 1024, (unsigned long long)after / 1024);
    REQUIRE_OK(mf_session_eval(session, tokens, 8, &error), &error);
    mf_session_free(&session);
    mf_engine_close(&engine);
}

int main(void)
{
    static const char *const names[] = {"mlx_4bit", "v3_fp8"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        test_follows(golden_case_find(names[i]));
    test_resident();
    return test_result();
}

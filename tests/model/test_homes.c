/* SPDX-License-Identifier: MIT */
/*
 * Engines on this machine as if it had several nodes, all of them the one that there is: rows are
 * shared out, threads have homes, tasks are sorted by them, and not a bit changes.
 */
#include "golden.h"
#include "session/engine.h"

#include <sched.h>

static mf_numa_nodes nodes;

/* n nodes, each of them with all CPUs of this process and the memory of node 0. */
static void make_nodes(uint32_t n)
{
    nodes = (mf_numa_nodes){.n = n};
    for (uint32_t i = 0; i < n; i++) {
        nodes.node[i].n_cpus = 1;
        REQUIRE(sched_getaffinity(0, sizeof nodes.node[i].cpus,
                                  (cpu_set_t *)(void *)nodes.node[i].cpus) == 0);
    }
}

static mf_status open_at_home(void *ctx, const mf_backend_options *options, mf_backend **out,
                              mf_error *error)
{
    (void)ctx;
    mf_backend_options with = *options;
    with.nodes = &nodes;
    return mf_backend_open(&with, out, error);
}

static mf_engine *open_it(const char *path, const mf_engine_options *options)
{
    const mf_engine_hooks hooks = {.open_backend = open_at_home};
    mf_engine *engine = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_engine_open_with(path, options, &hooks, &engine, &error), &error);
    return engine;
}

/* A prompt in chunks, so that experts have few tokens and many, then tokens one by one. */
static void evaluate(mf_engine *engine, const golden *g, float *logits)
{
    mf_session *session = NULL;
    mf_error error = {0};
    const size_t n_prompt = g->n_tokens - 4;
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    REQUIRE_OK(golden_eval(session, g->tokens, n_prompt, g->n_vocab, logits, &error), &error);
    for (size_t i = n_prompt; i < g->n_tokens; i++)
        REQUIRE_OK(
            golden_eval(session, g->tokens + i, 1, g->n_vocab, logits + i * g->n_vocab, &error),
            &error);
    mf_session_free(&session);
}

static void test_same_bits(const char *name)
{
    static const uint32_t n_nodes[] = {2, 3};
    const golden_case *c = golden_case_find(name);
    golden g;
    golden_read(c, &g);
    mf_engine_options options = golden_options(c);
    options.n_threads = 3;
    options.n_chunk_tokens = 16;
    options.expert_cache_bytes = 0;
    options.numa = MF_NUMA_OFF;
    const size_t n = (size_t)g.n_tokens * g.n_vocab;
    float *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
    REQUIRE(want != NULL && got != NULL);
    mf_engine *engine = golden_open(c, &options);
    evaluate(engine, &g, want);
    mf_engine_close(&engine);
    for (size_t i = 0; i < sizeof n_nodes / sizeof *n_nodes; i++) {
        make_nodes(n_nodes[i]);
        engine = open_it(golden_path(c->name), &options);
        evaluate(engine, &g, got);
        CHECK_MSG(memcmp(got, want, n * sizeof *got) == 0, "%s, %u nodes: other bits", name,
                  n_nodes[i]);
        mf_engine_close(&engine);
    }
    free(want);
    free(got);
    golden_free(&g);
}

/* What memory gives, each chunk read at home. */
static void test_measured(void)
{
    mf_engine_options options;
    mf_error error = {0};
    double bytes = 0, fma = 0;
    mf_engine_options_default(&options);
    options.n_threads = 2;
    options.n_context_tokens = 64;
    make_nodes(2);
    mf_engine *engine = open_it("models/demo", &options);
    REQUIRE_OK(mf_engine_measure_compute(engine, 5, &bytes, &fma, &error), &error);
    CHECK(bytes > 0 && fma > 0);
    mf_engine_close(&engine);
}

int main(void)
{
    static const char *const names[] = {"mlx_4bit", "v3_fp8", "gguf_35_q4_k", "gpt_oss_mxfp4"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        test_same_bits(names[i]);
    test_measured();
    return test_result();
}

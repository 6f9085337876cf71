/* SPDX-License-Identifier: MIT */
/*
 * Experts that the CPU multiplies, and that are lent to the dense layers' device for long runs
 * (src/forward/lend.c, expert_device "hybrid"). A long run has the bits that it has where the
 * device multiplies all experts, whatever its chunks, the cache of experts, and what is evaluated
 * beside it; a token after it those of an engine whose experts the CPU multiplies, from the same
 * state on. Layers that are given to the device (src/forward/give.c, "hybrid:N") have the device's
 * bits in both; where all are, so has everything. Skipped where there is no device.
 */
#include "backend/vulkan_open.h"
#include "golden.h"
#include "routing/routing_format.h"
#include "session/session.h"

#include <stdlib.h>
#include <unistd.h>

enum { N_LONG = 140, N_AFTER = 4, N_CONTEXT = 192 };

/* Experts of the least cache are lent a few at a time. */
typedef struct variant {
    const char *experts;
    uint32_t n_chunk;
    uint64_t cache_bytes;
} variant;

static mf_engine *open_engine(const golden_case *c, const variant *v)
{
    mf_engine_options options = golden_options(c);
    options.device = vulkan_test_device();
    options.expert_device = v->experts;
    options.n_threads = 2;
    options.n_sessions = 3;
    options.n_context_tokens = N_CONTEXT;
    options.n_chunk_tokens = v->n_chunk;
    options.expert_cache_bytes = v->cache_bytes;
    return golden_open(c, &options);
}

/* A text of N_LONG + N_AFTER tokens. */
static void make_tokens(const golden *g, int32_t *tokens)
{
    for (uint32_t i = 0; i < N_LONG + N_AFTER; i++)
        tokens[i] = g->tokens[(i * 7 + i / g->n_tokens) % g->n_tokens];
}

/* Logits at the end of a long run; and those of the tokens after it, one by one, from the state
 * `from` (NULL: where the run ended), which is put to *kept if that is not NULL. */
typedef struct results {
    float *of_run, *after;
} results;

static results make_results(uint32_t n_vocab)
{
    results r = {calloc(n_vocab, sizeof *r.of_run),
                 calloc((size_t)N_AFTER * n_vocab, sizeof *r.after)};
    REQUIRE(r.of_run != NULL && r.after != NULL);
    return r;
}

static void free_results(results *r)
{
    free(r->of_run);
    free(r->after);
}

static void eval_after(mf_session *session, const int32_t *tokens, uint32_t n_vocab, results *out)
{
    mf_error error = {0};
    for (uint32_t i = 0; i < N_AFTER; i++) {
        REQUIRE_OK(mf_session_eval(session, tokens + N_LONG + i, 1, &error), &error);
        memcpy(out->after + (size_t)i * n_vocab, mf_session_logits(session),
               n_vocab * sizeof *out->after);
    }
}

static results eval_all(mf_session *session, const int32_t *tokens, uint32_t n_vocab)
{
    mf_error error = {0};
    results r = make_results(n_vocab);
    REQUIRE_OK(mf_session_eval(session, tokens, N_LONG, &error), &error);
    memcpy(r.of_run, mf_session_logits(session), n_vocab * sizeof *r.of_run);
    eval_after(session, tokens, n_vocab, &r);
    return r;
}

/* The state after the long run goes from one engine to another. */
static void hand_over(mf_engine *from, mf_session *to, const int32_t *tokens)
{
    mf_error error = {0};
    mf_session *session = golden_session(from);
    REQUIRE_OK(mf_session_eval(session, tokens, N_LONG, &error), &error);
    const size_t n_bytes = (size_t)mf_snapshot_bytes(session);
    unsigned char *bytes = malloc(n_bytes);
    REQUIRE(bytes != NULL);
    REQUIRE_OK(mf_snapshot_save(session, bytes, n_bytes, &error), &error);
    REQUIRE_OK(mf_snapshot_load(to, bytes, n_bytes, &error), &error);
    free(bytes);
    mf_session_free(&session);
}

/* What the two devices make of it by themselves. */
static results expected(const golden_case *c, const int32_t *tokens, uint32_t n_vocab)
{
    const variant there = {NULL, N_LONG, MF_EXPERT_CACHE_AUTO};
    const variant here = {"cpu", N_LONG, MF_EXPERT_CACHE_AUTO};
    mf_engine *device = open_engine(c, &there), *cpu = open_engine(c, &here);
    mf_session *session = golden_session(device);
    results r = eval_all(session, tokens, n_vocab);
    mf_session_free(&session);
    session = golden_session(cpu);
    hand_over(device, session, tokens);
    results after = make_results(n_vocab);
    eval_after(session, tokens, n_vocab, &after);
    CHECK(memcmp(r.after, after.after, n_vocab * sizeof *r.after) != 0);
    memcpy(r.after, after.after, (size_t)N_AFTER * n_vocab * sizeof *r.after);
    free_results(&after);
    mf_session_free(&session);
    mf_engine_close(&device);
    mf_engine_close(&cpu);
    return r;
}

static void check_same(const results *got, const results *want, uint32_t n_vocab)
{
    CHECK_BYTES(got->of_run, want->of_run, n_vocab * sizeof *got->of_run);
    CHECK_BYTES(got->after, want->after, (size_t)N_AFTER * n_vocab * sizeof *got->after);
}

/* A long run beside a session that decodes: each step has rows of both. */
static void check_beside(mf_engine *engine, const int32_t *tokens, uint32_t n_vocab,
                         const results *want)
{
    mf_error error = {0};
    mf_session *run = golden_session(engine), *other = golden_session(engine);
    results r = make_results(n_vocab);
    uint32_t n_steps = 0;
    REQUIRE_OK(mf_session_eval(other, tokens, N_LONG, &error), &error);
    for (size_t done = 0; done < N_LONG; n_steps++) {
        mf_step_item items[] = {{.struct_bytes = sizeof *items,
                                 .session = run,
                                 .tokens = tokens + done,
                                 .n_tokens = N_LONG - done},
                                {.struct_bytes = sizeof *items,
                                 .session = other,
                                 .tokens = tokens + N_LONG + n_steps,
                                 .n_tokens = n_steps < N_AFTER ? 1 : 0}};
        REQUIRE_OK(mf_engine_step(engine, items, 2, &error), &error);
        REQUIRE(items[0].status == MF_OK && items[1].status == MF_OK && items[0].n_done != 0);
        done += items[0].n_done;
        if (n_steps < N_AFTER)
            memcpy(r.after + (size_t)n_steps * n_vocab, mf_session_logits(other),
                   n_vocab * sizeof *r.after);
    }
    CHECK(n_steps >= N_AFTER);
    memcpy(r.of_run, mf_session_logits(run), n_vocab * sizeof *r.of_run);
    check_same(&r, want, n_vocab);
    free_results(&r);
    mf_session_free(&run);
    mf_session_free(&other);
}

/* A trace names the sessions of both passes that a step is. */
static void check_traced(mf_engine *engine, const int32_t *tokens)
{
    char path[64];
    mf_error error = {0};
    mf_routing *trace = NULL;
    mf_session *other = golden_session(engine), *run = golden_session(engine);
    mf_step_item items[] = {
        {.struct_bytes = sizeof *items, .session = other, .tokens = tokens, .n_tokens = 1},
        {.struct_bytes = sizeof *items, .session = run, .tokens = tokens, .n_tokens = N_LONG}};
    snprintf(path, sizeof path, "/tmp/moeflux-lend-%d", (int)getpid());
    REQUIRE_OK(mf_engine_record_routing(engine, path, &error), &error);
    REQUIRE_OK(mf_engine_step(engine, items, 2, &error), &error);
    REQUIRE_OK(mf_engine_record_routing(engine, NULL, &error), &error);
    REQUIRE_OK(mf_routing_open(path, NULL, &trace, &error), &error);
    unlink(path);
    REQUIRE(trace->n_passes == 2 && trace->n_parts == 2);
    CHECK_U64(trace->parts[0].n_rows, items[1].n_done);
    CHECK_U64(trace->parts[1].n_rows, 1);
    CHECK(trace->parts[0].sequence != trace->parts[1].sequence);
    mf_routing_close(&trace);
    mf_session_free(&other);
    mf_session_free(&run);
}

/* A pass that ends in the middle, and the next one. */
static void check_cancelled(mf_engine *engine, const int32_t *tokens, uint32_t n_vocab,
                            const results *want)
{
    mf_error error = {0};
    mf_session *session = golden_session(engine);
    golden_stopper s = {.at = 2};
    mf_session_set_progress(session, golden_stop, &s);
    CHECK_STATUS(mf_session_eval(session, tokens, N_LONG, &error), MF_ERR_CANCELLED);
    mf_session_set_progress(session, NULL, NULL);
    results r = eval_all(session, tokens, n_vocab);
    check_same(&r, want, n_vocab);
    free_results(&r);
    mf_session_free(&session);
}

/* Small chunks: there are steps of both kinds of rows. Few slots: experts are lent as they come. */
enum { SMALL_CHUNKS = 1, FEW_SLOTS = 2 };
static const variant small_chunks = {"hybrid", 33, MF_EXPERT_CACHE_AUTO};
static const variant few_slots = {"hybrid", 48, 0};

static void check_variant(const golden_case *c, const variant *v, const int32_t *tokens,
                          uint32_t n_vocab, const results *want)
{
    mf_engine *engine = open_engine(c, v);
    CHECK(engine->runner.lending.is_on);
    if (v == &small_chunks) {
        check_traced(engine, tokens);
        check_beside(engine, tokens, n_vocab, want);
    } else {
        check_cancelled(engine, tokens, n_vocab, want);
    }
    mf_engine_close(&engine);
}

/* ---------------------------------------- layers that are given ----------------------------- */

/* What comes out of the layers for one token. */
typedef struct hidden_rows {
    float *rows; /* [n_layers, n_cols] */
    size_t n_cols;
} hidden_rows;

static void keep_hidden(void *user, uint32_t layer, uint64_t first_position, uint32_t n_tokens,
                        const float *hidden)
{
    hidden_rows *h = user;
    (void)first_position;
    REQUIRE(n_tokens == 1);
    memcpy(h->rows + layer * h->n_cols, hidden, h->n_cols * sizeof *hidden);
}

static void free_hidden(hidden_rows *h)
{
    free(h->rows);
}

/* Of the first token after the run. */
static hidden_rows trace_token(mf_engine *engine, const int32_t *tokens)
{
    mf_session *session = golden_session(engine);
    mf_error error = {0};
    mf_model_info info;
    mf_engine_info(engine, &info);
    hidden_rows h = {calloc((size_t)info.n_layers * info.hidden_size, sizeof(float)),
                     info.hidden_size};
    REQUIRE(h.rows != NULL);
    REQUIRE_OK(mf_session_eval(session, tokens, N_LONG, &error), &error);
    REQUIRE_OK(mf_session_set_trace(session, keep_hidden, &h, &error), &error);
    REQUIRE_OK(mf_session_eval(session, tokens + N_LONG, 1, &error), &error);
    mf_session_free(&session);
    return h;
}

/* What an engine makes of the text, and what comes out of its layers. */
static results eval_on(const golden_case *c, const variant *v, const int32_t *tokens,
                       uint32_t n_vocab, hidden_rows *hidden)
{
    mf_engine *engine = open_engine(c, v);
    mf_session *session = golden_session(engine);
    results r = eval_all(session, tokens, n_vocab);
    mf_session_free(&session);
    *hidden = trace_token(engine, tokens);
    mf_engine_close(&engine);
    return r;
}

/* The layer that is given, the first with experts, has the device's bits, the next one others:
 * those of the CPU. Dense layers come first here. */
static void check_first_layers(const hidden_rows *one, const hidden_rows *device,
                               const mf_model_info *info)
{
    const uint32_t next = info->n_layers - info->n_moe_layers + 1;
    const size_t n_bytes = one->n_cols * sizeof *one->rows;
    CHECK_BYTES(one->rows, device->rows, next * n_bytes);
    CHECK(memcmp(one->rows + next * one->n_cols, device->rows + next * one->n_cols, n_bytes) != 0);
}

enum { ALONE = 1, CANCELLED = 2, BESIDE = 4 };

/* An engine of the variant makes of a text what `want` says, by itself, once more after it was
 * cancelled, and beside another. */
static void check_given(const golden_case *c, const variant *v, unsigned ways,
                        const int32_t *tokens, uint32_t n_vocab, const results *want)
{
    mf_engine *engine = ways != 0 ? open_engine(c, v) : NULL;
    if ((ways & ALONE) != 0) {
        mf_session *session = golden_session(engine);
        results r = eval_all(session, tokens, n_vocab);
        check_same(&r, want, n_vocab);
        free_results(&r);
        mf_session_free(&session);
    }
    if ((ways & CANCELLED) != 0)
        check_cancelled(engine, tokens, n_vocab, want);
    if ((ways & BESIDE) != 0)
        check_beside(engine, tokens, n_vocab, want);
    mf_engine_close(&engine);
}

/* What a device of so many bytes is given, and what it has to have. */
static uint64_t given(const golden_case *c, const char *experts, uint64_t device_bytes,
                      mf_model_info *info)
{
    mf_engine_options options = golden_options(c);
    mf_error error = {0};
    options.device = vulkan_test_device();
    options.expert_device = experts;
    options.device_bytes = device_bytes;
    REQUIRE_OK(mf_model_inspect(golden_path(c->name), &options, info, &error), &error);
    return info->device_floor_bytes;
}

static void check_auto(const golden_case *c)
{
    mf_model_info info;
    char all[32];
    const uint64_t most = (uint64_t)1 << 32;
    const uint64_t none = given(c, "hybrid", most, &info), one = given(c, "hybrid:1", most, &info);
    snprintf(all, sizeof all, "hybrid:%u", info.n_moe_layers);
    CHECK(one > none);
    (void)given(c, "hybrid:auto", most, &info);
    CHECK_STR(info.expert_device, all);
    (void)given(c, "hybrid:auto", one, &info);
    CHECK_STR(info.expert_device, "hybrid:1");
    (void)given(c, "hybrid:auto", one - 1, &info);
    CHECK_STR(info.expert_device, "hybrid");
}

static const char *all_layers(const golden_case *c)
{
    static char name[32];
    mf_model_info info;
    (void)given(c, NULL, 0, &info);
    snprintf(name, sizeof name, "hybrid:%u", info.n_moe_layers);
    return name;
}

/* One layer: the same bits with whatever chunks and cache. All: those of the device. */
static void check_given_layers(const char *name, bool is_short)
{
    const golden_case *c = golden_case_find(name);
    int32_t tokens[N_LONG + N_AFTER];
    golden g;
    golden_read(c, &g);
    make_tokens(&g, tokens);
    const variant whole = {NULL, N_LONG, MF_EXPERT_CACHE_AUTO};
    const variant all = {all_layers(c), 33, MF_EXPERT_CACHE_AUTO};
    const variant one = {"hybrid:1", N_LONG, MF_EXPERT_CACHE_AUTO};
    const variant small = {"hybrid:1", 33, MF_EXPERT_CACHE_AUTO}, few = {"hybrid:1", 48, 0};
    mf_model_info info;
    hidden_rows hidden_there, hidden_both;
    results there = eval_on(c, &whole, tokens, g.n_vocab, &hidden_there);
    results both = eval_on(c, &one, tokens, g.n_vocab, &hidden_both);
    (void)given(c, "hybrid:1", 0, &info);
    check_first_layers(&hidden_both, &hidden_there, &info);
    CHECK_BYTES(there.of_run, both.of_run, g.n_vocab * sizeof(float));
    CHECK(memcmp(there.after, both.after, g.n_vocab * sizeof(float)) != 0);
    check_given(c, &all, is_short ? ALONE : ALONE | CANCELLED | BESIDE, tokens, g.n_vocab, &there);
    check_given(c, &small, is_short ? BESIDE : ALONE | CANCELLED | BESIDE, tokens, g.n_vocab,
                &both);
    check_given(c, &few, is_short ? 0 : ALONE | CANCELLED, tokens, g.n_vocab, &both);
    free_hidden(&hidden_there);
    free_hidden(&hidden_both);
    free_results(&there);
    free_results(&both);
    golden_free(&g);
}

static void check_case(const char *name, unsigned variants)
{
    const golden_case *c = golden_case_find(name);
    int32_t tokens[N_LONG + N_AFTER];
    golden g;
    golden_read(c, &g);
    make_tokens(&g, tokens);
    results want = expected(c, tokens, g.n_vocab);
    if ((variants & SMALL_CHUNKS) != 0)
        check_variant(c, &small_chunks, tokens, g.n_vocab, &want);
    if ((variants & FEW_SLOTS) != 0)
        check_variant(c, &few_slots, tokens, g.n_vocab, &want);
    free_results(&want);
    golden_free(&g);
}

static void check_refused(const char *name)
{
    static const char *const wrong[] = {"hybrid:99", "hybrid:", "hybrid:-1",
                                        "hybrid:1x", "hybrids", "hybrid:1234567"};
    const golden_case *c = golden_case_find(name);
    mf_engine_options options = golden_options(c);
    mf_engine *engine = NULL;
    mf_error error = {0};
    options.device = vulkan_test_device();
    options.expert_device = "hybrid";
    options.n_draft_tokens = 1;
    CHECK_STATUS(mf_engine_open(golden_path(c->name), &options, &engine, &error),
                 MF_ERR_UNSUPPORTED);
    CHECK_CONTAINS(error.message, "n_draft_tokens");
    options.n_draft_tokens = 0;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        options.expert_device = wrong[i];
        CHECK_STATUS(mf_engine_open(golden_path(c->name), &options, &engine, &error),
                     MF_ERR_ARGUMENT);
        CHECK_CONTAINS(error.message,
                       i == 0 ? "layers have experts, which is the most" : "hybrid:N, hybrid:auto");
    }
    mf_model_info info;
    options.expert_device = "hybrid:1";
    options.device_bytes = given(c, "hybrid", (uint64_t)1 << 32, &info);
    CHECK_STATUS(mf_engine_open(golden_path(c->name), &options, &engine, &error), MF_ERR_BUDGET);
    CHECK_CONTAINS(error.message, "with the experts of 1 layer");
    options.device_bytes = 0;
    options.device = "hybrid";
    CHECK_STATUS(mf_engine_open(golden_path(c->name), &options, &engine, &error), MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "device 'hybrid' is not known");
}

int main(void)
{
    static const char *const others[] = {"k2_fp8", "gpt_oss_mxfp4"};
    static const char *const more[] = {"gpt_oss_mxfp4", "llama4_mlx_bf16"};
    const bool is_short = vulkan_is_short();
    if (!vulkan_is_there())
        return TEST_SKIPPED;
    check_case("mlx_4bit", is_short ? SMALL_CHUNKS : SMALL_CHUNKS | FEW_SLOTS);
    /* one expert a token, so that the least cache is less than what is on its way */
    check_case("llama4_mlx_bf16", FEW_SLOTS);
    for (size_t i = 0; i < sizeof others / sizeof *others && !is_short; i++)
        check_case(others[i], SMALL_CHUNKS | FEW_SLOTS);
    check_given_layers("mlx_4bit", is_short);
    check_auto(golden_case_find("mlx_4bit"));
    for (size_t i = 0; i < sizeof more / sizeof *more && !is_short; i++)
        check_given_layers(more[i], false);
    check_refused("mlx_4bit");
    return test_result();
}

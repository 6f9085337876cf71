/* SPDX-License-Identifier: MIT */
/*
 * Experts on the CPU that are multiplied while a device's stream goes on (src/forward/relay.c): the
 * logits that the devices give when they wait for each other, token after token, of one session and
 * of two in a step; with another thread that uses the stream meanwhile; after a pass that was
 * cancelled at each of its layers; and that a device which is lost in the middle ends a pass.
 * Skipped where there is none.
 */
#include "backend/vulkan/vk_internal.h"
#include "backend/vulkan_open.h"
#include "golden.h"
#include "session/engine.h"
#include "vulkan_shared.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { N_PROMPT = 5, N_TOKENS = 16, N_LONG = 12 };

static mf_engine *open_engine(const golden_case *c, mf_vk_hooks *hooks)
{
    const mf_engine_hooks with = {.open_backend = vulkan_open_here, .backend_ctx = hooks};
    mf_engine *engine = NULL;
    mf_error error = {0};
    mf_engine_options options = golden_options(c);
    options.device = vulkan_test_device();
    options.expert_device = "cpu";
    options.n_threads = 2;
    options.n_sessions = 3;
    REQUIRE_OK(mf_engine_open_with(golden_path(c->name), &options, &with, &engine, &error), &error);
    if (hooks->n_resident != 0)
        CHECK(engine->runner.relay.is_on);
    return engine;
}

/* Those after each of the tokens from N_PROMPT on, to be freed. */
static float *logits_of(mf_engine *engine, const golden *g)
{
    mf_error error = {0};
    mf_session *session = golden_session(engine);
    float *logits = malloc((N_TOKENS - N_PROMPT + 1) * g->n_vocab * sizeof *logits), *to = logits;
    REQUIRE(logits != NULL);
    for (uint32_t at = 0, n = N_PROMPT; at < N_TOKENS; at += n, n = 1, to += g->n_vocab) {
        REQUIRE_OK(mf_session_eval(session, g->tokens + at, n, &error), &error);
        memcpy(to, mf_session_logits(session), g->n_vocab * sizeof *to);
    }
    mf_session_free(&session);
    return logits;
}

/* A long run, whose rows are not passed on, then single tokens of two sessions, each step's both.
 */
static void check_steps(mf_engine *engine, const golden *g, float *logits)
{
    mf_error error = {0};
    mf_session *a = golden_session(engine), *b = golden_session(engine);
    REQUIRE_OK(mf_session_eval(a, g->tokens, N_LONG, &error), &error);
    REQUIRE_OK(mf_session_eval(b, g->tokens + 2, N_LONG - 2, &error), &error);
    for (uint32_t i = N_LONG; i < N_TOKENS; i++) {
        mf_step_item items[] = {
            {.struct_bytes = sizeof *items, .session = a, .tokens = g->tokens + i, .n_tokens = 1},
            {.struct_bytes = sizeof *items, .session = b, .tokens = g->tokens + i, .n_tokens = 1}};
        REQUIRE_OK(mf_engine_step(engine, items, 2, &error), &error);
        REQUIRE(items[0].status == MF_OK && items[1].status == MF_OK);
    }
    memcpy(logits, mf_session_logits(a), g->n_vocab * sizeof *logits);
    memcpy(logits + g->n_vocab, mf_session_logits(b), g->n_vocab * sizeof *logits);
    mf_session_free(&a);
    mf_session_free(&b);
}

static void check_case(const char *name)
{
    const golden_case *c = golden_case_find(name);
    mf_vk_hooks waiting = {0}, relaying = {.n_resident = 1};
    golden g;
    golden_read(c, &g);
    REQUIRE(g.n_tokens >= N_TOKENS);
    vulkan_share(&waiting);
    vulkan_share(&relaying);
    mf_engine *each = open_engine(c, &waiting), *relayed = open_engine(c, &relaying);
    float *want = logits_of(each, &g), *got = logits_of(relayed, &g);
    for (size_t t = 0; t < N_TOKENS - N_PROMPT + 1; t++)
        CHECK_BYTES(got + t * g.n_vocab, want + t * g.n_vocab, g.n_vocab * sizeof *got);
    CHECK(memcmp(want, want + g.n_vocab, g.n_vocab * sizeof *want) != 0);
    check_steps(each, &g, want);
    check_steps(relayed, &g, got);
    CHECK_BYTES(got, want, 2 * g.n_vocab * sizeof *got);
    free(got);
    free(want);
    mf_engine_close(&relayed);
    mf_engine_close(&each);
    golden_free(&g);
}

/* An engine that passes rows on, of a golden case. */
typedef struct relaying {
    mf_vk_hooks hooks;
    golden g;
    mf_engine *engine;
} relaying;

static void begin(relaying *r, const char *name)
{
    const golden_case *c = golden_case_find(name);
    *r = (relaying){.hooks = {.n_resident = 1}};
    golden_read(c, &r->g);
    vulkan_share(&r->hooks);
    r->engine = open_engine(c, &r->hooks);
}

static void end(relaying *r)
{
    mf_engine_close(&r->engine);
    golden_free(&r->g);
}

/* --------------------------------------------------------------------------- other threads -- */

typedef struct other {
    mf_engine *engine;
    mf_session *kept;
    atomic_bool is_over;
    uint32_t n_rounds, n_wrong;
} other;

/* What waits for the stream, and what asks for room in it. */
static void *use_stream(void *ctx)
{
    other *o = ctx;
    mf_error error = {0};
    const size_t n_bytes = (size_t)mf_snapshot_bytes(o->kept);
    unsigned char *bytes = malloc(n_bytes);
    if (bytes == NULL)
        exit(1);
    while (!atomic_load(&o->is_over)) {
        mf_session *session = NULL;
        o->n_wrong += mf_snapshot_save(o->kept, bytes, n_bytes, &error) != MF_OK;
        o->n_wrong += mf_session_create(o->engine, &session, &error) != MF_OK;
        o->n_wrong += mf_snapshot_load(session, bytes, n_bytes, &error) != MF_OK;
        mf_session_free(&session);
        o->n_rounds++;
    }
    free(bytes);
    return NULL;
}

static void check_beside(const char *name)
{
    mf_error error = {0};
    relaying r;
    begin(&r, name);
    other o = {.engine = r.engine, .kept = golden_session(r.engine)};
    pthread_t thread;
    float *alone = logits_of(r.engine, &r.g);
    REQUIRE_OK(mf_session_eval(o.kept, r.g.tokens, 9, &error), &error);
    atomic_init(&o.is_over, false);
    REQUIRE(pthread_create(&thread, NULL, use_stream, &o) == 0);
    for (uint32_t round = 0; round < 3; round++) {
        float *beside = logits_of(r.engine, &r.g);
        CHECK_BYTES(beside, alone, (N_TOKENS - N_PROMPT + 1) * r.g.n_vocab * sizeof *beside);
        free(beside);
    }
    atomic_store(&o.is_over, true);
    (void)pthread_join(thread, NULL);
    CHECK(o.n_rounds != 0);
    CHECK_U64(o.n_wrong, 0);
    free(alone);
    mf_session_free(&o.kept);
    end(&r);
}

/* ---------------------------------------------------------------------------------- failures -- */

/* At each layer: what the stream waits for comes, whatever it is, and the next pass is right. */
static void check_cancelled(const char *name)
{
    mf_error error = {0};
    relaying r;
    begin(&r, name);
    float *want = logits_of(r.engine, &r.g);
    for (uint64_t at = 1; at <= r.engine->info.n_layers; at++) {
        mf_session *session = golden_session(r.engine);
        golden_stopper s = {.at = at};
        mf_session_set_progress(session, golden_stop, &s);
        CHECK_STATUS(mf_session_eval(session, r.g.tokens, N_PROMPT, &error), MF_ERR_CANCELLED);
        CHECK_U64(s.n_asked, at);
        mf_session_set_progress(session, NULL, NULL);
        REQUIRE_OK(mf_session_eval(session, r.g.tokens, N_PROMPT, &error), &error);
        CHECK_BYTES(mf_session_logits(session), want, r.g.n_vocab * sizeof *want);
        mf_session_free(&session);
    }
    free(want);
    end(&r);
}

static PFN_vkQueueSubmit2 submit;
static uint32_t n_submits_left;

static VkResult submit_until_lost(VkQueue queue, uint32_t n, const VkSubmitInfo2 *infos,
                                  VkFence fence)
{
    if (n_submits_left == 0)
        return VK_ERROR_DEVICE_LOST;
    n_submits_left--;
    return submit(queue, n, infos, fence);
}

/* With so many submissions of a pass done. */
static void check_lost(const char *name, uint32_t n_submits)
{
    mf_error error = {0};
    relaying r;
    begin(&r, name);
    mf_session *session = golden_session(r.engine);
    mf_vk_api *api = &((mf_vk_backend *)r.engine->runner.backend)->device.api;
    REQUIRE_OK(mf_session_eval(session, r.g.tokens, 1, &error), &error);
    submit = api->QueueSubmit2;
    n_submits_left = n_submits;
    api->QueueSubmit2 = submit_until_lost;
    CHECK_STATUS(mf_session_eval(session, r.g.tokens + 1, 1, &error), MF_ERR_IO);
    CHECK_CONTAINS(error.message, "lost");
    CHECK_STATUS(mf_session_eval(session, r.g.tokens + 1, 1, &error), MF_ERR_IO);
    mf_session_free(&session);
    end(&r);
}

int main(void)
{
    if (!vulkan_is_there())
        return TEST_SKIPPED;
    check_case("mlx_4bit");
    check_case("k2_fp8");
    check_beside("mlx_4bit");
    check_cancelled("mlx_4bit");
    check_lost("mlx_4bit", 0);
    check_lost("mlx_4bit", 4);
    return test_result();
}

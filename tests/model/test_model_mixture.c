/* SPDX-License-Identifier: MIT */
/*
 * test_model_mixture DIR: a model whose rows' mixtures and attention of both kinds a device can
 * compute as one operation each, with them and without: the same logits, token after token. The
 * device runs one workgroup of it, which any device does. Skipped where there is none.
 */
#include "backend/vulkan/vk_internal.h"
#include "backend/vulkan_open.h"
#include "session/engine.h"
#include "test.h"
#include "vulkan_shared.h"

enum { N_PROMPT = 5, N_TOKENS = 14 };

/* Beside a layer's two: of the embedding, the head, and whether logits are numbers. */
enum { N_OTHER_DISPATCHES = 4 };

/* Each kind of layer is there, and as one operation. */
static void check_attention(const mf_runner *r)
{
    uint32_t n_rows = 0;
    for (uint32_t i = 0; i < r->h.n_layers; i++) {
        const bool is_softmax = r->h.layer_kind[i] == MF_LAYER_FULL;
        CHECK(r->fused.has_attend_row[i] == is_softmax);
        n_rows += is_softmax;
    }
    CHECK(r->fused.has_linear_rows && n_rows != 0 && n_rows < r->h.n_layers);
}

/* Those of the last N_TOKENS - N_PROMPT + 1 tokens, to be freed; *n_floats: of each. */
static float *logits_of(const char *dir, mf_vk_hooks *hooks, bool is_joined, size_t *n_floats)
{
    const mf_engine_hooks with = {.open_backend = vulkan_open_here, .backend_ctx = hooks};
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_error error = {0};
    mf_engine_options options;
    mf_model_info info;
    int32_t tokens[N_TOKENS];
    mf_engine_options_default(&options);
    options.device = vulkan_test_device();
    options.n_context_tokens = 64;
    REQUIRE_OK(mf_engine_open_with(dir, &options, &with, &engine, &error), &error);
    mf_engine_info(engine, &info);
    const mf_vk_stream *stream = &((const mf_vk_backend *)engine->runner.backend)->stream;
    /* others are, too, where the device does so by itself */
    for (uint32_t i = 0; i < engine->runner.h.n_layers && is_joined; i++)
        CHECK(engine->runner.fused.has_mixture[i]);
    const bool are_all =
        is_joined && engine->runner.weights.layers[0].router.shape.kind == MF_WEIGHT_AFFINE;
    if (are_all)
        check_attention(&engine->runner);
    for (uint32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = (int32_t)(i * 7919 % info.n_vocab);
    *n_floats = info.n_vocab;
    float *logits = calloc((N_TOKENS - N_PROMPT + 1) * *n_floats, sizeof *logits), *to = logits;
    REQUIRE(logits != NULL);
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    for (uint32_t at = 0, n = N_PROMPT; at < N_TOKENS; at += n, n = 1, to += *n_floats) {
        const uint64_t n_before = stream->n_dispatches;
        REQUIRE_OK(mf_session_eval(session, tokens + at, n, &error), &error);
        if (are_all && at > N_PROMPT) /* before that two are recorded: it, and the one after it */
            CHECK(stream->n_dispatches - n_before <=
                  2 * engine->runner.h.n_layers + N_OTHER_DISPATCHES);
        memcpy(to, mf_session_logits(session), *n_floats * sizeof *to);
    }
    mf_session_free(&session);
    mf_engine_close(&engine);
    return logits;
}

int main(int argc, char **argv)
{
    mf_vk_hooks each = {0}, joined = {.n_resident = 1};
    size_t n;
    REQUIRE(argc == 2);
    if (!vulkan_is_there())
        return TEST_SKIPPED;
    vulkan_share(&each);
    vulkan_share(&joined);
    float *want = logits_of(argv[1], &each, false, &n),
          *got = logits_of(argv[1], &joined, true, &n);
    for (size_t t = 0; t < N_TOKENS - N_PROMPT + 1; t++)
        CHECK_BYTES(got + t * n, want + t * n, n * sizeof *got);
    CHECK(memcmp(want, want + n, n * sizeof *want) != 0);
    free(got);
    free(want);
    return test_result();
}

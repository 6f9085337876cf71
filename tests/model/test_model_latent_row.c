/* SPDX-License-Identifier: MIT */
/*
 * test_model_latent_row DIR: a model of latent attention whose rows a device has in fewer
 * operations: norms and sums left to products, what lies between them as one. Without that, with
 * the first of it, and with both: the same logits, token after token, over a block's end and after
 * a prompt; each with fewer dispatches than the one before. Skipped where there is no device.
 */
#include "backend/vulkan/vk_internal.h"
#include "backend/vulkan_open.h"
#include "session/engine.h"
#include "test.h"
#include "vulkan_shared.h"

enum { N_PROMPT = 60, N_TOKENS = 72 };

typedef struct ways {
    bool has_latent, has_row;
} ways;

/* The device has all of it; what is not to be used is taken away. */
static void take_away(mf_runner *r, const ways *w)
{
    for (uint32_t i = 0; i < r->h.n_layers; i++) {
        CHECK(r->fused.is_on && r->fused.has_latent[i] && r->fused.has_latent_row[i]);
        r->fused.has_latent[i] = w->has_latent;
        r->fused.has_latent_row[i] = w->has_row;
    }
}

/* Those of the last N_TOKENS - N_PROMPT + 1 tokens, to be freed; *n_floats: of each;
 * *n_dispatches: of all but the first of them. */
static float *logits_of(const char *dir, mf_vk_hooks *hooks, const ways *w, size_t *n_floats,
                        uint64_t *n_dispatches)
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
    options.n_context_tokens = 128;
    REQUIRE_OK(mf_engine_open_with(dir, &options, &with, &engine, &error), &error);
    take_away(&engine->runner, w);
    mf_engine_info(engine, &info);
    const mf_vk_stream *stream = &((const mf_vk_backend *)engine->runner.backend)->stream;
    for (uint32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = (int32_t)(i * 7919 % info.n_vocab);
    *n_floats = info.n_vocab;
    float *logits = calloc((N_TOKENS - N_PROMPT + 1) * *n_floats, sizeof *logits), *to = logits;
    REQUIRE(logits != NULL);
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    uint64_t n_before = 0;
    for (uint32_t at = 0, n = N_PROMPT; at < N_TOKENS; at += n, n = 1, to += *n_floats) {
        REQUIRE_OK(mf_session_eval(session, tokens + at, n, &error), &error);
        memcpy(to, mf_session_logits(session), *n_floats * sizeof *to);
        n_before = at == 0 ? stream->n_dispatches : n_before;
    }
    *n_dispatches = stream->n_dispatches - n_before;
    mf_session_free(&session);
    mf_engine_close(&engine);
    return logits;
}

int main(int argc, char **argv)
{
    static const ways list[] = {{false, false}, {true, false}, {true, true}};
    mf_vk_hooks hooks = {0};
    float *want = NULL;
    uint64_t n_dispatches[3];
    size_t n;
    REQUIRE(argc == 2);
    if (!vulkan_is_there())
        return TEST_SKIPPED;
    vulkan_share(&hooks);
    for (size_t i = 0; i < 3; i++) {
        float *got = logits_of(argv[1], &hooks, &list[i], &n, &n_dispatches[i]);
        for (size_t t = 0; t < N_TOKENS - N_PROMPT + 1 && want != NULL; t++)
            CHECK_BYTES(got + t * n, want + t * n, n * sizeof *got);
        CHECK(i == 0 || n_dispatches[i] < n_dispatches[i - 1]);
        CHECK(memcmp(got, got + n, n * sizeof *got) != 0);
        if (want == NULL)
            want = got;
        else
            free(got);
    }
    free(want);
    return test_result();
}

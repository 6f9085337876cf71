/* SPDX-License-Identifier: MIT */
/*
 * How many dispatches and barriers a decoded token takes where all experts are held: a barriered
 * dispatch costs a GPU 2 us or more whatever it does, and a token waits for each of them. And that
 * it is one submission, recorded while the device does the token before it.
 */
#include "backend/vulkan/vk_internal.h"
#include "backend/vulkan_open.h"
#include "golden.h"

mf_status __real_mf_vulkan_backend_create(const mf_backend_options *options, mf_backend **out,
                                          mf_error *error);
mf_status __wrap_mf_vulkan_backend_create(const mf_backend_options *options, mf_backend **out,
                                          mf_error *error);

static mf_vk_backend *opened;

mf_status __wrap_mf_vulkan_backend_create(const mf_backend_options *options, mf_backend **out,
                                          mf_error *error)
{
    const mf_status status = __real_mf_vulkan_backend_create(options, out, error);
    if (status == MF_OK)
        opened = (mf_vk_backend *)*out;
    return status;
}

/* Of a token: what stands in all layers together, and outside of them. */
typedef struct expected {
    const char *name; /* of a golden case */
    unsigned n_dispatches, n_barriers;
} expected;

/* A layer of linear attention takes 9 and 7, one of softmax attention with norms and a gate 12 and
 * 9: without steps in products it would be 14 and 11, 17 and 13. */
static const expected list[] = {
    {"mlx_4bit", 2 * 9 + 12 + 4, 2 * 7 + 9 + 3},
    {"next_mlx_4bit", 2 * 9 + 12 + 4, 2 * 7 + 9 + 3},
    {"qwen3_moe_mlx_4bit", 2 * 10 + 4, 2 * 8 + 4},
};

static void check_case(const expected *e)
{
    const golden_case *c = golden_case_find(e->name);
    mf_engine_options options = golden_options(c);
    mf_session *session = NULL;
    mf_error error = {0};
    golden g;
    golden_read(c, &g);
    options.device = vulkan_test_device();
    options.expert_cache_bytes = 1 << 30; /* all of them */
    mf_engine *engine = golden_open(c, &options);
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    REQUIRE_OK(mf_session_eval(session, g.tokens, 8, &error), &error);
    REQUIRE_OK(mf_session_eval(session, g.tokens + 8, 1, &error), &error);
    for (uint32_t t = 9; t < 12; t++) { /* what is recorded then is the token after it */
        const mf_vk_stream *stream = &opened->stream;
        const uint64_t n_dispatches = stream->n_dispatches, n_barriers = stream->n_barriers;
        const mf_ticket submitted = stream->submitted;
        REQUIRE_OK(mf_session_eval(session, g.tokens + t, 1, &error), &error);
        CHECK_MSG(stream->submitted - submitted == 1, "%s: token %u takes %u submissions, not one",
                  e->name, t, (unsigned)(stream->submitted - submitted));
        CHECK_MSG(stream->n_dispatches - n_dispatches <= e->n_dispatches &&
                      stream->n_barriers - n_barriers <= e->n_barriers,
                  "%s, %u layers: a token takes %u dispatches and %u barriers, not %u and %u",
                  e->name, g.n_layers, (unsigned)(stream->n_dispatches - n_dispatches),
                  (unsigned)(stream->n_barriers - n_barriers), e->n_dispatches, e->n_barriers);
    }
    CHECK_MSG(mf_vk_span_of_host(opened, mf_session_logits(session), g.n_vocab * 4).buffer.id != 0,
              "%s: the device does not write logits to where they stay", e->name);
    mf_session_free(&session);
    mf_engine_close(&engine);
    golden_free(&g);
}

/* Sequences that are decoded together are foreseen together. Then one of them alone, which was not;
 * what was recorded for both leaves no trace. */
static void check_together(void)
{
    enum { N = 2, N_PROMPT = 5, N_DECODED = 4 };
    const golden_case *c = golden_case_find(list[0].name);
    mf_engine_options options = golden_options(c);
    mf_session *sessions[N] = {NULL}, *alone = NULL;
    mf_batch_item items[N];
    mf_error error = {0};
    golden g;
    golden_read(c, &g);
    options.device = vulkan_test_device();
    options.expert_cache_bytes = 1 << 30;
    options.n_sessions = N + 1;
    mf_engine *engine = golden_open(c, &options);
    for (int i = 0; i < N; i++)
        REQUIRE_OK(mf_session_create(engine, &sessions[i], &error), &error);
    REQUIRE_OK(mf_session_create(engine, &alone, &error), &error);
    for (size_t t = 0; t < N_DECODED; t++) {
        const mf_ticket submitted = opened->stream.submitted;
        for (size_t i = 0; i < N; i++)
            items[i] = t == 0 ? (mf_batch_item){sessions[i], g.tokens + i, N_PROMPT}
                              : (mf_batch_item){sessions[i], g.tokens + N_PROMPT + i + t - 1, 1};
        REQUIRE_OK(mf_engine_eval(engine, items, N, &error), &error);
        CHECK(t < 2 || opened->stream.submitted - submitted == 1);
    }
    const size_t n = N_PROMPT + N_DECODED - 1;
    REQUIRE_OK(mf_session_eval(sessions[1], g.tokens + 1 + n, 1, &error), &error);
    REQUIRE_OK(mf_session_eval(alone, g.tokens + 1, n + 1, &error), &error);
    CHECK(memcmp(mf_session_logits(sessions[1]), mf_session_logits(alone),
                 g.n_vocab * sizeof(float)) == 0);
    mf_session_free(&alone);
    for (int i = 0; i < N; i++)
        mf_session_free(&sessions[i]);
    mf_engine_close(&engine);
    golden_free(&g);
}

int main(void)
{
    if (!vulkan_is_there())
        return TEST_SKIPPED;
    check_together();
    /* the first has both kinds of layers, and shaders that test_goldens_vulkan compiles as well */
    for (size_t i = 0; i < (vulkan_is_short() ? 1 : sizeof list / sizeof *list); i++)
        check_case(&list[i]);
    return test_result();
}

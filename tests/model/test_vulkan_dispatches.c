/* SPDX-License-Identifier: MIT */
/*
 * How many dispatches and barriers a decoded token takes where all experts are held: a barriered
 * dispatch costs a GPU 2 us or more whatever it does, and a token waits for each of them.
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
    {"next_mlx_4bit", 2 * 9 + 12 + 4, 2 * 7 + 9 + 3},
    {"mlx_4bit", 2 * 9 + 12 + 4, 2 * 7 + 9 + 3},
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
    for (uint32_t t = 8; t < 11; t++) {
        const mf_vk_stream *stream = &opened->stream;
        const uint64_t n_dispatches = stream->n_dispatches, n_barriers = stream->n_barriers;
        REQUIRE_OK(mf_session_eval(session, g.tokens + t, 1, &error), &error);
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

int main(void)
{
    if (!vulkan_is_there())
        return TEST_SKIPPED;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (!vulkan_is_short() || i != 1) /* its layers are those of the first */
            check_case(&list[i]);
    return test_result();
}

/* SPDX-License-Identifier: MIT */
/* Engines open at the same time, and sessions of one engine, evaluated in turn, give what each
 * gives alone; on a device, one of the engines is on the CPU. */
#include "golden.h"

typedef struct lane {
    const golden_case *c;
    const char *device; /* NULL: the test's */
    golden g;
    float *alone; /* logits of every position */
    mf_engine *engine;
    mf_session *session;
    size_t done;
} lane;

static mf_engine_options lane_options(const lane *l)
{
    mf_engine_options options = golden_options(l->c);
    options.device = l->device;
    options.n_chunk_tokens = 16;
    options.expert_cache_bytes = 0;
    options.n_sessions = 2;
    return options;
}

static void lane_prepare(lane *l, const char *name)
{
    l->c = golden_case_find(name);
    golden_read(l->c, &l->g);
    mf_engine_options options = lane_options(l);
    mf_error error = {0};
    l->alone = golden_run(l->c, &l->g, &options, &error);
    REQUIRE(l->alone != NULL);
}

static void lane_step(lane *l, size_t n)
{
    mf_error error = {0};
    if (n > l->g.n_tokens - l->done)
        n = l->g.n_tokens - l->done;
    if (n == 0)
        return;
    REQUIRE_OK(mf_session_eval(l->session, l->g.tokens + l->done, n, &error), &error);
    l->done += n;
    CHECK_MSG(memcmp(mf_session_logits(l->session), l->alone + (l->done - 1) * l->g.n_vocab,
                     l->g.n_vocab * sizeof(float)) == 0,
              "%s: not what it gives alone after %zu tokens", l->c->name, l->done);
}

/* Uneven turns: each lane now and then takes many tokens at once. */
static void interleave(lane *lanes, size_t n_lanes)
{
    static const size_t steps[] = {3, 1, 20, 1, 1, 7};
    for (size_t turn = 0; turn < 200; turn++)
        lane_step(&lanes[turn % n_lanes], steps[turn % 6 == 0 ? turn / 6 % 6 : turn % 6]);
    for (size_t i = 0; i < n_lanes; i++)
        CHECK_U64(lanes[i].done, lanes[i].g.n_tokens);
}

static void lane_free(lane *l)
{
    mf_session_free(&l->session);
    free(l->alone);
    golden_free(&l->g);
}

static void test_engines(void)
{
    static const char *const names[] = {"mlx_4bit", "next_bf16", "mlx_4bit", "packed"};
    lane lanes[4] = {0};
    mf_error error = {0};
    if (GOLDEN_ON_DEVICE)
        lanes[1].device = "cpu";
    for (size_t i = 0; i < 4; i++)
        lane_prepare(&lanes[i], names[i]);
    for (size_t i = 0; i < 4; i++) {
        mf_engine_options options = lane_options(&lanes[i]);
        lanes[i].engine = golden_open(lanes[i].c, &options);
        REQUIRE_OK(mf_session_create(lanes[i].engine, &lanes[i].session, &error), &error);
    }
    interleave(lanes, 4);
    /* one goes, the others are untouched */
    mf_session_free(&lanes[2].session);
    mf_engine_close(&lanes[2].engine);
    CHECK(lanes[2].engine == NULL);
    for (size_t i = 0; i < 4; i++)
        if (lanes[i].session != NULL) {
            mf_session_clear(lanes[i].session);
            lanes[i].done = 0;
            lane_step(&lanes[i], 11);
            lane_step(&lanes[i], 1);
        }
    for (size_t i = 0; i < 4; i++) {
        mf_session_free(&lanes[i].session);
        mf_engine_close(&lanes[i].engine);
        lane_free(&lanes[i]);
    }
}

static void test_sessions(void)
{
    lane lanes[2] = {0};
    mf_error error = {0};
    lane_prepare(&lanes[0], "mlx_4bit");
    lane_prepare(&lanes[1], "mlx_4bit");
    /* the second lane runs other tokens */
    for (uint32_t i = 0; i < lanes[1].g.n_tokens / 2; i++) {
        int32_t swap = lanes[1].g.tokens[i];
        lanes[1].g.tokens[i] = lanes[1].g.tokens[lanes[1].g.n_tokens - 1 - i];
        lanes[1].g.tokens[lanes[1].g.n_tokens - 1 - i] = swap;
    }
    mf_engine_options options = lane_options(&lanes[1]);
    free(lanes[1].alone);
    lanes[1].alone = golden_run(lanes[1].c, &lanes[1].g, &options, &error);
    REQUIRE(lanes[1].alone != NULL);

    mf_engine *engine = golden_open(lanes[0].c, &options);
    for (size_t i = 0; i < 2; i++)
        REQUIRE_OK(mf_session_create(engine, &lanes[i].session, &error), &error);
    mf_session *third = NULL;
    CHECK_STATUS(mf_session_create(engine, &third, &error), MF_ERR_BUDGET);
    CHECK(third == NULL && error.message[0] != 0);
    interleave(lanes, 2);
    lane_free(&lanes[0]);
    lane_free(&lanes[1]);
    mf_engine_close(&engine);
}

int main(void)
{
    test_engines();
    test_sessions();
    return test_result();
}

/* SPDX-License-Identifier: MIT */
/*
 * Where a pass asks whether it goes on: before each layer, and before experts are waited for; and
 * that it ends there, at any of these, without leaving the expert store or a device at work.
 */
#include "golden.h"
#include "session/session.h"

typedef struct asked {
    uint32_t n, end_at; /* counted from 1; 0: never */
} asked;

static mf_status ask(void *ctx, mf_error *error)
{
    asked *a = ctx;
    if (++a->n == a->end_at)
        return mf_fail(error, MF_ERR_CANCELLED, "ended at %u", a->n);
    return MF_OK;
}

/* The session's tokens again, from the first one on, beside the session. */
static mf_status pass(mf_session *s, asked *a, float *logits, mf_error *error)
{
    const mf_batch_watch watch = {.ctx = a, .check = ask};
    const mf_batch_part part = {.tokens = s->tokens,
                                .n_rows = (uint32_t)s->position,
                                .pages = s->pages[MF_UNIT_PAGE].spans,
                                .window_pages = s->pages[MF_UNIT_WINDOW].spans,
                                .state = {{{0}, 0}, s->recurrent_span},
                                .logits = logits};
    const mf_batch batch = {.parts = &part, .n_parts = 1, .n_rows = part.n_rows, .watch = &watch};
    return mf_forward(&s->engine->runner, &batch, error);
}

static void check_case(const char *name)
{
    const golden_case *c = golden_case_find(name);
    golden g;
    golden_read(c, &g);
    mf_engine_options options = golden_options(c); /* all experts are held */
    mf_engine *e = golden_open(c, &options);
    mf_session *s = NULL;
    mf_error error = {0};
    const size_t n_bytes = g.n_vocab * sizeof(float);
    float *logits = malloc(n_bytes);
    REQUIRE(logits != NULL);
    REQUIRE_OK(mf_session_create(e, &s, &error), &error);
    REQUIRE_OK(mf_session_eval(s, g.tokens, 5, &error), &error);
    /* Where all experts of a layer are ready at once, once for them. */
    asked a = {0};
    const uint32_t n_all = e->info.n_layers + e->info.n_moe_layers;
    REQUIRE_OK(pass(s, &a, logits, &error), &error);
    CHECK_U64(a.n, n_all);
    CHECK_BYTES(logits, mf_session_logits(s), n_bytes);
    for (uint32_t end_at = 1; end_at <= n_all; end_at++) {
        a = (asked){.end_at = end_at};
        CHECK_STATUS(pass(s, &a, logits, &error), MF_ERR_CANCELLED);
        CHECK_U64(a.n, end_at);
    }
    a = (asked){0};
    REQUIRE_OK(pass(s, &a, logits, &error), &error);
    CHECK_BYTES(logits, mf_session_logits(s), n_bytes);
    free(logits);
    mf_session_free(&s);
    mf_engine_close(&e);
    golden_free(&g);
}

int main(void)
{
    check_case("mlx_4bit");
    check_case("v2_lite_bf16"); /* its first layer is dense */
    return test_result();
}

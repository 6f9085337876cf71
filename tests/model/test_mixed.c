/* SPDX-License-Identifier: MIT */
/*
 * MF_PRECISION_MIXED on a Vulkan device, with matrix units or without: a run long enough for it is
 * near float32's, has the same bits for any chunks, any steps, and whoever shares them; and a short
 * run has float32's bits, whoever shares its steps.
 */
#include "backend/vulkan_open.h"
#include "golden.h"

#include <math.h>

/* Of the largest logit, at the worst of all positions and at the middle one. These models are small
 * and random: where a head's output is a small difference, its norm makes much of float16's 2^-11.
 */
#define MAX_RELATIVE 4e-2
#define MIDDLE_RELATIVE 4e-3
#define N_SHORT 5u /* tokens of a run that is not long */

static mf_engine_options options_of(const golden_case *c, mf_precision precision, uint32_t chunk)
{
    mf_engine_options options = golden_options(c);
    options.device = vulkan_test_device();
    options.precision = precision;
    options.n_chunk_tokens = chunk;
    return options;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void check_near(const golden_case *c, const golden *g, const float *got, const float *want)
{
    double *off = calloc(g->n_tokens, sizeof *off);
    REQUIRE(off != NULL);
    for (size_t i = 0; i < g->n_tokens; i++) {
        double diff = 0.0, most = 0.0;
        for (size_t t = i * g->n_vocab; t < (i + 1) * g->n_vocab; t++) {
            diff = fmax(diff, isfinite(got[t]) ? fabs((double)got[t] - (double)want[t]) : INFINITY);
            most = fmax(most, fabs((double)want[t]));
        }
        off[i] = diff / most;
    }
    qsort(off, g->n_tokens, sizeof *off, by_size);
    const double middle = off[g->n_tokens / 2], worst = off[g->n_tokens - 1];
    CHECK_MSG(worst <= MAX_RELATIVE && middle <= MIDDLE_RELATIVE,
              "%s: off by %g of the largest logit, at the middle position by %g", c->name, worst,
              middle);
    fprintf(stderr, "%s: middle %.2g, worst %.2g\n", c->name, middle, worst);
    free(off);
}

static float *run_chunks(const golden_case *c, const golden *g, mf_precision precision,
                         uint32_t chunk)
{
    const mf_engine_options options = options_of(c, precision, chunk);
    mf_error error = {0};
    float *logits = golden_run(c, g, &options, &error);
    REQUIRE_OK(logits != NULL ? MF_OK : MF_ERR_STATE, &error);
    return logits;
}

static void check_chunks(const golden_case *c, const golden *g, const float *whole)
{
    static const uint32_t chunks[] = {7, 50};
    const size_t n_bytes = (size_t)g->n_tokens * g->n_vocab * sizeof(float);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        float *logits = run_chunks(c, g, MF_PRECISION_MIXED, chunks[i]);
        CHECK_MSG(memcmp(logits, whole, n_bytes) == 0, "%s: other bits in chunks of %u", c->name,
                  chunks[i]);
        free(logits);
    }
}

/* The whole golden in one session and a few of its tokens in another, step by step together. */
static void run_together(mf_engine *engine, const golden *g, mf_session *sessions[2])
{
    size_t n_done[2] = {0}, n_all[2] = {g->n_tokens, N_SHORT};
    while (n_done[0] < n_all[0]) {
        mf_error error = {0};
        mf_step_item items[2];
        size_t n = 0;
        for (size_t i = 0; i < 2; i++)
            if (n_done[i] < n_all[i])
                items[n++] = (mf_step_item){.struct_bytes = sizeof *items,
                                            .session = sessions[i],
                                            .tokens = g->tokens + n_done[i],
                                            .n_tokens = n_all[i] - n_done[i]};
        REQUIRE_OK(mf_engine_step(engine, items, n, &error), &error);
        for (size_t i = 0; i < n; i++)
            n_done[items[i].session == sessions[1]] += items[i].n_done;
    }
}

/* exact: in float32 */
static void check_together(const golden_case *c, const golden *g, const float *whole,
                           const float *exact)
{
    mf_error error = {0};
    mf_session *sessions[2];
    const size_t n_bytes = g->n_vocab * sizeof(float), few = (size_t)(N_SHORT - 1) * g->n_vocab;
    mf_engine_options options = options_of(c, MF_PRECISION_MIXED, 16);
    options.n_sessions = 2;
    mf_engine *engine = golden_open(c, &options);
    for (int i = 0; i < 2; i++)
        REQUIRE_OK(mf_session_create(engine, &sessions[i], &error), &error);
    run_together(engine, g, sessions);
    CHECK_MSG(memcmp(mf_session_logits(sessions[0]), whole + (size_t)(g->n_tokens - 1) * g->n_vocab,
                     n_bytes) == 0,
              "%s: other bits beside another session", c->name);
    CHECK_MSG(memcmp(mf_session_logits(sessions[1]), exact + few, n_bytes) == 0,
              "%s: a short run beside a long one is not float32's", c->name);
    CHECK_MSG(memcmp(whole + few, exact + few, n_bytes) != 0,
              "%s: a long run has float32's bits: it was not mixed", c->name);
    for (int i = 0; i < 2; i++)
        mf_session_free(&sessions[i]);
    mf_engine_close(&engine);
}

/* The golden's tokens twice, which is long enough. */
static void read_twice(const golden_case *c, golden *g)
{
    golden_read(c, g);
    int32_t *tokens = malloc(2 * g->n_tokens * sizeof *tokens);
    REQUIRE(tokens != NULL);
    for (uint32_t i = 0; i < 2; i++)
        memcpy(tokens + i * g->n_tokens, g->tokens, g->n_tokens * sizeof *tokens);
    g->tokens = tokens;
    g->n_tokens *= 2;
}

static void test_case(const golden_case *c)
{
    golden g;
    read_twice(c, &g);
    float *whole = run_chunks(c, &g, MF_PRECISION_MIXED, 0);
    float *exact = run_chunks(c, &g, MF_PRECISION_F32, 0);
    check_near(c, &g, whole, exact);
    check_chunks(c, &g, whole);
    check_together(c, &g, whole, exact);
    free(whole);
    free(exact);
    free(g.tokens);
    g.tokens = NULL;
    golden_free(&g);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"mlx_4bit", "k2_fp8"};
    if (!vulkan_is_there())
        return TEST_SKIPPED;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (argc < 2 || strcmp(argv[1], names[i]) == 0)
            test_case(golden_case_find(names[i]));
    return test_result();
}

/* SPDX-License-Identifier: MIT */
/* Draws by several threads give what each sampler gives by itself, in whatever order they are
 * claimed, many times over. */
#include "drawers.h"

#include "test.h"

#include <stdlib.h>

#define N_VOCAB 3000u
#define N_DRAWS 12u
#define N_STEPS 60u

/* Of a draw and a step: numbers that differ. */
static void fill(float *logits, size_t draw, size_t step)
{
    uint32_t x = (uint32_t)(draw * 7919 + step * 104729 + 1);
    for (size_t i = 0; i < N_VOCAB; i++) {
        x = x * 1664525u + 1013904223u;
        logits[i] = (float)(x >> 8) * (8.0f / 16777216.0f);
    }
}

static mf_sampler *sampler(size_t draw)
{
    mf_sampler_options o;
    mf_sampler *s = NULL;
    mf_error error = {0};
    mf_sampler_options_default(&o);
    o.temperature = draw % 3 == 0 ? 0.0f : 0.9f;
    o.top_k = draw % 3 == 1 ? 20 : 0;
    o.seed = draw;
    REQUIRE(mf_sampler_create(&o, N_VOCAB, NULL, &s, &error) == MF_OK);
    return s;
}

/* n draws of each step, by so many threads; compares with samplers that draw alone. */
static void check(size_t n_threads, size_t n)
{
    static float logits[N_DRAWS][N_VOCAB];
    mf_srv_drawers *drawers = mf_srv_drawers_start(n_threads);
    mf_srv_draw draws[N_DRAWS];
    mf_sampler *alone[N_DRAWS];
    CHECK((drawers != NULL) == (n_threads > 0));
    for (size_t i = 0; i < n; i++) {
        draws[i] = (mf_srv_draw){.sampler = sampler(i), .logits = logits[i], .token = -1};
        alone[i] = sampler(i);
    }
    for (size_t step = 0; step < N_STEPS; step++) {
        for (size_t i = 0; i < n; i++)
            fill(logits[i], i, step);
        mf_srv_draw_all(drawers, draws, n);
        for (size_t i = 0; i < n; i++)
            CHECK_MSG(draws[i].token == mf_sampler_sample(alone[i], logits[i]),
                      "%zu threads, step %zu: draw %zu is another", n_threads, step, i);
    }
    for (size_t i = 0; i < n; i++) {
        mf_sampler_free(&draws[i].sampler);
        mf_sampler_free(&alone[i]);
    }
    mf_srv_drawers_stop(&drawers);
    CHECK(drawers == NULL);
}

int main(void)
{
    static const size_t n_threads[] = {0, 1, 3, 8, 99}, n_draws[] = {0, 1, 2, 7, N_DRAWS};
    for (size_t i = 0; i < sizeof n_threads / sizeof *n_threads; i++)
        for (size_t k = 0; k < sizeof n_draws / sizeof *n_draws; k++)
            check(n_threads[i], n_draws[k]);
    return test_result();
}

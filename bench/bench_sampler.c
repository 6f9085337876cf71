/* SPDX-License-Identifier: MIT */
/*
 * What a draw takes: medians of 200 in microseconds, of a vocabulary of 248,320, for what models
 * and users ask for, from logits as text has them (a few tokens far above the others) and from ones
 * without peaks; with the highest of each block, as a session gives them, and without.
 *
 *     bench_sampler
 */
#include "bench_median.h"

#include <moeflux/moeflux.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N_VOCAB ((size_t)248320)
#define N_BLOCKS ((N_VOCAB + MF_LOGITS_BLOCK - 1) / MF_LOGITS_BLOCK)
#define N_DRAWS 200u

typedef struct setting {
    const char *name;
    float temperature, top_p, min_p, presence_penalty;
    uint32_t top_k;
} setting;

static const setting settings[] = {
    {"greedy", 0, 1, 0, 0, 0},
    {"all", 1, 1, 0, 0, 0},
    {"top-p 0.95", 0.6f, 0.95f, 0, 0, 0},
    {"min-p 0.05", 1, 1, 0.05f, 0, 0},
    {"top-k 20, top-p 0.95", 0.7f, 0.95f, 0, 0, 20},
    {"all, presence penalty", 1, 1, 0, 1.5f, 0},
    {"top-p 0.95, presence penalty", 0.6f, 0.95f, 0, 1.5f, 0},
};

static uint64_t state = 88172645463325252u;

static float uniform(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (float)(state >> 40) * 0x1p-24f;
}

static void fill(float *logits, float *bounds, int has_peaks)
{
    for (size_t i = 0; i < N_VOCAB; i++) {
        float x = 0;
        for (int k = 0; k < 12; k++)
            x += uniform() - 0.5f;
        logits[i] = 2.0f * x;
    }
    for (int i = 0; i < 40 && has_peaks; i++)
        logits[(size_t)(uniform() * (float)N_VOCAB)] += 10.0f + 10.0f * uniform();
    for (size_t i = 0; i < N_VOCAB; i++) {
        float *bound = &bounds[i / MF_LOGITS_BLOCK];
        *bound = i % MF_LOGITS_BLOCK == 0 || logits[i] > *bound ? logits[i] : *bound;
    }
}

static double now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static double draw_us(const setting *of, const float *logits, const float *bounds)
{
    static double us[N_DRAWS];
    mf_sampler_options o;
    mf_sampler *sampler = NULL;
    mf_error error = {0};
    mf_sampler_options_default(&o);
    o.temperature = of->temperature;
    o.top_k = of->top_k;
    o.top_p = of->top_p;
    o.min_p = of->min_p;
    o.presence_penalty = of->presence_penalty;
    if (mf_sampler_create(&o, N_VOCAB, NULL, &sampler, &error) != MF_OK) {
        fprintf(stderr, "bench_sampler: %s\n", error.message);
        exit(1);
    }
    for (uint32_t i = 0; i < N_DRAWS; i++) {
        const double before = now_us();
        const int32_t token = mf_sampler_sample_bounded(sampler, logits, bounds, NULL);
        us[i] = now_us() - before;
        mf_sampler_accept(sampler, token);
    }
    mf_sampler_free(&sampler);
    return bench_median(us, N_DRAWS);
}

int main(void)
{
    static float logits[N_VOCAB], bounds[N_BLOCKS];
    printf("%-30s %12s %12s %12s %12s\n", "us a draw", "peaks", "by bounds", "none", "by bounds");
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        printf("%-30s", settings[i].name);
        for (int has_peaks = 1; has_peaks >= 0; has_peaks--) {
            fill(logits, bounds, has_peaks);
            printf(" %12.1f", draw_us(&settings[i], logits, NULL));
            printf(" %12.1f", draw_us(&settings[i], logits, bounds));
        }
        putchar('\n');
    }
    return 0;
}

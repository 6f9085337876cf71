/* SPDX-License-Identifier: MIT */
/* Draws that know how high blocks of logits are, against draws that look at all of them: the same
 * tokens, the same candidates to the bit, the same random numbers. */
#include "sampling/sampler.h"
#include "test.h"

enum { MOST_VOCAB = 40000, BLOCKS = (MOST_VOCAB + MF_LOGITS_BLOCK - 1) / MF_LOGITS_BLOCK };

static float logits[MOST_VOCAB], bounds[BLOCKS];
static uint32_t allowed[MOST_VOCAB / 32 + 1];
static uint64_t state = 88172645463325252u;

static uint32_t next(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % n;
}

static float uniform(void)
{
    return (float)next(1u << 24) * 0x1p-24f;
}

static void find_bounds(size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float *bound = &bounds[i / MF_LOGITS_BLOCK];
        *bound = i % MF_LOGITS_BLOCK == 0 || logits[i] > *bound ? logits[i] : *bound;
    }
}

/* Sums of uniform numbers, rounded in some: ties. */
static void fill_normal(size_t n, float scale, float step)
{
    for (size_t i = 0; i < n; i++) {
        float x = 0;
        for (int k = 0; k < 6; k++)
            x += uniform() - 0.5f;
        logits[i] = step > 0 ? roundf(x * scale / step) * step : x * scale;
    }
}

/* As text has them: few tokens far above the others, most of them among the first ones. */
static void fill_peaks(size_t n)
{
    fill_normal(n, 2, 0);
    for (int i = 0; i < 30; i++)
        logits[next(next(4) == 0 ? (uint32_t)n : (uint32_t)(n / 8 + 1))] += 20 * uniform();
}

static void fill_same(size_t n, float x)
{
    for (size_t i = 0; i < n; i++)
        logits[i] = x;
}

static void fill_rising(size_t n, bool falls)
{
    for (size_t i = 0; i < n; i++)
        logits[i] = (float)(falls ? n - i : i) * 0.01f - 50;
}

/* Zeros of both signs, and what is hardly above or below. */
static void fill_tiny(size_t n)
{
    static const float tiny[] = {0.0f, -0.0f, 1e-45f, -1e-45f, 1e-39f, -3e-41f};
    for (size_t i = 0; i < n; i++)
        logits[i] = next(400) == 0 ? tiny[next(6)] : tiny[next(2) * 2 + 1];
}

/* Numbers that are infinite once they are divided or added to. */
static void fill_huge(size_t n)
{
    for (size_t i = 0; i < n; i++)
        logits[i] = (next(2) ? 3.4e38f : -3.4e38f) * (next(3) == 0 ? 1 : uniform());
}

enum { N_FILLS = 11 };

static void fill(int kind, size_t n)
{
    switch (kind) {
    case 0:
        fill_normal(n, 4, 0);
        break;
    case 1:
        fill_normal(n, 4, 0.5f);
        break;
    case 2:
        fill_normal(n, 1, 1);
        break;
    case 3:
        fill_same(n, 1.5f);
        break;
    case 4:
        fill_same(n, -3.4e38f);
        break;
    case 5:
        fill_rising(n, false);
        break;
    case 6:
        fill_rising(n, true);
        break;
    case 7:
        fill_tiny(n);
        break;
    case 8:
        fill_huge(n);
        break;
    default:
        fill_peaks(n);
    }
    find_bounds(n);
}

/* kind 0: all; then one token, some, a block, all but the best. */
static const uint32_t *mask(int kind, size_t n)
{
    const size_t best_block = n / MF_LOGITS_BLOCK / 2;
    size_t best = 0;
    memset(allowed, 0, sizeof allowed);
    for (size_t i = 0; i < n; i++) {
        const bool is_in = kind == 1   ? false
                           : kind == 2 ? next(50) == 0
                           : kind == 3 ? i / MF_LOGITS_BLOCK == best_block
                                       : true;
        best = logits[i] > logits[best] ? i : best;
        allowed[i / 32] |= (uint32_t)is_in << i % 32;
    }
    if (kind == 4)
        allowed[best / 32] &= ~(1u << best % 32);
    const size_t one = next((uint32_t)n);
    allowed[one / 32] |= 1u << one % 32;
    return kind == 0 ? NULL : allowed;
}

/* What a sampler is made of. Biases: 0: none, then of some tokens, of all but few -INFINITY. */
typedef struct setting {
    mf_sampler_options o;
    int biases;
} setting;

static const setting settings[] = {
    {.o = {.temperature = 0}},
    {.o = {.temperature = 0}, .biases = 1},
    {.o = {.temperature = 0}, .biases = 2},
    {.o = {.temperature = 0, .repetition_penalty = 1.3f, .presence_penalty = 1.5f}, .biases = 1},
    {.o = {.temperature = 0, .repetition_penalty = 0.8f}},
    {.o = {.temperature = 0, .presence_penalty = -2, .frequency_penalty = -0.5f}},
    {.o = {.temperature = 0, .dry_multiplier = 2}},
    {.o = {.temperature = 1, .top_k = 20, .top_p = 0.95f}},
    {.o = {.temperature = 0.6f, .top_k = 20, .top_p = 0.95f, .min_p = 0.01f}},
    {.o = {.temperature = 0.7f, .top_k = 1}},
    {.o = {.temperature = 1, .top_k = 256}},
    {.o = {.temperature = 3, .top_k = 40}, .biases = 1},
    {.o = {.temperature = 1, .top_k = 5}, .biases = 2},
    {.o = {.temperature = 1, .top_k = 20, .top_p = 0.9f, .presence_penalty = 1.5f}},
    {.o = {.temperature = 1, .top_k = 20, .repetition_penalty = 1.2f, .frequency_penalty = 0.3f},
     .biases = 1},
    {.o = {.temperature = 1, .top_k = 20, .repetition_penalty = 0.7f}},
    {.o = {.temperature = 1, .top_k = 30, .dry_multiplier = 1, .xtc_probability = 0.5f}},
    {.o = {.temperature = 1, .min_p = 0.05f}},
    {.o = {.temperature = 0.3f, .min_p = 1}, .biases = 1},
    {.o = {.temperature = 5, .min_p = 1e-6f, .presence_penalty = 1}, .biases = 2},
    {.o = {.temperature = 1, .min_p = 0.1f, .xtc_probability = 0.7f, .repetition_penalty = 1.1f}},
    {.o = {.temperature = 1, .top_p = 0.9f}},
    {.o = {.temperature = 0.8f, .top_p = 0.5f, .presence_penalty = 1}, .biases = 1},
    {.o = {.temperature = 1, .top_p = 0.99f, .min_p = 0.02f, .repetition_penalty = 0.8f}},
    {.o = {.temperature = 1}},
    {.o = {.temperature = 0.7f, .frequency_penalty = 0.5f}, .biases = 1},
    {.o = {.temperature = 2, .repetition_penalty = 0.9f}, .biases = 2},
    {.o = {.temperature = 1, .top_k = 1000}},
};

static mf_sampler *make(const setting *given, size_t n)
{
    mf_sampler *s = NULL;
    mf_sampler_options o;
    mf_sampler_options_default(&o);
    o.temperature = given->o.temperature;
    o.top_k = given->o.top_k;
    o.top_p = given->o.top_p > 0 ? given->o.top_p : 1;
    o.min_p = given->o.min_p;
    o.repetition_penalty = given->o.repetition_penalty > 0 ? given->o.repetition_penalty : 1;
    o.presence_penalty = given->o.presence_penalty;
    o.frequency_penalty = given->o.frequency_penalty;
    o.dry_multiplier = given->o.dry_multiplier;
    o.xtc_probability = given->o.xtc_probability;
    mf_logit_bias *biases = malloc(n * sizeof *biases);
    REQUIRE(biases != NULL);
    for (size_t i = 0; i < n; i++) { /* the same for both of a pair */
        const uint32_t word = (uint32_t)i * 2654435761u >> 8;
        const bool is_few = word % 700 == 0;
        const float small = (float)(word % 41) - 20;
        if (given->biases == 2 ? !is_few : given->biases == 1 && is_few)
            biases[o.n_biases++] = (mf_logit_bias){
                (int32_t)i, given->biases == 2 || word % 3 == 0 ? -INFINITY : small};
    }
    o.biases = biases;
    o.seed = 5;
    REQUIRE(mf_sampler_create(&o, n, NULL, &s, NULL) == MF_OK);
    free(biases);
    return s;
}

static void check_candidates(mf_sampler *plain, mf_sampler *bounded)
{
    size_t n[2];
    float highest[2];
    double sum[2];
    const mf_candidate *a = mf_sampler_filter(plain, logits, &n[0], &highest[0], &sum[0]);
    mf_sampler_take_bounds(bounded, bounds);
    const mf_candidate *b = mf_sampler_filter(bounded, logits, &n[1], &highest[1], &sum[1]);
    mf_sampler_take_bounds(bounded, NULL);
    CHECK(n[0] == n[1] && highest[0] == highest[1]);
    CHECK(sum[0] == sum[1]);
    CHECK(n[0] == n[1] && memcmp(a, b, n[0] * sizeof *a) == 0);
}

static void check_setting(const setting *given, size_t n)
{
    mf_sampler *plain = make(given, n), *bounded = make(given, n);
    for (int i = 0; i < 2 * N_FILLS; i++) {
        fill(i % N_FILLS, n);
        if (given->o.temperature > 0)
            check_candidates(plain, bounded);
        const uint32_t *only = mask(i * 3 % 5, n);
        for (int draw = 0; draw < 3; draw++) {
            const int32_t token = mf_sampler_sample_masked(plain, logits, only);
            CHECK(token == mf_sampler_sample_bounded(bounded, logits, bounds, only));
            mf_sampler_accept(plain, token);
            mf_sampler_accept(bounded, token);
        }
        for (int k = 0; k < 20; k++) {
            const int32_t token = (int32_t)next((uint32_t)n);
            mf_sampler_accept(plain, token);
            mf_sampler_accept(bounded, token);
        }
    }
    mf_sampler_free(&plain);
    mf_sampler_free(&bounded);
}

/* A bound says where not to look: a high logit in a block whose bound is too low is not found. */
static void check_use(void)
{
    const setting greedy = {.o = {.temperature = 0}}, top = {.o = {.temperature = 1, .top_k = 2}},
                  near = {.o = {.temperature = 1, .min_p = 0.5f}};
    const setting *all[] = {&greedy, &top, &near};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        mf_sampler *s = make(all[i], MOST_VOCAB);
        fill_same(MOST_VOCAB, -1);
        logits[3000] = logits[9000] = 60;
        find_bounds(MOST_VOCAB);
        logits[20000] = 90;
        const int32_t token = mf_sampler_sample_bounded(s, logits, bounds, NULL);
        CHECK(token == 3000 || token == 9000);
        CHECK(mf_sampler_sample(s, logits) == 20000);
        mf_sampler_free(&s);
    }
}

int main(void)
{
    static const size_t sizes[] = {1, 1023, 1024, 1025, 4099, MOST_VOCAB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t k = 0; k < sizeof settings / sizeof *settings; k++)
            check_setting(&settings[k], sizes[i]);
    check_use();
    return test_result();
}

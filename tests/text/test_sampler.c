/* SPDX-License-Identifier: MIT */
/* The sampler: what the filters keep, against transformers; draws; odd logits; options. */
#include "text_data.h"

#include "format/json.h"
#include "sampling/sampler.h"
#include "sampling/token_weights.h"

#include <unistd.h>

static float number(yyjson_val *object, const char *name)
{
    return (float)yyjson_get_num(yyjson_obj_get(object, name));
}

static void check_case(yyjson_val *item, size_t index)
{
    float logits[128], highest;
    double sum, got[128] = {0};
    size_t i, n, n_vocab = 0, n_kept;
    yyjson_val *value;
    mf_sampler_options options;
    mf_sampler *s = NULL;
    mf_sampler_options_default(&options);
    options.temperature = number(item, "temperature");
    options.top_k = (uint32_t)number(item, "top_k");
    options.top_p = number(item, "top_p");
    options.min_p = number(item, "min_p");
    options.repetition_penalty = number(item, "repetition_penalty");
    yyjson_arr_foreach(yyjson_obj_get(item, "logits"), i, n, value)
    {
        REQUIRE(i < 128);
        logits[i] = (float)yyjson_get_num(value);
        n_vocab = n;
    }
    REQUIRE(mf_sampler_create(&options, n_vocab, NULL, &s, NULL) == MF_OK);
    yyjson_arr_foreach(yyjson_obj_get(item, "accepted"), i, n, value)
    {
        mf_sampler_accept(s, (int32_t)yyjson_get_uint(value));
    }
    const mf_candidate *kept = mf_sampler_filter(s, logits, &n_kept, &highest, &sum);
    for (i = 0; i < n_kept; i++)
        got[kept[i].id] = mf_weight_of((double)kept[i].score - (double)highest) / sum;
    yyjson_arr_foreach(yyjson_obj_get(item, "probabilities"), i, n, value)
    {
        double want = yyjson_get_num(value);
        CHECK_MSG((want == 0.0) == (got[i] == 0.0) && fabs(want - got[i]) < 1e-5,
                  "case %zu, token %zu: %g, want %g", index, i, got[i], want);
    }
    for (i = 0; i < 20; i++) {
        int32_t token = mf_sampler_sample(s, logits);
        CHECK(token >= 0 && (size_t)token < n_vocab && got[token] > 0.0);
    }
    mf_sampler_free(&s);
}

static void check_goldens(void)
{
    mf_json json = {0};
    mf_allocator a = mf_allocator_default();
    REQUIRE(mf_json_read(&a, text_data_path("sampler.json"), 1u << 22, &json, NULL) == MF_OK);
    size_t i, n;
    yyjson_val *item;
    yyjson_arr_foreach(json.root, i, n, item)
    {
        check_case(item, i);
    }
    CHECK(n >= 100);
    mf_json_free(&json);
}

static mf_sampler *make(float temperature, size_t n_vocab, uint64_t seed)
{
    mf_sampler_options options;
    mf_sampler *s = NULL;
    mf_sampler_options_default(&options);
    options.temperature = temperature;
    options.seed = seed;
    REQUIRE(mf_sampler_create(&options, n_vocab, NULL, &s, NULL) == MF_OK);
    return s;
}

/* Counts of many draws against the probabilities: chi-squared of 3 degrees of freedom. */
static void check_draws(void)
{
    static const float logits[4] = {0.0f, 1.0f, -1.0f, 0.5f};
    double total = 0.0, chi = 0.0;
    int counts[4] = {0};
    const int n_draws = 100000;
    mf_sampler *s = make(1.0f, 4, 42);
    for (int i = 0; i < n_draws; i++)
        counts[mf_sampler_sample(s, logits)]++;
    for (int i = 0; i < 4; i++)
        total += exp((double)logits[i]);
    for (int i = 0; i < 4; i++) {
        double expected = exp((double)logits[i]) / total * n_draws;
        chi += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    CHECK_MSG(chi < 25.0, "chi-squared %g", chi);
    mf_sampler_free(&s);
}

static void check_seed(void)
{
    float logits[50];
    int32_t first[64];
    for (int i = 0; i < 50; i++)
        logits[i] = (float)(i % 7) * 0.3f;
    mf_sampler *a = make(1.0f, 50, 7), *b = make(1.0f, 50, 7), *c = make(1.0f, 50, 8);
    int n_other = 0;
    for (int i = 0; i < 64; i++) {
        first[i] = mf_sampler_sample(a, logits);
        CHECK(mf_sampler_sample(b, logits) == first[i]);
        n_other += mf_sampler_sample(c, logits) != first[i];
    }
    CHECK(n_other > 0);
    mf_sampler_reset(a);
    for (int i = 0; i < 64; i++)
        CHECK(mf_sampler_sample(a, logits) == first[i]);
    mf_sampler_free(&a);
    mf_sampler_free(&b);
    mf_sampler_free(&c);
}

static void check_odd_logits(void)
{
    static const float equal[5] = {1.0f, 3.0f, 3.0f, 2.0f, 3.0f};
    static const float nan_first[3] = {NAN, -5.0f, -INFINITY};
    static const float none[3] = {NAN, NAN, -INFINITY};
    static const float infinite[4] = {0.0f, INFINITY, NAN, INFINITY};
    mf_sampler *greedy = make(0.0f, 5, 0), *warm = make(1.0f, 3, 0), *four = make(1.0f, 4, 1);
    CHECK(mf_sampler_sample(greedy, equal) == 1);
    mf_sampler_free(&greedy);
    greedy = make(0.0f, 3, 0);
    CHECK(mf_sampler_sample(greedy, nan_first) == 1);
    CHECK(mf_sampler_sample(greedy, none) == 0);
    for (int i = 0; i < 20; i++) {
        CHECK(mf_sampler_sample(warm, nan_first) == 1);
        CHECK(mf_sampler_sample(warm, none) == 0);
        int32_t token = mf_sampler_sample(four, infinite);
        CHECK(token == 1 || token == 3);
    }
    mf_sampler_accept(warm, -1);
    mf_sampler_accept(warm, 3);
    mf_sampler_free(&greedy);
    mf_sampler_free(&warm);
    mf_sampler_free(&four);
}

/* Of a sum of nothing the most likely token is left, whatever else cuts. */
/* The lowest temperatures draw the highest logit, and share it among equals. */
static void check_low_temperatures(void)
{
    static const float temperatures[] = {1e-30f, 1e-37f, 1e-38f, 1e-45f};
    static const float rows[][4] = {
        {-5.0f, -3.0f, -4.0f, -60.0f}, {1.0f, 30.0f, 2.0f, 29.9f}, {-1.0f, 7.0f, 7.0f, 6.0f}};
    for (size_t t = 0; t < sizeof temperatures / sizeof *temperatures; t++) {
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            mf_sampler *s = make(temperatures[t], 4, 1);
            for (int i = 0; i < 50; i++) {
                const int32_t token = mf_sampler_sample(s, rows[r]);
                CHECK_MSG(token == 1 || (r == 2 && token == 2), "temperature %g, row %zu: %d",
                          (double)temperatures[t], r, (int)token);
            }
            mf_sampler_free(&s);
        }
    }
}

static void check_no_p(void)
{
    static const float logits[4] = {1.0f, 5.0f, 3.0f, 4.9f};
    for (uint32_t top_k = 0; top_k < 4; top_k++) {
        mf_sampler_options o;
        mf_sampler *s = NULL;
        mf_sampler_options_default(&o);
        o.top_k = top_k;
        o.top_p = 0.0f;
        REQUIRE(mf_sampler_create(&o, 4, NULL, &s, NULL) == MF_OK);
        for (int i = 0; i < 20; i++)
            CHECK(mf_sampler_sample(s, logits) == 1);
        mf_sampler_free(&s);
    }
}

static void check_options(void)
{
    mf_sampler_options o;
    mf_sampler *s = NULL;
    mf_sampler_options_default(&o);
    CHECK(mf_sampler_options_load("tests/text/data", &o, NULL) == MF_OK && o.temperature == 1.0f);
    CHECK(mf_sampler_options_load("tests/text/data/generation", &o, NULL) == MF_OK);
    CHECK(o.temperature == 0.6f && o.top_k == 20 && o.top_p == 0.95f && o.min_p == 0.0f);
    const mf_sampler_options bad[] = {
        {.temperature = -1.0f, .top_p = 1.0f, .repetition_penalty = 1.0f},
        {.temperature = NAN, .top_p = 1.0f, .repetition_penalty = 1.0f},
        {.temperature = 1.0f, .top_p = 1.5f, .repetition_penalty = 1.0f},
        {.top_p = 1.0f, .min_p = -0.5f, .repetition_penalty = 1.0f},
        {.top_p = 1.0f, .repetition_penalty = 0.0f}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        o = bad[i];
        o.struct_bytes = sizeof o;
        CHECK(mf_sampler_create(&o, 4, NULL, &s, NULL) == MF_ERR_ARGUMENT && s == NULL);
    }
    mf_sampler_options_default(&o);
    CHECK(mf_sampler_create(&o, 0, NULL, &s, NULL) == MF_ERR_ARGUMENT);
}

/* What a generation_config.json may not say: by field, and the options stay as they were. */
static void check_bad_files(void)
{
    static const struct {
        const char *text, *field;
    } bad[] = {
        {"{\"temperature\": \"warm\"}", "temperature"},
        {"{\"temperature\": 0.5, \"temperature\": 1}", "temperature"},
        {"{\"top_k\": 20.5}", "top_k"},
        {"{\"top_k\": -1}", "top_k"},
        {"{\"do_sample\": \"false\"}", "do_sample"},
        {"{\"min_p\": \"0\"}", "min_p"},
        {"{\"min_p\": 2}", "min-p"},
        {"{\"top_p\": []}", "top_p"},
        {"{\"repetition_penalty\": 0}", "repetition penalty"},
        {"[]", "object"},
    };
    char dir[] = "/tmp/mf_generation_XXXXXX", path[64];
    REQUIRE(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/generation_config.json", dir);
    mf_sampler_options o;
    mf_sampler_options_default(&o);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mf_error error = {0};
        FILE *f = fopen(path, "w");
        REQUIRE(f != NULL && fputs(bad[i].text, f) >= 0 && fclose(f) == 0);
        CHECK_STATUS(mf_sampler_options_load(dir, &o, &error), MF_ERR_FORMAT);
        CHECK_CONTAINS(error.message, path);
        CHECK_CONTAINS(error.message, bad[i].field);
        CHECK(o.temperature == 1.0f && o.top_k == 0);
    }
    FILE *f = fopen(path, "w");
    REQUIRE(f != NULL && fputs("{\"top_k\": 20.0, \"do_sample\": null}", f) >= 0);
    REQUIRE(fclose(f) == 0);
    CHECK_STATUS(mf_sampler_options_load(dir, &o, NULL), MF_OK);
    CHECK(o.top_k == 20 && o.temperature == 1.0f);
    f = fopen(path, "w"); /* each goes where it belongs */
    REQUIRE(f != NULL && fputs("{\"temperature\": 0.5, \"top_k\": 7, \"top_p\": 0.25, \"min_p\": "
                               "0.125, \"repetition_penalty\": 1.5}",
                               f) >= 0);
    REQUIRE(fclose(f) == 0);
    CHECK_STATUS(mf_sampler_options_load(dir, &o, NULL), MF_OK);
    CHECK(o.temperature == 0.5f && o.top_k == 7 && o.top_p == 0.25f && o.min_p == 0.125f &&
          o.repetition_penalty == 1.5f);
    unlink(path);
    rmdir(dir);
}

/* The definition, a line for each part: vLLM's penalties, with OpenAI's bias before them. */
static float reference(float logit, float bias, bool is_in_prompt, int n_in_answer,
                       const mf_sampler_options *o)
{
    float x = logit + bias;
    if (is_in_prompt || n_in_answer > 0)
        x = x > 0.0f ? x / o->repetition_penalty : x * o->repetition_penalty;
    if (n_in_answer > 0)
        x -= o->presence_penalty + o->frequency_penalty * (float)n_in_answer;
    return x;
}

static void check_penalties(void)
{
    enum { N = 6 };
    const float logits[N] = {1.0f, -2.0f, 0.5f, 3.0f, -0.25f, 2.0f};
    const float bias[N] = {0.0f, 4.0f, 0.0f, -INFINITY, 0.0f, -1.0f};
    const mf_logit_bias biases[] = {{1, 4.0f}, {3, -INFINITY}, {5, -1.0f}};
    const int32_t prompt[] = {0, 4, -1, N, 0}, answer[] = {2, 1, 2, 2, 0};
    const int n_in_prompt[N] = {2, 0, 0, 0, 1, 0}, n_in_answer[N] = {1, 1, 3, 0, 0, 0};
    float highest, best = -INFINITY;
    double sum;
    size_t n = 0;
    int32_t best_token = -1;
    mf_sampler_options o;
    mf_sampler *s = NULL;
    mf_sampler_options_default(&o);
    o.repetition_penalty = 1.25f;
    o.presence_penalty = 0.75f;
    o.frequency_penalty = -0.5f;
    o.biases = biases;
    o.n_biases = 3;
    REQUIRE(mf_sampler_create(&o, N, NULL, &s, NULL) == MF_OK);
    mf_sampler_accept_prompt(s, prompt, 5);
    for (size_t i = 0; i < 5; i++)
        mf_sampler_accept(s, answer[i]);
    const mf_candidate *kept = mf_sampler_filter(s, logits, &n, &highest, &sum);
    CHECK(n == N - 1);
    for (size_t i = 0; i < n; i++) {
        int32_t id = kept[i].id;
        float want = reference(logits[id], bias[id], n_in_prompt[id] > 0, n_in_answer[id], &o);
        CHECK_MSG(fabsf(kept[i].score - want) < 1e-6f, "token %d: %g, want %g", (int)id,
                  (double)kept[i].score, (double)want);
        if (want > best) {
            best = want;
            best_token = id;
        }
    }
    mf_sampler_reset(s); /* all is forgotten but the bias */
    kept = mf_sampler_filter(s, logits, &n, &highest, &sum);
    for (size_t i = 0; i < n; i++)
        CHECK(kept[i].score == logits[kept[i].id] + bias[kept[i].id]);
    mf_sampler_free(&s);
    o.temperature = 0.0f;
    REQUIRE(mf_sampler_create(&o, N, NULL, &s, NULL) == MF_OK);
    mf_sampler_accept_prompt(s, prompt, 5);
    for (size_t i = 0; i < 5; i++)
        mf_sampler_accept(s, answer[i]);
    CHECK(mf_sampler_sample(s, logits) == best_token);
    mf_sampler_free(&s);
}

static void check_bad_penalties(void)
{
    const mf_logit_bias nan_bias = {0, NAN}, high = {0, INFINITY}, outside = {4, 1.0f},
                        negative = {-1, 1.0f};
    const struct {
        mf_sampler_options o;
        const char *word;
    } bad[] = {
        {{.presence_penalty = NAN}, "presence"},
        {{.frequency_penalty = INFINITY}, "frequency"},
        {{.n_biases = 1}, "biases"},
        {{.biases = &nan_bias, .n_biases = 1}, "token 0"},
        {{.biases = &high, .n_biases = 1}, "token 0"},
        {{.biases = &outside, .n_biases = 1}, "token 4: expected 0 to 3"},
        {{.biases = &negative, .n_biases = 1}, "token -1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mf_error error = {0};
        mf_sampler *s = NULL;
        mf_sampler_options o;
        mf_sampler_options_default(&o);
        o.presence_penalty = bad[i].o.presence_penalty;
        o.frequency_penalty = bad[i].o.frequency_penalty;
        o.biases = bad[i].o.biases;
        o.n_biases = bad[i].o.n_biases;
        CHECK_STATUS(mf_sampler_create(&o, 4, NULL, &s, &error), MF_ERR_ARGUMENT);
        CHECK(s == NULL);
        CHECK_CONTAINS(error.message, bad[i].word);
    }
}

#define N_LARGE 4000u

static int falls(const void *a, const void *b)
{
    const mf_candidate *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score) - (x->score > y->score)
                                : (x->id > y->id) - (x->id < y->id);
}

/* How many of all, sorted, by the definition: those before have less than top_p of the mass. By the
 * C library's exponential, to within what is too close to tell: the fewest and the most. */
static void nucleus(const mf_candidate *sorted, size_t n, double top_p, size_t *least, size_t *most)
{
    double total = 0.0, before = 0.0;
    for (size_t i = 0; i < n; i++)
        total += exp((double)sorted[i].score - (double)sorted[0].score);
    *least = *most = 0;
    for (size_t i = 0; i < n; i++) {
        *least += i == 0 || before < top_p * total * (1.0 - 1e-9);
        *most += i == 0 || before < top_p * total * (1.0 + 1e-9);
        before += exp((double)sorted[i].score - (double)sorted[0].score);
    }
}

/* top-p of many candidates, most of which are never sorted: flat, peaked, and with many equal. */
static void check_many(void)
{
    static const float shares[] = {1e-6f, 0.1f, 0.5f, 0.9f, 0.95f, 0.999f, 0.9999999f};
    static float logits[N_LARGE];
    static mf_candidate sorted[N_LARGE];
    uint32_t x = 1;
    for (unsigned shape = 0; shape < 4; shape++) {
        for (uint32_t i = 0; i < N_LARGE; i++) {
            x = x * 1664525u + 1013904223u;
            const float flat = (float)(x >> 8) / 16777216.0f;
            logits[i] = shape == 0   ? flat
                        : shape == 1 ? 30.0f * flat * flat * flat
                        : shape == 2 ? (float)(x >> 29)
                                     : -90.0f * flat;
            sorted[i] = (mf_candidate){logits[i], (int32_t)i};
        }
        qsort(sorted, N_LARGE, sizeof *sorted, falls);
        for (size_t k = 0; k < sizeof shares / sizeof *shares; k++) {
            mf_sampler_options options;
            mf_sampler *s = NULL;
            size_t n, least, most;
            float highest;
            double sum;
            mf_sampler_options_default(&options);
            options.temperature = 1.0f;
            options.top_k = 0;
            options.top_p = shares[k];
            REQUIRE(mf_sampler_create(&options, N_LARGE, NULL, &s, NULL) == MF_OK);
            const mf_candidate *kept = mf_sampler_filter(s, logits, &n, &highest, &sum);
            nucleus(sorted, N_LARGE, (double)shares[k], &least, &most);
            CHECK_MSG(n >= least && n <= most, "shape %u, top_p %g: %zu kept, want %zu to %zu",
                      shape, (double)shares[k], n, least, most);
            for (size_t i = 0; i < n && i < N_LARGE; i++)
                CHECK(kept[i].id == sorted[i].id);
            mf_sampler_free(&s);
        }
    }
}

/* Within 1e-15 of the C library's, and nothing for what is too small or no number. */
static void check_weights(void)
{
    for (int i = 0; i < 61000; i++) {
        const double x = -0.01147 * (double)i, want = exp(x);
        CHECK_MSG(fabs(mf_weight_of(x) - want) <= 2e-15 * want, "exp(%.17g): %.17g, want %.17g", x,
                  mf_weight_of(x), want);
    }
    CHECK(mf_weight_of(0.0) == 1.0);
    CHECK(mf_weight_of(-700.0) == 0.0 && mf_weight_of(-INFINITY) == 0.0 &&
          mf_weight_of(NAN) == 0.0);
}

/* Sums have the same bits by whatever instructions, and what each token weighs; none reads past the
 * end. */
static void check_sums(void)
{
    enum { MOST = 1100 };
    float scores[MOST];
    double weights[MOST + 1];
    uint32_t x = 5;
    for (size_t n = 0; n < MOST; n += n < 40 ? 1 : 77) {
        for (size_t i = 0; i < n; i++) {
            x = x * 1664525u + 1013904223u;
            scores[i] = x % 50 == 0 ? NAN : x % 51 == 0 ? -INFINITY : (float)(x >> 8) * -2e-6f;
        }
        float *exact = malloc(n * sizeof *exact + 1);
        REQUIRE(exact != NULL);
        memcpy(exact, scores, n * sizeof *exact);
        weights[n] = -1.0;
        mf_weights_here()->of(exact, n, 0.25f, weights);
        double want = 0.0;
        for (size_t i = 0; i < n; i++) {
            CHECK(weights[i] == mf_weight_of((double)scores[i] - 0.25));
            want += weights[i];
        }
        CHECK(weights[n] == -1.0);
        const double sum = mf_weights_of_tier(MF_CPU_SCALAR)->sum(exact, n, 0.25f);
        CHECK(fabs(sum - want) <= 1e-13 * want);
        for (mf_cpu_tier tier = MF_CPU_SCALAR; tier < MF_CPU_END; tier++) {
            double again[MOST];
            const mf_weights *w = mf_cpu_has(tier) ? mf_weights_of_tier(tier) : NULL;
            if (w == NULL)
                continue;
            CHECK(w->sum(exact, n, 0.25f) == sum);
            w->of(exact, n, 0.25f, again);
            CHECK(memcmp(again, weights, n * sizeof *again) == 0);
        }
        free(exact);
    }
}

enum { N_DRAWN = 2500 };

/* What tokens are to be drawn with, by sorting. */
static void chances(const float *logits, double top_p, double *p)
{
    static mf_candidate sorted[N_DRAWN];
    double all = 0.0, before = 0.0, kept = 0.0;
    for (size_t i = 0; i < N_DRAWN; i++) {
        p[i] = 0.0;
        sorted[i] = (mf_candidate){logits[i] == logits[i] ? logits[i] : -INFINITY, (int32_t)i};
        all += exp((double)sorted[i].score);
    }
    qsort(sorted, N_DRAWN, sizeof *sorted, falls);
    for (size_t i = 0; i < N_DRAWN && before < top_p * all; i++) {
        p[sorted[i].id] = exp((double)sorted[i].score);
        before += p[sorted[i].id];
        kept = before;
    }
    for (size_t i = 0; i < N_DRAWN; i++)
        p[i] /= kept;
}

/* Without other filters than top-p, blocks of tokens are drawn first, by what they can weigh at
 * most: each token comes as often as its weight says, within five standard deviations, and one
 * that is dropped never. Shape 0: no peaks; 1: one token has most of it, in a block without
 * anything else; 2: likely tokens in all blocks, and some that are no numbers. */
static void check_frequencies(int shape, float top_p)
{
    enum { N_DRAWS = 20000 };
    static float logits[N_DRAWN];
    static int counts[N_DRAWN];
    static double p[N_DRAWN];
    uint32_t x = 9;
    mf_sampler *s = NULL;
    mf_sampler_options options;
    for (size_t i = 0; i < N_DRAWN; i++) {
        x = x * 1664525u + 1013904223u;
        counts[i] = 0;
        logits[i] = (float)(x >> 8) * (shape == 0 ? 1e-7f : 4e-7f);
        if (shape == 1)
            logits[i] = i == 2400 ? 9.0f : i > 2047 ? -30.0f : logits[i] - 5.0f;
        if (shape == 2 && x % 97 == 0)
            logits[i] = NAN;
    }
    chances(logits, (double)top_p, p);
    mf_sampler_options_default(&options);
    options.temperature = 1.0f;
    options.top_k = 0;
    options.top_p = top_p;
    REQUIRE(mf_sampler_create(&options, N_DRAWN, NULL, &s, NULL) == MF_OK);
    for (int i = 0; i < N_DRAWS; i++)
        counts[mf_sampler_sample(s, logits)]++;
    double squares = 0.0, n = 0.0;
    for (size_t i = 0; i < N_DRAWN; i++) {
        const double want = p[i] * N_DRAWS, off = counts[i] - want;
        CHECK_MSG(fabs(off) <= 5.0 * sqrt(want * (1.0 - p[i])) + (want > 0.0 ? 1.0 : 0.0),
                  "shape %d, top-p %g, token %zu: %d of %g", shape, (double)top_p, i, counts[i],
                  want);
        squares += want > 0.1 ? off * off / want : 0.0;
        n += want > 0.1 ? 1.0 : 0.0;
    }
    CHECK_MSG(fabs(squares - n) <= 5.0 * sqrt(2.0 * n) && n > 0.0, "shape %d, top-p %g: %g of %g",
              shape, (double)top_p, squares, n);
    mf_sampler_free(&s);
}

int main(int argc, char **argv)
{
    text_data_set_dir(argc, argv);
    check_goldens();
    check_draws();
    check_many();
    check_weights();
    check_sums();
    for (int shape = 0; shape < 3; shape++) {
        check_frequencies(shape, 1.0f);
        check_frequencies(shape, 0.95f);
        check_frequencies(shape, 0.6f);
    }
    check_seed();
    check_odd_logits();
    check_low_temperatures();
    check_no_p();
    check_options();
    check_bad_files();
    check_penalties();
    check_bad_penalties();
    return test_result();
}

/* SPDX-License-Identifier: MIT */
/* DRY and XTC against their definitions (tools/make_sampler_goldens.py), and what holds of them by
 * themselves. */
#include "failing_alloc.h"
#include "text_data.h"

#include "format/json.h"
#include "sampling/sampler.h"
#include "sampling/token_weights.h"

enum { N_VOCAB = 900 };

static yyjson_val *field(yyjson_val *object, const char *name)
{
    return yyjson_obj_get(object, name);
}

static float number(yyjson_val *object, const char *name)
{
    return (float)yyjson_get_num(field(object, name));
}

static size_t get_tokens(yyjson_val *array, int32_t out[128])
{
    size_t i, n;
    yyjson_val *v;
    REQUIRE(yyjson_arr_size(array) <= 128);
    yyjson_arr_foreach(array, i, n, v)
    {
        out[i] = (int32_t)yyjson_get_int(v);
    }
    return n;
}

static void get_options(yyjson_val *o, mf_tokenizer *tokenizer, const char *breakers[8],
                        mf_sampler_options *out)
{
    size_t i, n;
    yyjson_val *v;
    mf_sampler_options_default(out);
    out->temperature = number(o, "temperature");
    out->top_k = (uint32_t)number(o, "top_k");
    out->top_p = number(o, "top_p");
    out->min_p = number(o, "min_p");
    out->repetition_penalty = number(o, "repetition_penalty");
    out->presence_penalty = number(o, "presence_penalty");
    out->frequency_penalty = number(o, "frequency_penalty");
    out->dry_multiplier = number(o, "dry_multiplier");
    out->dry_base = number(o, "dry_base");
    out->dry_allowed_length = (uint32_t)number(o, "dry_allowed_length");
    out->dry_n_tokens = (uint32_t)number(o, "dry_n_tokens");
    out->xtc_probability = number(o, "xtc_probability");
    out->xtc_threshold = number(o, "xtc_threshold");
    yyjson_arr_foreach(field(o, "dry_breakers"), i, n, v)
    {
        REQUIRE(i < 8);
        breakers[i] = yyjson_get_str(v);
    }
    out->dry_breakers = breakers;
    out->n_dry_breakers = n;
    out->tokenizer = tokenizer;
}

static void make_logits(yyjson_val *item, float logits[N_VOCAB])
{
    const uint64_t salt = yyjson_get_uint(field(item, "salt"));
    size_t i, n;
    yyjson_val *v;
    for (uint64_t id = 0; id < N_VOCAB; id++)
        logits[id] = (float)((double)((id * 7919 + salt * 104729) % 1009) / 404.0 - 1.25);
    yyjson_arr_foreach(field(item, "alphabet"), i, n, v)
    {
        uint64_t id = yyjson_get_uint(v);
        logits[id] = (float)((double)((id * 7919 + salt * 104729) % 1009) / 404.0 - 1.25 + 1.5);
    }
}

/* Pairs of a token and a number. */
static void check_probabilities(yyjson_val *pairs, const double *got, size_t index)
{
    double want[N_VOCAB] = {0};
    size_t i, n;
    yyjson_val *pair;
    yyjson_arr_foreach(pairs, i, n, pair)
    {
        want[yyjson_get_uint(yyjson_arr_get(pair, 0))] = yyjson_get_num(yyjson_arr_get(pair, 1));
    }
    for (i = 0; i < N_VOCAB; i++)
        CHECK_MSG((want[i] == 0.0) == (got[i] == 0.0) && fabs(want[i] - got[i]) < 1e-5,
                  "case %zu, token %zu: %g, want %g", index, i, got[i], want[i]);
}

static void check_logprobs(yyjson_val *pairs, const float *logits)
{
    mf_logprob top[3];
    size_t i, n;
    yyjson_val *pair;
    (void)mf_logprob_of(logits, N_VOCAB, 0, top, 3);
    yyjson_arr_foreach(pairs, i, n, pair)
    {
        int32_t token = (int32_t)yyjson_get_int(yyjson_arr_get(pair, 0));
        double want = yyjson_get_num(yyjson_arr_get(pair, 1));
        CHECK(top[i].token == token && fabs((double)top[i].logprob - want) < 1e-5);
        CHECK(mf_logprob_of(logits, N_VOCAB, token, NULL, 0) == top[i].logprob);
    }
    CHECK(n == 3);
}

static void check_case(yyjson_val *item, mf_tokenizer *tokenizer, size_t index)
{
    float logits[N_VOCAB], highest;
    double sum, got[N_VOCAB] = {0};
    int32_t prompt[128], answer[128];
    const char *breakers[8];
    size_t n_kept, n_prompt = get_tokens(field(item, "prompt"), prompt);
    size_t n_answer = get_tokens(field(item, "answer"), answer);
    mf_sampler_options options;
    mf_sampler *s = NULL;
    get_options(field(item, "options"), tokenizer, breakers, &options);
    make_logits(item, logits);
    REQUIRE(mf_sampler_create(&options, N_VOCAB, NULL, &s, NULL) == MF_OK);
    mf_sampler_accept_prompt(s, answer, n_answer); /* of an answer before, forgotten */
    (void)mf_sampler_sample(s, logits);
    mf_sampler_forget(s);
    mf_sampler_accept_prompt(s, prompt, n_prompt);
    for (size_t i = 0; i < n_answer; i++) {
        mf_sampler_accept(s, answer[i]);
        if (i % 3 == 0) /* asked in between, or not: the same */
            (void)mf_sampler_sample(s, logits);
    }
    const mf_candidate *kept = mf_sampler_filter(s, logits, &n_kept, &highest, &sum);
    for (size_t i = 0; i < n_kept; i++)
        got[kept[i].id] = mf_weight_of((double)kept[i].score - (double)highest) / sum;
    check_probabilities(field(item, "probabilities"), got, index);
    check_logprobs(field(item, "logprobs"), logits);
    mf_sampler_free(&s);
}

static void check_goldens(mf_tokenizer *tokenizer)
{
    mf_json json = {0};
    mf_allocator a = mf_allocator_default();
    size_t i, n;
    yyjson_val *item;
    REQUIRE(mf_json_read(&a, text_data_path("sampler_dry_xtc.json"), 1u << 22, &json, NULL) ==
            MF_OK);
    yyjson_arr_foreach(json.root, i, n, item)
    {
        check_case(item, tokenizer, i);
    }
    CHECK(n >= 100);
    mf_json_free(&json);
}

/* A sequence much longer than what is looked at gives what its end gives. */
static void check_window(void)
{
    mf_sampler_options o;
    mf_sampler *a = NULL, *b = NULL;
    float logits[8] = {0}, highest;
    double sum;
    size_t n_a, n_b;
    mf_sampler_options_default(&o);
    o.dry_multiplier = 1.0f;
    o.dry_n_tokens = 7;
    REQUIRE(mf_sampler_create(&o, 8, NULL, &a, NULL) == MF_OK);
    for (uint32_t i = 0, x = 1; i < 200; i++) {
        x = x * 1103515245u + 12345u;
        mf_sampler_accept(a, (int32_t)(x >> 16 & 1));
        REQUIRE(mf_sampler_create(&o, 8, NULL, &b, NULL) == MF_OK);
        uint32_t y = 1;
        for (uint32_t j = 0; j <= i; j++) {
            y = y * 1103515245u + 12345u;
            if (j + 7 > i)
                mf_sampler_accept(b, (int32_t)(y >> 16 & 1));
        }
        const mf_candidate *of_a = mf_sampler_filter(a, logits, &n_a, &highest, &sum);
        const mf_candidate *of_b = mf_sampler_filter(b, logits, &n_b, &highest, &sum);
        CHECK(n_a == n_b && memcmp(of_a, of_b, n_a * sizeof *of_a) == 0);
        mf_sampler_free(&b);
    }
    mf_sampler_free(&a);
}

/* However long the repetition: a number, and another token is taken. */
static void check_long_repetition(void)
{
    mf_sampler_options o;
    mf_sampler *s = NULL;
    const float logits[3] = {50.0f, 1.0f, 0.0f};
    mf_sampler_options_default(&o);
    o.temperature = 0.0f;
    o.dry_multiplier = 0.5f;
    REQUIRE(mf_sampler_create(&o, 3, NULL, &s, NULL) == MF_OK);
    CHECK(mf_sampler_sample(s, logits) == 0);
    for (int i = 0; i < 3000; i++)
        mf_sampler_accept(s, 0);
    CHECK(mf_sampler_sample(s, logits) == 1);
    mf_sampler_free(&s);
    o.temperature = 0.25f;
    REQUIRE(mf_sampler_create(&o, 1, NULL, &s, NULL) == MF_OK);
    for (int i = 0; i < 3000; i++)
        mf_sampler_accept(s, 0);
    CHECK(mf_sampler_sample(s, logits) == 0); /* there is no other */
    mf_sampler_free(&s);
}

/* XTC acts as often as it is asked to; without it a seed draws as it did. */
static void check_xtc_chance(void)
{
    mf_sampler_options o;
    mf_sampler *s = NULL;
    const float logits[3] = {2.0f, 1.9f, -30.0f};
    int n_top = 0;
    const int n_draws = 20000;
    mf_sampler_options_default(&o);
    o.xtc_probability = 0.25f;
    REQUIRE(mf_sampler_create(&o, 3, NULL, &s, NULL) == MF_OK);
    for (int i = 0; i < n_draws; i++)
        n_top += mf_sampler_sample(s, logits) == 0;
    mf_sampler_free(&s);
    double share = 0.75 / (1.0 + exp(-0.1));
    CHECK_MSG(fabs(n_top / (double)n_draws - share) < 0.015, "%d of %d", n_top, n_draws);
    o.xtc_probability = 1.0f;
    o.xtc_threshold = 0.5f; /* one alone reaches it: nothing happens */
    REQUIRE(mf_sampler_create(&o, 3, NULL, &s, NULL) == MF_OK);
    n_top = 0;
    for (int i = 0; i < 1000; i++)
        n_top += mf_sampler_sample(s, logits) == 0;
    CHECK(n_top > 400);
    mf_sampler_free(&s);
}

static void check_bad_options(mf_tokenizer *tokenizer)
{
    const char *const good[] = {"x"}, *const empty[] = {"x", ""};
    const struct {
        mf_sampler_options o;
        const char *word;
    } bad[] = {
        {{.dry_multiplier = -1.0f}, "DRY multiplier"},
        {{.dry_multiplier = NAN}, "DRY multiplier"},
        {{.dry_base = 0.5f}, "DRY base"},
        {{.dry_base = INFINITY}, "DRY base"},
        {{.dry_allowed_length = 0}, "DRY allowed length"},
        {{.dry_n_tokens = 0}, "DRY tokens"},
        {{.dry_n_tokens = (1u << 24) + 1}, "DRY tokens"},
        {{.n_dry_breakers = 1, .tokenizer = tokenizer}, "no array"},
        {{.n_dry_breakers = 1, .dry_breakers = good}, "no tokenizer"},
        {{.n_dry_breakers = 2, .dry_breakers = empty, .tokenizer = tokenizer}, "1 is empty"},
        {{.xtc_probability = 1.5f}, "XTC probability"},
        {{.xtc_threshold = -0.1f}, "XTC threshold"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mf_error error = {0};
        mf_sampler *s = NULL;
        mf_sampler_options o;
        mf_sampler_options_default(&o);
        const char *word = bad[i].word;
        o.dry_multiplier = bad[i].o.dry_multiplier;
        o.dry_base = strcmp(word, "DRY base") == 0 ? bad[i].o.dry_base : 1.75f;
        o.dry_allowed_length = strcmp(word, "DRY allowed length") == 0 ? 0 : 2;
        o.dry_n_tokens = strcmp(word, "DRY tokens") == 0 ? bad[i].o.dry_n_tokens : 64;
        o.dry_breakers = bad[i].o.dry_breakers;
        o.n_dry_breakers = bad[i].o.n_dry_breakers;
        o.tokenizer = bad[i].o.tokenizer;
        o.xtc_probability = bad[i].o.xtc_probability;
        o.xtc_threshold = bad[i].o.xtc_threshold;
        CHECK_STATUS(mf_sampler_create(&o, 4, NULL, &s, &error), MF_ERR_ARGUMENT);
        CHECK(s == NULL);
        CHECK_CONTAINS(error.message, word);
    }
}

/* All memory is taken at creation, given back in the end, and not to be had is no more than an
 * error. */
static void check_memory(mf_tokenizer *tokenizer)
{
    failing count = {0};
    const mf_allocator a = failing_allocator(&count);
    const char *const breakers[] = {"\n", "the"};
    float logits[N_VOCAB] = {0};
    mf_sampler_options o;
    mf_sampler *s = NULL;
    mf_sampler_options_default(&o);
    o.dry_multiplier = o.xtc_probability = o.presence_penalty = 1.0f;
    o.dry_n_tokens = 20;
    o.dry_breakers = breakers;
    o.n_dry_breakers = 2;
    o.tokenizer = tokenizer;
    for (unsigned long long n = 1;; n++) {
        failing_arm(&count, n, false);
        mf_status status = mf_sampler_create(&o, N_VOCAB, &a, &s, NULL);
        if (!failing_disarm(&count)) {
            CHECK(status == MF_OK && n > 8);
            break;
        }
        CHECK(status == MF_ERR_NO_MEMORY && s == NULL);
    }
    const unsigned long long n_calls = count.n_calls;
    for (int i = 0; i < 200; i++)
        mf_sampler_accept(s, mf_sampler_sample(s, logits));
    mf_sampler_reset(s);
    CHECK(count.n_calls == n_calls);
    mf_sampler_free(&s);
    failing_check_end(&count, "a sampler");
}

static void check_odd_logprobs(void)
{
    const float logits[4] = {1.0f, -INFINITY, 1.0f, 0.0f};
    mf_logprob top[6];
    CHECK(isnan(mf_logprob_of(logits, 4, 4, NULL, 0)) &&
          isnan(mf_logprob_of(logits, 4, -1, top, 1)));
    CHECK(mf_logprob_of(logits, 4, 1, top, 6) == -INFINITY);
    CHECK(top[0].token == 0 && top[1].token == 2 && top[2].token == 3);
    CHECK(top[3].token == -1 && top[3].logprob == -INFINITY && top[5].token == -1);
}

/* A choice that is skipped draws what a choice among one token draws. */
static void check_skip(void)
{
    const float probabilities[] = {0.0f, 1.0f};
    float logits[64];
    for (size_t i = 0; i < 64; i++)
        logits[i] = (float)(i * 7 % 11) * 0.1f;
    for (size_t k = 0; k < 4; k++) {
        mf_sampler_options o;
        mf_sampler *skips = NULL, *samples = NULL;
        mf_sampler_options_default(&o);
        o.temperature = k < 2 ? 0.9f : 0.0f;
        o.xtc_probability = probabilities[k % 2];
        o.seed = 17 + k;
        REQUIRE(mf_sampler_create(&o, 64, NULL, &skips, NULL) == MF_OK);
        REQUIRE(mf_sampler_create(&o, 64, NULL, &samples, NULL) == MF_OK);
        for (size_t i = 0; i < 40; i++) {
            const uint32_t only[2] = {i % 3 == 0 ? 1u << 5 : 0, i % 3 == 0 ? 0 : 1u << 9};
            CHECK(mf_sampler_sample_masked(samples, logits, only) == (i % 3 == 0 ? 5 : 41));
            mf_sampler_skip(skips);
            CHECK(mf_sampler_sample(samples, logits) == mf_sampler_sample(skips, logits));
        }
        mf_sampler_free(&skips);
        mf_sampler_free(&samples);
    }
}

/* What top-k leaves of many, and the first of the highest: blocks of logits are passed over as a
 * whole. Some are equal, some no numbers, some infinite. */
static void check_many(bool has_biases)
{
    enum { N = 5003 };
    static float logits[N], biased[N];
    static mf_logit_bias biases[8];
    uint64_t r = 88172645463325252u + has_biases;
    mf_sampler_options o;
    for (int32_t i = 0; i < 8; i++)
        biases[i] = (mf_logit_bias){i * 600 + 7, (float)i * 4.0f - 9.0f};
    for (int round = 0; round < 60; round++) {
        mf_sampler *warm = NULL, *greedy = NULL;
        size_t n = 0, n_expected = 0, first = 0;
        double sum;
        float highest, kth = INFINITY;
        mf_sampler_options_default(&o);
        o.temperature = round % 2 ? 0.7f : 1.0f;
        o.top_k = (uint32_t)(1 + round % 30);
        o.biases = biases;
        o.n_biases = has_biases ? 8 : 0;
        REQUIRE(mf_sampler_create(&o, N, NULL, &warm, NULL) == MF_OK);
        o.temperature = 0.0f;
        REQUIRE(mf_sampler_create(&o, N, NULL, &greedy, NULL) == MF_OK);
        for (size_t i = 0; i < N; i++) {
            r ^= r << 13;
            r ^= r >> 7;
            r ^= r << 17;
            logits[i] = (float)(r % 2000) * 0.01f; /* many are equal */
            if ((r >> 32) % 50 == 0)
                logits[i] = (r >> 40 & 1) ? NAN : -INFINITY;
            biased[i] = logits[i];
        }
        for (size_t i = 0; i < o.n_biases; i++)
            biased[biases[i].token] += biases[i].bias;
        for (size_t k = 0; k < o.top_k; k++) { /* the k-th highest, the slow way */
            float next = -INFINITY;
            size_t n_above = 0;
            for (size_t i = 0; i < N; i++)
                if (biased[i] < kth && biased[i] > next)
                    next = biased[i];
            kth = next;
            for (size_t i = 0; i < N; i++)
                n_above += biased[i] >= kth;
            if (n_above >= o.top_k)
                break;
        }
        for (size_t i = N; i-- > 0;) {
            n_expected += biased[i] >= kth;
            first = biased[i] >= biased[first] || isnan(biased[first]) ? i : first;
        }
        const mf_candidate *kept = mf_sampler_filter(warm, logits, &n, &highest, &sum);
        CHECK_U64(n, n_expected);
        for (size_t i = 0; i < n; i++)
            CHECK(biased[kept[i].id] >= kth &&
                  (i == 0 || kept[i].score < kept[i - 1].score ||
                   (kept[i].score == kept[i - 1].score && kept[i].id > kept[i - 1].id)));
        CHECK_U64((size_t)mf_sampler_sample(greedy, logits), first);
        mf_sampler_free(&warm);
        mf_sampler_free(&greedy);
    }
}

int main(int argc, char **argv)
{
    text_data_set_dir(argc, argv);
    mf_tokenizer *tokenizer = text_tokenizer_open("gpt2");
    check_goldens(tokenizer);
    check_window();
    check_long_repetition();
    check_xtc_chance();
    check_bad_options(tokenizer);
    check_memory(tokenizer);
    check_odd_logprobs();
    check_skip();
    check_many(false);
    check_many(true);
    mf_tokenizer_free(&tokenizer);
    return test_result();
}

/* SPDX-License-Identifier: MIT */
/*
 * Keys, values and latents cached in bfloat16: half the memory, logits within a stated bound of
 * those with a float32 cache, and the same bits whatever the chunk and the threads.
 */
#include "golden.h"

/*
 * The largest difference of a position's logits, relative to the largest logit of the position. A
 * cached value is rounded by at most 2^-9 of itself. Tiny random models make the most of it: where
 * a router's choice stands on edge it may turn, so the median over the positions has the narrower
 * bound.
 */
#define MAX_MEDIAN 0.02
#define MAX_RELATIVE 0.25

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double relative(const float *got, const float *want, size_t n)
{
    double diff = 0.0, largest = 0.0;
    for (size_t i = 0; i < n; i++) {
        diff = fmax(diff, fabs((double)got[i] - want[i]));
        largest = fmax(largest, fabs((double)want[i]));
    }
    return diff / largest;
}

static float *run(const golden_case *c, const golden *g, mf_kv_type kv_type, uint32_t chunk,
                  uint32_t n_threads, uint64_t *session_bytes)
{
    mf_engine_options options = golden_options(c);
    mf_error error = {0};
    mf_model_info info;
    options.kv_type = kv_type;
    options.n_chunk_tokens = chunk;
    options.n_threads = n_threads;
    REQUIRE_OK(mf_model_inspect(golden_path(c->name), &options, &info, &error), &error);
    *session_bytes = info.session_bytes;
    float *logits = golden_run(c, g, &options, &error);
    if (logits == NULL)
        fprintf(stderr, "%s: %s\n", c->name, error.message);
    REQUIRE(logits != NULL);
    return logits;
}

static void check_case(const golden_case *c)
{
    static const uint32_t chunks[] = {1, 7, 64};
    golden g;
    golden_read(c, &g);
    uint64_t f32_bytes, bf16_bytes;
    size_t n = (size_t)g.n_tokens * g.n_vocab;
    float *f32 = run(c, &g, MF_KV_F32, 512, 1, &f32_bytes);
    float *bf16 = run(c, &g, MF_KV_BF16, 512, 1, &bf16_bytes);
    bool is_latent = c->name[0] == 'v' || c->name[0] == 'k'; /* others have recurrent states too */
    CHECK_MSG(bf16_bytes < f32_bytes && (!is_latent || bf16_bytes <= f32_bytes / 2 + 4096),
              "%s: %llu bytes, %llu in float32", c->name, (unsigned long long)bf16_bytes,
              (unsigned long long)f32_bytes);
    CHECK(memcmp(f32, bf16, n * sizeof *f32) != 0);
    double *differences = calloc(g.n_tokens, sizeof *differences);
    for (uint32_t t = 0; t < g.n_tokens; t++)
        differences[t] =
            relative(bf16 + (size_t)t * g.n_vocab, f32 + (size_t)t * g.n_vocab, g.n_vocab);
    qsort(differences, g.n_tokens, sizeof *differences, ascending);
    double median = differences[g.n_tokens / 2], largest = differences[g.n_tokens - 1];
    fprintf(stderr, "%s: median %g, largest %g\n", c->name, median, largest);
    CHECK_MSG(median <= MAX_MEDIAN, "%s: the median difference is %g", c->name, median);
    CHECK_MSG(largest <= MAX_RELATIVE, "%s: the largest difference is %g", c->name, largest);
    for (uint32_t i = golden_is_short() ? 1 : 0; i < (golden_is_short() ? 2 : 3); i++) {
        float *other = run(c, &g, MF_KV_BF16, chunks[i], 1 + i, &bf16_bytes);
        CHECK_MSG(memcmp(other, bf16, n * sizeof *other) == 0, "%s: chunks of %u differ", c->name,
                  chunks[i]);
        free(other);
    }
    free(differences);
    free(f32);
    free(bf16);
    golden_free(&g);
}

static void check_refused(void)
{
    mf_engine_options options = golden_options(golden_case_find("mlx_4bit"));
    mf_model_info info;
    mf_error error = {0};
    options.kv_type = (mf_kv_type)2;
    CHECK_STATUS(mf_model_inspect(golden_path("v3_bf16"), &options, &info, &error),
                 MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "kv_type");
}

int main(void)
{
    static const char *const names[] = {
        "v3_bf16",       "v3_yarn_f32",  "v3_mlx_4bit_split", "v3_no_q_lora_f16", "k2_bf16",
        "v2_groups_f16", "v2_lite_bf16", "mlx_4bit",          "next_bf16",        "hf_bf16"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i += golden_is_short() ? 4 : 1)
        check_case(golden_case_find(names[i]));
    check_refused();
    return test_result();
}

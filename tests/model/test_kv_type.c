/* SPDX-License-Identifier: MIT */
/*
 * Keys, values and latents cached in bfloat16 and in 8 bits: so much less memory, logits within a
 * stated bound of those with a float32 cache, in 8 bits near those of transformers over the same
 * blocks, and the same bits whatever the chunk and the threads.
 */
#include "golden.h"

/*
 * The largest difference of a position's logits, relative to the largest logit of the position. A
 * cached value is rounded by at most 2^-9 of itself. Tiny random models make the most of it: where
 * a router's choice stands on edge it may turn, so the median over the positions has the narrower
 * bound.
 */
typedef struct kv_case {
    mf_kv_type type;
    const char *name;
    double most_bytes; /* of those in float32, where positions are all that a session keeps */
    double most_median, most;
} kv_case;

static const kv_case kv_cases[] = {{MF_KV_BF16, "bf16", 0.5, 0.02, 0.25},
                                   {MF_KV_Q8, "q8", 0.32, 0.05, 0.75}};

/* A value that lies between two codes may become either, as its last bit says: then the position's
 * logits are off by a part of what 8 bits change at all. Others agree to the goldens' own 1e-4. */
#define Q8_MEDIAN 1e-4
#define Q8_RELATIVE 0.02

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

/* The median and the largest difference of the positions' logits. */
static void differences(const golden *g, const float *got, const float *want, double *out)
{
    double *each = calloc(g->n_tokens, sizeof *each);
    REQUIRE(each != NULL);
    for (uint32_t t = 0; t < g->n_tokens; t++)
        each[t] = relative(got + (size_t)t * g->n_vocab, want + (size_t)t * g->n_vocab, g->n_vocab);
    qsort(each, g->n_tokens, sizeof *each, ascending);
    out[0] = each[g->n_tokens / 2];
    out[1] = each[g->n_tokens - 1];
    free(each);
}

static void check_type(const golden_case *c, const golden *g, const float *f32, uint64_t f32_bytes,
                       const kv_case *k)
{
    static const uint32_t chunks[] = {1, 7, 64};
    uint64_t n_bytes;
    const size_t n = (size_t)g->n_tokens * g->n_vocab;
    float *logits = run(c, g, k->type, 512, 1, &n_bytes);
    bool is_latent = c->name[0] == 'v' || c->name[0] == 'k'; /* others have recurrent states too */
    CHECK_MSG(n_bytes < f32_bytes &&
                  (!is_latent || (double)n_bytes <= k->most_bytes * (double)f32_bytes + 4096),
              "%s, %s: %llu bytes, %llu in float32", c->name, k->name, (unsigned long long)n_bytes,
              (unsigned long long)f32_bytes);
    CHECK(memcmp(f32, logits, n * sizeof *f32) != 0);
    double off[2];
    differences(g, logits, f32, off);
    fprintf(stderr, "%s, %s: median %g, largest %g\n", c->name, k->name, off[0], off[1]);
    CHECK_MSG(off[0] <= k->most_median, "%s, %s: the median difference is %g", c->name, k->name,
              off[0]);
    CHECK_MSG(off[1] <= k->most, "%s, %s: the largest difference is %g", c->name, k->name, off[1]);
    for (uint32_t i = golden_is_short() ? 1 : 0; i < (golden_is_short() ? 2 : 3); i++) {
        float *other = run(c, g, k->type, chunks[i], 1 + i, &n_bytes);
        CHECK_MSG(memcmp(other, logits, n * sizeof *other) == 0, "%s, %s: chunks of %u differ",
                  c->name, k->name, chunks[i]);
        free(other);
    }
    free(logits);
}

static void check_case(const golden_case *c)
{
    const bool has_q8 = strncmp(c->name, "deepseek_v4", 11) != 0; /* refused: check_refused */
    golden g;
    golden_read(c, &g);
    uint64_t f32_bytes;
    float *f32 = run(c, &g, MF_KV_F32, 512, 1, &f32_bytes);
    for (size_t i = 0; i < (has_q8 ? 2 : 1); i++)
        check_type(c, &g, f32, f32_bytes, &kv_cases[i]);
    free(f32);
    golden_free(&g);
}

/* Against transformers over the same blocks (tools/make_kv_goldens.py). */
static void check_blocks(const char *name)
{
    golden_case c = *golden_case_find(name);
    c.golden = "golden_q8.bin";
    golden g;
    golden_read(&c, &g);
    uint64_t n_bytes;
    double off[2];
    float *logits = run(&c, &g, MF_KV_Q8, 512, 1, &n_bytes);
    differences(&g, logits, g.logits, off);
    fprintf(stderr, "%s, blocks: median %g, largest %g\n", name, off[0], off[1]);
    CHECK_MSG(off[0] <= Q8_MEDIAN, "%s: the median difference is %g", name, off[0]);
    CHECK_MSG(off[1] <= Q8_RELATIVE, "%s: the largest difference is %g", name, off[1]);
    free(logits);
    golden_free(&g);
}

/* Where an indexer chooses of rows of 8 bits: a device's logits are near the CPU's. */
static void check_chosen(const char *name)
{
    const golden_case *c = golden_case_find(name);
    mf_engine_options options = golden_options(c);
    mf_error error = {0};
    golden g;
    golden_read(c, &g);
    uint64_t n_bytes;
    double off[2];
    options.kv_type = MF_KV_Q8;
    options.device = "cpu";
    float *want = golden_run(c, &g, &options, &error);
    REQUIRE_OK(want != NULL ? MF_OK : MF_ERR_STATE, &error);
    float *logits = run(c, &g, MF_KV_Q8, 7, 1, &n_bytes);
    differences(&g, logits, want, off);
    fprintf(stderr, "%s, q8 beside the CPU: median %g, largest %g\n", name, off[0], off[1]);
    CHECK_MSG(off[0] <= Q8_MEDIAN, "%s: the median difference is %g", name, off[0]);
    CHECK_MSG(off[1] <= Q8_RELATIVE, "%s: the largest difference is %g", name, off[1]);
    free(want);
    free(logits);
    golden_free(&g);
}

static void check_refused(void)
{
    mf_engine_options options = golden_options(golden_case_find("mlx_4bit"));
    mf_model_info info;
    mf_error error = {0};
    options.kv_type = (mf_kv_type)3;
    CHECK_STATUS(mf_model_inspect(golden_path("v3_bf16"), &options, &info, &error),
                 MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "kv_type");
    options.kv_type = MF_KV_Q8;
    CHECK_STATUS(mf_model_inspect(golden_path("deepseek_v4_bf16"), &options, &info, &error),
                 MF_ERR_UNSUPPORTED);
    CHECK_CONTAINS(error.message, "kv_type");
}

int main(void)
{
    static const char *const names[] = {
        "v3_bf16",   "v3_yarn_f32",   "v3_mlx_4bit_split",    "v3_no_q_lora_f16",
        "k2_bf16",   "v2_groups_f16", "v2_lite_bf16",         "mlx_4bit",
        "next_bf16", "hf_bf16",       "deepseek_v4_plain_f16"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i += golden_is_short() ? 4 : 1)
        check_case(golden_case_find(names[i]));
    static const char *const blocks[] = {"qwen3_moe_bf16", "next_bf16", "mistral_window_bf16",
                                         "v2_lite_bf16"};
    for (size_t i = golden_is_short() ? 3 : 0; i < 4; i++)
        check_blocks(blocks[i]);
    if (GOLDEN_ON_DEVICE && !golden_is_short())
        check_chosen("deepseek_v32_index_f32");
    check_refused();
    return test_result();
}

/* SPDX-License-Identifier: MIT */
/*
 * Matrix products of one thread from its caches, by stored form and number of tokens, in the time
 * that the thread itself ran: so the figures mean something on a machine that others use. The best
 * of several runs: bytes of weights a second for one token, for more the multiply-adds beside the
 * most float32 multiply-adds that the core makes.
 *
 *     bench_kernels [--tier NAME] [FORM ...]
 */
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROWS = 256, COLS = 2048, MAX_TOKENS = 512, N_COUNTS = 7, RUNS = 20, MANY = 64 };

typedef struct form {
    const char *name;
    mf_weight_shape shape;
} form;

#define AFFINE(n)                                                                 \
    {                                                                             \
        .kind = MF_WEIGHT_AFFINE, .float_type = MF_BF16, .bits = (n), .group = 64 \
    }

static const form forms[] = {
    {"2 bits", AFFINE(2)},
    {"3 bits", AFFINE(3)},
    {"4 bits", AFFINE(4)},
    {"5 bits", AFFINE(5)},
    {"6 bits", AFFINE(6)},
    {"8 bits", AFFINE(8)},
    {"q4_0", {.kind = MF_WEIGHT_GGUF_Q4_0}},
    {"q5_0", {.kind = MF_WEIGHT_GGUF_Q5_0}},
    {"q8_0", {.kind = MF_WEIGHT_GGUF_Q8_0}},
    {"q4_k", {.kind = MF_WEIGHT_GGUF_Q4_K}},
    {"q5_k", {.kind = MF_WEIGHT_GGUF_Q5_K}},
    {"q6_k", {.kind = MF_WEIGHT_GGUF_Q6_K}},
    {"iq4_xs", {.kind = MF_WEIGHT_GGUF_IQ4_XS}},
    {"iq1_s", {.kind = MF_WEIGHT_GGUF_IQ1_S}},
    {"iq1_m", {.kind = MF_WEIGHT_GGUF_IQ1_M}},
    {"iq2_xxs", {.kind = MF_WEIGHT_GGUF_IQ2_XXS}},
    {"iq2_xs", {.kind = MF_WEIGHT_GGUF_IQ2_XS}},
    {"iq2_s", {.kind = MF_WEIGHT_GGUF_IQ2_S}},
    {"iq3_xxs", {.kind = MF_WEIGHT_GGUF_IQ3_XXS}},
    {"iq3_s", {.kind = MF_WEIGHT_GGUF_IQ3_S}},
    {"tq1_0", {.kind = MF_WEIGHT_GGUF_TQ1_0}},
    {"tq2_0", {.kind = MF_WEIGHT_GGUF_TQ2_0}},
    {"iq4_nl", {.kind = MF_WEIGHT_GGUF_IQ4_NL}},
    {"mxfp4", {.kind = MF_WEIGHT_MXFP4}},
    {"mxfp4 (gguf)", {.kind = MF_WEIGHT_GGUF_MXFP4}},
    {"nvfp4", {.kind = MF_WEIGHT_NVFP4}},
    {"int4", {.kind = MF_WEIGHT_INT4, .float_type = MF_BF16, .bits = 4, .group = 32}},
    {"int4 (128)", {.kind = MF_WEIGHT_INT4, .float_type = MF_BF16, .bits = 4, .group = 128}},
    {"int8 (128)", {.kind = MF_WEIGHT_INT8, .float_type = MF_BF16, .bits = 8, .group = 128}},
    {"fp8", {.kind = MF_WEIGHT_FP8_BLOCK, .float_type = MF_F32, .bits = 8, .group = 128}},
    {"bf16", {.kind = MF_WEIGHT_FLOAT, .float_type = MF_BF16}},
};

typedef struct bench {
    const mf_kernels *kernels;
    unsigned char *weights;
    float *x, *y;
    double peak; /* multiply-adds a second */
} bench;

static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *allocate(size_t n_bytes)
{
    void *p = aligned_alloc(64, (n_bytes + 63) & ~(size_t)63);
    if (p == NULL) {
        fprintf(stderr, "bench_kernels: out of memory\n");
        exit(1);
    }
    return p;
}

/* Bytes that are numbers of ordinary size in every form. */
static void fill(unsigned char *p, size_t n)
{
    uint64_t random = 88172645463325252u;
    for (size_t i = 0; i < n; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        p[i] = (unsigned char)(i % 2 == 0 ? random >> 20 & 0xfe : (random >> 20 & 0x83) | 0x3c);
    }
}

/* Scales of 8 bits as checkpoints have them: no code of them is subnormal, overflows or is no
 * number, which would be what is measured. */
static void fill_scales(const mf_matrix *w, unsigned char *values, unsigned char *scales)
{
    const size_t n = (size_t)ROWS * COLS;
    if (w->shape.kind == MF_WEIGHT_MXFP4 || w->shape.kind == MF_WEIGHT_NVFP4)
        for (size_t i = 0; i < n / 16; i++)
            scales[i] = (unsigned char)(112 + i * 7919 % 13);
    if (w->shape.kind == MF_WEIGHT_GGUF_MXFP4)
        for (size_t i = 0; i < n / 32; i++)
            values[i * 17] = (unsigned char)(112 + i * 7919 % 13);
}

static void open_bench(bench *b, const char *tier_name)
{
    float sink = 0.5f;
    mf_cpu_tier tier = MF_CPU_BEST;
    if (!mf_cpu_tier_named(tier_name, &tier) || (b->kernels = mf_kernels_get(tier)) == NULL) {
        fprintf(stderr, "bench_kernels: '%s' is no tier of this CPU\n", tier_name);
        exit(2);
    }
    b->weights = allocate((size_t)ROWS * COLS * 2);
    b->x = allocate((size_t)MAX_TOKENS * COLS * sizeof *b->x);
    b->y = allocate((size_t)MAX_TOKENS * ROWS * sizeof *b->y);
    for (uint32_t i = 0; i < MAX_TOKENS * COLS; i++)
        b->x[i] = (float)(i % 104729 * 7919 % 2001) / 1000.0f - 1.0f;
    for (uint32_t i = 0; i < RUNS; i++) {
        const double start = thread_seconds();
        const double rate =
            (double)b->kernels->fma_peak(1000000, &sink) / (thread_seconds() - start);
        b->peak = rate > b->peak ? rate : b->peak;
    }
}

/* Seconds of the best run by n_tokens. */
static double run(const bench *b, const mf_matrix *w, uint32_t n_tokens, const void *prepared,
                  void *scratch)
{
    double best = 1e9;
    for (uint32_t i = 0; i < (n_tokens < MANY ? RUNS : RUNS / 4); i++) {
        const double start = thread_seconds();
        if (prepared != NULL)
            b->kernels->matmul_prepared(w, 0, ROWS, prepared, n_tokens, b->y, ROWS, scratch);
        else
            b->kernels->matmul(w, 0, ROWS, b->x, COLS, n_tokens, b->y, ROWS, scratch);
        const double seconds = thread_seconds() - start;
        best = seconds < best ? seconds : best;
    }
    return best;
}

static void measure(const bench *b, const form *f)
{
    static const uint32_t counts[N_COUNTS] = {1, 2, 4, 8, 16, 64, MAX_TOKENS};
    mf_matrix w = {.shape = f->shape};
    w.shape.n_rows = ROWS;
    w.shape.n_cols = COLS;
    size_t at = 0;
    for (uint32_t i = 0; i < MF_MAX_WEIGHT_ARRAYS; i++) {
        w.arrays[i] = b->weights + at;
        at += (size_t)mf_weight_array_bytes(&w.shape, i);
    }
    fill(b->weights, (size_t)ROWS * COLS * 2);
    fill_scales(&w, b->weights, b->weights + mf_weight_array_bytes(&w.shape, 0));
    const size_t token_bytes = b->kernels->token_bytes(&w);
    unsigned char *prepared = token_bytes > 0 ? allocate(token_bytes * MAX_TOKENS) : NULL;
    void *scratch = allocate(b->kernels->matmul_scratch_bytes(&w, MAX_TOKENS) + 64);
    for (size_t t = 0; t < MAX_TOKENS && token_bytes > 0; t++)
        b->kernels->prepare_token(&w, b->x + t * COLS, prepared + t * token_bytes);
    printf("%-8s", f->name);
    for (uint32_t i = 0; i < N_COUNTS; i++) {
        const double seconds = run(b, &w, counts[i], prepared, scratch);
        if (counts[i] == 1)
            printf(" %7.1f GB/s", (double)mf_weight_bytes(&w.shape) / seconds * 1e-9);
        else
            printf(" %7.2f", (double)ROWS * COLS * counts[i] / seconds / b->peak);
    }
    printf("\n");
    fflush(stdout);
    free(prepared);
    free(scratch);
}

int main(int argc, char **argv)
{
    const bool has_tier = argc > 2 && strcmp(argv[1], "--tier") == 0;
    const int first = has_tier ? 3 : 1;
    bench b = {0};
    open_bench(&b, has_tier ? argv[2] : "auto");
    printf("%s, one thread, [%d, %d], %.1f billion multiply-adds a second\n"
           "tokens            1       2       4       8      16      64     512\n",
           mf_cpu_tier_name(b.kernels->tier), ROWS, COLS, b.peak * 1e-9);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        bool is_wanted = argc == first;
        for (int j = first; j < argc; j++)
            is_wanted = is_wanted || strcmp(argv[j], forms[i].name) == 0;
        if (is_wanted)
            measure(&b, &forms[i]);
    }
    free(b.weights);
    free(b.x);
    free(b.y);
    return 0;
}

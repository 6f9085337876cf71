/* SPDX-License-Identifier: MIT */
/*
 * Matrix products by stored form, on the CPU backend's threads. One token: bytes of weights a
 * second beside what the same threads read from the same memory at best, alternating. More tokens:
 * multiply-adds a second beside the cores' peak. Medians of the rounds' ratios; the weights lie in
 * one stretch of memory that should be much larger than the caches, as one matrix and as matrices
 * of an expert's size.
 *
 *     bench_matvec [--mib N] [--threads N] [--tier NAME] [--rounds N] [--cols N] [--rows N] [FORM
 * ...]
 */
#include "bench_median.h"

#include "backend/backend.h"
#include "base/clock.h"
#include "base/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROUNDS 99u
#define MAX_TOKENS 64u
#define MEASURE_MS 150u

typedef struct bench {
    uint32_t n_mib, n_threads, n_rounds, n_cols;
    mf_cpu_tier tier;
    uint32_t n_rows; /* of an expert's matrix */
    mf_backend *be;
    mf_span weights, x, y; /* in one buffer */
    uint64_t n_bytes;      /* of weights */
    char **only;           /* the forms that are measured; n_only 0: all */
    int n_only;
} bench;

typedef struct form {
    const char *name;
    mf_weight_kind kind;
    mf_dtype float_type;
    uint32_t bits, group;
} form;

static const form forms[] = {
    {"fp8", MF_WEIGHT_FP8_BLOCK, MF_F32, 8, 128},
    {"bf16", MF_WEIGHT_FLOAT, MF_BF16, 0, 0},
    {"f16", MF_WEIGHT_FLOAT, MF_F16, 0, 0},
    {"f32", MF_WEIGHT_FLOAT, MF_F32, 0, 0},
    {"2 bits", MF_WEIGHT_AFFINE, MF_BF16, 2, 64},
    {"3 bits", MF_WEIGHT_AFFINE, MF_BF16, 3, 64},
    {"4 bits", MF_WEIGHT_AFFINE, MF_BF16, 4, 64},
    {"5 bits", MF_WEIGHT_AFFINE, MF_BF16, 5, 64},
    {"6 bits", MF_WEIGHT_AFFINE, MF_BF16, 6, 64},
    {"8 bits", MF_WEIGHT_AFFINE, MF_BF16, 8, 64},
    {"q4_0", MF_WEIGHT_GGUF_Q4_0, MF_F32, 0, 0},
    {"q4_1", MF_WEIGHT_GGUF_Q4_1, MF_F32, 0, 0},
    {"q5_0", MF_WEIGHT_GGUF_Q5_0, MF_F32, 0, 0},
    {"q8_0", MF_WEIGHT_GGUF_Q8_0, MF_F32, 0, 0},
    {"q2_k", MF_WEIGHT_GGUF_Q2_K, MF_F32, 0, 0},
    {"q3_k", MF_WEIGHT_GGUF_Q3_K, MF_F32, 0, 0},
    {"q4_k", MF_WEIGHT_GGUF_Q4_K, MF_F32, 0, 0},
    {"q5_k", MF_WEIGHT_GGUF_Q5_K, MF_F32, 0, 0},
    {"q6_k", MF_WEIGHT_GGUF_Q6_K, MF_F32, 0, 0},
    {"iq4_nl", MF_WEIGHT_GGUF_IQ4_NL, MF_F32, 0, 0},
    {"iq4_xs", MF_WEIGHT_GGUF_IQ4_XS, MF_F32, 0, 0},
    {"iq1_s", MF_WEIGHT_GGUF_IQ1_S, MF_F32, 0, 0},
    {"iq1_m", MF_WEIGHT_GGUF_IQ1_M, MF_F32, 0, 0},
    {"iq2_xxs", MF_WEIGHT_GGUF_IQ2_XXS, MF_F32, 0, 0},
    {"iq2_xs", MF_WEIGHT_GGUF_IQ2_XS, MF_F32, 0, 0},
    {"iq2_s", MF_WEIGHT_GGUF_IQ2_S, MF_F32, 0, 0},
    {"iq3_xxs", MF_WEIGHT_GGUF_IQ3_XXS, MF_F32, 0, 0},
    {"iq3_s", MF_WEIGHT_GGUF_IQ3_S, MF_F32, 0, 0},
    {"tq1_0", MF_WEIGHT_GGUF_TQ1_0, MF_F32, 0, 0},
    {"tq2_0", MF_WEIGHT_GGUF_TQ2_0, MF_F32, 0, 0},
    {"gguf mxfp4", MF_WEIGHT_GGUF_MXFP4, MF_F32, 0, 0},
    {"mxfp4", MF_WEIGHT_MXFP4, MF_F32, 0, 0},
    {"nvfp4", MF_WEIGHT_NVFP4, MF_F32, 0, 0},
    {"int4", MF_WEIGHT_INT4, MF_BF16, 4, 32},
};

static void check(mf_status status, const mf_error *error)
{
    if (status == MF_OK)
        return;
    fprintf(stderr, "bench_matvec: %s\n", error->message);
    exit(1);
}

/* Bytes that are numbers of ordinary size in every form, as 16 and as 32 bits, and no NaN as 8:
 * what is measured must not be the cost of subnormal floats. */
static void fill(unsigned char *p, uint64_t n)
{
    uint64_t random = 88172645463325252u;
    const uint64_t n_block = n < (1u << 20) ? n : 1u << 20;
    for (uint64_t i = 0; i < n_block; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        p[i] = (unsigned char)(i % 2 == 0 ? random >> 20 & 0xfe : (random >> 20 & 0x83) | 0x3c);
    }
    for (uint64_t i = n_block; i < n; i += n_block)
        memcpy(p + i, p, n - i < n_block ? n - i : n_block);
}

static void open_backend(bench *b)
{
    mf_error error = {0};
    const mf_backend_options options = {.n_threads = b->n_threads, .cpu_tier = b->tier};
    check(mf_backend_open(&options, &b->be, &error), &error);
    b->n_bytes = (uint64_t)b->n_mib << 20;
    uint64_t x_bytes = (uint64_t)MAX_TOKENS * b->n_cols * sizeof(float);
    uint64_t y_bytes = MAX_TOKENS * (b->n_bytes / b->n_cols * 2 + 1) * sizeof(float);
    check(b->be->ops->buffer_create(b->be, b->n_bytes, MF_USE_HOST, "weights", &b->weights.buffer,
                                    &error),
          &error);
    check(
        b->be->ops->buffer_create(b->be, x_bytes, MF_USE_HOST, "activations", &b->x.buffer, &error),
        &error);
    check(b->be->ops->buffer_create(b->be, y_bytes, MF_USE_DEVICE, "results", &b->y.buffer, &error),
          &error);
    fill(b->be->ops->buffer_host(b->be, b->weights.buffer), b->n_bytes);
    float *x = (float *)(void *)b->be->ops->buffer_host(b->be, b->x.buffer);
    for (uint64_t i = 0; i < x_bytes / sizeof *x; i++)
        x[i] = (float)(i * 7919 % 2001) / 1000.0f - 1.0f;
}

/* A matrix of n_rows rows at `at`: values, then scales, then biases. */
static mf_weight weight_at(const bench *b, const form *f, uint64_t at, uint32_t n_rows)
{
    mf_weight w = {.shape = {.kind = f->kind,
                             .float_type = f->float_type,
                             .bits = f->bits,
                             .group = f->group,
                             .n_rows = n_rows,
                             .n_cols = b->n_cols}};
    for (uint32_t i = 0; i < MF_MAX_WEIGHT_ARRAYS; i++) {
        w.arrays[i] = mf_span_at(b->weights, at);
        at += mf_weight_array_bytes(&w.shape, i);
    }
    return w;
}

/* Multiplies everything once; n_rows 0: as one matrix. Returns seconds, and the weights' bytes. */
static double run(const bench *b, const form *f, uint32_t n_rows, uint32_t n_tokens, uint64_t *size)
{
    mf_error error = {0};
    if (n_rows == 0) {
        mf_weight some = weight_at(b, f, 0, 128 * 64);
        n_rows = (uint32_t)(b->n_bytes / mf_weight_bytes(&some.shape)) * some.shape.n_rows;
    }
    mf_op op = {.kind = MF_OP_MATMUL, .n_rows = n_tokens};
    op.u.matmul.x = b->x;
    op.u.matmul.y[0] = b->y;
    op.u.matmul.n = 1;
    op.u.matmul.weight[0] = weight_at(b, f, 0, n_rows);
    const uint64_t one = mf_weight_bytes(&op.u.matmul.weight[0].shape);
    check(b->be->ops->reserve(b->be, &op, &error), &error);
    uint64_t start_us = mf_now_us();
    *size = 0;
    for (uint64_t at = 0; at + one <= b->n_bytes; at += one, *size += one) {
        op.u.matmul.weight[0] = weight_at(b, f, at, n_rows);
        b->be->ops->record(b->be, &op);
    }
    check(mf_backend_finish(b->be, &error), &error);
    return (double)(mf_now_us() - start_us) / 1e6;
}

static void measure(const bench *b, double *read, double *fma)
{
    mf_error error = {0};
    check(b->be->ops->measure(b->be, &b->weights, &b->n_bytes, 1, MEASURE_MS, read, fma, &error),
          &error);
}

static void compare(const bench *b, const form *f, uint32_t n_rows, uint32_t n_tokens)
{
    double rate[MAX_ROUNDS], limit[MAX_ROUNDS], ratio[MAX_ROUNDS];
    mf_weight row = weight_at(b, f, 0, 128);
    for (uint32_t i = 0; i < b->n_rounds; i++) {
        double read, fma;
        uint64_t n_bytes;
        measure(b, &read, &fma);
        double s = run(b, f, n_rows, n_tokens, &n_bytes);
        double weights = (double)n_bytes / (double)mf_weight_bytes(&row.shape) * 128 * b->n_cols;
        rate[i] = n_tokens == 1 ? (double)n_bytes / s : weights * n_tokens / s;
        limit[i] = n_tokens == 1 ? read : fma;
        ratio[i] = rate[i] / limit[i];
    }
    double middle = bench_median(ratio, b->n_rounds);
    char rows[16] = "all";
    if (n_rows > 0)
        snprintf(rows, sizeof rows, "%u", n_rows);
    printf("%-10s %3u tokens %6s rows %8.1f %s  at best %8.1f  ratio %.3f (%.3f to %.3f)\n",
           f->name, n_tokens, rows, bench_median(rate, b->n_rounds) / 1e9,
           n_tokens == 1 ? "GB/s " : "Gma/s", bench_median(limit, b->n_rounds) / 1e9, middle,
           ratio[0], ratio[b->n_rounds - 1]);
    fflush(stdout);
}

static void parse(bench *b, int argc, char **argv)
{
    const struct {
        const char *name;
        uint32_t *value;
    } options[] = {{"--mib", &b->n_mib},
                   {"--threads", &b->n_threads},
                   {"--rounds", &b->n_rounds},
                   {"--cols", &b->n_cols},
                   {"--rows", &b->n_rows}};
    bool ok = true;
    int i = 1;
    for (; ok && i + 1 < argc && argv[i][0] == '-'; i += 2) {
        size_t j = 0;
        if (strcmp(argv[i], "--tier") == 0) {
            ok = mf_cpu_tier_named(argv[i + 1], &b->tier);
            continue;
        }
        while (j < 5 && strcmp(argv[i], options[j].name) != 0)
            j++;
        ok = j < 5;
        if (ok)
            *options[j].value = (uint32_t)atoi(argv[i + 1]);
    }
    b->only = argv + i;
    b->n_only = argc - i;
    if (ok && b->n_rounds > 0 && b->n_rounds <= MAX_ROUNDS && b->n_cols >= 128 &&
        b->n_cols % 128 == 0 && b->n_rows > 0 &&
        (uint64_t)b->n_mib << 20 >= (uint64_t)128 * 64 * 5 * b->n_cols)
        return;
    fprintf(stderr, "usage: bench_matvec [--mib N] [--threads N] [--tier NAME] [--rounds N] "
                    "[--cols N] [--rows N] [FORM ...]\n");
    exit(2);
}

static bool is_wanted(const bench *b, const form *f)
{
    for (int i = 0; i < b->n_only; i++)
        if (strcmp(b->only[i], f->name) == 0)
            return true;
    return b->n_only == 0;
}

int main(int argc, char **argv)
{
    bench b = {.n_mib = 1024, .n_rounds = 7, .n_cols = 7168, .n_rows = 2048};
    parse(&b, argc, argv);
    open_backend(&b);
    printf("%s %s, %u MiB of weights, %u columns\n", b.be->ops->name, b.be->ops->device_name(b.be),
           b.n_mib, b.n_cols);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (!is_wanted(&b, &forms[i]))
            continue;
        compare(&b, &forms[i], 0, 1);
        compare(&b, &forms[i], b.n_rows, 1);
        compare(&b, &forms[i], b.n_rows, 4);
        compare(&b, &forms[i], b.n_rows, MAX_TOKENS);
    }
    b.be->ops->destroy(b.be);
    return 0;
}

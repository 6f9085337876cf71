/* SPDX-License-Identifier: MIT */
/*
 * The Vulkan backend's products, operation by operation, on the shapes of a mixture of 35B with 3B
 * active: bytes of weights a second beside what a plain kernel reads from the same memory, or
 * multiply-adds a second beside a plain kernel's. Time is the device's own, from the first
 * operation's beginning to the last one's end: what a barrier or an operation costs is in it.
 * Weights go round through --mib of memory, so that no cache holds them.
 *
 *     bench_vulkan [--device vulkan:N] [--mib N] [--ms N] [--overlap 1] [--mixed 1] [--tokens N]
 *         [--only TEXTS]
 *
 * Operations wait for each other; with --overlap those on different results do not. --mixed:
 * matrix units, where the device has them. --tokens: of a prompt.
 */
#include "bench_gpu.h"

#include "base/clock.h"
#include "bench_median.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TOKENS 4096u
#define MAX_COLS 8192u
#define MAX_ITEMS 256u
#define N_RESULTS 16u
#define MEASURE_MS 200u
#define WARM_MS 100u
#define RUNS 5u

typedef struct bench {
    const char *device, *only;
    uint32_t n_mib, n_ms, overlap, mixed, tokens; /* tokens: of prompts */
    bench_gpu gpu;
    mf_span weights, x, y;
    uint64_t n_bytes, y_bytes, at; /* of weights; of each result; where the next weight goes */
    uint32_t n_ops;
    double read, fma; /* a second, at best */
} bench;

typedef struct form {
    const char *name;
    mf_weight_kind kind;
    mf_dtype float_type;
    uint32_t bits, group;
    bool has_experts; /* they are measured too */
} form;

static const form forms[] = {
    {"q4/64", MF_WEIGHT_AFFINE, MF_BF16, 4, 64, true},
    {"q4/128", MF_WEIGHT_AFFINE, MF_BF16, 4, 128, false},
    {"q4/32", MF_WEIGHT_AFFINE, MF_F16, 4, 32, false},
    {"q8/64", MF_WEIGHT_AFFINE, MF_BF16, 8, 64, true},
    {"q6/64", MF_WEIGHT_AFFINE, MF_BF16, 6, 64, false},
    {"q5/64", MF_WEIGHT_AFFINE, MF_BF16, 5, 64, false},
    {"q3/64", MF_WEIGHT_AFFINE, MF_BF16, 3, 64, false},
    {"q2/64", MF_WEIGHT_AFFINE, MF_BF16, 2, 64, false},
    {"bf16", MF_WEIGHT_FLOAT, MF_BF16, 0, 0, true},
    {"f16", MF_WEIGHT_FLOAT, MF_F16, 0, 0, false},
    {"f32", MF_WEIGHT_FLOAT, MF_F32, 0, 0, false},
    {"fp8", MF_WEIGHT_FP8_BLOCK, MF_F32, 8, 128, false},
    {"mxfp4", MF_WEIGHT_MXFP4, MF_F32, 0, 0, false},
    {"nvfp4", MF_WEIGHT_NVFP4, MF_F32, 0, 0, true},
    {"q4_0", MF_WEIGHT_GGUF_Q4_0, MF_F32, 0, 0, true},
    {"q8_0", MF_WEIGHT_GGUF_Q8_0, MF_F32, 0, 0, true},
    {"q4_k", MF_WEIGHT_GGUF_Q4_K, MF_F32, 0, 0, true},
    {"q5_k", MF_WEIGHT_GGUF_Q5_K, MF_F32, 0, 0, false},
    {"q6_k", MF_WEIGHT_GGUF_Q6_K, MF_F32, 0, 0, true},
    {"iq4_xs", MF_WEIGHT_GGUF_IQ4_XS, MF_F32, 0, 0, true},
    {"gguf mxfp4", MF_WEIGHT_GGUF_MXFP4, MF_F32, 0, 0, true},
};
#define N_FORMS (sizeof forms / sizeof *forms)

static void open_backend(bench *b)
{
    mf_error error = {0};
    const mf_backend_options options = {
        .device = b->device, .precision = b->mixed != 0 ? MF_PRECISION_MIXED : MF_PRECISION_F32};
    bench_gpu_open(&b->gpu, &options);
    mf_backend *base = &b->gpu.be->base;
    b->n_bytes = (uint64_t)b->n_mib << 20;
    b->y_bytes = (uint64_t)b->tokens * 8 * 2048 * sizeof(float) * 2;
    b->weights = bench_gpu_create(&b->gpu, b->n_bytes, "weights");
    b->x =
        bench_gpu_create(&b->gpu, (uint64_t)MAX_TOKENS * MAX_COLS * sizeof(float), "activations");
    b->y = bench_gpu_create(&b->gpu, 3 * (b->overlap != 0 ? N_RESULTS : 1) * b->y_bytes, "results");
    bench_gpu_fill(&b->gpu, b->weights, b->n_bytes);
    bench_gpu_fill(&b->gpu, b->x, (uint64_t)MAX_TOKENS * MAX_COLS * sizeof(float));
    bench_gpu_check(base->ops->measure(base, &b->weights, &b->n_bytes, 1, MEASURE_MS, &b->read,
                                       &b->fma, &error),
                    &error);
}

static mf_weight next_weight(bench *b, const form *f, uint32_t n_rows, uint32_t n_cols)
{
    mf_weight w = {.shape = {.kind = f->kind,
                             .float_type = f->float_type,
                             .bits = f->bits,
                             .group = f->group,
                             .n_rows = n_rows,
                             .n_cols = n_cols}};
    if (b->at + mf_weight_bytes(&w.shape) + 256 > b->n_bytes)
        b->at = 0;
    for (uint32_t i = 0; i < MF_MAX_WEIGHT_ARRAYS; i++) {
        w.arrays[i] = mf_span_at(b->weights, b->at);
        b->at += (mf_weight_array_bytes(&w.shape, i) + 63) / 64 * 64;
    }
    return w;
}

static mf_span next_result(bench *b, uint32_t which)
{
    const uint32_t n = b->overlap != 0 ? b->n_ops % N_RESULTS : 0;
    return mf_span_at(b->y, (which + 3 * n) * b->y_bytes);
}

/* What is measured: makes the next operation. */
typedef struct subject {
    const form *in, *out;
    uint32_t n_rows, n_cols, n_tokens, n_items;
    void (*make)(bench *b, const struct subject *s, mf_op *op);
} subject;

static void make_matmul(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_MATMUL, .n_rows = s->n_tokens};
    op->u.matmul.x = b->x;
    op->u.matmul.n = 1;
    op->u.matmul.weight[0] = next_weight(b, s->in, s->n_rows, s->n_cols);
    op->u.matmul.y[0] = next_result(b, 0);
}

/* n_rows: hidden; n_tokens: of each item */
static void make_experts(bench *b, const subject *s, mf_op *op)
{
    static mf_expert_item items[MAX_ITEMS];
    static uint32_t rows[MAX_TOKENS];
    for (uint32_t i = 0; i < s->n_tokens; i++)
        rows[i] = i * 37 % b->tokens;
    for (uint32_t i = 0; i < s->n_items; i++)
        items[i] = (mf_expert_item){.gate = next_weight(b, s->in, s->n_rows, s->n_cols),
                                    .up = next_weight(b, s->in, s->n_rows, s->n_cols),
                                    .down = next_weight(b, s->out, s->n_cols, s->n_rows),
                                    .x_rows = rows,
                                    .n_rows = s->n_tokens,
                                    .out_row = i * s->n_tokens};
    *op = (mf_op){.kind = MF_OP_EXPERTS, .n_rows = s->n_items * s->n_tokens};
    op->u.experts = (mf_experts_params){.x = b->x,
                                        .act = next_result(b, 1),
                                        .out = next_result(b, 2),
                                        .items = items,
                                        .n_items = s->n_items};
}

static void make_route(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_ROUTE, .n_rows = s->n_tokens};
    op->u.route = (mf_route_params){.logits = b->x,
                                    .ids = next_result(b, 0),
                                    .weights = next_result(b, 1),
                                    .n_experts = s->n_rows,
                                    .k = s->n_items,
                                    .n_groups = 1,
                                    .k_groups = 1,
                                    .normalise = true,
                                    .scale = 1.0f};
}

static void make_combine(bench *b, const subject *s, mf_op *op)
{
    static uint32_t place[MAX_TOKENS * 8];
    for (uint32_t i = 0; i < s->n_tokens * 8; i++)
        place[i] = i;
    *op = (mf_op){.kind = MF_OP_COMBINE, .n_rows = s->n_tokens};
    op->u.combine = (mf_combine_params){.x = next_result(b, 0),
                                        .weights = b->x,
                                        .experts = next_result(b, 1),
                                        .shared = next_result(b, 2),
                                        .shared_gate = b->x,
                                        .place = place,
                                        .n_cols = s->n_cols,
                                        .k = 8};
}

/* Nanoseconds that the device takes for n operations. */
static double run(bench *b, const subject *s, uint32_t n)
{
    mf_backend *base = &b->gpu.be->base;
    bench_gpu_start(&b->gpu);
    for (uint32_t i = 0; i < n; i++) {
        mf_op op;
        s->make(b, s, &op);
        op.is_long = true;
        base->ops->record(base, &op);
        b->n_ops++;
    }
    return bench_gpu_stop(&b->gpu);
}

static void measure(bench *b, const char *name, const subject *s)
{
    mf_error error = {0};
    mf_op op;
    uint32_t n = 1;
    double runs[RUNS];
    if (!bench_gpu_wants(b->only, name))
        return;
    s->make(b, s, &op);
    bench_gpu_check(mf_backend_reserve(&b->gpu.be->base, &op, &error), &error);
    bench_gpu_warm(&b->gpu, b->y, WARM_MS); /* pipelines were made meanwhile */
    (void)run(b, s, 1);                     /* what is done once */
    const uint64_t bytes_before = b->gpu.be->weight_bytes;
    double ns = run(b, s, 1);
    const uint64_t bytes = b->gpu.be->weight_bytes - bytes_before;
    while (n < 4096 && ns < (double)b->n_ms * 1e6) {
        n = ns * 4 < (double)b->n_ms * 1e6 ? n * 4 : n * 2;
        ns = run(b, s, n);
    }
    for (uint32_t i = 0; i < RUNS; i++)
        runs[i] = run(b, s, n);
    ns = bench_median(runs, RUNS);
    const double products = (double)s->n_rows * s->n_cols * s->n_tokens *
                            (s->make == make_experts ? 3.0 * s->n_items : 1.0);
    const double bytes_rate = (double)bytes * n / ns, rate = products * n / ns;
    printf("%-44s %9.2f us", name, ns / n / 1e3);
    if (s->make == make_matmul || s->make == make_experts)
        printf("  %8.1f GB/s %5.1f %%  %9.1f Gma/s %5.1f %%", bytes_rate,
               100.0 * bytes_rate * 1e9 / b->read, rate, 100.0 * rate * 1e9 / b->fma);
    putchar('\n');
    fflush(stdout);
}

static void matmuls(bench *b)
{
    static const uint32_t sizes[][2] = {{8192, 2048}, {4096, 2048},   {2048, 4096}, {512, 2048},
                                        {2048, 512},  {248320, 2048}, {7168, 7168}};
    const uint32_t tokens[] = {1, 2, 4, 8, 32, b->tokens};
    char name[96];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++) {
            const subject s = {&forms[0], NULL, sizes[i][0], sizes[i][1],
                               tokens[t], 0,    make_matmul};
            if ((uint64_t)s.n_rows * s.n_tokens * sizeof(float) > b->y_bytes)
                continue;
            snprintf(name, sizeof name, "matmul %s %ux%u, %u tokens", s.in->name, s.n_rows,
                     s.n_cols, s.n_tokens);
            measure(b, name, &s);
        }
    }
    const uint32_t few[] = {1, 8, b->tokens};
    for (size_t f = 1; f < N_FORMS; f++) {
        for (size_t t = 0; t < (b->mixed != 0 ? 3 : 2); t++) {
            const subject s = {&forms[f], NULL, 8192, 2048, few[t], 0, make_matmul};
            snprintf(name, sizeof name, "matmul %s 8192x2048, %u tokens", s.in->name, few[t]);
            measure(b, name, &s);
        }
    }
}

static void experts(bench *b)
{
    /* the last: a prompt's, spread over all of a layer's experts */
    const uint32_t counts[][2] = {{8, 1}, {64, 1}, {32, 4}, {128, 16}, {256, b->tokens / 32}};
    char name[96];
    for (size_t f = 0; f < N_FORMS; f++) {
        for (size_t i = 0; i < sizeof counts / sizeof *counts && forms[f].has_experts; i++) {
            const subject s = {&forms[f],    &forms[f],    512,         2048,
                               counts[i][1], counts[i][0], make_experts};
            snprintf(name, sizeof name, "experts %s 512x2048, %u of %u tokens", s.in->name,
                     s.n_items, s.n_tokens);
            measure(b, name, &s);
        }
    }
}

static void others(bench *b)
{
    const subject route = {NULL, NULL, 256, 0, 1, 8, make_route};
    const subject combine = {NULL, NULL, 0, 2048, 1, 0, make_combine};
    measure(b, "route 8 of 256, 1 token", &route);
    measure(b, "combine 8 of 2048, 1 token", &combine);
}

/* Experts uploaded one after the other beside the stream, each in so many pieces, as one layer's
 * misses are: time from the first to the last one's end, by the host's clock. */
static void uploads(bench *b)
{
    enum { EXPERT_BYTES = 27 << 16, MOST = 256 };
    static const uint32_t counts[][2] = {{1, 1}, {1, 9}, {6, 1}, {6, 9}, {MOST, 1}, {MOST, 9}};
    mf_backend *base = &b->gpu.be->base;
    mf_buffer staging;
    mf_error error = {0};
    const uint64_t n_bytes = (uint64_t)MOST * EXPERT_BYTES;
    if (n_bytes > b->n_bytes || !bench_gpu_wants(b->only, "uploads"))
        return;
    bench_gpu_check(
        base->ops->buffer_create(base, n_bytes, MF_USE_STAGING, "experts", &staging, &error),
        &error);
    unsigned char *host = base->ops->buffer_host(base, staging);
    memset(host, 60, n_bytes);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const uint32_t n = counts[i][0], n_pieces = counts[i][1];
        double least = 1e30;
        for (uint32_t round = 0; round < 20; round++) {
            const uint64_t start = mf_now_ns();
            mf_ticket ticket = 0;
            for (uint32_t x = 0; x < n; x++) {
                mf_upload pieces[9];
                for (uint32_t p = 0; p < n_pieces; p++) {
                    const uint64_t at = (uint64_t)p * EXPERT_BYTES / n_pieces;
                    const uint64_t to = (uint64_t)(p + 1) * EXPERT_BYTES / n_pieces;
                    /* the pieces do not touch */
                    pieces[p] = (mf_upload){mf_span_at(b->weights, (uint64_t)x * EXPERT_BYTES + at),
                                            host + (uint64_t)x * EXPERT_BYTES + at,
                                            to - at - (n_pieces > 1 ? 64 : 0)};
                }
                ticket = mf_backend_upload_ahead(base, pieces, n_pieces);
            }
            bench_gpu_check(base->ops->wait_for(base, ticket, &error), &error);
            const double ns = (double)(mf_now_ns() - start);
            least = ns < least ? ns : least;
        }
        printf("uploads of %3u experts in %u pieces             %9.2f us  %8.1f GB/s\n", n,
               n_pieces, least / 1e3, (double)n * EXPERT_BYTES / least);
    }
    base->ops->buffer_free(base, staging);
}

static void parse(bench *b, int argc, char **argv)
{
    const bench_gpu_option options[] = {
        {"--mib", &b->n_mib, NULL},     {"--ms", &b->n_ms, NULL},
        {"--mixed", &b->mixed, NULL},   {"--overlap", &b->overlap, NULL},
        {"--tokens", &b->tokens, NULL}, {"--device", NULL, &b->device},
        {"--only", NULL, &b->only},     {0}};
    if (bench_gpu_parse(options, argc, argv) && b->n_mib >= 1 && b->tokens >= 32 &&
        b->tokens <= MAX_TOKENS)
        return;
    fprintf(stderr, "usage: bench_vulkan [--device vulkan:N] [--mib N] [--ms N] [--overlap 1] "
                    "[--mixed 1] [--tokens N] [--only TEXTS]\n");
    exit(2);
}

int main(int argc, char **argv)
{
    bench b = {.device = "vulkan", .n_mib = 4096, .n_ms = 20, .tokens = 512};
    parse(&b, argc, argv);
    open_backend(&b);
    printf("%s%s, %u MiB of weights; plain kernels: %.1f GB/s, %.1f Gma/s\n",
           b.gpu.be->base.ops->device_name(&b.gpu.be->base), b.gpu.be->is_mixed ? ", mixed" : "",
           b.n_mib, b.read / 1e9, b.fma / 1e9);
    uploads(&b);
    experts(&b);
    others(&b);
    matmuls(&b);
    bench_gpu_close(&b.gpu);
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * The Vulkan backend's operations on caches and states, on the shapes of a mixture of 35B with 3B
 * active and of one with latents: the device's own time for each, bytes of cache or state that it
 * must touch a second beside what a plain kernel reads from the same memory, and multiply-adds of
 * attention a second beside a plain kernel's. Caches and states go round through --mib of memory.
 *
 *     bench_vulkan_attention [--device vulkan:N] [--mib N] [--ms N] [--only TEXTS]
 */
#include "bench_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROWS 4096u
#define MAX_PAGES 8192u
#define MAX_SEQUENCES 32u
#define MEASURE_MS 200u

typedef struct bench {
    const char *device, *only;
    uint32_t n_mib, n_ms, n_ops;
    bench_gpu gpu;
    mf_span memory, x; /* caches and states; activations, then weights and angles */
    uint64_t n_bytes, x_bytes;
    double read, fma; /* a second, at best */
} bench;

/* n_sequences runs of n_rows rows each, that end at `context` positions. */
typedef struct subject {
    const char *name;
    void (*make)(bench *b, const struct subject *s, mf_op *op);
    uint32_t n_sequences, n_rows, context;
} subject;

static void open_backend(bench *b)
{
    mf_error error = {0};
    const mf_backend_options options = {.device = b->device};
    bench_gpu_open(&b->gpu, &options);
    mf_backend *base = &b->gpu.be->base;
    b->n_bytes = (uint64_t)b->n_mib << 20;
    b->x_bytes = b->n_mib >= 1024 ? (uint64_t)512 << 20 : b->n_bytes / 2;
    b->memory = bench_gpu_create(&b->gpu, b->n_bytes, "caches");
    b->x = bench_gpu_create(&b->gpu, b->x_bytes, "activations");
    bench_gpu_fill(&b->gpu, b->memory, b->n_bytes);
    bench_gpu_fill(&b->gpu, b->x, b->x_bytes);
    bench_gpu_check(base->ops->reserve_batch(base, MAX_SEQUENCES, MAX_PAGES, &error), &error);
    bench_gpu_check(
        base->ops->measure(base, &b->memory, &b->n_bytes, 1, MEASURE_MS, &b->read, &b->fma, &error),
        &error);
}

/* ---------------------------------------------------------------------------------- subjects -- */

static uint32_t rows_of(const subject *s)
{
    return s->n_sequences * s->n_rows;
}

/* Bytes of a page of one layer, or of a state. */
static uint64_t unit_bytes(const mf_op *op)
{
    switch (op->kind) {
    case MF_OP_ATTENTION:
        return (uint64_t)2 * MF_PAGE_TOKENS * op->u.attention.n_kv_heads *
               op->u.attention.head_dim * mf_dtype_bytes(op->u.attention.cache_type);
    case MF_OP_LATENT_ATTENTION:
        return (uint64_t)MF_PAGE_TOKENS *
               (op->u.latent_attention.n_latent + op->u.latent_attention.n_rot) *
               mf_dtype_bytes(op->u.latent_attention.cache_type);
    case MF_OP_CONV1D_SILU:
        return (uint64_t)op->u.conv1d_silu.n_channels * (op->u.conv1d_silu.width - 1) * 4;
    case MF_OP_GATED_DELTA:
        return (uint64_t)op->u.gated_delta.n_v_heads * op->u.gated_delta.key_dim *
               op->u.gated_delta.value_dim * 4;
    default:
        return 0;
    }
}

static bool has_pages(const mf_op *op)
{
    return op->kind == MF_OP_ATTENTION || op->kind == MF_OP_LATENT_ATTENTION;
}

/* All caches or states of the batch. */
static uint64_t batch_bytes(const subject *s, const mf_op *op)
{
    const uint64_t n = has_pages(op) ? mf_pages_of(s->context) : 1;
    return s->n_sequences * n * unit_bytes(op);
}

/* Where the next operation's are, from the first's. */
static uint64_t next_offset(bench *b, const subject *s, const mf_op *op)
{
    const uint64_t n = batch_bytes(s, op);
    return b->n_ops++ % (n < b->n_bytes ? b->n_bytes / n : 1) * n;
}

/* The i-th activation; each may have a quarter. */
static mf_span operand(const bench *b, uint32_t i)
{
    return mf_span_at(b->x, i * (b->x_bytes / 4));
}

static void make_attention(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_ATTENTION, .n_rows = rows_of(s)};
    op->u.attention = (mf_attention_params){.q = operand(b, 0),
                                            .k = operand(b, 1),
                                            .v = operand(b, 2),
                                            .out = operand(b, 3),
                                            .n_heads = 16,
                                            .n_kv_heads = 2,
                                            .head_dim = 256,
                                            .cache_type = MF_BF16,
                                            .scale = 0.0625f};
    op->u.attention.page_offset[0] = next_offset(b, s, op);
    op->u.attention.page_offset[1] = op->u.attention.page_offset[0] + unit_bytes(op) / 2;
}

static void make_latent(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_LATENT_ATTENTION, .n_rows = rows_of(s)};
    op->u.latent_attention = (mf_latent_attention_params){.q = operand(b, 0),
                                                          .q_rot = operand(b, 1),
                                                          .kv = operand(b, 2),
                                                          .out = operand(b, 3),
                                                          .n_heads = 128,
                                                          .n_latent = 512,
                                                          .n_rot = 64,
                                                          .q_rot_row = 128 * 192,
                                                          .q_rot_head = 192,
                                                          .cache_type = MF_BF16,
                                                          .scale = 0.04f};
    op->u.latent_attention.page_offset = next_offset(b, s, op);
}

static void make_heads(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_HEAD_NORM_ROPE, .n_rows = rows_of(s)};
    op->u.head_norm_rope = (mf_head_norm_rope_params){
        operand(b, 0), operand(b, 1), operand(b, 2), operand(b, 3), 16, 256, 64, 1e-6f};
}

static void make_conv(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_CONV1D_SILU, .n_rows = rows_of(s)};
    op->u.conv1d_silu =
        (mf_conv1d_silu_params){operand(b, 0), operand(b, 1), operand(b, 0), 8192, 4, 0};
    op->u.conv1d_silu.state_offset = next_offset(b, s, op);
}

static void make_delta(bench *b, const subject *s, mf_op *op)
{
    const mf_span weights = operand(b, 2);
    *op = (mf_op){.kind = MF_OP_GATED_DELTA, .n_rows = rows_of(s)};
    op->u.gated_delta = (mf_gated_delta_params){.qkv = operand(b, 0),
                                                .a = operand(b, 1),
                                                .b = operand(b, 1),
                                                .a_log = weights,
                                                .dt_bias = weights,
                                                .out = operand(b, 3),
                                                .n_k_heads = 16,
                                                .n_v_heads = 32,
                                                .key_dim = 128,
                                                .value_dim = 128,
                                                .eps = 1e-6f};
    op->u.gated_delta.state_offset = next_offset(b, s, op);
}

static void begin_batch(bench *b, const subject *s, const mf_op *op)
{
    static mf_span pages[MAX_PAGES];
    mf_sequence sequences[MAX_SEQUENCES];
    const uint32_t n_pages = mf_pages_of(s->context);
    for (uint32_t i = 0; i < s->n_sequences * n_pages; i++)
        pages[i] = mf_span_at(b->memory, i * unit_bytes(op));
    for (uint32_t i = 0; i < s->n_sequences; i++) {
        const mf_span state = mf_span_at(b->memory, i * unit_bytes(op));
        sequences[i] = (mf_sequence){.first_row = i * s->n_rows,
                                     .n_rows = s->n_rows,
                                     .position = s->context - s->n_rows,
                                     .pages = has_pages(op) ? pages + i * n_pages : NULL,
                                     .state = {state, state}};
    }
    b->gpu.be->base.ops->begin_batch(&b->gpu.be->base, sequences, s->n_sequences);
}

/* Bytes of caches and states that must be read or written. */
static double bytes_of(const subject *s, const mf_op *op)
{
    if (has_pages(op))
        return (double)s->n_sequences * s->context * (double)unit_bytes(op) / MF_PAGE_TOKENS;
    return 2.0 * s->n_sequences * (double)unit_bytes(op);
}

/* Multiply-adds of attention: each position meets those up to it. */
static double products_of(const subject *s, const mf_op *op)
{
    const double first = s->context - s->n_rows;
    const double pairs = (double)s->n_sequences * s->n_rows * (first + (s->n_rows + 1) / 2.0);
    if (op->kind == MF_OP_ATTENTION)
        return pairs * op->u.attention.n_heads * op->u.attention.head_dim * 2.0;
    if (op->kind == MF_OP_LATENT_ATTENTION)
        return pairs * op->u.latent_attention.n_heads *
               (2.0 * op->u.latent_attention.n_latent + op->u.latent_attention.n_rot);
    return 0.0;
}

/* ----------------------------------------------------------------------------------- running -- */

/* Nanoseconds that the device takes for n operations, each after the other. */
static double run(bench *b, const subject *s, uint32_t n)
{
    mf_backend *base = &b->gpu.be->base;
    bench_gpu_start(&b->gpu);
    for (uint32_t i = 0; i < n; i++) {
        mf_op op;
        s->make(b, s, &op);
        op.is_long = s->n_rows >= 32;
        base->ops->record(base, &op);
    }
    return bench_gpu_stop(&b->gpu);
}

/* Whether the activations have room in their quarters, and the pages in memory. */
static bool fits(const bench *b, const subject *s, const mf_op *op)
{
    const uint64_t widest = op->kind == MF_OP_LATENT_ATTENTION ? 128 * 512 : 8192;
    return rows_of(s) * widest * 4 <= b->x_bytes / 4 && batch_bytes(s, op) <= b->n_bytes;
}

static void measure(bench *b, const subject *s)
{
    char name[96];
    mf_error error = {0};
    mf_op op;
    uint32_t n = 1;
    (void)snprintf(name, sizeof name, "%s, %u x %u rows to %u", s->name, s->n_sequences, s->n_rows,
                   s->context);
    if (!bench_gpu_wants(b->only, name))
        return;
    s->make(b, s, &op);
    if (!fits(b, s, &op))
        return;
    bench_gpu_check(mf_backend_reserve(&b->gpu.be->base, &op, &error), &error);
    begin_batch(b, s, &op);
    (void)run(b, s, 1);
    double ns = run(b, s, 1);
    while (n < 4096 && ns < (double)b->n_ms * 1e6) {
        n = ns * 4 < (double)b->n_ms * 1e6 ? n * 4 : n * 2;
        ns = run(b, s, n);
    }
    const double bytes = bytes_of(s, &op) * n / ns, rate = products_of(s, &op) * n / ns;
    printf("%-44s %9.2f us  %8.1f GB/s %5.1f %%", name, ns / n / 1e3, bytes,
           100.0 * bytes * 1e9 / b->read);
    if (rate != 0.0)
        printf("  %9.1f Gma/s %5.1f %%", rate, 100.0 * rate * 1e9 / b->fma);
    putchar('\n');
    (void)fflush(stdout);
}

static void parse(bench *b, int argc, char **argv)
{
    const bench_gpu_option options[] = {{"--mib", &b->n_mib, NULL},
                                        {"--ms", &b->n_ms, NULL},
                                        {"--device", NULL, &b->device},
                                        {"--only", NULL, &b->only},
                                        {0}};
    if (bench_gpu_parse(options, argc, argv) && b->n_mib >= 1)
        return;
    fprintf(stderr, "usage: bench_vulkan_attention [--device vulkan:N] [--mib N] [--ms N] "
                    "[--only TEXTS]\n");
    exit(2);
}

int main(int argc, char **argv)
{
    static const subject subjects[] = {
        {"attention", make_attention, 1, 1, 64},
        {"attention", make_attention, 1, 1, 128},
        {"attention", make_attention, 1, 1, 512},
        {"attention", make_attention, 1, 1, 1024},
        {"attention", make_attention, 1, 1, 4096},
        {"attention", make_attention, 1, 1, 32768},
        {"attention", make_attention, 1, 1, 131072},
        {"attention", make_attention, 8, 1, 1024},
        {"attention", make_attention, 32, 1, 1024},
        {"attention", make_attention, 32, 1, 4096},
        {"attention", make_attention, 1, 8, 4096},
        {"attention", make_attention, 1, 64, 4096},
        {"attention", make_attention, 1, 512, 512},
        {"attention", make_attention, 1, 512, 4096},
        {"attention", make_attention, 1, 512, 32768},
        {"attention", make_attention, 1, 4096, 4096},
        {"latents", make_latent, 1, 1, 64},
        {"latents", make_latent, 1, 1, 512},
        {"latents", make_latent, 1, 1, 4096},
        {"latents", make_latent, 1, 1, 32768},
        {"latents", make_latent, 8, 1, 1024},
        {"latents", make_latent, 1, 64, 512},
        {"latents", make_latent, 1, 64, 4096},
        {"head norms and rotation", make_heads, 1, 1, 512},
        {"head norms and rotation", make_heads, 1, 512, 512},
        {"convolution", make_conv, 1, 1, 512},
        {"convolution", make_conv, 32, 1, 512},
        {"convolution", make_conv, 1, 512, 512},
        {"delta rule", make_delta, 1, 1, 512},
        {"delta rule", make_delta, 8, 1, 512},
        {"delta rule", make_delta, 32, 1, 512},
        {"delta rule", make_delta, 1, 64, 512},
        {"delta rule", make_delta, 1, 512, 512},
        {"delta rule", make_delta, 1, MAX_ROWS, 4096},
    };
    bench b = {.device = "vulkan", .n_mib = 4096, .n_ms = 20};
    parse(&b, argc, argv);
    open_backend(&b);
    printf("%s, %u MiB of caches; plain kernels: %.1f GB/s, %.1f Gma/s\n",
           b.gpu.be->base.ops->device_name(&b.gpu.be->base), b.n_mib, b.read / 1e9, b.fma / 1e9);
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
        measure(&b, &subjects[i]);
    bench_gpu_close(&b.gpu);
    return 0;
}

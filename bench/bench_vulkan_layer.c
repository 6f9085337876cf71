/* SPDX-License-Identifier: MIT */
/*
 * What decoding costs a Vulkan device, operation by operation, on the shapes of a mixture of 35B
 * with 3B active (hidden 2048, 40 layers of which each fourth attends, 8 of 256 experts of 512, 4
 * bits with groups of 64): each alone, waiting for the one before it, the median of several runs of
 * the device's own time; bytes of weights and states a second beside what a plain kernel reads from
 * the same memory; and what it all comes to for a token. Weights and states go round through --mib
 * of memory, so that no cache holds them.
 *
 *     bench_vulkan_layer [--device vulkan:N] [--mib N] [--repeats N] [--tokens N] [--only TEXT]
 *
 * --tokens: sequences that decode together, one token each.
 */
#include "bench_gpu.h"
#include "bench_median.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TOKENS 64u
#define MAX_PAGES 8192u
#define REPEATS 32u /* of an operation in a run */
#define RUNS 15u
#define MEASURE_MS 100u
#define WARM_STEPS \
    2048u /* a millisecond of arithmetic before each run: an idle device slows down */
#define OPERANDS 8u
#define OPERAND_BYTES ((uint64_t)MAX_TOKENS * 248320 * 4)
#define STATE_BYTES ((uint64_t)64 << 20) /* before the weights */

typedef struct bench {
    const char *device, *only;
    uint32_t n_mib, n_repeats, n_tokens;
    bench_gpu gpu;
    mf_span weights, x;
    uint64_t n_bytes, at;    /* of weights; where the next one goes */
    uint64_t n_touched;      /* bytes of states and caches of the operation made last */
    double read;             /* bytes a second, at best */
    double layers[2], ahead; /* us of a layer that is linear, that attends; outside of layers */
} bench;

typedef struct subject {
    const char *name;
    void (*make)(bench *b, const struct subject *s, mf_op *op);
    uint32_t a, b, context; /* what make makes of them */
    uint32_t in_linear, in_full, in_token;
} subject;

/* ------------------------------------------------------------------------------------ opening */

static void open_backend(bench *b)
{
    mf_error error = {0};
    const mf_backend_options options = {.device = b->device};
    double fma;
    bench_gpu_open(&b->gpu, &options);
    mf_backend *base = &b->gpu.be->base;
    b->n_bytes = (uint64_t)b->n_mib << 20;
    b->weights = bench_gpu_create(&b->gpu, b->n_bytes, "weights");
    b->x = bench_gpu_create(&b->gpu, OPERANDS * OPERAND_BYTES, "activations");
    bench_gpu_fill(&b->gpu, b->weights, b->n_bytes);
    bench_gpu_fill(&b->gpu, b->x, OPERANDS * OPERAND_BYTES);
    bench_gpu_check(base->ops->reserve_batch(base, MAX_TOKENS, MAX_PAGES, &error), &error);
    bench_gpu_check(
        base->ops->measure(base, &b->weights, &b->n_bytes, 1, MEASURE_MS, &b->read, &fma, &error),
        &error);
}

/* ---------------------------------------------------------------------------------- operations */

static mf_span operand(const bench *b, uint32_t i)
{
    return mf_span_at(b->x, i * OPERAND_BYTES);
}

static uint64_t next_bytes(bench *b, uint64_t n_bytes)
{
    if (b->at + n_bytes > b->n_bytes)
        b->at = STATE_BYTES;
    const uint64_t at = b->at;
    b->at += (n_bytes + 63) / 64 * 64;
    return at;
}

static mf_weight next_weight(bench *b, uint32_t bits, uint32_t n_rows, uint32_t n_cols)
{
    mf_weight w = {.shape = {.kind = MF_WEIGHT_AFFINE,
                             .float_type = MF_BF16,
                             .bits = bits,
                             .group = 64,
                             .n_rows = n_rows,
                             .n_cols = n_cols}};
    if (b->at + mf_weight_bytes(&w.shape) + 256 > b->n_bytes)
        b->at = STATE_BYTES;
    for (uint32_t i = 0; i < MF_MAX_WEIGHT_ARRAYS; i++)
        w.arrays[i] = mf_span_at(b->weights, next_bytes(b, mf_weight_array_bytes(&w.shape, i)));
    return w;
}

static void begin_matmul(bench *b, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_MATMUL, .n_rows = b->n_tokens, .u.matmul.x = operand(b, 0)};
}

static void add_weight(bench *b, mf_op *op, uint32_t bits, uint32_t n_rows, uint32_t n_cols)
{
    const uint32_t i = op->u.matmul.n++;
    op->u.matmul.weight[i] = next_weight(b, bits, n_rows, n_cols);
    op->u.matmul.y[i] = operand(b, 1 + i);
}

static void make_matmul(bench *b, const subject *s, mf_op *op)
{
    begin_matmul(b, op);
    add_weight(b, op, 4, s->a, s->b);
}

static void make_router(bench *b, const subject *s, mf_op *op)
{
    begin_matmul(b, op);
    add_weight(b, op, 8, s->a, s->b);
}

/* Queries, keys and values of the delta rule, its gates. */
static void make_linear_in(bench *b, const subject *s, mf_op *op)
{
    (void)s;
    begin_matmul(b, op);
    add_weight(b, op, 4, 8192, 2048);
    add_weight(b, op, 4, 4096, 2048);
    add_weight(b, op, 4, 32, 2048);
    add_weight(b, op, 4, 32, 2048);
}

static void make_full_in(bench *b, const subject *s, mf_op *op)
{
    (void)s;
    begin_matmul(b, op);
    add_weight(b, op, 4, 4096, 2048);
    add_weight(b, op, 4, 4096, 2048);
    add_weight(b, op, 4, 512, 2048);
    add_weight(b, op, 4, 512, 2048);
}

/* Of the shared expert, with its gate. */
static void make_shared_in(bench *b, const subject *s, mf_op *op)
{
    (void)s;
    begin_matmul(b, op);
    add_weight(b, op, 4, 512, 2048);
    add_weight(b, op, 4, 512, 2048);
    add_weight(b, op, 8, 1, 2048);
}

static void make_experts(bench *b, const subject *s, mf_op *op)
{
    static mf_expert_item items[MAX_TOKENS * 8];
    static uint32_t rows[MAX_TOKENS];
    const uint32_t n = 8 * b->n_tokens;
    for (uint32_t i = 0; i < n; i++) {
        rows[i / 8] = i / 8;
        items[i] = (mf_expert_item){.gate = next_weight(b, 4, s->a, s->b),
                                    .up = next_weight(b, 4, s->a, s->b),
                                    .down = next_weight(b, 4, s->b, s->a),
                                    .x_rows = &rows[i / 8],
                                    .n_rows = 1,
                                    .out_row = i};
    }
    *op = (mf_op){.kind = MF_OP_EXPERTS, .n_rows = n};
    op->u.experts = (mf_experts_params){.x = operand(b, 0),
                                        .act = operand(b, 1),
                                        .out = operand(b, 2),
                                        .items = items,
                                        .n_items = n};
}

static void make_route(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_ROUTE, .n_rows = b->n_tokens};
    op->u.route = (mf_route_params){.logits = operand(b, 0),
                                    .ids = operand(b, 1),
                                    .weights = operand(b, 2),
                                    .n_experts = s->a,
                                    .k = s->b,
                                    .n_groups = 1,
                                    .k_groups = 1,
                                    .normalise = true,
                                    .scale = 1.0f};
}

static void make_combine(bench *b, const subject *s, mf_op *op)
{
    static uint32_t place[MAX_TOKENS * 8];
    for (uint32_t i = 0; i < b->n_tokens * 8; i++)
        place[i] = i;
    *op = (mf_op){.kind = MF_OP_COMBINE, .n_rows = b->n_tokens};
    op->u.combine = (mf_combine_params){.x = operand(b, 0),
                                        .weights = operand(b, 1),
                                        .experts = operand(b, 2),
                                        .shared = operand(b, 3),
                                        .shared_gate = operand(b, 4),
                                        .place = place,
                                        .n_cols = s->a,
                                        .k = s->b};
}

static void make_rmsnorm(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_RMSNORM, .n_rows = b->n_tokens};
    op->u.rmsnorm =
        (mf_rmsnorm_params){operand(b, 0), operand(b, 1), operand(b, 2), s->a, 0, 1e-6f, false};
}

static void make_rmsnorm_gated(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_RMSNORM_GATED, .n_rows = b->n_tokens};
    op->u.rmsnorm_gated =
        (mf_rmsnorm_gated_params){operand(b, 0), operand(b, 1), operand(b, 2), s->a, s->b, 1e-6f};
}

static void make_add(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_ADD, .n_rows = b->n_tokens};
    op->u.add = (mf_add_params){.x = operand(b, 0), .y = operand(b, 1), .n_cols = s->a};
}

static void make_swiglu(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_SWIGLU, .n_rows = b->n_tokens};
    op->u.swiglu = (mf_swiglu_params){
        .gate = operand(b, 0), .up = operand(b, 1), .out = operand(b, 0), .n_cols = s->a};
}

static void make_sigmoid_mul(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_SIGMOID_MUL, .n_rows = b->n_tokens};
    op->u.sigmoid_mul = (mf_sigmoid_mul_params){operand(b, 0), operand(b, 1), s->a};
}

static void make_heads(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_HEAD_NORM_ROPE, .n_rows = b->n_tokens};
    op->u.head_norm_rope = (mf_head_norm_rope_params){
        operand(b, 0), operand(b, 1), operand(b, 2), operand(b, 3), s->a, s->b, 64, 1e-6f};
}

static void make_attention(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_ATTENTION, .n_rows = b->n_tokens};
    op->u.attention = (mf_attention_params){.q = operand(b, 0),
                                            .k = operand(b, 1),
                                            .v = operand(b, 2),
                                            .out = operand(b, 3),
                                            .n_heads = s->a,
                                            .n_kv_heads = s->b,
                                            .head_dim = 256,
                                            .cache_type = MF_BF16,
                                            .scale = 0.0625f};
    const uint64_t page = (uint64_t)MF_PAGE_TOKENS * s->b * 256 * 2;
    op->u.attention.page_offset[0] = 0;
    op->u.attention.page_offset[1] = page;
    b->n_touched = (uint64_t)b->n_tokens * s->context * s->b * 256 * 4;
}

static void make_conv(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_CONV1D_SILU, .n_rows = b->n_tokens};
    op->u.conv1d_silu =
        (mf_conv1d_silu_params){operand(b, 0), operand(b, 1), operand(b, 0), s->a, s->b, 0};
    b->n_touched = (uint64_t)b->n_tokens * 2 * (s->b - 1) * s->a * 4;
}

static void make_delta(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_GATED_DELTA, .n_rows = b->n_tokens};
    op->u.gated_delta = (mf_gated_delta_params){.qkv = operand(b, 0),
                                                .a = operand(b, 1),
                                                .b = operand(b, 2),
                                                .a_log = operand(b, 3),
                                                .dt_bias = operand(b, 4),
                                                .out = operand(b, 5),
                                                .n_k_heads = s->a,
                                                .n_v_heads = s->b,
                                                .key_dim = 128,
                                                .value_dim = 128,
                                                .eps = 1e-6f};
    const uint64_t one = (uint64_t)s->b * 128 * 128 * 4;
    b->n_touched = 2 * b->n_tokens * one;
    op->u.gated_delta.state_offset = next_bytes(b, b->n_tokens * one);
}

static void make_copy_rows(bench *b, const subject *s, mf_op *op)
{
    static uint32_t rows[MAX_TOKENS];
    *op = (mf_op){.kind = MF_OP_COPY_ROWS, .n_rows = b->n_tokens};
    op->u.copy_rows = (mf_copy_rows_params){operand(b, 0), operand(b, 1), rows, s->a};
}

/* Pages of keys and values, and states, all at the beginning of the weights' memory; operations of
 * states go on from there. */
static void begin_batch(bench *b, const subject *s)
{
    static mf_span pages[MAX_PAGES];
    mf_sequence sequences[MAX_TOKENS];
    const uint32_t context = s->context != 0 ? s->context : 1, n_pages = mf_pages_of(context);
    const uint64_t state = (uint64_t)32 * 128 * 128 * 4, page = (uint64_t)MF_PAGE_TOKENS * 2048;
    for (uint32_t i = 0; i < b->n_tokens * n_pages; i++)
        pages[i] = mf_span_at(b->weights, i * page % (STATE_BYTES - page));
    for (uint32_t i = 0; i < b->n_tokens; i++) {
        const mf_span at = mf_span_at(b->weights, s->make == make_delta ? i * state : i * 98304);
        sequences[i] = (mf_sequence){.first_row = i,
                                     .n_rows = 1,
                                     .position = context - 1,
                                     .pages = pages + i * n_pages,
                                     .state = {at, at}};
    }
    b->gpu.be->base.ops->begin_batch(&b->gpu.be->base, sequences, b->n_tokens);
}

/* ----------------------------------------------------------------------------------- measuring */

/* One that does nothing, or that keeps the device busy. */
static void dispatch(bench *b, uint32_t n_steps, uint32_t n_groups)
{
    const mf_vk_kernel kernel = {MF_VK_SHADER_measure_fma, 1, {256}};
    const struct {
        uint64_t result;
        uint32_t n;
        float factor, summand;
        uint32_t unused;
    } push = {mf_vk_address(b->gpu.be, operand(b, 7)), n_steps, 0.5f, 1.0f, 0};
    mf_vk_next(b->gpu.be);
    mf_vk_dispatch(b->gpu.be, &kernel, &push, sizeof push, (const uint32_t[]){n_groups, 1, 1});
    mf_vk_barrier(b->gpu.be);
}

static void record(bench *b, const subject *s)
{
    mf_op op;
    if (s->make == NULL) {
        dispatch(b, 0, 1);
        return;
    }
    s->make(b, s, &op);
    b->gpu.be->base.ops->record(&b->gpu.be->base, &op);
}

/* Microseconds that the device takes for an operation, in one submission of several. */
static double run(bench *b, const subject *s)
{
    b->gpu.be->stream.most_commands = UINT32_MAX;
    if (!mf_vk_begin(b->gpu.be))
        exit(1);
    if (b->gpu.be->device.properties.deviceType != VK_PHYSICAL_DEVICE_TYPE_CPU)
        dispatch(b, WARM_STEPS, 4096);
    bench_gpu_start(&b->gpu);
    for (uint32_t i = 0; i < b->n_repeats; i++)
        record(b, s);
    return bench_gpu_stop(&b->gpu) / 1e3 / b->n_repeats;
}

static void measure(bench *b, const subject *s)
{
    mf_error error = {0};
    mf_op op;
    double us[RUNS];
    if (b->only != NULL && strstr(s->name, b->only) == NULL)
        return;
    b->n_touched = 0;
    if (s->make != NULL) {
        s->make(b, s, &op);
        bench_gpu_check(mf_backend_reserve(&b->gpu.be->base, &op, &error), &error);
    }
    begin_batch(b, s);
    (void)run(b, s); /* what is done once */
    const uint64_t bytes_before = b->gpu.be->weight_bytes, before = b->gpu.be->stream.n_dispatches;
    for (uint32_t i = 0; i < RUNS; i++)
        us[i] = run(b, s);
    const double n = (double)RUNS * b->n_repeats;
    const double bytes =
        (double)(b->gpu.be->weight_bytes - bytes_before) / n + (double)b->n_touched;
    const double median = bench_median(us, RUNS);
    printf("%-40s %8.2f us (%.2f ..)  %.0f dispatches", s->name, median, us[0],
           (double)(b->gpu.be->stream.n_dispatches - before) / n);
    if (bytes != 0.0)
        printf("  %8.1f KB %7.1f GB/s %5.1f %%", bytes / 1e3, bytes / median / 1e3,
               100.0 * bytes / median * 1e6 / b->read);
    putchar('\n');
    (void)fflush(stdout);
    b->layers[0] += median * s->in_linear;
    b->layers[1] += median * s->in_full;
    b->ahead += median * s->in_token;
}

static void parse(bench *b, int argc, char **argv)
{
    const bench_gpu_option options[] = {
        {"--mib", &b->n_mib, NULL},       {"--repeats", &b->n_repeats, NULL},
        {"--tokens", &b->n_tokens, NULL}, {"--device", NULL, &b->device},
        {"--only", NULL, &b->only},       {0}};
    if (bench_gpu_parse(options, argc, argv) && b->n_mib >= 512 && b->n_repeats >= 1 &&
        b->n_tokens >= 1 && b->n_tokens <= MAX_TOKENS)
        return;
    (void)fprintf(stderr,
                  "usage: bench_vulkan_layer [--device vulkan:N] [--mib N (512 ..)] "
                  "[--repeats N] [--tokens N (.. %u)] [--only TEXT]\n",
                  MAX_TOKENS);
    exit(2);
}

/* In the order in which a layer has them. */
static const subject subjects[] = {
    {"nothing", NULL, 0, 0, 0, 0, 0, 0},
    {"rmsnorm 2048", make_rmsnorm, 2048, 0, 0, 2, 2, 1},
    {"matmul linear in, 12352x2048", make_linear_in, 0, 0, 0, 1, 0, 0},
    {"convolution 8192", make_conv, 8192, 4, 0, 1, 0, 0},
    {"delta rule 32 heads", make_delta, 16, 32, 0, 1, 0, 0},
    {"gated rmsnorm 32x128", make_rmsnorm_gated, 32, 128, 0, 1, 0, 0},
    {"matmul full in, 9216x2048", make_full_in, 0, 0, 0, 0, 1, 0},
    {"head norm, rotation 16x256", make_heads, 16, 256, 0, 0, 1, 0},
    {"head norm, rotation 2x256", make_heads, 2, 256, 0, 0, 1, 0},
    {"attention at 100", make_attention, 16, 2, 100, 0, 0, 0},
    {"attention at 500", make_attention, 16, 2, 500, 0, 1, 0},
    {"attention at 1000", make_attention, 16, 2, 1000, 0, 0, 0},
    {"attention at 4000", make_attention, 16, 2, 4000, 0, 0, 0},
    {"sigmoid gate 4096", make_sigmoid_mul, 4096, 0, 0, 0, 1, 0},
    {"matmul out, 2048x4096", make_matmul, 2048, 4096, 0, 1, 1, 0},
    {"add 2048", make_add, 2048, 0, 0, 1, 1, 0},
    {"router 256x2048", make_router, 256, 2048, 0, 1, 1, 0},
    {"route 8 of 256", make_route, 256, 8, 0, 1, 1, 0},
    {"shared in, 1025x2048", make_shared_in, 0, 0, 0, 1, 1, 0},
    {"swiglu 512", make_swiglu, 512, 0, 0, 1, 1, 0},
    {"shared down, 2048x512", make_matmul, 2048, 512, 0, 1, 1, 0},
    {"experts 8 of 512x2048", make_experts, 512, 2048, 0, 1, 1, 0},
    {"combine 8 of 2048", make_combine, 2048, 8, 0, 1, 1, 0},
    {"copy rows 2048", make_copy_rows, 2048, 0, 0, 0, 0, 1},
    {"matmul 512x2048", make_matmul, 512, 2048, 0, 0, 0, 0},
    {"matmul 2048x2048", make_matmul, 2048, 2048, 0, 0, 0, 0},
    {"matmul 8192x2048", make_matmul, 8192, 2048, 0, 0, 0, 0},
    {"matmul 7168x7168", make_matmul, 7168, 7168, 0, 0, 0, 0},
    {"head 248320x2048", make_matmul, 248320, 2048, 0, 0, 0, 1},
};

int main(int argc, char **argv)
{
    bench b = {.device = "vulkan", .n_mib = 2048, .n_repeats = REPEATS, .n_tokens = 1};
    parse(&b, argc, argv);
    open_backend(&b);
    printf("%s, %u MiB of weights; a plain kernel reads %.1f GB/s; %u tokens\n",
           b.gpu.be->base.ops->device_name(&b.gpu.be->base), b.n_mib, b.read / 1e9, b.n_tokens);
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
        measure(&b, &subjects[i]);
    if (b.only == NULL)
        printf("a linear layer %.1f us, one that attends %.1f us, outside %.1f us: %.3f ms for "
               "30 + 10, %.1f tokens/s, if nothing overlaps\n",
               b.layers[0], b.layers[1], b.ahead,
               (30 * b.layers[0] + 10 * b.layers[1] + b.ahead) / 1e3,
               b.n_tokens * 1e6 / (30 * b.layers[0] + 10 * b.layers[1] + b.ahead));
    bench_gpu_close(&b.gpu);
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * What decoding costs a Vulkan device, operation by operation, on the shapes of a mixture of 35B
 * with 3B active (hidden 2048, 40 layers of which each fourth attends, 8 of 256 experts of 512, 4
 * bits with groups of 64): each alone, waiting for the one before it, and beside it without waiting
 * ("free"); the median of several runs of the device's own time; bytes of weights and states a
 * second beside what a plain kernel reads from the same memory; and what it all comes to for a
 * token. Weights and states go round through --mib of memory, so that no cache holds them. Of one
 * token also the operations that have steps before or after their products ("fused"), and whole
 * layers of them in their order.
 *
 *     bench_vulkan_layer [--device vulkan:N] [--mib N] [--repeats N] [--tokens N] [--only TEXT]
 *         [--ways LIST] [--slices N] [--rows N] [--barrier N] [--prefetch 1]
 *
 * --tokens: sequences that decode together, one token each. --ways: how products of one token go
 * through their weights, the small ones first: "1:1,4:4,8:2,16:4" are 1, 4, 8, 16 chunks of which
 * 1, 4, 2, 4 are on their way at once; --slices: of keys on their way in attention; --rows: of a
 * team where experts are added. --barrier: the N-th of the list that "barrier" measures, instead of
 * the backend's. --prefetch: in whole layers the next product's weights are read beside each
 * operation, for a cache.
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
#define WARM_STEPS 2048u /* a millisecond of arithmetic before each run */
#define WARM_TIMES 100u  /* of that, before a subject's first: pipelines were made meanwhile */
#define OPERANDS 8u
#define OPERAND_BYTES ((uint64_t)MAX_TOKENS * 248320 * 4)
#define STATE_BYTES ((uint64_t)64 << 20) /* before the weights */

typedef struct bench {
    const char *device, *only;
    const char *ways;
    uint32_t n_mib, n_repeats, n_tokens, n_slices, n_rows, barrier, prefetches;
    bench_gpu gpu;
    mf_span weights, x, tables; /* tables: see write_tables */
    uint64_t n_bytes, at;       /* of weights; where the next one goes */
    uint64_t n_touched;         /* bytes of states and caches of the operation made last */
    double read;                /* bytes a second, at best */
    double layers[2], ahead;    /* us of a layer that is linear, that attends; outside of layers */
    double fused;               /* us of four layers of one token, one that attends */
    uint32_t n_routed;          /* operations of routed experts so far */
    bool is_free;               /* nothing waits for what is recorded before it */
} bench;

typedef struct subject {
    const char *name;
    void (*make)(bench *b, const struct subject *s, mf_op *op);
    uint32_t a, b, context; /* what make makes of them */
    uint32_t in_linear, in_full, in_token;
} subject;

/* Of one token: activations that are small. */
enum {
    QKV = 1,
    Z,
    B,
    A,
    DELTA,
    ROUTER,
    SHARED_GATE,
    MLP,
    UP,
    SHARED,
    IDS,
    WEIGHTS,
    ACT,
    OUT,
    NORM
};
#define SMALL_BYTES ((uint64_t)1 << 18)
#define N_EXPERTS 256u
#define SLOT_BYTES ((uint64_t)1792 << 10) /* of an expert of 512 x 2048 */

/* ------------------------------------------------------------------------------------ opening */

/* Which experts each of 32 operations takes, all of them others, and the slot of each expert, which
 * is another in each of them if it is looked up 8 places further on each time. */
static void write_tables(bench *b)
{
    uint32_t tables[3 * N_EXPERTS];
    for (uint32_t i = 0; i < N_EXPERTS; i++) {
        tables[i] = i * 37 % N_EXPERTS;
        tables[N_EXPERTS + i] = tables[2 * N_EXPERTS + i] = (i * 11 + 5) % N_EXPERTS;
    }
    b->tables = bench_gpu_create(&b->gpu, sizeof tables, "tables");
    b->gpu.be->base.ops->write(&b->gpu.be->base, b->tables, tables, sizeof tables);
}

static bool is_power(uint32_t n, uint32_t most)
{
    return n != 0 && n <= most && (n & (n - 1)) == 0;
}

static void take_ways(bench *b)
{
    const char *at = b->ways;
    for (uint32_t i = 0; i < MF_VK_N_WAYS && at != NULL; i++) {
        mf_vk_way *way = &b->gpu.be->tuning.ways[i];
        char *end;
        way->n_chunks = (uint32_t)strtoul(at, &end, 10);
        way->n_ahead = *end == ':' ? (uint32_t)strtoul(end + 1, &end, 10) : 0;
        if (!is_power(way->n_chunks, 16) || !is_power(way->n_ahead, way->n_chunks)) {
            (void)fprintf(stderr, "bench_vulkan_layer: --ways: %s\n", at);
            exit(2);
        }
        at = *end == ',' ? end + 1 : NULL;
    }
}

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
    write_tables(b);
    take_ways(b);
    if (b->n_rows != 0)
        b->gpu.be->tuning.team_rows = b->n_rows;
    if (b->n_slices != 0)
        b->gpu.be->tuning.attention_ahead = b->n_slices;
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

/* The last operand is in pieces; beyond what `dispatch` writes. */
static mf_span small(const bench *b, uint32_t i)
{
    return mf_span_at(operand(b, OPERANDS - 1), (i + 1) * SMALL_BYTES);
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

/* ---------------------------------------------------------------------------- of one token -- */

static mf_input_step normed(const bench *b)
{
    return (mf_input_step){.kind = MF_INPUT_NORMED, .weight = small(b, NORM), .eps = 1e-6f};
}

static void begin_fused(bench *b, mf_op *op, mf_input_step before)
{
    *op = (mf_op){.kind = MF_OP_MATMUL, .n_rows = 1};
    op->u.matmul.x = small(b, 0);
    op->u.matmul.before = before;
}

static void add_fused(bench *b, mf_op *op, uint32_t bits, uint32_t n_rows, uint32_t n_cols,
                      uint32_t to)
{
    const uint32_t i = op->u.matmul.n++;
    op->u.matmul.weight[i] = next_weight(b, bits, n_rows, n_cols);
    op->u.matmul.y[i] = small(b, to);
}

static void make_fused_linear_in(bench *b, const subject *s, mf_op *op)
{
    (void)s;
    begin_fused(b, op, normed(b));
    add_fused(b, op, 4, 8192, 2048, QKV);
    add_fused(b, op, 4, 4096, 2048, Z);
    add_fused(b, op, 4, 32, 2048, B);
    add_fused(b, op, 4, 32, 2048, A);
    op->u.matmul.after = (mf_output_step){
        .kind = MF_OUTPUT_CONVOLVED, .weight = operand(b, 1), .width = 4, .state_offset = 0};
}

static void make_fused_delta(bench *b, const subject *s, mf_op *op)
{
    make_delta(b, s, op);
    op->u.gated_delta.qkv = small(b, QKV);
    op->u.gated_delta.a = small(b, A);
    op->u.gated_delta.b = small(b, B);
    op->u.gated_delta.out = small(b, DELTA);
}

static void make_fused_heads_out(bench *b, const subject *s, mf_op *op)
{
    begin_fused(b, op,
                (mf_input_step){.kind = MF_INPUT_HEADS_GATED,
                                .weight = small(b, NORM),
                                .gate = small(b, Z),
                                .head_dim = 128,
                                .eps = 1e-6f});
    add_fused(b, op, 4, s->a, s->b, 0);
    op->u.matmul.x = small(b, DELTA);
    op->u.matmul.after.kind = MF_OUTPUT_ADDED;
}

static void make_fused_full_in(bench *b, const subject *s, mf_op *op)
{
    (void)s;
    begin_fused(b, op, normed(b));
    add_fused(b, op, 4, 4096, 2048, QKV);
    add_fused(b, op, 4, 512, 2048, A);
    add_fused(b, op, 4, 512, 2048, B);
    add_fused(b, op, 4, 4096, 2048, Z);
}

static void make_fused_heads(bench *b, const subject *s, mf_op *op)
{
    make_heads(b, s, op);
    op->u.head_norm_rope.x = small(b, s->a == 16 ? QKV : A);
}

static void make_fused_attention(bench *b, const subject *s, mf_op *op)
{
    make_attention(b, s, op);
    op->u.attention.q = small(b, QKV);
    op->u.attention.k = small(b, A);
    op->u.attention.v = small(b, B);
    op->u.attention.out = small(b, DELTA);
}

static void make_fused_gated_out(bench *b, const subject *s, mf_op *op)
{
    begin_fused(b, op, (mf_input_step){.kind = MF_INPUT_SIGMOID, .gate = small(b, Z)});
    add_fused(b, op, 4, s->a, s->b, 0);
    op->u.matmul.x = small(b, DELTA);
    op->u.matmul.after.kind = MF_OUTPUT_ADDED;
}

static void make_fused_router(bench *b, const subject *s, mf_op *op)
{
    (void)s;
    begin_fused(b, op, normed(b));
    add_fused(b, op, 8, N_EXPERTS, 2048, ROUTER);
    add_fused(b, op, 8, 1, 2048, SHARED_GATE);
}

static void make_fused_pair(bench *b, const subject *s, mf_op *op)
{
    begin_fused(b, op, normed(b));
    add_fused(b, op, 4, s->a, s->b, MLP);
    add_fused(b, op, 4, s->a, s->b, UP);
    op->u.matmul.is_paired = true;
}

/* Its choice is not what the experts take: that would always be the same. But they wait for it,
 * since it goes behind the slots that they look at. */
static void make_fused_route(bench *b, const subject *s, mf_op *op)
{
    make_route(b, s, op);
    op->u.route.logits = small(b, ROUTER);
    op->u.route.ids = mf_span_at(b->tables, 2 * N_EXPERTS * sizeof(uint32_t));
    op->u.route.weights = small(b, WEIGHTS);
}

static void make_fused_shared_out(bench *b, const subject *s, mf_op *op)
{
    begin_fused(b, op, (mf_input_step){.kind = MF_INPUT_AS_IT_IS});
    add_fused(b, op, 4, s->a, s->b, SHARED);
    op->u.matmul.x = small(b, MLP);
}

static mf_weight slot_weight(const bench *b, uint32_t n_rows, uint32_t n_cols, uint64_t *at)
{
    mf_weight w = {.shape = {.kind = MF_WEIGHT_AFFINE,
                             .float_type = MF_BF16,
                             .bits = 4,
                             .group = 64,
                             .n_rows = n_rows,
                             .n_cols = n_cols}};
    for (uint32_t i = 0; i < MF_MAX_WEIGHT_ARRAYS; i++) {
        w.arrays[i] = mf_span_at(b->weights, *at);
        *at += (mf_weight_array_bytes(&w.shape, i) + 63) / 64 * 64;
    }
    return w;
}

static void make_fused_experts(bench *b, const subject *s, mf_op *op)
{
    const uint32_t which = b->n_routed++ % (N_EXPERTS / 8);
    uint64_t at = STATE_BYTES;
    *op = (mf_op){.kind = MF_OP_ROUTED_EXPERTS, .n_rows = 1};
    mf_routed_experts_params *p = &op->u.routed;
    *p = (mf_routed_experts_params){.x = small(b, 0),
                                    .ids = mf_span_at(b->tables, which * 8 * sizeof(int32_t)),
                                    .slot = mf_span_at(b->tables, N_EXPERTS * sizeof(uint32_t)),
                                    .act = small(b, ACT),
                                    .out = small(b, OUT),
                                    .slots = mf_span_at(b->weights, STATE_BYTES),
                                    .slot_bytes = SLOT_BYTES,
                                    .n_slots = N_EXPERTS,
                                    .n_experts = N_EXPERTS + 8,
                                    .k = 8,
                                    .before = normed(b),
                                    .sum = {.x = small(b, 0),
                                            .weights = small(b, WEIGHTS),
                                            .shared = small(b, SHARED),
                                            .shared_gate = small(b, SHARED_GATE)}};
    p->gate = slot_weight(b, s->a, s->b, &at);
    p->up = slot_weight(b, s->a, s->b, &at);
    p->down = slot_weight(b, s->b, s->a, &at);
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

/* One that does nothing, or that keeps the device busy; the next need not wait for it. */
static void put_dispatch(bench *b, uint32_t n_steps, uint32_t n_groups)
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
}

static void dispatch(bench *b, uint32_t n_steps, uint32_t n_groups)
{
    put_dispatch(b, n_steps, n_groups);
    if (!b->is_free)
        mf_vk_barrier(b->gpu.be);
}

/* An idle device slows down, and takes long to come back. */
static void warm(bench *b, uint32_t n_times)
{
    for (uint32_t i = 0; i < n_times; i++)
        if (b->gpu.be->device.properties.deviceType != VK_PHYSICAL_DEVICE_TYPE_CPU)
            dispatch(b, WARM_STEPS, 4096);
}

static void record(bench *b, const subject *s)
{
    mf_op op;
    if (b->is_free) { /* what is recorded is forgotten, so that nothing conflicts with it */
        b->gpu.be->stream.n_accesses = 0;
        b->gpu.be->stream.accesses_all = false;
    }
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
    warm(b, 1);
    bench_gpu_start(&b->gpu);
    for (uint32_t i = 0; i < b->n_repeats; i++)
        record(b, s);
    return bench_gpu_stop(&b->gpu) / 1e3 / b->n_repeats;
}

/* Barriers between dispatches: the stages that wait for each other, and what they see. */
typedef struct barrier {
    const char *name;
    VkPipelineStageFlags2 stages;
    VkAccessFlags2 before, after;
} barrier;

#define COMPUTE VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT
#define COPY VK_PIPELINE_STAGE_2_COPY_BIT
#define STORED VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT
#define LOADED VK_ACCESS_2_SHADER_STORAGE_READ_BIT
#define COPIED (VK_ACCESS_2_TRANSFER_READ_BIT | VK_ACCESS_2_TRANSFER_WRITE_BIT)

static const barrier barriers[] = {
    {"everything", VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, VK_ACCESS_2_MEMORY_WRITE_BIT,
     VK_ACCESS_2_MEMORY_READ_BIT | VK_ACCESS_2_MEMORY_WRITE_BIT},
    {"shaders and copies", COMPUTE | COPY,
     VK_ACCESS_2_SHADER_WRITE_BIT | VK_ACCESS_2_TRANSFER_WRITE_BIT,
     VK_ACCESS_2_SHADER_READ_BIT | VK_ACCESS_2_SHADER_WRITE_BIT | COPIED},
    {"shaders", COMPUTE, VK_ACCESS_2_SHADER_WRITE_BIT,
     VK_ACCESS_2_SHADER_READ_BIT | VK_ACCESS_2_SHADER_WRITE_BIT},
    {"storage and copies", COMPUTE | COPY, STORED | VK_ACCESS_2_TRANSFER_WRITE_BIT,
     LOADED | STORED | COPIED},
    {"storage", COMPUTE, STORED, LOADED | STORED},
    {"storage, written then read", COMPUTE, STORED, LOADED},
    {"order alone", COMPUTE, 0, 0},
};
#define N_BARRIERS (sizeof barriers / sizeof *barriers)

static VkMemoryBarrier2 barrier_of(const barrier *of)
{
    return (VkMemoryBarrier2){.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2,
                              .srcStageMask = of->stages,
                              .srcAccessMask = of->before,
                              .dstStageMask = of->stages,
                              .dstAccessMask = of->after};
}

/* Microseconds from one dispatch to the next that has this between them; NULL: nothing. */
static double run_barrier(bench *b, const barrier *of, uint32_t n_groups)
{
    double us[RUNS];
    for (uint32_t r = 0; r < RUNS; r++) {
        if (!mf_vk_begin(b->gpu.be))
            exit(1);
        bench_gpu_start(&b->gpu);
        for (uint32_t i = 0; i < b->n_repeats; i++) {
            put_dispatch(b, 0, n_groups);
            if (of == NULL)
                continue;
            const VkMemoryBarrier2 memory = barrier_of(of);
            const VkDependencyInfo info = {.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO,
                                           .memoryBarrierCount = 1,
                                           .pMemoryBarriers = &memory};
            b->gpu.be->device.api.CmdPipelineBarrier2(b->gpu.be->stream.commands, &info);
        }
        us[r] = bench_gpu_stop(&b->gpu) / 1e3 / b->n_repeats;
    }
    return bench_median(us, RUNS);
}

static void measure_barriers(bench *b)
{
    if (b->only != NULL && strstr("barrier", b->only) == NULL)
        return;
    for (uint32_t n = 1; n <= 1024; n *= 32) {
        printf("a dispatch of %u groups: %.2f us without a barrier", n, run_barrier(b, NULL, n));
        for (size_t i = 0; i < N_BARRIERS; i++)
            printf("; %u %s %.2f", (unsigned)i + 1, barriers[i].name,
                   run_barrier(b, &barriers[i], n));
        putchar('\n');
    }
    (void)fflush(stdout);
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
    warm(b, WARM_TIMES);
    (void)run(b, s); /* what is done once */
    const uint64_t bytes_before = b->gpu.be->weight_bytes, before = b->gpu.be->stream.n_dispatches;
    for (uint32_t i = 0; i < RUNS; i++)
        us[i] = run(b, s);
    const double n = (double)RUNS * b->n_repeats;
    const double bytes =
        (double)(b->gpu.be->weight_bytes - bytes_before) / n + (double)b->n_touched;
    const double n_dispatches = (double)(b->gpu.be->stream.n_dispatches - before) / n;
    const double median = bench_median(us, RUNS);
    double free_us[RUNS];
    b->is_free = true;
    for (uint32_t i = 0; i < RUNS; i++)
        free_us[i] = run(b, s);
    b->is_free = false;
    printf("%-40s %8.2f us (%.2f ..) free %7.2f  %.0f dispatches", s->name, median, us[0],
           bench_median(free_us, RUNS), n_dispatches);
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
    const bench_gpu_option options[] = {{"--mib", &b->n_mib, NULL},
                                        {"--repeats", &b->n_repeats, NULL},
                                        {"--tokens", &b->n_tokens, NULL},
                                        {"--device", NULL, &b->device},
                                        {"--ways", NULL, &b->ways},
                                        {"--rows", &b->n_rows, NULL},
                                        {"--slices", &b->n_slices, NULL},
                                        {"--prefetch", &b->prefetches, NULL},
                                        {"--only", NULL, &b->only},
                                        {"--barrier", &b->barrier, NULL},
                                        {0}};
    if (bench_gpu_parse(options, argc, argv) && b->n_mib >= 1024 && b->n_repeats >= 1 &&
        b->n_tokens >= 1 && b->n_tokens <= MAX_TOKENS && b->barrier <= N_BARRIERS &&
        b->n_slices <= 8 && (b->n_rows == 0 || is_power(b->n_rows, 8)))
        return;
    (void)fprintf(stderr,
                  "usage: bench_vulkan_layer [--device vulkan:N] [--mib N (1024 ..)] "
                  "[--repeats N] [--tokens N (.. %u)] [--only TEXT] [--ways LIST] [--rows N] "
                  "[--slices N] [--prefetch 1] [--barrier N (.. %u)]\n",
                  MAX_TOKENS, (unsigned)N_BARRIERS);
    exit(2);
}

/* Of one token, with steps in the products: in the order in which a layer has them. */
static const subject fused_subjects[] = {
    {"fused linear in, 12352x2048", make_fused_linear_in, 0, 0, 0, 1, 0, 0},
    {"fused delta rule 32 heads", make_fused_delta, 16, 32, 0, 1, 0, 0},
    {"fused linear out, 2048x4096", make_fused_heads_out, 2048, 4096, 0, 1, 0, 0},
    {"fused full in, 9216x2048", make_fused_full_in, 0, 0, 0, 0, 1, 0},
    {"fused queries 16x256", make_fused_heads, 16, 256, 0, 0, 1, 0},
    {"fused keys 2x256", make_fused_heads, 2, 256, 0, 0, 1, 0},
    {"fused attention at 500", make_fused_attention, 16, 2, 500, 0, 1, 0},
    {"fused full out, 2048x4096", make_fused_gated_out, 2048, 4096, 0, 0, 1, 0},
    {"fused router 257x2048", make_fused_router, 0, 0, 0, 1, 1, 0},
    {"fused shared in, 2 of 512x2048", make_fused_pair, 512, 2048, 0, 1, 1, 0},
    {"fused route 8 of 256", make_fused_route, N_EXPERTS, 8, 0, 1, 1, 0},
    {"fused shared out, 2048x512", make_fused_shared_out, 2048, 512, 0, 1, 1, 0},
    {"fused experts 8 of 512x2048", make_fused_experts, 512, 2048, 0, 1, 1, 0},
};
#define N_FUSED (sizeof fused_subjects / sizeof *fused_subjects)

typedef enum layer { LAYER_LINEAR, LAYER_ATTENDS, LAYERS_FOUR } layer; /* four: three and one */

/* The next of its operations from the i-th on; N_FUSED: none. */
static size_t next_in_layer(layer l, size_t i)
{
    while (i < N_FUSED &&
           (l == LAYER_ATTENDS ? fused_subjects[i].in_full : fused_subjects[i].in_linear) == 0)
        i++;
    return i;
}

/* Reads the weights of a product, which lie one after the other; nothing waits for it but what
 * waits for all. */
static void prefetch(bench *b, const mf_op *op)
{
    const mf_vk_kernel kernel = {MF_VK_SHADER_measure_read, 1, {256}};
    const mf_matmul_params *m = &op->u.matmul;
    if (op->kind != MF_OP_MATMUL)
        return;
    const mf_weight *last = &m->weight[m->n - 1];
    const uint64_t begin = mf_vk_address(b->gpu.be, m->weight[0].arrays[0]);
    const uint64_t end =
        mf_vk_address(b->gpu.be, last->arrays[2]) + mf_weight_array_bytes(&last->shape, 2);
    const struct {
        uint64_t x, result;
        uint32_t n, unused;
    } push = {begin, mf_vk_address(b->gpu.be, operand(b, 7)), (uint32_t)((end - begin) / 16), 0};
    if (end <= begin) /* they go round the end of memory */
        return;
    mf_vk_next(b->gpu.be);
    mf_vk_dispatch(b->gpu.be, &kernel, &push, sizeof push,
                   (const uint32_t[]){mf_vk_groups(push.n, 256 * 8), 1, 1});
}

/* One layer. The next operation is made before one is recorded, so that it can be prefetched. */
static void record_layer(bench *b, layer l)
{
    static mf_op ops[2];
    size_t i = next_in_layer(l, 0);
    uint32_t which = 0;
    fused_subjects[i].make(b, &fused_subjects[i], &ops[which]);
    while (i < N_FUSED) {
        i = next_in_layer(l, i + 1);
        if (i < N_FUSED)
            fused_subjects[i].make(b, &fused_subjects[i], &ops[which ^ 1]);
        b->gpu.be->base.ops->record(&b->gpu.be->base, &ops[which]);
        which ^= 1;
        if (i < N_FUSED && b->prefetches != 0)
            prefetch(b, &ops[which]);
    }
}

/* One layer after the other, each of them waiting for the one before. */
static double run_layers(bench *b, layer l)
{
    double us[RUNS];
    for (uint32_t r = 0; r < RUNS; r++) {
        b->gpu.be->stream.most_commands = UINT32_MAX;
        if (!mf_vk_begin(b->gpu.be))
            exit(1);
        warm(b, 1);
        bench_gpu_start(&b->gpu);
        for (uint32_t i = 0; i < b->n_repeats; i++)
            for (uint32_t j = 0; j < (l == LAYERS_FOUR ? 4 : 1); j++)
                record_layer(b, l != LAYERS_FOUR ? l : j < 3 ? LAYER_LINEAR : LAYER_ATTENDS);
        us[r] = bench_gpu_stop(&b->gpu) / 1e3 / b->n_repeats;
    }
    return bench_median(us, RUNS);
}

static void measure_layers(bench *b)
{
    static const subject at = {"", make_fused_attention, 16, 2, 500, 0, 0, 0};
    if (b->only != NULL && strstr("fused layer", b->only) == NULL)
        return;
    for (size_t i = 0; i < N_FUSED; i++) { /* those that measure has left out */
        mf_error error = {0};
        mf_op op;
        fused_subjects[i].make(b, &fused_subjects[i], &op);
        begin_batch(b, &at);
        bench_gpu_check(mf_backend_reserve(&b->gpu.be->base, &op, &error), &error);
    }
    static const char *const names[] = {"layer that is linear", "layer that attends",
                                        "layers, three that are linear and one that attends"};
    for (uint32_t l = LAYER_LINEAR; l <= LAYERS_FOUR; l++) {
        const uint64_t n_dispatches = b->gpu.be->stream.n_dispatches;
        const uint64_t n_barriers = b->gpu.be->stream.n_barriers;
        begin_batch(b, &at);
        warm(b, WARM_TIMES);
        const double us = run_layers(b, (layer)l);
        const double n = (double)RUNS * b->n_repeats;
        printf("fused %s, in order: %.2f us, %.1f dispatches, %.1f barriers\n", names[l], us,
               (double)(b->gpu.be->stream.n_dispatches - n_dispatches) / n,
               (double)(b->gpu.be->stream.n_barriers - n_barriers) / n);
        if (l == LAYERS_FOUR)
            b->fused = us;
        (void)fflush(stdout);
    }
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
    measure_barriers(&b);
    if (b.barrier != 0)
        b.gpu.be->stream.barrier = barrier_of(&barriers[b.barrier - 1]);
    if (b.n_tokens == 1) {
        for (size_t i = 0; i < N_FUSED; i++)
            measure(&b, &fused_subjects[i]);
        measure_layers(&b);
        b.layers[0] = b.layers[1] = 0.0; /* those that follow are counted by themselves */
    }
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
        measure(&b, &subjects[i]);
    if (b.n_tokens == 1 && b.fused != 0.0 && b.ahead != 0.0)
        printf("fused: %.3f ms for 40 layers, and %.3f outside: %.1f tokens/s\n",
               10 * b.fused / 1e3, b.ahead / 1e3, 1e6 / (10 * b.fused + b.ahead));
    if (b.only == NULL)
        printf("a linear layer %.1f us, one that attends %.1f us, outside %.1f us: %.3f ms for "
               "30 + 10, %.1f tokens/s, if nothing overlaps\n",
               b.layers[0], b.layers[1], b.ahead,
               (30 * b.layers[0] + 10 * b.layers[1] + b.ahead) / 1e3,
               b.n_tokens * 1e6 / (30 * b.layers[0] + 10 * b.layers[1] + b.ahead));
    bench_gpu_close(&b.gpu);
    return 0;
}

/* SPDX-License-Identifier: MIT */
/* The operations of bench_vulkan_layer: each with the operands that it has in a model. */
#include "bench_vulkan_layer.h"

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

void bench_write_norm(bench *b)
{
    float norm[7168];
    for (uint32_t i = 0; i < 7168; i++)
        norm[i] = 1e-3f;
    b->gpu.be->base.ops->write(
        &b->gpu.be->base,
        mf_span_at(mf_span_at(b->x, (OPERANDS - 1) * OPERAND_BYTES), (NORM + 1) * SMALL_BYTES),
        norm, sizeof norm);
}

mf_span bench_operand(const bench *b, uint32_t i)
{
    return mf_span_at(b->x, i * OPERAND_BYTES);
}

/* The last operand is in pieces; beyond what `dispatch` writes. */
static mf_span small(const bench *b, uint32_t i)
{
    return mf_span_at(bench_operand(b, OPERANDS - 1), (i + 1) * SMALL_BYTES);
}

static uint64_t next_bytes(bench *b, uint64_t n_bytes)
{
    if (b->at + n_bytes > b->n_bytes)
        b->at = STATE_BYTES;
    const uint64_t at = b->at;
    b->at += (n_bytes + 63) / 64 * 64;
    return at;
}

/* Of affine weights of so many bits; of another form that, and routers, of 8 bits, of float32. */
static mf_weight_shape shape_of(const bench *b, uint32_t bits, uint32_t n_rows, uint32_t n_cols)
{
    mf_weight_shape s = b->form;
    if (s.kind == MF_WEIGHT_AFFINE)
        s.bits = bits;
    else if (bits == 8)
        s = (mf_weight_shape){.kind = MF_WEIGHT_FLOAT, .float_type = MF_F32};
    s.n_rows = n_rows;
    s.n_cols = n_cols;
    return s;
}

static mf_weight next_weight(bench *b, uint32_t bits, uint32_t n_rows, uint32_t n_cols)
{
    mf_weight w = {.shape = shape_of(b, bits, n_rows, n_cols)};
    if (b->at + mf_weight_bytes(&w.shape) + 256 > b->n_bytes)
        b->at = STATE_BYTES;
    for (uint32_t i = 0; i < mf_weight_format_of(&w.shape)->n_arrays; i++)
        w.arrays[i] = mf_span_at(b->weights, next_bytes(b, mf_weight_array_bytes(&w.shape, i)));
    return w;
}

static void begin_matmul(bench *b, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_MATMUL, .n_rows = b->n_tokens, .u.matmul.x = bench_operand(b, 0)};
}

static void add_weight(bench *b, mf_op *op, uint32_t bits, uint32_t n_rows, uint32_t n_cols)
{
    const uint32_t i = op->u.matmul.n++;
    op->u.matmul.weight[i] = next_weight(b, bits, n_rows, n_cols);
    op->u.matmul.y[i] = bench_operand(b, 1 + i);
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
    op->u.experts = (mf_experts_params){.x = bench_operand(b, 0),
                                        .act = bench_operand(b, 1),
                                        .out = bench_operand(b, 2),
                                        .items = items,
                                        .n_items = n};
}

static void make_route(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_ROUTE, .n_rows = b->n_tokens};
    op->u.route = (mf_route_params){.logits = bench_operand(b, 0),
                                    .ids = bench_operand(b, 1),
                                    .weights = bench_operand(b, 2),
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
    op->u.combine = (mf_combine_params){.x = bench_operand(b, 0),
                                        .weights = bench_operand(b, 1),
                                        .experts = bench_operand(b, 2),
                                        .shared = bench_operand(b, 3),
                                        .shared_gate = bench_operand(b, 4),
                                        .place = place,
                                        .n_cols = s->a,
                                        .k = s->b};
}

static void make_rmsnorm(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_RMSNORM, .n_rows = b->n_tokens};
    op->u.rmsnorm = (mf_rmsnorm_params){
        bench_operand(b, 0), bench_operand(b, 1), bench_operand(b, 2), s->a, 0, 1e-6f, false};
}

static void make_rmsnorm_gated(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_RMSNORM_GATED, .n_rows = b->n_tokens};
    op->u.rmsnorm_gated = (mf_rmsnorm_gated_params){
        bench_operand(b, 0), bench_operand(b, 1), bench_operand(b, 2), s->a, s->b, 1e-6f};
}

static void make_add(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_ADD, .n_rows = b->n_tokens};
    op->u.add = (mf_add_params){.x = bench_operand(b, 0), .y = bench_operand(b, 1), .n_cols = s->a};
}

static void make_swiglu(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_SWIGLU, .n_rows = b->n_tokens};
    op->u.swiglu = (mf_swiglu_params){.gate = bench_operand(b, 0),
                                      .up = bench_operand(b, 1),
                                      .out = bench_operand(b, 0),
                                      .n_cols = s->a};
}

static void make_sigmoid_mul(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_SIGMOID_MUL, .n_rows = b->n_tokens};
    op->u.sigmoid_mul = (mf_sigmoid_mul_params){bench_operand(b, 0), bench_operand(b, 1), s->a};
}

static void make_heads(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_HEAD_NORM_ROPE, .n_rows = b->n_tokens};
    op->u.head_norm_rope = (mf_head_norm_rope_params){bench_operand(b, 0),
                                                      bench_operand(b, 1),
                                                      bench_operand(b, 2),
                                                      bench_operand(b, 3),
                                                      s->a,
                                                      s->b,
                                                      64,
                                                      1e-6f};
}

static void make_attention(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_ATTENTION, .n_rows = b->n_tokens};
    op->u.attention = (mf_attention_params){.q = bench_operand(b, 0),
                                            .k = bench_operand(b, 1),
                                            .v = bench_operand(b, 2),
                                            .out = bench_operand(b, 3),
                                            .n_heads = s->a,
                                            .n_kv_heads = s->b,
                                            .head_dim = 256,
                                            .cache_type = b->cache_bytes == 4 ? MF_F32 : MF_BF16,
                                            .scale = 0.0625f};
    const uint64_t page = (uint64_t)MF_PAGE_TOKENS * s->b * 256 * b->cache_bytes;
    op->u.attention.page_offset[0] = 0;
    op->u.attention.page_offset[1] = page;
    b->n_touched = (uint64_t)b->n_tokens * s->context * s->b * 256 * 2 * b->cache_bytes;
}

static void make_conv(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_CONV1D_SILU, .n_rows = b->n_tokens};
    op->u.conv1d_silu = (mf_conv1d_silu_params){
        bench_operand(b, 0), bench_operand(b, 1), bench_operand(b, 0), s->a, s->b, 0};
    b->n_touched = (uint64_t)b->n_tokens * 2 * (s->b - 1) * s->a * 4;
}

static void make_delta(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_GATED_DELTA, .n_rows = b->n_tokens};
    op->u.gated_delta = (mf_gated_delta_params){.qkv = bench_operand(b, 0),
                                                .a = bench_operand(b, 1),
                                                .b = bench_operand(b, 2),
                                                .a_log = bench_operand(b, 3),
                                                .dt_bias = bench_operand(b, 4),
                                                .out = bench_operand(b, 5),
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
    op->u.copy_rows = (mf_copy_rows_params){bench_operand(b, 0), bench_operand(b, 1), rows, s->a};
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

static void add_fused_to(bench *b, mf_op *op, uint32_t bits, uint32_t n_rows, uint32_t n_cols,
                         mf_span to)
{
    const uint32_t i = op->u.matmul.n++;
    op->u.matmul.weight[i] = next_weight(b, bits, n_rows, n_cols);
    op->u.matmul.y[i] = to;
}

static void add_fused(bench *b, mf_op *op, uint32_t bits, uint32_t n_rows, uint32_t n_cols,
                      uint32_t to)
{
    add_fused_to(b, op, bits, n_rows, n_cols, small(b, to));
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
        .kind = MF_OUTPUT_CONVOLVED, .weight = bench_operand(b, 1), .width = 4, .state_offset = 0};
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

/* Two are made before the first is recorded. */
static void make_fused_linear_row(bench *b, const subject *s, mf_op *op)
{
    static mf_op parts[2][3];
    static uint32_t turn;
    const subject rule = {.a = 16, .b = 32};
    mf_op *p = parts[turn++ % 2];
    make_fused_linear_in(b, s, &p[0]);
    make_fused_delta(b, &rule, &p[1]);
    make_fused_heads_out(b, s, &p[2]);
    *op = (mf_op){.kind = MF_OP_LINEAR_ROW, .n_rows = 1, .u.linear_row = {&p[0], &p[1], &p[2]}};
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

/* Two are made before the first is recorded. */
static void make_fused_attend_row(bench *b, const subject *s, mf_op *op)
{
    static mf_op parts[2][5];
    static uint32_t turn;
    const subject queries = {.a = 16, .b = 256}, keys = {.a = 2, .b = 256};
    const subject of = {.a = 16, .b = 2, .context = s->context}, out = {.a = 2048, .b = 4096};
    mf_op *p = parts[turn++ % 2];
    make_fused_full_in(b, s, &p[0]);
    make_fused_heads(b, &queries, &p[1]);
    make_fused_heads(b, &keys, &p[2]);
    make_fused_attention(b, &of, &p[3]);
    make_fused_gated_out(b, &out, &p[4]);
    *op = (mf_op){
        .kind = MF_OP_ATTEND_ROW, .n_rows = 1, .u.attend_row = {&p[0], &p[1], &p[2], &p[3], &p[4]}};
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
    mf_weight w = {.shape = shape_of(b, 4, n_rows, n_cols)};
    for (uint32_t i = 0; i < mf_weight_format_of(&w.shape)->n_arrays; i++) {
        w.arrays[i] = mf_span_at(b->weights, *at);
        *at += (mf_weight_array_bytes(&w.shape, i) + 63) / 64 * 64;
    }
    return w;
}

/* Slots of all experts from the beginning of the weights on. */
static void put_slots(const bench *b, const subject *s, mf_routed_experts_params *p)
{
    uint64_t at = STATE_BYTES;
    p->slot = mf_span_at(b->tables, N_EXPERTS * sizeof(uint32_t));
    p->slots = mf_span_at(b->weights, STATE_BYTES);
    p->n_slots = N_EXPERTS;
    p->k = N_CHOSEN;
    p->gate = slot_weight(b, s->a, s->b, &at);
    p->up = slot_weight(b, s->a, s->b, &at);
    p->down = slot_weight(b, s->b, s->a, &at);
    p->slot_bytes = at - STATE_BYTES;
}

static void make_fused_experts(bench *b, const subject *s, mf_op *op)
{
    const uint32_t which = b->n_routed++ % (N_EXPERTS / N_CHOSEN);
    *op = (mf_op){.kind = MF_OP_ROUTED_EXPERTS, .n_rows = 1};
    mf_routed_experts_params *p = &op->u.routed;
    *p = (mf_routed_experts_params){.x = small(b, 0),
                                    .ids = mf_span_at(b->tables, which * 8 * sizeof(int32_t)),
                                    .act = small(b, ACT),
                                    .out = small(b, OUT),
                                    .n_experts = N_EXPERTS + 8,
                                    .before = normed(b),
                                    .sum = {.x = small(b, 0),
                                            .weights = small(b, WEIGHTS),
                                            .shared = small(b, SHARED),
                                            .shared_gate = small(b, SHARED_GATE)}};
    put_slots(b, s, p);
}

/* Of several rows. */
static void make_routed(bench *b, const subject *s, mf_op *op)
{
    const uint64_t which = b->n_routed++ % N_CHOICES;
    *op = (mf_op){.kind = MF_OP_ROUTED_EXPERTS, .n_rows = b->n_tokens};
    op->u.routed = (mf_routed_experts_params){
        .x = bench_operand(b, 0),
        .ids = mf_span_at(b->choices, which * MAX_TOKENS * N_CHOSEN * sizeof(int32_t)),
        .act = bench_operand(b, 1),
        .out = bench_operand(b, 2),
        .n_experts = N_EXPERTS};
    put_slots(b, s, &op->u.routed);
}

/* Two are made before the first is recorded. Norms make logits small, so that it chooses others
 * each time. */
static void make_fused_mixture(bench *b, const subject *s, mf_op *op)
{
    static mf_op parts[2][5];
    static uint32_t turn;
    const subject route = {.a = N_EXPERTS, .b = 8}, out = {.a = s->b, .b = s->a};
    mf_op *p = parts[turn++ % 2];
    make_fused_router(b, s, &p[0]);
    make_fused_pair(b, s, &p[1]);
    make_fused_route(b, &route, &p[2]);
    make_fused_shared_out(b, &out, &p[3]);
    make_fused_experts(b, s, &p[4]);
    p[4].u.routed.n_experts = N_EXPERTS;
    *op = (mf_op){
        .kind = MF_OP_MIXTURE, .n_rows = 1, .u.mixture = {&p[0], &p[1], &p[2], &p[3], &p[4]}};
}

/* ----------------------------------------------------- of one token, with latents (Cogito) -- */

#define LATENT_HEADS 128u
#define LATENT_DIMS 512u
#define LATENT_ROT 64u
#define LATENT_QUERY 192u /* of a head */

/* Wider than the other small ones. */
static mf_span wide(const bench *b, uint32_t i)
{
    return mf_span_at(bench_operand(b, OPERANDS - 2), i * (SMALL_BYTES << 2));
}

enum { LATENT_Q, LATENT_Q_LOW, LATENT_KV, LATENT_ABSORBED, LATENT_OUT, LATENT_VALUES, LATENT_MLP };

static void begin_latent(bench *b, mf_op *op, mf_span x, bool is_normed)
{
    begin_fused(b, op, is_normed ? normed(b) : (mf_input_step){.kind = MF_INPUT_AS_IT_IS});
    op->u.matmul.x = x;
}

static void make_latent_in(bench *b, const subject *s, mf_op *op)
{
    (void)s;
    begin_latent(b, op, small(b, 0), true);
    add_fused_to(b, op, 4, 1536, 7168, wide(b, LATENT_Q_LOW));
    add_fused_to(b, op, 4, LATENT_DIMS + LATENT_ROT, 7168, wide(b, LATENT_KV));
}

static void make_latent_queries(bench *b, const subject *s, mf_op *op)
{
    begin_latent(b, op, wide(b, LATENT_Q_LOW), true);
    add_fused_to(b, op, 4, s->a, s->b, wide(b, LATENT_Q));
}

/* Of its heads' weights, of 128 rows each: turned, keys, or not, values. */
static void make_latent_heads(bench *b, const subject *s, mf_op *op)
{
    const bool is_key = s->a != 0;
    *op = (mf_op){.kind = MF_OP_HEAD_MATMUL, .n_rows = 1};
    op->u.head_matmul =
        (mf_head_matmul_params){.w = {.weight = next_weight(b, 4, LATENT_HEADS * 256, LATENT_DIMS),
                                      .head_rows = 256,
                                      .first_row = is_key ? 0 : 128,
                                      .n_rows = 128,
                                      .transposed = is_key},
                                .x = wide(b, is_key ? LATENT_Q : LATENT_OUT),
                                .y = wide(b, is_key ? LATENT_ABSORBED : LATENT_VALUES),
                                .n_heads = LATENT_HEADS,
                                .x_head = is_key ? LATENT_QUERY : LATENT_DIMS,
                                .y_head = is_key ? LATENT_DIMS : 128};
}

static mf_op latent_rotation(const bench *b, mf_span x, uint32_t n_heads, uint32_t stride)
{
    return (mf_op){.kind = MF_OP_ROPE,
                   .n_rows = 1,
                   .u.rope = {.x = x,
                              .cos = bench_operand(b, 2),
                              .sin = bench_operand(b, 3),
                              .n_heads = n_heads,
                              .n_rot = LATENT_ROT,
                              .row_stride = n_heads * stride,
                              .head_stride = stride,
                              .interleaved = true}};
}

static void make_latent_attention(bench *b, const subject *s, mf_op *op)
{
    *op = (mf_op){.kind = MF_OP_LATENT_ATTENTION, .n_rows = 1};
    op->u.latent_attention =
        (mf_latent_attention_params){.q = wide(b, LATENT_ABSORBED),
                                     .q_rot = mf_span_at(wide(b, LATENT_Q), 128 * sizeof(float)),
                                     .kv = wide(b, LATENT_KV),
                                     .out = wide(b, LATENT_OUT),
                                     .n_heads = LATENT_HEADS,
                                     .n_latent = LATENT_DIMS,
                                     .n_rot = LATENT_ROT,
                                     .q_rot_row = LATENT_HEADS * LATENT_QUERY,
                                     .q_rot_head = LATENT_QUERY,
                                     .cache_type = b->cache_bytes == 4 ? MF_F32 : MF_BF16,
                                     .scale = 0.0625f};
    b->n_touched = (uint64_t)s->context * (LATENT_DIMS + LATENT_ROT) * b->cache_bytes;
}

/* Two are made before the first is recorded. */
static void make_latent_row(bench *b, const subject *s, mf_op *op)
{
    static mf_op parts[2][4];
    static uint32_t turn;
    mf_op *p = parts[turn++ % 2];
    const mf_span kv = wide(b, LATENT_KV);
    p[0] = (mf_op){
        .kind = MF_OP_RMSNORM,
        .n_rows = 1,
        .u.rmsnorm = {kv, small(b, NORM), kv, LATENT_DIMS, LATENT_DIMS + LATENT_ROT, 1e-6f, false}};
    p[1] = latent_rotation(b, mf_span_at(wide(b, LATENT_Q), 128 * sizeof(float)), LATENT_HEADS,
                           LATENT_QUERY);
    p[2] = latent_rotation(b, mf_span_at(kv, LATENT_DIMS * sizeof(float)), 1,
                           LATENT_DIMS + LATENT_ROT);
    make_latent_attention(b, s, &p[3]);
    *op = (mf_op){
        .kind = MF_OP_LATENT_ROW, .n_rows = 1, .u.latent_row = {&p[0], &p[1], &p[2], &p[3]}};
}

static void make_latent_out(bench *b, const subject *s, mf_op *op)
{
    begin_latent(b, op, wide(b, s->b == 18432 ? LATENT_MLP : LATENT_VALUES), false);
    add_fused_to(b, op, 4, s->a, s->b, small(b, 0));
    op->u.matmul.after.kind = MF_OUTPUT_ADDED;
}

static void make_latent_pair(bench *b, const subject *s, mf_op *op)
{
    begin_latent(b, op, small(b, 0), true);
    add_fused_to(b, op, 4, s->a, s->b, wide(b, LATENT_MLP));
    add_fused_to(b, op, 4, s->a, s->b, wide(b, LATENT_MLP + 1));
    op->u.matmul.is_paired = true;
}

/* Pages of keys and values, and states, all at the beginning of the weights' memory; operations of
 * states go on from there. */
void bench_begin_batch(bench *b, const subject *s)
{
    static mf_span pages[MAX_PAGES];
    mf_sequence sequences[MAX_TOKENS];
    const uint32_t context = s->context != 0 ? s->context : 1, n_pages = mf_pages_of(context);
    const uint64_t state = (uint64_t)32 * 128 * 128 * 4,
                   page = (uint64_t)MF_PAGE_TOKENS * 1024 * b->cache_bytes;
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

/* ------------------------------------------------------------------------------------- lists -- */

const subject fused_subjects[] = {
    {"fused linear in, 12352x2048", make_fused_linear_in, 0, 0, 0, 1, 0, 0, BENCH_LINEAR_ROW,
     false},
    {"fused delta rule 32 heads", make_fused_delta, 16, 32, 0, 1, 0, 0, BENCH_LINEAR_ROW, false},
    {"fused linear out, 2048x4096", make_fused_heads_out, 2048, 4096, 0, 1, 0, 0, BENCH_LINEAR_ROW,
     false},
    {"fused linear row", make_fused_linear_row, 2048, 4096, 0, 1, 0, 0, BENCH_LINEAR_ROW, true},
    {"fused full in, 9216x2048", make_fused_full_in, 0, 0, 0, 0, 1, 0, BENCH_ATTEND_ROW, false},
    {"fused queries 16x256", make_fused_heads, 16, 256, 0, 0, 1, 0, BENCH_ATTEND_ROW, false},
    {"fused keys 2x256", make_fused_heads, 2, 256, 0, 0, 1, 0, BENCH_ATTEND_ROW, false},
    {"fused attention at 500", make_fused_attention, 16, 2, 500, 0, 1, 0, BENCH_ATTEND_ROW, false},
    {"fused attention at 1000", make_fused_attention, 16, 2, 1000, 0, 0, 0, BENCH_ALONE, false},
    {"fused attention at 2000", make_fused_attention, 16, 2, 2000, 0, 0, 0, BENCH_ALONE, false},
    {"fused attention at 4000", make_fused_attention, 16, 2, 4000, 0, 0, 0, BENCH_ALONE, false},
    {"fused attention at 8000", make_fused_attention, 16, 2, 8000, 0, 0, 0, BENCH_ALONE, false},
    {"fused full out, 2048x4096", make_fused_gated_out, 2048, 4096, 0, 0, 1, 0, BENCH_ATTEND_ROW,
     false},
    {"fused attend row at 500", make_fused_attend_row, 0, 0, 500, 0, 1, 0, BENCH_ATTEND_ROW, true},
    {"fused attend row at 100", make_fused_attend_row, 0, 0, 100, 0, 0, 0, BENCH_ATTEND_ROW, true},
    {"fused attend row at 1000", make_fused_attend_row, 0, 0, 1000, 0, 0, 0, BENCH_ATTEND_ROW,
     true},
    {"fused attend row at 2000", make_fused_attend_row, 0, 0, 2000, 0, 0, 0, BENCH_ATTEND_ROW,
     true},
    {"fused attend row at 4000", make_fused_attend_row, 0, 0, 4000, 0, 0, 0, BENCH_ATTEND_ROW,
     true},
    {"fused attend row at 8000", make_fused_attend_row, 0, 0, 8000, 0, 0, 0, BENCH_ATTEND_ROW,
     true},
    {"fused router 257x2048", make_fused_router, 0, 0, 0, 1, 1, 0, BENCH_MIXTURE, false},
    {"fused shared in, 2 of 512x2048", make_fused_pair, 512, 2048, 0, 1, 1, 0, BENCH_MIXTURE,
     false},
    {"fused route 8 of 256", make_fused_route, N_EXPERTS, 8, 0, 1, 1, 0, BENCH_MIXTURE, false},
    {"fused shared out, 2048x512", make_fused_shared_out, 2048, 512, 0, 1, 1, 0, BENCH_MIXTURE,
     false},
    {"fused experts 8 of 512x2048", make_fused_experts, 512, 2048, 0, 1, 1, 0, BENCH_MIXTURE,
     false},
    {"fused mixture of 512x2048", make_fused_mixture, 512, 2048, 0, 1, 1, 0, BENCH_MIXTURE, true},
};
const size_t n_fused = sizeof fused_subjects / sizeof *fused_subjects;

const subject latent_subjects[] = {
    {"latent in, 2112x7168", make_latent_in, 0, 0, 0, 1, 1, 0, BENCH_ALONE, false},
    {"latent queries, 24576x1536", make_latent_queries, 24576, 1536, 0, 1, 1, 0, BENCH_ALONE,
     false},
    {"latent heads' keys, 128 of 128x512", make_latent_heads, 1, 0, 0, 1, 1, 0, BENCH_ALONE, false},
    {"latent row at 160", make_latent_row, 0, 0, 160, 1, 1, 0, BENCH_LATENT_ROW, true},
    {"latent row at 60", make_latent_row, 0, 0, 60, 0, 0, 0, BENCH_LATENT_ROW, true},
    {"latent row at 500", make_latent_row, 0, 0, 500, 0, 0, 0, BENCH_LATENT_ROW, true},
    {"latent row at 1000", make_latent_row, 0, 0, 1000, 0, 0, 0, BENCH_LATENT_ROW, true},
    {"latent row at 2000", make_latent_row, 0, 0, 2000, 0, 0, 0, BENCH_LATENT_ROW, true},
    {"latent row at 4000", make_latent_row, 0, 0, 4000, 0, 0, 0, BENCH_LATENT_ROW, true},
    {"latent attention at 60", make_latent_attention, 0, 0, 60, 0, 0, 0, BENCH_ALONE, false},
    {"latent attention at 160", make_latent_attention, 0, 0, 160, 1, 1, 0, BENCH_LATENT_ROW, false},
    {"latent attention at 500", make_latent_attention, 0, 0, 500, 0, 0, 0, BENCH_ALONE, false},
    {"latent attention at 1000", make_latent_attention, 0, 0, 1000, 0, 0, 0, BENCH_ALONE, false},
    {"latent attention at 2000", make_latent_attention, 0, 0, 2000, 0, 0, 0, BENCH_ALONE, false},
    {"latent attention at 4000", make_latent_attention, 0, 0, 4000, 0, 0, 0, BENCH_ALONE, false},
    {"latent heads' values, 128 of 128x512", make_latent_heads, 0, 0, 0, 1, 1, 0, BENCH_ALONE,
     false},
    {"latent out, 7168x16384", make_latent_out, 7168, 16384, 0, 1, 1, 0, BENCH_ALONE, false},
    {"latent dense in, 2 of 18432x7168", make_latent_pair, 18432, 7168, 0, 1, 0, 0, BENCH_ALONE,
     false},
    {"latent dense out, 7168x18432", make_latent_out, 7168, 18432, 0, 1, 0, 0, BENCH_ALONE, false},
    {"latent shared in, 2 of 2048x7168", make_latent_pair, 2048, 7168, 0, 0, 1, 0, BENCH_ALONE,
     false},
    {"latent shared out, 7168x2048", make_latent_out, 7168, 2048, 0, 0, 1, 0, BENCH_ALONE, false},
    {"latent experts 8 of 2048x7168", make_experts, 2048, 7168, 0, 0, 1, 0, BENCH_ALONE, false},
};
const size_t n_latent = sizeof latent_subjects / sizeof *latent_subjects;

const subject subjects[] = {
    {"nothing", NULL, 0, 0, 0, 0, 0, 0, BENCH_ALONE, false},
    {"rmsnorm 2048", make_rmsnorm, 2048, 0, 0, 2, 2, 1, BENCH_ALONE, false},
    {"matmul linear in, 12352x2048", make_linear_in, 0, 0, 0, 1, 0, 0, BENCH_ALONE, false},
    {"convolution 8192", make_conv, 8192, 4, 0, 1, 0, 0, BENCH_ALONE, false},
    {"delta rule 32 heads", make_delta, 16, 32, 0, 1, 0, 0, BENCH_ALONE, false},
    {"gated rmsnorm 32x128", make_rmsnorm_gated, 32, 128, 0, 1, 0, 0, BENCH_ALONE, false},
    {"matmul full in, 9216x2048", make_full_in, 0, 0, 0, 0, 1, 0, BENCH_ALONE, false},
    {"head norm, rotation 16x256", make_heads, 16, 256, 0, 0, 1, 0, BENCH_ALONE, false},
    {"head norm, rotation 2x256", make_heads, 2, 256, 0, 0, 1, 0, BENCH_ALONE, false},
    {"attention at 100", make_attention, 16, 2, 100, 0, 0, 0, BENCH_ALONE, false},
    {"attention at 500", make_attention, 16, 2, 500, 0, 1, 0, BENCH_ALONE, false},
    {"attention at 1000", make_attention, 16, 2, 1000, 0, 0, 0, BENCH_ALONE, false},
    {"attention at 4000", make_attention, 16, 2, 4000, 0, 0, 0, BENCH_ALONE, false},
    {"sigmoid gate 4096", make_sigmoid_mul, 4096, 0, 0, 0, 1, 0, BENCH_ALONE, false},
    {"matmul out, 2048x4096", make_matmul, 2048, 4096, 0, 1, 1, 0, BENCH_ALONE, false},
    {"add 2048", make_add, 2048, 0, 0, 1, 1, 0, BENCH_ALONE, false},
    {"router 256x2048", make_router, 256, 2048, 0, 1, 1, 0, BENCH_ALONE, false},
    {"route 8 of 256", make_route, 256, 8, 0, 1, 1, 0, BENCH_ALONE, false},
    {"shared in, 1025x2048", make_shared_in, 0, 0, 0, 1, 1, 0, BENCH_ALONE, false},
    {"swiglu 512", make_swiglu, 512, 0, 0, 1, 1, 0, BENCH_ALONE, false},
    {"shared down, 2048x512", make_matmul, 2048, 512, 0, 1, 1, 0, BENCH_ALONE, false},
    {"experts 8 of 512x2048", make_experts, 512, 2048, 0, 1, 1, 0, BENCH_ALONE, false},
    {"routed experts 8 of 512x2048", make_routed, 512, 2048, 0, 0, 0, 0, BENCH_ALONE, false},
    {"combine 8 of 2048", make_combine, 2048, 8, 0, 1, 1, 0, BENCH_ALONE, false},
    {"copy rows 2048", make_copy_rows, 2048, 0, 0, 0, 0, 1, BENCH_ALONE, false},
    {"matmul 512x2048", make_matmul, 512, 2048, 0, 0, 0, 0, BENCH_ALONE, false},
    {"matmul 2048x2048", make_matmul, 2048, 2048, 0, 0, 0, 0, BENCH_ALONE, false},
    {"matmul 8192x2048", make_matmul, 8192, 2048, 0, 0, 0, 0, BENCH_ALONE, false},
    {"matmul 7168x7168", make_matmul, 7168, 7168, 0, 0, 0, 0, BENCH_ALONE, false},
    {"matmul 1536x7168", make_matmul, 1536, 7168, 0, 0, 0, 0, BENCH_ALONE, false},
    {"matmul 24576x1536", make_matmul, 24576, 1536, 0, 0, 0, 0, BENCH_ALONE, false},
    {"matmul 7168x16384", make_matmul, 7168, 16384, 0, 0, 0, 0, BENCH_ALONE, false},
    {"matmul 18432x7168", make_matmul, 18432, 7168, 0, 0, 0, 0, BENCH_ALONE, false},
    {"matmul 7168x2048", make_matmul, 7168, 2048, 0, 0, 0, 0, BENCH_ALONE, false},
    {"head 129280x7168", make_matmul, 129280, 7168, 0, 0, 0, 0, BENCH_ALONE, false},
    {"head 248320x2048", make_matmul, 248320, 2048, 0, 0, 0, 1, BENCH_ALONE, false},
};
const size_t n_subjects = sizeof subjects / sizeof *subjects;

/* SPDX-License-Identifier: MIT */
/* The bytes of every operation, kind by kind; backend.h says what each operand is. */
#include "backend/op_spans.h"

typedef struct spans {
    const mf_op *op;
    const mf_sequence *sequences;
    uint32_t n_sequences;
    mf_op_span_fn visit;
    void *ctx;
} spans;

static void touch(const spans *s, mf_span span, uint64_t n_bytes, uint32_t access)
{
    if (span.buffer.id != 0 && n_bytes != 0)
        s->visit(s->ctx, span, n_bytes, access);
}

static void floats(const spans *s, mf_span span, uint64_t n, uint32_t access)
{
    touch(s, span, n * sizeof(float), access);
}

/* The operation's rows of n_cols floats. */
static void rows(const spans *s, mf_span span, uint64_t n_cols, uint32_t access)
{
    floats(s, span, s->op->n_rows * n_cols, access);
}

/* From the first value of the first run to the last of the last: n runs of n_cols floats in each
 * row. */
static void runs(const spans *s, mf_span span, uint64_t row_stride, uint64_t n, uint64_t stride,
                 uint64_t n_cols, uint32_t access)
{
    if (s->op->n_rows != 0 && n != 0)
        floats(s, span, (s->op->n_rows - 1) * row_stride + (n - 1) * stride + n_cols, access);
}

static void weight(const spans *s, const mf_weight *w)
{
    for (uint32_t i = 0; i < mf_weight_format_of(&w->shape)->n_arrays; i++)
        touch(s, w->arrays[i], mf_weight_array_bytes(&w->shape, i), MF_READS);
}

/* -------------------------------------------------------------------------------- sequences -- */

/* The operation's share of a sequence's rows: positions from .. end - 1. False if it has none. */
static bool positions_of(const spans *s, const mf_sequence *seq, uint64_t *from, uint64_t *end)
{
    uint64_t first = s->op->first_row, last = first + s->op->n_rows;
    uint64_t seq_end = (uint64_t)seq->first_row + seq->n_rows;
    first = first > seq->first_row ? first : seq->first_row;
    last = last < seq_end ? last : seq_end;
    if (first >= last)
        return false;
    *from = seq->position + first - seq->first_row;
    *end = seq->position + last - seq->first_row;
    return true;
}

static void angles(const spans *s, mf_span cos, mf_span sin, uint32_t n_rot)
{
    uint64_t from, end, half = n_rot / 2;
    for (uint32_t i = 0; i < s->n_sequences; i++) {
        if (!positions_of(s, &s->sequences[i], &from, &end))
            continue;
        floats(s, mf_span_at(cos, from * half * sizeof(float)), (end - from) * half, MF_READS);
        floats(s, mf_span_at(sin, from * half * sizeof(float)), (end - from) * half, MF_READS);
    }
}

/* A cache's rows of row_bytes: those before `from` are read, those up to `end` written. */
static void cache_rows(const spans *s, const mf_sequence *seq, uint64_t page_offset,
                       uint64_t row_bytes, const uint64_t *range)
{
    const uint64_t from = range[0], end = range[1];
    for (uint64_t at = 0; at < end; at += MF_PAGE_TOKENS) {
        const mf_span page = mf_span_at(seq->pages[at / MF_PAGE_TOKENS], page_offset);
        uint64_t n = end - at < MF_PAGE_TOKENS ? end - at : MF_PAGE_TOKENS;
        uint64_t n_old = from <= at ? 0 : from - at < n ? from - at : n;
        touch(s, page, n_old * row_bytes, MF_READS);
        touch(s, mf_span_at(page, n_old * row_bytes), (n - n_old) * row_bytes, MF_WRITES);
    }
}

static void caches(const spans *s, uint64_t page_offset, uint64_t width, mf_dtype type)
{
    uint64_t range[2];
    for (uint32_t i = 0; i < s->n_sequences; i++)
        if (positions_of(s, &s->sequences[i], &range[0], &range[1]))
            cache_rows(s, &s->sequences[i], page_offset, width * mf_dtype_bytes(type), range);
}

static void states(const spans *s, uint64_t state_offset, uint64_t n_floats)
{
    for (uint32_t i = 0; i < s->n_sequences; i++) {
        const mf_sequence *seq = &s->sequences[i];
        floats(s, mf_span_at(seq->state[0], state_offset), n_floats, MF_READS);
        floats(s, mf_span_at(seq->state[1], state_offset), n_floats, MF_WRITES);
    }
}

/* ------------------------------------------------------------------------------- operations -- */

static void embed(const spans *s)
{
    const mf_embed_params *p = &s->op->u.embed;
    weight(s, &p->weight);
    rows(s, p->out, p->weight.shape.n_cols, MF_WRITES);
}

static void copy_rows(const spans *s)
{
    const mf_copy_rows_params *p = &s->op->u.copy_rows;
    const uint64_t row_bytes = (uint64_t)p->n_cols * sizeof(float);
    for (uint32_t i = 0; i < s->op->n_rows; i++)
        touch(s, mf_span_at(p->x, p->rows[i] * row_bytes), row_bytes, MF_READS);
    rows(s, p->out, p->n_cols, MF_WRITES);
}

static void rmsnorm(const spans *s)
{
    const mf_rmsnorm_params *p = &s->op->u.rmsnorm;
    uint64_t stride = p->stride != 0 ? p->stride : p->n_cols;
    runs(s, p->x, stride, 1, 0, p->n_cols, MF_READS);
    floats(s, p->weight, p->n_cols, MF_READS);
    runs(s, p->out, stride, 1, 0, p->n_cols, MF_WRITES);
}

static void rmsnorm_gated(const spans *s)
{
    const mf_rmsnorm_gated_params *p = &s->op->u.rmsnorm_gated;
    const uint64_t n_cols = (uint64_t)p->n_heads * p->head_dim;
    rows(s, p->x, n_cols, MF_READS | MF_WRITES);
    rows(s, p->z, n_cols, MF_READS);
    floats(s, p->weight, p->head_dim, MF_READS);
}

static void matmul(const spans *s)
{
    const mf_matmul_params *p = &s->op->u.matmul;
    rows(s, p->x, p->weight[0].shape.n_cols, MF_READS);
    for (uint32_t j = 0; j < p->n; j++) {
        weight(s, &p->weight[j]);
        rows(s, p->y[j], p->weight[j].shape.n_rows, MF_WRITES);
    }
}

static void head_norm_rope(const spans *s)
{
    const mf_head_norm_rope_params *p = &s->op->u.head_norm_rope;
    rows(s, p->x, (uint64_t)p->n_heads * p->head_dim, MF_READS | MF_WRITES);
    floats(s, p->weight, p->head_dim, MF_READS);
    angles(s, p->cos, p->sin, p->n_rot);
}

static void attention(const spans *s)
{
    const mf_attention_params *p = &s->op->u.attention;
    const uint64_t width = (uint64_t)p->n_kv_heads * p->head_dim;
    const uint64_t q_width = (uint64_t)p->n_heads * p->head_dim;
    rows(s, p->q, q_width, MF_READS);
    rows(s, p->k, width, MF_READS);
    rows(s, p->v, width, MF_READS);
    rows(s, p->out, q_width, MF_WRITES);
    floats(s, p->sinks, p->n_heads, MF_READS);
    caches(s, p->page_offset[0], width, p->cache_type);
    caches(s, p->page_offset[1], width, p->cache_type);
}

static void sigmoid_mul(const spans *s)
{
    const mf_sigmoid_mul_params *p = &s->op->u.sigmoid_mul;
    rows(s, p->x, p->n_cols, MF_READS | MF_WRITES);
    rows(s, p->gate, p->n_cols, MF_READS);
}

static void conv1d_silu(const spans *s)
{
    const mf_conv1d_silu_params *p = &s->op->u.conv1d_silu;
    rows(s, p->x, p->n_channels, MF_READS);
    floats(s, p->weight, (uint64_t)p->n_channels * p->width, MF_READS);
    rows(s, p->out, p->n_channels, MF_WRITES);
    states(s, p->state_offset, (uint64_t)(p->width - 1) * p->n_channels);
}

static void gated_delta(const spans *s)
{
    const mf_gated_delta_params *p = &s->op->u.gated_delta;
    const uint64_t n_keys = (uint64_t)p->n_k_heads * p->key_dim;
    const uint64_t n_values = (uint64_t)p->n_v_heads * p->value_dim;
    rows(s, p->qkv, 2 * n_keys + n_values, MF_READS | MF_LOSES);
    rows(s, p->a, p->n_v_heads, MF_READS);
    rows(s, p->b, p->n_v_heads, MF_READS);
    floats(s, p->a_log, p->n_v_heads, MF_READS);
    floats(s, p->dt_bias, p->n_v_heads, MF_READS);
    rows(s, p->out, n_values, MF_WRITES);
    states(s, p->state_offset, n_values * p->key_dim);
}

static void norm_after(const spans *s, const mf_norm_after *norm, uint32_t n_cols)
{
    if (norm->weight.buffer.id == 0)
        return;
    floats(s, norm->weight, n_cols, MF_READS);
    rows(s, norm->out, n_cols, MF_WRITES);
}

static void add(const spans *s)
{
    const mf_add_params *p = &s->op->u.add;
    rows(s, p->x, p->n_cols, MF_READS | MF_WRITES);
    if (p->y_is_one_row)
        floats(s, p->y, p->n_cols, MF_READS);
    else
        rows(s, p->y, p->n_cols, MF_READS);
    norm_after(s, &p->norm, p->n_cols);
}

static void swiglu(const spans *s)
{
    const mf_swiglu_params *p = &s->op->u.swiglu;
    rows(s, p->gate, p->n_cols, MF_READS);
    rows(s, p->up, p->n_cols, MF_READS);
    rows(s, p->out, p->n_cols, MF_WRITES);
}

static void route(const spans *s)
{
    const mf_route_params *p = &s->op->u.route;
    rows(s, p->logits, p->n_experts, MF_READS | MF_LOSES);
    floats(s, p->bias, p->n_experts, MF_READS);
    rows(s, p->ids, p->k, MF_WRITES);
    rows(s, p->weights, p->k, MF_WRITES);
    if (p->found.buffer.id != 0)
        floats(s, p->slot, p->n_experts, MF_READS);
    floats(s, p->found, 2, MF_READS | MF_WRITES);
}

/* Rows of n_cols floats, from the lowest to the highest of n that are named. */
static void named_rows(const spans *s, mf_span span, const uint32_t *named, uint64_t n,
                       uint64_t n_cols)
{
    uint64_t low = UINT64_MAX, high = 0;
    for (uint64_t i = 0; i < n; i++) {
        low = named[i] < low ? named[i] : low;
        high = named[i] > high ? named[i] : high;
    }
    if (n != 0)
        floats(s, mf_span_at(span, low * n_cols * sizeof(float)), (high - low + 1) * n_cols,
               MF_READS);
}

static void experts(const spans *s)
{
    const mf_experts_params *p = &s->op->u.experts;
    for (uint32_t i = 0; i < p->n_items; i++) {
        const mf_expert_item *item = &p->items[i];
        const uint64_t act = 2 * (uint64_t)item->gate.shape.n_rows, out = item->down.shape.n_rows;
        named_rows(s, p->x, item->x_rows, item->n_rows, item->gate.shape.n_cols);
        weight(s, &item->gate);
        weight(s, &item->up);
        weight(s, &item->down);
        floats(s, mf_span_at(p->act, item->out_row * act * sizeof(float)), item->n_rows * act,
               MF_LOSES);
        floats(s, mf_span_at(p->out, item->out_row * out * sizeof(float)), item->n_rows * out,
               MF_WRITES);
    }
}

/* A matrix of all experts: its arrays in slots are among all that lies there. */
static void resident_scales(const spans *s, const mf_weight *w)
{
    const mf_routed_experts_params *p = &s->op->u.routed;
    const mf_weight_format *format = mf_weight_format_of(&w->shape);
    for (uint32_t i = 0; i < format->n_arrays && p->has_resident_scales; i++)
        if (format->arrays[i].is_float32)
            touch(s, w->arrays[i], p->n_experts * mf_weight_array_bytes(&w->shape, i), MF_READS);
}

static void routed_experts(const spans *s)
{
    const mf_routed_experts_params *p = &s->op->u.routed;
    rows(s, p->x, p->gate.shape.n_cols, MF_READS);
    rows(s, p->ids, p->k, MF_READS);
    floats(s, p->slot, p->n_experts, MF_READS);
    touch(s, p->slots, p->n_slots * p->slot_bytes, MF_READS);
    resident_scales(s, &p->gate);
    resident_scales(s, &p->up);
    resident_scales(s, &p->down);
    rows(s, p->act, (uint64_t)p->k * 2 * p->gate.shape.n_rows, MF_LOSES);
    rows(s, p->out, (uint64_t)p->k * p->down.shape.n_rows, MF_WRITES);
}

static void combine(const spans *s)
{
    const mf_combine_params *p = &s->op->u.combine;
    rows(s, p->x, p->n_cols, MF_READS | MF_WRITES);
    rows(s, p->weights, p->k, MF_READS);
    if (p->place != NULL)
        named_rows(s, p->experts, p->place, (uint64_t)s->op->n_rows * p->k, p->n_cols);
    else
        rows(s, p->experts, (uint64_t)p->k * p->n_cols, MF_READS);
    rows(s, p->shared, p->n_cols, MF_READS | MF_LOSES);
    if (p->shared.buffer.id != 0)
        rows(s, p->shared_gate, 1, MF_READS);
    norm_after(s, &p->norm, p->n_cols);
}

static void rope(const spans *s)
{
    const mf_rope_params *p = &s->op->u.rope;
    runs(s, p->x, p->row_stride, p->n_heads, p->head_stride, p->n_rot, MF_READS | MF_WRITES);
    angles(s, p->cos, p->sin, p->n_rot);
}

static void head_matmul(const spans *s)
{
    const mf_head_matmul_params *p = &s->op->u.head_matmul;
    uint64_t n_in = p->w.weight.shape.n_cols, n_out = p->w.n_rows;
    weight(s, &p->w.weight);
    runs(s, p->x, p->x_row, p->n_heads, p->x_head, p->w.transposed ? n_out : n_in, MF_READS);
    runs(s, p->y, p->y_row, p->n_heads, p->y_head, p->w.transposed ? n_in : n_out, MF_WRITES);
}

static void latent_attention(const spans *s)
{
    const mf_latent_attention_params *p = &s->op->u.latent_attention;
    const uint64_t width = (uint64_t)p->n_latent + p->n_rot;
    rows(s, p->q, (uint64_t)p->n_heads * p->n_latent, MF_READS);
    runs(s, p->q_rot, p->q_rot_row, p->n_heads, p->q_rot_head, p->n_rot, MF_READS);
    rows(s, p->kv, width, MF_READS);
    rows(s, p->out, (uint64_t)p->n_heads * p->n_latent, MF_WRITES);
    caches(s, p->page_offset, width, p->cache_type);
}

void mf_op_spans(const mf_op *op, const mf_sequence *sequences, uint32_t n_sequences,
                 mf_op_span_fn visit, void *ctx)
{
    static void (*const of_kind[])(const spans *) = {
        [MF_OP_EMBED] = embed,
        [MF_OP_COPY_ROWS] = copy_rows,
        [MF_OP_RMSNORM] = rmsnorm,
        [MF_OP_RMSNORM_GATED] = rmsnorm_gated,
        [MF_OP_MATMUL] = matmul,
        [MF_OP_HEAD_NORM_ROPE] = head_norm_rope,
        [MF_OP_ATTENTION] = attention,
        [MF_OP_SIGMOID_MUL] = sigmoid_mul,
        [MF_OP_CONV1D_SILU] = conv1d_silu,
        [MF_OP_GATED_DELTA] = gated_delta,
        [MF_OP_ADD] = add,
        [MF_OP_SWIGLU] = swiglu,
        [MF_OP_ROUTE] = route,
        [MF_OP_EXPERTS] = experts,
        [MF_OP_ROUTED_EXPERTS] = routed_experts,
        [MF_OP_COMBINE] = combine,
        [MF_OP_ROPE] = rope,
        [MF_OP_HEAD_MATMUL] = head_matmul,
        [MF_OP_LATENT_ATTENTION] = latent_attention,
    };
    const spans s = {op, sequences, n_sequences, visit, ctx};
    touch(&s, op->when, sizeof(uint32_t), MF_READS);
    of_kind[op->kind](&s);
}

/* SPDX-License-Identifier: MIT */
/* The bytes of every operation, kind by kind; backend.h says what each operand is. */
#include "backend/op_spans.h"

#include "base/cache_rows.h"

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

/* A cache of a layer. */
typedef struct cache_shape {
    uint64_t page_offset, row_bytes;
    uint32_t window; /* 0: all positions */
    bool window_is_chunk, is_in_window_pages;
} cache_shape;

/* Rows before range[0] are read, those up to range[1] written. */
static void cache_rows(const spans *s, const mf_sequence *seq, const cache_shape *c,
                       const uint64_t *range)
{
    const uint64_t from = range[0], end = range[1], block = MF_WINDOW_PAGES * MF_PAGE_TOKENS;
    uint64_t begin = 0;
    if (c->window != 0 && c->window_is_chunk)
        begin = from / c->window * c->window / block * block;
    else if (c->window != 0 && from >= c->window)
        begin = (from + 1 - c->window) / block * block;
    const mf_span *pages = c->is_in_window_pages ? seq->window_pages : seq->pages;
    const uint64_t row_bytes = c->row_bytes;
    for (uint64_t at = begin; at < end; at += MF_PAGE_TOKENS) {
        const mf_span page = mf_span_at(pages[at / MF_PAGE_TOKENS], c->page_offset);
        uint64_t n = end - at < MF_PAGE_TOKENS ? end - at : MF_PAGE_TOKENS;
        uint64_t n_old = from <= at ? 0 : from - at < n ? from - at : n;
        touch(s, page, n_old * row_bytes, MF_READS);
        touch(s, mf_span_at(page, n_old * row_bytes), (n - n_old) * row_bytes, MF_WRITES);
    }
}

static void caches(const spans *s, const cache_shape *c)
{
    uint64_t range[2];
    for (uint32_t i = 0; i < s->n_sequences; i++)
        if (positions_of(s, &s->sequences[i], &range[0], &range[1]))
            cache_rows(s, &s->sequences[i], c, range);
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

/* Beside the input, of n_cols. */
static void input_step(const spans *s, const mf_input_step *step, uint32_t n_cols)
{
    if (step->kind == MF_INPUT_NORMED)
        floats(s, step->weight, n_cols, MF_READS);
    if (step->kind == MF_INPUT_HEADS_GATED)
        floats(s, step->weight, step->head_dim, MF_READS);
    if (step->kind == MF_INPUT_HEADS_GATED || step->kind == MF_INPUT_SIGMOID)
        rows(s, step->gate, n_cols, MF_READS);
}

static void matmul(const spans *s)
{
    const mf_matmul_params *p = &s->op->u.matmul;
    const mf_output_step *after = &p->after;
    const uint32_t access = after->kind == MF_OUTPUT_ADDED ? MF_READS | MF_WRITES : MF_WRITES;
    const uint32_t n_channels = p->weight[0].shape.n_rows;
    rows(s, p->x, p->weight[0].shape.n_cols, MF_READS);
    input_step(s, &p->before, p->weight[0].shape.n_cols);
    for (uint32_t j = 0; j < p->n; j++) {
        weight(s, &p->weight[j]);
        if (!p->is_paired || j % 2 == 0)
            rows(s, p->y[j], p->weight[j].shape.n_rows, access);
    }
    if (after->kind != MF_OUTPUT_CONVOLVED)
        return;
    floats(s, after->weight, (uint64_t)n_channels * after->width, MF_READS);
    states(s, after->state_offset, (uint64_t)(after->width - 1) * n_channels);
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
    cache_shape cache = {p->page_offset[0],
                         mf_cache_row_bytes(p->cache_type, p->n_kv_heads, p->head_dim), p->window,
                         p->window_is_chunk, p->is_in_window_pages};
    caches(s, &cache);
    cache.page_offset = p->page_offset[1];
    caches(s, &cache);
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

static void keyed_delta(const spans *s)
{
    const mf_gated_delta_params *p = &s->op->u.gated_delta;
    const uint64_t n_keys = (uint64_t)p->n_v_heads * p->key_dim;
    const uint64_t n_values = (uint64_t)p->n_v_heads * p->value_dim;
    rows(s, p->qkv, n_keys, MF_READS | MF_LOSES);
    rows(s, p->k, n_keys, MF_READS | MF_LOSES);
    rows(s, p->v, n_values, MF_READS);
    rows(s, p->a, n_keys, MF_READS | MF_LOSES);
    rows(s, p->b, p->n_v_heads, MF_READS | MF_LOSES);
    floats(s, p->a_log, p->n_v_heads, MF_READS);
    floats(s, p->dt_bias, n_keys, MF_READS);
    rows(s, p->out, n_values, MF_WRITES);
    states(s, p->state_offset, n_values * p->key_dim);
}

static void gated_delta(const spans *s)
{
    const mf_gated_delta_params *p = &s->op->u.gated_delta;
    const uint64_t n_keys = (uint64_t)p->n_k_heads * p->key_dim;
    if (p->has_key_decays) {
        keyed_delta(s);
        return;
    }
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
    const uint32_t access = p->limit != 0 ? MF_READS | MF_LOSES : MF_READS;
    const bool is_in_place =
        p->out.buffer.id == p->gate.buffer.id && p->out.offset == p->gate.offset;
    rows(s, p->gate, p->n_cols, is_in_place ? MF_READS : access);
    rows(s, p->up, p->n_cols, access);
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
    for (uint32_t i = 0; p->table.buffer.id != 0 && i < s->op->n_rows; i++) {
        const uint64_t at = (uint64_t)p->tokens[i] * p->n_table * sizeof(int32_t);
        floats(s, mf_span_at(p->table, at), p->k, MF_READS);
    }
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

/* Those of n experts from `first` on. */
static void expert_biases(const spans *s, const mf_expert_steps *steps, const mf_expert_item *item,
                          uint64_t first, uint64_t n)
{
    const struct {
        mf_span span;
        uint64_t n_cols;
    } biases[] = {{steps->gate_bias, item->gate.shape.n_rows},
                  {steps->up_bias, item->up.shape.n_rows},
                  {steps->down_bias, item->down.shape.n_rows}};
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++)
        floats(s, mf_span_at(biases[i].span, first * biases[i].n_cols * sizeof(float)),
               n * biases[i].n_cols, MF_READS);
}

static void experts(const spans *s)
{
    const mf_experts_params *p = &s->op->u.experts;
    for (uint32_t i = 0; i < p->n_items; i++) {
        const mf_expert_item *item = &p->items[i];
        const uint64_t act = 2 * (uint64_t)item->down.shape.n_cols, out = item->down.shape.n_rows;
        named_rows(s, p->x, item->x_rows, item->n_rows, item->gate.shape.n_cols);
        weight(s, &item->gate);
        weight(s, &item->up);
        weight(s, &item->down);
        floats(s, mf_span_at(p->act, item->out_row * act * sizeof(float)), item->n_rows * act,
               MF_LOSES);
        floats(s, mf_span_at(p->out, item->out_row * out * sizeof(float)), item->n_rows * out,
               MF_WRITES);
        expert_biases(s, &p->steps, item, item->expert, 1);
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

static void expert_sum(const spans *s, const mf_expert_sum *sum)
{
    const mf_routed_experts_params *p = &s->op->u.routed;
    rows(s, sum->x, p->down.shape.n_rows, MF_READS | MF_WRITES);
    rows(s, sum->weights, p->k, MF_READS);
    rows(s, sum->shared, p->down.shape.n_rows, MF_READS);
    if (sum->shared.buffer.id != 0)
        rows(s, sum->shared_gate, 1, MF_READS);
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
    input_step(s, &p->before, p->gate.shape.n_cols);
    rows(s, p->act, (uint64_t)p->k * 2 * p->down.shape.n_cols, MF_LOSES);
    if (p->sum.x.buffer.id == 0)
        rows(s, p->out, (uint64_t)p->k * p->down.shape.n_rows, MF_WRITES);
    else
        expert_sum(s, &p->sum);
    const mf_expert_item item = {.gate = p->gate, .up = p->up, .down = p->down};
    expert_biases(s, &p->steps, &item, 0, p->n_experts);
}

static void combine(const spans *s)
{
    const mf_combine_params *p = &s->op->u.combine;
    rows(s, p->x, p->n_cols, p->is_put ? MF_WRITES : MF_READS | MF_WRITES);
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
    const cache_shape cache = {.page_offset = p->page_offset,
                               .row_bytes = mf_cache_row_bytes(p->cache_type, 1, width)};
    caches(s, &cache);
    const mf_index_params *x = &p->index;
    if (x->n_most == 0)
        return;
    const cache_shape keys = {.page_offset = x->page_offset,
                              .row_bytes = mf_cache_row_bytes(x->cache_type, 1, x->dim)};
    rows(s, x->q, (uint64_t)x->n_heads * x->dim, MF_READS);
    rows(s, x->k, x->dim, MF_READS);
    rows(s, x->weights, x->n_heads, MF_READS);
    caches(s, &keys);
    const uint64_t n_at_once = p->n_at_once < s->op->n_rows ? p->n_at_once : s->op->n_rows;
    const uint64_t n_gathered = mf_pages_of(x->n_most) * (uint64_t)MF_PAGE_TOKENS;
    floats(s, x->scores, n_at_once * 2 * p->n_positions, MF_LOSES);
    floats(s, x->gathered, n_at_once * n_gathered * width, MF_LOSES);
}

/* Entries of a page. */
static uint32_t entry_rows(uint32_t rate)
{
    return rate < MF_PAGE_TOKENS ? MF_PAGE_TOKENS / rate : 1;
}

/* Those of runs that end at positions range[0] .. range[1] - 1. */
static void entries(const spans *s, const mf_sequence *seq, const cache_shape *c, uint32_t rate,
                    const uint64_t *range, uint32_t access)
{
    for (uint64_t p = (range[0] / rate + 1) * rate - 1; p < range[1]; p += rate) {
        const uint64_t row = p % MF_PAGE_TOKENS * entry_rows(rate) / MF_PAGE_TOKENS;
        touch(s, mf_span_at(seq->pages[p / MF_PAGE_TOKENS], c->page_offset + row * c->row_bytes),
              c->row_bytes, access);
    }
}

static void compress(const spans *s)
{
    const mf_compress_params *p = &s->op->u.compress;
    const uint64_t width = (uint64_t)p->n_series * p->dim, half = p->n_rot / 2;
    rows(s, p->kv, width, MF_READS);
    rows(s, p->gate, width, MF_READS);
    floats(s, p->bias, p->rate * width, MF_READS);
    floats(s, p->norm, p->dim, MF_READS);
    cache_shape cache = {.page_offset = p->kv_offset,
                         .row_bytes = width * mf_dtype_bytes(p->cache_type),
                         .window = p->n_series * p->rate,
                         .is_in_window_pages = true};
    caches(s, &cache);
    cache.page_offset = p->gate_offset;
    caches(s, &cache);
    const cache_shape made = {.page_offset = p->entry_offset,
                              .row_bytes = p->dim * mf_dtype_bytes(p->cache_type)};
    for (uint32_t i = 0; i < s->n_sequences; i++) {
        uint64_t range[2];
        if (!positions_of(s, &s->sequences[i], &range[0], &range[1]))
            continue;
        entries(s, &s->sequences[i], &made, p->rate, range, MF_WRITES);
        const uint64_t from = range[0] / p->rate * p->rate, n = range[1] - from;
        floats(s, mf_span_at(p->cos, from * half * sizeof(float)), n * half, MF_READS);
        floats(s, mf_span_at(p->sin, from * half * sizeof(float)), n * half, MF_READS);
    }
}

static void entry_attention(const spans *s)
{
    const mf_entry_attention_params *p = &s->op->u.entry_attention;
    const mf_index_params *x = &p->index;
    const uint64_t n_at_once = p->n_at_once < s->op->n_rows ? p->n_at_once : s->op->n_rows;
    rows(s, p->q, (uint64_t)p->n_heads * p->dim, MF_READS);
    rows(s, p->kv, p->dim, MF_READS);
    rows(s, p->out, (uint64_t)p->n_heads * p->dim, MF_WRITES);
    floats(s, p->sinks, p->n_heads, MF_READS);
    const cache_shape cache = {.page_offset = p->page_offset,
                               .row_bytes = p->dim * mf_dtype_bytes(p->cache_type),
                               .window = p->window,
                               .is_in_window_pages = true};
    caches(s, &cache);
    floats(s, p->gathered,
           n_at_once * mf_entry_rows(p->window, p->n_entries, x->n_most) * (p->dim + 1), MF_LOSES);
    const cache_shape made = {.page_offset = p->entry_offset, .row_bytes = cache.row_bytes};
    const cache_shape keys = {.page_offset = x->page_offset,
                              .row_bytes = x->dim * mf_dtype_bytes(p->cache_type)};
    uint64_t range[2], all[2] = {0, 0};
    for (uint32_t i = 0; p->rate != 0 && i < s->n_sequences; i++) {
        if (!positions_of(s, &s->sequences[i], &range[0], &range[1]))
            continue;
        all[1] = range[1];
        entries(s, &s->sequences[i], &made, p->rate, all, MF_READS);
        if (x->n_most != 0)
            entries(s, &s->sequences[i], &keys, p->rate, all, MF_READS);
    }
    if (x->n_most == 0)
        return;
    rows(s, x->q, (uint64_t)x->n_heads * x->dim, MF_READS);
    rows(s, x->weights, x->n_heads, MF_READS);
    floats(s, x->scores, n_at_once * 2 * p->n_entries, MF_LOSES);
}

static void streams_in(const spans *s)
{
    const mf_streams_in_params *p = &s->op->u.streams_in;
    const uint64_t n = p->n_streams, n_mixes = p->is_last ? n : (2 + n) * n;
    rows(s, p->streams, n * p->n_cols, MF_READS);
    rows(s, p->mixes, n_mixes, MF_READS);
    floats(s, p->base, n_mixes, MF_READS);
    floats(s, p->scale, p->is_last ? 1 : 3, MF_READS);
    rows(s, p->out, p->n_cols, MF_WRITES);
    rows(s, p->gates, n + n * n, MF_WRITES);
    norm_after(s, &p->norm, p->n_cols);
}

static void streams_out(const spans *s)
{
    const mf_streams_out_params *p = &s->op->u.streams_out;
    const uint64_t n = p->n_streams;
    rows(s, p->streams, n * p->n_cols, MF_READS | MF_WRITES);
    rows(s, p->y, p->n_cols, MF_READS);
    rows(s, p->gates, n + n * n, MF_READS);
    rows(s, p->mean, p->n_cols, MF_WRITES);
}

static void finite(const spans *s)
{
    const mf_finite_params *p = &s->op->u.finite;
    rows(s, p->x, p->n_cols, MF_READS);
    rows(s, p->out, mf_finite_blocks(p->n_cols), MF_WRITES);
    rows(s, p->copy, p->n_cols, MF_WRITES);
}

/* What operations touch that are one. */
static void each(const spans *s, const mf_op *const *ops, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mf_op_spans(ops[i], s->sequences, s->n_sequences, s->visit, s->ctx);
}

static void mixture(const spans *s)
{
    const mf_mixture_params *p = &s->op->u.mixture;
    const mf_op *const ops[] = {p->router, p->shared_in, p->route, p->shared_out, p->experts};
    each(s, ops, sizeof ops / sizeof *ops);
}

static void linear_row(const spans *s)
{
    const mf_linear_row_params *p = &s->op->u.linear_row;
    const mf_op *const ops[] = {p->in, p->rule, p->out};
    each(s, ops, sizeof ops / sizeof *ops);
}

static void attend_row(const spans *s)
{
    const mf_attend_row_params *p = &s->op->u.attend_row;
    const mf_op *const ops[] = {p->in, p->queries, p->keys, p->attend, p->out};
    each(s, ops, sizeof ops / sizeof *ops);
}

static void latent_row(const spans *s)
{
    const mf_latent_row_params *p = &s->op->u.latent_row;
    const mf_op *const rotations[] = {p->rotate_q, p->rotate_kv};
    each(s, &p->norm, 1);
    each(s, rotations, p->rotate_q != NULL ? 2 : 0);
    each(s, &p->attend, 1);
}

static void words(const spans *s, mf_span span, uint64_t n_cols, uint32_t access)
{
    touch(s, span, s->op->n_rows * n_cols * sizeof(uint64_t), access);
}

static void to_host(const spans *s)
{
    const mf_to_host_params *p = &s->op->u.to_host;
    uint64_t n_cols = 0;
    for (uint32_t i = 0; i < MF_TO_HOST_ARRAYS; i++) {
        rows(s, p->arrays[i], p->n_cols[i], MF_READS);
        n_cols += p->n_cols[i];
    }
    words(s, p->words, n_cols, MF_WRITES);
}

static void from_host(const spans *s)
{
    const mf_from_host_params *p = &s->op->u.from_host;
    words(s, p->words, p->n_cols, MF_READS);
    touch(s, p->late, sizeof(uint32_t), MF_READS | MF_WRITES);
    rows(s, p->out, p->n_cols, MF_WRITES);
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
        [MF_OP_COMPRESS] = compress,
        [MF_OP_ENTRY_ATTENTION] = entry_attention,
        [MF_OP_STREAMS_IN] = streams_in,
        [MF_OP_STREAMS_OUT] = streams_out,
        [MF_OP_FINITE] = finite,
        [MF_OP_MIXTURE] = mixture,
        [MF_OP_LINEAR_ROW] = linear_row,
        [MF_OP_ATTEND_ROW] = attend_row,
        [MF_OP_LATENT_ROW] = latent_row,
        [MF_OP_TO_HOST] = to_host,
        [MF_OP_FROM_HOST] = from_host,
    };
    const spans s = {op, sequences, n_sequences, visit, ctx};
    touch(&s, op->when, sizeof(uint32_t), MF_READS);
    of_kind[op->kind](&s);
}

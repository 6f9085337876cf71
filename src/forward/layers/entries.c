/* SPDX-License-Identifier: MIT */
/*
 * Attention to a window of positions and to entries that stand for runs of earlier ones
 * (DeepSeek-V4's report): one head of keys, which are the values too, for all heads of queries. So
 * what comes out is rotated like a key, and is rotated back. What entries are made of is kept for
 * the runs that are not closed; entries are kept for good. Where they overlap, an indexer with
 * entries of its own chooses the most fitting ones.
 */
#include "forward/forward.h"

#include <math.h>

enum {
    Q_LOW,
    Q,
    KV,
    ENTRY_KV,
    ENTRY_GATE,
    INDEX_Q,
    INDEX_KV,
    INDEX_GATE,
    INDEX_W,
    ATTENDED,
    O_LOW
};

/* What is kept. */
enum {
    KEPT_KV,
    KEPT_ENTRY_KV,
    KEPT_ENTRY_GATE,
    KEPT_INDEX_KV,
    KEPT_INDEX_GATE,
    KEPT_ENTRIES,
    KEPT_INDEX
};

static uint32_t series_of(const mf_hparams *h, uint32_t layer)
{
    return h->entry_rate[layer] == 0 ? 0 : h->entries_overlap[layer] ? 2 : 1;
}

static bool is_chosen(const mf_hparams *h, uint32_t layer)
{
    return h->is_indexed && h->entries_overlap[layer];
}

static void plan(const mf_hparams *h, uint64_t n_rows, mf_layout *l, mf_span *spans)
{
    uint64_t n_series = 0;
    for (uint32_t i = 0; i < h->n_layers; i++)
        n_series = n_series < series_of(h, i) ? series_of(h, i) : n_series;
    spans[Q_LOW] = mf_layout_take(l, n_rows, h->q_rank);
    spans[Q] = mf_layout_take(l, n_rows, mf_query_width(h));
    spans[KV] = mf_layout_take(l, n_rows, h->head_dim);
    spans[ENTRY_KV] = mf_layout_take(l, n_rows, n_series * h->head_dim);
    spans[ENTRY_GATE] = mf_layout_take(l, n_rows, n_series * h->head_dim);
    spans[ATTENDED] = mf_layout_take(l, n_rows, mf_query_width(h));
    spans[O_LOW] = mf_layout_take(l, n_rows, (uint64_t)h->o_groups * h->o_rank);
    if (!h->is_indexed)
        return;
    spans[INDEX_Q] = mf_layout_take(l, n_rows, (uint64_t)h->index_heads * h->index_dim);
    spans[INDEX_KV] = mf_layout_take(l, n_rows, 2 * (uint64_t)h->index_dim);
    spans[INDEX_GATE] = mf_layout_take(l, n_rows, 2 * (uint64_t)h->index_dim);
    spans[INDEX_W] = mf_layout_take(l, n_rows, h->index_heads);
}

static mf_state_shape state(const mf_hparams *h, uint32_t layer, mf_dtype cache_type)
{
    const uint64_t rate = h->entry_rate[layer], width = series_of(h, layer) * h->head_dim;
    const uint64_t n_entries = rate == 0 ? 0 : rate < MF_PAGE_TOKENS ? MF_PAGE_TOKENS / rate : 1;
    const mf_kept inputs = {MF_UNIT_WINDOW, rate != 0 ? MF_PAGE_TOKENS : 0, width, cache_type, 1};
    const uint64_t index = is_chosen(h, layer) ? h->index_dim : 0;
    const mf_kept keys = {MF_UNIT_WINDOW, index != 0 ? MF_PAGE_TOKENS : 0, 2 * index, cache_type,
                          1};
    mf_state_shape s = {
        .kept = {[KEPT_KV] = {MF_UNIT_WINDOW, MF_PAGE_TOKENS, h->head_dim, cache_type, 1},
                 [KEPT_ENTRY_KV] = inputs,
                 [KEPT_ENTRY_GATE] = inputs,
                 [KEPT_INDEX_KV] = keys,
                 [KEPT_INDEX_GATE] = keys}};
    s.kept[KEPT_ENTRIES] =
        (mf_kept){MF_UNIT_PAGE, n_entries, n_entries != 0 ? h->head_dim : 0, cache_type, 1};
    s.kept[KEPT_INDEX] = (mf_kept){MF_UNIT_PAGE, index != 0 ? n_entries : 0, index, cache_type, 1};
    return s;
}

static bool has_entries(const mf_runner *r, uint32_t layer)
{
    return r->h.entry_rate[layer] != 0;
}

/* The indexer's part of it. */
static mf_index_params index_of(const mf_runner *r, uint32_t layer)
{
    const mf_hparams *h = &r->h;
    const mf_span *s = r->plan.kind[MF_LAYER_ENTRIES];
    if (!is_chosen(h, layer))
        return (mf_index_params){.n_most = 0};
    return (mf_index_params){.q = s[INDEX_Q],
                             .weights = s[INDEX_W],
                             .scores = r->plan.index_scores,
                             .n_heads = h->index_heads,
                             .dim = h->index_dim,
                             .n_most = h->index_most,
                             .cache_type = r->plan.cache_type,
                             .page_offset = r->layers[layer].offset[KEPT_INDEX],
                             .scale = 1.0f / sqrtf((float)h->index_dim * (float)h->index_heads)};
}

static mf_op attention(const mf_runner *r, uint32_t n_rows, uint32_t layer)
{
    const mf_hparams *h = &r->h;
    const mf_span *s = r->plan.kind[MF_LAYER_ENTRIES];
    const uint32_t rate = h->entry_rate[layer];
    return (mf_op){.kind = MF_OP_ENTRY_ATTENTION,
                   .n_rows = n_rows,
                   .u.entry_attention = {.q = s[Q],
                                         .kv = s[KV],
                                         .out = s[ATTENDED],
                                         .sinks = r->weights.layers[layer].u.entries.sinks,
                                         .gathered = r->plan.gathered,
                                         .n_heads = h->n_heads,
                                         .dim = h->head_dim,
                                         .window = h->attended_window,
                                         .rate = rate,
                                         .n_at_once = r->plan.n_at_once,
                                         .n_entries = rate != 0 ? r->plan.n_context / rate : 0,
                                         .cache_type = r->plan.cache_type,
                                         .page_offset = r->layers[layer].offset[KEPT_KV],
                                         .entry_offset = r->layers[layer].offset[KEPT_ENTRIES],
                                         .scale = h->attention_scale,
                                         .index = index_of(r, layer)}};
}

/* Of a layer's entries, or of its indexer's: the third of what is kept of them is what is made. */
static mf_op compression(const mf_runner *r, uint32_t n_rows, uint32_t layer, bool is_index)
{
    const mf_hparams *h = &r->h;
    const mf_span *s = r->plan.kind[MF_LAYER_ENTRIES];
    const mf_entry_weights *all = &r->weights.layers[layer].u.entries;
    const mf_compress_weights *w = is_index ? &all->index : &all->entries;
    const uint64_t *offset = r->layers[layer].offset;
    return (mf_op){
        .kind = MF_OP_COMPRESS,
        .n_rows = n_rows,
        .u.compress = {.kv = s[is_index ? INDEX_KV : ENTRY_KV],
                       .gate = s[is_index ? INDEX_GATE : ENTRY_GATE],
                       .bias = w->bias,
                       .norm = w->norm,
                       .cos = r->plan.entry_cos,
                       .sin = r->plan.entry_sin,
                       .dim = is_index ? h->index_dim : h->head_dim,
                       .n_series = series_of(h, layer),
                       .rate = h->entry_rate[layer],
                       .n_rot = h->n_rot,
                       .cache_type = r->plan.cache_type,
                       .kv_offset = offset[is_index ? KEPT_INDEX_KV : KEPT_ENTRY_KV],
                       .gate_offset = offset[is_index ? KEPT_INDEX_GATE : KEPT_ENTRY_GATE],
                       .entry_offset = offset[is_index ? KEPT_INDEX : KEPT_ENTRIES],
                       .eps = h->rms_eps}};
}

static mf_op grouped_output(const mf_runner *r, uint32_t n_rows, uint32_t layer)
{
    const mf_hparams *h = &r->h;
    const mf_span *s = r->plan.kind[MF_LAYER_ENTRIES];
    return (mf_op){.kind = MF_OP_HEAD_MATMUL,
                   .n_rows = n_rows,
                   .u.head_matmul = {.w = r->weights.layers[layer].u.entries.o_a,
                                     .x = s[ATTENDED],
                                     .y = s[O_LOW],
                                     .n_heads = h->o_groups,
                                     .x_row = mf_query_width(h),
                                     .x_head = mf_query_width(h) / h->o_groups,
                                     .y_row = h->o_groups * h->o_rank,
                                     .y_head = h->o_rank}};
}

static mf_status reserve(mf_runner *r, uint32_t layer, mf_error *error)
{
    const mf_entry_weights *w = &r->weights.layers[layer].u.entries;
    const uint32_t n = r->plan.n_chunk;
    const mf_weight *const matrices[] = {
        &w->q_a,     &w->q_b,        &w->kv,           &w->o,        &w->index_q,
        &w->index_w, &w->entries.kv, &w->entries.gate, &w->index.kv, &w->index.gate};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        if (matrices[i]->shape.n_rows != 0)
            MF_TRY(mf_reserve_matmul(r, matrices[i], n, error));
    const mf_op rope = {.kind = MF_OP_ROPE, .n_rows = n, .u.rope = {.is_inverse = true}};
    MF_TRY(mf_backend_reserve(r->backend, &rope, error));
    const mf_op ops[] = {attention(r, n, layer), grouped_output(r, n, layer),
                         compression(r, n, layer, false), compression(r, n, layer, true)};
    const uint32_t n_ops = is_chosen(&r->h, layer) ? 4 : has_entries(r, layer) ? 3 : 2;
    for (uint32_t i = 0; i < n_ops; i++)
        MF_TRY(mf_backend_reserve(r->backend, &ops[i], error));
    return MF_OK;
}

static void norm(mf_runner *r, uint32_t n_rows, mf_span x, mf_span weight, uint32_t n_cols)
{
    const mf_op op = {
        .kind = MF_OP_RMSNORM,
        .n_rows = n_rows,
        .u.rmsnorm = {.x = x, .weight = weight, .out = x, .n_cols = n_cols, .eps = r->h.rms_eps}};
    mf_record(r, &op);
}

/* The last n_rot values of each head. */
static void rotate(mf_runner *r, uint32_t n_rows, uint32_t layer, mf_span x, uint32_t n_heads,
                   uint32_t head_dim, bool is_inverse)
{
    const mf_plan *p = &r->plan;
    const bool is_entry = has_entries(r, layer);
    const mf_op op = {.kind = MF_OP_ROPE,
                      .n_rows = n_rows,
                      .u.rope = {.x = mf_span_at(x, (head_dim - r->h.n_rot) * sizeof(float)),
                                 .cos = is_entry ? p->entry_cos : p->cos,
                                 .sin = is_entry ? p->entry_sin : p->sin,
                                 .n_heads = n_heads,
                                 .n_rot = r->h.n_rot,
                                 .row_stride = n_heads * head_dim,
                                 .head_stride = head_dim,
                                 .interleaved = true,
                                 .is_inverse = is_inverse}};
    mf_record(r, &op);
}

/* Queries, keys, and what entries are made of. */
static void make_inputs(mf_runner *r, uint32_t n_rows, uint32_t layer, const mf_span *s)
{
    const mf_hparams *h = &r->h;
    const mf_entry_weights *w = &r->weights.layers[layer].u.entries;
    const mf_op project = {.kind = MF_OP_MATMUL,
                           .n_rows = n_rows,
                           .u.matmul = {.x = r->plan.h,
                                        .n = has_entries(r, layer) ? 4 : 2,
                                        .weight = {w->q_a, w->kv, w->entries.kv, w->entries.gate},
                                        .y = {s[Q_LOW], s[KV], s[ENTRY_KV], s[ENTRY_GATE]}}};
    mf_record_matmuls(r, &project);
    norm(r, n_rows, s[Q_LOW], w->q_norm, h->q_rank);
    mf_record_matmul(r, n_rows, &w->q_b, s[Q_LOW], s[Q]);
    norm(r, n_rows * h->n_heads, s[Q], r->plan.ones, h->head_dim);
    rotate(r, n_rows, layer, s[Q], h->n_heads, h->head_dim, false);
    norm(r, n_rows, s[KV], w->kv_norm, h->head_dim);
    rotate(r, n_rows, layer, s[KV], 1, h->head_dim, false);
}

static void make_index(mf_runner *r, uint32_t n_rows, uint32_t layer, const mf_span *s)
{
    const mf_hparams *h = &r->h;
    const mf_entry_weights *w = &r->weights.layers[layer].u.entries;
    const mf_op project = {.kind = MF_OP_MATMUL,
                           .n_rows = n_rows,
                           .u.matmul = {.x = r->plan.h,
                                        .n = 3,
                                        .weight = {w->index.kv, w->index.gate, w->index_w},
                                        .y = {s[INDEX_KV], s[INDEX_GATE], s[INDEX_W]}}};
    mf_record_matmuls(r, &project);
    mf_record_matmul(r, n_rows, &w->index_q, s[Q_LOW], s[INDEX_Q]);
    rotate(r, n_rows, layer, s[INDEX_Q], h->index_heads, h->index_dim, false);
    const mf_op compress = compression(r, n_rows, layer, true);
    mf_record(r, &compress);
}

static void forward(mf_runner *r, uint32_t n_rows, uint32_t layer)
{
    const mf_hparams *h = &r->h;
    const mf_span *s = r->plan.kind[MF_LAYER_ENTRIES];
    make_inputs(r, n_rows, layer, s);
    if (has_entries(r, layer)) {
        const mf_op compress = compression(r, n_rows, layer, false);
        mf_record(r, &compress);
    }
    if (is_chosen(h, layer))
        make_index(r, n_rows, layer, s);
    const mf_op attend = attention(r, n_rows, layer);
    mf_record(r, &attend);
    rotate(r, n_rows, layer, s[ATTENDED], h->n_heads, h->head_dim, true);
    const mf_op out = grouped_output(r, n_rows, layer);
    mf_record(r, &out);
    mf_record_matmul(r, n_rows, &r->weights.layers[layer].u.entries.o, s[O_LOW], r->plan.y);
}

const mf_layer_kind_ops mf_layer_entries = {"attention to entries", plan, state, reserve, forward};

/* SPDX-License-Identifier: MIT */
/*
 * Multi-head latent attention (arXiv 2405.04434), its up-projections absorbed: the cache holds the
 * latents, and no key or value is ever expanded.
 */
#include "forward/forward.h"

#include "base/cache_rows.h"

#include <math.h>

enum { Q_LOW, Q, KV, Q_LATENT, LATENT, ATTENDED, INDEX_Q, INDEX_K, INDEX_W };

/* Queries over the latents are wide: so many rows of them are held at a time. */
#define ROWS_AT_ONCE 64u
/* The published models fix this epsilon in code. */
#define LATENT_NORM_EPS 1e-6f

static void plan(const mf_hparams *h, uint64_t n_rows, mf_layout *l, mf_span *spans)
{
    const uint64_t n_held = n_rows < ROWS_AT_ONCE ? n_rows : ROWS_AT_ONCE;
    const uint64_t latents = (uint64_t)h->n_heads * h->kv_rank;
    spans[Q_LOW] = mf_layout_take(l, n_rows, h->q_rank);
    spans[Q] = mf_layout_take(l, n_rows, mf_query_width(h));
    spans[KV] = mf_layout_take(l, n_rows, mf_latent_width(h));
    spans[Q_LATENT] = mf_layout_take(l, n_held, latents);
    spans[LATENT] = mf_layout_take(l, n_held, latents);
    spans[ATTENDED] = mf_layout_take(l, n_rows, (uint64_t)h->n_heads * h->value_head_dim);
    if (!h->is_indexed)
        return;
    spans[INDEX_Q] = mf_layout_take(l, n_rows, (uint64_t)h->index_heads * h->index_dim);
    spans[INDEX_K] = mf_layout_take(l, n_rows, h->index_dim);
    spans[INDEX_W] = mf_layout_take(l, n_rows, h->index_heads);
}

/* Which positions are seen is not left to 8 bits. */
static mf_dtype index_type(mf_dtype cache_type)
{
    return cache_type == MF_Q8 ? MF_BF16 : cache_type;
}

static mf_state_shape state(const mf_hparams *h, uint32_t layer, mf_dtype cache_type)
{
    const uint32_t index_dim = h->is_indexed ? h->index_dim : 0;
    (void)layer;
    return (mf_state_shape){
        .kept = {{MF_UNIT_PAGE, MF_PAGE_TOKENS, mf_latent_width(h), cache_type, 1},
                 {MF_UNIT_PAGE, index_dim != 0 ? MF_PAGE_TOKENS : 0, index_dim,
                  index_type(cache_type), 1}}};
}

static mf_status reserve_heads(mf_runner *r, const mf_head_weight *w, mf_error *error)
{
    const mf_op op = {.kind = MF_OP_HEAD_MATMUL,
                      .n_rows = ROWS_AT_ONCE,
                      .u.head_matmul = {.w = *w, .n_heads = r->h.n_heads}};
    return mf_backend_reserve(r->backend, &op, error);
}

static mf_span floats_at(mf_span span, uint64_t n_floats)
{
    return mf_span_at(span, n_floats * sizeof(float));
}

/* The indexer's part of it. */
static mf_index_params index_of(const mf_runner *r, uint32_t layer, uint32_t first)
{
    const mf_hparams *h = &r->h;
    const mf_span *s = r->plan.kind[MF_LAYER_LATENT];
    const uint64_t width = (uint64_t)h->index_heads * h->index_dim;
    if (!h->is_indexed)
        return (mf_index_params){.n_most = 0};
    return (mf_index_params){.q = floats_at(s[INDEX_Q], first * width),
                             .k = floats_at(s[INDEX_K], (uint64_t)first * h->index_dim),
                             .weights = floats_at(s[INDEX_W], (uint64_t)first * h->index_heads),
                             .scores = r->plan.index_scores,
                             .gathered = r->plan.gathered,
                             .n_heads = h->index_heads,
                             .dim = h->index_dim,
                             .n_most = h->index_most,
                             .cache_type = index_type(r->plan.cache_type),
                             .page_offset = r->layers[layer].offset[1],
                             .scale = 1.0f / sqrtf((float)h->index_dim * (float)h->index_heads)};
}

/* Of n rows from row `first` of the batch on. */
static mf_op attention(const mf_runner *r, uint32_t layer, uint32_t first, uint32_t n)
{
    const mf_hparams *h = &r->h;
    const mf_span *s = r->plan.kind[MF_LAYER_LATENT];
    const mf_span q = floats_at(s[Q], (uint64_t)first * mf_query_width(h));
    return (mf_op){
        .kind = MF_OP_LATENT_ATTENTION,
        .n_rows = n,
        .first_row = first,
        .u.latent_attention = {.q = s[Q_LATENT],
                               .q_rot = floats_at(q, h->nope_dim),
                               .kv = floats_at(s[KV], (uint64_t)first * mf_latent_width(h)),
                               .out = s[LATENT],
                               .n_heads = h->n_heads,
                               .n_latent = h->kv_rank,
                               .n_rot = h->n_rot,
                               .q_rot_row = mf_query_width(h),
                               .q_rot_head = h->head_dim,
                               .cache_type = r->plan.cache_type,
                               .page_offset = r->layers[layer].offset[0],
                               .scale = h->attention_scale,
                               .index = index_of(r, layer, first),
                               .n_at_once = r->plan.n_at_once,
                               .n_positions = r->plan.n_context}};
}

static mf_op norm_of(uint32_t n_rows, mf_span x, mf_span weight, uint32_t n_cols, uint32_t stride)
{
    return (mf_op){.kind = MF_OP_RMSNORM,
                   .n_rows = n_rows,
                   .u.rmsnorm = {.x = x,
                                 .weight = weight,
                                 .out = x,
                                 .n_cols = n_cols,
                                 .stride = stride,
                                 .eps = LATENT_NORM_EPS}};
}

/* Keys of an indexer, normed about their mean. */
static mf_op index_norm(const mf_runner *r, uint32_t n_rows, mf_span weight)
{
    const mf_span k = r->plan.kind[MF_LAYER_LATENT][INDEX_K];
    return (mf_op){.kind = MF_OP_RMSNORM,
                   .n_rows = n_rows,
                   .u.rmsnorm = {.x = k,
                                 .weight = weight,
                                 .out = k,
                                 .n_cols = r->h.index_dim,
                                 .eps = LATENT_NORM_EPS,
                                 .is_centred = true}};
}

/* The projections of the layer's normed input. */
static mf_op project(const mf_runner *r, uint32_t n_rows, const mf_latent_weights *w,
                     const mf_span *s)
{
    const bool has_rank = r->h.q_rank != 0;
    return (mf_op){.kind = MF_OP_MATMUL,
                   .n_rows = n_rows,
                   .u.matmul = {.x = r->plan.h,
                                .n = 2,
                                .weight = {has_rank ? w->q_a : w->q_b, w->kv_a},
                                .y = {has_rank ? s[Q_LOW] : s[Q], s[KV]}}};
}

/* One row of one sequence, whose norms are left to what follows them. queries: where they have a
 * rank; row: all from the latents' norm to what is attended. */
typedef struct row_ops {
    mf_op in, queries, norm, rotate_q, rotate_kv, attend, row, out;
} row_ops;

static void make_row(const mf_runner *r, uint32_t layer, mf_input_step before, row_ops *ops)
{
    const mf_hparams *h = &r->h;
    const mf_latent_weights *w = &r->weights.layers[layer].u.latent;
    const mf_span *s = r->plan.kind[MF_LAYER_LATENT];
    ops->in = project(r, 1, w, s);
    ops->in.u.matmul.x = r->plan.x;
    ops->in.u.matmul.before = before;
    ops->queries = (mf_op){
        .kind = MF_OP_MATMUL,
        .n_rows = 1,
        .u.matmul = {
            .x = s[Q_LOW],
            .n = 1,
            .weight = {w->q_b},
            .y = {s[Q]},
            .before = {.kind = MF_INPUT_NORMED, .weight = w->q_norm, .eps = LATENT_NORM_EPS}}};
    ops->norm = norm_of(1, s[KV], w->kv_norm, h->kv_rank, mf_latent_width(h));
    ops->rotate_q =
        mf_rope_op(r, 1, floats_at(s[Q], h->nope_dim), h->n_heads, mf_query_width(h), h->head_dim);
    ops->rotate_kv = mf_rope_op(r, 1, floats_at(s[KV], h->kv_rank), 1, mf_latent_width(h), 0);
    ops->attend = attention(r, layer, 0, 1);
    ops->row = (mf_op){.kind = MF_OP_LATENT_ROW,
                       .n_rows = 1,
                       .u.latent_row = {&ops->norm, h->never_rotates ? NULL : &ops->rotate_q,
                                        h->never_rotates ? NULL : &ops->rotate_kv, &ops->attend}};
    ops->out = mf_fused_out(r, &w->o, s[ATTENDED], (mf_input_step){.kind = MF_INPUT_AS_IT_IS});
}

/* An indexer wants the normed input, and the queries' latents, too. */
static mf_status reserve_row(mf_runner *r, uint32_t layer, mf_error *error)
{
    bool *has = &r->fused.has_latent[layer], *has_row = &r->fused.has_latent_row[layer];
    row_ops ops;
    make_row(r, layer, mf_fused_norm(r, r->weights.layers[layer].input_norm), &ops);
    *has = r->fused.is_on && !r->h.is_indexed;
    MF_TRY(mf_joined_reserve(r, &ops.in, has, error));
    if (r->h.q_rank != 0)
        MF_TRY(mf_joined_reserve(r, &ops.queries, has, error));
    MF_TRY(mf_joined_reserve(r, &ops.out, has, error));
    *has_row = *has;
    return mf_joined_reserve(r, &ops.row, has_row, error);
}

static mf_status reserve(mf_runner *r, uint32_t layer, mf_error *error)
{
    const mf_latent_weights *w = &r->weights.layers[layer].u.latent;
    const mf_weight *const matrices[] = {&w->q_a,     &w->q_b,     &w->kv_a,   &w->o,
                                         &w->index_q, &w->index_k, &w->index_w};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        if (matrices[i]->shape.n_rows != 0) /* q_a is not there without a rank */
            MF_TRY(mf_reserve_matmul(r, matrices[i], r->plan.n_chunk, error));
    const mf_op_kind kinds[] = {MF_OP_ROPE, 0};
    MF_TRY(mf_reserve_kinds(r, kinds, error));
    const mf_op centred = index_norm(r, r->plan.n_chunk, w->index_norm);
    if (r->h.is_indexed)
        MF_TRY(mf_backend_reserve(r->backend, &centred, error));
    MF_TRY(reserve_heads(r, &w->key, error));
    MF_TRY(reserve_heads(r, &w->value, error));
    const mf_op attend = attention(r, layer, 0, ROWS_AT_ONCE);
    MF_TRY(mf_backend_reserve(r->backend, &attend, error));
    return reserve_row(r, layer, error);
}

static void norm(mf_runner *r, uint32_t n_rows, mf_span x, mf_span weight, uint32_t n_cols,
                 uint32_t stride)
{
    const mf_op op = norm_of(n_rows, x, weight, n_cols, stride);
    mf_record(r, &op);
}

static void rotate_index(mf_runner *r, uint32_t n_rows, mf_span x, uint32_t n_heads)
{
    const mf_hparams *h = &r->h;
    const mf_op op = {.kind = MF_OP_ROPE,
                      .n_rows = n_rows,
                      .u.rope = {.x = x,
                                 .cos = r->plan.cos,
                                 .sin = r->plan.sin,
                                 .n_heads = n_heads,
                                 .n_rot = h->n_rot,
                                 .row_stride = n_heads * h->index_dim,
                                 .head_stride = h->index_dim,
                                 .interleaved = h->index_is_interleaved}};
    mf_record(r, &op);
}

/* The indexer's queries, keys and weights of heads. */
static void make_index(mf_runner *r, uint32_t n_rows, const mf_latent_weights *w, const mf_span *s)
{
    const mf_hparams *h = &r->h;
    mf_record_matmul(r, n_rows, &w->index_q, s[Q_LOW], s[INDEX_Q]);
    mf_record_matmul(r, n_rows, &w->index_k, r->plan.h, s[INDEX_K]);
    mf_record_matmul(r, n_rows, &w->index_w, r->plan.h, s[INDEX_W]);
    const mf_op op = index_norm(r, n_rows, w->index_norm);
    mf_record(r, &op);
    mf_record_bias(r, n_rows, s[INDEX_K], w->index_norm_bias, h->index_dim);
    rotate_index(r, n_rows, s[INDEX_Q], h->index_heads);
    rotate_index(r, n_rows, s[INDEX_K], 1);
}

/* The queries of every row and the latents, normed and rotated. */
static void make_inputs(mf_runner *r, uint32_t n_rows, const mf_latent_weights *w, const mf_span *s)
{
    const mf_hparams *h = &r->h;
    const mf_op in = project(r, n_rows, w, s);
    mf_record_matmuls(r, &in);
    if (h->q_rank != 0) {
        norm(r, n_rows, s[Q_LOW], w->q_norm, h->q_rank, h->q_rank);
        mf_record_matmul(r, n_rows, &w->q_b, s[Q_LOW], s[Q]);
    }
    if (h->is_indexed)
        make_index(r, n_rows, w, s);
    norm(r, n_rows, s[KV], w->kv_norm, h->kv_rank, mf_latent_width(h));
    if (h->never_rotates)
        return;
    mf_record_rope(r, n_rows, floats_at(s[Q], h->nope_dim), h->n_heads, mf_query_width(h),
                   h->head_dim);
    mf_record_rope(r, n_rows, floats_at(s[KV], h->kv_rank), 1, mf_latent_width(h), 0);
}

/* The key half of the up-projection turns a query into one over the latents. */
static void absorb_keys(mf_runner *r, const mf_latent_weights *w, mf_span q, uint32_t n)
{
    const mf_hparams *h = &r->h;
    const mf_op op = {.kind = MF_OP_HEAD_MATMUL,
                      .n_rows = n,
                      .u.head_matmul = {.w = w->key,
                                        .x = q,
                                        .y = r->plan.kind[MF_LAYER_LATENT][Q_LATENT],
                                        .n_heads = h->n_heads,
                                        .x_row = mf_query_width(h),
                                        .x_head = h->head_dim,
                                        .y_row = h->n_heads * h->kv_rank,
                                        .y_head = h->kv_rank}};
    mf_record(r, &op);
}

/* The value half turns the attended latents into values. */
static void expand_values(mf_runner *r, const mf_latent_weights *w, mf_span out, uint32_t n)
{
    const mf_hparams *h = &r->h;
    const mf_op op = {.kind = MF_OP_HEAD_MATMUL,
                      .n_rows = n,
                      .u.head_matmul = {.w = w->value,
                                        .x = r->plan.kind[MF_LAYER_LATENT][LATENT],
                                        .y = out,
                                        .n_heads = h->n_heads,
                                        .x_row = h->n_heads * h->kv_rank,
                                        .x_head = h->kv_rank,
                                        .y_row = h->n_heads * h->value_head_dim,
                                        .y_head = h->value_head_dim}};
    mf_record(r, &op);
}

/* Attention of n rows from row `first` of the batch on. */
static void attend(mf_runner *r, uint32_t layer, uint32_t first, uint32_t n)
{
    const mf_hparams *h = &r->h;
    const mf_latent_weights *w = &r->weights.layers[layer].u.latent;
    const mf_span *s = r->plan.kind[MF_LAYER_LATENT];
    absorb_keys(r, w, floats_at(s[Q], (uint64_t)first * mf_query_width(h)), n);
    const mf_op op = attention(r, layer, first, n);
    mf_record(r, &op);
    const uint64_t out_width = (uint64_t)h->n_heads * h->value_head_dim;
    expand_values(r, w, floats_at(s[ATTENDED], first * out_width), n);
}

/* What lies between the products, one after the other. */
static void record_row(mf_runner *r, const row_ops *ops)
{
    mf_record(r, &ops->norm);
    if (!r->h.never_rotates) {
        mf_record(r, &ops->rotate_q);
        mf_record(r, &ops->rotate_kv);
    }
    mf_record(r, &ops->attend);
}

/* Whether that was all. */
static bool run_row(mf_runner *r, uint32_t layer)
{
    const mf_latent_weights *w = &r->weights.layers[layer].u.latent;
    const mf_span *s = r->plan.kind[MF_LAYER_LATENT];
    mf_input_step before;
    row_ops ops;
    if (!r->fused.has_latent[layer] || !mf_fused_take_norm(r, &before))
        return false;
    make_row(r, layer, before, &ops);
    mf_record(r, &ops.in);
    if (r->h.q_rank != 0)
        mf_record(r, &ops.queries);
    absorb_keys(r, w, s[Q], 1);
    if (r->fused.has_latent_row[layer])
        mf_record(r, &ops.row);
    else
        record_row(r, &ops);
    expand_values(r, w, s[ATTENDED], 1);
    mf_record(r, &ops.out);
    r->fused.is_added = true;
    return true;
}

static void forward(mf_runner *r, uint32_t n_rows, uint32_t layer)
{
    const mf_latent_weights *w = &r->weights.layers[layer].u.latent;
    const mf_span *s = r->plan.kind[MF_LAYER_LATENT];
    if (run_row(r, layer))
        return;
    mf_need_h(r);
    make_inputs(r, n_rows, w, s);
    for (uint32_t first = 0; first < n_rows; first += ROWS_AT_ONCE) {
        uint32_t left = n_rows - first;
        attend(r, layer, first, left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE);
    }
    mf_record_matmul(r, n_rows, &w->o, s[ATTENDED], r->plan.y);
}

const mf_layer_kind_ops mf_layer_latent = {"latent attention", plan, state, reserve, forward};

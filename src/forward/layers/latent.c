/* SPDX-License-Identifier: MIT */
/*
 * Multi-head latent attention (arXiv 2405.04434), its up-projections absorbed: the cache holds the
 * latents, and no key or value is ever expanded.
 */
#include "forward/forward.h"

enum { Q_LOW, Q, KV, Q_LATENT, LATENT, ATTENDED };

/* Queries over the latents are wide: so many rows of them are held at a time. */
#define ROWS_AT_ONCE 64u
/* The published models fix this epsilon in code. */
#define LATENT_NORM_EPS 1e-6f

static void plan(const mf_hparams *h, uint64_t n_rows, mf_layout *l, mf_span *spans)
{
    const uint64_t n_held = n_rows < ROWS_AT_ONCE ? n_rows : ROWS_AT_ONCE;
    const uint64_t latents = (uint64_t)h->n_heads * h->kv_rank;
    spans[Q_LOW] = mf_layout_take(l, n_rows, h->q_rank, MF_F32);
    spans[Q] = mf_layout_take(l, n_rows, mf_query_width(h), MF_F32);
    spans[KV] = mf_layout_take(l, n_rows, mf_latent_width(h), MF_F32);
    spans[Q_LATENT] = mf_layout_take(l, n_held, latents, MF_F32);
    spans[LATENT] = mf_layout_take(l, n_held, latents, MF_F32);
    spans[ATTENDED] = mf_layout_take(l, n_rows, (uint64_t)h->n_heads * h->value_head_dim, MF_F32);
}

static mf_state_shape state(const mf_hparams *h, mf_dtype cache_type)
{
    return (mf_state_shape){
        .rows = {MF_PAGE_TOKENS, 0}, .cols = {mf_latent_width(h), 0}, .type = cache_type};
}

static mf_status reserve_heads(mf_runner *r, const mf_head_weight *w, mf_error *error)
{
    const mf_op op = {
        .kind = MF_OP_HEAD_MATMUL, .n_rows = ROWS_AT_ONCE, .u.head_matmul = {.w = *w}};
    return mf_backend_reserve(r->backend, &op, error);
}

static mf_span floats_at(mf_span span, uint64_t n_floats)
{
    return mf_span_at(span, n_floats * sizeof(float));
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
                               .scale = h->attention_scale}};
}

static mf_status reserve(mf_runner *r, uint32_t layer, mf_error *error)
{
    const mf_latent_weights *w = &r->weights.layers[layer].u.latent;
    const mf_weight *const matrices[] = {&w->q_a, &w->q_b, &w->kv_a, &w->o};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        if (matrices[i]->shape.n_rows != 0) /* q_a is not there without a rank */
            MF_TRY(mf_reserve_matmul(r, matrices[i], r->plan.n_chunk, error));
    const mf_op_kind kinds[] = {MF_OP_ROPE, 0};
    MF_TRY(mf_reserve_kinds(r, kinds, error));
    MF_TRY(reserve_heads(r, &w->key, error));
    MF_TRY(reserve_heads(r, &w->value, error));
    const mf_op attend = attention(r, layer, 0, ROWS_AT_ONCE);
    return mf_backend_reserve(r->backend, &attend, error);
}

static void norm(mf_runner *r, uint32_t n_rows, mf_span x, mf_span weight, uint32_t n_cols,
                 uint32_t stride)
{
    const mf_op op = {.kind = MF_OP_RMSNORM,
                      .n_rows = n_rows,
                      .u.rmsnorm = {.x = x,
                                    .weight = weight,
                                    .out = x,
                                    .n_cols = n_cols,
                                    .stride = stride,
                                    .eps = LATENT_NORM_EPS}};
    mf_record(r, &op);
}

/* The queries of every row and the latents, normed and rotated. */
static void make_inputs(mf_runner *r, uint32_t n_rows, const mf_latent_weights *w, const mf_span *s)
{
    const mf_hparams *h = &r->h;
    const bool has_rank = h->q_rank != 0;
    const mf_op project = {.kind = MF_OP_MATMUL,
                           .n_rows = n_rows,
                           .u.matmul = {.x = r->plan.h,
                                        .n = 2,
                                        .weight = {has_rank ? w->q_a : w->q_b, w->kv_a},
                                        .y = {has_rank ? s[Q_LOW] : s[Q], s[KV]}}};
    mf_record_matmuls(r, &project);
    if (has_rank) {
        norm(r, n_rows, s[Q_LOW], w->q_norm, h->q_rank, h->q_rank);
        mf_record_matmul(r, n_rows, &w->q_b, s[Q_LOW], s[Q]);
    }
    norm(r, n_rows, s[KV], w->kv_norm, h->kv_rank, mf_latent_width(h));
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

static void forward(mf_runner *r, uint32_t n_rows, uint32_t layer)
{
    const mf_latent_weights *w = &r->weights.layers[layer].u.latent;
    const mf_span *s = r->plan.kind[MF_LAYER_LATENT];
    make_inputs(r, n_rows, w, s);
    for (uint32_t first = 0; first < n_rows; first += ROWS_AT_ONCE) {
        uint32_t left = n_rows - first;
        attend(r, layer, first, left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE);
    }
    mf_record_matmul(r, n_rows, &w->o, s[ATTENDED], r->plan.y);
}

const mf_layer_kind_ops mf_layer_latent = {"latent attention", plan, state, reserve, forward};

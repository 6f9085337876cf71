/* SPDX-License-Identifier: MIT */
/* The attention of a layer: gated softmax attention, the gated delta rule, or multi-head latent
 * attention. */
#include "forward/forward.h"

static void head_norm_rope(mf_runner *r, const mf_batch *batch, mf_span x, mf_span weight,
                           uint32_t n_heads)
{
    const mf_plan *p = &r->plan;
    const mf_op op = {.kind = MF_OP_HEAD_NORM_ROPE,
                      .n_rows = batch->n_rows,
                      .u.head_norm_rope = {.x = x,
                                           .weight = weight,
                                           .cos = p->cos,
                                           .sin = p->sin,
                                           .n_heads = n_heads,
                                           .head_dim = r->h.head_dim,
                                           .n_rot = r->h.n_rot,
                                           .eps = r->h.rms_eps}};
    mf_record(r, &op);
}

/* plan.y = gated attention of plan.h */
static void full_attention(mf_runner *r, const mf_batch *batch, uint32_t layer)
{
    const mf_plan *p = &r->plan;
    const mf_hparams *h = &r->h;
    const mf_full_weights *w = &r->weights.layers[layer].u.full;
    const mf_layer_state *state = &r->layers[layer];
    const mf_op project = {.kind = MF_OP_MATMUL,
                           .n_rows = batch->n_rows,
                           .u.matmul = {.x = p->h,
                                        .n = 4,
                                        .weight = {w->q, w->gate, w->k, w->v},
                                        .y = {p->q, p->gate, p->kv_k, p->kv_v}}};
    mf_record(r, &project);
    head_norm_rope(r, batch, p->q, w->q_norm, h->n_heads);
    head_norm_rope(r, batch, p->kv_k, w->k_norm, h->n_kv_heads);
    const mf_op attend = {.kind = MF_OP_ATTENTION,
                          .n_rows = batch->n_rows,
                          .u.attention = {.q = p->q,
                                          .k = p->kv_k,
                                          .v = p->kv_v,
                                          .out = p->attn,
                                          .n_heads = h->n_heads,
                                          .n_kv_heads = h->n_kv_heads,
                                          .head_dim = h->head_dim,
                                          .cache_type = p->cache_type,
                                          .page_offset = {state->offset[0], state->offset[1]},
                                          .scale = h->attention_scale}};
    mf_record(r, &attend);
    const mf_op gate = {
        .kind = MF_OP_SIGMOID_MUL,
        .n_rows = batch->n_rows,
        .u.sigmoid_mul = {.x = p->attn, .gate = p->gate, .n_cols = mf_query_width(h)}};
    mf_record(r, &gate);
    mf_record_matmul(r, batch->n_rows, &w->o, p->attn, p->y);
}

/* plan.y = gated delta rule of plan.h */
static void linear_attention(mf_runner *r, const mf_batch *batch, uint32_t layer)
{
    const mf_plan *p = &r->plan;
    const mf_hparams *h = &r->h;
    const mf_linear_weights *w = &r->weights.layers[layer].u.linear;
    const mf_layer_state *state = &r->layers[layer];
    const mf_op project = {.kind = MF_OP_MATMUL,
                           .n_rows = batch->n_rows,
                           .u.matmul = {.x = p->h,
                                        .n = 4,
                                        .weight = {w->qkv, w->z, w->b, w->a},
                                        .y = {p->qkv, p->z, p->b, p->a}}};
    mf_record(r, &project);
    const mf_op conv = {.kind = MF_OP_CONV1D_SILU,
                        .n_rows = batch->n_rows,
                        .u.conv1d_silu = {.x = p->qkv,
                                          .weight = w->conv,
                                          .out = p->qkv,
                                          .n_channels = mf_conv_channels(h),
                                          .width = h->conv_width,
                                          .state_offset = state->offset[0]}};
    mf_record(r, &conv);
    const mf_op delta = {.kind = MF_OP_GATED_DELTA,
                         .n_rows = batch->n_rows,
                         .u.gated_delta = {.qkv = p->qkv,
                                           .a = p->a,
                                           .b = p->b,
                                           .a_log = w->a_log,
                                           .dt_bias = w->dt_bias,
                                           .out = p->delta,
                                           .n_k_heads = h->n_k_heads,
                                           .n_v_heads = h->n_v_heads,
                                           .key_dim = h->key_dim,
                                           .value_dim = h->value_dim,
                                           .eps = 1e-6f,
                                           .state_offset = state->offset[1]}};
    mf_record(r, &delta);
    const mf_op norm = {.kind = MF_OP_RMSNORM_GATED,
                        .n_rows = batch->n_rows,
                        .u.rmsnorm_gated = {.x = p->delta,
                                            .z = p->z,
                                            .weight = w->norm,
                                            .n_heads = h->n_v_heads,
                                            .head_dim = h->value_dim,
                                            .eps = h->rms_eps}};
    mf_record(r, &norm);
    mf_record_matmul(r, batch->n_rows, &w->out, p->delta, p->y);
}

/* The published models fix this epsilon in code. */
#define LATENT_NORM_EPS 1e-6f

static mf_span floats_at(mf_span span, uint64_t n_floats)
{
    return mf_span_at(span, n_floats * sizeof(float));
}

static void latent_norm(mf_runner *r, uint32_t n_rows, mf_span x, mf_span weight, uint32_t n_cols,
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

static void rope(mf_runner *r, const mf_batch *batch, mf_span x, uint32_t n_heads,
                 uint32_t row_stride, uint32_t head_stride)
{
    const mf_op op = {.kind = MF_OP_ROPE,
                      .n_rows = batch->n_rows,
                      .u.rope = {.x = x,
                                 .cos = r->plan.cos,
                                 .sin = r->plan.sin,
                                 .n_heads = n_heads,
                                 .n_rot = r->h.n_rot,
                                 .row_stride = row_stride,
                                 .head_stride = head_stride,
                                 .interleaved = r->h.rope.interleaved}};
    mf_record(r, &op);
}

/* The queries of every row and the latents, normed and rotated: plan.q and plan.kv. */
static void latent_inputs(mf_runner *r, const mf_batch *batch, const mf_latent_weights *w)
{
    const mf_plan *p = &r->plan;
    const mf_hparams *h = &r->h;
    bool has_rank = h->q_rank != 0;
    const mf_op project = {.kind = MF_OP_MATMUL,
                           .n_rows = batch->n_rows,
                           .u.matmul = {.x = p->h,
                                        .n = 2,
                                        .weight = {has_rank ? w->q_a : w->q_b, w->kv_a},
                                        .y = {has_rank ? p->q_low : p->q, p->kv}}};
    mf_record(r, &project);
    if (has_rank) {
        latent_norm(r, batch->n_rows, p->q_low, w->q_norm, h->q_rank, h->q_rank);
        mf_record_matmul(r, batch->n_rows, &w->q_b, p->q_low, p->q);
    }
    latent_norm(r, batch->n_rows, p->kv, w->kv_norm, h->kv_rank, mf_latent_width(h));
    rope(r, batch, floats_at(p->q, h->nope_dim), h->n_heads, mf_query_width(h), h->head_dim);
    rope(r, batch, floats_at(p->kv, h->kv_rank), 1, mf_latent_width(h), 0);
}

/*
 * Attention of n rows from row `first` of the batch on. The key half of the up-projection turns a
 * query into one over the latents, so that no key or value is ever expanded; the value half turns
 * the attended latents into values.
 */
static void latent_rows(mf_runner *r, uint32_t layer, uint32_t first, uint32_t n)
{
    const mf_latent_weights *w = &r->weights.layers[layer].u.latent;
    const mf_plan *p = &r->plan;
    const mf_hparams *h = &r->h;
    const uint32_t q_width = mf_query_width(h), width = h->n_heads * h->kv_rank;
    const uint32_t out_width = h->n_heads * h->value_head_dim;
    const mf_span q = floats_at(p->q, (uint64_t)first * q_width);
    const mf_op absorb = {.kind = MF_OP_HEAD_MATMUL,
                          .n_rows = n,
                          .u.head_matmul = {.w = w->key,
                                            .x = q,
                                            .y = p->q_latent,
                                            .n_heads = h->n_heads,
                                            .x_row = q_width,
                                            .x_head = h->head_dim,
                                            .y_row = width,
                                            .y_head = h->kv_rank}};
    mf_record(r, &absorb);
    const mf_op attend = {
        .kind = MF_OP_LATENT_ATTENTION,
        .n_rows = n,
        .first_row = first,
        .u.latent_attention = {.q = p->q_latent,
                               .q_rot = floats_at(q, h->nope_dim),
                               .kv = floats_at(p->kv, (uint64_t)first * mf_latent_width(h)),
                               .out = p->latent,
                               .n_heads = h->n_heads,
                               .n_latent = h->kv_rank,
                               .n_rot = h->n_rot,
                               .q_rot_row = q_width,
                               .q_rot_head = h->head_dim,
                               .cache_type = p->cache_type,
                               .page_offset = r->layers[layer].offset[0],
                               .scale = h->attention_scale}};
    mf_record(r, &attend);
    const mf_op expand = {.kind = MF_OP_HEAD_MATMUL,
                          .n_rows = n,
                          .u.head_matmul = {.w = w->value,
                                            .x = p->latent,
                                            .y = floats_at(p->attn, (uint64_t)first * out_width),
                                            .n_heads = h->n_heads,
                                            .x_row = width,
                                            .x_head = h->kv_rank,
                                            .y_row = out_width,
                                            .y_head = h->value_head_dim}};
    mf_record(r, &expand);
}

/* plan.y = multi-head latent attention of plan.h (arXiv 2405.04434). Queries over the latents are
 * wide: few rows of them are held at a time. */
static void latent_attention(mf_runner *r, const mf_batch *batch, uint32_t layer)
{
    const mf_plan *p = &r->plan;
    const mf_latent_weights *w = &r->weights.layers[layer].u.latent;
    latent_inputs(r, batch, w);
    for (uint32_t first = 0; first < batch->n_rows; first += MF_LATENT_ROWS) {
        uint32_t left = batch->n_rows - first, n = left < MF_LATENT_ROWS ? left : MF_LATENT_ROWS;
        latent_rows(r, layer, first, n);
    }
    mf_record_matmul(r, batch->n_rows, &w->o, p->attn, p->y);
}

void mf_forward_attention(mf_runner *r, const mf_batch *batch, uint32_t layer)
{
    switch (r->h.layer_kind[layer]) {
    case MF_LAYER_FULL:
        full_attention(r, batch, layer);
        break;
    case MF_LAYER_LINEAR:
        linear_attention(r, batch, layer);
        break;
    default:
        latent_attention(r, batch, layer);
        break;
    }
}

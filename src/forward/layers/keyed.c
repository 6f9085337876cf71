/* SPDX-License-Identifier: MIT */
/* Kimi Delta Attention (arXiv 2510.26692): the delta rule with a decay of each key dimension, short
 * convolutions of queries, keys and values before it: a recurrent state instead of a cache. */
#include "forward/forward.h"

enum { Q, K, V, F_LOW, G_LOW, A, B, GATE, DELTA };

/* The published models fix this epsilon of the l2 norm in code. */
#define L2_EPS 1e-6f

static uint32_t width_of(const mf_hparams *h)
{
    return h->n_v_heads * h->key_dim;
}

static void plan(const mf_hparams *h, uint64_t n_rows, mf_layout *l, mf_span *spans)
{
    const uint64_t width = width_of(h);
    spans[Q] = mf_layout_take(l, n_rows, width);
    spans[K] = mf_layout_take(l, n_rows, width);
    spans[V] = mf_layout_take(l, n_rows, width);
    spans[F_LOW] = mf_layout_take(l, n_rows, h->key_dim);
    spans[G_LOW] = mf_layout_take(l, n_rows, h->key_dim);
    spans[A] = mf_layout_take(l, n_rows, width);
    spans[B] = mf_layout_take(l, n_rows, h->n_v_heads);
    spans[GATE] = mf_layout_take(l, n_rows, width);
    spans[DELTA] = mf_layout_take(l, n_rows, width);
}

/* The inputs of the convolutions of queries, keys and values one after the other, and the recurrent
 * state; float32 whatever the cache's type. */
static mf_state_shape state(const mf_hparams *h, uint32_t layer, mf_dtype cache_type)
{
    const uint64_t each = (uint64_t)h->key_dim * h->value_dim;
    (void)layer;
    (void)cache_type;
    return (mf_state_shape){
        .kept = {{MF_UNIT_RECURRENT, 3 * ((uint64_t)h->conv_width - 1), width_of(h), MF_F32, 1},
                 {MF_UNIT_RECURRENT, h->n_v_heads, each, MF_F32, 1}}};
}

/* Of queries, keys or values: the n-th. */
static mf_op convolution(const mf_runner *r, uint32_t n_rows, uint32_t layer, uint32_t n)
{
    const mf_hparams *h = &r->h;
    const mf_keyed_weights *w = &r->weights.layers[layer].u.keyed;
    const mf_span weights[] = {w->q_conv, w->k_conv, w->v_conv};
    const mf_span x = r->plan.kind[MF_LAYER_KEYED][Q + n];
    const uint64_t each = (h->conv_width - 1) * (uint64_t)width_of(h) * sizeof(float);
    return (mf_op){.kind = MF_OP_CONV1D_SILU,
                   .n_rows = n_rows,
                   .u.conv1d_silu = {.x = x,
                                     .weight = weights[n],
                                     .out = x,
                                     .n_channels = width_of(h),
                                     .width = h->conv_width,
                                     .state_offset = r->layers[layer].offset[0] + n * each}};
}

static mf_op delta_rule(const mf_runner *r, uint32_t n_rows, uint32_t layer)
{
    const mf_hparams *h = &r->h;
    const mf_keyed_weights *w = &r->weights.layers[layer].u.keyed;
    const mf_span *s = r->plan.kind[MF_LAYER_KEYED];
    return (mf_op){.kind = MF_OP_GATED_DELTA,
                   .n_rows = n_rows,
                   .u.gated_delta = {.qkv = s[Q],
                                     .k = s[K],
                                     .v = s[V],
                                     .has_key_decays = true,
                                     .a = s[A],
                                     .b = s[B],
                                     .a_log = w->a_log,
                                     .dt_bias = w->dt_bias,
                                     .out = s[DELTA],
                                     .n_k_heads = h->n_v_heads,
                                     .n_v_heads = h->n_v_heads,
                                     .key_dim = h->key_dim,
                                     .value_dim = h->value_dim,
                                     .eps = L2_EPS,
                                     .state_offset = r->layers[layer].offset[1]}};
}

static mf_status reserve(mf_runner *r, uint32_t layer, mf_error *error)
{
    const mf_keyed_weights *w = &r->weights.layers[layer].u.keyed;
    const mf_weight *const matrices[] = {&w->q,   &w->k,   &w->v,   &w->b,  &w->f_a,
                                         &w->f_b, &w->g_a, &w->g_b, &w->out};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        MF_TRY(mf_reserve_matmul(r, matrices[i], r->plan.n_chunk, error));
    const mf_op_kind kinds[] = {MF_OP_RMSNORM, MF_OP_SIGMOID_MUL, 0};
    MF_TRY(mf_reserve_kinds(r, kinds, error));
    for (uint32_t i = 0; i < 3; i++) {
        const mf_op convolve = convolution(r, r->plan.n_chunk, layer, i);
        MF_TRY(mf_backend_reserve(r->backend, &convolve, error));
    }
    const mf_op delta = delta_rule(r, r->plan.n_chunk, layer);
    return mf_backend_reserve(r->backend, &delta, error);
}

/* Products of the same rows together; what two of them are for is not in each other's way. */
static void project(mf_runner *r, uint32_t n_rows, const mf_keyed_weights *w, const mf_span *s)
{
    const mf_op op = {.kind = MF_OP_MATMUL,
                      .n_rows = n_rows,
                      .u.matmul = {.x = r->plan.h,
                                   .n = 4,
                                   .weight = {w->q, w->k, w->v, w->b},
                                   .y = {s[Q], s[K], s[V], s[B]}}};
    const mf_op low = {
        .kind = MF_OP_MATMUL,
        .n_rows = n_rows,
        .u.matmul = {
            .x = r->plan.h, .n = 2, .weight = {w->f_a, w->g_a}, .y = {s[F_LOW], s[G_LOW]}}};
    mf_record_matmuls(r, &op);
    mf_record_matmuls(r, &low);
    mf_record_matmul(r, n_rows, &w->f_b, s[F_LOW], s[A]);
    mf_record_matmul(r, n_rows, &w->g_b, s[G_LOW], s[GATE]);
}

static void forward(mf_runner *r, uint32_t n_rows, uint32_t layer)
{
    const mf_hparams *h = &r->h;
    const mf_keyed_weights *w = &r->weights.layers[layer].u.keyed;
    const mf_span *s = r->plan.kind[MF_LAYER_KEYED];
    mf_need_h(r);
    project(r, n_rows, w, s);
    for (uint32_t i = 0; i < 3; i++) {
        const mf_op convolve = convolution(r, n_rows, layer, i);
        mf_record(r, &convolve);
    }
    const mf_op delta = delta_rule(r, n_rows, layer);
    mf_record(r, &delta);
    const mf_op norm = {.kind = MF_OP_RMSNORM,
                        .n_rows = n_rows * h->n_v_heads,
                        .u.rmsnorm = {.x = s[DELTA],
                                      .weight = w->norm,
                                      .out = s[DELTA],
                                      .n_cols = h->value_dim,
                                      .eps = h->rms_eps}};
    mf_record(r, &norm);
    const mf_op gate = {.kind = MF_OP_SIGMOID_MUL,
                        .n_rows = n_rows,
                        .u.sigmoid_mul = {.x = s[DELTA], .gate = s[GATE], .n_cols = width_of(h)}};
    mf_record(r, &gate);
    mf_record_matmul(r, n_rows, &w->out, s[DELTA], r->plan.y);
}

const mf_layer_kind_ops mf_layer_keyed = {"Kimi Delta Attention", plan, state, reserve, forward};

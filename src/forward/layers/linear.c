/* SPDX-License-Identifier: MIT */
/* Linear attention by the gated delta rule (arXiv 2412.06464), with a short convolution before it:
 * a recurrent state instead of a cache. */
#include "forward/forward.h"

enum { QKV, Z, B, A, DELTA };

/* The published models fix this epsilon of the l2 norm in code. */
#define L2_EPS 1e-6f

static void plan(const mf_hparams *h, uint64_t n_rows, mf_layout *l, mf_span *spans)
{
    spans[QKV] = mf_layout_take(l, n_rows, mf_conv_channels(h), MF_F32);
    spans[Z] = mf_layout_take(l, n_rows, mf_value_width(h), MF_F32);
    spans[B] = mf_layout_take(l, n_rows, h->n_v_heads, MF_F32);
    spans[A] = mf_layout_take(l, n_rows, h->n_v_heads, MF_F32);
    spans[DELTA] = mf_layout_take(l, n_rows, mf_value_width(h), MF_F32);
}

/* The convolution's inputs and the recurrent state, float32 whatever the cache's type. */
static mf_state_shape state(const mf_hparams *h, mf_dtype cache_type)
{
    (void)cache_type;
    return (mf_state_shape){.is_recurrent = true,
                            .rows = {h->conv_width - 1, h->n_v_heads},
                            .cols = {mf_conv_channels(h), (uint64_t)h->key_dim * h->value_dim},
                            .type = MF_F32};
}

static mf_op convolution(const mf_runner *r, uint32_t n_rows, uint32_t layer, mf_span qkv)
{
    return (mf_op){.kind = MF_OP_CONV1D_SILU,
                   .n_rows = n_rows,
                   .u.conv1d_silu = {.x = qkv,
                                     .weight = r->weights.layers[layer].u.linear.conv,
                                     .out = qkv,
                                     .n_channels = mf_conv_channels(&r->h),
                                     .width = r->h.conv_width,
                                     .state_offset = r->layers[layer].offset[0]}};
}

static mf_op delta_rule(const mf_runner *r, uint32_t n_rows, uint32_t layer, const mf_span *s)
{
    const mf_hparams *h = &r->h;
    const mf_linear_weights *w = &r->weights.layers[layer].u.linear;
    return (mf_op){.kind = MF_OP_GATED_DELTA,
                   .n_rows = n_rows,
                   .u.gated_delta = {.qkv = s[QKV],
                                     .a = s[A],
                                     .b = s[B],
                                     .a_log = w->a_log,
                                     .dt_bias = w->dt_bias,
                                     .out = s[DELTA],
                                     .n_k_heads = h->n_k_heads,
                                     .n_v_heads = h->n_v_heads,
                                     .key_dim = h->key_dim,
                                     .value_dim = h->value_dim,
                                     .eps = L2_EPS,
                                     .state_offset = r->layers[layer].offset[1]}};
}

static mf_status reserve(mf_runner *r, uint32_t layer, mf_error *error)
{
    const mf_linear_weights *w = &r->weights.layers[layer].u.linear;
    const mf_span *s = r->plan.kind[MF_LAYER_LINEAR];
    const mf_weight *const matrices[] = {&w->qkv, &w->z, &w->b, &w->a, &w->out};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        MF_TRY(mf_reserve_matmul(r, matrices[i], r->plan.n_chunk, error));
    const mf_op_kind kinds[] = {MF_OP_RMSNORM_GATED, 0};
    MF_TRY(mf_reserve_kinds(r, kinds, error));
    const mf_op convolve = convolution(r, r->plan.n_chunk, layer, s[QKV]);
    const mf_op delta = delta_rule(r, r->plan.n_chunk, layer, s);
    MF_TRY(mf_backend_reserve(r->backend, &convolve, error));
    return mf_backend_reserve(r->backend, &delta, error);
}

static void forward(mf_runner *r, uint32_t n_rows, uint32_t layer)
{
    const mf_hparams *h = &r->h;
    const mf_linear_weights *w = &r->weights.layers[layer].u.linear;
    const mf_span *s = r->plan.kind[MF_LAYER_LINEAR];
    const mf_op project = {.kind = MF_OP_MATMUL,
                           .n_rows = n_rows,
                           .u.matmul = {.x = r->plan.h,
                                        .n = 4,
                                        .weight = {w->qkv, w->z, w->b, w->a},
                                        .y = {s[QKV], s[Z], s[B], s[A]}}};
    mf_record_matmuls(r, &project);
    const mf_op convolve = convolution(r, n_rows, layer, s[QKV]);
    mf_record(r, &convolve);
    const mf_op delta = delta_rule(r, n_rows, layer, s);
    mf_record(r, &delta);
    const mf_op norm = {.kind = MF_OP_RMSNORM_GATED,
                        .n_rows = n_rows,
                        .u.rmsnorm_gated = {.x = s[DELTA],
                                            .z = s[Z],
                                            .weight = w->norm,
                                            .n_heads = h->n_v_heads,
                                            .head_dim = h->value_dim,
                                            .eps = h->rms_eps}};
    mf_record(r, &norm);
    mf_record_matmul(r, n_rows, &w->out, s[DELTA], r->plan.y);
}

const mf_layer_kind_ops mf_layer_linear = {"linear attention", plan, state, reserve, forward};

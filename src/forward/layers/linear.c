/* SPDX-License-Identifier: MIT */
/* Linear attention by the gated delta rule (arXiv 2412.06464), with a short convolution before it:
 * a recurrent state instead of a cache. */
#include "forward/forward.h"

enum { QKV, Z, B, A, DELTA };

/* The published models fix this epsilon of the l2 norm in code. */
#define L2_EPS 1e-6f

static void plan(const mf_hparams *h, uint64_t n_rows, mf_layout *l, mf_span *spans)
{
    spans[QKV] = mf_layout_take(l, n_rows, mf_conv_channels(h));
    spans[Z] = mf_layout_take(l, n_rows, mf_value_width(h));
    spans[B] = mf_layout_take(l, n_rows, h->n_v_heads);
    spans[A] = mf_layout_take(l, n_rows, h->n_v_heads);
    spans[DELTA] = mf_layout_take(l, n_rows, mf_value_width(h));
}

/* The convolution's inputs and the recurrent state, float32 whatever the cache's type. */
static mf_state_shape state(const mf_hparams *h, uint32_t layer, mf_dtype cache_type)
{
    const uint64_t each = (uint64_t)h->key_dim * h->value_dim;
    (void)layer;
    (void)cache_type;
    return (mf_state_shape){
        .kept = {{MF_UNIT_RECURRENT, h->conv_width - 1, mf_conv_channels(h), MF_F32, 1},
                 {MF_UNIT_RECURRENT, h->n_v_heads, each, MF_F32, 1}}};
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
                                     .is_tiled = h->v_heads_are_tiled,
                                     .state_offset = r->layers[layer].offset[1]}};
}

/* All products of the layer's input. */
static mf_op project(const mf_runner *r, uint32_t n_rows, uint32_t layer, const mf_span *s)
{
    const mf_linear_weights *w = &r->weights.layers[layer].u.linear;
    return (mf_op){.kind = MF_OP_MATMUL,
                   .n_rows = n_rows,
                   .u.matmul = {.x = r->plan.h,
                                .n = 4,
                                .weight = {w->qkv, w->z, w->b, w->a},
                                .y = {s[QKV], s[Z], s[B], s[A]}}};
}

/* Of one row, which begins with a norm; the convolution at its end. */
static mf_op project_fused(const mf_runner *r, uint32_t layer, const mf_span *s,
                           mf_input_step before)
{
    mf_op op = project(r, 1, layer, s);
    op.u.matmul.x = r->plan.x;
    op.u.matmul.before = before;
    op.u.matmul.after = (mf_output_step){.kind = MF_OUTPUT_CONVOLVED,
                                         .weight = r->weights.layers[layer].u.linear.conv,
                                         .width = r->h.conv_width,
                                         .state_offset = r->layers[layer].offset[0]};
    return op;
}

/* plan.x += the last product, of heads normed and gated. */
static mf_op out_fused(const mf_runner *r, uint32_t layer, const mf_span *s)
{
    const mf_linear_weights *w = &r->weights.layers[layer].u.linear;
    const mf_input_step heads = {.kind = MF_INPUT_HEADS_GATED,
                                 .weight = w->norm,
                                 .gate = s[Z],
                                 .head_dim = r->h.value_dim,
                                 .eps = r->h.rms_eps};
    return mf_fused_out(r, &w->out, s[DELTA], heads);
}

static mf_op joined(const mf_op *in, const mf_op *rule, const mf_op *out)
{
    return (mf_op){.kind = MF_OP_LINEAR_ROW, .n_rows = 1, .u.linear_row = {in, rule, out}};
}

static mf_status reserve_fused(mf_runner *r, uint32_t layer, const mf_span *s, mf_error *error)
{
    const mf_op in =
        project_fused(r, layer, s, mf_fused_norm(r, r->weights.layers[layer].input_norm));
    const mf_op out = out_fused(r, layer, s);
    MF_TRY(mf_fused_reserve(r, &in, error));
    MF_TRY(mf_fused_reserve(r, &out, error));
    r->fused.has_linear_rows = r->fused.has_linear_rows && r->fused.is_on;
    const mf_op rule = delta_rule(r, 1, layer, s), op = joined(&in, &rule, &out);
    return mf_joined_reserve(r, &op, &r->fused.has_linear_rows, error);
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
    MF_TRY(mf_backend_reserve(r->backend, &delta, error));
    return reserve_fused(r, layer, s, error);
}

/* n floats of each row, from `row` on. */
static mf_span at_row(mf_span x, uint32_t row, uint32_t n)
{
    return mf_span_at(x, (uint64_t)row * n * sizeof(float));
}

/* Of one sequence, which has all the rows there are. */
static void run_alone(mf_runner *r, const mf_sequence *sequence, uint32_t row, uint32_t layer)
{
    const mf_hparams *h = &r->h;
    const mf_span *all = r->plan.kind[MF_LAYER_LINEAR];
    const mf_span s[] = {[QKV] = at_row(all[QKV], row, mf_conv_channels(h)),
                         [B] = at_row(all[B], row, h->n_v_heads),
                         [A] = at_row(all[A], row, h->n_v_heads),
                         [DELTA] = at_row(all[DELTA], row, mf_value_width(h))};
    const mf_op convolve = convolution(r, sequence->n_rows, layer, s[QKV]);
    const mf_op delta = delta_rule(r, sequence->n_rows, layer, s);
    r->backend->ops->begin_batch(r->backend, sequence, 1);
    mf_record(r, &convolve);
    mf_record(r, &delta);
}

/* Row by row where the state after each row is kept: the same bits as of all rows at once. */
static void run_by_parts(mf_runner *r, uint32_t layer)
{
    uint32_t row = 0;
    for (uint32_t i = 0; i < r->batch->n_parts; i++) {
        const mf_batch_part *p = &r->batch->parts[i];
        const uint32_t n_each = p->states != NULL ? 1 : p->n_rows;
        for (uint32_t j = 0; j < p->n_rows; j += n_each, row += n_each) {
            const mf_span after = p->states != NULL ? p->states[j] : p->state[1];
            const mf_sequence one = {.n_rows = n_each,
                                     .position = p->position + j,
                                     .state = {j == 0 ? p->state[0] : p->states[j - 1], after}};
            run_alone(r, &one, row, layer);
        }
    }
    r->backend->ops->begin_batch(r->backend, r->sequences, r->batch->n_parts);
}

/* q, k and v as the delta rule takes them, and its result. */
static void run_rule(mf_runner *r, uint32_t n_rows, uint32_t layer, const mf_span *s)
{
    const mf_op in = project(r, n_rows, layer, s);
    const mf_op convolve = convolution(r, n_rows, layer, s[QKV]);
    const mf_op delta = delta_rule(r, n_rows, layer, s);
    mf_need_h(r);
    mf_record_matmuls(r, &in);
    if (r->batch != NULL) {
        run_by_parts(r, layer);
        return;
    }
    mf_record(r, &convolve);
    mf_record(r, &delta);
}

/* One row of one sequence, whose norm is left to products. */
static void run_row(mf_runner *r, uint32_t layer, const mf_span *s, mf_input_step before)
{
    const mf_op in = project_fused(r, layer, s, before), rule = delta_rule(r, 1, layer, s);
    const mf_op out = out_fused(r, layer, s), op = joined(&in, &rule, &out);
    const mf_op *const apart[] = {&in, &rule, &out}, *const one[] = {&op};
    const bool is_one = r->fused.has_linear_rows;
    for (size_t i = 0; i < (is_one ? 1 : 3); i++)
        mf_record(r, is_one ? one[i] : apart[i]);
    r->fused.is_added = true;
}

static void forward(mf_runner *r, uint32_t n_rows, uint32_t layer)
{
    const mf_hparams *h = &r->h;
    const mf_linear_weights *w = &r->weights.layers[layer].u.linear;
    const mf_span *s = r->plan.kind[MF_LAYER_LINEAR];
    mf_input_step before;
    if (r->batch == NULL && mf_fused_take_norm(r, &before)) {
        run_row(r, layer, s, before);
        return;
    }
    run_rule(r, n_rows, layer, s);
    if (r->fused.is_at_hand) {
        const mf_op out = out_fused(r, layer, s);
        mf_record(r, &out);
        r->fused.is_added = true;
        return;
    }
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

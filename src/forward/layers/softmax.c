/* SPDX-License-Identifier: MIT */
/*
 * Softmax attention over cached keys and values. Steps that a model may have or not: biases of the
 * projections, norms of each head's queries and keys, rotation, a window, attention sinks, and a
 * gate on the output.
 */
#include "forward/forward.h"

#include "base/cache_rows.h"

enum { Q, GATE, K, V, ATTENDED };

static void plan(const mf_hparams *h, uint64_t n_rows, mf_layout *l, mf_span *spans)
{
    spans[Q] = mf_layout_take(l, n_rows, mf_query_width(h));
    spans[GATE] = mf_layout_take(l, n_rows, mf_query_width(h));
    spans[K] = mf_layout_take(l, n_rows, mf_kv_width(h));
    spans[V] = mf_layout_take(l, n_rows, mf_kv_width(h));
    spans[ATTENDED] = mf_layout_take(l, n_rows, mf_query_width(h));
}

static mf_state_shape state(const mf_hparams *h, uint32_t layer, mf_dtype cache_type)
{
    const mf_kept rows = {h->window[layer] != 0 ? MF_UNIT_WINDOW : MF_UNIT_PAGE, MF_PAGE_TOKENS,
                          mf_kv_width(h), cache_type, h->n_kv_heads};
    return (mf_state_shape){.kept = {rows, rows}};
}

static mf_op attention(const mf_runner *r, uint32_t n_rows, uint32_t layer, const mf_span *s)
{
    const mf_hparams *h = &r->h;
    const mf_layer_state *kept = &r->layers[layer];
    /* one chunk that holds the whole context is no window */
    const bool is_reached = !h->windows_are_chunks || h->window[layer] < r->plan.n_context;
    return (mf_op){.kind = MF_OP_ATTENTION,
                   .n_rows = n_rows,
                   .u.attention = {.q = s[Q],
                                   .k = s[K],
                                   .v = s[V],
                                   .out = s[ATTENDED],
                                   .sinks = r->weights.layers[layer].u.full.sinks,
                                   .n_heads = h->n_heads,
                                   .n_kv_heads = h->n_kv_heads,
                                   .head_dim = h->head_dim,
                                   .window = is_reached ? h->window[layer] : 0,
                                   .window_is_chunk =
                                       is_reached && h->windows_are_chunks && h->window[layer] != 0,
                                   .is_in_window_pages = kept->unit[0] == MF_UNIT_WINDOW,
                                   .cache_type = r->plan.cache_type,
                                   .page_offset = {kept->offset[0], kept->offset[1]},
                                   .scale = h->attention_scale}};
}

/* plan.x += the last product, of what was attended times its gate. */
static mf_op out_fused(const mf_runner *r, uint32_t layer, const mf_span *s)
{
    const mf_full_weights *w = &r->weights.layers[layer].u.full;
    const bool has_gate = w->gate.shape.n_rows != 0;
    const mf_input_step gate = {.kind = has_gate ? MF_INPUT_SIGMOID : MF_INPUT_AS_IT_IS,
                                .gate = has_gate ? s[GATE] : (mf_span){{0}, 0}};
    return mf_fused_out(r, &w->o, s[ATTENDED], gate);
}

static mf_op project(const mf_runner *r, uint32_t n_rows, uint32_t layer, const mf_span *s)
{
    const mf_full_weights *w = &r->weights.layers[layer].u.full;
    mf_op op = {.kind = MF_OP_MATMUL,
                .n_rows = n_rows,
                .u.matmul = {
                    .x = r->plan.h, .n = 3, .weight = {w->q, w->k, w->v}, .y = {s[Q], s[K], s[V]}}};
    if (w->gate.shape.n_rows != 0) {
        op.u.matmul.weight[op.u.matmul.n] = w->gate;
        op.u.matmul.y[op.u.matmul.n++] = s[GATE];
    }
    return op;
}

static mf_op norm_and_rotation(const mf_runner *r, uint32_t n_rows, mf_span x, mf_span weight,
                               uint32_t n_heads)
{
    const mf_plan *p = &r->plan;
    return (mf_op){.kind = MF_OP_HEAD_NORM_ROPE,
                   .n_rows = n_rows,
                   .u.head_norm_rope = {.x = x,
                                        .weight = weight,
                                        .cos = p->cos,
                                        .sin = p->sin,
                                        .n_heads = n_heads,
                                        .head_dim = r->h.head_dim,
                                        .n_rot = r->h.n_rot,
                                        .eps = r->h.rms_eps}};
}

/* Of queries or of keys; id 0: there is none. */
static mf_span head_norm(const mf_runner *r, uint32_t layer, mf_span weight)
{
    return r->h.has_unit_norms && !r->h.is_unrotated[layer] ? r->plan.ones : weight;
}

static bool is_rotated(const mf_runner *r, uint32_t layer)
{
    return r->h.n_rot != 0 && !r->h.is_unrotated[layer];
}

/* Whether norm and rotation of heads are one operation. */
static bool are_prepared_at_once(const mf_runner *r, uint32_t layer, mf_span norm)
{
    return norm.buffer.id != 0 && is_rotated(r, layer) && !r->h.rope.interleaved &&
           !r->h.head_norm_is_whole && !r->h.head_norm_is_last;
}

static bool queries_grow(const mf_runner *r, uint32_t layer)
{
    return r->h.query_growth != 0 && (r->h.is_unrotated[layer] || r->h.rotated_queries_grow);
}

/* One row of one sequence, whose norm is left to products. */
typedef struct row_ops {
    mf_op in, queries, keys, attend, out, row;
} row_ops;

static void make_row(const mf_runner *r, uint32_t layer, mf_input_step before, row_ops *ops)
{
    const mf_full_weights *w = &r->weights.layers[layer].u.full;
    const mf_span *s = r->plan.kind[MF_LAYER_FULL];
    ops->in = project(r, 1, layer, s);
    ops->in.u.matmul.x = r->plan.x;
    ops->in.u.matmul.before = before;
    ops->queries = norm_and_rotation(r, 1, s[Q], head_norm(r, layer, w->q_norm), r->h.n_heads);
    ops->keys = norm_and_rotation(r, 1, s[K], head_norm(r, layer, w->k_norm), r->h.n_kv_heads);
    ops->attend = attention(r, 1, layer, s);
    ops->out = out_fused(r, layer, s);
    ops->row =
        (mf_op){.kind = MF_OP_ATTEND_ROW,
                .n_rows = 1,
                .u.attend_row = {&ops->in, &ops->queries, &ops->keys, &ops->attend, &ops->out}};
}

/* Whether nothing else is done in such a layer. */
static bool is_plain(const mf_runner *r, uint32_t layer)
{
    const mf_full_weights *w = &r->weights.layers[layer].u.full;
    const bool has_bias = w->q_bias.buffer.id != 0 || w->k_bias.buffer.id != 0 ||
                          w->v_bias.buffer.id != 0 || w->o_bias.buffer.id != 0;
    return !has_bias && !queries_grow(r, layer) &&
           are_prepared_at_once(r, layer, head_norm(r, layer, w->q_norm)) &&
           are_prepared_at_once(r, layer, head_norm(r, layer, w->k_norm));
}

static mf_status reserve_fused(mf_runner *r, uint32_t layer, mf_error *error)
{
    bool *has = &r->fused.has_attend_row[layer];
    row_ops ops;
    make_row(r, layer, mf_fused_norm(r, r->weights.layers[layer].input_norm), &ops);
    MF_TRY(mf_fused_reserve(r, &ops.in, error));
    MF_TRY(mf_fused_reserve(r, &ops.out, error));
    *has = r->fused.is_on && is_plain(r, layer);
    return mf_joined_reserve(r, &ops.row, has, error);
}

static mf_status reserve(mf_runner *r, uint32_t layer, mf_error *error)
{
    const mf_full_weights *w = &r->weights.layers[layer].u.full;
    const mf_weight *const matrices[] = {&w->q, &w->gate, &w->k, &w->v, &w->o};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        if (matrices[i]->shape.n_rows != 0)
            MF_TRY(mf_reserve_matmul(r, matrices[i], r->plan.n_chunk, error));
    const mf_op_kind kinds[] = {MF_OP_HEAD_NORM_ROPE, MF_OP_ROPE, MF_OP_SIGMOID_MUL, 0};
    MF_TRY(mf_reserve_kinds(r, kinds, error));
    const mf_op op = attention(r, r->plan.n_chunk, layer, r->plan.kind[MF_LAYER_FULL]);
    MF_TRY(mf_backend_reserve(r->backend, &op, error));
    return reserve_fused(r, layer, error);
}

static void run_project(mf_runner *r, uint32_t n_rows, uint32_t layer, const mf_span *s)
{
    const mf_hparams *h = &r->h;
    const mf_full_weights *w = &r->weights.layers[layer].u.full;
    mf_op op = project(r, n_rows, layer, s);
    if (mf_fused_take_norm(r, &op.u.matmul.before)) {
        op.u.matmul.x = r->plan.x;
        mf_record(r, &op);
    } else {
        mf_record_matmuls(r, &op);
    }
    mf_record_bias(r, n_rows, s[Q], w->q_bias, mf_query_width(h));
    mf_record_bias(r, n_rows, s[K], w->k_bias, mf_kv_width(h));
    mf_record_bias(r, n_rows, s[V], w->v_bias, mf_kv_width(h));
}

static void norm_and_rotate(mf_runner *r, uint32_t n_rows, mf_span x, mf_span weight,
                            uint32_t n_heads)
{
    const mf_op op = norm_and_rotation(r, n_rows, x, weight, n_heads);
    mf_record(r, &op);
}

/* Heads lie one after another: each is a row of its own to the norm, or all are one. */
static void norm_heads(mf_runner *r, uint32_t n_rows, mf_span x, mf_span weight, uint32_t n_heads)
{
    const uint32_t n_each = r->h.head_norm_is_whole ? 1 : n_heads;
    const mf_op op = {.kind = MF_OP_RMSNORM,
                      .n_rows = n_rows * n_each,
                      .u.rmsnorm = {.x = x,
                                    .weight = weight,
                                    .out = x,
                                    .n_cols = n_heads / n_each * r->h.head_dim,
                                    .eps = r->h.rms_eps}};
    mf_record(r, &op);
}

/* Queries of a layer that does not rotate, by their position: a rotation of pairs by no angle,
 * whose cosine is not 1. */
static void scale_queries(mf_runner *r, uint32_t n_rows, mf_span x)
{
    const uint32_t width = mf_query_width(&r->h);
    const mf_op op = {.kind = MF_OP_ROPE,
                      .n_rows = n_rows,
                      .u.rope = {.x = x,
                                 .cos = r->plan.growth,
                                 .sin = r->plan.no_sin,
                                 .n_heads = width / 2,
                                 .n_rot = 2,
                                 .row_stride = width,
                                 .head_stride = 2,
                                 .interleaved = true}};
    mf_record(r, &op);
}

/* The heads of queries or of keys before they meet. weight: of their norm, id 0 without one. */
static void prepare_heads(mf_runner *r, uint32_t n_rows, uint32_t layer, mf_span x, mf_span weight,
                          uint32_t n_heads)
{
    const bool is_normed = weight.buffer.id != 0, is_last = r->h.head_norm_is_last;
    if (are_prepared_at_once(r, layer, weight)) {
        norm_and_rotate(r, n_rows, x, weight, n_heads);
        return;
    }
    if (is_normed && !is_last)
        norm_heads(r, n_rows, x, weight, n_heads);
    if (is_rotated(r, layer))
        mf_record_rope(r, n_rows, x, n_heads, n_heads * r->h.head_dim, r->h.head_dim);
    if (is_normed && is_last)
        norm_heads(r, n_rows, x, weight, n_heads);
}

/* Rows of long runs, and the others. */
static void attend(mf_runner *r, uint32_t n_rows, uint32_t layer, const mf_span *s)
{
    const mf_hparams *h = &r->h;
    const uint32_t n_long = r->n_long_rows < n_rows ? r->n_long_rows : n_rows;
    const uint64_t q = (uint64_t)n_long * mf_query_width(h) * sizeof(float);
    const uint64_t kv = (uint64_t)n_long * mf_kv_width(h) * sizeof(float);
    const mf_span rest[] = {[Q] = mf_span_at(s[Q], q),
                            [K] = mf_span_at(s[K], kv),
                            [V] = mf_span_at(s[V], kv),
                            [ATTENDED] = mf_span_at(s[ATTENDED], q)};
    mf_op op = attention(r, n_long, layer, s);
    op.is_long = true;
    if (n_long != 0)
        mf_record(r, &op);
    op = attention(r, n_rows - n_long, layer, rest);
    op.first_row = n_long;
    if (op.n_rows != 0)
        mf_record(r, &op);
}

/* Whether that was all. */
static bool run_row(mf_runner *r, uint32_t layer)
{
    mf_input_step before;
    row_ops ops;
    if (!r->fused.has_attend_row[layer] || !mf_fused_take_norm(r, &before))
        return false;
    make_row(r, layer, before, &ops);
    mf_record(r, &ops.row);
    r->fused.is_added = true;
    return true;
}

static void forward(mf_runner *r, uint32_t n_rows, uint32_t layer)
{
    const mf_full_weights *w = &r->weights.layers[layer].u.full;
    const mf_span *s = r->plan.kind[MF_LAYER_FULL];
    if (run_row(r, layer))
        return;
    run_project(r, n_rows, layer, s);
    prepare_heads(r, n_rows, layer, s[Q], head_norm(r, layer, w->q_norm), r->h.n_heads);
    prepare_heads(r, n_rows, layer, s[K], head_norm(r, layer, w->k_norm), r->h.n_kv_heads);
    if (queries_grow(r, layer))
        scale_queries(r, n_rows, s[Q]);
    attend(r, n_rows, layer, s);
    if (r->fused.is_at_hand && w->o_bias.buffer.id == 0) {
        const mf_op out = out_fused(r, layer, s);
        mf_record(r, &out);
        r->fused.is_added = true;
        return;
    }
    if (w->gate.shape.n_rows != 0) {
        const mf_op gate = {
            .kind = MF_OP_SIGMOID_MUL,
            .n_rows = n_rows,
            .u.sigmoid_mul = {.x = s[ATTENDED], .gate = s[GATE], .n_cols = mf_query_width(&r->h)}};
        mf_record(r, &gate);
    }
    mf_record_matmul(r, n_rows, &w->o, s[ATTENDED], r->plan.y);
    mf_record_bias(r, n_rows, r->plan.y, w->o_bias, r->h.hidden_size);
}

const mf_layer_kind_ops mf_layer_softmax = {"softmax attention", plan, state, reserve, forward};

/* SPDX-License-Identifier: MIT */
/*
 * The operations that a layer of softmax attention records, for every choice that a model may make
 * and no family makes yet: biases, norms, sinks, windows and rotations that differ from layer to
 * layer. A backend that only writes them down; what each operation computes is tested elsewhere.
 */
#include "forward/forward.h"

#include "test.h"

enum { N_LAYERS = 3, N_ROWS = 5, N_HEADS = 6, N_KV_HEADS = 2, HEAD_DIM = 16, N_ROT = 8 };
enum { HIDDEN = 40, N_QUERY = N_HEADS * HEAD_DIM, N_KV = N_KV_HEADS * HEAD_DIM, MOST_OPS = 32 };

typedef struct recorder {
    mf_backend base;
    mf_op ops[MOST_OPS];
    uint32_t n, at;
} recorder;

static void record(mf_backend *be, const mf_op *op)
{
    recorder *r = (recorder *)be;
    REQUIRE(r->n < MOST_OPS);
    r->ops[r->n++] = *op;
}

static const mf_backend_ops recorder_ops = {.record = record};

/* Spans that are told apart by their offsets. */
static mf_span span(uint64_t number)
{
    return (mf_span){{MF_BUFFER_RESIDENT}, number * 4096};
}

static bool same(mf_span a, mf_span b)
{
    return a.buffer.id == b.buffer.id && a.offset == b.offset;
}

static mf_weight matrix(uint64_t number, uint32_t n_rows, uint32_t n_cols)
{
    return (mf_weight){.shape = {.kind = MF_WEIGHT_FLOAT, .n_rows = n_rows, .n_cols = n_cols},
                       .data = span(number)};
}

typedef struct choices {
    bool has_gate, has_biases, has_norms, has_sinks, is_interleaved;
} choices;

typedef struct made_model {
    recorder recorder;
    mf_runner r;
    mf_layer_weights layers[N_LAYERS];
    mf_layer_state states[N_LAYERS];
} made_model;

/* Layer 1 attends to 9 positions, layer 2 to 7 and is not rotated. */
static void make(made_model *m, choices c)
{
    *m = (made_model){.recorder = {.base = {.ops = &recorder_ops}}};
    m->r.backend = &m->recorder.base;
    m->r.h = (mf_hparams){.n_layers = N_LAYERS,
                          .hidden_size = HIDDEN,
                          .n_heads = N_HEADS,
                          .n_kv_heads = N_KV_HEADS,
                          .head_dim = HEAD_DIM,
                          .n_rot = N_ROT,
                          .rope = {.interleaved = c.is_interleaved},
                          .attention_scale = 0.25f,
                          .window = {0, 9, 7},
                          .is_unrotated = {false, false, true},
                          .rms_eps = 0.5f};
    m->r.plan =
        (mf_plan){.n_chunk = N_ROWS, .h = span(1), .y = span(2), .cos = span(3), .sin = span(4)};
    m->r.plan.cache_type = MF_F16;
    for (uint64_t i = 0; i < MF_KIND_SPANS; i++)
        m->r.plan.kind[MF_LAYER_FULL][i] = span(10 + i);
    m->r.weights.layers = m->layers;
    m->r.layers = m->states;
    for (uint64_t i = 0; i < N_LAYERS; i++) {
        mf_full_weights *w = &m->layers[i].u.full;
        const uint64_t first = 100 * (i + 1);
        w->q = matrix(first, N_QUERY, HIDDEN);
        w->k = matrix(first + 1, N_KV, HIDDEN);
        w->v = matrix(first + 2, N_KV, HIDDEN);
        w->o = matrix(first + 3, HIDDEN, N_QUERY);
        if (c.has_gate)
            w->gate = matrix(first + 4, N_QUERY, HIDDEN);
        if (c.has_norms) {
            w->q_norm = span(first + 5);
            w->k_norm = span(first + 6);
        }
        if (c.has_biases) {
            w->q_bias = span(first + 7);
            w->k_bias = span(first + 8);
            w->v_bias = span(first + 9);
            w->o_bias = span(first + 10);
        }
        if (c.has_sinks)
            w->sinks = span(first + 11);
        m->states[i] = (mf_layer_state){.offset = {1000 * i, 1000 * i + 500}};
    }
}

static const mf_op *next(made_model *m, mf_op_kind kind)
{
    recorder *r = &m->recorder;
    REQUIRE(r->at < r->n);
    const mf_op *op = &r->ops[r->at++];
    REQUIRE(op->kind == kind);
    return op;
}

static void expect_bias(made_model *m, mf_span x, mf_span bias, uint32_t n_cols)
{
    const mf_op *op = next(m, MF_OP_ADD);
    CHECK(op->n_rows == N_ROWS && same(op->u.add.x, x) && same(op->u.add.y, bias));
    CHECK(op->u.add.n_cols == n_cols && op->u.add.y_is_one_row);
}

/* The projections of one input, and their biases. */
static void expect_projections(made_model *m, const mf_full_weights *w, const mf_span *s, choices c)
{
    const mf_op *op = next(m, MF_OP_MATMUL);
    const mf_matmul_params *p = &op->u.matmul;
    const mf_weight *const weights[] = {&w->q, &w->k, &w->v, &w->gate};
    const mf_span to[] = {s[0], s[2], s[3], s[1]}; /* the gate's lies behind the query's */
    CHECK(op->n_rows == N_ROWS && same(p->x, m->r.plan.h));
    REQUIRE(p->n == (c.has_gate ? 4u : 3u));
    for (uint32_t i = 0; i < p->n; i++)
        CHECK(same(p->weight[i].data, weights[i]->data) && same(p->y[i], to[i]));
    if (!c.has_biases)
        return;
    expect_bias(m, s[0], w->q_bias, N_QUERY);
    expect_bias(m, s[2], w->k_bias, N_KV);
    expect_bias(m, s[3], w->v_bias, N_KV);
}

/* Each head is normed, then rotated: in one operation where there is one, which knows no pairs of
 * neighbours. */
static void expect_heads(made_model *m, mf_span x, mf_span weight, uint32_t n_heads,
                         bool is_rotated)
{
    const bool is_normed = weight.buffer.id != 0, is_interleaved = m->r.h.rope.interleaved;
    if (is_normed && is_rotated && !is_interleaved) {
        const mf_op *op = next(m, MF_OP_HEAD_NORM_ROPE);
        const mf_head_norm_rope_params *p = &op->u.head_norm_rope;
        CHECK(op->n_rows == N_ROWS && same(p->x, x) && same(p->weight, weight));
        CHECK(same(p->cos, m->r.plan.cos) && same(p->sin, m->r.plan.sin) && p->eps == 0.5f);
        CHECK(p->n_heads == n_heads && p->head_dim == HEAD_DIM && p->n_rot == N_ROT);
        return;
    }
    if (is_normed) {
        const mf_op *op = next(m, MF_OP_RMSNORM);
        const mf_rmsnorm_params *p = &op->u.rmsnorm;
        CHECK(op->n_rows == N_ROWS * n_heads && same(p->x, x) && same(p->out, x));
        CHECK(same(p->weight, weight) && p->n_cols == HEAD_DIM && p->eps == 0.5f);
        CHECK(p->stride == 0 || p->stride == HEAD_DIM);
    }
    if (is_rotated) {
        const mf_op *op = next(m, MF_OP_ROPE);
        const mf_rope_params *p = &op->u.rope;
        CHECK(op->n_rows == N_ROWS && same(p->x, x) && p->interleaved == is_interleaved);
        CHECK(same(p->cos, m->r.plan.cos) && same(p->sin, m->r.plan.sin));
        CHECK(p->n_heads == n_heads && p->n_rot == N_ROT);
        CHECK(p->row_stride == n_heads * HEAD_DIM && p->head_stride == HEAD_DIM);
    }
}

static void expect_attention(made_model *m, uint32_t layer, const mf_span *s)
{
    static const uint32_t windows[N_LAYERS] = {0, 9, 7};
    const mf_op *op = next(m, MF_OP_ATTENTION);
    const mf_attention_params *p = &op->u.attention;
    CHECK(op->n_rows == N_ROWS && op->first_row == 0);
    CHECK(same(p->q, s[0]) && same(p->k, s[2]) && same(p->v, s[3]) && same(p->out, s[4]));
    CHECK(same(p->sinks, m->layers[layer].u.full.sinks));
    CHECK(p->n_heads == N_HEADS && p->n_kv_heads == N_KV_HEADS && p->head_dim == HEAD_DIM);
    CHECK_U64(p->window, windows[layer]);
    CHECK(p->cache_type == MF_F16 && p->scale == 0.25f);
    CHECK_U64(p->page_offset[0], 1000 * layer);
    CHECK_U64(p->page_offset[1], 1000 * layer + 500);
}

static void check_layer(choices c, uint32_t layer)
{
    made_model m;
    make(&m, c);
    const mf_full_weights *w = &m.layers[layer].u.full;
    const mf_span *s = m.r.plan.kind[MF_LAYER_FULL];
    mf_layer_kind_table[MF_LAYER_FULL]->forward(&m.r, N_ROWS, layer);
    expect_projections(&m, w, s, c);
    expect_heads(&m, s[0], w->q_norm, N_HEADS, layer != 2);
    expect_heads(&m, s[2], w->k_norm, N_KV_HEADS, layer != 2);
    expect_attention(&m, layer, s);
    if (c.has_gate) {
        const mf_op *gate = next(&m, MF_OP_SIGMOID_MUL);
        CHECK(gate->n_rows == N_ROWS && same(gate->u.sigmoid_mul.x, s[4]));
        CHECK(same(gate->u.sigmoid_mul.gate, s[1]) && gate->u.sigmoid_mul.n_cols == N_QUERY);
    }
    const mf_op *out = next(&m, MF_OP_MATMUL);
    CHECK(out->n_rows == N_ROWS && out->u.matmul.n == 1 && same(out->u.matmul.x, s[4]));
    CHECK(same(out->u.matmul.weight[0].data, w->o.data) && same(out->u.matmul.y[0], m.r.plan.y));
    if (c.has_biases)
        expect_bias(&m, m.r.plan.y, w->o_bias, HIDDEN);
    CHECK_U64(m.recorder.at, m.recorder.n);
}

/* A model without any rotation. */
static void check_unrotated(void)
{
    made_model m;
    make(&m, (choices){.has_norms = true});
    m.r.h.n_rot = 0;
    mf_layer_kind_table[MF_LAYER_FULL]->forward(&m.r, N_ROWS, 0);
    for (uint32_t i = 0; i < m.recorder.n; i++)
        CHECK(m.recorder.ops[i].kind != MF_OP_ROPE &&
              m.recorder.ops[i].kind != MF_OP_HEAD_NORM_ROPE);
    CHECK_U64(m.recorder.n, 5);
}

int main(void)
{
    for (uint32_t i = 0; i < 32; i++)
        for (uint32_t layer = 0; layer < N_LAYERS; layer++)
            check_layer((choices){.has_gate = (i & 1) != 0,
                                  .has_biases = (i & 2) != 0,
                                  .has_norms = (i & 4) != 0,
                                  .has_sinks = (i & 8) != 0,
                                  .is_interleaved = (i & 16) != 0},
                        layer);
    check_unrotated();
    return test_result();
}

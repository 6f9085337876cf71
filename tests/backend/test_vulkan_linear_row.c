/* SPDX-License-Identifier: MIT */
/*
 * A row of linear attention as one dispatch: the same bits of the row and of the states after it as
 * of the operations one after the other, token after token, the first of them of no state; whatever
 * the number of workgroups (one, where it is not known how many run side by side), however weights
 * lie, before and after the numbers of dispatches begin again; and that a workgroup which waits in
 * vain loses the device with a reason.
 */
#include "vulkan_joined.h"

#define N_SLOTS 16u
#define N_TOKENS 4u
#define DIM 128u
#define MOST_COLS 2048u
#define MOST_STATE ((uint64_t)3 << 20)

enum { X, NORM, QKV, Z, B, A, DELTA, CONV, A_LOG, DT_BIAS, HEAD_NORM };

typedef struct sizes {
    uint32_t n_cols, n_k_heads, n_v_heads, width;
    bool is_tiled;
} sizes;

typedef struct play {
    joined_play all;
    mf_op in, rule, out, row;
    uint64_t state_bytes, states[2];
} play;

typedef struct results {
    float x[N_TOKENS][MOST_COLS];
    unsigned char state[MOST_STATE];
} results;

static uint32_t channels(const sizes *s)
{
    return (2 * s->n_k_heads + s->n_v_heads) * DIM;
}

static mf_span slot(const play *p, uint32_t i)
{
    return joined_slot(&p->all, i);
}

/* shift: of the first weights, from where they would be aligned. */
static void make_in(play *p, const sizes *s, uint64_t shift)
{
    const uint32_t n_rows[] = {channels(s), s->n_v_heads * DIM, s->n_v_heads, s->n_v_heads};
    mf_matmul_params in = {
        .x = slot(p, X),
        .n = 4,
        .y = {slot(p, QKV), slot(p, Z), slot(p, B), slot(p, A)},
        .before = {.kind = MF_INPUT_NORMED, .weight = slot(p, NORM), .eps = 1e-6f},
        .after = {.kind = MF_OUTPUT_CONVOLVED, .weight = slot(p, CONV), .width = s->width}};
    p->all.at = N_SLOTS * JOINED_SLOT + shift;
    for (uint32_t i = 0; i < 4; i++)
        in.weight[i] = joined_weight(&p->all, 4, n_rows[i], s->n_cols);
    p->in = (mf_op){.kind = MF_OP_MATMUL, .n_rows = 1, .u.matmul = in};
}

static void make(play *p, const sizes *s, uint64_t shift)
{
    const uint64_t conv_bytes = (uint64_t)(s->width - 1) * channels(s) * sizeof(float);
    make_in(p, s, shift);
    const mf_gated_delta_params rule = {.qkv = slot(p, QKV),
                                        .a = slot(p, A),
                                        .b = slot(p, B),
                                        .a_log = slot(p, A_LOG),
                                        .dt_bias = slot(p, DT_BIAS),
                                        .out = slot(p, DELTA),
                                        .n_k_heads = s->n_k_heads,
                                        .n_v_heads = s->n_v_heads,
                                        .key_dim = DIM,
                                        .value_dim = DIM,
                                        .eps = 1e-6f,
                                        .is_tiled = s->is_tiled,
                                        .state_offset = conv_bytes};
    const mf_matmul_params out = {
        .x = slot(p, DELTA),
        .n = 1,
        .weight = {joined_weight(&p->all, 4, s->n_cols, s->n_v_heads * DIM)},
        .y = {slot(p, X)},
        .before = {.kind = MF_INPUT_HEADS_GATED,
                   .weight = slot(p, HEAD_NORM),
                   .gate = slot(p, Z),
                   .head_dim = DIM,
                   .eps = 1e-5f},
        .after = {.kind = MF_OUTPUT_ADDED}};
    p->rule = (mf_op){.kind = MF_OP_GATED_DELTA, .n_rows = 1, .u.gated_delta = rule};
    p->out = (mf_op){.kind = MF_OP_MATMUL, .n_rows = 1, .u.matmul = out};
    p->row =
        (mf_op){.kind = MF_OP_LINEAR_ROW, .n_rows = 1, .u.linear_row = {&p->in, &p->rule, &p->out}};
    p->state_bytes = conv_bytes + (uint64_t)s->n_v_heads * DIM * DIM * sizeof(float);
    REQUIRE(p->state_bytes <= MOST_STATE);
    for (uint32_t i = 0; i < 2; i++) {
        p->states[i] = (p->all.at + 255) / 256 * 256;
        p->all.at = p->states[i] + p->state_bytes;
    }
    REQUIRE(p->all.at <= JOINED_BYTES);
}

/* The first token has no state, the second's goes to another place, the others' stay where they
 * are. Returns dispatches of all. */
static uint64_t run(play *p, const sizes *s, bool is_joined, results *out)
{
    mf_op *const apart[] = {&p->in, &p->rule, &p->out}, *const joined[] = {&p->row};
    mf_backend *be = p->all.be;
    mf_error error = {0};
    const mf_span state[] = {{p->all.buffer, p->states[0]}, {p->all.buffer, p->states[1]}};
    uint64_t n = 0;
    joined_send(&p->all);
    joined_reserve(&p->all, apart, 3);
    if (is_joined)
        joined_reserve(&p->all, joined, 1);
    REQUIRE_OK(be->ops->reserve_batch(be, 1, 0, &error), &error);
    for (uint32_t t = 0; t < N_TOKENS; t++) {
        const mf_span before = t == 0 ? (mf_span){{0}, 0} : state[t > 1];
        const mf_sequence one = {.n_rows = 1, .position = t, .state = {before, state[t > 0]}};
        be->ops->begin_batch(be, &one, 1);
        n += joined_record(&p->all, is_joined ? joined : apart, is_joined ? 1 : 3);
        be->ops->read(be, slot(p, X), out->x[t], s->n_cols * sizeof(float));
    }
    REQUIRE_OK(mf_backend_read(be, state[1], out->state, p->state_bytes, &error), &error);
    return n;
}

static void compare(play *p, const char *what, const sizes *s, uint64_t n_dispatches)
{
    static results apart, joined;
    const size_t row = s->n_cols * sizeof(float);
    (void)run(p, s, false, &apart);
    const uint64_t n = run(p, s, true, &joined);
    for (uint32_t t = 0; t < N_TOKENS; t++) {
        CHECK_MSG(memcmp(apart.x[t], joined.x[t], row) == 0, "%s, %u columns, token %u: other sums",
                  what, s->n_cols, t);
        CHECK_MSG(t == 0 || memcmp(joined.x[t], joined.x[t - 1], row) != 0, "%s: nothing done",
                  what);
        for (uint32_t i = 0; i < s->n_cols; i++)
            CHECK(joined.x[t][i] - joined.x[t][i] == 0.0f);
    }
    CHECK_MSG(memcmp(apart.state, joined.state, p->state_bytes) == 0, "%s: other states", what);
    CHECK_MSG(n == n_dispatches, "%s: %u dispatches", what, (unsigned)n);
}

static void check_sizes(play *p)
{
    static const sizes list[] = {{512, 2, 4, 4, false},
                                 {1024, 4, 8, 2, true},
                                 {2048, 4, 16, 5, false},
                                 {2048, 16, 32, 4, true}};
    mf_vk_backend *be = (mf_vk_backend *)p->all.be;
    for (size_t i = 0; i < (vulkan_is_short() ? 2 : 4); i++) {
        joined_fill(&p->all);
        make(p, &list[i], 0);
        compare(p, "one after the other", &list[i], N_TOKENS);
        make(p, &list[i], 4);
        compare(p, "not aligned", &list[i], 3 * N_TOKENS);
        make(p, &list[i], 0);
        be->grid.epoch = UINT32_MAX - 2; /* the third token's number is the first again */
        compare(p, "numbers begin again", &list[i], N_TOKENS);
        CHECK(be->grid.epoch == N_TOKENS - 2);
    }
}

static void check_refusals(play *p)
{
    const sizes s = {512, 2, 4, 4, false};
    mf_op *const row = &p->row;
    mf_backend *be = p->all.be;
    make(p, &s, 0);
    CHECK(be->ops->supports_op(be, row));
    row->n_rows = 2; /* of one sequence or several */
    CHECK(!be->ops->supports_op(be, row));
    make(p, &s, 0);
    p->in.u.matmul.weight[1].shape.bits = 8;
    CHECK(!be->ops->supports_op(be, row));
    make(p, &s, 0);
    p->rule.u.gated_delta.has_key_decays = true;
    CHECK(!be->ops->supports_op(be, row));
    make(p, &s, 0);
    p->rule.u.gated_delta.key_dim = 64;
    CHECK(!be->ops->supports_op(be, row));
    make(p, &s, 0);
    p->out.u.matmul.after.kind = MF_OUTPUT_PUT;
    CHECK(!be->ops->supports_op(be, row));
}

static void check_device(uint32_t n_resident)
{
    const sizes s = {512, 2, 4, 4, false};
    play p = {.all = joined_open(n_resident)};
    const bool has = joined_has(&p.all, n_resident);
    if (has) {
        check_sizes(&p);
        check_refusals(&p);
    }
    make(&p, &s, 0);
    CHECK(p.all.be->ops->supports_op(p.all.be, &p.row) == has);
    if (has)
        joined_check_fault(&p.all, &p.row);
    joined_close(&p.all);
}

int main(void)
{
    if (!vulkan_is_there())
        return TEST_SKIPPED;
    check_device(0);
    check_device(1);
    return test_result();
}

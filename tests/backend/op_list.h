/* SPDX-License-Identifier: MIT */
/* The op list and the corners of the contracts, run on any backend. In a header, as the test's
 * counters are. */
#ifndef MF_TESTS_OP_LIST_H
#define MF_TESTS_OP_LIST_H

#include "op_cases.h"
#include "test.h"

typedef struct list_options {
    const char *label;
    double slack_factor; /* times the error that float32 on one core may make */
    uint32_t skew;       /* bytes past alignment that weights may be put at */
    /* [n_op_cases] results of an earlier run that must come out the same; NULL entries are filled.
     * NULL: none. */
    unsigned char **same;
    scene_wants *wants;  /* [n_op_cases] of earlier runs with this skew, zeroed at first; or NULL */
    bool is_unfinished;  /* cases that are not supported are left out */
    const char *without; /* and those with this in their name; or NULL */
    bool is_long;        /* of the operations */
    bool has_homes;      /* rows of what the scenes hold are shared out to nodes */
} list_options;

static void check_same(const op_case *c, const scene *s, const list_options *o, const char *what,
                       uint32_t n, const unsigned char *got, const unsigned char *want)
{
    size_t word = scene_differs(s, got, want);
    CHECK_MSG(word == SIZE_MAX, "%s, %s: %s %u: other bits at byte %zu", o->label, c->name, what, n,
              word * 4);
}

static void check_values(const op_case *c, const scene *s, const list_options *o, uint32_t step,
                         const unsigned char *result)
{
    size_t word = scene_check(s, result, o->slack_factor);
    if (word == SIZE_MAX) {
        CHECK(true);
        return;
    }
    float got;
    memcpy(&got, result + 4 * word, 4);
    CHECK_MSG(false, "%s, %s, step %u: byte %zu (role %d) is %.9g, expected %.9g +- %.3g", o->label,
              c->name, step, word * 4, s->roles[word], (double)got, s->want[word],
              s->slack[word] * o->slack_factor);
}

static void run_case(mf_backend *be, const op_case *c, scene *s, const list_options *o,
                     unsigned char **same)
{
    static const uint32_t steps[] = {SCENE_WHOLE, 1, 3, 32, SCENE_ALONE, SCENE_REVERSED};
    mf_error error = {0};
    unsigned char *whole = malloc(s->n_bytes), *pieces = malloc(s->n_bytes);
    if (whole == NULL || pieces == NULL)
        abort(); /* as plainly as an analyser sees it */
    CHECK_MSG(be->ops->supports_op(be, &s->op), "%s: %s is not supported", o->label, c->name);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        if ((steps[i] == SCENE_REVERSED && s->op.kind != MF_OP_EXPERTS) ||
            (steps[i] == SCENE_ALONE && s->sequences[0].n_rows == 0))
            continue;
        unsigned char *result = i == 0 ? whole : pieces;
        REQUIRE_OK(scene_play(s, be, steps[i], result, &error), &error);
        check_values(c, s, o, steps[i], result);
        if (i > 0)
            check_same(c, s, o, "in pieces of", steps[i], pieces, whole);
    }
    if (same != NULL && *same != NULL)
        check_same(c, s, o, "against an earlier run", 0, whole, *same);
    free(pieces);
    if (same != NULL && *same == NULL)
        *same = whole;
    else
        free(whole);
}

/* Whether operations that are long may differ from others. */
static inline bool has_long_kernels(mf_op_kind kind)
{
    return kind == MF_OP_MATMUL || kind == MF_OP_EXPERTS || kind == MF_OP_ATTENTION;
}

/* Every operation against float64, the same bits for any cut of the batch; returns how many cases
 * were left out. */
__attribute__((unused)) static uint32_t op_list_run(mf_backend *be, scene *s, const list_options *o)
{
    mf_error error = {0};
    uint32_t n_left_out = 0;
    for (size_t i = 0; i < n_op_cases; i++) {
        mf_buffer buffer = {0};
        REQUIRE_OK(be->ops->buffer_create(be, SCENE_BYTES, MF_USE_DEVICE, "scene", &buffer, &error),
                   &error);
        if (o->has_homes)
            be->ops->share_rows(be, (mf_span){buffer, 0}, SCENE_BYTES);
        if (o->wants != NULL)
            op_case_build_again(&op_cases[i], s, buffer, o->skew, o->wants);
        else
            op_case_build(&op_cases[i], s, buffer, o->skew);
        s->op.is_long = o->is_long;
        for (size_t w = 0; w < s->n_bytes / 4 && o->is_long; w++) /* float16's least step */
            s->slack[w] = fmax(s->slack[w], 0x1p-24 / o->slack_factor);
        if ((o->is_unfinished && !be->ops->supports_op(be, &s->op)) ||
            (o->without != NULL && strstr(op_cases[i].name, o->without) != NULL) ||
            (o->is_long && !has_long_kernels(s->op.kind)))
            n_left_out++;
        else
            run_case(be, &op_cases[i], s, o, o->same != NULL ? &o->same[i] : NULL);
        be->ops->buffer_free(be, buffer);
    }
    return n_left_out;
}

/* ----------------------------------------------------------------------------------- corners */

typedef struct desk {
    mf_backend *be;
    mf_buffer buffer;
} desk;

/* Operands of the corners lie 4096 bytes apart. */
static mf_span put(const desk *d, uint32_t at, const void *values, size_t n_bytes)
{
    mf_span span = {d->buffer, (uint64_t)at * 4096};
    d->be->ops->write(d->be, span, values, n_bytes);
    return span;
}

static void run_op(const desk *d, const mf_op *op)
{
    mf_error error = {0};
    REQUIRE_OK(d->be->ops->reserve(d->be, op, &error), &error);
    d->be->ops->record(d->be, op);
}

static void get(const desk *d, mf_span span, void *values, size_t n_bytes)
{
    mf_error error = {0};
    REQUIRE_OK(mf_backend_read(d->be, span, values, n_bytes, &error), &error);
}

static void top_k(const desk *d, const float *logits, uint32_t n, uint32_t k, bool normalise,
                  int32_t *ids, float *weights)
{
    memset(ids, 0xff, k * sizeof *ids);
    memset(weights, 0xff, k * sizeof *weights);
    mf_op op = {.kind = MF_OP_ROUTE, .n_rows = 1};
    op.u.route.logits = put(d, 0, logits, n * sizeof *logits);
    op.u.route.ids = put(d, 1, ids, k * sizeof *ids);
    op.u.route.weights = put(d, 2, weights, k * sizeof *weights);
    op.u.route.n_experts = n;
    op.u.route.k = k;
    op.u.route.normalise = normalise;
    op.u.route.n_groups = op.u.route.k_groups = 1;
    op.u.route.scale = 1.0f;
    run_op(d, &op);
    get(d, op.u.route.ids, ids, k * sizeof *ids);
    get(d, op.u.route.weights, weights, k * sizeof *weights);
}

static void check_ties(const desk *d)
{
    static const float ties[] = {1, 3, 2, 3, -5, 2, 3, 1, 2};
    static const int32_t order[] = {1, 3, 6, 2, 5, 8, 0, 7, 4};
    int32_t ids[9];
    float weights[9], equal[9] = {0};
    for (uint32_t k = 1; k <= 9; k++) {
        top_k(d, ties, 9, k, false, ids, weights);
        CHECK_BYTES(ids, order, k * sizeof *ids);
        for (uint32_t j = 1; j < k; j++)
            CHECK_MSG(weights[j] <= weights[j - 1], "weight %u rises", j);
        top_k(d, equal, 9, k, true, ids, weights);
        double sum = 0.0;
        for (uint32_t j = 0; j < k; j++) {
            CHECK_U64(ids[j], j);
            sum += weights[j];
        }
        CHECK_MSG(fabs(sum - 1.0) < 1e-6, "%u normalised weights add up to %g", k, sum);
    }
}

/* Nothing sensible comes of NaN and infinity, but the ids are used as indices: each in range, and
 * none twice. */
static void check_not_a_number(const desk *d)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, -NAN, 3e38f, -3e38f};
    float logits[37], weights[37];
    int32_t ids[37];
    uint64_t random = 1;
    for (uint32_t round = 0; round < 60; round++) {
        uint32_t k = round % 3 == 0 ? 37 : 1 + round % 8;
        for (uint32_t i = 0; i < 37; i++) {
            uint64_t r = test_random(&random) >> 20;
            bool is_odd = round % 4 == 3 || r % 4 == 0;
            logits[i] = round == 0 ? NAN : is_odd ? odd[r / 4 % 6] : (float)(r % 64) / 8.0f;
        }
        top_k(d, logits, 37, k, round % 2 == 0, ids, weights);
        bool seen[37] = {false};
        for (uint32_t j = 0; j < k; j++) {
            bool in_range = ids[j] >= 0 && ids[j] < 37;
            CHECK_MSG(in_range && !seen[ids[j]], "round %u: id %u is %d", round, j, ids[j]);
            if (in_range)
                seen[ids[j]] = true;
        }
    }
}

/* Of sigmoid scores one may be NaN alone: it comes after every number, also in the rank of groups.
 */
static void check_scores_not_a_number(const desk *d)
{
    static const float logits[] = {NAN, 1, -2, NAN, 3, 0, NAN, -9};
    static const int32_t order[] = {4, 1, 5, 2, 7};
    mf_op op = {.kind = MF_OP_ROUTE, .n_rows = 1};
    op.u.route.score = MF_SCORE_SIGMOID;
    op.u.route.n_experts = 8;
    op.u.route.scale = 1.0f;
    op.u.route.ids = put(d, 1, order, sizeof order);
    op.u.route.weights = put(d, 2, logits, sizeof logits);
    for (uint32_t n_groups = 1; n_groups <= 2; n_groups++) {
        op.u.route.n_groups = op.u.route.k_groups = n_groups;
        for (uint32_t k = 1; k <= 5; k++) {
            int32_t ids[8];
            float weights[8];
            op.u.route.logits = put(d, 0, logits, sizeof logits);
            op.u.route.k = k;
            run_op(d, &op);
            get(d, op.u.route.ids, ids, k * sizeof *ids);
            get(d, op.u.route.weights, weights, k * sizeof *weights);
            CHECK_BYTES(ids, order, k * sizeof *ids);
            for (uint32_t j = 0; j < k; j++)
                CHECK(isfinite(weights[j]));
        }
    }
}

/* The order of picks decides the rounding; where the experts' rows lie does not. */
static void check_combine_order(const desk *d)
{
    static const float values[] = {1e8f, 1.0f, -1e8f};
    /* place[j] of the pick j, and what ((0 + first) + second) + third gives */
    static const struct {
        uint32_t place[3];
        float sum;
    } orders[] = {{{0, 1, 2}, 0.0f}, {{0, 2, 1}, 1.0f}, {{1, 0, 2}, 0.0f},
                  {{2, 0, 1}, 1.0f}, {{1, 2, 0}, 0.0f}, {{2, 1, 0}, 0.0f}};
    static const float ones[] = {1, 1, 1}, zero[37] = {0};
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        float experts[3][37], x[37];
        for (uint32_t e = 0; e < 3; e++) {
            for (uint32_t c = 0; c < 37; c++)
                experts[e][c] = values[e];
        }
        mf_op op = {.kind = MF_OP_COMBINE, .n_rows = 1};
        op.u.combine.x = put(d, 0, zero, sizeof zero);
        op.u.combine.weights = put(d, 1, ones, sizeof ones);
        op.u.combine.experts = put(d, 2, experts, sizeof experts);
        op.u.combine.shared = put(d, 3, zero, sizeof zero);
        op.u.combine.shared_gate = put(d, 4, zero, sizeof zero[0]);
        op.u.combine.place = orders[i].place;
        op.u.combine.n_cols = 37;
        op.u.combine.k = 3;
        run_op(d, &op);
        get(d, op.u.combine.x, x, sizeof x);
        for (uint32_t c = 0; c < 37; c++)
            CHECK_MSG(x[c] == orders[i].sum, "order %zu, column %u: %g", i, c, (double)x[c]);
    }
}

/* What comes of one gate or one up that is NaN, where both have limits. */
static float limited_swiglu(const desk *d, uint32_t lost, float limit)
{
    float gate[37], up[37], out[37];
    for (uint32_t i = 0; i < 37; i++) {
        gate[i] = i == 5 && lost == 0 ? NAN : (float)i - 18.0f;
        up[i] = i == 5 && lost == 1 ? NAN : 18.0f - (float)i;
    }
    const mf_op op = {.kind = MF_OP_SWIGLU,
                      .n_rows = 1,
                      .u.swiglu = {.gate = put(d, 0, gate, sizeof gate),
                                   .up = put(d, 1, up, sizeof up),
                                   .out = put(d, 2, up, sizeof up),
                                   .n_cols = 37,
                                   .limit = limit}};
    run_op(d, &op);
    get(d, op.u.swiglu.out, out, sizeof out);
    CHECK(isfinite(out[4]) && isfinite(out[6]));
    return out[5];
}

static mf_weight put_floats(const desk *d, uint32_t at, const float *values, uint32_t n_rows,
                            uint32_t n_cols)
{
    return (mf_weight){.shape = {.kind = MF_WEIGHT_FLOAT,
                                 .float_type = MF_F32,
                                 .n_rows = n_rows,
                                 .n_cols = n_cols},
                       .data = put(d, at, values, (size_t)n_rows * n_cols * sizeof *values)};
}

/* The same of an expert, in one of its hidden values; all of them go into the result. */
static float limited_expert(const desk *d, uint32_t lost, mf_expert_steps steps)
{
    enum { COLS = 4, HIDDEN = 8 };
    static const uint32_t x_rows[] = {0};
    float ones[HIDDEN * COLS], bias[2][HIDDEN] = {{0}}, act[2 * HIDDEN] = {0}, out[COLS];
    for (uint32_t i = 0; i < HIDDEN * COLS; i++)
        ones[i] = 1.0f;
    if (lost < 2)
        bias[lost][3] = NAN;
    steps.gate_bias = put(d, 4, bias[0], sizeof bias[0]);
    steps.up_bias = put(d, 5, bias[1], sizeof bias[1]);
    const mf_expert_item item = {.gate = put_floats(d, 1, ones, HIDDEN, COLS),
                                 .up = put_floats(d, 2, ones, HIDDEN, COLS),
                                 .down = put_floats(d, 3, ones, COLS, HIDDEN),
                                 .x_rows = x_rows,
                                 .n_rows = 1};
    const mf_op op = {.kind = MF_OP_EXPERTS,
                      .n_rows = 1,
                      .u.experts = {.x = put(d, 0, ones, COLS * sizeof *ones),
                                    .act = put(d, 6, act, sizeof act),
                                    .out = put(d, 7, act, sizeof out),
                                    .steps = steps,
                                    .items = &item,
                                    .n_items = 1}};
    run_op(d, &op);
    get(d, op.u.experts.out, out, sizeof out);
    return out[0];
}

/* A limit makes no number of what is none: that logits are not finite is how damaged weights
 * show. */
static void check_limits_of_nan(const desk *d)
{
    const mf_expert_steps steps[] = {{.is_clamped = true, .limit = 1.25f, .alpha = 1.7f},
                                     {.silu_limit = 1.25f}};
    for (uint32_t lost = 0; lost < 2; lost++) {
        CHECK(isnan(limited_swiglu(d, lost, 0.0f)));
        CHECK_MSG(isnan(limited_swiglu(d, lost, 1.25f)), "%u: NaN becomes a number", lost);
    }
    for (uint32_t i = 0; i < 2; i++) {
        CHECK(isfinite(limited_expert(d, 2, steps[i])));
        for (uint32_t lost = 0; lost < 2; lost++)
            CHECK_MSG(isnan(limited_expert(d, lost, steps[i])),
                      "steps %u, %u: NaN becomes a number", i, lost);
    }
}

enum { LOST_DIM = 64, LOST_ROWS = 3 };

/* Attention of rows with a sink, `step` rows at a time. The second row's key is NaN in one place,
 * or the sink is. */
static void attend_lost(const desk *d, mf_dtype type, uint32_t step, bool is_sink, float *out)
{
    mf_error error = {0};
    float rows[LOST_ROWS * LOST_DIM], keys[LOST_ROWS * LOST_DIM];
    const float sink = is_sink ? NAN : 1.0f;
    for (uint32_t i = 0; i < LOST_ROWS * LOST_DIM; i++)
        rows[i] = keys[i] = (float)(i % 7) / 4.0f - 0.5f;
    if (!is_sink)
        keys[LOST_DIM + 5] = NAN;
    const mf_span page = {d->buffer, (uint64_t)4 * 4096};
    mf_op op = {.kind = MF_OP_ATTENTION, .n_rows = step};
    mf_attention_params *p = &op.u.attention;
    *p = (mf_attention_params){.q = put(d, 0, rows, sizeof rows),
                               .k = put(d, 1, keys, sizeof keys),
                               .v = put(d, 2, rows, sizeof rows),
                               .out = put(d, 3, rows, sizeof rows),
                               .n_heads = 1,
                               .n_kv_heads = 1,
                               .head_dim = LOST_DIM,
                               .cache_type = type,
                               .page_offset = {0, (uint64_t)2 * 4096},
                               .scale = 0.125f};
    p->sinks = mf_span_at(p->out, sizeof rows);
    d->be->ops->write(d->be, p->sinks, &sink, sizeof sink);
    REQUIRE_OK(d->be->ops->reserve_batch(d->be, 1, 1, &error), &error);
    const mf_span all = p->out;
    for (uint32_t row = 0; row < LOST_ROWS; row += step) {
        const mf_sequence seq = {.n_rows = step, .position = row, .pages = &page};
        mf_span *const spans[] = {&p->q, &p->k, &p->v, &p->out};
        d->be->ops->begin_batch(d->be, &seq, 1);
        run_op(d, &op);
        for (uint32_t i = 0; i < 4; i++)
            *spans[i] = mf_span_at(*spans[i], step * LOST_DIM * sizeof(float));
    }
    get(d, all, out, sizeof rows);
}

/* Neither is left out of the softmax, where numbers are left. */
static void check_lost_scores(const desk *d)
{
    static const mf_dtype types[] = {MF_F32, MF_BF16, MF_Q8};
    for (uint32_t i = 0; i < 12; i++) {
        const mf_dtype type = types[i % 3];
        const bool is_sink = i >= 6;
        const uint32_t step = i % 6 < 3 ? LOST_ROWS : 1, first = is_sink ? 0 : 1;
        float out[LOST_ROWS * LOST_DIM];
        uint32_t n_numbers = 0;
        attend_lost(d, type, step, is_sink, out);
        for (uint32_t c = 0; c < LOST_DIM && !is_sink; c++)
            CHECK_MSG(isfinite(out[c]), "cache %u, %u rows: column %u before it is %g",
                      (unsigned)type, step, c, (double)out[c]);
        for (uint32_t c = first * LOST_DIM; c < LOST_ROWS * LOST_DIM; c++)
            n_numbers += !isnan(out[c]);
        CHECK_MSG(n_numbers == 0, "cache %u, %u rows, %s: %u values are numbers", (unsigned)type,
                  step, is_sink ? "sink" : "key", n_numbers);
    }
}

static void check_support(mf_backend *be)
{
    mf_op op = {.kind = (mf_op_kind)0, .n_rows = 1};
    CHECK(!be->ops->supports_op(be, &op));
    op.kind = (mf_op_kind)(MF_OP_FINITE + 1);
    CHECK(!be->ops->supports_op(be, &op));
    op.kind = (mf_op_kind)0x7fffffff;
    CHECK(!be->ops->supports_op(be, &op));
}

/* Ties, what is not a number, the order of sums. */
__attribute__((unused)) static void op_values_run(mf_backend *be)
{
    mf_error error = {0};
    desk d = {.be = be};
    REQUIRE_OK(be->ops->buffer_create(be, 8 * 4096, MF_USE_DEVICE, "corners", &d.buffer, &error),
               &error);
    check_ties(&d);
    check_not_a_number(&d);
    check_scores_not_a_number(&d);
    check_combine_order(&d);
    check_limits_of_nan(&d);
    check_lost_scores(&d);
    be->ops->buffer_free(be, d.buffer);
}

/* The same, of a backend that has what the list has and no more. */
__attribute__((unused)) static void op_corners_run(mf_backend *be)
{
    op_values_run(be);
    check_support(be);
}

#endif

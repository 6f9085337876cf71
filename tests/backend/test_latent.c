/* SPDX-License-Identifier: MIT */
/*
 * Latent attention as the forward pass records it, absorbed, against the expanded form in float64:
 * keys and values of every head and position, then softmax. And the router's choice in cases that
 * can be worked out by hand.
 */
#include "test.h"

#include "backend/backend.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What the absorbed form may differ from the expanded by, and a bfloat16 cache from a float32 one,
 * relative to the largest output. */
#define MAX_RELATIVE 1e-5
#define MAX_RELATIVE_BF16 1e-2

typedef struct shape {
    uint32_t n_heads, nope, rot, value, rank, n_positions, chunk;
} shape;

/* One run: the buffer's spans and the inputs as numbers. */
typedef struct run {
    mf_backend *be;
    shape s;
    mf_buffer buffer;
    uint64_t used;
    mf_span w, q, kv, cache, q_latent, latent, out;
    float *weights, *queries, *latents; /* [heads (nope + value), rank], [positions, ...] twice */
    float *got;                         /* [positions, heads * value] */
} run;

static float random_float(uint64_t *state)
{
    return (float)((double)(test_random(state) >> 11) * 0x1p-52 - 1.0);
}

static float *random_floats(uint64_t *state, size_t n, float scale)
{
    float *x = malloc(n * sizeof *x);
    REQUIRE(x != NULL);
    for (size_t i = 0; i < n; i++)
        x[i] = random_float(state) * scale;
    return x;
}

static mf_span take(run *r, size_t n_floats)
{
    mf_span span = {r->buffer, r->used};
    r->used += (n_floats * sizeof(float) + 63) / 64 * 64;
    return span;
}

static void run_open(run *r, mf_backend *be, const shape *s)
{
    uint64_t state = 7 + s->rank;
    mf_error error = {0};
    size_t n = s->n_positions, rows = (size_t)s->n_heads * (s->nope + s->value);
    size_t q_width = (size_t)s->n_heads * (s->nope + s->rot), kv_width = s->rank + s->rot;
    *r = (run){.be = be, .s = *s};
    r->weights = random_floats(&state, rows * s->rank, 2.0f / sqrtf((float)s->rank));
    r->queries = random_floats(&state, n * q_width, 2.0f);
    r->latents = random_floats(&state, n * kv_width, 2.0f);
    r->got = calloc(n * s->n_heads * s->value, sizeof(float));
    size_t total = rows * s->rank + n * (q_width + 2 * kv_width) +
                   s->chunk * s->n_heads * (2 * (size_t)s->rank + s->value) + 1024;
    REQUIRE_OK(be->ops->buffer_create(be, total * sizeof(float), MF_USE_DEVICE, "test", &r->buffer,
                                      &error),
               &error);
    r->w = take(r, rows * s->rank);
    r->q = take(r, n * q_width);
    r->kv = take(r, n * kv_width);
    r->cache = take(r, n * kv_width);
    r->q_latent = take(r, (size_t)s->chunk * s->n_heads * s->rank);
    r->latent = take(r, (size_t)s->chunk * s->n_heads * s->rank);
    r->out = take(r, (size_t)s->chunk * s->n_heads * s->value);
    be->ops->write(be, r->w, r->weights, rows * s->rank * sizeof(float));
    be->ops->write(be, r->q, r->queries, n * q_width * sizeof(float));
    be->ops->write(be, r->kv, r->latents, n * kv_width * sizeof(float));
}

static void run_close(run *r)
{
    r->be->ops->buffer_free(r->be, r->buffer);
    free(r->weights);
    free(r->queries);
    free(r->latents);
    free(r->got);
}

static void play(mf_backend *be, const mf_op *op)
{
    mf_error error = {0};
    REQUIRE_OK(be->ops->reserve(be, op, &error), &error);
    be->ops->record(be, op);
}

static mf_span floats_at(mf_span span, size_t n)
{
    return mf_span_at(span, n * sizeof(float));
}

static mf_op head_matmul(const run *r, uint32_t n, bool is_key, mf_span x, mf_span y)
{
    const shape *s = &r->s;
    uint32_t rows = s->nope + s->value, x_head = is_key ? s->nope + s->rot : s->rank;
    uint32_t y_head = is_key ? s->rank : s->value;
    const mf_weight w = {.shape = {.kind = MF_WEIGHT_FLOAT,
                                   .float_type = MF_F32,
                                   .n_rows = s->n_heads * rows,
                                   .n_cols = s->rank},
                         .data = r->w};
    return (mf_op){.kind = MF_OP_HEAD_MATMUL,
                   .n_rows = n,
                   .u.head_matmul = {.w = {.weight = w,
                                           .head_rows = rows,
                                           .first_row = is_key ? 0 : s->nope,
                                           .n_rows = is_key ? s->nope : s->value,
                                           .transposed = is_key},
                                     .x = x,
                                     .y = y,
                                     .n_heads = s->n_heads,
                                     .x_row = s->n_heads * x_head,
                                     .x_head = x_head,
                                     .y_row = s->n_heads * y_head,
                                     .y_head = y_head}};
}

/* Positions first .. first + n - 1. */
static void run_chunk(run *r, uint32_t first, uint32_t n, mf_dtype cache_type, float scale)
{
    const shape *s = &r->s;
    const uint32_t head = s->nope + s->rot;
    const mf_span q = floats_at(r->q, (size_t)first * s->n_heads * head);
    enum { N_PAGES = 64 };
    REQUIRE(s->n_positions <= N_PAGES * MF_PAGE_TOKENS);
    mf_span pages[N_PAGES];
    for (uint32_t p = 0; p < N_PAGES; p++) {
        uint64_t page_bytes = MF_PAGE_TOKENS * (uint64_t)(s->rank + s->rot);
        page_bytes *= mf_dtype_bytes(cache_type);
        pages[p] = mf_span_at(r->cache, p * page_bytes);
    }
    const mf_sequence seq = {.n_rows = n, .position = first, .pages = pages};
    mf_error error = {0};
    REQUIRE_OK(r->be->ops->reserve_batch(r->be, 1, N_PAGES, &error), &error);
    r->be->ops->begin_batch(r->be, &seq, 1);
    const mf_op absorb = head_matmul(r, n, true, q, r->q_latent);
    play(r->be, &absorb);
    const mf_op attend = {
        .kind = MF_OP_LATENT_ATTENTION,
        .n_rows = n,
        .u.latent_attention = {.q = r->q_latent,
                               .q_rot = floats_at(q, s->nope),
                               .kv = floats_at(r->kv, (size_t)first * (s->rank + s->rot)),
                               .out = r->latent,
                               .n_heads = s->n_heads,
                               .n_latent = s->rank,
                               .n_rot = s->rot,
                               .q_rot_row = s->n_heads * head,
                               .q_rot_head = head,
                               .cache_type = cache_type,
                               .scale = scale}};
    play(r->be, &attend);
    const mf_op expand = head_matmul(r, n, false, r->latent, r->out);
    const uint64_t before = r->be->ops->weight_bytes(r->be);
    play(r->be, &expand);
    CHECK_U64(r->be->ops->weight_bytes(r->be) - before,
              (uint64_t)s->n_heads * s->value * s->rank * sizeof(float));
    size_t width = (size_t)s->n_heads * s->value;
    REQUIRE_OK(
        mf_backend_read(r->be, r->out, r->got + first * width, n * width * sizeof(float), &error),
        &error);
}

static void run_all(run *r, mf_dtype cache_type, float scale)
{
    for (uint32_t first = 0; first < r->s.n_positions; first += r->s.chunk) {
        uint32_t left = r->s.n_positions - first;
        run_chunk(r, first, left < r->s.chunk ? left : r->s.chunk, cache_type, scale);
    }
}

/* ----------------------------------------------------------------------------- expanded form */

/* Keys [positions, nope + rot] and values [positions, value] of a head, as published. */
static void expand_head(const run *r, uint32_t h, double *k, double *v)
{
    const shape *s = &r->s;
    size_t head = s->nope + s->rot;
    const float *w = r->weights + (size_t)h * (s->nope + s->value) * s->rank;
    for (uint32_t p = 0; p < s->n_positions; p++) {
        const float *latent = r->latents + (size_t)p * (s->rank + s->rot);
        for (uint32_t i = 0; i < s->nope + s->value; i++) {
            double sum = 0.0;
            for (uint32_t c = 0; c < s->rank; c++)
                sum += (double)w[(size_t)i * s->rank + c] * latent[c];
            if (i < s->nope)
                k[p * head + i] = sum;
            else
                v[(size_t)p * s->value + i - s->nope] = sum;
        }
        for (uint32_t i = 0; i < s->rot; i++)
            k[p * head + s->nope + i] = latent[s->rank + i];
    }
}

static void attend_position(const run *r, uint32_t h, uint32_t p, const double *k, const double *v,
                            float scale, double *out)
{
    const shape *s = &r->s;
    size_t head = s->nope + s->rot;
    const float *q = r->queries + ((size_t)p * s->n_heads + h) * head;
    double sum = 0.0;
    memset(out, 0, s->value * sizeof *out);
    for (uint32_t t = 0; t <= p; t++) {
        double dot = 0.0;
        for (size_t i = 0; i < head; i++)
            dot += q[i] * k[t * head + i];
        double weight = exp(dot * scale); /* scores are small here */
        sum += weight;
        for (uint32_t i = 0; i < s->value; i++)
            out[i] += weight * v[(size_t)t * s->value + i];
    }
    for (uint32_t i = 0; i < s->value; i++)
        out[i] /= sum;
}

/* The largest difference, relative to the largest output. */
static double difference(const run *r, float scale)
{
    const shape *s = &r->s;
    double *k = calloc((size_t)s->n_positions * (s->nope + s->rot), sizeof *k);
    double *v = calloc((size_t)s->n_positions * s->value, sizeof *v);
    double *out = calloc(s->value, sizeof *out), diff = 0.0, largest = 0.0;
    for (uint32_t h = 0; h < s->n_heads; h++) {
        expand_head(r, h, k, v);
        for (uint32_t p = 0; p < s->n_positions; p++) {
            const float *got = r->got + ((size_t)p * s->n_heads + h) * s->value;
            attend_position(r, h, p, k, v, scale, out);
            for (uint32_t i = 0; i < s->value; i++) {
                diff = fmax(diff, fabs(got[i] - out[i]));
                largest = fmax(largest, fabs(out[i]));
            }
        }
    }
    free(k);
    free(v);
    free(out);
    return diff / largest;
}

static void check_expanded(mf_backend *be)
{
    static const shape shapes[] = {
        {4, 16, 8, 12, 32, 70, 70},     {3, 24, 6, 20, 40, 45, 7},    {1, 8, 2, 8, 16, 5, 1},
        {2, 128, 64, 128, 512, 90, 64}, {17, 16, 8, 16, 24, 300, 64}, {2, 16, 8, 16, 48, 700, 512},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        run r;
        float scale = 0.3f / sqrtf((float)(shapes[i].nope + shapes[i].rot));
        run_open(&r, be, &shapes[i]);
        run_all(&r, MF_F32, scale);
        double diff = difference(&r, scale);
        CHECK_MSG(diff <= MAX_RELATIVE, "%s, shape %zu: absorbed differs by %g",
                  be->ops->device_name(be), i, diff);
        run_all(&r, MF_BF16, scale);
        diff = difference(&r, scale);
        CHECK_MSG(diff <= MAX_RELATIVE_BF16, "%s, shape %zu: with bfloat16 by %g",
                  be->ops->device_name(be), i, diff);
        run_close(&r);
    }
}

/* ------------------------------------------------------------------------------------ routers */

typedef struct routed {
    int32_t ids[8];
    float weights[8];
} routed;

static routed route(mf_backend *be, const mf_op *like, const float *logits, const float *bias)
{
    mf_error error = {0};
    mf_buffer buffer;
    mf_op op = *like;
    routed out;
    uint32_t n = op.u.route.n_experts;
    REQUIRE_OK(be->ops->buffer_create(be, 4096, MF_USE_DEVICE, "router", &buffer, &error), &error);
    op.n_rows = 1;
    op.u.route.logits = (mf_span){buffer, 0};
    op.u.route.ids = (mf_span){buffer, 1024};
    op.u.route.weights = (mf_span){buffer, 2048};
    be->ops->write(be, op.u.route.logits, logits, n * sizeof *logits);
    if (bias != NULL) {
        op.u.route.bias = (mf_span){buffer, 3072};
        be->ops->write(be, op.u.route.bias, bias, n * sizeof *bias);
    }
    play(be, &op);
    be->ops->read(be, op.u.route.ids, out.ids, op.u.route.k * sizeof *out.ids);
    be->ops->read(be, op.u.route.weights, out.weights, op.u.route.k * sizeof *out.weights);
    REQUIRE_OK(mf_backend_finish(be, &error), &error);
    be->ops->buffer_free(be, buffer);
    return out;
}

static void expect_routed(const char *what, const routed *got, uint32_t k, const int32_t *ids,
                          const double *weights)
{
    for (uint32_t j = 0; j < k; j++) {
        CHECK_MSG(got->ids[j] == ids[j], "%s: pick %u is %d, not %d", what, j, got->ids[j], ids[j]);
        CHECK_MSG(fabs(got->weights[j] - weights[j]) <= 2e-7 + 2e-6 * fabs(weights[j]),
                  "%s: weight %u is %.9g, not %.9g", what, j, (double)got->weights[j], weights[j]);
    }
}

static mf_op noaux(uint32_t n, uint32_t k, uint32_t n_groups, uint32_t k_groups, bool normalise)
{
    return (mf_op){.kind = MF_OP_ROUTE,
                   .u.route = {.n_experts = n,
                               .k = k,
                               .n_groups = n_groups,
                               .k_groups = k_groups,
                               .score = MF_SCORE_SIGMOID,
                               .group_rule = MF_GROUP_TOP2,
                               .normalise = normalise,
                               .eps = 1e-20f,
                               .scale = 2.0f}};
}

static mf_op greedy(uint32_t n, uint32_t k, uint32_t n_groups, uint32_t k_groups)
{
    mf_op op = noaux(n, k, n_groups, k_groups, false);
    op.u.route.score = MF_SCORE_SOFTMAX;
    op.u.route.group_rule = MF_GROUP_MAX;
    op.u.route.scale = 1.0f;
    return op;
}

#define LOG3 1.0986122886681098f /* sigmoid: 3/4; of minus it: 1/4 */

static void check_noaux(mf_backend *be)
{
    static const float zeros[8] = {0}, none[8] = {0};
    static const double quarters[4] = {0.5, 0.5, 0.5, 0.5};
    mf_op op = noaux(8, 4, 4, 2, true);
    /* All equal: the lowest groups, the lowest experts. */
    routed got = route(be, &op, zeros, none);
    expect_routed("all equal", &got, 4, (const int32_t[]){0, 1, 2, 3}, quarters);

    /* A group is ranked by its two best together: 1/2 + 1/2 beats 3/4 + 0. */
    static const float pairs[8] = {LOG3, -100, 0, 0, -100, -100, -LOG3, -LOG3};
    op = noaux(8, 2, 4, 1, true);
    got = route(be, &op, pairs, none);
    expect_routed("sum of two", &got, 2, (const int32_t[]){2, 3}, (const double[]){1, 1});

    /* The bias chooses, the score weighs: scores 3/4, 1/4, 1/2, 1/2. */
    static const float logits[4] = {LOG3, -LOG3, 0, 0}, bias[4] = {-0.5f, 0.5f, 0.125f, 0};
    op = noaux(4, 2, 1, 1, true);
    got = route(be, &op, logits, bias);
    expect_routed("bias", &got, 2, (const int32_t[]){1, 2}, (const double[]){2.0 / 3, 4.0 / 3});
    op = noaux(4, 2, 1, 1, false);
    got = route(be, &op, logits, bias);
    expect_routed("not normalised", &got, 2, (const int32_t[]){1, 2}, (const double[]){0.5, 1});

    /* Ties among groups go to the lower one, also where it is not the first. */
    static const float tied[6] = {-LOG3, -LOG3, LOG3, 0, 0, LOG3};
    op = noaux(6, 2, 3, 1, true);
    got = route(be, &op, tied, none);
    expect_routed("tied groups", &got, 2, (const int32_t[]){2, 3}, (const double[]){1.2, 0.8});

    /* Two experts are kept of the three wanted: the third is the first masked, at its own score. */
    op = noaux(6, 3, 3, 1, false);
    got = route(be, &op, tied, none);
    expect_routed("fewer than k", &got, 3, (const int32_t[]){2, 3, 0},
                  (const double[]){1.5, 1, 0.5});

    /* Every choice is -infinity: as if all groups were masked. */
    static const float lowest[6] = {-INFINITY, -INFINITY, -INFINITY,
                                    -INFINITY, -INFINITY, -INFINITY};
    op = noaux(6, 3, 3, 2, true);
    got = route(be, &op, zeros, lowest);
    expect_routed("all masked", &got, 3, (const int32_t[]){0, 1, 2},
                  (const double[]){2.0 / 3, 2.0 / 3, 2.0 / 3});

    /* Scores that vanish: the epsilon keeps the weights finite. */
    static const float vanishing[4] = {-200, -200, -200, -200};
    op = noaux(4, 2, 2, 1, true);
    got = route(be, &op, vanishing, none);
    expect_routed("vanishing", &got, 2, (const int32_t[]){0, 1}, (const double[]){0, 0});
}

static void check_greedy(mf_backend *be)
{
    /* exp: 1 3 9 3 1 1, together 18 */
    static const float logits[6] = {0, LOG3, 2 * LOG3, LOG3, 0, 0};
    mf_op op = greedy(6, 3, 1, 1);
    routed got = route(be, &op, logits, NULL);
    expect_routed("greedy", &got, 3, (const int32_t[]){2, 1, 3},
                  (const double[]){0.5, 1.0 / 6, 1.0 / 6});
    /* The best group is the one of the best expert; the first of equals is kept beside it. */
    op = greedy(6, 3, 3, 2);
    got = route(be, &op, logits, NULL);
    expect_routed("group limited", &got, 3, (const int32_t[]){2, 1, 3},
                  (const double[]){0.5, 1.0 / 6, 1.0 / 6});
    /* Masked experts have the score 0, and come by index. */
    op = greedy(6, 4, 3, 1);
    got = route(be, &op, logits, NULL);
    expect_routed("greedy, fewer than k", &got, 4, (const int32_t[]){2, 3, 0, 1},
                  (const double[]){0.5, 1.0 / 6, 0, 0});
}

int main(void)
{
    for (uint32_t tier = MF_CPU_SCALAR; tier < MF_CPU_END; tier++) {
        if (mf_kernels_get(tier) == NULL)
            continue;
        mf_error error = {0};
        mf_backend *be = NULL;
        const mf_backend_options options = {.n_threads = 2, .cpu_tier = tier};
        REQUIRE_OK(mf_backend_open(&options, &be, &error), &error);
        check_expanded(be);
        check_noaux(be);
        check_greedy(be);
        be->ops->destroy(be);
    }
    return test_result();
}

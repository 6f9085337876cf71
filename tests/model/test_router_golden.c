/* SPDX-License-Identifier: MIT */
/*
 * The routers of the DeepSeek family on 10,000 random rows against those of transformers
 * (data/router.bin): which experts, and of some rows with what weights. The logits are made here by
 * the generator that made them there.
 */
#include "golden.h"

#include "backend/backend.h"
#include "base/cpu.h"

enum { NOAUX, GREEDY, BY_GROUP };

/* The head of one shape in the file. */
typedef struct shape {
    uint32_t kind, n_experts, n_groups, k_groups, k, normalise;
    float scale;
    uint32_t n_rows, weights_every, n_skipped;
    uint64_t key;
    const unsigned char *skipped, *ids, *weights;
} shape;

static const unsigned char *take(const unsigned char **p, size_t n)
{
    const unsigned char *at = *p;
    *p += n;
    return at;
}

static uint32_t take_u32(const unsigned char **p)
{
    uint32_t value;
    memcpy(&value, take(p, 4), 4);
    return value;
}

static shape take_shape(const unsigned char **p)
{
    shape s;
    uint32_t *const first[] = {&s.kind, &s.n_experts, &s.n_groups, &s.k_groups, &s.k, &s.normalise};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        *first[i] = take_u32(p);
    memcpy(&s.scale, take(p, 4), 4);
    s.n_rows = take_u32(p);
    s.weights_every = take_u32(p);
    s.n_skipped = take_u32(p);
    memcpy(&s.key, take(p, 8), 8);
    s.skipped = take(p, 4 * (size_t)s.n_skipped);
    s.ids = take(p, 2 * (size_t)s.n_rows * s.k);
    s.weights = take(p, 4 * (size_t)((s.n_rows + s.weights_every - 1) / s.weights_every) * s.k);
    return s;
}

/* Of splitmix64 at key + (i + 1) steps the upper 24 bits, from -2^23. */
static double random_at(uint64_t key, uint64_t i)
{
    uint64_t z = key + (i + 1) * 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    z ^= z >> 31;
    return (double)(z >> 40) - (double)(1 << 23);
}

/* The logits of the rows that are in the file, and the biases after them. */
static float *make_inputs(const shape *s)
{
    uint32_t n = s->n_experts, kept = 0, skip = 0;
    float *values = malloc(((size_t)s->n_rows + 1) * n * sizeof *values);
    REQUIRE(values != NULL);
    for (uint32_t row = 0; kept < s->n_rows; row++) {
        uint32_t next_skipped = UINT32_MAX;
        if (skip < s->n_skipped)
            memcpy(&next_skipped, s->skipped + 4 * (size_t)skip, 4);
        if (row == next_skipped) {
            skip++;
            continue;
        }
        double span = ldexp(1.0, 2 * (int)(row % 3) - 1 - 23);
        for (uint32_t e = 0; e < n; e++)
            values[(size_t)kept * n + e] = (float)(random_at(s->key, (uint64_t)row * n + e) * span);
        kept++;
    }
    for (uint32_t e = 0; e < n; e++)
        values[(size_t)kept * n + e] = (float)ldexp(random_at(s->key + (1ULL << 32), e), -26);
    return values;
}

typedef struct result {
    int32_t *ids;   /* [n_rows, k] */
    float *weights; /* likewise */
} result;

static result route(mf_backend *be, const shape *s, const float *inputs)
{
    mf_error error = {0};
    mf_buffer buffer;
    uint64_t n = s->n_experts, picks = (uint64_t)s->n_rows * s->k;
    uint64_t logit_bytes = s->n_rows * n * 4, bias_bytes = (n * 4 + 63) / 64 * 64;
    result out = {malloc(picks * 4), malloc(picks * 4)};
    REQUIRE_OK(be->ops->buffer_create(be, logit_bytes + bias_bytes + 8 * picks + 256, MF_USE_DEVICE,
                                      "rows", &buffer, &error),
               &error);
    mf_span at = {buffer, 0};
    mf_op op = {.kind = MF_OP_ROUTE, .n_rows = s->n_rows};
    op.u.route.logits = at;
    op.u.route.bias = s->kind == NOAUX ? mf_span_at(at, logit_bytes) : (mf_span){0};
    op.u.route.ids = mf_span_at(at, (logit_bytes + bias_bytes + 63) / 64 * 64);
    op.u.route.weights = mf_span_at(op.u.route.ids, (picks * 4 + 63) / 64 * 64);
    op.u.route.n_experts = s->n_experts;
    op.u.route.k = s->k;
    op.u.route.n_groups = s->n_groups;
    op.u.route.k_groups = s->k_groups;
    op.u.route.score = s->kind == NOAUX ? MF_SCORE_SIGMOID : MF_SCORE_SOFTMAX;
    op.u.route.group_rule = s->kind == NOAUX ? MF_GROUP_TOP2 : MF_GROUP_MAX;
    op.u.route.normalise = s->normalise != 0;
    op.u.route.eps = s->kind == NOAUX ? 1e-20f : 0.0f;
    op.u.route.scale = s->scale;
    be->ops->write(be, at, inputs, logit_bytes);
    if (s->kind == NOAUX)
        be->ops->write(be, op.u.route.bias, inputs + (size_t)s->n_rows * n, n * 4);
    REQUIRE_OK(be->ops->reserve(be, &op, &error), &error);
    be->ops->record(be, &op);
    be->ops->read(be, op.u.route.ids, out.ids, picks * 4);
    be->ops->read(be, op.u.route.weights, out.weights, picks * 4);
    REQUIRE_OK(mf_backend_finish(be, &error), &error);
    be->ops->buffer_free(be, buffer);
    return out;
}

/* The golden rows are sorted by expert. */
static void sort_row(int32_t *ids, float *weights, uint32_t k)
{
    for (uint32_t i = 1; i < k; i++)
        for (uint32_t j = i; j > 0 && ids[j] < ids[j - 1]; j--) {
            int32_t id = ids[j];
            float weight = weights[j];
            ids[j] = ids[j - 1];
            weights[j] = weights[j - 1];
            ids[j - 1] = id;
            weights[j - 1] = weight;
        }
}

static void check_row(const shape *s, uint32_t row, const int32_t *ids, const float *weights)
{
    for (uint32_t j = 0; j < s->k; j++) {
        uint16_t want;
        memcpy(&want, s->ids + 2 * ((size_t)row * s->k + j), 2);
        CHECK_MSG(ids[j] == want, "kind %u, %u experts, row %u: expert %d, golden %u", s->kind,
                  s->n_experts, row, ids[j], want);
    }
    if (row % s->weights_every != 0)
        return;
    for (uint32_t j = 0; j < s->k; j++) {
        float want;
        memcpy(&want, s->weights + 4 * ((size_t)(row / s->weights_every) * s->k + j), 4);
        CHECK_MSG(fabsf(weights[j] - want) <= 2e-6f * want,
                  "kind %u, %u experts, row %u, expert %d: weight %.9g, golden %.9g", s->kind,
                  s->n_experts, row, ids[j], (double)weights[j], (double)want);
    }
}

static void check_shape(mf_backend *be, const shape *s)
{
    float *inputs = make_inputs(s);
    result r = route(be, s, inputs);
    for (uint32_t row = 0; row < s->n_rows; row++) {
        int32_t *ids = r.ids + (size_t)row * s->k;
        float *weights = r.weights + (size_t)row * s->k;
        sort_row(ids, weights, s->k);
        check_row(s, row, ids, weights);
    }
    free(r.ids);
    free(r.weights);
    free(inputs);
}

int main(void)
{
    size_t n_bytes;
    unsigned char *file = read_file(GOLDEN_ROOT "/router.bin", &n_bytes);
    REQUIRE(n_bytes > 16 && memcmp(file, "MFROUTER", 8) == 0);
    for (uint32_t tier = MF_CPU_SCALAR; tier < MF_CPU_END; tier++) {
        if (!golden_has_tier(tier))
            continue;
        mf_backend *be = NULL;
        mf_error error = {0};
        mf_backend_options options = {.n_threads = 2, .cpu_tier = tier};
        REQUIRE_OK(mf_backend_open(&options, &be, &error), &error);
        const unsigned char *p = file + 8;
        uint32_t n_all = 0;
        CHECK_U64(take_u32(&p), 1);
        for (uint32_t n = take_u32(&p); n > 0; n--) {
            shape s = take_shape(&p);
            check_shape(be, &s);
            n_all += s.n_rows;
        }
        CHECK_U64(n_all, 10000);
        CHECK(p == file + n_bytes);
        be->ops->destroy(be);
    }
    free(file);
    return test_result();
}

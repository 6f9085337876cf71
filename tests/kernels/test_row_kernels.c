/* SPDX-License-Identifier: MIT */
/*
 * Every other kernel of every tier, against float64: norms, elementwise operations, rotation,
 * softmax, attention, convolution, the delta rule. Odd lengths, operands that end at an
 * inaccessible page, extreme values; and the same bits where kernels take several tokens.
 */
#include "kernel_data.h"

#include "base/half.h"

#include <stdlib.h>

static const uint32_t lengths[] = {1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 64, 100, 127, 256, 515};
#define N_LENGTHS (sizeof lengths / sizeof *lengths)

static void check_near(const mf_kernels *k, const char *what, uint32_t n, double got,
                       double expected, double bound)
{
    CHECK_MSG(fabs(got - expected) <= bound || got == expected, "%s: %s of %u: %.9g, expected %.9g",
              mf_cpu_tier_name(k->tier), what, n, got, expected);
}

static double silu(double x)
{
    return x / (1.0 + exp(-x));
}

static void test_norms(const mf_kernels *k)
{
    uint64_t state = 11;
    for (size_t l = 0; l < N_LENGTHS; l++) {
        uint32_t n = lengths[l];
        guarded g[4];
        const float *x = random_floats(&state, &g[0], n), *w = random_floats(&state, &g[1], n);
        const float *z = random_floats(&state, &g[2], n);
        float *out = random_floats(&state, &g[3], n);
        double sum = 0.0;
        for (uint32_t i = 0; i < n; i++)
            sum += (double)x[i] * (double)x[i];
        double inv = 1.0 / sqrt(sum / n + 1e-6), l2 = 0.25 / sqrt(sum + 1e-6);
        k->rmsnorm(x, w, 1e-6f, n, out);
        for (uint32_t i = 0; i < n; i++)
            check_near(k, "rmsnorm", n, (double)out[i], (double)x[i] * inv * (double)w[i],
                       2e-6 * fabs((double)x[i] * inv * (double)w[i]) + 1e-30);
        k->rmsnorm(x, NULL, 1e-6f, n, out);
        for (uint32_t i = 0; i < n; i++)
            check_near(k, "bare rmsnorm", n, (double)out[i], (double)x[i] * inv,
                       2e-6 * fabs((double)x[i] * inv) + 1e-30);
        k->rmsnorm_gated(x, z, w, 1e-6f, n, out);
        for (uint32_t i = 0; i < n; i++) {
            double expected = (double)x[i] * inv * (double)w[i] * silu((double)z[i]);
            check_near(k, "gated rmsnorm", n, (double)out[i], expected,
                       4e-6 * fabs(expected) + 1e-30);
        }
        k->l2norm(x, 1e-6f, 0.25f, n, out);
        for (uint32_t i = 0; i < n; i++)
            check_near(k, "l2norm", n, (double)out[i], (double)x[i] * l2,
                       2e-6 * fabs((double)x[i] * l2) + 1e-30);
        for (int i = 0; i < 4; i++)
            guarded_free(&g[i]);
    }
}

static void test_elementwise(const mf_kernels *k)
{
    uint64_t state = 12;
    for (size_t l = 0; l < N_LENGTHS; l++) {
        uint32_t n = lengths[l];
        guarded g[3];
        float *a = random_floats(&state, &g[0], n), *b = random_floats(&state, &g[1], n);
        float *out = random_floats(&state, &g[2], n);
        a[0] = -200.0f; /* exp overflows: silu and sigmoid must go to zero, not to NaN */
        k->swiglu(a, b, n, out);
        for (uint32_t i = 0; i < n; i++) {
            double expected = silu((double)a[i]) * (double)b[i];
            check_near(k, "swiglu", n, (double)out[i], expected, 2e-6 * fabs(expected) + 1e-30);
        }
        k->swiglu_clamped(a, b, 0.75f, 1.702f, n, out);
        for (uint32_t i = 0; i < n; i++) {
            const double limited = fmin((double)a[i], 0.75);
            const double u = fmax(-0.75, fmin((double)b[i], 0.75));
            const double expected = limited / (1.0 + exp(-(double)1.702f * limited)) * (u + 1.0);
            check_near(k, "clamped swiglu", n, (double)out[i], expected,
                       3e-6 * fabs(expected) + 1e-30);
        }
        memcpy(out, b, n * sizeof *out);
        k->sigmoid_mul(out, a, n);
        for (uint32_t i = 0; i < n; i++) {
            double expected = (double)b[i] / (1.0 + exp(-(double)a[i]));
            check_near(k, "sigmoid_mul", n, (double)out[i], expected,
                       2e-6 * fabs(expected) + 1e-30);
        }
        k->add(a, b, n, out);
        for (uint32_t i = 0; i < n; i++)
            CHECK(out[i] == a[i] + b[i]);
        memcpy(out, b, n * sizeof *out);
        k->axpy(out, a, 0.3f, n);
        for (uint32_t i = 0; i < n; i++)
            CHECK(out[i] == fmaf(0.3f, a[i], b[i]));
        memcpy(out, a, n * sizeof *out);
        k->softmax(out, n);
        double max = (double)a[0], sum = 0.0;
        for (uint32_t i = 0; i < n; i++)
            max = fmax(max, (double)a[i]);
        for (uint32_t i = 0; i < n; i++)
            sum += exp((double)a[i] - max);
        for (uint32_t i = 0; i < n; i++)
            check_near(k, "softmax", n, (double)out[i], exp((double)a[i] - max) / sum,
                       1e-5 * exp((double)a[i] - max) / sum + 1e-37);
        for (int i = 0; i < 3; i++)
            guarded_free(&g[i]);
    }
}

/* A value's result does not depend on where in the row it stands. */
static void test_position(const mf_kernels *k)
{
    uint64_t state = 13;
    float a[67], b[67], whole[67], one;
    for (int i = 0; i < 67; i++) {
        a[i] = next_float(&state);
        b[i] = next_float(&state);
    }
    k->swiglu(a, b, 67, whole);
    for (int i = 0; i < 67; i++) {
        k->swiglu(a + i, b + i, 1, &one);
        CHECK_BYTES(&one, &whole[i], sizeof one);
    }
}

static void test_rope(const mf_kernels *k)
{
    static const uint32_t rotated[] = {2, 4, 6, 10, 16, 32, 64, 66};
    uint64_t state = 14;
    for (size_t l = 0; l < sizeof rotated / sizeof *rotated; l++) {
        uint32_t n = rotated[l], half = n / 2;
        guarded g[3];
        float *x = random_floats(&state, &g[0], n);
        const float *c = random_floats(&state, &g[1], half),
                    *s = random_floats(&state, &g[2], half);
        float before[66];
        memcpy(before, x, n * sizeof *x);
        k->rope(x, c, s, n);
        for (uint32_t i = 0; i < half; i++) {
            double p = (double)before[i], q = (double)before[half + i], co = (double)c[i],
                   si = (double)s[i];
            double size = 1e-6 * (fabs(p) + fabs(q)) * (fabs(co) + fabs(si)) + 1e-30;
            check_near(k, "rope", n, (double)x[i], p * co - q * si, size);
            check_near(k, "rope", n, (double)x[half + i], p * si + q * co, size);
        }
        for (int i = 0; i < 3; i++)
            guarded_free(&g[i]);
    }
}

/* Value i of the key (or value) of a position, as cached. */
static double cached_value(const mf_attention_args *a, size_t offset, uint32_t t, uint32_t i)
{
    const unsigned char *page = a->pages[t / MF_ATTENTION_TILE] + offset;
    page += t % MF_ATTENTION_TILE * a->kv_row_bytes;
    if (a->cache_type == MF_F32)
        return (double)((const float *)(const void *)page)[i];
    if (a->cache_type == MF_BF16)
        return (double)mf_f32_from_bf16(((const uint16_t *)(const void *)page)[i]);
    uint16_t scale;
    memcpy(&scale, page + a->scales_at + i / 32 * 2, sizeof scale);
    return (double)(signed char)page[i] * (double)mf_f32_from_bf16(scale);
}

/* Query i over all that it sees, in float64; of one key head. */
static void expected_attention(const mf_attention_args *a, uint32_t query, double *out)
{
    const uint32_t row = query / a->n_heads, n_kv = a->n_kv + row;
    const uint32_t first = mf_attention_first(a->window, a->window_is_chunk, n_kv);
    const float *q = a->q + row * a->q_row + (size_t)(query % a->n_heads) * a->head_dim;
    double *p = malloc(n_kv * sizeof *p), sum = 0.0, max = -INFINITY;
    REQUIRE(p != NULL);
    for (uint32_t t = first; t < n_kv; t++) {
        p[t] = 0.0;
        for (uint32_t i = 0; i < a->head_dim; i++)
            p[t] += (double)q[i] * cached_value(a, a->k_offset, t, i);
        p[t] *= (double)a->scale;
        max = fmax(max, p[t]);
    }
    memset(out, 0, a->head_dim * sizeof *out);
    for (uint32_t t = first; t < n_kv; t++) {
        double e = exp(p[t] - max);
        sum += e;
        for (uint32_t i = 0; i < a->head_dim; i++)
            out[i] += e * cached_value(a, a->v_offset, t, i);
    }
    for (uint32_t i = 0; i < a->head_dim; i++)
        out[i] /= sum;
    free(p);
}

enum { MAX_PAGES = 16, PAGE_TILE = MF_ATTENTION_TILE };

/* Keys and values of n positions in pages of their own, each as long as it must be. */
static void random_pages(uint64_t *state, guarded *g, uint32_t n, mf_attention_args *a,
                         const unsigned char **pages)
{
    const size_t head_bytes =
        a->cache_type == MF_Q8
            ? a->scales_at + (size_t)a->n_kv_heads * ((a->head_dim + 31) / 32 * 2)
            : (size_t)a->n_kv_heads * a->head_dim * mf_dtype_bytes(a->cache_type);
    a->k_offset = 4;
    for (uint32_t first = 0, p = 0; first < n; first += PAGE_TILE, p++) {
        uint32_t rows = n - first < PAGE_TILE ? n - first : PAGE_TILE;
        a->v_offset = (4 + (PAGE_TILE - 1) * a->kv_row_bytes + head_bytes + 3) / 4 * 4;
        size_t n_bytes = a->v_offset + (rows - 1) * a->kv_row_bytes + head_bytes;
        float *floats = random_floats(state, &g[p], (n_bytes + 3) / 4);
        pages[p] = (const unsigned char *)floats;
        uint16_t *halves = (uint16_t *)(void *)floats;
        for (size_t i = 0; a->cache_type != MF_F32 && i < n_bytes / 2; i++)
            halves[i] =
                mf_bf16_from_f32((float)(int64_t)(test_random(state) >> 40) / 8388608.0f - 1.0f);
    }
    a->pages = pages;
}

/* The scales of 8 bits that random bytes must not be; every byte is a value. */
static void random_scales(uint64_t *state, const mf_attention_args *a)
{
    for (uint32_t t = 0; a->cache_type == MF_Q8 && t < a->n_kv; t++)
        for (uint32_t i = 0; i < 2 * a->n_kv_heads * ((a->head_dim + 31) / 32); i++) {
            const size_t at = (i % 2 == 0 ? a->k_offset : a->v_offset) +
                              t % MF_ATTENTION_TILE * a->kv_row_bytes + a->scales_at + i / 2 * 2;
            const float scale = (float)(test_random(state) % 256) / 32768.0f;
            const uint16_t half = mf_bf16_from_f32(scale);
            memcpy((unsigned char *)(uintptr_t)a->pages[t / MF_ATTENTION_TILE] + at, &half,
                   sizeof half);
        }
}

enum { MAX_DIM = 256, MAX_QUERIES = MF_ATTENTION_QUERIES };

static uint32_t queries_of(const mf_attention_args *a)
{
    return a->n_rows * a->n_kv_heads * a->n_heads;
}

/* The key head of query i, which becomes the query there. */
static mf_attention_args head_of(const mf_attention_args *a, uint32_t *i)
{
    const mf_attention_args one = mf_attention_of_head(a, a->n_rows == 1 ? *i / a->n_heads : 0);
    *i = a->n_rows == 1 ? *i % a->n_heads : *i;
    return one;
}

/* A query alone, over the same positions: the same bits. */
static void check_alone(const mf_kernels *k, const mf_attention_args *all, uint32_t i)
{
    uint32_t query = i;
    mf_attention_args one = head_of(all, &query);
    float out[MAX_DIM];
    mf_attention_sum sum;
    one.q += query / all->n_heads * all->q_row + (size_t)(query % all->n_heads) * all->head_dim;
    one.n_kv += query / all->n_heads;
    one.n_rows = one.n_heads = 1;
    one.out = out;
    one.sums = &sum;
    k->attention(&one);
    CHECK_MSG(memcmp(&sum, &all->sums[i], sizeof sum) == 0 &&
                  memcmp(out, all->out + (size_t)i * all->head_dim, all->head_dim * sizeof *out) ==
                      0,
              "%s: query %u of %u x %u x %u, dim %u: other bits alone", mf_cpu_tier_name(k->tier),
              i, all->n_rows, all->n_kv_heads, all->n_heads, all->head_dim);
}

/* The parts of all positions, cut at `middle`. */
static void check_parts(const mf_kernels *k, mf_attention_args args, uint32_t middle)
{
    const uint32_t n = queries_of(&args), end = args.n_kv + args.n_rows - 1;
    static float out[2][MAX_QUERIES * MAX_DIM];
    mf_attention_sum sums[2][MAX_QUERIES];
    for (uint32_t part = 0; part < 2; part++) {
        args.begin = part == 0 ? 0 : middle;
        args.end = part == 0 ? middle : end;
        args.out = out[part];
        args.sums = sums[part];
        k->attention(&args);
        for (uint32_t i = 0; i < n; i += 1 + n / 5)
            check_alone(k, &args, i);
    }
    for (uint32_t i = 0; i < n; i++) {
        double expected[MAX_DIM];
        uint32_t query = i;
        const mf_attention_args one = head_of(&args, &query);
        expected_attention(&one, query, expected);
        const double max = fmax((double)sums[0][i].max, (double)sums[1][i].max);
        const double a = exp((double)sums[0][i].max - max), b = exp((double)sums[1][i].max - max);
        const double sum = a * (double)sums[0][i].sum + b * (double)sums[1][i].sum;
        for (uint32_t d = 0; d < args.head_dim; d++) {
            const size_t at = (size_t)i * args.head_dim + d;
            const double got = (a * (double)out[0][at] + b * (double)out[1][at]) / sum;
            check_near(k, "attention", args.n_kv, got, expected[d],
                       2e-4 * (fabs(expected[d]) + 1.0));
        }
    }
}

static void check_attention(const mf_kernels *k, uint64_t *state, mf_attention_args args,
                            uint32_t dim)
{
    const uint32_t n = args.n_kv + args.n_rows - 1;
    guarded g[MAX_PAGES + 2];
    const unsigned char *pages[MAX_PAGES];
    const uint32_t n_values = args.n_kv_heads * dim, blocks = args.n_kv_heads * ((dim + 31) / 32);
    args.scales_at = n_values + 3; /* behind the heads */
    args.kv_row_bytes = args.cache_type == MF_Q8 ? args.scales_at + blocks * 2 + 5
                                                 : (n_values + 3) * mf_dtype_bytes(args.cache_type);
    args.head_dim = dim;
    args.scale = dim > 100 ? 0.0625f : 0.1f;
    random_pages(state, g, n, &args, pages);
    const uint32_t n_pages = (n + PAGE_TILE - 1) / PAGE_TILE;
    mf_attention_args scaled = args;
    scaled.n_kv = n;
    random_scales(state, &scaled);
    const size_t row = (size_t)args.n_kv_heads * args.n_heads * dim;
    args.q_row = row + 5;
    args.q = random_floats(state, &g[n_pages], (args.n_rows - 1) * args.q_row + row);
    args.scratch = random_floats(state, &g[n_pages + 1], (size_t)2 * PAGE_TILE * dim);
    check_parts(k, args, (uint32_t)(test_random(state) % (n_pages + 1)) * PAGE_TILE);
    for (uint32_t i = 0; i < n_pages + 2; i++)
        guarded_free(&g[i]);
}

static void test_attention(const mf_kernels *k)
{
    static const uint32_t positions[] = {1, 2, 31, 32, 33, 64, 100, 447},
                          dims[] = {1, 7, 16, 48, 64, 100, 256}, heads[] = {1, 3, 8},
                          rows[] = {1, 2, 5, 8};
    static const mf_dtype types[] = {MF_F32, MF_BF16, MF_Q8};
    uint64_t state = 15;
    for (size_t l = 0; l < 8; l++)
        for (size_t d = 0; d < 7; d++)
            for (size_t i = 0; i < 3; i++) {
                mf_attention_args args = {.n_kv = positions[l],
                                          .n_kv_heads = 1,
                                          .n_heads = heads[test_random(&state) % 3],
                                          .n_rows = rows[test_random(&state) % 4],
                                          .cache_type = types[i]};
                check_attention(k, &state, args, dims[d]);
                args.n_rows = 1; /* with all key heads: blocks of queries of every size */
                args.n_kv_heads = 1 + (uint32_t)(test_random(&state) % 4);
                args.n_heads = 1 + (uint32_t)(test_random(&state) % 16);
                check_attention(k, &state, args, dims[d]);
            }
    check_attention(
        k, &state,
        (mf_attention_args){
            .n_kv = 90, .n_kv_heads = 1, .n_heads = 1, .n_rows = MAX_QUERIES, .cache_type = MF_F32},
        64);
}

/* Positions before a row's first are poison to the result: they must not count. */
static void test_window(const mf_kernels *k)
{
    static const uint32_t ends[] = {1, 33, 64, 100, 447}, windows[] = {1, 5, 32, 40, 300};
    uint64_t state = 19;
    for (size_t e = 0; e < 5; e++)
        for (size_t w = 0; w < 5; w++)
            for (uint32_t i = 0; i < 4; i++) {
                const mf_attention_args args = {.n_kv = ends[e],
                                                .n_rows = i / 2 == 0 ? 1 : 40,
                                                .n_kv_heads = i / 2 == 0 ? 3 : 1,
                                                .n_heads = 1,
                                                .window = windows[w],
                                                .window_is_chunk = i % 2 != 0,
                                                .cache_type = e % 3 == 0   ? MF_F32
                                                              : e % 3 == 1 ? MF_BF16
                                                                           : MF_Q8};
                check_attention(k, &state, args, 48);
            }
}

static void test_conv(const mf_kernels *k)
{
    static const uint32_t channels[] = {1, 5, 16, 33, 100}, widths[] = {2, 4, 7};
    uint64_t state = 16;
    for (size_t c = 0; c < 5; c++) {
        for (size_t j = 0; j < 3; j++) {
            uint32_t n = channels[c], width = widths[j];
            guarded g[4];
            float *x = random_floats(&state, &g[0], n),
                  *w = random_floats(&state, &g[1], (size_t)n * width);
            float *conv = random_floats(&state, &g[2], (size_t)(width - 1) * n);
            float *out = random_floats(&state, &g[3], n);
            float before[6 * 100];
            memcpy(before, conv, (size_t)(width - 1) * n * sizeof *conv);
            k->conv1d_silu(x, w, conv, n, n, width, out);
            for (uint32_t i = 0; i < n; i++) {
                double sum = (double)x[i] * (double)w[i * width + width - 1], size = fabs(sum);
                for (uint32_t t = 0; t + 1 < width; t++) {
                    double product = (double)before[t * n + i] * (double)w[i * width + t];
                    sum += product;
                    size += fabs(product);
                    CHECK(conv[t * n + i] == (t + 2 < width ? before[(t + 1) * n + i] : x[i]));
                }
                check_near(k, "conv1d", n, (double)out[i], silu(sum),
                           4e-6 * (size + fabs(silu(sum))) + 1e-30);
            }
            for (int i = 0; i < 4; i++)
                guarded_free(&g[i]);
        }
    }
}

enum { MAX_VALUE_DIM = 320 };

typedef struct delta_case {
    uint32_t key_dim, value_dim, n_tokens;
    guarded g[7];
    float *state, *q, *k, *v, *decay, *beta, *out;
} delta_case;

static delta_case make_delta(uint64_t *seed, uint32_t key_dim, uint32_t value_dim,
                             uint32_t n_tokens)
{
    delta_case c = {.key_dim = key_dim, .value_dim = value_dim, .n_tokens = n_tokens};
    c.state = random_floats(seed, &c.g[0], (size_t)key_dim * value_dim);
    c.q = random_floats(seed, &c.g[1], (size_t)n_tokens * key_dim);
    c.k = random_floats(seed, &c.g[2], (size_t)n_tokens * key_dim);
    c.v = random_floats(seed, &c.g[3], (size_t)n_tokens * value_dim);
    c.decay = random_floats(seed, &c.g[4], n_tokens);
    c.beta = random_floats(seed, &c.g[5], n_tokens);
    c.out = random_floats(seed, &c.g[6], (size_t)n_tokens * value_dim);
    for (size_t i = 0; i < (size_t)n_tokens * key_dim;
         i++) { /* about unit length, as the model's keys are */
        c.q[i] = fmodf(c.q[i], 1.0f) / sqrtf((float)key_dim);
        c.k[i] = fmodf(c.k[i], 1.0f) / sqrtf((float)key_dim);
    }
    for (uint32_t t = 0; t < n_tokens; t++) {
        c.decay[t] = 0.5f + 0.5f * fabsf(fmodf(c.decay[t], 1.0f));
        c.beta[t] = fabsf(fmodf(c.beta[t], 1.0f));
    }
    return c;
}

static mf_delta_args delta_args(const delta_case *c, const float *from, float *state, float *out,
                                uint32_t first, uint32_t n)
{
    return (mf_delta_args){.from = from,
                           .state = state,
                           .q = c->q + (size_t)first * c->key_dim,
                           .k = c->k + (size_t)first * c->key_dim,
                           .v = c->v + (size_t)first * c->value_dim,
                           .decay = c->decay + first,
                           .beta = c->beta + first,
                           .out = out + (size_t)first * c->value_dim,
                           .qk_stride = c->key_dim,
                           .v_stride = c->value_dim,
                           .gate_stride = 1,
                           .out_stride = c->value_dim,
                           .key_dim = c->key_dim,
                           .value_dim = c->value_dim,
                           .n_tokens = n};
}

static void expected_delta(const delta_case *c, double *s, uint32_t t, double *out)
{
    for (uint32_t j = 0; j < c->value_dim; j++) {
        double m = 0.0, o = 0.0;
        for (uint32_t i = 0; i < c->key_dim; i++) {
            s[i * c->value_dim + j] *= (double)c->decay[t];
            m += s[i * c->value_dim + j] * (double)c->k[t * c->key_dim + i];
        }
        double d = ((double)c->v[t * c->value_dim + j] - m) * (double)c->beta[t];
        for (uint32_t i = 0; i < c->key_dim; i++) {
            s[i * c->value_dim + j] += (double)c->k[t * c->key_dim + i] * d;
            o += s[i * c->value_dim + j] * (double)c->q[t * c->key_dim + i];
        }
        out[j] = o;
    }
}

/* A token into another state gives the bits that it gives in place, wherever that state lies: at
 * whole vectors it may go past the caches. `wanted` is the state after the token in place. */
static void check_delta_apart(const mf_kernels *k, const delta_case *c, uint32_t t,
                              const float *from, const float *wanted)
{
    const size_t n_state = (size_t)c->key_dim * c->value_dim;
    float *memory = aligned_alloc(64, (n_state * sizeof *memory + 127) & ~(size_t)63);
    float *out = malloc((size_t)c->n_tokens * c->value_dim * sizeof *out);
    REQUIRE(memory != NULL && out != NULL);
    for (size_t skip = 0; skip < 2; skip++) {
        const mf_delta_args one = delta_args(c, from, memory + skip, out, t, 1);
        memset(memory + skip, 0xff, n_state * sizeof *memory);
        k->delta_rule(&one);
        CHECK_BYTES(memory + skip, wanted, n_state * sizeof *memory);
        CHECK_BYTES(one.out, c->out + (size_t)t * c->value_dim, c->value_dim * sizeof *out);
    }
    free(out);
    free(memory);
}

/* All tokens at once from one state into another, and token by token in place: the same bits. */
static void check_delta(const mf_kernels *k, delta_case *c)
{
    size_t n_state = (size_t)c->key_dim * c->value_dim, n_out = (size_t)c->n_tokens * c->value_dim;
    double *s = malloc(n_state * sizeof *s), expected[MAX_VALUE_DIM];
    float *state = malloc(n_state * sizeof *state), *out = malloc(n_out * sizeof *out);
    float *before = malloc(n_state * sizeof *before);
    REQUIRE(s != NULL && state != NULL && out != NULL && before != NULL);
    for (size_t i = 0; i < n_state; i++)
        s[i] = (double)c->state[i];
    guarded g;
    float *after = random_floats(&(uint64_t){5}, &g, n_state);
    memset(after, 0xff, n_state * sizeof *after); /* NaN, should it be read before it is written */
    memcpy(state, c->state, n_state * sizeof *state);
    mf_delta_args all = delta_args(c, c->state, after, c->out, 0, c->n_tokens);
    k->delta_rule(&all);
    CHECK_BYTES(state, c->state, n_state * sizeof *state); /* what it began from is as it was */
    for (uint32_t t = 0; t < c->n_tokens; t++) {
        mf_delta_args one = delta_args(c, state, state, out, t, 1);
        memcpy(before, state, n_state * sizeof *state);
        k->delta_rule(&one);
        check_delta_apart(k, c, t, before, state);
        expected_delta(c, s, t, expected);
        for (uint32_t j = 0; j < c->value_dim; j++)
            check_near(k, "delta rule", c->key_dim, (double)c->out[t * c->value_dim + j],
                       expected[j], 1e-4 * (fabs(expected[j]) + 1.0));
    }
    CHECK_BYTES(out, c->out, n_out * sizeof *out);
    CHECK_BYTES(state, after, n_state * sizeof *state);
    guarded_free(&g);
    free(before);
    free(s);
    free(state);
    free(out);
}

static void test_delta(const mf_kernels *k)
{
    static const uint32_t dims[][2] = {{1, 1},   {16, 16},   {8, 24},   {33, 7},
                                       {64, 64}, {128, 128}, {20, 100}, {12, 192},
                                       {5, 256}, {9, 320},   {256, 40}, {260, 72}};
    uint64_t seed = 17;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        delta_case c = make_delta(&seed, dims[i][0], dims[i][1], 9);
        check_delta(k, &c);
        for (int j = 0; j < 7; j++)
            guarded_free(&c.g[j]);
    }
}

int main(void)
{
    for_tiers(test_norms);
    for_tiers(test_elementwise);
    for_tiers(test_position);
    for_tiers(test_rope);
    for_tiers(test_attention);
    for_tiers(test_window);
    for_tiers(test_conv);
    for_tiers(test_delta);
    return test_result();
}

/* SPDX-License-Identifier: MIT */
/*
 * Latent attention of every tier against float64: odd ranks and rotary sizes, one to
 * MF_LATENT_HEADS heads, all types of cache, operands that end at an inaccessible page; and a
 * head's bits are the same alone as among others.
 */
#include "kernel_data.h"

#include "base/cache_rows.h"
#include "base/half.h"

#include <stdlib.h>

typedef struct shape {
    uint32_t n_kv, n_heads, n_latent, n_rot;
} shape;

static double cached(const mf_latent_args *a, uint32_t position, uint32_t i)
{
    const uint32_t width = a->n_latent + a->n_rot;
    const size_t row = position % MF_LATENT_TILE, at = row * width + i;
    const unsigned char *page = a->pages[position / MF_LATENT_TILE] + a->offset;
    uint16_t half;
    if (a->cache_type == MF_Q8) {
        page += row * (width + (width + 31) / 32 * 2);
        memcpy(&half, page + width + i / 32 * 2, sizeof half);
        return (double)(signed char)page[i] * (double)mf_f32_from_bf16(half);
    }
    if (a->cache_type == MF_F32) {
        float value;
        memcpy(&value, page + 4 * at, sizeof value);
        return (double)value;
    }
    memcpy(&half, page + 2 * at, sizeof half);
    return (double)mf_f32_from_bf16(half);
}

/* One head; *size is how large the terms of its scores are. */
static void expected_head(const mf_latent_args *a, uint32_t h, double *out, double *size)
{
    double *p = calloc(a->n_kv, sizeof *p), max = -INFINITY, sum = 0.0;
    REQUIRE(p != NULL);
    *size = 0.0;
    for (uint32_t t = 0; t < a->n_kv; t++) {
        double terms = 0.0;
        for (uint32_t i = 0; i < a->n_latent + a->n_rot; i++) {
            double q = i < a->n_latent ? (double)a->q[h * a->q_stride + i]
                                       : (double)a->q_rot[h * a->q_rot_stride + i - a->n_latent];
            double term = q * cached(a, t, i) * (double)a->scale;
            p[t] += term;
            terms += fabs(term);
        }
        max = fmax(max, p[t]);
        *size = fmax(*size, terms);
    }
    memset(out, 0, a->n_latent * sizeof *out);
    for (uint32_t t = 0; t < a->n_kv; t++) {
        double e = exp(p[t] - max);
        sum += e;
        for (uint32_t i = 0; i < a->n_latent; i++)
            out[i] += e * cached(a, t, i);
    }
    for (uint32_t i = 0; i < a->n_latent; i++)
        out[i] /= sum;
    free(p);
}

static void check_head(const mf_kernels *k, const mf_latent_args *a, uint32_t h)
{
    double expected[512], size, largest = 0.0;
    expected_head(a, h, expected, &size);
    for (uint32_t t = 0; t < a->n_kv; t++)
        for (uint32_t i = 0; i < a->n_latent; i++)
            largest = fmax(largest, fabs(cached(a, t, i)));
    for (uint32_t i = 0; i < a->n_latent; i++) {
        double got = (double)a->out[h * a->out_stride + i];
        CHECK_MSG(fabs(got - expected[i]) <= (4e-6 + 2e-6 * size) * largest + 1e-30,
                  "%s: %u positions, head %u of %u, rank %u + %u: value %u is %.9g, expected %.9g",
                  mf_cpu_tier_name(k->tier), a->n_kv, h, a->n_heads, a->n_latent, a->n_rot, i, got,
                  expected[i]);
    }
}

/* Each head by itself, in fewer positions' company too: the same bits. */
static void check_alone(const mf_kernels *k, const mf_latent_args *all)
{
    float alone[512];
    for (uint32_t h = 0; h < all->n_heads; h++) {
        mf_latent_args a = *all;
        a.q += h * a.q_stride;
        a.q_rot += h * a.q_rot_stride;
        a.n_heads = 1;
        a.out = alone;
        k->latent_attention(&a);
        CHECK_MSG(memcmp(alone, all->out + h * all->out_stride, a.n_latent * sizeof *alone) == 0,
                  "%s: head %u of %u, rank %u: other bits alone", mf_cpu_tier_name(k->tier), h,
                  all->n_heads, a.n_latent);
    }
}

static void check_shape(const mf_kernels *k, const shape *s, mf_dtype type, uint64_t *state)
{
    guarded g[5];
    size_t width = s->n_latent + s->n_rot, n_cached = s->n_kv * width;
    size_t q_stride = s->n_latent + 3, rot_stride = s->n_rot + 5, out_stride = s->n_latent + 1;
    float *cache = random_floats(state, &g[0], n_cached);
    const size_t row_bytes = (size_t)mf_cache_row_bytes(type, 1, width);
    guarded stored = guarded_alloc(s->n_kv * row_bytes);
    mf_cache_store(stored.p, cache, s->n_kv, 1, (uint32_t)width, type);
    /* Pages one after the other; what precedes the latents in a page is another layer's. */
    enum { MAX_PAGES = 16, OFFSET = 64 };
    const unsigned char *pages[MAX_PAGES];
    REQUIRE(s->n_kv <= MAX_PAGES * MF_LATENT_TILE);
    for (uint32_t i = 0; i * MF_LATENT_TILE < s->n_kv; i++)
        pages[i] =
            (const unsigned char *)((uintptr_t)stored.p - OFFSET + i * MF_LATENT_TILE * row_bytes);
    const mf_latent_args args = {
        .q = random_floats(state, &g[1], (s->n_heads - 1) * q_stride + s->n_latent),
        .q_rot = random_floats(state, &g[2], (s->n_heads - 1) * rot_stride + s->n_rot),
        .pages = pages,
        .offset = OFFSET,
        .out = random_floats(state, &g[3], (s->n_heads - 1) * out_stride + s->n_latent),
        .scratch = random_floats(state, &g[4], MF_LATENT_TILE * width),
        .q_stride = q_stride,
        .q_rot_stride = rot_stride,
        .out_stride = out_stride,
        .cache_type = type,
        .n_kv = s->n_kv,
        .n_heads = s->n_heads,
        .n_latent = s->n_latent,
        .n_rot = s->n_rot,
        .scale = 0.1f,
    };
    k->latent_attention(&args);
    for (uint32_t h = 0; h < s->n_heads; h++)
        check_head(k, &args, h);
    check_alone(k, &args);
    for (int i = 0; i < 5; i++)
        guarded_free(&g[i]);
    guarded_free(&stored);
}

static void test_latent(const mf_kernels *k)
{
    static const shape shapes[] = {{1, 1, 1, 2},    {2, 3, 7, 4},      {31, 2, 16, 2},
                                   {32, 4, 33, 6},  {33, 5, 64, 10},   {64, 16, 48, 16},
                                   {97, 7, 100, 8}, {200, 9, 130, 64}, {129, 6, 512, 64}};
    uint64_t state = 21;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_shape(k, &shapes[i], MF_F32, &state);
        check_shape(k, &shapes[i], MF_BF16, &state);
        check_shape(k, &shapes[i], MF_Q8, &state);
    }
}

int main(void)
{
    for_tiers(test_latent);
    return test_result();
}

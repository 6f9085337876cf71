/* SPDX-License-Identifier: MIT */
/* A part of the attention, scalar: query by query, online softmax, tile by tile. */
#include "kernels/scalar/scalar.h"

#include "base/cache_rows.h"

#include <math.h>

enum { TILE = MF_ATTENTION_TILE };

typedef struct tile {
    const float *k, *v;
    size_t stride;
} tile;

/* The n positions from `first` on as float32. */
static tile load_tile(const mf_attention_args *a, uint32_t first, uint32_t n)
{
    const unsigned char *page = a->pages[first / TILE];
    const unsigned char *k = page + a->k_offset, *v = page + a->v_offset;
    if (a->cache_type == MF_F32)
        return (tile){(const void *)k, (const void *)v, a->kv_row_bytes / sizeof(float)};
    float *to_k = a->scratch, *to_v = a->scratch + (size_t)TILE * a->head_dim;
    for (uint32_t p = 0; p < n; p++, k += a->kv_row_bytes, v += a->kv_row_bytes) {
        const size_t to = (size_t)p * a->head_dim;
        mf_cache_load(to_k + to, k, k + a->scales_at, a->head_dim, a->cache_type);
        mf_cache_load(to_v + to, v, v + a->scales_at, a->head_dim, a->cache_type);
    }
    return (tile){to_k, to_v, a->head_dim};
}

/* A query, and what is known of it. */
typedef struct query {
    const float *q;
    uint32_t first, n_kv;
    float max, sum;
    float *out;
} query;

/* The tile's scores, -infinity those of its first n_before; returns their maximum. */
static float score_tile(const mf_attention_args *a, const float *q, const tile *t,
                        uint32_t n_before, uint32_t n, float *scores)
{
    float max = -INFINITY;
    for (uint32_t p = 0; p < n; p++) {
        const float *k = t->k + p * t->stride;
        float dot = 0;
        for (uint32_t i = 0; i < a->head_dim; i++)
            dot = fmaf(q[i], k[i], dot);
        scores[p] = p < n_before ? -INFINITY : dot * a->scale;
        max = scores[p] > max ? scores[p] : max;
    }
    return max;
}

/* The tile's values join the sum under its new maximum. */
static void add_values(const mf_attention_args *a, query *x, const tile *t, uint32_t n,
                       const float *scores, float new_max)
{
    const float shrink = x->max == -INFINITY ? 0.0f : expf(x->max - new_max);
    x->sum *= shrink;
    x->max = new_max;
    for (uint32_t i = 0; i < a->head_dim; i++)
        x->out[i] *= shrink;
    for (uint32_t p = 0; p < n; p++) {
        const float *v = t->v + p * t->stride;
        float weight = expf(scores[p] - new_max);
        x->sum += weight;
        for (uint32_t i = 0; i < a->head_dim; i++)
            x->out[i] = fmaf(weight, v[i], x->out[i]);
    }
}

static void attend(const mf_attention_args *a, query *x)
{
    float scores[TILE];
    const uint32_t end = x->n_kv < a->end ? x->n_kv : a->end;
    uint32_t first = x->first / TILE * TILE;
    for (uint32_t i = 0; i < a->head_dim; i++)
        x->out[i] = 0;
    for (first = first > a->begin ? first : a->begin; first < end; first += TILE) {
        uint32_t n = end - first < TILE ? end - first : TILE;
        uint32_t n_before = x->first > first ? x->first - first : 0;
        const tile t = load_tile(a, first, n);
        const float max = score_tile(a, x->q, &t, n_before, n, scores);
        add_values(a, x, &t, n, scores, max > x->max ? max : x->max);
    }
}

static void attend_head(const mf_attention_args *a)
{
    for (uint32_t i = 0; i < a->n_rows * a->n_heads; i++) {
        const uint32_t row = i / a->n_heads, n_kv = a->n_kv + row;
        query x = {.q = a->q + row * a->q_row + (size_t)(i % a->n_heads) * a->head_dim,
                   .first = mf_attention_first(a->window, a->window_is_chunk, n_kv),
                   .n_kv = n_kv,
                   .max = -INFINITY,
                   .out = a->out + (size_t)i * a->head_dim};
        attend(a, &x);
        a->sums[i] = (mf_attention_sum){x.max, x.sum};
    }
}

void mf_attention_scalar(const mf_attention_args *a)
{
    for (uint32_t g = 0; g < a->n_kv_heads; g++) {
        const mf_attention_args one = mf_attention_of_head(a, g);
        attend_head(&one);
    }
}

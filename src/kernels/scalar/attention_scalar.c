/* SPDX-License-Identifier: MIT */
/* Attention of one query head, scalar: online softmax, tile by tile. */
#include "kernels/scalar/scalar.h"

#include "base/half.h"

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
    const void *k = page + a->k_offset, *v = page + a->v_offset;
    if (a->cache_type == MF_F32)
        return (tile){k, v, a->kv_stride};
    float *to_k = a->scratch, *to_v = a->scratch + (size_t)TILE * a->head_dim;
    for (uint32_t p = 0; p < n; p++)
        for (uint32_t i = 0; i < a->head_dim; i++) {
            to_k[p * a->head_dim + i] =
                mf_f32_from_bf16(((const uint16_t *)k)[p * a->kv_stride + i]);
            to_v[p * a->head_dim + i] =
                mf_f32_from_bf16(((const uint16_t *)v)[p * a->kv_stride + i]);
        }
    return (tile){to_k, to_v, a->head_dim};
}

/* The tile's scores, -infinity those of its first n_before; returns their maximum. */
static float score_tile(const mf_attention_args *a, const tile *t, uint32_t n_before, uint32_t n,
                        float *scores)
{
    float max = -INFINITY;
    for (uint32_t p = 0; p < n; p++) {
        const float *k = t->k + p * t->stride;
        float dot = 0;
        for (uint32_t i = 0; i < a->head_dim; i++)
            dot = fmaf(a->q[i], k[i], dot);
        scores[p] = p < n_before ? -INFINITY : dot * a->scale;
        max = scores[p] > max ? scores[p] : max;
    }
    return max;
}

/* The tile's values join the sum under its new maximum. */
static void add_values(const mf_attention_args *a, const tile *t, uint32_t n, const float *scores,
                       float new_max, float *sum)
{
    for (uint32_t p = 0; p < n; p++) {
        const float *v = t->v + p * t->stride;
        float weight = expf(scores[p] - new_max);
        *sum += weight;
        for (uint32_t i = 0; i < a->head_dim; i++)
            a->out[i] = fmaf(weight, v[i], a->out[i]);
    }
}

void mf_attention_scalar(const mf_attention_args *a)
{
    float scores[TILE];
    float max = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < a->head_dim; i++)
        a->out[i] = 0;
    for (uint32_t first = a->first_kv / TILE * TILE; first < a->n_kv; first += TILE) {
        uint32_t n = a->n_kv - first < TILE ? a->n_kv - first : TILE;
        uint32_t n_before = a->first_kv > first ? a->first_kv - first : 0;
        const tile t = load_tile(a, first, n);
        float tile_max = score_tile(a, &t, n_before, n, scores);
        float new_max = tile_max > max ? tile_max : max;
        float shrink = max == -INFINITY ? 0.0f : expf(max - new_max);
        sum *= shrink;
        for (uint32_t i = 0; i < a->head_dim; i++)
            a->out[i] *= shrink;
        add_values(a, &t, n, scores, new_max, &sum);
        max = new_max;
    }
    if (a->sink != NULL)
        sum += expf(*a->sink - max); /* infinite: the sink takes all, and 0 is left */
    for (uint32_t i = 0; i < a->head_dim; i++)
        a->out[i] /= sum;
}

/* SPDX-License-Identifier: MIT */
/* Attention of one query head, scalar: online softmax, tile by tile. */
#include "kernels/scalar/scalar.h"

#include <math.h>

enum { TILE = 32 };

/* The tile's scores; returns their maximum. */
static float score_tile(const mf_attention_args *a, uint32_t first, uint32_t n, float *scores)
{
    float max = -INFINITY;
    for (uint32_t p = 0; p < n; p++) {
        const float *k = a->k + (size_t)(first + p) * a->kv_stride;
        float dot = 0;
        for (uint32_t i = 0; i < a->head_dim; i++)
            dot = fmaf(a->q[i], k[i], dot);
        scores[p] = dot * a->scale;
        max = scores[p] > max ? scores[p] : max;
    }
    return max;
}

void mf_attention_scalar(const mf_attention_args *a)
{
    float scores[TILE];
    float max = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < a->head_dim; i++)
        a->out[i] = 0;
    for (uint32_t first = 0; first < a->n_kv; first += TILE) {
        uint32_t n = a->n_kv - first < TILE ? a->n_kv - first : TILE;
        float tile_max = score_tile(a, first, n, scores);
        float new_max = tile_max > max ? tile_max : max;
        float shrink = max == -INFINITY ? 0.0f : expf(max - new_max);
        sum *= shrink;
        for (uint32_t i = 0; i < a->head_dim; i++)
            a->out[i] *= shrink;
        for (uint32_t p = 0; p < n; p++) {
            const float *v = a->v + (size_t)(first + p) * a->kv_stride;
            float weight = expf(scores[p] - new_max);
            sum += weight;
            for (uint32_t i = 0; i < a->head_dim; i++)
                a->out[i] = fmaf(weight, v[i], a->out[i]);
        }
        max = new_max;
    }
    for (uint32_t i = 0; i < a->head_dim; i++)
        a->out[i] /= sum;
}

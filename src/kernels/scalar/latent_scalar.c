/* SPDX-License-Identifier: MIT */
/* Multi-head latent attention, scalar: head by head, online softmax, tile by tile. */
#include "kernels/scalar/scalar.h"

#include "base/cache_rows.h"

#include <math.h>

/* n positions from `first` on as float32. */
static const float *load_tile(const mf_latent_args *a, uint32_t first, uint32_t n)
{
    size_t width = (size_t)a->n_latent + a->n_rot;
    const unsigned char *from = a->pages[first / MF_LATENT_TILE] + a->offset;
    if (a->cache_type == MF_F32)
        return (const void *)from;
    const size_t row_bytes = (size_t)mf_cache_row_bytes(a->cache_type, 1, width);
    for (uint32_t p = 0; p < n; p++, from += row_bytes)
        mf_cache_load(a->scratch + p * width, from, from + width, (uint32_t)width, a->cache_type);
    return a->scratch;
}

/* The scores of one head on a tile; returns their maximum. */
static float score_tile(const mf_latent_args *a, uint32_t h, const float *tile, uint32_t n,
                        float *scores)
{
    const float *q = a->q + h * a->q_stride, *q_rot = a->q_rot + h * a->q_rot_stride;
    float max = -INFINITY;
    for (uint32_t p = 0; p < n; p++) {
        float dot = 0;
        for (uint32_t i = 0; i < a->n_latent; i++)
            dot = fmaf(q[i], *tile++, dot);
        for (uint32_t i = 0; i < a->n_rot; i++)
            dot = fmaf(q_rot[i], *tile++, dot);
        scores[p] = dot * a->scale;
        max = scores[p] > max ? scores[p] : max;
    }
    return max;
}

static void attend_head(const mf_latent_args *a, uint32_t h)
{
    float scores[MF_LATENT_TILE];
    float max = -INFINITY, sum = 0, *out = a->out + h * a->out_stride;
    for (uint32_t i = 0; i < a->n_latent; i++)
        out[i] = 0;
    for (uint32_t first = 0; first < a->n_kv; first += MF_LATENT_TILE) {
        uint32_t n = a->n_kv - first < MF_LATENT_TILE ? a->n_kv - first : MF_LATENT_TILE;
        const float *tile = load_tile(a, first, n);
        float tile_max = score_tile(a, h, tile, n, scores);
        float new_max = tile_max > max ? tile_max : max;
        float shrink = first == 0 ? 0.0f : expf(max - new_max);
        sum *= shrink;
        for (uint32_t i = 0; i < a->n_latent; i++)
            out[i] *= shrink;
        for (uint32_t p = 0; p < n; p++, tile += a->n_latent + a->n_rot) {
            float weight = expf(scores[p] - new_max);
            sum += weight;
            for (uint32_t i = 0; i < a->n_latent; i++)
                out[i] = fmaf(weight, tile[i], out[i]);
        }
        max = new_max;
    }
    for (uint32_t i = 0; i < a->n_latent; i++)
        out[i] /= sum;
}

void mf_latent_attention_scalar(const mf_latent_args *a)
{
    for (uint32_t h = 0; h < a->n_heads; h++)
        attend_head(a, h);
}

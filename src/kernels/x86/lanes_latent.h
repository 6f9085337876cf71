/* SPDX-License-Identifier: MIT */
/*
 * Multi-head latent attention over the vectors of lanes_<isa>.h; see lanes_ops.h, which the
 * including file includes first. All heads share the cache, so a tile is met by blocks of heads:
 * each vector of it that is loaded serves several. A head's sums are the same in any block.
 */
#ifndef MF_KERNELS_LANES_LATENT_H
#define MF_KERNELS_LANES_LATENT_H

#include "base/cache_rows.h"
#include "kernels/kernels.h"

#include <string.h>

enum {
    BLOCK_HEADS = LANES == 16 ? 4 : 2, /* what the registers hold */
    BLOCK_POSITIONS = 4,
    BLOCK_VECTORS = LANES == 16 ? 4 : 2
};

/* n positions from `first` on as float32. */
MF_LANE_OP const float *latent_tile(const mf_latent_args *a, uint32_t first, uint32_t n)
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

/* dots[h][p] += q_h . k_p over n values, for n_heads (a constant) heads. */
MF_LANE_OP void latent_dots(const float *q, size_t q_stride, uint32_t n_heads,
                            const float *const *k, uint32_t n,
                            lanes dots[BLOCK_HEADS][BLOCK_POSITIONS])
{
    for (uint32_t i = 0; i < n; i += LANES) {
        lanes key[BLOCK_POSITIONS];
        for (uint32_t j = 0; j < BLOCK_POSITIONS; j++)
            key[j] = lanes_load(k[j] + i, n - i);
        for (uint32_t h = 0; h < n_heads; h++) {
            lanes query = lanes_load(q + h * q_stride + i, n - i);
            for (uint32_t j = 0; j < BLOCK_POSITIONS; j++)
                dots[h][j] = lanes_fma(query, key[j], dots[h][j]);
        }
    }
}

/* Scores of n_heads (a constant) heads from h0 on with the n positions of a tile, -infinity behind
 * them. */
MF_LANE_OP void latent_scores(const mf_latent_args *a, uint32_t h0, uint32_t n_heads,
                              const float *tile, uint32_t n, float (*scores)[MF_LATENT_TILE])
{
    size_t width = (size_t)a->n_latent + a->n_rot;
    for (uint32_t p = 0; p < n; p += BLOCK_POSITIONS) {
        lanes dots[BLOCK_HEADS][BLOCK_POSITIONS];
        const float *k[BLOCK_POSITIONS], *k_rot[BLOCK_POSITIONS];
        for (uint32_t j = 0; j < BLOCK_POSITIONS; j++) {
            /* a last block's missing positions repeat the last one */
            k[j] = tile + (p + j < n ? p + j : n - 1) * width;
            k_rot[j] = k[j] + a->n_latent;
            for (uint32_t h = 0; h < n_heads; h++)
                dots[h][j] = lanes_set(0);
        }
        latent_dots(a->q + h0 * a->q_stride, a->q_stride, n_heads, k, a->n_latent, dots);
        latent_dots(a->q_rot + h0 * a->q_rot_stride, a->q_rot_stride, n_heads, k_rot, a->n_rot,
                    dots);
        for (uint32_t h = 0; h < n_heads; h++)
            for (uint32_t j = 0; j < BLOCK_POSITIONS; j++)
                scores[h0 + h][p + j] = lanes_sum(dots[h][j]) * a->scale;
    }
    for (uint32_t h = 0; h < n_heads; h++)
        for (uint32_t p = n; p < MF_LATENT_TILE; p++)
            scores[h0 + h][p] = -INFINITY;
}

/* Scores become weights relative to the new maximum; returns what earlier sums shrink by. */
MF_LANE_OP float latent_weights(float *scores, float *max, float *sum, bool is_first)
{
    lanes largest = lanes_set(*max), total = lanes_set(0);
    for (uint32_t p = 0; p < MF_LATENT_TILE; p += LANES)
        largest = lanes_max(largest, lanes_load(scores + p, LANES));
    float new_max = lanes_largest(largest);
    for (uint32_t p = 0; p < MF_LATENT_TILE; p += LANES) {
        lanes e = lanes_exp(lanes_sub(lanes_load(scores + p, LANES), lanes_set(new_max)));
        lanes_store(scores + p, LANES, e);
        total = lanes_add(total, e);
    }
    float shrink = is_first ? 0.0f : expf(*max - new_max);
    *sum = fmaf(*sum, shrink, lanes_sum(total));
    *max = new_max;
    return shrink;
}

/* out[h][i ..] = out[h][i ..] * shrink[h] + sum_p weights[h][p] * latent_p[i ..], n_heads and
 * n_vectors constants. */
MF_LANE_OP void latent_values(const mf_latent_args *a, uint32_t h0, uint32_t n_heads, uint32_t i,
                              uint32_t n_vectors, const float *tile, uint32_t n,
                              float (*weights)[MF_LATENT_TILE], const float *shrink)
{
    size_t width = (size_t)a->n_latent + a->n_rot;
    uint32_t n_left = a->n_latent - i;
    lanes out[BLOCK_HEADS][BLOCK_VECTORS];
    for (uint32_t h = 0; h < n_heads; h++)
        for (uint32_t j = 0; j < n_vectors; j++) {
            const float *at = a->out + (h0 + h) * a->out_stride + i + j * LANES;
            out[h][j] = lanes_mul(lanes_load(at, n_left - j * LANES), lanes_set(shrink[h0 + h]));
        }
    for (uint32_t p = 0; p < n; p++) {
        lanes value[BLOCK_VECTORS];
        for (uint32_t j = 0; j < n_vectors; j++)
            value[j] = lanes_load(tile + p * width + i + j * LANES, n_left - j * LANES);
        for (uint32_t h = 0; h < n_heads; h++)
            for (uint32_t j = 0; j < n_vectors; j++)
                out[h][j] = lanes_fma(lanes_set(weights[h0 + h][p]), value[j], out[h][j]);
    }
    for (uint32_t h = 0; h < n_heads; h++)
        for (uint32_t j = 0; j < n_vectors; j++)
            lanes_store(a->out + (h0 + h) * a->out_stride + i + j * LANES, n_left - j * LANES,
                        out[h][j]);
}

MF_LANE_OP void latent_values_all(const mf_latent_args *a, uint32_t h0, uint32_t n_heads,
                                  const float *tile, uint32_t n, float (*weights)[MF_LATENT_TILE],
                                  const float *shrink)
{
    uint32_t i = 0;
    for (; i + BLOCK_VECTORS * LANES <= a->n_latent; i += BLOCK_VECTORS * LANES)
        latent_values(a, h0, n_heads, i, BLOCK_VECTORS, tile, n, weights, shrink);
    for (; i < a->n_latent; i += LANES)
        latent_values(a, h0, n_heads, i, 1, tile, n, weights, shrink);
}

MF_LANE_OP void latent_attention_lanes(const mf_latent_args *a)
{
    float scores[MF_LATENT_HEADS][MF_LATENT_TILE];
    float max[MF_LATENT_HEADS], sum[MF_LATENT_HEADS], shrink[MF_LATENT_HEADS];
    for (uint32_t h = 0; h < a->n_heads; h++) {
        max[h] = -INFINITY;
        sum[h] = 0;
        memset(a->out + h * a->out_stride, 0, a->n_latent * sizeof(float));
    }
    for (uint32_t first = 0; first < a->n_kv; first += MF_LATENT_TILE) {
        uint32_t n = a->n_kv - first < MF_LATENT_TILE ? a->n_kv - first : MF_LATENT_TILE;
        const float *tile = latent_tile(a, first, n);
        uint32_t h = 0;
        for (; h + BLOCK_HEADS <= a->n_heads; h += BLOCK_HEADS)
            latent_scores(a, h, BLOCK_HEADS, tile, n, scores);
        for (; h < a->n_heads; h++)
            latent_scores(a, h, 1, tile, n, scores);
        for (h = 0; h < a->n_heads; h++)
            shrink[h] = latent_weights(scores[h], &max[h], &sum[h], first == 0);
        for (h = 0; h + BLOCK_HEADS <= a->n_heads; h += BLOCK_HEADS)
            latent_values_all(a, h, BLOCK_HEADS, tile, n, scores, shrink);
        for (; h < a->n_heads; h++)
            latent_values_all(a, h, 1, tile, n, scores, shrink);
    }
    for (uint32_t h = 0; h < a->n_heads; h++) {
        float *out = a->out + h * a->out_stride;
        for (uint32_t i = 0; i < a->n_latent; i += LANES)
            lanes_store(out + i, a->n_latent - i,
                        lanes_div(lanes_load(out + i, a->n_latent - i), lanes_set(sum[h])));
    }
}

#endif

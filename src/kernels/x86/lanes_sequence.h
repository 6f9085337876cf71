/* SPDX-License-Identifier: MIT */
/* Attention and the gated delta rule over the vectors of lanes_<isa>.h; see lanes_ops.h, which the
 * including file includes first. */
#ifndef MF_KERNELS_LANES_SEQUENCE_H
#define MF_KERNELS_LANES_SEQUENCE_H

#include "kernels/kernels.h"

enum {
    TILE_POSITIONS = MF_ATTENTION_TILE, /* a multiple of every LANES */
    BLOCK_LANES = 4 /* vectors of values or of state columns kept in registers */
};

/* Keys and values of one tile. */
typedef struct attention_tile {
    const float *k, *v;
    size_t stride;
} attention_tile;

/* The n positions from `first` on as float32. */
MF_LANE_OP attention_tile attention_load(const mf_attention_args *a, uint32_t first, uint32_t n)
{
    const unsigned char *page = a->pages[first / TILE_POSITIONS];
    const void *k = page + a->k_offset, *v = page + a->v_offset;
    if (a->cache_type == MF_F32)
        return (attention_tile){k, v, a->kv_stride};
    uint32_t *to = (uint32_t *)(void *)a->scratch;
    for (uint32_t j = 0; j < 2; j++) {
        const uint16_t *from = j == 0 ? k : v;
        for (uint32_t p = 0; p < n; p++)
            for (uint32_t i = 0; i < a->head_dim; i++)
                to[(j * TILE_POSITIONS + p) * a->head_dim + i] =
                    (uint32_t)from[p * a->kv_stride + i] << 16;
    }
    return (attention_tile){a->scratch, a->scratch + (size_t)TILE_POSITIONS * a->head_dim,
                            a->head_dim};
}

/* Scores of the tile's n positions, and -infinity after them. */
MF_LANE_OP void attention_scores(const mf_attention_args *a, const attention_tile *t, uint32_t n,
                                 float *scores)
{
    for (uint32_t p = 0; p < n; p += 4) {
        lanes dot[4] = {lanes_set(0), lanes_set(0), lanes_set(0), lanes_set(0)};
        const float *k[4];
        for (uint32_t j = 0; j < 4; j++) /* a last block's missing positions repeat the last one */
            k[j] = t->k + (p + j < n ? p + j : n - 1) * t->stride;
        for (uint32_t i = 0; i < a->head_dim; i += LANES) {
            lanes q = lanes_load(a->q + i, a->head_dim - i);
            for (uint32_t j = 0; j < 4; j++)
                dot[j] = lanes_fma(q, lanes_load(k[j] + i, a->head_dim - i), dot[j]);
        }
        for (uint32_t j = 0; j < 4; j++)
            scores[p + j] = lanes_sum(dot[j]) * a->scale;
    }
    for (uint32_t p = n; p < TILE_POSITIONS; p++)
        scores[p] = -INFINITY;
}

/* out[i ..] = out[i ..] * shrink + sum_p weights[p] * v_p, n_vectors (a constant) vectors. */
MF_LANE_OP void attention_values(const mf_attention_args *a, uint32_t n_vectors, uint32_t i,
                                 const attention_tile *t, uint32_t n, const float *weights,
                                 float shrink)
{
    uint32_t n_left = a->head_dim - i;
    const float *v = t->v + i;
    lanes out[BLOCK_LANES];
    for (uint32_t j = 0; j < n_vectors; j++)
        out[j] =
            lanes_mul(lanes_load(a->out + i + j * LANES, n_left - j * LANES), lanes_set(shrink));
    for (uint32_t p = 0; p < n; p++, v += t->stride) {
        lanes weight = lanes_set(weights[p]);
        for (uint32_t j = 0; j < n_vectors; j++)
            out[j] = lanes_fma(weight, lanes_load(v + j * LANES, n_left - j * LANES), out[j]);
    }
    for (uint32_t j = 0; j < n_vectors; j++)
        lanes_store(a->out + i + j * LANES, n_left - j * LANES, out[j]);
}

MF_LANE_OP void attention_lanes(const mf_attention_args *a)
{
    float scores[TILE_POSITIONS];
    float max = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < a->head_dim; i += LANES)
        lanes_store(a->out + i, a->head_dim - i, lanes_set(0));
    const uint32_t begin = a->first_kv / TILE_POSITIONS * TILE_POSITIONS;
    for (uint32_t first = begin; first < a->n_kv; first += TILE_POSITIONS) {
        uint32_t n = a->n_kv - first < TILE_POSITIONS ? a->n_kv - first : TILE_POSITIONS;
        const attention_tile t = attention_load(a, first, n);
        attention_scores(a, &t, n, scores);
        for (uint32_t p = first; p < a->first_kv; p++)
            scores[p - first] = -INFINITY;
        lanes largest = lanes_set(max);
        for (uint32_t p = 0; p < TILE_POSITIONS; p += LANES)
            largest = lanes_max(largest, lanes_load(scores + p, LANES));
        float new_max = lanes_largest(largest);
        lanes weight_sum = lanes_set(0);
        for (uint32_t p = 0; p < TILE_POSITIONS; p += LANES) {
            lanes e = lanes_exp(lanes_sub(lanes_load(scores + p, LANES), lanes_set(new_max)));
            lanes_store(scores + p, LANES, e);
            weight_sum = lanes_add(weight_sum, e);
        }
        float shrink = first == begin ? 0.0f : expf(max - new_max);
        sum = fmaf(sum, shrink, lanes_sum(weight_sum));
        max = new_max;
        uint32_t i = 0;
        for (; i + BLOCK_LANES * LANES <= a->head_dim; i += BLOCK_LANES * LANES)
            attention_values(a, BLOCK_LANES, i, &t, n, scores, shrink);
        for (; i < a->head_dim; i += LANES)
            attention_values(a, 1, i, &t, n, scores, shrink);
    }
    if (a->sink != NULL)
        sum += expf(*a->sink - max); /* infinite: the sink takes all, and 0 is left */
    for (uint32_t i = 0; i < a->head_dim; i += LANES)
        lanes_store(a->out + i, a->head_dim - i,
                    lanes_div(lanes_load(a->out + i, a->head_dim - i), lanes_set(sum)));
}

/*
 * One token on n_vectors (a constant) vectors of columns from column j0 on: a pass that reads what
 * the decayed state predicts, and one that updates it and reads the answer. streams (a constant):
 * the state goes past the caches.
 */
MF_LANE_OP void delta_columns(const mf_delta_args *a, uint32_t n_vectors, bool streams, uint32_t j0,
                              uint32_t t)
{
    uint32_t n_left = a->value_dim - j0;
    const float *q = a->q + t * a->qk_stride, *k = a->k + t * a->qk_stride;
    const float *v = a->v + t * a->v_stride + j0;
    lanes decay = lanes_set(a->decay[t * a->gate_stride]);
    lanes beta = lanes_set(a->beta[t * a->gate_stride]);
    lanes predicted[BLOCK_LANES], delta[BLOCK_LANES], sum[BLOCK_LANES];
    for (uint32_t j = 0; j < n_vectors; j++)
        predicted[j] = sum[j] = lanes_set(0);
    const float *before = (t == 0 ? a->from : a->state) + j0;
    const float *from = before;
    for (uint32_t i = 0; i < a->key_dim; i++, from += a->value_dim) {
        lanes key = lanes_set(k[i]);
        for (uint32_t j = 0; j < n_vectors; j++) {
            lanes s = lanes_mul(lanes_load(from + j * LANES, n_left - j * LANES), decay);
            predicted[j] = lanes_fma(s, key, predicted[j]);
        }
    }
    for (uint32_t j = 0; j < n_vectors; j++) {
        lanes wanted = lanes_load(v + j * LANES, n_left - j * LANES);
        delta[j] = lanes_mul(lanes_sub(wanted, predicted[j]), beta);
    }
    float *state = a->state + j0;
    from = before;
    for (uint32_t i = 0; i < a->key_dim; i++, from += a->value_dim, state += a->value_dim) {
        lanes key = lanes_set(k[i]), query = lanes_set(q[i]);
        for (uint32_t j = 0; j < n_vectors; j++) {
            lanes s = lanes_mul(lanes_load(from + j * LANES, n_left - j * LANES), decay);
            s = lanes_fma(key, delta[j], s);
            if (streams)
                lanes_stream(state + j * LANES, s);
            else
                lanes_store(state + j * LANES, n_left - j * LANES, s);
            sum[j] = lanes_fma(s, query, sum[j]);
        }
    }
    for (uint32_t j = 0; j < n_vectors; j++)
        lanes_store(a->out + t * a->out_stride + j0 + j * LANES, n_left - j * LANES, sum[j]);
}

/* A state that is only written, and not read again before the caches have forgotten it, need not be
 * fetched for that. */
MF_LANE_OP bool delta_streams(const mf_delta_args *a)
{
    const size_t n_block = BLOCK_LANES * LANES;
    return a->n_tokens == 1 && a->from != a->state && a->value_dim % n_block == 0 &&
           (uintptr_t)a->state % (LANES * sizeof(float)) == 0;
}

/* Columns are independent of each other: a block of them goes through all tokens while in cache. */
MF_LANE_OP void delta_rule_lanes(const mf_delta_args *a)
{
    uint32_t j = 0;
    if (delta_streams(a)) {
        for (; j < a->value_dim; j += BLOCK_LANES * LANES)
            delta_columns(a, BLOCK_LANES, true, j, 0);
        lanes_fence();
        return;
    }
    for (; j + BLOCK_LANES * LANES <= a->value_dim; j += BLOCK_LANES * LANES) {
        for (uint32_t t = 0; t < a->n_tokens; t++)
            delta_columns(a, BLOCK_LANES, false, j, t);
    }
    for (; j < a->value_dim; j += LANES) {
        for (uint32_t t = 0; t < a->n_tokens; t++)
            delta_columns(a, 1, false, j, t);
    }
}

#endif

/* SPDX-License-Identifier: MIT */
/* The gated delta rule over the vectors of lanes_<isa>.h; see lanes_ops.h, which the including file
 * includes first. */
#ifndef MF_KERNELS_LANES_SEQUENCE_H
#define MF_KERNELS_LANES_SEQUENCE_H

#include "kernels/kernels.h"

enum {
    BLOCK_LANES = 4 /* vectors of values or of state columns kept in registers */
};

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

/* SPDX-License-Identifier: MIT */
/* The gated delta rule over the vectors of lanes_<isa>.h; see lanes_ops.h, which the including file
 * includes first. */
#ifndef MF_KERNELS_LANES_SEQUENCE_H
#define MF_KERNELS_LANES_SEQUENCE_H

#include "kernels/kernels.h"
#include "kernels/x86/unroll.h"

/* Vectors of a state's columns kept in registers: as many as there are registers for, so that its
 * rows are read from end to end, and fewer where the columns are. */
enum { WIDE_BLOCK = 8, BLOCK = 4 };

/* Columns that go through many tokens where all of them stay in the nearest cache, up to so many
 * keys. */
enum { HELD_BLOCK = 32 / LANES, HELD_KEYS = 256 };

/*
 * One token on n_vectors (a constant) vectors of columns from column j0 on, all of them whole but a
 * single one: a pass that reads what the decayed state predicts, and one that updates it and reads
 * the answer. streams (a constant): the state goes past the caches.
 */
MF_LANE_OP void delta_columns(const mf_delta_args *a, uint32_t n_vectors, bool streams, uint32_t j0,
                              uint32_t t)
{
    const size_t n = n_vectors > 1 ? LANES : a->value_dim - j0;
    const float *q = a->q + t * a->qk_stride, *k = a->k + t * a->qk_stride;
    const float *v = a->v + t * a->v_stride + j0;
    lanes decay = lanes_set(a->decay[t * a->gate_stride]);
    lanes beta = lanes_set(a->beta[t * a->gate_stride]);
    lanes predicted[WIDE_BLOCK], delta[WIDE_BLOCK], sum[WIDE_BLOCK];
    MF_UNROLL(8)
    for (uint32_t j = 0; j < n_vectors; j++)
        predicted[j] = sum[j] = lanes_set(0);
    const float *before = (t == 0 ? a->from : a->state) + j0;
    const float *from = before;
    for (uint32_t i = 0; i < a->key_dim; i++, from += a->value_dim) {
        lanes key = lanes_set(k[i]);
        MF_UNROLL(8)
        for (uint32_t j = 0; j < n_vectors; j++) {
            lanes s = lanes_mul(lanes_load(from + j * LANES, n), decay);
            predicted[j] = lanes_fma(s, key, predicted[j]);
        }
    }
    MF_UNROLL(8)
    for (uint32_t j = 0; j < n_vectors; j++)
        delta[j] = lanes_mul(lanes_sub(lanes_load(v + j * LANES, n), predicted[j]), beta);
    float *state = a->state + j0;
    from = before;
    for (uint32_t i = 0; i < a->key_dim; i++, from += a->value_dim, state += a->value_dim) {
        lanes key = lanes_set(k[i]), query = lanes_set(q[i]);
        MF_UNROLL(8)
        for (uint32_t j = 0; j < n_vectors; j++) {
            lanes s = lanes_mul(lanes_load(from + j * LANES, n), decay);
            s = lanes_fma(key, delta[j], s);
            if (streams)
                lanes_stream(state + j * LANES, s);
            else
                lanes_store(state + j * LANES, n, s);
            sum[j] = lanes_fma(s, query, sum[j]);
        }
    }
    MF_UNROLL(8)
    for (uint32_t j = 0; j < n_vectors; j++)
        lanes_store(a->out + t * a->out_stride + j0 + j * LANES, n, sum[j]);
}

/* A state that is only written, and not read again before the caches have forgotten it, need not be
 * fetched for that. */
MF_LANE_OP bool delta_streams(const mf_delta_args *a)
{
    return a->n_tokens == 1 && a->from != a->state && a->value_dim % (BLOCK * LANES) == 0 &&
           (uintptr_t)a->state % (LANES * sizeof(float)) == 0;
}

/* n_vectors (a constant) vectors of columns from column j0 on: `state` decayed for the token at
 * hand, a row after the other, and what it predicts for it. */
typedef struct held_columns {
    _Alignas(64) float state[HELD_KEYS * HELD_BLOCK * LANES];
    lanes predicted[HELD_BLOCK];
} held_columns;

MF_LANE_OP void delta_hold(const mf_delta_args *a, uint32_t n_vectors, uint32_t j0,
                           held_columns *held)
{
    const size_t n = n_vectors > 1 ? LANES : a->value_dim - j0;
    const lanes decay = lanes_set(a->decay[0]);
    const float *from = a->from + j0;
    float *state = held->state;
    lanes predicted[HELD_BLOCK];
    MF_UNROLL(8)
    for (uint32_t j = 0; j < n_vectors; j++)
        predicted[j] = lanes_set(0);
    for (uint32_t i = 0; i < a->key_dim; i++, from += a->value_dim) {
        const lanes key = lanes_set(a->k[i]);
        MF_UNROLL(8)
        for (uint32_t j = 0; j < n_vectors; j++, state += LANES) {
            const lanes s = lanes_mul(lanes_load(from + j * LANES, n), decay);
            predicted[j] = lanes_fma(s, key, predicted[j]);
            lanes_store(state, LANES, s);
        }
    }
    MF_UNROLL(8)
    for (uint32_t j = 0; j < n_vectors; j++)
        held->predicted[j] = predicted[j];
}

/* One token, with the bits of delta_columns: the columns are updated, answer, and become those that
 * the next token decays and reads, or, is_last (a constant), the state after the run. */
MF_LANE_OP void delta_pass(const mf_delta_args *a, uint32_t n_vectors, bool is_last, uint32_t j0,
                           uint32_t t, held_columns *held)
{
    const size_t n = n_vectors > 1 ? LANES : a->value_dim - j0;
    const float *q = a->q + t * a->qk_stride, *k = a->k + t * a->qk_stride;
    const float *v = a->v + t * a->v_stride + j0;
    const lanes beta = lanes_set(a->beta[t * a->gate_stride]);
    const lanes next_decay = lanes_set(is_last ? 0 : a->decay[(t + 1) * a->gate_stride]);
    const float *next_k = is_last ? k : k + a->qk_stride;
    float *state = held->state, *after = a->state + j0;
    lanes delta[HELD_BLOCK], sum[HELD_BLOCK], predicted[HELD_BLOCK];
    MF_UNROLL(8)
    for (uint32_t j = 0; j < n_vectors; j++) {
        delta[j] = lanes_mul(lanes_sub(lanes_load(v + j * LANES, n), held->predicted[j]), beta);
        sum[j] = predicted[j] = lanes_set(0);
    }
    for (uint32_t i = 0; i < a->key_dim; i++, after += a->value_dim) {
        const lanes key = lanes_set(k[i]), query = lanes_set(q[i]), next = lanes_set(next_k[i]);
        MF_UNROLL(8)
        for (uint32_t j = 0; j < n_vectors; j++, state += LANES) {
            lanes s = lanes_fma(key, delta[j], lanes_load(state, LANES));
            sum[j] = lanes_fma(s, query, sum[j]);
            if (is_last) {
                lanes_store(after + j * LANES, n, s);
            } else {
                s = lanes_mul(s, next_decay);
                predicted[j] = lanes_fma(s, next, predicted[j]);
                lanes_store(state, LANES, s);
            }
        }
    }
    MF_UNROLL(8)
    for (uint32_t j = 0; j < n_vectors; j++) {
        held->predicted[j] = predicted[j];
        lanes_store(a->out + t * a->out_stride + j0 + j * LANES, n, sum[j]);
    }
}

MF_LANE_OP void delta_held(const mf_delta_args *a, uint32_t n_vectors, uint32_t j0)
{
    held_columns held;
    delta_hold(a, n_vectors, j0, &held);
    for (uint32_t t = 0; t + 1 < a->n_tokens; t++)
        delta_pass(a, n_vectors, false, j0, t, &held);
    delta_pass(a, n_vectors, true, j0, a->n_tokens - 1, &held);
}

/* Columns are independent of each other: a block of them goes through all tokens while in cache. */
MF_LANE_OP void delta_rule_lanes(const mf_delta_args *a)
{
    uint32_t j = 0;
    if (delta_streams(a)) {
        for (; j + WIDE_BLOCK * LANES <= a->value_dim; j += WIDE_BLOCK * LANES)
            delta_columns(a, WIDE_BLOCK, true, j, 0);
        for (; j < a->value_dim; j += BLOCK * LANES)
            delta_columns(a, BLOCK, true, j, 0);
        lanes_fence();
        return;
    }
    if (a->n_tokens > 1 && a->key_dim <= HELD_KEYS) {
        for (; j + HELD_BLOCK * LANES <= a->value_dim; j += HELD_BLOCK * LANES)
            delta_held(a, HELD_BLOCK, j);
        for (; j < a->value_dim; j += LANES)
            delta_held(a, 1, j);
        return;
    }
    for (; j + BLOCK * LANES <= a->value_dim; j += BLOCK * LANES) {
        for (uint32_t t = 0; t < a->n_tokens; t++)
            delta_columns(a, BLOCK, false, j, t);
    }
    for (; j < a->value_dim; j += LANES) {
        for (uint32_t t = 0; t < a->n_tokens; t++)
            delta_columns(a, 1, false, j, t);
    }
}

#endif

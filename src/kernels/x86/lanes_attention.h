/* SPDX-License-Identifier: MIT */
/*
 * Attention over the vectors of lanes_<isa>.h; see lanes_ops.h, which the including file includes
 * first. A tile of keys and values is brought into the first cache once and met by all queries,
 * blocks of them at a time: each vector of it that is loaded serves several. A query's sums are the
 * same in any block.
 */
#ifndef MF_KERNELS_LANES_ATTENTION_H
#define MF_KERNELS_LANES_ATTENTION_H

#include "base/cache_rows.h"
#include "kernels/kernels.h"

#include <string.h>

enum {
    TILE_POSITIONS = MF_ATTENTION_TILE, /* a multiple of every LANES */
    QUERY_BLOCK = LANES == 16 ? 4 : 2,  /* what the registers hold, with as many positions: */
    POSITION_BLOCK = 4,                 /* as lanes_sum_four takes them */
    VALUE_BLOCK = 4                     /* vectors */
};

/* Keys and values of one tile; where those of the next one lie, NULL where nobody will want them.
 */
typedef struct attention_tile {
    const float *k, *v; /* [n, head_dim] */
    uint32_t first, n;
    const unsigned char *next_k, *next_v;
} attention_tile;

typedef struct attention_state {
    float scores[MF_ATTENTION_QUERIES][TILE_POSITIONS];
    float shrink[MF_ATTENTION_QUERIES];
} attention_state;

/* The n positions from `first` on as float32: a copy, as pages' strides leave caches unused. */
MF_LANE_OP attention_tile attention_load(const mf_attention_args *a, uint32_t first, uint32_t n)
{
    const unsigned char *const *page = a->pages + first / TILE_POSITIONS;
    const unsigned char *k = page[0] + a->k_offset, *v = page[0] + a->v_offset;
    const uint32_t dim = a->head_dim, next = first + TILE_POSITIONS;
    attention_tile t = {
        .k = a->scratch, .v = a->scratch + (size_t)TILE_POSITIONS * dim, .first = first, .n = n};
    if (next < a->end && next < a->n_kv + a->n_rows - 1) {
        t.next_k = page[1] + a->k_offset;
        t.next_v = page[1] + a->v_offset;
    }
    for (uint32_t j = 0; j < 2; j++) {
        const unsigned char *from = j == 0 ? k : v;
        float *to = a->scratch + (size_t)j * TILE_POSITIONS * dim;
        for (uint32_t p = 0; p < n; p++, from += a->kv_row_bytes, to += dim) {
            if (a->cache_type == MF_F32)
                memcpy(to, from, dim * sizeof *to);
            else
                mf_cache_load(to, from, from + a->scales_at, dim, a->cache_type);
        }
    }
    return t;
}

/* Which rows of the next tile a block of queries fetches, a few between its own products each: the
 * caches take few at a time. */
typedef struct attention_share {
    uint32_t part, mask; /* rows r with (r & mask) == part */
    size_t value_bytes;
} attention_share;

/* Dimensions d .. d + LANES - 1 of row r of the next tile; share may be NULL: none. */
MF_LANE_OP void attention_fetch(const mf_attention_args *a, const attention_share *share,
                                const unsigned char *rows, uint32_t r, uint32_t d)
{
    if (share != NULL && (r & share->mask) == share->part)
        __builtin_prefetch(rows + r * a->kv_row_bytes + d * share->value_bytes, 0, 2);
}

MF_LANE_OP const float *attention_query(const mf_attention_args *a, uint32_t i)
{
    return a->q + i / a->n_heads * a->q_row + (size_t)(i % a->n_heads) * a->head_dim;
}

/* `left` of the dimensions from d on, at most a vector. */
MF_LANE_OP void attention_dots(const float *const *q, const float *const *k, uint32_t n_queries,
                               uint32_t d, size_t left, lanes dot[QUERY_BLOCK][POSITION_BLOCK])
{
    lanes key[POSITION_BLOCK];
    for (uint32_t j = 0; j < POSITION_BLOCK; j++)
        key[j] = lanes_load(k[j] + d, left);
    for (uint32_t x = 0; x < n_queries; x++) {
        const lanes query = lanes_load(q[x] + d, left);
        for (uint32_t j = 0; j < POSITION_BLOCK; j++)
            dot[x][j] = lanes_fma(query, key[j], dot[x][j]);
    }
}

/* Scores of n_queries (a constant) from query i on with the tile's first n positions; the next
 * tile's keys are fetched meanwhile. */
MF_LANE_OP void attention_scores(const mf_attention_args *a, uint32_t i, uint32_t n_queries,
                                 const attention_tile *t, uint32_t n, const attention_share *share,
                                 float (*scores)[TILE_POSITIONS])
{
    const float *q[QUERY_BLOCK];
    for (uint32_t x = 0; x < n_queries; x++)
        q[x] = attention_query(a, i + x);
    for (uint32_t p = 0; p < n; p += POSITION_BLOCK) {
        lanes dot[QUERY_BLOCK][POSITION_BLOCK];
        const float *k[POSITION_BLOCK];
        for (uint32_t j = 0; j < POSITION_BLOCK; j++) {
            /* a last block's missing positions repeat the last one */
            k[j] = t->k + (size_t)(p + j < n ? p + j : n - 1) * a->head_dim;
            for (uint32_t x = 0; x < n_queries; x++)
                dot[x][j] = lanes_set(0);
        }
        uint32_t d = 0;
        for (; d + LANES <= a->head_dim; d += LANES) {
            for (uint32_t j = 0; j < POSITION_BLOCK; j++)
                attention_fetch(a, share, t->next_k, p + j, d);
            attention_dots(q, k, n_queries, d, LANES, dot);
        }
        if (d < a->head_dim)
            attention_dots(q, k, n_queries, d, a->head_dim - d, dot);
        for (uint32_t x = 0; x < n_queries; x++) {
            float sums[POSITION_BLOCK];
            lanes_sum_four(dot[x], sums);
            for (uint32_t j = 0; j < POSITION_BLOCK; j++)
                scores[i + x][p + j] = sums[j] * a->scale;
        }
    }
}

/* Scores become weights relative to the new maximum; returns what earlier sums shrink by. */
MF_LANE_OP float attention_weights(float *scores, mf_attention_sum *s, bool is_first)
{
    lanes largest = lanes_set(s->max);
    for (uint32_t p = 0; p < TILE_POSITIONS; p += LANES)
        largest = lanes_max(largest, lanes_load(scores + p, LANES));
    float new_max = lanes_largest(largest);
    lanes weight_sum = lanes_set(0);
    for (uint32_t p = 0; p < TILE_POSITIONS; p += LANES) {
        lanes e = lanes_exp(lanes_sub(lanes_load(scores + p, LANES), lanes_set(new_max)));
        lanes_store(scores + p, LANES, e);
        weight_sum = lanes_add(weight_sum, e);
    }
    float shrink = is_first ? 0.0f : s->max == new_max ? 1.0f : expf(s->max - new_max);
    s->sum = fmaf(s->sum, shrink, lanes_sum(weight_sum));
    s->max = new_max;
    return shrink;
}

/* Weights of n_queries from query i on, whose scores with the first n positions of the tile at
 * `first` are there. */
MF_LANE_OP void attention_weigh(const mf_attention_args *a, uint32_t i, uint32_t n_queries,
                                uint32_t first, uint32_t n, attention_state *s)
{
    for (uint32_t x = i; x < i + n_queries; x++) {
        const uint32_t row = a->n_rows == 1 ? 0 : x / a->n_heads;
        const uint32_t seen = mf_attention_first(a->window, a->window_is_chunk, a->n_kv + row);
        for (uint32_t p = n; p < TILE_POSITIONS; p++)
            s->scores[x][p] = -INFINITY;
        for (uint32_t p = first; p < seen; p++)
            s->scores[x][p - first] = -INFINITY;
        s->shrink[x] =
            attention_weights(s->scores[x], &a->sums[x], first == a->begin || first <= seen);
    }
}

/* out[i ..][d ..] = that * shrink + sum_p weights[p] * v_p, n_queries and n_vectors constants; the
 * next tile's values there are fetched meanwhile. */
MF_LANE_OP void attention_values(const mf_attention_args *a, uint32_t i, uint32_t n_queries,
                                 uint32_t d, uint32_t n_vectors, const attention_tile *t,
                                 uint32_t n, const attention_share *share, const attention_state *s)
{
    /* a constant but for the last */
    const size_t left = n_vectors == VALUE_BLOCK ? VALUE_BLOCK * LANES : a->head_dim - d;
    float *at = a->out + (size_t)i * a->head_dim + d;
    const float *v = t->v + d;
    lanes out[QUERY_BLOCK][VALUE_BLOCK];
    for (uint32_t x = 0; x < n_queries; x++)
        for (uint32_t j = 0; j < n_vectors; j++)
            out[x][j] =
                lanes_mul(lanes_load(at + (size_t)x * a->head_dim + j * LANES, left - j * LANES),
                          lanes_set(s->shrink[i + x]));
    for (uint32_t p = 0; p < n; p++, v += a->head_dim) {
        lanes value[VALUE_BLOCK];
        for (uint32_t j = 0; j < n_vectors; j++)
            attention_fetch(a, share, t->next_v, p, d + j * LANES);
        for (uint32_t j = 0; j < n_vectors; j++)
            value[j] = lanes_load(v + j * LANES, left - j * LANES);
        for (uint32_t x = 0; x < n_queries; x++) {
            const lanes weight = lanes_set(s->scores[i + x][p]);
            for (uint32_t j = 0; j < n_vectors; j++)
                out[x][j] = lanes_fma(weight, value[j], out[x][j]);
        }
    }
    for (uint32_t x = 0; x < n_queries; x++)
        for (uint32_t j = 0; j < n_vectors; j++)
            lanes_store(at + (size_t)x * a->head_dim + j * LANES, left - j * LANES, out[x][j]);
}

/* The tile joins n_queries (a constant) queries from query i on, all of which see its first n
 * positions. */
MF_LANE_OP void attention_block(const mf_attention_args *a, uint32_t i, uint32_t n_queries,
                                const attention_tile *t, uint32_t n, const attention_share *share,
                                attention_state *s)
{
    attention_scores(a, i, n_queries, t, n, share, s->scores);
    attention_weigh(a, i, n_queries, t->first, n, s);
    uint32_t d = 0;
    for (; d + VALUE_BLOCK * LANES <= a->head_dim; d += VALUE_BLOCK * LANES)
        attention_values(a, i, n_queries, d, VALUE_BLOCK, t, n, share, s);
    for (; d < a->head_dim; d += LANES)
        attention_values(a, i, n_queries, d, 1, t, n, share, s);
}

/* Of the tile's positions, those that a query sees the last of. */
MF_LANE_OP uint32_t attention_seen(const mf_attention_args *a, uint32_t i, const attention_tile *t)
{
    const uint32_t n_kv = a->n_kv + i / a->n_heads;
    return n_kv <= t->first ? 0 : n_kv - t->first < t->n ? n_kv - t->first : t->n;
}

/* Rows begin and end later and later: queries i .. end - 1 see some of the tile. The first
 * blocks of them fetch the next one. */
MF_LANE_OP void attention_tile_all(const mf_attention_args *a, const attention_tile *t,
                                   attention_state *s)
{
    const uint32_t n_queries = a->n_rows * a->n_heads;
    uint32_t i = 0, end = 0;
    while (i < n_queries && attention_seen(a, i, t) == 0)
        i++;
    for (end = i; end < n_queries; end++)
        if (mf_attention_first(a->window, a->window_is_chunk, a->n_kv + end / a->n_heads) >=
            t->first + TILE_POSITIONS)
            break;
    attention_share share = {0, end - i >= 4 * QUERY_BLOCK ? 3 : end - i >= 2 * QUERY_BLOCK,
                             mf_cache_head_at(a->cache_type, 1, 1)};
    while (i < end) {
        const uint32_t n = attention_seen(a, i, t);
        const bool is_block =
            i + QUERY_BLOCK <= end && attention_seen(a, i + QUERY_BLOCK - 1, t) == n;
        const bool is_fetching = t->next_k != NULL && share.part <= share.mask;
        if (is_block && is_fetching)
            attention_block(a, i, QUERY_BLOCK, t, n, &share, s);
        else if (is_block)
            attention_block(a, i, QUERY_BLOCK, t, n, NULL, s);
        else
            attention_block(a, i, 1, t, n, is_fetching ? &share : NULL, s);
        i += is_block ? QUERY_BLOCK : 1;
        share.part++;
    }
}

#include "kernels/x86/lanes_attention_one.h"

/* Several rows of one key head, or heads of any size. */
MF_LANE_OP void attention_tiles(const mf_attention_args *a, uint32_t first, uint32_t end,
                                attention_state *s)
{
    for (; first < end; first += TILE_POSITIONS) {
        const uint32_t n = end - first < TILE_POSITIONS ? end - first : TILE_POSITIONS;
        const attention_tile t = attention_load(a, first, n);
        attention_tile_all(a, &t, s);
    }
}

MF_LANE_OP void attention_lanes(const mf_attention_args *a)
{
    attention_state s;
    const uint32_t n_queries = a->n_rows * a->n_kv_heads * a->n_heads;
    const uint32_t n_kv = a->n_kv + a->n_rows - 1, end = n_kv < a->end ? n_kv : a->end;
    uint32_t first = mf_attention_first(a->window, a->window_is_chunk, a->n_kv);
    first = first / TILE_POSITIONS * TILE_POSITIONS;
    first = first > a->begin ? first : a->begin;
    memset(a->out, 0, (size_t)n_queries * a->head_dim * sizeof *a->out);
    for (uint32_t i = 0; i < n_queries; i++)
        a->sums[i] = (mf_attention_sum){-INFINITY, 0};
    if (is_one_row(a)) {
        (a->cache_type == MF_F32    ? one_row_f32
         : a->cache_type == MF_BF16 ? one_row_bf16
                                    : one_row_q8)(a, first, end, &s);
        return;
    }
    for (uint32_t g = 0; g < a->n_kv_heads; g++) {
        const mf_attention_args one = mf_attention_of_head(a, g);
        attention_tiles(&one, first, end, &s);
    }
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Attention of one row over the vectors of lanes_<isa>.h, all key heads together: the heads of each
 * see the same positions. Memory is what binds, and gives a core its full speed only for what lies
 * side by side: so keys and values are met where they lie and in that order, once, two positions'
 * keys and eight positions' values by all queries, while what comes some KB later is fetched into
 * the second cache, a line between the products of another. (Key head by key head, a row of each
 * position, comes at half the speed; and into the first cache a core has few lines on their way at
 * a time.) A query's sums are those of lanes_attention.h, which includes this.
 */
#ifndef MF_KERNELS_LANES_ATTENTION_ONE_H
#define MF_KERNELS_LANES_ATTENTION_ONE_H

enum {
    ONE_BLOCK = LANES == 16 ? 8 : 4, /* queries by two vectors: what the registers hold */
    ONE_KEYS = 2,                    /* of so many positions are met together, */
    ONE_VALUES = 8,                  /* and values; a tile's are whole sets of them */
    ONE_AHEAD_BYTES = 16384          /* how far ahead is fetched, in whole sets */
};

_Static_assert(2 * MF_ATTENTION_TILE >= MF_ATTENTION_QUERIES,
               "the scratch has room for all queries");

/* The rows of a tile as they lie, and the next one's (the last has its own again). */
typedef struct attention_rows {
    const unsigned char *k, *v, *next_k;
    uint32_t first, n, n_ahead;
} attention_rows;

/* Dimensions d .. d + LANES - 1 of a head's part of a row. */
MF_LANE_OP lanes one_load(mf_dtype type, const unsigned char *row, size_t scales_at, uint32_t d)
{
    uint16_t half;
    if (type == MF_F32)
        return lanes_load((const float *)(const void *)row + d, LANES);
    if (type == MF_BF16)
        return lanes_load_bf16(row + (size_t)d * 2);
    memcpy(&half, row + scales_at + d / MF_CACHE_BLOCK * 2, sizeof half);
    return lanes_mul(lanes_load_bytes(row + d), lanes_set(mf_f32_from_bf16(half)));
}

/* Row p of the keys or of the values; behind the last one what is met next. */
MF_LANE_OP const unsigned char *one_row(const mf_attention_args *a, const attention_rows *t,
                                        bool is_value, uint32_t p)
{
    const unsigned char *own = is_value ? t->v : t->k, *next = is_value ? t->next_k : t->v;
    return p < t->n ? own + p * a->kv_row_bytes : next + (p - t->n) * a->kv_row_bytes;
}

/* The line that dimensions d .. of a row begin. */
MF_LANE_OP void one_fetch(mf_dtype type, const unsigned char *row, uint32_t d)
{
    const size_t at = mf_cache_head_at(type, 1, d);
    if (at % 64 == 0)
        __builtin_prefetch(row + at, 0, 2);
}

/* Queries, and what their values come to, lie in blocks: of a block's queries some vectors each,
 * side by side, before the next ones. */
MF_LANE_OP size_t one_block_at(const mf_attention_args *a, uint32_t i)
{
    return (size_t)i * a->head_dim;
}

/* Scores of n_queries (a constant) from query i on, of key head g, with positions p and p + 1; of
 * an odd number's last one twice. */
MF_LANE_OP void one_scores(const mf_attention_args *a, mf_dtype type, const attention_rows *t,
                           uint32_t p, uint32_t g, uint32_t i, uint32_t n_queries,
                           float (*scores)[TILE_POSITIONS])
{
    const uint32_t dim = a->head_dim;
    const size_t at = mf_cache_head_at(type, g, dim), scales = mf_attention_scales_at(a, g);
    const unsigned char *row[ONE_KEYS], *ahead[ONE_KEYS];
    const float *q = a->scratch + one_block_at(a, i);
    lanes dot[ONE_BLOCK][ONE_KEYS];
    for (uint32_t j = 0; j < ONE_KEYS; j++) {
        row[j] = one_row(a, t, false, p + j < t->n ? p + j : t->n - 1) + at;
        ahead[j] = one_row(a, t, false, p + j + t->n_ahead) + at;
    }
    for (uint32_t x = 0; x < n_queries; x++)
        for (uint32_t j = 0; j < ONE_KEYS; j++)
            dot[x][j] = lanes_set(0);
    for (uint32_t d = 0; d < dim; d += LANES, q += n_queries * LANES) {
        lanes key[ONE_KEYS];
        for (uint32_t j = 0; j < ONE_KEYS; j++) {
            one_fetch(type, ahead[j], d);
            key[j] = one_load(type, row[j], scales, d);
        }
        for (uint32_t x = 0; x < n_queries; x++) {
            const lanes query = lanes_hold(lanes_load(q + x * LANES, LANES));
            for (uint32_t j = 0; j < ONE_KEYS; j++)
                dot[x][j] = lanes_fma(query, key[j], dot[x][j]);
        }
    }
    for (uint32_t x = 0; x < n_queries; x += 2) {
        const uint32_t y = x + 1 < n_queries ? x + 1 : x;
        const lanes four[4] = {dot[x][0], dot[x][1], dot[y][0], dot[y][1]};
        float sums[4];
        lanes_sum_four(four, sums);
        for (uint32_t j = 0; j < ONE_KEYS; j++) {
            scores[i + x][p + j] = sums[j] * a->scale;
            scores[i + y][p + j] = sums[2 + j] * a->scale;
        }
    }
}

/* n_rows values (a constant) of a key head, each so many bytes after the other. */
typedef struct one_value_rows {
    const unsigned char *row, *ahead;
    size_t stride, scales_at;
} one_value_rows;

/* out[n_queries, n_vectors] (constants) += weights * those of dimensions d ..; a tile's first
 * shrink what is there. */
MF_LANE_OP void one_values(mf_dtype type, const one_value_rows *v, uint32_t n_rows,
                           const float (*weights)[TILE_POSITIONS], const float *shrink,
                           uint32_t n_queries, uint32_t d, uint32_t n_vectors, float *out)
{
    lanes sums[ONE_BLOCK][2];
    for (uint32_t x = 0; x < n_queries; x++)
        for (uint32_t j = 0; j < n_vectors; j++) {
            sums[x][j] = lanes_load(out + (x * n_vectors + j) * LANES, LANES);
            if (shrink != NULL)
                sums[x][j] = lanes_mul(sums[x][j], lanes_set(shrink[x]));
        }
    for (uint32_t r = 0; r < n_rows; r++) {
        lanes value[2];
        for (uint32_t j = 0; j < n_vectors; j++) {
            one_fetch(type, v->ahead + r * v->stride, d + j * LANES);
            value[j] = one_load(type, v->row + r * v->stride, v->scales_at, d + j * LANES);
        }
        for (uint32_t x = 0; x < n_queries; x++) {
            const lanes weight = lanes_set(weights[x][r]);
            for (uint32_t j = 0; j < n_vectors; j++)
                sums[x][j] = lanes_fma(weight, value[j], sums[x][j]);
        }
    }
    for (uint32_t x = 0; x < n_queries; x++)
        for (uint32_t j = 0; j < n_vectors; j++)
            lanes_store(out + (x * n_vectors + j) * LANES, LANES, sums[x][j]);
}

/* All dimensions of that: n_rows (a constant) values from position p on. */
MF_LANE_OP void one_all_values(const mf_attention_args *a, mf_dtype type, const attention_rows *t,
                               uint32_t p, uint32_t n_rows, uint32_t g, uint32_t i,
                               uint32_t n_queries, const attention_state *s)
{
    const uint32_t dim = a->head_dim;
    const size_t at = mf_cache_head_at(type, g, dim);
    const one_value_rows v = {.row = one_row(a, t, true, p) + at,
                              .ahead = one_row(a, t, true, p + t->n_ahead) + at,
                              .stride = a->kv_row_bytes,
                              .scales_at = mf_attention_scales_at(a, g)};
    const float(*weights)[TILE_POSITIONS] = (const void *)&s->scores[i][p];
    const float *shrink = p == 0 ? s->shrink + i : NULL;
    float *out = a->out + one_block_at(a, i);
    uint32_t d = 0;
    for (; d + 2 * LANES <= dim; d += 2 * LANES, out += 2 * LANES * n_queries)
        one_values(type, &v, n_rows, weights, shrink, n_queries, d, 2, out);
    if (d < dim)
        one_values(type, &v, n_rows, weights, shrink, n_queries, d, 1, out);
}

/* A key head's queries, first .. first + n - 1, in blocks that are constants: OF(i, size) each. */
#define ONE_BLOCKS(first, n, OF)                         \
    do {                                                 \
        uint32_t i_ = (first), end_ = i_ + (n);          \
        for (; i_ + ONE_BLOCK <= end_; i_ += ONE_BLOCK)  \
            OF(i_, ONE_BLOCK);                           \
        for (; ONE_BLOCK > 4 && i_ + 4 <= end_; i_ += 4) \
            OF(i_, 4);                                   \
        for (; i_ + 2 <= end_; i_ += 2)                  \
            OF(i_, 2);                                   \
        for (; i_ < end_; i_++)                          \
            OF(i_, 1);                                   \
    } while (0)

/* A block from rows, with a vector of each query side by side. */
MF_LANE_OP void one_arrange(const mf_attention_args *a, uint32_t i, uint32_t n_queries)
{
    const float *from = a->q + one_block_at(a, i);
    float *to = a->scratch + one_block_at(a, i);
    for (uint32_t d = 0; d < a->head_dim; d += LANES)
        for (uint32_t x = 0; x < n_queries; x++, to += LANES)
            lanes_store(to, LANES, lanes_load(from + (size_t)x * a->head_dim + d, LANES));
}

/* A block to rows, of which one_all_values left two vectors side by side; by way of the scratch. */
MF_LANE_OP void one_return(const mf_attention_args *a, uint32_t i, uint32_t n_queries)
{
    const size_t dim = a->head_dim;
    const float *from = a->scratch;
    float *to = a->out + one_block_at(a, i);
    memcpy(a->scratch, to, n_queries * dim * sizeof *to);
    for (size_t d = 0; d < dim; d += 2 * LANES)
        for (uint32_t x = 0; x < n_queries; x++)
            for (size_t j = d; j < d + 2 * LANES && j < dim; j += LANES, from += LANES)
                lanes_store(to + x * dim + j, LANES, lanes_load(from, LANES));
}

MF_LANE_OP void one_tile(const mf_attention_args *a, mf_dtype type, const attention_rows *t,
                         attention_state *s)
{
    const uint32_t n_heads = a->n_heads, n_groups = a->n_kv_heads;
#define SCORES(i, n) one_scores(a, type, t, p, g, i, n, s->scores)
#define VALUES(i, n) one_all_values(a, type, t, p, ONE_VALUES, g, i, n, s)
#define LAST_VALUES(i, n) one_all_values(a, type, t, p, 1, g, i, n, s)
    uint32_t p = 0;
    for (; p < t->n; p += ONE_KEYS)
        for (uint32_t g = 0; g < n_groups; g++)
            ONE_BLOCKS(g * n_heads, n_heads, SCORES);
    attention_weigh(a, 0, n_groups * n_heads, t->first, t->n, s);
    for (p = 0; p + ONE_VALUES <= t->n; p += ONE_VALUES)
        for (uint32_t g = 0; g < n_groups; g++)
            ONE_BLOCKS(g * n_heads, n_heads, VALUES);
    for (; p < t->n; p++)
        for (uint32_t g = 0; g < n_groups; g++)
            ONE_BLOCKS(g * n_heads, n_heads, LAST_VALUES);
#undef SCORES
#undef VALUES
#undef LAST_VALUES
}

/* The positions first .. end - 1; first is a multiple of the tile. */
MF_LANE_OP void one_tiles(const mf_attention_args *a, mf_dtype type, uint32_t first, uint32_t end,
                          attention_state *s)
{
    const uint32_t n_ahead =
        (uint32_t)(ONE_AHEAD_BYTES / a->kv_row_bytes) / ONE_VALUES * ONE_VALUES;
#define ARRANGE(i, n) one_arrange(a, i, n)
#define RETURN(i, n) one_return(a, i, n)
    for (uint32_t g = 0; g < a->n_kv_heads; g++)
        ONE_BLOCKS(g * a->n_heads, a->n_heads, ARRANGE);
    for (; first < end; first += TILE_POSITIONS) {
        const unsigned char *const *page = a->pages + first / TILE_POSITIONS;
        const bool is_last = end - first <= TILE_POSITIONS;
        attention_rows t = {.k = page[0] + a->k_offset,
                            .v = page[0] + a->v_offset,
                            .next_k = page[is_last ? 0 : 1] + a->k_offset,
                            .first = first,
                            .n = is_last ? end - first : TILE_POSITIONS};
        t.n_ahead = n_ahead < ONE_VALUES ? ONE_VALUES : n_ahead < t.n ? n_ahead : t.n;
        one_tile(a, type, &t, s);
    }
    for (uint32_t g = 0; g < a->n_kv_heads; g++)
        ONE_BLOCKS(g * a->n_heads, a->n_heads, RETURN);
#undef ARRANGE
#undef RETURN
}

#undef ONE_BLOCKS

MF_LANE_OP bool is_one_row(const mf_attention_args *a)
{
    return a->n_rows == 1 && a->head_dim % LANES == 0;
}

/* Functions of their own. */
static __attribute__((noinline)) void one_row_f32(const mf_attention_args *a, uint32_t first,
                                                  uint32_t end, attention_state *s)
{
    one_tiles(a, MF_F32, first, end, s);
}

static __attribute__((noinline)) void one_row_bf16(const mf_attention_args *a, uint32_t first,
                                                   uint32_t end, attention_state *s)
{
    one_tiles(a, MF_BF16, first, end, s);
}

static __attribute__((noinline)) void one_row_q8(const mf_attention_args *a, uint32_t first,
                                                 uint32_t end, attention_state *s)
{
    one_tiles(a, MF_Q8, first, end, s);
}

#endif

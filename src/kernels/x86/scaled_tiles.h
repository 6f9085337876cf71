/* SPDX-License-Identifier: MIT */
/*
 * The product of blocks with a float for their scale (scaled_token.h) by tiles. A span of two
 * panels of 16 rows is unpacked once for a group of tokens; a block's product is a tile's, whose
 * sums become floats and are added to those of the blocks before it, which stay in registers. Few
 * tokens go by vectors.
 */
#ifndef MF_KERNELS_SCALED_TILES_H
#define MF_KERNELS_SCALED_TILES_H

#include "kernels/x86/scaled_few.h"
#include "kernels/x86/scaled_prepare.h"
#include "kernels/x86/scaled_unpack.h"

enum {
    SCALED_PANELS = 2,
    SCALED_ROWS = SCALED_PANELS * MF_TILE_ROWS,
    SCALED_BY_LANES = 3,                    /* tokens at most that go by vectors */
    SCALED_TILES = 8,                       /* of tokens in a group */
    SCALED_AHEAD = 1024,                    /* bytes of a row that are read ahead */
    SCALED_PANELS_BYTES_MAX = 3 * (1 << 14) /* up to which the next panels are what is read ahead */
};

/* Sums of a block of 16 rows: by each part of activations, the lowest first. */
typedef int32_t scaled_sums[DIGITS][MF_TILE_ROWS][MF_TILE_ROWS];

/* What is in work. A group's sums follow, and then the units of its tokens. */
typedef struct scaled_scratch {
    scaled_panel panels[SCALED_PANELS];
    scaled_sums sums;
    mf_blocks_last last[SCALED_ROWS];
} scaled_scratch;

typedef float scaled_acc[SCALED_PANELS][MF_TILE_ROWS][MF_TILE_ROWS]; /* [panel][token][row] */
typedef float scaled_units[MF_SCALED_CHUNKS][MF_TILE_ROWS];          /* of a span, [chunk][token] */

/* A span of 16 rows, which is unpacked, by a tile of tokens: into acc, zeros if it begins. */
typedef struct scaled_unit {
    const scaled_panel *panel;
    const mf_scaled_digits *x, *next; /* next: what to fetch meanwhile, NULL: nothing */
    size_t token_bytes;
    const float (*units)[MF_TILE_ROWS];
    uint32_t n_blocks;
    bool begins;
    int32_t (*sums)[MF_TILE_ROWS][MF_TILE_ROWS];
    float (*acc)[MF_TILE_ROWS];
} scaled_unit;

typedef void (*scaled_product)(mf_tiles *tiles, const scaled_unit *u);

/* A call, and the group that it is at. */
typedef struct scaled_call {
    mf_blocks_rows w;
    mf_tiles *tiles;
    scaled_product product;
    const unsigned char *tokens;
    size_t token_bytes, y_stride;
    uint32_t n_tokens, together; /* of a tile */
    float *y;
    scaled_scratch *s;
    scaled_acc *acc;     /* [tile] */
    scaled_units *units; /* [tile][span] */
    uint32_t row0, row1, n_cols, n_spans, tile0, n_tiles;
} scaled_call;

/* ---------------------------------------------------------------------------------- products -- */

/* How a weight of some bits is multiplied: into so many parts an activation goes, and by how many
 * bits the weight is shifted for the second half of a tile. */
typedef struct scaled_form {
    uint32_t n_parts, shift;
} scaled_form;

MF_INLINE const signed char *scaled_part(scaled_form f, const mf_scaled_digits *x, uint32_t b,
                                         uint32_t part)
{
    return f.shift != 0 ? x->halves[b][part][0] : x->bytes[b][part];
}

MF_INLINE void scaled_load(scaled_form f, mf_tiles *tiles, const scaled_unit *u, uint32_t b)
{
    MF_TILE_LOAD(tiles, 3, u->panel->weights[b], MF_TILE_ROW_BYTES);
    MF_TILE_LOAD(tiles, 4, scaled_part(f, u->x, b, 0), u->token_bytes);
    MF_TILE_LOAD(tiles, 5, scaled_part(f, u->x, b, 1), u->token_bytes);
    if (f.n_parts == DIGITS)
        MF_TILE_LOAD(tiles, 6, scaled_part(f, u->x, b, 2), u->token_bytes);
}

/* A block, which is loaded. */
MF_INLINE void scaled_dot(scaled_form f, mf_tiles *tiles)
{
    MF_TILE_ZERO(tiles, 0);
    MF_TILE_DOT_SS(tiles, 0, 4, 3);
    MF_TILE_ZERO(tiles, 1);
    MF_TILE_DOT_SS(tiles, 1, 5, 3);
    if (f.n_parts == DIGITS) {
        MF_TILE_ZERO(tiles, 2);
        MF_TILE_DOT_SS(tiles, 2, 6, 3);
    }
}

MF_INLINE void scaled_store_sums(scaled_form f, mf_tiles *tiles, const scaled_unit *u)
{
    MF_TILE_STORE(tiles, 0, u->sums[0], MF_TILE_ROW_BYTES);
    MF_TILE_STORE(tiles, 1, u->sums[1], MF_TILE_ROW_BYTES);
    if (f.n_parts == DIGITS)
        MF_TILE_STORE(tiles, 2, u->sums[2], MF_TILE_ROW_BYTES);
}

/* A token's sums of a block by all parts. */
MF_INLINE __m512i scaled_join(scaled_form f, const scaled_unit *u, uint32_t token)
{
    __m512i above = _mm512_loadu_si512(u->sums[1][token]);
    if (f.n_parts == DIGITS)
        above =
            _mm512_add_epi32(_mm512_slli_epi32(_mm512_loadu_si512(u->sums[2][token]), 8), above);
    return _mm512_add_epi32(_mm512_slli_epi32(above, 8 + f.shift),
                            _mm512_loadu_si512(u->sums[0][token]));
}

/* Block b's digits of the tokens that come next. Each is a stream of its own, too short for the
 * hardware's prefetcher. */
MF_INLINE void scaled_fetch_next(scaled_form f, uint32_t n, const scaled_unit *u, uint32_t b)
{
    const signed char *p = scaled_part(f, u->next, b, 0);
    MF_UNROLL(16)
    for (uint32_t t = 0; t < n; t++, p += u->token_bytes) {
        __builtin_prefetch(p);
        __builtin_prefetch(p + 64);
    }
}

/* What block b's sums add to n (a constant) tokens; and meanwhile what comes next is fetched. */
MF_INLINE void scaled_add(scaled_form f, uint32_t n, const scaled_unit *u, uint32_t b,
                          __m512 acc[MF_TILE_ROWS])
{
    const __m512 scales = _mm512_loadu_ps(u->panel->scales[b]);
    const float *units = u->units[b / 2];
    if (u->next != NULL)
        scaled_fetch_next(f, n, u, b);
    MF_UNROLL(16)
    for (uint32_t t = 0; t < n; t++)
        acc[t] = _mm512_fmadd_ps(
            _mm512_mul_ps(_mm512_cvtepi32_ps(scaled_join(f, u, t)), _mm512_set1_ps(units[t])),
            scales, acc[t]);
}

/* By n (a constant) tokens, of which the last few may not be there. While tiles multiply a block,
 * vectors make floats of the sums of the one before. Loads of tiles go before stores: they would
 * wait for those that lie alike in a page. */
MF_INLINE void scaled_multiply_unit(scaled_form f, uint32_t n, mf_tiles *tiles,
                                    const scaled_unit *u)
{
    __m512 acc[MF_TILE_ROWS];
    MF_UNROLL(16)
    for (uint32_t t = 0; t < n; t++)
        acc[t] = u->begins ? _mm512_setzero_ps() : _mm512_loadu_ps(u->acc[t]);
    scaled_load(f, tiles, u, 0);
    scaled_dot(f, tiles);
    MF_ROLLED
    for (uint32_t b = 1; b < u->n_blocks; b++) {
        scaled_load(f, tiles, u, b);
        scaled_store_sums(f, tiles, u);
        scaled_dot(f, tiles);
        scaled_add(f, n, u, b - 1, acc);
    }
    scaled_store_sums(f, tiles, u);
    scaled_add(f, n, u, u->n_blocks - 1, acc);
    MF_UNROLL(16)
    for (uint32_t t = 0; t < n; t++)
        _mm512_storeu_ps(u->acc[t], acc[t]);
}

/* Functions of their own, which kinds share. */
#define SCALED_PRODUCT(name, n, ...)                                                        \
    __attribute__((noinline)) static void name##_##n(mf_tiles *tiles, const scaled_unit *u) \
    {                                                                                       \
        scaled_multiply_unit((scaled_form){__VA_ARGS__}, n, tiles, u);                      \
    }
#define SCALED_PRODUCTS(name, ...)        \
    SCALED_PRODUCT(name, 4, __VA_ARGS__)  \
    SCALED_PRODUCT(name, 8, __VA_ARGS__)  \
    SCALED_PRODUCT(name, 12, __VA_ARGS__) \
    SCALED_PRODUCT(name, 16, __VA_ARGS__) \
    static const scaled_product name[] = {name##_4, name##_8, name##_12, name##_16};
SCALED_PRODUCTS(scaled_by_three, 2, 3)
SCALED_PRODUCTS(scaled_by_four, 2, 4)
SCALED_PRODUCTS(scaled_by_bytes, DIGITS, 0)

static scaled_product scaled_product_of(mf_weight_kind kind, uint32_t n_tokens)
{
    const uint32_t at = (n_tokens + 3) / 4 - 1;
    switch (mf_scaled_shift(kind)) {
    case 3:
        return scaled_by_three[at];
    case 4:
        return scaled_by_four[at];
    default:
        return scaled_by_bytes[at];
    }
}

/* A span's digits of the first token of tile i of the group. */
static const mf_scaled_digits *scaled_digits_of(const scaled_call *c, uint32_t i, uint32_t span)
{
    const size_t first = mf_tile_first(c->tile0 + i, c->together, c->n_tokens);
    return mf_scaled_token_at(c->tokens + first * c->token_bytes, c->n_spans).digits + span;
}

/* What comes after it: the next tile's, or of the next span the first one's. */
static const mf_scaled_digits *scaled_digits_after(const scaled_call *c, uint32_t i, uint32_t span)
{
    if (i + 1 < c->n_tiles)
        return scaled_digits_of(c, i + 1, span);
    return scaled_digits_of(c, 0, span + 1 < c->n_spans ? span + 1 : 0);
}

/* The first n_blocks (even) blocks of a span of n_panels panels by the group's tokens. */
static void scaled_multiply_span(const scaled_call *c, uint32_t n_panels, uint32_t span,
                                 uint32_t n_blocks)
{
    for (uint32_t i = 0; i < c->n_tiles; i++)
        for (uint32_t k = 0; k < n_panels; k++) {
            const scaled_unit u = {.panel = &c->s->panels[k],
                                   .x = scaled_digits_of(c, i, span),
                                   .next =
                                       k + 1 == n_panels ? scaled_digits_after(c, i, span) : NULL,
                                   .token_bytes = c->token_bytes,
                                   .units = c->units[(size_t)i * c->n_spans + span],
                                   .n_blocks = n_blocks,
                                   .begins = span == 0,
                                   .sums = c->s->sums,
                                   .acc = c->acc[i][k]};
            c->product(c->tiles, &u);
        }
}

/* The units of the group's tokens; of those that are missing the last one's. */
static void scaled_put_group_units(const scaled_call *c)
{
    for (uint32_t i = 0; i < c->n_tiles; i++) {
        const size_t first = mf_tile_first(c->tile0 + i, c->together, c->n_tokens);
        for (uint32_t t = 0; t < MF_TILE_ROWS; t++) {
            const size_t token = first + (t < c->together ? t : c->together - 1);
            const mf_scaled_token x =
                mf_scaled_token_at(c->tokens + token * c->token_bytes, c->n_spans);
            for (uint32_t s = 0; s < c->n_spans; s++)
                for (uint32_t k = 0; k < MF_SCALED_CHUNKS; k++)
                    c->units[(size_t)i * c->n_spans + s][k][t] = x.units[s][k];
        }
    }
}

/* ---------------------------------------------------------------------------------- rows -- */

/* A span of n_rows rows; the last one that is short is copied to where zeros follow. */
static scaled_rows scaled_rows_of(const scaled_call *c, uint32_t row, uint32_t n_rows,
                                  uint32_t span, mf_blocks_last *last)
{
    const mf_blocks_rows *w = &c->w;
    if (span == w->n_spans) {
        for (uint32_t r = 0; r < n_rows; r++)
            mf_blocks_copy_last(w, row + r, &last[r]);
        return (scaled_rows){last->values, last->scales, sizeof *last, sizeof *last, n_rows};
    }
    scaled_rows rows = {.values = w->values + row * w->row_bytes + (size_t)span * w->span_bytes,
                        .apart = w->row_bytes,
                        .scales_apart = w->scale_row_bytes,
                        .n_rows = n_rows};
    if (w->scales != NULL)
        rows.scales = w->scales + row * w->scale_row_bytes + (size_t)span * w->scale_span_bytes;
    return rows;
}

/* What comes after a span of the rows in work. */
static void scaled_fetch(const scaled_call *c, uint32_t row, uint32_t n_rows, uint32_t span)
{
    const mf_blocks_rows *w = &c->w;
    const size_t panels_bytes = SCALED_ROWS * w->row_bytes;
    const size_t ahead = panels_bytes <= SCALED_PANELS_BYTES_MAX ? panels_bytes : SCALED_AHEAD;
    const unsigned char *p = w->values + row * w->row_bytes + (size_t)span * w->span_bytes + ahead;
    for (uint32_t r = 0; r < n_rows; r++, p += w->row_bytes)
        for (uint32_t at = 0; at < w->span_bytes; at += 64)
            mf_fetch(p + at);
}

/* Rows that are complete, to y. */
static void scaled_write(const scaled_call *c, uint32_t row, uint32_t n_rows)
{
    const __m512 factor = _mm512_set1_ps(c->w.factor);
    for (uint32_t i = 0; i < c->n_tiles; i++) {
        float *y = c->y + (row - c->row0) +
                   mf_tile_first(c->tile0 + i, c->together, c->n_tokens) * c->y_stride;
        for (uint32_t t = 0; t < c->together; t++, y += c->y_stride)
            for (uint32_t k = 0; k * MF_TILE_ROWS < n_rows; k++)
                _mm512_mask_storeu_ps(y + (size_t)k * MF_TILE_ROWS,
                                      mf_tail_avx512(n_rows, (size_t)k * MF_TILE_ROWS),
                                      _mm512_mul_ps(_mm512_loadu_ps(c->acc[i][k][t]), factor));
    }
}

/* n_rows rows from `row` on, both panels' at most, by the group's tokens. */
MF_INLINE void scaled_multiply_rows(mf_weight_kind kind, const scaled_tables *t,
                                    const scaled_call *c, uint32_t row, uint32_t n_rows)
{
    const uint32_t n_panels = (n_rows + MF_TILE_ROWS - 1) / MF_TILE_ROWS;
    for (uint32_t span = 0; span < c->n_spans; span++) {
        const uint32_t left = c->n_cols - span * MF_SPAN;
        const uint32_t n_blocks =
            left < MF_SPAN ? (left + CHUNK - 1) / CHUNK * 2 : MF_SCALED_BLOCKS;
        scaled_fetch(c, row, n_rows, span);
        MF_ROLLED
        for (uint32_t k = 0; k < n_panels; k++) {
            const uint32_t first = k * MF_TILE_ROWS, rest = n_rows - first;
            const scaled_rows rows =
                scaled_rows_of(c, row + first, rest < MF_TILE_ROWS ? rest : MF_TILE_ROWS, span,
                               c->s->last + first);
            scaled_unpack(kind, t, &c->w, &rows, n_blocks, &c->s->panels[k]);
        }
        scaled_multiply_span(c, n_panels, span, n_blocks);
    }
    scaled_write(c, row, n_rows);
}

MF_INLINE void scaled_multiply_many(mf_weight_kind kind, scaled_call *c)
{
    const scaled_tables t = scaled_tables_of(kind);
    const uint32_t n_tiles = (c->n_tokens + c->together - 1) / c->together;
    const uint32_t n_fours = mf_scaled_shift(kind) != 0 ? MF_TILE_ROWS : MF_TILE_ROWS / 2;
    c->product = scaled_product_of(kind, c->together);
    memset(c->s->sums, 0, sizeof c->s->sums); /* of tokens that a tile does not have */
    for (uint32_t i = 0; i < 7; i++)          /* sums; weights; tokens */
        mf_tile_shape(c->tiles, i, i == 3 ? n_fours : c->together,
                      i > 3 ? 4 * n_fours : MF_TILE_ROW_BYTES);
    MF_TILES_OPEN(c->tiles);
    for (c->tile0 = 0; c->tile0 < n_tiles; c->tile0 += c->n_tiles) {
        c->n_tiles = n_tiles - c->tile0 < SCALED_TILES ? n_tiles - c->tile0 : SCALED_TILES;
        scaled_put_group_units(c);
        for (uint32_t row = c->row0; row < c->row1; row += SCALED_ROWS)
            scaled_multiply_rows(kind, &t, c, row,
                                 c->row1 - row < SCALED_ROWS ? c->row1 - row : SCALED_ROWS);
    }
    MF_TILES_CLOSE(c->tiles);
}

/* ------------------------------------------------------------------------------------- calls -- */

/* The cases of a switch: a function for each kind, a constant. */
#define SCALED_CASE(kind, call, ...) \
    case kind:                       \
        call(kind, __VA_ARGS__);     \
        break;
#define SCALED_KINDS(call, ...)                           \
    SCALED_CASE(MF_WEIGHT_MXFP4, call, __VA_ARGS__)       \
    SCALED_CASE(MF_WEIGHT_INT4, call, __VA_ARGS__)        \
    SCALED_CASE(MF_WEIGHT_INT8, call, __VA_ARGS__)        \
    SCALED_CASE(MF_WEIGHT_GGUF_Q4_0, call, __VA_ARGS__)   \
    SCALED_CASE(MF_WEIGHT_GGUF_Q5_0, call, __VA_ARGS__)   \
    SCALED_CASE(MF_WEIGHT_GGUF_Q8_0, call, __VA_ARGS__)   \
    SCALED_CASE(MF_WEIGHT_GGUF_IQ4_NL, call, __VA_ARGS__) \
    default:                                              \
        call(MF_WEIGHT_GGUF_MXFP4, __VA_ARGS__);          \
        break;

/* Tiles of tokens in a group, of n tokens. */
static size_t scaled_tiles_of(uint32_t n_tokens)
{
    const size_t n_tiles = (n_tokens + MF_TILE_ROWS - 1) / MF_TILE_ROWS;
    return n_tiles < SCALED_TILES ? n_tiles : SCALED_TILES;
}

/* mf_fixed_kernels.scratch_bytes */
static size_t scaled_scratch_bytes(const mf_matrix *w, uint32_t n_tokens)
{
    if (n_tokens <= SCALED_BY_LANES)
        return 0;
    return (size_t)mf_round_up(sizeof(scaled_scratch), 64) +
           scaled_tiles_of(n_tokens) *
               (sizeof(scaled_acc) + mf_blocks_spans(w) * sizeof(scaled_units));
}

/* Two tokens, or three: apart from what has one, as in one function gcc 12 keeps the tables of
 * neither in registers. */
__attribute__((noinline)) static void scaled_multiply_some(const scaled_call *c, few_tokens few)
{
    switch (c->w.kind) {
        SCALED_KINDS(multiply_few, FEW, &c->w, c->row0, c->row1, &few)
    }
}

MF_INLINE void scaled_multiply_kind(mf_weight_kind kind, scaled_call *c)
{
    const mf_scaled_token first = mf_scaled_token_at(c->tokens, c->n_spans);
    const few_tokens few = {(const unsigned char *)first.lanes, c->token_bytes, c->n_tokens, c->y,
                            c->y_stride};
    if (c->n_tokens == 1)
        multiply_few(kind, 1, &c->w, c->row0, c->row1, &few);
    else if (c->n_tokens <= SCALED_BY_LANES)
        scaled_multiply_some(c, few);
    else
        scaled_multiply_many(kind, c);
}

/* mf_fixed_kernels.matmul */
static void scaled_multiply(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                            uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    mf_tiles tiles = {0};
    scaled_acc *acc =
        (scaled_acc *)(void *)((unsigned char *)scratch + mf_round_up(sizeof(scaled_scratch), 64));
    scaled_call c = {.w = mf_blocks_rows_of(w),
                     .tiles = &tiles,
                     .tokens = tokens,
                     .token_bytes = mf_scaled_token_bytes(w),
                     .y_stride = y_stride,
                     .n_tokens = n_tokens,
                     .together = mf_tile_tokens(n_tokens),
                     .y = y,
                     .s = scratch,
                     .acc = acc,
                     .units = (scaled_units *)(void *)(acc + scaled_tiles_of(n_tokens)),
                     .row0 = row0,
                     .row1 = row1,
                     .n_cols = w->shape.n_cols,
                     .n_spans = mf_blocks_spans(w)};
    c.w.factor *= factor_of(w->shape.kind);
    switch (w->shape.kind) {
        SCALED_KINDS(scaled_multiply_kind, &c)
    }
}

#endif

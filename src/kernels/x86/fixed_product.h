/* SPDX-License-Identifier: MIT */
/*
 * The fixed-point product by panels of rows, written once over a tier's primitives, which the
 * including file defines first:
 *
 *   expand_scales(p)    the scales and biases of a panel's rows, to where it says
 *   sum_rows(...)       sums of all groups of four rows by one token
 *   unpack_panel(...)   a panel's weights, [n_groups][QUADS] vectors, a byte a weight
 *   sum_group_tokens(...) a group's sums by several tokens, [n_tokens, PANELS]
 *
 * Few tokens: bound by memory, so the order of the reads matters. A panel's rows go four together,
 * each from end to end. Long rows: one from each quarter of the range, each a stream of its own
 * that the hardware prefetcher can follow. Others: four neighbours.
 */
#ifndef MF_KERNELS_FIXED_PRODUCT_H
#define MF_KERNELS_FIXED_PRODUCT_H

#include <string.h>

enum {
    AHEAD_BYTES = 768,        /* how far ahead of a long row's stream is prefetched */
    SHORT_ROW_BYTES = 256,    /* rows up to this are short */
    SHORT_AHEAD_BYTES = 3072, /* how far ahead of the stream of short rows is prefetched */
    MIN_TILE_TOKENS = 4       /* from this many tokens on unpacking pays */
};

/* A tile's outputs, [TILE, PANELS, ROWS], and the sums of a group. */
#define TILE_BYTES ((size_t)2 * PANELS * TILE * sizeof(ints))

/* Scales and biases go to `values`. */
static void fill_panel(panel *p, float *values)
{
    p->scales = values;
    p->biases = values + panel_floats(p->w) / 2;
    expand_scales(p);
}

/* The panel of neighbours from `row` on. */
static panel open_panel(const mf_matrix *w, uint32_t row, uint32_t row1, float *values)
{
    panel p = {.w = w, .n_rows = row1 - row < ROWS ? row1 - row : ROWS, .next = ROWS};
    for (uint32_t r = 0; r < ROWS; r++)
        p.rows[r] = row + (r < p.n_rows ? r : p.n_rows - 1);
    fill_panel(&p, values);
    return p;
}

/* Lane 4 * i + k is row first + i + k * quarter. */
static panel open_quarters(const mf_matrix *w, uint32_t first, uint32_t quarter, float *values)
{
    panel p = {.w = w, .n_rows = ROWS, .next = ROWS / 4};
    for (uint32_t r = 0; r < ROWS; r++)
        p.rows[r] = first + r / 4 + r % 4 * quarter;
    fill_panel(&p, values);
    return p;
}

/* What group g adds to the outputs: the one place where floats are rounded. */
MF_LANE_OP lanes add_group(const panel *p, uint32_t g, ints sum, float unit, float activations,
                           lanes acc)
{
    const size_t at =
        (size_t)(p->w->shape.group == GROUP ? g : g * GROUP / p->w->shape.group) * ROWS;
    lanes scale = lanes_mul(lanes_load(p->scales + at, ROWS), lanes_set(unit));
    lanes bias = lanes_mul(lanes_load(p->biases + at, ROWS), lanes_set(activations));
    return lanes_add(acc, lanes_fma(ints_to_lanes(sum), scale, bias));
}

/* By way of `row`, [ROWS]. */
static void store_quarters(lanes values, uint32_t quarter, float *y, float *row)
{
    lanes_store(row, ROWS, values);
    for (size_t k = 0; k < 4; k++)
        for (size_t i = 0; i < ROWS / 4; i++)
            y[k * quarter + i] = row[4 * i + k];
}

/* ------------------------------------------------------------------------------------- few tokens
 */

static lanes multiply_panel(const panel *p, size_t ahead, const mf_fixed_token *x, int32_t *sums)
{
    const uint32_t n_groups = mf_fixed_groups(p->w);
    const size_t row_bytes = mf_fixed_row_bytes(p->w);
    for (uint32_t r = 0; r < ROWS; r += 4) {
        const unsigned char *rows[4];
        for (uint32_t i = 0; i < 4; i++)
            rows[i] = p->w->data + p->rows[r + i] * row_bytes;
        sum_rows(rows, n_groups, ahead, x->digits, sums + r);
    }
    lanes acc = lanes_set(0.0f);
    for (uint32_t g = 0; g < n_groups; g++) {
        ints sum = ints_add(ints_load(sums + (size_t)g * ROWS), ints_set(x->offsets[g]));
        acc = add_group(p, g, sum, x->units[g], x->sums[g], acc);
    }
    return acc;
}

static void multiply_few(const mf_matrix *w, uint32_t row0, uint32_t row1,
                         const unsigned char *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                         float *values)
{
    const uint32_t n_groups = mf_fixed_groups(w);
    const size_t token_bytes = mf_fixed_token_bytes(w);
    int32_t *sums = (int32_t *)(void *)(values + panel_floats(w));
    uint32_t row = row0, quarter = (row1 - row0) / ROWS * (ROWS / 4);
    if (mf_fixed_row_bytes(w) > SHORT_ROW_BYTES) {
        for (uint32_t i = 0; i < quarter; i += ROWS / 4) {
            const panel p = open_quarters(w, row0 + i, quarter, values);
            for (uint32_t t = 0; t < n_tokens; t++) {
                const mf_fixed_token x = mf_fixed_token_at(tokens + t * token_bytes, n_groups);
                const lanes outputs = multiply_panel(&p, AHEAD_BYTES, &x, sums);
                store_quarters(outputs, quarter, y + t * y_stride + i, (float *)(void *)sums);
            }
        }
        row += 4 * quarter;
    }
    for (; row < row1; row += ROWS) {
        const panel p = open_panel(w, row, row1, values);
        for (uint32_t t = 0; t < n_tokens; t++) {
            const mf_fixed_token x = mf_fixed_token_at(tokens + t * token_bytes, n_groups);
            lanes_store(y + t * y_stride + (row - row0), p.n_rows,
                        multiply_panel(&p, SHORT_AHEAD_BYTES, &x, sums));
        }
    }
}

/* ------------------------------------------------------------------------------------ many tokens
 */

/* Two panels, unpacked once, [PANELS][n_groups][QUADS] vectors. */
typedef struct block {
    panel panels[PANELS];
    uint32_t n_panels;
    ints *weights;
    float *outputs; /* of a tile, [TILE, PANELS, ROWS] */
    ints *sums;     /* of a group and a tile, likewise */
} block;

/* n_tokens is a constant. */
MF_LANE_OP void multiply_tile(uint32_t n_tokens, const block *b, const unsigned char *tokens,
                              size_t token_bytes, float *y, size_t y_stride)
{
    const uint32_t n_groups = mf_fixed_groups(b->panels[0].w);
    const mf_fixed_token x = mf_fixed_token_at(tokens, n_groups);
    const ints *w0 = b->weights, *w1 = w0 + (size_t)(b->n_panels - 1) * n_groups * QUADS;
    const size_t stride = token_bytes / sizeof(float);
    memset(b->outputs, 0, (size_t)PANELS * n_tokens * ROWS * sizeof(float));
    for (uint32_t g = 0; g < n_groups; g++, w0 += QUADS, w1 += QUADS) {
        const ints *sum = b->sums;
        float *out = b->outputs;
        sum_group_tokens(n_tokens, w0, w1, x.digits + g / 2, g % 2, token_bytes, b->sums);
        for (uint32_t t = 0; t < n_tokens; t++) {
            const size_t at = g + t * stride;
            const ints offset = ints_set(x.offsets[at]);
            for (uint32_t p = 0; p < PANELS; p++, out += ROWS, sum++)
                lanes_store(out, ROWS,
                            add_group(&b->panels[p], g, ints_add(*sum, offset), x.units[at],
                                      x.sums[at], lanes_load(out, ROWS)));
        }
    }
    for (uint32_t p = 0; p < b->n_panels; p++)
        for (uint32_t t = 0; t < n_tokens; t++)
            lanes_store(y + p * ROWS + t * y_stride, b->panels[p].n_rows,
                        lanes_load(b->outputs + (size_t)(PANELS * t + p) * ROWS, ROWS));
}

static void multiply_tokens(const block *b, const unsigned char *tokens, uint32_t n_tokens,
                            float *y, size_t y_stride)
{
    const size_t token_bytes = mf_fixed_token_bytes(b->panels[0].w);
    for (uint32_t n; n_tokens > 0; n_tokens -= n, tokens += n * token_bytes, y += n * y_stride) {
        n = n_tokens >= TILE ? TILE : n_tokens >= FEW ? FEW : n_tokens;
        if (n == TILE)
            multiply_tile(TILE, b, tokens, token_bytes, y, y_stride);
        else if (n == FEW)
            multiply_tile(FEW, b, tokens, token_bytes, y, y_stride);
        else if (n == 3)
            multiply_tile(3, b, tokens, token_bytes, y, y_stride);
        else if (n == 2)
            multiply_tile(2, b, tokens, token_bytes, y, y_stride);
        else
            multiply_tile(1, b, tokens, token_bytes, y, y_stride);
    }
}

/* -------------------------------------------------------------------------------------------- all
 */

/* mf_fixed_kernels.scratch_bytes */
static size_t product_scratch_bytes(const mf_matrix *w, uint32_t n_tokens)
{
    size_t n_bytes = PANELS * panel_floats(w) * sizeof(float);
    if (n_tokens < MIN_TILE_TOKENS)
        n_bytes += (size_t)mf_fixed_groups(w) * ROWS * sizeof(int32_t);
    else
        n_bytes += TILE_BYTES + (size_t)PANELS * mf_fixed_groups(w) * QUADS * sizeof(ints);
    return (size_t)mf_round_up(n_bytes, 64);
}

/* mf_fixed_kernels.matmul */
static void multiply(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                     uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    const uint32_t n_groups = mf_fixed_groups(w);
    float *values = scratch;
    if (n_tokens < MIN_TILE_TOKENS) {
        multiply_few(w, row0, row1, tokens, n_tokens, y, y_stride, values);
        return;
    }
    for (uint32_t row = row0; row < row1; row += PANELS * ROWS) {
        block b = {.n_panels = row1 - row > ROWS ? PANELS : 1,
                   .outputs = values + PANELS * panel_floats(w)};
        b.sums = (ints *)(void *)(b.outputs + PANELS * TILE * ROWS);
        b.weights = b.sums + PANELS * TILE;
        for (uint32_t p = 0; p < b.n_panels; p++) {
            b.panels[p] = open_panel(w, row + p * ROWS, row1, values + p * panel_floats(w));
            unpack_panel(&b.panels[p], b.weights + (size_t)p * n_groups * QUADS);
        }
        if (b.n_panels == 1) /* the second is the first again, and not stored */
            b.panels[1] = b.panels[0];
        multiply_tokens(&b, tokens, n_tokens, y + (row - row0), y_stride);
    }
}

#endif

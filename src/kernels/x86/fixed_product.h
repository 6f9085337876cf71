/* SPDX-License-Identifier: MIT */
/*
 * The fixed-point product by panels of rows, written once over a tier's primitives, which the
 * including file defines first:
 *
 *   MIN_BITS, MAX_BITS        of the weights that the tier multiplies so
 *   expand_scales(p)          the scales and biases of a panel's rows, to where it says
 *   ordered                   what sum_rows takes a token's digits as
 *   order_token(bits, ...)    those: where they lie, or in `to`, of ordered_bytes(n_groups)
 *   sum_rows(bits, ...)       sums of all groups of four rows by one token
 *   unpack_panel(bits, ...)   a panel's weights, [n_groups][QUADS] vectors, a byte a weight
 *   sum_group_tokens(is_wide, ...)   a group's sums by several tokens, [n_tokens, PANELS]
 *
 * A group's sum of weights of more than 4 bits need not fit 32 bits: it comes in two parts, that by
 * the two lower digits, and behind all of those that by the highest.
 *
 * Few tokens: bound by memory, so the order of the reads matters. A panel's rows go four together,
 * each from end to end. Long rows: one from each quarter of the range, each a stream of its own
 * that the hardware prefetcher can follow. Others: four neighbours.
 */
#ifndef MF_KERNELS_FIXED_PRODUCT_H
#define MF_KERNELS_FIXED_PRODUCT_H

#include "kernels/x86/fetch.h"

#include <string.h>

enum {
    AHEAD_BYTES = 768,      /* how far ahead of a long row's stream is prefetched; and of more */
    WIDE_AHEAD_BYTES = 512, /* than 4 bits, whose streams are faster, so that more is on its way */
    SHORT_ROW_BYTES = 256,  /* rows up to this are short */
    SHORT_AHEAD_BYTES = 3072,  /* how far ahead of the stream of short rows is prefetched */
    MIN_TILE_TOKENS = 4,       /* from this many tokens on unpacking pays */
    MIN_TILE_TOKENS_OTHERS = 2 /* of other bits than 4: few tokens are one */
};

/* A tile's outputs, [TILE, PANELS, ROWS], and the sums of a group, in two parts. */
#define TILE_BYTES ((size_t)3 * PANELS * TILE * sizeof(ints))

/* DO(bits), of which each width has code of its own: there they are a constant. */
#define BY_WIDTH(width, DO)                          \
    do {                                             \
        switch (MIN_BITS < MAX_BITS ? (width) : 4) { \
        case 2:                                      \
            DO(2);                                   \
            break;                                   \
        case 3:                                      \
            DO(3);                                   \
            break;                                   \
        case 5:                                      \
            if (MAX_BITS > 4)                        \
                DO(5);                               \
            break;                                   \
        case 6:                                      \
            if (MAX_BITS > 4)                        \
                DO(6);                               \
            break;                                   \
        case 8:                                      \
            if (MAX_BITS > 4)                        \
                DO(8);                               \
            break;                                   \
        default:                                     \
            DO(4);                                   \
            break;                                   \
        }                                            \
    } while (0)

/* Whether sums come in two parts. */
MF_LANE_OP bool is_wide(uint32_t bits)
{
    return bits > 4;
}

static bool is_by_tiles(const mf_matrix *w, uint32_t n_tokens)
{
    return n_tokens >= (w->shape.bits == 4 ? MIN_TILE_TOKENS : MIN_TILE_TOKENS_OTHERS);
}

/* Scales and biases go to `values`. */
static void fill_panel(panel *p, float *values)
{
    p->scales = values;
    p->biases = values + panel_floats(p->w) / 2;
    p->middle = (float)(1u << (p->w->shape.bits - 1));
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

/* A group's sums of integers; `offset` is that of the token. */
MF_LANE_OP lanes narrow_sums(uint32_t bits, ints sums, int32_t offset)
{
    return ints_to_lanes(ints_add(sums, ints_set(offset >> (4 - bits))));
}

/* The same of two parts: so is the offset cut. */
MF_LANE_OP lanes wide_sums(uint32_t bits, ints low, ints high, int32_t offset)
{
    const int32_t sum = offset >> 3, high_part = (sum + 32768) >> 16;
    const int32_t low_part = sum - high_part * 65536, middle = 1 << (bits - 1);
    const lanes lows = ints_to_lanes(ints_add(low, ints_set(low_part * middle)));
    const lanes highs = ints_to_lanes(ints_add(high, ints_set(high_part * middle)));
    return lanes_fma(highs, lanes_set(65536.0f), lows);
}

/* What a group adds to the outputs: the one place where floats are rounded. */
MF_LANE_OP lanes add_scaled(lanes scale, lanes bias, lanes sum, float unit, float activations,
                            lanes acc)
{
    scale = lanes_mul(scale, lanes_set(unit));
    bias = lanes_mul(bias, lanes_set(activations));
    return lanes_add(acc, lanes_fma(sum, scale, bias));
}

/* Where the scales and biases of group g of activations are. */
MF_LANE_OP size_t scales_at(const panel *p, uint32_t g)
{
    return (size_t)(p->w->shape.group == GROUP ? g : g * GROUP / p->w->shape.group) * ROWS;
}

MF_LANE_OP lanes add_group(const panel *p, uint32_t g, lanes sum, float unit, float activations,
                           lanes acc)
{
    const size_t at = scales_at(p, g);
    return add_scaled(lanes_load(p->scales + at, ROWS), lanes_load(p->biases + at, ROWS), sum, unit,
                      activations, acc);
}

/* By way of `row`, [ROWS]. */
static void store_quarters(lanes values, uint32_t quarter, float *y, float *row)
{
    lanes_store(row, ROWS, values);
    for (size_t k = 0; k < 4; k++)
        for (size_t i = 0; i < ROWS / 4; i++)
            y[k * quarter + i] = row[4 * i + k];
}

/* -------------------------------------------------------------------------------- few tokens -- */

MF_LANE_OP lanes multiply_panel(uint32_t bits, const panel *p, size_t ahead,
                                const mf_fixed_token *x, const ordered *digits, int32_t *sums)
{
    const uint32_t n_groups = mf_fixed_groups(p->w);
    const size_t row_bytes = mf_fixed_row_bytes(p->w);
    for (uint32_t r = 0; r < ROWS; r += 4) {
        const unsigned char *rows[4];
        for (uint32_t i = 0; i < 4; i++)
            rows[i] = p->w->data + p->rows[r + i] * row_bytes;
        sum_rows(bits, rows, n_groups, ahead, digits, sums + r);
    }
    lanes acc = lanes_set(0.0f);
    for (uint32_t g = 0; g < n_groups; g++) {
        const ints low = ints_load(sums + (size_t)g * ROWS);
        const lanes sum =
            is_wide(bits) ? wide_sums(bits, low, ints_load(sums + (size_t)(n_groups + g) * ROWS),
                                      x->offsets[g])
                          : narrow_sums(bits, low, x->offsets[g]);
        acc = add_group(p, g, sum, x->units[g], x->sums[g], acc);
    }
    return acc;
}

/* Of the sums of a panel by one token. */
static size_t sums_bytes(uint32_t bits, const mf_matrix *w)
{
    return (is_wide(bits) ? 2u : 1u) * (size_t)mf_fixed_groups(w) * ROWS * sizeof(int32_t);
}

MF_LANE_OP void multiply_few(uint32_t bits, const mf_matrix *w, uint32_t row0, uint32_t row1,
                             const unsigned char *tokens, uint32_t n_tokens, float *y,
                             size_t y_stride, float *values)
{
    const uint32_t n_groups = mf_fixed_groups(w);
    const size_t token_bytes = mf_fixed_token_bytes(w);
    int32_t *sums = (int32_t *)(void *)(values + panel_floats(w));
    char *to = (char *)sums + sums_bytes(bits, w);
    mf_fixed_token x[MIN_TILE_TOKENS];
    const ordered *digits[MIN_TILE_TOKENS];
    for (uint32_t t = 0; t < n_tokens; t++, to += ordered_bytes(n_groups)) {
        x[t] = mf_fixed_token_at(tokens + t * token_bytes, n_groups);
        digits[t] = order_token(bits, x[t].digits, n_groups, (void *)to);
    }
    const size_t ahead = mf_fetch_ahead(is_wide(bits) ? WIDE_AHEAD_BYTES : AHEAD_BYTES);
    uint32_t row = row0, quarter = (row1 - row0) / ROWS * (ROWS / 4);
    if (mf_fixed_row_bytes(w) > SHORT_ROW_BYTES) {
        for (uint32_t i = 0; i < quarter; i += ROWS / 4) {
            const panel p = open_quarters(w, row0 + i, quarter, values);
            for (uint32_t t = 0; t < n_tokens; t++) {
                const lanes outputs = multiply_panel(bits, &p, ahead, &x[t], digits[t], sums);
                store_quarters(outputs, quarter, y + t * y_stride + i, (float *)(void *)sums);
            }
        }
        row += 4 * quarter;
    }
    for (; row < row1; row += ROWS) {
        const panel p = open_panel(w, row, row1, values);
        for (uint32_t t = 0; t < n_tokens; t++)
            lanes_store(y + t * y_stride + (row - row0), p.n_rows,
                        multiply_panel(bits, &p, SHORT_AHEAD_BYTES, &x[t], digits[t], sums));
    }
}

/* ------------------------------------------------------------------------------- many tokens -- */

/* Two panels, unpacked once, [PANELS][n_groups][QUADS] vectors. */
typedef struct block {
    panel panels[PANELS];
    uint32_t n_panels;
    ints *weights;
    float *outputs; /* of a tile of tokens, [PANELS, ROWS] each */
    ints *sums;     /* of a group and a tile, likewise; those of the highest digit behind them */
} block;

/* A panel's weights. */
static void unpack_any(const panel *p, ints *out)
{
#define UNPACK_PANEL(bits) unpack_panel(bits, p, out)
    BY_WIDTH(p->w->shape.bits, UNPACK_PANEL);
#undef UNPACK_PANEL
}

/* The two panels from `row` on, with outputs of so many tokens and so many vectors of sums. */
static block open_block(const mf_matrix *w, uint32_t row, uint32_t row1, float *values,
                        uint32_t n_tokens, size_t n_sums)
{
    block b = {.n_panels = row1 - row > ROWS ? PANELS : 1,
               .outputs = values + PANELS * panel_floats(w)};
    b.sums = (ints *)(void *)(b.outputs + (size_t)PANELS * n_tokens * ROWS);
    b.weights = b.sums + n_sums;
    for (uint32_t p = 0; p < b.n_panels; p++) {
        b.panels[p] = open_panel(w, row + p * ROWS, row1, values + p * panel_floats(w));
        unpack_any(&b.panels[p], b.weights + (size_t)p * mf_fixed_groups(w) * QUADS);
    }
    if (b.n_panels == 1) /* the second is the first again, and not stored */
        b.panels[1] = b.panels[0];
    return b;
}

MF_LANE_OP void store_outputs(const block *b, uint32_t n_tokens, float *y, size_t y_stride)
{
    for (uint32_t p = 0; p < b->n_panels; p++)
        for (uint32_t t = 0; t < n_tokens; t++)
            lanes_store(y + p * ROWS + t * y_stride, b->panels[p].n_rows,
                        lanes_load(b->outputs + (size_t)(PANELS * t + p) * ROWS, ROWS));
}

/* wide and n_tokens are constants. */
MF_LANE_OP void multiply_tile(bool wide, uint32_t n_tokens, const block *b,
                              const unsigned char *tokens, size_t token_bytes, float *y,
                              size_t y_stride)
{
    const uint32_t n_groups = mf_fixed_groups(b->panels[0].w), bits = b->panels[0].w->shape.bits;
    const mf_fixed_token x = mf_fixed_token_at(tokens, n_groups);
    const ints *w0 = b->weights, *w1 = w0 + (size_t)(b->n_panels - 1) * n_groups * QUADS;
    const size_t stride = token_bytes / sizeof(float);
    memset(b->outputs, 0, (size_t)PANELS * n_tokens * ROWS * sizeof(float));
    for (uint32_t g = 0; g < n_groups; g++, w0 += QUADS, w1 += QUADS) {
        const ints *low = b->sums;
        float *out = b->outputs;
        sum_group_tokens(wide, n_tokens, w0, w1, x.digits + g, token_bytes, b->sums);
        for (uint32_t t = 0; t < n_tokens; t++) {
            const size_t at = g + t * stride;
            for (uint32_t p = 0; p < PANELS; p++, out += ROWS, low++) {
                const lanes sum = wide ? wide_sums(bits, *low, low[PANELS * TILE], x.offsets[at])
                                       : narrow_sums(bits, *low, x.offsets[at]);
                lanes_store(out, ROWS,
                            add_group(&b->panels[p], g, sum, x.units[at], x.sums[at],
                                      lanes_load(out, ROWS)));
            }
        }
    }
    store_outputs(b, n_tokens, y, y_stride);
}

MF_LANE_OP void multiply_tokens(bool wide, const block *b, const unsigned char *tokens,
                                uint32_t n_tokens, float *y, size_t y_stride)
{
    const size_t token_bytes = mf_fixed_token_bytes(b->panels[0].w);
    for (uint32_t n; n_tokens > 0; n_tokens -= n, tokens += n * token_bytes, y += n * y_stride) {
        n = n_tokens >= TILE ? TILE : n_tokens >= FEW ? FEW : n_tokens;
        if (n == TILE)
            multiply_tile(wide, TILE, b, tokens, token_bytes, y, y_stride);
        else if (n == FEW)
            multiply_tile(wide, FEW, b, tokens, token_bytes, y, y_stride);
        else if (n == 3)
            multiply_tile(wide, 3, b, tokens, token_bytes, y, y_stride);
        else if (n == 2)
            multiply_tile(wide, 2, b, tokens, token_bytes, y, y_stride);
        else
            multiply_tile(wide, 1, b, tokens, token_bytes, y, y_stride);
    }
}

/* Functions of their own. */
static void multiply_narrow(const block *b, const unsigned char *tokens, uint32_t n_tokens,
                            float *y, size_t y_stride)
{
    multiply_tokens(false, b, tokens, n_tokens, y, y_stride);
}

static void multiply_wide(const block *b, const unsigned char *tokens, uint32_t n_tokens, float *y,
                          size_t y_stride)
{
    multiply_tokens(true, b, tokens, n_tokens, y, y_stride);
}

static void multiply_many(const mf_matrix *w, uint32_t row0, uint32_t row1,
                          const unsigned char *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                          float *values)
{
    for (uint32_t row = row0; row < row1; row += PANELS * ROWS) {
        const block b = open_block(w, row, row1, values, TILE, (size_t)2 * PANELS * TILE);
        if (MAX_BITS > 4 && is_wide(w->shape.bits))
            multiply_wide(&b, tokens, n_tokens, y + (row - row0), y_stride);
        else
            multiply_narrow(&b, tokens, n_tokens, y + (row - row0), y_stride);
    }
}

/* --------------------------------------------------------------------------------------- all -- */

/* mf_fixed_kernels.scratch_bytes */
static size_t product_scratch_bytes(const mf_matrix *w, uint32_t n_tokens)
{
    size_t n_bytes = PANELS * panel_floats(w) * sizeof(float);
    if (!is_by_tiles(w, n_tokens))
        n_bytes += sums_bytes(w->shape.bits, w) + n_tokens * ordered_bytes(mf_fixed_groups(w));
    else
        n_bytes += TILE_BYTES + (size_t)PANELS * mf_fixed_groups(w) * QUADS * sizeof(ints);
    return (size_t)mf_round_up(n_bytes, 64);
}

/* mf_fixed_kernels.matmul */
static void multiply(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                     uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    if (is_by_tiles(w, n_tokens)) {
        multiply_many(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
        return;
    }
#define MULTIPLY_FEW(bits) multiply_few(bits, w, row0, row1, tokens, n_tokens, y, y_stride, scratch)
    BY_WIDTH(w->shape.bits, MULTIPLY_FEW);
#undef MULTIPLY_FEW
}

#endif

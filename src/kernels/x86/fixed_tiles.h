/* SPDX-License-Identifier: MIT */
/*
 * The fixed-point product of affine weights by tiles: panels unpacked as for vectors
 * (fixed_product.h), whose group of 16 rows is a tile as it lies, 16 fours of columns; those of one
 * parity at a time, as a token's digits lie. Sums of a group are exact, and rounded where the other
 * product rounds them: the same bits.
 *
 * The sums of a group become floats while the tiles of the next one are multiplied.
 */
#ifndef MF_KERNELS_FIXED_TILES_H
#define MF_KERNELS_FIXED_TILES_H

#include "kernels/x86/fixed_dot_avx512.h"
#include "kernels/x86/tiles.h"

enum { GROUP_SUMS = DIGITS * PANELS * MF_TILE_ROWS /* vectors: [digit][panel][token] */ };

/* A group of both panels by the tokens from x on, token_bytes apart. */
static void dot_group(mf_tiles *tiles, const ints *w0, const ints *w1, const mf_fixed_pair *x,
                      uint32_t group, size_t token_bytes, ints *sums)
{
    MF_TILE_LOAD(tiles, 4, w0, sizeof *w0);
    MF_TILE_LOAD(tiles, 5, w0 + QUADS / 2, sizeof *w0);
    MF_TILE_LOAD(tiles, 6, w1, sizeof *w1);
    MF_TILE_LOAD(tiles, 7, w1 + QUADS / 2, sizeof *w1);
    for (uint32_t d = 0; d < DIGITS; d++, sums += PANELS * MF_TILE_ROWS) {
        MF_TILE_LOAD(tiles, 2, x->digit[0][d][group], token_bytes);
        MF_TILE_LOAD(tiles, 3, x->digit[1][d][group], token_bytes);
        MF_TILE_ZERO(tiles, 0);
        MF_TILE_ZERO(tiles, 1);
        MF_TILE_DOT_SU(tiles, 0, 2, 4);
        MF_TILE_DOT_SU(tiles, 1, 2, 6);
        MF_TILE_DOT_SU(tiles, 0, 3, 5);
        MF_TILE_DOT_SU(tiles, 1, 3, 7);
        MF_TILE_STORE(tiles, 0, sums, sizeof *sums);
        MF_TILE_STORE(tiles, 1, sums + MF_TILE_ROWS, sizeof *sums);
    }
}

/* What group g of n_tokens tokens adds to b->outputs, [token][panel]. */
MF_INLINE void add_group_sums(bool wide, const block *b, uint32_t g, const mf_fixed_token *x,
                              size_t stride, uint32_t n_tokens, const ints *sums)
{
    const uint32_t bits = b->panels[0].w->shape.bits;
    float *out = b->outputs;
    for (uint32_t t = 0; t < n_tokens; t++) {
        const size_t at = g + t * stride;
        MF_UNROLL(2)
        for (uint32_t p = 0; p < PANELS; p++, out += ROWS) {
            const ints *digits = sums + p * MF_TILE_ROWS + t;
            const ints high = digits[2 * PANELS * MF_TILE_ROWS];
            const ints low =
                ints_add(_mm512_slli_epi32(digits[PANELS * MF_TILE_ROWS], 8), digits[0]);
            const lanes sum = wide ? wide_sums(bits, low, high, x->offsets[at])
                                   : narrow_sums(bits, ints_add(_mm512_slli_epi32(high, 16), low),
                                                 x->offsets[at]);
            lanes_store(
                out, ROWS,
                add_group(&b->panels[p], g, sum, x->units[at], x->sums[at], lanes_load(out, ROWS)));
        }
    }
}

/* Two panels by n_tokens tokens, at most a tile's. */
MF_INLINE void multiply_tiled(bool wide, mf_tiles *tiles, const block *b,
                              const unsigned char *tokens, size_t token_bytes, uint32_t n_tokens,
                              float *y, size_t y_stride)
{
    const uint32_t n_groups = mf_fixed_groups(b->panels[0].w);
    const mf_fixed_token x = mf_fixed_token_at(tokens, n_groups);
    const ints *w0 = b->weights, *w1 = w0 + (size_t)(b->n_panels - 1) * n_groups * QUADS;
    memset(b->outputs, 0, (size_t)PANELS * n_tokens * ROWS * sizeof(float));
    dot_group(tiles, w0, w1, x.digits, 0, token_bytes, b->sums);
    for (uint32_t g = 0; g < n_groups; g++) {
        const uint32_t next = g + 1;
        if (next < n_groups)
            dot_group(tiles, w0 + (size_t)next * QUADS, w1 + (size_t)next * QUADS,
                      x.digits + next / 2, next % 2, token_bytes,
                      b->sums + (size_t)(next % 2) * GROUP_SUMS);
        add_group_sums(wide, b, g, &x, token_bytes / sizeof(float), n_tokens,
                       b->sums + (size_t)(g % 2) * GROUP_SUMS);
    }
    for (uint32_t p = 0; p < b->n_panels; p++)
        for (uint32_t t = 0; t < n_tokens; t++)
            lanes_store(y + p * ROWS + t * y_stride, b->panels[p].n_rows,
                        lanes_load(b->outputs + (size_t)(PANELS * t + p) * ROWS, ROWS));
}

/* By all tokens, `together` in a tile. */
static void multiply_all_tiled(mf_tiles *tiles, const block *b, const unsigned char *tokens,
                               uint32_t n_tokens, uint32_t together, float *y, size_t y_stride)
{
    const size_t token_bytes = mf_fixed_token_bytes(b->panels[0].w);
    for (uint32_t i = 0; i * together < n_tokens; i++) {
        const uint32_t first = mf_tile_first(i, together, n_tokens);
        const unsigned char *x = tokens + first * token_bytes;
        if (is_wide(b->panels[0].w->shape.bits))
            multiply_tiled(true, tiles, b, x, token_bytes, together, y + first * y_stride,
                           y_stride);
        else
            multiply_tiled(false, tiles, b, x, token_bytes, together, y + first * y_stride,
                           y_stride);
    }
}

static void multiply_by_tiles(const mf_matrix *w, uint32_t row0, uint32_t row1,
                              const unsigned char *tokens, uint32_t n_tokens, float *y,
                              size_t y_stride, float *values)
{
    const uint32_t n_groups = mf_fixed_groups(w), together = mf_tile_tokens(n_tokens);
    mf_tiles tiles = {0};
    for (uint32_t i = 0; i < 4; i++) /* sums of two panels; digits of the two parities */
        mf_tile_shape(&tiles, i, together, i < 2 ? MF_TILE_ROW_BYTES : GROUP / 2);
    for (uint32_t i = 4; i < 8; i++) /* weights */
        mf_tile_shape(&tiles, i, QUADS / 2, MF_TILE_ROW_BYTES);
    MF_TILES_OPEN(&tiles);
    for (uint32_t row = row0; row < row1; row += PANELS * ROWS) {
        block b = {.n_panels = row1 - row > ROWS ? PANELS : 1,
                   .outputs = values + PANELS * panel_floats(w)};
        b.sums = (ints *)(void *)(b.outputs + (size_t)MF_TILE_ROWS * PANELS * ROWS);
        b.weights = b.sums + (size_t)2 * GROUP_SUMS;
        for (uint32_t p = 0; p < b.n_panels; p++) {
            b.panels[p] = open_panel(w, row + p * ROWS, row1, values + p * panel_floats(w));
            unpack_any(&b.panels[p], b.weights + (size_t)p * n_groups * QUADS);
        }
        if (b.n_panels == 1) /* the second is the first again, and not stored */
            b.panels[1] = b.panels[0];
        multiply_all_tiled(&tiles, &b, tokens, n_tokens, together, y + (row - row0), y_stride);
    }
    MF_TILES_CLOSE(&tiles);
}

/* mf_fixed_kernels.scratch_bytes: of few tokens what vectors need. */
static size_t tiled_scratch_bytes(const mf_matrix *w, uint32_t n_tokens)
{
    const size_t few = product_scratch_bytes(
        w, n_tokens < MF_TILED_TOKENS_MIN ? n_tokens : MF_TILED_TOKENS_MIN - 1);
    if (n_tokens < MF_TILED_TOKENS_MIN)
        return few;
    const size_t many =
        PANELS * panel_floats(w) * sizeof(float) +
        (size_t)MF_TILE_ROWS * PANELS * ROWS * sizeof(float) +
        (2 * GROUP_SUMS + (size_t)PANELS * mf_fixed_groups(w) * QUADS) * sizeof(ints);
    return (size_t)mf_round_up(many > few ? many : few, 64);
}

/* mf_fixed_kernels.matmul */
static void multiply_tiled_or_few(const mf_matrix *w, uint32_t row0, uint32_t row1,
                                  const void *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                                  void *scratch)
{
    if (n_tokens < MF_TILED_TOKENS_MIN)
        multiply(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
    else
        multiply_by_tiles(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

#endif

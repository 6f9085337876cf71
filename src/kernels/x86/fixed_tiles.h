/* SPDX-License-Identifier: MIT */
/*
 * The fixed-point product of affine weights by tiles: panels unpacked as for vectors
 * (fixed_product.h), whose group of 16 rows is a tile as it lies, 16 fours of columns, as a token's
 * digit of a group is a row of one. Sums of a group are exact, and rounded where the other product
 * rounds them: the same bits.
 *
 * The tiles of several groups are multiplied one right after the other, as each takes long and none
 * waits for another, before the sums become floats.
 */
#ifndef MF_KERNELS_FIXED_TILES_H
#define MF_KERNELS_FIXED_TILES_H

#include "kernels/x86/fixed_dot_avx512.h"
#include "kernels/x86/tiles.h"

enum {
    GROUP_SUMS = DIGITS * PANELS * MF_TILE_ROWS, /* vectors: [digit][panel][token] */
    GROUPS = 2                                   /* whose sums become floats together */
};

/* A group's weights of both panels. */
MF_INLINE void load_weights(mf_tiles *tiles, const ints *w0, const ints *w1)
{
    MF_TILE_LOAD(tiles, 3, w0, sizeof *w0);
    MF_TILE_LOAD(tiles, 4, w1, sizeof *w1);
}

/* n groups of both panels. Loads go before the stores of what was multiplied before: they would
 * wait for those that lie alike in a page. */
static void dot_groups(mf_tiles *tiles, const ints *w0, const ints *w1, const mf_fixed_digits *x,
                       uint32_t n, size_t token_bytes, ints *sums)
{
    load_weights(tiles, w0, w1);
    MF_TILE_LOAD(tiles, 2, x->digit[0], token_bytes);
    for (const mf_fixed_digits *end = x + n; x < end; x++) {
        w0 += QUADS;
        w1 += QUADS;
        for (uint32_t d = 0; d < DIGITS; d++, sums += PANELS * MF_TILE_ROWS) {
            MF_TILE_ZERO(tiles, 0);
            MF_TILE_ZERO(tiles, 1);
            MF_TILE_DOT_SU(tiles, 0, 2, 3);
            MF_TILE_DOT_SU(tiles, 1, 2, 4);
            if (d + 1 < DIGITS) {
                MF_TILE_LOAD(tiles, 2, x->digit[d + 1], token_bytes);
            } else if (x + 1 < end) {
                load_weights(tiles, w0, w1);
                MF_TILE_LOAD(tiles, 2, x[1].digit[0], token_bytes);
            }
            MF_TILE_STORE(tiles, 0, sums, sizeof *sums);
            MF_TILE_STORE(tiles, 1, sums + MF_TILE_ROWS, sizeof *sums);
        }
    }
}

/* What n (at most GROUPS, a constant) groups from g on of n_tokens tokens add to b->outputs,
 * [token][panel]. */
MF_INLINE void add_group_sums(uint32_t bits, const block *b, uint32_t g, uint32_t n,
                              const mf_fixed_token *x, size_t stride, uint32_t n_tokens)
{
    lanes scales[GROUPS][PANELS], biases[GROUPS][PANELS];
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t p = 0; p < PANELS; p++) {
            const size_t at = scales_at(&b->panels[p], g + i);
            scales[i][p] = lanes_load(b->panels[p].scales + at, ROWS);
            biases[i][p] = lanes_load(b->panels[p].biases + at, ROWS);
        }
    float *out = b->outputs;
    for (uint32_t t = 0; t < n_tokens; t++, out += PANELS * ROWS) {
        lanes acc[PANELS] = {lanes_load(out, ROWS), lanes_load(out + ROWS, ROWS)};
        MF_UNROLL(2)
        for (uint32_t i = 0; i < n; i++) {
            const size_t at = g + i + t * stride;
            MF_UNROLL(2)
            for (uint32_t p = 0; p < PANELS; p++) {
                const ints *digits = b->sums + (size_t)i * GROUP_SUMS + p * MF_TILE_ROWS + t;
                const ints high = digits[2 * PANELS * MF_TILE_ROWS];
                const ints low =
                    ints_add(_mm512_slli_epi32(digits[PANELS * MF_TILE_ROWS], 8), digits[0]);
                const lanes sum =
                    is_wide(bits) ? wide_sums(bits, low, high, x->offsets[at])
                                  : narrow_sums(bits, ints_add(_mm512_slli_epi32(high, 16), low),
                                                x->offsets[at]);
                acc[p] =
                    add_scaled(scales[i][p], biases[i][p], sum, x->units[at], x->sums[at], acc[p]);
            }
        }
        lanes_store(out, ROWS, acc[0]);
        lanes_store(out + ROWS, ROWS, acc[1]);
    }
}

/* Two panels by n_tokens tokens, at most a tile's. */
MF_INLINE void multiply_tiled(uint32_t bits, mf_tiles *tiles, const block *b,
                              const unsigned char *tokens, size_t token_bytes, uint32_t n_tokens,
                              float *y, size_t y_stride)
{
    const uint32_t n_groups = mf_fixed_groups(b->panels[0].w);
    const mf_fixed_token x = mf_fixed_token_at(tokens, n_groups);
    const ints *w0 = b->weights, *w1 = w0 + (size_t)(b->n_panels - 1) * n_groups * QUADS;
    const size_t stride = token_bytes / sizeof(float);
    memset(b->outputs, 0, (size_t)PANELS * n_tokens * ROWS * sizeof(float));
    for (uint32_t g = 0, n; g < n_groups; g += n, w0 += n * QUADS, w1 += n * QUADS) {
        n = n_groups - g < GROUPS ? 1 : GROUPS;
        dot_groups(tiles, w0, w1, x.digits + g, n, token_bytes, b->sums);
        if (n == GROUPS)
            add_group_sums(bits, b, g, GROUPS, &x, stride, n_tokens);
        else
            add_group_sums(bits, b, g, 1, &x, stride, n_tokens);
    }
    store_outputs(b, n_tokens, y, y_stride);
}

/* By all tokens, `together` in a tile. */
MF_INLINE void multiply_all_tiled(uint32_t bits, mf_tiles *tiles, const block *b,
                                  const unsigned char *tokens, uint32_t n_tokens, uint32_t together,
                                  float *y, size_t y_stride)
{
    const size_t token_bytes = mf_fixed_token_bytes(b->panels[0].w);
    for (uint32_t i = 0; i * together < n_tokens; i++) {
        const uint32_t first = mf_tile_first(i, together, n_tokens);
        multiply_tiled(bits, tiles, b, tokens + first * token_bytes, token_bytes, together,
                       y + first * y_stride, y_stride);
    }
}

static void multiply_any_tiled(mf_tiles *tiles, const block *b, const unsigned char *tokens,
                               uint32_t n_tokens, uint32_t together, float *y, size_t y_stride)
{
#define MULTIPLY_TILED(bits) \
    multiply_all_tiled(bits, tiles, b, tokens, n_tokens, together, y, y_stride)
    BY_WIDTH(b->panels[0].w->shape.bits, MULTIPLY_TILED);
#undef MULTIPLY_TILED
}

static void multiply_by_tiles(const mf_matrix *w, uint32_t row0, uint32_t row1,
                              const unsigned char *tokens, uint32_t n_tokens, float *y,
                              size_t y_stride, float *values)
{
    const uint32_t together = mf_tile_tokens(n_tokens);
    mf_tiles tiles = {0};
    for (uint32_t i = 0; i < 3; i++) /* sums of two panels; digits */
        mf_tile_shape(&tiles, i, together, MF_TILE_ROW_BYTES);
    for (uint32_t i = 3; i < 5; i++) /* weights */
        mf_tile_shape(&tiles, i, QUADS, MF_TILE_ROW_BYTES);
    MF_TILES_OPEN(&tiles);
    for (uint32_t row = row0; row < row1; row += PANELS * ROWS) {
        const block b = open_block(w, row, row1, values, MF_TILE_ROWS, (size_t)GROUPS * GROUP_SUMS);
        multiply_any_tiled(&tiles, &b, tokens, n_tokens, together, y + (row - row0), y_stride);
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
        ((size_t)GROUPS * GROUP_SUMS + (size_t)PANELS * mf_fixed_groups(w) * QUADS) * sizeof(ints);
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

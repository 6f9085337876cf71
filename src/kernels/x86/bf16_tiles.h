/* SPDX-License-Identifier: MIT */
/*
 * BF16 weights by tiles of bfloat16, three products (bf16_tokens.h) for one of float32. Every 32
 * columns, a block, add the sums of their products to the output, the highest digits first; how a
 * block is summed tiles.h says.
 *
 * One token or many, the sums are the same: tokens are columns of a tile, rows of weights its rows,
 * and neither shows in what another one gets. BF16 weights are tiles as they lie; tokens are laid
 * out for all rows of a call.
 *
 * Tiles take numbers below 2^-126 for zero and make none: of an output of n columns no more than
 * about n * 2^-126 * (1 + its largest weight) is lost.
 */
#ifndef MF_KERNELS_BF16_TILES_H
#define MF_KERNELS_BF16_TILES_H

#include "base/checked.h"
#include "kernels/x86/bf16_tokens.h"

#include <string.h>

enum {
    BF16_FEW_TOKENS = 8,   /* for which weights are read as memory gives them best */
    BF16_PANELS = 3,       /* tiles of rows that are multiplied together */
    BF16_AHEAD_BYTES = 512 /* how far ahead of a row is prefetched */
};

/* A call: what all of its products have in common. */
typedef struct bf16_call {
    const mf_matrix *w;
    mf_tiles *tiles;
    uint32_t n_blocks;
    uint32_t height;       /* rows of a tile */
    uint32_t width;        /* tokens of a tile */
    uint32_t row_step;     /* rows of the matrix from a row of a tile to the next */
    size_t row_stride;     /* bytes of them */
    size_t block_step;     /* bytes from a row's block to the next */
    bool is_packed;        /* rows are copied first */
    size_t token_stride;   /* bytes from a pair of columns of all tokens of a tile to the next */
    float *sums;           /* [16][16] */
    unsigned char *ends;   /* [panel][row][64 bytes]: the last columns, and zeros */
    unsigned char *packed; /* [panel][block][row][64 bytes]: the rows in work */
    unsigned char *tokens; /* [tile of tokens][block][digit][16 pairs of columns][token_stride] */
} bf16_call;

static inline size_t bf16_row_bytes(const mf_matrix *w)
{
    return (size_t)w->shape.n_cols * 2;
}

/* Whether rows are copied tile after tile, for tokens of several tiles: where they lie a multiple
 * of 4096 bytes apart, and so have the same few places in the nearest cache. */
static inline bool bf16_is_packed(const mf_matrix *w, uint32_t n_tiles)
{
    return n_tiles > 1 && bf16_row_bytes(w) % 4096 == 0;
}

static inline size_t bf16_packed_bytes(const mf_matrix *w)
{
    return (size_t)bf16_blocks(w->shape.n_cols) * BF16_TILE_BYTES;
}

static size_t bf16_scratch_bytes(const mf_matrix *w, uint32_t n_tokens)
{
    const uint32_t n_tiles = (n_tokens + MF_TILE_ROWS - 1) / MF_TILE_ROWS;
    const uint32_t width = n_tokens == 1 ? 1 : MF_TILE_ROWS;
    const size_t packed = bf16_is_packed(w, n_tiles) ? BF16_PANELS * bf16_packed_bytes(w) : 0;
    return bf16_tokens_bytes(w->shape.n_cols, width) *
               bf16_tiles_most(w->shape.n_cols, n_tiles, width) +
           packed + (size_t)BF16_PANELS * BF16_TILE_BYTES + MF_TILE_ROWS * MF_TILE_ROW_BYTES;
}

/* A block of n_panels (a constant) panels; panel p's first row is at `from[p]`. */
MF_INLINE void bf16_dot(const bf16_call *c, uint32_t n_panels, const unsigned char *const *from,
                        size_t stride, const unsigned char *tokens)
{
    const size_t digit = MF_TILE_ROWS * c->token_stride;
    MF_TILE_LOAD(c->tiles, 6, tokens, c->token_stride);
    MF_TILE_LOAD(c->tiles, 3, from[0], stride);
    MF_TILE_DOT_BF16(c->tiles, 0, 3, 6);
    if (n_panels > 1) {
        MF_TILE_LOAD(c->tiles, 4, from[1], stride);
        MF_TILE_DOT_BF16(c->tiles, 1, 4, 6);
    }
    if (n_panels > 2) {
        MF_TILE_LOAD(c->tiles, 5, from[2], stride);
        MF_TILE_DOT_BF16(c->tiles, 2, 5, 6);
    }
    MF_TILE_LOAD(c->tiles, 7, tokens + digit, c->token_stride);
    MF_TILE_DOT_BF16(c->tiles, 0, 3, 7);
    if (n_panels > 1)
        MF_TILE_DOT_BF16(c->tiles, 1, 4, 7);
    if (n_panels > 2)
        MF_TILE_DOT_BF16(c->tiles, 2, 5, 7);
    MF_TILE_LOAD(c->tiles, 6, tokens + 2 * digit, c->token_stride);
    MF_TILE_DOT_BF16(c->tiles, 0, 3, 6);
    if (n_panels > 1)
        MF_TILE_DOT_BF16(c->tiles, 1, 4, 6);
    if (n_panels > 2)
        MF_TILE_DOT_BF16(c->tiles, 2, 5, 6);
}

MF_INLINE void bf16_prefetch(const bf16_call *c, uint32_t n_panels,
                             const unsigned char *const *from, size_t stride)
{
    for (uint32_t p = 0; p < n_panels; p++)
        for (uint32_t r = 0; r < c->height; r++)
            _mm_prefetch((const char *)from[p] + r * stride + BF16_AHEAD_BYTES, _MM_HINT_T0);
}

/* What tile 0, 1 or 2 (p, a constant) holds goes to y, the address of its first row. */
MF_INLINE void bf16_put(const bf16_call *c, uint32_t p, float *y, size_t y_stride)
{
    const size_t stride = c->width == 1 ? sizeof(float) : MF_TILE_ROW_BYTES;
    const __mmask16 mask = mf_tail_avx512(c->height, 0);
    if (p == 0)
        MF_TILE_STORE(c->tiles, 0, c->sums, stride);
    else if (p == 1)
        MF_TILE_STORE(c->tiles, 1, c->sums, stride);
    else
        MF_TILE_STORE(c->tiles, 2, c->sums, stride);
    if (c->row_step > 1) {
        for (uint32_t t = 0; t < c->width; t++)
            for (uint32_t i = 0; i < c->height; i++)
                y[t * y_stride + (size_t)i * c->row_step] = c->sums[i * stride / sizeof(float) + t];
        return;
    }
    if (c->width == 1) {
        _mm512_mask_storeu_ps(y, mask, _mm512_load_ps(c->sums));
        return;
    }
    __m512i rows[MF_TILE_ROWS];
    for (uint32_t r = 0; r < MF_TILE_ROWS; r++)
        rows[r] = _mm512_load_si512(c->sums + (size_t)r * MF_TILE_ROWS);
    bf16_transpose(rows);
    for (uint32_t t = 0; t < c->width; t++)
        _mm512_mask_storeu_ps(y + t * y_stride, mask, _mm512_castsi512_ps(rows[t]));
}

/* n_panels (a constant) panels from the rows row[p] on by the tokens of one tile; y[p] is where
 * the outputs of their first rows go. */
MF_INLINE void bf16_panels(const bf16_call *c, uint32_t n_panels, const unsigned char *const *rows,
                           bool is_new, const unsigned char *tokens, float *const *y,
                           size_t y_stride)
{
    const uint32_t n_whole = c->is_packed ? c->n_blocks : c->w->shape.n_cols / BF16_BLOCK;
    const unsigned char *from[BF16_PANELS] = {rows[0], rows[1], rows[2]};
    MF_TILE_ZERO(c->tiles, 0);
    MF_TILE_ZERO(c->tiles, 1);
    MF_TILE_ZERO(c->tiles, 2);
    for (uint32_t b = 0; b < n_whole; b++, tokens += c->token_stride * MF_TILE_ROWS * BF16_DIGITS) {
        if (is_new) /* others are in the second cache */
            bf16_prefetch(c, n_panels, from, c->row_stride);
        bf16_dot(c, n_panels, from, c->row_stride, tokens);
        for (uint32_t p = 0; p < n_panels; p++)
            from[p] += c->block_step;
    }
    if (n_whole < c->n_blocks) {
        const unsigned char *ends[BF16_PANELS];
        for (uint32_t p = 0; p < BF16_PANELS; p++)
            ends[p] = c->ends + (size_t)p * BF16_TILE_BYTES;
        bf16_dot(c, n_panels, ends, MF_TILE_ROW_BYTES, tokens);
    }
    bf16_put(c, 0, y[0], y_stride);
    if (n_panels > 1)
        bf16_put(c, 1, y[1], y_stride);
    if (n_panels > 2)
        bf16_put(c, 2, y[2], y_stride);
}

/* Copies of the columns after the last whole block. */
static void bf16_copy_ends(const bf16_call *c, uint32_t n_panels, const unsigned char *const *rows)
{
    const size_t row_bytes = bf16_row_bytes(c->w);
    const size_t at = row_bytes / MF_TILE_ROW_BYTES * MF_TILE_ROW_BYTES;
    for (uint32_t p = 0; p < n_panels && at < row_bytes; p++)
        for (uint32_t r = 0; r < c->height; r++)
            memcpy(c->ends + (size_t)p * BF16_TILE_BYTES + (size_t)r * MF_TILE_ROW_BYTES,
                   rows[p] + r * c->row_stride + at, row_bytes - at);
}

/* A panel's rows, of whole blocks, tile after tile. */
static const unsigned char *bf16_pack(const bf16_call *c, const unsigned char *row,
                                      unsigned char *out)
{
    const uint32_t n_cols = c->w->shape.n_cols;
    for (uint32_t r = 0; r < c->height; r++, row += c->row_stride) {
        unsigned char *to = out + (size_t)r * MF_TILE_ROW_BYTES;
        for (uint32_t col = 0; col < n_cols; col += BF16_BLOCK, to += BF16_TILE_BYTES)
            _mm512_store_si512(to, _mm512_loadu_si512(row + (size_t)col * 2));
    }
    return out;
}

/* Panels of which the first rows are row0 + at[p], by the tiles of tokens from tile0 on, of
 * n_tokens. */
static void bf16_by_tokens(const bf16_call *c, uint32_t n, const uint32_t at[BF16_PANELS],
                           uint32_t row0, const bf16_turn *turn, float *y, size_t y_stride)
{
    const size_t row_bytes = bf16_row_bytes(c->w);
    const unsigned char *rows[BF16_PANELS];
    for (uint32_t p = 0; p < BF16_PANELS; p++)
        rows[p] = c->w->data + (row0 + (size_t)at[p]) * row_bytes;
    bf16_call packed = *c;
    if (c->is_packed) {
        for (uint32_t p = 0; p < n; p++)
            rows[p] = bf16_pack(c, rows[p], c->packed + p * bf16_packed_bytes(c->w));
        packed.row_stride = MF_TILE_ROW_BYTES;
        packed.block_step = BF16_TILE_BYTES;
    } else {
        bf16_copy_ends(c, n, rows);
    }
    c = &packed;
    for (uint32_t t = 0; t < turn->n_tiles; t++) {
        float *to = y + mf_tile_first(turn->tile0 + t, c->width, turn->n_tokens) * y_stride;
        float *const out[BF16_PANELS] = {to + at[0], to + at[1], to + at[2]};
        const unsigned char *tokens =
            c->tokens + t * bf16_tokens_bytes(c->w->shape.n_cols, c->width);
        const bool is_new = t == 0 && !c->is_packed;
        if (n == 3)
            bf16_panels(c, 3, rows, is_new, tokens, out, y_stride);
        else if (n == 2)
            bf16_panels(c, 2, rows, is_new, tokens, out, y_stride);
        else
            bf16_panels(c, 1, rows, is_new, tokens, out, y_stride);
    }
}

/* n_rows rows from row0 on by many tokens: neighbours are panels. */
static void bf16_many(const bf16_call *c, uint32_t row0, uint32_t n_rows, const bf16_turn *turn,
                      float *y, size_t y_stride)
{
    const uint32_t n_panels = (n_rows + c->height - 1) / c->height;
    for (uint32_t i = 0, n; i < n_panels; i += n) {
        uint32_t at[BF16_PANELS] = {0, 0, 0};
        n = n_panels - i < BF16_PANELS ? n_panels - i : BF16_PANELS;
        for (uint32_t p = 0; p < n; p++)
            at[p] = mf_tile_first(i + p, c->height, n_rows);
        bf16_by_tokens(c, n, at, row0, turn, y, y_stride);
    }
}

/* The same by few tokens, which wait for memory: each row of a panel is the next of a stream of
 * its own, as many streams as a tile has rows. Those left over are neighbours. */
static void bf16_few(bf16_call *c, uint32_t row0, uint32_t n_rows, const bf16_turn *turn, float *y,
                     size_t y_stride)
{
    const size_t row_bytes = c->row_stride;
    const uint32_t n_sets = n_rows / c->height;
    c->row_step = n_sets;
    c->row_stride = n_sets * row_bytes;
    for (uint32_t i = 0; i < n_sets; i++)
        bf16_by_tokens(c, 1, (const uint32_t[BF16_PANELS]){i}, row0, turn, y, y_stride);
    c->row_step = 1;
    c->row_stride = row_bytes;
    if (n_rows % c->height != 0)
        bf16_by_tokens(c, 1, (const uint32_t[BF16_PANELS]){n_rows - c->height}, row0, turn, y,
                       y_stride);
}

static void bf16_open(bf16_call *c, uint32_t n_rows, uint32_t n_tokens, unsigned char *scratch)
{
    c->n_blocks = bf16_blocks(c->w->shape.n_cols);
    c->height = n_rows < MF_TILE_ROWS ? n_rows : MF_TILE_ROWS;
    c->row_step = 1;
    c->block_step = MF_TILE_ROW_BYTES;
    c->row_stride = bf16_row_bytes(c->w);
    c->width = mf_tile_tokens(n_tokens);
    c->token_stride = bf16_token_stride(c->width);
    c->sums = (float *)(void *)scratch;
    c->ends = scratch + MF_TILE_ROWS * MF_TILE_ROW_BYTES;
    c->packed = c->ends + (size_t)BF16_PANELS * BF16_TILE_BYTES;
    c->tokens = c->packed;
    c->is_packed = bf16_is_packed(c->w, (n_tokens + c->width - 1) / c->width);
    if (c->is_packed)
        c->tokens += BF16_PANELS * bf16_packed_bytes(c->w);
    memset(c->ends, 0, (size_t)BF16_PANELS * BF16_TILE_BYTES);
    for (uint32_t i = 0; i < 3; i++) {
        mf_tile_shape(c->tiles, i, c->height, c->width * 4);
        mf_tile_shape(c->tiles, 3 + i, c->height, MF_TILE_ROW_BYTES);
    }
    mf_tile_shape(c->tiles, 6, MF_TILE_ROWS, c->width * 4);
    mf_tile_shape(c->tiles, 7, MF_TILE_ROWS, c->width * 4);
}

static void bf16_multiply(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                          size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride,
                          void *scratch)
{
    mf_tiles tiles = {0};
    bf16_call c = {.w = w, .tiles = &tiles};
    bf16_open(&c, row1 - row0, n_tokens, scratch);
    const uint32_t n_tiles = (n_tokens + c.width - 1) / c.width;
    const uint32_t together = bf16_tiles_together(w->shape.n_cols, n_tiles, c.width);
    MF_TILES_OPEN(&tiles);
    for (uint32_t i = 0, n; i < n_tiles; i += n) {
        n = n_tiles - i < together ? n_tiles - i : together;
        const bf16_turn turn = {i, n, n_tokens};
        bf16_lay_out_turn(&turn, false, w->shape.n_cols, c.width, x, x_stride, c.tokens);
        if (n_tokens <= BF16_FEW_TOKENS)
            bf16_few(&c, row0, row1 - row0, &turn, y, y_stride);
        else
            bf16_many(&c, row0, row1 - row0, &turn, y, y_stride);
    }
    MF_TILES_CLOSE(&tiles);
}

#endif

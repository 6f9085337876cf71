/* SPDX-License-Identifier: MIT */
/*
 * BF16 weights by tiles of bfloat16. An activation of float32 is the exact sum of three bfloat16
 * numbers, its digits: 8 bits of 24 each, all of its sign. So three products of tiles stand for one
 * of float32. Every 32 columns, a block, add the sums of their products to the output, the highest
 * digits first; how a block is summed tiles.h says.
 *
 * One token or many, the sums are the same: tokens are columns of a tile, rows of weights its rows,
 * and neither shows in what another one gets. BF16 weights are tiles as they lie; tokens are laid
 * out for all rows of a call, pairs of columns of 16 tokens side by side.
 *
 * Tiles take numbers below 2^-126 for zero and make none: of an output of n columns no more than
 * about n * 2^-126 * (1 + its largest weight) is lost.
 */
#ifndef MF_KERNELS_BF16_TILES_H
#define MF_KERNELS_BF16_TILES_H

#include "base/checked.h"
#include "kernels/kernels.h"
#include "kernels/x86/tiles.h"
#include "kernels/x86/unroll.h"
#include "kernels/x86/vector_avx512.h"

#include <immintrin.h>
#include <string.h>

enum {
    BF16_DIGITS = 3,
    BF16_BLOCK = 32, /* columns */
    BF16_TILE_BYTES = MF_TILE_ROWS * MF_TILE_ROW_BYTES,
    BF16_QUARTER = 4, /* tokens whose tiles are narrower */
    BF16_HALF = 8,
    BF16_FEW_TOKENS = 8, /* for which weights are read as memory gives them best */
    BF16_PANELS = 3,     /* tiles of rows that are multiplied together */
    /* Tokens that are laid out together take about this much of the second cache. */
    BF16_TOKENS_BYTES = 1 << 20,
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

/* Tiles of tokens that are laid out at a time, of all tokens. */
typedef struct bf16_turn {
    uint32_t tile0, n_tiles, n_tokens;
} bf16_turn;

static inline uint32_t bf16_blocks(const mf_matrix *w)
{
    return (w->shape.n_cols + BF16_BLOCK - 1) / BF16_BLOCK;
}

/* Bytes between pairs of columns of a tile of so many tokens. */
static inline size_t bf16_token_stride(uint32_t width)
{
    if (width <= BF16_QUARTER)
        return width == 1 ? sizeof(float) : BF16_QUARTER * sizeof(float);
    return width <= BF16_HALF ? BF16_HALF * sizeof(float) : MF_TILE_ROW_BYTES;
}

/* Bytes of one tile of so many tokens, laid out. */
static inline size_t bf16_tokens_bytes(const mf_matrix *w, uint32_t width)
{
    return bf16_blocks(w) * bf16_token_stride(width) * MF_TILE_ROWS * BF16_DIGITS;
}

/* Tiles of tokens that are laid out together, of n: about as many each time. */
static inline uint32_t bf16_tiles_together(const mf_matrix *w, uint32_t n_tiles, uint32_t width)
{
    const size_t fit = BF16_TOKENS_BYTES / bf16_tokens_bytes(w, width);
    const uint32_t most = fit < 2 ? 2 : (uint32_t)(fit < n_tiles ? fit : n_tiles);
    const uint32_t n_turns = (n_tiles + most - 1) / most;
    return (n_tiles + n_turns - 1) / n_turns;
}

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
    return (size_t)bf16_blocks(w) * BF16_TILE_BYTES;
}

static size_t bf16_scratch_bytes(const mf_matrix *w, uint32_t n_tokens)
{
    const uint32_t n_tiles = (n_tokens + MF_TILE_ROWS - 1) / MF_TILE_ROWS;
    const uint32_t width = n_tokens == 1 ? 1 : MF_TILE_ROWS;
    const size_t fit = BF16_TOKENS_BYTES / bf16_tokens_bytes(w, width);
    const size_t most = fit < 2 ? 2 : fit;
    const size_t packed = bf16_is_packed(w, n_tiles) ? BF16_PANELS * bf16_packed_bytes(w) : 0;
    return bf16_tokens_bytes(w, width) * (n_tiles < most ? n_tiles : most) + packed +
           (size_t)BF16_PANELS * BF16_TILE_BYTES + MF_TILE_ROWS * MF_TILE_ROW_BYTES;
}

/* Rows and columns exchanged. */
static inline void bf16_transpose(__m512i r[16])
{
    __m512i a[16];
    MF_UNROLL(8)
    for (uint32_t i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    MF_UNROLL(4)
    for (uint32_t i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    /* quarter q of r[4 * i + j] is column 4 * q + j of rows 4 * i .. 4 * i + 3 */
    MF_UNROLL(4)
    for (uint32_t j = 0; j < 4; j++) {
        const __m512i low0 = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88);
        const __m512i high0 = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd);
        const __m512i low1 = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88);
        const __m512i high1 = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);
        a[j] = _mm512_shuffle_i32x4(low0, low1, 0x88);
        a[8 + j] = _mm512_shuffle_i32x4(low0, low1, 0xdd);
        a[4 + j] = _mm512_shuffle_i32x4(high0, high1, 0x88);
        a[12 + j] = _mm512_shuffle_i32x4(high0, high1, 0xdd);
    }
    MF_UNROLL(16)
    for (uint32_t i = 0; i < 16; i++)
        r[i] = a[i];
}

/* The upper halves: the next digit of each number. */
static inline __m512 bf16_upper(__m512 v)
{
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32((int)0xffff0000)));
}

/* What is left of v without its first digit: nothing of an infinity. */
static inline __m512 bf16_rest(__m512 v, __m512 upper)
{
    const __mmask16 is_infinite = _mm512_fpclass_ps_mask(v, 0x18);
    return _mm512_maskz_sub_ps(_knot_mask16(is_infinite), v, upper);
}

/* The digits of 32 columns, the highest first. What is no number has digits that are none. */
MF_INLINE void bf16_split(__m512 v0, __m512 v1, __m512i digits[BF16_DIGITS])
{
    const __m512i odd =
        _mm512_add_epi16(_mm512_slli_epi16(_mm512_set_epi16(31, 30, 29, 28, 27, 26, 25, 24, 23, 22,
                                                            21, 20, 19, 18, 17, 16, 15, 14, 13, 12,
                                                            11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                           1),
                         _mm512_set1_epi16(1));
    MF_UNROLL(3)
    for (uint32_t d = 0; d < BF16_DIGITS; d++) {
        digits[d] =
            _mm512_permutex2var_epi16(_mm512_castps_si512(v0), odd, _mm512_castps_si512(v1));
        v0 = bf16_rest(v0, bf16_upper(v0));
        v1 = bf16_rest(v1, bf16_upper(v1));
    }
}

/* The digits of the next 32 of n floats; zeros after them. */
MF_INLINE void bf16_load(const float *x, uint32_t n, __m512i digits[BF16_DIGITS])
{
    const uint32_t mask = n >= BF16_BLOCK ? 0xffffffffu : (1u << n) - 1;
    bf16_split(_mm512_maskz_loadu_ps((__mmask16)mask, x),
               _mm512_maskz_loadu_ps((__mmask16)(mask >> 16), x + 16), digits);
}

/* The same of four rows: what is column 4 * q + j is quarter j of row q. */
static inline void bf16_transpose_quarter(__m512i r[4])
{
    const __m512i a = _mm512_unpacklo_epi32(r[0], r[1]), b = _mm512_unpackhi_epi32(r[0], r[1]);
    const __m512i c = _mm512_unpacklo_epi32(r[2], r[3]), d = _mm512_unpackhi_epi32(r[2], r[3]);
    const __m512i v0 = _mm512_unpacklo_epi64(a, c), v1 = _mm512_unpackhi_epi64(a, c);
    const __m512i v2 = _mm512_unpacklo_epi64(b, d), v3 = _mm512_unpackhi_epi64(b, d);
    const __m512i low01 = _mm512_shuffle_i32x4(v0, v1, 0x44);
    const __m512i high01 = _mm512_shuffle_i32x4(v0, v1, 0xee);
    const __m512i low23 = _mm512_shuffle_i32x4(v2, v3, 0x44);
    const __m512i high23 = _mm512_shuffle_i32x4(v2, v3, 0xee);
    r[0] = _mm512_shuffle_i32x4(low01, low23, 0x88);
    r[1] = _mm512_shuffle_i32x4(low01, low23, 0xdd);
    r[2] = _mm512_shuffle_i32x4(high01, high23, 0x88);
    r[3] = _mm512_shuffle_i32x4(high01, high23, 0xdd);
}

/* The same of eight: what is column 2 * q + j is half j of row q. */
static inline void bf16_transpose_half(__m512i r[8])
{
    const __m512i low = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
    const __m512i high = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    __m512i a[4] = {r[0], r[1], r[2], r[3]}, b[4] = {r[4], r[5], r[6], r[7]};
    bf16_transpose_quarter(a);
    bf16_transpose_quarter(b);
    MF_UNROLL(4)
    for (uint32_t q = 0; q < 4; q++) {
        r[2 * q] = _mm512_permutex2var_epi64(a[q], low, b[q]);
        r[2 * q + 1] = _mm512_permutex2var_epi64(a[q], high, b[q]);
    }
}

/* A tile of up to n tokens, n (a constant) being 1, 4, 8 or 16: what of them is no token is zeros.
 */
MF_INLINE void bf16_lay_out(const bf16_call *c, uint32_t n, const float *x, size_t x_stride,
                            unsigned char *out)
{
    const uint32_t n_cols = c->w->shape.n_cols;
    for (uint32_t col = 0; col < n_cols; col += BF16_BLOCK) {
        __m512i digits[BF16_DIGITS][MF_TILE_ROWS];
        for (uint32_t t = 0; t < n; t++) {
            __m512i of_token[BF16_DIGITS] = {_mm512_setzero_si512(), _mm512_setzero_si512(),
                                             _mm512_setzero_si512()};
            if (n == 1 || t < c->width)
                bf16_load(x + t * x_stride + col, n_cols - col, of_token);
            MF_UNROLL(3)
            for (uint32_t d = 0; d < BF16_DIGITS; d++)
                digits[d][t] = of_token[d];
        }
        MF_UNROLL(3)
        for (uint32_t d = 0; d < BF16_DIGITS; d++) {
            if (n == BF16_QUARTER)
                bf16_transpose_quarter(digits[d]);
            else if (n == BF16_HALF)
                bf16_transpose_half(digits[d]);
            else if (n == MF_TILE_ROWS)
                bf16_transpose(digits[d]);
            MF_UNROLL(16)
            for (uint32_t i = 0; i < n; i++, out += MF_TILE_ROW_BYTES)
                _mm512_store_si512(out, digits[d][i]);
        }
    }
}

/* A tile of tokens. */
static void bf16_lay_out_any(const bf16_call *c, const float *x, size_t x_stride,
                             unsigned char *out)
{
    if (c->width == 1)
        bf16_lay_out(c, 1, x, x_stride, out);
    else if (c->width <= BF16_QUARTER)
        bf16_lay_out(c, BF16_QUARTER, x, x_stride, out);
    else if (c->width <= BF16_HALF)
        bf16_lay_out(c, BF16_HALF, x, x_stride, out);
    else
        bf16_lay_out(c, MF_TILE_ROWS, x, x_stride, out);
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
        const unsigned char *tokens = c->tokens + t * bf16_tokens_bytes(c->w, c->width);
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
    c->n_blocks = bf16_blocks(c->w);
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
    const uint32_t together = bf16_tiles_together(w, n_tiles, c.width);
    MF_TILES_OPEN(&tiles);
    for (uint32_t i = 0, n; i < n_tiles; i += n) {
        n = n_tiles - i < together ? n_tiles - i : together;
        for (uint32_t t = 0; t < n; t++)
            bf16_lay_out_any(&c, x + mf_tile_first(i + t, c.width, n_tokens) * x_stride, x_stride,
                             c.tokens + t * bf16_tokens_bytes(w, c.width));
        const bf16_turn turn = {i, n, n_tokens};
        if (n_tokens <= BF16_FEW_TOKENS)
            bf16_few(&c, row0, row1 - row0, &turn, y, y_stride);
        else
            bf16_many(&c, row0, row1 - row0, &turn, y, y_stride);
    }
    MF_TILES_CLOSE(&tiles);
}

#endif

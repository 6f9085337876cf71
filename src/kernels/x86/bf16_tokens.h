/* SPDX-License-Identifier: MIT */
/*
 * Tokens as tiles of bfloat16 take them. An activation of float32 is the exact sum of three
 * bfloat16 numbers, its digits: 8 bits of 24 each, all of its sign. So three products of tiles
 * stand for one of float32. Of 16 tokens pairs of columns lie side by side.
 */
#ifndef MF_KERNELS_BF16_TOKENS_H
#define MF_KERNELS_BF16_TOKENS_H

#include "kernels/kernels.h"
#include "kernels/x86/tiles.h"
#include "kernels/x86/unroll.h"
#include "kernels/x86/vector_avx512.h"

#include <immintrin.h>

enum {
    BF16_DIGITS = 3,
    BF16_BLOCK = 32, /* columns */
    BF16_TILE_BYTES = MF_TILE_ROWS * MF_TILE_ROW_BYTES,
    BF16_QUARTER = 4, /* tokens whose tiles are narrower */
    BF16_HALF = 8,
    /* Tokens that are laid out together take about this much of the second cache. */
    BF16_TOKENS_BYTES = 1 << 20
};

/* Tiles of tokens that are laid out at a time, of all tokens: [tile][block][digit][16 pairs of
 * columns][bf16_token_stride]. */
typedef struct bf16_turn {
    uint32_t tile0, n_tiles, n_tokens;
} bf16_turn;

static inline uint32_t bf16_blocks(uint32_t n_cols)
{
    return (n_cols + BF16_BLOCK - 1) / BF16_BLOCK;
}

/* Bytes between pairs of columns of a tile of so many tokens. */
static inline size_t bf16_token_stride(uint32_t width)
{
    if (width <= BF16_QUARTER)
        return width == 1 ? sizeof(float) : BF16_QUARTER * sizeof(float);
    return width <= BF16_HALF ? BF16_HALF * sizeof(float) : MF_TILE_ROW_BYTES;
}

/* Bytes of one tile of so many tokens, laid out. */
static inline size_t bf16_tokens_bytes(uint32_t n_cols, uint32_t width)
{
    return bf16_blocks(n_cols) * bf16_token_stride(width) * MF_TILE_ROWS * BF16_DIGITS;
}

/* Tiles of tokens that are laid out together, at most, of n. */
static inline uint32_t bf16_tiles_most(uint32_t n_cols, uint32_t n_tiles, uint32_t width)
{
    const size_t fit = BF16_TOKENS_BYTES / bf16_tokens_bytes(n_cols, width);
    const size_t most = fit < 2 ? 2 : fit;
    return n_tiles < most ? n_tiles : (uint32_t)most;
}

/* Those that are, about as many each time. */
static inline uint32_t bf16_tiles_together(uint32_t n_cols, uint32_t n_tiles, uint32_t width)
{
    const uint32_t most = bf16_tiles_most(n_cols, n_tiles, width);
    const uint32_t n_turns = (n_tiles + most - 1) / most;
    return (n_tiles + n_turns - 1) / n_turns;
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

/*
 * Of 128 columns, woven, which four blocks have among them so that vectors can sum in tiles' order:
 * block b, pair 4 * m + i (m, i < 4) are columns
 *   32 * m + 16 * (b / 2) + 4 * (b % 2) + {0, 1, 8, 9}[i]
 * and the next but one.
 */
enum { BF16_WOVEN = 4 * BF16_BLOCK };

static inline uint32_t bf16_woven(uint32_t n_cols)
{
    return (n_cols + BF16_WOVEN - 1) / BF16_WOVEN * BF16_WOVEN;
}

/* The digits of the block at column `col` of a token of n_cols; zeros after them. */
MF_INLINE void bf16_load_woven(const float *x, uint32_t n_cols, uint32_t col,
                               __m512i digits[BF16_DIGITS])
{
    const uint32_t b = col % BF16_WOVEN / BF16_BLOCK;
    const __m512i order = _mm512_add_epi32(
        _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 16, 18, 17, 19, 24, 26, 25, 27),
        _mm512_set1_epi32(4 * (int)(b % 2)));
    __m512 v[4];
    MF_UNROLL(4)
    for (uint32_t m = 0; m < 4; m++) {
        const uint32_t at = col - b * BF16_BLOCK + 32 * m + 16 * (b / 2);
        v[m] = _mm512_maskz_loadu_ps(at < n_cols ? mf_tail_avx512(n_cols, at) : 0, x + at);
    }
    bf16_split(_mm512_permutex2var_ps(v[0], order, v[1]), _mm512_permutex2var_ps(v[2], order, v[3]),
               digits);
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
MF_INLINE void bf16_lay_out(uint32_t n, bool is_woven, uint32_t n_cols, uint32_t width,
                            const float *x, size_t x_stride, unsigned char *out)
{
    const uint32_t end = is_woven ? bf16_woven(n_cols) : n_cols;
    for (uint32_t col = 0; col < end; col += BF16_BLOCK) {
        __m512i digits[BF16_DIGITS][MF_TILE_ROWS];
        for (uint32_t t = 0; t < n; t++) {
            __m512i of_token[BF16_DIGITS] = {_mm512_setzero_si512(), _mm512_setzero_si512(),
                                             _mm512_setzero_si512()};
            if (is_woven && t < width)
                bf16_load_woven(x + t * x_stride, n_cols, col, of_token);
            else if (n == 1 || t < width)
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

/* A tile of `width` tokens. */
MF_INLINE void bf16_lay_out_any(bool is_woven, uint32_t n_cols, uint32_t width, const float *x,
                                size_t x_stride, unsigned char *out)
{
    if (width == 1)
        bf16_lay_out(1, is_woven, n_cols, width, x, x_stride, out);
    else if (width <= BF16_QUARTER)
        bf16_lay_out(BF16_QUARTER, is_woven, n_cols, width, x, x_stride, out);
    else if (width <= BF16_HALF)
        bf16_lay_out(BF16_HALF, is_woven, n_cols, width, x, x_stride, out);
    else
        bf16_lay_out(MF_TILE_ROWS, is_woven, n_cols, width, x, x_stride, out);
}

/* The tiles of tokens of a turn, one after the other; of all tokens, which x has. is_woven (a
 * constant): blocks as bf16_load_woven has them. */
MF_INLINE void bf16_lay_out_turn(const bf16_turn *turn, bool is_woven, uint32_t n_cols,
                                 uint32_t width, const float *x, size_t x_stride,
                                 unsigned char *out)
{
    const size_t tile_bytes = bf16_tokens_bytes(is_woven ? bf16_woven(n_cols) : n_cols, width);
    for (uint32_t t = 0; t < turn->n_tiles; t++)
        bf16_lay_out_any(is_woven, n_cols, width,
                         x + mf_tile_first(turn->tile0 + t, width, turn->n_tokens) * x_stride,
                         x_stride, out + t * tile_bytes);
}

#endif

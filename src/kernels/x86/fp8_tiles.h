/* SPDX-License-Identifier: MIT */
/*
 * FP8 weights in blocks by tiles of bfloat16: each e4m3 number is a bfloat16 number, and three
 * products (bf16_tokens.h) stand for one of float32. 128 columns, which share a scale, are four
 * tiles, woven; what they come to by each digit is a tile's sum, and
 *
 *   y += scale * ((lowest + middle) + highest)
 *
 * as float32, 128 columns after the other: so a row's bits depend on nothing but the row and the
 * token, and no scale goes into activations, which are laid out for all rows of a call.
 *
 * Of two to five tokens all digits are columns of one tile, so that one product does for three;
 * one token goes by vectors (fp8_one.h): the same sums.
 *
 * Weights are unpacked for a few panels of rows and 128 columns, which all of a turn's tokens meet
 * while they lie in the nearest cache. Tiles take numbers below 2^-126 for zero and make none: of
 * an output of n columns no more than about n * 2^-117 times its largest scale is lost. So does all
 * else meanwhile.
 */
#ifndef MF_KERNELS_FP8_TILES_H
#define MF_KERNELS_FP8_TILES_H

#include "base/checked.h"
#include "kernels/x86/bf16_tokens.h"
#include "kernels/x86/fp8_one.h"

#include <string.h>

enum {
    FP8_BLOCK = (int)MF_FP8_BLOCK,
    FP8_STEPS = FP8_BLOCK / BF16_BLOCK,
    FP8_PANELS = 3,     /* of 16 rows, which are unpacked together */
    FP8_JOINED = 5,     /* tokens at most whose digits are in one tile */
    FP8_FEW_TOKENS = 8, /* for which weights are read as memory gives them best */
    FP8_AHEAD_BYTES = 512
};

typedef float fp8_sums[MF_TILE_ROWS][MF_TILE_ROWS]; /* [row][token] */
typedef unsigned char fp8_panel[FP8_STEPS][MF_TILE_ROWS][MF_TILE_ROW_BYTES];

/* What is in work. The sums of each tile of tokens follow, and then the tokens. */
typedef struct fp8_scratch {
    fp8_panel panels[FP8_PANELS];
    fp8_sums digits[BF16_DIGITS];
    float scales[FP8_PANELS][MF_TILE_ROWS]; /* for the columns in work */
} fp8_scratch;

typedef fp8_sums fp8_acc[FP8_PANELS];

/* A call. */
typedef struct fp8_call {
    const mf_matrix *w;
    mf_tiles *tiles;
    uint32_t n_cols, height, width; /* of a tile: rows, tokens */
    bool is_joined;                 /* digit d of token t is column width * d + t */
    size_t token_stride;            /* bytes from a pair of columns of all tokens to the next */
    size_t block_bytes, tile_bytes; /* of 128 columns of a tile of tokens, of all */
    fp8_scratch *s;
    fp8_acc *acc; /* [tile] */
    unsigned char *tokens;
} fp8_call;

/* Rows that are in work together: panel p's r-th is row0 + at[p] + r * step. */
typedef struct fp8_rows {
    uint32_t n_panels, at[FP8_PANELS], step;
} fp8_rows;

/* Bytes of a tile of so many tokens, laid out. */
static inline size_t fp8_tokens_bytes(uint32_t n_cols, uint32_t width, bool is_joined)
{
    if (!is_joined)
        return bf16_tokens_bytes(n_cols, width);
    return bf16_blocks(n_cols) * (size_t)BF16_TILE_BYTES;
}

static size_t fp8_scratch_bytes(const mf_matrix *w, uint32_t n_tokens)
{
    const uint32_t n_cols = bf16_woven(w->shape.n_cols);
    const size_t one = fp8_one_scratch_bytes(n_cols);
    if (n_tokens == 1)
        return one;
    const uint32_t n_tiles = (n_tokens + MF_TILE_ROWS - 1) / MF_TILE_ROWS;
    const size_t many =
        sizeof(fp8_scratch) + bf16_tiles_most(n_cols, n_tiles, MF_TILE_ROWS) *
                                  (sizeof(fp8_acc) + bf16_tokens_bytes(n_cols, MF_TILE_ROWS));
    return many > one ? many : one;
}

/* ----------------------------------------------------------------------------------- weights -- */

/* 64 codes to two tiles' rows: of each 16 the first 8 in order go to the first. */
MF_INLINE void fp8_unpack(const mf_fp8_tables *tables, __m512i codes, unsigned char *first,
                          unsigned char *last)
{
    const __m512i order =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15));
    __m512i low, high;
    mf_fp8_to_bf16(tables, _mm512_shuffle_epi8(codes, order), &low, &high);
    _mm512_store_si512(first, low);
    _mm512_store_si512(last, high);
}

/* Columns col .. of a panel whose first row's are at `from`, the next `apart` bytes on. */
MF_INLINE void fp8_unpack_panel(const fp8_call *c, const mf_fp8_tables *tables,
                                const unsigned char *from, size_t apart, uint32_t left,
                                fp8_panel out)
{
    const __mmask64 masks[2] = {mf_fp8_tail_avx512(left, 0),
                                left > 64 ? mf_fp8_tail_avx512(left, 64) : 0};
    for (uint32_t r = 0; r < c->height; r++, from += apart) {
        _mm_prefetch((const char *)from + FP8_AHEAD_BYTES, _MM_HINT_T0);
        _mm_prefetch((const char *)from + FP8_AHEAD_BYTES + 64, _MM_HINT_T0);
        const __m512i low = _mm512_maskz_loadu_epi8(masks[0], from);
        const __m512i high = _mm512_maskz_loadu_epi8(masks[1], from + 64);
        fp8_unpack(tables, _mm512_shuffle_i32x4(low, high, 0x88), out[0][r], out[1][r]);
        fp8_unpack(tables, _mm512_shuffle_i32x4(low, high, 0xdd), out[2][r], out[3][r]);
    }
}

/* The scales of a panel's rows from `row` on, for the columns of a block. */
static void fp8_scales(const fp8_call *c, uint32_t row, uint32_t step, uint32_t block,
                       float out[MF_TILE_ROWS])
{
    memset(out, 0, MF_TILE_ROWS * sizeof *out);
    for (uint32_t r = 0; r < c->height; r++)
        memcpy(&out[r], mf_matrix_fp8_scales(c->w, row + r * step) + (size_t)block * sizeof *out,
               sizeof *out);
}

/* ---------------------------------------------------------------------------------- products -- */

/* 128 columns of a panel by a tile of tokens. */
typedef struct fp8_unit {
    const unsigned char (*panel)[MF_TILE_ROWS][MF_TILE_ROW_BYTES];
    const float *scales; /* of its rows */
    const unsigned char *tokens;
    bool begins; /* the row */
    float (*acc)[MF_TILE_ROWS];
} fp8_unit;

/* Each digit's sums. */
MF_INLINE void fp8_dot(const fp8_call *c, const fp8_unit *u)
{
    const size_t digit = MF_TILE_ROWS * c->token_stride, stride = c->token_stride;
    const unsigned char *tokens = u->tokens;
    MF_TILE_ZERO(c->tiles, 0);
    MF_TILE_ZERO(c->tiles, 1);
    MF_TILE_ZERO(c->tiles, 2);
    for (uint32_t b = 0; b < FP8_STEPS; b++, tokens += BF16_DIGITS * digit) {
        MF_TILE_LOAD(c->tiles, 3, u->panel[b], MF_TILE_ROW_BYTES);
        MF_TILE_LOAD(c->tiles, 4, tokens, stride);
        MF_TILE_DOT_BF16(c->tiles, 0, 3, 4);
        MF_TILE_LOAD(c->tiles, 5, tokens + digit, stride);
        MF_TILE_DOT_BF16(c->tiles, 1, 3, 5);
        MF_TILE_LOAD(c->tiles, 6, tokens + 2 * digit, stride);
        MF_TILE_DOT_BF16(c->tiles, 2, 3, 6);
    }
    MF_TILE_STORE(c->tiles, 0, c->s->digits[0], MF_TILE_ROW_BYTES);
    MF_TILE_STORE(c->tiles, 1, c->s->digits[1], MF_TILE_ROW_BYTES);
    MF_TILE_STORE(c->tiles, 2, c->s->digits[2], MF_TILE_ROW_BYTES);
}

/* All digits' sums, as the tile has them. */
MF_INLINE void fp8_dot_joined(const fp8_call *c, const fp8_unit *u)
{
    const size_t stride = c->token_stride;
    const unsigned char *tokens = u->tokens;
    MF_TILE_ZERO(c->tiles, 0);
    for (uint32_t b = 0; b < FP8_STEPS; b++, tokens += MF_TILE_ROWS * stride) {
        MF_TILE_LOAD(c->tiles, 3, u->panel[b], MF_TILE_ROW_BYTES);
        MF_TILE_LOAD(c->tiles, 4, tokens, stride);
        MF_TILE_DOT_BF16(c->tiles, 0, 3, 4);
    }
    MF_TILE_STORE(c->tiles, 0, c->s->digits[0], MF_TILE_ROW_BYTES);
}

/* The three digits' sums, the highest first, times scale, to acc. */
MF_INLINE void fp8_add_sums(const fp8_unit *u, const __m512 digits[BF16_DIGITS], __m512 scale,
                            float *acc)
{
    const __m512 sum = _mm512_add_ps(_mm512_add_ps(digits[2], digits[1]), digits[0]);
    const __m512 before = u->begins ? _mm512_setzero_ps() : _mm512_load_ps(acc);
    _mm512_store_ps(acc, _mm512_fmadd_ps(sum, scale, before));
}

MF_INLINE void fp8_add(const fp8_call *c, const fp8_unit *u)
{
    for (uint32_t r = 0; r < c->height; r++) {
        const __m512 digits[BF16_DIGITS] = {_mm512_load_ps(c->s->digits[0][r]),
                                            _mm512_load_ps(c->s->digits[1][r]),
                                            _mm512_load_ps(c->s->digits[2][r])};
        fp8_add_sums(u, digits, _mm512_set1_ps(u->scales[r]), u->acc[r]);
    }
}

MF_INLINE void fp8_add_joined(const fp8_call *c, const fp8_unit *u)
{
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i middle = _mm512_add_epi32(lanes, _mm512_set1_epi32((int)c->width));
    const __m512i low = _mm512_add_epi32(lanes, _mm512_set1_epi32(2 * (int)c->width));
    for (uint32_t r = 0; r < c->height; r++) {
        const __m512 all = _mm512_load_ps(c->s->digits[0][r]);
        const __m512 digits[BF16_DIGITS] = {all, _mm512_permutexvar_ps(middle, all),
                                            _mm512_permutexvar_ps(low, all)};
        fp8_add_sums(u, digits, _mm512_set1_ps(u->scales[r]), u->acc[r]);
    }
}

MF_INLINE void fp8_multiply(const fp8_call *c, const fp8_unit *u)
{
    if (c->is_joined) {
        fp8_dot_joined(c, u);
        fp8_add_joined(c, u);
    } else {
        fp8_dot(c, u);
        fp8_add(c, u);
    }
}

/* ------------------------------------------------------------------------------------- calls -- */

/* A panel's outputs, to y, the address of its first row's. */
static void fp8_put(const fp8_call *c, fp8_sums acc, uint32_t step, float *y, size_t y_stride)
{
    const __mmask16 mask = mf_tail_avx512(c->height, 0);
    if (step > 1) {
        for (uint32_t t = 0; t < c->width; t++)
            for (uint32_t r = 0; r < c->height; r++)
                y[t * y_stride + (size_t)r * step] = acc[r][t];
        return;
    }
    __m512i rows[MF_TILE_ROWS];
    for (uint32_t r = 0; r < MF_TILE_ROWS; r++)
        rows[r] = _mm512_load_si512(acc[r]);
    bf16_transpose(rows);
    for (uint32_t t = 0; t < c->width; t++)
        _mm512_mask_storeu_ps(y + t * y_stride, mask, _mm512_castsi512_ps(rows[t]));
}

/* 128 columns of all panels, and their scales. */
MF_INLINE void fp8_take_block(const fp8_call *c, const mf_fp8_tables *tables, uint32_t row0,
                              const fp8_rows *rows, uint32_t block)
{
    const uint32_t col = block * FP8_BLOCK;
    for (uint32_t p = 0; p < rows->n_panels; p++) {
        const uint32_t row = row0 + rows->at[p];
        fp8_unpack_panel(c, tables, c->w->data + (size_t)row * c->n_cols + col,
                         (size_t)rows->step * c->n_cols, c->n_cols - col, c->s->panels[p]);
        fp8_scales(c, row, rows->step, block, c->s->scales[p]);
    }
}

/* Some rows by the tokens of a turn. */
static void fp8_multiply_rows(const fp8_call *c, uint32_t row0, const fp8_rows *rows,
                              const bf16_turn *turn, float *y, size_t y_stride)
{
    const mf_fp8_tables tables = mf_fp8_tables_load();
    for (uint32_t block = 0; block * FP8_BLOCK < c->n_cols; block++) {
        fp8_take_block(c, &tables, row0, rows, block);
        for (uint32_t t = 0; t < turn->n_tiles; t++)
            for (uint32_t p = 0; p < rows->n_panels; p++) {
                const fp8_unit unit = {.panel = c->s->panels[p],
                                       .scales = c->s->scales[p],
                                       .tokens =
                                           c->tokens + t * c->tile_bytes + block * c->block_bytes,
                                       .begins = block == 0,
                                       .acc = c->acc[t][p]};
                fp8_multiply(c, &unit);
            }
    }
    for (uint32_t t = 0; t < turn->n_tiles; t++) {
        float *to = y + mf_tile_first(turn->tile0 + t, c->width, turn->n_tokens) * y_stride;
        for (uint32_t p = 0; p < rows->n_panels; p++)
            fp8_put(c, c->acc[t][p], rows->step, to + rows->at[p], y_stride);
    }
}

/* n_rows rows from row0 on by many tokens: neighbours are panels. */
static void fp8_many(const fp8_call *c, uint32_t row0, uint32_t n_rows, const bf16_turn *turn,
                     float *y, size_t y_stride)
{
    const uint32_t n_panels = (n_rows + c->height - 1) / c->height;
    for (uint32_t i = 0; i < n_panels; i += FP8_PANELS) {
        fp8_rows rows = {n_panels - i < FP8_PANELS ? n_panels - i : FP8_PANELS, {0}, 1};
        for (uint32_t p = 0; p < rows.n_panels; p++)
            rows.at[p] = mf_tile_first(i + p, c->height, n_rows);
        fp8_multiply_rows(c, row0, &rows, turn, y, y_stride);
    }
}

/* The same by few tokens, which wait for memory: each row of a panel is the next of a stream of
 * its own, as many streams as a tile has rows. Those left over are neighbours. */
static void fp8_few(const fp8_call *c, uint32_t row0, uint32_t n_rows, const bf16_turn *turn,
                    float *y, size_t y_stride)
{
    const uint32_t n_sets = n_rows / c->height;
    for (uint32_t i = 0; i < n_sets; i++)
        fp8_multiply_rows(c, row0, &(fp8_rows){1, {i}, n_sets}, turn, y, y_stride);
    if (n_rows % c->height != 0)
        fp8_multiply_rows(c, row0, &(fp8_rows){1, {n_rows - c->height}, 1}, turn, y, y_stride);
}

/* Two to FP8_JOINED tokens with all digits in one tile. */
static void fp8_lay_out_joined(const fp8_call *c, const float *x, size_t x_stride)
{
    unsigned char *out = c->tokens;
    for (uint32_t col = 0; col < bf16_woven(c->n_cols); col += BF16_BLOCK) {
        __m512i columns[MF_TILE_ROWS];
        for (uint32_t i = BF16_DIGITS * c->width; i < MF_TILE_ROWS; i++)
            columns[i] = _mm512_setzero_si512();
        for (uint32_t t = 0; t < c->width; t++) {
            __m512i digits[BF16_DIGITS];
            bf16_load_woven(x + t * x_stride, c->n_cols, col, digits);
            for (uint32_t d = 0; d < BF16_DIGITS; d++)
                columns[d * c->width + t] = digits[d];
        }
        bf16_transpose(columns);
        for (uint32_t i = 0; i < MF_TILE_ROWS; i++, out += MF_TILE_ROW_BYTES)
            _mm512_store_si512(out, columns[i]);
    }
}

static fp8_call fp8_open(const mf_matrix *w, uint32_t n_rows, uint32_t n_tokens, mf_tiles *tiles,
                         void *scratch)
{
    const uint32_t width = mf_tile_tokens(n_tokens), n_cols = bf16_woven(w->shape.n_cols);
    const uint32_t n_tiles = (n_tokens + width - 1) / width;
    const bool is_joined = n_tokens <= FP8_JOINED;
    fp8_scratch *s = scratch;
    fp8_acc *acc = (fp8_acc *)(void *)(s + 1);
    const fp8_call c = {
        .w = w,
        .tiles = tiles,
        .n_cols = w->shape.n_cols,
        .height = n_rows < MF_TILE_ROWS ? n_rows : MF_TILE_ROWS,
        .width = width,
        .is_joined = is_joined,
        .token_stride = is_joined ? MF_TILE_ROW_BYTES : bf16_token_stride(width),
        .block_bytes = fp8_tokens_bytes(FP8_BLOCK, width, is_joined),
        .tile_bytes = fp8_tokens_bytes(n_cols, width, is_joined),
        .s = s,
        .acc = acc,
        .tokens = (unsigned char *)(acc + bf16_tiles_most(n_cols, n_tiles, MF_TILE_ROWS))};
    const uint32_t row_bytes = (is_joined ? BF16_DIGITS * width : width) * (uint32_t)sizeof(float);
    for (uint32_t i = 0; i < BF16_DIGITS; i++)
        mf_tile_shape(tiles, i, c.height, row_bytes);
    mf_tile_shape(tiles, 3, c.height, MF_TILE_ROW_BYTES);
    for (uint32_t i = 4; i < 7; i++)
        mf_tile_shape(tiles, i, MF_TILE_ROWS, row_bytes);
    return c;
}

static void fp8_multiply_some(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                              size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride,
                              void *scratch)
{
    mf_tiles tiles = {0};
    const fp8_call c = fp8_open(w, row1 - row0, n_tokens, &tiles, scratch);
    const uint32_t n_tiles = (n_tokens + c.width - 1) / c.width;
    const uint32_t together = bf16_tiles_together(bf16_woven(c.n_cols), n_tiles, MF_TILE_ROWS);
    MF_TILES_OPEN(&tiles);
    for (uint32_t i = 0, n; i < n_tiles; i += n) {
        n = n_tiles - i < together ? n_tiles - i : together;
        const bf16_turn turn = {i, n, n_tokens};
        if (c.is_joined)
            fp8_lay_out_joined(&c, x, x_stride);
        else
            bf16_lay_out_turn(&turn, true, c.n_cols, c.width, x, x_stride, c.tokens);
        if (n_tokens <= FP8_FEW_TOKENS)
            fp8_few(&c, row0, row1 - row0, &turn, y, y_stride);
        else
            fp8_many(&c, row0, row1 - row0, &turn, y, y_stride);
    }
    MF_TILES_CLOSE(&tiles);
}

/* A function of its own, so that nothing of it comes to be computed before or after MXCSR says how.
 */
__attribute__((noinline)) static void fp8_multiply_flushed(const mf_matrix *w, uint32_t row0,
                                                           uint32_t row1, const float *x,
                                                           size_t x_stride, uint32_t n_tokens,
                                                           float *y, size_t y_stride, void *scratch)
{
    if (n_tokens == 1)
        fp8_one_multiply(w, row0, row1, x, y, scratch);
    else
        fp8_multiply_some(w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
}

static void fp8_multiply_all(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                             size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride,
                             void *scratch)
{
    const unsigned int before = _mm_getcsr();
    _mm_setcsr(before | 0x8040); /* numbers below the normal ones are zeros, made or read */
    fp8_multiply_flushed(w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
    _mm_setcsr(before);
}

#endif

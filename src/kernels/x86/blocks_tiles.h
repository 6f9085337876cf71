/* SPDX-License-Identifier: MIT */
/*
 * Formats of blocks times many tokens by tiles. What blocks_dot_avx512.h does in the lanes of a
 * vector, the same sums of 16 columns of one scale, rounded at the same places: the same bits. Here
 * the lanes are 16 rows: of each 16 columns a panel's weights are one tile of four rows, a row four
 * columns, and the digits of the tokens another one.
 *
 * Tokens are laid out for it once a call, some of them at a time, and a panel of rows is unpacked
 * once for those.
 */
#ifndef MF_KERNELS_BLOCKS_TILES_H
#define MF_KERNELS_BLOCKS_TILES_H

#include "kernels/x86/blocks_avx512.h"
#include "kernels/x86/blocks_unpack_avx512.h"
#include "kernels/x86/fixed_token.h"
#include "kernels/x86/tiles.h"

enum {
    ROWS = 16,  /* of a panel */
    LANES = 16, /* of a span: 16 columns each */
    QUADS = 4,  /* fours of those */
    DIGITS = MF_FIXED_DIGITS,
    LANE_SUMS = DIGITS * MF_TILE_ROWS, /* vectors: [digit][token] */
    TOGETHER_BYTES = 1 << 19           /* of tokens, laid out: they stay in the second cache */
};

/* A span of a panel. */
typedef struct tiled_rows {
    signed char weights[LANES][QUADS][ROWS][4];
    float scales[LANES][ROWS], minima[LANES][ROWS];
} tiled_rows;

/* A span of a tile's tokens. Lane 4 * q + i is quarter q of each 64 bytes of [i]. */
typedef struct tiled_tokens {
    signed char digits[DIGITS][QUADS][MF_TILE_ROWS][MF_TILE_ROW_BYTES];
} tiled_tokens;

/* What a call works with, in scratch. */
typedef struct tiled_work {
    __m512 acc[LANES][MF_TILE_ROWS]; /* by token, a row a lane */
    __m512i sums[2][LANE_SUMS];      /* of a lane, and of the next one */
} tiled_work;

/* A product in work. */
typedef struct tiled_product {
    mf_tiles tiles;
    mf_blocks_rows w;
    uint32_t n_spans, together;
    const unsigned char *tokens; /* prepared, token_bytes apart */
    size_t token_bytes;
    uint32_t n_tokens;
    float *y;
    size_t y_stride;
    tiled_work *work;
    tiled_rows *rows;     /* [n_spans] */
    tiled_tokens *spread; /* [tiles][n_spans] */
} tiled_product;

/* -------------------------------------------------------------------------------- activations --
 */

static const mf_blocks_span *span_of(const tiled_product *p, uint32_t token, uint32_t span)
{
    const void *spans = p->tokens + token * p->token_bytes;
    return (const mf_blocks_span *)spans + span;
}

/* Tile i's tokens, all spans. */
static void spread_tokens(const tiled_product *p, uint32_t i, tiled_tokens *out)
{
    const uint32_t first = mf_tile_first(i, p->together, p->n_tokens);
    for (uint32_t s = 0; s < p->n_spans; s++, out++) {
        for (uint32_t t = 0; t < p->together; t++) {
            const mf_blocks_span *x = span_of(p, first + t, s);
            MF_UNROLL(3)
            for (uint32_t d = 0; d < DIGITS; d++) {
                __m512i fours[QUADS], lanes[QUADS];
                MF_UNROLL(4)
                for (uint32_t k = 0; k < QUADS; k++)
                    fours[k] = _mm512_loadu_si512(x->bytes.digits[d][k]);
                mf_transpose_fours_avx512(fours, lanes);
                MF_UNROLL(4)
                for (uint32_t k = 0; k < QUADS; k++)
                    _mm512_storeu_si512(out->digits[d][k][t], lanes[k]);
            }
        }
    }
}

/* ------------------------------------------------------------------------------------ weights --
 */

/* A span of a row: of woven kinds four columns of each lane in a vector, else 64 neighbours. */
MF_INLINE void row_weights(mf_weight_kind kind, const blocks_tables *t, const unsigned char *v,
                           __m512i out[QUADS])
{
    if (mf_blocks_is_woven(kind)) {
        woven_weights(kind, t, v, out);
        return;
    }
    MF_UNROLL(4)
    for (uint32_t c = 0; c < QUADS; c++)
        out[c] = chunk_weights(kind, t, v, c);
}

/* Weights as signed bytes, [QUADS] vectors of each row, to where the tiles take them. */
static void store_weights(bool woven, const __m512i v[QUADS][ROWS], tiled_rows *out)
{
    const __m512i middle = _mm512_set1_epi8(-128);
    for (uint32_t k = 0; k < QUADS; k++) {
        __m512i columns[ROWS];
        mf_transpose_avx512(v[k], columns);
        MF_UNROLL(16)
        for (uint32_t j = 0; j < LANES; j++) {
            const uint32_t lane = woven ? j : j / 4 * 4 + k, quad = woven ? k : j % 4;
            _mm512_storeu_si512(out->weights[lane][quad], _mm512_xor_si512(columns[j], middle));
        }
    }
}

static void store_floats(const __m512 rows[ROWS], float out[LANES][ROWS])
{
    __m512i v[ROWS], columns[ROWS];
    MF_UNROLL(16)
    for (uint32_t r = 0; r < ROWS; r++)
        v[r] = _mm512_castps_si512(rows[r]);
    mf_transpose_avx512(v, columns);
    MF_UNROLL(16)
    for (uint32_t j = 0; j < LANES; j++)
        _mm512_storeu_si512(out[j], columns[j]);
}

/* Span i of a panel's rows; of n_rows, where they are fewer, the last again. */
MF_INLINE void unpack_span(mf_weight_kind kind, const blocks_tables *t, const mf_blocks_rows *w,
                           uint32_t row, uint32_t n_rows, uint32_t i, tiled_rows *out)
{
    __m512i weights[QUADS][ROWS];
    __m512 scales[ROWS], minima[ROWS];
    for (uint32_t r = 0; r < ROWS; r++) {
        const uint32_t at = row + (r < n_rows ? r : n_rows - 1);
        const unsigned char *v = w->values + at * w->row_bytes + (size_t)i * w->span_bytes;
        const unsigned char *s = w->scales == NULL ? NULL
                                                   : w->scales + at * w->scale_row_bytes +
                                                         (size_t)i * w->scale_span_bytes;
        mf_blocks_last last;
        if (i == w->n_spans) {
            mf_blocks_copy_last(w, at, &last);
            v = last.values;
            s = last.scales;
        } else {
            for (uint32_t ahead = 0; ahead < w->span_bytes; ahead += 64)
                __builtin_prefetch(v + w->span_bytes + ahead);
        }
        const span_scales each = scales_of(kind, t, v, s, w);
        __m512i bytes[QUADS];
        row_weights(kind, t, v, bytes);
        MF_UNROLL(4)
        for (uint32_t k = 0; k < QUADS; k++)
            weights[k][r] = bytes[k];
        scales[r] = lane_scales(kind, &each);
        if (mf_blocks_has_min(kind))
            minima[r] = lane_minima(kind, &each);
    }
    store_weights(mf_blocks_is_woven(kind), (const __m512i(*)[ROWS])weights, out);
    store_floats(scales, out->scales);
    if (mf_blocks_has_min(kind))
        store_floats(minima, out->minima);
}

/* ----------------------------------------------------------------------------------- products --
 */

/* A lane's sums by each digit. */
static void dot_lane(mf_tiles *tiles, const tiled_rows *w, const tiled_tokens *x, uint32_t lane,
                     __m512i *sums)
{
    const size_t i = lane % QUADS, at = (size_t)(lane / QUADS) * 16;
    MF_TILE_LOAD(tiles, 6, w->weights[lane], MF_TILE_ROW_BYTES);
    MF_TILE_LOAD(tiles, 3, x->digits[0][i][0] + at, MF_TILE_ROW_BYTES);
    MF_TILE_LOAD(tiles, 4, x->digits[1][i][0] + at, MF_TILE_ROW_BYTES);
    MF_TILE_LOAD(tiles, 5, x->digits[2][i][0] + at, MF_TILE_ROW_BYTES);
    MF_TILE_ZERO(tiles, 0);
    MF_TILE_ZERO(tiles, 1);
    MF_TILE_ZERO(tiles, 2);
    MF_TILE_DOT_SS(tiles, 0, 3, 6);
    MF_TILE_DOT_SS(tiles, 1, 4, 6);
    MF_TILE_DOT_SS(tiles, 2, 5, 6);
    MF_TILE_STORE(tiles, 0, sums, sizeof *sums);
    MF_TILE_STORE(tiles, 1, sums + MF_TILE_ROWS, sizeof *sums);
    MF_TILE_STORE(tiles, 2, sums + (size_t)2 * MF_TILE_ROWS, sizeof *sums);
}

/* What a lane's sums add to the outputs of the tokens from `first` on. */
MF_INLINE void add_lane(bool with_min, const tiled_product *p, uint32_t first, uint32_t span,
                        uint32_t lane, const __m512i *sums)
{
    const __m512 scale = _mm512_loadu_ps(p->rows[span].scales[lane]);
    const __m512 min = with_min ? _mm512_loadu_ps(p->rows[span].minima[lane]) : scale;
    const unsigned char *at = (const unsigned char *)span_of(p, first, span);
    __m512 *acc = p->work->acc[lane];
    for (uint32_t t = 0; t < p->together; t++, at += p->token_bytes) {
        const mf_blocks_span *x = (const void *)at;
        const __m512i low = _mm512_add_epi32(_mm512_slli_epi32(sums[MF_TILE_ROWS + t], 8), sums[t]);
        const __m512 sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[(size_t)2 * MF_TILE_ROWS + t]),
                                           _mm512_set1_ps(65536.0f), _mm512_cvtepi32_ps(low));
        acc[t] = _mm512_fmadd_ps(_mm512_mul_ps(sum, _mm512_set1_ps(x->units[lane])), scale, acc[t]);
        if (with_min)
            acc[t] = _mm512_fmadd_ps(min, _mm512_set1_ps(x->sums[lane]), acc[t]);
    }
}

/* A token's lanes, added up in the order of mf_sum4_avx512. */
MF_INLINE __m512 sum_lanes(const tiled_work *work, uint32_t t)
{
    __m512 v[LANES / 2];
    MF_UNROLL(8)
    for (uint32_t i = 0; i < 8; i++)
        v[i] = _mm512_add_ps(work->acc[i][t], work->acc[i + 8][t]);
    MF_UNROLL(4)
    for (uint32_t i = 0; i < 4; i++)
        v[i] = _mm512_add_ps(v[i], v[i + 4]);
    return _mm512_add_ps(_mm512_add_ps(v[0], v[2]), _mm512_add_ps(v[1], v[3]));
}

/* The panel by a tile's tokens, the first of which is `first`. */
MF_INLINE void multiply_tile(bool with_min, tiled_product *p, uint32_t first, const tiled_tokens *x,
                             uint32_t n_rows, float *y)
{
    const uint32_t n = p->n_spans * LANES;
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t t = 0; t < p->together; t++)
            p->work->acc[lane][t] = _mm512_setzero_ps();
    dot_lane(&p->tiles, p->rows, x, 0, p->work->sums[0]);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t next = i + 1;
        if (next < n)
            dot_lane(&p->tiles, p->rows + next / LANES, x + next / LANES, next % LANES,
                     p->work->sums[next % 2]);
        add_lane(with_min, p, first, i / LANES, i % LANES, p->work->sums[i % 2]);
    }
    for (uint32_t t = 0; t < p->together; t++)
        _mm512_mask_storeu_ps(y + (first + t) * p->y_stride, mf_tail_avx512(n_rows, 0),
                              _mm512_mul_ps(sum_lanes(p->work, t), _mm512_set1_ps(p->w.factor)));
}

/* Functions of their own, which all kinds share. */
static void multiply_with_min(tiled_product *p, uint32_t first, const tiled_tokens *x,
                              uint32_t n_rows, float *y)
{
    multiply_tile(true, p, first, x, n_rows, y);
}

static void multiply_without_min(tiled_product *p, uint32_t first, const tiled_tokens *x,
                                 uint32_t n_rows, float *y)
{
    multiply_tile(false, p, first, x, n_rows, y);
}

/* Tiles of tokens whose digits are laid out together. */
static uint32_t tiles_together(uint32_t n_spans, uint32_t n_tiles)
{
    const size_t most = TOGETHER_BYTES / (n_spans * sizeof(tiled_tokens));
    return most < 1 ? 1 : most < n_tiles ? (uint32_t)most : n_tiles;
}

MF_INLINE void multiply_kind(mf_weight_kind kind, tiled_product *p, uint32_t row0, uint32_t row1)
{
    const blocks_tables t = tables_of(kind);
    const uint32_t n_tiles = (p->n_tokens + p->together - 1) / p->together;
    for (uint32_t done = 0, n; done < n_tiles; done += n) {
        n = tiles_together(p->n_spans, n_tiles - done);
        for (uint32_t i = 0; i < n; i++)
            spread_tokens(p, done + i, p->spread + (size_t)i * p->n_spans);
        for (uint32_t row = row0; row < row1; row += ROWS) {
            const uint32_t n_rows = row1 - row < ROWS ? row1 - row : ROWS;
            for (uint32_t s = 0; s < p->n_spans; s++)
                unpack_span(kind, &t, &p->w, row, n_rows, s, &p->rows[s]);
            for (uint32_t i = 0; i < n; i++) {
                const uint32_t first = mf_tile_first(done + i, p->together, p->n_tokens);
                const tiled_tokens *x = p->spread + (size_t)i * p->n_spans;
                if (mf_blocks_has_min(kind))
                    multiply_with_min(p, first, x, n_rows, p->y + (row - row0));
                else
                    multiply_without_min(p, first, x, n_rows, p->y + (row - row0));
            }
        }
    }
}

#define MULTIPLY_TILED(kind)                \
    case kind:                              \
        multiply_kind(kind, p, row0, row1); \
        break

/* A kernel of its own for each kind. */
static void multiply_any(mf_weight_kind kind, tiled_product *p, uint32_t row0, uint32_t row1)
{
    switch (kind) {
        MULTIPLY_TILED(MF_WEIGHT_MXFP4);
        MULTIPLY_TILED(MF_WEIGHT_NVFP4);
        MULTIPLY_TILED(MF_WEIGHT_INT4);
        MULTIPLY_TILED(MF_WEIGHT_INT8);
        MULTIPLY_TILED(MF_WEIGHT_GGUF_Q4_0);
        MULTIPLY_TILED(MF_WEIGHT_GGUF_Q4_1);
        MULTIPLY_TILED(MF_WEIGHT_GGUF_Q5_0);
        MULTIPLY_TILED(MF_WEIGHT_GGUF_Q5_1);
        MULTIPLY_TILED(MF_WEIGHT_GGUF_Q8_0);
        MULTIPLY_TILED(MF_WEIGHT_GGUF_Q2_K);
        MULTIPLY_TILED(MF_WEIGHT_GGUF_Q3_K);
        MULTIPLY_TILED(MF_WEIGHT_GGUF_Q4_K);
        MULTIPLY_TILED(MF_WEIGHT_GGUF_Q5_K);
        MULTIPLY_TILED(MF_WEIGHT_GGUF_Q6_K);
        MULTIPLY_TILED(MF_WEIGHT_GGUF_IQ4_NL);
        MULTIPLY_TILED(MF_WEIGHT_GGUF_IQ4_XS);
        MULTIPLY_TILED(MF_WEIGHT_GGUF_MXFP4);
        MULTIPLY_TILED(MF_WEIGHT_GGUF_NVFP4);
    default:
        break;
    }
}

/* mf_fixed_kernels.scratch_bytes: of few tokens what vectors need. */
static size_t tiled_scratch_bytes(const mf_matrix *w, uint32_t n_tokens)
{
    const size_t few = mf_blocks_scratch_bytes_avx512(w, n_tokens);
    if (n_tokens < MF_TILED_TOKENS_MIN)
        return few;
    const uint32_t n_spans = mf_blocks_spans(w);
    const uint32_t n_tiles = tiles_together(n_spans, (n_tokens + MF_TILE_ROWS - 1) / MF_TILE_ROWS);
    const size_t many = sizeof(tiled_work) + n_spans * sizeof(tiled_rows) +
                        (size_t)n_tiles * n_spans * sizeof(tiled_tokens);
    return many > few ? many : few;
}

/* mf_fixed_kernels.matmul */
static void multiply_tiled_or_few(const mf_matrix *w, uint32_t row0, uint32_t row1,
                                  const void *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                                  void *scratch)
{
    if (n_tokens < MF_TILED_TOKENS_MIN) {
        mf_blocks_matmul_avx512(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
        return;
    }
    tiled_product p = {.w = mf_blocks_rows_of(w),
                       .n_spans = mf_blocks_spans(w),
                       .together = mf_tile_tokens(n_tokens),
                       .tokens = tokens,
                       .token_bytes = mf_blocks_token_bytes(w),
                       .n_tokens = n_tokens,
                       .y = y,
                       .y_stride = y_stride,
                       .work = scratch};
    p.rows = (tiled_rows *)(void *)(p.work + 1);
    p.spread = (tiled_tokens *)(void *)(p.rows + p.n_spans);
    for (uint32_t i = 0; i < 3; i++) { /* sums, and a digit of 16 columns */
        mf_tile_shape(&p.tiles, i, p.together, MF_TILE_ROW_BYTES);
        mf_tile_shape(&p.tiles, 3 + i, p.together, 16);
    }
    mf_tile_shape(&p.tiles, 6, QUADS, MF_TILE_ROW_BYTES); /* weights */
    MF_TILES_OPEN(&p.tiles);
    multiply_any(mf_blocks_is_nvfp4(w->shape.kind) ? MF_WEIGHT_NVFP4 : w->shape.kind, &p, row0,
                 row1);
    MF_TILES_CLOSE(&p.tiles);
}

#endif

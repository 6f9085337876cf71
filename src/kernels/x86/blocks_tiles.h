/* SPDX-License-Identifier: MIT */
/*
 * Formats of blocks times many tokens by tiles. What blocks_dot_avx512.h does in the lanes of a
 * vector, the same sums of 16 columns of one scale, rounded at the same places: the same bits. Here
 * the lanes are 16 rows: of each 16 columns a panel's weights are one tile, a row of it four
 * columns of each, and the digits of the tokens another one.
 *
 * Weights that are still bytes 16 times as large ("small" ones) are multiplied by digits of 12
 * bits, two of which make an activation: such a digit is low + 16 * high, two bytes, and a tile
 * holds each weight twice, as it is and times 16. Others by three digits of a byte.
 *
 * Tokens are laid out for it once a call, some of them at a time, and two panels of rows are
 * unpacked once for those. The sums of 16 columns become floats while the tiles of the next are
 * multiplied.
 */
#ifndef MF_KERNELS_BLOCKS_TILES_H
#define MF_KERNELS_BLOCKS_TILES_H

#include "kernels/x86/blocks_avx512.h"
#include "kernels/x86/blocks_unpack_avx512.h"
#include "kernels/x86/fixed_token.h"
#include "kernels/x86/tiles.h"

enum {
    ROWS = 16,  /* of a panel */
    PANELS = 2, /* multiplied together */
    LANES = 16, /* of a span: 16 columns each */
    QUADS = 4,  /* fours of those */
    DIGITS = MF_FIXED_DIGITS,
    LANE_SUMS = DIGITS * PANELS * MF_TILE_ROWS, /* vectors: [digit][panel][token] */
    TOGETHER_BYTES = 1 << 19 /* of tokens, laid out: they stay in the second cache */
};

/* A span of a panel. */
typedef struct tiled_rows {
    signed char weights[LANES][2 * QUADS][ROWS][4]; /* the last QUADS: 16 times small ones */
    float scales[LANES][ROWS], minima[LANES][ROWS];
} tiled_rows;

/* A span of a tile's tokens. Lane 4 * q + i is in [i]. */
typedef union tiled_tokens {
    /* [digit][i][token]: quarter q */
    signed char bytes[DIGITS][QUADS][MF_TILE_ROWS][MF_TILE_ROW_BYTES];
    /* [low or high 12 bits][i][q / 2][token]: half q % 2 */
    signed char pairs[2][QUADS][2][MF_TILE_ROWS][MF_TILE_ROW_BYTES];
} tiled_tokens;

/* What a call works with, in scratch. */
typedef struct tiled_work {
    __m512 acc[LANES][PANELS][MF_TILE_ROWS]; /* by token, a row a lane */
    __m512i sums[2][LANE_SUMS];              /* of a lane of a span, and of the next one */
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
    tiled_rows *rows[PANELS]; /* [n_spans] each */
    tiled_tokens *spread;     /* [tiles][n_spans] */
} tiled_product;

/* Whether 16 times a weight of `kind`, a constant, is a byte, signed or not. */
MF_INLINE bool is_small(mf_weight_kind kind)
{
    return kind == MF_WEIGHT_GGUF_Q4_0 || kind == MF_WEIGHT_GGUF_Q4_1 ||
           kind == MF_WEIGHT_GGUF_Q4_K || kind == MF_WEIGHT_GGUF_Q2_K ||
           kind == MF_WEIGHT_GGUF_Q3_K || kind == MF_WEIGHT_INT4;
}

/* ------------------------------------------------------------------------------ activations -- */

static const mf_blocks_span *span_of(const tiled_product *p, uint32_t token, uint32_t span)
{
    const void *spans = p->tokens + token * p->token_bytes;
    return (const mf_blocks_span *)spans + span;
}

/* Three digits of a byte, the lowest first, as two of 12 bits, each as low + 16 * high. */
MF_INLINE void pair_digits(const __m512i a[DIGITS], __m512i out[4])
{
    const __m512i nibble = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8);
    const __m512i one = _mm512_set1_epi8(1), sixteen = _mm512_set1_epi8(16);
    const __mmask64 borrows = _mm512_movepi8_mask(a[0]); /* the lowest as an unsigned byte */
    const __mmask64 wraps = _mm512_mask_cmpeq_epi8_mask(borrows, a[1], _mm512_set1_epi8(-128));
    const __m512i middle = _mm512_mask_sub_epi8(a[1], borrows, a[1], one);
    out[0] = _mm512_and_si512(a[0], nibble);
    out[1] = _mm512_ternarylogic_epi64(nibble, _mm512_srli_epi16(a[0], 4),
                                       _mm512_slli_epi16(middle, 4), 0xca);
    const __m512i left = _mm512_and_si512(_mm512_srli_epi16(middle, 4), nibble);
    const __m512i high = _mm512_sub_epi8(_mm512_xor_si512(left, eight), eight);
    const __m512i carried = _mm512_mask_add_epi8(high, _mm512_movepi8_mask(out[1]), high, one);
    out[2] = _mm512_mask_sub_epi8(carried, wraps, carried, sixteen);
    out[3] = a[2];
}

/* Token t of a tile's. */
MF_INLINE void spread_pairs(const mf_blocks_span *x, uint32_t t, tiled_tokens *out)
{
    __m512i fours[4][QUADS];
    MF_UNROLL(4)
    for (uint32_t k = 0; k < QUADS; k++) {
        __m512i bytes[DIGITS], parts[4];
        MF_UNROLL(3)
        for (uint32_t d = 0; d < DIGITS; d++)
            bytes[d] = _mm512_loadu_si512(x->bytes.digits[d][k]);
        pair_digits(bytes, parts);
        MF_UNROLL(4)
        for (uint32_t d = 0; d < 4; d++)
            fours[d][k] = parts[d];
    }
    MF_UNROLL(2)
    for (uint32_t half = 0; half < 2; half++) {
        const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
        const __m512i last = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
        __m512i low[QUADS], high[QUADS];
        mf_transpose_fours_avx512(fours[2 * half], low);
        mf_transpose_fours_avx512(fours[2 * half + 1], high);
        MF_UNROLL(4)
        for (uint32_t i = 0; i < QUADS; i++) {
            _mm512_storeu_si512(out->pairs[half][i][0][t],
                                _mm512_permutex2var_epi64(low[i], first, high[i]));
            _mm512_storeu_si512(out->pairs[half][i][1][t],
                                _mm512_permutex2var_epi64(low[i], last, high[i]));
        }
    }
}

MF_INLINE void spread_bytes(const mf_blocks_span *x, uint32_t t, tiled_tokens *out)
{
    MF_UNROLL(3)
    for (uint32_t d = 0; d < DIGITS; d++) {
        __m512i fours[QUADS], lanes[QUADS];
        MF_UNROLL(4)
        for (uint32_t k = 0; k < QUADS; k++)
            fours[k] = _mm512_loadu_si512(x->bytes.digits[d][k]);
        mf_transpose_fours_avx512(fours, lanes);
        MF_UNROLL(4)
        for (uint32_t k = 0; k < QUADS; k++)
            _mm512_storeu_si512(out->bytes[d][k][t], lanes[k]);
    }
}

/* Tile i's tokens, all spans. */
static void spread_tokens(bool small, const tiled_product *p, uint32_t i, tiled_tokens *out)
{
    const uint32_t first = mf_tile_first(i, p->together, p->n_tokens);
    for (uint32_t s = 0; s < p->n_spans; s++, out++) {
        for (uint32_t t = 0; t < p->together; t++) {
            const mf_blocks_span *x = span_of(p, first + t, s);
            if (small)
                spread_pairs(x, t, out);
            else
                spread_bytes(x, t, out);
        }
    }
}

/* ---------------------------------------------------------------------------------- weights -- */

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

/* Weights as they are, [QUADS] vectors of each row, to where the tiles take them. */
MF_INLINE void store_weights(mf_weight_kind kind, const __m512i v[QUADS][ROWS], tiled_rows *out)
{
    const __m512i middle = _mm512_set1_epi8(-128), nibble = _mm512_set1_epi8(15);
    for (uint32_t k = 0; k < QUADS; k++) {
        __m512i columns[ROWS];
        mf_transpose_avx512(v[k], columns);
        MF_UNROLL(16)
        for (uint32_t j = 0; j < LANES; j++) {
            const bool woven = mf_blocks_is_woven(kind);
            const uint32_t lane = woven ? j : j / 4 * 4 + k, quad = woven ? k : j % 4;
            const __m512i w = _mm512_xor_si512(columns[j], middle);
            _mm512_storeu_si512(out->weights[lane][quad], w);
            if (is_small(kind))
                _mm512_storeu_si512(out->weights[lane][QUADS + quad],
                                    _mm512_slli_epi16(_mm512_and_si512(w, nibble), 4));
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

/* A span of each of a panel's rows. */
typedef struct row_spans {
    const unsigned char *values[ROWS], *scales[ROWS];
    mf_blocks_last last[ROWS]; /* where it is short */
} row_spans;

/* Span i of so many rows; of fewer than a panel's, the last one again. */
static void find_rows(const mf_blocks_rows *w, uint32_t row, uint32_t n_rows, uint32_t i,
                      row_spans *out)
{
    for (uint32_t r = 0; r < ROWS; r++) {
        const uint32_t at = row + (r < n_rows ? r : n_rows - 1);
        out->values[r] = w->values + at * w->row_bytes + (size_t)i * w->span_bytes;
        out->scales[r] = w->scales == NULL ? NULL
                                           : w->scales + at * w->scale_row_bytes +
                                                 (size_t)i * w->scale_span_bytes;
        if (i == w->n_spans) {
            mf_blocks_copy_last(w, at, &out->last[r]);
            out->values[r] = out->last[r].values;
            out->scales[r] = out->last[r].scales;
        } else {
            for (uint32_t ahead = 0; ahead < w->span_bytes; ahead += 64)
                __builtin_prefetch(out->values[r] + w->span_bytes + ahead);
        }
    }
}

/* Four words of each row, `at` bytes behind its beginning, transposed. */
MF_INLINE void load_words(const row_spans *rows, size_t at, __m512i columns[4])
{
    __m512i v[4];
    MF_UNROLL(4)
    for (uint32_t i = 0; i < 4; i++) {
        v[i] = _mm512_castsi128_si512(load_16(rows->values[i] + at));
        v[i] = _mm512_inserti32x4(v[i], load_16(rows->values[4 + i] + at), 1);
        v[i] = _mm512_inserti32x4(v[i], load_16(rows->values[8 + i] + at), 2);
        v[i] = _mm512_inserti32x4(v[i], load_16(rows->values[12 + i] + at), 3);
    }
    mf_transpose_fours_avx512(v, columns);
}

/* Weights and 16 times them. */
MF_INLINE void store_quad(__m512i w, __m512i sixteens, uint32_t lane, uint32_t quad,
                          tiled_rows *out)
{
    _mm512_storeu_si512(out->weights[lane][quad], w);
    _mm512_storeu_si512(out->weights[lane][QUADS + quad], sixteens);
}

/* Q4_0: byte i of a block is columns i and 16 + i, 8 above what they are. */
MF_INLINE void unpack_q4_0(const row_spans *rows, tiled_rows *out)
{
    const __m512i low = _mm512_set1_epi8(15), high = _mm512_set1_epi8(-16);
    const __m512i eight = _mm512_set1_epi8(8), sign = _mm512_set1_epi8(-128);
    for (uint32_t b = 0; b < MF_SPAN / 32; b++) {
        __m512i words[4];
        load_words(rows, (size_t)b * 18 + 2, words);
        MF_UNROLL(4)
        for (uint32_t i = 0; i < 4; i++) {
            const __m512i v = words[i], shifted = _mm512_srli_epi16(v, 4);
            const uint32_t lane = 2 * b + i % 2, quad = i / 2;
            store_quad(_mm512_sub_epi8(_mm512_and_si512(v, low), eight),
                       _mm512_ternarylogic_epi64(_mm512_slli_epi16(v, 4), high, sign, 0x6a), lane,
                       quad, out);
            store_quad(_mm512_sub_epi8(_mm512_and_si512(shifted, low), eight),
                       _mm512_ternarylogic_epi64(v, high, sign, 0x6a), lane, 2 + quad, out);
        }
    }
}

/* Q4_K: byte i of 32 is column i of one block and of the next. */
MF_INLINE void unpack_q4_k(const row_spans *rows, tiled_rows *out)
{
    const __m512i low = _mm512_set1_epi8(15), high = _mm512_set1_epi8(-16);
    for (uint32_t j = 0; j < MF_SPAN / 32; j++) { /* 16 bytes */
        __m512i words[4];
        load_words(rows, 16 + (size_t)j * 16, words);
        MF_UNROLL(4)
        for (uint32_t i = 0; i < 4; i++) {
            const __m512i v = words[i];
            const uint32_t lane = j / 2 * 4 + i % 2, quad = j % 2 * 2 + i / 2;
            store_quad(_mm512_and_si512(v, low), _mm512_and_si512(_mm512_slli_epi16(v, 4), high),
                       lane, quad, out);
            store_quad(_mm512_and_si512(_mm512_srli_epi16(v, 4), low), _mm512_and_si512(v, high),
                       lane + 2, quad, out);
        }
    }
}

MF_INLINE void unpack_weights(mf_weight_kind kind, const blocks_tables *t, const row_spans *rows,
                              tiled_rows *out)
{
    __m512i weights[QUADS][ROWS];
    if (kind == MF_WEIGHT_GGUF_Q4_0) {
        unpack_q4_0(rows, out);
        return;
    }
    if (kind == MF_WEIGHT_GGUF_Q4_K) {
        unpack_q4_k(rows, out);
        return;
    }
    for (uint32_t r = 0; r < ROWS; r++) {
        __m512i bytes[QUADS];
        row_weights(kind, t, rows->values[r], bytes);
        MF_UNROLL(4)
        for (uint32_t k = 0; k < QUADS; k++)
            weights[k][r] = bytes[k];
    }
    store_weights(kind, (const __m512i(*)[ROWS])weights, out);
}

/* Span i of a panel. */
MF_INLINE void unpack_span(mf_weight_kind kind, const blocks_tables *t, const mf_blocks_rows *w,
                           uint32_t row, uint32_t n_rows, uint32_t i, tiled_rows *out)
{
    row_spans rows;
    __m512 scales[ROWS], minima[ROWS];
    find_rows(w, row, n_rows, i, &rows);
    for (uint32_t r = 0; r < ROWS; r++) {
        const span_scales each = scales_of(kind, t, rows.values[r], rows.scales[r], w);
        scales[r] = lane_scales(kind, &each);
        if (mf_blocks_has_min(kind))
            minima[r] = lane_minima(kind, &each);
    }
    unpack_weights(kind, t, &rows, out);
    store_floats(scales, out->scales);
    if (mf_blocks_has_min(kind))
        store_floats(minima, out->minima);
}

/* --------------------------------------------------------------------------------- products -- */

/* A lane's sums by the low and the high digits of small weights; with minima these are never
 * negative. */
MF_INLINE void dot_small(bool with_min, mf_tiles *tiles, const tiled_rows *w0, const tiled_rows *w1,
                         const tiled_tokens *x, uint32_t lane, __m512i *sums)
{
    const size_t i = lane % QUADS, q = lane / QUADS, at = q % 2 * 32;
    MF_TILE_LOAD(tiles, 6, w0->weights[lane], MF_TILE_ROW_BYTES);
    MF_TILE_LOAD(tiles, 7, w1->weights[lane], MF_TILE_ROW_BYTES);
    MF_TILE_LOAD(tiles, 4, x->pairs[0][i][q / 2][0] + at, MF_TILE_ROW_BYTES);
    MF_TILE_LOAD(tiles, 5, x->pairs[1][i][q / 2][0] + at, MF_TILE_ROW_BYTES);
    MF_TILE_ZERO(tiles, 0);
    MF_TILE_ZERO(tiles, 1);
    MF_TILE_ZERO(tiles, 2);
    MF_TILE_ZERO(tiles, 3);
    if (with_min) {
        MF_TILE_DOT_SU(tiles, 0, 4, 6);
        MF_TILE_DOT_SU(tiles, 1, 4, 7);
        MF_TILE_DOT_SU(tiles, 2, 5, 6);
        MF_TILE_DOT_SU(tiles, 3, 5, 7);
    } else {
        MF_TILE_DOT_SS(tiles, 0, 4, 6);
        MF_TILE_DOT_SS(tiles, 1, 4, 7);
        MF_TILE_DOT_SS(tiles, 2, 5, 6);
        MF_TILE_DOT_SS(tiles, 3, 5, 7);
    }
    MF_TILE_STORE(tiles, 0, sums, sizeof *sums);
    MF_TILE_STORE(tiles, 1, sums + MF_TILE_ROWS, sizeof *sums);
    MF_TILE_STORE(tiles, 2, sums + (size_t)2 * MF_TILE_ROWS, sizeof *sums);
    MF_TILE_STORE(tiles, 3, sums + (size_t)3 * MF_TILE_ROWS, sizeof *sums);
}

/* By each of three digits. */
MF_INLINE void dot_bytes(mf_tiles *tiles, const tiled_rows *w0, const tiled_rows *w1,
                         const tiled_tokens *x, uint32_t lane, __m512i *sums)
{
    const size_t i = lane % QUADS, at = (size_t)(lane / QUADS) * 16;
    MF_TILE_LOAD(tiles, 6, w0->weights[lane], MF_TILE_ROW_BYTES);
    MF_TILE_LOAD(tiles, 7, w1->weights[lane], MF_TILE_ROW_BYTES);
    MF_UNROLL(3)
    for (uint32_t d = 0; d < DIGITS; d++, sums += (size_t)PANELS * MF_TILE_ROWS) {
        MF_TILE_LOAD(tiles, 4, x->bytes[d][i][0] + at, MF_TILE_ROW_BYTES);
        MF_TILE_ZERO(tiles, 0);
        MF_TILE_ZERO(tiles, 1);
        MF_TILE_DOT_SS(tiles, 0, 4, 6);
        MF_TILE_DOT_SS(tiles, 1, 4, 7);
        MF_TILE_STORE(tiles, 0, sums, sizeof *sums);
        MF_TILE_STORE(tiles, 1, sums + MF_TILE_ROWS, sizeof *sums);
    }
}

/* What the sums of a lane of one panel and one token are; they lie PANELS * MF_TILE_ROWS apart. */
MF_INLINE __m512 join_sums(bool small, const __m512i *sums)
{
    const __m512i second = sums[(size_t)PANELS * MF_TILE_ROWS];
    if (small)
        return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(second, 12), sums[0]));
    const __m512i low = _mm512_add_epi32(_mm512_slli_epi32(second, 8), sums[0]);
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[(size_t)2 * PANELS * MF_TILE_ROWS]),
                           _mm512_set1_ps(65536.0f), _mm512_cvtepi32_ps(low));
}

/* What a lane's sums add to the outputs of the tokens from `first` on. */
MF_INLINE void add_lane(bool small, bool with_min, const tiled_product *p, uint32_t first,
                        uint32_t span, uint32_t lane, const __m512i *sums)
{
    const unsigned char *at = (const unsigned char *)span_of(p, first, span);
    __m512 *acc = p->work->acc[lane][0];
    __m512 scale[PANELS], min[PANELS];
    MF_UNROLL(2)
    for (uint32_t i = 0; i < PANELS; i++) {
        scale[i] = _mm512_loadu_ps(p->rows[i][span].scales[lane]);
        min[i] = with_min ? _mm512_loadu_ps(p->rows[i][span].minima[lane]) : scale[i];
    }
    for (uint32_t t = 0; t < p->together; t++, at += p->token_bytes) {
        const mf_blocks_span *x = (const void *)at;
        const __m512 unit = _mm512_set1_ps(x->units[lane]), all = _mm512_set1_ps(x->sums[lane]);
        MF_UNROLL(2)
        for (uint32_t i = 0; i < PANELS; i++) {
            __m512 *out = acc + (size_t)i * MF_TILE_ROWS + t;
            const __m512 sum = join_sums(small, sums + (size_t)i * MF_TILE_ROWS + t);
            *out = _mm512_fmadd_ps(_mm512_mul_ps(sum, unit), scale[i], *out);
            if (with_min)
                *out = _mm512_fmadd_ps(min[i], all, *out);
        }
    }
}

/* A token's lanes of a panel, added up in the order of mf_sum4_avx512. */
MF_INLINE __m512 sum_lanes(const tiled_work *work, uint32_t panel, uint32_t t)
{
    __m512 v[LANES / 2];
    MF_UNROLL(8)
    for (uint32_t i = 0; i < 8; i++)
        v[i] = _mm512_add_ps(work->acc[i][panel][t], work->acc[i + 8][panel][t]);
    MF_UNROLL(4)
    for (uint32_t i = 0; i < 4; i++)
        v[i] = _mm512_add_ps(v[i], v[i + 4]);
    return _mm512_add_ps(_mm512_add_ps(v[0], v[2]), _mm512_add_ps(v[1], v[3]));
}

/* n_rows rows, the panels' or fewer, from y on, by the tokens from `first` on. */
static void store_outputs(const tiled_product *p, uint32_t first, uint32_t n_rows, float *y)
{
    const __m512 factor = _mm512_set1_ps(p->w.factor);
    for (uint32_t i = 0; i * ROWS < n_rows; i++)
        for (uint32_t t = 0; t < p->together; t++)
            _mm512_mask_storeu_ps(y + (first + t) * p->y_stride + (size_t)i * ROWS,
                                  mf_tail_avx512(n_rows, (size_t)i * ROWS),
                                  _mm512_mul_ps(sum_lanes(p->work, i, t), factor));
}

/* Lanes whose digits share cache lines follow each other. */
MF_INLINE uint32_t lane_at(uint32_t i)
{
    return i % QUADS * QUADS + i / QUADS;
}

MF_INLINE void dot_lane(bool small, bool with_min, tiled_product *p, const tiled_tokens *x,
                        uint32_t span, uint32_t lane, __m512i *sums)
{
    const tiled_rows *w0 = &p->rows[0][span], *w1 = &p->rows[1][span];
    if (small)
        dot_small(with_min, &p->tiles, w0, w1, x + span, lane, sums);
    else
        dot_bytes(&p->tiles, w0, w1, x + span, lane, sums);
}

/* Two panels by a tile's tokens, the first of which is `first`. */
MF_INLINE void multiply_tile(bool small, bool with_min, tiled_product *p, uint32_t first,
                             const tiled_tokens *x, uint32_t n_rows, float *y)
{
    uint32_t step = 0; /* whose sums come next */
    memset(p->work->acc, 0, sizeof p->work->acc);
    dot_lane(small, with_min, p, x, 0, lane_at(0), p->work->sums[0]);
    for (uint32_t i = 0; i < LANES; i++) {
        for (uint32_t s = 0; s < p->n_spans; s++, step++) {
            const bool is_last = s + 1 == p->n_spans;
            if (!is_last || i + 1 < LANES)
                dot_lane(small, with_min, p, x, is_last ? 0 : s + 1, lane_at(is_last ? i + 1 : i),
                         p->work->sums[(step + 1) % 2]);
            add_lane(small, with_min, p, first, s, lane_at(i), p->work->sums[step % 2]);
        }
    }
    store_outputs(p, first, n_rows, y);
}

/* Functions of their own, which all kinds share. */
static void multiply_small(tiled_product *p, uint32_t first, const tiled_tokens *x, uint32_t n_rows,
                           float *y)
{
    multiply_tile(true, false, p, first, x, n_rows, y);
}

static void multiply_small_with_min(tiled_product *p, uint32_t first, const tiled_tokens *x,
                                    uint32_t n_rows, float *y)
{
    multiply_tile(true, true, p, first, x, n_rows, y);
}

static void multiply_bytes(tiled_product *p, uint32_t first, const tiled_tokens *x, uint32_t n_rows,
                           float *y)
{
    multiply_tile(false, false, p, first, x, n_rows, y);
}

static void multiply_bytes_with_min(tiled_product *p, uint32_t first, const tiled_tokens *x,
                                    uint32_t n_rows, float *y)
{
    multiply_tile(false, true, p, first, x, n_rows, y);
}

MF_INLINE void multiply_panels(mf_weight_kind kind, tiled_product *p, uint32_t first,
                               const tiled_tokens *x, uint32_t n_rows, float *y)
{
    if (is_small(kind) && mf_blocks_has_min(kind))
        multiply_small_with_min(p, first, x, n_rows, y);
    else if (is_small(kind))
        multiply_small(p, first, x, n_rows, y);
    else if (mf_blocks_has_min(kind))
        multiply_bytes_with_min(p, first, x, n_rows, y);
    else
        multiply_bytes(p, first, x, n_rows, y);
}

/* Tiles of tokens whose digits are laid out together. */
static uint32_t tiles_together(uint32_t n_spans, uint32_t n_tiles)
{
    const size_t most = TOGETHER_BYTES / (n_spans * sizeof(tiled_tokens));
    return most < 1 ? 1 : most < n_tiles ? (uint32_t)most : n_tiles;
}

static void open_tiles(bool small, tiled_product *p)
{
    for (uint32_t i = 0; i < 4; i++) /* sums */
        mf_tile_shape(&p->tiles, i, p->together, MF_TILE_ROW_BYTES);
    for (uint32_t i = 4; i < 6; i++) /* 16 columns of tokens */
        mf_tile_shape(&p->tiles, i, p->together, small ? 32 : 16);
    for (uint32_t i = 6; i < 8; i++) /* weights */
        mf_tile_shape(&p->tiles, i, small ? 2 * QUADS : QUADS, MF_TILE_ROW_BYTES);
    MF_TILES_OPEN(&p->tiles);
}

/* Unpacks two panels' rows, or those of one, which then counts as both. */
MF_INLINE void unpack_panels(mf_weight_kind kind, const blocks_tables *t, tiled_product *p,
                             uint32_t row, uint32_t n_rows)
{
    tiled_rows *second = p->rows[0] + p->n_spans;
    p->rows[1] = n_rows > ROWS ? second : p->rows[0];
    for (uint32_t s = 0; s < p->n_spans; s++)
        unpack_span(kind, t, &p->w, row, n_rows < ROWS ? n_rows : ROWS, s, &p->rows[0][s]);
    for (uint32_t s = 0; s < p->n_spans && n_rows > ROWS; s++)
        unpack_span(kind, t, &p->w, row + ROWS, n_rows - ROWS, s, &second[s]);
}

MF_INLINE void multiply_kind(mf_weight_kind kind, tiled_product *p, uint32_t row0, uint32_t row1)
{
    const blocks_tables t = tables_of(kind);
    const uint32_t n_tiles = (p->n_tokens + p->together - 1) / p->together;
    open_tiles(is_small(kind), p);
    for (uint32_t done = 0, n; done < n_tiles; done += n) {
        n = tiles_together(p->n_spans, n_tiles - done);
        for (uint32_t i = 0; i < n; i++)
            spread_tokens(is_small(kind), p, done + i, p->spread + (size_t)i * p->n_spans);
        for (uint32_t row = row0; row < row1; row += PANELS * ROWS) {
            const uint32_t n_rows = row1 - row < PANELS * ROWS ? row1 - row : PANELS * ROWS;
            unpack_panels(kind, &t, p, row, n_rows);
            for (uint32_t i = 0; i < n; i++)
                multiply_panels(kind, p, mf_tile_first(done + i, p->together, p->n_tokens),
                                p->spread + (size_t)i * p->n_spans, n_rows, p->y + (row - row0));
        }
    }
    MF_TILES_CLOSE(&p->tiles);
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
    const size_t many = sizeof(tiled_work) + (size_t)PANELS * n_spans * sizeof(tiled_rows) +
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
    p.rows[0] = (tiled_rows *)(void *)(p.work + 1);
    p.spread = (tiled_tokens *)(void *)(p.rows[0] + (size_t)PANELS * p.n_spans);
    multiply_any(mf_blocks_is_nvfp4(w->shape.kind) ? MF_WEIGHT_NVFP4 : w->shape.kind, &p, row0,
                 row1);
}

#endif

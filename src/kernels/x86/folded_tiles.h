/* SPDX-License-Identifier: MIT */
/*
 * The product of folded blocks (folded_token.h) by tiles: 16 rows are a tile as they are unpacked,
 * the digits of four tokens are another; or, of more tokens, one digit of 16. They are laid out for
 * all rows of a call. One token or two go by vectors.
 *
 * While tiles multiply one block, vectors make floats of the sums of the one before, a quarter
 * after every step, near enough for the processor to run both side by side; by few tokens they
 * unpack the next block, too.
 */
#ifndef MF_KERNELS_FOLDED_TILES_H
#define MF_KERNELS_FOLDED_TILES_H

#include "kernels/x86/fixed_token.h"
#include "kernels/x86/folded_unpack.h"

enum {
    FOLDED_QUAD = 4, /* tokens whose digits fill a tile */
    FOLDED_QUADS = 2,
    FOLDED_FEW = FOLDED_QUADS * FOLDED_QUAD, /* tokens at most that go so */
    FOLDED_SUMS = 6,                         /* by the digits of weights and activations */
    FOLDED_TOKENS_BYTES = 1 << 20,           /* of the second cache, for tokens that are laid out */
    FOLDED_AHEAD = 1024,                     /* bytes of a row that are read ahead */
    FOLDED_PANEL_BYTES_MAX = 1 << 15         /* up to which the next panel is what is read ahead */
};

/* A block of the tokens of a tile, laid out. */
typedef struct folded_tokens {
    signed char digits[MF_FOLDED_STEPS][MF_FOLDED_DIGITS][16][MF_TILE_ROW_BYTES];
    float units[MF_TILE_ROWS], sums[MF_FOLDED_GROUPS][MF_TILE_ROWS];
} folded_tokens;

/* A block of four tokens, laid out; lanes are [token][row]. */
typedef struct folded_quad {
    signed char digits[MF_FOLDED_STEPS][16][FOLDED_QUAD][16];
    float units[16], sums[MF_FOLDED_GROUPS][16];
} folded_quad;

/* Sums of 16 rows: by a digit of weights, the high one first, and of 16 tokens' activations, the
 * lowest first; or of four tokens', the last of each four none. */
typedef union folded_sums {
    int32_t many[FOLDED_SUMS][MF_TILE_ROWS][16];
    int32_t quads[FOLDED_QUADS][2][MF_TILE_ROWS][16];
} folded_sums;

/* What is in work; panels [16 rows] and what belongs to them in turn. */
typedef struct folded_scratch {
    folded_panel panels[2];
    folded_factors factors[3];
    folded_sums sums[2];
    folded_block next;
} folded_scratch;

/* A call. */
typedef struct folded_call {
    mf_blocks_rows rows;
    uint32_t row0, row1, n_spans, n_tokens;
    const unsigned char *tokens;
    size_t token_bytes;
    float *y;
    size_t y_stride;
    folded_scratch *s;
    mf_tiles *tiles;
    uint32_t width;          /* tokens of a tile */
    float *acc;              /* [tile][row][token] */
    folded_tokens *laid;     /* [tile][span] */
    folded_quad *quads;      /* [quad][span] */
    uint32_t tile0, n_tiles; /* tiles that are laid out */
} folded_call;

/* ------------------------------------------------------------------------------- activations -- */

/* 16 neighbours' digits, four columns' of each side by side; and each digit's to bytes[d]. */
MF_INLINE __m512i folded_digits_of(__m512i v, signed char *const bytes[MF_FOLDED_DIGITS])
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    signed char all[4][16] = {{0}};
    for (uint32_t d = 0; d < MF_FOLDED_DIGITS; d++) { /* what is left, above this one */
        const __m128i digit = _mm512_cvtepi32_epi8(v);
        _mm_storeu_si128((__m128i *)(void *)all[d], digit);
        _mm_storeu_si128((__m128i *)(void *)bytes[d], digit);
        v = mf_above_digit_avx512(v);
    }
    return _mm512_permutexvar_epi32(order, _mm512_loadu_si512(all));
}

/* Digits of 256 columns in their order, as lanes have them. */
static void folded_prepare_lanes(mf_weight_kind kind, signed char bytes[MF_FOLDED_DIGITS][MF_SPAN],
                                 mf_folded_span *out)
{
    for (uint32_t d = 0; d < MF_FOLDED_DIGITS; d++) {
        __m512i rows[4], columns[4], sum = _mm512_setzero_si512();
        for (uint32_t k = 0; k < 4; k++)
            rows[k] = _mm512_loadu_si512(bytes[d] + (size_t)64 * k);
        if (mf_blocks_is_crossed(kind))
            weave(true, rows, columns);
        else
            mf_transpose_fours_avx512(rows, columns);
        for (uint32_t k = 0; k < 4; k++) {
            _mm512_storeu_si512(out->lanes[d][k], columns[k]);
            sum = add_products(sum, _mm512_set1_epi8(1), columns[k]);
        }
        _mm512_storeu_si512(out->offsets[d], offset_of(sum));
    }
}

/* The lanes added up, modulo 2^32, which activations that are not finite pass. */
static float folded_sum_of(__m512i v)
{
    uint32_t lanes[16], sum = 0;
    _mm512_storeu_si512(lanes, v);
    for (uint32_t i = 0; i < 16; i++)
        sum += lanes[i];
    return (float)(int32_t)sum;
}

static void folded_prepare_span(mf_weight_kind kind, const float *x, mf_folded_span *out)
{
    float max = largest(x, MF_SPAN);
    max = max < MF_FIXED_SMALLEST ? MF_FIXED_SMALLEST : max;
    const __m512 per_unit = _mm512_set1_ps(MF_FOLDED_LIMIT / max);
    signed char bytes[MF_FOLDED_DIGITS][MF_SPAN];
    __m512i pair = _mm512_setzero_si512();
    for (uint32_t i = 0; i < MF_SPAN / 16; i++) {
        const __m512i v =
            _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + (size_t)16 * i), per_unit));
        signed char *const to[] = {bytes[0] + 16 * i, bytes[1] + 16 * i, bytes[2] + 16 * i};
        _mm512_storeu_si512(out->digits[i % 4][i / 4 * 4], folded_digits_of(v, to));
        if (i % 2 == 0)
            pair = v;
        else
            out->sums[i / 2] = folded_sum_of(_mm512_add_epi32(pair, v));
    }
    folded_prepare_lanes(kind, bytes, out);
    out->unit = max / MF_FOLDED_LIMIT;
}

/* mf_kernels.prepare_token. Activations that are not finite get a unit that is not. */
static void folded_prepare(const mf_matrix *w, const float *x, void *out)
{
    mf_folded_span *span = out;
    for (uint32_t i = 0; i < w->shape.n_cols; i += MF_SPAN)
        folded_prepare_span(w->shape.kind, x + i, span++);
}

/* A block of a token. */
MF_INLINE const mf_folded_span *folded_span_of(const folded_call *c, size_t token, uint32_t span)
{
    return (const mf_folded_span *)(const void *)(c->tokens + token * c->token_bytes) + span;
}

/* n tokens, FOLDED_QUAD at most; those that are missing are the last one again. */
static void folded_lay_out_quad(const folded_call *c, uint32_t first, uint32_t n, folded_quad *out)
{
    for (uint32_t span = 0; span < c->n_spans; span++, out++) {
        const mf_folded_span *x[FOLDED_QUAD];
        for (uint32_t t = 0; t < FOLDED_QUAD; t++) {
            const size_t token = first + (t < n ? t : n - 1);
            x[t] = folded_span_of(c, token, span);
            for (uint32_t i = 0; i < 4; i++) {
                out->units[4 * t + i] = x[t]->unit;
                for (uint32_t g = 0; g < MF_FOLDED_GROUPS; g++)
                    out->sums[g][4 * t + i] = x[t]->sums[g];
            }
        }
        for (uint32_t i = 0; i < MF_FOLDED_STEPS * 4; i++) {
            __m512i tokens[4], rows[4];
            for (uint32_t t = 0; t < FOLDED_QUAD; t++)
                tokens[t] = _mm512_loadu_si512(x[t]->digits[i / 4][i % 4 * 4]);
            mf_transpose_quarters_avx512(tokens, rows);
            for (uint32_t k = 0; k < 4; k++)
                _mm512_storeu_si512(out->digits[i / 4][i % 4 * 4 + k], rows[k]);
        }
    }
}

/* Rows 4 * k .. + 3 of a step. */
MF_INLINE void folded_lay_out_rows(const mf_folded_span *const x[MF_TILE_ROWS], uint32_t step,
                                   uint32_t k, folded_tokens *out)
{
    __m512i fours[4][4], rows[4]; /* [four tokens][digit] */
    MF_UNROLL(4)
    for (uint32_t i = 0; i < 4; i++) {
        __m512i tokens[4];
        MF_UNROLL(4)
        for (uint32_t t = 0; t < 4; t++)
            tokens[t] = _mm512_loadu_si512(x[4 * i + t]->digits[step][4 * k]);
        mf_transpose_fours_avx512(tokens, fours[i]);
    }
    MF_UNROLL(3)
    for (uint32_t d = 0; d < MF_FOLDED_DIGITS; d++) {
        const __m512i digit[4] = {fours[0][d], fours[1][d], fours[2][d], fours[3][d]};
        mf_transpose_quarters_avx512(digit, rows);
        MF_UNROLL(4)
        for (uint32_t i = 0; i < 4; i++)
            _mm512_storeu_si512(out->digits[step][d][4 * k + i], rows[i]);
    }
}

/* A tile's tokens; those that it does not have are the last one again. */
static void folded_lay_out(const folded_call *c, uint32_t tile, folded_tokens *out)
{
    const uint32_t first = mf_tile_first(tile, c->width, c->n_tokens);
    for (uint32_t span = 0; span < c->n_spans; span++, out++) {
        const mf_folded_span *x[MF_TILE_ROWS];
        for (uint32_t t = 0; t < MF_TILE_ROWS; t++) {
            const uint32_t token = first + (t < c->width ? t : c->width - 1);
            x[t] = folded_span_of(c, token, span);
            out->units[t] = x[t]->unit;
            for (uint32_t g = 0; g < MF_FOLDED_GROUPS; g++)
                out->sums[g][t] = x[t]->sums[g];
        }
        for (uint32_t step = 0; step < MF_FOLDED_STEPS; step++)
            for (uint32_t k = 0; k < 4; k++)
                folded_lay_out_rows(x, step, k, out);
    }
}

/* -------------------------------------------------------------------------------------- sums -- */

/* By the digits of activations, the lowest first. */
MF_INLINE __m512 folded_join(const __m512i sums[MF_FOLDED_DIGITS])
{
    const __m512 low = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[1]), _mm512_set1_ps(256.0f),
                                       _mm512_cvtepi32_ps(sums[0]));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[2]), _mm512_set1_ps(65536.0f), low);
}

/* By both digits of weights. */
MF_INLINE __m512i folded_both(const int32_t *high, const int32_t *low)
{
    return _mm512_add_epi32(_mm512_slli_epi32(_mm512_loadu_si512(high), 8),
                            _mm512_loadu_si512(low));
}

/* A block that was multiplied, of which the sums are to be added up. */
typedef struct folded_done {
    const folded_sums *sums;
    const folded_factors *f;
    const folded_tokens *x;
    float *acc; /* [row][token] */
    uint32_t row, n_rows, tile;
    bool is_first, is_last, is_there;
} folded_done;

/* Rows 4 * quarter .. + 3 by a tile's tokens. */
MF_INLINE void folded_add_rows(bool with_min, const folded_done *b, uint32_t quarter)
{
    const __m512 unit = _mm512_loadu_ps(b->x->units);
    for (uint32_t r = 4 * quarter; r < 4 * quarter + 4; r++) {
        __m512i sums[MF_FOLDED_DIGITS];
        MF_UNROLL(3)
        for (uint32_t d = 0; d < MF_FOLDED_DIGITS; d++)
            sums[d] = folded_both(b->sums->many[d][r], b->sums->many[MF_FOLDED_DIGITS + d][r]);
        float *at = b->acc + (size_t)r * MF_TILE_ROWS;
        __m512 acc = b->is_first ? _mm512_setzero_ps() : _mm512_loadu_ps(at);
        acc = _mm512_fmadd_ps(_mm512_mul_ps(folded_join(sums), unit),
                              _mm512_set1_ps(b->f->scales[r]), acc);
        if (with_min) {
            __m512 sum = _mm512_setzero_ps();
            MF_UNROLL(8)
            for (uint32_t g = 0; g < MF_FOLDED_GROUPS; g++)
                sum = _mm512_fmadd_ps(_mm512_set1_ps(b->f->minima[g][r]),
                                      _mm512_loadu_ps(b->x->sums[g]), sum);
            acc =
                _mm512_fmadd_ps(_mm512_mul_ps(sum, unit), _mm512_set1_ps(b->f->min_scales[r]), acc);
        }
        _mm512_storeu_ps(at, acc);
    }
}

/* Functions of their own, not parts of each kind's. */
__attribute__((noinline)) static void folded_add_with_min(const folded_done *b, uint32_t quarter)
{
    folded_add_rows(true, b, quarter);
}

__attribute__((noinline)) static void folded_add_without_min(const folded_done *b, uint32_t quarter)
{
    folded_add_rows(false, b, quarter);
}

/* Rows that are complete, to y. */
static void folded_write(const folded_call *c, const folded_done *b)
{
    __m512i rows[MF_TILE_ROWS], tokens[MF_TILE_ROWS];
    for (uint32_t r = 0; r < MF_TILE_ROWS; r++)
        rows[r] = _mm512_loadu_si512(b->acc + (size_t)r * MF_TILE_ROWS);
    mf_transpose_avx512(rows, tokens);
    float *y =
        c->y + mf_tile_first(b->tile, c->width, c->n_tokens) * c->y_stride + (b->row - c->row0);
    for (uint32_t t = 0; t < c->width; t++)
        _mm512_mask_storeu_epi32(y + t * c->y_stride, mf_tail_avx512(b->n_rows, 0), tokens[t]);
}

/* One token's sums, of four rows each by digits: what 16 rows add to acc. */
MF_INLINE __m512 folded_add_token(bool with_min, const __m512i fours[4], const folded_factors *f,
                                  const mf_folded_span *x, __m512 acc)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512 unit = _mm512_set1_ps(x->unit);
    __m512i digits[4];
    mf_transpose_fours_avx512(fours, digits);
    MF_UNROLL(3)
    for (uint32_t d = 0; d < MF_FOLDED_DIGITS; d++)
        digits[d] = _mm512_permutexvar_epi32(order, digits[d]);
    acc =
        _mm512_fmadd_ps(_mm512_mul_ps(folded_join(digits), unit), _mm512_loadu_ps(f->scales), acc);
    if (!with_min)
        return acc;
    __m512 sum = _mm512_setzero_ps();
    MF_UNROLL(8)
    for (uint32_t g = 0; g < MF_FOLDED_GROUPS; g++)
        sum = _mm512_fmadd_ps(_mm512_loadu_ps(f->minima[g]), _mm512_set1_ps(x->sums[g]), sum);
    return _mm512_fmadd_ps(_mm512_mul_ps(sum, unit), _mm512_loadu_ps(f->min_scales), acc);
}

/* Four tokens' sums: what rows 4 * i .. + 3 add to acc[i]. */
MF_INLINE void folded_add_quad(bool with_min, const int32_t (*sums)[MF_TILE_ROWS][16],
                               const folded_factors *f, const folded_quad *x, __m512 acc[4])
{
    const __m512 unit = _mm512_loadu_ps(x->units);
    MF_UNROLL(4)
    for (uint32_t i = 0; i < 4; i++) {
        __m512i fours[4], digits[4];
        MF_UNROLL(4)
        for (uint32_t r = 0; r < 4; r++)
            fours[r] = folded_both(sums[0][4 * i + r], sums[1][4 * i + r]);
        mf_transpose_fours_avx512(fours, digits);
        acc[i] = _mm512_fmadd_ps(_mm512_mul_ps(folded_join(digits), unit),
                                 _mm512_broadcast_f32x4(_mm_loadu_ps(f->scales + 4 * i)), acc[i]);
        if (!with_min)
            continue;
        __m512 sum = _mm512_setzero_ps();
        MF_UNROLL(8)
        for (uint32_t g = 0; g < MF_FOLDED_GROUPS; g++)
            sum = _mm512_fmadd_ps(_mm512_broadcast_f32x4(_mm_loadu_ps(f->minima[g] + 4 * i)),
                                  _mm512_loadu_ps(x->sums[g]), sum);
        acc[i] =
            _mm512_fmadd_ps(_mm512_mul_ps(sum, unit),
                            _mm512_broadcast_f32x4(_mm_loadu_ps(f->min_scales + 4 * i)), acc[i]);
    }
}

/* ---------------------------------------------------------------------------------- products -- */

/* A block of 16 rows, or of those that are left. */
typedef struct folded_unit {
    uint32_t row, n_rows, span;
    folded_factors *f;
    folded_panel *panel;
} folded_unit;

MF_INLINE bool folded_is_unit(const folded_call *c, const folded_unit *u)
{
    return u->row < c->row1;
}

/* The u-th one: the first, or what comes after the one before it. */
MF_INLINE folded_unit folded_unit_after(const folded_call *c, const folded_unit *before)
{
    folded_unit u = {.row = c->row0, .f = c->s->factors, .panel = c->s->panels};
    if (before != NULL) {
        const bool is_new = before->span + 1 == c->n_spans;
        u.span = is_new ? 0 : before->span + 1;
        u.row = before->row + (is_new ? MF_TILE_ROWS : 0);
        u.f = before->f == c->s->factors + 2 ? c->s->factors : before->f + 1;
        u.panel = c->s->panels + (before->panel == c->s->panels);
    }
    const uint32_t left = c->row1 - u.row;
    u.n_rows = left < MF_TILE_ROWS ? left : MF_TILE_ROWS;
    return u;
}

/* Its factors, and what is next to be unpacked. */
MF_INLINE void folded_open_unit(mf_weight_kind kind, const folded_call *c, const folded_unit *u)
{
    const size_t panel_bytes = MF_TILE_ROWS * c->rows.row_bytes;
    c->s->next.ahead = panel_bytes <= FOLDED_PANEL_BYTES_MAX ? panel_bytes : FOLDED_AHEAD;
    folded_open(kind, &c->rows, u->row, u->n_rows, 1, u->span, &c->s->next, u->f);
}

MF_INLINE void folded_unpack_unit(mf_weight_kind kind, const folded_tables *t, const folded_call *c,
                                  const folded_unit *u, uint32_t odd)
{
    folded_unpack(kind, t, &c->s->next, odd, u->panel);
}

/* A block of 16 rows, which is open, by n tokens: what it adds to acc. */
MF_INLINE void folded_add_block(mf_weight_kind kind, uint32_t n, const folded_lanes *t,
                                const folded_call *c,
                                const mf_folded_span *const x[FOLDED_BY_LANES],
                                __m512 acc[FOLDED_BY_LANES])
{
    __m512i fours[FOLDED_BY_LANES][4];
    MF_UNROLL(4)
    for (uint32_t i = 0; i < 4; i++) {
        __m512i sums[FOLDED_BY_LANES];
        for (uint32_t r = 0; r < 4; r++)
            folded_prefetch(kind, &c->s->next, 4 * i + r);
        folded_four_rows(kind, n, t, &c->s->next, i, x, sums);
        MF_UNROLL(2)
        for (uint32_t token = 0; token < n; token++)
            fours[token][i] = sums[token];
    }
    MF_UNROLL(2)
    for (uint32_t token = 0; token < n; token++)
        acc[token] = folded_add_token(mf_blocks_has_min(kind), fours[token], c->s->factors,
                                      x[token], acc[token]);
}

/* 16 rows from `row` on, or fewer, `apart` from each other, by n tokens. */
MF_INLINE void folded_multiply_rows(mf_weight_kind kind, uint32_t n, const folded_lanes *t,
                                    const folded_call *c, uint32_t row, uint32_t n_rows,
                                    uint32_t apart)
{
    __m512 acc[FOLDED_BY_LANES] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (uint32_t span = 0; span < c->n_spans; span++) {
        const mf_folded_span *const x[FOLDED_BY_LANES] = {folded_span_of(c, 0, span),
                                                          folded_span_of(c, n - 1, span)};
        folded_open(kind, &c->rows, row, n_rows, apart, span, &c->s->next, c->s->factors);
        folded_add_block(kind, n, t, c, x, acc);
    }
    for (uint32_t token = 0; token < n; token++) {
        float out[MF_TILE_ROWS];
        _mm512_storeu_ps(out, acc[token]);
        for (uint32_t r = 0; r < n_rows; r++)
            c->y[token * c->y_stride + (row - c->row0) + (size_t)r * apart] = out[r];
    }
}

/* All rows by n, a constant, tokens, which wait for memory: each row of 16 is the next of a stream
 * of its own. Those left over are neighbours. */
MF_INLINE void folded_multiply_lanes(mf_weight_kind kind, uint32_t n, const folded_call *c)
{
    const folded_lanes t = folded_lanes_of(kind, &c->rows);
    const uint32_t n_sets = (c->row1 - c->row0) / MF_TILE_ROWS;
    const uint32_t done = c->row0 + n_sets * MF_TILE_ROWS;
    c->s->next.ahead = FOLDED_AHEAD;
    for (uint32_t r = 0; r < MF_TILE_ROWS; r++)
        for (uint32_t at = 0; at < FOLDED_AHEAD && n_sets > 0; at += 64)
            __builtin_prefetch(c->rows.values + (c->row0 + (size_t)r * n_sets) * c->rows.row_bytes +
                               at);
    for (uint32_t i = 0; i < n_sets; i++)
        folded_multiply_rows(kind, n, &t, c, c->row0 + i, MF_TILE_ROWS, n_sets);
    if (done < c->row1)
        folded_multiply_rows(kind, n, &t, c, done, c->row1 - done, 1);
}

/* A step of a panel by n times four tokens. */
MF_INLINE void folded_step_few(const folded_call *c, uint32_t n, const folded_unit *u,
                               uint32_t step)
{
    const folded_quad *const x = c->quads + u->span;
    MF_TILE_LOAD(c->tiles, 4, u->panel->high[step], MF_TILE_ROW_BYTES);
    MF_TILE_LOAD(c->tiles, 6, x->digits[step], MF_TILE_ROW_BYTES);
    MF_TILE_LOAD(c->tiles, 5, u->panel->low[step], MF_TILE_ROW_BYTES);
    MF_TILE_DOT_SS(c->tiles, 0, 4, 6);
    MF_TILE_DOT_US(c->tiles, 1, 5, 6);
    if (n > 1) {
        MF_TILE_LOAD(c->tiles, 7, x[c->n_spans].digits[step], MF_TILE_ROW_BYTES);
        MF_TILE_DOT_SS(c->tiles, 2, 4, 7);
        MF_TILE_DOT_US(c->tiles, 3, 5, 7);
    }
}

MF_INLINE void folded_zero_few(mf_tiles *tiles, uint32_t n)
{
    MF_TILE_ZERO(tiles, 0);
    MF_TILE_ZERO(tiles, 1);
    if (n > 1) {
        MF_TILE_ZERO(tiles, 2);
        MF_TILE_ZERO(tiles, 3);
    }
}

MF_INLINE void folded_store_few(mf_tiles *tiles, uint32_t n, folded_sums *sums)
{
    MF_TILE_STORE(tiles, 0, sums->quads[0][0], MF_TILE_ROW_BYTES);
    MF_TILE_STORE(tiles, 1, sums->quads[0][1], MF_TILE_ROW_BYTES);
    if (n > 1) {
        MF_TILE_STORE(tiles, 2, sums->quads[1][0], MF_TILE_ROW_BYTES);
        MF_TILE_STORE(tiles, 3, sums->quads[1][1], MF_TILE_ROW_BYTES);
    }
}

/* Rows that are complete, of four tokens or those that are left, to y. */
static void folded_write_quad(const folded_call *c, const folded_unit *u, uint32_t quad,
                              const __m512 acc[4])
{
    float lanes[4][16], row[MF_TILE_ROWS];
    for (uint32_t i = 0; i < 4; i++)
        _mm512_storeu_ps(lanes[i], acc[i]);
    for (uint32_t t = 0; t < FOLDED_QUAD && FOLDED_QUAD * quad + t < c->n_tokens; t++) {
        for (uint32_t i = 0; i < 4; i++)
            memcpy(row + 4 * i, lanes[i] + 4 * t, 4 * sizeof *row);
        memcpy(c->y + (FOLDED_QUAD * quad + t) * c->y_stride + (u->row - c->row0), row,
               u->n_rows * sizeof *row);
    }
}

/* What a unit's sums add to acc, which is complete with a row's last. */
MF_INLINE void folded_finish_few(mf_weight_kind kind, uint32_t n, const folded_call *c,
                                 const folded_unit *u, const folded_sums *sums,
                                 __m512 acc[FOLDED_QUADS][4])
{
    const bool with_min = mf_blocks_has_min(kind), is_last = u->span + 1 == c->n_spans;
    MF_UNROLL(2)
    for (uint32_t q = 0; q < n; q++) {
        folded_add_quad(with_min, sums->quads[q], u->f, c->quads + q * c->n_spans + u->span,
                        acc[q]);
        if (is_last) {
            folded_write_quad(c, u, q, acc[q]);
            for (uint32_t i = 0; i < 4; i++)
                acc[q][i] = _mm512_setzero_ps();
        }
    }
}

/* All rows by n, a constant, times four tokens. Loads of a tile would wait for what was stored just
 * before them at the same place of a page: so half of a unit is unpacked while the other one is
 * loaded. */
MF_INLINE void folded_multiply_few(mf_weight_kind kind, uint32_t n, const folded_call *c)
{
    const folded_tables t = folded_tables_of(kind);
    __m512 acc[FOLDED_QUADS][4];
    memset(acc, 0, sizeof acc);
    folded_unit u = folded_unit_after(c, NULL), before = {.row = 0};
    uint32_t n_done = 0;
    folded_open_unit(kind, c, &u);
    folded_unpack_unit(kind, &t, c, &u, 0);
    folded_unpack_unit(kind, &t, c, &u, 1);
    while (folded_is_unit(c, &u)) {
        const folded_unit next = folded_unit_after(c, &u);
        const bool has_next = folded_is_unit(c, &next);
        if (has_next)
            folded_open_unit(kind, c, &next);
        folded_zero_few(c->tiles, n);
        MF_UNROLL(2)
        for (uint32_t odd = 0; odd < 2; odd++) {
            folded_step_few(c, n, &u, 2 * odd);
            folded_step_few(c, n, &u, 2 * odd + 1);
            if (odd == 0 && n_done > 0)
                folded_finish_few(kind, n, c, &before, &c->s->sums[(n_done - 1) % 2], acc);
            if (has_next)
                folded_unpack_unit(kind, &t, c, &next, odd);
        }
        folded_store_few(c->tiles, n, &c->s->sums[n_done++ % 2]);
        before = u;
        u = next;
    }
    folded_finish_few(kind, n, c, &before, &c->s->sums[(n_done - 1) % 2], acc);
}

/* A step of a panel by a tile of tokens. */
MF_INLINE void folded_step_many(mf_tiles *tiles, const folded_panel *p, uint32_t step,
                                const folded_tokens *x)
{
    MF_TILE_LOAD(tiles, 6, p->high[step], MF_TILE_ROW_BYTES);
    MF_TILE_LOAD(tiles, 7, x->digits[step][0], MF_TILE_ROW_BYTES);
    MF_TILE_DOT_SS(tiles, 0, 6, 7);
    MF_TILE_LOAD(tiles, 7, x->digits[step][1], MF_TILE_ROW_BYTES);
    MF_TILE_DOT_SS(tiles, 1, 6, 7);
    MF_TILE_LOAD(tiles, 7, x->digits[step][2], MF_TILE_ROW_BYTES);
    MF_TILE_DOT_SS(tiles, 2, 6, 7);
    MF_TILE_LOAD(tiles, 6, p->low[step], MF_TILE_ROW_BYTES);
    MF_TILE_DOT_US(tiles, 5, 6, 7);
    MF_TILE_LOAD(tiles, 7, x->digits[step][1], MF_TILE_ROW_BYTES);
    MF_TILE_DOT_US(tiles, 4, 6, 7);
    MF_TILE_LOAD(tiles, 7, x->digits[step][0], MF_TILE_ROW_BYTES);
    MF_TILE_DOT_US(tiles, 3, 6, 7);
}

MF_INLINE void folded_zero_many(mf_tiles *tiles)
{
    MF_TILE_ZERO(tiles, 0);
    MF_TILE_ZERO(tiles, 1);
    MF_TILE_ZERO(tiles, 2);
    MF_TILE_ZERO(tiles, 3);
    MF_TILE_ZERO(tiles, 4);
    MF_TILE_ZERO(tiles, 5);
}

MF_INLINE void folded_store_many(mf_tiles *tiles, folded_sums *sums)
{
    MF_TILE_STORE(tiles, 0, sums->many[0], MF_TILE_ROW_BYTES);
    MF_TILE_STORE(tiles, 1, sums->many[1], MF_TILE_ROW_BYTES);
    MF_TILE_STORE(tiles, 2, sums->many[2], MF_TILE_ROW_BYTES);
    MF_TILE_STORE(tiles, 3, sums->many[3], MF_TILE_ROW_BYTES);
    MF_TILE_STORE(tiles, 4, sums->many[4], MF_TILE_ROW_BYTES);
    MF_TILE_STORE(tiles, 5, sums->many[5], MF_TILE_ROW_BYTES);
}

/* A quarter of what was multiplied before. */
MF_INLINE void folded_add_done(mf_weight_kind kind, const folded_call *c, const folded_done *done,
                               uint32_t quarter)
{
    if (!done->is_there)
        return;
    if (mf_blocks_has_min(kind))
        folded_add_with_min(done, quarter);
    else
        folded_add_without_min(done, quarter);
    if (done->is_last && quarter == 3)
        folded_write(c, done);
}

/* A unit, which is unpacked, by the tokens that are laid out. */
MF_INLINE void folded_multiply_unit(mf_weight_kind kind, const folded_call *c, const folded_unit *u,
                                    folded_done *done)
{
    for (uint32_t i = 0; i < c->n_tiles; i++) {
        const folded_tokens *x = c->laid + (size_t)i * c->n_spans + u->span;
        folded_sums *sums = &c->s->sums[done->sums == &c->s->sums[0]];
        folded_zero_many(c->tiles);
        for (uint32_t step = 0; step < MF_FOLDED_STEPS; step++) {
            folded_step_many(c->tiles, u->panel, step, x);
            folded_add_done(kind, c, done, step);
        }
        folded_store_many(c->tiles, sums);
        *done = (folded_done){.sums = sums,
                              .f = u->f,
                              .x = x,
                              .acc = c->acc + (size_t)i * MF_TILE_ROWS * MF_TILE_ROWS,
                              .row = u->row,
                              .n_rows = u->n_rows,
                              .tile = c->tile0 + i,
                              .is_first = u->span == 0,
                              .is_last = u->span + 1 == c->n_spans,
                              .is_there = true};
    }
}

MF_INLINE void folded_multiply_many(mf_weight_kind kind, const folded_call *c)
{
    const folded_tables t = folded_tables_of(kind);
    folded_done done = {.is_there = false};
    folded_unit u = folded_unit_after(c, NULL);
    for (; folded_is_unit(c, &u); u = folded_unit_after(c, &u)) {
        folded_open_unit(kind, c, &u);
        folded_unpack_unit(kind, &t, c, &u, 0);
        folded_unpack_unit(kind, &t, c, &u, 1);
        folded_multiply_unit(kind, c, &u, &done);
    }
    for (uint32_t quarter = 0; quarter < 4; quarter++)
        folded_add_done(kind, c, &done, quarter);
}

/* ------------------------------------------------------------------------------------- calls -- */

/* Tiles of tokens that are laid out together at most, of n. */
static uint32_t folded_tiles_most(const mf_matrix *w, uint32_t n_tiles)
{
    const size_t fit = FOLDED_TOKENS_BYTES / (mf_blocks_spans(w) * sizeof(folded_tokens));
    return fit < 1 ? 1 : (uint32_t)(fit < n_tiles ? fit : n_tiles);
}

/* About as many each time. */
static uint32_t folded_tiles_together(const mf_matrix *w, uint32_t n_tiles)
{
    const uint32_t most = folded_tiles_most(w, n_tiles), n_turns = (n_tiles + most - 1) / most;
    return (n_tiles + n_turns - 1) / n_turns;
}

/* mf_fixed_kernels.scratch_bytes: enough for fewer tokens, too, which may take more turns. */
static size_t folded_scratch_bytes(const mf_matrix *w, uint32_t n_tokens)
{
    const size_t own = (size_t)mf_round_up(sizeof(folded_scratch), 64);
    const size_t n_quads = n_tokens <= FOLDED_BY_LANES ? 0
                           : n_tokens <= FOLDED_QUAD   ? 1
                                                       : FOLDED_QUADS;
    const size_t few = own + n_quads * mf_blocks_spans(w) * sizeof(folded_quad);
    if (n_tokens <= FOLDED_FEW)
        return few;
    const uint32_t n_tiles = (n_tokens + MF_TILE_ROWS - 1) / MF_TILE_ROWS;
    const size_t most = folded_tiles_most(w, n_tiles);
    const size_t many = own + most * (MF_TILE_ROWS * MF_TILE_ROWS * sizeof(float) +
                                      mf_blocks_spans(w) * sizeof(folded_tokens));
    return many > few ? many : few;
}

#define FOLDED_SWITCH(kind, call, ...)            \
    switch (kind) {                               \
    case MF_WEIGHT_GGUF_Q4_K:                     \
        call(MF_WEIGHT_GGUF_Q4_K, __VA_ARGS__);   \
        break;                                    \
    case MF_WEIGHT_GGUF_Q5_K:                     \
        call(MF_WEIGHT_GGUF_Q5_K, __VA_ARGS__);   \
        break;                                    \
    case MF_WEIGHT_GGUF_Q6_K:                     \
        call(MF_WEIGHT_GGUF_Q6_K, __VA_ARGS__);   \
        break;                                    \
    default:                                      \
        call(MF_WEIGHT_GGUF_IQ4_XS, __VA_ARGS__); \
        break;                                    \
    }

static void folded_by_few(folded_call *c)
{
    for (uint32_t i = 0; i < 8; i++) /* sums; weights; digits */
        mf_tile_shape(c->tiles, i, MF_TILE_ROWS, MF_TILE_ROW_BYTES);
    c->quads = (folded_quad *)(void *)((unsigned char *)c->s + mf_round_up(sizeof *c->s, 64));
    for (uint32_t t = 0; t < c->n_tokens; t += FOLDED_QUAD)
        folded_lay_out_quad(c, t, c->n_tokens - t < FOLDED_QUAD ? c->n_tokens - t : FOLDED_QUAD,
                            c->quads + t / FOLDED_QUAD * c->n_spans);
    MF_TILES_OPEN(c->tiles);
    if (c->n_tokens <= FOLDED_QUAD)
        FOLDED_SWITCH(c->rows.kind, folded_multiply_few, 1, c)
    else
        FOLDED_SWITCH(c->rows.kind, folded_multiply_few, 2, c)
    MF_TILES_CLOSE(c->tiles);
}

static void folded_by_many(const mf_matrix *w, folded_call *c)
{
    const uint32_t n_tiles = (c->n_tokens + c->width - 1) / c->width;
    const uint32_t together = folded_tiles_together(w, n_tiles);
    unsigned char *free = (unsigned char *)c->s + mf_round_up(sizeof *c->s, 64);
    c->acc = (float *)(void *)free;
    c->laid = (folded_tokens *)(void *)(c->acc + (size_t)together * MF_TILE_ROWS * MF_TILE_ROWS);
    for (uint32_t i = 0; i < 8; i++) /* sums; weights; digits */
        mf_tile_shape(c->tiles, i, MF_TILE_ROWS, i == 6 ? MF_TILE_ROW_BYTES : 4 * c->width);
    memset(c->s->sums, 0, sizeof c->s->sums); /* of tokens that a tile does not have */
    MF_TILES_OPEN(c->tiles);
    for (c->tile0 = 0; c->tile0 < n_tiles; c->tile0 += c->n_tiles) {
        c->n_tiles = n_tiles - c->tile0 < together ? n_tiles - c->tile0 : together;
        for (uint32_t i = 0; i < c->n_tiles; i++)
            folded_lay_out(c, c->tile0 + i, c->laid + (size_t)i * c->n_spans);
        FOLDED_SWITCH(c->rows.kind, folded_multiply_many, c)
    }
    MF_TILES_CLOSE(c->tiles);
}

/* mf_fixed_kernels.matmul */
static void folded_multiply(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                            uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    mf_tiles tiles = {0};
    folded_call c = {.rows = mf_blocks_rows_of(w),
                     .row0 = row0,
                     .row1 = row1,
                     .n_spans = mf_blocks_spans(w),
                     .n_tokens = n_tokens,
                     .tokens = tokens,
                     .token_bytes = mf_folded_token_bytes(w),
                     .y = y,
                     .y_stride = y_stride,
                     .s = scratch,
                     .tiles = &tiles,
                     .width = mf_tile_tokens(n_tokens)};
    if (n_tokens == 1)
        FOLDED_SWITCH(c.rows.kind, folded_multiply_lanes, 1, &c)
    else if (n_tokens <= FOLDED_BY_LANES)
        FOLDED_SWITCH(c.rows.kind, folded_multiply_lanes, 2, &c)
    else if (n_tokens <= FOLDED_FEW)
        folded_by_few(&c);
    else
        folded_by_many(w, &c);
}

#endif

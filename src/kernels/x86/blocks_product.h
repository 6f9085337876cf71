/* SPDX-License-Identifier: MIT */
/*
 * The product of formats of blocks, written once over a tier's primitives, which the including file
 * defines first:
 *
 *   vec, TILE                 a vector of sums, and how many tokens' are held in registers
 *   GROUP                     tokens by which a panel is multiplied at a time
 *   zero_vec(), sum_four(kind, v, out)   what the lanes of four rows' sums come to
 *   sum_panel(kind, v, apart, factor, out)   the same of PANEL vectors so far apart, times factor
 *   span_tables, tables_of(kind, rows)   what unpacking needs beside the bytes
 *   factor_of(kind)           what a row's sum is multiplied by, beside its scales
 *   FEW                       tokens at most, 4 or 1, by which a span is multiplied as it is stored
 *   few_of(kind)              and as how many, some at a time, are multiplied so
 *   add_span(kind, n, ...)    a span of four rows, as it is stored, by so few tokens
 *   unpacked_span, unpack_span(kind, ...)   a span of a row, ready for many tokens
 *   SET                       rows that are multiplied together by many tokens
 *   add_rows(kind, stored, w, x, acc)   SET rows' unpacked spans by a group's tokens
 *                             acc[r * GROUP + t]: row r and token t, zeros where x->begins;
 *                             meanwhile mf_blocks_fetch(x, ...) of all those rows
 *   turned_bytes(w, n)        what n tokens take, laid out once more for all rows
 *   turn_tokens(rows, x, out)   so, into out and x->turned
 *
 * One token, or few: bound by memory. Rows go four together, long ones one from each quarter of the
 * range, each a stream of its own that the hardware prefetcher can follow, others four neighbours.
 * More: a span of a panel of rows is unpacked once for all tokens of a group, so that all of it
 * stays in the nearest cache.
 */
#ifndef MF_KERNELS_BLOCKS_PRODUCT_H
#define MF_KERNELS_BLOCKS_PRODUCT_H

#include "kernels/x86/blocks_token.h"
#include "kernels/x86/fetch.h"

enum {
    AHEAD_BYTES = 1024,       /* how far ahead of a long row's stream is prefetched */
    SHORT_ROW_BYTES = 256,    /* rows up to this are short */
    SHORT_AHEAD_BYTES = 3072, /* how far ahead of the stream of short rows is prefetched */
    PANEL = 16                /* rows */
};

/* A panel's rows by a group of tokens. */
typedef struct panel {
    unpacked_span spans[PANEL];
    vec acc[PANEL][GROUP];
} panel;

/* -------------------------------------------------------------------------------- few tokens -- */

/* Four rows, which may be the same one, by n (a constant) tokens. */
MF_INLINE void multiply_four(mf_weight_kind kind, uint32_t n, const span_tables *t,
                             const mf_blocks_rows *w, const uint32_t rows[4], size_t ahead,
                             const unsigned char *tokens, size_t token_bytes, float out[FEW][4])
{
    const unsigned char *v[4], *s[4] = {NULL, NULL, NULL, NULL};
    vec acc[FEW][4];
    MF_UNROLL(4)
    for (uint32_t r = 0; r < 4; r++) {
        v[r] = w->values + rows[r] * w->row_bytes;
        if (w->scales != NULL)
            s[r] = w->scales + rows[r] * w->scale_row_bytes;
        MF_UNROLL(4)
        for (uint32_t i = 0; i < n; i++)
            acc[i][r] = zero_vec();
    }
    for (uint32_t i = 0; i < w->n_spans; i++, tokens += sizeof(mf_blocks_span)) {
        MF_UNROLL(4)
        for (uint32_t r = 0; r < 4; r++)
            for (uint32_t at = 0; at < mf_blocks_span_bytes(kind); at += 64)
                mf_fetch(v[r] + ahead + at);
        add_span(kind, n, t, w, v, s, tokens, token_bytes, acc);
        MF_UNROLL(4)
        for (uint32_t r = 0; r < 4; r++) {
            v[r] += w->span_bytes;
            s[r] += w->scale_span_bytes;
        }
    }
    if (w->last_bytes > 0) {
        mf_blocks_last last[4];
        for (uint32_t r = 0; r < 4; r++) {
            mf_blocks_copy_last(w, rows[r], &last[r]);
            v[r] = last[r].values;
            s[r] = last[r].scales;
        }
        add_span(kind, n, t, w, v, s, tokens, token_bytes, acc);
    }
    MF_UNROLL(4)
    for (uint32_t i = 0; i < n; i++) {
        sum_four(kind, acc[i], out[i]);
        for (uint32_t r = 0; r < 4; r++)
            out[i][r] *= w->factor;
    }
}

/* Few tokens, and the outputs of row0 and its neighbours, y_stride from one token to the next. */
typedef struct few_tokens {
    const unsigned char *tokens;
    size_t token_bytes;
    uint32_t n;
    float *y;
    size_t y_stride;
} few_tokens;

/* Four rows, of which n_rows are stored, the r-th at x->y + at[r], by tokens from the first-th on.
 * Returns how many of them: most (a constant) or those that are left. */
MF_INLINE uint32_t multiply_set(mf_weight_kind kind, uint32_t most, const span_tables *t,
                                const mf_blocks_rows *w, const uint32_t rows[4], uint32_t n_rows,
                                size_t ahead, const few_tokens *x, uint32_t first,
                                const uint32_t at[4])
{
    const unsigned char *tokens = x->tokens + first * x->token_bytes;
    const uint32_t n = x->n - first < most ? x->n - first : most;
    float out[FEW][4];
    if (most == 1 || n == 1)
        multiply_four(kind, 1, t, w, rows, ahead, tokens, x->token_bytes, out);
    else if (n == 2)
        multiply_four(kind, FEW < 2 ? 1 : 2, t, w, rows, ahead, tokens, x->token_bytes, out);
    else if (n == 3)
        multiply_four(kind, FEW < 3 ? 1 : 3, t, w, rows, ahead, tokens, x->token_bytes, out);
    else
        multiply_four(kind, FEW, t, w, rows, ahead, tokens, x->token_bytes, out);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t r = 0; r < n_rows; r++)
            x->y[(first + i) * x->y_stride + at[r]] = out[i][r];
    return n;
}

/* Rows row0 .. row1 - 1 by few tokens, most (1 or FEW) at a time. */
MF_INLINE void multiply_few(mf_weight_kind kind, uint32_t most, const mf_blocks_rows *w,
                            uint32_t row0, uint32_t row1, const few_tokens *x)
{
    const span_tables t = tables_of(kind, w);
    const bool is_long = w->row_bytes > SHORT_ROW_BYTES;
    const uint32_t n_sets = (row1 - row0) / 4, step = is_long ? n_sets : 1;
    for (uint32_t i = 0; row0 + 4 * i < row1; i++) {
        const bool is_last = i == n_sets; /* and of fewer rows, which are repeated */
        const uint32_t left = row1 - row0 - 4 * i, n_rows = is_last ? left : 4;
        const uint32_t apart = is_last ? 1 : step;
        const uint32_t first = is_long && !is_last ? i : 4 * i;
        const size_t ahead = is_long && !is_last ? mf_fetch_ahead(AHEAD_BYTES) : SHORT_AHEAD_BYTES;
        uint32_t rows[4], at[4];
        for (uint32_t r = 0; r < 4; r++) {
            at[r] = first + (r < n_rows ? r : n_rows - 1) * apart;
            rows[r] = row0 + at[r];
        }
        for (uint32_t done = 0; done < (most == 1 ? 1 : x->n);)
            done += multiply_set(kind, most, &t, w, rows, n_rows, ahead, x, done, at);
    }
}

/* Several tokens by spans as they are stored. Apart from what has one token: in one function gcc
 * 12 keeps the tables of neither in registers. */
__attribute__((noinline)) static void multiply_some(const mf_blocks_rows *w, uint32_t row0,
                                                    uint32_t row1, const few_tokens *x)
{
    switch (w->kind) { /* kinds whose few_of is more than one in any tier */
    case MF_WEIGHT_GGUF_Q4_0:
        multiply_few(MF_WEIGHT_GGUF_Q4_0, FEW, w, row0, row1, x);
        break;
    case MF_WEIGHT_GGUF_Q4_K:
        multiply_few(MF_WEIGHT_GGUF_Q4_K, FEW, w, row0, row1, x);
        break;
    default:
        multiply_few(MF_WEIGHT_GGUF_Q5_K, FEW, w, row0, row1, x);
        break;
    }
}

/* ------------------------------------------------------------------------------- more tokens -- */

/* Span i of rows row .. row + n_rows - 1; i past the whole ones: the last. */
MF_INLINE void unpack_rows(mf_weight_kind kind, const span_tables *t, const mf_blocks_rows *w,
                           uint32_t row, uint32_t n_rows, uint32_t i, unpacked_span *out)
{
    for (uint32_t r = 0; r < n_rows; r++) {
        const unsigned char *v = w->values + (row + r) * w->row_bytes + (size_t)i * w->span_bytes;
        const unsigned char *s = NULL;
        mf_blocks_last last;
        if (w->scales != NULL)
            s = w->scales + (row + r) * w->scale_row_bytes + (size_t)i * w->scale_span_bytes;
        if (i == w->n_spans) {
            mf_blocks_copy_last(w, row + r, &last);
            v = last.values;
            s = last.scales;
        }
        unpack_span(kind, t, w, v, s, &out[r]);
    }
}

MF_INLINE void store_panel(mf_weight_kind kind, const panel *p, float factor, uint32_t n_rows,
                           uint32_t n_tokens, float *y, size_t y_stride)
{
    for (uint32_t t = 0; t < n_tokens; t++, y += y_stride) {
        float out[PANEL];
        sum_panel(kind, &p->acc[0][t], GROUP, factor, n_rows == PANEL ? y : out);
        if (n_rows < PANEL)
            memcpy(y, out, n_rows * sizeof *y);
    }
}

/* Of so many tokens those of the next group, of about equal size and of whole tiles. */
static uint32_t group_of(uint32_t n_tokens)
{
    const uint32_t n_groups = (n_tokens + GROUP - 1) / GROUP;
    const uint32_t n = ((n_tokens + n_groups - 1) / n_groups + TILE - 1) / TILE * TILE;
    return n < n_tokens ? n : n_tokens;
}

/* Rows of a panel by a group of tokens. */
MF_INLINE void multiply_group(mf_weight_kind kind, const span_tables *t, const mf_blocks_rows *w,
                              uint32_t row, uint32_t n_rows, group_tokens x, panel *p)
{
    const uint32_t n_spans = w->n_spans + (w->last_bytes > 0 ? 1 : 0);
    x.next_row_bytes = w->row_bytes;
    x.next_span_bytes = w->span_bytes;
    for (uint32_t i = 0; i < n_spans; i++) {
        /* the rows' next span, or the first one of the next panel */
        const size_t next = i + 1 < n_spans ? row * w->row_bytes + (i + 1) * (size_t)w->span_bytes
                                            : (row + PANEL) * w->row_bytes;
        unpack_rows(kind, t, w, row, n_rows, i, p->spans);
        x.begins = i == 0;
        for (uint32_t r = 0; r < n_rows; r += SET) {
            x.next = w->values + next + r * w->row_bytes;
            add_rows(kind, w->kind, p->spans + r, &x, p->acc[r]);
        }
        x.tokens += sizeof(mf_blocks_span);
        x.turned += x.turned_span_bytes;
    }
}

MF_INLINE void multiply_kind(mf_weight_kind kind, const mf_blocks_rows *w, uint32_t row0,
                             uint32_t row1, const unsigned char *tokens, size_t token_bytes,
                             uint32_t n_tokens, float *y, size_t y_stride, panel *p)
{
    const few_tokens few = {tokens, token_bytes, n_tokens, y, y_stride};
    if (n_tokens == 1) {
        multiply_few(kind, 1, w, row0, row1, &few);
        return;
    }
    if (FEW > 1 && n_tokens <= few_of(kind)) {
        multiply_some(w, row0, row1, &few);
        return;
    }
    const span_tables t = tables_of(kind, w);
    for (uint32_t first = 0, n; first < n_tokens; first += n) {
        n = group_of(n_tokens - first);
        group_tokens x = {
            .tokens = tokens + first * token_bytes, .token_bytes = token_bytes, .n = n};
        turn_tokens(w, &x, p + 1);
        for (uint32_t row = row0; row < row1; row += PANEL) {
            const uint32_t n_rows = row1 - row < PANEL ? row1 - row : PANEL;
            multiply_group(kind, &t, w, row, n_rows, x, p);
            store_panel(kind, p, w->factor, n_rows, n, y + first * y_stride + (row - row0),
                        y_stride);
        }
    }
}

static size_t scratch_bytes(const mf_matrix *w, uint32_t n_tokens)
{
    return n_tokens > 1 ? sizeof(panel) + turned_bytes(w, n_tokens) : 0;
}

#define MULTIPLY(kind) \
    multiply_kind(kind, &rows, row0, row1, tokens, token_bytes, n_tokens, y, y_stride, scratch)

/* A kernel of its own for each kind. */
static void multiply(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                     uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    mf_blocks_rows rows = mf_blocks_rows_of(w);
    rows.factor *= factor_of(w->shape.kind);
    const size_t token_bytes = mf_blocks_token_bytes(w);
    switch (w->shape.kind) {
    case MF_WEIGHT_MXFP4:
        MULTIPLY(MF_WEIGHT_MXFP4);
        break;
    case MF_WEIGHT_NVFP4: /* the factor apart, one */
    case MF_WEIGHT_NVFP4_DIVIDED:
    case MF_WEIGHT_NVFP4_PLAIN:
        MULTIPLY(MF_WEIGHT_NVFP4);
        break;
    case MF_WEIGHT_INT4:
        MULTIPLY(MF_WEIGHT_INT4);
        break;
    case MF_WEIGHT_INT8:
        MULTIPLY(MF_WEIGHT_INT8);
        break;
    case MF_WEIGHT_GGUF_Q4_0:
        MULTIPLY(MF_WEIGHT_GGUF_Q4_0);
        break;
    case MF_WEIGHT_GGUF_Q4_1:
        MULTIPLY(MF_WEIGHT_GGUF_Q4_1);
        break;
    case MF_WEIGHT_GGUF_Q5_0:
        MULTIPLY(MF_WEIGHT_GGUF_Q5_0);
        break;
    case MF_WEIGHT_GGUF_Q5_1:
        MULTIPLY(MF_WEIGHT_GGUF_Q5_1);
        break;
    case MF_WEIGHT_GGUF_Q8_0:
        MULTIPLY(MF_WEIGHT_GGUF_Q8_0);
        break;
    case MF_WEIGHT_GGUF_Q2_K:
        MULTIPLY(MF_WEIGHT_GGUF_Q2_K);
        break;
    case MF_WEIGHT_GGUF_Q3_K:
        MULTIPLY(MF_WEIGHT_GGUF_Q3_K);
        break;
    case MF_WEIGHT_GGUF_Q4_K:
        MULTIPLY(MF_WEIGHT_GGUF_Q4_K);
        break;
    case MF_WEIGHT_GGUF_Q5_K:
        MULTIPLY(MF_WEIGHT_GGUF_Q5_K);
        break;
    case MF_WEIGHT_GGUF_Q6_K:
        MULTIPLY(MF_WEIGHT_GGUF_Q6_K);
        break;
    case MF_WEIGHT_GGUF_IQ4_NL:
        MULTIPLY(MF_WEIGHT_GGUF_IQ4_NL);
        break;
    case MF_WEIGHT_GGUF_IQ4_XS:
        MULTIPLY(MF_WEIGHT_GGUF_IQ4_XS);
        break;
    case MF_WEIGHT_GGUF_MXFP4:
        MULTIPLY(MF_WEIGHT_GGUF_MXFP4);
        break;
    case MF_WEIGHT_GGUF_NVFP4:
        MULTIPLY(MF_WEIGHT_GGUF_NVFP4);
        break;
    default:
#if defined(__x86_64__)
        if (mf_blocks_has_grid(w->shape.kind)) /* one for all of those */
            MULTIPLY(MF_BLOCKS_GRID);
#endif
        break;
    }
}

#endif

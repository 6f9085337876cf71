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

typedef mf_blocks_span token_span;

#include "kernels/x86/blocks_few.h"

enum { PANEL = 16 /* rows */ };

/* A panel's rows by a group of tokens. */
typedef struct panel {
    unpacked_span spans[PANEL];
    vec acc[PANEL][GROUP];
} panel;

/* -------------------------------------------------------------------------------- few tokens -- */

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

/* SPDX-License-Identifier: MIT */
/*
 * Rows in formats of blocks by few tokens, written once over a tier's primitives, which the
 * including file defines first:
 *
 *   vec, zero_vec()           a vector of sums
 *   sum_four(kind, v, out)    what the sums of four rows come to
 *   span_tables, tables_of(kind, rows)   what unpacking needs beside the bytes
 *   token_span                a span of a prepared token
 *   FEW                       tokens at most, 4 or 1, by which a span is multiplied as it is stored
 *   add_span(kind, n, ...)    a span of four rows, as it is stored, by so few tokens
 *
 * Bound by memory. Rows go four together, long ones one from each quarter of the range, each a
 * stream of its own that the hardware prefetcher can follow, others four neighbours.
 */
#ifndef MF_KERNELS_BLOCKS_FEW_H
#define MF_KERNELS_BLOCKS_FEW_H

#include "kernels/x86/blocks_token.h"
#include "kernels/x86/fetch.h"

enum {
    AHEAD_BYTES = 1024,      /* how far ahead of a long row's stream is prefetched */
    SHORT_ROW_BYTES = 256,   /* rows up to this are short */
    SHORT_AHEAD_BYTES = 3072 /* how far ahead of the stream of short rows is prefetched */
};

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
    for (uint32_t i = 0; i < w->n_spans; i++, tokens += sizeof(token_span)) {
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

#endif

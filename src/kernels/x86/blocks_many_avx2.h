/* SPDX-License-Identifier: MIT */
/*
 * Unpacked spans of formats of blocks by many tokens, for blocks_span_avx2.h. Eight tokens
 * at a time become the lanes: their digits are turned once for all rows, a vector holds four
 * columns of each token, and four weights of a row are in all of its lanes. So products of as many
 * columns as 16 bits allow are added before they are widened, and nothing is added across lanes.
 * What is left of the tokens is multiplied as one is.
 */
#ifndef MF_KERNELS_BLOCKS_MANY_AVX2_H
#define MF_KERNELS_BLOCKS_MANY_AVX2_H

#include "kernels/x86/blocks_wide_avx2.h"

/* Of eight tokens, turned. */
static size_t turned_span_bytes(mf_weight_kind kind)
{
    return WIDE_APART && mf_blocks_is_wide(kind) ? sizeof(turned_words) : sizeof(turned_span);
}

/* Bytes that a group of so many tokens takes, turned. */
static size_t turned_bytes(const mf_matrix *w, uint32_t n_tokens)
{
    const uint32_t n = n_tokens < GROUP ? n_tokens : GROUP;
    if (n < LEAST)
        return 0;
    return (size_t)(n + EIGHT - 1) / EIGHT * mf_blocks_spans(w) * turned_span_bytes(w->shape.kind);
}

/* How many eights a group has, of which the last may be short. */
static uint32_t n_eights(uint32_t n_tokens)
{
    return n_tokens / EIGHT + (n_tokens % EIGHT >= LEAST ? 1 : 0);
}

static void turn_span(const unsigned char *tokens, size_t token_bytes, uint32_t n, turned_span *out)
{
    for (uint32_t i = 0; i < VECTORS; i++)
        turn_vector(tokens, token_bytes, n, i, out->v[i]);
}

/* A group's tokens, all spans of each eight. */
static void turn_tokens(const mf_blocks_rows *w, group_tokens *x, void *turned)
{
    const uint32_t n_spans = w->n_spans + (w->last_bytes > 0 ? 1 : 0);
    unsigned char *out = turned;
    x->turned = turned;
    x->turned_span_bytes = turned_span_bytes(w->kind);
    x->turned_bytes = n_spans * x->turned_span_bytes;
    for (uint32_t i = 0; i < n_eights(x->n); i++) {
        const uint32_t first = i * EIGHT, n = x->n - first < EIGHT ? x->n - first : EIGHT;
        for (uint32_t s = 0; s < n_spans; s++, out += x->turned_span_bytes) {
            const unsigned char *from =
                x->tokens + first * x->token_bytes + s * sizeof(mf_blocks_span);
            if (WIDE_APART && mf_blocks_is_wide(w->kind))
                turn_wide_span(from, x->token_bytes, n, (void *)out);
            else
                turn_span(from, x->token_bytes, n, (void *)out);
        }
    }
}

/* A row's span by eight tokens: the chains of scales of 32 columns, or of 16. */
MF_INLINE void sum_chains(const blocks_form *f, const unpacked_span *w, const turned_span *x,
                          vec out[4])
{
    const uint32_t n_chains = f->has_sixteens ? 4 : 2, n = f->has_sixteens ? 2 : 4;
    MF_UNROLL(4)
    for (uint32_t c = 0; c < n_chains; c++) {
        /* the columns' first lane, and the one of their sums */
        const uint32_t l = c * n, at = f->has_sixteens ? c / 2 * 4 + c % 2 : l;
        vec sum = _mm256_setzero_ps();
        MF_ROLLED
        for (uint32_t b = 0; b < PAIRS; b++) {
            const uint32_t block = f->has_sixteens ? 2 * b + c / 2 * 8 + c % 2 : b + 4 * c;
            const __m256 columns =
                floats_of(f, sum_columns(f, n, w, x, b, l),
                          (digit_sums){x->v[SUMS_AT + b][at], x->v[TOTALS_AT + b][at]});
            sum = _mm256_fmadd_ps(columns, _mm256_set1_ps(w->scales.scale[block]), sum);
            if (f->has_min)
                sum = _mm256_fmadd_ps(_mm256_castsi256_ps(x->v[TOTALS_AT + b][at]),
                                      _mm256_set1_ps(w->scales.min[block]), sum);
        }
        out[c] = sum;
    }
}

/* Four rows' spans by n of eight tokens, which x are as they were: their units. */
MF_INLINE void add_eight(const blocks_form *f, const unpacked_span *w, const wide_words *words,
                         const void *turned, const unsigned char *tokens, size_t token_bytes,
                         uint32_t n, vec *acc)
{
    vec chains[4][4];
    for (uint32_t r = 0; r < 4 && f->has_units; r += WIDE_ROWS)
        sum_wide_chains(f, &w[r], &words[r], turned, &chains[r]);
    for (uint32_t r = 0; r < 4 && !f->has_units; r++)
        sum_chains(f, &w[r], turned, chains[r]);
    MF_UNROLL(2)
    for (uint32_t i = 0; i < accumulators(f); i++) {
        __m256i rows[EIGHT], sums[EIGHT];
        MF_UNROLL(8)
        for (uint32_t l = 0; l < EIGHT; l++)
            rows[l] =
                _mm256_castps_si256(f->by_sixteens ? chains[2 * i + l / 2 % 2][l / 4 * 2 + l % 2]
                                                   : chains[l % 4][l / 4]);
        mf_transpose_avx2(rows, sums);
        for (uint32_t t = 0; t < n; t++)
            add_sum(f, _mm256_castsi256_ps(sums[t]), (const void *)(tokens + t * token_bytes),
                    acc + i * (size_t)GROUP + t);
    }
}

MF_INLINE void add_tokens(const blocks_form *f, const unpacked_span *w, const group_tokens *x,
                          vec *acc)
{
    const span_scales *const rows[4] = {&w[0].scales, &w[1].scales, &w[2].scales, &w[3].scales};
    lane_values scales, minima;
    wide_words words[SET];
    const uint32_t n_turned = n_eights(x->n);
    uint32_t t = 0;
    for (uint32_t r = 0; r < SET && f->has_units && n_turned > 0; r++)
        widen_row(&w[r], &words[r]);
    for (uint32_t i = 0; i < n_turned; i++, t += EIGHT) {
        const uint32_t n = x->n - t < EIGHT ? x->n - t : EIGHT;
        add_eight(f, w, words, x->turned + i * x->turned_bytes, x->tokens + t * x->token_bytes,
                  x->token_bytes, n, acc + t);
    }
    if (t >= x->n)
        return;
    scale_lanes(f, rows, &scales, &minima);
    for (; t < x->n; t++)
        add_unpacked(f, w, &scales, &minima, (const void *)(x->tokens + t * x->token_bytes),
                     acc + t, GROUP);
}

/* Functions of their own, which kinds share: within the kernel of each, gcc 12 does not keep the
 * sums in registers. */
#define ADD_TOKENS(name, sixteens, min, excessive, wide, width)                     \
    __attribute__((noinline)) static void name(int excess, const unpacked_span *w,  \
                                               const group_tokens *x, vec *acc)     \
    {                                                                               \
        const blocks_form f = {.has_sixteens = (sixteens),                          \
                               .has_min = (min),                                    \
                               .has_excess = (excessive),                           \
                               .by_sixteens = (sixteens) || (WIDE_APART && (wide)), \
                               .has_units = WIDE_APART && (wide),                   \
                               .has_high = !WIDE_APART && (wide),                   \
                               .excess = (excess),                                  \
                               .bits = (width)};                                    \
        add_tokens(&f, w, x, acc);                                                  \
    }
ADD_TOKENS(add_fours, false, false, true, false, 4)
ADD_TOKENS(add_fours_with_min, false, true, false, false, 4)
ADD_TOKENS(add_fives, false, false, true, false, 5)
ADD_TOKENS(add_fives_with_min, false, true, true, false, 5)
ADD_TOKENS(add_sixteens, true, false, true, false, 5)
ADD_TOKENS(add_sixteens_with_min, true, true, false, false, 4)
ADD_TOKENS(add_sixteens_of_six, true, false, true, false, 6)
ADD_TOKENS(add_wide, false, false, true, true, 8)
ADD_TOKENS(add_wide_sixteens, true, false, true, true, 8)

/* Before SET rows are added. */
MF_INLINE void begin_rows(const group_tokens *x, vec *acc)
{
    mf_blocks_fetch(x, 0, SET);
    for (uint32_t r = 0; r < SET && x->begins; r++)
        for (uint32_t t = 0; t < x->n; t++)
            acc[r * GROUP + t] = _mm256_setzero_ps();
}

/* Of formats that are not wide. */
MF_INLINE void add_narrow_rows(mf_weight_kind kind, const unpacked_span *w, const group_tokens *x,
                               vec *acc)
{
    const blocks_form f = form_of(kind);
    if (f.has_sixteens && f.has_min)
        add_sixteens_with_min(f.excess, w, x, acc);
    else if (f.has_sixteens)
        (f.bits == 6 ? add_sixteens_of_six : add_sixteens)(f.excess, w, x, acc);
    else if (f.bits == 4)
        (f.has_min ? add_fours_with_min : add_fours)(f.excess, w, x, acc);
    else
        (f.has_min ? add_fives_with_min : add_fives)(f.excess, w, x, acc);
}

#endif

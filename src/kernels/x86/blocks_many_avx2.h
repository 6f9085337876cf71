/* SPDX-License-Identifier: MIT */
/*
 * Unpacked spans of weights of up to 6 bits by many tokens, for blocks_avx2.c, AVX2. Eight tokens
 * at a time become the lanes: their digits are turned once for all rows, a vector holds four
 * columns of each token, and four weights of a row are in all of its lanes. So products of as many
 * columns as 16 bits allow are added before they are widened, and nothing is added across lanes.
 * What is left of the tokens is multiplied as one is.
 */
#ifndef MF_KERNELS_BLOCKS_MANY_AVX2_H
#define MF_KERNELS_BLOCKS_MANY_AVX2_H

#include "kernels/x86/blocks_narrow_avx2.h"

enum {
    EIGHT = 8,                                            /* tokens */
    LEAST = 6,                                            /* of them for which it pays */
    VECTORS = sizeof((mf_blocks_span *)NULL)->pairs / 32, /* of a token's span */
    SUMS_AT = offsetof(mf_blocks_span, pairs.sums) / 32,  /* which of them */
    TOTALS_AT = offsetof(mf_blocks_span, pairs.totals) / 32
};

/* A span of eight tokens: a token's lanes are here a lane each. */
typedef struct turned_span {
    __m256i v[VECTORS][EIGHT];
} turned_span;

/* Bytes that a group of so many tokens takes, turned. */
static size_t turned_bytes(const mf_blocks_rows *w, uint32_t n_tokens)
{
    const uint32_t n_spans = w->n_spans + (w->last_bytes > 0 ? 1 : 0);
    const uint32_t n = n_tokens < GROUP ? n_tokens : GROUP;
    return mf_blocks_is_wide(w->kind) || n < LEAST
               ? 0
               : (size_t)(n + EIGHT - 1) / EIGHT * n_spans * sizeof(turned_span);
}

/* How many eights a group has, of which the last may be short. */
static uint32_t n_eights(uint32_t n_tokens)
{
    return n_tokens / EIGHT + (n_tokens % EIGHT >= LEAST ? 1 : 0);
}

static void turn_span(const unsigned char *tokens, size_t token_bytes, uint32_t n, turned_span *out)
{
    for (uint32_t i = 0; i < VECTORS; i++) {
        __m256i rows[EIGHT];
        MF_UNROLL(8)
        for (uint32_t t = 0; t < EIGHT; t++)
            rows[t] = t < n ? _mm256_loadu_si256(
                                  (const __m256i *)(const void *)(tokens + t * token_bytes) + i)
                            : _mm256_setzero_si256();
        mf_transpose_avx2(rows, out->v[i]);
    }
}

/* A group's tokens, all spans of each eight. */
static void turn_tokens(const mf_blocks_rows *w, group_tokens *x, void *turned)
{
    const uint32_t n_spans = w->n_spans + (w->last_bytes > 0 ? 1 : 0);
    turned_span *out = turned;
    x->turned = turned;
    x->turned_bytes = n_spans * sizeof *out;
    x->turned_span_bytes = sizeof *out;
    if (mf_blocks_is_wide(w->kind))
        return;
    for (uint32_t i = 0; i < n_eights(x->n); i++) {
        const uint32_t first = i * EIGHT, n = x->n - first < EIGHT ? x->n - first : EIGHT;
        for (uint32_t s = 0; s < n_spans; s++)
            turn_span(x->tokens + first * x->token_bytes + s * sizeof(mf_blocks_span),
                      x->token_bytes, n, out++);
    }
}

/* Four weights of a row, those of lane l of a half, in all lanes. */
MF_INLINE __m256i four_weights(const unpacked_span *w, uint32_t b, uint32_t half, uint32_t l)
{
    int32_t four;
    memcpy(&four, (const unsigned char *)&w->weights[b].half[half] + 4 * (size_t)l, sizeof four);
    return _mm256_set1_epi32(four);
}

/* Words by digit, in lanes of 32 bits. */
MF_INLINE __m256i join_digits(const __m256i words[DIGITS])
{
    const __m256i low =
        _mm256_add_epi32(add_pairs(words[0], 1), add_pairs(words[1], 1 << NARROW_BITS));
    return _mm256_add_epi32(low,
                            _mm256_slli_epi32(add_pairs(words[2], 1 << NARROW_BITS), NARROW_BITS));
}

/* The products of a row's columns in the n lanes from l on, of pair b, by eight tokens; 16 bits
 * have room for those of `together` times four columns. */
MF_INLINE __m256i sum_columns(uint32_t n, uint32_t together, const unpacked_span *w,
                              const turned_span *x, uint32_t b, uint32_t l)
{
    __m256i sum = _mm256_setzero_si256(), words[DIGITS];
    MF_UNROLL(8)
    for (uint32_t i = 0; i < 2 * n; i++) {
        const uint32_t half = i % 2, lane = l + i / 2;
        const __m256i weights = four_weights(w, b, half, lane);
        MF_UNROLL(3)
        for (uint32_t d = 0; d < DIGITS; d++) {
            const __m256i products =
                _mm256_maddubs_epi16(weights, x->v[(2 * b + half) * DIGITS + d][lane]);
            words[d] = i % together == 0 ? products : mf_add_words_avx2(words[d], products);
        }
        if (i % together == together - 1)
            sum =
                i + 1 == together ? join_digits(words) : _mm256_add_epi32(sum, join_digits(words));
    }
    return sum;
}

/* A row's span by eight tokens: the chains of scales of 32 columns, or of 16. */
MF_INLINE void sum_chains(const narrow_form *f, const unpacked_span *w, const turned_span *x,
                          vec out[4])
{
    const uint32_t n_chains = f->has_sixteens ? 4 : 2, n = f->has_sixteens ? 2 : 4;
    const uint32_t together = f->bits <= 4 ? 8 : f->bits == 5 ? 4 : 2;
    MF_UNROLL(4)
    for (uint32_t c = 0; c < n_chains; c++) {
        /* the columns' first lane, and the one of their sums */
        const uint32_t l = c * n, at = f->has_sixteens ? c / 2 * 4 + c % 2 : l;
        vec sum = _mm256_setzero_ps();
        MF_ROLLED
        for (uint32_t b = 0; b < PAIRS; b++) {
            const uint32_t block = f->has_sixteens ? 2 * b + c / 2 * 8 + c % 2 : b + 4 * c;
            __m256i columns = sum_columns(n, together < 2 * n ? together : 2 * n, w, x, b, l);
            if (f->has_excess)
                columns =
                    _mm256_sub_epi32(columns, _mm256_slli_epi32(x->v[SUMS_AT + b][at], f->excess));
            sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(columns),
                                  _mm256_set1_ps(w->scales.scale[block]), sum);
            if (f->has_min)
                sum = _mm256_fmadd_ps(_mm256_castsi256_ps(x->v[TOTALS_AT + b][at]),
                                      _mm256_set1_ps(w->scales.min[block]), sum);
        }
        out[c] = sum;
    }
}

/* Four rows' spans by n of eight tokens, which x are as they were: their units. */
MF_INLINE void add_eight(const narrow_form *f, const unpacked_span *w, const turned_span *turned,
                         const unsigned char *tokens, size_t token_bytes, uint32_t n, vec *acc)
{
    vec chains[4][4];
    for (uint32_t r = 0; r < 4; r++)
        sum_chains(f, &w[r], turned, chains[r]);
    MF_UNROLL(2)
    for (uint32_t i = 0; i < accumulators(f); i++) {
        __m256i rows[EIGHT], sums[EIGHT];
        MF_UNROLL(8)
        for (uint32_t l = 0; l < EIGHT; l++)
            rows[l] =
                _mm256_castps_si256(f->has_sixteens ? chains[2 * i + l / 2 % 2][l / 4 * 2 + l % 2]
                                                    : chains[l % 4][l / 4]);
        mf_transpose_avx2(rows, sums);
        for (uint32_t t = 0; t < n; t++) {
            const mf_blocks_span *x = (const void *)(tokens + t * token_bytes);
            vec *to = acc + i * (size_t)GROUP + t;
            *to = _mm256_fmadd_ps(_mm256_castsi256_ps(sums[t]), _mm256_set1_ps(x->units[0]), *to);
        }
    }
}

MF_INLINE void add_tokens(const narrow_form *f, const unpacked_span *w, const group_tokens *x,
                          vec *acc)
{
    const span_scales *const rows[4] = {&w[0].scales, &w[1].scales, &w[2].scales, &w[3].scales};
    lane_values scales, minima;
    uint32_t t = 0;
    for (uint32_t i = 0; i < n_eights(x->n); i++, t += EIGHT) {
        const uint32_t n = x->n - t < EIGHT ? x->n - t : EIGHT;
        add_eight(f, w, (const void *)(x->turned + i * x->turned_bytes),
                  x->tokens + t * x->token_bytes, x->token_bytes, n, acc + t);
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
#define ADD_TOKENS(name, sixteens, min, excessive, width)                          \
    __attribute__((noinline)) static void name(int excess, const unpacked_span *w, \
                                               const group_tokens *x, vec *acc)    \
    {                                                                              \
        const narrow_form f = {sixteens, min, excessive, excess, width};           \
        add_tokens(&f, w, x, acc);                                                 \
    }
ADD_TOKENS(add_fours, false, false, true, 4)
ADD_TOKENS(add_fours_with_min, false, true, false, 4)
ADD_TOKENS(add_fives, false, false, true, 5)
ADD_TOKENS(add_fives_with_min, false, true, true, 5)
ADD_TOKENS(add_sixteens, true, false, true, 5)
ADD_TOKENS(add_sixteens_with_min, true, true, false, 4)
ADD_TOKENS(add_sixteens_of_six, true, false, true, 6)

MF_INLINE void add_narrow_rows(mf_weight_kind kind, const unpacked_span *w, const group_tokens *x,
                               vec *acc)
{
    const narrow_form f = form_of(kind);
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

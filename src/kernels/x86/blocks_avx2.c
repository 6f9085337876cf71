/* SPDX-License-Identifier: MIT */
/*
 * Formats of blocks in fixed point, AVX2. Weights of up to 6 bits: one instruction multiplies
 * unsigned bytes by digits of 8 bits and adds the products in pairs, of which 16 bits hold even two
 * (4 * 63 * 128); so activations have 23 bits, with a unit for 256 columns. Wide ones: words, as
 * 16 bits would hold but one such pair, by digits of 7 bits, which the one multiplier that many
 * processors have would then have to widen. Activations are two words of 21 bits together, with a
 * unit for 32 columns; of those 16 columns' products by weights of 128 and less fit 32 bits.
 */
#include "kernels/x86/blocks_avx2.h"

#include "kernels/x86/blocks_sizes_avx2.h"

enum { WIDE_APART = 1, WIDE_BITS = 7 };

/* Its highest digit is 63 at most, and 16 * 128 times it fits 32 bits. */
#define WIDE_LIMIT 1040000.0f

/* Products of a half's weights by a digit of 64 columns, added in pairs. */
MF_INLINE __m256i by_digit(const weights_64 *w, const mf_blocks_span *x, uint32_t b, uint32_t half,
                           uint32_t d)
{
    return _mm256_maddubs_epi16(w->half[half], digits_of(x, b, half, d));
}

/* Words, added in pairs, times what a digit counts. */
MF_INLINE __m256i add_pairs(__m256i words, short value)
{
    return _mm256_madd_epi16(words, _mm256_set1_epi16(value));
}

/* Words by digit, in lanes of 32 bits. */
MF_INLINE __m256i join_digits(const __m256i words[DIGITS])
{
    const __m256i low =
        _mm256_add_epi32(add_pairs(words[0], 1), add_pairs(words[1], 1 << DIGIT_BITS));
    return _mm256_add_epi32(low,
                            _mm256_slli_epi32(add_pairs(words[2], 1 << DIGIT_BITS), DIGIT_BITS));
}

/* Both halves by a digit. */
MF_INLINE __m256i halves_by_digit(const weights_64 *w, const mf_blocks_span *x, uint32_t b,
                                  uint32_t d)
{
    return _mm256_add_epi16(by_digit(w, x, b, 0, d), by_digit(w, x, b, 1, d));
}

/* Wide weights of 64 columns, even and odd bytes as words, by one of a token's two words. */
MF_INLINE __m256i by_word(const __m256i words[4], const mf_blocks_span *x, uint32_t b, uint32_t i)
{
    __m256i sum = _mm256_madd_epi16(words[0], words_of(x, b, 0, 0, i));
    MF_UNROLL(3)
    for (uint32_t j = 1; j < 4; j++)
        sum = add_word_products(sum, words[j], words_of(x, b, j / 2, j % 2, i));
    return sum;
}

MF_INLINE __m256i sum_wide_eights(const weights_64 *w, const mf_blocks_span *x, uint32_t b)
{
    const __m256i byte = _mm256_set1_epi16(255);
    const __m256i words[4] = {_mm256_and_si256(w->half[0], byte), _mm256_srli_epi16(w->half[0], 8),
                              _mm256_and_si256(w->half[1], byte), _mm256_srli_epi16(w->half[1], 8)};
    return _mm256_add_epi32(by_word(words, x, b, 0),
                            _mm256_slli_epi32(by_word(words, x, b, 1), WIDE_BITS));
}

/* A row's sums of each eight products. */
MF_INLINE digit_sums sum_eights(const blocks_form *f, const weights_64 *w, const mf_blocks_span *x,
                                uint32_t b)
{
    __m256i sum;
    if (f->has_units) {
        sum = sum_wide_eights(w, x, b);
    } else {
        const __m256i words[DIGITS] = {halves_by_digit(w, x, b, 0), halves_by_digit(w, x, b, 1),
                                       halves_by_digit(w, x, b, 2)};
        sum = join_digits(words);
    }
    return (digit_sums){sum, sum};
}

/* The products of a row's columns in the n lanes from l on, of pair b, by eight tokens. 16 bits
 * have room for those of eight times four columns, or with more bits of fewer. */
MF_INLINE digit_sums sum_columns(const blocks_form *f, uint32_t n, const unpacked_span *w,
                                 const turned_span *x, uint32_t b, uint32_t l)
{
    const uint32_t most = f->bits <= 4 ? 8 : f->bits == 5 ? 4 : 2;
    const uint32_t together = most < 2 * n ? most : 2 * n;
    __m256i sum = _mm256_setzero_si256(), words[DIGITS];
    MF_UNROLL(8)
    for (uint32_t i = 0; i < 8; i++) { /* clang does not see in time that n is a constant */
        const uint32_t half = i % 2, lane = l + i / 2;
        if (i >= 2 * n)
            break;
        const __m256i weights = four_weights(w, b, half, lane);
        MF_UNROLL(3)
        for (uint32_t d = 0; d < DIGITS; d++) {
            const __m256i products =
                _mm256_maddubs_epi16(weights, x->v[DIGITS_AT + (2 * b + half) * DIGITS + d][lane]);
            words[d] = i % together == 0 ? products : mf_add_words_avx2(words[d], products);
        }
        if (i % together == together - 1)
            sum =
                i + 1 == together ? join_digits(words) : _mm256_add_epi32(sum, join_digits(words));
    }
    return (digit_sums){sum, sum};
}

/* Sums beside wide weights: of the columns whose digits are in two lanes of either half, times how
 * far weights are above what they mean. */
static void store_wide_sums(bool has_sixteens, const int32_t v[32], mf_blocks_span *span,
                            uint32_t b)
{
    int32_t *sums = span->pairs.sums[b % PAIRS] + b / PAIRS * 4;
    for (uint32_t l = 0; l < 2; l++) {
        const int32_t *low = v + l * (has_sixteens ? 16 : 8), *high = low + (has_sixteens ? 8 : 16);
        uint32_t sum = 0;
        for (uint32_t i = 0; i < 8; i++)
            sum += (uint32_t)low[i] + (uint32_t)high[i];
        sums[l] = sums[l + 2] = (int32_t)(sum << WIDE_EXCESS);
    }
}

#include "kernels/x86/blocks_span_avx2.h"

/* Words of two rows by a digit, added up in words: of each eight columns two, of a row by itself;
 * with sixteens neighbours. */
MF_INLINE __m256i add_two_rows(bool by_sixteens, const weights_64 w[2], const mf_blocks_span *x,
                               uint32_t b, uint32_t d)
{
    const __m256i first = halves_by_digit(&w[0], x, b, d), second = halves_by_digit(&w[1], x, b, d);
    __m256i v[2] = {_mm256_unpacklo_epi32(first, second), _mm256_unpackhi_epi32(first, second)};
    if (by_sixteens)
        neighbours_of(first, second, v);
    return _mm256_add_epi16(v[0], v[1]);
}

/* The sums of rows' lanes are words as long as they fit (16 * 15 * 128, 8 * 31 * 128): widening
 * takes a product, of which many processors do one where they do three additions. */
MF_INLINE void sum_pair(const blocks_form *f, const weights_64 w[4], const mf_blocks_span *x,
                        uint32_t b, digit_sums out[2])
{
    const bool all_in_words = f->bits <= 4 && !f->by_sixteens;
    __m256i words[2][DIGITS], sums[2];
    if (f->bits > 5) {
        const digit_sums eights[4] = {sum_eights(f, &w[0], x, b), sum_eights(f, &w[1], x, b),
                                      sum_eights(f, &w[2], x, b), sum_eights(f, &w[3], x, b)};
        add_eights(f, eights, out);
        return;
    }
    MF_UNROLL(2)
    for (uint32_t i = 0; i < 2; i++) {
        MF_UNROLL(3)
        for (uint32_t d = 0; d < DIGITS; d++)
            words[i][d] = add_two_rows(f->by_sixteens, w + 2 * i, x, b, d);
        if (!all_in_words)
            sums[i] = join_digits(words[i]);
    }
    if (all_in_words) {
        MF_UNROLL(3)
        for (uint32_t d = 0; d < DIGITS; d++)
            words[0][d] = _mm256_add_epi16(_mm256_unpacklo_epi64(words[0][d], words[1][d]),
                                           _mm256_unpackhi_epi64(words[0][d], words[1][d]));
        sums[0] = join_digits(words[0]);
    } else if (!f->by_sixteens) {
        sums[0] = _mm256_add_epi32(_mm256_unpacklo_epi64(sums[0], sums[1]),
                                   _mm256_unpackhi_epi64(sums[0], sums[1]));
    }
    MF_UNROLL(2)
    for (uint32_t i = 0; i < accumulators(f); i++)
        out[i] = (digit_sums){sums[i], sums[i]};
}

/* What the lanes of four accumulators come to: those of four rows. */
MF_INLINE void sum_four(mf_weight_kind kind, const vec v[4], float out[4])
{
    sum_accumulators(form_of(kind).by_sixteens, v, out);
}

MF_INLINE void add_grid_rows(bool has_sixteens, const unpacked_span rows[4],
                             const mf_blocks_span *x, vec acc[4])
{
    const span_scales *const row_scales[4] = {&rows[0].scales, &rows[1].scales, &rows[2].scales,
                                              &rows[3].scales};
    blocks_form f = form_of(MF_BLOCKS_GRID);
    lane_values scales;
    f.has_sixteens = has_sixteens;
    scale_lanes(&f, row_scales, &scales, NULL);
    add_unpacked(&f, rows, &scales, NULL, x, acc, 1);
}

/* A span of codebooks of four rows by a token. */
static void add_grid_span(mf_weight_kind kind, const unsigned char *const v[4],
                          const mf_blocks_span *x, vec acc[4])
{
    unpacked_span rows[4];
    for (uint32_t r = 0; r < 4; r++)
        unpack_grid(kind, v[r], &rows[r]);
    if (mf_blocks_has_sixteens(kind))
        add_grid_rows(true, rows, x, acc);
    else
        add_grid_rows(false, rows, x, acc);
}

MF_INLINE void add_span(mf_weight_kind kind, uint32_t n, const span_tables *t,
                        const mf_blocks_rows *w, const unsigned char *const v[4],
                        const unsigned char *const s[4], const unsigned char *tokens,
                        size_t token_bytes, vec acc[FEW][4])
{
    (void)n;
    (void)token_bytes;
    if (mf_blocks_has_grid(kind))
        add_grid_span(w->kind, v, (const void *)tokens, acc[0]);
    else
        add_stored_span(kind, t, w, v, s, (const void *)tokens, acc[0]);
}

MF_INLINE void add_rows(mf_weight_kind kind, mf_weight_kind stored, const unpacked_span *w,
                        const group_tokens *x, vec *acc)
{
    begin_rows(x, acc);
    if (mf_blocks_is_wide(kind))
        (mf_blocks_has_sixteens(stored) ? add_wide_sixteens : add_wide)(excess_of(kind), w, x, acc);
    else
        add_narrow_rows(kind, w, x, acc);
}

#include "kernels/x86/blocks_product.h"

void mf_blocks_prepare_avx2(const mf_matrix *w, const float *x, void *out)
{
    prepare_token(w, x, out);
}

size_t mf_blocks_scratch_bytes_avx2(const mf_matrix *w, uint32_t n_tokens)
{
    return scratch_bytes(w, n_tokens);
}

void mf_blocks_matmul_avx2(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                           uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    multiply(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

/* SPDX-License-Identifier: MIT */
/*
 * FP8 weights in blocks by one token, by vectors: what tiles make of it (fp8_tiles.h), bit for bit,
 * while rows come as four long streams. A lane is a chain of a tile's sums: of 128 columns, eight
 * lanes, two (even, odd) for each of its four products, with 16 columns one after the other, as
 * bf16_load_woven has them. Two times 128 columns are a vector.
 *
 * Tiles take numbers below the normal ones for zeros and make none: so does the processor, while
 * MXCSR says so.
 */
#ifndef MF_KERNELS_FP8_ONE_H
#define MF_KERNELS_FP8_ONE_H

#include "kernels/x86/bf16_tokens.h"
#include "kernels/x86/fp8_avx512.h"

#include <string.h>

enum {
    FP8_ONE_ROWS = 4,
    FP8_ONE_COLS = 2 * BF16_WOVEN,
    FP8_ONE_AHEAD = 512, /* bytes of a row that are asked for ahead */
    FP8_ONE_STEPS = 16   /* columns of a lane */
};

/* The token's digits, as floats, of 256 columns. */
typedef float fp8_one_token[FP8_ONE_STEPS][BF16_DIGITS][16];

typedef struct fp8_one {
    const mf_matrix *w;
    const fp8_one_token *token;
    unsigned char (*ends)[FP8_ONE_COLS]; /* [row]: of columns that do not fill 256; zeros */
} fp8_one;

/* Sums of a row by each digit. */
typedef __m512 fp8_one_sums[FP8_ONE_ROWS][BF16_DIGITS];

static inline uint32_t fp8_one_spans(uint32_t n_cols)
{
    return (n_cols + FP8_ONE_COLS - 1) / FP8_ONE_COLS;
}

static inline size_t fp8_one_scratch_bytes(uint32_t n_cols)
{
    return fp8_one_spans(n_cols) * sizeof(fp8_one_token) + (size_t)FP8_ONE_ROWS * FP8_ONE_COLS;
}

static void fp8_one_prepare(const float *x, uint32_t n_cols, fp8_one_token *out)
{
    for (uint32_t col = 0; col < n_cols; col += FP8_ONE_COLS, out++) {
        for (uint32_t m = 0; m < 4; m++) {
            __m512 v[4]; /* 32 columns, and those 128 on */
            for (uint32_t h = 0; h < 4; h++) {
                const uint32_t at = col + h / 2 * BF16_WOVEN + 32 * m + h % 2 * 16;
                v[h] = _mm512_maskz_loadu_ps(at < n_cols ? mf_tail_avx512(n_cols, at) : 0, x + at);
            }
            for (uint32_t i = 0; i < 4; i++) {
                __m512 left = mf_fp8_lanes(v, i);
                for (uint32_t d = 0; d < BF16_DIGITS; d++) {
                    const __m512 digit = bf16_upper(left);
                    _mm512_store_ps((*out)[4 * m + i][d], digit);
                    left = bf16_rest(left, digit);
                }
            }
        }
    }
}

/* Of a turn of n_rows (a constant) rows what is column i of four: the i-th of four vectors. */
MF_INLINE void fp8_one_words(uint32_t n_rows, uint32_t i, const __m512i first[FP8_ONE_ROWS],
                             const __m512i last[FP8_ONE_ROWS], __m512 out[FP8_ONE_ROWS])
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    MF_UNROLL(4)
    for (uint32_t r = 0; r < n_rows; r++) {
        const __m512i words = i < 2 ? first[r] : last[r];
        out[r] = _mm512_castsi512_ps(i % 2 == 0 ? _mm512_slli_epi32(words, 16)
                                                : _mm512_and_si512(words, upper));
    }
}

/* 256 columns of n_rows (a constant) rows, `apart` bytes from each other. */
MF_INLINE void fp8_one_span(uint32_t n_rows, const mf_fp8_tables *tables, const unsigned char *p,
                            size_t apart, const fp8_one_token *x, fp8_one_sums sums)
{
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t at = 0; at < FP8_ONE_COLS; at += 64)
            _mm_prefetch((const char *)p + r * apart + at + FP8_ONE_AHEAD, _MM_HINT_T0);
    MF_ROLLED
    for (uint32_t m = 0; m < 4; m++, p += BF16_BLOCK) {
        __m512i first[FP8_ONE_ROWS], last[FP8_ONE_ROWS];
        MF_UNROLL(4)
        for (uint32_t r = 0; r < n_rows; r++) {
            const unsigned char *at = p + r * apart;
            const __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)at);
            const __m256i high =
                _mm256_loadu_si256((const __m256i *)(const void *)(at + BF16_WOVEN));
            mf_fp8_to_bf16(tables, _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1),
                           &first[r], &last[r]);
        }
        MF_UNROLL(4)
        for (uint32_t i = 0; i < 4; i++) {
            __m512 words[FP8_ONE_ROWS];
            fp8_one_words(n_rows, i, first, last, words);
            MF_UNROLL(3)
            for (uint32_t d = 0; d < BF16_DIGITS; d++) {
                const __m512 digit = _mm512_load_ps((*x)[4 * m + i][d]);
                MF_UNROLL(4)
                for (uint32_t r = 0; r < n_rows; r++)
                    sums[r][d] = _mm512_fmadd_ps(words[r], digit, sums[r][d]);
            }
        }
    }
}

/* Four rows' sums as a tile adds its products: quarters 0 and 2 are 128 columns each. */
MF_INLINE __m512 fp8_one_join(__m512 r0, __m512 r1, __m512 r2, __m512 r3)
{
    const __m512 a =
        _mm512_add_ps(_mm512_shuffle_ps(r0, r1, 0x88), _mm512_shuffle_ps(r0, r1, 0xdd));
    const __m512 b =
        _mm512_add_ps(_mm512_shuffle_ps(r2, r3, 0x88), _mm512_shuffle_ps(r2, r3, 0xdd));
    const __m512 even = _mm512_shuffle_ps(a, b, 0x88), odd = _mm512_shuffle_ps(a, b, 0xdd);
    const __m512 sum = _mm512_add_ps(even, odd);
    return _mm512_add_ps(_mm512_add_ps(sum, _mm512_shuffle_f32x4(even, even, 0xb1)),
                         _mm512_shuffle_f32x4(odd, odd, 0xb1));
}

/* The scales of four rows for 128 columns. */
MF_INLINE __m128 fp8_one_scales(const unsigned char *const rows[FP8_ONE_ROWS], uint32_t block)
{
    float s[FP8_ONE_ROWS];
    MF_UNROLL(4)
    for (uint32_t r = 0; r < FP8_ONE_ROWS; r++)
        memcpy(&s[r], rows[r] + (size_t)block * sizeof *s, sizeof *s);
    return _mm_setr_ps(s[0], s[1], s[2], s[3]);
}

/* Rows row, row + step, ..., of which there are n_rows (a constant). */
MF_INLINE void fp8_one_rows(uint32_t n_rows, const fp8_one *c, uint32_t row, uint32_t step,
                            float *y)
{
    const mf_fp8_tables tables = mf_fp8_tables_load();
    const uint32_t n_cols = c->w->shape.n_cols, n_spans = fp8_one_spans(n_cols);
    const unsigned char *p = c->w->data + (size_t)row * n_cols, *scales[FP8_ONE_ROWS];
    size_t apart = (size_t)step * n_cols;
    __m128 acc = _mm_setzero_ps();
    for (uint32_t r = 0; r < FP8_ONE_ROWS; r++)
        scales[r] = mf_matrix_fp8_scales(c->w, row + (r < n_rows ? r * step : 0));
    for (uint32_t i = 0; i < n_spans; i++, p += FP8_ONE_COLS) {
        const uint32_t left = n_cols - i * FP8_ONE_COLS;
        fp8_one_sums sums;
        MF_UNROLL(4)
        for (uint32_t r = 0; r < FP8_ONE_ROWS; r++)
            MF_UNROLL(3)
        for (uint32_t d = 0; d < BF16_DIGITS; d++)
            sums[r][d] = _mm512_setzero_ps();
        if (left < FP8_ONE_COLS) {
            for (uint32_t r = 0; r < n_rows; r++)
                memcpy(c->ends[r], p + r * apart, left);
            p = c->ends[0];
            apart = FP8_ONE_COLS;
        }
        fp8_one_span(n_rows, &tables, p, apart, &c->token[i], sums);
        __m512 digits[BF16_DIGITS];
        MF_UNROLL(3)
        for (uint32_t d = 0; d < BF16_DIGITS; d++)
            digits[d] = fp8_one_join(sums[0][d], sums[1][d], sums[2][d], sums[3][d]);
        const __m512 all = _mm512_add_ps(_mm512_add_ps(digits[2], digits[1]), digits[0]);
        acc = _mm_fmadd_ps(_mm512_castps512_ps128(all), fp8_one_scales(scales, 2 * i), acc);
        if (left > BF16_WOVEN)
            acc = _mm_fmadd_ps(_mm512_extractf32x4_ps(all, 2), fp8_one_scales(scales, 2 * i + 1),
                               acc);
    }
    float out[FP8_ONE_ROWS];
    _mm_storeu_ps(out, acc);
    for (uint32_t r = 0; r < n_rows; r++)
        y[(size_t)r * step] = out[r];
}

/* Rows row0 .. row1 - 1 by one token. */
static void fp8_one_multiply(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                             float *y, void *scratch)
{
    const uint32_t n_cols = w->shape.n_cols, n_sets = (row1 - row0) / FP8_ONE_ROWS;
    fp8_one_token *token = scratch;
    const fp8_one c = {w, token,
                       (unsigned char(*)[FP8_ONE_COLS])(void *)(token + fp8_one_spans(n_cols))};
    memset(c.ends, 0, (size_t)FP8_ONE_ROWS * FP8_ONE_COLS);
    fp8_one_prepare(x, n_cols, token);
    for (uint32_t i = 0; i < n_sets; i++)
        fp8_one_rows(FP8_ONE_ROWS, &c, row0 + i, n_sets, y + i);
    for (uint32_t row = row0 + FP8_ONE_ROWS * n_sets; row < row1; row++)
        fp8_one_rows(1, &c, row, 0, y + (row - row0));
}

#endif

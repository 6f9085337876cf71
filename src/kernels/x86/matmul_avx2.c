/* SPDX-License-Identifier: MIT */
/*
 * Matrix products, AVX2. A row is dequantised once into scratch (a few KiB, in L1) and multiplied
 * with every token, four tokens at a time. Each output has four accumulators of eight positions
 * each, added in a fixed order at the end, whatever the number of tokens or rows.
 */
#include "base/half.h"
#include "kernels/x86/avx2.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#define MF_INLINE static inline __attribute__((always_inline))

enum { LANES = 8, CHAINS = 4, STEP = LANES * CHAINS, TOKENS = 4 };

size_t mf_matmul_scratch_bytes_avx2(const mf_matrix *w, uint32_t n_tokens)
{
    (void)n_tokens;
    return ((size_t)w->n_cols + STEP) * sizeof(float);
}

static float float_at(const unsigned char *p, mf_dtype type, size_t i)
{
    if (type == MF_F32) {
        float value;
        memcpy(&value, p + 4 * i, sizeof value);
        return value;
    }
    uint16_t half;
    memcpy(&half, p + 2 * i, sizeof half);
    return type == MF_BF16 ? mf_f32_from_bf16(half) : mf_f32_from_f16(half);
}

/* The 8 values of `bits` (a constant) bytes at p, as integers in order. */
MF_INLINE __m256i unpack8(uint32_t bits, const unsigned char *p)
{
    uint64_t word = 0;
    memcpy(&word, p, bits);
    const __m256i all = _mm256_set1_epi64x((long long)word);
    const __m256i mask = _mm256_set1_epi64x((1 << bits) - 1);
    const int64_t b = bits;
    __m256i low =
        _mm256_and_si256(_mm256_srlv_epi64(all, _mm256_setr_epi64x(0, b, 2 * b, 3 * b)), mask);
    __m256i high = _mm256_and_si256(
        _mm256_srlv_epi64(all, _mm256_setr_epi64x(4 * b, 5 * b, 6 * b, 7 * b)), mask);
    /* Four 64-bit values each to eight 32-bit ones: the even halves, then both lanes in order. */
    __m256 even = _mm256_shuffle_ps(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high), 0x88);
    return _mm256_permute4x64_epi64(_mm256_castps_si256(even), 0xd8);
}

MF_INLINE void expand_affine(uint32_t bits, const mf_matrix *w, uint32_t row, float *out)
{
    const unsigned char *p = w->data + (size_t)row * mf_matrix_row_bytes(w);
    uint32_t n_groups = w->n_cols / w->group;
    size_t at = (size_t)row * n_groups;
    for (uint32_t g = 0; g < n_groups; g++) {
        const __m256 scale = _mm256_set1_ps(float_at(w->scales, w->float_type, at + g));
        const __m256 bias = _mm256_set1_ps(float_at(w->biases, w->float_type, at + g));
        for (uint32_t i = 0; i < w->group; i += LANES, p += bits, out += LANES)
            _mm256_storeu_ps(out,
                             _mm256_fmadd_ps(_mm256_cvtepi32_ps(unpack8(bits, p)), scale, bias));
    }
}

static void expand_float(const mf_matrix *w, uint32_t row, float *out)
{
    const unsigned char *p = w->data + (size_t)row * mf_matrix_row_bytes(w);
    uint32_t i = 0;
    if (w->float_type == MF_F32) {
        memcpy(out, p, (size_t)w->n_cols * sizeof *out);
        return;
    }
    for (; i + LANES <= w->n_cols; i += LANES) {
        __m128i half = _mm_loadu_si128((const __m128i *)(const void *)(p + 2 * (size_t)i));
        __m256 value =
            w->float_type == MF_F16
                ? _mm256_cvtph_ps(half)
                : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
        _mm256_storeu_ps(out + i, value);
    }
    for (; i < w->n_cols; i++)
        out[i] = float_at(p, w->float_type, i);
}

/* One row as floats, with zeros up to a multiple of STEP. */
static void expand_row(const mf_matrix *w, uint32_t row, float *out)
{
    for (uint32_t i = w->n_cols; i % STEP != 0; i++)
        out[i] = 0.0f;
    if (w->kind == MF_WEIGHT_FLOAT) {
        expand_float(w, row, out);
        return;
    }
    switch (w->bits) {
    case 2:
        expand_affine(2, w, row, out);
        break;
    case 3:
        expand_affine(3, w, row, out);
        break;
    case 4:
        expand_affine(4, w, row, out);
        break;
    case 5:
        expand_affine(5, w, row, out);
        break;
    case 6:
        expand_affine(6, w, row, out);
        break;
    default:
        expand_affine(8, w, row, out);
        break;
    }
}

MF_INLINE float sum_lanes(const __m256 acc[CHAINS])
{
    __m256 v = _mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3]));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    s = _mm_add_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}

/* The first n (1 to 8) lanes at p, zeros after them; reads nothing past them. */
MF_INLINE __m256 load_tail(const float *p, uint32_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane));
}

/* One row by n_tokens (a constant) tokens. */
MF_INLINE void dot_tokens(uint32_t n_tokens, const float *weights, uint32_t n_cols, const float *x,
                          size_t x_stride, float *y, size_t y_stride)
{
    __m256 acc[TOKENS][CHAINS];
    for (uint32_t t = 0; t < n_tokens; t++)
        for (uint32_t c = 0; c < CHAINS; c++)
            acc[t][c] = _mm256_setzero_ps();
    uint32_t i = 0;
    for (; i + STEP <= n_cols; i += STEP) {
#pragma GCC unroll 4
        for (uint32_t c = 0; c < CHAINS; c++) {
            __m256 w = _mm256_loadu_ps(weights + i + c * LANES);
#pragma GCC unroll 4
            for (uint32_t t = 0; t < n_tokens; t++)
                acc[t][c] = _mm256_fmadd_ps(w, _mm256_loadu_ps(x + t * x_stride + i + c * LANES),
                                            acc[t][c]);
        }
    }
    for (uint32_t c = 0; i < n_cols; i += LANES, c++) {
        uint32_t n = n_cols - i < LANES ? n_cols - i : LANES;
        for (uint32_t t = 0; t < n_tokens; t++)
            acc[t][c] = _mm256_fmadd_ps(_mm256_loadu_ps(weights + i),
                                        load_tail(x + t * x_stride + i, n), acc[t][c]);
    }
    for (uint32_t t = 0; t < n_tokens; t++)
        y[t * y_stride] = sum_lanes(acc[t]);
}

void mf_matmul_avx2(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                    size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    float *weights = scratch;
    for (uint32_t row = row0; row < row1; row++) {
        float *out = y + (row - row0);
        expand_row(w, row, weights);
        uint32_t t = 0;
        for (; t + TOKENS <= n_tokens; t += TOKENS)
            dot_tokens(TOKENS, weights, w->n_cols, x + t * x_stride, x_stride, out + t * y_stride,
                       y_stride);
        for (; t < n_tokens; t++)
            dot_tokens(1, weights, w->n_cols, x + t * x_stride, x_stride, out + t * y_stride,
                       y_stride);
    }
}

/* SPDX-License-Identifier: MIT */
/*
 * Matrix-vector products, AVX2: bound by memory, so the weights go from their packed form straight
 * into the sums, in the order of matmul_avx2.c.
 */
#include "kernels/x86/matvec_avx2.h"

#include "kernels/x86/vector_avx2.h"

#include <math.h>

enum {
    LANES = MF_LANES_AVX2,
    CHAINS = MF_CHAINS_AVX2,
    STEP = MF_STEP_AVX2,
    AHEAD_BYTES = 512 /* how far ahead of a row is prefetched */
};

void mf_fp8_expand_avx2(const mf_matrix *w, uint32_t row, float *out)
{
    const unsigned char *scales = mf_matrix_fp8_scales(w, row);
    const unsigned char *p = w->data + (size_t)row * w->shape.n_cols;
    for (uint32_t first = 0; first < w->shape.n_cols; first += MF_FP8_BLOCK) {
        uint32_t i = first,
                 end = w->shape.n_cols - first < MF_FP8_BLOCK ? w->shape.n_cols : i + MF_FP8_BLOCK;
        const float scale = mf_fp8_scale_avx2(scales, first);
        const __m256 factor = _mm256_set1_ps(scale * 0x1p8f);
        for (; i + STEP <= end; i += STEP) {
            __m256 v[CHAINS];
            mf_load_fp8_avx2(p + i, v);
            mf_load_fp8_avx2(p + i + STEP / 2, v + 2);
            for (uint32_t c = 0; c < CHAINS; c++)
                _mm256_storeu_ps(out + i + c * LANES, _mm256_mul_ps(v[c], factor));
            if (!mf_fp8_has_nan_avx2(mf_fp8_most_avx2(_mm256_setzero_si256(), p + i)))
                continue;
            for (uint32_t j = i; j < i + STEP; j++)
                out[j] = mf_f32_from_e4m3(p[j]) * scale;
        }
        for (; i < end; i++)
            out[i] = mf_f32_from_e4m3(p[i]) * scale;
    }
}

/* The last n (fewer than STEP) weights of a row, as floats, by the last activations. */
static void add_tail(const float weights[STEP], const float *x, uint32_t n, __m256 acc[CHAINS])
{
    for (uint32_t i = 0; i < n; i += LANES)
        acc[i / LANES] = _mm256_fmadd_ps(_mm256_loadu_ps(weights + i),
                                         mf_load_tail_avx2(x + i, n - i < LANES ? n - i : LANES),
                                         acc[i / LANES]);
}

MF_INLINE float dot_float(mf_dtype type, const unsigned char *p, uint32_t n_cols, const float *x)
{
    const size_t value_bytes = type == MF_F32 ? 4 : 2;
    __m256 acc[CHAINS] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                          _mm256_setzero_ps()};
    uint32_t i = 0;
    for (; i + STEP <= n_cols; i += STEP) {
        const unsigned char *at = p + i * value_bytes;
        for (uint32_t j = 0; j < STEP * value_bytes; j += 64)
            _mm_prefetch((const char *)at + AHEAD_BYTES + j, _MM_HINT_T0);
        MF_UNROLL(4)
        for (uint32_t c = 0; c < CHAINS; c++)
            acc[c] = _mm256_fmadd_ps(mf_load_float_avx2(at + c * LANES * value_bytes, type),
                                     _mm256_loadu_ps(x + i + c * LANES), acc[c]);
    }
    if (i < n_cols) {
        float tail[STEP] = {0};
        for (uint32_t j = i; j < n_cols; j++)
            tail[j - i] = mf_float_at_avx2(p, type, j);
        add_tail(tail, x + i, n_cols - i, acc);
    }
    return mf_sum_lanes_avx2(acc);
}

static float dot_fp8(const mf_matrix *w, uint32_t row, const float *x)
{
    const unsigned char *scales = mf_matrix_fp8_scales(w, row);
    const unsigned char *p = w->data + (size_t)row * w->shape.n_cols;
    __m256 acc[CHAINS] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                          _mm256_setzero_ps()};
    __m256i most = _mm256_setzero_si256();
    uint32_t i = 0;
    while (i + STEP <= w->shape.n_cols) {
        const __m256 factor = _mm256_set1_ps(mf_fp8_scale_avx2(scales, i) * 0x1p8f);
        uint32_t left = (w->shape.n_cols - i) / STEP * STEP;
        uint32_t end = i + (left < MF_FP8_BLOCK ? left : MF_FP8_BLOCK);
        for (; i < end; i += STEP) {
            __m256 v[CHAINS];
            _mm_prefetch((const char *)p + i + AHEAD_BYTES, _MM_HINT_T0);
            most = mf_fp8_most_avx2(most, p + i);
            mf_load_fp8_avx2(p + i, v);
            mf_load_fp8_avx2(p + i + STEP / 2, v + 2);
            MF_UNROLL(4)
            for (uint32_t c = 0; c < CHAINS; c++)
                acc[c] = _mm256_fmadd_ps(_mm256_mul_ps(v[c], factor),
                                         _mm256_loadu_ps(x + i + c * LANES), acc[c]);
        }
    }
    if (i < w->shape.n_cols) {
        float tail[STEP] = {0};
        const float scale = mf_fp8_scale_avx2(scales, i);
        for (uint32_t j = i; j < w->shape.n_cols; j++)
            tail[j - i] = mf_f32_from_e4m3(p[j]) * scale;
        add_tail(tail, x + i, w->shape.n_cols - i, acc);
    }
    float sum = mf_sum_lanes_avx2(acc);
    return mf_fp8_has_nan_avx2(most) ? NAN : sum;
}

/* A group is one to four blocks of 32. `is_last` (a constant): nothing after it may be read. */
MF_INLINE void add_blocks(uint32_t bits, bool is_last, const unsigned char *p, uint32_t n,
                          const float *x, __m256 scale, __m256 bias, __m256 acc[CHAINS])
{
    for (uint32_t i = 0; i < n; i++, p += 4 * (size_t)bits, x += STEP) {
        __m256 weights[CHAINS];
        mf_weights_avx2(bits, is_last && i + 1 == n, p, scale, bias, weights);
        MF_UNROLL(4)
        for (uint32_t c = 0; c < CHAINS; c++)
            acc[c] = _mm256_fmadd_ps(weights[c], _mm256_loadu_ps(x + c * LANES), acc[c]);
    }
}

MF_INLINE float dot_affine(uint32_t bits, const mf_matrix *w, uint32_t row, const float *x)
{
    const unsigned char *p = w->data + (size_t)row * mf_matrix_row_bytes(w);
    const uint32_t n_groups = w->shape.n_cols / w->shape.group, n_blocks = w->shape.group / STEP;
    const size_t group_bytes = (size_t)w->shape.group * bits / 8, first = (size_t)row * n_groups;
    __m256 acc[CHAINS] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                          _mm256_setzero_ps()};
    for (uint32_t g = 0; g < n_groups; g++, p += group_bytes, x += w->shape.group) {
        const size_t at = first + g;
        const __m256 scale = _mm256_set1_ps(mf_float_at_avx2(w->scales, w->shape.float_type, at));
        const __m256 bias = _mm256_set1_ps(mf_float_at_avx2(w->biases, w->shape.float_type, at));
        _mm_prefetch((const char *)p + AHEAD_BYTES, _MM_HINT_T0);
        if (g + 1 < n_groups)
            add_blocks(bits, false, p, n_blocks, x, scale, bias, acc);
        else
            add_blocks(bits, true, p, n_blocks, x, scale, bias, acc);
    }
    return mf_sum_lanes_avx2(acc);
}

MF_INLINE void affine_rows(uint32_t bits, const mf_matrix *w, uint32_t row0, uint32_t row1,
                           const float *x, float *y)
{
    for (uint32_t row = row0; row < row1; row++)
        *y++ = dot_affine(bits, w, row, x);
}

static void matvec_affine(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                          float *y)
{
    switch (w->shape.bits) {
    case 2:
        affine_rows(2, w, row0, row1, x, y);
        break;
    case 3:
        affine_rows(3, w, row0, row1, x, y);
        break;
    case 4:
        affine_rows(4, w, row0, row1, x, y);
        break;
    case 5:
        affine_rows(5, w, row0, row1, x, y);
        break;
    case 6:
        affine_rows(6, w, row0, row1, x, y);
        break;
    default:
        affine_rows(8, w, row0, row1, x, y);
        break;
    }
}

void mf_matvec_avx2(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x, float *y)
{
    if (w->shape.kind == MF_WEIGHT_AFFINE) {
        matvec_affine(w, row0, row1, x, y);
        return;
    }
    for (uint32_t row = row0; row < row1; row++, y++) {
        const unsigned char *p = w->data + row * mf_matrix_row_bytes(w);
        if (w->shape.kind == MF_WEIGHT_FP8_BLOCK)
            *y = dot_fp8(w, row, x);
        else if (w->shape.float_type == MF_F32)
            *y = dot_float(MF_F32, p, w->shape.n_cols, x);
        else if (w->shape.float_type == MF_F16)
            *y = dot_float(MF_F16, p, w->shape.n_cols, x);
        else
            *y = dot_float(MF_BF16, p, w->shape.n_cols, x);
    }
}

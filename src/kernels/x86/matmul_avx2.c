/* SPDX-License-Identifier: MIT */
/*
 * Matrix products, AVX2. Rows are dequantised once into scratch, one or a panel of them, and
 * multiplied with every token, four tokens at a time. Each output has four accumulators of eight
 * positions each, added in a fixed order at the end, whatever the number of tokens or rows.
 */
#include "kernels/x86/avx2.h"
#include "kernels/x86/blocks_avx2.h"
#include "kernels/x86/fixed_avx2.h"
#include "kernels/x86/fp8_rows.h"
#include "kernels/x86/matvec_avx2.h"
#include "kernels/x86/vector_avx2.h"

#include <math.h>

enum {
    LANES = MF_LANES_AVX2,
    CHAINS = MF_CHAINS_AVX2,
    STEP = MF_STEP_AVX2,
    TOKENS = 4,    /* multiplied together */
    PANEL_ROWS = 8 /* dequantised together for more tokens than that, to read those less often */
};

static size_t padded(uint32_t n_cols)
{
    return ((size_t)n_cols + STEP - 1) & ~(size_t)(STEP - 1);
}

static const mf_fixed_kernels fixed_narrow = {mf_fixed_prepare_avx2, mf_fixed_matmul_avx2,
                                              mf_fixed_scratch_bytes_avx2, mf_token_bytes_x86};
static const mf_fixed_kernels fixed_vnni = {mf_fixed_prepare_avx2, mf_fixed_matmul_avx_vnni,
                                            mf_fixed_scratch_bytes_avx_vnni, mf_token_bytes_x86};
static const mf_fixed_kernels blocks = {mf_blocks_prepare_avx2, mf_blocks_matmul_avx2,
                                        mf_blocks_scratch_bytes_avx2, mf_token_bytes_x86};
static const mf_fixed_kernels blocks_vnni = {mf_blocks_prepare_avx_vnni, mf_blocks_matmul_avx_vnni,
                                             mf_blocks_scratch_bytes_avx_vnni, mf_token_bytes_x86};

/* How a matrix is multiplied by prepared tokens; NULL if it is not. With VNNI affine weights of all
 * bits are, without it those of up to 4. */
static const mf_fixed_kernels *prepared_kernels(bool has_vnni, const mf_matrix *w)
{
    if (mf_is_blocks(w))
        return has_vnni ? &blocks_vnni : &blocks;
    if (has_vnni)
        return mf_is_fixed(w) ? &fixed_vnni : NULL;
    return mf_is_fixed_narrow(w) ? &fixed_narrow : NULL;
}

static size_t scratch_bytes(bool has_vnni, const mf_matrix *w, uint32_t n_tokens)
{
    const mf_matrix values = mf_is_fp8_rows(w) ? mf_fp8_values(w) : *w;
    const mf_fixed_kernels *prepared = prepared_kernels(has_vnni, &values);
    if (prepared != NULL)
        return mf_fixed_plain_scratch_bytes(prepared, &values, n_tokens);
    return (n_tokens > TOKENS ? PANEL_ROWS : 1) * padded(values.shape.n_cols) * sizeof(float);
}

MF_INLINE void expand_affine(uint32_t bits, const mf_matrix *w, uint32_t row, float *out)
{
    const unsigned char *p = w->data + (size_t)row * mf_matrix_row_bytes(w);
    const uint32_t n_groups = w->shape.n_cols / w->shape.group, n_blocks = w->shape.group / STEP;
    const size_t first = (size_t)row * n_groups;
    for (uint32_t g = 0; g < n_groups; g++) {
        const __m256 scale =
            _mm256_set1_ps(mf_float_at_avx2(w->scales, w->shape.float_type, first + g));
        const __m256 bias =
            _mm256_set1_ps(mf_float_at_avx2(w->biases, w->shape.float_type, first + g));
        for (uint32_t i = 0; i < n_blocks; i++, p += 4 * (size_t)bits, out += STEP) {
            __m256 weights[CHAINS];
            mf_weights_avx2(bits, g + 1 == n_groups && i + 1 == n_blocks, p, scale, bias, weights);
            for (uint32_t c = 0; c < CHAINS; c++)
                _mm256_storeu_ps(out + c * LANES, weights[c]);
        }
    }
}

static void expand_float(const mf_matrix *w, uint32_t row, float *out)
{
    const unsigned char *p = w->data + (size_t)row * mf_matrix_row_bytes(w);
    uint32_t i = 0;
    if (w->shape.float_type == MF_F32) {
        memcpy(out, p, (size_t)w->shape.n_cols * sizeof *out);
        return;
    }
    for (; i + LANES <= w->shape.n_cols; i += LANES)
        _mm256_storeu_ps(out + i, mf_load_float_avx2(p + 2 * (size_t)i, w->shape.float_type));
    for (; i < w->shape.n_cols; i++)
        out[i] = mf_float_at_avx2(p, w->shape.float_type, i);
}

void mf_dequant_row_avx2(const mf_matrix *w, uint32_t row, float *out)
{
    if (!mf_has_x86_kernels(w)) {
        mf_weight_format_of(&w->shape)->decode_row(&w->shape, w->arrays, row, out);
        return;
    }
    if (w->shape.kind == MF_WEIGHT_FLOAT) {
        expand_float(w, row, out);
        return;
    }
    if (w->shape.kind == MF_WEIGHT_FP8_BLOCK) {
        mf_fp8_expand_avx2(w, row, out);
        return;
    }
    switch (w->shape.bits) {
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
        MF_UNROLL(4)
        for (uint32_t c = 0; c < CHAINS; c++) {
            __m256 w = _mm256_loadu_ps(weights + i + c * LANES);
            MF_UNROLL(4)
            for (uint32_t t = 0; t < n_tokens; t++)
                acc[t][c] = _mm256_fmadd_ps(w, _mm256_loadu_ps(x + t * x_stride + i + c * LANES),
                                            acc[t][c]);
        }
    }
    for (uint32_t c = 0; i < n_cols; i += LANES, c++) {
        uint32_t n = n_cols - i < LANES ? n_cols - i : LANES;
        for (uint32_t t = 0; t < n_tokens; t++)
            acc[t][c] = _mm256_fmadd_ps(_mm256_loadu_ps(weights + i),
                                        mf_load_tail_avx2(x + t * x_stride + i, n), acc[t][c]);
    }
    for (uint32_t t = 0; t < n_tokens; t++)
        y[t * y_stride] = mf_sum_lanes_avx2(acc[t]);
}

/* n_rows rows' weights by all tokens. */
static void multiply_panel(const float *weights, uint32_t n_rows, uint32_t n_cols, const float *x,
                           size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride)
{
    const size_t apart = padded(n_cols);
    uint32_t t = 0;
    for (; t + TOKENS <= n_tokens; t += TOKENS)
        for (uint32_t r = 0; r < n_rows; r++)
            dot_tokens(TOKENS, weights + r * apart, n_cols, x + t * x_stride, x_stride,
                       y + t * y_stride + r, y_stride);
    for (; t < n_tokens; t++)
        for (uint32_t r = 0; r < n_rows; r++)
            dot_tokens(1, weights + r * apart, n_cols, x + t * x_stride, x_stride,
                       y + t * y_stride + r, y_stride);
}

static void matmul(bool has_vnni, const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                   size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    if (mf_is_fp8_rows(w)) {
        const mf_matrix values = mf_fp8_values(w);
        matmul(has_vnni, &values, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
        mf_fp8_scale_rows(w, row0, row1, n_tokens, y, y_stride);
        return;
    }
    const uint32_t most = n_tokens > TOKENS ? PANEL_ROWS : 1;
    const size_t apart = padded(w->shape.n_cols);
    float *weights = scratch;
    if (row0 >= row1 || n_tokens == 0)
        return;
    const mf_fixed_kernels *prepared = prepared_kernels(has_vnni, w);
    if (prepared != NULL) {
        mf_fixed_plain_matmul(prepared, w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
        return;
    }
    if (n_tokens == 1 && mf_has_x86_kernels(w)) {
        mf_matvec_avx2(w, row0, row1, x, y);
        return;
    }
    for (uint32_t r = 0; r < most; r++)
        for (size_t i = w->shape.n_cols; i < apart; i++)
            weights[r * apart + i] = 0.0f;
    for (uint32_t row = row0, n; row < row1; row += n) {
        n = row1 - row < most ? row1 - row : most;
        for (uint32_t r = 0; r < n; r++)
            mf_dequant_row_avx2(w, row + r, weights + r * apart);
        multiply_panel(weights, n, w->shape.n_cols, x, x_stride, n_tokens, y + (row - row0),
                       y_stride);
    }
}

/* ------------------------------------------------------------------------------ without VNNI */

size_t mf_matmul_scratch_bytes_avx2(const mf_matrix *w, uint32_t n_tokens)
{
    return scratch_bytes(false, w, n_tokens);
}

void mf_matmul_avx2(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                    size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    matmul(false, w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
}

void mf_prepare_token_avx2(const mf_matrix *w, const float *x, void *out)
{
    prepared_kernels(false, w)->prepare(w, x, out);
}

void mf_matmul_prepared_avx2(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                             uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    if (row0 < row1 && n_tokens > 0)
        prepared_kernels(false, w)->matmul(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

/* ------------------------------------------------------------------------------ with VNNI */

size_t mf_matmul_scratch_bytes_avx_vnni(const mf_matrix *w, uint32_t n_tokens)
{
    return scratch_bytes(true, w, n_tokens);
}

void mf_matmul_avx_vnni(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                        size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride,
                        void *scratch)
{
    matmul(true, w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
}

void mf_prepare_token_avx_vnni(const mf_matrix *w, const float *x, void *out)
{
    prepared_kernels(true, w)->prepare(w, x, out);
}

void mf_matmul_prepared_avx_vnni(const mf_matrix *w, uint32_t row0, uint32_t row1,
                                 const void *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                                 void *scratch)
{
    if (row0 < row1 && n_tokens > 0)
        prepared_kernels(true, w)->matmul(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

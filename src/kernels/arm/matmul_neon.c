/* SPDX-License-Identifier: MIT */
/*
 * Matrix products, ARM. Formats with integer products go to those of the tier. Of others rows are
 * dequantised into scratch, one or a panel of them, and multiplied with every token, four at a
 * time; floats by one token are read in place. Each output has four accumulators of eight positions
 * each, added in a fixed order at the end, whatever the number of tokens or rows.
 */
#include "kernels/arm/blocks_neon.h"
#include "kernels/arm/fixed_neon.h"
#include "kernels/arm/neon.h"
#include "kernels/arm/weights_neon.h"
#include "kernels/x86/fp8_rows.h"

enum {
    CHAINS = 4,
    STEP = CHAINS * LANES,
    TOKENS = 4,       /* multiplied together */
    PANEL_ROWS = 8,   /* dequantised together for more tokens than that, to read those less often */
    AHEAD_BYTES = 512 /* how far ahead of a row is prefetched */
};

/* A tier's integer products. */
typedef struct products {
    mf_fixed_kernels fixed, blocks;
} products;

static const products neon = {
    {mf_fixed_prepare_neon, mf_fixed_matmul_neon, mf_fixed_scratch_bytes_neon, mf_token_bytes_x86},
    {mf_blocks_prepare_neon, mf_blocks_matmul_neon, mf_blocks_scratch_bytes_neon,
     mf_token_bytes_x86}};
static const products dotprod = {{mf_fixed_prepare_neon, mf_fixed_matmul_neon_dotprod,
                                  mf_fixed_scratch_bytes_neon_dotprod, mf_token_bytes_x86},
                                 {mf_blocks_prepare_neon, mf_blocks_matmul_neon_dotprod,
                                  mf_blocks_scratch_bytes_neon_dotprod, mf_token_bytes_x86}};
static const products i8mm = {{mf_fixed_prepare_neon, mf_fixed_matmul_neon_i8mm,
                               mf_fixed_scratch_bytes_neon_i8mm, mf_token_bytes_x86},
                              {mf_blocks_prepare_neon, mf_blocks_matmul_neon_i8mm,
                               mf_blocks_scratch_bytes_neon_i8mm, mf_token_bytes_x86}};

/* 4 bits alone are. */
static bool is_fixed(const mf_matrix *w)
{
    return mf_is_fixed(w) && w->shape.bits == 4;
}

/* How a matrix is multiplied by prepared tokens; NULL if it is not. */
static const mf_fixed_kernels *prepared_kernels(const products *p, const mf_matrix *w)
{
    if (mf_is_blocks(w))
        return &p->blocks;
    return is_fixed(w) ? &p->fixed : NULL;
}

static bool is_read_here(const mf_matrix *w)
{
    return w->shape.kind == MF_WEIGHT_FLOAT || w->shape.kind == MF_WEIGHT_AFFINE ||
           w->shape.kind == MF_WEIGHT_FP8_BLOCK;
}

static size_t padded(uint32_t n_cols)
{
    return ((size_t)n_cols + STEP - 1) & ~(size_t)(STEP - 1);
}

size_t mf_token_bytes_neon(const mf_matrix *w)
{
    return mf_is_blocks(w) || is_fixed(w) ? mf_token_bytes_x86(w) : 0;
}

void mf_prepare_token_neon(const mf_matrix *w, const float *x, void *out)
{
    prepared_kernels(&neon, w)->prepare(w, x, out);
}

/* -------------------------------------------------------------------------------------- rows -- */

MF_LANE_OP void expand_affine(uint32_t bits, const mf_matrix *w, uint32_t row, float *out)
{
    const unsigned char *p = w->data + (size_t)row * mf_matrix_row_bytes(w);
    const uint32_t n_groups = w->shape.n_cols / w->shape.group;
    const size_t first = (size_t)row * n_groups;
    for (uint32_t g = 0; g < n_groups; g++) {
        const lanes scale = lanes_set(mf_float_at_neon(w->scales, w->shape.float_type, first + g));
        const lanes bias = lanes_set(mf_float_at_neon(w->biases, w->shape.float_type, first + g));
        for (uint32_t i = 0; i < w->shape.group; i += LANES, p += bits, out += LANES)
            lanes_store(out, LANES, lanes_fma(mf_load_codes_neon(bits, p), scale, bias));
    }
}

static void expand_codes(const mf_matrix *w, uint32_t row, float *out)
{
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

static void expand_fp8(const mf_matrix *w, uint32_t row, float *out)
{
    const unsigned char *scales = mf_matrix_fp8_scales(w, row);
    const unsigned char *p = w->data + (size_t)row * w->shape.n_cols;
    for (uint32_t i = 0; i < w->shape.n_cols;) {
        const uint32_t left = w->shape.n_cols - i;
        const uint32_t end = i + (left < MF_FP8_BLOCK ? left : MF_FP8_BLOCK);
        const float scale = mf_float_at_neon(scales, MF_F32, i / MF_FP8_BLOCK);
        for (; i + LANES <= end; i += LANES)
            lanes_store(out + i, LANES, lanes_mul(mf_load_fp8_neon(p + i), lanes_set(scale)));
        for (; i < end; i++)
            out[i] = mf_f32_from_e4m3(p[i]) * scale;
    }
}

MF_LANE_OP void expand_halves(mf_dtype type, const unsigned char *p, uint32_t n, float *out)
{
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        lanes_store(out + i, LANES, mf_load_float_neon(p + 2 * (size_t)i, type));
    for (; i < n; i++)
        out[i] = mf_float_at_neon(p, type, i);
}

void mf_dequant_row_neon(const mf_matrix *w, uint32_t row, float *out)
{
    const unsigned char *p = w->data + (size_t)row * mf_matrix_row_bytes(w);
    if (!is_read_here(w))
        mf_weight_format_of(&w->shape)->decode_row(&w->shape, w->arrays, row, out);
    else if (w->shape.kind == MF_WEIGHT_AFFINE)
        expand_codes(w, row, out);
    else if (w->shape.kind == MF_WEIGHT_FP8_BLOCK)
        expand_fp8(w, row, out);
    else if (w->shape.float_type == MF_F32)
        memcpy(out, p, (size_t)w->shape.n_cols * sizeof *out);
    else if (w->shape.float_type == MF_F16)
        expand_halves(MF_F16, p, w->shape.n_cols, out);
    else
        expand_halves(MF_BF16, p, w->shape.n_cols, out);
}

/* ---------------------------------------------------------------------------------- products -- */

MF_LANE_OP float sum_chains(const lanes acc[CHAINS])
{
    return lanes_sum(lanes_add(lanes_add(acc[0], acc[1]), lanes_add(acc[2], acc[3])));
}

/* One row of floats of a type (a constant) by n_tokens (a constant) tokens. */
MF_LANE_OP void dot_tokens(mf_dtype type, uint32_t n_tokens, const unsigned char *row,
                           uint32_t n_cols, const float *x, size_t x_stride, float *y,
                           size_t y_stride)
{
    const size_t value_bytes = type == MF_F32 ? 4 : 2;
    lanes acc[TOKENS][CHAINS];
    for (uint32_t t = 0; t < n_tokens; t++)
        for (uint32_t c = 0; c < CHAINS; c++)
            acc[t][c] = lanes_set(0);
    uint32_t i = 0;
    for (; i + STEP <= n_cols; i += STEP) {
        for (uint32_t j = 0; j < STEP * value_bytes; j += 64)
            __builtin_prefetch(row + i * value_bytes + AHEAD_BYTES + j);
        MF_UNROLL(4)
        for (uint32_t c = 0; c < CHAINS; c++) {
            const lanes w = mf_load_float_neon(row + (i + c * LANES) * value_bytes, type);
            MF_UNROLL(4)
            for (uint32_t t = 0; t < n_tokens; t++)
                acc[t][c] =
                    lanes_fma(w, lanes_load(x + t * x_stride + i + c * LANES, LANES), acc[t][c]);
        }
    }
    for (uint32_t c = 0; i < n_cols; i += LANES, c++) {
        const uint32_t n = n_cols - i < LANES ? n_cols - i : LANES;
        float tail[LANES] = {0};
        for (uint32_t j = 0; j < n; j++)
            tail[j] = mf_float_at_neon(row, type, i + j);
        for (uint32_t t = 0; t < n_tokens; t++)
            acc[t][c] =
                lanes_fma(lanes_load(tail, LANES), lanes_load(x + t * x_stride + i, n), acc[t][c]);
    }
    for (uint32_t t = 0; t < n_tokens; t++)
        y[t * y_stride] = sum_chains(acc[t]);
}

/* n_rows rows' weights by all tokens. */
static void multiply_panel(const float *weights, uint32_t n_rows, uint32_t n_cols, const float *x,
                           size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride)
{
    const size_t apart = padded(n_cols) * sizeof *weights;
    const unsigned char *rows = (const unsigned char *)weights;
    uint32_t t = 0;
    for (; t + TOKENS <= n_tokens; t += TOKENS)
        for (uint32_t r = 0; r < n_rows; r++)
            dot_tokens(MF_F32, TOKENS, rows + r * apart, n_cols, x + t * x_stride, x_stride,
                       y + t * y_stride + r, y_stride);
    for (; t < n_tokens; t++)
        for (uint32_t r = 0; r < n_rows; r++)
            dot_tokens(MF_F32, 1, rows + r * apart, n_cols, x + t * x_stride, x_stride,
                       y + t * y_stride + r, y_stride);
}

/* Floats by one token, from where they lie. */
static void multiply_floats(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                            float *y)
{
    const uint32_t n = w->shape.n_cols;
    for (uint32_t row = row0; row < row1; row++, y++) {
        const unsigned char *p = w->data + row * mf_matrix_row_bytes(w);
        if (w->shape.float_type == MF_F32)
            dot_tokens(MF_F32, 1, p, n, x, 0, y, 0);
        else if (w->shape.float_type == MF_F16)
            dot_tokens(MF_F16, 1, p, n, x, 0, y, 0);
        else
            dot_tokens(MF_BF16, 1, p, n, x, 0, y, 0);
    }
}

static size_t scratch_bytes(const products *p, const mf_matrix *w, uint32_t n_tokens)
{
    if (prepared_kernels(p, w) != NULL)
        return mf_fixed_plain_scratch_bytes(prepared_kernels(p, w), w, n_tokens);
    return (n_tokens > TOKENS ? PANEL_ROWS : 1) * padded(w->shape.n_cols) * sizeof(float);
}

static void multiply(const products *p, const mf_matrix *w, uint32_t row0, uint32_t row1,
                     const float *x, size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride,
                     void *scratch)
{
    if (mf_is_fp8_rows(w)) {
        const mf_matrix values = mf_fp8_values(w);
        multiply(p, &values, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
        mf_fp8_scale_rows(w, row0, row1, n_tokens, y, y_stride);
        return;
    }
    const uint32_t most = n_tokens > TOKENS ? PANEL_ROWS : 1;
    float *weights = scratch;
    if (row0 >= row1 || n_tokens == 0)
        return;
    if (prepared_kernels(p, w) != NULL) {
        mf_fixed_plain_matmul(prepared_kernels(p, w), w, row0, row1, x, x_stride, n_tokens, y,
                              y_stride, scratch);
        return;
    }
    if (n_tokens == 1 && w->shape.kind == MF_WEIGHT_FLOAT) {
        multiply_floats(w, row0, row1, x, y);
        return;
    }
    for (uint32_t row = row0, n; row < row1; row += n) {
        n = row1 - row < most ? row1 - row : most;
        for (uint32_t r = 0; r < n; r++)
            mf_dequant_row_neon(w, row + r, weights + r * padded(w->shape.n_cols));
        multiply_panel(weights, n, w->shape.n_cols, x, x_stride, n_tokens, y + (row - row0),
                       y_stride);
    }
}

static void multiply_prepared(const products *p, const mf_matrix *w, uint32_t row0, uint32_t row1,
                              const void *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                              void *scratch)
{
    if (row0 < row1 && n_tokens > 0)
        prepared_kernels(p, w)->matmul(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

/* ------------------------------------------------------------------------------------- tiers -- */

size_t mf_matmul_scratch_bytes_neon(const mf_matrix *w, uint32_t n_tokens)
{
    return scratch_bytes(&neon, w, n_tokens);
}

size_t mf_matmul_scratch_bytes_neon_dotprod(const mf_matrix *w, uint32_t n_tokens)
{
    return scratch_bytes(&dotprod, w, n_tokens);
}

size_t mf_matmul_scratch_bytes_neon_i8mm(const mf_matrix *w, uint32_t n_tokens)
{
    return scratch_bytes(&i8mm, w, n_tokens);
}

void mf_matmul_neon(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                    size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    multiply(&neon, w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
}

void mf_matmul_neon_dotprod(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                            size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride,
                            void *scratch)
{
    multiply(&dotprod, w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
}

void mf_matmul_neon_i8mm(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                         size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride,
                         void *scratch)
{
    multiply(&i8mm, w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
}

void mf_matmul_prepared_neon(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                             uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    multiply_prepared(&neon, w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

void mf_matmul_prepared_neon_dotprod(const mf_matrix *w, uint32_t row0, uint32_t row1,
                                     const void *tokens, uint32_t n_tokens, float *y,
                                     size_t y_stride, void *scratch)
{
    multiply_prepared(&dotprod, w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

void mf_matmul_prepared_neon_i8mm(const mf_matrix *w, uint32_t row0, uint32_t row1,
                                  const void *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                                  void *scratch)
{
    multiply_prepared(&i8mm, w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

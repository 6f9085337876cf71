/* SPDX-License-Identifier: MIT */
/*
 * Products with FP8 weights in blocks, AVX-512 with VBMI. Rows are taken by those that share
 * scales, as the activations are scaled for each. Four rows go together, by four tokens at a
 * time, as in matmul_avx512.c.
 */
#include "kernels/x86/fp8_avx512.h"

#include "kernels/x86/gemm_avx512.h"

enum {
    MAX_ROWS = 4,
    MAX_TOKENS = 4,
    STEP = MF_FP8_STEP_AVX512,
    AHEAD_BYTES = 512 /* how far ahead of a row's stream is prefetched */
};

_Alignas(64) const unsigned char mf_fp8_bf16_high[128] = {
    0x00, 0x3b, 0x3b, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c,
    0x3d, 0x3d, 0x3d, 0x3d, 0x3d, 0x3d, 0x3d, 0x3d, 0x3d, 0x3d, 0x3d, 0x3d, 0x3d, 0x3d, 0x3d, 0x3d,
    0x3e, 0x3e, 0x3e, 0x3e, 0x3e, 0x3e, 0x3e, 0x3e, 0x3e, 0x3e, 0x3e, 0x3e, 0x3e, 0x3e, 0x3e, 0x3e,
    0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f,
    0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40,
    0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41,
    0x42, 0x42, 0x42, 0x42, 0x42, 0x42, 0x42, 0x42, 0x42, 0x42, 0x42, 0x42, 0x42, 0x42, 0x42, 0x42,
    0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x7f,
};
_Alignas(64) const unsigned char mf_fp8_bf16_low[128] = {
    0x00, 0x00, 0x80, 0xc0, 0x00, 0x20, 0x40, 0x60, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0,
    0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0,
    0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0,
    0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0,
    0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0,
    0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0,
    0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0,
    0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xc0,
};

MF_INLINE void fp8_weights(const mf_fp8_tables *tables, __m512i codes, __m512 out[4])
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    __m512i first, last;
    mf_fp8_to_bf16(tables, codes, &first, &last);
    out[0] = _mm512_castsi512_ps(_mm512_slli_epi32(first, 16));
    out[1] = _mm512_castsi512_ps(_mm512_and_si512(first, upper));
    out[2] = _mm512_castsi512_ps(_mm512_slli_epi32(last, 16));
    out[3] = _mm512_castsi512_ps(_mm512_and_si512(last, upper));
}

/* Rows of scratch for tokens are this long. */
static size_t padded(uint32_t n_cols)
{
    return ((size_t)n_cols + STEP - 1) & ~(size_t)(STEP - 1);
}

size_t mf_fp8_scratch_bytes_avx512(const mf_matrix *w, uint32_t n_tokens)
{
    const uint32_t most = mf_tokens_together_avx512(w->shape.n_cols);
    return (n_tokens < most ? n_tokens : most) * padded(w->shape.n_cols) * sizeof(float);
}

/* 64 activations, n of them, into the lane order of the weights. */
MF_INLINE void pack64(const float *x, uint32_t n, __m512 scale, float *out)
{
    __mmask64 mask = mf_fp8_tail_avx512(n, 0);
    __m512 v[4];
    MF_UNROLL(4)
    for (uint32_t k = 0; k < 4; k++) {
        __mmask16 part = (__mmask16)(mask >> (16 * k));
        v[k] = _mm512_maskz_mul_ps(part, _mm512_maskz_loadu_ps(part, x + 16 * k), scale);
    }
    MF_UNROLL(4)
    for (uint32_t k = 0; k < 4; k++)
        _mm512_store_ps(out + 16 * k, mf_fp8_lanes(v, k));
}

/* A token's columns, times the scales of rows from `row` on. */
static void pack_token(const mf_matrix *w, uint32_t row, const float *token, float *out)
{
    const unsigned char *scales = mf_matrix_fp8_scales(w, row);
    for (uint32_t i = 0; i < w->shape.n_cols; i += STEP) {
        float scale;
        memcpy(&scale, scales + (size_t)(i / MF_FP8_BLOCK) * 4, sizeof scale);
        pack64(token + i, w->shape.n_cols - i, _mm512_set1_ps(scale), out + i);
    }
}

/* What a call's rows have in common. */
typedef struct matvec {
    const mf_matrix *w;
    const float *x; /* scaled, in lane order */
    size_t x_stride;
} matvec;

MF_INLINE void add_step(uint32_t n_rows, uint32_t n_tokens, const unsigned char *p, size_t apart,
                        __mmask64 mask, const mf_fp8_tables *tables, const float *x,
                        size_t x_stride, __m512 acc[MAX_ROWS][MAX_TOKENS])
{
    MF_UNROLL(4)
    for (uint32_t r = 0; r < n_rows; r++) {
        const unsigned char *at = p + r * apart;
        __m512 v[4];
        _mm_prefetch((const char *)at + AHEAD_BYTES, _MM_HINT_T0);
        fp8_weights(tables, _mm512_maskz_loadu_epi8(mask, at), v);
        MF_UNROLL(4)
        for (uint32_t k = 0; k < 4; k++) {
            MF_UNROLL(4)
            for (uint32_t t = 0; t < n_tokens; t++)
                acc[r][t] =
                    _mm512_fmadd_ps(v[k], _mm512_load_ps(x + t * x_stride + 16 * k), acc[r][t]);
        }
    }
}

/* Rows row, row + step, ... (n_rows of them) by n_tokens tokens; both counts are constants. */
MF_INLINE void multiply(uint32_t n_rows, uint32_t n_tokens, const matvec *m, uint32_t row,
                        uint32_t step, float *y, size_t y_stride)
{
    const uint32_t n_cols = m->w->shape.n_cols;
    const unsigned char *p = m->w->data + (size_t)row * n_cols;
    const size_t apart = (size_t)step * n_cols;
    const mf_fp8_tables tables = mf_fp8_tables_load();
    __m512 acc[MAX_ROWS][MAX_TOKENS];
    for (uint32_t r = 0; r < MAX_ROWS; r++)
        for (uint32_t t = 0; t < MAX_TOKENS; t++)
            acc[r][t] = _mm512_setzero_ps();
    uint32_t i = 0;
    for (; i + STEP <= n_cols; i += STEP)
        add_step(n_rows, n_tokens, p + i, apart, ~(__mmask64)0, &tables, m->x + i, m->x_stride,
                 acc);
    if (i < n_cols)
        add_step(n_rows, n_tokens, p + i, apart, mf_fp8_tail_avx512(n_cols, i), &tables, m->x + i,
                 m->x_stride, acc);
    for (uint32_t t = 0; t < n_tokens; t++) {
        float out[MAX_ROWS];
        _mm_storeu_ps(out, mf_sum4_avx512(acc[0][t], acc[1][t], acc[2][t], acc[3][t]));
        for (uint32_t r = 0; r < n_rows; r++)
            y[t * y_stride + r * step] = out[r];
    }
}

/* n_rows (a constant) rows by any number of tokens, some at a time. */
MF_INLINE void multiply_set(uint32_t n_rows, const matvec *m, uint32_t row, uint32_t step,
                            uint32_t n_tokens, float *y, size_t y_stride)
{
    matvec some = *m;
    for (uint32_t t = 0; t < n_tokens;
         t += MAX_TOKENS, some.x += MAX_TOKENS * m->x_stride, y += MAX_TOKENS * y_stride) {
        switch (n_tokens - t) {
        case 1:
            multiply(n_rows, 1, &some, row, step, y, y_stride);
            break;
        case 2:
            multiply(n_rows, 2, &some, row, step, y, y_stride);
            break;
        case 3:
            multiply(n_rows, 3, &some, row, step, y, y_stride);
            break;
        default:
            multiply(n_rows, 4, &some, row, step, y, y_stride);
            break;
        }
    }
}

/* Rows of one block by few tokens. */
static void matvec_block(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                         size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride,
                         float *scratch)
{
    const matvec m = {w, scratch, padded(w->shape.n_cols)};
    const uint32_t n_sets = (row1 - row0) / MAX_ROWS;
    for (uint32_t t = 0; t < n_tokens; t++)
        pack_token(w, row0, x + t * x_stride, scratch + t * m.x_stride);
    for (uint32_t i = 0; i < n_sets; i++)
        multiply_set(MAX_ROWS, &m, row0 + i, n_sets, n_tokens, y + i, y_stride);
    for (uint32_t row = row0 + MAX_ROWS * n_sets; row < row1; row++)
        multiply_set(1, &m, row, 0, n_tokens, y + (row - row0), y_stride);
}

void mf_fp8_matmul_avx512(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                          size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride,
                          void *scratch)
{
    const uint32_t together = mf_weight_array_step(&w->shape, MF_WEIGHT_SCALES);
    const uint32_t most = mf_tokens_together_avx512(w->shape.n_cols);
    for (uint32_t row = row0, end; row < row1; y += end - row, row = end) {
        const uint32_t left = together - row % together;
        end = row1 - row > left ? row + left : row1;
        for (uint32_t t = 0, n; t < n_tokens; t += n) {
            n = n_tokens - t < most ? n_tokens - t : most;
            matvec_block(w, row, end, x + t * x_stride, x_stride, n, y + t * y_stride, y_stride,
                         scratch);
        }
    }
}

/* SPDX-License-Identifier: MIT */
/*
 * Affine weights times several tokens in float32, AVX-512. Tokens are taken in chunks whose
 * activations fit the L2 cache, packed tile by tile of columns; per panel of rows and tile, the
 * weights are dequantised into L1 and multiplied in blocks of 4 rows by up to 6 tokens held in
 * registers. The lanes of an accumulator are positions along the row, and it is carried from tile
 * to tile, so every output is summed in the order of the matrix-vector product.
 */
#include "kernels/x86/gemm_avx512.h"

#include "base/checked.h"
#include "kernels/x86/decode_avx512.h"

enum {
    TILE = 512,        /* columns; a multiple of every group */
    PANEL_ROWS = 8,    /* rows dequantised together */
    BLOCK_ROWS = 4,    /* rows of a register block */
    BLOCK_TOKENS = 6,  /* tokens of a register block */
    CHUNK_TOKENS = 64, /* tokens packed together, at most */
    LANES = 16
};
/* Bytes of packed tokens that stay in the L2 cache beside what else passes through. */
#define CHUNK_BYTES ((size_t)1 << 20)

/* The scratch of one call. */
typedef struct gemm_scratch {
    float *weights; /* [PANEL_ROWS, TILE] */
    float *sums;    /* [PANEL_ROWS / BLOCK_ROWS, chunk, BLOCK_ROWS, LANES] */
    float *tokens;  /* [n_tiles, chunk, TILE] */
} gemm_scratch;

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Tokens packed together for rows this long. */
static uint32_t chunk_tokens(uint32_t n_cols)
{
    size_t n = CHUNK_BYTES / (sizeof(float) * n_cols + 1);
    return n < CHUNK_TOKENS ? (n < 4 * BLOCK_TOKENS ? 4 * BLOCK_TOKENS : (uint32_t)n)
                            : CHUNK_TOKENS;
}

size_t mf_gemm_scratch_bytes_avx512(const mf_matrix *w, uint32_t n_tokens)
{
    size_t chunk = min_u32(n_tokens, chunk_tokens(w->shape.n_cols));
    size_t n_tiles = ((size_t)w->shape.n_cols + TILE - 1) / TILE;
    size_t n_floats =
        (size_t)PANEL_ROWS * TILE + PANEL_ROWS * chunk * LANES + n_tiles * chunk * TILE;
    return n_floats * sizeof(float);
}

static gemm_scratch lay_out(void *scratch, uint32_t chunk)
{
    gemm_scratch s;
    s.weights = scratch;
    s.sums = s.weights + (size_t)PANEL_ROWS * TILE;
    s.tokens = s.sums + (size_t)PANEL_ROWS * chunk * LANES;
    return s;
}

/* One token's columns [first, first + n) in the lane order of the weights, zeros after the end. */
MF_INLINE void pack_token(uint32_t bits, const float *x, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i += 32) {
        __m512 v[2] = {_mm512_maskz_loadu_ps(mf_tail_avx512(n, i), x + i), _mm512_setzero_ps()};
        if (i + LANES < n)
            v[1] = _mm512_maskz_loadu_ps(mf_tail_avx512(n, i + LANES), x + i + LANES);
        mf_order_avx512(bits, v);
        _mm512_store_ps(out + i, v[0]);
        _mm512_store_ps(out + i + LANES, v[1]);
    }
}

static void pack_tokens(const mf_matrix *w, const float *x, size_t x_stride, uint32_t n_tokens,
                        float *out)
{
    const uint32_t bits = w->shape.bits;
    for (uint32_t first = 0; first < w->shape.n_cols; first += TILE) {
        uint32_t n = min_u32(TILE, w->shape.n_cols - first);
        for (uint32_t t = 0; t < n_tokens; t++, out += TILE) {
            const float *token = x + t * x_stride + first;
            if (bits == 4)
                pack_token(4, token, n, out);
            else if (bits == 2)
                pack_token(2, token, n, out);
            else
                pack_token(32, token, n, out);
        }
    }
}

MF_INLINE void dequant_affine(uint32_t bits, const mf_matrix *w, uint32_t row, uint32_t first,
                              uint32_t n, float *out)
{
    const unsigned char *p =
        w->data + (size_t)row * mf_matrix_row_bytes(w) + (size_t)first * bits / 8;
    uint32_t n_groups = n / w->shape.group;
    size_t group0 = (size_t)row * (w->shape.n_cols / w->shape.group) + first / w->shape.group;
    size_t value_bytes = w->shape.float_type == MF_F32 ? 4 : 2;
    __mmask16 mask = mf_tail_avx512(n_groups, 0);
    float scales[LANES], biases[LANES];
    _mm512_storeu_ps(
        scales, mf_load_float_avx512(w->scales + group0 * value_bytes, w->shape.float_type, mask));
    _mm512_storeu_ps(
        biases, mf_load_float_avx512(w->biases + group0 * value_bytes, w->shape.float_type, mask));
    for (uint32_t g = 0; g < n_groups; g++) {
        mf_group_avx512 group = mf_group_load_avx512(bits, scales + g, biases + g);
        for (uint32_t i = 0; i < w->shape.group; i += 32, p += 4 * bits, out += 32) {
            __m512i q[2];
            mf_unpack_avx512(bits, p, q);
            _mm512_store_ps(out, mf_weights_avx512(bits, q[0], &group));
            _mm512_store_ps(out + LANES, mf_weights_avx512(bits, q[1], &group));
        }
    }
}

/* Columns [first, first + n) of one row, in lane order. */
static void dequant_tile(const mf_matrix *w, uint32_t row, uint32_t first, uint32_t n, float *out)
{
    switch (w->shape.bits) {
    case 2:
        dequant_affine(2, w, row, first, n, out);
        break;
    case 3:
        dequant_affine(3, w, row, first, n, out);
        break;
    case 4:
        dequant_affine(4, w, row, first, n, out);
        break;
    case 5:
        dequant_affine(5, w, row, first, n, out);
        break;
    case 6:
        dequant_affine(6, w, row, first, n, out);
        break;
    default:
        dequant_affine(8, w, row, first, n, out);
        break;
    }
}

/* BLOCK_ROWS rows by n_tokens (a constant) tokens over one tile; sums go on where they stood. */
MF_INLINE void multiply_block(uint32_t n_tokens, const float *weights, const float *tokens,
                              uint32_t n_cols, bool is_first, float *sums)
{
    __m512 acc[BLOCK_TOKENS][BLOCK_ROWS];
    MF_UNROLL(6)
    for (uint32_t t = 0; t < n_tokens; t++) {
        MF_UNROLL(4)
        for (uint32_t r = 0; r < BLOCK_ROWS; r++)
            acc[t][r] = is_first ? _mm512_setzero_ps()
                                 : _mm512_load_ps(sums + (t * BLOCK_ROWS + r) * LANES);
    }
    for (uint32_t i = 0; i < n_cols; i += LANES) {
        __m512 w[BLOCK_ROWS];
        MF_UNROLL(4)
        for (uint32_t r = 0; r < BLOCK_ROWS; r++)
            w[r] = _mm512_load_ps(weights + r * TILE + i);
        MF_UNROLL(6)
        for (uint32_t t = 0; t < n_tokens; t++) {
            __m512 x = _mm512_load_ps(tokens + t * TILE + i);
            MF_UNROLL(4)
            for (uint32_t r = 0; r < BLOCK_ROWS; r++)
                acc[t][r] = _mm512_fmadd_ps(w[r], x, acc[t][r]);
        }
    }
    MF_UNROLL(6)
    for (uint32_t t = 0; t < n_tokens; t++) {
        MF_UNROLL(4)
        for (uint32_t r = 0; r < BLOCK_ROWS; r++)
            _mm512_store_ps(sums + (t * BLOCK_ROWS + r) * LANES, acc[t][r]);
    }
}

static void multiply_tokens(uint32_t n_tokens, const float *weights, const float *tokens,
                            uint32_t n_cols, bool is_first, float *sums)
{
    switch (n_tokens) {
    case 1:
        multiply_block(1, weights, tokens, n_cols, is_first, sums);
        break;
    case 2:
        multiply_block(2, weights, tokens, n_cols, is_first, sums);
        break;
    case 3:
        multiply_block(3, weights, tokens, n_cols, is_first, sums);
        break;
    case 4:
        multiply_block(4, weights, tokens, n_cols, is_first, sums);
        break;
    case 5:
        multiply_block(5, weights, tokens, n_cols, is_first, sums);
        break;
    default:
        multiply_block(6, weights, tokens, n_cols, is_first, sums);
        break;
    }
}

/* One tile of the panel's rows by the chunk's tokens, in blocks of about equal size. */
static void multiply_tile(const gemm_scratch *s, const float *tokens, uint32_t n_rows,
                          uint32_t n_tokens, uint32_t n_cols, bool is_first)
{
    uint32_t n_blocks = (n_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    for (uint32_t b = 0; b < n_blocks; b++) {
        uint32_t t0 = b * n_tokens / n_blocks, t1 = (b + 1) * n_tokens / n_blocks;
        for (uint32_t r = 0; r < n_rows; r += BLOCK_ROWS)
            multiply_tokens(t1 - t0, s->weights + (size_t)r * TILE, tokens + (size_t)t0 * TILE,
                            n_cols, is_first,
                            s->sums + ((size_t)r * n_tokens + (size_t)t0 * BLOCK_ROWS) * LANES);
    }
}

static void store_sums(const float *sums, uint32_t n_rows, uint32_t n_tokens, float *y,
                       size_t y_stride)
{
    for (uint32_t r = 0; r < n_rows; r += BLOCK_ROWS) {
        __mmask8 mask = (__mmask8)(n_rows - r >= BLOCK_ROWS ? 15 : (1 << (n_rows - r)) - 1);
        for (uint32_t t = 0; t < n_tokens; t++, sums += BLOCK_ROWS * LANES) {
            __m128 y4 =
                mf_sum4_avx512(_mm512_load_ps(sums), _mm512_load_ps(sums + LANES),
                               _mm512_load_ps(sums + 2 * LANES), _mm512_load_ps(sums + 3 * LANES));
            _mm_mask_storeu_ps(y + t * y_stride + r, mask, y4);
        }
    }
}

static void multiply_chunk(const mf_matrix *w, uint32_t row0, uint32_t row1, uint32_t n_tokens,
                           float *y, size_t y_stride, const gemm_scratch *s)
{
    for (uint32_t panel = row0; panel < row1; panel += PANEL_ROWS) {
        uint32_t n_rows = min_u32(PANEL_ROWS, row1 - panel);
        const float *tokens = s->tokens;
        for (uint32_t first = 0; first < w->shape.n_cols; first += TILE) {
            uint32_t n = min_u32(TILE, w->shape.n_cols - first);
            /* A last block's missing rows repeat the last row. */
            for (uint32_t r = 0; r < ((n_rows + 3) & ~3u); r++) {
                uint32_t row = panel + min_u32(r, n_rows - 1);
                dequant_tile(w, row, first, n, s->weights + (size_t)r * TILE);
            }
            multiply_tile(s, tokens, n_rows, n_tokens, n, first == 0);
            tokens += (size_t)n_tokens * TILE;
        }
        store_sums(s->sums, n_rows, n_tokens, y + (panel - row0), y_stride);
    }
}

void mf_gemm_avx512(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                    size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    uint32_t most = chunk_tokens(w->shape.n_cols), n_chunks = (n_tokens + most - 1) / most;
    for (uint32_t c = 0; c < n_chunks; c++) {
        uint32_t t0 = (uint32_t)((uint64_t)c * n_tokens / n_chunks);
        uint32_t t1 = (uint32_t)((uint64_t)(c + 1) * n_tokens / n_chunks);
        gemm_scratch s = lay_out(scratch, t1 - t0);
        pack_tokens(w, x + t0 * x_stride, x_stride, t1 - t0, s.tokens);
        multiply_chunk(w, row0, row1, t1 - t0, y + t0 * y_stride, y_stride, &s);
    }
}

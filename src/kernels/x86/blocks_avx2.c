/* SPDX-License-Identifier: MIT */
/* Formats of blocks times activations in fixed point (blocks_token.h), AVX2: 32 columns at once,
 * four of them in each lane, by activations of two 16-bit digits. */
#include "kernels/x86/blocks_avx2.h"

#include "kernels/x86/blocks_unpack_avx2.h"
#include "kernels/x86/fixed_token.h"

#include "kernels/x86/blocks_grids.h"

enum { TILE = 1, SET = 4, FEW = 1, GROUP = 16, CHUNKS = 8, CHUNK = 32, LOW_BITS = 11 };

typedef __m256 vec;

/* A span of a row. */
typedef struct unpacked_span {
    weights_32 weights[CHUNKS];
    __m256 scales[CHUNKS];
    __m256 min[2];
} unpacked_span;

/* ------------------------------------------------------------------------------- activations -- */

/* The largest magnitude of n values; NaN if there is one. */
static float largest(const float *x, uint32_t n)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t bits = mf_bits_from_f32(x[i]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    return mf_f32_from_bits(most);
}

/* 32 columns' integers, [even or odd], of which those past n are 0. */
static void prepare_chunk(const float *x, uint32_t n, __m256 per_unit, mf_blocks_span *span,
                          uint32_t g)
{
    int32_t sums[2] = {0, 0};
    for (uint32_t i = 0; i < CHUNK; i += 8) {
        const __m256 values = n >= i + 8 ? _mm256_loadu_ps(x + i)
                              : n > i    ? mf_load_tail_avx2(x + i, n - i)
                                         : _mm256_setzero_ps();
        int32_t v[8];
        _mm256_storeu_si256((__m256i *)(void *)v,
                            _mm256_cvtps_epi32(_mm256_mul_ps(values, per_unit)));
        for (uint32_t j = 0; j < 8; j++) {
            const int32_t high = (int32_t)((uint32_t)v[j] + (1u << (LOW_BITS - 1))) >> LOW_BITS;
            const uint32_t at = 2 * g + j % 2, lane = (i + j) / 2;
            span->words.high[at][lane] = (int16_t)high;
            span->words.low[at][lane] = (int16_t)((uint32_t)v[j] - ((uint32_t)high << LOW_BITS));
            sums[i / 16] = (int32_t)((uint32_t)sums[i / 16] + (uint32_t)v[j]);
        }
    }
    span->sums[2 * g] = (float)sums[0];
    span->sums[2 * g + 1] = (float)sums[1];
}

/* Activations that are not finite get a unit that is not. */
void mf_blocks_prepare_avx2(const mf_matrix *w, const float *x, void *out)
{
    mf_blocks_span *span = out;
    for (uint32_t i = 0; i < w->shape.n_cols; i += MF_SPAN, span++) {
        const uint32_t n = w->shape.n_cols - i < MF_SPAN ? w->shape.n_cols - i : MF_SPAN;
        float max = largest(x + i, n);
        max = max < MF_FIXED_SMALLEST ? MF_FIXED_SMALLEST : max;
        const __m256 per_unit = _mm256_set1_ps(MF_FIXED_LIMIT / max);
        for (uint32_t g = 0; g < CHUNKS; g++)
            prepare_chunk(x + i + (size_t)g * CHUNK, n > g * CHUNK ? n - g * CHUNK : 0, per_unit,
                          span, g);
        span->units[0] = max / MF_FIXED_LIMIT;
    }
}

/* ---------------------------------------------------------------------------------- products -- */

/* Scales make up for weights that are twice what they mean. */
static float factor_of(mf_weight_kind kind)
{
    (void)kind;
    return 1.0f;
}

MF_INLINE vec zero_vec(void)
{
    return _mm256_setzero_ps();
}

MF_INLINE void sum_four(const vec v[4], float out[4])
{
    const __m256 ab = _mm256_hadd_ps(v[0], v[1]), cd = _mm256_hadd_ps(v[2], v[3]);
    const __m256 all = _mm256_hadd_ps(ab, cd);
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}

MF_INLINE void sum_panel(const vec *v, size_t apart, float factor, float out[16])
{
    for (uint32_t r = 0; r < 16; r += 4) {
        const vec four[4] = {v[r * apart], v[(r + 1) * apart], v[(r + 2) * apart],
                             v[(r + 3) * apart]};
        sum_four(four, out + r);
        _mm_storeu_ps(out + r, _mm_mul_ps(_mm_loadu_ps(out + r), _mm_set1_ps(factor)));
    }
}

/* 32 activations: even and odd, high and low digits. */
typedef struct digits_32 {
    __m256i high[2], low[2];
} digits_32;

MF_INLINE digits_32 load_digits(const mf_blocks_span *x, uint32_t g)
{
    digits_32 d;
    MF_UNROLL(2)
    for (uint32_t i = 0; i < 2; i++) {
        d.high[i] = _mm256_loadu_si256((const __m256i *)(const void *)x->words.high[2 * g + i]);
        d.low[i] = _mm256_loadu_si256((const __m256i *)(const void *)x->words.low[2 * g + i]);
    }
    return d;
}

/* The sums of each four products. */
MF_INLINE __m256 sum_fours(const weights_32 *w, const digits_32 *x)
{
    const __m256i high = _mm256_add_epi32(_mm256_madd_epi16(w->even, x->high[0]),
                                          _mm256_madd_epi16(w->odd, x->high[1]));
    const __m256i low = _mm256_add_epi32(_mm256_madd_epi16(w->even, x->low[0]),
                                         _mm256_madd_epi16(w->odd, x->low[1]));
    return _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_slli_epi32(high, LOW_BITS), low));
}

/* What the minima add. */
MF_INLINE __m256 sum_minima(const __m256 min[2], const mf_blocks_span *x)
{
    return _mm256_fmadd_ps(min[1], _mm256_loadu_ps(x->sums + 8),
                           _mm256_mul_ps(min[0], _mm256_loadu_ps(x->sums)));
}

static uint32_t few_of(mf_weight_kind kind)
{
    (void)kind;
    return FEW;
}

MF_INLINE void unpack_grid_of(mf_weight_kind kind, const unsigned char *v, unpacked_span *out)
{
    span_scales scales;
    __m256 sixteen[2];
    grid_scales(kind, v, sixteen);
    _mm256_storeu_ps(scales.scale, sixteen[0]);
    _mm256_storeu_ps(scales.scale + 8, sixteen[1]);
    MF_ROLLED
    for (uint32_t g = 0; g < CHUNKS; g++) {
        out->weights[g] = signed_bytes(grid_weights(kind, v, g));
        out->scales[g] = chunk_scales(kind, g, &scales);
    }
}

/* A span of codebooks: as long as the products by it, so that a call does not matter. */
__attribute__((noinline)) static void unpack_grid(mf_weight_kind kind, const unsigned char *v,
                                                  unpacked_span *out)
{
    GRID_SWITCH(unpack_grid_of, kind, v, out)
}

/* One token by a span of four rows. */
static void add_grid_span(mf_weight_kind kind, const unsigned char *const v[4],
                          const mf_blocks_span *x, vec acc[4])
{
    for (uint32_t r = 0; r < 4; r++) {
        unpacked_span row;
        __m256 sum = _mm256_setzero_ps();
        unpack_grid(kind, v[r], &row);
        MF_UNROLL(8)
        for (uint32_t g = 0; g < CHUNKS; g++) {
            const digits_32 digits = load_digits(x, g);
            sum = _mm256_fmadd_ps(sum_fours(&row.weights[g], &digits), row.scales[g], sum);
        }
        acc[r] = _mm256_fmadd_ps(sum, _mm256_set1_ps(x->units[0]), acc[r]);
    }
}

MF_INLINE void add_span(mf_weight_kind kind, uint32_t n, const span_tables *t,
                        const mf_blocks_rows *w, const unsigned char *const v[4],
                        const unsigned char *const s[4], const unsigned char *tokens,
                        size_t token_bytes, vec acc[FEW][4])
{
    const mf_blocks_span *x = (const void *)tokens;
    (void)n;
    (void)token_bytes;
    if (mf_blocks_has_grid(kind)) {
        add_grid_span(w->kind, v, x, acc[0]);
        return;
    }
    span_scales scales[4];
    __m256 sums[4];
    MF_UNROLL(4)
    for (uint32_t r = 0; r < 4; r++) {
        scales_of(kind, v[r], s[r], w, &scales[r]);
        sums[r] = _mm256_setzero_ps();
        if (mf_blocks_has_min(kind)) {
            const __m256 min[2] = {_mm256_loadu_ps(scales[r].min),
                                   _mm256_loadu_ps(scales[r].min + 8)};
            sums[r] = sum_minima(min, x);
        }
    }
    MF_UNROLL(8)
    for (uint32_t g = 0; g < CHUNKS; g++) {
        const digits_32 digits = load_digits(x, g);
        MF_UNROLL(4)
        for (uint32_t r = 0; r < 4; r++) {
            const weights_32 weights = chunk_weights(kind, t, v[r], g);
            sums[r] = _mm256_fmadd_ps(sum_fours(&weights, &digits),
                                      chunk_scales(kind, g, &scales[r]), sums[r]);
        }
    }
    const __m256 unit = _mm256_set1_ps(x->units[0]);
    MF_UNROLL(4)
    for (uint32_t r = 0; r < 4; r++)
        acc[0][r] = _mm256_fmadd_ps(sums[r], unit, acc[0][r]);
}

MF_INLINE void unpack_span(mf_weight_kind kind, const span_tables *t, const mf_blocks_rows *w,
                           const unsigned char *v, const unsigned char *s, unpacked_span *out)
{
    if (mf_blocks_has_grid(kind)) {
        unpack_grid(w->kind, v, out);
        return;
    }
    span_scales scales;
    scales_of(kind, v, s, w, &scales);
    MF_UNROLL(8)
    for (uint32_t g = 0; g < CHUNKS; g++) {
        out->weights[g] = chunk_weights(kind, t, v, g);
        out->scales[g] = chunk_scales(kind, g, &scales);
    }
    if (mf_blocks_has_min(kind)) {
        out->min[0] = _mm256_loadu_ps(scales.min);
        out->min[1] = _mm256_loadu_ps(scales.min + 8);
    }
}

/* n, a constant, tokens. */
MF_INLINE void add_tile(bool with_min, uint32_t n, const unpacked_span *w,
                        const unsigned char *tokens, size_t token_bytes, vec *acc, size_t apart)
{
    for (uint32_t t = 0; t < n; t++) {
        const mf_blocks_span *x = (const void *)(tokens + t * token_bytes);
        __m256 sums[4];
        MF_UNROLL(4)
        for (uint32_t r = 0; r < 4; r++)
            sums[r] = with_min ? sum_minima(w[r].min, x) : _mm256_setzero_ps();
        MF_ROLLED
        for (uint32_t g = 0; g < CHUNKS; g++) {
            const digits_32 digits = load_digits(x, g);
            MF_UNROLL(4)
            for (uint32_t r = 0; r < 4; r++)
                sums[r] =
                    _mm256_fmadd_ps(sum_fours(&w[r].weights[g], &digits), w[r].scales[g], sums[r]);
        }
        const __m256 unit = _mm256_set1_ps(x->units[0]);
        MF_UNROLL(4)
        for (uint32_t r = 0; r < 4; r++)
            acc[r * apart + t] = _mm256_fmadd_ps(sums[r], unit, acc[r * apart + t]);
    }
}

#include "kernels/x86/blocks_product.h"

size_t mf_blocks_scratch_bytes_avx2(const mf_matrix *w, uint32_t n_tokens)
{
    (void)w;
    return scratch_bytes(n_tokens);
}

void mf_blocks_matmul_avx2(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                           uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    multiply(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

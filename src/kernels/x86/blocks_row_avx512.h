/* SPDX-License-Identifier: MIT */
/*
 * A row's span in formats of blocks as AVX-512 with VNNI multiplies it: digits of activations and
 * weights in the order of lanes, and their sums by each digit. Each lane has 16 columns of a span,
 * which share a scale in every format: 64 columns at once are unpacked in their order, and four
 * such vectors transposed within each 128 bits. So lane 4 * b + c has the columns from 64 * c + 16
 * * b on, four of them in each vector. Formats whose blocks of 32 lie as two halves in nibbles are
 * not transposed: of each block lane 2 * b + c has the columns from 8 * k + 4 * c on in vector k
 * (mf_blocks_is_woven). Crossed ones have the blocks in the order 0, 1, 4, 5, 2, 3, 6, 7, and of
 * odd ones the columns from 8 * (k ^ 1) on (mf_blocks_is_crossed). Where two neighbours share a
 * byte: blocks_pairs_avx512.h.
 */
#ifndef MF_KERNELS_BLOCKS_ROW_AVX512_H
#define MF_KERNELS_BLOCKS_ROW_AVX512_H

#include "kernels/x86/blocks_lanes_avx512.h"
#include "kernels/x86/blocks_pairs_avx512.h"
#include "kernels/x86/fixed_token.h"

#include "kernels/x86/blocks_grids.h"

typedef blocks_tables span_tables;

enum { CHUNKS = 4, CHUNK = 64, DIGITS = 3 };

/* A span of a row. */
typedef struct unpacked_span {
    __m512i weights[CHUNKS];
    __m512 scale, min;
} unpacked_span;

/* Bytes of 256 columns in the order of lanes. */
MF_INLINE void order_lanes(mf_weight_kind kind, const __m512i rows[CHUNKS], __m512i columns[CHUNKS])
{
    if (mf_blocks_is_paired(kind))
        pair(rows, columns);
    else if (mf_blocks_is_woven(kind))
        weave(mf_blocks_is_crossed(kind), rows, columns);
    else
        mf_transpose_fours_avx512(rows, columns);
}

/* Weights of MXFP4 are twice what they mean; of NVFP4, too, but its scales make up for it. */
static float factor_of(mf_weight_kind kind)
{
    return kind == MF_WEIGHT_MXFP4 || kind == MF_WEIGHT_GGUF_MXFP4 ? 0.5f : 1.0f;
}

MF_INLINE void unpack_grid_of(mf_weight_kind kind, const unsigned char *v, unpacked_span *out)
{
    __m512i chunks[CHUNKS];
    __m256 scales[2];
    MF_ROLLED
    for (uint32_t c = 0; c < CHUNKS; c++) {
        const __m256i first = grid_weights(kind, v, 2 * c), last = grid_weights(kind, v, 2 * c + 1);
        chunks[c] = _mm512_xor_si512(_mm512_inserti64x4(_mm512_castsi256_si512(first), last, 1),
                                     _mm512_set1_epi8(-128));
    }
    mf_transpose_fours_avx512(chunks, out->weights);
    grid_scales(kind, v, scales);
    const span_scales both = {
        .scale = _mm512_insertf32x8(_mm512_castps256_ps512(scales[0]), scales[1], 1)};
    out->scale = lane_scales(kind, &both);
}

/* A span of codebooks: as long as the products by it, so that a call does not matter. */
__attribute__((noinline)) static void unpack_grid(mf_weight_kind kind, const unsigned char *v,
                                                  unpacked_span *out){
    GRID_SWITCH(unpack_grid_of, kind, v, out)}

MF_INLINE void unpack_span(mf_weight_kind kind, const span_tables *t, const mf_blocks_rows *w,
                           const unsigned char *v, const unsigned char *s, unpacked_span *out)
{
    if (mf_blocks_has_grid(kind)) {
        unpack_grid(w->kind, v, out);
        return;
    }
    if (mf_blocks_is_paired(kind)) {
        const unsigned char *const one[4] = {s};
        __m512 scales[4];
        paired_weights(t, v, out->weights);
        paired_scales(kind, 1, t, w, one, scales);
        out->scale = scales[0];
        return;
    }
    const span_scales scales = scales_of(kind, t, v, s, w);
    if (mf_blocks_is_woven(kind)) {
        woven_weights(kind, t, v, out->weights);
    } else {
        __m512i chunks[CHUNKS];
        MF_UNROLL(4)
        for (uint32_t c = 0; c < CHUNKS; c++)
            chunks[c] = chunk_weights(kind, t, v, c);
        mf_transpose_fours_avx512(chunks, out->weights);
    }
    out->scale = lane_scales(kind, &scales);
    if (mf_blocks_has_min(kind))
        out->min = lane_minima(kind, &scales);
}

/* Whether few tokens are multiplied by the codes as they are stored, which several have together
 * then. */
MF_INLINE bool goes_by_codes(mf_weight_kind kind)
{
    return kind == MF_WEIGHT_GGUF_Q4_0 || kind == MF_WEIGHT_GGUF_Q4_K ||
           kind == MF_WEIGHT_GGUF_Q5_K;
}

/* Sums of a row by each digit. */
typedef struct digit_sums {
    __m512i low, middle, high;
} digit_sums;

/* Each its own, so that none waits for itself; the lowest begins with offset. */
MF_INLINE digit_sums add_digits(const __m512i weights[4],
                                const signed char digits[DIGITS][CHUNKS][CHUNK], __m512i offset)
{
    digit_sums s = {offset, _mm512_setzero_si512(), _mm512_setzero_si512()};
    MF_UNROLL(4)
    for (uint32_t k = 0; k < CHUNKS; k++) {
        s.low = add_products(s.low, weights[k], _mm512_loadu_si512(digits[0][k]));
        s.middle = add_products(s.middle, weights[k], _mm512_loadu_si512(digits[1][k]));
        s.high = add_products(s.high, weights[k], _mm512_loadu_si512(digits[2][k]));
    }
    return s;
}

MF_INLINE __m512i join(digit_sums s)
{
    const __m512i upper = _mm512_add_epi32(s.middle, _mm512_slli_epi32(s.high, 8));
    return _mm512_add_epi32(s.low, _mm512_slli_epi32(upper, 8));
}

#endif

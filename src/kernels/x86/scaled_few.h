/* SPDX-License-Identifier: MIT */
/*
 * Blocks with a float for their scale (scaled_token.h) by one token, or two, which wait for memory:
 * by vectors. The two lanes of a block are added up as integers; so the sums of four rows' blocks
 * are two vectors, of which each quarter has a block of the four rows: of even blocks and of odd
 * ones, of paired formats of the first four and of the last.
 */
#ifndef MF_KERNELS_SCALED_FEW_H
#define MF_KERNELS_SCALED_FEW_H

#include "kernels/x86/blocks_row_avx512.h"
#include "kernels/x86/scaled_token.h"

typedef mf_scaled_lanes token_span;
typedef __m128 vec; /* the sums of four rows are acc[0] */

enum { FEW = 2 };

MF_INLINE vec zero_vec(void)
{
    return _mm_setzero_ps();
}

MF_INLINE void sum_four(mf_weight_kind kind, const vec v[4], float out[4])
{
    (void)kind;
    _mm_storeu_ps(out, v[0]);
}

/* Whether weights are multiplied as they are stored, 8 above what they are; else 128. */
MF_INLINE bool is_by_codes(mf_weight_kind kind)
{
    return kind == MF_WEIGHT_GGUF_Q4_0 || kind == MF_WEIGHT_INT4;
}

/* Whether the two lanes of a block are neighbours; else they are in neighbouring quarters. */
MF_INLINE bool has_neighbours(mf_weight_kind kind)
{
    return mf_blocks_is_woven(kind) || mf_blocks_is_paired(kind);
}

/* Of both vectors the first lane of each block, or the last. */
MF_INLINE __m512 firsts_of(mf_weight_kind kind, __m512 a, __m512 b)
{
    return has_neighbours(kind) ? _mm512_shuffle_ps(a, b, 0x88) : _mm512_shuffle_f32x4(a, b, 0x88);
}

MF_INLINE __m512 lasts_of(mf_weight_kind kind, __m512 a, __m512 b)
{
    return has_neighbours(kind) ? _mm512_shuffle_ps(a, b, 0xdd) : _mm512_shuffle_f32x4(a, b, 0xdd);
}

/* Of two vectors of two rows each: quarters of four rows. */
MF_INLINE void order_blocks(mf_weight_kind kind, __m512 front, __m512 back, __m512 out[2])
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    out[0] = firsts_of(kind, front, back);
    out[1] = lasts_of(kind, front, back);
    if (has_neighbours(kind))
        return;
    out[0] = _mm512_permutexvar_ps(order, out[0]);
    out[1] = _mm512_permutexvar_ps(order, out[1]);
}

/* The sums of two rows' blocks. */
MF_INLINE __m512 add_lanes(mf_weight_kind kind, __m512i a, __m512i b)
{
    const __m512 x = _mm512_castsi512_ps(a), y = _mm512_castsi512_ps(b);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(firsts_of(kind, x, y)),
                                                _mm512_castps_si512(lasts_of(kind, x, y))));
}

MF_INLINE void order_sums(mf_weight_kind kind, const __m512i sums[4], const float units[2][16],
                          __m512 out[2])
{
    order_blocks(kind, add_lanes(kind, sums[0], sums[1]), add_lanes(kind, sums[2], sums[3]), out);
    MF_UNROLL(2)
    for (uint32_t i = 0; i < 2; i++)
        out[i] = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_castps_si512(out[i])),
                               _mm512_loadu_ps(units[i]));
}

MF_INLINE void order_scales(mf_weight_kind kind, const __m512 scales[4], __m512 out[2])
{
    order_blocks(kind, firsts_of(kind, scales[0], scales[1]), firsts_of(kind, scales[2], scales[3]),
                 out);
}

#define ADD_QUARTER(acc, half, quarter)                       \
    _mm_fmadd_ps(_mm512_extractf32x4_ps(sums[half], quarter), \
                 _mm512_extractf32x4_ps(scales[half], quarter), acc)

/* What the eight blocks of a span add to four rows, in the order of the columns. */
MF_INLINE vec add_blocks(mf_weight_kind kind, const __m512 sums[2], const __m512 scales[2], vec acc)
{
    const bool is_paired = mf_blocks_is_paired(kind);
    acc = ADD_QUARTER(acc, 0, 0);
    if (is_paired) {
        acc = ADD_QUARTER(acc, 0, 1);
        acc = ADD_QUARTER(acc, 0, 2);
        acc = ADD_QUARTER(acc, 0, 3);
        acc = ADD_QUARTER(acc, 1, 0);
        acc = ADD_QUARTER(acc, 1, 1);
        acc = ADD_QUARTER(acc, 1, 2);
    } else {
        acc = ADD_QUARTER(acc, 1, 0);
        acc = ADD_QUARTER(acc, 0, 1);
        acc = ADD_QUARTER(acc, 1, 1);
        acc = ADD_QUARTER(acc, 0, 2);
        acc = ADD_QUARTER(acc, 1, 2);
        acc = ADD_QUARTER(acc, 0, 3);
    }
    return ADD_QUARTER(acc, 1, 3);
}

#undef ADD_QUARTER

/* A span of a row as it is multiplied; the scales of paired formats lie apart. */
MF_INLINE void unpack_one(mf_weight_kind kind, const span_tables *t, const mf_blocks_rows *w,
                          const unsigned char *v, const unsigned char *s, unpacked_span *out)
{
    if (kind == MF_WEIGHT_INT4) {
        paired_codes(v, out->weights);
    } else if (kind == MF_WEIGHT_MXFP4) {
        paired_weights(t, v, out->weights);
    } else if (kind == MF_WEIGHT_GGUF_Q4_0) {
        const span_scales scales = scales_of(kind, t, v, s, w);
        woven_codes(kind, t, v, out->weights);
        out->scale = lane_scales(kind, &scales);
    } else {
        unpack_span(kind, t, w, v, s, out);
    }
}

MF_INLINE void add_span(mf_weight_kind kind, uint32_t n, const span_tables *t,
                        const mf_blocks_rows *w, const unsigned char *const v[4],
                        const unsigned char *const s[4], const unsigned char *tokens,
                        size_t token_bytes, vec acc[FEW][4])
{
    __m512i row_sums[FEW][4];
    __m512 row_scales[4], scales[2];
    if (mf_blocks_is_paired(kind))
        paired_scales(kind, 4, t, w, s, row_scales);
    MF_UNROLL(4)
    for (uint32_t r = 0; r < 4; r++) {
        unpacked_span row;
        unpack_one(kind, t, w, v[r], s[r], &row);
        MF_UNROLL(2)
        for (uint32_t i = 0; i < n; i++) {
            const mf_scaled_lanes *x = (const void *)(tokens + i * token_bytes);
            row_sums[i][r] =
                join(add_digits(row.weights, x->digits, _mm512_loadu_si512(x->offsets)));
        }
        if (!mf_blocks_is_paired(kind))
            row_scales[r] = row.scale;
    }
    order_scales(kind, row_scales, scales);
    MF_UNROLL(2)
    for (uint32_t i = 0; i < n; i++) {
        const mf_scaled_lanes *x = (const void *)(tokens + i * token_bytes);
        __m512 sums[2];
        order_sums(kind, row_sums[i], x->units, sums);
        acc[i][0] = add_blocks(kind, sums, scales, acc[i][0]);
    }
}

#include "kernels/x86/blocks_few.h"

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The forms in which two neighbouring columns share a byte, the even one low, and scales lie apart
 * (mf_blocks_is_paired): MXFP4, NVFP4 and integers of 4 bits. Of the 16 columns of a lane
 * (paired_block) vectors 0 and 2 have the first eight, the even and the odd ones, and vectors 1
 * and 3 the last eight. So two moves bring a span of weights to their places, and all of a lane
 * have one scale.
 */
#ifndef MF_KERNELS_BLOCKS_PAIRS_AVX512_H
#define MF_KERNELS_BLOCKS_PAIRS_AVX512_H

#include "kernels/x86/blocks_unpack_avx512.h"

/* ------------------------------------------------------------------------------- activations -- */

/* Of 256 bytes in their order those of each vector. */
MF_INLINE void pair(const __m512i rows[4], __m512i columns[4])
{
    const __m512i apart =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    /* lane 4 * b + c of what is transposed has columns from 64 * c + 16 * b on */
    const __m512i order = _mm512_setr_epi32(0, 4, 2, 6, 8, 12, 10, 14, 1, 5, 3, 7, 9, 13, 11, 15);
    __m512i halves[4];
    MF_UNROLL(4)
    for (uint32_t c = 0; c < 4; c++)
        halves[c] = _mm512_shuffle_epi8(rows[c], apart);
    mf_transpose_fours_avx512(halves, columns);
    MF_UNROLL(4)
    for (uint32_t k = 0; k < 4; k++)
        columns[k] = _mm512_permutexvar_epi32(order, columns[k]);
}

/* ------------------------------------------------------------------------------------ scales -- */

MF_INLINE uint64_t eight_at(const unsigned char *p)
{
    uint64_t eight;
    memcpy(&eight, p, sizeof eight);
    return eight;
}

/* Not 0 if one of eight e4m3 codes is no number. */
MF_INLINE uint64_t rare_e4m3(uint64_t codes)
{
    const uint64_t each = 0x0101010101010101;
    return ((codes & 0x7f * each) + each) & each << 7;
}

/* Of n (a constant) rows, by lanes. */
MF_INLINE void mxfp4_scales(uint32_t n, const unsigned char *const s[4], __m512 out[4])
{
    const __m512i at =
        _mm512_set_epi32(0x07ffffff, 0x07ffffff, 0x03ffffff, 0x03ffffff, 0x06ffffff, 0x06ffffff,
                         0x02ffffff, 0x02ffffff, 0x05ffffff, 0x05ffffff, 0x01ffffff, 0x01ffffff,
                         0x04ffffff, 0x04ffffff, 0x00ffffff, 0x00ffffff);
    MF_UNROLL(4)
    for (uint32_t r = 0; r < n; r++) {
        const __m128i codes = _mm_loadl_epi64((const __m128i *)(const void *)s[r]);
        out[r] = exponents_of(_mm512_shuffle_epi8(_mm512_broadcastq_epi64(codes), at));
    }
}

MF_INLINE void nvfp4_scales(uint32_t n, const unsigned char *const s[4], __m512 out[4])
{
    const __m256i at =
        _mm256_set_epi16(0x0fff, 0x0eff, 0x07ff, 0x06ff, 0x0dff, 0x0cff, 0x05ff, 0x04ff, 0x0bff,
                         0x0aff, 0x03ff, 0x02ff, 0x09ff, 0x08ff, 0x01ff, 0x00ff);
    __m256i codes[4];
    uint64_t rare = 0;
    MF_UNROLL(4)
    for (uint32_t r = 0; r < n; r++) {
        codes[r] = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load_16(s[r])), at);
        rare |= rare_e4m3(eight_at(s[r])) | rare_e4m3(eight_at(s[r] + 8));
        out[r] = e4m3_of(codes[r]);
    }
    if (rare != 0) {
        MF_UNROLL(4)
        for (uint32_t r = 0; r < n; r++)
            out[r] = e4m3_or_nan(codes[r], out[r]);
    }
}

/* Integers' scales, of which a span has 2, 4 or 8: t->halves has where they lie. */
MF_INLINE void int4_scales(uint32_t n, const blocks_tables *t, const mf_blocks_rows *w,
                           const unsigned char *const s[4], __m512 out[4])
{
    __m512i v[4];
    if (w->scale_span_bytes == 16) {
        MF_UNROLL(4)
        for (uint32_t r = 0; r < n; r++)
            v[r] = _mm512_castsi128_si512(load_16(s[r]));
    } else if (w->scale_span_bytes == 4) {
        MF_UNROLL(4)
        for (uint32_t r = 0; r < n; r++)
            v[r] = _mm512_castsi128_si512(_mm_loadu_si32(s[r]));
    } else if (w->scale_span_bytes == 8) {
        MF_UNROLL(4)
        for (uint32_t r = 0; r < n; r++)
            v[r] = _mm512_castsi128_si512(_mm_loadl_epi64((const __m128i *)(const void *)s[r]));
    } else {
        MF_UNROLL(4)
        for (uint32_t r = 0; r < n; r++)
            v[r] = _mm512_castsi256_si512(load_32(s[r]));
    }
    const __mmask32 words = w->scale_type == MF_BF16 ? 0xaaaaaaaa : 0xffffffff;
    MF_UNROLL(4)
    for (uint32_t r = 0; r < n; r++)
        out[r] = _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(words, t->halves, v[r]));
    if (w->scale_type == MF_F16) {
        MF_UNROLL(4)
        for (uint32_t r = 0; r < n; r++)
            out[r] = _mm512_cvtph_ps(_mm512_castsi512_si256(_mm512_castps_si512(out[r])));
    }
}

MF_INLINE void paired_scales(mf_weight_kind kind, uint32_t n, const blocks_tables *t,
                             const mf_blocks_rows *w, const unsigned char *const s[4],
                             __m512 out[4])
{
    if (kind == MF_WEIGHT_MXFP4)
        mxfp4_scales(n, s, out);
    else if (kind == MF_WEIGHT_INT4)
        int4_scales(n, t, w, s, out);
    else
        nvfp4_scales(n, s, out);
}

/* ----------------------------------------------------------------------------------- weights -- */

/* Of a span the bytes of each 8 columns, the first and the last. */
MF_INLINE void paired_bytes(const unsigned char *p, __m512i out[2])
{
    const __m512 front = _mm512_loadu_ps(p), back = _mm512_loadu_ps(p + 64);
    out[0] = _mm512_castps_si512(_mm512_shuffle_ps(front, back, 0x88));
    out[1] = _mm512_castps_si512(_mm512_shuffle_ps(front, back, 0xdd));
}

/* 128 above what they are. */
MF_INLINE void paired_weights(const blocks_tables *t, const unsigned char *p, __m512i out[4])
{
    __m512i v[2];
    paired_bytes(p, v);
    MF_UNROLL(2)
    for (uint32_t k = 0; k < 2; k++) {
        out[k] = look_up(t, v[k]);
        out[2 + k] = look_up(t, _mm512_srli_epi32(v[k], 4));
    }
}

/* As they are stored. */
MF_INLINE void paired_codes(const unsigned char *p, __m512i out[4])
{
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512i v[2];
    paired_bytes(p, v);
    MF_UNROLL(2)
    for (uint32_t k = 0; k < 2; k++) {
        out[k] = _mm512_and_si512(v[k], nibble);
        out[2 + k] = _mm512_and_si512(_mm512_srli_epi32(v[k], 4), nibble);
    }
}

#endif

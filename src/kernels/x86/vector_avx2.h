/* SPDX-License-Identifier: MIT */
/*
 * AVX2 vectors of the matrix products: loads of every float type and of FP8, tails, and the sum
 * that every dot product ends with. Private to the AVX2 tier's files.
 */
#ifndef MF_KERNELS_VECTOR_AVX2_H
#define MF_KERNELS_VECTOR_AVX2_H

#include "base/fp8.h"
#include "kernels/kernels.h"
#include "kernels/x86/unroll.h"

#include <immintrin.h>

#define MF_INLINE static inline __attribute__((always_inline))

/* A dot product has four accumulators of eight positions each, taken in turn. */
enum { MF_LANES_AVX2 = 8, MF_CHAINS_AVX2 = 4, MF_STEP_AVX2 = MF_LANES_AVX2 * MF_CHAINS_AVX2 };

static inline float mf_float_at_avx2(const unsigned char *p, mf_dtype type, size_t i)
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

/* 8 values of a float type, from any address. */
MF_INLINE __m256 mf_load_float_avx2(const unsigned char *p, mf_dtype type)
{
    if (type == MF_F32)
        return _mm256_loadu_ps((const float *)(const void *)p);
    __m128i half = _mm_loadu_si128((const __m128i *)(const void *)p);
    if (type == MF_F16)
        return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/*
 * 16 e4m3 values times 2^-8, in order: moved into place their bits are those of float16 numbers,
 * subnormals included. NaN comes out as 480 * 2^-8; whoever calls this looks for it.
 */
MF_INLINE void mf_load_fp8_avx2(const unsigned char *p, __m256 out[2])
{
    __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    words = _mm256_and_si256(_mm256_slli_epi16(words, 7), _mm256_set1_epi16((short)0xbf80));
    out[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(words));
    out[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(words, 1));
}

/* The larger of each byte of `most` and twice (mod 256) the code of p[0 .. 31]: 254 where there was
 * a NaN. */
MF_INLINE __m256i mf_fp8_most_avx2(__m256i most, const unsigned char *p)
{
    __m256i codes = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm256_max_epu8(most, _mm256_add_epi8(codes, codes));
}

MF_INLINE bool mf_fp8_has_nan_avx2(__m256i most)
{
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(most, _mm256_set1_epi8((char)254))) != 0;
}

/* The scale of 128 columns from `first` on (a multiple of 128); `scales` are those of the row. */
MF_INLINE float mf_fp8_scale_avx2(const unsigned char *scales, uint32_t first)
{
    float scale;
    memcpy(&scale, scales + 4 * (size_t)(first / MF_FP8_BLOCK), sizeof scale);
    return scale;
}

/* The bytes of 32 values: those of the first 16 in one lane, those of the others in the other. */
MF_INLINE __m256i mf_packed_avx2(uint32_t bits, const unsigned char *p)
{
    if (bits == 2) { /* two loads of 16 bytes would read past the next 32 values */
        long long all;
        memcpy(&all, p, sizeof all);
        return _mm256_srlv_epi64(_mm256_set1_epi64x(all), _mm256_setr_epi64x(0, 0, 32, 32));
    }
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)p)),
        _mm_loadu_si128((const __m128i *)(const void *)(p + 2 * (size_t)bits)), 1);
}

/* The factor that moves value i of `bits` from its place in a word to the top. */
#define MF_RAISE(i) ((short)(1u << (16 - bits - (i)*bits % 8)))

/*
 * 32 packed values of `bits` (a constant: 2 to 6, 8) at p, as integers in order. Each 128-bit lane
 * takes 16 of them: the two bytes that a value lies in become a 16-bit word, a product shifts the
 * value to its top, and a shift back drops what was below. Of 3 to 6 bits, up to 10 bytes after
 * the values, fewer than the next 32 take, are read too.
 */
MF_INLINE void mf_unpack_avx2(uint32_t bits, const unsigned char *p, __m256i out[4])
{
    if (bits == 8) {
        for (int i = 0; i < 4; i++)
            out[i] =
                _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p + 8 * i)));
        return;
    }
    const __m256i packed = mf_packed_avx2(bits, p);
    const __m128i first_bit =
        _mm_mullo_epi16(_mm_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7), _mm_set1_epi16((short)bits));
    const __m128i byte = _mm_srli_epi16(first_bit, 3);
    /* byte and byte + 1, side by side */
    const __m256i words = _mm256_broadcastsi128_si256(
        _mm_add_epi16(_mm_or_si128(byte, _mm_slli_epi16(byte, 8)), _mm_set1_epi16(256)));
    const __m256i next = _mm256_add_epi8(words, _mm256_set1_epi8((char)bits));
    const short top = (short)(16 - bits);
    const __m256i raise = _mm256_setr_epi16(MF_RAISE(0), MF_RAISE(1), MF_RAISE(2), MF_RAISE(3),
                                            MF_RAISE(4), MF_RAISE(5), MF_RAISE(6), MF_RAISE(7),
                                            MF_RAISE(0), MF_RAISE(1), MF_RAISE(2), MF_RAISE(3),
                                            MF_RAISE(4), MF_RAISE(5), MF_RAISE(6), MF_RAISE(7));
    __m256i a = _mm256_mullo_epi16(_mm256_shuffle_epi8(packed, words), raise);
    __m256i b = _mm256_mullo_epi16(_mm256_shuffle_epi8(packed, next), raise);
    a = _mm256_srli_epi16(a, top);
    b = _mm256_srli_epi16(b, top);
    out[0] = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(a));
    out[1] = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(b));
    out[2] = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1));
    out[3] = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(b, 1));
}

/* 32 weights at p, q * scale + bias. `is_last`: nothing after them may be read. */
MF_INLINE void mf_weights_avx2(uint32_t bits, bool is_last, const unsigned char *p, __m256 scale,
                               __m256 bias, __m256 out[4])
{
    __m256i q[4];
    if (is_last) {
        unsigned char padded[32] = {0};
        memcpy(padded, p, 4 * (size_t)bits);
        mf_unpack_avx2(bits, padded, q);
    } else {
        mf_unpack_avx2(bits, p, q);
    }
    for (int i = 0; i < 4; i++)
        out[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(q[i]), scale, bias);
}

/* The first n (1 to 8) lanes at p, zeros after them; reads nothing past them. */
MF_INLINE __m256 mf_load_tail_avx2(const float *p, uint32_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane));
}

/* The largest magnitude of n values, a multiple of 8; NaN if there is one. */
MF_INLINE float mf_largest_avx2(const float *x, uint32_t n)
{
    __m256i max = _mm256_setzero_si256();
    for (uint32_t i = 0; i < n; i += 8) {
        const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + i));
        max = _mm256_max_epu32(max, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
    }
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(m));
}

/* acc + products, of 16 bits. By hand, as gcc 12 copies the intrinsic's accumulators at each use,
 * or adds the products up first and has no registers for them. */
MF_INLINE __m256i mf_add_words_avx2(__m256i acc, __m256i products)
{
    __asm__("vpaddw %1, %0, %0" : "+x"(acc) : "x"(products));
    return acc;
}

/* Lane r of column c of the result is lane c of rows[r]. */
MF_INLINE void mf_transpose_avx2(const __m256i rows[8], __m256i columns[8])
{
    __m256i pairs[8], fours[8];
    MF_UNROLL(4)
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = _mm256_unpacklo_epi32(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    MF_UNROLL(2)
    for (int i = 0; i < 8; i += 4) {
        fours[i] = _mm256_unpacklo_epi64(pairs[i], pairs[i + 2]);
        fours[i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[i + 2]);
        fours[i + 2] = _mm256_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
        fours[i + 3] = _mm256_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    MF_UNROLL(4)
    for (int i = 0; i < 4; i++) {
        columns[i] = _mm256_permute2x128_si256(fours[i], fours[4 + i], 0x20);
        columns[4 + i] = _mm256_permute2x128_si256(fours[i], fours[4 + i], 0x31);
    }
}

MF_INLINE float mf_sum_lanes_avx2(const __m256 acc[MF_CHAINS_AVX2])
{
    __m256 v = _mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3]));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    s = _mm_add_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}

#endif

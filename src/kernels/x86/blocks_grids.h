/* SPDX-License-Identifier: MIT */
/*
 * GGUF's formats of less than 4 bits whose values are numbered in codebooks (IQ1, IQ2, IQ3) or are
 * ternary (TQ1, TQ2): a span's scales, and 32 of its weights at once as signed bytes. What they
 * mean is in base/weight_iq.c and base/weight_gguf.c; IQ1's values are here eight times as large,
 * so that they are integers, and its scales an eighth. `kind` is a constant everywhere,
 * `g` which 32 columns. For all tiers from AVX2 on, whose own headers come first.
 */
#ifndef MF_KERNELS_BLOCKS_GRIDS_H
#define MF_KERNELS_BLOCKS_GRIDS_H

#include "base/weight_grids.h"
#include "kernels/x86/blocks_token.h"

#include <immintrin.h>

MF_INLINE uint32_t grid_u16(const unsigned char *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

MF_INLINE uint32_t grid_u32(const unsigned char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

MF_INLINE __m256i grid_32(const unsigned char *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

/* ------------------------------------------------------------------------------------ scales -- */

/* Sixteen numbers of 4 bits in 8 bytes, or eight in 4: as bytes, in order. */
MF_INLINE __m128i grid_nibbles(__m128i bytes)
{
    const __m128i low = _mm_set1_epi8(15);
    return _mm_unpacklo_epi8(_mm_and_si128(bytes, low),
                             _mm_and_si128(_mm_srli_epi16(bytes, 4), low));
}

/* The numbers of a span's scales, of 32 columns each, or of 16. */
MF_INLINE void grid_numbers(mf_weight_kind kind, const unsigned char *p, __m256i out[2])
{
    __m128i bytes;
    out[0] = out[1] = _mm256_setzero_si256();
    switch (kind) {
    case MF_WEIGHT_GGUF_IQ2_XXS: { /* the highest bits of every other word */
        const __m256 a = _mm256_castsi256_ps(grid_32(p + 2)),
                     b = _mm256_castsi256_ps(grid_32(p + 34));
        const __m256i odd = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd));
        out[0] = _mm256_srli_epi32(_mm256_permute4x64_epi64(odd, 0xd8), 28);
        break;
    }
    case MF_WEIGHT_GGUF_IQ3_XXS:
        out[0] = _mm256_srli_epi32(grid_32(p + 66), 28);
        break;
    case MF_WEIGHT_GGUF_IQ2_XS:
    case MF_WEIGHT_GGUF_IQ2_S:
        p += kind == MF_WEIGHT_GGUF_IQ2_XS ? 66 : 74;
        bytes = grid_nibbles(_mm_loadl_epi64((const __m128i *)(const void *)p));
        out[0] = _mm256_cvtepu8_epi32(bytes);
        out[1] = _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8));
        break;
    case MF_WEIGHT_GGUF_IQ3_S:
        out[0] = _mm256_cvtepu8_epi32(grid_nibbles(_mm_cvtsi32_si128((int)grid_u32(p + 106))));
        break;
    case MF_WEIGHT_GGUF_IQ1_S:
        bytes = _mm_loadu_si128((const __m128i *)(const void *)(p + 34));
        out[0] = _mm256_and_si256(_mm256_srli_epi32(_mm256_cvtepu16_epi32(bytes), 12),
                                  _mm256_set1_epi32(7));
        break;
    default: /* IQ1_M */
        for (int i = 0; i < 2; i++) {
            const int a = (int)grid_u16(p + 48 + 4 * i), b = (int)grid_u16(p + 50 + 4 * i);
            out[i] = _mm256_and_si256(_mm256_srlv_epi32(_mm256_setr_epi32(a, a, a, a, b, b, b, b),
                                                        _mm256_setr_epi32(0, 3, 6, 9, 0, 3, 6, 9)),
                                      _mm256_set1_epi32(7));
        }
        break;
    }
}

/* A span's float16. */
MF_INLINE uint32_t grid_half(mf_weight_kind kind, const unsigned char *p)
{
    switch (kind) {
    case MF_WEIGHT_GGUF_TQ1_0:
        return grid_u16(p + 52);
    case MF_WEIGHT_GGUF_TQ2_0:
        return grid_u16(p + 64);
    case MF_WEIGHT_GGUF_IQ1_M: /* 4 bits in each of four */
        return grid_u16(p + 48) >> 12 | (grid_u16(p + 50) >> 8 & 0xf0) |
               (grid_u16(p + 52) >> 4 & 0xf00) | (grid_u16(p + 54) & 0xf000);
    default:
        return grid_u16(p);
    }
}

/* What all of a span's scales are multiplied by. */
MF_INLINE __m256 grid_factor(mf_weight_kind kind, const unsigned char *p)
{
    const __m256 d = _mm256_cvtph_ps(_mm_set1_epi16((short)grid_half(kind, p)));
    if (kind == MF_WEIGHT_GGUF_TQ1_0 || kind == MF_WEIGHT_GGUF_TQ2_0 ||
        kind == MF_WEIGHT_GGUF_IQ3_S)
        return d;
    return _mm256_mul_ps(d, _mm256_set1_ps(kind == MF_WEIGHT_GGUF_IQ3_XXS ? 0.25f : 0.125f));
}

/* A span's scales: eight of 32 columns each, or sixteen of 16. */
MF_INLINE void grid_scales(mf_weight_kind kind, const unsigned char *p, __m256 out[2])
{
    const __m256 factor = grid_factor(kind, p);
    __m256i numbers[2];
    out[0] = out[1] = factor;
    if (kind == MF_WEIGHT_GGUF_TQ1_0 || kind == MF_WEIGHT_GGUF_TQ2_0)
        return;
    grid_numbers(kind, p, numbers);
    for (int i = 0; i < 2; i++) {
        const __m256i n = _mm256_add_epi32(_mm256_slli_epi32(numbers[i], 1), _mm256_set1_epi32(1));
        out[i] = _mm256_mul_ps(_mm256_cvtepi32_ps(n), factor);
    }
}

/* ----------------------------------------------------------------------------------- ternary -- */

/* A digit in base 3, less one, of bytes that are fractions of 256: the first place. */
MF_INLINE __m256i grid_digits(__m256i bytes)
{
    const __m256i one = _mm256_set1_epi8(86), two = _mm256_set1_epi8((char)171);
    const __m256i is_one = _mm256_cmpeq_epi8(_mm256_max_epu8(bytes, one), bytes);
    const __m256i is_two = _mm256_cmpeq_epi8(_mm256_max_epu8(bytes, two), bytes);
    return _mm256_sub_epi8(_mm256_set1_epi8(-1), _mm256_add_epi8(is_one, is_two));
}

/* The next place of all digits. */
MF_INLINE __m256i grid_next(__m256i bytes)
{
    return _mm256_add_epi8(bytes, _mm256_add_epi8(bytes, bytes));
}

/* Two places of 16 bytes side by side, the first of them `place`. */
MF_INLINE __m256i grid_two_places(const unsigned char *p, uint32_t place)
{
    __m256i v = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)p));
    for (uint32_t i = 0; i < place; i++)
        v = grid_next(v);
    return _mm256_blend_epi32(v, grid_next(v), 0xf0);
}

MF_INLINE __m256i tq1_0_weights(const unsigned char *p, uint32_t g)
{
    if (g < 5) {
        __m256i v = grid_32(p);
        for (uint32_t i = 0; i < g; i++)
            v = grid_next(v);
        return grid_digits(v);
    }
    if (g < 7)
        return grid_digits(grid_two_places(p + 32, 2 * (g - 5)));
    /* the last place of 16 bytes, and four of 4 bytes */
    const __m256i first = _mm256_set1_epi32((int)grid_u32(p + 48)), second = grid_next(first);
    const __m256i third = grid_next(second), fourth = grid_next(third);
    const __m256i four = _mm256_blend_epi32(_mm256_blend_epi32(first, second, 0x22),
                                            _mm256_blend_epi32(third, fourth, 0x88), 0xcc);
    return grid_digits(_mm256_blend_epi32(grid_two_places(p + 32, 4), four, 0xf0));
}

MF_INLINE __m256i tq2_0_weights(const unsigned char *p, uint32_t g)
{
    const __m256i v =
        _mm256_srl_epi16(grid_32(p + (size_t)(g / 4) * 32), _mm_cvtsi32_si128((int)(g % 4) * 2));
    return _mm256_sub_epi8(_mm256_and_si256(v, _mm256_set1_epi8(3)), _mm256_set1_epi8(1));
}

/* ----------------------------------------------------------------------------------- entries -- */

/* Number i of eight times 2 bits, or of four times 3, in byte i. */
MF_INLINE __m256i spread_twos(__m256i entries)
{
#if defined(__AVX512VBMI__) && defined(__AVX512VL__)
    const __m256i at = _mm256_set1_epi64x(0x0e0c0a0806040200);
    return _mm256_and_si256(_mm256_multishift_epi64_epi8(at, entries), _mm256_set1_epi8(3));
#else
    __m256i v = _mm256_or_si256(entries, _mm256_slli_epi64(entries, 24));
    v = _mm256_and_si256(v, _mm256_set1_epi64x(0x000000ff000000ff));
    v = _mm256_or_si256(v, _mm256_slli_epi64(v, 12));
    v = _mm256_and_si256(v, _mm256_set1_epi64x(0x000f000f000f000f));
    v = _mm256_or_si256(v, _mm256_slli_epi64(v, 6));
    return _mm256_and_si256(v, _mm256_set1_epi8(3));
#endif
}

MF_INLINE __m256i spread_threes(__m256i entries)
{
#if defined(__AVX512VBMI__) && defined(__AVX512VL__)
    const __m256i at = _mm256_set1_epi64x(0x2926232009060300);
    return _mm256_and_si256(_mm256_multishift_epi64_epi8(at, entries), _mm256_set1_epi8(7));
#else
    __m256i v = _mm256_or_si256(entries, _mm256_slli_epi32(entries, 10));
    v = _mm256_and_si256(v, _mm256_set1_epi32(0x003f003f));
    v = _mm256_or_si256(v, _mm256_slli_epi32(v, 5));
    return _mm256_and_si256(v, _mm256_set1_epi8(7));
#endif
}

/* Entry i of the four, or of IQ3 eight, of 32 columns. */
MF_INLINE uint16_t grid_entry(mf_weight_kind kind, const unsigned char *p, uint32_t g, uint32_t i)
{
    uint32_t at;
    switch (kind) {
    case MF_WEIGHT_GGUF_IQ2_XXS:
        return mf_grid_iq2_xxs[p[2 + 8 * g + i]];
    case MF_WEIGHT_GGUF_IQ2_XS:
        return mf_grid_iq2_xs[grid_u16(p + 2 + 8 * g + 2 * i) & 511];
    case MF_WEIGHT_GGUF_IQ2_S:
        at = ((uint32_t)p[66 + g] >> (2 * i) & 3) << 8;
        return mf_grid_iq2_s[p[2 + 4 * g + i] | at];
    case MF_WEIGHT_GGUF_IQ3_XXS:
        return mf_grid_iq3_xxs[p[2 + 8 * g + i]];
    case MF_WEIGHT_GGUF_IQ3_S:
        at = ((uint32_t)p[66 + g] >> i & 1) << 8;
        return mf_grid_iq3_s[p[2 + 8 * g + i] | at];
    case MF_WEIGHT_GGUF_IQ1_S:
        at = (grid_u16(p + 34 + 2 * g) >> (3 * i) & 7) << 8;
        return mf_grid_iq1[p[2 + 4 * g + i] | at];
    default: /* IQ1_M */
        at = (grid_u16(p + 32 + 2 * g) >> (4 * i) & 7) << 8;
        return mf_grid_iq1[p[4 * g + i] | at];
    }
}

/* Four bytes of 7 bits: the highest bit makes the number of ones even. */
MF_INLINE uint32_t make_even(uint32_t bytes)
{
    uint32_t parity = bytes ^ bytes >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return bytes | (parity & 0x01010101) << 7;
}

/* Four times 7 bits, made so. */
MF_INLINE uint32_t even_signs(uint32_t bits)
{
    return make_even((bits & 0x7f) | (bits << 1 & 0x7f00) | (bits << 2 & 0x7f0000) |
                     (bits << 3 & 0x7f000000));
}

/* Which of 32 columns are negative. */
MF_INLINE uint32_t grid_signs(mf_weight_kind kind, const unsigned char *p, uint32_t g)
{
    uint64_t four;
    switch (kind) {
    case MF_WEIGHT_GGUF_IQ2_XXS:
        return even_signs(grid_u32(p + 6 + 8 * g));
    case MF_WEIGHT_GGUF_IQ3_XXS:
        return even_signs(grid_u32(p + 66 + 4 * g));
    case MF_WEIGHT_GGUF_IQ2_XS: /* the highest 7 bits of four times 16 */
        memcpy(&four, p + 2 + 8 * g, sizeof four);
        return make_even((uint32_t)((four >> 9 & 0x7f) | (four >> 17 & 0x7f00) |
                                    (four >> 25 & 0x7f0000) | (four >> 33 & 0x7f000000)));
    case MF_WEIGHT_GGUF_IQ2_S:
        return grid_u32(p + 34 + 4 * g);
    default: /* IQ3_S */
        return grid_u32(p + 74 + 4 * g);
    }
}

MF_INLINE __m256i negate(__m256i w, uint32_t signs)
{
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    return _mm256_mask_sub_epi8(w, signs, _mm256_setzero_si256(), w);
#else
    const __m256i order =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)signs), order);
    const __m256i is_negative = _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
    return _mm256_sub_epi8(_mm256_xor_si256(w, is_negative), is_negative);
#endif
}

/* What numbers mean, in the low half and, for both halves of a register, once more. */
MF_INLINE __m256i grid_values(mf_weight_kind kind)
{
    if (kind == MF_WEIGHT_GGUF_IQ3_XXS)
        return _mm256_set1_epi64x(0x3e342c241c140c04);
    if (kind == MF_WEIGHT_GGUF_IQ3_S)
        return _mm256_set1_epi64x(0x0f0d0b0907050301);
    if (kind == MF_WEIGHT_GGUF_IQ1_S || kind == MF_WEIGHT_GGUF_IQ1_M)
        return _mm256_set1_epi32(0x000800f8);
    return _mm256_set1_epi32(0x002b1908);
}

/* IQ1: one more, or one less, for each eight columns. */
MF_INLINE __m256i grid_eighths(mf_weight_kind kind, const unsigned char *p, uint32_t g)
{
    const __m256i one = _mm256_set1_epi8(1);
    if (kind == MF_WEIGHT_GGUF_IQ1_S)
        return _mm256_or_si256(one, _mm256_set1_epi16((short)-(int)(p[35 + 2 * g] >> 7)));
    const __m256i bits = _mm256_set1_epi64x((long long)grid_u16(p + 32 + 2 * g));
    const __m256i bit = _mm256_setr_epi64x(1 << 3, 1 << 7, 1 << 11, 1 << 15);
    return _mm256_or_si256(one, _mm256_cmpeq_epi64(_mm256_and_si256(bits, bit), bit));
}

MF_INLINE __m256i grid_weights(mf_weight_kind kind, const unsigned char *p, uint32_t g)
{
    if (kind == MF_WEIGHT_GGUF_TQ1_0)
        return tq1_0_weights(p, g);
    if (kind == MF_WEIGHT_GGUF_TQ2_0)
        return tq2_0_weights(p, g);
    const bool is_iq3 = kind == MF_WEIGHT_GGUF_IQ3_XXS || kind == MF_WEIGHT_GGUF_IQ3_S;
    uint16_t e[8] = {0};
    for (uint32_t i = 0; i < 4; i++)
        e[i] = grid_entry(kind, p, g, i);
    for (uint32_t i = 4; i < 8 && is_iq3; i++)
        e[i] = grid_entry(kind, p, g, i);
    const __m128i entries = _mm_setr_epi16((short)e[0], (short)e[1], (short)e[2], (short)e[3],
                                           (short)e[4], (short)e[5], (short)e[6], (short)e[7]);
    const __m256i numbers = is_iq3 ? spread_threes(_mm256_cvtepu16_epi32(entries))
                                   : spread_twos(_mm256_cvtepu16_epi64(entries));
    const __m256i w = _mm256_shuffle_epi8(grid_values(kind), numbers);
    if (kind == MF_WEIGHT_GGUF_IQ1_S || kind == MF_WEIGHT_GGUF_IQ1_M)
        return _mm256_add_epi8(w, grid_eighths(kind, p, g));
    return negate(w, grid_signs(kind, p, g));
}

/* GRID_SWITCH(f, kind, ...): f(a constant kind, ...). */
#define GRID_SWITCH(f, kind, ...)               \
    switch (kind) {                             \
    case MF_WEIGHT_GGUF_IQ1_S:                  \
        f(MF_WEIGHT_GGUF_IQ1_S, __VA_ARGS__);   \
        break;                                  \
    case MF_WEIGHT_GGUF_IQ1_M:                  \
        f(MF_WEIGHT_GGUF_IQ1_M, __VA_ARGS__);   \
        break;                                  \
    case MF_WEIGHT_GGUF_IQ2_XXS:                \
        f(MF_WEIGHT_GGUF_IQ2_XXS, __VA_ARGS__); \
        break;                                  \
    case MF_WEIGHT_GGUF_IQ2_XS:                 \
        f(MF_WEIGHT_GGUF_IQ2_XS, __VA_ARGS__);  \
        break;                                  \
    case MF_WEIGHT_GGUF_IQ2_S:                  \
        f(MF_WEIGHT_GGUF_IQ2_S, __VA_ARGS__);   \
        break;                                  \
    case MF_WEIGHT_GGUF_IQ3_XXS:                \
        f(MF_WEIGHT_GGUF_IQ3_XXS, __VA_ARGS__); \
        break;                                  \
    case MF_WEIGHT_GGUF_IQ3_S:                  \
        f(MF_WEIGHT_GGUF_IQ3_S, __VA_ARGS__);   \
        break;                                  \
    case MF_WEIGHT_GGUF_TQ1_0:                  \
        f(MF_WEIGHT_GGUF_TQ1_0, __VA_ARGS__);   \
        break;                                  \
    default:                                    \
        f(MF_WEIGHT_GGUF_TQ2_0, __VA_ARGS__);   \
        break;                                  \
    }

#endif

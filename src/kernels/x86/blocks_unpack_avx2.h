/* SPDX-License-Identifier: MIT */
/*
 * A span of 256 columns in each of the formats of blocks: its scales, and 32 weights at once as
 * 16-bit integers, those of even columns and those of odd ones. `kind` and `g`, which 32 columns,
 * are constants everywhere.
 */
#ifndef MF_KERNELS_BLOCKS_UNPACK_AVX2_H
#define MF_KERNELS_BLOCKS_UNPACK_AVX2_H

#include "kernels/x86/blocks_token.h"
#include "kernels/x86/vector_avx2.h"

/* What does not change between spans: the weights that 4 bits mean, of formats that look them up.
 */
typedef struct span_tables {
    __m256i levels;
} span_tables;

/* A span's scales, each of 32 columns (eight of them) or of 16, and what is added, of 16 each. */
typedef struct span_scales {
    float scale[16];
    float min[16];
} span_scales;

/* 32 weights. */
typedef struct weights_32 {
    __m256i even, odd;
} weights_32;

MF_INLINE span_tables tables_of(mf_weight_kind kind, const mf_blocks_rows *w)
{
    (void)w;
    __m128i t = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    if (kind == MF_WEIGHT_GGUF_Q4_0 || kind == MF_WEIGHT_INT4)
        t = _mm_sub_epi8(t, _mm_set1_epi8(8));
    else if (kind == MF_WEIGHT_GGUF_Q5_0)
        t = _mm_sub_epi8(t, _mm_set1_epi8(16));
    else if (kind == MF_WEIGHT_GGUF_IQ4_NL || kind == MF_WEIGHT_GGUF_IQ4_XS)
        t = _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
    else if (kind == MF_WEIGHT_MXFP4 || mf_blocks_is_nvfp4(kind) || kind == MF_WEIGHT_GGUF_MXFP4 ||
             kind == MF_WEIGHT_GGUF_NVFP4) /* twice what they mean */
        t = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    return (span_tables){_mm256_broadcastsi128_si256(t)};
}

MF_INLINE uint32_t word_at(const unsigned char *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

MF_INLINE uint16_t half_at(const unsigned char *p)
{
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return half;
}

MF_INLINE __m128i load_16(const unsigned char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

MF_INLINE __m256i load_32(const unsigned char *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

/* A float16 in all lanes, its sign bit changed by `flip`. */
MF_INLINE __m256 spread_half(const unsigned char *p, uint32_t flip)
{
    return _mm256_cvtph_ps(_mm_set1_epi16((short)(half_at(p) ^ flip)));
}

/* ------------------------------------------------------------------------------------ scales -- */

/* Eight float16, apart from each other. */
MF_INLINE __m256 halves_apart(const unsigned char *p, size_t apart)
{
    return _mm256_cvtph_ps(_mm_setr_epi16(
        (short)half_at(p), (short)half_at(p + apart), (short)half_at(p + 2 * apart),
        (short)half_at(p + 3 * apart), (short)half_at(p + 4 * apart), (short)half_at(p + 5 * apart),
        (short)half_at(p + 6 * apart), (short)half_at(p + 7 * apart)));
}

/* Eight minima, each twice. */
MF_INLINE void store_twice(float *out, __m256 v)
{
    const __m256 low = _mm256_unpacklo_ps(v, v), high = _mm256_unpackhi_ps(v, v);
    _mm256_storeu_ps(out, _mm256_permute2f128_ps(low, high, 0x20));
    _mm256_storeu_ps(out + 8, _mm256_permute2f128_ps(low, high, 0x31));
}

MF_INLINE void small_scales(const unsigned char *p, size_t block_bytes, bool with_min,
                            span_scales *s)
{
    _mm256_storeu_ps(s->scale, halves_apart(p, block_bytes));
    if (with_min)
        store_twice(s->min, halves_apart(p + 2, block_bytes));
}

/* Eight unsigned bytes as floats. */
MF_INLINE __m256 bytes_to_floats(uint64_t bytes)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes)));
}

/* Sixteen signed bytes times d. */
MF_INLINE void store_products(float *out, __m128i bytes, __m256 d)
{
    const __m256i low = _mm256_cvtepi8_epi32(bytes);
    const __m256i high = _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8));
    _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_cvtepi32_ps(low), d));
    _mm256_storeu_ps(out + 8, _mm256_mul_ps(_mm256_cvtepi32_ps(high), d));
}

/* Q4_K's and Q5_K's: eight pairs of 6 bits in 12 bytes. */
MF_INLINE void k_scales(const unsigned char *p, span_scales *s)
{
    const uint32_t a = word_at(p + 4), b = word_at(p + 8), c = word_at(p + 12);
    const uint64_t scales = (a & 0x3f3f3f3f) | (uint64_t)((c & 0x0f0f0f0f) | (a >> 2 & 0x30303030))
                                                   << 32;
    const uint64_t minima =
        (b & 0x3f3f3f3f) | (uint64_t)((c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030)) << 32;
    _mm256_storeu_ps(s->scale, _mm256_mul_ps(bytes_to_floats(scales), spread_half(p, 0)));
    store_twice(s->min, _mm256_mul_ps(bytes_to_floats(minima), spread_half(p + 2, 0x8000)));
}

MF_INLINE void q2_k_scales(const unsigned char *p, span_scales *s)
{
    const __m128i both = load_16(p), low = _mm_set1_epi8(15);
    store_products(s->scale, _mm_and_si128(both, low), spread_half(p + 80, 0));
    store_products(s->min, _mm_and_si128(_mm_srli_epi16(both, 4), low),
                   spread_half(p + 82, 0x8000));
}

/* Sixteen of 6 bits: low 4 bits in 8 bytes, high 2 in 4. */
MF_INLINE void q3_k_scales(const unsigned char *p, span_scales *s)
{
    uint64_t low;
    memcpy(&low, p + 96, sizeof low);
    const __m128i lows =
        _mm_and_si128(_mm_set_epi64x((long long)(low >> 4), (long long)low), _mm_set1_epi8(15));
    const uint32_t h = word_at(p + 104);
    const __m128i highs = _mm_and_si128(
        _mm_setr_epi32((int)(h << 4), (int)(h << 2), (int)h, (int)(h >> 2)), _mm_set1_epi8(0x30));
    store_products(s->scale, _mm_sub_epi8(_mm_or_si128(lows, highs), _mm_set1_epi8(32)),
                   spread_half(p + 108, 0));
}

MF_INLINE void iq4_xs_scales(const unsigned char *p, span_scales *s)
{
    const __m256i low =
        _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32((int)word_at(p + 4)),
                                           _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28)),
                         _mm256_set1_epi32(15));
    const __m256i high =
        _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32((int)half_at(p + 2) << 4),
                                           _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14)),
                         _mm256_set1_epi32(0x30));
    const __m256i scale = _mm256_sub_epi32(_mm256_or_si256(low, high), _mm256_set1_epi32(32));
    _mm256_storeu_ps(s->scale, _mm256_mul_ps(_mm256_cvtepi32_ps(scale), spread_half(p, 0)));
}

/* Half of what e8m0 codes mean, of eight. */
MF_INLINE void exponent_scales(__m128i codes, span_scales *s)
{
    const __m256i e = _mm256_cvtepu8_epi32(codes);
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    __m256i bits = _mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e));
    bits = _mm256_blendv_epi8(bits, _mm256_set1_epi32(0x7fc00000),
                              _mm256_cmpeq_epi32(e, _mm256_set1_epi32(255)));
    _mm256_storeu_ps(s->scale, _mm256_castsi256_ps(bits));
}

/* Half of what eight e4m3 codes mean; their exponent's bias becomes 127 by a product, which is
 * exact for subnormal ones too. */
MF_INLINE __m256 e4m3_scales(__m128i codes, bool is_signed)
{
    const __m256i c = _mm256_cvtepu8_epi32(codes), all = _mm256_set1_epi32(0x7f);
    const __m256i size = _mm256_and_si256(c, all);
    const __m256 value =
        _mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(size, 20)), _mm256_set1_ps(0x1p119f));
    if (!is_signed) /* 0x7f counts as 0 */
        return _mm256_andnot_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(c, all)), value);
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(c, _mm256_set1_epi32(0x80)), 24);
    const __m256i nan =
        _mm256_and_si256(_mm256_cmpeq_epi32(size, all), _mm256_set1_epi32(0x7fc00000));
    return _mm256_or_ps(value, _mm256_castsi256_ps(_mm256_or_si256(sign, nan)));
}

MF_INLINE void sixteen_e4m3(__m128i codes, bool is_signed, span_scales *s)
{
    _mm256_storeu_ps(s->scale, e4m3_scales(codes, is_signed));
    _mm256_storeu_ps(s->scale + 8, e4m3_scales(_mm_srli_si128(codes, 8), is_signed));
}

MF_INLINE void scales_of(mf_weight_kind kind, const unsigned char *p, const unsigned char *scales,
                         const mf_blocks_rows *rows, span_scales *s)
{
    switch (kind) {
    case MF_WEIGHT_INT4:
    case MF_WEIGHT_INT8:
        mf_blocks_scales(rows, scales, s->scale);
        break;
    case MF_WEIGHT_GGUF_Q4_1:
        small_scales(p, 20, true, s);
        break;
    case MF_WEIGHT_GGUF_Q5_0:
        small_scales(p, 22, false, s);
        break;
    case MF_WEIGHT_GGUF_Q5_1:
        small_scales(p, 24, true, s);
        break;
    case MF_WEIGHT_GGUF_Q8_0:
        small_scales(p, 34, false, s);
        break;
    case MF_WEIGHT_GGUF_Q2_K:
        q2_k_scales(p, s);
        break;
    case MF_WEIGHT_GGUF_Q3_K:
        q3_k_scales(p, s);
        break;
    case MF_WEIGHT_GGUF_Q4_K:
    case MF_WEIGHT_GGUF_Q5_K:
        k_scales(p, s);
        break;
    case MF_WEIGHT_GGUF_Q6_K:
        store_products(s->scale, load_16(p + 192), spread_half(p + 208, 0));
        break;
    case MF_WEIGHT_GGUF_IQ4_XS:
        iq4_xs_scales(p, s);
        break;
    case MF_WEIGHT_GGUF_MXFP4:
        exponent_scales(_mm_setr_epi8((char)p[0], (char)p[17], (char)p[34], (char)p[51],
                                      (char)p[68], (char)p[85], (char)p[102], (char)p[119], 0, 0, 0,
                                      0, 0, 0, 0, 0),
                        s);
        break;
    case MF_WEIGHT_MXFP4:
        exponent_scales(_mm_loadl_epi64((const __m128i *)(const void *)scales), s);
        break;
    case MF_WEIGHT_GGUF_NVFP4:
        sixteen_e4m3(_mm_setr_epi32((int)word_at(p), (int)word_at(p + 36), (int)word_at(p + 72),
                                    (int)word_at(p + 108)),
                     false, s);
        break;
    case MF_WEIGHT_NVFP4:
    case MF_WEIGHT_NVFP4_DIVIDED:
    case MF_WEIGHT_NVFP4_PLAIN:
        sixteen_e4m3(load_16(scales), true, s);
        break;
    default: /* Q4_0, IQ4_NL */
        small_scales(p, 18, false, s);
        break;
    }
}

/* The scale of each four of 32 columns. */
MF_INLINE __m256 chunk_scales(mf_weight_kind kind, uint32_t g, const span_scales *s)
{
    if (!mf_blocks_has_sixteens(kind))
        return _mm256_broadcast_ss(&s->scale[g]);
    return _mm256_blend_ps(_mm256_broadcast_ss(&s->scale[2 * g]),
                           _mm256_broadcast_ss(&s->scale[2 * g + 1]), 0xf0);
}

/* ----------------------------------------------------------------------------------- weights -- */

MF_INLINE weights_32 signed_bytes(__m256i bytes)
{
    return (weights_32){_mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8),
                        _mm256_srai_epi16(bytes, 8)};
}

MF_INLINE weights_32 unsigned_bytes(__m256i bytes)
{
    return (weights_32){_mm256_and_si256(bytes, _mm256_set1_epi16(0xff)),
                        _mm256_srli_epi16(bytes, 8)};
}

/* The low 4 bits of bytes, after a shift. */
MF_INLINE __m256i nibbles(__m256i v, int shift)
{
    return _mm256_and_si256(_mm256_srli_epi16(v, shift), _mm256_set1_epi8(15));
}

/* Values i and i + 16 of 32 from a byte. */
MF_INLINE __m256i split_nibbles(const unsigned char *p)
{
    const __m128i q = load_16(p);
    return nibbles(_mm256_inserti128_si256(_mm256_castsi128_si256(q), _mm_srli_epi16(q, 4), 1), 0);
}

MF_INLINE __m256i look_up(const span_tables *t, __m256i v)
{
    return _mm256_shuffle_epi8(t->levels, v);
}

/* 16 for each bit of 32 that is one. */
MF_INLINE __m256i fifth_bits(const unsigned char *bits)
{
    const __m256i order =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)word_at(bits)), order);
    const __m256i is_one = _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
    return _mm256_and_si256(is_one, _mm256_set1_epi8(16));
}

/* `more` for each byte whose bit g is one; a power of two. */
MF_INLINE __m256i bits_at(const unsigned char *bits, uint32_t g, int more_bit)
{
    const __m256i v = load_32(bits);
    const __m256i at = (int)g >= more_bit ? _mm256_srli_epi16(v, (int)g - more_bit)
                                          : _mm256_slli_epi16(v, more_bit - (int)g);
    return _mm256_and_si256(at, _mm256_set1_epi8((char)(1 << more_bit)));
}

MF_INLINE __m256i q6_k_bytes(const unsigned char *p, uint32_t g)
{
    const uint32_t part = g % 4;
    const __m256i low =
        nibbles(load_32(p + (size_t)(g / 4) * 64 + (size_t)(part % 2) * 32), part / 2 * 4);
    const __m256i q = load_32(p + 128 + (size_t)(g / 4) * 32);
    const __m256i high = part < 2 ? _mm256_slli_epi16(q, 4 - 2 * (int)part)
                                  : _mm256_srli_epi16(q, 2 * (int)part - 4);
    const __m256i v = _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(0x30)));
    return _mm256_sub_epi8(v, _mm256_set1_epi8(32));
}

/* 2 bits each of 32 bytes, `at` from the block's beginning on. */
MF_INLINE __m256i two_bits(const unsigned char *p, size_t at, uint32_t g)
{
    const __m256i q = load_32(p + at + (size_t)(g / 4) * 32);
    return _mm256_and_si256(_mm256_srli_epi16(q, (int)(g % 4) * 2), _mm256_set1_epi8(3));
}

/* Q4_K: the columns of two times 32 side by side in a byte, so no bytes are put together. */
MF_INLINE weights_32 q4_k_weights(const unsigned char *p, uint32_t g)
{
    const __m256i q = load_32(p + 16 + (size_t)(g / 2) * 32), low = _mm256_set1_epi16(15);
    if (g % 2 == 0)
        return (weights_32){_mm256_and_si256(q, low),
                            _mm256_and_si256(_mm256_srli_epi16(q, 8), low)};
    return (weights_32){_mm256_and_si256(_mm256_srli_epi16(q, 4), low), _mm256_srli_epi16(q, 12)};
}

/* Neighbours in a byte. */
MF_INLINE weights_32 paired_weights(const span_tables *t, const unsigned char *p)
{
    const __m256i q = _mm256_castsi128_si256(load_16(p));
    const __m256i even = look_up(t, nibbles(q, 0)), odd = look_up(t, nibbles(q, 4));
    return (weights_32){_mm256_cvtepi8_epi16(_mm256_castsi256_si128(even)),
                        _mm256_cvtepi8_epi16(_mm256_castsi256_si128(odd))};
}

/* 8 bytes are 16 columns, the first half of them in the low nibbles. */
MF_INLINE __m256i nvfp4_bytes(const unsigned char *p)
{
    const __m128i q = load_16(p), high = _mm_srli_epi16(q, 4);
    return nibbles(_mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi64(q, high)),
                                           _mm_unpackhi_epi64(q, high), 1),
                   0);
}

MF_INLINE weights_32 chunk_weights(mf_weight_kind kind, const span_tables *t,
                                   const unsigned char *p, uint32_t g)
{
    const size_t i = g;
    switch (kind) {
    case MF_WEIGHT_MXFP4:
    case MF_WEIGHT_NVFP4:
    case MF_WEIGHT_NVFP4_DIVIDED:
    case MF_WEIGHT_NVFP4_PLAIN:
    case MF_WEIGHT_INT4:
        return paired_weights(t, p + i * 16);
    case MF_WEIGHT_INT8: /* stored 128 above */
        return signed_bytes(_mm256_xor_si256(load_32(p + i * 32), _mm256_set1_epi8(-128)));
    case MF_WEIGHT_GGUF_Q4_1:
        return unsigned_bytes(split_nibbles(p + i * 20 + 4));
    case MF_WEIGHT_GGUF_Q5_0:
        return signed_bytes(
            _mm256_add_epi8(look_up(t, split_nibbles(p + i * 22 + 6)), fifth_bits(p + i * 22 + 2)));
    case MF_WEIGHT_GGUF_Q5_1:
        return unsigned_bytes(
            _mm256_or_si256(split_nibbles(p + i * 24 + 8), fifth_bits(p + i * 24 + 4)));
    case MF_WEIGHT_GGUF_Q8_0:
        return signed_bytes(load_32(p + i * 34 + 2));
    case MF_WEIGHT_GGUF_Q2_K:
        return unsigned_bytes(two_bits(p, 16, g));
    case MF_WEIGHT_GGUF_Q3_K:
        return signed_bytes(_mm256_sub_epi8(_mm256_or_si256(two_bits(p, 32, g), bits_at(p, g, 2)),
                                            _mm256_set1_epi8(4)));
    case MF_WEIGHT_GGUF_Q4_K:
        return q4_k_weights(p, g);
    case MF_WEIGHT_GGUF_Q5_K:
        return unsigned_bytes(_mm256_or_si256(nibbles(load_32(p + 48 + i / 2 * 32), g % 2 * 4),
                                              bits_at(p + 16, g, 4)));
    case MF_WEIGHT_GGUF_Q6_K:
        return signed_bytes(q6_k_bytes(p, g));
    case MF_WEIGHT_GGUF_IQ4_XS:
        return signed_bytes(look_up(t, split_nibbles(p + 8 + i * 16)));
    case MF_WEIGHT_GGUF_MXFP4:
        return signed_bytes(look_up(t, split_nibbles(p + i * 17 + 1)));
    case MF_WEIGHT_GGUF_NVFP4:
        return signed_bytes(look_up(t, nvfp4_bytes(p + i / 2 * 36 + 4 + i % 2 * 16)));
    default: /* Q4_0, IQ4_NL */
        return signed_bytes(look_up(t, split_nibbles(p + i * 18 + 2)));
    }
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * A span of 256 columns in each of the formats of blocks: its scales, and 64 weights at once, a
 * byte each. Those are of the blocks of 32 columns number `b` (0 to 3) in the low half of each
 * register and number b + 4 in the high one, so that what a scale is for is one shuffle within
 * halves. `kind` and `b` are constants everywhere.
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

/* A span's scales and what is added, each of 32 columns (eight of them) or of 16. */
typedef struct span_scales {
    float scale[16];
    float min[16];
} span_scales;

/* 64 weights, above 0: those of the columns that the two halves of a token's pair have. */
typedef struct weights_64 {
    __m256i half[2];
} weights_64;

/* Which columns of 32 the halves have: the first and the last 16; the even and the odd ones; of
 * each 16 the first and the last 8. A lane of 32 bits has the columns of four bytes of both. */
typedef enum pair_order { PAIR_HALVES, PAIR_PARITIES, PAIR_EIGHTS } pair_order;

MF_INLINE pair_order order_of(mf_weight_kind kind)
{
    if (mf_blocks_is_paired(kind))
        return PAIR_PARITIES;
    return mf_blocks_has_sixteens(kind) ? PAIR_EIGHTS : PAIR_HALVES;
}

/* How far weights are above what they mean: a power of two, this one. */
enum { NO_EXCESS = -1, WIDE_EXCESS = 7 };
MF_INLINE int excess_of(mf_weight_kind kind)
{
    if (mf_blocks_is_wide(kind))
        return WIDE_EXCESS;
    switch (kind) {
    case MF_WEIGHT_GGUF_Q4_1:
    case MF_WEIGHT_GGUF_Q2_K:
    case MF_WEIGHT_GGUF_Q4_K:
        return NO_EXCESS;
    case MF_WEIGHT_GGUF_Q3_K:
        return 2;
    case MF_WEIGHT_GGUF_Q4_0:
    case MF_WEIGHT_INT4:
        return 3;
    case MF_WEIGHT_GGUF_Q6_K:
        return 5;
    default: /* Q5_0, MXFP4, NVFP4; Q5_1 and Q5_K, whose sums fit 32 bits only so */
        return 4;
    }
}

/* Bits of the largest weight, with that. */
MF_INLINE uint32_t bits_of(mf_weight_kind kind)
{
    switch (kind) {
    case MF_WEIGHT_GGUF_Q2_K:
    case MF_WEIGHT_GGUF_Q3_K:
    case MF_WEIGHT_GGUF_Q4_0:
    case MF_WEIGHT_GGUF_Q4_1:
    case MF_WEIGHT_GGUF_Q4_K:
    case MF_WEIGHT_INT4:
        return 4;
    case MF_WEIGHT_GGUF_Q6_K:
        return 6;
    default:
        return mf_blocks_is_wide(kind) ? 8 : 5;
    }
}

/* With what is added to what they mean already. */
MF_INLINE span_tables tables_of(mf_weight_kind kind, const mf_blocks_rows *w)
{
    (void)w;
    if (kind == MF_WEIGHT_GGUF_IQ4_NL || kind == MF_WEIGHT_GGUF_IQ4_XS)
        return (span_tables){_mm256_broadcastsi128_si256(
            _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, (char)129, (char)141, (char)153,
                          (char)166, (char)181, (char)197, (char)217, (char)241))};
    /* MXFP4, NVFP4: twice what they mean */
    return (span_tables){_mm256_broadcastsi128_si256(
        _mm_setr_epi8(16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4))};
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

MF_INLINE void small_scales(const unsigned char *p, size_t block_bytes, bool with_min,
                            span_scales *s)
{
    _mm256_storeu_ps(s->scale, halves_apart(p, block_bytes));
    if (with_min)
        _mm256_storeu_ps(s->min, halves_apart(p + 2, block_bytes));
}

/* Sixteen signed bytes times d. */
MF_INLINE void store_products(float *out, __m128i bytes, __m256 d)
{
    const __m256i low = _mm256_cvtepi8_epi32(bytes);
    const __m256i high = _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8));
    _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_cvtepi32_ps(low), d));
    _mm256_storeu_ps(out + 8, _mm256_mul_ps(_mm256_cvtepi32_ps(high), d));
}

/* Minima of weights that are 16 more than they mean. */
MF_INLINE void lower_minima(span_scales *s)
{
    _mm256_storeu_ps(s->min, _mm256_fmadd_ps(_mm256_loadu_ps(s->scale), _mm256_set1_ps(16.0f),
                                             _mm256_loadu_ps(s->min)));
}

/* Q4_K's and Q5_K's: eight pairs of 6 bits in 12 bytes, three words. The first has the lower four
 * scales, the second the lower four minima, the third 4 bits each of the upper ones, whose highest
 * 2 are in the others'. */
MF_INLINE void k_scales(const unsigned char *p, span_scales *s)
{
    const __m128i head = load_16(p);
    const __m128i own =
        _mm_and_si128(_mm_srlv_epi32(_mm_shuffle_epi32(head, 0xa5), _mm_setr_epi32(0, 2, 0, 2)),
                      _mm_setr_epi32(0x3f3f3f3f, 0x30303030, 0x3f3f3f3f, 0x30303030));
    const __m128i third =
        _mm_and_si128(_mm_srlv_epi32(_mm_shuffle_epi32(head, 0xff), _mm_setr_epi32(0, 0, 0, 4)),
                      _mm_setr_epi32(0, 0x0f0f0f0f, 0, 0x0f0f0f0f));
    const __m128i six =
        _mm_or_si128(own, third); /* scales in the lower half, minima in the upper */
    const __m128 factors = _mm_xor_ps(_mm_cvtph_ps(head), _mm_setr_ps(0.0f, -0.0f, 0.0f, 0.0f));
    const __m256 scales = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(six));
    const __m256 minima = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(six, 8)));
    _mm256_storeu_ps(s->scale, _mm256_mul_ps(scales, _mm256_broadcastss_ps(factors)));
    _mm256_storeu_ps(s->min,
                     _mm256_mul_ps(minima, _mm256_broadcastss_ps(_mm_movehdup_ps(factors))));
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
        lower_minima(s);
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
        k_scales(p, s);
        break;
    case MF_WEIGHT_GGUF_Q5_K:
        k_scales(p, s);
        lower_minima(s);
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

/* ----------------------------------------------------------------------------------- weights -- */

/* 16 bytes in each half. */
MF_INLINE __m256i load_halves(const unsigned char *p, size_t apart)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load_16(p)), load_16(p + apart), 1);
}

/* Of the columns of two times 32, the first and the last 16 of each, those in eights. */
MF_INLINE weights_64 in_eights(__m256i first, __m256i last)
{
    return (weights_64){{_mm256_unpacklo_epi64(first, last), _mm256_unpackhi_epi64(first, last)}};
}

/* 32 bytes at p and as many further on, in eights. */
MF_INLINE weights_64 load_eights(const unsigned char *p, size_t apart)
{
    return in_eights(load_halves(p, apart), load_halves(p + 16, apart));
}

/* The low 4 bits of bytes, after a shift. */
MF_INLINE __m256i nibbles(__m256i v, int shift)
{
    return _mm256_and_si256(_mm256_srli_epi16(v, shift), _mm256_set1_epi8(15));
}

/* Bits from number `from` on moved to number `to`, and only `mask` of each byte. */
MF_INLINE __m256i move_bits(__m256i v, int from, int to, int mask)
{
    const __m256i moved =
        from < to ? _mm256_slli_epi16(v, to - from) : _mm256_srli_epi16(v, from - to);
    return _mm256_and_si256(moved, _mm256_set1_epi8((char)mask));
}

/* Of each 16 bytes the low nibbles, and the high ones. */
MF_INLINE weights_64 split_nibbles(const unsigned char *p, size_t apart)
{
    const __m256i q = load_halves(p, apart);
    return (weights_64){{nibbles(q, 0), nibbles(q, 4)}};
}

/* The same, looked up. */
MF_INLINE weights_64 look_up(const span_tables *t, weights_64 w)
{
    return (weights_64){
        {_mm256_shuffle_epi8(t->levels, w.half[0]), _mm256_shuffle_epi8(t->levels, w.half[1])}};
}

MF_INLINE weights_64 either(weights_64 a, weights_64 b)
{
    return (weights_64){{_mm256_or_si256(a.half[0], b.half[0]), //
                         _mm256_or_si256(a.half[1], b.half[1])}};
}

/* 16 for each bit that is one, of two times 32 in words so far apart. */
MF_INLINE weights_64 fifth_bits(const unsigned char *bits, size_t apart)
{
    const __m256i words =
        _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_set1_epi32((int)word_at(bits))),
                                _mm_set1_epi32((int)word_at(bits + apart)), 1);
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1));
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    weights_64 w;
    MF_UNROLL(2)
    for (int i = 0; i < 2; i++) {
        const __m256i at = _mm256_add_epi8(order, _mm256_set1_epi8((char)(2 * i)));
        const __m256i is_one =
            _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(words, at), bit), bit);
        w.half[i] = _mm256_and_si256(is_one, _mm256_set1_epi8(16));
    }
    return w;
}

/* 16 bytes, in which each block of 32 has a bit; those of the blocks from the fourth on in the high
 * half, moved to where those of the others are. */
MF_INLINE __m256i bits_of_blocks(const unsigned char *p)
{
    const __m128i bits = load_16(p);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(bits), _mm_srli_epi16(bits, 4), 1);
}

/* Q4_K and Q5_K: bytes have the columns of two blocks. */
MF_INLINE weights_64 k_nibbles(const unsigned char *p, uint32_t b)
{
    const unsigned char *q = p + (size_t)(b / 2) * 32;
    const int shift = (int)(b % 2) * 4;
    return (weights_64){{nibbles(load_halves(q, 64), shift), //
                         nibbles(load_halves(q + 16, 64), shift)}};
}

MF_INLINE weights_64 q5_k_weights(const unsigned char *p, uint32_t b)
{
    const weights_64 fifth = {{move_bits(bits_of_blocks(p + 16), (int)b, 4, 16),
                               move_bits(bits_of_blocks(p + 32), (int)b, 4, 16)}};
    return either(k_nibbles(p + 48, b), fifth);
}

/* Q6_K: each half of a span has four blocks of 32 in 64 bytes of 4 bits and 32 of 2. */
MF_INLINE weights_64 q6_k_weights(const unsigned char *p, uint32_t b)
{
    const weights_64 low = load_eights(p + (size_t)(b % 2) * 32, 64);
    const weights_64 high = load_eights(p + 128, 32);
    const int shift = (int)(b / 2) * 4;
    return either((weights_64){{nibbles(low.half[0], shift), nibbles(low.half[1], shift)}},
                  (weights_64){{move_bits(high.half[0], 2 * (int)b, 4, 0x30),
                                move_bits(high.half[1], 2 * (int)b, 4, 0x30)}});
}

/* 2 bits each of 32 bytes for the first four blocks, and of as many for the last. */
MF_INLINE weights_64 two_bits(const unsigned char *p, uint32_t b)
{
    const weights_64 q = load_eights(p, 32);
    return (weights_64){{move_bits(q.half[0], 2 * (int)b, 0, 3), //
                         move_bits(q.half[1], 2 * (int)b, 0, 3)}};
}

MF_INLINE weights_64 q3_k_weights(const unsigned char *p, uint32_t b)
{
    const weights_64 bits = in_eights(bits_of_blocks(p), bits_of_blocks(p + 16));
    return either(two_bits(p + 32, b), (weights_64){{move_bits(bits.half[0], (int)b, 2, 4),
                                                     move_bits(bits.half[1], (int)b, 2, 4)}});
}

/* Signed bytes, 128 above. */
MF_INLINE weights_64 raise_bytes(weights_64 w)
{
    const __m256i top = _mm256_set1_epi8(-128);
    return (weights_64){{_mm256_xor_si256(w.half[0], top), _mm256_xor_si256(w.half[1], top)}};
}

MF_INLINE weights_64 pair_weights(mf_weight_kind kind, const span_tables *t, const unsigned char *p,
                                  uint32_t b)
{
    const size_t i = b;
    switch (kind) {
    case MF_WEIGHT_MXFP4:
    case MF_WEIGHT_NVFP4:
    case MF_WEIGHT_NVFP4_DIVIDED:
    case MF_WEIGHT_NVFP4_PLAIN:
        return look_up(t, split_nibbles(p + i * 16, 64));
    case MF_WEIGHT_INT4:
        return split_nibbles(p + i * 16, 64);
    case MF_WEIGHT_INT8: /* stored 128 above */
        return (weights_64){{load_halves(p + i * 32, 128), load_halves(p + i * 32 + 16, 128)}};
    case MF_WEIGHT_GGUF_Q4_0:
        return split_nibbles(p + i * 18 + 2, 72);
    case MF_WEIGHT_GGUF_Q4_1:
        return split_nibbles(p + i * 20 + 4, 80);
    case MF_WEIGHT_GGUF_Q5_0:
        return either(split_nibbles(p + i * 22 + 6, 88), fifth_bits(p + i * 22 + 2, 88));
    case MF_WEIGHT_GGUF_Q5_1:
        return either(split_nibbles(p + i * 24 + 8, 96), fifth_bits(p + i * 24 + 4, 96));
    case MF_WEIGHT_GGUF_Q8_0:
        return raise_bytes(
            (weights_64){{load_halves(p + i * 34 + 2, 136), load_halves(p + i * 34 + 18, 136)}});
    case MF_WEIGHT_GGUF_Q2_K:
        return two_bits(p + 16, b);
    case MF_WEIGHT_GGUF_Q3_K:
        return q3_k_weights(p, b);
    case MF_WEIGHT_GGUF_Q4_K:
        return k_nibbles(p + 16, b);
    case MF_WEIGHT_GGUF_Q5_K:
        return q5_k_weights(p, b);
    case MF_WEIGHT_GGUF_Q6_K:
        return q6_k_weights(p, b);
    case MF_WEIGHT_GGUF_IQ4_XS:
        return look_up(t, split_nibbles(p + i * 16 + 8, 64));
    case MF_WEIGHT_GGUF_MXFP4:
        return look_up(t, split_nibbles(p + i * 17 + 1, 68));
    case MF_WEIGHT_GGUF_NVFP4: /* of 8 bytes 16 columns, their first half in the low nibbles */
        return look_up(t, split_nibbles(p + i / 2 * 36 + i % 2 * 16 + 4, 72));
    default: /* IQ4_NL */
        return look_up(t, split_nibbles(p + i * 18 + 2, 72));
    }
}

#endif

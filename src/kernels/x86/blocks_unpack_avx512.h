/* SPDX-License-Identifier: MIT */
/*
 * A span of 256 columns in each of the formats of blocks: its scales, and 64 weights at once as
 * unsigned bytes, 128 above what they are. Two steps that all share: variable shifts bring a
 * value's bits to the low end of its byte, and a table of 64 entries that repeats itself, so that
 * the bits above do not matter, gives the byte. CPUs without VBMI look up in 16 entries, with the
 * bits above taken away before.
 *
 * `kind` and `c`, which 64 columns, are constants everywhere.
 */
#ifndef MF_KERNELS_BLOCKS_UNPACK_AVX512_H
#define MF_KERNELS_BLOCKS_UNPACK_AVX512_H

#include "kernels/x86/blocks_token.h"
#include "kernels/x86/vector_avx512.h"

/* What does not change between spans. */
typedef struct blocks_tables {
    __m512i levels;          /* by the low 6 bits of a byte */
    __m512i counts;          /* of shifts: of 64 bits each */
    __m512i nibbles, halves; /* of blocks of 18 bytes: where words lie in two loads; of integers:
                                where lanes' scales do */
} blocks_tables;

/* A span's scales and minima. */
typedef struct span_scales {
    __m512 scale; /* of 32 columns each in the first eight lanes, or of 16 */
    __m512 min;   /* what is added, of 16 columns each */
} span_scales;

/* The weight that bits mean, of formats that look it up. */
static int level_of(mf_weight_kind kind, int bits)
{
    static const signed char iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};
    static const signed char e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    switch (kind) {
    case MF_WEIGHT_GGUF_Q4_0:
    case MF_WEIGHT_INT4:
        return bits % 16 - 8;
    case MF_WEIGHT_GGUF_Q5_0:
        return bits % 16 - 16;
    case MF_WEIGHT_GGUF_Q2_K:
        return bits % 4;
    case MF_WEIGHT_GGUF_Q3_K:
        return bits % 4 - 4;
    case MF_WEIGHT_GGUF_Q6_K:
        return bits - 32;
    case MF_WEIGHT_GGUF_IQ4_NL:
    case MF_WEIGHT_GGUF_IQ4_XS:
        return iq4[bits % 16];
    case MF_WEIGHT_MXFP4:
    case MF_WEIGHT_NVFP4:
    case MF_WEIGHT_NVFP4_DIVIDED:
    case MF_WEIGHT_NVFP4_PLAIN:
    case MF_WEIGHT_GGUF_MXFP4:
    case MF_WEIGHT_GGUF_NVFP4:
        return e2m1[bits % 16]; /* twice what it means */
    default:
        return bits % 16;
    }
}

/* Eight blocks of 18 bytes are taken by two loads, the second one 72 bytes, four blocks, behind the
 * first. Where of each block four words lie that follow its scale; and its scale, twice. */
static const int16_t nibbles_of_18[32] = {1,  2,  3,  4,  10, 11, 12, 13, 19, 20, 21,
                                          22, 28, 29, 30, 31, 33, 34, 35, 36, 42, 43,
                                          44, 45, 51, 52, 53, 54, 60, 61, 62, 63};
static const int16_t scales_of_18[32] = {0,  0,  9,  9,  18, 18, 27, 27,
                                         32, 32, 41, 41, 50, 50, 59, 59};

/* Of eight blocks of 17 bytes eight each, behind their scales. */
static const unsigned char nibbles_of_17[64] = {
    1,   2,   3,   4,   5,   6,   7,   8,   18,  19,  20,  21,  22,  23,  24,  25,
    35,  36,  37,  38,  39,  40,  41,  42,  52,  53,  54,  55,  56,  57,  58,  59,
    69,  70,  71,  72,  73,  74,  75,  76,  86,  87,  88,  89,  90,  91,  92,  93,
    103, 104, 105, 106, 107, 108, 109, 110, 120, 121, 122, 123, 124, 125, 126, 127};

/* And those scales, each twice, as the highest bytes of words. */
static const unsigned char scales_of_17[64] = {
    [3] = 0,   [7] = 0,   [11] = 17, [15] = 17, [19] = 34,  [23] = 34,  [27] = 51,  [31] = 51,
    [35] = 68, [39] = 68, [43] = 85, [47] = 85, [51] = 102, [55] = 102, [59] = 119, [63] = 119};

/* Which 16 columns of a span a lane has: of four lanes two neighbours in its first half, and those
 * 128 columns behind them (blocks_pairs_avx512.h). */
MF_INLINE uint32_t paired_block(uint32_t lane)
{
    return lane / 4 * 2 + lane % 2 + lane % 4 / 2 * 8;
}

/* Of integers' scales the words of each lane; float16 ones follow each
 * other. */
static __m512i places_of_scales(const mf_blocks_rows *w)
{
    uint16_t at[32];
    for (uint32_t i = 0; i < 32; i++) {
        const bool is_half = w->scale_type == MF_F16;
        const uint32_t scale = paired_block(is_half ? i % 16 : i / 2) * 16 / w->scale_cols;
        at[i] = (uint16_t)(w->scale_type == MF_F32 ? 2 * scale + i % 2 : scale);
    }
    return _mm512_loadu_si512(at);
}

MF_INLINE blocks_tables tables_of(mf_weight_kind kind, const mf_blocks_rows *w)
{
    unsigned char levels[64];
    for (int i = 0; i < 64; i++)
        levels[i] = (unsigned char)(level_of(kind, i) + 128);
    blocks_tables t = {.levels = _mm512_loadu_si512(levels)};
    if (kind == MF_WEIGHT_GGUF_Q2_K || kind == MF_WEIGHT_GGUF_Q3_K)
        t.counts = _mm512_setr_epi64(0, 0, 0, 0, 2, 2, 2, 2);
    else if (kind == MF_WEIGHT_GGUF_Q6_K) /* to the left */
        t.counts = _mm512_setr_epi64(4, 4, 4, 4, 2, 2, 2, 2);
    else if (kind == MF_WEIGHT_GGUF_NVFP4 || kind == MF_WEIGHT_GGUF_Q4_K ||
             kind == MF_WEIGHT_GGUF_Q5_K)
        t.counts = _mm512_setr_epi64(0, 4, 0, 4, 0, 4, 0, 4);
    else
        t.counts = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
    if (kind == MF_WEIGHT_GGUF_MXFP4) {
        t.nibbles = _mm512_loadu_si512(nibbles_of_17);
        t.halves = _mm512_loadu_si512(scales_of_17);
    }
    if (kind == MF_WEIGHT_GGUF_Q4_0 || kind == MF_WEIGHT_GGUF_IQ4_NL) {
        t.nibbles = _mm512_loadu_si512(nibbles_of_18);
        t.halves = _mm512_loadu_si512(scales_of_18);
    }
    if (kind == MF_WEIGHT_INT4)
        t.halves = places_of_scales(w);
    return t;
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

/* A float16 in all lanes. */
MF_INLINE __m512 spread_half(const unsigned char *p)
{
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)half_at(p)));
}

/* ------------------------------------------------------------------------------------ scales -- */

/* Eight float16, apart from each other. */
MF_INLINE __m128i halves_apart(const unsigned char *p, size_t apart)
{
    return _mm_setr_epi16((short)half_at(p), (short)half_at(p + apart),
                          (short)half_at(p + 2 * apart), (short)half_at(p + 3 * apart),
                          (short)half_at(p + 4 * apart), (short)half_at(p + 5 * apart),
                          (short)half_at(p + 6 * apart), (short)half_at(p + 7 * apart));
}

/* Words of eight blocks of 18 bytes, which begin at p. */
MF_INLINE __m512i pick_of_18(const unsigned char *p, __m512i at)
{
    return _mm512_permutex2var_epi16(_mm512_loadu_si512(p), at, _mm512_loadu_si512(p + 72));
}

/* Their scales, each twice. */
MF_INLINE __m512 woven_scales(const blocks_tables *t, const unsigned char *p)
{
    return _mm512_cvtph_ps(_mm512_castsi512_si256(pick_of_18(p, t->halves)));
}

/* The first bytes of eight blocks of 17. */
MF_INLINE __m128i bytes_of_17(const unsigned char *p)
{
    return _mm_setr_epi8((char)p[0], (char)p[17], (char)p[34], (char)p[51], (char)p[68],
                         (char)p[85], (char)p[102], (char)p[119], 0, 0, 0, 0, 0, 0, 0, 0);
}

/* Eight floats as sixteen, each twice. */
MF_INLINE __m512 twice(__m256 v)
{
    const __m512i order = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(order, _mm512_castps256_ps512(v));
}

/* The same in the order of crossed blocks. */
MF_INLINE __m512 twice_crossed(__m256 v)
{
    const __m512i order = _mm512_setr_epi32(0, 0, 1, 1, 4, 4, 5, 5, 2, 2, 3, 3, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(order, _mm512_castps256_ps512(v));
}

MF_INLINE span_scales small_scales(const unsigned char *p, size_t block_bytes, bool with_min)
{
    span_scales s = {.scale = _mm512_castps256_ps512(_mm256_cvtph_ps(halves_apart(p, block_bytes))),
                     .min = _mm512_setzero_ps()};
    if (with_min)
        s.min = twice(_mm256_cvtph_ps(halves_apart(p + 2, block_bytes)));
    return s;
}

/* Q4_K's and Q5_K's: eight pairs of 6 bits in 12 bytes. */
MF_INLINE span_scales k_scales(const unsigned char *p)
{
    const uint32_t a = word_at(p + 4), b = word_at(p + 8), c = word_at(p + 12);
    const uint64_t scales = (a & 0x3f3f3f3f) | (uint64_t)((c & 0x0f0f0f0f) | (a >> 2 & 0x30303030))
                                                   << 32;
    const uint64_t minima =
        (b & 0x3f3f3f3f) | (uint64_t)((c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030)) << 32;
    const __m256i s = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)scales));
    const __m256i m = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)minima));
    const __m256 d = _mm256_cvtph_ps(_mm_set1_epi16((short)half_at(p)));
    const __m256 dmin = _mm256_cvtph_ps(_mm_set1_epi16((short)(half_at(p + 2) ^ 0x8000)));
    return (span_scales){_mm512_castps256_ps512(_mm256_mul_ps(_mm256_cvtepi32_ps(s), d)),
                         twice_crossed(_mm256_mul_ps(_mm256_cvtepi32_ps(m), dmin))};
}

#if defined(__AVX512VBMI__)
/* Q4_K's and Q5_K's of a span of each of four rows: of each row its scales and minima in turn, in
 * the order of crossed blocks, and what they are to be multiplied by. */
typedef struct k_heads {
    unsigned char sixes[64];
    float factors[8];
} k_heads;

MF_INLINE void k_heads_of(const unsigned char *const p[4], k_heads *out)
{
    const __m256i front =
        _mm256_inserti128_si256(_mm256_castsi128_si256(load_16(p[0])), load_16(p[1]), 1);
    const __m512i heads = _mm512_inserti32x4(
        _mm512_inserti32x4(_mm512_castsi256_si512(front), load_16(p[2]), 2), load_16(p[3]), 3);
    /* where the bits of the first four pairs are, and the low four of the others; and where what
     * those have above them is */
    const __m512i low_at =
        _mm512_broadcast_i32x4(_mm_set_epi64x(0x1c1814100c080400, 0x3818301028082000));
    const __m512i high_at = _mm512_set1_epi64(0x3a1a32122a0a2202);
    const __m512i low = _mm512_multishift_epi64_epi8(low_at, _mm512_shuffle_epi32(heads, 0xf9));
    const __m512i high = _mm512_multishift_epi64_epi8(high_at, _mm512_shuffle_epi32(heads, 0x90));
    const __m512i is_low = _mm512_broadcast_i32x4(_mm_set_epi64x(0x0f0f0f0f0f0f0f0f, -1));
    const __m512i both =
        _mm512_and_si512(_mm512_ternarylogic_epi64(is_low, low, high, 0xca), _mm512_set1_epi8(63));
    const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
    const __m128i halves = _mm512_castsi512_si128(_mm512_permutexvar_epi32(firsts, heads));
    const __m128i minus = _mm_set1_epi32((int)0x80000000); /* of minima */
    _mm512_storeu_si512(out->sixes, _mm512_shuffle_epi32(both, 0xd8));
    _mm256_storeu_ps(out->factors, _mm256_cvtph_ps(_mm_xor_si128(halves, minus)));
    __asm__("" : "+m"(*out)); /* parts of it are loaded, where gcc would bring them by shuffles */
}

/* Of row r as lanes have them. */
MF_INLINE span_scales k_scales_at(const k_heads *h, uint32_t r)
{
    const __m512i sixes = _mm512_cvtepu8_epi32(load_16(h->sixes + (size_t)r * 16));
    double factors;
    memcpy(&factors, h->factors + (size_t)r * 2, sizeof factors);
    const __m512 v =
        _mm512_mul_ps(_mm512_cvtepi32_ps(sixes), _mm512_castpd_ps(_mm512_set1_pd(factors)));
    return (span_scales){_mm512_moveldup_ps(v), _mm512_movehdup_ps(v)};
}
#endif

MF_INLINE span_scales q2_k_scales(const unsigned char *p)
{
    const __m512i both = _mm512_cvtepu8_epi32(load_16(p));
    const __m512 scale = _mm512_cvtepi32_ps(_mm512_and_si512(both, _mm512_set1_epi32(15)));
    const __m512 minimum = _mm512_cvtepi32_ps(_mm512_srli_epi32(both, 4));
    return (span_scales){_mm512_mul_ps(scale, spread_half(p + 80)),
                         _mm512_mul_ps(minimum, _mm512_cvtph_ps(_mm256_set1_epi16(
                                                    (short)(half_at(p + 82) ^ 0x8000))))};
}

/* Sixteen of 6 bits: low 4 bits in 8 bytes, high 2 in 4. */
MF_INLINE __m512 q3_k_scales(const unsigned char *p)
{
    uint64_t low;
    memcpy(&low, p + 96, sizeof low);
    const __m128i lows =
        _mm_and_si128(_mm_set_epi64x((long long)(low >> 4), (long long)low), _mm_set1_epi8(15));
    const uint32_t h = word_at(p + 104);
    const __m128i highs = _mm_and_si128(
        _mm_setr_epi32((int)(h << 4), (int)(h << 2), (int)h, (int)(h >> 2)), _mm_set1_epi8(0x30));
    const __m512i scale =
        _mm512_cvtepi8_epi32(_mm_sub_epi8(_mm_or_si128(lows, highs), _mm_set1_epi8(32)));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(scale), spread_half(p + 108));
}

MF_INLINE __m512 iq4_xs_scales(const unsigned char *p)
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
    return _mm512_castps256_ps512(_mm256_mul_ps(
        _mm256_cvtepi32_ps(scale), _mm256_cvtph_ps(_mm_set1_epi16((short)half_at(p)))));
}

/* What e8m0 codes mean, the highest bytes of lanes: exponents as float32 has them, but for 0, which
 * means 2^-127, and 255, no number. Weights are twice what they mean (factor_of). */
MF_INLINE __m512 exponents_of(__m512i codes)
{
    const __m512 least = _mm512_set1_ps(0x1p-127f);
    /* in place of zeros that one, of infinity no number; one and other positive ones stay */
    const __m512i table = _mm512_set1_epi32(0x10301000);
    return _mm512_fixupimm_ps(least, _mm512_castsi512_ps(_mm512_srli_epi32(codes, 1)), table, 0);
}

/* Of eight blocks of 17 bytes, each twice. */
MF_INLINE __m512 exponents_of_17(const blocks_tables *t, const unsigned char *p)
{
#if defined(__AVX512VBMI__)
    const __mmask64 highest = 0x8888888888888888; /* byte of each lane */
    return exponents_of(_mm512_maskz_permutex2var_epi8(highest, _mm512_loadu_si512(p), t->halves,
                                                       _mm512_loadu_si512(p + 64)));
#else
    (void)t;
    const __m512i codes = _mm512_cvtepu8_epi32(bytes_of_17(p));
    return twice(_mm512_castps512_ps256(exponents_of(_mm512_slli_epi32(codes, 24))));
#endif
}

/* Half of what sixteen e4m3 codes mean, the upper bytes of words whose lower ones are 0: as float16
 * but for the exponent's bias, subnormal ones too, which Intel's CPUs multiply a hundred times as
 * slowly where they are subnormal float32. */
MF_INLINE __m512 e4m3_of(__m256i codes)
{
    const __m256i half =
        _mm256_and_si256(_mm256_srai_epi16(codes, 1), _mm256_set1_epi16((short)0xbfff));
    return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(128.0f));
}

/* That, where those that are no numbers may be among them. */
MF_INLINE __m512 e4m3_or_nan(__m256i codes, __m512 value)
{
    const __m256i size = _mm256_and_si256(codes, _mm256_set1_epi16(0x7f00));
    return _mm512_mask_mov_ps(value, _mm256_cmpeq_epi16_mask(size, _mm256_set1_epi16(0x7f00)),
                              _mm512_set1_ps(__builtin_nanf("")));
}

/* GGUF's, which have no sign and mean 0 by 0x7f. */
MF_INLINE __m512 unsigned_e4m3_scales(__m128i codes)
{
    const __m128i size = _mm_and_si128(codes, _mm_set1_epi8(0x7f));
    return _mm512_maskz_mov_ps(_mm_cmpneq_epi8_mask(codes, _mm_set1_epi8(0x7f)),
                               e4m3_of(_mm256_slli_epi16(_mm256_cvtepu8_epi16(size), 8)));
}

MF_INLINE span_scales scales_of(mf_weight_kind kind, const blocks_tables *t, const unsigned char *p,
                                const unsigned char *scales, const mf_blocks_rows *rows)
{
    float eight[8];
    const __m512 zero = _mm512_setzero_ps();
    switch (kind) {
    case MF_WEIGHT_GGUF_Q4_1:
        return small_scales(p, 20, true);
    case MF_WEIGHT_GGUF_Q5_0:
        return small_scales(p, 22, false);
    case MF_WEIGHT_GGUF_Q5_1:
        return small_scales(p, 24, true);
    case MF_WEIGHT_GGUF_Q8_0:
        return small_scales(p, 34, false);
    case MF_WEIGHT_GGUF_Q2_K:
        return q2_k_scales(p);
    case MF_WEIGHT_GGUF_Q3_K:
        return (span_scales){q3_k_scales(p), zero};
    case MF_WEIGHT_GGUF_Q4_K:
    case MF_WEIGHT_GGUF_Q5_K:
        return k_scales(p);
    case MF_WEIGHT_GGUF_Q6_K:
        return (span_scales){
            _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16(p + 192))),
                          spread_half(p + 208)),
            zero};
    case MF_WEIGHT_GGUF_IQ4_XS:
        return (span_scales){iq4_xs_scales(p), zero};
    case MF_WEIGHT_GGUF_MXFP4:
        return (span_scales){exponents_of_17(t, p), zero};
    case MF_WEIGHT_INT8:
        mf_blocks_scales(rows, scales, eight);
        return (span_scales){_mm512_castps256_ps512(_mm256_loadu_ps(eight)), zero};
    case MF_WEIGHT_GGUF_NVFP4:
        return (span_scales){
            unsigned_e4m3_scales(_mm_setr_epi32((int)word_at(p), (int)word_at(p + 36),
                                                (int)word_at(p + 72), (int)word_at(p + 108))),
            zero};
    default: /* Q4_0, IQ4_NL */
        return (span_scales){woven_scales(t, p), zero};
    }
}

/* Lane 4 * b + c: the scale of 16 columns, from 64 * c + 16 * b on. Woven: lanes 2 * b and 2 * b +
 * 1 that of block b. */
MF_INLINE __m512 lane_scales(mf_weight_kind kind, const span_scales *s)
{
    if (kind == MF_WEIGHT_GGUF_Q4_0 || kind == MF_WEIGHT_GGUF_IQ4_NL ||
        kind == MF_WEIGHT_GGUF_MXFP4)
        return s->scale; /* so it is already */
    if (mf_blocks_is_crossed(kind))
        return twice_crossed(_mm512_castps512_ps256(s->scale));
    if (mf_blocks_has_sixteens(kind))
        return _mm512_permutexvar_ps(
            _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), s->scale);
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6, 1, 3, 5, 7, 1, 3, 5, 7),
                                 s->scale);
}

MF_INLINE __m512 lane_minima(mf_weight_kind kind, const span_scales *s)
{
    if (mf_blocks_is_crossed(kind))
        return s->min; /* so they are already */
    return _mm512_permutexvar_ps(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), s->min);
}

/* ----------------------------------------------------------------------------------- weights -- */

/* 16 bytes each of two blocks, twice. */
MF_INLINE __m512i two_blocks(const unsigned char *a, const unsigned char *b)
{
    return _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(load_16(a)), 0xff00, load_16(b));
}

#if defined(__AVX512VBMI__)
MF_INLINE __m512i look_up(const blocks_tables *t, __m512i shifted)
{
    return _mm512_permutexvar_epi8(shifted, t->levels);
}

/* By six bits, Q6_K's. */
MF_INLINE __m512i look_up_six(const blocks_tables *t, __m512i shifted)
{
    return look_up(t, shifted);
}
#else
MF_INLINE __m512i look_up(const blocks_tables *t, __m512i shifted)
{
    return _mm512_shuffle_epi8(t->levels, _mm512_and_si512(shifted, _mm512_set1_epi8(15)));
}

/* By six bits, Q6_K's, which mean 32 less. */
MF_INLINE __m512i look_up_six(const blocks_tables *t, __m512i shifted)
{
    (void)t;
    return _mm512_add_epi8(_mm512_and_si512(shifted, _mm512_set1_epi8(63)), _mm512_set1_epi8(96));
}
#endif

/* Of blocks of 32 values with 4 bits each, from `at` on in each. */
MF_INLINE __m512i small_weights(const blocks_tables *t, const unsigned char *p, size_t block_bytes,
                                size_t at, uint32_t c)
{
    p += 2 * c * block_bytes + at;
    return look_up(t, _mm512_srlv_epi64(two_blocks(p, p + block_bytes), t->counts));
}

/* And with a fifth bit each. */
MF_INLINE __m512i fifth_weights(const blocks_tables *t, const unsigned char *p, size_t block_bytes,
                                size_t at, uint32_t c)
{
    const unsigned char *bits = p + 2 * c * block_bytes + at - 4;
    const __mmask64 fifth =
        _cvtu64_mask64(word_at(bits) | (uint64_t)word_at(bits + block_bytes) << 32);
    const __m512i w = small_weights(t, p, block_bytes, at, c);
    return _mm512_mask_add_epi8(w, fifth, w, _mm512_set1_epi8(16));
}

/* 32 bytes, of which the two halves take different bits of each. */
MF_INLINE __m512i wide_weights(const blocks_tables *t, const unsigned char *p, uint32_t shift)
{
    __m512i v = _mm512_broadcast_i64x4(load_32(p));
    if (shift != 0)
        v = _mm512_srli_epi64(v, shift);
    return look_up(t, _mm512_srlv_epi64(v, t->counts));
}

/* + `more` where bit 2 * c, or 2 * c + 1 for the last 32 columns, of a column's byte is one. */
MF_INLINE __m512i add_bit(__m512i w, const unsigned char *bits, uint32_t c, char more)
{
    const __m512i bit = _mm512_inserti64x4(_mm512_set1_epi8((char)(1u << (2 * c))),
                                           _mm256_set1_epi8((char)(2u << (2 * c))), 1);
    const __mmask64 is_one = _mm512_test_epi8_mask(_mm512_broadcast_i64x4(load_32(bits)), bit);
    return _mm512_mask_add_epi8(w, is_one, w, _mm512_set1_epi8(more));
}

MF_INLINE __m512i q6_k_weights(const blocks_tables *t, const unsigned char *p, uint32_t c)
{
    __m512i low = _mm512_loadu_si512(p + (size_t)(c / 2) * 64);
    __m512i high = _mm512_broadcast_i64x4(load_32(p + 128 + (size_t)(c / 2) * 32));
    if (c % 2 != 0) {
        low = _mm512_srli_epi64(low, 4);
        high = _mm512_srli_epi64(high, 4);
    }
    high = _mm512_sllv_epi64(high, t->counts); /* to bits 4 and 5 of each byte */
    return look_up_six(t, _mm512_ternarylogic_epi64(_mm512_set1_epi8(15), low, high, 0xca));
}

MF_INLINE __m512i nvfp4_weights(const blocks_tables *t, const unsigned char *p, uint32_t c)
{
    const __m512i order = _mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3);
    const __m512i q = _mm512_castsi256_si512(load_32(p + (size_t)c * 36 + 4));
    return look_up(t, _mm512_srlv_epi64(_mm512_permutexvar_epi64(order, q), t->counts));
}

MF_INLINE __m512i q8_0_weights(const unsigned char *p, uint32_t c)
{
    p += (size_t)c * 68;
    const __m512i v =
        _mm512_inserti64x4(_mm512_castsi256_si512(load_32(p + 2)), load_32(p + 36), 1);
    return _mm512_xor_si512(v, _mm512_set1_epi8(-128));
}

MF_INLINE __m512i chunk_weights(mf_weight_kind kind, const blocks_tables *t, const unsigned char *p,
                                uint32_t c)
{
    switch (kind) {
    case MF_WEIGHT_INT8: /* stored 128 above as it is */
        return _mm512_loadu_si512(p + (size_t)c * 64);
    case MF_WEIGHT_GGUF_Q4_1:
        return small_weights(t, p, 20, 4, c);
    case MF_WEIGHT_GGUF_Q5_0:
        return fifth_weights(t, p, 22, 6, c);
    case MF_WEIGHT_GGUF_Q5_1:
        return fifth_weights(t, p, 24, 8, c);
    case MF_WEIGHT_GGUF_Q8_0:
        return q8_0_weights(p, c);
    case MF_WEIGHT_GGUF_Q2_K:
        return wide_weights(t, p + 16 + (size_t)(c / 2) * 32, c % 2 * 4);
    case MF_WEIGHT_GGUF_Q3_K:
        return add_bit(wide_weights(t, p + 32 + (size_t)(c / 2) * 32, c % 2 * 4), p, c, 4);
    case MF_WEIGHT_GGUF_Q6_K:
        return q6_k_weights(t, p, c);
    case MF_WEIGHT_GGUF_NVFP4:
        return nvfp4_weights(t, p, c);
    default: /* those that are woven */
        return _mm512_setzero_si512();
    }
}

/* Of eight blocks of 17 bytes the eight behind the one at p. */
MF_INLINE __m512i eights_of_17(const blocks_tables *t, const unsigned char *p)
{
#if defined(__AVX512VBMI__)
    return _mm512_permutex2var_epi8(_mm512_loadu_si512(p), t->nibbles, _mm512_loadu_si512(p + 64));
#else
    long long v[8];
    (void)t;
    for (size_t b = 0; b < 8; b++)
        memcpy(&v[b], p + 17 * b + 1, sizeof v[b]);
    return _mm512_setr_epi64(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
#endif
}

/* Blocks whose nibbles are columns i and 16 + i: of each block eight bytes, the first or the
 * others.
 */
MF_INLINE __m512i eights(mf_weight_kind kind, const blocks_tables *t, const unsigned char *p,
                         uint32_t half)
{
    if (kind == MF_WEIGHT_GGUF_MXFP4)
        return eights_of_17(t, p + (size_t)half * 8);
    return pick_of_18(p + (size_t)half * 8, t->nibbles);
}

/* Of four pairs of 16 bytes, the one after the other: of pairs 0, 2, 1, 3 the first (p the first
 * one's) or the last. Two loads, the second for every other quarter, cost less than what brings
 * them to their places. */
MF_INLINE __m512i quarters(const unsigned char *p)
{
    return _mm512_mask_loadu_epi64(_mm512_loadu_si512(p), 0xcc, p + 48);
}

/* In each 128 bits: a's lower half and b's upper one; or a's upper one and b's lower one. */
MF_INLINE __m512i outer_halves(__m512i a, __m512i b)
{
    return _mm512_mask_mov_epi64(a, 0xaa, b);
}

MF_INLINE __m512i inner_halves(__m512i a, __m512i b)
{
    return _mm512_castpd_si512(
        _mm512_shuffle_pd(_mm512_castsi512_pd(a), _mm512_castsi512_pd(b), 0x55));
}

/* Of crossed blocks, two in 32 bytes, the bytes that have the columns of vector k. */
MF_INLINE void crossed_bytes(const unsigned char *p, __m512i out[4])
{
    MF_UNROLL(2)
    for (uint32_t half = 0; half < 2; half++) {
        out[2 * half] = quarters(p + (size_t)half * 16);
        out[2 * half + 1] = _mm512_shuffle_epi32(out[2 * half], 0x4e);
    }
}

/* Of crossed blocks the columns of vector k in the low four bits of bytes. IQ4_XS: a block is 16
 * bytes, the nibbles columns i and 16 + i; else two are 32 bytes, of which one has the low ones. */
MF_INLINE void crossed_nibbles(mf_weight_kind kind, const blocks_tables *t, const unsigned char *p,
                               __m512i out[4])
{
    if (kind == MF_WEIGHT_GGUF_IQ4_XS) {
        const __m512i even = quarters(p + 8), odd = quarters(p + 24);
        out[0] = outer_halves(even, odd);
        out[1] = inner_halves(even, odd);
        out[2] = _mm512_srli_epi32(out[0], 4);
        out[3] = _mm512_srli_epi32(out[1], 4);
        return;
    }
    p += kind == MF_WEIGHT_GGUF_Q4_K ? 16 : 48;
    crossed_bytes(p, out);
    MF_UNROLL(4)
    for (uint32_t k = 0; k < 4; k++)
        out[k] = _mm512_srlv_epi64(out[k], t->counts);
}

/* Of each block the columns of vector k, in the low four bits of bytes. */
MF_INLINE void woven_nibbles(mf_weight_kind kind, const blocks_tables *t, const unsigned char *p,
                             __m512i out[4])
{
    if (mf_blocks_is_crossed(kind)) {
        crossed_nibbles(kind, t, p, out);
        return;
    }
    MF_UNROLL(2)
    for (uint32_t half = 0; half < 2; half++) {
        out[half] = eights(kind, t, p, half);
        out[2 + half] = _mm512_srli_epi32(out[half], 4);
    }
}

/* Q5_K's fifth bits of those columns, bit b of a byte being block b's. */
MF_INLINE __mmask64 crossed_fifths(const unsigned char *p, uint32_t k)
{
    __m512i bits = _mm512_broadcast_i32x4(load_16(p + 16 + (size_t)(k / 2) * 16));
    if (k % 2 != 0)
        bits = _mm512_shuffle_epi32(bits, 0x4e);
    const long long each = 0x0101010101010101;
    return _mm512_test_epi8_mask(bits, _mm512_setr_epi64(each, each << 1, each << 4, each << 5,
                                                         each << 2, each << 3, each << 6,
                                                         (long long)((uint64_t)each << 7)));
}

MF_INLINE __m512i add_fifths(mf_weight_kind kind, const unsigned char *p, uint32_t k, __m512i w)
{
    if (kind != MF_WEIGHT_GGUF_Q5_K)
        return w;
    return _mm512_mask_add_epi8(w, crossed_fifths(p, k), w, _mm512_set1_epi8(16));
}

/* 128 above what they are. */
MF_INLINE void woven_weights(mf_weight_kind kind, const blocks_tables *t, const unsigned char *p,
                             __m512i out[4])
{
    __m512i bits[4];
    woven_nibbles(kind, t, p, bits);
    MF_UNROLL(4)
    for (uint32_t k = 0; k < 4; k++)
        out[k] = add_fifths(kind, p, k, look_up(t, bits[k]));
}

/* Q4_K's as they are stored, those of odd blocks times 16. */
MF_INLINE void masked_codes(const unsigned char *p, __m512i out[4])
{
    const __m512i nibble =
        _mm512_broadcast_i32x4(_mm_set_epi64x((long long)0xf0f0f0f0f0f0f0f0, 0x0f0f0f0f0f0f0f0f));
    crossed_bytes(p + 16, out);
    MF_UNROLL(4)
    for (uint32_t k = 0; k < 4; k++)
        out[k] = _mm512_and_si512(out[k], nibble);
}

/* As they are stored. */
MF_INLINE void woven_codes(mf_weight_kind kind, const blocks_tables *t, const unsigned char *p,
                           __m512i out[4])
{
    __m512i bits[4];
    woven_nibbles(kind, t, p, bits);
    MF_UNROLL(4)
    for (uint32_t k = 0; k < 4; k++)
        out[k] = add_fifths(kind, p, k, _mm512_and_si512(bits[k], _mm512_set1_epi8(15)));
}

#endif

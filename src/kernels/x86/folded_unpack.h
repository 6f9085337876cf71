/* SPDX-License-Identifier: MIT */
/*
 * A block of 16 rows as tiles take it (folded_token.h): weights times their integer scales, in two
 * digits. Weights of 4 bits are looked up: what the 16 codes of a group become is one
 * multiplication for four groups, each of which has a quarter of a vector for its table.
 */
#ifndef MF_KERNELS_FOLDED_UNPACK_H
#define MF_KERNELS_FOLDED_UNPACK_H

#include "kernels/x86/blocks_lanes_avx512.h"
#include "kernels/x86/blocks_unpack_avx512.h"
#include "kernels/x86/folded_token.h"
#include "kernels/x86/tiles.h"

enum { FOLDED_BY_LANES = 2 /* tokens at most that go by vectors */ };

/* The digits of 16 rows, [step][row]. */
typedef struct folded_panel {
    signed char high[MF_FOLDED_STEPS][MF_TILE_ROWS][MF_TILE_ROW_BYTES];
    unsigned char low[MF_FOLDED_STEPS][MF_TILE_ROWS][MF_TILE_ROW_BYTES];
} folded_panel;

/* What their sums are multiplied by: the integers; and the sums of activations, which are first
 * added up by minima. */
typedef struct folded_factors {
    float scales[MF_TILE_ROWS], min_scales[MF_TILE_ROWS];
    float minima[MF_FOLDED_GROUPS][MF_TILE_ROWS];
} folded_factors;

/* A block of 16 rows as it is stored, with the integer scales of each row's even groups and of its
 * odd ones. */
typedef struct folded_block {
    const unsigned char *rows[MF_TILE_ROWS];
    uint32_t scales[MF_TILE_ROWS][2];
    size_t ahead; /* bytes to what is read next */
} folded_block;

/* What does not change between blocks. */
typedef struct folded_tables {
    __m512i first, last; /* the weights of the first eight codes, of the last, as words */
    __m512i scale_at;    /* where the scale of each quarter is; Q6_K: in the first step */
} folded_tables;

/* ------------------------------------------------------------------------------------ scales -- */

/* Bytes of integer scales are signed. */
MF_INLINE bool folded_is_signed(mf_weight_kind kind)
{
    return kind == MF_WEIGHT_GGUF_Q6_K || kind == MF_WEIGHT_GGUF_IQ4_XS;
}

MF_INLINE folded_tables folded_tables_of(mf_weight_kind kind)
{
    int16_t first[32], last[32];
    unsigned char at[64];
    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t quarter = i / 8;
        /* as heads of Q4_K and Q5_K become scales */
        const uint32_t k_at = quarter == 1 ? 2 : quarter == 2 ? 1 : quarter;
        const uint32_t where = kind == MF_WEIGHT_GGUF_Q6_K     ? 4 * quarter
                               : kind == MF_WEIGHT_GGUF_IQ4_XS ? quarter
                                                               : k_at;
        const unsigned char none = 0x80;
        first[i] = (int16_t)level_of(kind, (int)(i % 8));
        last[i] = (int16_t)level_of(kind, (int)(8 + i % 8));
        at[2 * i] = folded_is_signed(kind) ? none : (unsigned char)where;
        at[2 * i + 1] = folded_is_signed(kind) ? (unsigned char)where : none;
    }
    return (folded_tables){_mm512_loadu_si512(first), _mm512_loadu_si512(last),
                           _mm512_loadu_si512(at)};
}

/* The scale of each quarter as words, of bytes that every quarter has. */
MF_INLINE __m512i folded_scales(mf_weight_kind kind, __m512i bytes, __m512i at)
{
    const __m512i words = _mm512_shuffle_epi8(bytes, at);
    return folded_is_signed(kind) ? _mm512_srai_epi16(words, 8) : words;
}

MF_INLINE __m512i folded_bits(__m512i v, uint32_t shift, uint32_t mask)
{
    return _mm512_and_si512(_mm512_srli_epi32(v, shift), _mm512_set1_epi32((int)mask));
}

MF_INLINE void folded_minima(__m512i bytes, float out[4][MF_TILE_ROWS])
{
    MF_UNROLL(4)
    for (uint32_t g = 0; g < 4; g++)
        _mm512_storeu_ps(out[g], _mm512_cvtepi32_ps(folded_bits(bytes, 8 * g, 0xff)));
}

/* Of 16 rows the even groups' and the odd ones', to each row. */
MF_INLINE void folded_keep_scales(folded_block *b, __m512i even, __m512i odd)
{
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i last = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    _mm512_storeu_si512(b->scales[0], _mm512_permutex2var_epi32(even, first, odd));
    _mm512_storeu_si512(b->scales[8], _mm512_permutex2var_epi32(even, last, odd));
}

/* Q4_K's and Q5_K's heads: two float16; the 6 bits of eight scales and eight minima in 12 bytes. */
MF_INLINE void folded_k_heads(folded_block *b, folded_factors *out)
{
    __m512i heads[4];
    mf_load_fours_avx512(b->rows, 0, heads);
    const __m512i a = heads[1], m = heads[2], c = heads[3];
    const __m512i scales[2] = {
        folded_bits(a, 0, 0x3f3f3f3f),
        _mm512_or_si512(folded_bits(c, 0, 0x0f0f0f0f), folded_bits(a, 2, 0x30303030))};
    const __m512i even = _mm512_set1_epi32(0x00ff00ff);
    /* of groups 0, 4, 2, 6; and 1, 5, 3, 7 */
    folded_keep_scales(b,
                       _mm512_or_si512(_mm512_and_si512(scales[0], even),
                                       _mm512_slli_epi32(_mm512_and_si512(scales[1], even), 8)),
                       _mm512_or_si512(folded_bits(scales[0], 8, 0x00ff00ff),
                                       _mm512_andnot_si512(even, scales[1])));
    folded_minima(folded_bits(m, 0, 0x3f3f3f3f), out->minima);
    folded_minima(_mm512_or_si512(folded_bits(c, 4, 0x0f0f0f0f), folded_bits(m, 2, 0x30303030)),
                  out->minima + 4);
    const __m512 minus = _mm512_set1_ps(-0.0f);
    _mm512_storeu_ps(out->scales, mf_low_halves_avx512(heads[0]));
    _mm512_storeu_ps(out->min_scales,
                     _mm512_xor_ps(mf_low_halves_avx512(_mm512_srli_epi32(heads[0], 16)), minus));
}

/* IQ4_XS: a float16; the upper 2 bits of eight scales; their lower 4 bits. 32 above what they are.
 */
MF_INLINE void folded_iq4_heads(folded_block *b, folded_factors *out)
{
    __m512i heads[4];
    mf_load_fours_avx512(b->rows, 0, heads);
    __m512i scales[2];
    MF_UNROLL(2)
    for (uint32_t odd = 0; odd < 2; odd++) {
        const __m512i upper = _mm512_srli_epi32(heads[0], 16 + 2 * odd);
        const __m512i lower = folded_bits(heads[1], 4 * odd, 0x0f0f0f0f);
        /* two bits of every four, to bits 4 and 5 of every byte */
        const __m512i pairs = _mm512_or_si512(
            _mm512_and_si512(_mm512_slli_epi32(upper, 4), _mm512_set1_epi32(0x00000030)),
            _mm512_and_si512(_mm512_slli_epi32(upper, 8), _mm512_set1_epi32(0x00003000)));
        const __m512i others = _mm512_or_si512(
            _mm512_and_si512(_mm512_slli_epi32(upper, 12), _mm512_set1_epi32(0x00300000)),
            _mm512_and_si512(_mm512_slli_epi32(upper, 16), _mm512_set1_epi32(0x30000000)));
        const __m512i all = _mm512_or_si512(lower, _mm512_or_si512(pairs, others));
        scales[odd] = _mm512_sub_epi8(all, _mm512_set1_epi8(32));
    }
    folded_keep_scales(b, scales[0], scales[1]);
    _mm512_storeu_ps(out->scales, mf_low_halves_avx512(heads[0]));
}

MF_INLINE void folded_q6_heads(const folded_block *b, folded_factors *out)
{
    uint16_t halves[MF_TILE_ROWS];
    for (uint32_t r = 0; r < MF_TILE_ROWS; r++)
        halves[r] = half_at(b->rows[r] + 208);
    _mm512_storeu_ps(out->scales, _mm512_cvtph_ps(load_32((const unsigned char *)halves)));
}

/* ----------------------------------------------------------------------------------- weights -- */

/* What the 16 codes of a group become, in its quarter. */
typedef struct folded_levels {
    __m512i high, low;
} folded_levels;

/* The digits of words, the first eight of each quarter and the last. */
MF_INLINE folded_levels folded_digits(__m512i first, __m512i last)
{
    const __m512i byte = _mm512_set1_epi16(0xff);
    return (folded_levels){
        _mm512_packs_epi16(_mm512_srai_epi16(first, 8), _mm512_srai_epi16(last, 8)),
        _mm512_packus_epi16(_mm512_and_si512(first, byte), _mm512_and_si512(last, byte))};
}

/* Of groups with those scales; `more` is added to each weight. */
MF_INLINE folded_levels folded_levels_of(const folded_tables *t, __m512i scales, uint32_t more)
{
    __m512i first = _mm512_mullo_epi16(t->first, scales);
    __m512i last = _mm512_mullo_epi16(t->last, scales);
    if (more == 16) {
        first = _mm512_add_epi16(first, _mm512_slli_epi16(scales, 4));
        last = _mm512_add_epi16(last, _mm512_slli_epi16(scales, 4));
    }
    return folded_digits(first, last);
}

MF_INLINE void folded_store(folded_panel *out, uint32_t step, uint32_t row, folded_levels digits)
{
    _mm512_storeu_si512(out->high[step][row], digits.high);
    _mm512_storeu_si512(out->low[step][row], digits.low);
}

/* The digits that codes, of 4 bits, have in `levels`. */
MF_INLINE folded_levels folded_look_up(const folded_levels *levels, __m512i codes)
{
    return (folded_levels){_mm512_shuffle_epi8(levels->high, codes),
                           _mm512_shuffle_epi8(levels->low, codes)};
}

/* Those of `more` in place of them where a bit is set. */
MF_INLINE folded_levels folded_look_up_fifth(folded_levels digits, const folded_levels *more,
                                             __m512i codes, __mmask64 fifth)
{
    return (folded_levels){_mm512_mask_shuffle_epi8(digits.high, fifth, more->high, codes),
                           _mm512_mask_shuffle_epi8(digits.low, fifth, more->low, codes)};
}

/* Q5_K's fifth bits of a step: of group g in bit g of each of 32 bytes. */
MF_INLINE __mmask64 folded_fifths(const unsigned char *p, uint32_t step)
{
    const long long each = (long long)(0x0101010101010101u << step / 2);
    const __m512i bit =
        _mm512_setr_epi64(each, each, each << 2, each << 2, each << 4, each << 4,
                          (long long)((uint64_t)each << 6), (long long)((uint64_t)each << 6));
    return _mm512_test_epi8_mask(_mm512_broadcast_i32x4(load_16(p + (size_t)(step % 2) * 16)), bit);
}

/* Codes of 4 bits, the even groups' or the odd ones'. 16 bytes are two times 16 columns: of IQ4_XS
 * the halves of a group, of others the same half of two. */
MF_INLINE void folded_unpack_nibbles(mf_weight_kind kind, const folded_tables *t,
                                     const folded_block *b, uint32_t row, uint32_t odd,
                                     folded_panel *out)
{
    const size_t at = kind == MF_WEIGHT_GGUF_IQ4_XS ? 8 : kind == MF_WEIGHT_GGUF_Q4_K ? 16 : 48;
    const unsigned char *p = b->rows[row];
    const __m512i z[2] = {_mm512_loadu_si512(p + at), _mm512_loadu_si512(p + at + 64)};
    const __m512i pieces[2] = {_mm512_shuffle_i64x2(z[0], z[1], 0x88),
                               _mm512_shuffle_i64x2(z[0], z[1], 0xdd)};
    const __m512i nibble = _mm512_set1_epi8(15);
    const __m512i scales =
        folded_scales(kind, _mm512_set1_epi32((int)b->scales[row][odd]), t->scale_at);
    const folded_levels levels = folded_levels_of(t, scales, 0);
    folded_levels more = levels;
    if (kind == MF_WEIGHT_GGUF_Q5_K)
        more = folded_levels_of(t, scales, 16);
    MF_UNROLL(2)
    for (uint32_t half = 0; half < 2; half++) {
        const uint32_t step = 2 * odd + half;
        const bool is_upper = kind == MF_WEIGHT_GGUF_IQ4_XS ? half == 1 : odd == 1;
        const __m512i piece = pieces[kind == MF_WEIGHT_GGUF_IQ4_XS ? odd : half];
        const __m512i codes =
            _mm512_and_si512(is_upper ? _mm512_srli_epi32(piece, 4) : piece, nibble);
        folded_levels digits = folded_look_up(&levels, codes);
        if (kind == MF_WEIGHT_GGUF_Q5_K)
            digits = folded_look_up_fifth(digits, &more, codes, folded_fifths(p + 16, step));
        folded_store(out, step, row, digits);
    }
}

/* Step `step` of codes of 6 bits: lower halves in 64 bytes for each 128 columns, upper ones in 32.
 */
MF_INLINE __m512i folded_sixes(const __m512i low[2], __m512i high, uint32_t step)
{
    const __m512i by_low = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
    const __m512i by_high = step / 2 == 0 ? _mm512_setr_epi64(4, 4, 0, 0, 4, 4, 0, 0)
                                          : _mm512_setr_epi64(2, 2, 62, 62, 2, 2, 62, 62);
    const __m512i lower = step == 0   ? _mm512_shuffle_i64x2(low[0], low[1], 0x00)
                          : step == 1 ? _mm512_shuffle_i64x2(low[0], low[1], 0x55)
                          : step == 2 ? _mm512_shuffle_i64x2(low[0], low[1], 0xaa)
                                      : _mm512_shuffle_i64x2(low[0], low[1], 0xff);
    const __m512i upper = step % 2 == 0 ? _mm512_shuffle_i64x2(high, high, 0xa0)
                                        : _mm512_shuffle_i64x2(high, high, 0xf5);
    const __m512i both =
        _mm512_ternarylogic_epi64(_mm512_set1_epi8(15), _mm512_srlv_epi64(lower, by_low),
                                  _mm512_rolv_epi64(upper, by_high), 0xca);
    return _mm512_and_si512(both, _mm512_set1_epi8(63));
}

MF_INLINE void folded_unpack_sixes(const folded_tables *t, const folded_block *b, uint32_t row,
                                   uint32_t odd, folded_panel *out)
{
    const unsigned char *p = b->rows[row];
    const __m512i low[2] = {_mm512_loadu_si512(p), _mm512_loadu_si512(p + 64)};
    const __m512i high = _mm512_loadu_si512(p + 128), zero = _mm512_setzero_si512();
    const __m512i bytes = _mm512_broadcast_i32x4(load_16(p + 192)), middle = _mm512_set1_epi16(32);
    MF_UNROLL(2)
    for (uint32_t step = 2 * odd; step < 2 * odd + 2; step++) {
        const __m512i codes = folded_sixes(low, high, step);
        const __m512i at = _mm512_add_epi8(t->scale_at, _mm512_set1_epi16((short)(step << 8)));
        const __m512i scales = folded_scales(MF_WEIGHT_GGUF_Q6_K, bytes, at);
        const __m512i first = _mm512_sub_epi16(_mm512_unpacklo_epi8(codes, zero), middle);
        const __m512i last = _mm512_sub_epi16(_mm512_unpackhi_epi8(codes, zero), middle);
        folded_store(
            out, step, row,
            folded_digits(_mm512_mullo_epi16(first, scales), _mm512_mullo_epi16(last, scales)));
    }
}

/* ------------------------------------------------------------------------------------- lanes -- */

/* What rows by vectors take in addition. */
typedef struct folded_lanes {
    blocks_tables tables;
    __m512i scale_at; /* where the scale of each lane is */
} folded_lanes;

MF_INLINE folded_lanes folded_lanes_of(mf_weight_kind kind, const mf_blocks_rows *w)
{
    /* where a row's scales of groups 0 to 7 are (folded_keep_scales) */
    static const unsigned char k_at[8] = {0, 4, 2, 6, 1, 5, 3, 7};
    static const unsigned char iq4_at[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    static const unsigned char crossed[8] = {0, 1, 4, 5, 2, 3, 6, 7};
    unsigned char at[64];
    memset(at, 0x80, sizeof at);
    for (uint32_t lane = 0; lane < 16; lane++) {
        const uint32_t group = crossed[lane / 2];
        const unsigned char where = kind == MF_WEIGHT_GGUF_Q6_K
                                        ? (unsigned char)(lane % 4 * 4 + lane / 4)
                                    : kind == MF_WEIGHT_GGUF_IQ4_XS ? iq4_at[group]
                                                                    : k_at[group];
        at[4 * lane + (folded_is_signed(kind) ? 3 : 0)] = where;
    }
    return (folded_lanes){tables_of(kind, w), _mm512_loadu_si512(at)};
}

/* The integer scales of a row's lanes. */
MF_INLINE __m512i folded_lane_scales(mf_weight_kind kind, const folded_lanes *t,
                                     const folded_block *b, uint32_t row)
{
    if (kind == MF_WEIGHT_GGUF_Q6_K) {
        const __m512i bytes = _mm512_broadcast_i32x4(load_16(b->rows[row] + 192));
        return _mm512_srai_epi32(_mm512_shuffle_epi8(bytes, t->scale_at), 24);
    }
    long long both;
    memcpy(&both, b->scales[row], sizeof both);
    const __m512i scales = _mm512_shuffle_epi8(_mm512_set1_epi64(both), t->scale_at);
    return kind == MF_WEIGHT_GGUF_IQ4_XS ? _mm512_srai_epi32(scales, 24) : scales;
}

/* A row's codes, or weights 128 above what they are, in lanes. */
MF_INLINE void folded_lane_weights(mf_weight_kind kind, const folded_lanes *t,
                                   const unsigned char *p, __m512i out[4])
{
    if (kind == MF_WEIGHT_GGUF_Q6_K) {
        __m512i chunks[4];
        MF_UNROLL(4)
        for (uint32_t c = 0; c < 4; c++)
            chunks[c] = chunk_weights(kind, &t->tables, p, c);
        mf_transpose_fours_avx512(chunks, out);
    } else if (kind == MF_WEIGHT_GGUF_IQ4_XS) {
        woven_weights(kind, &t->tables, p, out);
    } else {
        woven_codes(kind, &t->tables, p, out);
    }
}

/* A row by a token: what each lane adds to the sums by each digit of activations. */
MF_INLINE void folded_lane_sums(mf_weight_kind kind, const __m512i w[4], __m512i scales,
                                const mf_folded_span *x, __m512i out[MF_FOLDED_DIGITS])
{
    MF_UNROLL(3)
    for (uint32_t d = 0; d < MF_FOLDED_DIGITS; d++)
        out[d] =
            folded_is_signed(kind) ? _mm512_loadu_si512(x->offsets[d]) : _mm512_setzero_si512();
    MF_UNROLL(4)
    for (uint32_t k = 0; k < 4; k++) {
        MF_UNROLL(3)
        for (uint32_t d = 0; d < MF_FOLDED_DIGITS; d++)
            out[d] = add_products(out[d], w[k], _mm512_loadu_si512(x->lanes[d][k]));
    }
    MF_UNROLL(3)
    for (uint32_t d = 0; d < MF_FOLDED_DIGITS; d++) /* Q4_K: 16 * 15 * 128 fits 16 bits */
        out[d] = kind == MF_WEIGHT_GGUF_Q4_K ? _mm512_madd_epi16(out[d], scales)
                                             : _mm512_mullo_epi32(out[d], scales);
}

/* Of four vectors the sums of every fourth lane, of vector r in quarter r. */
MF_INLINE __m512i folded_add_quarters(const __m512i v[4])
{
    const __m512i ab = _mm512_add_epi32(_mm512_shuffle_i32x4(v[0], v[1], 0x44),
                                        _mm512_shuffle_i32x4(v[0], v[1], 0xee));
    const __m512i cd = _mm512_add_epi32(_mm512_shuffle_i32x4(v[2], v[3], 0x44),
                                        _mm512_shuffle_i32x4(v[2], v[3], 0xee));
    return _mm512_add_epi32(_mm512_shuffle_i32x4(ab, cd, 0x88), _mm512_shuffle_i32x4(ab, cd, 0xdd));
}

/* The lanes of four rows' sums by each digit, added up: of row r in quarter r. */
MF_INLINE __m512i folded_add_lanes(__m512i sums[MF_FOLDED_DIGITS][4])
{
    __m512i quarters[4], lanes[4];
    MF_UNROLL(3)
    for (uint32_t d = 0; d < MF_FOLDED_DIGITS; d++)
        quarters[d] = folded_add_quarters(sums[d]);
    quarters[3] = _mm512_setzero_si512();
    mf_transpose_fours_avx512(quarters, lanes);
    return _mm512_add_epi32(_mm512_add_epi32(lanes[0], lanes[1]),
                            _mm512_add_epi32(lanes[2], lanes[3]));
}

/* Rows 4 * i .. + 3 by n, a constant, tokens: of each one the sums by each digit. */
MF_INLINE void folded_four_rows(mf_weight_kind kind, uint32_t n, const folded_lanes *t,
                                const folded_block *b, uint32_t i,
                                const mf_folded_span *const x[FOLDED_BY_LANES],
                                __m512i out[FOLDED_BY_LANES])
{
    __m512i sums[FOLDED_BY_LANES][MF_FOLDED_DIGITS][4];
    MF_UNROLL(4)
    for (uint32_t r = 0; r < 4; r++) {
        __m512i w[4], row[MF_FOLDED_DIGITS];
        const __m512i scales = folded_lane_scales(kind, t, b, 4 * i + r);
        folded_lane_weights(kind, t, b->rows[4 * i + r], w);
        MF_UNROLL(2)
        for (uint32_t token = 0; token < n; token++) {
            folded_lane_sums(kind, w, scales, x[token], row);
            MF_UNROLL(3)
            for (uint32_t d = 0; d < MF_FOLDED_DIGITS; d++)
                sums[token][d][r] = row[d];
        }
    }
    MF_UNROLL(2)
    for (uint32_t token = 0; token < n; token++)
        out[token] = folded_add_lanes(sums[token]);
}

/* --------------------------------------------------------------------------------- 16 rows -- */

/* Block `span` of n_rows rows from `row` on, `apart` from each other; those that are missing are
 * the last one again. */
MF_INLINE void folded_open(mf_weight_kind kind, const mf_blocks_rows *w, uint32_t row,
                           uint32_t n_rows, uint32_t apart, uint32_t span, folded_block *b,
                           folded_factors *out)
{
    const unsigned char *first = w->values + row * w->row_bytes + (size_t)span * w->span_bytes;
    for (uint32_t r = 0; r < MF_TILE_ROWS; r++)
        b->rows[r] = first + (size_t)(r < n_rows ? r : n_rows - 1) * apart * w->row_bytes;
    if (kind == MF_WEIGHT_GGUF_Q6_K)
        folded_q6_heads(b, out);
    else if (kind == MF_WEIGHT_GGUF_IQ4_XS)
        folded_iq4_heads(b, out);
    else
        folded_k_heads(b, out);
}

/* What comes after a row of it. */
MF_INLINE void folded_prefetch(mf_weight_kind kind, const folded_block *b, uint32_t row)
{
    for (uint32_t at = 0; at < mf_blocks_span_bytes(kind); at += 64)
        __builtin_prefetch(b->rows[row] + b->ahead + at);
}

/* Steps 0 and 1 of it, or 2 and 3. */
MF_INLINE void folded_unpack(mf_weight_kind kind, const folded_tables *t, const folded_block *b,
                             uint32_t odd, folded_panel *out)
{
    for (uint32_t row = 0; row < MF_TILE_ROWS; row++) {
        if (odd == 0)
            folded_prefetch(kind, b, row);
        if (kind == MF_WEIGHT_GGUF_Q6_K)
            folded_unpack_sixes(t, b, row, odd, out);
        else
            folded_unpack_nibbles(kind, t, b, row, odd, out);
    }
}

#endif

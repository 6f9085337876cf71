/* SPDX-License-Identifier: MIT */
/*
 * 16 rows of blocks with a float for their scale, as tiles take them (scaled_token.h): a span's
 * weights, a tile a block, whose rows are four columns each; and their scales. Where bytes hold two
 * weights each, columns i and 16 + i or two neighbours, the low ones come first, in the order in
 * which the digits of tokens are laid out.
 */
#ifndef MF_KERNELS_SCALED_UNPACK_H
#define MF_KERNELS_SCALED_UNPACK_H

#include "kernels/x86/blocks_row_avx512.h"
#include "kernels/x86/scaled_token.h"

/* A span of 16 rows. */
typedef struct scaled_panel {
    signed char weights[MF_SCALED_BLOCKS][MF_TILE_ROWS][MF_TILE_ROW_BYTES];
    float scales[MF_SCALED_BLOCKS][MF_TILE_ROWS];
} scaled_panel;

/* Where it lies: n_rows rows, 16 at most, so far apart. */
typedef struct scaled_rows {
    const unsigned char *values, *scales;
    size_t apart, scales_apart;
    uint32_t n_rows;
} scaled_rows;

/* What does not change between panels: what nibbles mean, and that times 2^shift. */
typedef struct scaled_tables {
    __m512i levels, more;
} scaled_tables;

MF_INLINE scaled_tables scaled_tables_of(mf_weight_kind kind)
{
    signed char levels[64], more[64];
    for (int i = 0; i < 64; i++) {
        levels[i] = (signed char)level_of(kind, i);
        more[i] = (signed char)(level_of(kind, i) * (1 << mf_scaled_shift(kind)));
    }
    return (scaled_tables){_mm512_loadu_si512(levels), _mm512_loadu_si512(more)};
}

/* Bytes of a block of values, of which so many come before the weights. */
MF_INLINE uint32_t scaled_block_bytes(mf_weight_kind kind)
{
    return mf_blocks_span_bytes(kind) / MF_SCALED_BLOCKS;
}

MF_INLINE uint32_t scaled_head_bytes(mf_weight_kind kind)
{
    switch (kind) {
    case MF_WEIGHT_GGUF_Q4_0:
    case MF_WEIGHT_GGUF_IQ4_NL:
    case MF_WEIGHT_GGUF_Q8_0:
        return 2;
    case MF_WEIGHT_GGUF_Q5_0: /* and fifth bits */
        return 6;
    case MF_WEIGHT_GGUF_MXFP4:
        return 1;
    default:
        return 0;
    }
}

MF_INLINE uint32_t scaled_row_at(const scaled_rows *rows, uint32_t r)
{
    return r < rows->n_rows ? r : rows->n_rows - 1;
}

/* Where rows begin, from the first one on; those that are missing are the last one again. */
MF_INLINE __m512i scaled_places(const scaled_rows *rows)
{
    const __m512i r = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_mullo_epi32(_mm512_min_epi32(r, _mm512_set1_epi32((int)rows->n_rows - 1)),
                              _mm512_set1_epi32((int)rows->apart));
}

/* ------------------------------------------------------------------------------------ scales -- */

/* Those that lie in front of the weights, of which a block's begin at p. */
MF_INLINE __m512 scaled_heads(mf_weight_kind kind, const unsigned char *p, __m512i places)
{
    const __m512i v = _mm512_i32gather_epi32(places, (const void *)p, 1);
    return kind == MF_WEIGHT_GGUF_MXFP4 ? exponents_of(_mm512_slli_epi32(v, 24))
                                        : mf_low_halves_avx512(v);
}

/* MXFP4's eight codes of each row. */
MF_INLINE void scaled_exponents(const scaled_rows *rows, float out[MF_SCALED_BLOCKS][MF_TILE_ROWS])
{
    const __mmask64 highest = 0x8888888888888888; /* byte of each lane */
    const __m512i r =
        _mm512_setr_epi32(0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120);
    uint64_t codes[MF_TILE_ROWS];
    for (uint32_t i = 0; i < MF_TILE_ROWS; i++)
        memcpy(&codes[i], rows->scales + scaled_row_at(rows, i) * rows->scales_apart,
               sizeof codes[i]);
    const __m512i front = _mm512_loadu_si512(codes), back = _mm512_loadu_si512(codes + 8);
    MF_UNROLL(8)
    for (uint32_t b = 0; b < MF_SCALED_BLOCKS; b++) {
        const __m512i at = _mm512_slli_epi32(_mm512_add_epi32(r, _mm512_set1_epi32((int)b)), 24);
        _mm512_storeu_ps(out[b],
                         exponents_of(_mm512_maskz_permutex2var_epi8(highest, front, at, back)));
    }
}

/* Integers' scales. */
MF_INLINE void scaled_floats(const mf_blocks_rows *w, const scaled_rows *rows,
                             float out[MF_SCALED_BLOCKS][MF_TILE_ROWS])
{
    for (uint32_t r = 0; r < MF_TILE_ROWS; r++) {
        float eight[MF_SCALED_BLOCKS];
        mf_blocks_scales(w, rows->scales + scaled_row_at(rows, r) * rows->scales_apart, eight);
        for (uint32_t b = 0; b < MF_SCALED_BLOCKS; b++)
            out[b][r] = eight[b];
    }
}

/* ----------------------------------------------------------------------------------- weights -- */

MF_INLINE void scaled_store(__m512i v, signed char out[MF_TILE_ROW_BYTES])
{
    _mm512_storeu_si512(out, v);
}

/* Fours of columns in the low bits of bytes (above them anything), Q4_0's and INT4's as integers:
 * to a tile's row, and times 2^shift eight rows below. */
MF_INLINE void scaled_put_codes(__m512i low_bits, __m512i high_bits,
                                signed char out[][MF_TILE_ROW_BYTES])
{
    const __m512i low = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8);
    const __m512i high = _mm512_set1_epi8((char)0xf0), top = _mm512_set1_epi8((char)0x80);
    scaled_store(_mm512_sub_epi8(_mm512_and_si512(low_bits, low), eight), out[0]);
    scaled_store(_mm512_ternarylogic_epi64(high_bits, high, top, 0x6a), out[8]);
}

/* The same by tables, by bytes below 16. */
MF_INLINE void scaled_put_levels(const scaled_tables *t, uint32_t shift, __m512i codes,
                                 signed char out[][MF_TILE_ROW_BYTES])
{
    scaled_store(_mm512_shuffle_epi8(t->levels, codes), out[0]);
    if (shift != 0)
        scaled_store(_mm512_shuffle_epi8(t->more, codes), out[8]);
}

/* Q5_0's, of which bits have the fifth bits at 2^4. */
MF_INLINE void scaled_put_fifths(__m512i codes, __m512i bits, signed char out[][MF_TILE_ROW_BYTES])
{
    const __m512i fifth = _mm512_set1_epi8(16), high = _mm512_set1_epi8((char)0xf8);
    const __m512i both = _mm512_ternarylogic_epi64(codes, bits, fifth, 0xf8);
    const __m512i w = _mm512_sub_epi8(both, fifth);
    scaled_store(w, out[0]);
    scaled_store(_mm512_and_si512(_mm512_slli_epi16(w, 3), high), out[8]);
}

/* Columns 4 * i .. + 3 of Q5_0's fifth bits, of which each lane has 32: at 2^4 of each byte. */
MF_INLINE __m512i scaled_fifths(__m512i bits, uint32_t i)
{
    const __m512i first = _mm512_set1_epi64(0x2322212003020100);
    const char before = (char)((4 * i + 60) % 64);
    return _mm512_multishift_epi64_epi8(_mm512_add_epi8(first, _mm512_set1_epi8(before)), bits);
}

/* A block of two weights a byte, of which fours are 16 rows' words of 32 bits; bits: Q5_0's. */
MF_INLINE void scaled_put_nibbles(mf_weight_kind kind, const scaled_tables *t,
                                  const __m512i fours[4], __m512i bits,
                                  signed char out[MF_TILE_ROWS][MF_TILE_ROW_BYTES])
{
    const __m512i nibble = _mm512_set1_epi8(15);
    MF_UNROLL(4)
    for (uint32_t i = 0; i < 4; i++) {
        const __m512i down = _mm512_srli_epi16(fours[i], 4);
        if (mf_scaled_shift(kind) == 4) {
            scaled_put_codes(fours[i], _mm512_slli_epi16(fours[i], 4), out + i);
            scaled_put_codes(down, fours[i], out + 4 + i);
            continue;
        }
        const __m512i low = _mm512_and_si512(fours[i], nibble);
        const __m512i high = _mm512_and_si512(down, nibble);
        if (kind == MF_WEIGHT_GGUF_Q5_0) {
            scaled_put_fifths(low, scaled_fifths(bits, i), out + i);
            scaled_put_fifths(high, scaled_fifths(bits, 4 + i), out + 4 + i);
        } else {
            scaled_put_levels(t, mf_scaled_shift(kind), low, out + i);
            scaled_put_levels(t, mf_scaled_shift(kind), high, out + 4 + i);
        }
    }
}

/* 16 bytes a row of weights of 8 bits, which INT8 has 128 above what they are. */
MF_INLINE void scaled_put_bytes(mf_weight_kind kind, const __m512i fours[4],
                                signed char out[][MF_TILE_ROW_BYTES])
{
    const __m512i top = _mm512_set1_epi8((char)0x80);
    MF_UNROLL(4)
    for (uint32_t i = 0; i < 4; i++)
        scaled_store(kind == MF_WEIGHT_INT8 ? _mm512_xor_si512(fours[i], top) : fours[i], out[i]);
}

/* Blocks 0 .. n_blocks - 1 of a span. */
MF_INLINE void scaled_unpack(mf_weight_kind kind, const scaled_tables *t, const mf_blocks_rows *w,
                             const scaled_rows *rows, uint32_t n_blocks, scaled_panel *out)
{
    const bool is_wide = kind == MF_WEIGHT_GGUF_Q8_0 || kind == MF_WEIGHT_INT8;
    const __m512i places = scaled_places(rows);
    const unsigned char *v[MF_TILE_ROWS];
    for (uint32_t r = 0; r < MF_TILE_ROWS; r++)
        v[r] = rows->values + scaled_row_at(rows, r) * rows->apart + scaled_head_bytes(kind);
    MF_ROLLED
    for (uint32_t b = 0; b < n_blocks; b++) {
        const unsigned char *p = rows->values + (size_t)b * scaled_block_bytes(kind);
        __m512i fours[4], bits = _mm512_setzero_si512();
        mf_load_fours_avx512(v, (size_t)b * scaled_block_bytes(kind), fours);
        if (kind == MF_WEIGHT_GGUF_Q5_0)
            bits = _mm512_i32gather_epi32(places, (const void *)(p + 2), 1);
        if (is_wide) {
            scaled_put_bytes(kind, fours, out->weights[b]);
            mf_load_fours_avx512(v, (size_t)b * scaled_block_bytes(kind) + 16, fours);
            scaled_put_bytes(kind, fours, out->weights[b] + 4);
        } else {
            scaled_put_nibbles(kind, t, fours, bits, out->weights[b]);
        }
        if (scaled_head_bytes(kind) > 0)
            _mm512_storeu_ps(out->scales[b], scaled_heads(kind, p, places));
    }
    if (kind == MF_WEIGHT_MXFP4)
        scaled_exponents(rows, out->scales);
    else if (scaled_head_bytes(kind) == 0)
        scaled_floats(w, rows, out->scales);
}

#endif

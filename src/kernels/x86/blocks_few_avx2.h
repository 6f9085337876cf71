/* SPDX-License-Identifier: MIT */
/*
 * One token, or few, by formats of blocks, for blocks_span_avx2.h. The integers of a scale's
 * columns are added up before they become a float, those of four rows together, so that
 * blocks_many_avx2.h, where lanes are tokens, comes to the same bits.
 *
 * Four rows share accumulators, a chain in each lane. Sums of 32 columns: one, row r in lane r of
 * either half; the lower half has the blocks 0 to 3 of a span, the higher one 4 to 7. Of 16: two,
 * of two rows each; of a row's two lanes one has half the columns of a block, one the others.
 */
#ifndef MF_KERNELS_BLOCKS_FEW_AVX2_H
#define MF_KERNELS_BLOCKS_FEW_AVX2_H

#include "kernels/x86/blocks_sizes_avx2.h"

MF_INLINE blocks_form form_of(mf_weight_kind kind)
{
    const bool is_apart = WIDE_APART && mf_blocks_is_wide(kind);
    return (blocks_form){.has_sixteens = mf_blocks_has_sixteens(kind),
                         .has_min = mf_blocks_has_min(kind),
                         .has_excess = excess_of(kind) != NO_EXCESS,
                         .by_sixteens = mf_blocks_has_sixteens(kind) || is_apart,
                         .has_units = is_apart,
                         .has_high = mf_blocks_is_wide(kind) && !is_apart,
                         .excess = excess_of(kind),
                         .bits = bits_of(kind)};
}

/* Accumulators of four rows. */
MF_INLINE uint32_t accumulators(const blocks_form *f)
{
    return f->by_sixteens ? 2 : 1;
}

MF_INLINE void sum_accumulators(bool by_sixteens, const vec v[2], float out[4])
{
    const vec all = by_sixteens ? _mm256_add_ps(_mm256_shuffle_ps(v[0], v[1], 0x88),
                                                _mm256_shuffle_ps(v[0], v[1], 0xdd))
                                : v[0];
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}

/* Four rows' scales, or minima, in the lanes of their sums: of pair b the b-th, or two. */
typedef struct lane_values {
    __m256 v[2 * PAIRS];
} lane_values;

MF_INLINE __m256 load_apart(const float *p)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p + 8), 1);
}

MF_INLINE __m256 unpack_pairs(__m256 a, __m256 b, uint32_t which)
{
    const __m256d x = _mm256_castps_pd(a), y = _mm256_castps_pd(b);
    return _mm256_castpd_ps(which == 0 ? _mm256_unpacklo_pd(x, y) : _mm256_unpackhi_pd(x, y));
}

/* A block's value for both of a row's lanes. */
MF_INLINE void lanes_of_blocks(const float *const rows[4], lane_values *out)
{
    MF_UNROLL(2)
    for (uint32_t i = 0; i < 2; i++) {
        const __m256 a = _mm256_loadu_ps(rows[2 * i]), b = _mm256_loadu_ps(rows[2 * i + 1]);
        out->v[i] = _mm256_shuffle_ps(a, b, 0x00);
        out->v[2 + i] = _mm256_shuffle_ps(a, b, 0x55);
        out->v[4 + i] = _mm256_shuffle_ps(a, b, 0xaa);
        out->v[6 + i] = _mm256_shuffle_ps(a, b, 0xff);
    }
}

MF_INLINE void lanes_of(const blocks_form *f, const float *const rows[4], lane_values *out)
{
    if (f->by_sixteens && !f->has_sixteens) {
        lanes_of_blocks(rows, out);
        return;
    }
    if (!f->has_sixteens) {
        const __m256 r[4] = {_mm256_loadu_ps(rows[0]), _mm256_loadu_ps(rows[1]),
                             _mm256_loadu_ps(rows[2]), _mm256_loadu_ps(rows[3])};
        const __m256 low[2] = {_mm256_unpacklo_ps(r[0], r[1]), _mm256_unpacklo_ps(r[2], r[3])};
        const __m256 high[2] = {_mm256_unpackhi_ps(r[0], r[1]), _mm256_unpackhi_ps(r[2], r[3])};
        MF_UNROLL(2)
        for (uint32_t i = 0; i < 2; i++) {
            out->v[i] = unpack_pairs(low[0], low[1], i);
            out->v[2 + i] = unpack_pairs(high[0], high[1], i);
        }
        return;
    }
    MF_UNROLL(2)
    for (uint32_t i = 0; i < 2; i++) { /* two pairs each */
        __m256 r[4];
        MF_UNROLL(4)
        for (uint32_t j = 0; j < 4; j++)
            r[j] = load_apart(rows[j] + 4 * (size_t)i);
        MF_UNROLL(2)
        for (uint32_t j = 0; j < 2; j++) {
            out->v[4 * i + 2 * j] = unpack_pairs(r[0], r[1], j);
            out->v[4 * i + 2 * j + 1] = unpack_pairs(r[2], r[3], j);
        }
    }
}

MF_INLINE void scale_lanes(const blocks_form *f, const span_scales *const s[4], lane_values *scales,
                           lane_values *minima)
{
    const float *const scale[4] = {s[0]->scale, s[1]->scale, s[2]->scale, s[3]->scale};
    const float *const min[4] = {s[0]->min, s[1]->min, s[2]->min, s[3]->min};
    lanes_of(f, scale, scales);
    if (f->has_min)
        lanes_of(f, min, minima);
}

/* Two rows' lanes, neighbours added up: both have two in each half. */
MF_INLINE void neighbours_of(__m256i a, __m256i b, __m256i out[2])
{
    const __m256 x = _mm256_castsi256_ps(a), y = _mm256_castsi256_ps(b);
    out[0] = _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0x88));
    out[1] = _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0xdd));
}

/* Four rows' sums of each eight products, by lanes: out[0], or by 16 columns both. */
MF_INLINE void add_lanes(bool by_sixteens, const __m256i e[4], __m256i out[2])
{
    if (!by_sixteens) {
        const __m256i a =
            _mm256_add_epi32(_mm256_unpacklo_epi32(e[0], e[1]), _mm256_unpackhi_epi32(e[0], e[1]));
        const __m256i b =
            _mm256_add_epi32(_mm256_unpacklo_epi32(e[2], e[3]), _mm256_unpackhi_epi32(e[2], e[3]));
        out[0] = _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
        return;
    }
    MF_UNROLL(2)
    for (uint32_t i = 0; i < 2; i++) {
        __m256i v[2];
        neighbours_of(e[2 * i], e[2 * i + 1], v);
        out[i] = _mm256_add_epi32(v[0], v[1]);
    }
}

MF_INLINE void add_eights(const blocks_form *f, const digit_sums eights[4], digit_sums out[2])
{
    const __m256i low[4] = {eights[0].low, eights[1].low, eights[2].low, eights[3].low};
    const __m256i high[4] = {eights[0].high, eights[1].high, eights[2].high, eights[3].high};
    __m256i lows[2], highs[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    add_lanes(f->by_sixteens, low, lows);
    if (f->has_high)
        add_lanes(f->by_sixteens, high, highs);
    MF_UNROLL(2)
    for (uint32_t i = 0; i < accumulators(f); i++)
        out[i] = (digit_sums){lows[i], highs[i]};
}

/* The tier's own: the sums of four rows' pair b by a token, a lane each as their scales have. */
MF_INLINE void sum_pair(const blocks_form *f, const weights_64 w[4], const mf_blocks_span *x,
                        uint32_t b, digit_sums out[2]);

/* Sums as floats, without what weights that are above what they mean have added: those of the
 * activations, which come multiplied where these have units of their own. */
MF_INLINE __m256 floats_of(const blocks_form *f, digit_sums s, digit_sums x)
{
    if (f->has_units)
        return _mm256_cvtepi32_ps(_mm256_sub_epi32(s.low, x.low));
    if (f->has_excess)
        s.low = _mm256_sub_epi32(s.low, _mm256_slli_epi32(x.low, f->excess));
    if (!f->has_high)
        return _mm256_cvtepi32_ps(s.low);
    s.high = _mm256_sub_epi32(s.high, _mm256_slli_epi32(x.high, f->excess));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(s.high), _mm256_set1_ps(1 << (2 * DIGIT_BITS)),
                           _mm256_cvtepi32_ps(s.low));
}

/* Four rows' pair b of a span by a token. */
MF_INLINE void add_pair(const blocks_form *f, const weights_64 w[4], const lane_values *scales,
                        const lane_values *minima, const mf_blocks_span *x, uint32_t b,
                        __m256 sums[2])
{
    const uint32_t n = accumulators(f);
    digit_sums lanes[2];
    sum_pair(f, w, x, b, lanes);
    MF_UNROLL(2)
    for (uint32_t i = 0; i < n; i++) {
        const __m256i own = _mm256_loadu_si256((const __m256i *)(const void *)x->pairs.sums[b]);
        const __m256i highs = _mm256_loadu_si256((const __m256i *)(const void *)x->pairs.highs[b]);
        __m256 sum = floats_of(f, lanes[i], (digit_sums){own, highs});
        if (f->has_units)
            sum = _mm256_mul_ps(sum, _mm256_loadu_ps(x->pairs.units[b]));
        sums[i] = _mm256_fmadd_ps(sum, scales->v[n * b + i], sums[i]);
        if (f->has_min)
            sums[i] =
                _mm256_fmadd_ps(_mm256_loadu_ps(x->pairs.totals[b]), minima->v[n * b + i], sums[i]);
    }
}

/* A span's sums into an accumulator. */
MF_INLINE void add_sum(const blocks_form *f, __m256 sum, const mf_blocks_span *x, vec *acc)
{
    *acc = f->has_units ? _mm256_add_ps(*acc, sum)
                        : _mm256_fmadd_ps(sum, _mm256_set1_ps(x->units[0]), *acc);
}

/* Into the accumulators, `apart` from each other. */
MF_INLINE void add_sums(const blocks_form *f, const __m256 sums[2], const mf_blocks_span *x,
                        vec *acc, size_t apart)
{
    MF_UNROLL(2)
    for (uint32_t i = 0; i < accumulators(f); i++)
        add_sum(f, sums[i], x, &acc[i * apart]);
}

/* Four rows' spans as they are stored, by a token. */
MF_INLINE void add_stored_span(mf_weight_kind kind, const span_tables *t, const mf_blocks_rows *w,
                               const unsigned char *const v[4], const unsigned char *const s[4],
                               const mf_blocks_span *x, vec acc[2])
{
    const blocks_form f = form_of(kind);
    span_scales row_scales[4];
    lane_values scales, minima;
    __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    MF_UNROLL(4)
    for (uint32_t r = 0; r < 4; r++)
        scales_of(kind, v[r], s[r], w, &row_scales[r]);
    const span_scales *const rows[4] = {&row_scales[0], &row_scales[1], &row_scales[2],
                                        &row_scales[3]};
    scale_lanes(&f, rows, &scales, &minima);
    MF_UNROLL(4)
    for (uint32_t b = 0; b < PAIRS; b++) {
        weights_64 weights[4];
        MF_UNROLL(4)
        for (uint32_t r = 0; r < 4; r++)
            weights[r] = pair_weights(kind, t, v[r], b);
        add_pair(&f, weights, &scales, &minima, x, b, sums);
    }
    add_sums(&f, sums, x, acc, 1);
}

/* The same, unpacked. */
MF_INLINE void add_unpacked(const blocks_form *f, const unpacked_span *w, const lane_values *scales,
                            const lane_values *minima, const mf_blocks_span *x, vec *acc,
                            size_t apart)
{
    __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    MF_ROLLED
    for (uint32_t b = 0; b < PAIRS; b++) {
        const weights_64 weights[4] = {w[0].weights[b], w[1].weights[b], w[2].weights[b],
                                       w[3].weights[b]};
        add_pair(f, weights, scales, minima, x, b, sums);
    }
    add_sums(f, sums, x, acc, apart);
}

#endif

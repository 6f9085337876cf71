/* SPDX-License-Identifier: MIT */
/*
 * Few tokens: the lanes are positions along a row, as the packed weights lie in memory. Many: rows
 * go in panels of 16, which become the lanes; a panel's packed weights are transposed, so that a
 * vector holds the same eight columns of each row. Either way low and high nibbles are even and odd
 * columns, and one instruction multiplies four of them by four activations and adds up. As sums of
 * groups are exact, both give the same bits.
 */
#include "kernels/x86/fixed_avx512.h"

#include "kernels/x86/lanes_avx512.h"
#include "kernels/x86/vector_avx512.h"

#include <string.h>

enum {
    ROWS = LANES, /* of a panel */
    TILE = 4,     /* tokens whose sums are held in registers, those of each digit by itself */
    FEW = TILE,
    STEP_BYTES = 64 /* two groups of a row */
};

typedef __m512i ints;

MF_INLINE ints ints_load(const int32_t *p)
{
    return _mm512_loadu_si512(p);
}

MF_INLINE ints ints_set(int32_t value)
{
    return _mm512_set1_epi32(value);
}

MF_INLINE ints ints_add(ints a, ints b)
{
    return _mm512_add_epi32(a, b);
}

MF_INLINE lanes ints_to_lanes(ints v)
{
    return _mm512_cvtepi32_ps(v);
}

#include "kernels/x86/fixed_panel.h"

/* The largest magnitude; NaN if there is one. */
MF_INLINE float largest(const __m512 x[4])
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i max = _mm512_setzero_si512();
    for (int i = 0; i < 4; i++)
        max = _mm512_max_epu32(max, _mm512_and_si512(_mm512_castps_si512(x[i]), magnitude));
    uint32_t bits = _mm512_reduce_max_epu32(max);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The lowest bytes of 64 integers, those of even columns first. */
MF_INLINE __m512i low_bytes(const __m512i v[4])
{
    const __m512i order = _mm512_set_epi8(
        63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25, 23, 21, 19,
        17, 15, 13, 11, 9, 7, 5, 3, 1, 62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34,
        32, 30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    __m512i bytes = _mm512_castsi128_si512(_mm512_cvtepi32_epi8(v[0]));
    bytes = _mm512_inserti32x4(bytes, _mm512_cvtepi32_epi8(v[1]), 1);
    bytes = _mm512_inserti32x4(bytes, _mm512_cvtepi32_epi8(v[2]), 2);
    bytes = _mm512_inserti32x4(bytes, _mm512_cvtepi32_epi8(v[3]), 3);
    return _mm512_permutexvar_epi8(order, bytes);
}

MF_INLINE void store_half(signed char *out, __m256i bytes)
{
    _mm256_storeu_si256((__m256i *)(void *)out, bytes);
}

/* The sum of 64 integers, modulo 2^32: what is not finite became integers of any size. (The
 * intrinsic for a vector's sum adds its last ones as signed integers, which must not overflow.) */
MF_INLINE int32_t sum_integers(const __m512i v[4])
{
    __m512i all = _mm512_add_epi32(_mm512_add_epi32(v[0], v[1]), _mm512_add_epi32(v[2], v[3]));
    __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1)));
}

/* Activations that are not finite get a unit that is not. */
void mf_fixed_prepare_avx512(const mf_matrix *w, const float *x, void *out)
{
    const uint32_t n_groups = mf_fixed_groups(w);
    mf_fixed_pair *pairs = out;
    float *units = (float *)(void *)(pairs + mf_fixed_pairs(n_groups)), *sums = units + n_groups;
    int32_t *offsets = (int32_t *)(void *)(sums + n_groups);
    for (uint32_t g = 0; g < n_groups; g++, x += GROUP) {
        __m512 values[4];
        __m512i v[4];
        for (int i = 0; i < 4; i++)
            values[i] = _mm512_loadu_ps(x + i * MF_LANES_AVX512);
        float max = largest(values);
        max = max < MF_FIXED_SMALLEST ? MF_FIXED_SMALLEST : max;
        const __m512 per_unit = _mm512_set1_ps(MF_FIXED_LIMIT / max);
        for (int i = 0; i < 4; i++)
            v[i] = _mm512_cvtps_epi32(_mm512_mul_ps(values[i], per_unit));
        int32_t sum = sum_integers(v);
        units[g] = max / MF_FIXED_LIMIT;
        sums[g] = (float)sum * units[g];
        offsets[g] = (int32_t)(-8 * (int64_t)sum);
        for (int d = 0; d < DIGITS; d++) {
            const __m512i bytes = low_bytes(v);
            store_half(pairs[g / 2].digit[0][d][g % 2], _mm512_castsi512_si256(bytes));
            store_half(pairs[g / 2].digit[1][d][g % 2], _mm512_extracti64x4_epi64(bytes, 1));
            for (int i = 0; i < 4; i++) /* what is left, above this byte as a signed one */
                v[i] = _mm512_srai_epi32(_mm512_add_epi32(v[i], _mm512_set1_epi32(128)), 8);
        }
    }
}

MF_INLINE __m128i load_128(const unsigned char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* In each quarter of the vectors, lane r of column c is lane c of rows[r]. */
MF_INLINE void transpose_fours(const __m512i rows[4], __m512i columns[4])
{
    const __m512i a0 = _mm512_unpacklo_epi32(rows[0], rows[1]);
    const __m512i a1 = _mm512_unpackhi_epi32(rows[0], rows[1]);
    const __m512i a2 = _mm512_unpacklo_epi32(rows[2], rows[3]);
    const __m512i a3 = _mm512_unpackhi_epi32(rows[2], rows[3]);
    columns[0] = _mm512_unpacklo_epi64(a0, a2);
    columns[1] = _mm512_unpackhi_epi64(a0, a2);
    columns[2] = _mm512_unpacklo_epi64(a1, a3);
    columns[3] = _mm512_unpackhi_epi64(a1, a3);
}

/* Lane r of column c of the result is lane c of rows[r]. */
MF_INLINE void transpose(const __m512i rows[ROWS], __m512i columns[ROWS])
{
    __m512i b[ROWS];
    MF_UNROLL(4)
    for (int i = 0; i < ROWS; i += 4)
        transpose_fours(rows + i, b + i);
    MF_UNROLL(4)
    for (int k = 0; k < 4; k++) {
        __m512i even0 = _mm512_shuffle_i32x4(b[k], b[4 + k], 0x88);
        __m512i odd0 = _mm512_shuffle_i32x4(b[k], b[4 + k], 0xdd);
        __m512i even1 = _mm512_shuffle_i32x4(b[8 + k], b[12 + k], 0x88);
        __m512i odd1 = _mm512_shuffle_i32x4(b[8 + k], b[12 + k], 0xdd);
        columns[k] = _mm512_shuffle_i32x4(even0, even1, 0x88);
        columns[4 + k] = _mm512_shuffle_i32x4(odd0, odd1, 0x88);
        columns[8 + k] = _mm512_shuffle_i32x4(even0, even1, 0xdd);
        columns[12 + k] = _mm512_shuffle_i32x4(odd0, odd1, 0xdd);
    }
}

/* Four words of each row, all that it has, transposed. */
MF_INLINE void load_words(const panel *p, const unsigned char *values, __m512i columns[4])
{
    __m512i v[4];
    MF_UNROLL(4)
    for (uint32_t i = 0; i < 4; i++) {
        v[i] = _mm512_castsi128_si512(load_128(values + (size_t)p->rows[i] * 16));
        v[i] = _mm512_inserti32x4(v[i], load_128(values + (size_t)p->rows[4 + i] * 16), 1);
        v[i] = _mm512_inserti32x4(v[i], load_128(values + (size_t)p->rows[8 + i] * 16), 2);
        v[i] = _mm512_inserti32x4(v[i], load_128(values + (size_t)p->rows[12 + i] * 16), 3);
    }
    transpose_fours(v, columns);
}

/* n (at most 16 words' worth) scales or biases of each row from group `first` on, transposed. */
MF_INLINE void load_groups(const panel *p, const unsigned char *values, uint32_t first, uint32_t n,
                           __m512i columns[ROWS])
{
    const size_t value_bytes = p->w->shape.float_type == MF_F32 ? 4 : 2;
    const size_t row_bytes = value_bytes * (p->w->shape.n_cols / p->w->shape.group);
    const size_t n_bytes = n * value_bytes;
    const __mmask32 mask = n_bytes >= 64 ? 0xffffffffu : (1u << (n_bytes / 2)) - 1;
    __m512i rows[ROWS];
    if (row_bytes == 16) {
        load_words(p, values, columns);
        return;
    }
    MF_UNROLL(16)
    for (uint32_t r = 0; r < ROWS; r++) {
        const unsigned char *at = values + p->rows[r] * row_bytes + first * value_bytes;
        rows[r] = _mm512_maskz_loadu_epi16(mask, at);
        _mm_prefetch((const char *)at + p->next * row_bytes, _MM_HINT_T0);
    }
    transpose(rows, columns);
}

/* Word's low (0) or high (1) half as a float. */
MF_INLINE __m512 half_of(__m512i words, mf_dtype type, uint32_t half)
{
    if (type == MF_BF16)
        return _mm512_castsi512_ps(half == 0 ? _mm512_slli_epi32(words, 16)
                                             : _mm512_and_si512(words, _mm512_set1_epi32(-65536)));
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(half == 0 ? words : _mm512_srli_epi32(words, 16)));
}

MF_INLINE void expand_halves(const panel *p, mf_dtype type)
{
    const uint32_t n_groups = p->w->shape.n_cols / p->w->shape.group;
    for (uint32_t first = 0; first < n_groups; first += 2 * ROWS) {
        const uint32_t n = n_groups - first < 2 * ROWS ? n_groups - first : 2 * ROWS;
        __m512i scales[ROWS], biases[ROWS];
        load_groups(p, p->w->scales, first, n, scales);
        load_groups(p, p->w->biases, first, n, biases);
        for (uint32_t g = 0; g < n; g++)
            store_group(p, first + g, half_of(scales[g / 2], type, g % 2),
                        half_of(biases[g / 2], type, g % 2));
    }
}

static void expand_floats(const panel *p)
{
    const uint32_t n_groups = p->w->shape.n_cols / p->w->shape.group;
    for (uint32_t first = 0; first < n_groups; first += ROWS) {
        const uint32_t n = n_groups - first < ROWS ? n_groups - first : ROWS;
        __m512i scales[ROWS], biases[ROWS];
        load_groups(p, p->w->scales, first, n, scales);
        load_groups(p, p->w->biases, first, n, biases);
        for (uint32_t g = 0; g < n; g++)
            store_group(p, first + g, _mm512_castsi512_ps(scales[g]),
                        _mm512_castsi512_ps(biases[g]));
    }
}

static void expand_scales(const panel *p)
{
    if (p->w->shape.float_type == MF_F32)
        expand_floats(p);
    else if (p->w->shape.float_type == MF_BF16)
        expand_halves(p, MF_BF16);
    else
        expand_halves(p, MF_F16);
}

MF_INLINE __m512i low_nibbles(__m512i v)
{
    return _mm512_and_si512(v, _mm512_set1_epi8(0x0f));
}

MF_INLINE __m512i high_nibbles(__m512i v)
{
    return low_nibbles(_mm512_srli_epi32(v, 4));
}

/* Four neighbours, in every lane. */
MF_INLINE __m512i four(const signed char *digits)
{
    int32_t word;
    memcpy(&word, digits, sizeof word);
    return _mm512_set1_epi32(word);
}

/* acc + the sums of each lane's four products of unsigned by signed bytes. By hand, as gcc 12
 * copies and stores the intrinsic's accumulators at each use. */
MF_INLINE __m512i add_products(__m512i acc, __m512i weights, __m512i digits)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(weights), "v"(digits));
    return acc;
}

MF_INLINE __m512i join(__m512i digit0, __m512i digit1, __m512i digit2)
{
    __m512i high = _mm512_add_epi32(_mm512_slli_epi32(digit2, 8), digit1);
    return _mm512_add_epi32(_mm512_slli_epi32(high, 8), digit0);
}

/* Few tokens: the sums over the lanes of a group are exact like the rest. */
typedef struct step_digits {
    __m512i even[DIGITS], odd[DIGITS]; /* two groups' */
} step_digits;

MF_INLINE step_digits load_digits(const mf_fixed_pair *x)
{
    step_digits s;
    MF_UNROLL(3)
    for (int d = 0; d < DIGITS; d++) {
        s.even[d] = _mm512_loadu_si512(x->digit[0][d]);
        s.odd[d] = _mm512_loadu_si512(x->digit[1][d]);
    }
    return s;
}

/* Sums of two groups of one row, spread over eight lanes each. */
MF_INLINE __m512i multiply_step(__m512i weights, const step_digits *x)
{
    const __m512i low = low_nibbles(weights), high = high_nibbles(weights);
    __m512i sum = add_products(_mm512_setzero_si512(), low, x->even[2]);
    sum = _mm512_slli_epi32(add_products(sum, high, x->odd[2]), 8);
    sum = add_products(sum, low, x->even[1]);
    sum = _mm512_slli_epi32(add_products(sum, high, x->odd[1]), 8);
    sum = add_products(sum, low, x->even[0]);
    return add_products(sum, high, x->odd[0]);
}

/* Lane 4 * i + r is what lanes 4 * i .. 4 * i + 3 of sums[r] add up to. */
MF_INLINE __m512i add_fours(const __m512i sums[4])
{
    __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(sums[0], sums[1]),
                                 _mm512_unpackhi_epi32(sums[0], sums[1]));
    __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(sums[2], sums[3]),
                                 _mm512_unpackhi_epi32(sums[2], sums[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

/* One step of n (one or two, a constant) groups of four rows. */
MF_INLINE __m512i multiply_rows(const unsigned char *const rows[4], size_t at, size_t ahead,
                                uint32_t n, const mf_fixed_pair *x)
{
    const step_digits digits = load_digits(x);
    __m512i sums[4];
    MF_UNROLL(4)
    for (int r = 0; r < 4; r++) {
        const unsigned char *p = rows[r] + at;
        __m512i weights = n == 2 ? _mm512_loadu_si512(p)
                                 : _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)p));
        _mm_prefetch((const char *)p + ahead, _MM_HINT_T0);
        sums[r] = multiply_step(weights, &digits);
    }
    return add_fours(sums);
}

/* Sums of all groups of four rows, group g's at sums + g * ROWS. */
static void sum_rows(const unsigned char *const rows[4], uint32_t n_groups, size_t ahead,
                     const mf_fixed_pair *x, int32_t *sums)
{
    uint32_t g = 0;
    for (; g + 2 <= n_groups; g += 2, sums += 2 * ROWS) {
        __m512i s = multiply_rows(rows, (size_t)g * GROUP_BYTES, ahead, 2, x + g / 2);
        s = _mm512_add_epi32(s, _mm512_shuffle_i32x4(s, s, 0xb1));
        _mm_storeu_si128((__m128i *)sums, _mm512_castsi512_si128(s));
        _mm_storeu_si128((__m128i *)(sums + ROWS), _mm512_extracti32x4_epi32(s, 2));
    }
    if (g < n_groups) {
        __m512i s = multiply_rows(rows, (size_t)g * GROUP_BYTES, ahead, 1, x + g / 2);
        s = _mm512_add_epi32(s, _mm512_shuffle_i32x4(s, s, 0xb1));
        _mm_storeu_si128((__m128i *)sums, _mm512_castsi512_si128(s));
    }
}

/* A step of n (one or two, a constant) groups: columns[8 * i + j] are eight columns of group i. */
MF_INLINE void load_step(const panel *p, uint32_t step, uint32_t n, __m512i columns[ROWS])
{
    const size_t row_bytes = mf_fixed_row_bytes(p->w), at = (size_t)step * STEP_BYTES;
    __m512i rows[ROWS];
    MF_UNROLL(16)
    for (uint32_t r = 0; r < ROWS; r++) {
        const unsigned char *from = p->w->data + p->rows[r] * row_bytes + at;
        rows[r] = n == 2 ? _mm512_loadu_si512(from)
                         : _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)from));
        _mm_prefetch((const char *)from + ROWS * row_bytes, _MM_HINT_T0);
    }
    transpose(rows, columns);
}

static void unpack_panel(const panel *p, __m512i *out)
{
    const uint32_t n_groups = mf_fixed_groups(p->w);
    for (uint32_t g = 0; g < n_groups; g += 2) {
        const uint32_t n = n_groups - g < 2 ? 1 : 2;
        __m512i columns[ROWS];
        if (n == 2)
            load_step(p, g / 2, 2, columns);
        else
            load_step(p, g / 2, 1, columns);
        for (uint32_t i = 0; i < n; i++, out += QUADS) {
            for (uint32_t j = 0; j < QUADS / 2; j++) {
                _mm512_store_si512(out + j, low_nibbles(columns[8 * i + j]));
                _mm512_store_si512(out + QUADS / 2 + j, high_nibbles(columns[8 * i + j]));
            }
        }
    }
}

/* Where the activations of quad j lie, from the first one's digit on. */
MF_INLINE size_t place_of(uint32_t j)
{
    return j / (QUADS / 2) * sizeof(mf_fixed_pair) / 2 + j % (QUADS / 2) * 4;
}

/* All digits at once: sums that do not wait for each other, and of a whole tile as many as there
 * are registers for. */
MF_INLINE void add_digits(uint32_t n_tokens, const __m512i *w0, const __m512i *w1,
                          const signed char *x, size_t x_stride, __m512i *sums)
{
    __m512i acc0[FEW][DIGITS], acc1[FEW][DIGITS];
    MF_UNROLL(4)
    for (uint32_t t = 0; t < n_tokens; t++) {
        MF_UNROLL(3)
        for (uint32_t d = 0; d < DIGITS; d++)
            acc0[t][d] = acc1[t][d] = _mm512_setzero_si512();
    }
    MF_ROLLED
    for (uint32_t j = 0; j < QUADS; j++) {
        const __m512i a = w0[j], b = w1[j];
        MF_UNROLL(4)
        for (uint32_t t = 0; t < n_tokens; t++) {
            MF_UNROLL(3)
            for (uint32_t d = 0; d < DIGITS; d++) {
                const __m512i digits = four(x + t * x_stride + d * GROUP + place_of(j));
                acc0[t][d] = add_products(acc0[t][d], a, digits);
                acc1[t][d] = add_products(acc1[t][d], b, digits);
            }
        }
    }
    MF_UNROLL(4)
    for (uint32_t t = 0; t < n_tokens; t++) {
        sums[PANELS * t] = join(acc0[t][0], acc0[t][1], acc0[t][2]);
        sums[PANELS * t + 1] = join(acc1[t][0], acc1[t][1], acc1[t][2]);
    }
}

/* A function of its own: within the others gcc 12 does not keep the sums in registers. */
__attribute__((noinline)) static void add_digits_of_tile(const __m512i *w0, const __m512i *w1,
                                                         const signed char *x, size_t x_stride,
                                                         __m512i *sums)
{
    add_digits(TILE, w0, w1, x, x_stride, sums);
}

MF_INLINE void sum_group_tokens(uint32_t n_tokens, const __m512i *w0, const __m512i *w1,
                                const mf_fixed_pair *x, uint32_t group, size_t x_stride,
                                __m512i *sums)
{
    if (n_tokens == TILE)
        add_digits_of_tile(w0, w1, x->digit[0][0][group], x_stride, sums);
    else
        add_digits(n_tokens, w0, w1, x->digit[0][0][group], x_stride, sums);
}

#include "kernels/x86/fixed_product.h"

size_t mf_fixed_scratch_bytes_avx512(const mf_matrix *w, uint32_t n_tokens)
{
    return product_scratch_bytes(w, n_tokens);
}

void mf_fixed_matmul_avx512(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                            uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    multiply(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

/* SPDX-License-Identifier: MIT */
/* Repacked matrices against what their stored bytes mean, value by value, for every packing, bits,
 * zeros and order of columns, whole and in pieces. */
#include "base/half.h"
#include "base/weight_repack.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 7;

static uint32_t next(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static uint32_t word_of(const unsigned char *p, uint64_t i)
{
    uint32_t word;
    memcpy(&word, p + 4 * i, 4);
    return word;
}

/* Value i of a stream of words of which word j is the (first + j * step)-th. */
static uint32_t in_stream(const unsigned char *p, uint64_t first, uint64_t step, uint32_t bits,
                          uint64_t i, uint32_t add)
{
    uint32_t value = 0;
    for (uint32_t b = 0; b < bits; b++) {
        const uint64_t bit = i * bits + b;
        value |= ((word_of(p, first + bit / 32 * step) + add) >> bit % 32 & 1) << b;
    }
    return value;
}

static bool is_turned(const mf_repack *r)
{
    return r->packing != MF_PACKING_ROWS && r->packing != MF_PACKING_BYTES;
}

static uint32_t awq_nibble(const unsigned char *p, uint64_t n_words, uint64_t line, uint32_t row)
{
    static const uint32_t order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    uint32_t i = 0;
    while (order[i] != row % 8)
        i++;
    return word_of(p, line * n_words + row / 8) >> 4 * i & 15;
}

static uint32_t code_of(const mf_repack *r, const unsigned char *p, uint32_t row, uint32_t column)
{
    const uint64_t n_rows = r->shape.n_rows, n_cols = r->shape.n_cols;
    if (r->packing == MF_PACKING_AWQ)
        return awq_nibble(p, n_rows / 8, column, row);
    if (r->packing == MF_PACKING_BYTES)
        return (uint32_t)((int8_t)p[row * n_cols + column] + 128);
    if (r->packing == MF_PACKING_ROWS)
        return in_stream(p, row * (n_cols * r->bits / 32), 1, r->bits, column, 0);
    return in_stream(p, row, n_rows, r->bits, column, 0);
}

static uint32_t zero_of(const mf_repack *r, const unsigned char *p, uint32_t row, uint32_t group)
{
    static const uint32_t ones[9] = {[2] = 0x55555555, [4] = 0x11111111, [8] = 0x01010101};
    const uint64_t n_words = ((uint64_t)r->shape.n_rows * r->bits + 31) / 32;
    if (!r->has_zeros)
        return 1u << (r->bits - 1);
    if (r->packing == MF_PACKING_AWQ)
        return awq_nibble(p, n_words, group, row);
    if (r->packing == MF_PACKING_BYTES)
        return (uint32_t)((int8_t)p[(uint64_t)row * r->n_groups + group] + 128);
    if (r->packing == MF_PACKING_ROWS)
        return in_stream(p, group, r->n_groups, r->bits, row, 0);
    if (r->packing == MF_PACKING_GPTQ && r->bits == 3)
        return (in_stream(p, group * n_words, 1, 3, row, 0) + 1) % 8;
    return in_stream(p, group * n_words, 1, r->bits, row,
                     r->packing == MF_PACKING_GPTQ ? ones[r->bits] : 0);
}

static float scale_of(const mf_repack *r, const unsigned char *p, uint32_t row, uint32_t group)
{
    const uint64_t i = is_turned(r) ? (uint64_t)group * r->shape.n_rows + row
                                    : (uint64_t)row * r->n_groups + group;
    uint16_t half;
    float value;
    if (r->scale_type == MF_F32) {
        memcpy(&value, p + 4 * i, 4);
        return value;
    }
    memcpy(&half, p + 2 * i, 2);
    return r->scale_type == MF_F16 ? mf_f32_from_f16(half) : mf_f32_from_bf16(half);
}

static void fill_scales(const mf_repack *r, unsigned char *p, uint64_t n_bytes)
{
    const uint64_t width = mf_dtype_bytes(r->scale_type);
    for (uint64_t i = 0; i < n_bytes / width; i++) {
        const float value = (float)(1 + next() % 4096) / 65536.0f;
        const uint16_t half =
            r->scale_type == MF_F16 ? mf_f16_from_f32(value) : mf_bf16_from_f32(value);
        memcpy(p + i * width, r->scale_type == MF_F32 ? (const void *)&value : &half, width);
    }
}

static void check_values(const mf_repack *r, const unsigned char *const *stored,
                         const unsigned char *const *made)
{
    const mf_weight_shape *s = &r->shape;
    float *row = malloc(s->n_cols * sizeof *row);
    uint32_t n_wrong = 0;
    for (uint32_t i = 0; i < s->n_rows; i++) {
        mf_weight_format_of(s)->decode_row(s, made, i, row);
        for (uint32_t j = 0; j < s->n_cols; j++) {
            const uint32_t group =
                r->has_index ? word_of(stored[MF_PACKED_INDEX], j) : j / (s->n_cols / r->n_groups);
            const float scale = scale_of(r, stored[MF_PACKED_SCALES], i, group);
            const double code = code_of(r, stored[MF_PACKED_VALUES], i, j);
            const double value = (code - zero_of(r, stored[MF_PACKED_ZEROS], i, group)) * scale;
            n_wrong += row[j] != (float)value;
        }
    }
    CHECK_MSG(n_wrong == 0, "%s, %u bits, %u x %u in %u groups, zeros %d, index %d: %u wrong",
              mf_packing_name(r->packing), r->bits, s->n_rows, s->n_cols, r->n_groups, r->has_zeros,
              r->has_index, n_wrong);
    free(row);
}

static void check(mf_repack r, uint32_t n_rows, uint32_t n_cols)
{
    unsigned char *stored[MF_PACKED_ARRAYS], *made[MF_MAX_WEIGHT_ARRAYS];
    r.shape.n_rows = n_rows;
    r.shape.n_cols = n_cols;
    REQUIRE(mf_repack_choose(&r) && mf_weight_shape_is_sound(&r.shape));
    for (uint32_t i = 0; i < MF_PACKED_ARRAYS; i++) {
        const uint64_t n = mf_repack_stored_bytes(&r, i);
        stored[i] = malloc(n + 1);
        for (uint64_t k = 0; k < n; k++)
            stored[i][k] = (unsigned char)next();
        if (i == MF_PACKED_SCALES)
            fill_scales(&r, stored[i], n);
        for (uint32_t k = 0; i == MF_PACKED_INDEX && k < n / 4; k++) {
            const uint32_t group = next() % r.n_groups;
            memcpy(stored[i] + 4 * (size_t)k, &group, 4);
        }
    }
    for (uint32_t i = 0; i < MF_MAX_WEIGHT_ARRAYS; i++)
        made[i] = calloc(1, mf_weight_array_bytes(&r.shape, i) + 1);
    const unsigned char *const *in = (const unsigned char *const *)stored;
    for (uint32_t row = 0; row < n_rows; row += MF_REPACK_ROWS)
        CHECK(mf_repack_rows(&r, in, row,
                             n_rows - row < MF_REPACK_ROWS ? n_rows - row : MF_REPACK_ROWS, made));
    check_values(&r, in, (const unsigned char *const *)made);
    if (r.has_index) {
        memcpy(stored[MF_PACKED_INDEX] + 4 * (size_t)(n_cols - 1), &r.n_groups, 4);
        CHECK(!mf_repack_rows(&r, in, 0, n_rows, made));
    }
    for (uint32_t i = 0; i < MF_PACKED_ARRAYS; i++)
        free(stored[i]);
    for (uint32_t i = 0; i < MF_MAX_WEIGHT_ARRAYS; i++)
        free(made[i]);
}

/* -1 in compressed-tensors' index: columns are in order. */
static void check_no_index(void)
{
    mf_repack r = {.packing = MF_PACKING_ROWS, .bits = 4, .n_groups = 2, .has_index = true};
    r.scale_type = MF_F32;
    r.shape = (mf_weight_shape){.n_rows = 1, .n_cols = 64};
    REQUIRE(mf_repack_choose(&r));
    unsigned char values[32] = {0}, scales[8] = {0}, index[256], made[3][256];
    memset(index, 0xff, sizeof index);
    const unsigned char *const stored[] = {values, scales, NULL, index};
    unsigned char *const out[] = {made[0], made[1], made[2]};
    CHECK(mf_repack_rows(&r, stored, 0, 1, out));
    for (uint32_t i = 0; i < 64; i++)
        CHECK(made[2][2 * i] == i / 32 && made[2][2 * i + 1] == 0);
}

static void check_refused(void)
{
    const mf_repack refused[] = {
        {.packing = MF_PACKING_GPTQ,
         .bits = 3,
         .n_groups = 2,
         .shape = {.n_rows = 48, .n_cols = 64}},
        {.packing = MF_PACKING_GPTQ,
         .bits = 5,
         .n_groups = 2,
         .shape = {.n_rows = 32, .n_cols = 64}},
        {.packing = MF_PACKING_GPTQ,
         .bits = 4,
         .n_groups = 2,
         .shape = {.n_rows = 7, .n_cols = 64}},
        {.packing = MF_PACKING_AWQ,
         .bits = 4,
         .n_groups = 2,
         .shape = {.n_rows = 12, .n_cols = 64}},
        {.packing = MF_PACKING_ROWS,
         .bits = 7,
         .n_groups = 2,
         .shape = {.n_rows = 8, .n_cols = 64}},
        {.packing = MF_PACKING_ROWS,
         .bits = 4,
         .n_groups = 4,
         .shape = {.n_rows = 8, .n_cols = 64}},
        {.packing = MF_PACKING_ROWS,
         .bits = 4,
         .n_groups = 3,
         .shape = {.n_rows = 8, .n_cols = 64}},
        {.packing = MF_PACKING_ROWS,
         .bits = 4,
         .n_groups = 0,
         .shape = {.n_rows = 8, .n_cols = 64}},
        {.packing = MF_PACKING_BYTES,
         .bits = 4,
         .n_groups = 2,
         .shape = {.n_rows = 8, .n_cols = 64}},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        mf_repack r = refused[i];
        CHECK(!mf_repack_choose(&r));
    }
}

/* Transposed floats, of all rows and of some neighbours, whole and in pieces; nothing beyond is
 * written. */
static void check_turned(mf_dtype type, uint32_t n_rows, uint32_t n_cols, uint32_t n_before)
{
    enum { GUARD = 64 };
    const uint32_t n_stored = n_before + n_rows + n_before / 2;
    const size_t width = mf_dtype_bytes(type);
    const mf_repack r = {
        .packing = MF_PACKING_TURNED,
        .n_stored_rows = n_stored,
        .first_row = n_before,
        .shape = {.kind = MF_WEIGHT_FLOAT, .float_type = type, .n_rows = n_rows, .n_cols = n_cols}};
    CHECK_U64(mf_repack_stored_bytes(&r, MF_PACKED_VALUES), (uint64_t)n_cols * n_stored * width);
    CHECK_U64(mf_repack_stored_bytes(&r, MF_PACKED_SCALES), 0);
    const size_t n_from = (size_t)n_cols * n_stored * width, n_to = (size_t)n_rows * n_cols * width;
    unsigned char *from = malloc(n_from), *to = malloc(n_to + GUARD);
    REQUIRE(from != NULL && to != NULL);
    for (size_t i = 0; i < n_from; i++)
        from[i] = (unsigned char)next();
    memset(to, 0xA5, n_to + GUARD);
    const unsigned char *const stored[MF_PACKED_ARRAYS] = {from};
    unsigned char *const made[MF_MAX_WEIGHT_ARRAYS] = {to};
    for (uint32_t row = 0; row < n_rows; row += MF_REPACK_ROWS) {
        const uint32_t left = n_rows - row;
        CHECK(mf_repack_rows(&r, stored, row, left < MF_REPACK_ROWS ? left : MF_REPACK_ROWS, made));
    }
    bool is_same = true;
    for (uint64_t row = 0; row < n_rows; row++)
        for (uint64_t c = 0; c < n_cols; c++)
            is_same = is_same && memcmp(to + (row * n_cols + c) * width,
                                        from + (c * n_stored + n_before + row) * width, width) == 0;
    for (size_t i = 0; i < GUARD; i++)
        is_same = is_same && to[n_to + i] == 0xA5;
    CHECK_MSG(is_same, "%u rows of %u columns after %u, %zu bytes each", n_rows, n_cols, n_before,
              width);
    free(from);
    free(to);
}

/* NVFP4's blocks as GGUF has them, with a factor beside them or one that is kept elsewhere, against
 * the blocks' own values times the factor; blocks of another kind stay what they are. */
static void check_blocks(uint32_t n_rows, uint32_t n_cols, uint32_t n_factors)
{
    const mf_weight_shape as_stored = {
        .kind = MF_WEIGHT_GGUF_NVFP4, .n_rows = n_rows, .n_cols = n_cols};
    mf_repack r = {.packing = MF_PACKING_BLOCKS, .n_groups = n_factors, .shape = as_stored};
    r.shape.kind = MF_WEIGHT_NVFP4;
    const size_t n_stored = mf_weight_bytes(&as_stored);
    CHECK_U64(mf_repack_stored_bytes(&r, MF_PACKED_VALUES), n_stored);
    CHECK_U64(mf_repack_stored_bytes(&r, MF_PACKED_SCALES), 4 * (uint64_t)n_factors);
    CHECK_U64(mf_repack_stored_bytes(&r, MF_PACKED_ZEROS), 0);
    const float factor = 0.0371f;
    unsigned char *from = malloc(n_stored), beside[4], kept[4], *made[MF_MAX_WEIGHT_ARRAYS];
    float *row = malloc(n_cols * sizeof *row), *expected = malloc(n_cols * sizeof *row);
    REQUIRE(from != NULL && row != NULL && expected != NULL);
    for (size_t i = 0; i < n_stored; i++) /* nobody writes a scale that is no number, with a sign */
        from[i] = (unsigned char)(next() % 255);
    for (uint32_t i = 0; i < MF_MAX_WEIGHT_ARRAYS; i++)
        made[i] = calloc(1, mf_weight_array_bytes(&r.shape, i) + 1);
    memcpy(beside, &factor, 4);
    memcpy(kept, &factor, 4);
    const unsigned char *const stored[MF_PACKED_ARRAYS] = {from, n_factors != 0 ? beside : NULL};
    unsigned char *const out[] = {made[0], made[1], n_factors != 0 ? made[2] : NULL};
    for (uint32_t first = 0; first < n_rows; first += MF_REPACK_ROWS) {
        const uint32_t left = n_rows - first;
        CHECK(
            mf_repack_rows(&r, stored, first, left < MF_REPACK_ROWS ? left : MF_REPACK_ROWS, out));
    }
    const unsigned char *const is[] = {made[0], made[1], n_factors != 0 ? made[2] : kept};
    const unsigned char *const was[] = {from};
    uint32_t n_wrong = 0;
    for (uint32_t i = 0; i < n_rows; i++) {
        mf_weight_format_of(&r.shape)->decode_row(&r.shape, is, i, row);
        mf_weight_format_of(&as_stored)->decode_row(&as_stored, was, i, expected);
        for (uint32_t k = 0; k < n_cols; k++)
            n_wrong += row[k] != expected[k] * factor;
    }
    CHECK_MSG(n_wrong == 0, "%u x %u: %u wrong", n_rows, n_cols, n_wrong);
    r.shape.kind = MF_WEIGHT_GGUF_NVFP4;
    unsigned char *copy = malloc(n_stored);
    REQUIRE(copy != NULL &&
            mf_repack_rows(&r, stored, 0, n_rows, (unsigned char *[MF_MAX_WEIGHT_ARRAYS]){copy}));
    CHECK(memcmp(copy, from, n_stored) == 0);
    for (uint32_t i = 0; i < MF_MAX_WEIGHT_ARRAYS; i++)
        free(made[i]);
    free(copy);
    free(from);
    free(row);
    free(expected);
}

int main(void)
{
    for (uint32_t i = 1; i < 12; i++)
        check_blocks(1 + 37 * (i % 5), 64 * i, i % 2);
    for (uint32_t i = 0; i < 24; i++) {
        check_turned(MF_BF16, 1 + 11 * i, 3 + 7 * i, i % 3 * 5);
        check_turned(MF_F32, 1 + 7 * i, 2 + 5 * i, i % 4 * 3);
        check_turned(MF_F16, 8 * (1 + i), 8 * (1 + i % 5), 8 * (i % 2));
    }
    static const mf_dtype types[] = {MF_F16, MF_BF16, MF_F32};
    static const uint32_t of_rows[] = {2, 3, 4, 5, 6, 8}, of_gptq[] = {2, 4, 8};
    for (uint32_t i = 0; i < 36; i++) {
        mf_repack r = {.n_groups = 1 + i % 3, .scale_type = types[i / 2 % 3]};
        r.has_zeros = i & 1;
        r.has_index = i % 5 == 4;
        const uint32_t group = r.has_index ? 32u << i % 3 : 32 * (1 + i % 6);
        const uint32_t n_cols = r.n_groups * group;
        r.packing = i % 7 < 4 ? MF_PACKING_GPTQ : MF_PACKING_GPTQ_V2;
        r.bits = of_gptq[i % 3];
        check(r, 16 * (1 + i % 11), n_cols);
        r.bits = 3; /* values that go from word to word */
        check(r, 32 * (1 + i % 7), n_cols);
        r.packing = MF_PACKING_ROWS;
        r.bits = of_rows[i % 6];
        check(r, 1 + 13 * (i % 11), n_cols);
        r.has_index = false;
        r.packing = MF_PACKING_AWQ;
        r.bits = 4;
        check(r, 8 * (1 + i % 19), n_cols);
        r.packing = MF_PACKING_BYTES;
        r.bits = 8;
        check(r, 1 + i, n_cols);
    }
    check_no_index();
    check_refused();
    for (int i = MF_PACKING_NONE + 1; i < MF_PACKINGS; i++)
        CHECK(mf_packing_named(mf_packing_name((mf_packing)i)) == (mf_packing)i);
    CHECK(mf_packing_named("marlin") == MF_PACKING_NONE);
    return test_result();
}

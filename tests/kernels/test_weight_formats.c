/* SPDX-License-Identifier: MIT */
/*
 * The table of weight formats: sizes against numbers from the formats' definitions; decoded rows
 * and products of every format against float64, on every tier; and GGUF's blocks against values
 * that its own package decodes (data/formats.bin, tools/make_format_goldens.py).
 */
#include "matrix_case.h"

#include <stdio.h>
#include <stdlib.h>

/* The formats of blocks, and those that no tier has kernels for. */
static const mf_weight_kind decoded[] = {
    MF_WEIGHT_MXFP4,        MF_WEIGHT_NVFP4,       MF_WEIGHT_GGUF_Q8_0,  MF_WEIGHT_GGUF_Q4_K,
    MF_WEIGHT_GGUF_Q6_K,    MF_WEIGHT_GGUF_IQ4_XS, MF_WEIGHT_GGUF_MXFP4, MF_WEIGHT_GGUF_Q4_0,
    MF_WEIGHT_GGUF_Q4_1,    MF_WEIGHT_GGUF_Q5_0,   MF_WEIGHT_GGUF_Q5_1,  MF_WEIGHT_GGUF_Q2_K,
    MF_WEIGHT_GGUF_Q3_K,    MF_WEIGHT_GGUF_Q5_K,   MF_WEIGHT_GGUF_IQ1_S, MF_WEIGHT_GGUF_IQ1_M,
    MF_WEIGHT_GGUF_IQ2_XXS, MF_WEIGHT_GGUF_IQ2_XS, MF_WEIGHT_GGUF_IQ2_S, MF_WEIGHT_GGUF_IQ3_XXS,
    MF_WEIGHT_GGUF_IQ3_S,   MF_WEIGHT_GGUF_IQ4_NL, MF_WEIGHT_GGUF_TQ1_0, MF_WEIGHT_GGUF_TQ2_0,
    MF_WEIGHT_GGUF_NVFP4};
#define N_DECODED (sizeof decoded / sizeof *decoded)

/* Bytes of each array, by hand. */
static void test_sizes(void)
{
    static const struct {
        mf_weight_shape shape;
        uint32_t n_rows, n_cols, bits;
        uint64_t n_bytes[MF_MAX_WEIGHT_ARRAYS];
    } cases[] = {
        {{MF_WEIGHT_FLOAT, MF_F32, 0, 0, 0, 0, 0}, 3, 7, 32, {84, 0, 0}},
        {{MF_WEIGHT_FLOAT, MF_BF16, 0, 0, 0, 0, 0}, 3, 7, 16, {42, 0, 0}},
        {{MF_WEIGHT_AFFINE, MF_BF16, 4, 64, 0, 0, 0}, 5, 192, 4, {480, 30, 30}},
        {{MF_WEIGHT_AFFINE, MF_F32, 3, 32, 0, 0, 0}, 2, 64, 3, {48, 16, 16}},
        {{MF_WEIGHT_AFFINE, MF_F16, 8, 128, 0, 0, 0}, 1, 256, 8, {256, 4, 4}},
        {{MF_WEIGHT_FP8_BLOCK, MF_F32, 8, 128, 0, 0, 0}, 300, 130, 8, {39000, 24, 0}},
        {{MF_WEIGHT_FP8_BLOCK, MF_F32, 8, 128, 128, 0, 0}, 128, 128, 8, {16384, 4, 0}},
        {{MF_WEIGHT_FP8_BLOCK, MF_F32, 8, 128, 32, 0, 0}, 96, 256, 8, {24576, 24, 0}},
        {{MF_WEIGHT_MXFP4, 0, 0, 0, 0, 0, 0}, 3, 64, 4, {96, 6, 0}},
        {{MF_WEIGHT_NVFP4, 0, 0, 0, 0, 0, 0}, 3, 64, 4, {96, 12, 4}},
        {{MF_WEIGHT_GGUF_Q8_0, 0, 0, 0, 0, 0, 0}, 3, 64, 8, {204, 0, 0}},
        {{MF_WEIGHT_GGUF_Q4_K, 0, 0, 0, 0, 0, 0}, 3, 512, 4, {864, 0, 0}},
        {{MF_WEIGHT_GGUF_Q6_K, 0, 0, 0, 0, 0, 0}, 3, 512, 6, {1260, 0, 0}},
        {{MF_WEIGHT_GGUF_IQ4_XS, 0, 0, 0, 0, 0, 0}, 3, 512, 4, {816, 0, 0}},
        {{MF_WEIGHT_GGUF_MXFP4, 0, 0, 0, 0, 0, 0}, 3, 64, 4, {102, 0, 0}},
        {{MF_WEIGHT_GGUF_Q4_0, 0, 0, 0, 0, 0, 0}, 3, 64, 4, {108, 0, 0}},
        {{MF_WEIGHT_GGUF_Q4_1, 0, 0, 0, 0, 0, 0}, 3, 64, 4, {120, 0, 0}},
        {{MF_WEIGHT_GGUF_Q5_0, 0, 0, 0, 0, 0, 0}, 3, 64, 5, {132, 0, 0}},
        {{MF_WEIGHT_GGUF_Q5_1, 0, 0, 0, 0, 0, 0}, 3, 64, 5, {144, 0, 0}},
        {{MF_WEIGHT_GGUF_Q2_K, 0, 0, 0, 0, 0, 0}, 3, 512, 2, {504, 0, 0}},
        {{MF_WEIGHT_GGUF_Q3_K, 0, 0, 0, 0, 0, 0}, 3, 512, 3, {660, 0, 0}},
        {{MF_WEIGHT_GGUF_Q5_K, 0, 0, 0, 0, 0, 0}, 3, 512, 5, {1056, 0, 0}},
        {{MF_WEIGHT_GGUF_IQ1_S, 0, 0, 0, 0, 0, 0}, 3, 512, 1, {300, 0, 0}},
        {{MF_WEIGHT_GGUF_IQ1_M, 0, 0, 0, 0, 0, 0}, 3, 512, 1, {336, 0, 0}},
        {{MF_WEIGHT_GGUF_IQ2_XXS, 0, 0, 0, 0, 0, 0}, 3, 512, 2, {396, 0, 0}},
        {{MF_WEIGHT_GGUF_IQ2_XS, 0, 0, 0, 0, 0, 0}, 3, 512, 2, {444, 0, 0}},
        {{MF_WEIGHT_GGUF_IQ2_S, 0, 0, 0, 0, 0, 0}, 3, 512, 2, {492, 0, 0}},
        {{MF_WEIGHT_GGUF_IQ3_XXS, 0, 0, 0, 0, 0, 0}, 3, 512, 3, {588, 0, 0}},
        {{MF_WEIGHT_GGUF_IQ3_S, 0, 0, 0, 0, 0, 0}, 3, 512, 3, {660, 0, 0}},
        {{MF_WEIGHT_GGUF_IQ4_NL, 0, 0, 0, 0, 0, 0}, 3, 64, 4, {108, 0, 0}},
        {{MF_WEIGHT_GGUF_TQ1_0, 0, 0, 0, 0, 0, 0}, 3, 512, 2, {324, 0, 0}},
        {{MF_WEIGHT_GGUF_TQ2_0, 0, 0, 0, 0, 0, 0}, 3, 512, 2, {396, 0, 0}},
        {{MF_WEIGHT_GGUF_NVFP4, 0, 0, 0, 0, 0, 0}, 3, 128, 4, {216, 0, 0}},
        {{MF_WEIGHT_INT4, MF_BF16, 4, 32, 0, 0, 0}, 3, 96, 4, {144, 18, 0}},
        {{MF_WEIGHT_INT8, MF_F32, 8, 128, 0, 0, 0}, 3, 256, 8, {768, 24, 0}},
        {{MF_WEIGHT_FP8_CHANNEL, MF_F32, 8, 0, 0, 0, 0}, 3, 70, 8, {210, 12, 0}},
        {{MF_WEIGHT_FP8_TENSOR, MF_F32, 8, 0, 0, 0, 0}, 3, 70, 8, {210, 4, 0}},
        {{MF_WEIGHT_NVFP4_DIVIDED, 0, 0, 0, 0, 0, 0}, 3, 64, 4, {96, 12, 4}},
        {{MF_WEIGHT_NVFP4_PLAIN, 0, 0, 0, 0, 0, 0}, 3, 64, 4, {96, 12, 0}},
        {{MF_WEIGHT_MXFP8, 0, 0, 0, 0, 0, 0}, 3, 64, 8, {192, 6, 0}},
        {{MF_WEIGHT_AFFINE_INDEXED, MF_F32, 4, 32, 0, 0, 0}, 3, 96, 4, {144, 72, 192}},
        /* more than 32 bits count */
        {{MF_WEIGHT_GGUF_Q6_K, 0, 0, 0, 0, 0, 0}, 1u << 20, 1u << 16, 6, {56371445760u, 0, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mf_weight_shape s = cases[i].shape;
        s.n_rows = cases[i].n_rows;
        s.n_cols = cases[i].n_cols;
        uint64_t sum = 0;
        for (uint32_t a = 0; a < MF_MAX_WEIGHT_ARRAYS; a++) {
            CHECK_U64(mf_weight_array_bytes(&s, a), cases[i].n_bytes[a]);
            sum += cases[i].n_bytes[a];
        }
        CHECK_U64(mf_weight_bytes(&s), sum);
        CHECK_U64(mf_weight_bits(&s), cases[i].bits);
    }
}

/* A row of the table is whole. */
static void test_table(void)
{
    for (uint32_t kind = MF_WEIGHT_FLOAT; kind < MF_WEIGHT_KINDS; kind++) {
        const mf_weight_format *f = &mf_weight_formats[kind];
        REQUIRE(f->form != NULL && f->decode_row != NULL);
        CHECK(f->n_arrays >= 1 && f->n_arrays <= MF_MAX_WEIGHT_ARRAYS);
        CHECK(f->arrays[0].rows == 1);
        CHECK((strncmp(f->form, "gguf", 4) == 0) == (f->decode_block != NULL));
    }
}

static void test_decoded(const mf_kernels *k)
{
    static const uint32_t rows[] = {1, 3, 17, 9};
    uint64_t state = 21;
    for (size_t i = 0; i < N_DECODED; i++) {
        const mf_weight_shape shape = {.kind = decoded[i]};
        const uint32_t step = mf_weight_format_of(&shape)->arrays[0].cols;
        for (uint32_t n = 1; n <= 5; n += 2) {
            matrix_case c = make_case(&state, shape, rows[(i + n) % 4], step * n);
            check_case(k, &state, &c);
            check_rows(k, &c);
            free_case(&c);
        }
    }
}

/* Rows of 256 columns, which kernels take together, end at the guard page; and longer ones. */
static void test_spans(const mf_kernels *k)
{
    static const uint32_t cols[] = {256, 512, 544, 1056};
    uint64_t state = 31;
    for (size_t i = 0; i < N_DECODED; i++) {
        const mf_weight_shape shape = {.kind = decoded[i]};
        const uint32_t step = mf_weight_format_of(&shape)->arrays[0].cols;
        for (size_t n = 0; n < sizeof cols / sizeof *cols; n++) {
            matrix_case c = make_case(&state, shape, 6, cols[n] / step * step);
            check_case(k, &state, &c);
            free_case(&c);
        }
    }
}

/* Every code the least or the largest, by activations of one size, so that all that is added up has
 * one sign, or changes it: sums of integers are as large as they get. */
static void test_extremes(const mf_kernels *k)
{
    enum { ROWS = 5, COLS = 512, TOKENS = 3 };
    static const unsigned char codes[] = {0x00, 0xff, 0x0f, 0xf0, 0x7e, 0x80};
    static float x[TOKENS * COLS];
    uint64_t state = 37;
    for (uint32_t i = 0; i < TOKENS * COLS; i++)
        x[i] = (i / COLS == 0 || (i / COLS == 2 && i % 32 < 16) ? 1.0f : -1.0f) * 0x1.fffffep+3f;
    for (size_t i = 0; i < N_DECODED * sizeof codes; i++) {
        const mf_weight_shape shape = {.kind = decoded[i / sizeof codes]};
        if (shape.kind == MF_WEIGHT_GGUF_NVFP4) /* whose scales may be no numbers */
            continue;
        matrix_case c = make_even_case(&state, shape, ROWS, COLS, codes[i % sizeof codes]);
        if (k->token_bytes(&c.w) == 0) { /* floats, all of whose roundings may go one way */
            free_case(&c);
            continue;
        }
        float y[TOKENS * ROWS];
        void *scratch = scratch_for(k, &c.w, TOKENS);
        k->matmul(&c.w, 0, ROWS, x, COLS, TOKENS, y, ROWS, scratch);
        check_outputs(k, &c, x, TOKENS, y);
        for (uint32_t t = 0; t < TOKENS; t++) {
            float alone[ROWS];
            k->matmul(&c.w, 0, ROWS, x + t * COLS, COLS, 1, alone, ROWS, scratch);
            CHECK_BYTES(alone, y + t * ROWS, sizeof alone);
        }
        free(scratch);
        free_case(&c);
    }
}

/* Integers with scales in groups, and FP8 with a scale for a row or for all. */
static void test_published(const mf_kernels *k)
{
    static const mf_dtype types[] = {MF_F32, MF_F16, MF_BF16};
    uint64_t state = 29;
    for (uint32_t i = 0; i < 18; i++) {
        const mf_weight_shape shape = {.kind = i % 2 == 0 ? MF_WEIGHT_INT4 : MF_WEIGHT_INT8,
                                       .float_type = types[i / 2 % 3],
                                       .group = 32u << (i / 6)};
        matrix_case c = make_case(&state, shape, 5 + i, shape.group * (1 + 2 * (i % 5)));
        check_case(k, &state, &c);
        check_rows(k, &c);
        free_case(&c);
    }
    for (uint32_t i = 0; i < 12; i++) {
        static const uint32_t bits[] = {2, 4, 8, 3};
        const mf_weight_shape shape = {.kind =
                                           i % 2 == 0 ? MF_WEIGHT_AFFINE_INDEXED : MF_WEIGHT_MXFP8,
                                       .float_type = MF_F32,
                                       .bits = bits[i / 2 % 4],
                                       .group = 32u << (i / 4)};
        matrix_case c = make_case(&state, shape, 5 + i, shape.group * (1 + 2 * (i % 5)));
        check_case(k, &state, &c);
        check_rows(k, &c);
        free_case(&c);
    }
    for (uint32_t i = 0; i < 6; i++) {
        const mf_weight_shape shape = {.kind = i % 2 == 0 ? MF_WEIGHT_FP8_CHANNEL
                                                          : MF_WEIGHT_FP8_TENSOR,
                                       .float_type = MF_F32};
        matrix_case c = make_case(&state, shape, 1 + 31 * i, 33 + 100 * i);
        check_case(k, &state, &c);
        check_rows(k, &c);
        free_case(&c);
    }
}

/* A scale that is not a number makes its weights none, and no others. */
static void test_nan_scales(const mf_kernels *k)
{
    uint64_t state = 23;
    const mf_weight_kind kinds[] = {MF_WEIGHT_MXFP4, MF_WEIGHT_NVFP4, MF_WEIGHT_GGUF_MXFP4};
    for (size_t i = 0; i < 3; i++) {
        const mf_weight_shape shape = {.kind = kinds[i]};
        const uint32_t step = mf_weight_format_of(&shape)->arrays[0].cols, n_cols = 2 * step;
        matrix_case c = make_case(&state, shape, 2, n_cols);
        if (kinds[i] == MF_WEIGHT_GGUF_MXFP4)
            c.arrays[0].p[17] = 255;
        else
            c.arrays[1].p[1] = kinds[i] == MF_WEIGHT_MXFP4 ? 255 : 127;
        float row[64];
        k->dequant_row(&c.w, 0, row);
        for (uint32_t j = 0; j < n_cols; j++)
            CHECK(isnan(row[j]) == (j >= step));
        k->dequant_row(&c.w, 1, row);
        for (uint32_t j = 0; j < n_cols; j++)
            CHECK(!isnan(row[j]));
        free_case(&c);
    }
}

/* Fewer rows that share scales: as many as every order of rows may leave. */
static void test_scale_rows(const mf_kernels *k)
{
    uint64_t state = 25;
    for (uint32_t together = 1; together <= 128; together *= 2) {
        matrix_case c = make_case(&state, fp8_shape(together), 2 * together + 37, 200);
        check_case(k, &state, &c);
        check_rows(k, &c);
        free_case(&c);
    }
}

static const unsigned char *take(const unsigned char **p, const unsigned char *end, size_t n)
{
    const unsigned char *at = *p;
    REQUIRE((size_t)(end - at) >= n);
    *p += n;
    return at;
}

static mf_weight_kind kind_named(const char *name)
{
    for (uint32_t kind = MF_WEIGHT_FLOAT; kind < MF_WEIGHT_KINDS; kind++)
        if (strcmp(mf_weight_formats[kind].form, name) == 0)
            return (mf_weight_kind)kind;
    fprintf(stderr, "no format %s\n", name);
    exit(1);
}

/* name (16 bytes), rows, columns, bytes of the blocks; the blocks; the values. Returns how many
 * values there are. */
static size_t check_golden(const mf_kernels *k, const unsigned char **p, const unsigned char *end)
{
    char name[17] = {0};
    uint32_t head[3];
    memcpy(name, take(p, end, 16), 16);
    memcpy(head, take(p, end, sizeof head), sizeof head);
    mf_matrix w = {.shape = {.kind = kind_named(name), .n_rows = head[0], .n_cols = head[1]}};
    CHECK_U64(mf_weight_bytes(&w.shape), head[2]);
    w.data = take(p, end, head[2]);
    float *row = malloc(w.shape.n_cols * sizeof *row);
    REQUIRE(row != NULL);
    for (uint32_t r = 0; r < w.shape.n_rows; r++) {
        k->dequant_row(&w, r, row);
        for (uint32_t i = 0; i < w.shape.n_cols; i++) {
            float want;
            memcpy(&want, take(p, end, sizeof want), sizeof want);
            CHECK_MSG(row[i] == want, "%s: %s, row %u, column %u: %.9g, expected %.9g",
                      mf_cpu_tier_name(k->tier), name, r, i, (double)row[i], (double)want);
        }
    }
    free(row);
    return (size_t)w.shape.n_rows * w.shape.n_cols;
}

static void test_goldens(const mf_kernels *k)
{
    enum { MAX_BYTES = 1 << 20 };
    static unsigned char file[MAX_BYTES];
    FILE *f = fopen("tests/kernels/data/formats.bin", "rb");
    REQUIRE(f != NULL);
    size_t n_bytes = fread(file, 1, sizeof file, f), n_values = 0;
    fclose(f);
    const unsigned char *p = file, *end = file + n_bytes;
    uint32_t n;
    REQUIRE(memcmp(take(&p, end, 8), "MFFORMAT", 8) == 0);
    memcpy(&n, take(&p, end, 4), 4);
    uint32_t n_blocks = 0;
    for (uint32_t kind = MF_WEIGHT_FLOAT; kind < MF_WEIGHT_KINDS; kind++)
        n_blocks += mf_weight_formats[kind].decode_block != NULL;
    CHECK_U64(n, n_blocks);
    for (uint32_t i = 0; i < n; i++)
        n_values += check_golden(k, &p, end);
    CHECK(p == end);
    CHECK(n_values >= 4000);
}

/* What OCP's MXFP4 means does not depend on where the scale lies. */
static void test_mxfp4_forms(const mf_kernels *k)
{
    uint64_t state = 27;
    matrix_case c = make_case(&state, (mf_weight_shape){.kind = MF_WEIGHT_GGUF_MXFP4}, 3, 96);
    unsigned char values[3 * 48], scales[9];
    float ours[96], theirs[96];
    for (uint32_t b = 0; b < 9; b++) {
        const unsigned char *block = c.w.data + (size_t)17 * b;
        scales[b] = block[0];
        for (uint32_t i = 0; i < 8; i++) {
            values[16 * b + i] =
                (unsigned char)((block[1 + 2 * i] & 15) | (block[2 + 2 * i] & 15) << 4);
            values[16 * b + 8 + i] =
                (unsigned char)(block[1 + 2 * i] >> 4 | (block[2 + 2 * i] & 0xf0));
        }
    }
    const mf_matrix w = {.shape = {.kind = MF_WEIGHT_MXFP4, .n_rows = 3, .n_cols = 96},
                         .data = values,
                         .scales = scales};
    for (uint32_t r = 0; r < 3; r++) {
        k->dequant_row(&w, r, ours);
        k->dequant_row(&c.w, r, theirs);
        CHECK_BYTES(ours, theirs, sizeof ours);
    }
    free_case(&c);
}

int main(void)
{
    test_sizes();
    test_table();
    for_tiers(test_decoded);
    for_tiers(test_spans);
    for_tiers(test_extremes);
    for_tiers(test_published);
    for_tiers(test_nan_scales);
    for_tiers(test_scale_rows);
    for_tiers(test_goldens);
    for_tiers(test_mxfp4_forms);
    return test_result();
}

/* SPDX-License-Identifier: MIT */
/*
 * Matrix products of every tier, against float64 sums of the weights that the packed bits mean: all
 * bits, groups and types, every code of FP8, odd sizes, operands that end at an inaccessible page;
 * and the same bits for any number of tokens and cut of rows. AVX-VNNI's also where there is only
 * AVX-512's (evex_vnni.h). With --bench: packed bytes and multiply-adds a second, beside what the
 * core reads and multiplies at best.
 */
#include "evex_vnni.h"
#include "matrix_case.h"

#include <stdlib.h>
#include <time.h>

static void test_tier(const mf_kernels *k)
{
    static const uint32_t bits[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
    static const mf_dtype types[] = {MF_F32, MF_F16, MF_BF16};
    static const uint32_t rows[] = {1, 3, 17, 37}, cols[] = {1, 7, 16, 31, 100, 520, 1030};
    uint64_t state = 1;
    for (size_t b = 0; b < 6; b++) {
        for (size_t g = 0; g < 3; g++) {
            for (size_t t = 0; t < 3; t++) {
                uint32_t n_cols = groups[g] * (1 + (uint32_t)(next_random(&state) % 9));
                matrix_case c = make_case(&state, affine_shape(bits[b], groups[g], types[t]),
                                          rows[(b + g + t) % 4], n_cols);
                check_case(k, &state, &c);
                check_rows(k, &c);
                free_case(&c);
            }
        }
    }
    for (size_t t = 0; t < 3; t++) {
        for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
            matrix_case c = make_case(&state, float_shape(types[t]), rows[i % 4], cols[i]);
            check_case(k, &state, &c);
            check_rows(k, &c);
            free_case(&c);
        }
    }
}

/* Rows and columns that fill no block, exactly one, and several. */
static void test_fp8(const mf_kernels *k)
{
    static const uint32_t rows[] = {1, 3, 127, 128, 129, 300};
    static const uint32_t cols[] = {1, 17, 31, 63, 64, 65, 127, 128, 130, 200, 512, 550, 1100};
    uint64_t state = 7;
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
        matrix_case c = make_case(&state, fp8_shape(128), rows[i % 6], cols[i]);
        check_case(k, &state, &c);
        check_rows(k, &c);
        free_case(&c);
    }
}

/* By one activation of 1 among zeros a product gives the weight itself. */
static void check_code(const mf_kernels *k, const mf_matrix *w, uint32_t col, void *scratch)
{
    float x[5 * 150] = {0}, y[5 * 256], row[150];
    for (uint32_t t = 0; t < 5; t++)
        x[t * w->shape.n_cols + col] = 1.0f;
    for (uint32_t n = 1; n <= 5; n++) {
        k->matmul(w, 0, 256, x, w->shape.n_cols, n, y, 256, scratch);
        for (uint32_t code = 0; code < 256; code++) {
            double want =
                e4m3_value(code) * value_at(w->scales, MF_F32, code / 128 * 2 + col / 128);
            double got = (double)y[(n - 1) * 256 + code];
            CHECK_MSG(isnan(want) ? isnan(got) : got == (double)(float)want,
                      "%s: code %u, column %u, %u tokens: %g, expected %g",
                      mf_cpu_tier_name(k->tier), code, col, n, got, want);
        }
    }
    for (uint32_t code = 0; code < 256; code++) {
        double want = e4m3_value(code) * value_at(w->scales, MF_F32, code / 128 * 2 + col / 128);
        k->dequant_row(w, code, row);
        CHECK(isnan(want) ? isnan(row[col]) : (double)row[col] == (double)(float)want);
    }
}

/* Every code in every column, with scales down to the subnormal and up to where 448 of them is
 * still a number. */
static void test_fp8_codes(const mf_kernels *k)
{
    enum { ROWS = 256, COLS = 150 };
    static const float scales[][4] = {{1.0f, 0.3f, -2.0f, 1e-4f},
                                      {0x1p-126f, 0x1p-140f, 0x1.fp119f, 0x1.8p118f}};
    static const uint32_t cols[] = {0, 1, 30, 63, 64, 97, 127, 128, 143, 144, 149};
    mf_matrix w = {.shape = {.kind = MF_WEIGHT_FP8_BLOCK,
                             .float_type = MF_F32,
                             .bits = 8,
                             .group = 128,
                             .n_rows = ROWS,
                             .n_cols = COLS}};
    void *scratch = scratch_for(k, &w, 5);
    guarded data = guarded_alloc((size_t)ROWS * COLS);
    w.data = data.p;
    for (size_t s = 0; s < 2; s++) {
        w.scales = (const unsigned char *)scales[s];
        for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
            memset(data.p, 0, (size_t)ROWS * COLS);
            for (uint32_t code = 0; code < ROWS; code++)
                data.p[code * COLS + cols[i]] = (unsigned char)code;
            check_code(k, &w, cols[i], scratch);
        }
    }
    guarded_free(&data);
    free(scratch);
}

/* A NaN among a row's weights makes its outputs NaN, and no other row's. */
static void test_fp8_nan(const mf_kernels *k)
{
    enum { ROWS = 150, MAX_COLS = 400, TOKENS = 7 };
    uint64_t state = 11;
    for (uint32_t round = 0; round < 20; round++) {
        uint32_t n_cols = 1 + (uint32_t)(next_random(&state) % MAX_COLS);
        matrix_case c = make_case(&state, fp8_shape(128), ROWS, n_cols);
        bool is_nan[ROWS] = {false};
        for (uint32_t i = 0; i < 9; i++) {
            uint64_t r = next_random(&state);
            uint32_t row = (uint32_t)(r >> 8) % ROWS;
            uint32_t col = r % 4 == 0 ? n_cols - 1 : (uint32_t)(r >> 32) % n_cols;
            c.arrays[0].p[row * n_cols + col] = r % 2 == 0 ? 0x7f : 0xff;
            is_nan[row] = true;
        }
        guarded xs;
        const float *x = random_floats(&state, &xs, (size_t)TOKENS * n_cols);
        float y[TOKENS * ROWS];
        void *scratch = scratch_for(k, &c.w, TOKENS);
        for (uint32_t n = 1; n <= TOKENS; n++) {
            k->matmul(&c.w, 0, ROWS, x, n_cols, n, y, ROWS, scratch);
            for (uint32_t i = 0; i < n * ROWS; i++)
                CHECK_MSG(isnan(y[i]) == is_nan[i % ROWS], "%s: %u columns, %u tokens, row %u: %g",
                          mf_cpu_tier_name(k->tier), n_cols, n, i % ROWS, (double)y[i]);
        }
        free(scratch);
        guarded_free(&xs);
        free_case(&c);
    }
}

/* Rows from 128 on are a matrix of their own, with the same bits. */
static void test_fp8_view(const mf_kernels *k)
{
    uint64_t state = 13;
    matrix_case c = make_case(&state, fp8_shape(128), 300, 333);
    mf_matrix view = c.w;
    view.shape.n_rows = 172;
    view.data += (size_t)128 * 333;
    view.scales += sizeof(float) * 3;
    guarded xs;
    const float *x = random_floats(&state, &xs, (size_t)6 * 333);
    void *scratch = scratch_for(k, &c.w, 6);
    float whole[6 * 300], part[6 * 172];
    for (uint32_t n = 1; n <= 6; n++) {
        k->matmul(&c.w, 0, 300, x, 333, n, whole, 300, scratch);
        k->matmul(&view, 0, 172, x, 333, n, part, 172, scratch);
        for (uint32_t t = 0; t < n; t++)
            CHECK_BYTES(part + (size_t)t * 172, whole + (size_t)t * 300 + 128, 172 * sizeof(float));
    }
    free(scratch);
    guarded_free(&xs);
    free_case(&c);
}

/* The same weights at odd addresses give the same bits. */
static void check_moved(const mf_kernels *k, const matrix_case *c, size_t n_data, size_t n_scales,
                        size_t n_biases)
{
    uint64_t state = 5;
    uint32_t n_rows = c->w.shape.n_rows, n_cols = c->w.shape.n_cols;
    guarded xs;
    const float *x = random_floats(&state, &xs, (size_t)8 * n_cols);
    unsigned char *moved = malloc(n_data + n_scales + n_biases + 3);
    float *y = malloc(sizeof *y * 2 * 8 * n_rows);
    REQUIRE(moved != NULL && y != NULL);
    mf_matrix w = c->w;
    w.data = memcpy(moved + 1, c->w.data, n_data);
    if (n_scales > 0)
        w.scales = memcpy(moved + 2 + n_data, c->w.scales, n_scales);
    if (n_biases > 0)
        w.biases = memcpy(moved + 3 + n_data + n_scales, c->w.biases, n_biases);
    void *scratch = scratch_for(k, &w, 8);
    for (uint32_t n = 1; n <= 8; n += 7) {
        k->matmul(&c->w, 0, n_rows, x, n_cols, n, y, n_rows, scratch);
        k->matmul(&w, 0, n_rows, x, n_cols, n, y + (size_t)8 * n_rows, n_rows, scratch);
        CHECK_BYTES(y + (size_t)8 * n_rows, y, sizeof *y * n * n_rows);
    }
    free(scratch);
    free(y);
    free(moved);
    guarded_free(&xs);
}

static void test_unaligned(const mf_kernels *k)
{
    uint64_t state = 5;
    matrix_case c = make_case(&state, affine_shape(4, 64, MF_BF16), 20, 256);
    check_moved(k, &c, 20 * mf_matrix_row_bytes(&c.w), (size_t)20 * 4 * 2, (size_t)20 * 4 * 2);
    free_case(&c);
    c = make_case(&state, fp8_shape(128), 140, 300);
    check_moved(k, &c, (size_t)140 * 300, (size_t)2 * 3 * 4, 0);
    free_case(&c);
    c = make_case(&state, float_shape(MF_BF16), 20, 77);
    check_moved(k, &c, (size_t)20 * 77 * 2, 0, 0);
    free_case(&c);
}

/* Activations of very different sizes: one that is 10,000 times as large as the others of its
 * group, a group of zeros, one of hardly more than zeros, and a last one `factor` as large. */
static void make_uneven(float *x, uint32_t n_cols, float factor)
{
    x[5] = 1e4f;
    for (uint32_t i = 64; i < 128; i++)
        x[i] = 0.0f;
    for (uint32_t i = 128; i < 192; i++)
        x[i] *= 1e-37f;
    for (uint32_t i = n_cols - 64; i < n_cols; i++)
        x[i] *= factor;
}

static void check_uneven(const mf_kernels *k, uint64_t *state, const matrix_case *c)
{
    uint32_t n_rows = c->w.shape.n_rows, n_cols = c->w.shape.n_cols;
    guarded xs;
    float *x = random_floats(state, &xs, n_cols), *y = malloc(n_rows * sizeof *y);
    void *scratch = scratch_for(k, &c->w, 1);
    REQUIRE(y != NULL);
    for (int round = 0; round < 2; round++) {
        make_uneven(x, n_cols, round == 0 ? 1.0f : 1e30f);
        k->matmul(&c->w, 0, n_rows, x, n_cols, 1, y, n_rows, scratch);
        for (uint32_t r = 0; r < n_rows; r++) {
            double sum = 0.0, size = 0.0;
            for (uint32_t i = 0; i < n_cols; i++) {
                double product = c->values[(size_t)r * n_cols + i] * (double)x[i];
                sum += product;
                size += fabs(product);
            }
            double bound =
                4 * 0x1p-23 * sqrt((double)n_cols) * size + fixed_point_bound(k, c, x, r) + 1e-30;
            CHECK_MSG(fabs((double)y[r] - sum) <= bound, "%s: row %u: %g, expected %g",
                      mf_cpu_tier_name(k->tier), r, (double)y[r], sum);
        }
    }
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t b = 0; b < 3; b++) {
        x[n_cols - 3] = bad[b];
        k->matmul(&c->w, 0, n_rows, x, n_cols, 1, y, n_rows, scratch);
        for (uint32_t r = 0; r < n_rows; r++)
            CHECK(!isfinite(y[r]));
    }
    x[n_cols - 4] = INFINITY; /* two, whose integers add up to more than 32 bits hold */
    k->matmul(&c->w, 0, n_rows, x, n_cols, 1, y, n_rows, scratch);
    for (uint32_t r = 0; r < n_rows; r++)
        CHECK(!isfinite(y[r]));
    free(scratch);
    free(y);
    guarded_free(&xs);
}

/* Formats of blocks in fixed point, with spans that are short. */
static void test_blocks(const mf_kernels *k)
{
    static const mf_weight_kind kinds[] = {
        MF_WEIGHT_MXFP4,
        MF_WEIGHT_NVFP4,
        MF_WEIGHT_GGUF_Q4_0,
        MF_WEIGHT_GGUF_Q4_1,
        MF_WEIGHT_GGUF_Q5_0,
        MF_WEIGHT_GGUF_Q5_1,
        MF_WEIGHT_GGUF_Q8_0,
        MF_WEIGHT_GGUF_Q2_K,
        MF_WEIGHT_GGUF_Q3_K,
        MF_WEIGHT_GGUF_Q4_K,
        MF_WEIGHT_GGUF_Q5_K,
        MF_WEIGHT_GGUF_Q6_K,
        MF_WEIGHT_GGUF_IQ4_NL,
        MF_WEIGHT_GGUF_IQ4_XS,
        MF_WEIGHT_GGUF_MXFP4,
        MF_WEIGHT_GGUF_NVFP4,
#if defined(__x86_64__)
        MF_WEIGHT_GGUF_IQ1_S,
        MF_WEIGHT_GGUF_IQ1_M,
        MF_WEIGHT_GGUF_IQ2_XXS,
        MF_WEIGHT_GGUF_IQ2_XS,
        MF_WEIGHT_GGUF_IQ2_S,
        MF_WEIGHT_GGUF_IQ3_XXS,
        MF_WEIGHT_GGUF_IQ3_S,
        MF_WEIGHT_GGUF_TQ1_0,
        MF_WEIGHT_GGUF_TQ2_0,
#endif
    };
    static const uint32_t rows[] = {16, 37, 100, 5}, cols[] = {256, 320, 1088, 2176};
    uint64_t state = 16;
    for (uint32_t i = 0; i < 2 * sizeof kinds / sizeof *kinds; i++) {
        const mf_weight_shape shape = {.kind = kinds[i / 2]};
        const uint32_t step = mf_weight_format_of(&shape)->arrays[0].cols;
        matrix_case c = make_case(&state, shape, rows[i % 4], cols[i % 4] / step * step);
        CHECK((k->token_bytes(&c.w) != 0) == (k->tier != MF_CPU_SCALAR));
        check_case(k, &state, &c);
        check_uneven(k, &state, &c);
        check_prepared(k, &state, &c);
        free_case(&c);
    }
}

/* Integers, whose scales may be of any type and of as many columns. */
static void test_integers(const mf_kernels *k)
{
    static const mf_dtype types[] = {MF_BF16, MF_F16, MF_F32};
    static const uint32_t rows[] = {16, 37, 5}, cols[] = {256, 640, 2176};
    uint64_t state = 17;
    for (uint32_t i = 0; i < 18; i++) {
        const mf_weight_shape shape = {.kind = i < 9 ? MF_WEIGHT_INT4 : MF_WEIGHT_INT8,
                                       .float_type = types[i % 3],
                                       .group = 32u << i % 9 / 3};
        matrix_case c = make_case(&state, shape, rows[i % 3], cols[(i + i / 3) % 3]);
        check_uneven(k, &state, &c);
        check_prepared(k, &state, &c);
        free_case(&c);
    }
}

#define LARGE 0x1p95 /* more, and weights times integers of 23 bits pass what floats hold */

/* Tokens of three sizes by rows of which the r-th has scales of code r throughout. */
static void check_scale_codes(const mf_kernels *k, const matrix_case *c, const double scales[256])
{
    enum { ROWS = 256, TOKENS = 9 };
    static const float sizes[] = {1.0f, 0x1p-10f, 0x1p60f};
    const uint32_t n_cols = c->w.shape.n_cols;
    float *x = calloc((size_t)TOKENS * n_cols, sizeof *x), y[TOKENS * ROWS];
    void *scratch = scratch_for(k, &c->w, TOKENS);
    REQUIRE(x != NULL);
    for (uint32_t i = 0; i < TOKENS * n_cols; i++) /* 5/8 in the mean */
        x[i] = sizes[i / n_cols % 3] * (float)(i % 4 + 1) / 4;
    for (uint32_t n = 1; n <= TOKENS; n += n < 3 ? 1 : 6) {
        k->matmul(&c->w, 0, ROWS, x, n_cols, n, y, ROWS, scratch);
        for (uint32_t i = 0; i < n * ROWS; i++) {
            const double want =
                0.625 * n_cols * 3.0 * scales[i % ROWS] * (double)sizes[i / ROWS % 3];
            const bool is_small = fabs(want) < 0x1p-126; /* rounded as floats are that small */
            if (isnan(want) ? isnan(y[i])
                            : is_small || fmax(fabs(want), fabs(scales[i % ROWS])) > LARGE)
                continue;
            CHECK_MSG(fabs((double)y[i] - want) <= 1e-6 * fabs(want),
                      "%s: kind %d, scale %u, %u tokens: %g, expected %g",
                      mf_cpu_tier_name(k->tier), (int)c->w.shape.kind, i % ROWS, n, (double)y[i],
                      want);
        }
    }
    free(scratch);
    free(x);
}

/* Every code of scales of 8 bits, those of subnormal numbers and of none among them. */
static void test_scale_codes(const mf_kernels *k)
{
    static const mf_weight_kind kinds[] = {MF_WEIGHT_MXFP4, MF_WEIGHT_GGUF_MXFP4,
                                           MF_WEIGHT_NVFP4_PLAIN};
    uint64_t state = 20;
    for (size_t i = 0; i < 3; i++) {
        const bool is_e4m3 = kinds[i] == MF_WEIGHT_NVFP4_PLAIN;
        matrix_case c = make_even_case(&state, (mf_weight_shape){.kind = kinds[i]}, 256, 544, 0x55);
        const size_t n_scales = (size_t)256 * 544 / (is_e4m3 ? 16 : 32);
        double scales[256];
        for (uint32_t code = 0; code < 256; code++)
            scales[code] = is_e4m3       ? e4m3_value(code)
                           : code == 255 ? (double)NAN
                                         : ldexp(1.0, (int)code - 127);
        for (size_t j = 0; j < n_scales; j++) {
            const unsigned char code = (unsigned char)(j / (n_scales / 256));
            if (kinds[i] == MF_WEIGHT_GGUF_MXFP4)
                c.arrays[0].p[17 * j] = code;
            else
                c.arrays[1].p[j] = code;
        }
        check_scale_codes(k, &c, scales);
        free_case(&c);
    }
}

/* The largest weights of every sign by the largest activations, and by the smallest. */
static void test_block_extremes(const mf_kernels *k)
{
    static const unsigned char fills[] = {0x80, 0x7f, 0xff, 0x00, 0x88, 0x81};
    enum { ROWS = 6, COLS = 512 };
    uint64_t state = 18;
    matrix_case c = make_case(&state, (mf_weight_shape){.kind = MF_WEIGHT_GGUF_Q8_0}, ROWS, COLS);
    float x[COLS], y[ROWS];
    void *scratch = scratch_for(k, &c.w, 1);
    for (uint32_t i = 0; i < ROWS * COLS; i++) {
        const uint32_t at = i / 32 * 34 + 2 + i % 32;
        c.arrays[0].p[at] = fills[i / COLS];
        c.values[i] =
            value_at(c.arrays[0].p + i / 32 * 34, MF_F16, 0) * (signed char)fills[i / COLS];
    }
    for (uint32_t round = 0; round < 4; round++) {
        for (uint32_t i = 0; i < COLS; i++)
            x[i] = (round % 2 == 0 ? 1.0f : -1.0f) * (round < 2 ? 1.0f : 0x1p-100f);
        k->matmul(&c.w, 0, ROWS, x, COLS, 1, y, ROWS, scratch);
        check_outputs(k, &c, x, 1, y);
    }
    free(scratch);
    free_case(&c);
}

static void test_fixed_point(const mf_kernels *k)
{
    static const uint32_t bits[] = {4, 8, 6, 5, 3, 2};
    static const mf_dtype types[] = {MF_F32, MF_F16, MF_BF16};
    static const uint32_t cols[] = {256, 320, 512, 2176}, rows[] = {16, 37, 100, 128};
    uint64_t state = 6;
    for (uint32_t b = 0; b < sizeof bits / sizeof *bits; b++) {
        for (uint32_t i = 0; i < 12; i += b == 0 ? 1 : 5) {
            const mf_weight_shape shape = affine_shape(bits[b], 64, types[i % 3]);
            matrix_case c = make_case(&state, shape, rows[i / 3], cols[i % 4]);
            check_case(k, &state, &c);
            check_uneven(k, &state, &c);
            check_prepared(k, &state, &c);
            free_case(&c);
        }
    }
}

/* The largest and the smallest value of the bits throughout, by the largest activations of either
 * sign and by those whose digits are: no sum may pass what its integers hold. */
static void test_affine_extremes(const mf_kernels *k)
{
    static const uint32_t bits[] = {2, 3, 4, 5, 6, 8};
    static const float sizes[] = {1.0f, 1.0f, 1.0f, 0x1p-70f, 0x1p90f};
    static const float parts[] = {1.0f, -1.0f, 4161407.0f / 4194300, -4161407.0f / 4194300,
                                  4095872.0f / 4194300};
    enum { ROWS = 20, COLS = 192, TOKENS = 5 };
    uint64_t state = 19;
    float x[TOKENS * COLS], y[TOKENS * ROWS];
    for (uint32_t i = 0; i < TOKENS * COLS; i++)
        x[i] = sizes[i / COLS] * (i % 64 == 0 ? 1.0f : parts[i / COLS]);
    for (uint32_t b = 0; b < 6; b++) {
        matrix_case c = make_case(&state, affine_shape(bits[b], 64, MF_F32), ROWS, COLS);
        const size_t row_bytes = mf_matrix_row_bytes(&c.w);
        const float scale = 1.0f, bias = (float)(1u << bits[b]);
        void *scratch = scratch_for(k, &c.w, TOKENS);
        for (uint32_t i = 0; i < ROWS * COLS / 64; i++) {
            memcpy(c.arrays[1].p + i * sizeof scale, &scale, sizeof scale);
            memcpy(c.arrays[2].p + i * sizeof bias, &bias, sizeof bias);
        }
        for (uint32_t r = 0; r < ROWS; r++) {
            memset(c.arrays[0].p + r * row_bytes, r % 2 == 0 ? 0xff : 0, row_bytes);
            for (uint32_t i = 0; i < COLS; i++)
                c.values[r * COLS + i] =
                    (double)bias + (r % 2 == 0 ? (double)((1u << bits[b]) - 1) : 0.0);
        }
        for (uint32_t n = 1; n <= TOKENS; n++) {
            k->matmul(&c.w, 0, ROWS, x, COLS, n, y, ROWS, scratch);
            check_outputs(k, &c, x, n, y);
        }
        free(scratch);
        free_case(&c);
    }
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Matrices of experts scattered over 1 GiB, so that every one comes from memory. */
static void bench_tier(const mf_kernels *k)
{
    enum { ROWS = 512, COLS = 2048, TOKENS = 512 };
    static const uint32_t bits[] = {2, 3, 4, 5, 6, 8}, tokens[] = {1, 4, 16, 64, 512};
    const size_t n_bytes = (size_t)1 << 30;
    unsigned char *pool = aligned_alloc(4096, n_bytes);
    float *x = calloc((size_t)TOKENS * COLS, sizeof *x),
          *y = calloc((size_t)TOKENS * ROWS, sizeof *y);
    REQUIRE(pool != NULL && x != NULL && y != NULL);
    memset(pool, 0x3c, n_bytes);
    double start = seconds();
    uint64_t sink = k->read_bytes(pool, n_bytes);
    double read = (double)n_bytes / (seconds() - start);
    float seed = sink == 0 ? 0.5f : 0.25f;
    start = seconds();
    double fma = (double)k->fma_peak(20000000, &seed) / (seconds() - start);
    printf("%s: reads %.1f GB/s, multiplies %.1f G/s\n", mf_cpu_tier_name(k->tier), read * 1e-9,
           fma * 1e-9);
    for (size_t b = 0; b < 6; b++) {
        mf_matrix w = {.shape = {MF_WEIGHT_AFFINE, MF_BF16, bits[b], 64, 0, ROWS, COLS}};
        size_t one = ROWS * (mf_matrix_row_bytes(&w) + 2 * COLS / 64 * 2);
        void *scratch = scratch_for(k, &w, TOKENS);
        printf("%u bits:", bits[b]);
        for (size_t t = 0; t < 5; t++) {
            size_t n = tokens[t] == 1 ? n_bytes / one : 2048 / tokens[t];
            start = seconds();
            for (size_t i = 0; i < n; i++) {
                w.data = pool + i * 7919 % (n_bytes / one) * one;
                w.scales = w.data + ROWS * mf_matrix_row_bytes(&w);
                w.biases = w.scales + (size_t)ROWS * COLS / 64 * 2;
                k->matmul(&w, 0, ROWS, x, COLS, tokens[t], y, ROWS, scratch);
            }
            double s = seconds() - start, rate = (double)n * ROWS * COLS * tokens[t] / s;
            if (tokens[t] == 1)
                printf("  1 token %.1f GB/s (%.2f of reading)", (double)(n * one) / s * 1e-9,
                       (double)(n * one) / s / read);
            else
                printf("  %u tokens %.2f of peak", tokens[t], rate / fma);
        }
        printf("\n");
        free(scratch);
    }
    free(pool);
    free(x);
    free(y);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) {
        for_tiers(bench_tier);
        return 0;
    }
    static void (*const tests[])(const mf_kernels *) = {
        test_tier,     test_fp8,       test_fp8_codes,   test_fp8_nan,
        test_fp8_view, test_unaligned, test_fixed_point, test_affine_extremes,
        test_blocks,   test_integers,  test_scale_codes, test_block_extremes};
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        for_tiers(tests[i]);
#if defined(MF_HAS_EVEX_VNNI)
        mf_kernels evex;
        if (evex_vnni_kernels(&evex))
            tests[i](&evex);
#endif
    }
    return test_result();
}

/* SPDX-License-Identifier: MIT */
/*
 * BF16 weights, and FP8 ones in blocks, by tiles of bfloat16. Where AVX-512 is, over the tiles of
 * plain_tiles.h: within the stated bound of float64, and the same bits for any number of tokens and
 * any cut of the rows. Where AMX has bfloat16, the processor's tiles give the same bits as those in
 * plain C, of whatever numbers too: tiny, huge and none (test_matmul_kernels holds this tier
 * against float64 as all others).
 *
 * Neither: skipped.
 */
#include "matrix_case.h"
#include "plain_tiles.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_TOKENS = 40 };

typedef void multiply(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                      size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride, void *scratch);

/* A matrix, its tokens (they end at a guard page) and room for what comes of them. */
typedef struct fixture {
    matrix_case c;
    guarded xs;
    float *x;
    float *want, *got; /* [MOST_TOKENS, n_rows] */
    void *scratch;
    size_t n_bytes; /* of want */
} fixture;

static fixture open_fixture(uint64_t *state, const mf_weight_shape *shape, uint32_t n_rows,
                            uint32_t n_cols)
{
    fixture f = {.c = make_case(state, *shape, n_rows, n_cols)};
    const size_t n = mf_matmul_scratch_bytes_plain_amx_bf16(&f.c.w, MOST_TOKENS);
    f.x = random_floats(state, &f.xs, (size_t)MOST_TOKENS * n_cols);
    f.n_bytes = (size_t)MOST_TOKENS * n_rows * sizeof *f.want;
    f.want = malloc(f.n_bytes);
    f.got = malloc(f.n_bytes);
    f.scratch = aligned_alloc(64, (n + 127) & ~(size_t)63);
    REQUIRE(f.want != NULL && f.got != NULL);
    REQUIRE(f.scratch != NULL);
    memset(f.scratch, 0xff, n);
    return f;
}

static void close_fixture(fixture *f)
{
    free(f->scratch);
    free(f->got);
    free(f->want);
    guarded_free(&f->xs);
    free_case(&f->c);
}

/* Each token alone, to f->want. */
static void multiply_alone(fixture *f, multiply *by)
{
    const uint32_t n_rows = f->c.w.shape.n_rows, n_cols = f->c.w.shape.n_cols;
    for (uint32_t t = 0; t < MOST_TOKENS; t++)
        by(&f->c.w, 0, n_rows, f->x + (size_t)t * n_cols, n_cols, 1, f->want + (size_t)t * n_rows,
           n_rows, f->scratch);
}

/* f->want by any number of the last tokens, the rows cut anywhere. */
static void check_bits(fixture *f, uint64_t *state, const char *name, multiply *by)
{
    static const uint32_t counts[] = {1, 2, 3, 4, 5, 6, 8, 9, 16, 17, 33, MOST_TOKENS};
    const uint32_t n_rows = f->c.w.shape.n_rows, n_cols = f->c.w.shape.n_cols;
    make_one_nan(f->want, f->n_bytes / sizeof *f->want);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const uint32_t n = counts[i], cut = (uint32_t)(next_random(state) % (n_rows + 1));
        const size_t first = MOST_TOKENS - n, n_bytes = (size_t)n * n_rows * sizeof *f->got;
        memset(f->got, 0x55, f->n_bytes);
        if (cut > 0)
            by(&f->c.w, 0, cut, f->x + first * n_cols, n_cols, n, f->got, n_rows, f->scratch);
        if (cut < n_rows)
            by(&f->c.w, cut, n_rows, f->x + first * n_cols, n_cols, n, f->got + cut, n_rows,
               f->scratch);
        make_one_nan(f->got, n_bytes / sizeof *f->got);
        CHECK_MSG(memcmp(f->got, f->want + first * n_rows, n_bytes) == 0,
                  "%s: [%u, %u], %u tokens, cut at row %u: other bits", name, n_rows, n_cols, n,
                  cut);
    }
}

/* Tokens 1, 4, 7 ... of numbers as small and as large as there are; every 9th with one that is
 * none, its payload in the lowest bit alone, or infinite. */
static void make_extreme(fixture *f, uint64_t *state)
{
    const size_t n_cols = f->c.w.shape.n_cols;
    const uint32_t quiet_nothing = 0x7f800001;
    for (size_t t = 1; t < MOST_TOKENS; t += 3)
        for (size_t i = 0; i < n_cols; i++)
            f->x[t * n_cols + i] = ldexpf(f->x[t * n_cols + i], (int)(next_random(state) % 250) -
                                                                    (t % 2 == 0 ? 110 : 140));
    for (size_t t = 0; t < MOST_TOKENS; t += 9) {
        float *at = &f->x[t * n_cols + next_random(state) % n_cols];
        *at = t % 2 == 0 ? INFINITY : -INFINITY;
        if (t % 4 < 2)
            memcpy(at, &quiet_nothing, sizeof *at);
    }
}

/* All of the tokens that have something that is not finite come out so, and no others of the
 * ordinary ones. */
static void check_not_finite(const fixture *f)
{
    const uint32_t n_rows = f->c.w.shape.n_rows;
    for (uint32_t t = 0; t < MOST_TOKENS; t++)
        for (uint32_t r = 0; r < n_rows && (t % 9 == 0 || t % 3 != 1); r++)
            CHECK_MSG((isfinite(f->want[(size_t)t * n_rows + r]) != 0) == (t % 9 != 0),
                      "token %u, row %u: %g", t, r, (double)f->want[(size_t)t * n_rows + r]);
}

/* Against float64, by the bound of kernels.h, where numbers are ordinary. */
static void check_bound(const fixture *f)
{
    const uint32_t n_rows = f->c.w.shape.n_rows, n_cols = f->c.w.shape.n_cols;
    for (uint32_t t = 0; t < MOST_TOKENS; t++) {
        for (uint32_t r = 0; r < n_rows; r++) {
            double sum = 0.0, size = 0.0;
            for (uint32_t i = 0; i < n_cols; i++) {
                const double product =
                    f->c.values[(size_t)r * n_cols + i] * (double)f->x[(size_t)t * n_cols + i];
                sum += product;
                size += fabs(product);
            }
            CHECK_MSG(fabs((double)f->want[(size_t)t * n_rows + r] - sum) <=
                          4 * 0x1p-23 * sqrt((double)n_cols) * size + 1e-30,
                      "[%u, %u], token %u, row %u: %g, expected %g", n_rows, n_cols, t, r,
                      (double)f->want[(size_t)t * n_rows + r], sum);
        }
    }
}

/* A weight that is none, and an infinite one or another: their rows alone are not finite. */
static void check_weights(fixture *f)
{
    const uint32_t n_rows = f->c.w.shape.n_rows, n_cols = f->c.w.shape.n_cols;
    unsigned char *weights = f->c.arrays[0].p;
    if (f->c.w.shape.kind == MF_WEIGHT_FP8_BLOCK) {
        weights[n_cols - 1] = 0x7f;
        weights[(size_t)n_cols * (n_rows - 1)] = 0xff;
    } else {
        memcpy(weights + 2 * (size_t)(n_cols - 1), "\x81\x7f", 2);
        memcpy(weights + 2 * (size_t)n_cols * (n_rows - 1), "\x80\xff", 2);
    }
    f->x[0] = 1.5f;
    mf_matmul_plain_amx_bf16(&f->c.w, 0, n_rows, f->x, n_cols, 1, f->want, n_rows, f->scratch);
    for (uint32_t r = 0; r < n_rows; r++)
        CHECK((isfinite(f->want[r]) != 0) == (r != 0 && r != n_rows - 1));
}

static void check_shape(const mf_kernels *amx, uint64_t *state, const mf_weight_shape *shape,
                        uint32_t n_rows, uint32_t n_cols)
{
    fixture f = open_fixture(state, shape, n_rows, n_cols);
    multiply_alone(&f, mf_matmul_plain_amx_bf16);
    check_bound(&f);
    check_bits(&f, state, "plain C", mf_matmul_plain_amx_bf16);
    if (amx != NULL)
        check_bits(&f, state, "AMX", amx->matmul);
    make_extreme(&f, state);
    multiply_alone(&f, mf_matmul_plain_amx_bf16);
    check_not_finite(&f);
    check_bits(&f, state, "plain C, extremes", mf_matmul_plain_amx_bf16);
    if (amx != NULL)
        check_bits(&f, state, "AMX, extremes", amx->matmul);
    close_fixture(&f);
    f = open_fixture(state, shape, n_rows, n_cols);
    check_weights(&f);
    close_fixture(&f);
}

int main(void)
{
    const mf_kernels *amx = mf_kernels_get(MF_CPU_AVX512_AMX_BF16);
    uint64_t state = 43;
    if (mf_kernels_get(MF_CPU_AVX512) == NULL) {
        printf("this CPU has no AVX-512\n");
        return 77;
    }
    if (amx == NULL)
        printf("this CPU has no tiles of bfloat16: those in plain C alone\n");
    static const uint32_t shapes[][2] = {{16, 32},  {1, 1},    {37, 65},  {64, 320},  {5, 31},
                                         {33, 127}, {50, 96},  {2, 33},   {19, 1030}, {35, 2048},
                                         {5, 128},  {70, 161}, {17, 225}, {3, 1}};
    const mf_weight_shape forms[] = {float_shape(MF_BF16), fp8_shape(128), fp8_shape(24)};
    for (size_t form = 0; form < sizeof forms / sizeof *forms; form++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            check_shape(amx, &state, &forms[form], shapes[i][0], shapes[i][1]);
    return test_result();
}

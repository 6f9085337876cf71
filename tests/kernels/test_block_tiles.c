/* SPDX-License-Identifier: MIT */
/*
 * Formats of blocks by tiles (kernels/x86/folded_token.h, scaled_token.h). Where AVX-512 is, over
 * the tiles of plain_tiles.h: within the stated bound of float64, the same bits for any number of
 * tokens and any cut of the rows, and those of the processor's tiles where AMX is.
 *
 * Neither: skipped.
 */
#include "matrix_case.h"
#include "plain_tiles.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_TOKENS = 70 };

/* Both tiers' outputs of all tokens. */
static void check_same(const mf_kernels *plain, const mf_kernels *amx, const matrix_case *c,
                       const float *x)
{
    const uint32_t n_rows = c->w.shape.n_rows, n_cols = c->w.shape.n_cols;
    const size_t n = (size_t)MOST_TOKENS * n_rows;
    float *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
    void *scratch = scratch_for(plain, &c->w, MOST_TOKENS);
    REQUIRE(want != NULL && got != NULL);
    plain->matmul(&c->w, 0, n_rows, x, n_cols, MOST_TOKENS, want, n_rows, scratch);
    amx->matmul(&c->w, 0, n_rows, x, n_cols, MOST_TOKENS, got, n_rows, scratch);
    make_one_nan(want, n);
    make_one_nan(got, n);
    CHECK_MSG(memcmp(got, want, n * sizeof *got) == 0, "kind %d, [%u, %u]: AMX has other bits",
              c->w.shape.kind, n_rows, n_cols);
    free(scratch);
    free(got);
    free(want);
}

/* An activation that is not finite shows in its token's outputs alone. */
static void check_not_finite(const mf_kernels *k, matrix_case *c, float *x)
{
    const uint32_t n_rows = c->w.shape.n_rows, n_cols = c->w.shape.n_cols, n_tokens = 5;
    float *y = malloc((size_t)n_tokens * n_rows * sizeof *y);
    void *scratch = scratch_for(k, &c->w, n_tokens);
    REQUIRE(y != NULL);
    for (uint32_t i = 0; i < n_tokens * n_cols; i++)
        x[i] = 1.0f;
    x[n_cols] = NAN;
    x[3 * (size_t)n_cols + n_cols - 1] = -INFINITY;
    k->matmul(&c->w, 0, n_rows, x, n_cols, n_tokens, y, n_rows, scratch);
    for (uint32_t t = 0; t < n_tokens; t++)
        for (uint32_t r = 0; r < n_rows; r++)
            CHECK((isfinite(y[(size_t)t * n_rows + r]) != 0) == (t != 1 && t != 3));
    free(scratch);
    free(y);
}

static void check_shape(const mf_kernels *plain, const mf_kernels *amx, mf_weight_shape shape,
                        uint32_t n_rows, uint32_t n_cols, const unsigned char *code)
{
    guarded xs;
    uint64_t state = 53 + n_cols;
    matrix_case c = code == NULL ? make_case(&state, shape, n_rows, n_cols)
                                 : make_even_case(&state, shape, n_rows, n_cols, *code);
    float *x = random_floats(&state, &xs, (size_t)MOST_TOKENS * n_cols);
    check_case(plain, &state, &c);
    check_prepared(plain, &state, &c);
    if (amx != NULL)
        check_same(plain, amx, &c, x);
    check_not_finite(plain, &c, x);
    guarded_free(&xs);
    free_case(&c);
}

/* Rows of whole panels or not; spans of blocks of 32 columns that are whole or not. */
static void check_kind(const mf_kernels *plain, const mf_kernels *amx, mf_weight_shape shape)
{
    static const uint32_t rows[] = {16, 1, 37, 48}, cols[] = {256, 512, 1024, 2304};
    static const uint32_t short_cols[] = {32, 96, 320, 2176};
    static const unsigned char codes[] = {0xff, 0x00, 0x80, 0x7f};
    for (uint32_t i = 0; i < 4; i++)
        check_shape(plain, amx, shape, rows[i], cols[i], i < 3 ? NULL : &codes[shape.kind % 4]);
    for (uint32_t i = 0; i < 4 && mf_weight_format_of(&shape)->arrays[0].cols <= 32; i++)
        if (short_cols[i] % (shape.group > 0 ? shape.group : 32) == 0)
            check_shape(plain, amx, shape, rows[3 - i], short_cols[i], NULL);
}

static void check_kinds(const mf_kernels *plain, const mf_kernels *amx)
{
    static const mf_weight_kind kinds[] = {
        MF_WEIGHT_GGUF_Q4_K, MF_WEIGHT_GGUF_Q5_K, MF_WEIGHT_GGUF_Q6_K, MF_WEIGHT_GGUF_IQ4_XS,
        MF_WEIGHT_GGUF_Q4_0, MF_WEIGHT_GGUF_Q5_0, MF_WEIGHT_GGUF_Q8_0, MF_WEIGHT_GGUF_IQ4_NL,
        MF_WEIGHT_MXFP4,     MF_WEIGHT_GGUF_MXFP4};
    static const mf_dtype types[] = {MF_BF16, MF_F16, MF_F32};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        check_kind(plain, amx, (mf_weight_shape){.kind = kinds[i]});
    for (uint32_t i = 0; i < 6; i++)
        check_kind(plain, amx,
                   (mf_weight_shape){.kind = i < 3 ? MF_WEIGHT_INT4 : MF_WEIGHT_INT8,
                                     .float_type = types[i % 3],
                                     .group = 32u << i % 3});
}

int main(void)
{
    const mf_kernels *vectors = mf_kernels_get(MF_CPU_AVX512);
    const mf_kernels *amx = mf_kernels_get(MF_CPU_AVX512_AMX);
    if (vectors == NULL) {
        printf("this CPU has no AVX-512\n");
        return 77;
    }
    const mf_kernels plain = mf_plain_amx_kernels(vectors);
    check_kinds(&plain, amx);
    if (amx == NULL)
        printf("this CPU has no AMX: tiles in plain C alone\n");
    return test_result();
}

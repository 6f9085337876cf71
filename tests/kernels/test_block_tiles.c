/* SPDX-License-Identifier: MIT */
/*
 * GGUF's blocks with integer scales by tiles (kernels/x86/folded_token.h). Where AVX-512 is, over
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

static size_t scratch_bytes(const mf_matrix *w, uint32_t n_tokens)
{
    return mf_fixed_plain_scratch_bytes(mf_plain_folded(), w, n_tokens);
}

static void matmul(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                   size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    if (row0 < row1 && n_tokens > 0)
        mf_fixed_plain_matmul(mf_plain_folded(), w, row0, row1, x, x_stride, n_tokens, y, y_stride,
                              scratch);
}

static void matmul_prepared(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                            uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    if (row0 < row1 && n_tokens > 0)
        mf_plain_folded()->matmul(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

/* A tier whose products are those. */
static mf_kernels plain_kernels(const mf_kernels *vectors)
{
    mf_kernels k = *vectors;
    k.matmul_scratch_bytes = scratch_bytes;
    k.matmul = matmul;
    k.token_bytes = mf_plain_folded()->token_bytes;
    k.prepare_token = mf_plain_folded()->prepare;
    k.matmul_prepared = matmul_prepared;
    return k;
}

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

static void check_kind(const mf_kernels *plain, const mf_kernels *amx, mf_weight_kind kind)
{
    static const uint32_t rows[] = {16, 1, 37, 48}, cols[] = {256, 512, 1024, 2304};
    static const unsigned char codes[] = {0xff, 0x00, 0x80, 0x7f};
    const mf_weight_shape shape = {.kind = kind};
    uint64_t state = 53;
    for (uint32_t i = 0; i < 4; i++) {
        guarded xs;
        matrix_case c = i < 3 ? make_case(&state, shape, rows[i], cols[i])
                              : make_even_case(&state, shape, rows[i], cols[i], codes[kind % 4]);
        float *x = random_floats(&state, &xs, (size_t)MOST_TOKENS * cols[i]);
        check_case(plain, &state, &c);
        if (amx != NULL)
            check_same(plain, amx, &c, x);
        check_not_finite(plain, &c, x);
        guarded_free(&xs);
        free_case(&c);
    }
}

int main(void)
{
    static const mf_weight_kind kinds[] = {MF_WEIGHT_GGUF_Q4_K, MF_WEIGHT_GGUF_Q5_K,
                                           MF_WEIGHT_GGUF_Q6_K, MF_WEIGHT_GGUF_IQ4_XS};
    const mf_kernels *vectors = mf_kernels_get(MF_CPU_AVX512);
    const mf_kernels *amx = mf_kernels_get(MF_CPU_AVX512_AMX);
    if (vectors == NULL) {
        printf("this CPU has no AVX-512\n");
        return 77;
    }
    const mf_kernels plain = plain_kernels(vectors);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        check_kind(&plain, amx, kinds[i]);
    if (amx == NULL)
        printf("this CPU has no AMX: tiles in plain C alone\n");
    return test_result();
}

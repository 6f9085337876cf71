/* SPDX-License-Identifier: MIT */
/*
 * Products by tiles: the same bits as AVX-512's, which test_matmul_kernels and test_weight_formats
 * hold against float64. Where AVX-512 is, the tiles of plain_tiles.h; where AMX is, those too.
 *
 * Neither: skipped.
 */
#include "matrix_case.h"
#include "plain_tiles.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_TOKENS = 70 };

/* What multiplies by tiles. */
typedef struct tiled {
    const char *name;
    const mf_kernels *kernels;
} tiled;

/* Numbers of tokens below a tile, of one, of several that are full or not; rows cut anywhere. */
static void check_bits(const tiled *t, const mf_kernels *vectors, uint64_t *state,
                       const matrix_case *c, const float *x)
{
    static const uint32_t counts[] = {1, 7, 8, 9, 16, 17, 33, MOST_TOKENS};
    const uint32_t n_rows = c->w.shape.n_rows, n_cols = c->w.shape.n_cols;
    const size_t token_bytes = vectors->token_bytes(&c->w),
                 n_bytes = t->kernels->matmul_scratch_bytes(&c->w, MOST_TOKENS);
    const size_t most = (size_t)MOST_TOKENS * n_rows;
    guarded prepared = guarded_alloc(token_bytes * MOST_TOKENS);
    float *want = malloc(most * sizeof *want), *got = malloc(most * sizeof *got);
    void *wide = scratch_for(vectors, &c->w, MOST_TOKENS);
    void *scratch = aligned_alloc(64, (n_bytes + 127) & ~(size_t)63);
    REQUIRE(want != NULL && got != NULL);
    REQUIRE(scratch != NULL);
    memset(scratch, 0xff, n_bytes);
    for (uint32_t i = 0; i < MOST_TOKENS; i++)
        vectors->prepare_token(&c->w, x + (size_t)i * n_cols, prepared.p + i * token_bytes);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const uint32_t n = counts[i], cut = (uint32_t)(next_random(state) % (n_rows + 1));
        const unsigned char *last = prepared.p + (MOST_TOKENS - n) * token_bytes;
        memset(got, 0x55, most * sizeof *got);
        memset(want, 0x55, most * sizeof *want);
        vectors->matmul_prepared(&c->w, 0, n_rows, last, n, want, n_rows, wide);
        if (cut > 0)
            t->kernels->matmul_prepared(&c->w, 0, cut, last, n, got, n_rows, scratch);
        if (cut < n_rows)
            t->kernels->matmul_prepared(&c->w, cut, n_rows, last, n, got + cut, n_rows, scratch);
        make_one_nan(got, most);
        make_one_nan(want, most);
        CHECK_MSG(memcmp(got, want, most * sizeof *got) == 0,
                  "%s: kind %d, %u bits, group %u, [%u, %u], %u tokens, cut at row %u: other bits",
                  t->name, c->w.shape.kind, c->w.shape.bits, c->w.shape.group, n_rows, n_cols, n,
                  cut);
    }
    free(scratch);
    free(wide);
    free(got);
    free(want);
    guarded_free(&prepared);
}

/* Random values; the largest of one sign, or of both in turn; some that are not finite. */
static void check_activations(const tiled *t, const mf_kernels *vectors, uint64_t *state,
                              const matrix_case *c)
{
    const size_t n_cols = c->w.shape.n_cols, n = MOST_TOKENS * n_cols;
    guarded xs;
    float *x = random_floats(state, &xs, n);
    check_bits(t, vectors, state, c, x);
    for (size_t i = 0; i < n; i++)
        x[i] = i / n_cols % 2 == 0 || i % 3 != 0 ? 1.0f : -1.0f;
    x[n / 2] = INFINITY;
    x[n - 1] = NAN;
    check_bits(t, vectors, state, c, x);
    guarded_free(&xs);
}

/* A matrix of random weights, and ones of the largest and smallest codes alone. */
static void check_shape(const tiled *t, const mf_kernels *vectors, uint64_t *state,
                        mf_weight_shape shape, uint32_t n_rows, uint32_t n_cols)
{
    static const unsigned char codes[] = {0xff, 0x00, 0x80, 0x7f, 0x88};
    matrix_case c = make_case(state, shape, n_rows, n_cols);
    check_activations(t, vectors, state, &c);
    free_case(&c);
    c = make_even_case(state, shape, 20, 256, codes[next_random(state) % sizeof codes]);
    check_activations(t, vectors, state, &c);
    free_case(&c);
}

static void check_affine(const tiled *t, const mf_kernels *vectors)
{
    static const uint32_t bits[] = {2, 3, 4, 5, 6, 8}, rows[] = {16, 37, 64, 5, 33};
    static const uint32_t cols[] = {256, 320, 64, 576};
    static const mf_dtype types[] = {MF_F32, MF_F16, MF_BF16};
    uint64_t state = 41;
    for (uint32_t i = 0; i < 2 * sizeof bits / sizeof *bits; i++)
        check_shape(t, vectors, &state, affine_shape(bits[i / 2], 64, types[i % 3]), rows[i % 5],
                    cols[i % 4]);
    check_shape(t, vectors, &state, affine_shape(4, 128, MF_BF16), 40, 640);
    check_shape(t, vectors, &state, affine_shape(8, 128, MF_F32), 40, 640);
}

int main(void)
{
    const mf_kernels *vectors = mf_kernels_get(MF_CPU_AVX512);
    const tiled amx = {"AMX", mf_kernels_get(MF_CPU_AVX512_AMX)};
    if (vectors == NULL) {
        printf("this CPU has no AVX-512\n");
        return 77;
    }
    const mf_kernels in_c = mf_plain_amx_kernels(vectors);
    const tiled plain = {"plain C", &in_c};
    check_affine(&plain, vectors);
    if (amx.kernels != NULL) {
        check_affine(&amx, vectors);
    } else {
        printf("this CPU has no AMX: tiles in plain C alone\n");
    }
    return test_result();
}

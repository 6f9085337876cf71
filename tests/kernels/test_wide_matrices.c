/* SPDX-License-Identifier: MIT */
/*
 * Rows as long as those of the largest models, in every stored form and on every tier, against
 * float64: few rows, by few tokens and by as many as panels are made for, and the same bits for
 * both.
 */
#include "matrix_case.h"

#include <stdlib.h>

enum { ROWS = 6, TOKENS = 9 };

static void check_wide(const mf_kernels *k, uint64_t *state, mf_weight_shape shape, uint32_t n_cols)
{
    matrix_case c = make_case(state, shape, ROWS, n_cols);
    guarded xs;
    const float *x = random_floats(state, &xs, (size_t)TOKENS * n_cols);
    float alone[TOKENS * ROWS], together[TOKENS * ROWS];
    void *scratch = scratch_for(k, &c.w, TOKENS);
    for (uint32_t t = 0; t < TOKENS; t++)
        k->matmul(&c.w, 0, ROWS, x + (size_t)t * n_cols, n_cols, 1, alone + (size_t)t * ROWS, ROWS,
                  scratch);
    check_outputs(k, &c, x, TOKENS, alone);
    for (uint32_t n = 3; n <= TOKENS; n += 6) {
        k->matmul(&c.w, 0, ROWS, x, n_cols, n, together, ROWS, scratch);
        CHECK_BYTES(together, alone, sizeof *together * n * ROWS);
    }
    check_rows(k, &c);
    free(scratch);
    guarded_free(&xs);
    free_case(&c);
}

static void test_wide(const mf_kernels *k)
{
    static const uint32_t cols[] = {4096, 7168, 18432}, bits[] = {2, 3, 4, 5, 6, 8};
    static const uint32_t groups[] = {64, 32, 128};
    static const mf_dtype types[] = {MF_BF16, MF_F16, MF_F32};
    uint64_t state = 31;
    for (size_t i = 0; i < 3; i++) {
        for (size_t b = 0; b < 6; b++)
            for (size_t g = 0; g < 3; g++)
                check_wide(k, &state, affine_shape(bits[b], groups[g], types[(i + b + g) % 3]),
                           cols[i]);
        for (size_t t = 0; t < 3; t++)
            check_wide(k, &state, float_shape(types[t]), cols[i]);
        check_wide(k, &state, fp8_shape(128), cols[i]);
        check_wide(k, &state, fp8_shape(4), cols[i]);
        for (uint32_t kind = MF_WEIGHT_MXFP4; kind < MF_WEIGHT_KINDS; kind++)
            check_wide(k, &state,
                       (mf_weight_shape){.kind = (mf_weight_kind)kind,
                                         .float_type = types[i],
                                         .bits = bits[i + 1],
                                         .group = groups[i]},
                       cols[i]);
    }
}

int main(void)
{
    for_tiers(test_wide);
    return test_result();
}

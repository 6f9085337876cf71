/* SPDX-License-Identifier: MIT */
/* The dequantisation of every bits and group against mlx's own, in float32. */
#include "golden.h"

#include "kernels/kernels.h"

static const unsigned char *take(const unsigned char **p, size_t n)
{
    const unsigned char *at = *p;
    *p += n;
    return at;
}

static void check_matrix(const mf_kernels *kernels, const mf_matrix *w, const float *want)
{
    float got[512];
    REQUIRE(w->shape.n_cols <= 512);
    for (uint32_t row = 0; row < w->shape.n_rows; row++) {
        const float *expected = want + (size_t)row * w->shape.n_cols;
        kernels->dequant_row(w, row, got);
        float largest = 0, difference = 0;
        for (uint32_t i = 0; i < w->shape.n_cols; i++) {
            largest = fmaxf(largest, fabsf(expected[i]));
            difference = fmaxf(difference, fabsf(got[i] - expected[i]));
        }
        /* mlx may round the product before it adds the bias */
        CHECK_MSG(difference <= 4e-7f * largest, "tier %d, %u bits, group %u, row %u: off by %g",
                  (int)kernels->tier, w->shape.bits, w->shape.group, row, (double)difference);
    }
}

int main(void)
{
    size_t n_bytes;
    unsigned char *file = read_file(GOLDEN_ROOT "/dequant.bin", &n_bytes);
    uint32_t n;
    REQUIRE(n_bytes > 12 && memcmp(file, "MFDEQUAN", 8) == 0);
    memcpy(&n, file + 8, 4);
    CHECK_U64(n, 18);
    const unsigned char *p = file + 12;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t head[4]; /* bits, group, rows, columns */
        memcpy(head, take(&p, sizeof head), sizeof head);
        mf_matrix w = {.shape = {.kind = MF_WEIGHT_AFFINE,
                                 .float_type = MF_BF16,
                                 .bits = head[0],
                                 .group = head[1],
                                 .n_rows = head[2],
                                 .n_cols = head[3]}};
        size_t n_values = (size_t)w.shape.n_rows * w.shape.n_cols,
               n_groups = n_values / w.shape.group;
        w.data = take(&p, n_values * w.shape.bits / 8);
        w.scales = take(&p, 2 * n_groups);
        w.biases = take(&p, 2 * n_groups);
        float *want = malloc(n_values * sizeof *want);
        memcpy(want, take(&p, n_values * sizeof *want), n_values * sizeof *want);
        for (uint32_t tier = MF_CPU_SCALAR; tier < MF_CPU_END; tier++)
            if (mf_kernels_get(tier) != NULL)
                check_matrix(mf_kernels_get(tier), &w, want);
        free(want);
    }
    CHECK(p == file + n_bytes);
    free(file);
    return test_result();
}

/* SPDX-License-Identifier: MIT */
/* Measures of the machine, scalar: reading memory, multiply-adds on registers. */
#include "kernels/scalar/scalar.h"

#include <math.h>
#include <string.h>

uint64_t mf_read_bytes_scalar(const unsigned char *p, size_t n)
{
    uint64_t sum[4] = {0};
    for (size_t i = 0; i + 32 <= n; i += 32) {
        uint64_t word[4];
        memcpy(word, p + i, sizeof word);
        for (int j = 0; j < 4; j++)
            sum[j] += word[j];
    }
    return sum[0] + sum[1] + sum[2] + sum[3];
}

uint64_t mf_fma_peak_scalar(uint64_t n_iterations, float *sink)
{
    enum { CHAINS = 10 };
    float acc[CHAINS];
    for (int j = 0; j < CHAINS; j++)
        acc[j] = sink[0] + (float)j;
    float factor = sink[0] * 0.5f + 0.25f;
    for (uint64_t i = 0; i < n_iterations; i++) {
        for (int j = 0; j < CHAINS; j++)
            acc[j] = fmaf(acc[j], factor, factor);
    }
    for (int j = 1; j < CHAINS; j++)
        acc[0] += acc[j];
    sink[0] = acc[0];
    return n_iterations * CHAINS;
}

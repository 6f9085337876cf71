/* SPDX-License-Identifier: MIT */
/*
 * exp(x) = 2^k exp(r), |r| <= ln 2 / 2, by its series to r^13 (relative error below 1e-15). Without
 * divisions, calls and branches, since a vocabulary of these is summed up for a token; so LANES lie
 * side by side, in whatever instructions the processor has. None of these fuses a product with a
 * sum, so that all have the same bits.
 */
#include "sampling/token_weights.h"

#include <stdint.h>
#include <string.h>

#define LANES 8u
#define EVERY(x)               \
    {                          \
        x, x, x, x, x, x, x, x \
    }

typedef double reals __attribute__((vector_size(LANES * sizeof(double))));
typedef int64_t masks __attribute__((vector_size(LANES * sizeof(int64_t))));
typedef uint64_t wholes __attribute__((vector_size(LANES * sizeof(uint64_t))));
typedef float floats __attribute__((vector_size(LANES * sizeof(float))));

#define INLINE static inline __attribute__((always_inline))

/* By address: how vectors are handed over depends on the processor. */
INLINE void weigh(reals *x)
{
    static const double terms[] = {1.0 / 479001600.0,
                                   1.0 / 39916800.0,
                                   1.0 / 3628800.0,
                                   1.0 / 362880.0,
                                   1.0 / 40320.0,
                                   1.0 / 5040.0,
                                   1.0 / 720.0,
                                   1.0 / 120.0,
                                   1.0 / 24.0,
                                   1.0 / 6.0,
                                   0.5,
                                   1.0,
                                   1.0};
    const reals least = EVERY(-700.0);
    const masks is_any = *x > least; /* not NaN, either */
    const reals limited = (reals)((is_any & (masks)*x) | (~is_any & (masks)least));
    /* What is added to round to a whole number has that number in its lowest bits. */
    const reals rounded = limited * 1.4426950408889634 + 0x1.8p52, k = rounded - 0x1.8p52;
    const reals r =
        (limited - k * 0x1.62e42feep-1) - k * 0x1.a39ef35793c76p-33; /* ln 2 in two parts */
    reals sum = EVERY(1.0 / 6227020800.0);
    for (size_t i = 0; i < sizeof terms / sizeof *terms; i++)
        sum = terms[i] + sum * r;
    const reals power = (reals)(((wholes)rounded + 1023) << 52);
    *x = (reals)(is_any & (masks)(sum * power));
}

INLINE void weigh_scores(const float *scores, float highest, reals *weights)
{
    floats f;
    memcpy(&f, scores, sizeof f);
    *weights = __builtin_convertvector(f, reals) - (double)highest;
    weigh(weights);
}

/* The last ones, fewer than LANES. */
INLINE void weigh_rest(const float *scores, size_t n, float highest, reals *weights)
{
    float rest[LANES] = EVERY(0.0f);
    memcpy(rest, scores, n * sizeof *scores);
    weigh_scores(rest, highest, weights);
    for (size_t k = n; k < LANES; k++)
        (*weights)[k] = 0.0;
}

INLINE void weights_of(const float *scores, size_t n, float highest, double *weights)
{
    reals some;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        weigh_scores(scores + i, highest, &some);
        memcpy(weights + i, &some, sizeof some);
    }
    weigh_rest(scores + i, n - i, highest, &some);
    memcpy(weights + i, &some, (n - i) * sizeof *weights);
}

INLINE double sum_of(const float *scores, size_t n, float highest)
{
    reals lanes = EVERY(0.0), weights;
    double all = 0.0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        weigh_scores(scores + i, highest, &weights);
        lanes += weights;
    }
    weigh_rest(scores + i, n - i, highest, &weights);
    lanes += weights;
    for (size_t k = 0; k < LANES; k++)
        all += lanes[k];
    return all;
}

static void plain_of(const float *scores, size_t n, float highest, double *weights)
{
    weights_of(scores, n, highest, weights);
}

static double plain_sum(const float *scores, size_t n, float highest)
{
    return sum_of(scores, n, highest);
}

static const mf_weights plain = {plain_of, plain_sum};

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void avx2_of(const float *scores, size_t n, float highest,
                                                    double *weights)
{
    weights_of(scores, n, highest, weights);
}

__attribute__((target("avx2"))) static double avx2_sum(const float *scores, size_t n, float highest)
{
    return sum_of(scores, n, highest);
}

static const mf_weights avx2 = {avx2_of, avx2_sum};

__attribute__((target("avx512f"))) static void avx512_of(const float *scores, size_t n,
                                                         float highest, double *weights)
{
    weights_of(scores, n, highest, weights);
}

__attribute__((target("avx512f"))) static double avx512_sum(const float *scores, size_t n,
                                                            float highest)
{
    return sum_of(scores, n, highest);
}

static const mf_weights avx512 = {avx512_of, avx512_sum};
#endif

const mf_weights *mf_weights_of_tier(mf_cpu_tier tier)
{
#if defined(__x86_64__)
    if (tier == MF_CPU_AVX512_BW)
        return &avx512;
    if (tier == MF_CPU_AVX2)
        return &avx2;
#endif
    return tier == MF_CPU_SCALAR ? &plain : NULL;
}

const mf_weights *mf_weights_here(void)
{
    const mf_cpu_tier wide = mf_cpu_has(MF_CPU_AVX512_BW) ? MF_CPU_AVX512_BW
                             : mf_cpu_has(MF_CPU_AVX2)    ? MF_CPU_AVX2
                                                          : MF_CPU_SCALAR;
    return mf_weights_of_tier(wide);
}

double mf_weight_of(double x)
{
    reals one = EVERY(x);
    weigh(&one);
    return one[0];
}

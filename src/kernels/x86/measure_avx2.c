/* SPDX-License-Identifier: MIT */
/* Measures of the machine, AVX2: reading memory, multiply-adds on registers. */
#include "kernels/x86/avx2.h"
#include "kernels/x86/unroll.h"

#include <immintrin.h>

uint64_t mf_read_bytes_avx2(const unsigned char *p, size_t n)
{
    __m256i sum[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                      _mm256_setzero_si256()};
    for (size_t i = 0; i + 256 <= n; i += 256) {
        for (int j = 0; j < 8; j++) {
            const __m256i *at = (const __m256i *)(const void *)(p + i + 32 * j);
            sum[j % 4] = _mm256_add_epi64(sum[j % 4], _mm256_loadu_si256(at));
        }
    }
    sum[0] = _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3]));
    uint64_t lanes[4];
    _mm256_storeu_si256((__m256i *)(void *)lanes, sum[0]);
    return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

uint64_t mf_fma_peak_avx2(uint64_t n_iterations, float *sink)
{
    enum { CHAINS = 12, LANES = 8 };
    __m256 acc[CHAINS];
    for (int j = 0; j < CHAINS; j++)
        acc[j] = _mm256_set1_ps(sink[0] + (float)j);
    __m256 factor = _mm256_set1_ps(sink[0] * 0.5f + 0.25f);
    for (uint64_t i = 0; i < n_iterations; i++) {
        MF_UNROLL(12)
        for (int j = 0; j < CHAINS; j++)
            acc[j] = _mm256_fmadd_ps(acc[j], factor, factor);
    }
    for (int j = 1; j < CHAINS; j++)
        acc[0] = _mm256_add_ps(acc[0], acc[j]);
    sink[0] = _mm256_cvtss_f32(acc[0]);
    return n_iterations * CHAINS * LANES;
}

/* SPDX-License-Identifier: MIT */
/* Measures of the machine, AVX-512: reading memory, multiply-adds on registers. */
#include "kernels/x86/avx512.h"
#include "kernels/x86/unroll.h"

#include <immintrin.h>

uint64_t mf_read_bytes_avx512(const unsigned char *p, size_t n)
{
    __m512i sum[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                      _mm512_setzero_si512()};
    for (size_t i = 0; i + 256 <= n; i += 256) {
        for (int j = 0; j < 4; j++)
            sum[j] = _mm512_add_epi64(sum[j], _mm512_loadu_si512(p + i + 64 * j));
    }
    sum[0] = _mm512_add_epi64(_mm512_add_epi64(sum[0], sum[1]), _mm512_add_epi64(sum[2], sum[3]));
    /* not _mm512_reduce_add_epi64: its own last additions are of signed integers, and overflow */
    uint64_t lanes[8], total = 0;
    _mm512_storeu_si512(lanes, sum[0]);
    for (int j = 0; j < 8; j++)
        total += lanes[j];
    return total;
}

uint64_t mf_fma_peak_avx512(uint64_t n_iterations, float *sink)
{
    enum { CHAINS = 12, LANES = 16 };
    __m512 acc[CHAINS];
    for (int j = 0; j < CHAINS; j++)
        acc[j] = _mm512_set1_ps(sink[0] + (float)j);
    __m512 factor = _mm512_set1_ps(sink[0] * 0.5f + 0.25f);
    for (uint64_t i = 0; i < n_iterations; i++) {
        MF_UNROLL(12)
        for (int j = 0; j < CHAINS; j++)
            acc[j] = _mm512_fmadd_ps(acc[j], factor, factor);
    }
    for (int j = 1; j < CHAINS; j++)
        acc[0] = _mm512_add_ps(acc[0], acc[j]);
    sink[0] = _mm512_cvtss_f32(acc[0]);
    return n_iterations * CHAINS * LANES;
}

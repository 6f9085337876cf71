/* SPDX-License-Identifier: MIT */
/* Measures of the machine, NEON: reading memory, multiply-adds on registers. */
#include "kernels/arm/neon.h"
#include "kernels/x86/unroll.h"

#include <arm_neon.h>

uint64_t mf_read_bytes_neon(const unsigned char *p, size_t n)
{
    uint64x2_t sum[4] = {vdupq_n_u64(0), vdupq_n_u64(0), vdupq_n_u64(0), vdupq_n_u64(0)};
    for (size_t i = 0; i + 256 <= n; i += 256) {
        MF_UNROLL(16)
        for (size_t j = 0; j < 16; j++)
            sum[j % 4] = vaddq_u64(sum[j % 4], vreinterpretq_u64_u8(vld1q_u8(p + i + 16 * j)));
    }
    return vaddvq_u64(vaddq_u64(vaddq_u64(sum[0], sum[1]), vaddq_u64(sum[2], sum[3])));
}

uint64_t mf_fma_peak_neon(uint64_t n_iterations, float *sink)
{
    enum { CHAINS = 24, WIDTH = 4 };
    float32x4_t acc[CHAINS];
    for (int j = 0; j < CHAINS; j++)
        acc[j] = vdupq_n_f32(sink[0] + (float)j);
    const float32x4_t factor = vdupq_n_f32(sink[0] * 0.5f + 0.25f);
    for (uint64_t i = 0; i < n_iterations; i++) {
        MF_UNROLL(24)
        for (int j = 0; j < CHAINS; j++)
            acc[j] = vfmaq_f32(factor, acc[j], factor);
    }
    for (int j = 1; j < CHAINS; j++)
        acc[0] = vaddq_f32(acc[0], acc[j]);
    sink[0] = vgetq_lane_f32(acc[0], 0);
    return n_iterations * CHAINS * WIDTH;
}

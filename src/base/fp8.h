/* SPDX-License-Identifier: MIT */
/*
 * The 8-bit float e4m3 as checkpoints store it ("e4m3fn"): a sign, 4 bits of exponent biased by 7,
 * 3 of fraction; exponent 0 is subnormal, there are no infinities, and all ones (0x7f, 0xff) are
 * NaN. The largest number is 448.
 */
#ifndef MF_BASE_FP8_H
#define MF_BASE_FP8_H

#include "base/half.h"

static inline float mf_f32_from_e4m3(uint8_t code)
{
    uint32_t sign = (uint32_t)(code & 0x80u) << 24, magnitude = code & 0x7fu;
    if (magnitude == 0x7fu)
        return mf_f32_from_bits(0x7fc00000u); /* the same for both, so that sums are too */
    if (magnitude >= 8)                       /* the exponent's bias becomes 127 */
        return mf_f32_from_bits(sign | ((magnitude << 20) + (120u << 23)));
    float subnormal = (float)magnitude * 0x1p-9f;
    return mf_f32_from_bits(sign | mf_bits_from_f32(subnormal));
}

#endif

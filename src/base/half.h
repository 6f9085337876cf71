/* SPDX-License-Identifier: MIT */
/* Conversions between float32 and the 16-bit formats: bfloat16 (the upper half of a float32) and
 * IEEE binary16. */
#ifndef MF_BASE_HALF_H
#define MF_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float mf_f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t mf_bits_from_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float mf_f32_from_bf16(uint16_t half)
{
    return mf_f32_from_bits((uint32_t)half << 16);
}

/* Round to nearest even; NaN stays NaN. */
static inline uint16_t mf_bf16_from_f32(float value)
{
    uint32_t bits = mf_bits_from_f32(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* Round to nearest even; what is too large becomes infinite, NaN stays NaN. */
static inline uint16_t mf_f16_from_f32(float value)
{
    const uint32_t bits = mf_bits_from_f32(value), sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) /* half way to 2^16, and beyond */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* subnormal there: added to 1/2, the unit is 2^-24 */
        const float shifted = mf_f32_from_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (mf_bits_from_f32(shifted) - 0x3f000000u));
    }
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | (rounded - 0x38000000u) >> 13);
}

static inline float mf_f32_from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 0x1fu;
    uint32_t mantissa = half & 0x3ffu;
    if (exponent == 0x1fu)
        return mf_f32_from_bits(sign | 0x7f800000u | (mantissa << 13));
    if (exponent != 0)
        return mf_f32_from_bits(sign | ((exponent + 112u) << 23) | (mantissa << 13));
    float magnitude = (float)mantissa * 0x1p-24f; /* subnormal or zero: exact */
    return mf_f32_from_bits(sign | mf_bits_from_f32(magnitude));
}

#endif

/* SPDX-License-Identifier: MIT */
/* Eight weights at once as float32, of every format that is read in place: floats, FP8 and affine
 * codes; NEON. Nothing past them is read. */
#ifndef MF_KERNELS_WEIGHTS_NEON_H
#define MF_KERNELS_WEIGHTS_NEON_H

#include "base/fp8.h"
#include "kernels/arm/lanes_neon.h"
#include "kernels/kernels.h"
#include "kernels/x86/unroll.h"

static inline float mf_float_at_neon(const unsigned char *p, mf_dtype type, size_t i)
{
    if (type == MF_F32) {
        float value;
        memcpy(&value, p + 4 * i, sizeof value);
        return value;
    }
    uint16_t half;
    memcpy(&half, p + 2 * i, sizeof half);
    return type == MF_BF16 ? mf_f32_from_bf16(half) : mf_f32_from_f16(half);
}

/* Of a float type (a constant), from any address. */
MF_LANE_OP lanes mf_load_float_neon(const unsigned char *p, mf_dtype type)
{
    const uint8x16_t bytes = vld1q_u8(p);
    if (type == MF_F32)
        return lanes_of(vreinterpretq_f32_u8(bytes), vreinterpretq_f32_u8(vld1q_u8(p + 16)));
    if (type == MF_F16) {
        const float16x8_t half = vreinterpretq_f16_u8(bytes);
        return lanes_of(vcvt_f32_f16(vget_low_f16(half)), vcvt_high_f32_f16(half));
    }
    const uint16x8_t half = vreinterpretq_u16_u8(bytes);
    return lanes_of(vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(half), 16)),
                    vreinterpretq_f32_u32(vshll_high_n_u16(half, 16)));
}

/* Four e4m3 codes: their exponent's bias becomes 127 by a product, which is exact for subnormal
 * ones too. */
MF_LANE_OP float32x4_t mf_from_e4m3_neon(uint32x4_t code)
{
    const uint32x4_t most = vdupq_n_u32(0x7f), magnitude = vandq_u32(code, most);
    const float32x4_t value =
        vmulq_f32(vreinterpretq_f32_u32(vshlq_n_u32(magnitude, 20)), vdupq_n_f32(0x1p120f));
    const uint32x4_t sign = vshlq_n_u32(vbicq_u32(code, most), 24);
    const uint32x4_t bits = vorrq_u32(vreinterpretq_u32_f32(value), sign);
    return vreinterpretq_f32_u32(
        vbslq_u32(vceqq_u32(magnitude, most), vdupq_n_u32(0x7fc00000), bits));
}

MF_LANE_OP lanes mf_load_fp8_neon(const unsigned char *p)
{
    const uint16x8_t codes = vmovl_u8(vld1_u8(p));
    return lanes_of(mf_from_e4m3_neon(vmovl_u16(vget_low_u16(codes))),
                    mf_from_e4m3_neon(vmovl_high_u16(codes)));
}

/* Eight packed values of `bits` (a constant: 2 to 6, 8), which take as many bytes. */
MF_LANE_OP lanes mf_load_codes_neon(uint32_t bits, const unsigned char *p)
{
    const int32_t b = (int32_t)bits;
    const int32x4_t places = {0, -b, -2 * b, -3 * b};
    const uint32x4_t mask = vdupq_n_u32((1u << bits) - 1);
    uint64_t word = 0;
    memcpy(&word, p, bits);
    const uint32x4_t low = vdupq_n_u32((uint32_t)word);
    const uint32x4_t high = vdupq_n_u32((uint32_t)(word >> (4 * bits)));
    return lanes_of(vcvtq_f32_u32(vandq_u32(vshlq_u32(low, places), mask)),
                    vcvtq_f32_u32(vandq_u32(vshlq_u32(high, places), mask)));
}

#endif

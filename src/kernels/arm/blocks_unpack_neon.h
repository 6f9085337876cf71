/* SPDX-License-Identifier: MIT */
/*
 * A span of 256 columns in each of the formats of blocks, NEON: its scales, and 32 weights at once
 * as signed bytes in the order of their columns. `kind` is a constant everywhere; `g` is which 32
 * columns.
 */
#ifndef MF_KERNELS_BLOCKS_UNPACK_NEON_H
#define MF_KERNELS_BLOCKS_UNPACK_NEON_H

#include "kernels/arm/lanes_neon.h"
#include "kernels/x86/blocks_token.h"

/* What does not change between spans: the weights that 4 bits mean, of formats that look them up.
 */
typedef struct span_tables {
    int8x16_t levels;
} span_tables;

/* A span's scales, each of 32 columns (eight of them) or of 16, and what is added, of 16 each. */
typedef struct span_scales {
    float scale[16];
    float min[16];
} span_scales;

/* 32 weights. */
typedef struct weights_32 {
    int8x16_t v[2];
} weights_32;

MF_LANE_OP span_tables tables_of(mf_weight_kind kind, const mf_blocks_rows *w)
{
    (void)w;
    static const int8_t plain[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    static const int8_t curved[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
    /* twice what they mean */
    static const int8_t floats[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    int8x16_t t = vld1q_s8(plain);
    if (kind == MF_WEIGHT_GGUF_Q4_0 || kind == MF_WEIGHT_INT4)
        t = vsubq_s8(t, vdupq_n_s8(8));
    else if (kind == MF_WEIGHT_GGUF_Q5_0)
        t = vsubq_s8(t, vdupq_n_s8(16));
    else if (kind == MF_WEIGHT_GGUF_IQ4_NL || kind == MF_WEIGHT_GGUF_IQ4_XS)
        t = vld1q_s8(curved);
    else if (kind == MF_WEIGHT_MXFP4 || mf_blocks_is_nvfp4(kind) || kind == MF_WEIGHT_GGUF_MXFP4 ||
             kind == MF_WEIGHT_GGUF_NVFP4)
        t = vld1q_s8(floats);
    return (span_tables){t};
}

MF_LANE_OP uint32_t word_at(const unsigned char *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

/* A float16. */
MF_LANE_OP float half_at(const unsigned char *p)
{
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half))), 0);
}

/* ------------------------------------------------------------------------------------ scales -- */

MF_LANE_OP void store_floats(float *out, uint16x8_t v, float d)
{
    vst1q_f32(out, vmulq_n_f32(vcvtq_f32_u32(vmovl_u16(vget_low_u16(v))), d));
    vst1q_f32(out + 4, vmulq_n_f32(vcvtq_f32_u32(vmovl_high_u16(v)), d));
}

/* Sixteen signed bytes times d. */
MF_LANE_OP void store_products(float *out, int8x16_t bytes, float d)
{
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    vst1q_f32(out, vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), d));
    vst1q_f32(out + 4, vmulq_n_f32(vcvtq_f32_s32(vmovl_high_s16(low)), d));
    vst1q_f32(out + 8, vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), d));
    vst1q_f32(out + 12, vmulq_n_f32(vcvtq_f32_s32(vmovl_high_s16(high)), d));
}

MF_LANE_OP void small_scales(const unsigned char *p, size_t block_bytes, bool with_min,
                             span_scales *s)
{
    for (uint32_t i = 0; i < 8; i++, p += block_bytes) {
        s->scale[i] = half_at(p);
        if (with_min)
            s->min[2 * i] = s->min[2 * i + 1] = half_at(p + 2);
    }
}

/* Q4_K's and Q5_K's: eight pairs of 6 bits in 12 bytes. */
MF_LANE_OP void k_scales(const unsigned char *p, span_scales *s)
{
    const uint32_t a = word_at(p + 4), b = word_at(p + 8), c = word_at(p + 12);
    const uint64_t scales = (a & 0x3f3f3f3f) | (uint64_t)((c & 0x0f0f0f0f) | (a >> 2 & 0x30303030))
                                                   << 32;
    const uint64_t minima =
        (b & 0x3f3f3f3f) | (uint64_t)((c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030)) << 32;
    const uint8x8_t twice = vcreate_u8(minima);
    const float min = -half_at(p + 2);
    store_floats(s->scale, vmovl_u8(vcreate_u8(scales)), half_at(p));
    store_floats(s->min, vmovl_u8(vzip1_u8(twice, twice)), min);
    store_floats(s->min + 8, vmovl_u8(vzip2_u8(twice, twice)), min);
}

MF_LANE_OP void q2_k_scales(const unsigned char *p, span_scales *s)
{
    const uint8x16_t both = vld1q_u8(p);
    store_products(s->scale, vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15))), half_at(p + 80));
    store_products(s->min, vreinterpretq_s8_u8(vshrq_n_u8(both, 4)), -half_at(p + 82));
}

/* Sixteen of 6 bits: low 4 bits in 8 bytes, high 2 in 4. */
MF_LANE_OP void q3_k_scales(const unsigned char *p, span_scales *s)
{
    const uint8x8_t low = vld1_u8(p + 96);
    const uint8x16_t lows = vcombine_u8(vand_u8(low, vdup_n_u8(15)), vshr_n_u8(low, 4));
    const uint32_t h = word_at(p + 104);
    const uint32_t shifted[4] = {h << 4, h << 2, h, h >> 2};
    const uint8x16_t highs = vandq_u8(vreinterpretq_u8_u32(vld1q_u32(shifted)), vdupq_n_u8(0x30));
    store_products(s->scale, vsubq_s8(vreinterpretq_s8_u8(vorrq_u8(lows, highs)), vdupq_n_s8(32)),
                   half_at(p + 108));
}

MF_LANE_OP void iq4_xs_scales(const unsigned char *p, span_scales *s)
{
    const uint32_t low = word_at(p + 4), high = word_at(p) >> 16;
    const float d = half_at(p);
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t code = (low >> (4 * i) & 15) | (high >> (2 * i) & 3) << 4;
        s->scale[i] = (float)((int32_t)code - 32) * d;
    }
}

/* Half of what e8m0 codes mean, of eight. */
MF_LANE_OP void exponent_scales(const unsigned char *codes, size_t apart, span_scales *s)
{
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t e = codes[i * apart];
        const uint32_t bits = e < 2 ? 0x00200000u << e : (e - 1) << 23;
        s->scale[i] = mf_f32_from_bits(e == 255 ? 0x7fc00000u : bits);
    }
}

/* Half of what n e4m3 codes mean; their exponent's bias becomes 127 by a product, which is exact
 * for subnormal ones too. */
MF_LANE_OP void e4m3_scales(const unsigned char *codes, uint32_t n, bool is_signed, float *out)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t c = codes[i], size = c & 0x7f;
        const float value = mf_f32_from_bits(size << 20) * 0x1p119f;
        if (!is_signed) /* 0x7f counts as 0 */
            out[i] = c == 0x7f ? 0.0f : value;
        else
            out[i] = mf_f32_from_bits(size == 0x7f ? 0x7fc00000u
                                                   : mf_bits_from_f32(value) | (c & 0x80) << 24);
    }
}

MF_LANE_OP void scales_of(mf_weight_kind kind, const unsigned char *p, const unsigned char *scales,
                          const mf_blocks_rows *rows, span_scales *s)
{
    switch (kind) {
    case MF_WEIGHT_INT4:
    case MF_WEIGHT_INT8:
        mf_blocks_scales(rows, scales, s->scale);
        break;
    case MF_WEIGHT_GGUF_Q4_1:
        small_scales(p, 20, true, s);
        break;
    case MF_WEIGHT_GGUF_Q5_0:
        small_scales(p, 22, false, s);
        break;
    case MF_WEIGHT_GGUF_Q5_1:
        small_scales(p, 24, true, s);
        break;
    case MF_WEIGHT_GGUF_Q8_0:
        small_scales(p, 34, false, s);
        break;
    case MF_WEIGHT_GGUF_Q2_K:
        q2_k_scales(p, s);
        break;
    case MF_WEIGHT_GGUF_Q3_K:
        q3_k_scales(p, s);
        break;
    case MF_WEIGHT_GGUF_Q4_K:
    case MF_WEIGHT_GGUF_Q5_K:
        k_scales(p, s);
        break;
    case MF_WEIGHT_GGUF_Q6_K:
        store_products(s->scale, vreinterpretq_s8_u8(vld1q_u8(p + 192)), half_at(p + 208));
        break;
    case MF_WEIGHT_GGUF_IQ4_XS:
        iq4_xs_scales(p, s);
        break;
    case MF_WEIGHT_GGUF_MXFP4:
        exponent_scales(p, 17, s);
        break;
    case MF_WEIGHT_MXFP4:
        exponent_scales(scales, 1, s);
        break;
    case MF_WEIGHT_GGUF_NVFP4: /* four in each block of 64 */
        for (uint32_t i = 0; i < 4; i++)
            e4m3_scales(p + (size_t)i * 36, 4, false, s->scale + (size_t)i * 4);
        break;
    case MF_WEIGHT_NVFP4:
    case MF_WEIGHT_NVFP4_DIVIDED:
    case MF_WEIGHT_NVFP4_PLAIN:
        e4m3_scales(scales, 16, true, s->scale);
        break;
    default: /* Q4_0, IQ4_NL */
        small_scales(p, 18, false, s);
        break;
    }
}

/* ----------------------------------------------------------------------------------- weights -- */

MF_LANE_OP weights_32 as_signed(uint8x16_t a, uint8x16_t b)
{
    return (weights_32){{vreinterpretq_s8_u8(a), vreinterpretq_s8_u8(b)}};
}

MF_LANE_OP weights_32 look_up(const span_tables *t, uint8x16_t a, uint8x16_t b)
{
    return (weights_32){{vqtbl1q_s8(t->levels, a), vqtbl1q_s8(t->levels, b)}};
}

MF_LANE_OP uint8x16_t low_bits(uint8x16_t v, uint8_t mask)
{
    return vandq_u8(v, vdupq_n_u8(mask));
}

/* To the right if it is less than 0. */
MF_LANE_OP uint8x16_t shift_bytes(uint8x16_t v, int to_left)
{
    return vshlq_u8(v, vdupq_n_s8((int8_t)to_left));
}

/* 16 for each bit of sixteen that is one. */
MF_LANE_OP uint8x16_t fifth_bits(const unsigned char *bits)
{
    static const uint8_t of_byte[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t v = vcombine_u8(vdup_n_u8(bits[0]), vdup_n_u8(bits[1]));
    return low_bits(vtstq_u8(v, vld1q_u8(of_byte)), 16);
}

/* Values i and i + 16 of 32 from a byte. */
MF_LANE_OP weights_32 split_levels(const span_tables *t, const unsigned char *p)
{
    const uint8x16_t q = vld1q_u8(p);
    return look_up(t, low_bits(q, 15), vshrq_n_u8(q, 4));
}

/* Neighbours in a byte. */
MF_LANE_OP weights_32 paired_levels(const span_tables *t, const unsigned char *p)
{
    const uint8x16_t q = vld1q_u8(p), even = low_bits(q, 15), odd = vshrq_n_u8(q, 4);
    return look_up(t, vzip1q_u8(even, odd), vzip2q_u8(even, odd));
}

/* 8 bytes are 16 columns, the first half of them in the low nibbles. */
MF_LANE_OP weights_32 nvfp4_levels(const span_tables *t, const unsigned char *p)
{
    const uint8x16_t q = vld1q_u8(p);
    const uint64x2_t low = vreinterpretq_u64_u8(low_bits(q, 15));
    const uint64x2_t high = vreinterpretq_u64_u8(vshrq_n_u8(q, 4));
    return look_up(t, vreinterpretq_u8_u64(vzip1q_u64(low, high)),
                   vreinterpretq_u8_u64(vzip2q_u64(low, high)));
}

MF_LANE_OP weights_32 q5_0_weights(const span_tables *t, const unsigned char *p)
{
    const weights_32 low = split_levels(t, p + 6);
    return (weights_32){{vaddq_s8(low.v[0], vreinterpretq_s8_u8(fifth_bits(p + 2))),
                         vaddq_s8(low.v[1], vreinterpretq_s8_u8(fifth_bits(p + 4)))}};
}

MF_LANE_OP weights_32 q5_1_weights(const unsigned char *p)
{
    const uint8x16_t q = vld1q_u8(p + 8);
    return as_signed(vorrq_u8(low_bits(q, 15), fifth_bits(p + 4)),
                     vorrq_u8(vshrq_n_u8(q, 4), fifth_bits(p + 6)));
}

/* Bits g * n_bits % 8 and on of 16 bytes, n_bits of them, moved to bit `to`. */
MF_LANE_OP uint8x16_t bits_of(const unsigned char *p, uint32_t g, uint32_t n_bits, uint32_t to)
{
    const int from = (int)(g * n_bits % 8);
    const uint8_t mask = (uint8_t)(((1u << n_bits) - 1) << to);
    return low_bits(shift_bytes(vld1q_u8(p), (int)to - from), mask);
}

MF_LANE_OP weights_32 q3_k_weights(const unsigned char *p, uint32_t g)
{
    const unsigned char *q = p + 32 + (size_t)(g / 4) * 32;
    weights_32 w;
    for (uint32_t i = 0; i < 2; i++) {
        const uint8x16_t v =
            vorrq_u8(bits_of(q + (size_t)16 * i, g, 2, 0), bits_of(p + (size_t)16 * i, g, 1, 2));
        w.v[i] = vsubq_s8(vreinterpretq_s8_u8(v), vdupq_n_s8(4));
    }
    return w;
}

MF_LANE_OP weights_32 q5_k_weights(const unsigned char *p, uint32_t g)
{
    const unsigned char *q = p + 48 + (size_t)(g / 2) * 32;
    return as_signed(vorrq_u8(bits_of(q, g, 4, 0), bits_of(p + 16, g, 1, 4)),
                     vorrq_u8(bits_of(q + 16, g, 4, 0), bits_of(p + 32, g, 1, 4)));
}

MF_LANE_OP weights_32 q6_k_weights(const unsigned char *p, uint32_t g)
{
    const unsigned char *low = p + (size_t)(g / 4) * 64 + (size_t)(g % 2) * 32;
    const unsigned char *high = p + 128 + (size_t)(g / 4) * 32;
    weights_32 w;
    for (uint32_t i = 0; i < 2; i++) {
        const uint8x16_t v = vorrq_u8(bits_of(low + (size_t)16 * i, g % 4 / 2, 4, 0),
                                      bits_of(high + (size_t)16 * i, g, 2, 4));
        w.v[i] = vsubq_s8(vreinterpretq_s8_u8(v), vdupq_n_s8(32));
    }
    return w;
}

MF_LANE_OP weights_32 chunk_weights(mf_weight_kind kind, const span_tables *t,
                                    const unsigned char *p, uint32_t g)
{
    const size_t i = g;
    const uint8x16_t flip = vdupq_n_u8(0x80);
    switch (kind) {
    case MF_WEIGHT_MXFP4:
    case MF_WEIGHT_NVFP4:
    case MF_WEIGHT_NVFP4_DIVIDED:
    case MF_WEIGHT_NVFP4_PLAIN:
    case MF_WEIGHT_INT4:
        return paired_levels(t, p + i * 16);
    case MF_WEIGHT_INT8: /* stored 128 above */
        return as_signed(veorq_u8(vld1q_u8(p + i * 32), flip),
                         veorq_u8(vld1q_u8(p + i * 32 + 16), flip));
    case MF_WEIGHT_GGUF_Q4_1:
        return split_levels(t, p + i * 20 + 4);
    case MF_WEIGHT_GGUF_Q5_0:
        return q5_0_weights(t, p + i * 22);
    case MF_WEIGHT_GGUF_Q5_1:
        return q5_1_weights(p + i * 24);
    case MF_WEIGHT_GGUF_Q8_0:
        return as_signed(vld1q_u8(p + i * 34 + 2), vld1q_u8(p + i * 34 + 18));
    case MF_WEIGHT_GGUF_Q2_K:
        return as_signed(bits_of(p + 16 + i / 4 * 32, g, 2, 0),
                         bits_of(p + 32 + i / 4 * 32, g, 2, 0));
    case MF_WEIGHT_GGUF_Q3_K:
        return q3_k_weights(p, g);
    case MF_WEIGHT_GGUF_Q4_K:
        return as_signed(bits_of(p + 16 + i / 2 * 32, g, 4, 0),
                         bits_of(p + 32 + i / 2 * 32, g, 4, 0));
    case MF_WEIGHT_GGUF_Q5_K:
        return q5_k_weights(p, g);
    case MF_WEIGHT_GGUF_Q6_K:
        return q6_k_weights(p, g);
    case MF_WEIGHT_GGUF_IQ4_XS:
        return split_levels(t, p + 8 + i * 16);
    case MF_WEIGHT_GGUF_MXFP4:
        return split_levels(t, p + i * 17 + 1);
    case MF_WEIGHT_GGUF_NVFP4:
        return nvfp4_levels(t, p + i / 2 * 36 + 4 + i % 2 * 16);
    default: /* Q4_0, IQ4_NL */
        return split_levels(t, p + i * 18 + 2);
    }
}

#endif

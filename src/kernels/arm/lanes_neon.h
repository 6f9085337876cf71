/* SPDX-License-Identifier: MIT */
/* The vectors that lanes_ops.h is written in, NEON: two registers each, so that there are always
 * two sums under way. A tail's missing lanes load as 0. */
#ifndef MF_KERNELS_LANES_NEON_H
#define MF_KERNELS_LANES_NEON_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MF_LANE_OP static inline __attribute__((always_inline))

enum { LANES = 8 };
typedef float32x4x2_t lanes;

MF_LANE_OP lanes lanes_of(float32x4_t low, float32x4_t high)
{
    return (lanes){{low, high}};
}

/* The first n (at most LANES) lanes. */
MF_LANE_OP lanes lanes_load(const float *p, size_t n)
{
    float some[LANES] = {0};
    if (n < LANES) {
        memcpy(some, p, n * sizeof *p);
        p = some;
    }
    return lanes_of(vld1q_f32(p), vld1q_f32(p + 4));
}

/* In a register from here on: gcc 12 would load it once more for each product that it is part of.
 */
MF_LANE_OP lanes lanes_hold(lanes v)
{
    __asm__("" : "+w"(v.val[0]), "+w"(v.val[1]));
    return v;
}

/* A whole vector of bfloat16; of signed bytes. */
MF_LANE_OP lanes lanes_load_bf16(const void *p)
{
    const uint16x8_t v = vld1q_u16(p);
    return lanes_of(vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(v), 16)),
                    vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(v), 16)));
}

MF_LANE_OP lanes lanes_load_bytes(const void *p)
{
    const int16x8_t v = vmovl_s8(vld1_s8(p));
    return lanes_of(vcvtq_f32_s32(vmovl_s16(vget_low_s16(v))),
                    vcvtq_f32_s32(vmovl_s16(vget_high_s16(v))));
}

MF_LANE_OP void lanes_store(float *p, size_t n, lanes v)
{
    float some[LANES];
    if (n >= LANES) {
        vst1q_f32(p, v.val[0]);
        vst1q_f32(p + 4, v.val[1]);
        return;
    }
    vst1q_f32(some, v.val[0]);
    vst1q_f32(some + 4, v.val[1]);
    memcpy(p, some, n * sizeof *p);
}

/* To an address that is a multiple of the vector, which is not read soon; lanes_fence before others
 * look. Nothing else here: stores past the caches are left to the hardware. */
MF_LANE_OP void lanes_stream(float *p, lanes v)
{
    lanes_store(p, LANES, v);
}

MF_LANE_OP void lanes_fence(void)
{
}

/* p[0], p[stride], ... */
MF_LANE_OP lanes lanes_load_strided(const float *p, uint32_t stride, size_t n)
{
    float some[LANES] = {0};
    for (size_t i = 0; i < LANES && i < n; i++)
        some[i] = p[i * stride];
    return lanes_of(vld1q_f32(some), vld1q_f32(some + 4));
}

/* Lanes from n on replaced by `value`. */
MF_LANE_OP lanes lanes_pad(lanes v, size_t n, float value)
{
    static const uint32_t index[LANES] = {0, 1, 2, 3, 4, 5, 6, 7};
    const uint32x4_t end = vdupq_n_u32(n >= LANES ? LANES : (uint32_t)n);
    const float32x4_t other = vdupq_n_f32(value);
    return lanes_of(vbslq_f32(vcltq_u32(vld1q_u32(index), end), v.val[0], other),
                    vbslq_f32(vcltq_u32(vld1q_u32(index + 4), end), v.val[1], other));
}

MF_LANE_OP lanes lanes_set(float a)
{
    return lanes_of(vdupq_n_f32(a), vdupq_n_f32(a));
}

MF_LANE_OP lanes lanes_add(lanes a, lanes b)
{
    return lanes_of(vaddq_f32(a.val[0], b.val[0]), vaddq_f32(a.val[1], b.val[1]));
}

MF_LANE_OP lanes lanes_sub(lanes a, lanes b)
{
    return lanes_of(vsubq_f32(a.val[0], b.val[0]), vsubq_f32(a.val[1], b.val[1]));
}

MF_LANE_OP lanes lanes_mul(lanes a, lanes b)
{
    return lanes_of(vmulq_f32(a.val[0], b.val[0]), vmulq_f32(a.val[1], b.val[1]));
}

MF_LANE_OP lanes lanes_div(lanes a, lanes b)
{
    return lanes_of(vdivq_f32(a.val[0], b.val[0]), vdivq_f32(a.val[1], b.val[1]));
}

/* a * b + c, rounded once. */
MF_LANE_OP lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return lanes_of(vfmaq_f32(c.val[0], a.val[0], b.val[0]),
                    vfmaq_f32(c.val[1], a.val[1], b.val[1]));
}

/* NaN where a or b is. */
MF_LANE_OP lanes lanes_max(lanes a, lanes b)
{
    return lanes_of(vmaxq_f32(a.val[0], b.val[0]), vmaxq_f32(a.val[1], b.val[1]));
}

MF_LANE_OP lanes lanes_min(lanes a, lanes b)
{
    return lanes_of(vminq_f32(a.val[0], b.val[0]), vminq_f32(a.val[1], b.val[1]));
}

MF_LANE_OP lanes lanes_round(lanes a)
{
    return lanes_of(vrndnq_f32(a.val[0]), vrndnq_f32(a.val[1]));
}

/* a * 2^n for whole n, |n| <= 252: by two exact halves, so rounded once for a near 1. */
MF_LANE_OP float32x4_t scale_by_power(float32x4_t a, float32x4_t n)
{
    const int32x4_t whole = vcvtq_s32_f32(n), one = vdupq_n_s32(127);
    const int32x4_t half = vshrq_n_s32(whole, 1), rest = vsubq_s32(whole, half);
    const float32x4_t x = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, one), 23));
    const float32x4_t y = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, one), 23));
    return vmulq_f32(vmulq_f32(a, x), y);
}

MF_LANE_OP lanes lanes_scale_by_power(lanes a, lanes n)
{
    return lanes_of(scale_by_power(a.val[0], n.val[0]), scale_by_power(a.val[1], n.val[1]));
}

/* Lane i + lane i + 4, then neighbours, then theirs. */
MF_LANE_OP float lanes_sum(lanes a)
{
    return vaddvq_f32(vaddq_f32(a.val[0], a.val[1]));
}

MF_LANE_OP void lanes_sum_four(const lanes *v, float *out)
{
    for (int i = 0; i < 4; i++)
        out[i] = lanes_sum(v[i]);
}

MF_LANE_OP float lanes_largest(lanes a)
{
    return vmaxvq_f32(vmaxq_f32(a.val[0], a.val[1]));
}

#endif

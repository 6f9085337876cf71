/* SPDX-License-Identifier: MIT */
/*
 * What the decoders of rows share, and the decoders that are not in weight_format.c: for its table
 * alone.
 */
#ifndef MF_BASE_WEIGHT_DECODE_H
#define MF_BASE_WEIGHT_DECODE_H

#include "base/fp8.h"
#include "base/weight_format.h"

#include <math.h>

static inline uint32_t mf_u16_at(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static inline float mf_f16_at(const unsigned char *p)
{
    return mf_f32_from_f16((uint16_t)mf_u16_at(p));
}

/* Where a row of an array begins. */
static inline const unsigned char *mf_weight_row(const mf_weight_shape *s,
                                                 const unsigned char *const *arrays, uint32_t array,
                                                 uint32_t row)
{
    return arrays[array] +
           row / mf_weight_array_step(s, array) * mf_weight_array_row_bytes(s, array);
}

/* e2m1: a sign, 2 bits of exponent, 1 of fraction. */
static inline float mf_e2m1(uint32_t code)
{
    static const float values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                     -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    return values[code];
}

/* e8m0: 2^(code - 127), the lowest of which is subnormal; 255 is NaN. */
static inline float mf_e8m0(uint8_t code)
{
    if (code == 255)
        return mf_f32_from_bits(0x7fc00000u);
    return mf_f32_from_bits(code == 0 ? 0x00400000u : (uint32_t)code << 23);
}

/* GGUF, weight_gguf.c: the values of a block. */
void mf_block_q4_0(const unsigned char *p, float *out);
void mf_block_q4_1(const unsigned char *p, float *out);
void mf_block_q5_0(const unsigned char *p, float *out);
void mf_block_q5_1(const unsigned char *p, float *out);
void mf_block_q8_0(const unsigned char *p, float *out);
void mf_block_q2_k(const unsigned char *p, float *out);
void mf_block_q3_k(const unsigned char *p, float *out);
void mf_block_q4_k(const unsigned char *p, float *out);
void mf_block_q5_k(const unsigned char *p, float *out);
void mf_block_q6_k(const unsigned char *p, float *out);
void mf_block_tq1_0(const unsigned char *p, float *out);
void mf_block_tq2_0(const unsigned char *p, float *out);
void mf_block_mxfp4(const unsigned char *p, float *out);
void mf_block_nvfp4(const unsigned char *p, float *out);
/* weight_iq.c */
void mf_block_iq1_s(const unsigned char *p, float *out);
void mf_block_iq1_m(const unsigned char *p, float *out);
void mf_block_iq2_xxs(const unsigned char *p, float *out);
void mf_block_iq2_xs(const unsigned char *p, float *out);
void mf_block_iq2_s(const unsigned char *p, float *out);
void mf_block_iq3_xxs(const unsigned char *p, float *out);
void mf_block_iq3_s(const unsigned char *p, float *out);
void mf_block_iq4_nl(const unsigned char *p, float *out);
void mf_block_iq4_xs(const unsigned char *p, float *out);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * GGUF's quantisation types but for the IQ ones: a block's values from its bytes, as the comment of
 * each lists them. d, dmin and m are float16; values of less than a byte that are not said to lie
 * otherwise go in halves, so that value i of 32 shares a byte with i + 16.
 */
#include "base/weight_decode.h"

/* Value i of 32 with 4 bits each. */
static uint32_t nibble_at(const unsigned char *q, uint32_t i)
{
    return q[i % 16] >> (i / 16 * 4) & 15;
}

/* A fifth bit, value i's. */
static uint32_t fifth_at(const unsigned char *high, uint32_t i)
{
    return (high[i / 8] >> i % 8 & 1u) << 4;
}

/* d | q: 16; w = d * (q - 8) */
void mf_block_q4_0(const unsigned char *p, float *out)
{
    for (uint32_t i = 0; i < 32; i++)
        out[i] = mf_f16_at(p) * (float)((int32_t)nibble_at(p + 2, i) - 8);
}

/* d | m | q: 16; w = d * q + m */
void mf_block_q4_1(const unsigned char *p, float *out)
{
    for (uint32_t i = 0; i < 32; i++)
        out[i] = fmaf(mf_f16_at(p), (float)nibble_at(p + 4, i), mf_f16_at(p + 2));
}

/* d | fifth bits: 4 | q: 16; w = d * (q - 16) */
void mf_block_q5_0(const unsigned char *p, float *out)
{
    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t q = nibble_at(p + 6, i) | fifth_at(p + 2, i);
        out[i] = mf_f16_at(p) * (float)((int32_t)q - 16);
    }
}

/* d | m | fifth bits: 4 | q: 16; w = d * q + m */
void mf_block_q5_1(const unsigned char *p, float *out)
{
    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t q = nibble_at(p + 8, i) | fifth_at(p + 4, i);
        out[i] = fmaf(mf_f16_at(p), (float)q, mf_f16_at(p + 2));
    }
}

/* d | q: 32 of int8; w = d * q */
void mf_block_q8_0(const unsigned char *p, float *out)
{
    for (uint32_t i = 0; i < 32; i++)
        out[i] = mf_f16_at(p) * (float)(int8_t)p[2 + i];
}

/* Scales and minima, 4 bits each: 16 | q: 64 | d | dmin. Each half of a block has four parts of 32
 * values, which share bytes; a scale is for 16. w = d * scale * q - dmin * minimum */
void mf_block_q2_k(const unsigned char *p, float *out)
{
    for (uint32_t i = 0; i < 256; i++) {
        const float scale =
            mf_f16_at(p + 80) * (float)(p[i / 16] & 15); /* exact, and so the next */
        const float minimum = mf_f16_at(p + 82) * (float)(p[i / 16] >> 4);
        const uint32_t q = p[16 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
        out[i] = fmaf(scale, (float)q, -minimum);
    }
}

/* Third bits, value i's in bit i / 32 of byte i % 32: 32 | q: 64, as in Q2_K | low 4 bits of 16
 * scales: 8 | their high 2 bits: 4 | d. w = d * (scale - 32) * (q - 4) */
void mf_block_q3_k(const unsigned char *p, float *out)
{
    for (uint32_t i = 0; i < 256; i++) {
        const uint32_t part = i / 16;
        const uint32_t low = p[96 + part % 8] >> (part / 8 * 4) & 15;
        const uint32_t high = p[104 + part % 4] >> (part / 4 * 2) & 3;
        const float scale = mf_f16_at(p + 108) * (float)((int32_t)(low | high << 4) - 32);
        const uint32_t q = p[32 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
        const uint32_t third = p[i % 32] >> (i / 32) & 1;
        out[i] = scale * (float)((int32_t)(q | third << 2) - 4);
    }
}

/* Scale and minimum of 6 bits each of eight parts of a block, in 12 bytes: those of the first four
 * are the low bits of bytes 0 to 3 and 4 to 7, whose upper bits belong to the last four. */
static void k_scales(const unsigned char *p, uint32_t part, float *scale, float *minimum)
{
    if (part < 4) {
        *scale = (float)(p[part] & 63);
        *minimum = (float)(p[part + 4] & 63);
    } else {
        *scale = (float)((p[part + 4] & 15) | (p[part - 4] >> 6) << 4);
        *minimum = (float)((p[part + 4] >> 4) | (p[part] >> 6) << 4);
    }
}

/* Value i of Q4_K's and Q5_K's q: a part is 32 values, two of them side by side in the low and the
 * high halves of 32 bytes. */
static uint32_t k_nibble(const unsigned char *q, uint32_t i)
{
    return q[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
}

/* d | dmin | scales and minima: 12 | q: 128; w = d * scale * q - dmin * minimum */
void mf_block_q4_k(const unsigned char *p, float *out)
{
    for (uint32_t i = 0; i < 256; i++) {
        float scale, minimum;
        k_scales(p + 4, i / 32, &scale, &minimum);
        scale *= mf_f16_at(p); /* exact, as is the next */
        minimum *= mf_f16_at(p + 2);
        out[i] = fmaf(scale, (float)k_nibble(p + 16, i), -minimum);
    }
}

/* d | dmin | scales and minima: 12 | fifth bits: 32 as in Q3_K | q: 128 */
void mf_block_q5_k(const unsigned char *p, float *out)
{
    for (uint32_t i = 0; i < 256; i++) {
        float scale, minimum;
        k_scales(p + 4, i / 32, &scale, &minimum);
        scale *= mf_f16_at(p);
        minimum *= mf_f16_at(p + 2);
        const uint32_t q = k_nibble(p + 48, i) | (p[16 + i % 32] >> (i / 32) & 1u) << 4;
        out[i] = fmaf(scale, (float)q, -minimum);
    }
}

/* Low 4 bits: 128 | high 2 bits: 64 | scales: 16 of int8 | d. Each half of a block has four
 * parts of 32 values: two share bytes of low bits, all four those of high bits; a scale is for 16.
 * w = d * scale * (q - 32) */
void mf_block_q6_k(const unsigned char *p, float *out)
{
    const float d = mf_f16_at(p + 208);
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t half = i / 128, part = i / 32 % 4, at = i % 32;
        uint32_t low = p[half * 64 + part % 2 * 32 + at] >> (part / 2 * 4) & 15;
        uint32_t high = p[128 + half * 32 + at] >> (2 * part) & 3;
        float scale = d * (float)(int8_t)p[192 + i / 16];
        out[i] = scale * (float)((int32_t)(low | high << 4) - 32);
    }
}

/* Digit `place` of a byte's five in base 3, the first one highest: the byte is their fraction of
 * 243 in 256ths, rounded up. */
static int32_t digit_of(uint32_t byte, uint32_t place)
{
    static const uint8_t powers[5] = {1, 3, 9, 27, 81};
    return (int32_t)((byte * powers[place] & 255) * 3 >> 8);
}

/* Digits of 160 values: 32 | of 80: 16 | of 16, four each: 4 | d. Neighbours lie in neighbouring
 * bytes. w = d * (digit - 1) */
void mf_block_tq1_0(const unsigned char *p, float *out)
{
    const float d = mf_f16_at(p + 52);
    for (uint32_t i = 0; i < 160; i++)
        out[i] = d * (float)(digit_of(p[i % 32], i / 32) - 1);
    for (uint32_t i = 0; i < 80; i++)
        out[160 + i] = d * (float)(digit_of(p[32 + i % 16], i / 16) - 1);
    for (uint32_t i = 0; i < 16; i++)
        out[240 + i] = d * (float)(digit_of(p[48 + i % 4], i / 4) - 1);
}

/* q: 64, as in Q2_K | d; w = d * (q - 1) */
void mf_block_tq2_0(const unsigned char *p, float *out)
{
    for (uint32_t i = 0; i < 256; i++) {
        const uint32_t q = p[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
        out[i] = mf_f16_at(p + 64) * (float)((int32_t)q - 1);
    }
}

/* scale: e8m0 | q: 16 of e2m1 */
void mf_block_mxfp4(const unsigned char *p, float *out)
{
    for (uint32_t i = 0; i < 32; i++)
        out[i] = mf_e2m1(nibble_at(p + 1, i)) * mf_e8m0(p[0]);
}

/* e4m3 without its sign; 0x7f counts as 0. */
static float unsigned_e4m3(uint8_t code)
{
    if (code == 0x7f)
        return 0.0f;
    return code == 0xff ? 480.0f : mf_f32_from_e4m3(code & 0x7f);
}

/* Scales of 16 values each: 4 of e4m3 | q: 32 of e2m1, of which 8 bytes are 16 values. */
void mf_block_nvfp4(const unsigned char *p, float *out)
{
    for (uint32_t i = 0; i < 64; i++) {
        const uint32_t q = p[4 + i / 16 * 8 + i % 8] >> (i / 8 % 2 * 4) & 15;
        out[i] = mf_e2m1(q) * unsigned_e4m3(p[i / 16]);
    }
}

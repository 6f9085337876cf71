/* SPDX-License-Identifier: MIT */
/*
 * GGUF's IQ types: values that are numbered in a codebook, one after another (IQ4) or several at
 * once (weight_grids.h). d is float16. Scales times values of the codebooks are exact.
 */
#include "base/weight_decode.h"
#include "base/weight_grids.h"

static uint32_t u32_at(const unsigned char *p)
{
    return mf_u16_at(p) | mf_u16_at(p + 2) << 16;
}

/* --------------------------------------------------------------------------------------- IQ4 -- */

static float level(uint32_t code)
{
    static const int8_t levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
    return (float)levels[code];
}

/* d | q: 16, value i of 32 beside i + 16; w = d * level[q] */
void mf_block_iq4_nl(const unsigned char *p, float *out)
{
    for (uint32_t i = 0; i < 32; i++)
        out[i] = mf_f16_at(p) * level(p[2 + i % 16] >> (i / 16 * 4) & 15);
}

/* d | high 2 bits of eight scales: 2 | their low 4 bits: 4 | q: 128. A part is 32 values, the
 * first 16 in the low halves of 16 bytes; w = d * (scale - 32) * level[q] */
void mf_block_iq4_xs(const unsigned char *p, float *out)
{
    for (uint32_t i = 0; i < 256; i++) {
        const uint32_t part = i / 32;
        uint32_t low = p[4 + part / 2] >> (4 * (part % 2)) & 15;
        uint32_t high = mf_u16_at(p + 2) >> (2 * part) & 3;
        float scale = mf_f16_at(p) * (float)((int32_t)(low | high << 4) - 32);
        out[i] = scale * level(p[8 + part * 16 + i % 16] >> (i / 16 % 2 * 4) & 15);
    }
}

/* ------------------------------------------------------------------------------- IQ2 and IQ3 -- */

/* The signs of eight values from 7 bits: the eighth makes the number of ones even. */
static uint32_t even_signs(uint32_t bits)
{
    return bits | (uint32_t)(__builtin_popcount(bits) & 1) << 7;
}

/* Eight values of a codebook of IQ2; bit i of signs: value i is negative. */
static void put_iq2(uint32_t entry, uint32_t signs, float scale, float *out)
{
    static const float values[4] = {8, 25, 43, 0};
    for (uint32_t i = 0; i < 8; i++) {
        const float value = values[entry >> (2 * i) & 3];
        out[i] = scale * ((signs >> i & 1) != 0 ? -value : value);
    }
}

/* Four values from the list of a codebook of IQ3. */
static void put_iq3(const uint8_t values[8], uint32_t entry, uint32_t signs, float scale,
                    float *out)
{
    for (uint32_t i = 0; i < 4; i++) {
        const float value = (float)values[entry >> (3 * i) & 7];
        out[i] = scale * ((signs >> i & 1) != 0 ? -value : value);
    }
}

/* d | of each 32 values: 4 entries of 1 byte, and 32 bits: 4 of signs, 7 bits each, and a scale.
 * w = d * (scale + 1/2) / 4 * value */
void mf_block_iq2_xxs(const unsigned char *p, float *out)
{
    for (uint32_t part = 0; part < 8; part++) {
        const unsigned char *q = p + 2 + 8 * (size_t)part;
        const uint32_t word = u32_at(q + 4);
        const float scale = mf_f16_at(p) * (0.5f + (float)(word >> 28)) * 0.25f;
        for (uint32_t i = 0; i < 4; i++, out += 8)
            put_iq2(mf_grid_iq2_xxs[q[i]], even_signs(word >> (7 * i) & 127), scale, out);
    }
}

/* Scale of 4 bits of part `i`, the first one low. */
static float half_step_scale(const unsigned char *scales, uint32_t i)
{
    return (0.5f + (float)(scales[i / 2] >> (4 * (i % 2)) & 15)) * 0.25f;
}

/* d | 32 of 16 bits: an entry of 9 bits, signs of 7 | scales of 16 values each: 8 */
void mf_block_iq2_xs(const unsigned char *p, float *out)
{
    for (uint32_t i = 0; i < 32; i++, out += 8) {
        const uint32_t q = mf_u16_at(p + 2 + 2 * (size_t)i);
        put_iq2(mf_grid_iq2_xs[q & 511], even_signs(q >> 9),
                mf_f16_at(p) * half_step_scale(p + 66, i / 2), out);
    }
}

/* d | low 8 bits of entries: 32 | signs: 32 | high 2 bits of entries: 8 | scales as in IQ2_XS: 8 */
void mf_block_iq2_s(const unsigned char *p, float *out)
{
    for (uint32_t i = 0; i < 32; i++, out += 8) {
        const uint32_t high = p[66 + i / 4] >> (2 * (i % 4)) & 3;
        put_iq2(mf_grid_iq2_s[p[2 + i] | high << 8], p[34 + i],
                mf_f16_at(p) * half_step_scale(p + 74, i / 2), out);
    }
}

/* d | entries: 64 | of each 32 values 32 bits as in IQ2_XXS. w = d * (scale + 1/2) / 2 * value */
void mf_block_iq3_xxs(const unsigned char *p, float *out)
{
    static const uint8_t values[8] = {4, 12, 20, 28, 36, 44, 52, 62};
    for (uint32_t i = 0; i < 64; i++, out += 4) {
        const uint32_t word = u32_at(p + 66 + i / 8 * 4);
        const uint32_t signs = even_signs(word >> (i / 2 % 4 * 7) & 127);
        const float scale = mf_f16_at(p) * (0.5f + (float)(word >> 28)) * 0.5f;
        put_iq3(values, mf_grid_iq3_xxs[p[2 + i]], signs >> (4 * (i % 2)), scale, out);
    }
}

/* d | low 8 bits of entries: 64 | their ninth bits: 8 | signs: 32 | scales of 32 values each, 4
 * bits: 4. w = d * (2 * scale + 1) * value */
void mf_block_iq3_s(const unsigned char *p, float *out)
{
    static const uint8_t values[8] = {1, 3, 5, 7, 9, 11, 13, 15};
    for (uint32_t i = 0; i < 64; i++, out += 4) {
        const uint32_t entry = p[2 + i] | (p[66 + i / 8] >> (i % 8) & 1u) << 8;
        const uint32_t scale = p[106 + i / 16] >> (i / 8 % 2 * 4) & 15;
        put_iq3(values, mf_grid_iq3_s[entry], (uint32_t)p[74 + i / 2] >> (4 * (i % 2)),
                mf_f16_at(p) * (float)(2 * scale + 1), out);
    }
}

/* --------------------------------------------------------------------------------------- IQ1 -- */

/* Eight values of -1, 0 and 1, an eighth more or less. */
static void put_iq1(uint32_t entry, bool is_less, float scale, float *out)
{
    const float more = is_less ? -0.125f : 0.125f;
    for (uint32_t i = 0; i < 8; i++)
        out[i] = scale * ((float)((int32_t)(entry >> (2 * i) & 3) - 1) + more);
}

/* d | low 8 bits of entries: 32 | of each 32 values 16 bits: high 3 bits of four entries, a scale
 * of 3, and whether values are an eighth less. w = d * (2 * scale + 1) * value */
void mf_block_iq1_s(const unsigned char *p, float *out)
{
    for (uint32_t i = 0; i < 32; i++, out += 8) {
        const uint32_t word = mf_u16_at(p + 34 + i / 4 * 2);
        const uint32_t entry = p[2 + i] | (word >> (i % 4 * 3) & 7) << 8;
        put_iq1(mf_grid_iq1[entry], word >> 15 != 0,
                mf_f16_at(p) * (float)(2 * (word >> 12 & 7) + 1), out);
    }
}

/* Low 8 bits of entries: 32 | of each entry 4 bits, its high 3 and whether values are an eighth
 * less: 16 | four of 16 bits: four scales of 3 bits, each for 16 values, and 4 bits of d */
void mf_block_iq1_m(const unsigned char *p, float *out)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < 4; i++)
        bits |= mf_u16_at(p + 48 + 2 * (size_t)i) >> 12 << (4 * i);
    const float d = mf_f32_from_f16((uint16_t)bits);
    for (uint32_t i = 0; i < 32; i++, out += 8) {
        const uint32_t high = p[32 + i / 2] >> (4 * (i % 2)) & 15;
        const uint32_t scale = mf_u16_at(p + 48 + i / 8 * 2) >> (i / 2 % 4 * 3) & 7;
        put_iq1(mf_grid_iq1[p[i] | (high & 7) << 8], high >= 8, d * (float)(2 * scale + 1), out);
    }
}

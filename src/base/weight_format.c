/* SPDX-License-Identifier: MIT */
/*
 * The table of weight formats, and how a row of each is decoded: plainly, one value after another,
 * each rounded once. Layouts: MLX (affine); OCP Microscaling Formats 1.0 (MXFP4, e8m0, e2m1);
 * NVFP4 as checkpoints of it store it; GGUF as of its quantisation types, of which a block is the
 * bytes that its decoder names.
 */
#include "base/weight_format.h"

#include "base/fp8.h"

#include <math.h>

static uint32_t u16_at(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static float f16_at(const unsigned char *p)
{
    return mf_f32_from_f16((uint16_t)u16_at(p));
}

static float float_at(const unsigned char *p, mf_dtype type, size_t i)
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

/* Where a row of an array begins. */
static const unsigned char *row_of(const mf_weight_shape *s, const unsigned char *const *arrays,
                                   uint32_t array, uint32_t row)
{
    return arrays[array] +
           row / mf_weight_array_step(s, array) * mf_weight_array_row_bytes(s, array);
}

static void decode_float(const mf_weight_shape *s, const unsigned char *const *arrays, uint32_t row,
                         float *out)
{
    const unsigned char *p = row_of(s, arrays, MF_WEIGHT_VALUES, row);
    for (uint32_t i = 0; i < s->n_cols; i++)
        out[i] = float_at(p, s->float_type, i);
}

/* Value i of a little-endian bit stream; touches no byte that holds none of its bits. */
static uint32_t packed_at(const unsigned char *row, uint32_t bits, uint32_t i)
{
    size_t first_bit = (size_t)i * bits;
    uint32_t shift = first_bit & 7;
    uint32_t value = row[first_bit >> 3];
    if (shift + bits > 8)
        value |= (uint32_t)row[(first_bit >> 3) + 1] << 8;
    return (value >> shift) & ((1u << bits) - 1);
}

static void decode_affine(const mf_weight_shape *s, const unsigned char *const *arrays,
                          uint32_t row, float *out)
{
    const unsigned char *values = row_of(s, arrays, MF_WEIGHT_VALUES, row);
    const unsigned char *scales = row_of(s, arrays, MF_WEIGHT_SCALES, row);
    const unsigned char *biases = row_of(s, arrays, MF_WEIGHT_BIASES, row);
    for (uint32_t i = 0; i < s->n_cols; i++)
        out[i] = fmaf((float)packed_at(values, s->bits, i),
                      float_at(scales, s->float_type, i / s->group),
                      float_at(biases, s->float_type, i / s->group));
}

static void decode_fp8(const mf_weight_shape *s, const unsigned char *const *arrays, uint32_t row,
                       float *out)
{
    const unsigned char *values = row_of(s, arrays, MF_WEIGHT_VALUES, row);
    const unsigned char *scales = row_of(s, arrays, MF_WEIGHT_SCALES, row);
    for (uint32_t i = 0; i < s->n_cols; i++)
        out[i] = mf_f32_from_e4m3(values[i]) * float_at(scales, MF_F32, i / MF_FP8_BLOCK);
}

/* e2m1: a sign, 2 bits of exponent, 1 of fraction. */
static float e2m1(uint32_t code)
{
    static const float values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                     -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    return values[code];
}

/* e8m0: 2^(code - 127), the lowest of which is subnormal; 255 is NaN. */
static float e8m0(uint8_t code)
{
    if (code == 255)
        return mf_f32_from_bits(0x7fc00000u);
    return mf_f32_from_bits(code == 0 ? 0x00400000u : (uint32_t)code << 23);
}

/* A byte holds two values, the first one low. */
static void decode_mxfp4(const mf_weight_shape *s, const unsigned char *const *arrays, uint32_t row,
                         float *out)
{
    const unsigned char *values = row_of(s, arrays, MF_WEIGHT_VALUES, row);
    const unsigned char *scales = row_of(s, arrays, MF_WEIGHT_SCALES, row);
    for (uint32_t i = 0; i < s->n_cols; i++)
        out[i] = e2m1(values[i / 2] >> (4 * (i % 2)) & 15) * e8m0(scales[i / 32]);
}

static void decode_nvfp4(const mf_weight_shape *s, const unsigned char *const *arrays, uint32_t row,
                         float *out)
{
    const unsigned char *values = row_of(s, arrays, MF_WEIGHT_VALUES, row);
    const unsigned char *scales = row_of(s, arrays, MF_WEIGHT_SCALES, row);
    const float factor = float_at(arrays[MF_WEIGHT_BIASES], MF_F32, 0);
    for (uint32_t i = 0; i < s->n_cols; i++) {
        float scale = mf_f32_from_e4m3(scales[i / 16]); /* times e2m1: exact */
        out[i] = e2m1(values[i / 2] >> (4 * (i % 2)) & 15) * scale * factor;
    }
}

/* d: f16 | q: 32 of int8; w = d * q */
static void decode_q8_0(const mf_weight_shape *s, const unsigned char *const *arrays, uint32_t row,
                        float *out)
{
    const unsigned char *p = row_of(s, arrays, MF_WEIGHT_VALUES, row);
    for (uint32_t i = 0; i < s->n_cols; i += 32, p += 34)
        for (uint32_t j = 0; j < 32; j++)
            out[i + j] = f16_at(p) * (float)(int8_t)p[2 + j];
}

/* Scale and minimum of 6 bits each of eight parts of a block, in 12 bytes: those of the first four
 * are the low bits of bytes 0 to 3 and 4 to 7, whose upper bits belong to the last four. */
static void q4_k_scales(const unsigned char *p, uint32_t part, float *scale, float *minimum)
{
    if (part < 4) {
        *scale = (float)(p[part] & 63);
        *minimum = (float)(p[part + 4] & 63);
    } else {
        *scale = (float)((p[part + 4] & 15) | (p[part - 4] >> 6) << 4);
        *minimum = (float)((p[part + 4] >> 4) | (p[part] >> 6) << 4);
    }
}

/* d: f16 | dmin: f16 | scales and minima: 12 | q: 128. A part is 32 values, two of them side by
 * side in the low and the high halves of 32 bytes; w = d * scale * q - dmin * minimum */
static void decode_q4_k(const mf_weight_shape *s, const unsigned char *const *arrays, uint32_t row,
                        float *out)
{
    const unsigned char *p = row_of(s, arrays, MF_WEIGHT_VALUES, row);
    for (uint32_t i = 0; i < s->n_cols; i += 256, p += 144) {
        for (uint32_t part = 0; part < 8; part++) {
            float scale, minimum;
            q4_k_scales(p + 4, part, &scale, &minimum);
            scale *= f16_at(p); /* exact, as is the next */
            minimum *= f16_at(p + 2);
            for (uint32_t j = 0; j < 32; j++) {
                uint32_t q = p[16 + part / 2 * 32 + j] >> (4 * (part % 2)) & 15;
                out[i + part * 32 + j] = fmaf(scale, (float)q, -minimum);
            }
        }
    }
}

/* Low 4 bits: 128 | high 2 bits: 64 | scales: 16 of int8 | d: f16. Each half of a block has four
 * parts of 32 values: two share bytes of low bits, all four those of high bits; a scale is for 16.
 * w = d * scale * (q - 32) */
static void decode_q6_k(const mf_weight_shape *s, const unsigned char *const *arrays, uint32_t row,
                        float *out)
{
    const unsigned char *p = row_of(s, arrays, MF_WEIGHT_VALUES, row);
    for (uint32_t i = 0; i < s->n_cols; i += 256, p += 210) {
        const float d = f16_at(p + 208);
        for (uint32_t j = 0; j < 256; j++) {
            uint32_t half = j / 128, part = j / 32 % 4, at = j % 32;
            uint32_t low = p[half * 64 + part % 2 * 32 + at] >> (part / 2 * 4) & 15;
            uint32_t high = p[128 + half * 32 + at] >> (2 * part) & 3;
            float scale = d * (float)(int8_t)p[192 + j / 16];
            out[i + j] = scale * (float)((int32_t)(low | high << 4) - 32);
        }
    }
}

/* d: f16 | high 2 bits of eight scales: 2 | their low 4 bits: 4 | q: 128. A part is 32 values, the
 * first 16 in the low halves of 16 bytes; w = d * (scale - 32) * level[q] */
static void decode_iq4_xs(const mf_weight_shape *s, const unsigned char *const *arrays,
                          uint32_t row, float *out)
{
    static const float level[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};
    const unsigned char *p = row_of(s, arrays, MF_WEIGHT_VALUES, row);
    for (uint32_t i = 0; i < s->n_cols; i += 256, p += 136) {
        for (uint32_t part = 0; part < 8; part++) {
            uint32_t low = p[4 + part / 2] >> (4 * (part % 2)) & 15;
            uint32_t high = u16_at(p + 2) >> (2 * part) & 3;
            float scale = f16_at(p) * (float)((int32_t)(low | high << 4) - 32);
            for (uint32_t j = 0; j < 32; j++)
                out[i + part * 32 + j] =
                    scale * level[p[8 + part * 16 + j % 16] >> (j / 16 * 4) & 15];
        }
    }
}

/* scale: e8m0 | q: 16 bytes, the first 16 values in their low halves */
static void decode_gguf_mxfp4(const mf_weight_shape *s, const unsigned char *const *arrays,
                              uint32_t row, float *out)
{
    const unsigned char *p = row_of(s, arrays, MF_WEIGHT_VALUES, row);
    for (uint32_t i = 0; i < s->n_cols; i += 32, p += 17)
        for (uint32_t j = 0; j < 32; j++)
            out[i + j] = e2m1(p[1 + j % 16] >> (j / 16 * 4) & 15) * e8m0(p[0]);
}

const mf_weight_format mf_weight_formats[MF_WEIGHT_KINDS] = {
    [MF_WEIGHT_FLOAT] = {"safetensors", 1, 0, {{1, 1, .n_floats = 1}}, decode_float},
    [MF_WEIGHT_AFFINE] = {"mlx-affine",
                          3,
                          0,
                          {{32, 1, .per_bit = 4},
                           {MF_OF_GROUP, 1, .n_floats = 1},
                           {MF_OF_GROUP, 1, .n_floats = 1}},
                          decode_affine},
    [MF_WEIGHT_FP8_BLOCK] = {"fp8",
                             2,
                             8,
                             {{1, 1, .n_bytes = 1},
                              {MF_FP8_BLOCK, MF_FP8_BLOCK, .n_bytes = 4, .is_float32 = true}},
                             decode_fp8},
    [MF_WEIGHT_MXFP4] =
        {"mxfp4", 2, 4, {{32, 1, .n_bytes = 16}, {32, 1, .n_bytes = 1}}, decode_mxfp4},
    [MF_WEIGHT_NVFP4] = {"nvfp4",
                         3,
                         4,
                         {{16, 1, .n_bytes = 8},
                          {16, 1, .n_bytes = 1},
                          {MF_OF_ALL, MF_OF_ALL, .n_bytes = 4, .is_float32 = true}},
                         decode_nvfp4},
    [MF_WEIGHT_GGUF_Q8_0] = {"gguf q8_0", 1, 8, {{32, 1, .n_bytes = 34}}, decode_q8_0},
    [MF_WEIGHT_GGUF_Q4_K] = {"gguf q4_k", 1, 4, {{256, 1, .n_bytes = 144}}, decode_q4_k},
    [MF_WEIGHT_GGUF_Q6_K] = {"gguf q6_k", 1, 6, {{256, 1, .n_bytes = 210}}, decode_q6_k},
    [MF_WEIGHT_GGUF_IQ4_XS] = {"gguf iq4_xs", 1, 4, {{256, 1, .n_bytes = 136}}, decode_iq4_xs},
    [MF_WEIGHT_GGUF_MXFP4] = {"gguf mxfp4", 1, 4, {{32, 1, .n_bytes = 17}}, decode_gguf_mxfp4},
};

uint64_t mf_weight_array_bytes(const mf_weight_shape *s, uint32_t array)
{
    if (array >= mf_weight_format_of(s)->n_arrays)
        return 0;
    const uint32_t step = mf_weight_array_step(s, array);
    if (step == 0) /* of no rows at all */
        return 0;
    return ((uint64_t)s->n_rows + step - 1) / step * mf_weight_array_row_bytes(s, array);
}

uint64_t mf_weight_bytes(const mf_weight_shape *s)
{
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < mf_weight_format_of(s)->n_arrays; i++)
        n_bytes += mf_weight_array_bytes(s, i);
    return n_bytes;
}

uint32_t mf_weight_bits(const mf_weight_shape *s)
{
    const uint32_t bits = mf_weight_format_of(s)->bits;
    if (bits != 0)
        return bits;
    return s->kind == MF_WEIGHT_FLOAT ? 8 * mf_dtype_bytes(s->float_type) : s->bits;
}

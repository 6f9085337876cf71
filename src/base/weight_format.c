/* SPDX-License-Identifier: MIT */
/*
 * The table of weight formats, and how a row of each is decoded: plainly, one value after another,
 * each rounded once. Layouts: MLX (affine); OCP Microscaling Formats 1.0 (MXFP4, e8m0, e2m1);
 * NVFP4 as checkpoints of it store it. GGUF's types are decoded in weight_gguf.c and weight_iq.c.
 */
#include "base/weight_decode.h"

#include <math.h>

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

static void decode_float(const mf_weight_shape *s, const unsigned char *const *arrays, uint32_t row,
                         float *out)
{
    const unsigned char *p = mf_weight_row(s, arrays, MF_WEIGHT_VALUES, row);
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
    const unsigned char *values = mf_weight_row(s, arrays, MF_WEIGHT_VALUES, row);
    const unsigned char *scales = mf_weight_row(s, arrays, MF_WEIGHT_SCALES, row);
    const unsigned char *biases = mf_weight_row(s, arrays, MF_WEIGHT_BIASES, row);
    for (uint32_t i = 0; i < s->n_cols; i++)
        out[i] = fmaf((float)packed_at(values, s->bits, i),
                      float_at(scales, s->float_type, i / s->group),
                      float_at(biases, s->float_type, i / s->group));
}

static void decode_fp8(const mf_weight_shape *s, const unsigned char *const *arrays, uint32_t row,
                       float *out)
{
    const unsigned char *values = mf_weight_row(s, arrays, MF_WEIGHT_VALUES, row);
    const unsigned char *scales = mf_weight_row(s, arrays, MF_WEIGHT_SCALES, row);
    for (uint32_t i = 0; i < s->n_cols; i++)
        out[i] = mf_f32_from_e4m3(values[i]) * float_at(scales, MF_F32, i / MF_FP8_BLOCK);
}

/* A byte holds two values, the first one low. */
static void decode_mxfp4(const mf_weight_shape *s, const unsigned char *const *arrays, uint32_t row,
                         float *out)
{
    const unsigned char *values = mf_weight_row(s, arrays, MF_WEIGHT_VALUES, row);
    const unsigned char *scales = mf_weight_row(s, arrays, MF_WEIGHT_SCALES, row);
    for (uint32_t i = 0; i < s->n_cols; i++)
        out[i] = mf_e2m1(values[i / 2] >> (4 * (i % 2)) & 15) * mf_e8m0(scales[i / 32]);
}

/* What an NVFP4 matrix's values and scales are multiplied by. */
static float nvfp4_factor(const mf_weight_shape *s, const unsigned char *const *arrays)
{
    if (s->kind == MF_WEIGHT_NVFP4_PLAIN)
        return 1.0f;
    const float factor = float_at(arrays[MF_WEIGHT_BIASES], MF_F32, 0);
    return s->kind == MF_WEIGHT_NVFP4_DIVIDED ? 1.0f / factor : factor;
}

static void decode_nvfp4(const mf_weight_shape *s, const unsigned char *const *arrays, uint32_t row,
                         float *out)
{
    const unsigned char *values = mf_weight_row(s, arrays, MF_WEIGHT_VALUES, row);
    const unsigned char *scales = mf_weight_row(s, arrays, MF_WEIGHT_SCALES, row);
    const float factor = nvfp4_factor(s, arrays);
    for (uint32_t i = 0; i < s->n_cols; i++) {
        float scale = mf_f32_from_e4m3(scales[i / 16]); /* times e2m1: exact */
        out[i] = mf_e2m1(values[i / 2] >> (4 * (i % 2)) & 15) * scale * factor;
    }
}

/* Without a sign of its own: the middle of the codes is 0. */
static void decode_integers(const mf_weight_shape *s, const unsigned char *const *arrays,
                            uint32_t row, float *out)
{
    const unsigned char *values = mf_weight_row(s, arrays, MF_WEIGHT_VALUES, row);
    const unsigned char *scales = mf_weight_row(s, arrays, MF_WEIGHT_SCALES, row);
    const uint32_t bits = s->kind == MF_WEIGHT_INT8 ? 8 : 4;
    for (uint32_t i = 0; i < s->n_cols; i++)
        out[i] = (float)((int32_t)packed_at(values, bits, i) - (1 << (bits - 1))) *
                 float_at(scales, s->float_type, i / s->group);
}

static void decode_mxfp8(const mf_weight_shape *s, const unsigned char *const *arrays, uint32_t row,
                         float *out)
{
    const unsigned char *values = mf_weight_row(s, arrays, MF_WEIGHT_VALUES, row);
    const unsigned char *scales = mf_weight_row(s, arrays, MF_WEIGHT_SCALES, row);
    for (uint32_t i = 0; i < s->n_cols; i++)
        out[i] = mf_f32_from_e4m3(values[i]) * mf_e8m0(scales[i / 32]);
}

static void decode_indexed(const mf_weight_shape *s, const unsigned char *const *arrays,
                           uint32_t row, float *out)
{
    const unsigned char *values = mf_weight_row(s, arrays, MF_WEIGHT_VALUES, row);
    const unsigned char *pairs = mf_weight_row(s, arrays, MF_WEIGHT_SCALES, row);
    const unsigned char *index = arrays[MF_WEIGHT_BIASES];
    const uint32_t last = s->n_cols / s->group - 1;
    for (uint32_t i = 0; i < s->n_cols; i++) {
        const uint32_t group = mf_u16_at(index + 2 * (size_t)i); /* from a file: any number */
        const size_t at = 2 * (size_t)(group < last ? group : last);
        out[i] = fmaf((float)packed_at(values, s->bits, i), float_at(pairs, MF_F32, at),
                      float_at(pairs, MF_F32, at + 1));
    }
}

/* One scale for a row, or for all. */
static void decode_fp8_rows(const mf_weight_shape *s, const unsigned char *const *arrays,
                            uint32_t row, float *out)
{
    const unsigned char *values = mf_weight_row(s, arrays, MF_WEIGHT_VALUES, row);
    const float scale = float_at(mf_weight_row(s, arrays, MF_WEIGHT_SCALES, row), MF_F32, 0);
    for (uint32_t i = 0; i < s->n_cols; i++)
        out[i] = mf_f32_from_e4m3(values[i]) * scale;
}

static void decode_blocks(const mf_weight_shape *s, const unsigned char *const *arrays,
                          uint32_t row, float *out)
{
    const mf_weight_format *f = mf_weight_format_of(s);
    const unsigned char *p = mf_weight_row(s, arrays, MF_WEIGHT_VALUES, row);
    for (uint32_t i = 0; i < s->n_cols; i += f->arrays[0].cols, p += f->arrays[0].n_bytes)
        f->decode_block(p, out + i);
}

const mf_weight_format mf_weight_formats[MF_WEIGHT_KINDS] = {
    [MF_WEIGHT_FLOAT] = {"safetensors", 1, 0, {{1, 1, .n_floats = 1}}, decode_float, NULL},
    [MF_WEIGHT_AFFINE] = {"mlx-affine",
                          3,
                          0,
                          {{32, 1, .per_bit = 4},
                           {MF_OF_GROUP, 1, .n_floats = 1},
                           {MF_OF_GROUP, 1, .n_floats = 1}},
                          decode_affine,
                          NULL},
    [MF_WEIGHT_FP8_BLOCK] = {"fp8",
                             2,
                             8,
                             {{1, 1, .n_bytes = 1},
                              {MF_FP8_BLOCK, MF_FP8_BLOCK, .n_bytes = 4, .is_float32 = true}},
                             decode_fp8,
                             NULL},
    [MF_WEIGHT_MXFP4] =
        {"mxfp4", 2, 4, {{32, 1, .n_bytes = 16}, {32, 1, .n_bytes = 1}}, decode_mxfp4, NULL},
    [MF_WEIGHT_NVFP4] = {"nvfp4",
                         3,
                         4,
                         {{16, 1, .n_bytes = 8},
                          {16, 1, .n_bytes = 1},
                          {MF_OF_ALL, MF_OF_ALL, .n_bytes = 4, .is_float32 = true}},
                         decode_nvfp4,
                         NULL},
    [MF_WEIGHT_GGUF_Q4_0] =
        {"gguf q4_0", 1, 4, {{32, 1, .n_bytes = 18}}, decode_blocks, mf_block_q4_0},
    [MF_WEIGHT_GGUF_Q4_1] =
        {"gguf q4_1", 1, 4, {{32, 1, .n_bytes = 20}}, decode_blocks, mf_block_q4_1},
    [MF_WEIGHT_GGUF_Q5_0] =
        {"gguf q5_0", 1, 5, {{32, 1, .n_bytes = 22}}, decode_blocks, mf_block_q5_0},
    [MF_WEIGHT_GGUF_Q5_1] =
        {"gguf q5_1", 1, 5, {{32, 1, .n_bytes = 24}}, decode_blocks, mf_block_q5_1},
    [MF_WEIGHT_GGUF_Q8_0] =
        {"gguf q8_0", 1, 8, {{32, 1, .n_bytes = 34}}, decode_blocks, mf_block_q8_0},
    [MF_WEIGHT_GGUF_Q2_K] =
        {"gguf q2_k", 1, 2, {{256, 1, .n_bytes = 84}}, decode_blocks, mf_block_q2_k},
    [MF_WEIGHT_GGUF_Q3_K] =
        {"gguf q3_k", 1, 3, {{256, 1, .n_bytes = 110}}, decode_blocks, mf_block_q3_k},
    [MF_WEIGHT_GGUF_Q4_K] =
        {"gguf q4_k", 1, 4, {{256, 1, .n_bytes = 144}}, decode_blocks, mf_block_q4_k},
    [MF_WEIGHT_GGUF_Q5_K] =
        {"gguf q5_k", 1, 5, {{256, 1, .n_bytes = 176}}, decode_blocks, mf_block_q5_k},
    [MF_WEIGHT_GGUF_Q6_K] =
        {"gguf q6_k", 1, 6, {{256, 1, .n_bytes = 210}}, decode_blocks, mf_block_q6_k},
    [MF_WEIGHT_GGUF_IQ1_S] =
        {"gguf iq1_s", 1, 1, {{256, 1, .n_bytes = 50}}, decode_blocks, mf_block_iq1_s},
    [MF_WEIGHT_GGUF_IQ1_M] =
        {"gguf iq1_m", 1, 1, {{256, 1, .n_bytes = 56}}, decode_blocks, mf_block_iq1_m},
    [MF_WEIGHT_GGUF_IQ2_XXS] =
        {"gguf iq2_xxs", 1, 2, {{256, 1, .n_bytes = 66}}, decode_blocks, mf_block_iq2_xxs},
    [MF_WEIGHT_GGUF_IQ2_XS] =
        {"gguf iq2_xs", 1, 2, {{256, 1, .n_bytes = 74}}, decode_blocks, mf_block_iq2_xs},
    [MF_WEIGHT_GGUF_IQ2_S] =
        {"gguf iq2_s", 1, 2, {{256, 1, .n_bytes = 82}}, decode_blocks, mf_block_iq2_s},
    [MF_WEIGHT_GGUF_IQ3_XXS] =
        {"gguf iq3_xxs", 1, 3, {{256, 1, .n_bytes = 98}}, decode_blocks, mf_block_iq3_xxs},
    [MF_WEIGHT_GGUF_IQ3_S] =
        {"gguf iq3_s", 1, 3, {{256, 1, .n_bytes = 110}}, decode_blocks, mf_block_iq3_s},
    [MF_WEIGHT_GGUF_IQ4_NL] =
        {"gguf iq4_nl", 1, 4, {{32, 1, .n_bytes = 18}}, decode_blocks, mf_block_iq4_nl},
    [MF_WEIGHT_GGUF_IQ4_XS] =
        {"gguf iq4_xs", 1, 4, {{256, 1, .n_bytes = 136}}, decode_blocks, mf_block_iq4_xs},
    [MF_WEIGHT_GGUF_TQ1_0] =
        {"gguf tq1_0", 1, 2, {{256, 1, .n_bytes = 54}}, decode_blocks, mf_block_tq1_0},
    [MF_WEIGHT_GGUF_TQ2_0] =
        {"gguf tq2_0", 1, 2, {{256, 1, .n_bytes = 66}}, decode_blocks, mf_block_tq2_0},
    [MF_WEIGHT_GGUF_MXFP4] =
        {"gguf mxfp4", 1, 4, {{32, 1, .n_bytes = 17}}, decode_blocks, mf_block_mxfp4},
    [MF_WEIGHT_GGUF_NVFP4] =
        {"gguf nvfp4", 1, 4, {{64, 1, .n_bytes = 36}}, decode_blocks, mf_block_nvfp4},
    [MF_WEIGHT_INT4] = {"int4",
                        2,
                        4,
                        {{32, 1, .n_bytes = 16}, {MF_OF_GROUP, 1, .n_floats = 1}},
                        decode_integers,
                        NULL},
    [MF_WEIGHT_INT8] = {"int8",
                        2,
                        8,
                        {{32, 1, .n_bytes = 32}, {MF_OF_GROUP, 1, .n_floats = 1}},
                        decode_integers,
                        NULL},
    [MF_WEIGHT_FP8_CHANNEL] = {"fp8 by channel",
                               2,
                               8,
                               {{1, 1, .n_bytes = 1},
                                {MF_OF_ALL, 1, .n_bytes = 4, .is_float32 = true}},
                               decode_fp8_rows,
                               NULL},
    [MF_WEIGHT_FP8_TENSOR] = {"fp8 by tensor",
                              2,
                              8,
                              {{1, 1, .n_bytes = 1},
                               {MF_OF_ALL, MF_OF_ALL, .n_bytes = 4, .is_float32 = true}},
                              decode_fp8_rows,
                              NULL},
    [MF_WEIGHT_NVFP4_DIVIDED] = {"nvfp4 divided",
                                 3,
                                 4,
                                 {{16, 1, .n_bytes = 8},
                                  {16, 1, .n_bytes = 1},
                                  {MF_OF_ALL, MF_OF_ALL, .n_bytes = 4, .is_float32 = true}},
                                 decode_nvfp4,
                                 NULL},
    [MF_WEIGHT_NVFP4_PLAIN] =
        {"mlx-nvfp4", 2, 4, {{16, 1, .n_bytes = 8}, {16, 1, .n_bytes = 1}}, decode_nvfp4, NULL},
    [MF_WEIGHT_MXFP8] =
        {"mxfp8", 2, 8, {{32, 1, .n_bytes = 32}, {32, 1, .n_bytes = 1}}, decode_mxfp8, NULL},
    [MF_WEIGHT_AFFINE_INDEXED] = {"affine indexed",
                                  3,
                                  0,
                                  {{32, 1, .per_bit = 4},
                                   {MF_OF_GROUP, 1, .n_bytes = 8},
                                   {1, MF_OF_ALL, .n_bytes = 2}},
                                  decode_indexed,
                                  NULL},
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

static bool is_group(uint32_t n)
{
    return n == 32 || n == 64 || n == 128;
}

static bool is_bits(uint32_t n)
{
    return n >= 2 && n <= 8 && n != 7;
}

bool mf_weight_shape_is_sound(const mf_weight_shape *s)
{
    if (s->kind <= 0 || s->kind >= MF_WEIGHT_KINDS || s->n_rows == 0 || s->n_cols == 0)
        return false;
    const mf_weight_format *format = mf_weight_format_of(s);
    if (s->float_type != MF_F32 && s->float_type != MF_F16 && s->float_type != MF_BF16)
        return false;
    for (uint32_t i = 0; i < format->n_arrays; i++) {
        const mf_weight_array *a = &format->arrays[i];
        if (a->per_bit != 0 && !is_bits(s->bits))
            return false;
        if (a->cols == MF_OF_GROUP && (!is_group(s->group) || s->n_cols % s->group != 0))
            return false;
        if (i == MF_WEIGHT_VALUES && a->cols > 1 && a->cols < MF_OF_ALL && s->n_cols % a->cols != 0)
            return false;
        if (a->rows > 1 && a->rows < MF_OF_ALL &&
            (s->scale_rows != a->rows || s->group != a->rows || s->float_type != MF_F32))
            return false;
    }
    return format->n_arrays != 0;
}

// SPDX-License-Identifier: MIT
// Values of a weight, of any format of base/weight_format.h, one at a time and byte by byte: right
// for any alignment, and slow. The form is in constants, so that the compiler leaves the rest out. What
// chunks.glsl reads otherwise does without them: AFFINE, FP8, FLOATS.
#ifndef LIT_KIND
layout(constant_id = 1) const uint KIND = 1; // mf_weight_kind
#endif
layout(constant_id = 2) const uint FLOAT_TYPE = 1;
#ifdef LIT_BITS
const uint BITS = LIT_BITS;
#else
layout(constant_id = 3) const uint BITS = 4;
#endif
layout(constant_id = 4) const uint GROUP = 64;
layout(constant_id = 5) const uint SCALE_ROWS = 128;

const uint KIND_FLOAT = 1, KIND_AFFINE = 2, KIND_FP8_BLOCK = 3, KIND_MXFP4 = 4, KIND_NVFP4 = 5;
const uint KIND_Q8_0 = 6, KIND_Q4_K = 7, KIND_Q6_K = 8, KIND_IQ4_XS = 9, KIND_GGUF_MXFP4 = 10;
const uint KIND_Q4_0 = 11, KIND_Q4_1 = 12, KIND_Q5_0 = 13, KIND_Q5_1 = 14, KIND_Q2_K = 15;
const uint KIND_Q3_K = 16, KIND_Q5_K = 17, KIND_IQ1_S = 18, KIND_IQ1_M = 19, KIND_IQ2_XXS = 20;
const uint KIND_IQ2_XS = 21, KIND_IQ2_S = 22, KIND_IQ3_XXS = 23, KIND_IQ3_S = 24, KIND_IQ4_NL = 25;
const uint KIND_TQ1_0 = 26, KIND_TQ2_0 = 27, KIND_GGUF_NVFP4 = 28;
const uint KIND_INT4 = 29, KIND_INT8 = 30, KIND_FP8_CHANNEL = 31, KIND_FP8_TENSOR = 32;
const uint KIND_NVFP4_DIVIDED = 33, KIND_NVFP4_PLAIN = 34, KIND_MXFP8 = 35, KIND_INDEXED = 36;
#ifdef LIT_KIND
const uint KIND = LIT_KIND;
#endif

// Addresses of the arrays.
struct Weight {
    uint64_t values, scales, biases;
};

uint byte_at(uint64_t p, uint i)
{
    return uint(Bytes(p).v[i]);
}

uint u16_at(uint64_t p, uint i)
{
    return byte_at(p, i) | byte_at(p, i + 1) << 8;
}

float f16_at(uint64_t p, uint i)
{
    return half_to_float(u16_at(p, i));
}

float f32_at(uint64_t p)
{
    return uintBitsToFloat(u16_at(p, 0) | u16_at(p, 2) << 16);
}

// Element i of floats of FLOAT_TYPE, of any alignment.
float scale_at(uint64_t p, uint i)
{
    if (FLOAT_TYPE == F32)
        return f32_at(p + uint64_t(i) * 4);
    const uint h = u16_at(p + uint64_t(i) * 2, 0);
    return FLOAT_TYPE == F16 ? half_to_float(h) : bfloat_to_float(h);
}

int int8_of(uint b)
{
    return int(b << 24) >> 24;
}

// A byte's half: the low one is 0.
uint nibble(uint b, uint which)
{
    return b >> (4 * which) & 15;
}

float e4m3(uint code)
{
    const uint m = code & 127, sign = (code & 128) << 24;
    const float x =
        mix(uintBitsToFloat((m << 20) + 0x3c000000u), float(m) * 0.001953125, m < 8);
    return uintBitsToFloat(mix(floatBitsToUint(x) | sign, 0x7fc00000u, m == 127));
}

float e2m1(uint code)
{
    const uint m = code & 7, sign = (code & 8) << 28;
    const float x = mix(uintBitsToFloat((m << 22) + 0x3f000000u), float(m) * 0.5, m < 2);
    return uintBitsToFloat(floatBitsToUint(x) | sign);
}

float e8m0(uint code)
{
    const uint bits = mix(code << 23, 0x00400000u, code == 0);
    return uintBitsToFloat(mix(bits, 0x7fc00000u, code == 255));
}

// The 16 levels of IQ4_XS, plus 128, a byte each.
uint iq4_level(uint q)
{
    const uvec4 levels = uvec4(0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u);
    return levels[q / 4] >> (8 * (q % 4)) & 255;
}

#if !defined(AFFINE) && !defined(FP8) && !defined(FLOATS)
float affine_code(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t values = w.values + uint64_t(row) * (n_cols / 32 * BITS * 4);
    const uint first_bit = col * BITS, shift = first_bit & 7;
    uint q = byte_at(values, first_bit >> 3);
    if (shift + BITS > 8)
        q |= byte_at(values, (first_bit >> 3) + 1) << 8;
    return float(q >> shift & ((1u << BITS) - 1));
}

float affine_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t group = uint64_t(row) * (n_cols / GROUP) + col / GROUP;
    const uint64_t at = group * (FLOAT_TYPE == F32 ? 4 : 2);
    return fma(affine_code(w, row, col, n_cols), scale_at(w.scales + at, 0),
               scale_at(w.biases + at, 0));
}

// Scales and biases lie in pairs; which of a row's is a column's is in an array of all rows.
float indexed_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint n_groups = n_cols / GROUP;
    const uint group = min(u16_at(w.biases, 2 * col), n_groups - 1); // from a file: any number
    const uint64_t pair = uint64_t(row) * n_groups + group;
    const uint64_t at = w.scales + pair * 8;
    return fma(affine_code(w, row, col, n_cols), f32_at(at), f32_at(at + 4));
}

float mxfp8_value(Weight w, uint row, uint col, uint n_cols)
{
    return e4m3(byte_at(w.values + uint64_t(row) * n_cols, col)) *
           e8m0(byte_at(w.scales + uint64_t(row) * (n_cols / 32), col / 32));
}

float fp8_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t block = uint64_t(row / SCALE_ROWS) * ((n_cols + 127) / 128) + col / 128;
    return e4m3(byte_at(w.values + uint64_t(row) * n_cols, col)) * f32_at(w.scales + block * 4);
}

float fp4_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint code = nibble(byte_at(w.values + uint64_t(row) * (n_cols / 2), col / 2), col % 2);
    if (KIND == KIND_MXFP4)
        return e2m1(code) * e8m0(byte_at(w.scales + uint64_t(row) * (n_cols / 32), col / 32));
    const float scale = e4m3(byte_at(w.scales + uint64_t(row) * (n_cols / 16), col / 16));
    if (KIND == KIND_NVFP4_PLAIN)
        return e2m1(code) * scale;
    const float factor = f32_at(w.biases);
    return e2m1(code) * scale * (KIND == KIND_NVFP4_DIVIDED ? 1.0 / factor : factor);
}

float q8_0_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t p = w.values + (uint64_t(row) * (n_cols / 32) + col / 32) * 34;
    return f16_at(p, 0) * float(int8_of(byte_at(p, 2 + col % 32)));
}

// The formats of 32 values with 4 or 5 bits: a scale, perhaps a minimum, perhaps fifth bits.
float small_value(Weight w, uint row, uint col, uint n_cols)
{
    const bool has_min = KIND == KIND_Q4_1 || KIND == KIND_Q5_1;
    const bool has_fifth = KIND == KIND_Q5_0 || KIND == KIND_Q5_1;
    const uint at = 2 + (has_min ? 2 : 0), values = at + (has_fifth ? 4 : 0), i = col % 32;
    const uint64_t p = w.values + (uint64_t(row) * (n_cols / 32) + col / 32) * (values + 16);
    uint q = nibble(byte_at(p, values + i % 16), i / 16);
    if (has_fifth)
        q |= (byte_at(p, at + i / 8) >> (i % 8) & 1) << 4;
    if (has_min)
        return fma(f16_at(p, 0), float(q), f16_at(p, 2));
    return f16_at(p, 0) * float(int(q) - (has_fifth ? 16 : 8));
}

float q2_k_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t p = w.values + (uint64_t(row) * (n_cols / 256) + col / 256) * 84;
    const uint i = col % 256, both = byte_at(p, i / 16);
    const uint q = byte_at(p, 16 + i / 128 * 32 + i % 32) >> (i / 32 % 4 * 2) & 3;
    return fma(float(both & 15) * f16_at(p, 80), float(q), -(float(both >> 4) * f16_at(p, 82)));
}

float q3_k_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t p = w.values + (uint64_t(row) * (n_cols / 256) + col / 256) * 110;
    const uint i = col % 256, part = i / 16;
    const uint low = nibble(byte_at(p, 96 + part % 8), part / 8);
    const uint high = byte_at(p, 104 + part % 4) >> (part / 4 * 2) & 3;
    const uint q = byte_at(p, 32 + i / 128 * 32 + i % 32) >> (i / 32 % 4 * 2) & 3;
    const uint third = byte_at(p, i % 32) >> (i / 32) & 1;
    const float scale = f16_at(p, 108) * float(int(low | high << 4) - 32);
    return scale * float(int(q | third << 2) - 4);
}

// Q4_K and Q5_K.
float q4_k_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t block = uint64_t(row) * (n_cols / 256) + col / 256;
    const uint64_t p = w.values + block * (KIND == KIND_Q5_K ? 176 : 144);
    const uint part = col / 32 % 8, j = col % 32;
    uint scale, minimum;
    if (part < 4) {
        scale = byte_at(p, 4 + part) & 63;
        minimum = byte_at(p, 8 + part) & 63;
    } else {
        scale = (byte_at(p, 8 + part) & 15) | byte_at(p, part) >> 6 << 4;
        minimum = byte_at(p, 8 + part) >> 4 | byte_at(p, 4 + part) >> 6 << 4;
    }
    uint q = nibble(byte_at(p, (KIND == KIND_Q5_K ? 48 : 16) + part / 2 * 32 + j), part % 2);
    if (KIND == KIND_Q5_K)
        q |= (byte_at(p, 16 + j) >> part & 1) << 4;
    return fma(float(scale) * f16_at(p, 0), float(q), -(float(minimum) * f16_at(p, 2)));
}

float q6_k_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t p = w.values + (uint64_t(row) * (n_cols / 256) + col / 256) * 210;
    const uint j = col % 256, part_half = j / 128, part = j / 32 % 4, at = j % 32;
    const uint low = nibble(byte_at(p, part_half * 64 + part % 2 * 32 + at), part / 2);
    const uint high = byte_at(p, 128 + part_half * 32 + at) >> (2 * part) & 3;
    const float scale = f16_at(p, 208) * float(int8_of(byte_at(p, 192 + j / 16)));
    return scale * float(int(low | high << 4) - 32);
}

float iq4_xs_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t p = w.values + (uint64_t(row) * (n_cols / 256) + col / 256) * 136;
    const uint part = col / 32 % 8, j = col % 32;
    const uint low = nibble(byte_at(p, 4 + part / 2), part % 2);
    const uint high = u16_at(p, 2) >> (2 * part) & 3;
    const float scale = f16_at(p, 0) * float(int(low | high << 4) - 32);
    const uint q = nibble(byte_at(p, 8 + part * 16 + j % 16), j / 16);
    return scale * float(int(iq4_level(q)) - 128);
}

float iq4_nl_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t p = w.values + (uint64_t(row) * (n_cols / 32) + col / 32) * 18;
    const uint q = nibble(byte_at(p, 2 + col % 16), col % 32 / 16);
    return f16_at(p, 0) * float(int(iq4_level(q)) - 128);
}

// Scales are e4m3 without their sign, of which 0x7f counts as 0.
float gguf_nvfp4_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t p = w.values + (uint64_t(row) * (n_cols / 64) + col / 64) * 36;
    const uint i = col % 64, code = byte_at(p, i / 16);
    const uint q = nibble(byte_at(p, 4 + i / 16 * 8 + i % 8), i / 8 % 2);
    const float scale = code == 127 ? 0.0 : code == 255 ? 480.0 : e4m3(code & 127);
    return e2m1(q) * scale;
}

float integer_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint bits = KIND == KIND_INT4 ? 4 : 8;
    const uint b = byte_at(w.values + uint64_t(row) * (n_cols / 8 * bits), col * bits / 8);
    const uint q = KIND == KIND_INT4 ? nibble(b, col % 2) : b;
    const uint64_t group = uint64_t(row) * (n_cols / GROUP) + col / GROUP;
    const float scale = scale_at(w.scales + group * (FLOAT_TYPE == F32 ? 4 : 2), 0);
    return float(int(q) - (1 << (bits - 1))) * scale;
}

float fp8_row_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t at = KIND == KIND_FP8_CHANNEL ? uint64_t(row) * 4 : 0;
    return e4m3(byte_at(w.values + uint64_t(row) * n_cols, col)) * f32_at(w.scales + at);
}

float gguf_mxfp4_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t p = w.values + (uint64_t(row) * (n_cols / 32) + col / 32) * 17;
    const uint j = col % 32;
    return e2m1(nibble(byte_at(p, 1 + j % 16), j / 16)) * e8m0(byte_at(p, 0));
}

float float_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t at = uint64_t(row) * n_cols + col;
    return scale_at(w.values + at * (FLOAT_TYPE == F32 ? 4 : 2), 0);
}

#include "codebooks.glsl"

float weight_value(Weight w, uint row, uint col, uint n_cols)
{
    switch (KIND) {
    case KIND_AFFINE:
        return affine_value(w, row, col, n_cols);
    case KIND_INDEXED:
        return indexed_value(w, row, col, n_cols);
    case KIND_MXFP8:
        return mxfp8_value(w, row, col, n_cols);
    case KIND_FP8_BLOCK:
        return fp8_value(w, row, col, n_cols);
    case KIND_MXFP4:
    case KIND_NVFP4:
    case KIND_NVFP4_DIVIDED:
    case KIND_NVFP4_PLAIN:
        return fp4_value(w, row, col, n_cols);
    case KIND_Q8_0:
        return q8_0_value(w, row, col, n_cols);
    case KIND_Q4_0:
    case KIND_Q4_1:
    case KIND_Q5_0:
    case KIND_Q5_1:
        return small_value(w, row, col, n_cols);
    case KIND_Q2_K:
        return q2_k_value(w, row, col, n_cols);
    case KIND_Q3_K:
        return q3_k_value(w, row, col, n_cols);
    case KIND_IQ4_NL:
        return iq4_nl_value(w, row, col, n_cols);
    case KIND_GGUF_NVFP4:
        return gguf_nvfp4_value(w, row, col, n_cols);
    case KIND_INT4:
    case KIND_INT8:
        return integer_value(w, row, col, n_cols);
    case KIND_FP8_CHANNEL:
    case KIND_FP8_TENSOR:
        return fp8_row_value(w, row, col, n_cols);
    case KIND_Q5_K:
    case KIND_Q4_K:
        return q4_k_value(w, row, col, n_cols);
    case KIND_Q6_K:
        return q6_k_value(w, row, col, n_cols);
    case KIND_IQ4_XS:
        return iq4_xs_value(w, row, col, n_cols);
    case KIND_GGUF_MXFP4:
        return gguf_mxfp4_value(w, row, col, n_cols);
    case KIND_IQ1_S:
        return iq1_s_value(w, row, col, n_cols);
    case KIND_IQ1_M:
        return iq1_m_value(w, row, col, n_cols);
    case KIND_IQ2_XXS:
        return iq2_xxs_value(w, row, col, n_cols);
    case KIND_IQ2_XS:
        return iq2_xs_value(w, row, col, n_cols);
    case KIND_IQ2_S:
        return iq2_s_value(w, row, col, n_cols);
    case KIND_IQ3_XXS:
        return iq3_xxs_value(w, row, col, n_cols);
    case KIND_IQ3_S:
        return iq3_s_value(w, row, col, n_cols);
    case KIND_TQ1_0:
        return tq1_0_value(w, row, col, n_cols);
    case KIND_TQ2_0:
        return tq2_0_value(w, row, col, n_cols);
    default:
        return float_value(w, row, col, n_cols);
    }
}
#endif

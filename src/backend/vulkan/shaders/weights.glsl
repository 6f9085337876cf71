// SPDX-License-Identifier: MIT
// Values of a weight, of any format of base/weight_format.h, one at a time and byte by byte: right
// for any alignment, and slow. The form is in constants, so that the compiler leaves the rest out.
layout(constant_id = 1) const uint KIND = 1; // mf_weight_kind
layout(constant_id = 2) const uint FLOAT_TYPE = 1;
layout(constant_id = 3) const uint BITS = 4;
layout(constant_id = 4) const uint GROUP = 64;
layout(constant_id = 5) const uint SCALE_ROWS = 128;

const uint KIND_FLOAT = 1, KIND_AFFINE = 2, KIND_FP8_BLOCK = 3, KIND_MXFP4 = 4, KIND_NVFP4 = 5;
const uint KIND_Q8_0 = 6, KIND_Q4_K = 7, KIND_Q6_K = 8, KIND_IQ4_XS = 9, KIND_GGUF_MXFP4 = 10;

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
    if (m == 127)
        return uintBitsToFloat(0x7fc00000u);
    const float x = m < 8 ? float(m) * 0.001953125 : uintBitsToFloat((m << 20) + 0x3c000000u);
    return uintBitsToFloat(floatBitsToUint(x) | sign);
}

float e2m1(uint code)
{
    const uint m = code & 7, sign = (code & 8) << 28;
    const float x = m < 2 ? float(m) * 0.5 : uintBitsToFloat((m << 22) + 0x3f000000u);
    return uintBitsToFloat(floatBitsToUint(x) | sign);
}

float e8m0(uint code)
{
    if (code == 255)
        return uintBitsToFloat(0x7fc00000u);
    return uintBitsToFloat(code == 0 ? 0x00400000u : code << 23);
}

float affine_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t values = w.values + uint64_t(row) * (n_cols / 32 * BITS * 4);
    const uint n_groups = n_cols / GROUP;
    const uint64_t group = uint64_t(row) * n_groups + col / GROUP;
    const uint64_t at = group * (FLOAT_TYPE == F32 ? 4 : 2);
    const uint first_bit = col * BITS, shift = first_bit & 7;
    uint q = byte_at(values, first_bit >> 3);
    if (shift + BITS > 8)
        q |= byte_at(values, (first_bit >> 3) + 1) << 8;
    q = q >> shift & ((1u << BITS) - 1);
    return fma(float(q), scale_at(w.scales + at, 0), scale_at(w.biases + at, 0));
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
    return e2m1(code) * scale * f32_at(w.biases);
}

float q8_0_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t p = w.values + (uint64_t(row) * (n_cols / 32) + col / 32) * 34;
    return f16_at(p, 0) * float(int8_of(byte_at(p, 2 + col % 32)));
}

float q4_k_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t p = w.values + (uint64_t(row) * (n_cols / 256) + col / 256) * 144;
    const uint part = col / 32 % 8, j = col % 32;
    uint scale, minimum;
    if (part < 4) {
        scale = byte_at(p, 4 + part) & 63;
        minimum = byte_at(p, 8 + part) & 63;
    } else {
        scale = (byte_at(p, 8 + part) & 15) | byte_at(p, part) >> 6 << 4;
        minimum = byte_at(p, 8 + part) >> 4 | byte_at(p, 4 + part) >> 6 << 4;
    }
    const uint q = nibble(byte_at(p, 16 + part / 2 * 32 + j), part % 2);
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

// The 16 levels of IQ4_XS, plus 128, a byte each.
uint iq4_level(uint q)
{
    const uvec4 levels = uvec4(0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u);
    return levels[q / 4] >> (8 * (q % 4)) & 255;
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

float weight_value(Weight w, uint row, uint col, uint n_cols)
{
    switch (KIND) {
    case KIND_AFFINE:
        return affine_value(w, row, col, n_cols);
    case KIND_FP8_BLOCK:
        return fp8_value(w, row, col, n_cols);
    case KIND_MXFP4:
    case KIND_NVFP4:
        return fp4_value(w, row, col, n_cols);
    case KIND_Q8_0:
        return q8_0_value(w, row, col, n_cols);
    case KIND_Q4_K:
        return q4_k_value(w, row, col, n_cols);
    case KIND_Q6_K:
        return q6_k_value(w, row, col, n_cols);
    case KIND_IQ4_XS:
        return iq4_xs_value(w, row, col, n_cols);
    case KIND_GGUF_MXFP4:
        return gguf_mxfp4_value(w, row, col, n_cols);
    default:
        return float_value(w, row, col, n_cols);
    }
}

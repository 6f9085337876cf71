// SPDX-License-Identifier: MIT
// Values of GGUF's types whose codes number entries of a codebook, and of its ternary ones: as
// base/weight_iq.c and weight_gguf.c say.
#include "grids.glsl"

#define ENTRY(grid, i) (uint(grid[(i) / 4] >> (16 * ((i) % 4))) & 0xffffu)

uint u32_at(uint64_t p, uint i)
{
    return u16_at(p, i) | u16_at(p, i + 2) << 16;
}

// Where the block of a column begins.
uint64_t block_at(Weight w, uint row, uint col, uint n_cols, uint n_bytes)
{
    return w.values + (uint64_t(row) * (n_cols / 256) + col / 256) * n_bytes;
}

uint even_signs(uint bits)
{
    return bits | (uint(bitCount(bits)) & 1) << 7;
}

float signed_value(uint value, uint signs, uint i)
{
    return (signs >> i & 1) != 0 ? -float(value) : float(value);
}

// Value i of eight.
float iq2_value(uint entry, uint signs, uint i)
{
    return signed_value(0x002b1908u >> (8 * (entry >> (2 * i) & 3)) & 255, signs, i);
}

float half_step_scale(uint64_t p, uint i)
{
    return (0.5 + float(nibble(byte_at(p, i / 2), i % 2))) * 0.25;
}

float iq2_xxs_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t p = block_at(w, row, col, n_cols, 66);
    const uint i = col % 256, q = 2 + i / 32 * 8, word = u32_at(p, q + 4), j = i / 8 % 4;
    const float scale = f16_at(p, 0) * (0.5 + float(word >> 28)) * 0.25;
    return scale * iq2_value(ENTRY(GRID_IQ2_XXS, byte_at(p, q + j)),
                             even_signs(word >> (7 * j) & 127), i % 8);
}

float iq2_xs_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t p = block_at(w, row, col, n_cols, 74);
    const uint i = col % 256, q = u16_at(p, 2 + i / 8 * 2);
    const float scale = f16_at(p, 0) * half_step_scale(p + 66, i / 16);
    return scale * iq2_value(ENTRY(GRID_IQ2_XS, q & 511), even_signs(q >> 9), i % 8);
}

float iq2_s_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t p = block_at(w, row, col, n_cols, 82);
    const uint i = col % 256, j = i / 8, high = byte_at(p, 66 + j / 4) >> (2 * (j % 4)) & 3;
    const float scale = f16_at(p, 0) * half_step_scale(p + 74, i / 16);
    return scale * iq2_value(ENTRY(GRID_IQ2_S, byte_at(p, 2 + j) | high << 8), byte_at(p, 34 + j),
                             i % 8);
}

float iq3_xxs_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t p = block_at(w, row, col, n_cols, 98);
    const uint i = col % 256, word = u32_at(p, 66 + i / 32 * 4);
    const uint entry = ENTRY(GRID_IQ3_XXS, byte_at(p, 2 + i / 4)) >> (3 * (i % 4)) & 7;
    const float scale = f16_at(p, 0) * (0.5 + float(word >> 28)) * 0.5;
    return scale * signed_value(entry == 7 ? 62 : 4 + 8 * entry,
                                even_signs(word >> (i / 8 % 4 * 7) & 127), i % 8);
}

float iq3_s_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t p = block_at(w, row, col, n_cols, 110);
    const uint i = col % 256, j = i / 4;
    const uint number = byte_at(p, 2 + j) | (byte_at(p, 66 + j / 8) >> (j % 8) & 1) << 8;
    const uint entry = ENTRY(GRID_IQ3_S, number) >> (3 * (i % 4)) & 7;
    const uint scale = nibble(byte_at(p, 106 + i / 64), i / 32 % 2);
    return f16_at(p, 0) * float(2 * scale + 1) *
           signed_value(2 * entry + 1, byte_at(p, 74 + i / 8), i % 8);
}

// Value i of eight.
float iq1_value(uint entry, bool is_less, uint i)
{
    return float(int(entry >> (2 * i) & 3) - 1) + (is_less ? -0.125 : 0.125);
}

float iq1_s_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t p = block_at(w, row, col, n_cols, 50);
    const uint i = col % 256, j = i / 8, word = u16_at(p, 34 + j / 4 * 2);
    const uint number = byte_at(p, 2 + j) | (word >> (j % 4 * 3) & 7) << 8;
    return f16_at(p, 0) * float(2 * (word >> 12 & 7) + 1) *
           iq1_value(ENTRY(GRID_IQ1, number), word >> 15 != 0, i % 8);
}

float iq1_m_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t p = block_at(w, row, col, n_cols, 56);
    const uint i = col % 256, j = i / 8, high = nibble(byte_at(p, 32 + j / 2), j % 2);
    const uint scale = u16_at(p, 48 + i / 64 * 2) >> (j / 2 % 4 * 3) & 7;
    uint d = 0;
    for (uint e = 0; e < 4; e++)
        d |= u16_at(p, 48 + 2 * e) >> 12 << (4 * e);
    return half_to_float(d) * float(2 * scale + 1) *
           iq1_value(ENTRY(GRID_IQ1, byte_at(p, j) | (high & 7) << 8), high >= 8, i % 8);
}

// Digit `place` of a byte's five in base 3.
float digit_value(uint digits, uint place)
{
    const uint power = place == 0 ? 1 : place == 1 ? 3 : place == 2 ? 9 : place == 3 ? 27 : 81;
    return float(int((digits * power & 255) * 3 >> 8) - 1);
}

float tq1_0_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t p = block_at(w, row, col, n_cols, 54);
    const uint i = col % 256;
    const float d = f16_at(p, 52);
    if (i < 160)
        return d * digit_value(byte_at(p, i % 32), i / 32);
    if (i < 240)
        return d * digit_value(byte_at(p, 32 + i % 16), (i - 160) / 16);
    return d * digit_value(byte_at(p, 48 + i % 4), (i - 240) / 4);
}

float tq2_0_value(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t p = block_at(w, row, col, n_cols, 66);
    const uint i = col % 256, q = byte_at(p, i / 128 * 32 + i % 32) >> (i / 32 % 4 * 2) & 3;
    return f16_at(p, 64) * float(int(q) - 1);
}

// SPDX-License-Identifier: MIT
// What every shader begins with: the extensions that all devices have, pointers, reductions.
// Memory is reached by 64-bit addresses in push constants alone: there are no descriptors.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#ifdef SUBNORMAL // floats below the least normal one are kept: DenormPreserve, of 32 bits
#extension GL_EXT_spirv_intrinsics : require
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4464], 4459, 32);
#endif

// Pointers say what their bytes are aligned to: less is undefined on a real device.
layout(buffer_reference, scalar, buffer_reference_align = 1) buffer Bytes { uint8_t v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer Halves { uint16_t v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Floats { float v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer Floats4 { vec4 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Ints { int v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Words { uint v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Words2 { uvec2 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer Words4 { uvec4 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Addresses { uint64_t v[]; };

// Constant 0 is the size of the workgroup, in every shader.
layout(local_size_x_id = 0) in;

// mf_vk_sequence of vk_internal.h: rows first_row .. first_row + n_rows - 1 are its positions from
// `position` on.
struct Sequence {
    uint first_row, n_rows, position, n_pages;
    uint64_t pages;  // Addresses, one for each MF_PAGE_TOKENS positions
    uint64_t before; // the state before the run; 0: all zero
    uint64_t after;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Sequences {
    Sequence v[];
};

// The sequence that holds a row of the batch. Batches have few.
uint sequence_of(Sequences sequences, uint n_sequences, uint row)
{
    for (uint i = 0; i + 1 < n_sequences; i++)
        if (row - sequences.v[i].first_row < sequences.v[i].n_rows)
            return i;
    return n_sequences - 1;
}

// A batch of one sequence comes with the push constants (mf_vk_single): nothing has to be fetched
// before what it says where to fetch.
struct Single {
    uint64_t before, after;
    uint first_row, n_rows; // 0: there are several
};

// exp overflows to infinity on purpose: the quotient is then 0.
float sigmoid(float x)
{
    return 1.0 / (1.0 + exp(-x));
}

float silu(float x)
{
    return x / (1.0 + exp(-x));
}

// The sum of squares, in the same order everywhere.
float squared(vec4 x)
{
    precise float y = (x.x * x.x + x.y * x.y) + (x.z * x.z + x.w * x.w);
    return y;
}

// Conversions by integers: a device may flush small numbers of its own conversions to zero. Without
// branches: where they stand, a compiler would not see that it has done the same before.
float half_to_float(uint h)
{
    const uint sign = (h & 0x8000u) << 16, m = h & 0x7fffu;
    const uint normal = (m << 13) + mix(0x70000000u, 0x38000000u, m < 0x7c00u);
    const uint small = floatBitsToUint(float(m) * 5.9604644775390625e-8);
    return uintBitsToFloat(sign | mix(normal, small, m < 0x400u));
}

float bfloat_to_float(uint h)
{
    return uintBitsToFloat(h << 16);
}

// To the nearest, ties to even.
uint bfloat_of(float x)
{
    const uint bits = floatBitsToUint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return bits >> 16 | 0x40u;
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

// mf_dtype
const uint F32 = 1, F16 = 2, BF16 = 3;


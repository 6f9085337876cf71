/* SPDX-License-Identifier: MIT */
/* The stored forms that a Vulkan device has kernels for, without their rows and columns. */
#ifndef MF_TEST_VULKAN_FORMS_H
#define MF_TEST_VULKAN_FORMS_H

#include "base/weight_format.h"

static const mf_weight_shape vulkan_forms[] = {
    {.kind = MF_WEIGHT_FLOAT, .float_type = MF_F32},
    {.kind = MF_WEIGHT_FLOAT, .float_type = MF_F16},
    {.kind = MF_WEIGHT_FLOAT, .float_type = MF_BF16},
    {.kind = MF_WEIGHT_AFFINE, .float_type = MF_BF16, .bits = 2, .group = 32},
    {.kind = MF_WEIGHT_AFFINE, .float_type = MF_F16, .bits = 3, .group = 64},
    {.kind = MF_WEIGHT_AFFINE, .float_type = MF_F32, .bits = 4, .group = 128},
    {.kind = MF_WEIGHT_AFFINE, .float_type = MF_BF16, .bits = 4, .group = 64},
    {.kind = MF_WEIGHT_AFFINE, .float_type = MF_BF16, .bits = 5, .group = 64},
    {.kind = MF_WEIGHT_AFFINE, .float_type = MF_BF16, .bits = 6, .group = 32},
    {.kind = MF_WEIGHT_AFFINE, .float_type = MF_F16, .bits = 8, .group = 64},
    {.kind = MF_WEIGHT_FP8_BLOCK, .float_type = MF_F32, .bits = 8, .group = 128},
    {.kind = MF_WEIGHT_FP8_BLOCK, .float_type = MF_F32, .bits = 8, .group = 128, .scale_rows = 4},
    {.kind = MF_WEIGHT_MXFP4},
    {.kind = MF_WEIGHT_NVFP4},
    {.kind = MF_WEIGHT_GGUF_Q8_0},
    {.kind = MF_WEIGHT_GGUF_Q4_K},
    {.kind = MF_WEIGHT_GGUF_Q6_K},
    {.kind = MF_WEIGHT_GGUF_IQ4_XS},
    {.kind = MF_WEIGHT_GGUF_MXFP4},
    {.kind = MF_WEIGHT_GGUF_Q4_0},
    {.kind = MF_WEIGHT_GGUF_Q4_1},
    {.kind = MF_WEIGHT_GGUF_Q5_0},
    {.kind = MF_WEIGHT_GGUF_Q5_1},
    {.kind = MF_WEIGHT_GGUF_Q2_K},
    {.kind = MF_WEIGHT_GGUF_Q3_K},
    {.kind = MF_WEIGHT_GGUF_Q5_K},
    {.kind = MF_WEIGHT_GGUF_IQ1_S},
    {.kind = MF_WEIGHT_GGUF_IQ1_M},
    {.kind = MF_WEIGHT_GGUF_IQ2_XXS},
    {.kind = MF_WEIGHT_GGUF_IQ2_XS},
    {.kind = MF_WEIGHT_GGUF_IQ2_S},
    {.kind = MF_WEIGHT_GGUF_IQ3_XXS},
    {.kind = MF_WEIGHT_GGUF_IQ3_S},
    {.kind = MF_WEIGHT_GGUF_IQ4_NL},
    {.kind = MF_WEIGHT_GGUF_TQ1_0},
    {.kind = MF_WEIGHT_GGUF_TQ2_0},
    {.kind = MF_WEIGHT_GGUF_NVFP4},
    {.kind = MF_WEIGHT_INT4, .float_type = MF_BF16, .bits = 4, .group = 32},
    {.kind = MF_WEIGHT_INT8, .float_type = MF_F16, .bits = 8, .group = 64},
    {.kind = MF_WEIGHT_FP8_CHANNEL, .float_type = MF_F32, .bits = 8},
    {.kind = MF_WEIGHT_FP8_TENSOR, .float_type = MF_F32, .bits = 8},
    {.kind = MF_WEIGHT_NVFP4_DIVIDED},
    {.kind = MF_WEIGHT_NVFP4_PLAIN},
    {.kind = MF_WEIGHT_MXFP8},
    {.kind = MF_WEIGHT_AFFINE_INDEXED, .bits = 4, .group = 32},
    {.kind = MF_WEIGHT_AFFINE_INDEXED, .bits = 3, .group = 64},
};
#define N_VULKAN_FORMS (sizeof vulkan_forms / sizeof *vulkan_forms)

#endif

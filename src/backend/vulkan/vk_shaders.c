/* SPDX-License-Identifier: MIT */
/* The tables of SPIR-V words. */
#include "backend/vulkan/vk_shaders.h"

#include "backend/vulkan/spirv/shader_words.inc"

const mf_vk_code mf_vk_codes[MF_VK_N_SHADERS] = {
#define SHADER(name) [MF_VK_SHADER_##name] = {#name, (name), sizeof(name)},
#include "backend/vulkan/spirv/shader_list.inc"
#undef SHADER
};

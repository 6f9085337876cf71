/* SPDX-License-Identifier: MIT */
/* The shaders by name, and their SPIR-V, which tools/build_shaders.sh makes of shaders/. */
#ifndef MF_BACKEND_VULKAN_VK_SHADERS_H
#define MF_BACKEND_VULKAN_VK_SHADERS_H

#include <stddef.h>
#include <stdint.h>

typedef enum mf_vk_shader {
#define SHADER(name) MF_VK_SHADER_##name,
#include "backend/vulkan/spirv/shader_list.inc"
#undef SHADER
    MF_VK_N_SHADERS
} mf_vk_shader;

typedef struct mf_vk_code {
    const char *name;
    const uint32_t *words;
    size_t n_bytes;
} mf_vk_code;

extern const mf_vk_code mf_vk_codes[MF_VK_N_SHADERS];

#endif

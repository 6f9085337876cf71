/* SPDX-License-Identifier: MIT */
/* VK_KHR_cooperative_matrix for headers that are older than it (Debian 12's). The numbers are the
 * registry's. */
#ifndef MF_BACKEND_VULKAN_VK_MATRIX_H
#define MF_BACKEND_VULKAN_VK_MATRIX_H

#include "backend/vulkan/vk_api.h"

#define MF_VK_COOPERATIVE_MATRIX "VK_KHR_cooperative_matrix"

enum {
    MF_VK_STYPE_MATRIX_FEATURES = 1000506000,
    MF_VK_STYPE_MATRIX_PROPERTIES = 1000506001,
    MF_VK_SCOPE_SUBGROUP = 3
};

typedef struct mf_vk_matrix_features {
    VkStructureType sType;
    void *pNext;
    VkBool32 cooperativeMatrix, cooperativeMatrixRobustBufferAccess;
} mf_vk_matrix_features;

/* The types are those of VkComponentTypeKHR, the scope VkScopeKHR. */
typedef struct mf_vk_matrix_properties {
    VkStructureType sType;
    void *pNext;
    uint32_t m, n, k;
    uint32_t a_type, b_type, c_type, result_type;
    VkBool32 saturates;
    uint32_t scope;
} mf_vk_matrix_properties;

typedef VkResult(VKAPI_PTR *mf_vk_get_matrix_properties)(VkPhysicalDevice physical, uint32_t *n,
                                                         mf_vk_matrix_properties *out);

#endif

/* SPDX-License-Identifier: MIT */
/* Which kernel multiplies jobs of a product, for those who dispatch them. */
#ifndef MF_BACKEND_VULKAN_VK_PRODUCT_KERNELS_H
#define MF_BACKEND_VULKAN_VK_PRODUCT_KERNELS_H

#include "backend/vulkan/vk_product.h"

/* Classes of jobs, at most: up to 1, 2, 4, 8 tokens at a time; or, for matrix units, of rising
 * numbers of tiles. */
#define MF_VK_CLASSES 5u
#define MF_VK_SLOW_CLASS 1u /* of matrix units, of weights that are not aligned */

uint32_t mf_vk_class_of(uint32_t n_tokens);
/* Of matrix units: that a device has; the best of the first n_classes; tokens and rows of a
 * workgroup. */
uint32_t mf_vk_unit_classes(const mf_vk_backend *be);
uint32_t mf_vk_unit_class(uint32_t n_tokens, uint32_t n_classes);
uint32_t mf_vk_unit_tokens(uint32_t class);
uint32_t mf_vk_unit_rows(const mf_vk_product *product);

/* How matmul_units.comp loads weights. */
typedef enum mf_vk_loads {
    MF_VK_LOADS_NARROW = 0,
    MF_VK_LOADS_WIDE,
    MF_VK_LOADS_SCALES /* wide, and the scales of 512 columns at once */
} mf_vk_loads;
/* Of a form, where its arrays are aligned. */
mf_vk_loads mf_vk_best_loads(const mf_weight_shape *shape);

/* Of jobs that are dispatched together, n_rows in all. */
typedef struct mf_vk_choice {
    mf_vk_kernel kernel;
    uint32_t n_rows, n_tokens; /* of a workgroup */
} mf_vk_choice;
/* One token each, and least_rows or more. */
mf_vk_choice mf_vk_choose_one(const mf_vk_backend *be, const mf_vk_product *product, bool is_wide,
                              uint64_t n_rows, uint32_t least_rows);
/* Several tokens, n_tokens or fewer, of one class. */
mf_vk_choice mf_vk_choose_several(const mf_vk_backend *be, const mf_vk_product *product,
                                  uint32_t class, bool is_wide, uint32_t n_tokens, uint64_t n_rows);
/* Matrix units, of one of their classes. */
mf_vk_choice mf_vk_choose_units(const mf_vk_backend *be, const mf_vk_product *product,
                                uint32_t class, bool is_wide);

#endif

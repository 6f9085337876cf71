/* SPDX-License-Identifier: MIT */
/* Engines that share a device and its pipelines: see vulkan_shared.c. */
#ifndef MF_TESTS_VULKAN_SHARED_H
#define MF_TESTS_VULKAN_SHARED_H

#include "backend/vulkan/vk_internal.h"

/* A backend that is created with these hooks shares them too; the other fields stay. */
void vulkan_share(mf_vk_hooks *hooks);

#endif

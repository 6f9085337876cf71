/* SPDX-License-Identifier: MIT */
/* Engines that share a device and its pipelines: see vulkan_shared.c. */
#ifndef MF_TESTS_VULKAN_SHARED_H
#define MF_TESTS_VULKAN_SHARED_H

#include "backend/vulkan/vk_internal.h"

/* A backend that is created with these hooks shares them too; the other fields stay. */
void vulkan_share(mf_vk_hooks *hooks);

/* mf_engine_hooks.open_backend: on the test's device, ctx being hooks or NULL. */
mf_status vulkan_open_here(void *ctx, const mf_backend_options *options, mf_backend **out,
                           mf_error *error);

#endif

/* SPDX-License-Identifier: MIT */
/* The Vulkan device that tests run on: MF_TEST_DEVICE, or the best there is. */
#ifndef MF_TESTS_VULKAN_OPEN_H
#define MF_TESTS_VULKAN_OPEN_H

#include "backend/vulkan/vulkan_backend.h"
#include "test.h"

static inline const char *vulkan_test_device(void)
{
    const char *name = getenv("MF_TEST_DEVICE");
    return name != NULL ? name : "vulkan";
}

/* Whether a list of many alike is to be cut short, which takes long on a device in software: unless
 * MF_TEST_LONG is set (make test-gpu). */
static inline bool vulkan_is_short(void)
{
    return getenv("MF_TEST_LONG") == NULL;
}

/* False where there is no device, or no Vulkan in this build: the test is to be skipped. */
static inline bool vulkan_is_there(void)
{
    mf_vulkan_device devices[MF_VULKAN_MAX_DEVICES];
    const char *why = NULL;
    if (mf_vulkan_devices(devices, &why) != 0)
        return true;
    fprintf(stderr, "skipped: %s\n", why);
    return false;
}

/* NULL where there is no device, or no Vulkan in this build: the test is to be skipped. */
static inline mf_backend *vulkan_open_with(const mf_allocator *allocator, mf_precision precision)
{
    mf_error error = {0};
    mf_backend *be = NULL;
    mf_backend_options options = {.device = vulkan_test_device(), .precision = precision};
    if (allocator != NULL)
        options.allocator = *allocator;
    if (!vulkan_is_there())
        return NULL;
    REQUIRE_OK(mf_vulkan_backend_create(&options, &be, &error), &error);
    return be;
}

static inline mf_backend *vulkan_open(const mf_allocator *allocator)
{
    return vulkan_open_with(allocator, MF_PRECISION_F32);
}

#endif

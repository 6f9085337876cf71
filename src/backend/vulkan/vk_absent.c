/* SPDX-License-Identifier: MIT */
/* In a build without Vulkan's headers: the names are known, the devices are not. */
#include "backend/vulkan/vulkan_backend.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

bool mf_vulkan_is_name(const char *device)
{
    if (device == NULL || strncmp(device, "vulkan", 6) != 0)
        return false;
    const char *number = device + 7;
    const size_t n = device[6] == ':' ? strspn(number, "0123456789") : 0;
    return device[6] == 0 ||
           (n > 0 && number[n] == 0 && strtoul(number, NULL, 10) < MF_VULKAN_MAX_DEVICES);
}

uint32_t mf_vulkan_devices(mf_vulkan_device *out, const char **why)
{
    (void)out;
    *why = "this build has no Vulkan";
    return 0;
}

mf_status mf_vulkan_backend_create(const mf_backend_options *options, mf_backend **out,
                                   mf_error *error)
{
    (void)out;
    return mf_fail(error, MF_ERR_UNSUPPORTED,
                   "device '%s': this build has no Vulkan (its headers were missing)",
                   options->device);
}

int mf_vulkan_find(const mf_vulkan_device *list, uint32_t n, const char *device)
{
    (void)list;
    (void)n;
    (void)device;
    return -1;
}

uint64_t mf_vulkan_driver_bytes(uint32_t n_threads)
{
    (void)n_threads;
    return 0;
}

uint64_t mf_vulkan_device_bytes(const mf_backend_sizes *sizes)
{
    (void)sizes;
    return 0;
}

uint64_t mf_vulkan_host_bytes(uint64_t n_rows, uint64_t n_cols)
{
    (void)n_rows;
    (void)n_cols;
    return 0;
}

/* SPDX-License-Identifier: MIT */
/* A device that the backend runs on: found, checked, opened; and what it can do. */
#ifndef MF_BACKEND_VULKAN_VK_DEVICE_H
#define MF_BACKEND_VULKAN_VK_DEVICE_H

#include "backend/vulkan/vk_api.h"
#include "backend/vulkan/vulkan_backend.h"

/* Stands between the backend and the driver, for tests: may replace functions of the table. */
typedef struct mf_vk_hooks {
    void *ctx;
    void (*loaded)(void *ctx, mf_vk_api *api); /* after all functions have been found */
    /* As if the device's memory were not the host's, and as if there were a queue for copies: it is
     * the one that computes, as another. */
    bool has_own_memory, has_copy_queue;
    /* Not 0: taken for mf_vk_device.n_resident. */
    uint32_t n_resident;
    /* NULL, or after the loader's have been found, and again after the instance's */
    void (*found)(void *ctx, mf_vk_api *api);
} mf_vk_hooks;

/* The structs of a device's features, chained. */
typedef struct mf_vk_features {
    VkPhysicalDeviceFeatures2 core;
    VkPhysicalDeviceVulkan11Features v11;
    VkPhysicalDeviceVulkan12Features v12;
    VkPhysicalDeviceVulkan13Features v13;
} mf_vk_features;

typedef struct mf_vk_device {
    mf_vk_api api;
    VkInstance instance;
    VkPhysicalDevice physical;
    VkDevice handle;
    VkQueue queue, copy_queue; /* copy_queue: another one for uploads; none: there is none */
    uint32_t family, copy_family, timestamp_bits;
    bool has_copy_family; /* copy_family has a queue that is not `queue` */
    mf_vulkan_device info;
    VkPhysicalDeviceMemoryProperties memory;
    VkPhysicalDeviceProperties properties; /* limits among them */
    uint64_t most_allocation_bytes, most_buffer_bytes;
    uint64_t import_align; /* of host memory that the device can use; 0: none */
    bool has_cooperative_matrix;
    bool has_sparse_buffers; /* larger than an allocation, of several of them */
    bool has_conditions;     /* commands that a word in memory leaves undone */
    bool keeps_small;        /* floats below the least normal one, in shaders that ask for it */
    bool has_int64_atomics;
    /* Workgroups of 512 invocations and 32 KiB that surely run all at once; 0: nobody knows. */
    uint32_t n_resident;
} mf_vk_device;

/* `name`: "vulkan", "vulkan:N" or "auto". Errors: see mf_vulkan_backend_create. */
mf_status mf_vk_device_open(mf_vk_device *d, const char *name, const mf_vk_hooks *hooks,
                            mf_error *error);
/* Takes one that is zero, or was opened in part. */
void mf_vk_device_close(mf_vk_device *d);

/* What a heap can still give: as the driver says, or its size less what is taken. */
uint64_t mf_vk_heap_free(const mf_vk_device *d, uint32_t heap, uint64_t taken_bytes);

/* vk_features.c: what the device is and can do, and what of the needed it lacks. */
void mf_vk_features_get(const mf_vk_api *api, VkPhysicalDevice physical, mf_vk_features *f);
/* Leaves what is needed or used, for the device's creation. */
void mf_vk_features_wanted(mf_vk_features *f);
void mf_vk_describe(const mf_vk_api *api, VkPhysicalDevice physical, mf_vulkan_device *out);
#define MF_VK_PUSH_BYTES 128     /* what every device has */
#define MF_VK_MOST_GROUPS 65535u /* of a dispatch in x, in y, in z: likewise */
/* What every device needs of a workgroup's shared memory: matvec.comp has eight tokens' columns of
 * a tile, a sum of each invocation, and the levels of blocks. Vulkan allows for 16,384. */
#define MF_VK_LEAST_SHARED_BYTES (16384u + 512u + 64u)
/* What matmul_units.comp takes of it without matrix units. */
#define MF_VK_PLAIN_SHARED_BYTES 23040u
/* vk_halves.c: whether the device has the matrix units that the shaders are written for. */
bool mf_vk_has_units(const mf_vulkan_device *info);
bool mf_vk_has_extension(const VkExtensionProperties *list, uint32_t n, const char *name);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The Vulkan backend: GPUs through Vulkan 1.3, found when the program runs. Devices are called
 * "vulkan" (the best there is) and "vulkan:N", in the order of mf_vulkan_devices.
 */
#ifndef MF_BACKEND_VULKAN_VULKAN_BACKEND_H
#define MF_BACKEND_VULKAN_VULKAN_BACKEND_H

#include "backend/backend.h"

#define MF_VULKAN_MAX_DEVICES 16
#define MF_VULKAN_MAX_MATRICES 32

/* A shape that a device's matrix units multiply: [m, k] by [k, n], of these types. */
typedef struct mf_vulkan_matrix {
    uint32_t m, n, k;
    const char *input, *sum; /* "f16", "bf16", "f32", "s8", "u8", "s32", "u32" */
} mf_vulkan_matrix;

typedef struct mf_vulkan_device {
    char name[256], driver[256];
    const char *kind;                  /* "discrete", "integrated", "virtual", "software" */
    const char *unusable;              /* what the backend needs and it lacks; NULL: nothing */
    uint64_t memory_bytes, free_bytes; /* of the device; free_bytes 0: not known */
    bool is_unified;                   /* that memory is the host's own */
    uint32_t subgroup_size, least_subgroup, most_subgroup;
    uint32_t shared_bytes;
    bool has_f16, has_int8, has_int_dot, has_memory_budget, has_host_import;
    uint32_t n_matrices;
    mf_vulkan_matrix matrices[MF_VULKAN_MAX_MATRICES];
} mf_vulkan_device;

/* The devices, at most MF_VULKAN_MAX_DEVICES; returns how many. Where there is no Vulkan: 0, and
 * *why says so in a few words. */
uint32_t mf_vulkan_devices(mf_vulkan_device *out, const char **why);
/* Whether the name is one of this backend's. */
bool mf_vulkan_is_name(const char *device);

/* Errors: MF_ERR_ARGUMENT (there is no such device), MF_ERR_UNSUPPORTED (no Vulkan, or the device
 * lacks what the message says), MF_ERR_NO_MEMORY, MF_ERR_IO. */
mf_status mf_vulkan_backend_create(const mf_backend_options *options, mf_backend **out,
                                   mf_error *error);
/* See mf_backend_host_bytes. */
uint64_t mf_vulkan_host_bytes(uint64_t n_rows, uint64_t n_cols);

#endif

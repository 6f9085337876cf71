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
    char api[16];                      /* the version of Vulkan that it has: "1.3.242" */
    const char *kind;                  /* "discrete", "integrated", "virtual", "software" */
    const char *unusable;              /* what the backend needs and it lacks; NULL: nothing */
    uint64_t memory_bytes, free_bytes; /* where operands lie; see has_memory_budget */
    bool is_unified;                   /* that memory is the host's own */
    uint32_t subgroup_size, least_subgroup, most_subgroup;
    uint32_t shared_bytes;
    bool has_f16, has_int8, has_int_dot, has_host_import;
    bool has_memory_budget; /* free_bytes is known, be it 0 */
    bool has_units;         /* matrix units of the shape that operations that are long use */
    uint32_t n_matrices;
    mf_vulkan_matrix matrices[MF_VULKAN_MAX_MATRICES];
} mf_vulkan_device;

/* The devices, at most MF_VULKAN_MAX_DEVICES; returns how many. Where there is no Vulkan: 0, and
 * *why says so in a few words. */
uint32_t mf_vulkan_devices(mf_vulkan_device *out, const char **why);
/* Whether the name is one of this backend's. */
bool mf_vulkan_is_name(const char *device);
/* Which of them it names; -1: none. */
int mf_vulkan_find(const mf_vulkan_device *list, uint32_t n, const char *device);
/* Of free bytes of a device's own memory, what is taken where nothing is promised: its driver, and
 * whoever else has it, need some. */
static inline uint64_t mf_vulkan_default_bytes(uint64_t free_bytes)
{
    const uint64_t margin = free_bytes / 32 + ((uint64_t)128 << 20);
    return free_bytes > margin ? free_bytes - margin : 1; /* 0 is what is not known */
}
/* What is free of it as far as that is known, never 0: else all there is. */
static inline uint64_t mf_vulkan_known_bytes(const mf_vulkan_device *d)
{
    if (d->free_bytes != 0)
        return d->free_bytes;
    return d->has_memory_budget || d->memory_bytes == 0 ? 1 : d->memory_bytes;
}

/* Errors: MF_ERR_ARGUMENT (there is no such device), MF_ERR_UNSUPPORTED (no Vulkan, or the device
 * lacks what the message says), MF_ERR_NO_MEMORY, MF_ERR_IO. */
mf_status mf_vulkan_backend_create(const mf_backend_options *options, mf_backend **out,
                                   mf_error *error);
/* See mf_backend_host_bytes, mf_backend_driver_bytes, mf_backend_device_bytes. */
uint64_t mf_vulkan_host_bytes(uint64_t n_rows, uint64_t n_cols);
uint64_t mf_vulkan_driver_bytes(uint32_t n_threads);
uint64_t mf_vulkan_device_bytes(const mf_backend_sizes *sizes);

#endif

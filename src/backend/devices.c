/* SPDX-License-Identifier: MIT */
/* The list of devices, their names, and the choice that `auto` is. */
#include "backend/devices.h"

#include "backend/vulkan/vulkan_backend.h"
#include "base/cgroup.h"
#include "base/cpu.h"
#include "base/memory_limits.h"
#include "base/numa.h"
#include "base/sized.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

/* ------------------------------------------------------------------------------- the list -- */

static void describe_cpu(mf_device_info *out)
{
    const mf_cpu_tier tier = mf_cpu_best();
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    *out = (mf_device_info){.struct_bytes = sizeof *out, .shares_memory = 1};
    (void)snprintf(out->id, sizeof out->id, "cpu");
    (void)snprintf(out->kind, sizeof out->kind, "cpu");
    (void)snprintf(out->name, sizeof out->name, "%u threads, %s", mf_cpu_count(),
                   mf_cpu_tier_name(tier));
    mf_cpu_list_tiers(out->tiers, sizeof out->tiers);
    const uint32_t n_paid = mf_cgroup_cpu_limit(MF_CGROUP_SELF, MF_CGROUP_MOUNT);
    out->n_paid_cpus = n_paid == UINT32_MAX ? 0 : n_paid;
    out->memory_bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    out->free_bytes = mf_memory_available_bytes();
    mf_numa_nodes nodes;
    out->n_nodes = mf_numa_find(&nodes, &out->numa_use);
}

static void describe_gpu(const mf_vulkan_device *d, uint32_t number, mf_device_info *out)
{
    *out = (mf_device_info){.struct_bytes = sizeof *out,
                            .memory_bytes = d->memory_bytes,
                            .free_bytes = d->free_bytes,
                            .shares_memory = d->is_unified,
                            .has_matrix_units = d->has_units};
    (void)snprintf(out->id, sizeof out->id, "vulkan:%u", number);
    (void)snprintf(out->kind, sizeof out->kind, "%s", d->kind);
    (void)snprintf(out->name, sizeof out->name, "%s", d->name);
    (void)snprintf(out->driver, sizeof out->driver, "%s", d->driver);
    (void)snprintf(out->api, sizeof out->api, "Vulkan %s", d->api);
    (void)snprintf(out->lacks, sizeof out->lacks, "%s", d->unusable != NULL ? d->unusable : "");
}

size_t mf_device_list_sized(mf_device_info *out, size_t capacity, size_t struct_bytes,
                            mf_error *no_gpu)
{
    mf_vulkan_device list[MF_VULKAN_MAX_DEVICES];
    const char *why = NULL;
    const uint32_t n = mf_vulkan_devices(list, &why);
    if (no_gpu != NULL)
        *no_gpu = (mf_error){0};
    if (n == 0)
        (void)mf_fail(no_gpu, MF_ERR_UNSUPPORTED, "%s", why);
    for (size_t i = 0; i < capacity && i < (size_t)n + 1 && out != NULL; i++) {
        mf_device_info info;
        if (i == 0)
            describe_cpu(&info);
        else
            describe_gpu(&list[i - 1], (uint32_t)i - 1, &info);
        mf_sized_put((mf_device_info *)(void *)((char *)out + i * struct_bytes), struct_bytes,
                     &info, sizeof info);
    }
    return (size_t)n + 1;
}

/* -------------------------------------------------------------------------------- by name -- */

static void place_of(const mf_vulkan_device *d, uint32_t number, uint64_t device_bytes,
                     mf_device_place *out)
{
    const uint64_t known = mf_vulkan_known_bytes(d);
    *out = (mf_device_place){
        .takes_promise = true, .has_memory = !d->is_unified, .has_units = d->has_units};
    (void)snprintf(out->name, sizeof out->name, "vulkan:%u", number);
    if (device_bytes != 0)
        out->n_bytes = out->has_memory && device_bytes > known ? known : device_bytes;
    else if (out->has_memory)
        out->n_bytes = mf_vulkan_default_bytes(known);
}

/* ", vulkan:0 (NVIDIA H200), vulkan:1 (llvmpipe)" */
static void name_all(const mf_vulkan_device *list, uint32_t n, char *out, size_t capacity)
{
    size_t at = 0;
    *out = '\0';
    for (uint32_t i = 0; i < n; i++) {
        const int m = snprintf(out + at, capacity - at, ", vulkan:%u (%.60s)", i, list[i].name);
        if (m < 0 || (size_t)m >= capacity - at)
            return;
        at += (size_t)m;
    }
}

mf_status mf_device_find(const char *option, const char *name, uint64_t device_bytes,
                         mf_device_place *out, mf_error *error)
{
    mf_vulkan_device list[MF_VULKAN_MAX_DEVICES];
    const char *why = NULL;
    char names[256];
    MF_TRY(mf_backend_check_device(option, name, error));
    if (!mf_vulkan_is_name(name)) {
        *out = (mf_device_place){.name = "cpu"};
        return MF_OK;
    }
    const uint32_t n = mf_vulkan_devices(list, &why);
    const int i = n == 0 ? -1 : mf_vulkan_find(list, n, name);
    if (n == 0)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s '%s': %s; there are: auto, cpu", option, name,
                       why);
    name_all(list, n, names, sizeof names);
    if (i < 0)
        return mf_fail(error, MF_ERR_ARGUMENT, "%s '%s' is not there; there are: auto, cpu%s",
                       option, name, names);
    if (list[i].unusable != NULL)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s '%s' (%s) lacks %s", option, name,
                       list[i].name, list[i].unusable);
    place_of(&list[i], (uint32_t)i, device_bytes, out);
    return MF_OK;
}

/* ----------------------------------------------------------------------------- the choice -- */

/* Whether the system has anything that a GPU's driver could drive: to load drivers takes memory,
 * and time, and is left out where it is for nothing. */
static bool may_have_gpu(void)
{
#ifdef __linux__
    static const char *const nodes[] = {"/dev/nvidia0", "/dev/nvidiactl", "/dev/kfd", "/dev/dxg"};
    char path[32];
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++)
        if (access(nodes[i], F_OK) == 0)
            return true;
    for (int i = 128; i < 128 + 64; i++) {
        (void)snprintf(path, sizeof path, "/dev/dri/renderD%d", i);
        if (access(path, F_OK) == 0)
            return true;
    }
    return false;
#else
    return true;
#endif
}

static uint64_t bytes_for(const mf_vulkan_device *d, const mf_device_needs *needs)
{
    mf_device_place place;
    place_of(d, 0, needs->device_bytes, &place);
    return place.n_bytes;
}

int mf_device_choose_of(const mf_vulkan_device *list, uint32_t n, const mf_device_needs *needs,
                        char why[MF_DEVICE_WHY_BYTES])
{
    int best = -1;
    (void)snprintf(why, MF_DEVICE_WHY_BYTES, "no discrete GPU is there");
    for (uint32_t i = 0; i < n; i++) {
        const mf_vulkan_device *d = &list[i];
        const uint64_t has = bytes_for(d, needs);
        if (strcmp(d->kind, "discrete") != 0)
            continue;
        if (d->unusable != NULL)
            (void)snprintf(why, MF_DEVICE_WHY_BYTES, "%.60s lacks %.60s", d->name, d->unusable);
        else if (has < needs->least_bytes)
            (void)snprintf(why, MF_DEVICE_WHY_BYTES,
                           "%.60s has %llu MiB for it, at least %llu MiB are needed", d->name,
                           (unsigned long long)(has / MIB),
                           (unsigned long long)((needs->least_bytes + MIB - 1) / MIB));
        else if (best < 0 || has > bytes_for(&list[best], needs))
            best = (int)i;
    }
    if (best >= 0)
        (void)snprintf(why, MF_DEVICE_WHY_BYTES, "%.120s", list[best].name);
    return best;
}

void mf_device_choose(const mf_device_needs *needs, mf_device_place *out,
                      char why[MF_DEVICE_WHY_BYTES])
{
    mf_vulkan_device list[MF_VULKAN_MAX_DEVICES];
    const char *none = NULL;
    int best = -1;
    *out = (mf_device_place){.name = "cpu"};
    if (!may_have_gpu()) {
        (void)snprintf(why, MF_DEVICE_WHY_BYTES, "no GPU is there");
        return;
    }
    if (!needs->has_room_for_host) {
        (void)snprintf(why, MF_DEVICE_WHY_BYTES, "the budget has no room for a GPU's driver");
        return;
    }
    const uint32_t n = mf_vulkan_devices(list, &none);
    if (n == 0)
        (void)snprintf(why, MF_DEVICE_WHY_BYTES, "%.100s", none);
    else
        best = mf_device_choose_of(list, n, needs, why);
    if (best >= 0)
        place_of(&list[best], (uint32_t)best, needs->device_bytes, out);
}

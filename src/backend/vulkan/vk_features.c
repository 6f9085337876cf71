/* SPDX-License-Identifier: MIT */
/* What a device is and can do. */
#include "backend/vulkan/vk_device.h"
#include "backend/vulkan/vk_matrix.h"

#include <stdio.h>
#include <string.h>

#define MOST_EXTENSIONS 512
#define MOST_MATRICES 64

bool mf_vk_has_extension(const VkExtensionProperties *list, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(list[i].extensionName, name) == 0)
            return true;
    return false;
}

void mf_vk_features_get(const mf_vk_api *api, VkPhysicalDevice physical, mf_vk_features *f)
{
    memset(f, 0, sizeof *f);
    f->core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    f->core.pNext = &f->v11;
    f->v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
    f->v11.pNext = &f->v12;
    f->v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
    f->v12.pNext = &f->v13;
    f->v13.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES;
    api->GetPhysicalDeviceFeatures2(physical, &f->core);
}

/* The first needed feature that is missing. */
static const char *lacks(const mf_vk_features *f)
{
    const struct {
        VkBool32 is_there;
        const char *name;
    } needed[] = {
        {f->core.features.shaderInt64, "64-bit integers in shaders"},
        {f->core.features.shaderInt16, "16-bit integers in shaders"},
        {f->v11.storageBuffer16BitAccess, "16-bit storage"},
        {f->v12.storageBuffer8BitAccess, "8-bit storage"},
        {f->v12.shaderInt8, "8-bit integers in shaders"},
        {f->v12.bufferDeviceAddress, "buffer device addresses"},
        {f->v12.timelineSemaphore, "timeline semaphores"},
        {f->v12.scalarBlockLayout, "scalar block layout"},
        {f->v13.synchronization2, "synchronization2"},
        {f->v13.maintenance4, "maintenance4"},
    };
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!needed[i].is_there)
            return needed[i].name;
    return NULL;
}

/* The first needed size that is less than what the name says. */
static const char *lacks_room(const VkPhysicalDeviceLimits *l, uint64_t most_allocation_bytes)
{
    const struct {
        uint64_t has, needed;
        const char *name;
    } limits[] = {
        {l->maxPushConstantsSize, MF_VK_PUSH_BYTES, "128 bytes of push constants"},
        {l->maxComputeWorkGroupInvocations, 256, "256 invocations of a workgroup"},
        {l->maxComputeWorkGroupSize[0], 256, "256 invocations of a workgroup in x"},
        {l->maxComputeWorkGroupCount[0], MF_VK_MOST_GROUPS, "65535 workgroups in x"},
        {l->maxComputeWorkGroupCount[1], MF_VK_MOST_GROUPS, "65535 workgroups in y"},
        {l->maxComputeSharedMemorySize, MF_VK_LEAST_SHARED_BYTES,
         "17 KiB of a workgroup's shared memory"},
        {most_allocation_bytes, (uint64_t)1 << 30, "allocations of 1 GiB"},
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (limits[i].has < limits[i].needed)
            return limits[i].name;
    return NULL;
}

void mf_vk_features_wanted(mf_vk_features *f)
{
    const mf_vk_features has = *f;
    f->core.features = (VkPhysicalDeviceFeatures){
        .shaderInt64 = VK_TRUE,
        .shaderInt16 = VK_TRUE,
        .sparseBinding = has.core.features.sparseBinding,
    };
    f->v11 = (VkPhysicalDeviceVulkan11Features){
        .sType = has.v11.sType, .pNext = &f->v12, .storageBuffer16BitAccess = VK_TRUE};
    f->v12 = (VkPhysicalDeviceVulkan12Features){
        .sType = has.v12.sType,
        .pNext = &f->v13,
        .storageBuffer8BitAccess = VK_TRUE,
        .shaderInt8 = VK_TRUE,
        .shaderBufferInt64Atomics = has.v12.shaderBufferInt64Atomics,
        .shaderFloat16 = has.v12.shaderFloat16,
        .bufferDeviceAddress = VK_TRUE,
        .timelineSemaphore = VK_TRUE,
        .scalarBlockLayout = VK_TRUE,
        .vulkanMemoryModel = has.v12.vulkanMemoryModel,
        .vulkanMemoryModelDeviceScope = has.v12.vulkanMemoryModelDeviceScope,
    };
    f->v13 = (VkPhysicalDeviceVulkan13Features){
        .sType = has.v13.sType,
        .synchronization2 = VK_TRUE,
        .maintenance4 = VK_TRUE,
        .subgroupSizeControl = has.v13.subgroupSizeControl,
        .computeFullSubgroups = has.v13.computeFullSubgroups,
        .shaderIntegerDotProduct = has.v13.shaderIntegerDotProduct,
    };
}

static const char *type_name(uint32_t type)
{
    static const char *const names[] = {"f16", "f32", "f64", "s8",  "s16", "s32",
                                        "s64", "u8",  "u16", "u32", "u64"};
    if (type == 1000141000)
        return "bf16";
    return type < sizeof names / sizeof *names ? names[type] : "?";
}

static void describe_matrices(const mf_vk_api *api, VkPhysicalDevice physical,
                              mf_vulkan_device *out)
{
    mf_vk_matrix_properties list[MOST_MATRICES];
    uint32_t n = MOST_MATRICES;
    if (api->GetPhysicalDeviceCooperativeMatrixPropertiesKHR == NULL)
        return;
    memset(list, 0, sizeof list);
    for (uint32_t i = 0; i < MOST_MATRICES; i++)
        list[i].sType = (VkStructureType)MF_VK_STYPE_MATRIX_PROPERTIES;
    const mf_vk_get_matrix_properties get =
        (mf_vk_get_matrix_properties)api->GetPhysicalDeviceCooperativeMatrixPropertiesKHR;
    if (get(physical, &n, list) < 0)
        return;
    for (uint32_t i = 0; i < n && out->n_matrices < MF_VULKAN_MAX_MATRICES; i++) {
        const mf_vk_matrix_properties *p = &list[i];
        if (p->scope != MF_VK_SCOPE_SUBGROUP || p->a_type != p->b_type || p->saturates)
            continue;
        out->matrices[out->n_matrices++] =
            (mf_vulkan_matrix){p->m, p->n, p->k, type_name(p->a_type), type_name(p->result_type)};
    }
}

static void describe_extensions(const mf_vk_api *api, VkPhysicalDevice physical,
                                mf_vulkan_device *out)
{
    static const char *const budget = "VK_EXT_memory_budget";
    VkExtensionProperties list[MOST_EXTENSIONS];
    uint32_t n = MOST_EXTENSIONS;
    if (api->EnumerateDeviceExtensionProperties(physical, NULL, &n, list) < 0)
        return;
    out->has_memory_budget = mf_vk_has_extension(list, n, budget);
    out->has_host_import = mf_vk_has_extension(list, n, "VK_EXT_external_memory_host");
    if (mf_vk_has_extension(list, n, MF_VK_COOPERATIVE_MATRIX))
        describe_matrices(api, physical, out);
}

static const char *kind_name(VkPhysicalDeviceType type)
{
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
        return "discrete";
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
        return "integrated";
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
        return "software";
    default:
        return "virtual";
    }
}

static void describe_memory(const mf_vk_api *api, VkPhysicalDevice physical, mf_vulkan_device *out)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 memory = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
        .pNext = out->has_memory_budget ? &budget : NULL};
    api->GetPhysicalDeviceMemoryProperties2(physical, &memory);
    for (uint32_t i = 0; i < memory.memoryProperties.memoryHeapCount; i++) {
        const VkMemoryHeap *heap = &memory.memoryProperties.memoryHeaps[i];
        if ((heap->flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) == 0 || heap->size <= out->memory_bytes)
            continue;
        /* some drivers' budgets are larger than the heap */
        const uint64_t most = budget.heapBudget[i] < heap->size ? budget.heapBudget[i] : heap->size;
        out->memory_bytes = heap->size;
        out->free_bytes = most > budget.heapUsage[i] ? most - budget.heapUsage[i] : 0;
    }
}

void mf_vk_describe(const mf_vk_api *api, VkPhysicalDevice physical, mf_vulkan_device *out)
{
    VkPhysicalDeviceVulkan13Properties v13 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES};
    VkPhysicalDeviceVulkan12Properties v12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES, .pNext = &v13};
    VkPhysicalDeviceVulkan11Properties v11 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES, .pNext = &v12};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                     .pNext = &v11};
    mf_vk_features features;
    memset(out, 0, sizeof *out);
    api->GetPhysicalDeviceProperties2(physical, &p);
    (void)snprintf(out->name, sizeof out->name, "%s", p.properties.deviceName);
    (void)snprintf(out->driver, sizeof out->driver, "%.120s %.120s", v12.driverName,
                   v12.driverInfo);
    out->kind = kind_name(p.properties.deviceType);
    out->is_unified = p.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU ||
                      p.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    out->shared_bytes = p.properties.limits.maxComputeSharedMemorySize;
    (void)snprintf(out->api, sizeof out->api, "%u.%u.%u",
                   VK_API_VERSION_MAJOR(p.properties.apiVersion),
                   VK_API_VERSION_MINOR(p.properties.apiVersion),
                   VK_API_VERSION_PATCH(p.properties.apiVersion));
    if (p.properties.apiVersion < VK_API_VERSION_1_3) {
        out->unusable = "Vulkan 1.3";
        return;
    }
    mf_vk_features_get(api, physical, &features);
    out->subgroup_size = v11.subgroupSize;
    out->least_subgroup = v13.minSubgroupSize;
    out->most_subgroup = v13.maxSubgroupSize;
    out->has_f16 = features.v12.shaderFloat16;
    out->has_int8 = features.v12.shaderInt8;
    out->has_int_dot =
        features.v13.shaderIntegerDotProduct && v13.integerDotProduct4x8BitPackedSignedAccelerated;
    out->unusable = lacks(&features);
    if (out->unusable == NULL &&
        (v11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT) == 0)
        out->unusable = "subgroup arithmetic";
    if (out->unusable == NULL &&
        (v11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT) == 0)
        out->unusable = "subgroup shuffles";
    if (out->unusable == NULL)
        out->unusable = lacks_room(&p.properties.limits, v11.maxMemoryAllocationSize);
    describe_extensions(api, physical, out);
    describe_memory(api, physical, out);
    out->has_units = mf_vk_has_units(out);
}

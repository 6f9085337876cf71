/* SPDX-License-Identifier: MIT */
/* Instances and devices: the list, the choice, the opening. */
#include "backend/vulkan/vk_device.h"
#include "backend/vulkan/vk_matrix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORTABILITY_SUBSET "VK_KHR_portability_subset"
#define MOST_EXTENSIONS 512

/* ------------------------------------------------------------------------------- the list -- */

static void say_found(const mf_vk_hooks *hooks, mf_vk_api *api)
{
    if (hooks != NULL && hooks->found != NULL)
        hooks->found(hooks->ctx, api);
}

static mf_status instance_open(mf_vk_device *d, const mf_vk_hooks *hooks, mf_error *error)
{
    MF_TRY(mf_vk_api_open(&d->api, error));
    say_found(hooks, &d->api);
    uint32_t version = VK_API_VERSION_1_0;
    (void)d->api.EnumerateInstanceVersion(&version);
    if (version < VK_API_VERSION_1_3)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "the Vulkan loader knows %u.%u, 1.3 is needed",
                       VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version));
    const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                           .pApplicationName = "moeflux",
                                           .pEngineName = "moeflux",
                                           .apiVersion = VK_API_VERSION_1_3};
    /* MoltenVK is listed only to those who know that it is not the whole of Vulkan. */
    static const char *const portability[] = {"VK_KHR_portability_enumeration"};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                 .flags = VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR,
                                 .pApplicationInfo = &application,
                                 .enabledExtensionCount = 1,
                                 .ppEnabledExtensionNames = portability};
    VkResult result = d->api.CreateInstance(&info, NULL, &d->instance);
    if (result == VK_ERROR_EXTENSION_NOT_PRESENT) {
        info.flags = 0;
        info.enabledExtensionCount = 0;
        result = d->api.CreateInstance(&info, NULL, &d->instance);
    }
    if (result != VK_SUCCESS) {
        d->instance = VK_NULL_HANDLE;
        return mf_vk_fail(error, result, "opening Vulkan");
    }
    MF_TRY(mf_vk_api_load_instance(&d->api, d->instance, error));
    say_found(hooks, &d->api);
    return MF_OK;
}

static mf_status physical_devices(const mf_vk_device *d, VkPhysicalDevice *list, uint32_t *n,
                                  mf_error *error)
{
    *n = MF_VULKAN_MAX_DEVICES;
    VkResult result = d->api.EnumeratePhysicalDevices(d->instance, n, list);
    if (result != VK_SUCCESS && result != VK_INCOMPLETE)
        return mf_vk_fail(error, result, "looking for Vulkan devices");
    return MF_OK;
}

uint32_t mf_vulkan_devices(mf_vulkan_device *out, const char **why)
{
    mf_vk_device d = {0};
    VkPhysicalDevice list[MF_VULKAN_MAX_DEVICES];
    uint32_t n = 0;
    mf_error error;
    *why = "there is no Vulkan device";
    mf_status status = instance_open(&d, NULL, &error);
    if (d.api.library == NULL)
        *why = "there is no Vulkan loader";
    else if (status != MF_OK)
        *why = "there is no Vulkan 1.3 driver";
    if (status != MF_OK || physical_devices(&d, list, &n, &error) != MF_OK)
        n = 0;
    for (uint32_t i = 0; i < n; i++)
        mf_vk_describe(&d.api, list[i], &out[i]);
    mf_vk_device_close(&d);
    return n;
}

/* ----------------------------------------------------------------------------- the choice -- */

/* "vulkan:N": N; others: -1. -2: none of this backend's names. */
static long number_of(const char *name)
{
    char *end;
    if (strcmp(name, "vulkan") == 0)
        return -1;
    if (strncmp(name, "vulkan:", 7) != 0 || name[7] < '0' || name[7] > '9')
        return -2;
    long n = strtol(name + 7, &end, 10);
    return *end == 0 && n < MF_VULKAN_MAX_DEVICES ? n : -2;
}

bool mf_vulkan_is_name(const char *device)
{
    return device != NULL && number_of(device) != -2;
}

static int rank(const mf_vulkan_device *device)
{
    static const char *const kinds[] = {"software", "virtual", "integrated", "discrete"};
    if (device->unusable != NULL)
        return -1;
    for (int i = 3; i > 0; i--)
        if (strcmp(device->kind, kinds[i]) == 0)
            return i;
    return 0;
}

int mf_vulkan_find(const mf_vulkan_device *list, uint32_t n, const char *device)
{
    const long wanted = number_of(device);
    int best = -1;
    if (wanted >= 0)
        return wanted < (long)n ? (int)wanted : -1;
    for (uint32_t i = 0; i < n; i++)
        if (best < 0 || rank(&list[i]) > rank(&list[best]))
            best = (int)i;
    return best;
}

/* Fills d->physical and d->info. */
static mf_status choose(mf_vk_device *d, const char *name, mf_error *error)
{
    VkPhysicalDevice list[MF_VULKAN_MAX_DEVICES];
    uint32_t n = 0;
    mf_vulkan_device infos[MF_VULKAN_MAX_DEVICES];
    MF_TRY(physical_devices(d, list, &n, error));
    for (uint32_t i = 0; i < n; i++)
        mf_vk_describe(&d->api, list[i], &infos[i]);
    const int best = mf_vulkan_find(infos, n, name);
    if (best >= 0) {
        d->physical = list[best];
        d->info = infos[best];
    }
    if (d->physical == VK_NULL_HANDLE)
        return mf_fail(error, MF_ERR_ARGUMENT, "device '%s' is not there; Vulkan devices: %u", name,
                       n);
    if (d->info.unusable != NULL)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "device '%s' (%s) lacks %s", name, d->info.name,
                       d->info.unusable);
    return MF_OK;
}

/* ---------------------------------------------------------------------------- the opening -- */

static void read_limits(mf_vk_device *d)
{
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT host = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
    VkPhysicalDeviceVulkan13Properties v13 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES,
        .pNext = d->info.has_host_import ? &host : NULL};
    VkPhysicalDeviceVulkan12Properties v12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES, .pNext = &v13};
    VkPhysicalDeviceVulkan11Properties v11 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES, .pNext = &v12};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                     .pNext = &v11};
    VkPhysicalDeviceMemoryProperties2 memory = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    d->api.GetPhysicalDeviceProperties2(d->physical, &p);
    d->api.GetPhysicalDeviceMemoryProperties2(d->physical, &memory);
    d->memory = memory.memoryProperties;
    d->properties = p.properties;
    d->most_allocation_bytes = v11.maxMemoryAllocationSize;
    d->most_buffer_bytes = v13.maxBufferSize;
    d->keeps_small = v12.shaderDenormPreserveFloat32 != VK_FALSE;
    d->import_align = host.minImportedHostPointerAlignment;
}

/* A family that computes; rather one that draws too: it is the one that drivers care for. */
static mf_status choose_family(mf_vk_device *d, mf_error *error)
{
    VkQueueFamilyProperties families[32];
    uint32_t n = 32;
    bool found = false;
    d->api.GetPhysicalDeviceQueueFamilyProperties(d->physical, &n, families);
    for (uint32_t i = n; i-- > 0;) {
        if ((families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) == 0)
            continue;
        if (!found || (families[i].queueFlags & VK_QUEUE_GRAPHICS_BIT) != 0) {
            d->family = i;
            d->timestamp_bits = families[i].timestampValidBits;
            d->has_sparse_buffers = (families[i].queueFlags & VK_QUEUE_SPARSE_BINDING_BIT) != 0;
        }
        found = true;
    }
    if (!found)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s has no queue that computes", d->info.name);
    return MF_OK;
}

/* A queue for copies beside the one that computes: of a family that only copies (a device's DMA
 * engine), or one more of the same. Uploads want no other. */
static void choose_copy_family(mf_vk_device *d)
{
    const VkQueueFlags others = VK_QUEUE_COMPUTE_BIT | VK_QUEUE_GRAPHICS_BIT;
    VkQueueFamilyProperties families[32];
    uint32_t n = 32;
    d->api.GetPhysicalDeviceQueueFamilyProperties(d->physical, &n, families);
    d->copy_family = d->family;
    d->has_copy_family = families[d->family].queueCount > 1;
    for (uint32_t i = n; i-- > 0;) {
        if ((families[i].queueFlags & VK_QUEUE_TRANSFER_BIT) == 0 ||
            (families[i].queueFlags & others) != 0)
            continue;
        d->copy_family = i;
        d->has_copy_family = true;
    }
}

/* Of those that are used, the ones that there are. */
static uint32_t choose_extensions(mf_vk_device *d, const char **out)
{
    static const char *const used[] = {"VK_EXT_memory_budget", "VK_EXT_external_memory_host",
                                       PORTABILITY_SUBSET, MF_VK_COOPERATIVE_MATRIX,
                                       VK_EXT_CONDITIONAL_RENDERING_EXTENSION_NAME};
    VkExtensionProperties list[MOST_EXTENSIONS];
    uint32_t n = MOST_EXTENSIONS, n_out = 0;
    if (d->api.EnumerateDeviceExtensionProperties(d->physical, NULL, &n, list) < 0)
        return 0;
    for (size_t i = 0; i < sizeof used / sizeof *used; i++) {
        if (!mf_vk_has_extension(list, n, used[i]))
            continue;
        if (strcmp(used[i], MF_VK_COOPERATIVE_MATRIX) == 0) {
            if (d->info.n_matrices == 0)
                continue; /* the extension's bit proves nothing */
            d->has_cooperative_matrix = true;
        }
        if (strcmp(used[i], VK_EXT_CONDITIONAL_RENDERING_EXTENSION_NAME) == 0)
            d->has_conditions = true;
        out[n_out++] = used[i];
    }
    return n_out;
}

/* Which the extension has to have. */
static const VkPhysicalDeviceConditionalRenderingFeaturesEXT condition_features = {
    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_CONDITIONAL_RENDERING_FEATURES_EXT,
    .conditionalRendering = VK_TRUE};

static mf_status device_create(mf_vk_device *d, mf_error *error)
{
    mf_vk_features features;
    const char *extensions[8];
    const float priorities[] = {1.0f, 1.0f};
    mf_vk_matrix_features matrix = {.sType = (VkStructureType)MF_VK_STYPE_MATRIX_FEATURES,
                                    .cooperativeMatrix = VK_TRUE};
    VkPhysicalDeviceConditionalRenderingFeaturesEXT conditions = condition_features;
    mf_vk_features_get(&d->api, d->physical, &features);
    mf_vk_features_wanted(&features);
    d->has_int64_atomics = features.v12.shaderBufferInt64Atomics != VK_FALSE;
    d->has_sparse_buffers &= features.core.features.sparseBinding != VK_FALSE;
    const bool has_family = d->has_copy_family && d->copy_family != d->family;
    const VkDeviceQueueCreateInfo queues[] = {
        {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
         .queueFamilyIndex = d->family,
         .queueCount = d->has_copy_family && !has_family ? 2 : 1,
         .pQueuePriorities = priorities},
        {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
         .queueFamilyIndex = d->copy_family,
         .queueCount = 1,
         .pQueuePriorities = priorities}};
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .pNext = &features.core,
                               .queueCreateInfoCount = has_family ? 2 : 1,
                               .pQueueCreateInfos = queues,
                               .ppEnabledExtensionNames = extensions};
    info.enabledExtensionCount = choose_extensions(d, extensions);
    if (d->has_cooperative_matrix)
        features.v13.pNext = &matrix;
    conditions.pNext = features.v13.pNext;
    if (d->has_conditions)
        features.v13.pNext = &conditions;
    VkResult result = d->api.CreateDevice(d->physical, &info, NULL, &d->handle);
    if (result != VK_SUCCESS) {
        d->handle = VK_NULL_HANDLE;
        return mf_vk_fail(error, result, "opening the Vulkan device");
    }
    return MF_OK;
}

/* Vulkan promises no dispatch that its workgroups run beside each other. NVIDIA's devices start all
 * that have room, and say how many multiprocessors they have; each has room for one of those. */
static void find_resident(mf_vk_device *d, const mf_vk_hooks *hooks)
{
    static const char *const builtins = "VK_NV_shader_sm_builtins";
    VkPhysicalDeviceShaderSMBuiltinsPropertiesNV sm = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV};
    VkPhysicalDeviceVulkan12Properties v12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES, .pNext = &sm};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                     .pNext = &v12};
    const VkPhysicalDeviceLimits *l = &d->properties.limits;
    VkExtensionProperties list[MOST_EXTENSIONS];
    uint32_t n = MOST_EXTENSIONS;
    const bool has_room = d->has_int64_atomics && l->maxComputeWorkGroupInvocations >= 512 &&
                          l->maxComputeSharedMemorySize >= 32u << 10;
    if (has_room && hooks != NULL)
        d->n_resident = hooks->n_resident;
    if (!has_room || d->n_resident != 0 ||
        d->api.EnumerateDeviceExtensionProperties(d->physical, NULL, &n, list) < 0 ||
        !mf_vk_has_extension(list, n, builtins))
        return;
    d->api.GetPhysicalDeviceProperties2(d->physical, &p);
    if (v12.driverID == VK_DRIVER_ID_NVIDIA_PROPRIETARY && sm.shaderWarpsPerSM >= 16)
        d->n_resident = sm.shaderSMCount;
}

mf_status mf_vk_device_open(mf_vk_device *d, const char *name, const mf_vk_hooks *hooks,
                            mf_error *error)
{
    memset(d, 0, sizeof *d);
    mf_status status = instance_open(d, hooks, error);
    if (status == MF_OK)
        status = choose(d, name, error);
    if (status == MF_OK) {
        read_limits(d);
        status = choose_family(d, error);
    }
    if (status == MF_OK)
        choose_copy_family(d);
    if (status == MF_OK)
        status = device_create(d, error);
    if (status == MF_OK)
        status = mf_vk_api_load_device(&d->api, d->handle, error);
    if (status != MF_OK) {
        mf_vk_device_close(d);
        return status;
    }
    if (hooks != NULL && hooks->loaded != NULL)
        hooks->loaded(hooks->ctx, &d->api);
    d->api.GetDeviceQueue(d->handle, d->family, 0, &d->queue);
    if (d->has_copy_family)
        d->api.GetDeviceQueue(d->handle, d->copy_family, d->copy_family == d->family,
                              &d->copy_queue);
    if (hooks != NULL && hooks->has_copy_queue && !d->has_copy_family)
        d->copy_queue = d->queue;
    find_resident(d, hooks);
    if (hooks != NULL && hooks->has_own_memory)
        d->info.is_unified = false;
    return MF_OK;
}

void mf_vk_device_close(mf_vk_device *d)
{
    if (d->handle != VK_NULL_HANDLE && d->api.DestroyDevice != NULL)
        d->api.DestroyDevice(d->handle, NULL);
    if (d->instance != VK_NULL_HANDLE && d->api.DestroyInstance != NULL)
        d->api.DestroyInstance(d->instance, NULL);
    mf_vk_api_close(&d->api);
    memset(d, 0, sizeof *d);
}

uint64_t mf_vk_heap_free(const mf_vk_device *d, uint32_t heap, uint64_t taken_bytes)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 memory = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, .pNext = &budget};
    uint64_t most = d->memory.memoryHeaps[heap].size, used = taken_bytes;
    if (d->info.has_memory_budget) {
        d->api.GetPhysicalDeviceMemoryProperties2(d->physical, &memory);
        /* some drivers' budgets are larger than the heap */
        most = budget.heapBudget[heap] < most ? budget.heapBudget[heap] : most;
        used = budget.heapUsage[heap];
    }
    return most > used ? most - used : 0;
}

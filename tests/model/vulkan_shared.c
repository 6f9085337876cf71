/* SPDX-License-Identifier: MIT */
/*
 * Linked into a test of models with --wrap: all its engines share one instance, device and queue,
 * and a pipeline that one of them had made is there for the next. A driver takes up to a second to
 * make one; what a test of models is about is not how often that is done.
 *
 * Memory of the device that the host can reach (all of it, on a device in software) begins as bytes
 * 0xff, of which floats are no numbers: nothing may depend on what it held.
 */
#include "vulkan_shared.h"

#include "backend/vulkan_open.h"
#include "test.h"

#define MOST 2048

mf_status __wrap_mf_vulkan_backend_create(const mf_backend_options *options, mf_backend **out,
                                          mf_error *error);

typedef struct made {
    const uint32_t *words; /* of the shader */
    uint32_t n_constants, constants[MF_VK_MAX_CONSTANTS];
    VkPipeline pipeline;
} made;

static struct {
    pthread_mutex_t lock, queue_lock;
    mf_vk_api driver;
    VkInstance instance;
    VkPhysicalDevice physical;
    VkDevice device;
    PFN_vkUnmapMemory unmap;
    VkPhysicalDeviceMemoryProperties2 memory;
    VkPipelineLayout layout;
    made all[MOST];
    uint32_t n;
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER, .queue_lock = PTHREAD_MUTEX_INITIALIZER};

/* ----------------------------------------------------------------------------- opening, once -- */

static VkResult create_instance(const VkInstanceCreateInfo *info, const VkAllocationCallbacks *a,
                                VkInstance *out)
{
    pthread_mutex_lock(&shared.lock);
    VkResult result = VK_SUCCESS;
    if (shared.instance == VK_NULL_HANDLE)
        result = shared.driver.CreateInstance(info, a, &shared.instance);
    *out = shared.instance;
    pthread_mutex_unlock(&shared.lock);
    return result;
}

static void keep_instance(VkInstance instance, const VkAllocationCallbacks *a)
{
    (void)instance;
    (void)a;
}

static VkResult create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo *info,
                              const VkAllocationCallbacks *a, VkDevice *out)
{
    pthread_mutex_lock(&shared.lock);
    VkResult result = VK_SUCCESS;
    if (shared.device == VK_NULL_HANDLE)
        result = shared.driver.CreateDevice(physical, info, a, &shared.device);
    REQUIRE(shared.physical == VK_NULL_HANDLE || shared.physical == physical);
    shared.physical = physical;
    *out = shared.device;
    pthread_mutex_unlock(&shared.lock);
    return result;
}

static void keep_device(VkDevice device, const VkAllocationCallbacks *a)
{
    (void)device;
    (void)a;
}

/* --------------------------------------------------------------------------------- pipelines -- */

/* The words stand for the module: it is made when a pipeline has to be. */
static VkResult create_module(VkDevice device, const VkShaderModuleCreateInfo *info,
                              const VkAllocationCallbacks *a, VkShaderModule *out)
{
    (void)device;
    (void)a;
    *out = (VkShaderModule)(uintptr_t)info->pCode;
    return VK_SUCCESS;
}

static void keep_module(VkDevice device, VkShaderModule module, const VkAllocationCallbacks *a)
{
    (void)device;
    (void)module;
    (void)a;
}

static VkResult create_layout(VkDevice device, const VkPipelineLayoutCreateInfo *info,
                              const VkAllocationCallbacks *a, VkPipelineLayout *out)
{
    pthread_mutex_lock(&shared.lock);
    VkResult result = VK_SUCCESS;
    if (shared.layout == VK_NULL_HANDLE)
        result = shared.driver.CreatePipelineLayout(device, info, a, &shared.layout);
    *out = shared.layout;
    pthread_mutex_unlock(&shared.lock);
    return result;
}

static void keep_layout(VkDevice device, VkPipelineLayout layout, const VkAllocationCallbacks *a)
{
    (void)device;
    (void)layout;
    (void)a;
}

static size_t bytes_of(const uint32_t *words)
{
    for (uint32_t i = 0; i < MF_VK_N_SHADERS; i++)
        if (mf_vk_codes[i].words == words)
            return mf_vk_codes[i].n_bytes;
    REQUIRE(false);
    return 0;
}

static VkResult make(made *m, VkDevice device, VkPipelineCache cache,
                     const VkComputePipelineCreateInfo *info)
{
    const VkShaderModuleCreateInfo module = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                             .codeSize = bytes_of(m->words),
                                             .pCode = m->words};
    VkComputePipelineCreateInfo real = *info;
    VkResult result = shared.driver.CreateShaderModule(device, &module, NULL, &real.stage.module);
    if (result != VK_SUCCESS)
        return result;
    result = shared.driver.CreateComputePipelines(device, cache, 1, &real, NULL, &m->pipeline);
    shared.driver.DestroyShaderModule(device, real.stage.module, NULL);
    return result;
}

static bool is_same(const made *a, const made *b)
{
    return a->words == b->words && a->n_constants == b->n_constants &&
           memcmp(a->constants, b->constants, a->n_constants * sizeof *a->constants) == 0;
}

static VkResult create_pipelines(VkDevice device, VkPipelineCache cache, uint32_t n,
                                 const VkComputePipelineCreateInfo *info,
                                 const VkAllocationCallbacks *a, VkPipeline *out)
{
    const VkSpecializationInfo *constants = info->stage.pSpecializationInfo;
    made m = {.words = (const uint32_t *)(uintptr_t)info->stage.module,
              .n_constants = constants->mapEntryCount};
    VkResult result = VK_SUCCESS;
    (void)a;
    REQUIRE(n == 1 && info->pNext == NULL && info->stage.pNext == NULL);
    memcpy(m.constants, constants->pData, constants->dataSize);
    pthread_mutex_lock(&shared.lock);
    uint32_t i = 0;
    while (i < shared.n && !is_same(&shared.all[i], &m))
        i++;
    if (i == shared.n) {
        REQUIRE(shared.n < MOST);
        result = make(&m, device, cache, info);
        if (result == VK_SUCCESS)
            shared.all[shared.n++] = m;
    }
    *out = result == VK_SUCCESS ? shared.all[i].pipeline : VK_NULL_HANDLE;
    pthread_mutex_unlock(&shared.lock);
    return result;
}

static void keep_pipeline(VkDevice device, VkPipeline pipeline, const VkAllocationCallbacks *a)
{
    (void)device;
    (void)pipeline;
    (void)a;
}

/* ------------------------------------------------------------------------------------ memory -- */

static bool is_imported(const VkMemoryAllocateInfo *info)
{
    for (const VkBaseInStructure *p = info->pNext; p != NULL; p = p->pNext)
        if (p->sType == VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT)
            return true;
    return false;
}

static VkResult allocate(VkDevice device, const VkMemoryAllocateInfo *info,
                         const VkAllocationCallbacks *a, VkDeviceMemory *out)
{
    const VkPhysicalDeviceMemoryProperties *m = &shared.memory.memoryProperties;
    void *bytes = NULL;
    VkResult result = shared.driver.AllocateMemory(device, info, a, out);
    if (result != VK_SUCCESS || is_imported(info) ||
        (m->memoryTypes[info->memoryTypeIndex].propertyFlags &
         VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) == 0)
        return result;
    REQUIRE(shared.driver.MapMemory(device, *out, 0, VK_WHOLE_SIZE, 0, &bytes) == VK_SUCCESS);
    memset(bytes, 0xff, info->allocationSize);
    shared.unmap(device, *out);
    return VK_SUCCESS;
}

/* ---------------------------------------------------------------------------- the one queue -- */

static VkResult submit(VkQueue queue, uint32_t n, const VkSubmitInfo2 *info, VkFence fence)
{
    pthread_mutex_lock(&shared.queue_lock);
    VkResult result = shared.driver.QueueSubmit2(queue, n, info, fence);
    pthread_mutex_unlock(&shared.queue_lock);
    return result;
}

static VkResult bind_sparse(VkQueue queue, uint32_t n, const VkBindSparseInfo *info, VkFence fence)
{
    pthread_mutex_lock(&shared.queue_lock);
    VkResult result = shared.driver.QueueBindSparse(queue, n, info, fence);
    pthread_mutex_unlock(&shared.queue_lock);
    return result;
}

static VkResult wait_idle(VkQueue queue)
{
    pthread_mutex_lock(&shared.queue_lock);
    VkResult result = shared.driver.QueueWaitIdle(queue);
    pthread_mutex_unlock(&shared.queue_lock);
    return result;
}

/* ------------------------------------------------------------------------------------- hooks -- */

static void close_shared(void)
{
    for (uint32_t i = 0; i < shared.n; i++)
        shared.driver.DestroyPipeline(shared.device, shared.all[i].pipeline, NULL);
    shared.driver.DestroyPipelineLayout(shared.device, shared.layout, NULL);
    shared.driver.DestroyDevice(shared.device, NULL);
    shared.driver.DestroyInstance(shared.instance, NULL);
}

static void found(void *ctx, mf_vk_api *api)
{
    (void)ctx;
    pthread_mutex_lock(&shared.lock);
    if (api->CreateInstance != create_instance) {
        shared.driver.CreateInstance = api->CreateInstance;
        api->CreateInstance = create_instance;
    } else { /* the instance's functions too */
        shared.driver.CreateDevice = api->CreateDevice;
        shared.driver.DestroyInstance = api->DestroyInstance;
        api->CreateDevice = create_device;
        api->DestroyInstance = keep_instance;
    }
    pthread_mutex_unlock(&shared.lock);
}

static void loaded(void *ctx, mf_vk_api *api)
{
    (void)ctx;
    pthread_mutex_lock(&shared.lock);
    if (shared.driver.DestroyDevice == NULL) {
        const mf_vk_api before = shared.driver;
        shared.driver = *api;
        shared.driver.CreateInstance = before.CreateInstance;
        shared.driver.CreateDevice = before.CreateDevice;
        shared.driver.DestroyInstance = before.DestroyInstance;
        shared.unmap = (PFN_vkUnmapMemory)api->GetDeviceProcAddr(shared.device, "vkUnmapMemory");
        shared.memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
        api->GetPhysicalDeviceMemoryProperties2(shared.physical, &shared.memory);
        atexit(close_shared);
    }
    pthread_mutex_unlock(&shared.lock);
    api->DestroyDevice = keep_device;
    api->AllocateMemory = allocate;
    api->CreateShaderModule = create_module;
    api->DestroyShaderModule = keep_module;
    api->CreatePipelineLayout = create_layout;
    api->DestroyPipelineLayout = keep_layout;
    api->CreateComputePipelines = create_pipelines;
    api->DestroyPipeline = keep_pipeline;
    api->QueueSubmit2 = submit;
    api->QueueBindSparse = bind_sparse;
    api->QueueWaitIdle = wait_idle;
}

void vulkan_share(mf_vk_hooks *hooks)
{
    hooks->loaded = loaded;
    hooks->found = found;
}

mf_status __wrap_mf_vulkan_backend_create(const mf_backend_options *options, mf_backend **out,
                                          mf_error *error)
{
    static const mf_vk_hooks hooks = {.loaded = loaded, .found = found};
    return mf_vk_backend_create(options, &hooks, out, error);
}

mf_status vulkan_open_here(void *ctx, const mf_backend_options *options, mf_backend **out,
                           mf_error *error)
{
    mf_backend_options with = *options;
    with.device = vulkan_test_device();
    return mf_vk_backend_create(&with, ctx, out, error);
}

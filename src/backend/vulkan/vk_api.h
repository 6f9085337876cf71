/* SPDX-License-Identifier: MIT */
/*
 * Vulkan's functions, from the loader that is found when the program runs. Everything is called
 * through this table, so that tests can stand between the backend and a driver.
 */
#ifndef MF_BACKEND_VULKAN_VK_API_H
#define MF_BACKEND_VULKAN_VK_API_H

#include "base/status.h"

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

/* The names are listed once: for the fields, and for what fills them. */
#define MF_VK_GLOBAL_FUNCTIONS(X) \
    X(EnumerateInstanceVersion)   \
    X(CreateInstance)

#define MF_VK_INSTANCE_FUNCTIONS(X)           \
    X(DestroyInstance)                        \
    X(EnumeratePhysicalDevices)               \
    X(GetPhysicalDeviceProperties2)           \
    X(GetPhysicalDeviceFeatures2)             \
    X(GetPhysicalDeviceMemoryProperties2)     \
    X(GetPhysicalDeviceQueueFamilyProperties) \
    X(EnumerateDeviceExtensionProperties)     \
    X(CreateDevice)                           \
    X(GetDeviceProcAddr)

#define MF_VK_DEVICE_FUNCTIONS(X)  \
    X(DestroyDevice)               \
    X(GetDeviceQueue)              \
    X(AllocateMemory)              \
    X(FreeMemory)                  \
    X(MapMemory)                   \
    X(CreateBuffer)                \
    X(DestroyBuffer)               \
    X(GetBufferMemoryRequirements) \
    X(BindBufferMemory)            \
    X(GetBufferDeviceAddress)      \
    X(CreateSemaphore)             \
    X(DestroySemaphore)            \
    X(GetSemaphoreCounterValue)    \
    X(WaitSemaphores)              \
    X(CreateCommandPool)           \
    X(DestroyCommandPool)          \
    X(ResetCommandPool)            \
    X(AllocateCommandBuffers)      \
    X(BeginCommandBuffer)          \
    X(EndCommandBuffer)            \
    X(QueueSubmit2)                \
    X(QueueWaitIdle)               \
    X(QueueBindSparse)             \
    X(CmdPipelineBarrier2)         \
    X(CmdCopyBuffer)               \
    X(CmdBindPipeline)             \
    X(CmdPushConstants)            \
    X(CmdDispatch)                 \
    X(CmdResetQueryPool)           \
    X(CmdWriteTimestamp2)          \
    X(CreateQueryPool)             \
    X(DestroyQueryPool)            \
    X(GetQueryPoolResults)         \
    X(CreateShaderModule)          \
    X(DestroyShaderModule)         \
    X(CreatePipelineLayout)        \
    X(DestroyPipelineLayout)       \
    X(CreatePipelineCache)         \
    X(DestroyPipelineCache)        \
    X(GetPipelineCacheData)        \
    X(CreateComputePipelines)      \
    X(DestroyPipeline)

/* Where the process's shared libraries begin. */
#define MF_VK_MAX_LIBRARIES 512u
typedef struct mf_vk_libraries {
    uint64_t bases[MF_VK_MAX_LIBRARIES];
    uint32_t n;
} mf_vk_libraries;

typedef struct mf_vk_api {
    void *library;
    mf_vk_libraries before; /* the loader and its drivers */
    PFN_vkGetInstanceProcAddr GetInstanceProcAddr;
#define MF_VK_FIELD(name) PFN_vk##name name;
    MF_VK_GLOBAL_FUNCTIONS(MF_VK_FIELD)
    MF_VK_INSTANCE_FUNCTIONS(MF_VK_FIELD)
    MF_VK_DEVICE_FUNCTIONS(MF_VK_FIELD)
#undef MF_VK_FIELD
    /* of extensions; NULL without them */
    PFN_vkGetMemoryHostPointerPropertiesEXT GetMemoryHostPointerPropertiesEXT;
    PFN_vkVoidFunction GetPhysicalDeviceCooperativeMatrixPropertiesKHR;
    PFN_vkCmdBeginConditionalRenderingEXT CmdBeginConditionalRenderingEXT;
    PFN_vkCmdEndConditionalRenderingEXT CmdEndConditionalRenderingEXT;
} mf_vk_api;

/* The loader and what it has before there is an instance. Errors: MF_ERR_UNSUPPORTED. */
mf_status mf_vk_api_open(mf_vk_api *api, mf_error *error);
mf_status mf_vk_api_load_instance(mf_vk_api *api, VkInstance instance, mf_error *error);
mf_status mf_vk_api_load_device(mf_vk_api *api, VkDevice device, mf_error *error);
void mf_vk_api_close(mf_vk_api *api);

/* vk_pin.c: what has been loaded since stays loaded for as long as the process is. */
void mf_vk_libraries_note(mf_vk_libraries *known);
void mf_vk_libraries_pin_new(const mf_vk_libraries *known);

/* "out of device memory" */
const char *mf_vk_result_name(VkResult result);
/* "WHAT: out of device memory", as MF_ERR_NO_MEMORY, MF_ERR_UNSUPPORTED or MF_ERR_IO. */
mf_status mf_vk_fail(mf_error *error, VkResult result, const char *what);

#endif

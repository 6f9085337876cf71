/* SPDX-License-Identifier: MIT */
/* The loader is opened when it is first needed: who has none runs on the CPU. */
#include "backend/vulkan/vk_api.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static PFN_vkVoidFunction loader_symbol(void *library)
{
    /* ISO C knows no cast from an object's pointer to a function's; POSIX has dlsym do it. */
    PFN_vkVoidFunction function = NULL;
    void *symbol = dlsym(library, "vkGetInstanceProcAddr");
    memcpy(&function, &symbol, sizeof function);
    return function;
}

typedef struct entry {
    const char *name;
    size_t offset; /* of its field */
} entry;

#define ENTRY(name) {"vk" #name, offsetof(mf_vk_api, name)},

/* Fills the fields; from a device, or from an instance or none. */
static mf_status load(mf_vk_api *api, const entry *entries, size_t n, VkInstance instance,
                      VkDevice device, mf_error *error)
{
    for (size_t i = 0; i < n; i++) {
        const char *name = entries[i].name;
        const PFN_vkVoidFunction function = device != VK_NULL_HANDLE
                                                ? api->GetDeviceProcAddr(device, name)
                                                : api->GetInstanceProcAddr(instance, name);
        if (function == NULL)
            return mf_fail(error, MF_ERR_UNSUPPORTED, "the Vulkan loader or driver lacks %s", name);
        /* a field is a pointer to a function, as all are of one size */
        memcpy((char *)api + entries[i].offset, &function, sizeof function);
    }
    return MF_OK;
}

mf_status mf_vk_api_open(mf_vk_api *api, mf_error *error)
{
    static const char *const names[] = {"libvulkan.so.1", "libvulkan.so", "libvulkan.1.dylib",
                                        "libMoltenVK.dylib"};
    memset(api, 0, sizeof *api);
    mf_vk_libraries_note(&api->before);
    for (size_t i = 0; i < sizeof names / sizeof *names && api->library == NULL; i++)
        api->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (api->library == NULL)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "there is no Vulkan loader (libvulkan.so.1) on this machine");
    api->GetInstanceProcAddr = (PFN_vkGetInstanceProcAddr)loader_symbol(api->library);
    if (api->GetInstanceProcAddr == NULL)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "the Vulkan loader lacks vkGetInstanceProcAddr");
    static const entry entries[] = {MF_VK_GLOBAL_FUNCTIONS(ENTRY)};
    return load(api, entries, sizeof entries / sizeof *entries, VK_NULL_HANDLE, VK_NULL_HANDLE,
                error);
}

mf_status mf_vk_api_load_instance(mf_vk_api *api, VkInstance instance, mf_error *error)
{
    static const entry entries[] = {MF_VK_INSTANCE_FUNCTIONS(ENTRY)};
    mf_vk_libraries_pin_new(&api->before);
    api->GetPhysicalDeviceCooperativeMatrixPropertiesKHR =
        api->GetInstanceProcAddr(instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    return load(api, entries, sizeof entries / sizeof *entries, instance, VK_NULL_HANDLE, error);
}

mf_status mf_vk_api_load_device(mf_vk_api *api, VkDevice device, mf_error *error)
{
    static const entry entries[] = {MF_VK_DEVICE_FUNCTIONS(ENTRY)};
    mf_vk_libraries_pin_new(&api->before); /* some load more for a device */
    api->GetMemoryHostPointerPropertiesEXT =
        (PFN_vkGetMemoryHostPointerPropertiesEXT)api->GetDeviceProcAddr(
            device, "vkGetMemoryHostPointerPropertiesEXT");
    api->CmdBeginConditionalRenderingEXT =
        (PFN_vkCmdBeginConditionalRenderingEXT)api->GetDeviceProcAddr(
            device, "vkCmdBeginConditionalRenderingEXT");
    api->CmdEndConditionalRenderingEXT =
        (PFN_vkCmdEndConditionalRenderingEXT)api->GetDeviceProcAddr(
            device, "vkCmdEndConditionalRenderingEXT");
    return load(api, entries, sizeof entries / sizeof *entries, VK_NULL_HANDLE, device, error);
}

void mf_vk_api_close(mf_vk_api *api)
{
    if (api->library != NULL)
        (void)dlclose(api->library);
    memset(api, 0, sizeof *api);
}

const char *mf_vk_result_name(VkResult result)
{
    switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
        return "out of host memory";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
        return "out of device memory";
    case VK_ERROR_INITIALIZATION_FAILED:
        return "initialisation failed";
    case VK_ERROR_DEVICE_LOST:
        return "the device was lost";
    case VK_ERROR_MEMORY_MAP_FAILED:
        return "memory could not be mapped";
    case VK_ERROR_EXTENSION_NOT_PRESENT:
        return "an extension is missing";
    case VK_ERROR_FEATURE_NOT_PRESENT:
        return "a feature is missing";
    case VK_ERROR_INCOMPATIBLE_DRIVER:
        return "no driver";
    case VK_ERROR_TOO_MANY_OBJECTS:
        return "too many objects";
    case VK_ERROR_INVALID_EXTERNAL_HANDLE:
        return "host memory cannot be used by the device";
    default:
        return "an unknown error";
    }
}

mf_status mf_vk_fail(mf_error *error, VkResult result, const char *what)
{
    mf_status code = MF_ERR_IO;
    if (result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY ||
        result == VK_ERROR_TOO_MANY_OBJECTS || result == VK_ERROR_INVALID_EXTERNAL_HANDLE)
        code = MF_ERR_NO_MEMORY;
    else if (result == VK_ERROR_INCOMPATIBLE_DRIVER || result == VK_ERROR_EXTENSION_NOT_PRESENT ||
             result == VK_ERROR_FEATURE_NOT_PRESENT)
        code = MF_ERR_UNSUPPORTED;
    return mf_fail(error, code, "%s: %s (Vulkan %d)", what, mf_vk_result_name(result), (int)result);
}

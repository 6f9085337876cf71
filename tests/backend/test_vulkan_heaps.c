/* SPDX-License-Identifier: MIT */
/*
 * Memory of several kinds, as devices with memory of their own have it, between the backend and a
 * driver that has one kind: its own; the host's; and little of its own that the host can write to,
 * which others have taken. What lies there by choice alone then lies in the host's. Buffers lie as
 * the driver wants them aligned, and an allocation that is more than the device makes is called so.
 * And the memory of a workgroup, of which some devices have as little as Vulkan allows.
 */
#include "backend/vulkan/vk_internal.h"
#include "test.h"
#include "vulkan_open.h"

#define MIB ((uint64_t)1 << 20)
#define HOST (VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)

enum { OWN, OF_HOST, SMALL, N_KINDS };

static const VkMemoryPropertyFlags flags_of[N_KINDS] = {
    [OWN] = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
    [OF_HOST] = HOST | VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
    [SMALL] = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | HOST};

static mf_vk_api driver;
static bool is_taken;                    /* all of the little memory */
static bool imports_nothing;             /* whatever the driver says that it can */
static uint64_t most_bytes = UINT64_MAX; /* of an allocation */
static uint64_t n_bytes_of[N_KINDS];     /* that were allocated */
static uint64_t alignment, n_misaligned; /* of buffers, as the driver wants them */
static PFN_vkGetPhysicalDeviceMemoryProperties2 real_properties;

static void kinds_of_memory(VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties2 *out)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget = out->pNext;
    real_properties(physical, out);
    out->memoryProperties.memoryTypeCount = out->memoryProperties.memoryHeapCount = N_KINDS;
    for (uint32_t i = 0; i < N_KINDS; i++) {
        const bool is_own = (flags_of[i] & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) != 0;
        out->memoryProperties.memoryTypes[i] = (VkMemoryType){flags_of[i], i};
        out->memoryProperties.memoryHeaps[i] = (VkMemoryHeap){
            (i == SMALL ? 256 : 4096) * MIB, is_own ? VK_MEMORY_HEAP_DEVICE_LOCAL_BIT : 0};
        if (budget != NULL) {
            budget->heapBudget[i] = (i == SMALL ? 256 : 4096) * MIB;
            budget->heapUsage[i] = 0;
        }
    }
}

/* Of a workgroup, less than the device's own; 0: that. */
static uint32_t shared_bytes;
static PFN_vkGetPhysicalDeviceProperties2 real_limits;

static void limits(VkPhysicalDevice physical, VkPhysicalDeviceProperties2 *out)
{
    real_limits(physical, out);
    if (shared_bytes != 0)
        out->properties.limits.maxComputeSharedMemorySize = shared_bytes;
}

static void stand_before(void *ctx, mf_vk_api *api)
{
    (void)ctx;
    if (api->GetPhysicalDeviceMemoryProperties2 == NULL)
        return;
    real_limits = api->GetPhysicalDeviceProperties2;
    api->GetPhysicalDeviceProperties2 = limits;
    real_properties = api->GetPhysicalDeviceMemoryProperties2;
    api->GetPhysicalDeviceMemoryProperties2 = kinds_of_memory;
}

static VkResult allocate(VkDevice device, const VkMemoryAllocateInfo *info,
                         const VkAllocationCallbacks *a, VkDeviceMemory *out)
{
    VkMemoryAllocateInfo real = *info;
    REQUIRE(info->memoryTypeIndex < N_KINDS);
    real.memoryTypeIndex = 0;
    if ((is_taken && info->memoryTypeIndex == SMALL) || info->allocationSize > most_bytes)
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    n_bytes_of[info->memoryTypeIndex] += info->allocationSize;
    return driver.AllocateMemory(device, &real, a, out);
}

static void requirements(VkDevice device, VkBuffer buffer, VkMemoryRequirements *out)
{
    driver.GetBufferMemoryRequirements(device, buffer, out);
    out->memoryTypeBits = (1u << N_KINDS) - 1;
    out->alignment = alignment;
}

static VkResult bind(VkDevice device, VkBuffer buffer, VkDeviceMemory memory, VkDeviceSize at)
{
    n_misaligned += at % alignment != 0;
    return driver.BindBufferMemory(device, buffer, memory, at);
}

static VkResult host_properties(VkDevice device, VkExternalMemoryHandleTypeFlagBits kind,
                                const void *bytes, VkMemoryHostPointerPropertiesEXT *out)
{
    VkResult result = driver.GetMemoryHostPointerPropertiesEXT(device, kind, bytes, out);
    out->memoryTypeBits = 1u << OF_HOST;
    return imports_nothing ? VK_ERROR_INVALID_EXTERNAL_HANDLE : result;
}

static void stand_between(void *ctx, mf_vk_api *api)
{
    (void)ctx;
    driver = *api;
    api->AllocateMemory = allocate;
    api->GetBufferMemoryRequirements = requirements;
    api->BindBufferMemory = bind;
    if (api->GetMemoryHostPointerPropertiesEXT != NULL)
        api->GetMemoryHostPointerPropertiesEXT = host_properties;
}

static mf_backend *open_kinds(void)
{
    const mf_vk_hooks hooks = {
        .loaded = stand_between, .found = stand_before, .has_own_memory = true};
    const mf_backend_options options = {.device = vulkan_test_device()};
    mf_error error = {0};
    mf_backend *be = NULL;
    memset(n_bytes_of, 0, sizeof n_bytes_of);
    REQUIRE_OK(mf_vk_backend_create(&options, &hooks, &be, &error), &error);
    return be;
}

/* Rows by a list that the host wrote where the device reads it. */
static void check_copies(mf_backend *be)
{
    static const uint32_t rows[] = {2, 0, 1, 2};
    static const float x[] = {1.0f, 2.0f, 3.0f};
    float got[4] = {0};
    mf_error error = {0};
    mf_buffer buffer = {0};
    REQUIRE_OK(be->ops->buffer_create(be, 64, MF_USE_DEVICE, "rows", &buffer, &error), &error);
    const mf_span to = {buffer, 32};
    const mf_op op = {.kind = MF_OP_COPY_ROWS,
                      .n_rows = 4,
                      .u.copy_rows = {.x = {buffer, 0}, .out = to, .rows = rows, .n_cols = 1}};
    REQUIRE_OK(be->ops->reserve_batch(be, 3, 1000, &error), &error);
    REQUIRE_OK(mf_backend_reserve(be, &op, &error), &error);
    be->ops->write(be, op.u.copy_rows.x, x, sizeof x);
    be->ops->record(be, &op);
    REQUIRE_OK(mf_backend_read(be, to, got, sizeof got, &error), &error);
    CHECK(got[0] == 3.0f && got[1] == 1.0f && got[2] == 2.0f && got[3] == 3.0f);
    be->ops->buffer_free(be, buffer);
}

static void check_taken(void)
{
    mf_error error = {0};
    mf_buffer words = {0};
    is_taken = false;
    mf_backend *be = open_kinds();
    check_copies(be);
    CHECK(n_bytes_of[SMALL] > 0);
    REQUIRE_OK(be->ops->buffer_create(be, 64, MF_USE_SHARED, "words", &words, &error), &error);
    be->ops->buffer_free(be, words);
    be->ops->destroy(be);
    is_taken = true;
    be = open_kinds();
    check_copies(be);
    CHECK_U64(n_bytes_of[SMALL], 0);
    /* the device asks for these again and again, and has to have them itself */
    CHECK_STATUS(be->ops->buffer_create(be, 64, MF_USE_SHARED, "words", &words, &error),
                 MF_ERR_NO_MEMORY);
    CHECK_CONTAINS(error.message, "words");
    be->ops->destroy(be);
    is_taken = false;
}

/* A device that makes no allocation as large as a buffer, nor buffers of several: it is said. */
static void check_most(void)
{
    mf_error error = {0};
    mf_buffer buffer = {0};
    mf_backend *be = open_kinds();
    mf_vk_device *d = &((mf_vk_backend *)be)->device;
    d->has_sparse_buffers = false;
    d->most_allocation_bytes = most_bytes = 16 * MIB;
    CHECK_STATUS(be->ops->buffer_create(be, 20 * MIB, MF_USE_DEVICE, "experts", &buffer, &error),
                 MF_ERR_NO_MEMORY);
    CHECK_CONTAINS(error.message, "20971520 bytes for experts");
    CHECK_CONTAINS(error.message, "has at most 16777216");
    CHECK_CONTAINS(error.message, d->info.name);
    most_bytes = MIB; /* less than it says */
    CHECK_STATUS(be->ops->buffer_create(be, 10 * MIB, MF_USE_DEVICE, "experts", &buffer, &error),
                 MF_ERR_NO_MEMORY);
    CHECK_CONTAINS(error.message, "10485760 bytes for experts: out of device memory");
    most_bytes = UINT64_MAX;
    be->ops->destroy(be);
}

/* What Vulkan promises of a workgroup's memory is less than the shaders take that every model
 * needs: matvec.comp has 16,960 bytes. */
static void check_shared(void)
{
    const mf_vk_hooks hooks = {.found = stand_before};
    const mf_backend_options options = {.device = vulkan_test_device()};
    mf_error error = {0};
    mf_backend *be = NULL;
    shared_bytes = 16384;
    CHECK_STATUS(mf_vk_backend_create(&options, &hooks, &be, &error), MF_ERR_UNSUPPORTED);
    CHECK(be == NULL);
    CHECK_CONTAINS(error.message, "lacks 17 KiB of a workgroup's shared memory");
    shared_bytes = 0;
}

/* A driver that says that it can use the process's memory, and cannot: its own does. */
static void check_no_import(void)
{
    mf_error error = {0};
    mf_buffer buffer = {0};
    imports_nothing = true;
    mf_backend *be = open_kinds();
    REQUIRE_OK(be->ops->buffer_create(be, 5 * MIB, MF_USE_HOST, "rows", &buffer, &error), &error);
    CHECK(be->ops->buffer_host(be, buffer) != NULL);
    check_copies(be);
    be->ops->buffer_free(be, buffer);
    be->ops->destroy(be);
    imports_nothing = false;
}

/* Small buffers share an allocation, each at a multiple of what the driver asks for. */
static void check_aligned(void)
{
    static const uint64_t alignments[] = {256, 4096, 65536};
    static const mf_buffer_use uses[] = {MF_USE_DEVICE, MF_USE_HOST, MF_USE_STAGING, MF_USE_SHARED};
    mf_error error = {0};
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
        mf_buffer buffers[12];
        alignment = alignments[i];
        mf_backend *be = open_kinds();
        for (uint32_t j = 0; j < 12; j++)
            REQUIRE_OK(be->ops->buffer_create(be, 64 + j * 4096, uses[j % 4], "small", &buffers[j],
                                              &error),
                       &error);
        check_copies(be);
        CHECK_MSG(n_misaligned == 0, "%llu buffers are not at a multiple of %llu",
                  (unsigned long long)n_misaligned, (unsigned long long)alignment);
        n_misaligned = 0;
        for (uint32_t j = 0; j < 12; j++)
            be->ops->buffer_free(be, buffers[j]);
        be->ops->destroy(be);
    }
}

int main(void)
{
    if (!vulkan_is_there())
        return TEST_SKIPPED;
    alignment = 16;
    check_taken();
    check_aligned();
    alignment = 16;
    check_no_import();
    check_most();
    check_shared();
    return test_result();
}

/* SPDX-License-Identifier: MIT */
/*
 * Buffers larger than an allocation may be. Where the device has more than 12 GiB, one of 5 GiB is
 * written, computed with and read on both sides of what 32 bits reach. Everywhere, on a device that
 * is said to allocate 1 MiB at most: the pieces cover the buffer, nothing else lies in them, and
 * what fails halfway leaves nothing behind.
 */
#include "backend/vulkan/vk_internal.h"
#include "test.h"
#include "vulkan_open.h"

#define MIB ((uint64_t)1 << 20)
#define N_BYTES (5 * MIB + 4096)

/* The driver's functions; a buffer of several allocations gets one behind the device's back. */
static mf_vk_api driver;
static VkDevice device;
static VkDeviceMemory whole;
static unsigned n_binds, n_wrong, n_until_failure;
static long n_allocations;

static VkResult create_plain(VkDevice d, const VkBufferCreateInfo *info,
                             const VkAllocationCallbacks *a, VkBuffer *out)
{
    VkBufferCreateInfo plain = *info;
    plain.flags = 0;
    return driver.CreateBuffer(d, &plain, a, out);
}

static VkResult allocate(VkDevice d, const VkMemoryAllocateInfo *info,
                         const VkAllocationCallbacks *a, VkDeviceMemory *out)
{
    device = d;
    if (n_until_failure != 0 && --n_until_failure == 0)
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    n_allocations++;
    return driver.AllocateMemory(d, info, a, out);
}

static void free_memory(VkDevice d, VkDeviceMemory memory, const VkAllocationCallbacks *a)
{
    n_allocations--;
    driver.FreeMemory(d, memory, a);
}

static VkResult bind_sparse(VkQueue queue, uint32_t n, const VkBindSparseInfo *info, VkFence fence)
{
    const VkSparseBufferMemoryBindInfo *buffer = info->pBufferBinds;
    const VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                             .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    const VkMemoryAllocateInfo memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                         .pNext = &flags,
                                         .allocationSize = 2 * N_BYTES};
    uint64_t at = 0;
    (void)queue;
    (void)fence;
    n_wrong += n != 1 || info->bufferBindCount != 1;
    n_binds = buffer->bindCount;
    for (uint32_t i = 0; i < n_binds; i++) {
        n_wrong += buffer->pBinds[i].resourceOffset != at || buffer->pBinds[i].size > MIB ||
                   buffer->pBinds[i].memoryOffset != 0;
        at += buffer->pBinds[i].size;
        for (uint32_t j = 0; j < i; j++)
            n_wrong += buffer->pBinds[i].memory == buffer->pBinds[j].memory;
    }
    n_wrong += at < N_BYTES;
    VkResult result = driver.AllocateMemory(device, &memory, NULL, &whole);
    return result != VK_SUCCESS ? result
                                : driver.BindBufferMemory(device, buffer->buffer, whole, 0);
}

static void stand_between(void *ctx, mf_vk_api *api)
{
    (void)ctx;
    driver = *api;
    api->CreateBuffer = create_plain;
    api->AllocateMemory = allocate;
    api->FreeMemory = free_memory;
    api->QueueBindSparse = bind_sparse;
}

/* Rows of 64 floats at this place and the next: x += y. */
static void check_add(mf_backend *be, mf_buffer buffer, uint64_t at)
{
    float values[64], got[64];
    mf_error error = {0};
    const mf_op op = {
        .kind = MF_OP_ADD,
        .n_rows = 1,
        .u.add = {.x = {buffer, at}, .y = {buffer, at + sizeof values}, .n_cols = 64}};
    for (int i = 0; i < 64; i++)
        values[i] = (float)i;
    be->ops->write(be, op.u.add.x, values, sizeof values);
    be->ops->write(be, op.u.add.y, values, sizeof values);
    REQUIRE_OK(mf_backend_reserve(be, &op, &error), &error);
    be->ops->record(be, &op);
    REQUIRE_OK(mf_backend_read(be, op.u.add.x, got, sizeof got, &error), &error);
    CHECK_MSG(got[63] == 126.0f, "at %llu: %g", (unsigned long long)at, (double)got[63]);
}

static void check_pieces(void)
{
    const mf_vk_hooks hooks = {.loaded = stand_between};
    const mf_backend_options options = {.device = vulkan_test_device()};
    mf_error error = {0};
    mf_backend *base = NULL;
    mf_buffer large = {0}, small[40];
    REQUIRE_OK(mf_vk_backend_create(&options, &hooks, &base, &error), &error);
    mf_vk_backend *be = (mf_vk_backend *)base;
    be->device.most_allocation_bytes = MIB;
    be->device.has_sparse_buffers = true;
    const long n_before = n_allocations;
    for (n_until_failure = 1; n_until_failure <= 6;) { /* the next time, one later */
        const unsigned n = n_until_failure;
        CHECK_STATUS(
            base->ops->buffer_create(base, N_BYTES, MF_USE_DEVICE, "experts", &large, &error),
            MF_ERR_NO_MEMORY);
        CHECK_CONTAINS(error.message, "experts");
        CHECK_U64(n_allocations, n_before);
        n_until_failure = n + 1;
    }
    n_until_failure = 0;
    REQUIRE_OK(base->ops->buffer_create(base, N_BYTES, MF_USE_DEVICE, "experts", &large, &error),
               &error);
    CHECK_U64(n_binds, 6);
    CHECK_U64(n_allocations, n_before + 6);
    const long n_large = n_allocations;
    for (int i = 0; i < 40; i++)
        REQUIRE_OK(base->ops->buffer_create(base, 4096, MF_USE_DEVICE, "small", &small[i], &error),
                   &error);
    for (int i = 0; i < 40; i++)
        for (uint32_t b = be->buffers[large.id - 1].block + 1; b != 0; b = be->blocks[b - 1].more)
            CHECK(be->buffers[small[i].id - 1].block != b - 1);
    check_add(base, large, 0);
    check_add(base, large, 3 * MIB - 256);
    check_add(base, large, N_BYTES - 512);
    base->ops->buffer_free(base, large);
    driver.FreeMemory(device, whole, NULL);
    CHECK(n_allocations <= n_large - 6 + 1 && n_wrong == 0); /* and a block of small ones */
    base->ops->destroy(base);
    CHECK_U64(n_allocations, 0);
}

static uint64_t left(const mf_backend *be)
{
    mf_backend_memory memories[MF_MAX_MEMORIES];
    REQUIRE(be->ops->memories(be, memories) == 2);
    CHECK(memories[0].takes_promise && !memories[0].is_host);
    CHECK_U64(memories[0].n_bytes + memories[0].taken_bytes, 64 * MIB);
    return memories[0].n_bytes;
}

/* What is promised of the device's memory holds to the byte, the backend's own needs included, and
 * what is freed is room again. */
static void check_promise(void)
{
    const mf_backend_options options = {.device = vulkan_test_device(), .device_bytes = 64 * MIB};
    mf_error error = {0};
    mf_backend *base = NULL;
    mf_buffer first = {0}, second = {0}, third = {0};
    REQUIRE_OK(mf_vk_backend_create(&options, NULL, &base, &error), &error);
    ((mf_vk_backend *)base)->device.info.is_unified = false;
    const mf_backend_ops *ops = base->ops;
    const uint64_t at_first = left(base);
    REQUIRE_OK(ops->buffer_create(base, 20 * MIB, MF_USE_DEVICE, "first", &first, &error), &error);
    const uint64_t rest = left(base);
    CHECK_U64(rest, at_first - 20 * MIB);
    CHECK_STATUS(ops->buffer_create(base, rest + 1, MF_USE_DEVICE, "too much", &second, &error),
                 MF_ERR_NO_MEMORY);
    CHECK_CONTAINS(error.message, "too much");
    CHECK_U64(left(base), rest);
    REQUIRE_OK(ops->buffer_create(base, 80 * MIB, MF_USE_STAGING, "elsewhere", &third, &error),
               &error);
    REQUIRE_OK(ops->buffer_create(base, rest, MF_USE_DEVICE, "second", &second, &error), &error);
    CHECK_U64(left(base), 0);
    ops->copy(base, (mf_span){second, 0}, (mf_span){first, 0}, 1000);
    ops->buffer_free(base, first);
    REQUIRE_OK(ops->buffer_create(base, 20 * MIB, MF_USE_DEVICE, "again", &first, &error), &error);
    ops->destroy(base);
}

static void check_real(void)
{
    mf_error error = {0};
    mf_backend_memory memories[MF_MAX_MEMORIES];
    mf_backend *be = vulkan_open(NULL);
    mf_buffer buffer = {0};
    REQUIRE(be != NULL);
    (void)be->ops->memories(be, memories);
    if (memories[0].is_host || memories[0].n_bytes < 12 * 1024 * MIB) {
        fprintf(stderr, "%s: not enough memory of its own for 5 GiB\n", be->ops->device_name(be));
    } else {
        REQUIRE_OK(
            be->ops->buffer_create(be, 5 * 1024 * MIB, MF_USE_DEVICE, "5 GiB", &buffer, &error),
            &error);
        for (uint64_t at = 0; at < 5 * 1024 * MIB; at += 512 * MIB)
            check_add(be, buffer, at);
        check_add(be, buffer, 4096 * MIB - 256);
        check_add(be, buffer, 5 * 1024 * MIB - 512);
    }
    be->ops->destroy(be);
}

int main(void)
{
    if (!vulkan_is_there())
        return TEST_SKIPPED;
    check_pieces();
    check_promise();
    check_real();
    return test_result();
}

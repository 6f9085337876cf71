/* SPDX-License-Identifier: MIT */
/*
 * A Vulkan device that fails, or whose memory another process takes: every call into the driver
 * that can fail does so once, with no memory or with the device lost, and every allocation of ours.
 * Each time the status is clear, nothing is left behind, no wrong bytes are taken for right ones,
 * and a device can be opened again.
 */
#include "backend/vulkan/vk_internal.h"
#include "base/status.h"
#include "failing_alloc.h"
#include "vulkan_open.h"

#define N_COLS 48u
#define N_ROWS 20u
#define N_BYTES ((uint64_t)N_ROWS * N_COLS * sizeof(float))

/* The driver's functions, and how they fail. */
static mf_vk_api driver;
static struct {
    unsigned long n_calls, fail_at; /* counted from 1; 0: never */
    bool goes_on;                   /* every call after that one fails too */
    VkResult result;
    long n_live; /* objects that are there */
} faults;

static bool fails(void)
{
    faults.n_calls++;
    if (faults.fail_at == 0)
        return false;
    return faults.goes_on ? faults.n_calls >= faults.fail_at : faults.n_calls == faults.fail_at;
}

#define FAILING(name, parameters, arguments)   \
    static VkResult may_fail_##name parameters \
    {                                          \
        if (fails())                           \
            return faults.result;              \
        return driver.name arguments;          \
    }

/* The handle is the last argument. */
#define CREATING(name, parameters, arguments)    \
    static VkResult may_fail_##name parameters   \
    {                                            \
        if (fails())                             \
            return faults.result;                \
        VkResult result = driver.name arguments; \
        faults.n_live += result == VK_SUCCESS;   \
        return result;                           \
    }

#define DESTROYING(name, type)                                                               \
    static void counted_##name(VkDevice device, type object, const VkAllocationCallbacks *a) \
    {                                                                                        \
        faults.n_live -= object != VK_NULL_HANDLE;                                           \
        driver.name(device, object, a);                                                      \
    }

#define CREATE_PARAMETERS(info, type) \
    (VkDevice device, const info *given, const VkAllocationCallbacks *a, type *out)
#define CREATE_ARGUMENTS (device, given, a, out)

CREATING(AllocateMemory, CREATE_PARAMETERS(VkMemoryAllocateInfo, VkDeviceMemory), CREATE_ARGUMENTS)
CREATING(CreateBuffer, CREATE_PARAMETERS(VkBufferCreateInfo, VkBuffer), CREATE_ARGUMENTS)
CREATING(CreateSemaphore, CREATE_PARAMETERS(VkSemaphoreCreateInfo, VkSemaphore), CREATE_ARGUMENTS)
CREATING(CreateCommandPool, CREATE_PARAMETERS(VkCommandPoolCreateInfo, VkCommandPool),
         CREATE_ARGUMENTS)
CREATING(CreateShaderModule, CREATE_PARAMETERS(VkShaderModuleCreateInfo, VkShaderModule),
         CREATE_ARGUMENTS)
CREATING(CreatePipelineLayout, CREATE_PARAMETERS(VkPipelineLayoutCreateInfo, VkPipelineLayout),
         CREATE_ARGUMENTS)
CREATING(CreatePipelineCache, CREATE_PARAMETERS(VkPipelineCacheCreateInfo, VkPipelineCache),
         CREATE_ARGUMENTS)
CREATING(CreateComputePipelines,
         (VkDevice device, VkPipelineCache cache, uint32_t n,
          const VkComputePipelineCreateInfo *given, const VkAllocationCallbacks *a,
          VkPipeline *out),
         (device, cache, n, given, a, out))
DESTROYING(FreeMemory, VkDeviceMemory)
DESTROYING(DestroyBuffer, VkBuffer)
DESTROYING(DestroySemaphore, VkSemaphore)
DESTROYING(DestroyCommandPool, VkCommandPool)
DESTROYING(DestroyShaderModule, VkShaderModule)
DESTROYING(DestroyPipelineLayout, VkPipelineLayout)
DESTROYING(DestroyPipelineCache, VkPipelineCache)
DESTROYING(DestroyPipeline, VkPipeline)
FAILING(MapMemory,
        (VkDevice device, VkDeviceMemory memory, VkDeviceSize at, VkDeviceSize n,
         VkMemoryMapFlags flags, void **out),
        (device, memory, at, n, flags, out))
FAILING(BindBufferMemory,
        (VkDevice device, VkBuffer buffer, VkDeviceMemory memory, VkDeviceSize at),
        (device, buffer, memory, at))
FAILING(AllocateCommandBuffers,
        (VkDevice device, const VkCommandBufferAllocateInfo *info, VkCommandBuffer *out),
        (device, info, out))
FAILING(BeginCommandBuffer, (VkCommandBuffer commands, const VkCommandBufferBeginInfo *info),
        (commands, info))
FAILING(EndCommandBuffer, (VkCommandBuffer commands), (commands))
FAILING(ResetCommandPool, (VkDevice device, VkCommandPool pool, VkCommandPoolResetFlags flags),
        (device, pool, flags))
FAILING(QueueSubmit2, (VkQueue queue, uint32_t n, const VkSubmitInfo2 *info, VkFence fence),
        (queue, n, info, fence))
FAILING(GetSemaphoreCounterValue, (VkDevice device, VkSemaphore semaphore, uint64_t *value),
        (device, semaphore, value))
FAILING(WaitSemaphores, (VkDevice device, const VkSemaphoreWaitInfo *info, uint64_t timeout),
        (device, info, timeout))

static void stand_between(void *ctx, mf_vk_api *api)
{
    (void)ctx;
    driver = *api;
#define X(name) api->name = may_fail_##name;
    X(AllocateMemory)
    X(CreateBuffer)
    X(CreateSemaphore)
    X(CreateCommandPool)
    X(CreateShaderModule)
    X(CreatePipelineLayout)
    X(CreatePipelineCache)
    X(CreateComputePipelines)
    X(MapMemory)
    X(BindBufferMemory)
    X(AllocateCommandBuffers)
    X(BeginCommandBuffer)
    X(EndCommandBuffer)
    X(ResetCommandPool)
    X(QueueSubmit2)
    X(GetSemaphoreCounterValue)
    X(WaitSemaphores)
#undef X
#define X(name) api->name = counted_##name;
    X(FreeMemory)
    X(DestroyBuffer)
    X(DestroySemaphore)
    X(DestroyCommandPool)
    X(DestroyShaderModule)
    X(DestroyPipelineLayout)
    X(DestroyPipelineCache)
    X(DestroyPipeline)
#undef X
}

/* --------------------------------------------------------------------------------- a life -- */

static const uint32_t rows[N_ROWS] = {3, 1, 2};

static void record(mf_backend *be, mf_op_kind kind, mf_buffer buffer)
{
    const mf_span x = {buffer, 0}, y = {buffer, N_BYTES};
    mf_op op = {.kind = kind, .n_rows = N_ROWS};
    if (kind == MF_OP_ADD)
        op.u.add = (mf_add_params){.x = x, .y = y, .n_cols = N_COLS};
    else
        op.u.copy_rows = (mf_copy_rows_params){.x = x, .out = y, .rows = rows, .n_cols = N_COLS};
    be->ops->record(be, &op);
}

/* Rows that are added to themselves, three times; what comes back is right, or an error. */
static mf_status compute(mf_backend *be, mf_buffer buffer, mf_error *error)
{
    static float values[N_ROWS * N_COLS], got[N_ROWS * N_COLS];
    for (uint32_t i = 0; i < N_ROWS * N_COLS; i++)
        values[i] = (float)i;
    be->ops->write(be, (mf_span){buffer, 0}, values, N_BYTES);
    be->ops->write(be, (mf_span){buffer, N_BYTES}, values, N_BYTES);
    for (int i = 0; i < 30; i++) /* more than a submission's first commands */
        record(be, i < 3 ? MF_OP_ADD : MF_OP_COPY_ROWS, buffer);
    mf_status status = mf_backend_read(be, (mf_span){buffer, 0}, got, N_BYTES, error);
    for (uint32_t i = 0; i < N_ROWS * N_COLS && status == MF_OK; i++)
        if (got[i] != 4.0f * (float)i) {
            CHECK_MSG(false, "value %u is %g", i, (double)got[i]);
            break;
        }
    return status;
}

/* After that: what is added early counts if it is taken up, and does not if it is dropped. */
static mf_status compute_early(mf_backend *be, mf_buffer buffer, mf_error *error)
{
    static float got[2][N_ROWS * N_COLS];
    const mf_span x = {buffer, 0};
    bool is_taken = false;
    for (int i = 0; i < 2; i++) {
        const bool has_begun = be->ops->begin_early(be);
        if (has_begun) {
            record(be, MF_OP_ADD, buffer);
            be->ops->read(be, x, got[0], N_BYTES);
        }
        const bool is_kept = has_begun && be->ops->end_early(be);
        if (i == 0)
            is_taken = is_kept && be->ops->take_early(be, NULL, 0);
    }
    mf_status status = mf_backend_read(be, x, got[1], N_BYTES, error);
    CHECK(status != MF_OK || is_taken);
    for (uint32_t i = 0; i < N_ROWS * N_COLS && status == MF_OK; i++) {
        const float sum = 4.0f * (float)i + 4.0f * (float)(rows[i / N_COLS] * N_COLS + i % N_COLS);
        if (got[0][i] != sum || got[1][i] != sum) {
            CHECK_MSG(false, "value %u is %g and %g", i, (double)got[0][i], (double)got[1][i]);
            break;
        }
    }
    return status;
}

static mf_status use_backend(mf_backend *be, mf_error *error)
{
    const mf_op add = {.kind = MF_OP_ADD, .n_rows = N_ROWS, .u.add = {.n_cols = N_COLS}};
    const mf_op copy = {.kind = MF_OP_COPY_ROWS, .n_rows = 70000 / 2};
    const mf_sequence sequence = {.n_rows = N_ROWS};
    mf_buffer buffer = {0}, more = {0}, staging = {0};
    MF_TRY(be->ops->buffer_create(be, 2 * N_BYTES, MF_USE_DEVICE, "rows", &buffer, error));
    MF_TRY(be->ops->buffer_create(be, 9 << 20, MF_USE_DEVICE, "large", &more, error));
    MF_TRY(be->ops->buffer_create(be, 5 << 20, MF_USE_STAGING, "staging", &staging, error));
    mf_backend_gather(be);
    MF_TRY(mf_backend_reserve(be, &add, error));
    MF_TRY(mf_backend_reserve(be, &copy, error));
    MF_TRY(mf_backend_gathered(be, error));
    MF_TRY(be->ops->reserve_batch(be, 3, 1000, error));
    be->ops->begin_batch(be, &sequence, 1);
    MF_TRY(compute(be, buffer, error));
    MF_TRY(compute_early(be, buffer, error));
    be->ops->copy(be, (mf_span){more, 0}, (mf_span){buffer, 0}, N_BYTES);
    (void)be->ops->upload(be, (mf_span){more, 0}, be->ops->buffer_host(be, staging), 5 << 20);
    const mf_upload ahead = {{more, 0}, be->ops->buffer_host(be, staging), 5 << 20};
    const mf_ticket arrived = be->ops->upload_ahead(be, &ahead, 1);
    be->ops->copy(be, (mf_span){buffer, N_BYTES}, (mf_span){more, 0}, N_BYTES);
    MF_TRY(be->ops->wait_for(be, arrived, error));
    be->ops->buffer_free(be, more);
    MF_TRY(be->ops->reserve_batch(be, 5, 2000, error));
    be->ops->begin_batch(be, &sequence, 1);
    return compute(be, buffer, error);
}

static mf_status live(const mf_allocator *allocator, mf_error *error)
{
    const mf_vk_hooks hooks = {.loaded = stand_between, .has_copy_queue = true};
    mf_backend_options options = {.device = vulkan_test_device()};
    mf_backend *be = NULL;
    if (allocator != NULL)
        options.allocator = *allocator;
    faults.n_calls = 0;
    mf_status status = mf_vk_backend_create(&options, &hooks, &be, error);
    if (status != MF_OK) {
        CHECK(be == NULL);
        return status;
    }
    status = use_backend(be, error);
    if (status != MF_OK) { /* whatever failed, everything can still be called */
        mf_error again = {0};
        mf_buffer buffer = {0};
        if (be->ops->buffer_create(be, 2 * N_BYTES, MF_USE_DEVICE, "rows", &buffer, &again) ==
            MF_OK) {
            float got[N_COLS] = {0};
            be->ops->write(be, (mf_span){buffer, 0}, got, sizeof got);
            be->ops->copy(be, (mf_span){buffer, N_BYTES}, (mf_span){buffer, 0}, sizeof got);
            (void)mf_backend_read(be, (mf_span){buffer, N_BYTES}, got, sizeof got, &again);
            be->ops->buffer_free(be, buffer);
        }
        CHECK(be->ops->done(be, 0));
    }
    be->ops->destroy(be);
    return status;
}

/* -------------------------------------------------------------------------------- the faults -- */

/* Every call fails once, or from then on all of them. */
static void check_driver(VkResult result, mf_status expected, bool goes_on)
{
    mf_error error = {0};
    unsigned long n = 1, n_failed = 0;
    faults.result = result;
    faults.goes_on = goes_on;
    for (bool came = true; came && n < 2000; n++) {
        faults.fail_at = n;
        error = (mf_error){0};
        mf_status status = live(NULL, &error);
        came = faults.n_calls >= n;
        CHECK_MSG(status == MF_OK || status == expected, "call %lu: %s: %s", n,
                  mf_status_name(status), error.message);
        CHECK(status == MF_OK || (error.code == expected && error.message[0] != 0));
        CHECK_MSG(faults.n_live == 0, "call %lu: %ld objects are left", n, faults.n_live);
        n_failed += status != MF_OK;
    }
    CHECK_MSG(n > 60 && n < 2000 && n_failed + 20 > n, "%lu calls, %lu failures", n, n_failed);
    faults.fail_at = 0;
    REQUIRE_OK(live(NULL, &error), &error); /* as if nothing had been */
}

static void check_allocator(void)
{
    bool done = false;
    unsigned long n = 1;
    for (; n < 1000 && !done; n++) {
        failing f = {.fail_at = n};
        mf_error error = {0};
        const mf_allocator a = failing_allocator(&f);
        mf_status status = live(&a, &error);
        done = status == MF_OK;
        if (!done) {
            CHECK_STATUS(status, MF_ERR_NO_MEMORY);
            CHECK(error.message[0] != 0);
        }
        failing_check_end(&f, "a life");
        CHECK(faults.n_live == 0);
    }
    CHECK_MSG(done && n > 4, "%lu allocations", n);
}

/* A device that is lost with work under way: backend.h says what becomes of everything. */
static void check_lost(void)
{
    const mf_vk_hooks hooks = {.loaded = stand_between};
    const mf_backend_options options = {.device = vulkan_test_device()};
    mf_error error = {0};
    mf_backend *be = NULL;
    mf_buffer buffer = {0};
    const mf_op add = {.kind = MF_OP_ADD, .n_rows = N_ROWS, .u.add = {.n_cols = N_COLS}};
    const mf_op copy = {.kind = MF_OP_COPY_ROWS, .n_rows = N_ROWS};
    faults.fail_at = 0;
    REQUIRE_OK(mf_vk_backend_create(&options, &hooks, &be, &error), &error);
    REQUIRE_OK(be->ops->buffer_create(be, 2 * N_BYTES, MF_USE_DEVICE, "rows", &buffer, &error),
               &error);
    REQUIRE_OK(mf_backend_reserve(be, &add, &error), &error);
    REQUIRE_OK(mf_backend_reserve(be, &copy, &error), &error);
    REQUIRE_OK(compute(be, buffer, &error), &error);
    faults.result = VK_ERROR_DEVICE_LOST;
    faults.goes_on = true;
    faults.fail_at = faults.n_calls + 4;
    CHECK_STATUS(compute(be, buffer, &error), MF_ERR_IO);
    CHECK_CONTAINS(error.message, "lost");
    mf_ticket ticket = be->ops->mark(be);
    CHECK(be->ops->done(be, ticket) && be->ops->done(be, ticket + 100));
    CHECK_STATUS(be->ops->wait_for(be, 0, &error), MF_ERR_IO);
    CHECK_STATUS(compute(be, buffer, &error), MF_ERR_IO);
    be->ops->buffer_free(be, buffer);
    be->ops->destroy(be);
    CHECK(faults.n_live == 0);
    faults.fail_at = 0;
    REQUIRE_OK(live(NULL, &error), &error);
}

/* Another process takes nearly all of the device's memory, and gives it back. */
static bool is_taken;
#define LEFT_BYTES ((uint64_t)3 << 20)
#define LARGE_BYTES ((uint64_t)256 << 20)

static void taken_properties(VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties2 *out)
{
    driver.GetPhysicalDeviceMemoryProperties2(physical, out);
    VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget = out->pNext;
    if (budget == NULL || !is_taken)
        return;
    REQUIRE(budget->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT);
    for (uint32_t i = 0; i < out->memoryProperties.memoryHeapCount; i++)
        budget->heapBudget[i] = budget->heapUsage[i] + LEFT_BYTES;
}

static VkResult taken_allocate(VkDevice device, const VkMemoryAllocateInfo *info,
                               const VkAllocationCallbacks *a, VkDeviceMemory *out)
{
    if (is_taken && info->allocationSize > LEFT_BYTES)
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    return driver.AllocateMemory(device, info, a, out);
}

static void take_memory(void *ctx, mf_vk_api *api)
{
    (void)ctx;
    driver = *api;
    api->GetPhysicalDeviceMemoryProperties2 = taken_properties;
    api->AllocateMemory = taken_allocate;
}

static void check_taken(void)
{
    const mf_vk_hooks hooks = {.loaded = take_memory};
    const mf_backend_options options = {.device = vulkan_test_device()};
    mf_backend_memory memories[MF_MAX_MEMORIES];
    mf_error error = {0};
    mf_backend *be = NULL;
    mf_buffer buffer = {0}, large = {0};
    const mf_op add = {.kind = MF_OP_ADD, .n_rows = N_ROWS, .u.add = {.n_cols = N_COLS}};
    const mf_op copy = {.kind = MF_OP_COPY_ROWS, .n_rows = N_ROWS};
    REQUIRE_OK(mf_vk_backend_create(&options, &hooks, &be, &error), &error);
    REQUIRE_OK(be->ops->buffer_create(be, 2 * N_BYTES, MF_USE_DEVICE, "rows", &buffer, &error),
               &error);
    REQUIRE_OK(mf_backend_reserve(be, &add, &error), &error);
    REQUIRE_OK(mf_backend_reserve(be, &copy, &error), &error);
    is_taken = true;
    (void)be->ops->memories(be, memories);
    CHECK(!((mf_vk_backend *)be)->device.info.has_memory_budget ||
          memories[0].n_bytes <= LEFT_BYTES);
    CHECK_STATUS(be->ops->buffer_create(be, LARGE_BYTES, MF_USE_DEVICE, "large", &large, &error),
                 MF_ERR_NO_MEMORY);
    CHECK(large.id == 0 && error.message[0] != 0);
    CHECK_STATUS(compute(be, buffer, &error), MF_OK); /* what it has is its own */
    is_taken = false;
    (void)be->ops->memories(be, memories);
    CHECK(memories[0].n_bytes > LEFT_BYTES);
    REQUIRE_OK(be->ops->buffer_create(be, LARGE_BYTES, MF_USE_DEVICE, "large", &large, &error),
               &error);
    be->ops->buffer_free(be, large);
    be->ops->buffer_free(be, buffer);
    be->ops->destroy(be);
}

int main(void)
{
    if (!vulkan_is_there())
        return TEST_SKIPPED;
    check_driver(VK_ERROR_OUT_OF_DEVICE_MEMORY, MF_ERR_NO_MEMORY, false);
    check_driver(VK_ERROR_OUT_OF_HOST_MEMORY, MF_ERR_NO_MEMORY, true);
    check_driver(VK_ERROR_DEVICE_LOST, MF_ERR_IO, true);
    check_allocator();
    check_lost();
    check_taken();
    return test_result();
}

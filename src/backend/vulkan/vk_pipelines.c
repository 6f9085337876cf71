/* SPDX-License-Identifier: MIT */
/* Compute pipelines: a shader and its constants, made before they are first recorded and found by
 * hash. Their layout is one for all: push constants, no descriptors. */
#include "backend/vulkan/vk_internal.h"

#include "base/threads.h"

#include <assert.h>
#include <string.h>

static bool same_kernel(const mf_vk_kernel *a, const mf_vk_kernel *b)
{
    return a->shader == b->shader && a->n_constants == b->n_constants &&
           memcmp(a->constants, b->constants, a->n_constants * sizeof *a->constants) == 0;
}

/* The kernel's place, or the one that it would have. */
static mf_vk_pipeline *find(mf_vk_backend *be, const mf_vk_kernel *k)
{
    uint32_t hash = 2166136261u ^ (uint32_t)k->shader;
    for (uint32_t i = 0; i < k->n_constants; i++)
        hash = (hash ^ k->constants[i]) * 16777619u;
    hash ^= hash >> 15;
    for (;; hash++) {
        mf_vk_pipeline *p = &be->pipelines.places[hash % MF_VK_MAX_PIPELINES];
        if (p->kernel.n_constants == 0 || same_kernel(&p->kernel, k))
            return p;
    }
}

mf_status mf_vk_pipelines_open(mf_vk_backend *be, mf_error *error)
{
    const mf_vk_device *d = &be->device;
    const VkPushConstantRange push = {VK_SHADER_STAGE_COMPUTE_BIT, 0, MF_VK_PUSH_BYTES};
    const VkPipelineLayoutCreateInfo layout = {.sType =
                                                   VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                               .pushConstantRangeCount = 1,
                                               .pPushConstantRanges = &push};
    VkResult result = d->api.CreatePipelineLayout(d->handle, &layout, NULL, &be->pipelines.layout);
    if (result != VK_SUCCESS) {
        be->pipelines.layout = VK_NULL_HANDLE;
        return mf_vk_fail(error, result, "the layout of pipelines");
    }
    return mf_vk_cache_open(be, error);
}

void mf_vk_pipelines_close(mf_vk_backend *be)
{
    const mf_vk_device *d = &be->device;
    mf_vk_cache_close(be);
    for (uint32_t i = 0; i < MF_VK_MAX_PIPELINES; i++)
        if (be->pipelines.places[i].handle != VK_NULL_HANDLE)
            d->api.DestroyPipeline(d->handle, be->pipelines.places[i].handle, NULL);
    if (be->pipelines.layout != VK_NULL_HANDLE)
        d->api.DestroyPipelineLayout(d->handle, be->pipelines.layout, NULL);
}

static VkResult create(mf_vk_backend *be, const mf_vk_kernel *k, VkShaderModule module,
                       VkPipeline *out)
{
    VkSpecializationMapEntry entries[MF_VK_MAX_CONSTANTS];
    for (uint32_t i = 0; i < k->n_constants; i++)
        entries[i] = (VkSpecializationMapEntry){i, i * 4, 4};
    const VkSpecializationInfo constants = {k->n_constants, entries, k->n_constants * 4,
                                            k->constants};
    const VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = module,
                  .pName = "main",
                  .pSpecializationInfo = &constants},
        .layout = be->pipelines.layout,
        .basePipelineIndex = -1};
    return be->device.api.CreateComputePipelines(be->device.handle, be->pipelines.cache, 1, &info,
                                                 NULL, out);
}

static VkResult make(mf_vk_backend *be, mf_vk_pipeline *p)
{
    const mf_vk_device *d = &be->device;
    const mf_vk_code *code = &mf_vk_codes[p->kernel.shader];
    VkShaderModule module;
    const VkShaderModuleCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                           .codeSize = code->n_bytes,
                                           .pCode = code->words};
    VkResult result = d->api.CreateShaderModule(d->handle, &info, NULL, &module);
    if (result != VK_SUCCESS)
        return result;
    VkPipeline handle = VK_NULL_HANDLE;
    result = create(be, &p->kernel, module, &handle);
    d->api.DestroyShaderModule(d->handle, module, NULL);
    if (result == VK_SUCCESS)
        p->handle = handle;
    return result;
}

static void make_waiting(void *ctx, uint32_t task, uint32_t thread)
{
    mf_vk_backend *be = ctx;
    mf_vk_pipeline *p = &be->pipelines.places[be->pipelines.waiting[task]];
    (void)thread;
    p->result = make(be, p);
}

/* By as many threads as the engine has, up to those whose memory is planned for
 * (mf_vulkan_driver_bytes): a driver takes up to a second for one. */
static mf_status make_all(mf_vk_backend *be, mf_error *error)
{
    const uint32_t n = be->pipelines.n_waiting;
    const uint32_t n_makers = be->n_threads < MF_VK_MAKERS ? be->n_threads : MF_VK_MAKERS;
    const uint32_t n_threads = n < n_makers ? n : n_makers;
    mf_thread_pool *pool = NULL;
    if (n_threads > 1)
        MF_TRY(mf_thread_pool_create(&be->allocator, n_threads, &pool, error));
    for (uint32_t i = 0; i < n && pool == NULL; i++)
        make_waiting(be, i, 0);
    if (pool != NULL)
        mf_thread_pool_run(pool, n, make_waiting, be);
    mf_thread_pool_free(&pool);
    return MF_OK;
}

static mf_status make_those_waiting(mf_vk_backend *be, mf_error *error)
{
    mf_vk_pipelines *all = &be->pipelines;
    mf_status status = make_all(be, error);
    for (uint32_t i = 0; i < all->n_waiting; i++) {
        const mf_vk_pipeline *p = &all->places[all->waiting[i]];
        if (status == MF_OK && p->handle == VK_NULL_HANDLE)
            status = mf_vk_fail(error, p->result, mf_vk_codes[p->kernel.shader].name);
    }
    all->n_waiting = 0;
    return status;
}

static bool is_waiting(const mf_vk_pipelines *all, uint32_t place)
{
    for (uint32_t i = 0; i < all->n_waiting; i++)
        if (all->waiting[i] == place)
            return true;
    return false;
}

mf_status mf_vk_prepare(mf_vk_backend *be, const mf_vk_kernel *kernel, mf_error *error)
{
    mf_vk_pipelines *all = &be->pipelines;
    mf_vk_pipeline *p = find(be, kernel);
    const uint32_t place = (uint32_t)(p - all->places);
    assert(kernel->n_constants >= 1 && kernel->n_constants <= MF_VK_MAX_CONSTANTS);
    if (p->handle != VK_NULL_HANDLE || is_waiting(all, place))
        return MF_OK;
    if (p->kernel.n_constants == 0 && all->n == MF_VK_MOST_PIPELINES)
        return mf_fail(error, MF_ERR_NO_MEMORY, "more than %d pipelines", MF_VK_MOST_PIPELINES);
    all->n += p->kernel.n_constants == 0;
    p->kernel = *kernel;
    all->waiting[all->n_waiting++] = place;
    return all->gathers ? MF_OK : make_those_waiting(be, error);
}

mf_status mf_vk_prepare_shader(mf_vk_backend *be, mf_vk_shader shader, uint32_t n_threads,
                               mf_error *error)
{
    const mf_vk_kernel kernel = {shader, 1, {n_threads}};
    return mf_vk_prepare(be, &kernel, error);
}

void mf_vk_gather(mf_vk_backend *be)
{
    be->pipelines.gathers = true;
}

mf_status mf_vk_gathered(mf_vk_backend *be, mf_error *error)
{
    be->pipelines.gathers = false;
    return make_those_waiting(be, error);
}

/* Reserving prepares what recording dispatches: this is a fault of ours, to be told like any. */
static void refuse(mf_vk_backend *be, const mf_vk_kernel *kernel)
{
    mf_error error = {0};
    (void)mf_fail(&error, MF_ERR_STATE, "the kernel %s was recorded, but never reserved",
                  mf_vk_codes[kernel->shader].name);
    mf_vk_give_up(be, &error);
}

void mf_vk_dispatch(mf_vk_backend *be, const mf_vk_kernel *kernel, const void *push,
                    uint32_t push_bytes, const uint32_t groups[3])
{
    mf_vk_stream *st = &be->stream;
    const mf_vk_api *api = &be->device.api;
    const VkPipeline pipeline = find(be, kernel)->handle;
    if (pipeline == VK_NULL_HANDLE) {
        refuse(be, kernel);
        return;
    }
    assert(push_bytes <= MF_VK_PUSH_BYTES && push_bytes % 4 == 0);
    assert(groups[0] <= MF_VK_MOST_GROUPS && groups[1] <= MF_VK_MOST_GROUPS &&
           groups[2] <= MF_VK_MOST_GROUPS);
    if (groups[0] == 0 || groups[1] == 0 || groups[2] == 0 || !mf_vk_begin(be))
        return;
    mf_vk_settle(be);
    mf_vk_condition_set(be);
    if (st->bound != pipeline)
        api->CmdBindPipeline(st->commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    st->bound = pipeline;
    api->CmdPushConstants(st->commands, be->pipelines.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                          push_bytes, push);
    api->CmdDispatch(st->commands, groups[0], groups[1], groups[2]);
    st->n_commands++;
    st->n_dispatches++;
}

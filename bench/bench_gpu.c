/* SPDX-License-Identifier: MIT */
#include "bench_gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARM_STEPS 2048u /* a millisecond of arithmetic by 4096 workgroups */

bool bench_gpu_parse(const bench_gpu_option *options, int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        const bench_gpu_option *o = options;
        while (o->name != NULL && strcmp(argv[i], o->name) != 0)
            o++;
        if (o->name == NULL || i + 1 == argc)
            return false;
        if (o->number != NULL)
            *o->number = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        else
            *o->text = argv[i + 1];
    }
    return true;
}

bool bench_gpu_wants(const char *only, const char *name)
{
    if (only == NULL)
        return true;
    for (;;) {
        const size_t n = strcspn(only, "|");
        if (memmem(name, strlen(name), only, n) != NULL)
            return true;
        if (only[n] == '\0')
            return false;
        only += n + 1;
    }
}

void bench_gpu_check(mf_status status, const mf_error *error)
{
    if (status == MF_OK)
        return;
    (void)fprintf(stderr, "%s: %s\n", program_invocation_short_name, error->message);
    exit(1);
}

static void check_vulkan(VkResult result, const char *what)
{
    mf_error error = {0};
    if (result != VK_SUCCESS)
        bench_gpu_check(mf_vk_fail(&error, result, what), &error);
}

void bench_gpu_open(bench_gpu *g, const mf_backend_options *options)
{
    const VkQueryPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                        .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                        .queryCount = 2};
    mf_error error = {0};
    mf_backend *base = NULL;
    bench_gpu_check(mf_vulkan_backend_create(options, &base, &error), &error);
    g->be = (mf_vk_backend *)base;
    check_vulkan(g->be->device.api.CreateQueryPool(g->be->device.handle, &info, NULL, &g->queries),
                 "timestamps");
}

void bench_gpu_close(bench_gpu *g)
{
    g->be->device.api.DestroyQueryPool(g->be->device.handle, g->queries, NULL);
    g->be->base.ops->destroy(&g->be->base);
}

mf_span bench_gpu_create(bench_gpu *g, uint64_t n_bytes, const char *what)
{
    mf_backend *base = &g->be->base;
    mf_error error = {0};
    mf_span span = {{0}, 0};
    bench_gpu_check(
        base->ops->buffer_create(base, n_bytes, MF_USE_DEVICE, what, &span.buffer, &error), &error);
    return span;
}

void bench_gpu_fill(bench_gpu *g, mf_span span, uint64_t n_bytes)
{
    static unsigned char block[1 << 20];
    uint64_t random = 88172645463325252u;
    for (uint64_t i = 0; i < sizeof block; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        block[i] = (unsigned char)(i % 2 == 0 ? random >> 20 & 0xfe : (random >> 20 & 0x83) | 0x3c);
    }
    for (uint64_t at = 0; at < n_bytes; at += sizeof block)
        g->be->base.ops->write(&g->be->base, mf_span_at(span, at), block,
                               n_bytes - at < sizeof block ? n_bytes - at : sizeof block);
}

void bench_gpu_busy(bench_gpu *g, mf_span result, uint32_t n_steps, uint32_t n_groups)
{
    const mf_vk_kernel kernel = {MF_VK_SHADER_measure_fma, 1, {256}};
    const struct {
        uint64_t result;
        uint32_t n;
        float factor, summand;
        uint32_t unused;
    } push = {mf_vk_address(g->be, result), n_steps, 0.5f, 1.0f, 0};
    mf_vk_next(g->be);
    mf_vk_dispatch(g->be, &kernel, &push, sizeof push, (const uint32_t[]){n_groups, 1, 1});
}

void bench_gpu_warm(bench_gpu *g, mf_span result, uint32_t n_ms)
{
    if (g->be->device.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU)
        return;
    for (uint32_t i = 0; i < n_ms; i++) {
        bench_gpu_busy(g, result, WARM_STEPS, 4096);
        mf_vk_barrier(g->be);
    }
}

static void stamp(bench_gpu *g, uint32_t which)
{
    mf_vk_backend *be = g->be;
    if (!mf_vk_begin(be))
        exit(1);
    if (which == 0)
        be->device.api.CmdResetQueryPool(be->stream.commands, g->queries, 0, 2);
    mf_vk_barrier(be);
    be->device.api.CmdWriteTimestamp2(be->stream.commands, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT,
                                      g->queries, which);
}

void bench_gpu_start(bench_gpu *g)
{
    stamp(g, 0);
}

double bench_gpu_stop(bench_gpu *g)
{
    const mf_vk_device *d = &g->be->device;
    uint64_t times[2] = {0};
    mf_error error = {0};
    stamp(g, 1);
    bench_gpu_check(mf_backend_finish(&g->be->base, &error), &error);
    check_vulkan(d->api.GetQueryPoolResults(d->handle, g->queries, 0, 2, sizeof times, times,
                                            sizeof *times,
                                            VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT),
                 "timestamps");
    return (double)(times[1] - times[0]) * (double)d->properties.limits.timestampPeriod;
}

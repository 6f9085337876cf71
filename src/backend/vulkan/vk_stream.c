/* SPDX-License-Identifier: MIT */
/*
 * The stream: commands go into the open submission in the order of the calls, with a barrier only
 * where bytes are touched that something since the last barrier wrote, or that are written while
 * something read them. A ticket is the number of a submission, which is the value that it gives to
 * the timeline semaphore.
 */
#include "backend/vulkan/vk_internal.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

/* Commands of submissions, one after the other: few while the device waits for work, so that it
 * begins early; what a host records while it does those; then all that comes. Each submission costs
 * an H200 as much as two commands of a large model. */
static const uint32_t n_commands_of[] = {3, 12, 64, 128};
#define LAST_STEP (sizeof n_commands_of / sizeof *n_commands_of - 1)
/* Submissions whose commands are made ready while the host waits: an H200's driver takes 10 us for
 * each. */
#define N_READY 3u
/* How long a wait asks before it sleeps: sleeping wakes late (20 to 70 us beside an H200), which is
 * a hundredth of what takes longer than this. */
#define POLL_US 6000u

/* Of the submissions since the device was idle the next one is the step-th. */
static void set_step(mf_vk_stream *st, uint32_t step)
{
    st->step = step < LAST_STEP ? step : LAST_STEP;
    st->most_commands = n_commands_of[st->step];
}

/* ----------------------------------------------------------------------------- open, close -- */

VkResult mf_vk_submission_create(const mf_vk_device *d, uint32_t family, mf_vk_submission *s)
{
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT,
                                          .queueFamilyIndex = family};
    VkResult result = d->api.CreateCommandPool(d->handle, &pool, NULL, &s->pool);
    if (result != VK_SUCCESS) {
        s->pool = VK_NULL_HANDLE;
        return result;
    }
    const VkCommandBufferAllocateInfo info = {.sType =
                                                  VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                              .commandPool = s->pool,
                                              .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                              .commandBufferCount = 1};
    return d->api.AllocateCommandBuffers(d->handle, &info, &s->commands);
}

VkResult mf_vk_timeline_create(const mf_vk_device *d, VkSemaphore *out)
{
    const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                            .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                        .pNext = &type};
    VkResult result = d->api.CreateSemaphore(d->handle, &info, NULL, out);
    if (result != VK_SUCCESS)
        *out = VK_NULL_HANDLE;
    return result;
}

void mf_vk_submissions_free(const mf_vk_device *d,
                            const mf_vk_submission submissions[MF_VK_SUBMISSIONS],
                            VkSemaphore timeline)
{
    for (uint32_t i = 0; i < MF_VK_SUBMISSIONS; i++)
        if (submissions[i].pool != VK_NULL_HANDLE)
            d->api.DestroyCommandPool(d->handle, submissions[i].pool, NULL);
    if (timeline != VK_NULL_HANDLE)
        d->api.DestroySemaphore(d->handle, timeline, NULL);
}

mf_status mf_vk_stream_open(mf_vk_backend *be, mf_error *error)
{
    mf_vk_stream *st = &be->stream;
    const mf_vk_device *d = &be->device;
    VkResult result = mf_vk_timeline_create(d, &st->timeline);
    for (uint32_t i = 0; i < MF_VK_SUBMISSIONS && result == VK_SUCCESS; i++)
        result = mf_vk_submission_create(d, d->family, &st->submissions[i]);
    set_step(st, 0);
    st->barrier = (VkMemoryBarrier2){
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2,
        .srcStageMask = VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_2_COPY_BIT,
        .srcAccessMask = VK_ACCESS_2_SHADER_WRITE_BIT | VK_ACCESS_2_TRANSFER_WRITE_BIT,
        .dstStageMask = VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_2_COPY_BIT,
        .dstAccessMask = VK_ACCESS_2_SHADER_READ_BIT | VK_ACCESS_2_SHADER_WRITE_BIT |
                         VK_ACCESS_2_TRANSFER_READ_BIT | VK_ACCESS_2_TRANSFER_WRITE_BIT};
    return result == VK_SUCCESS ? MF_OK : mf_vk_fail(error, result, "the Vulkan stream");
}

void mf_vk_stream_close(mf_vk_backend *be)
{
    mf_vk_submissions_free(&be->device, be->stream.submissions, be->stream.timeline);
}

/* ---------------------------------------------------------------------------------- a loss -- */

void mf_vk_lost(mf_vk_backend *be, VkResult result, const char *what)
{
    mf_error error = {0};
    (void)mf_vk_fail(&error, result, what);
    mf_vk_give_up(be, &error);
}

void mf_vk_give_up(mf_vk_backend *be, const mf_error *error)
{
    mf_vk_stream *st = &be->stream;
    if (st->lost != MF_OK)
        return;
    st->lost = error->code;
    (void)snprintf(st->why, sizeof st->why, "%.127s", error->message);
    /* It may work on: what it uses stays until it is done. One that is lost says so at once. */
    (void)be->device.api.QueueWaitIdle(be->device.queue);
    if (be->ahead.queue != VK_NULL_HANDLE)
        (void)be->device.api.QueueWaitIdle(be->ahead.queue);
    st->open = be->ahead.open = NULL;
    be->early.state = MF_VK_NOT_EARLY;
    st->condition = 0;
    st->n_reads = 0; /* their destinations hold anything */
    mf_vk_retire(be);
}

/* --------------------------------------------------------------------------------- waiting -- */

VkResult mf_vk_wait(mf_vk_backend *be, mf_ticket ticket)
{
    const mf_vk_device *d = &be->device;
    const VkSemaphore timeline =
        (ticket & MF_VK_AHEAD_BIT) != 0 ? be->ahead.timeline : be->stream.timeline;
    ticket &= ~MF_VK_AHEAD_BIT;
    const VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                      .semaphoreCount = 1,
                                      .pSemaphores = &timeline,
                                      .pValues = &ticket};
    const bool is_software = d->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    const uint64_t end = mf_now_us() + POLL_US;
    while (!is_software && mf_now_us() < end) { /* a CPU's device would be kept from its work */
        uint64_t value = 0;
        VkResult result = d->api.GetSemaphoreCounterValue(d->handle, timeline, &value);
        if (result != VK_SUCCESS || value >= ticket)
            return result;
    }
    return d->api.WaitSemaphores(d->handle, &info, UINT64_MAX);
}

void mf_vk_wait_in_lock(mf_vk_backend *be, mf_ticket ticket)
{
    if (be->stream.lost != MF_OK)
        return;
    VkResult result = mf_vk_wait(be, ticket);
    if (result != VK_SUCCESS)
        mf_vk_lost(be, result, "waiting for the device");
    else
        mf_vk_retire(be);
}

static void finish_reads(mf_vk_backend *be)
{
    mf_vk_stream *st = &be->stream;
    while (st->n_reads > 0 && st->reads[st->first_read].ticket <= st->retired) {
        const mf_vk_read *r = &st->reads[st->first_read];
        const mf_buffer ring = be->rings[MF_VK_RING_DOWN].buffer;
        memcpy(r->dest, be->buffers[ring.id - 1].host + r->at, r->n_bytes);
        st->first_read = (st->first_read + 1) % MF_VK_MAX_READS;
        st->n_reads--;
    }
}

static void give_rings_back(mf_vk_backend *be)
{
    mf_vk_stream *st = &be->stream;
    const mf_vk_submission *s = &st->submissions[st->retired % MF_VK_SUBMISSIONS];
    for (int i = 0; i < MF_VK_RINGS && st->retired != 0; i++)
        be->rings[i].tail = s->ring_heads[i];
}

void mf_vk_retire(mf_vk_backend *be)
{
    mf_vk_stream *st = &be->stream;
    uint64_t value = 0;
    VkResult result = VK_SUCCESS;
    if (st->lost == MF_OK)
        result = be->device.api.GetSemaphoreCounterValue(be->device.handle, st->timeline, &value);
    if (result != VK_SUCCESS) {
        mf_vk_lost(be, result, "asking the device");
        return;
    }
    if (st->lost == MF_OK && value > st->submitted) /* as some drivers answer once they are lost */
        value = st->submitted;
    if (st->lost == MF_OK && value > st->retired) {
        if (mf_vk_grid_failed(be))
            return;
        st->retired = value;
        if (value == st->submitted) /* the device is idle: it is to begin early again */
            set_step(st, 0);
        finish_reads(be);
        give_rings_back(be);
    }
    for (uint32_t id = 1; id <= be->n_buffers && be->n_freed != 0; id++) {
        const mf_vk_memory *m = &be->buffers[id - 1];
        if (m->is_freed && (m->last_use <= st->retired || st->lost != MF_OK))
            mf_vk_buffer_drop(be, (mf_buffer){id});
    }
}

/* ------------------------------------------------------------------------------ submissions -- */

/* Makes the commands of a submission that is done ready for others. */
static void make_ready(mf_vk_backend *be, mf_vk_submission *s)
{
    const VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                           .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    VkResult result = be->device.api.ResetCommandPool(be->device.handle, s->pool, 0);
    if (result == VK_SUCCESS)
        result = be->device.api.BeginCommandBuffer(s->commands, &info);
    if (result != VK_SUCCESS)
        mf_vk_lost(be, result, "recording for the device");
    s->is_ready = result == VK_SUCCESS;
}

void mf_vk_make_ready(mf_vk_backend *be)
{
    mf_vk_stream *st = &be->stream;
    for (uint32_t i = 1; i <= N_READY && st->open == NULL && be->early.state == MF_VK_NOT_EARLY;
         i++) {
        mf_vk_submission *s = &st->submissions[(st->submitted + i) % MF_VK_SUBMISSIONS];
        if (st->lost == MF_OK && !s->is_ready && s->ticket <= st->retired)
            make_ready(be, s);
    }
}

bool mf_vk_begin(mf_vk_backend *be)
{
    mf_vk_stream *st = &be->stream;
    if (be->early.state == MF_VK_EARLY_KEPT)
        mf_vk_early_drop(be);
    if (st->lost != MF_OK || be->early.state == MF_VK_EARLY_IN_VAIN)
        return false;
    if (st->open != NULL)
        return true;
    const mf_ticket ticket = st->submitted + 1;
    mf_vk_submission *s = &st->submissions[ticket % MF_VK_SUBMISSIONS];
    if (s->ticket > st->retired)
        mf_vk_wait_in_lock(be, s->ticket);
    if (st->lost == MF_OK && !s->is_ready)
        make_ready(be, s);
    if (st->lost != MF_OK)
        return false;
    s->is_ready = false;
    s->ticket = ticket;
    s->awaits = 0;
    st->open = s;
    st->commands = s->commands;
    st->n_commands = 0;
    st->n_upload_bytes = 0;
    st->bound = VK_NULL_HANDLE;
    mf_vk_timing_begin(be, (uint32_t)(s - st->submissions));
    return true;
}

static void memory_barrier(mf_vk_backend *be, const VkMemoryBarrier2 *barrier)
{
    const VkDependencyInfo info = {.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO,
                                   .memoryBarrierCount = 1,
                                   .pMemoryBarriers = barrier};
    be->device.api.CmdPipelineBarrier2(be->stream.commands, &info);
}

/* What the device wrote is seen by the host once the semaphore says so. */
static void to_host(mf_vk_backend *be)
{
    const VkMemoryBarrier2 barrier = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2,
        .srcStageMask = VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_2_COPY_BIT,
        .srcAccessMask = VK_ACCESS_2_SHADER_WRITE_BIT | VK_ACCESS_2_TRANSFER_WRITE_BIT,
        .dstStageMask = VK_PIPELINE_STAGE_2_HOST_BIT,
        .dstAccessMask = VK_ACCESS_2_HOST_READ_BIT};
    memory_barrier(be, &barrier);
}

mf_vk_submission *mf_vk_submission_close(mf_vk_backend *be)
{
    mf_vk_stream *st = &be->stream;
    mf_vk_submission *s = st->open;
    mf_vk_condition_end(be);
    to_host(be);
    VkResult result = be->device.api.EndCommandBuffer(s->commands);
    if (result != VK_SUCCESS) {
        mf_vk_lost(be, result, "recording for the device");
        return NULL;
    }
    for (int i = 0; i < MF_VK_RINGS; i++)
        s->ring_heads[i] = be->rings[i].head;
    st->open = NULL;
    return s;
}

void mf_vk_submission_hand_over(mf_vk_backend *be, mf_vk_submission *s)
{
    const VkCommandBufferSubmitInfo commands = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO, .commandBuffer = s->commands};
    const VkSemaphoreSubmitInfo signal = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO,
                                          .semaphore = be->stream.timeline,
                                          .value = s->ticket,
                                          .stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT};
    const VkSemaphoreSubmitInfo wait = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO,
                                        .semaphore = be->ahead.timeline,
                                        .value = s->awaits,
                                        .stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT};
    const VkSubmitInfo2 info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
                                .waitSemaphoreInfoCount = s->awaits != 0 ? 1 : 0,
                                .pWaitSemaphoreInfos = &wait,
                                .commandBufferInfoCount = 1,
                                .pCommandBufferInfos = &commands,
                                .signalSemaphoreInfoCount = 1,
                                .pSignalSemaphoreInfos = &signal};
    VkResult result = be->device.api.QueueSubmit2(be->device.queue, 1, &info, VK_NULL_HANDLE);
    if (result != VK_SUCCESS) {
        mf_vk_lost(be, result, "handing work to the device");
        return;
    }
    be->stream.submitted = s->ticket;
}

void mf_vk_submit(mf_vk_backend *be)
{
    mf_vk_stream *st = &be->stream;
    mf_vk_early_drop(be);   /* who waits may be about to free what it uses */
    mf_vk_ahead_submit(be); /* who waits for this may need that, too */
    if (st->open == NULL || st->lost != MF_OK)
        return;
    mf_vk_submission *s = mf_vk_submission_close(be);
    if (s != NULL)
        mf_vk_submission_hand_over(be, s);
}

void mf_vk_command_done(mf_vk_backend *be)
{
    mf_vk_stream *st = &be->stream;
    if (st->open == NULL || st->n_commands < st->most_commands || be->early.state == MF_VK_EARLY)
        return;
    mf_vk_submit(be);
    set_step(st, st->step + 1);
}

mf_ticket mf_vk_present(const mf_vk_backend *be)
{
    const mf_vk_stream *st = &be->stream;
    return st->open != NULL ? st->open->ticket : st->submitted;
}

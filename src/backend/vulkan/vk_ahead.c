/* SPDX-License-Identifier: MIT */
/*
 * Uploads ahead of the stream: copies on a queue of their own, whose submissions count up a
 * semaphore. A submission of the stream that uses what arrives begins after that value; others run
 * beside the copies. Who uploads has seen to it that nothing in the stream still uses the bytes, so
 * that no copy waits for the stream. Copies among themselves keep their order where they write the
 * same bytes.
 */
#include "backend/vulkan/vk_internal.h"

/* Uploads of so many bytes begin at once: they take longer than a submission costs. Behind others
 * more come together, up to the most: who uploads a layer's experts is not kept waiting. */
#define EARLY_BYTES ((uint64_t)1 << 20)
#define MOST_DOUBLINGS 4u

mf_status mf_vk_ahead_open(mf_vk_backend *be, mf_error *error)
{
    const mf_vk_device *d = &be->device;
    mf_vk_ahead *a = &be->ahead;
    if (d->copy_queue == VK_NULL_HANDLE)
        return MF_OK;
    VkResult result = mf_vk_timeline_create(d, &a->timeline);
    for (uint32_t i = 0; i < MF_VK_SUBMISSIONS && result == VK_SUCCESS; i++)
        result = mf_vk_submission_create(d, d->copy_family, &a->submissions[i]);
    if (result != VK_SUCCESS)
        return mf_vk_fail(error, result, "uploads to the device");
    a->queue = d->copy_queue;
    return MF_OK;
}

void mf_vk_ahead_close(mf_vk_backend *be)
{
    mf_vk_submissions_free(&be->device, be->ahead.submissions, be->ahead.timeline);
}

/* Asks how far the copies are. */
static void retire(mf_vk_backend *be)
{
    mf_vk_ahead *a = &be->ahead;
    uint64_t value = 0;
    if (be->stream.lost != MF_OK)
        return;
    VkResult result =
        be->device.api.GetSemaphoreCounterValue(be->device.handle, a->timeline, &value);
    if (result != VK_SUCCESS)
        mf_vk_lost(be, result, "asking the device");
    else /* some drivers answer anything once they are lost */
        a->retired = value > a->submitted ? a->submitted : value;
}

bool mf_vk_ahead_done(mf_vk_backend *be, mf_ticket ticket)
{
    mf_vk_ahead *a = &be->ahead;
    const uint64_t value = ticket & ~MF_VK_AHEAD_BIT;
    if (value > a->submitted)
        mf_vk_ahead_submit(be);
    if (value > a->retired && value <= a->submitted)
        retire(be);
    return value <= a->retired || be->stream.lost != MF_OK;
}

/* ------------------------------------------------------------------------------ submissions -- */

static bool begin(mf_vk_backend *be)
{
    const mf_vk_device *d = &be->device;
    mf_vk_ahead *a = &be->ahead;
    if (be->stream.lost != MF_OK || a->open != NULL)
        return be->stream.lost == MF_OK;
    mf_vk_submission *s = &a->submissions[(a->submitted + 1) % MF_VK_SUBMISSIONS];
    const VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                           .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    VkResult result = VK_SUCCESS;
    if (s->ticket > a->retired)
        result = mf_vk_wait(be, s->ticket | MF_VK_AHEAD_BIT);
    if (result == VK_SUCCESS)
        result = d->api.ResetCommandPool(d->handle, s->pool, 0);
    if (result == VK_SUCCESS)
        result = d->api.BeginCommandBuffer(s->commands, &info);
    if (result != VK_SUCCESS) {
        mf_vk_lost(be, result, "uploading to the device");
        return false;
    }
    s->ticket = a->submitted + 1;
    a->open = s;
    a->n_bytes = 0;
    return true;
}

void mf_vk_ahead_submit(mf_vk_backend *be)
{
    mf_vk_ahead *a = &be->ahead;
    mf_vk_submission *s = a->open;
    if (s == NULL)
        return;
    VkResult result = be->device.api.EndCommandBuffer(s->commands);
    const VkCommandBufferSubmitInfo commands = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO, .commandBuffer = s->commands};
    const VkSemaphoreSubmitInfo signal = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO,
                                          .semaphore = a->timeline,
                                          .value = s->ticket,
                                          .stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT};
    const VkSubmitInfo2 info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
                                .commandBufferInfoCount = 1,
                                .pCommandBufferInfos = &commands,
                                .signalSemaphoreInfoCount = 1,
                                .pSignalSemaphoreInfos = &signal};
    if (result == VK_SUCCESS)
        result = be->device.api.QueueSubmit2(a->queue, 1, &info, VK_NULL_HANDLE);
    if (result != VK_SUCCESS) {
        mf_vk_lost(be, result, "uploading to the device");
        return;
    }
    a->submitted = s->ticket;
    a->open = NULL;
}

/* --------------------------------------------------------------------------------- arrivals -- */

/* The last upload that writes into these addresses and that the stream was not told to begin after;
 * 0: none. */
static uint64_t last_into(const mf_vk_ahead *a, uint64_t begin, uint64_t end)
{
    uint64_t last = a->forgotten > a->awaited ? a->forgotten : 0;
    for (uint32_t i = 0; i < a->n_pending; i++)
        if (a->pending[i].begin < end && begin < a->pending[i].end && a->pending[i].value > last)
            last = a->pending[i].value;
    return last;
}

/* Those that the stream begins after are nobody's concern any more. */
static void forget(mf_vk_ahead *a)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n_pending; i++)
        if (a->pending[i].value > a->awaited)
            a->pending[n++] = a->pending[i];
    a->n_pending = n;
}

static void keep(mf_vk_ahead *a, uint64_t at, uint64_t n_bytes)
{
    mf_vk_arrival *last = a->n_pending > 0 ? &a->pending[a->n_pending - 1] : NULL;
    if (last != NULL && last->value == a->open->ticket && last->end == at) {
        last->end += n_bytes;
        return;
    }
    if (a->n_pending == MF_VK_AHEAD_PENDING) { /* the oldest: whatever is used waits for it */
        a->forgotten = a->pending[0].value;
        for (uint32_t i = 1; i < a->n_pending; i++)
            a->pending[i - 1] = a->pending[i];
        a->n_pending--;
    }
    a->pending[a->n_pending++] = (mf_vk_arrival){at, at + n_bytes, a->open->ticket};
}

/* The stream goes on after this upload. One that is there costs nothing; another begins a
 * submission, so that what was recorded before does not wait. */
static void await(mf_vk_backend *be, uint64_t value)
{
    mf_vk_ahead *a = &be->ahead;
    if (value == 0)
        return;
    if (value > a->submitted)
        mf_vk_ahead_submit(be);
    if (value > a->retired)
        retire(be);
    if (value > a->retired && be->stream.open != NULL && be->stream.n_commands > 0)
        mf_vk_submit(be);
    if (!mf_vk_begin(be))
        return;
    be->stream.open->awaits = value;
    a->awaited = value;
    forget(a);
}

void mf_vk_ahead_await(mf_vk_backend *be, mf_span span, uint64_t n_bytes)
{
    const uint64_t at = mf_vk_address(be, span);
    if (be->ahead.n_pending != 0)
        await(be, last_into(&be->ahead, at, at + n_bytes));
}

void mf_vk_ahead_await_touched(mf_vk_backend *be)
{
    const mf_vk_stream *st = &be->stream;
    const mf_vk_ahead *a = &be->ahead;
    uint64_t last = 0;
    if (a->n_pending == 0)
        return;
    for (uint32_t i = 0; i < st->n_touches && !st->touches_all; i++) {
        const uint64_t value = last_into(a, st->touches[i].begin, st->touches[i].end);
        last = value > last ? value : last;
    }
    await(be, st->touches_all ? a->pending[a->n_pending - 1].value : last);
}

/* ---------------------------------------------------------------------------------- uploads -- */

static void barrier(mf_vk_backend *be)
{
    static const VkMemoryBarrier2 copies = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2,
                                            .srcStageMask = VK_PIPELINE_STAGE_2_COPY_BIT,
                                            .srcAccessMask = VK_ACCESS_2_TRANSFER_WRITE_BIT,
                                            .dstStageMask = VK_PIPELINE_STAGE_2_COPY_BIT,
                                            .dstAccessMask = VK_ACCESS_2_TRANSFER_WRITE_BIT};
    const VkDependencyInfo info = {.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO,
                                   .memoryBarrierCount = 1,
                                   .pMemoryBarriers = &copies};
    be->device.api.CmdPipelineBarrier2(be->ahead.open->commands, &info);
}

/* Copies between the same two buffers that wait for nothing, which are one command. */
#define MOST_REGIONS 16u
typedef struct copies {
    VkBuffer from, to;
    VkBufferCopy regions[MOST_REGIONS];
    uint32_t n;
} copies;

static void flush(mf_vk_backend *be, copies *c)
{
    if (c->n != 0 && be->ahead.open != NULL)
        be->device.api.CmdCopyBuffer(be->ahead.open->commands, c->from, c->to, c->n, c->regions);
    c->n = 0;
}

static void copy(mf_vk_backend *be, copies *c, const mf_upload *u, mf_span from)
{
    mf_vk_ahead *a = &be->ahead;
    const uint64_t at = mf_vk_address(be, u->dest);
    const VkBuffer src = be->buffers[from.buffer.id - 1].buffer;
    const VkBuffer dest = be->buffers[u->dest.buffer.id - 1].buffer;
    if (u->n_bytes == 0 || !begin(be))
        return;
    const bool waits = last_into(a, at, at + u->n_bytes) != 0;
    if (waits || c->n == MOST_REGIONS || src != c->from || dest != c->to)
        flush(be, c);
    if (waits)
        barrier(be);
    c->from = src;
    c->to = dest;
    c->regions[c->n++] = (VkBufferCopy){from.offset, u->dest.offset, u->n_bytes};
    keep(a, at, u->n_bytes);
    a->n_bytes += u->n_bytes;
}

static uint64_t bytes_to_submit(mf_vk_backend *be)
{
    const mf_vk_ahead *a = &be->ahead;
    if (a->submitted > a->retired)
        retire(be);
    const uint64_t n = a->submitted - a->retired;
    return EARLY_BYTES << (n < MOST_DOUBLINGS ? n : MOST_DOUBLINGS);
}

mf_ticket mf_vk_upload_ahead(mf_vk_backend *be, const mf_upload *uploads, uint32_t n)
{
    mf_vk_ahead *a = &be->ahead;
    copies c = {.n = 0};
    bool is_ahead = a->queue != VK_NULL_HANDLE;
    for (uint32_t i = 0; i < n; i++)
        is_ahead &= mf_vk_span_of_host(be, uploads[i].src, uploads[i].n_bytes).buffer.id != 0;
    for (uint32_t i = 0; i < n && !is_ahead; i++)
        mf_vk_upload(be, uploads[i].dest, uploads[i].src, uploads[i].n_bytes);
    if (!is_ahead)
        return mf_vk_present(be);
    for (uint32_t i = 0; i < n; i++)
        copy(be, &c, &uploads[i], mf_vk_span_of_host(be, uploads[i].src, uploads[i].n_bytes));
    flush(be, &c);
    const mf_ticket ticket = a->open != NULL ? a->open->ticket : a->submitted;
    if (a->open != NULL && a->n_bytes >= EARLY_BYTES && a->n_bytes >= bytes_to_submit(be))
        mf_vk_ahead_submit(be);
    return ticket | MF_VK_AHEAD_BIT;
}

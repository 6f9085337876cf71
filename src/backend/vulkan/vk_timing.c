/* SPDX-License-Identifier: MIT */
/* The device's time by kinds of operations, from timestamps: one when a submission begins and one
 * behind each operation, so that all of the time between belongs to somebody. */
#include "backend/vulkan/vk_internal.h"

#include <string.h>

static uint32_t first_query(uint32_t submission)
{
    return submission * MF_VK_MAX_TIMES;
}

static void stamp(mf_vk_backend *be, uint32_t submission)
{
    mf_vk_timing *t = &be->timing;
    be->device.api.CmdWriteTimestamp2(be->stream.commands, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT,
                                      t->pool, first_query(submission) + t->n[submission]++);
}

/* Takes in a submission that is done. */
static void collect(mf_vk_backend *be, uint32_t submission)
{
    mf_vk_timing *t = &be->timing;
    uint64_t ticks[MF_VK_MAX_TIMES];
    const uint32_t n = t->n[submission];
    t->n[submission] = 0;
    if (n < 2 || be->device.api.GetQueryPoolResults(
                     be->device.handle, t->pool, first_query(submission), n, n * sizeof *ticks,
                     ticks, sizeof *ticks, VK_QUERY_RESULT_64_BIT) != VK_SUCCESS)
        return;
    for (uint32_t i = 1; i < n; i++) {
        mf_op_time *time = &t->times[t->kinds[submission][i]];
        time->n++;
        time->ns += (uint64_t)((double)((ticks[i] - ticks[i - 1]) & t->mask) * t->ns_per_tick);
    }
}

void mf_vk_timing_begin(mf_vk_backend *be, uint32_t submission)
{
    mf_vk_timing *t = &be->timing;
    if (t->pool == VK_NULL_HANDLE)
        return;
    collect(be, submission); /* what it was before */
    be->device.api.CmdResetQueryPool(be->stream.commands, t->pool, first_query(submission),
                                     MF_VK_MAX_TIMES);
    stamp(be, submission);
}

void mf_vk_timing_op(mf_vk_backend *be, mf_op_kind kind)
{
    mf_vk_timing *t = &be->timing;
    if (t->pool == VK_NULL_HANDLE || be->stream.open == NULL)
        return;
    const uint32_t submission = (uint32_t)(be->stream.open - be->stream.submissions);
    if (t->n[submission] == 0 || t->n[submission] == MF_VK_MAX_TIMES)
        return;
    t->kinds[submission][t->n[submission]] = (uint8_t)kind;
    stamp(be, submission);
}

void mf_vk_timing_close(mf_vk_backend *be)
{
    if (be->timing.pool != VK_NULL_HANDLE)
        be->device.api.DestroyQueryPool(be->device.handle, be->timing.pool, NULL);
    memset(&be->timing, 0, sizeof be->timing);
}

mf_status mf_vk_timing_set(mf_vk_backend *be, bool is_on, mf_error *error)
{
    const mf_vk_device *d = &be->device;
    const uint32_t bits = d->timestamp_bits;
    mf_vk_submit(be);
    mf_vk_wait_in_lock(be, be->stream.submitted);
    mf_vk_timing_close(be);
    if (!is_on)
        return MF_OK;
    if (bits == 0)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s has no timestamps", d->info.name);
    const VkQueryPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                        .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                        .queryCount = MF_VK_SUBMISSIONS * MF_VK_MAX_TIMES};
    VkResult result = d->api.CreateQueryPool(d->handle, &info, NULL, &be->timing.pool);
    if (result != VK_SUCCESS) {
        be->timing.pool = VK_NULL_HANDLE;
        return mf_vk_fail(error, result, "timestamps");
    }
    be->timing.mask = bits >= 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
    be->timing.ns_per_tick = (double)d->properties.limits.timestampPeriod;
    return MF_OK;
}

void mf_vk_timing_read(mf_vk_backend *be, mf_op_time *out)
{
    mf_vk_retire(be);
    for (uint32_t i = 0; i < MF_VK_SUBMISSIONS && be->stream.lost == MF_OK; i++)
        if (&be->stream.submissions[i] != be->stream.open &&
            be->stream.submissions[i].ticket <= be->stream.retired)
            collect(be, i);
    for (uint32_t i = 0; i < MF_N_OP_KINDS; i++) {
        out[i].n += be->timing.times[i].n;
        out[i].ns += be->timing.times[i].ns;
    }
}

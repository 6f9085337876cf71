/* SPDX-License-Identifier: MIT */
/* What must not overlap: device addresses that are touched, and the barriers between. */
#include "backend/vulkan/vk_internal.h"

/* More touches than this of one operation are told from each other by their buffer alone. */
#define FINE_TOUCHES 64u

static bool extend(mf_vk_access *a, const mf_vk_access *b)
{
    if (a->buffer != b->buffer || a->is_write != b->is_write)
        return false;
    a->begin = a->begin < b->begin ? a->begin : b->begin;
    a->end = a->end > b->end ? a->end : b->end;
    return true;
}

void mf_vk_touch(mf_vk_backend *be, mf_span span, uint64_t n_bytes, uint32_t access)
{
    mf_vk_stream *st = &be->stream;
    const uint64_t at = mf_vk_address(be, span);
    const mf_vk_access a = {at, at + n_bytes, span.buffer.id, (access & ~MF_READS) != 0};
    if (a.is_write && st->condition >= a.begin && st->condition < a.end)
        st->is_condition_stale = true;
    mf_vk_access *last = st->n_touches > st->n_settled ? &st->touches[st->n_touches - 1] : NULL;
    if (span.buffer.id == 0 || n_bytes == 0)
        return;
    if (last != NULL && (last->end == a.begin || last->begin == a.end) && extend(last, &a))
        return;
    for (uint32_t i = st->n_settled; i < st->n_touches && st->n_touches >= FINE_TOUCHES; i++)
        if (extend(&st->touches[i], &a))
            return;
    if (st->n_touches < MF_VK_MAX_TOUCHES)
        st->touches[st->n_touches++] = a;
    else
        st->touches_all = true;
}

void mf_vk_next(mf_vk_backend *be)
{
    be->stream.n_touches = be->stream.n_settled = 0;
    be->stream.touches_all = false;
}

static bool overlap(const mf_vk_access *a, const mf_vk_access *b)
{
    return (a->is_write || b->is_write) && a->begin < b->end && b->begin < a->end;
}

/* Whether the touches from `first` on must not overlap with what is recorded since the last
 * barrier, the operation's own earlier dispatches aside. */
static bool conflicts(const mf_vk_stream *st, uint32_t first)
{
    const uint32_t n_others = st->n_accesses - first; /* its own are the last */
    if (st->accesses_all || (st->touches_all && st->n_accesses != 0) ||
        st->n_accesses + st->n_touches - first > MF_VK_MAX_ACCESSES)
        return true;
    for (uint32_t i = first; i < st->n_touches; i++)
        for (uint32_t j = 0; j < n_others; j++)
            if (overlap(&st->touches[i], &st->accesses[j]))
                return true;
    return false;
}

static void keep(mf_vk_stream *st)
{
    while (st->n_settled < st->n_touches)
        st->accesses[st->n_accesses++] = st->touches[st->n_settled++];
    st->accesses_all |= st->touches_all;
}

void mf_vk_settle(mf_vk_backend *be)
{
    mf_vk_stream *st = &be->stream;
    if (mf_vk_condition_waits(be)) {
        mf_vk_barrier(be);
        return;
    }
    if (st->n_settled == st->n_touches && !st->touches_all)
        return;
    if (conflicts(st, st->n_settled))
        mf_vk_barrier(be);
    else
        keep(st);
}

/* No stage of indirect commands: with it an H200 takes 4.0 us from one dispatch to the next instead
 * of 1.9. That of conditions may cost as much: it is there where a word was written. */
void mf_vk_barrier(mf_vk_backend *be)
{
    mf_vk_stream *st = &be->stream;
    VkMemoryBarrier2 barrier = st->barrier;
    const VkDependencyInfo info = {.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO,
                                   .memoryBarrierCount = 1,
                                   .pMemoryBarriers = &barrier};
    if (!mf_vk_begin(be))
        return;
    if (mf_vk_condition_waits(be)) {
        barrier.dstStageMask |= VK_PIPELINE_STAGE_2_CONDITIONAL_RENDERING_BIT_EXT;
        barrier.dstAccessMask |= VK_ACCESS_2_CONDITIONAL_RENDERING_READ_BIT_EXT;
        st->has_unseen_conditions = false;
    }
    be->device.api.CmdPipelineBarrier2(st->commands, &info);
    st->n_barriers++;
    st->n_accesses = st->n_settled = 0;
    st->accesses_all = false;
    keep(st); /* the operation at hand goes on touching its bytes */
}

/* SPDX-License-Identifier: MIT */
/*
 * Operations that a word leaves undone (mf_op.when): their dispatches stand between the beginning
 * and the end of VK_EXT_conditional_rendering, which a device's front end skips when the word is 0.
 * A device may read the word where that begins, so that it begins anew when the word has been
 * written, after a barrier for it. Copies are never skipped.
 */
#include "backend/vulkan/vk_internal.h"

bool mf_vk_condition_changes(const mf_vk_backend *be)
{
    const mf_vk_stream *st = &be->stream;
    const uint64_t word = mf_vk_address(be, st->when);
    return word != st->condition || (word != 0 && st->is_condition_stale);
}

bool mf_vk_condition_waits(const mf_vk_backend *be)
{
    const mf_vk_stream *st = &be->stream;
    return st->when.buffer.id != 0 && st->has_unseen_conditions && mf_vk_condition_changes(be);
}

void mf_vk_condition_end(mf_vk_backend *be)
{
    mf_vk_stream *st = &be->stream;
    if (st->condition != 0)
        be->device.api.CmdEndConditionalRenderingEXT(st->commands);
    st->condition = 0;
    st->is_condition_stale = false;
}

void mf_vk_condition_set(mf_vk_backend *be)
{
    mf_vk_stream *st = &be->stream;
    if (!mf_vk_condition_changes(be))
        return;
    mf_vk_condition_end(be);
    if (st->when.buffer.id == 0)
        return;
    const VkConditionalRenderingBeginInfoEXT info = {
        .sType = VK_STRUCTURE_TYPE_CONDITIONAL_RENDERING_BEGIN_INFO_EXT,
        .buffer = be->buffers[st->when.buffer.id - 1].buffer,
        .offset = st->when.offset};
    be->device.api.CmdBeginConditionalRenderingEXT(st->commands, &info);
    st->condition = mf_vk_address(be, st->when);
}

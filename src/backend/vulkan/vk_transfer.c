/* SPDX-License-Identifier: MIT */
/* Bytes to the device, on it, and back: copies in the stream, through rings of the host's memory
 * where the host's side is not the device's already. */
#include "backend/vulkan/vk_internal.h"

#include <string.h>

/* Uploads of so many bytes begin at once: they take longer than a submission costs. */
#define EARLY_BYTES ((uint64_t)1 << 20)

static VkBuffer buffer_of(const mf_vk_backend *be, mf_span span)
{
    return be->buffers[span.buffer.id - 1].buffer;
}

/* Puts a copy into the stream. The ring's side needs no order: its bytes are nobody else's. */
static void copy_command(mf_vk_backend *be, mf_span dest, mf_span src, uint64_t n_bytes)
{
    const VkBufferCopy region = {src.offset, dest.offset, n_bytes};
    if (n_bytes == 0 || !mf_vk_begin(be))
        return;
    mf_vk_settle(be);
    be->device.api.CmdCopyBuffer(be->stream.commands, buffer_of(be, src), buffer_of(be, dest), 1,
                                 &region);
    be->stream.n_commands++;
    mf_vk_command_done(be);
}

void mf_vk_copy(mf_vk_backend *be, mf_span dest, mf_span src, uint64_t n_bytes)
{
    mf_vk_next(be);
    mf_vk_touch(be, dest, n_bytes, MF_WRITES);
    mf_vk_touch(be, src, n_bytes, MF_READS);
    mf_vk_ahead_await_touched(be);
    copy_command(be, dest, src, n_bytes);
}

/* What goes through a ring at a time. */
static uint64_t piece_of(const mf_vk_ring *ring, uint64_t n_left)
{
    const uint64_t most = ring->n_bytes / 4;
    return n_left < most ? n_left : most;
}

void mf_vk_write(mf_vk_backend *be, mf_span dest, const void *src, uint64_t n_bytes)
{
    const unsigned char *from = src;
    be->stream.has_unseen_conditions = true; /* what is written may be words */
    mf_vk_ahead_await(be, dest, n_bytes);
    for (uint64_t at = 0, n; at < n_bytes; at += n) {
        mf_span stage;
        n = piece_of(&be->rings[MF_VK_RING_UP], n_bytes - at);
        if (!mf_vk_ring_take(be, MF_VK_RING_UP, n, &stage))
            return;
        memcpy(be->buffers[stage.buffer.id - 1].host + stage.offset, from + at, n);
        mf_vk_next(be);
        mf_vk_touch(be, mf_span_at(dest, at), n, MF_WRITES);
        copy_command(be, mf_span_at(dest, at), stage, n);
    }
}

void mf_vk_upload(mf_vk_backend *be, mf_span dest, const void *src, uint64_t n_bytes)
{
    const mf_span from = mf_vk_span_of_host(be, src, n_bytes);
    if (from.buffer.id == 0)
        mf_vk_write(be, dest, src, n_bytes);
    else
        mf_vk_copy(be, dest, from, n_bytes);
    be->stream.n_upload_bytes += n_bytes;
    if (be->stream.n_upload_bytes >= EARLY_BYTES)
        mf_vk_submit(be);
}

static void room_for_read(mf_vk_backend *be)
{
    mf_vk_stream *st = &be->stream;
    if (st->n_reads < MF_VK_MAX_READS)
        return;
    mf_vk_submit(be);
    mf_vk_wait_in_lock(be, st->reads[st->first_read].ticket);
}

static void keep_read(mf_vk_backend *be, const mf_vk_read *read)
{
    mf_vk_stream *st = &be->stream;
    st->reads[(st->first_read + st->n_reads++) % MF_VK_MAX_READS] = *read;
    be->early.n_reads += be->early.state == MF_VK_EARLY;
}

void mf_vk_read_back(mf_vk_backend *be, mf_span src, void *dest, uint64_t n_bytes)
{
    const mf_span to = mf_vk_span_of_host(be, dest, n_bytes);
    mf_vk_ahead_await(be, src, n_bytes);
    if (to.buffer.id != 0) {
        mf_vk_copy(be, to, src, n_bytes);
        return;
    }
    for (uint64_t at = 0, n; at < n_bytes; at += n) {
        mf_span stage;
        n = piece_of(&be->rings[MF_VK_RING_DOWN], n_bytes - at);
        room_for_read(be);
        if (!mf_vk_ring_take(be, MF_VK_RING_DOWN, n, &stage))
            return;
        /* before the copy, which may end the submission */
        keep_read(be, &(mf_vk_read){mf_vk_present(be), stage.offset, (char *)dest + at, n});
        mf_vk_next(be);
        mf_vk_touch(be, mf_span_at(src, at), n, MF_READS);
        copy_command(be, stage, mf_span_at(src, at), n);
    }
}

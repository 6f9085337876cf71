/* SPDX-License-Identifier: MIT */
/* Rings of bytes that work in flight uses. */
#include "backend/vulkan/vk_internal.h"

#include "base/checked.h"

#include <string.h>

#define RING_ALIGN ((uint64_t)256)

static const struct {
    uint64_t n_bytes; /* at first */
    mf_vk_place place;
    mf_buffer_use use;
    const char *what;
} kinds[MF_VK_RINGS] = {
    [MF_VK_RING_UP] = {(uint64_t)8 << 20, MF_VK_ON_HOST, MF_USE_STAGING, "bytes to the device"},
    [MF_VK_RING_DOWN] = {(uint64_t)2 << 20, MF_VK_ON_HOST, MF_USE_STAGING, "bytes from the device"},
    [MF_VK_RING_PARAMETERS] = {(uint64_t)1 << 20, MF_VK_SHARED, MF_USE_DEVICE,
                               "parameters of operations"},
    [MF_VK_RING_SCRATCH] = {0, MF_VK_ON_DEVICE, MF_USE_DEVICE, "scratch of operations"},
};

static mf_status ring_create(mf_vk_backend *be, mf_vk_ring_use use, uint64_t n_bytes,
                             mf_error *error)
{
    mf_vk_ring *r = &be->rings[use];
    const mf_vk_request request = {.n_bytes = n_bytes,
                                   .place = kinds[use].place,
                                   .use = kinds[use].use,
                                   .is_internal = true,
                                   .what = kinds[use].what};
    mf_buffer buffer = {0};
    MF_TRY(mf_vk_buffer_create(be, &request, &buffer, error));
    r->buffer = buffer;
    r->n_bytes = n_bytes;
    r->head = r->tail = 0;
    for (int i = 0; i < MF_VK_SUBMISSIONS; i++) /* what they took of it is done */
        be->stream.submissions[i].ring_heads[use] = 0;
    return MF_OK;
}

/* The first of the host's memory that the device is to use: one that says that it can, and cannot
 * (a container that may not lock pages), has its driver's. */
static mf_status first_create(mf_vk_backend *be, mf_vk_ring_use use, mf_error *error)
{
    mf_status status = ring_create(be, use, kinds[use].n_bytes, error);
    if (status != MF_ERR_NO_MEMORY || kinds[use].place != MF_VK_ON_HOST ||
        be->device.import_align == 0)
        return status;
    be->device.import_align = 0;
    return ring_create(be, use, kinds[use].n_bytes, error);
}

mf_status mf_vk_rings_open(mf_vk_backend *be, mf_error *error)
{
    for (int i = 0; i < MF_VK_RINGS; i++)
        if (kinds[i].n_bytes != 0)
            MF_TRY(first_create(be, (mf_vk_ring_use)i, error));
    return MF_OK;
}

bool mf_vk_ring_room(mf_vk_backend *be, mf_vk_ring_use use, uint64_t n_bytes)
{
    mf_vk_ring *r = &be->rings[use];
    mf_vk_stream *st = &be->stream;
    const uint64_t needed = 2 * mf_round_up(n_bytes, RING_ALIGN); /* perhaps from its beginning */
    while (use != MF_VK_RING_SCRATCH && st->lost == MF_OK &&
           r->n_bytes - (r->head - r->tail) < needed) {
        if (st->retired == st->submitted)
            mf_vk_submit(be);
        if (st->retired == st->submitted)
            r->tail = r->head; /* nothing uses it */
        else
            mf_vk_wait_in_lock(be, st->retired + 1);
    }
    return st->lost == MF_OK;
}

bool mf_vk_ring_take(mf_vk_backend *be, mf_vk_ring_use use, uint64_t n_bytes, mf_span *out)
{
    mf_vk_ring *r = &be->rings[use];
    const uint64_t size = mf_round_up(n_bytes, RING_ALIGN);
    if (!mf_vk_ring_room(be, use, n_bytes) || !mf_vk_begin(be))
        return false;
    if (r->n_bytes - r->head % r->n_bytes < size)
        r->head += r->n_bytes - r->head % r->n_bytes;
    *out = (mf_span){r->buffer, r->head % r->n_bytes};
    r->head += size;
    return true;
}

mf_status mf_vk_ring_need(mf_vk_backend *be, mf_vk_ring_use use, uint64_t n_bytes, mf_error *error)
{
    mf_vk_ring *r = &be->rings[use];
    const uint64_t size = 4 * mf_round_up(n_bytes + 8 * RING_ALIGN, RING_ALIGN);
    if (size > r->n_bytes) {
        mf_vk_submit(be);
        mf_vk_wait_in_lock(be, be->stream.submitted);
        mf_vk_buffer_drop(be, r->buffer); /* first: room for both would be more than is needed */
        r->buffer = (mf_buffer){0};
        r->n_bytes = 0;
        MF_TRY(ring_create(be, use, size, error));
    }
    r->most_needed = n_bytes > r->most_needed ? n_bytes : r->most_needed;
    return MF_OK;
}

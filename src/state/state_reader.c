/* SPDX-License-Identifier: MIT */
/* The ring: slots hold consecutive ranges of the file, `first` the one being consumed. */
#include "state/state_reader.h"

#include "base/checked.h"

#include <string.h>

/* Where requests have to end, r->next being moved behind the gap if it is in it. A gap without a
 * whole block in it is read like the rest. */
static uint64_t requests_end(mf_state_reader *r)
{
    uint64_t gap = mf_round_up(r->gap, MF_IO_ALIGN);
    uint64_t gap_end = r->gap_end / MF_IO_ALIGN * MF_IO_ALIGN;
    if (gap < gap_end && r->next < gap)
        return gap < r->end ? gap : r->end;
    if (gap < gap_end && r->next < gap_end)
        r->next = gap_end;
    return r->end;
}

static mf_status submit(mf_state_reader *r, mf_error *error)
{
    for (uint32_t i = 0; i < MF_READER_SLOTS; i++) {
        uint32_t s = (r->first + i) % MF_READER_SLOTS;
        mf_reader_slot *slot = &r->slots[s];
        if (slot->is_used)
            continue;
        uint64_t end = requests_end(r);
        if (r->next >= end)
            return MF_OK;
        uint64_t left = end - r->next;
        uint32_t n_needed = left < MF_READER_SLOT_BYTES ? (uint32_t)left : MF_READER_SLOT_BYTES;
        uint32_t n_bytes = (uint32_t)mf_round_up(n_needed, MF_IO_ALIGN), n_accepted = 0;
        const mf_io_read read = {.file = 0,
                                 .offset = r->next,
                                 .n_bytes = n_bytes,
                                 .n_needed = n_needed,
                                 .dest = r->buffers.base + (size_t)s * MF_READER_SLOT_BYTES,
                                 .tag = s};
        MF_TRY(mf_io_submit(r->io, &read, 1, &n_accepted, error));
        if (n_accepted == 0)
            return MF_OK;
        *slot = (mf_reader_slot){
            .offset = r->next, .n_bytes = n_bytes, .n_needed = n_needed, .is_used = true};
        r->next += n_bytes;
    }
    return MF_OK;
}

/* Until the slot being consumed has arrived. */
static mf_status wait_first(mf_state_reader *r, mf_error *error)
{
    mf_reader_slot *slot = &r->slots[r->first];
    while (!slot->is_done) {
        mf_io_done done[MF_READER_SLOTS];
        uint32_t n = 0;
        MF_TRY(mf_io_collect(r->io, true, done, MF_READER_SLOTS, &n, error));
        if (n == 0) /* nothing was in flight: the engine takes no requests */
            return mf_fail(error, MF_ERR_IO, "%s: cannot read", mf_io_file_path(r->io, 0));
        for (uint32_t i = 0; i < n; i++) {
            r->slots[done[i].tag].is_done = true;
            r->slots[done[i].tag].done = done[i];
        }
    }
    return slot->done.status == MF_OK ? MF_OK : mf_io_fail(r->io, &slot->done, error);
}

/* What r->source still gives. */
static uint64_t bytes_left(const mf_state_reader *r)
{
    uint64_t n_gap = r->at <= r->gap && r->gap < r->end ? r->gap_end - r->gap : 0;
    return r->at + n_gap < r->end ? r->end - r->at - n_gap : 0;
}

/* Of the n_bytes wanted next, those that lie in the slot being consumed. */
static size_t take(mf_state_reader *r, void *dest, size_t n_bytes)
{
    const mf_reader_slot *slot = &r->slots[r->first];
    uint64_t end = slot->offset + slot->n_needed;
    uint64_t stop = r->at < r->gap && r->gap < end ? r->gap : end;
    size_t n = r->at < stop ? (size_t)(stop - r->at) : 0;
    n = n < n_bytes ? n : n_bytes;
    if (n > 0)
        memcpy(dest,
               r->buffers.base + (size_t)r->first * MF_READER_SLOT_BYTES + (r->at - slot->offset),
               n);
    r->at += n;
    if (r->at == r->gap && r->gap < r->gap_end)
        r->at = r->gap_end;
    return n;
}

static mf_status reader_read(mf_byte_source *self, void *dest, size_t n_bytes, mf_error *error)
{
    mf_state_reader *r = (mf_state_reader *)(void *)self;
    unsigned char *to = dest;
    if (n_bytes > bytes_left(r))
        return mf_fail(error, MF_ERR_FORMAT, "%s: the snapshot is truncated",
                       mf_io_file_path(r->io, 0));
    while (n_bytes > 0) {
        MF_TRY(submit(r, error));
        MF_TRY(wait_first(r, error));
        mf_reader_slot *slot = &r->slots[r->first];
        size_t n = take(r, to, n_bytes);
        to += n;
        n_bytes -= n;
        if (r->at >= slot->offset + slot->n_needed) {
            slot->is_used = slot->is_done = false;
            r->first = (r->first + 1) % MF_READER_SLOTS;
        }
    }
    return MF_OK;
}

mf_status mf_state_reader_init(mf_state_reader *r, const mf_allocator *a, mf_error *error)
{
    memset(r, 0, sizeof *r);
    r->source.read = reader_read;
    r->allocator = *a;
    size_t n_bytes = (size_t)MF_READER_SLOTS * MF_READER_SLOT_BYTES;
    MF_TRY(mf_region_create(a, n_bytes, "reading snapshots", &r->buffers, error));
    memset(r->buffers.base, 0, n_bytes);
    return MF_OK;
}

void mf_state_reader_free(mf_state_reader *r)
{
    mf_state_reader_close(r);
    if (r->buffers.base != NULL)
        mf_region_free(&r->allocator, &r->buffers);
}

mf_status mf_state_reader_open(mf_state_reader *r, const char *path, uint64_t end,
                               const struct mf_io_engine *engine, void *engine_arg, mf_error *error)
{
    const mf_io_options options = {.allocator = r->allocator,
                                   .depth = MF_READER_SLOTS,
                                   .engine = engine,
                                   .engine_arg = engine_arg};
    uint32_t file;
    r->at = r->next = r->end = r->gap = r->gap_end = 0;
    r->first = 0;
    memset(r->slots, 0, sizeof r->slots);
    MF_TRY(mf_io_open(&options, &r->io, error));
    mf_status status = mf_io_add_file(r->io, path, &file, error);
    if (status != MF_OK) {
        mf_io_close(&r->io);
        return status;
    }
    r->file_bytes = mf_io_file_bytes(r->io, file);
    mf_state_reader_extend(r, end);
    return MF_OK;
}

void mf_state_reader_close(mf_state_reader *r)
{
    mf_io_close(&r->io);
}

void mf_state_reader_extend(mf_state_reader *r, uint64_t end)
{
    end = end < r->file_bytes ? mf_round_up(end, MF_IO_ALIGN) : r->file_bytes;
    end = end < r->file_bytes ? end : r->file_bytes;
    r->end = end > r->end ? end : r->end;
}

void mf_state_reader_skip(mf_state_reader *r, uint64_t from, uint64_t to)
{
    r->gap = from;
    r->gap_end = to;
    if (r->at == from && from < to)
        r->at = to;
}

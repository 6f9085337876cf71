/* SPDX-License-Identifier: MIT */
#include "model/load_packed.h"

#include "base/checked.h"
#include "base/files.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#define READ_BYTES ((uint64_t)4 << 20)

/* One matrix on its way. */
typedef struct packed_matrix {
    const mf_packed_load *load;
    const mf_making *k;
    const unsigned char *stored[MF_PACKED_ARRAYS];
    unsigned char *made[MF_MAX_WEIGHT_ARRAYS];
    unsigned char *room; /* the stored arrays, then the made ones */
    uint64_t n_bytes[MF_PACKED_ARRAYS];
    atomic_int failed; /* 1 + the array that could not be read; -1: an index */
    atomic_int os_errno;
} packed_matrix;

static uint64_t stored_bytes(const mf_repack *r)
{
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < MF_PACKED_ARRAYS; i++)
        n_bytes += mf_round_up(mf_repack_stored_bytes(r, i), 64);
    return n_bytes;
}

static uint64_t all_bytes(const mf_repack *r)
{
    uint64_t n_bytes = stored_bytes(r);
    for (uint32_t i = 0; i < MF_MAX_WEIGHT_ARRAYS; i++)
        n_bytes += mf_round_up(mf_weight_array_bytes(&r->shape, i), 64);
    return n_bytes;
}

uint64_t mf_load_packed_bytes(const mf_binder *binder)
{
    uint64_t most = 0;
    for (size_t i = 0; i < binder->n_makings; i++) {
        const uint64_t n_bytes = all_bytes(&binder->makings[i].repack);
        most = n_bytes > most ? n_bytes : most;
    }
    return most;
}

/* ------------------------------------------------------------------------------- reading -- */

static void read_piece(packed_matrix *m, uint32_t array, uint64_t first)
{
    const uint64_t left = m->n_bytes[array] - first, n = left < READ_BYTES ? left : READ_BYTES;
    const int fd = m->load->fds[m->k->file[array]];
    unsigned char *to = m->room + (m->stored[array] - m->room) + first;
    const uint64_t at = m->k->source[array] + first;
    const int refused = mf_await_bytes(&m->load->binder->source->await, fd, at, n);
    if (refused == 0 && mf_read_whole(fd, to, n, at) == n)
        return;
    atomic_store(&m->os_errno, refused != 0 ? refused : errno);
    atomic_store(&m->failed, (int)array + 1);
}

static void run_read(void *ctx, uint32_t task, uint32_t thread)
{
    packed_matrix *m = ctx;
    uint64_t at = (uint64_t)task * READ_BYTES;
    (void)thread;
    for (uint32_t i = 0; i < MF_PACKED_ARRAYS; i++) {
        const uint64_t rounded = (m->n_bytes[i] + READ_BYTES - 1) / READ_BYTES * READ_BYTES;
        if (at < rounded) {
            read_piece(m, i, at);
            return;
        }
        at -= rounded;
    }
}

static void run_rows(void *ctx, uint32_t task, uint32_t thread)
{
    packed_matrix *m = ctx;
    const mf_repack *r = &m->k->repack;
    const uint32_t first = task * MF_REPACK_ROWS, left = r->shape.n_rows - first;
    (void)thread;
    if (!mf_repack_rows(r, m->stored, first, left < MF_REPACK_ROWS ? left : MF_REPACK_ROWS,
                        m->made))
        atomic_store(&m->failed, -1);
}

static mf_status make(packed_matrix *m, mf_error *error)
{
    const mf_tensor_table *table = &m->load->binder->source->table;
    uint32_t n_pieces = 0;
    for (uint32_t i = 0; i < MF_PACKED_ARRAYS; i++)
        n_pieces += (uint32_t)((m->n_bytes[i] + READ_BYTES - 1) / READ_BYTES);
    mf_thread_pool_run(m->load->pool, n_pieces, run_read, m);
    const int failed = atomic_load(&m->failed), why = atomic_load(&m->os_errno);
    if (failed != 0) {
        const char *path = table->files[m->k->file[failed - 1]].path;
        const unsigned long long at = m->k->source[failed - 1];
        if (why == 0)
            return mf_fail_at(error, MF_ERR_FORMAT, at, "%s: file ends inside the tensor at %llu",
                              path, at);
        return mf_fail_os(error, MF_ERR_IO, why, "%s: read failed after byte %llu", path, at);
    }
    mf_thread_pool_run(m->load->pool,
                       (m->k->repack.shape.n_rows + MF_REPACK_ROWS - 1) / MF_REPACK_ROWS, run_rows,
                       m);
    if (atomic_load(&m->failed) == 0)
        return MF_OK;
    return mf_fail(error, MF_ERR_FORMAT,
                   "%s: the tensor at byte %llu (g_idx) names a group that is not there, expected "
                   "0 to %u",
                   table->files[m->k->file[MF_PACKED_INDEX]].path,
                   (unsigned long long)m->k->source[MF_PACKED_INDEX], m->k->repack.n_groups - 1);
}

/* ------------------------------------------------------------------------------- placing -- */

static mf_status place(const mf_packed_load *load, uint64_t dest, const unsigned char *from,
                       uint64_t n_bytes, mf_error *error)
{
    if (load->host != NULL) {
        memcpy(load->host + dest, from, n_bytes);
        return MF_OK;
    }
    for (uint64_t done = 0; done < n_bytes;) {
        const uint64_t left = n_bytes - done;
        const uint64_t n = left < load->staging_bytes ? left : load->staging_bytes;
        memcpy(load->staging, from + done, n);
        const mf_upload upload = {{load->resident, dest + done}, load->staging, n};
        const mf_ticket ticket = mf_backend_upload_ahead(load->backend, &upload, 1);
        MF_TRY(load->backend->ops->wait_for(load->backend, ticket, error));
        done += n;
    }
    return MF_OK;
}

/* The rows of an array in their new order; what all rows share, once. */
static mf_status place_array(const packed_matrix *m, uint32_t array, mf_error *error)
{
    const mf_weight_shape *s = &m->k->repack.shape;
    const uint64_t row_bytes = mf_weight_array_row_bytes(s, array);
    uint64_t dest = m->k->dest[array];
    if (mf_weight_formats[s->kind].arrays[array].rows == MF_OF_ALL)
        return place(m->load, dest, m->made[array], row_bytes, error);
    for (size_t i = 0; i < m->k->n_runs; i++) {
        const mf_rows *r = &m->load->binder->rows[m->k->first_run + i];
        const uint64_t n_bytes = r->block_rows * row_bytes;
        for (uint32_t block = 0; block < r->n_blocks; block++) {
            const uint64_t row = (uint64_t)r->offset + (uint64_t)block * r->stride;
            MF_TRY(place(m->load, dest, m->made[array] + row * row_bytes, n_bytes, error));
            dest += n_bytes;
        }
    }
    return MF_OK;
}

static mf_status load_one(const mf_packed_load *load, const mf_making *k, unsigned char *room,
                          mf_error *error)
{
    packed_matrix m = {.load = load, .k = k, .room = room};
    uint64_t at = 0;
    for (uint32_t i = 0; i < MF_PACKED_ARRAYS; i++) {
        m.stored[i] = room + at;
        m.n_bytes[i] = mf_repack_stored_bytes(&k->repack, i);
        at += mf_round_up(m.n_bytes[i], 64);
    }
    for (uint32_t i = 0; i < MF_MAX_WEIGHT_ARRAYS; i++) {
        m.made[i] = room + at;
        at += mf_round_up(mf_weight_array_bytes(&k->repack.shape, i), 64);
    }
    MF_TRY(make(&m, error));
    for (uint32_t i = 0; i < mf_weight_formats[k->repack.shape.kind].n_arrays; i++)
        MF_TRY(place_array(&m, i, error));
    return MF_OK;
}

mf_status mf_load_packed(const mf_packed_load *load, mf_error *error)
{
    const mf_binder *binder = load->binder;
    const uint64_t n_bytes = mf_load_packed_bytes(binder);
    mf_status status = MF_OK;
    if (binder->n_makings == 0)
        return MF_OK;
    unsigned char *room = mf_alloc(&binder->allocator, n_bytes);
    if (room == NULL)
        return mf_fail_memory(error, n_bytes, "weights on their way");
    for (size_t i = 0; i < binder->n_makings && status == MF_OK; i++)
        status = load_one(load, &binder->makings[i], room, error);
    mf_free(&binder->allocator, room, n_bytes);
    return status;
}

/* SPDX-License-Identifier: MIT */
/* The dense tensors: copied as they are, one after the other, in the order in which they are read;
 * while one piece is written the next is read. */
#include "base/checksum.h"
#include "convert/convert.h"

#include <fcntl.h>
#include <unistd.h>

#define PIECE_BYTES ((uint64_t)4 << 20)

typedef struct piece {
    size_t tensor;
    uint64_t first, n_bytes; /* of it */
    bool is_last;
} piece;

typedef struct dense_copy {
    mf_conversion *c;
    mf_output_file file;
    unsigned char *room[2];
    piece now, next; /* written, read; n_bytes UINT64_MAX: none */
    uint32_t turn;
    mf_checksum sum;
    mf_status status[2];
    mf_error error[2];
} dense_copy;

#define NO_PIECE UINT64_MAX

/* The piece after this one. */
static piece following(const mf_conversion *c, piece p)
{
    if (p.is_last)
        p = (piece){.tensor = p.tensor + 1};
    else
        p.first += p.n_bytes;
    if (p.tensor >= c->watch.n_tensors)
        return (piece){.n_bytes = NO_PIECE};
    const uint64_t left = c->watch.tensors[p.tensor].tensor.n_bytes - p.first;
    p.n_bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
    p.is_last = left == p.n_bytes;
    return p;
}

static mf_status read_piece(dense_copy *d)
{
    const piece *p = &d->next;
    if (p->n_bytes == NO_PIECE)
        return MF_OK;
    const mf_tensor *t = &d->c->watch.tensors[p->tensor].tensor;
    const int fd = d->c->source_fds[t->file];
    (void)posix_fadvise(fd, (off_t)(t->offset + p->first), (off_t)(4 * PIECE_BYTES),
                        POSIX_FADV_WILLNEED);
    return mf_convert_read(fd, d->c->source.source->table.files[t->file].path, d->room[d->turn ^ 1],
                           (size_t)p->n_bytes, t->offset + p->first, &d->error[0]);
}

static mf_status write_piece(dense_copy *d)
{
    const piece *p = &d->now;
    if (p->n_bytes == NO_PIECE)
        return MF_OK;
    if (p->first == 0)
        mf_checksum_begin(&d->sum, 0);
    mf_checksum_add(&d->sum, d->room[d->turn], (size_t)p->n_bytes);
    if (p->is_last)
        d->c->dense_sums[p->tensor] = mf_checksum_end(&d->sum);
    const uint64_t at = d->c->dense_at[p->tensor] + p->first;
    const mf_status status =
        mf_output_write(&d->file, at, d->room[d->turn], (size_t)p->n_bytes, &d->error[1]);
    if (status == MF_OK && p->n_bytes == PIECE_BYTES)
        mf_output_flush(&d->file, at, p->n_bytes);
    return status;
}

static void run_step(void *ctx, uint32_t task, uint32_t thread)
{
    dense_copy *d = ctx;
    (void)thread;
    d->status[task] = task == 0 ? read_piece(d) : write_piece(d);
}

static mf_status copy_all(dense_copy *d, mf_error *error)
{
    d->now.n_bytes = NO_PIECE;
    d->next = following(d->c, (piece){.tensor = SIZE_MAX, .is_last = true});
    while (d->now.n_bytes != NO_PIECE || d->next.n_bytes != NO_PIECE) {
        mf_thread_pool_run(d->c->pool, 2, run_step, d);
        for (uint32_t i = 0; i < 2; i++) {
            if (d->status[i] != MF_OK && error != NULL)
                *error = d->error[i];
            MF_TRY(d->status[i]);
        }
        const uint64_t written = d->now.n_bytes != NO_PIECE ? d->now.n_bytes : 0;
        MF_TRY(mf_convert_report(d->c, d->c->source.h.n_moe_layers, written, error));
        d->now = d->next;
        d->turn ^= 1;
        if (d->next.n_bytes != NO_PIECE)
            d->next = following(d->c, d->next);
    }
    return MF_OK;
}

/* Of a file that an earlier call wrote, the checksums. */
static mf_status take_up(mf_conversion *c, unsigned char *room, mf_error *error)
{
    const mf_output_dir *d = &c->dirs[0];
    const int fd = openat(d->fd, MF_ALIGNED_DENSE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    mf_status status =
        fd < 0 ? mf_fail(error, MF_ERR_IO, "%s/" MF_ALIGNED_DENSE ": cannot open", d->path) : MF_OK;
    piece p = following(c, (piece){.tensor = SIZE_MAX, .is_last = true});
    mf_checksum sum;
    for (; p.n_bytes != NO_PIECE && status == MF_OK; p = following(c, p)) {
        status = mf_convert_read(fd, MF_ALIGNED_DENSE, room, (size_t)p.n_bytes,
                                 c->dense_at[p.tensor] + p.first, error);
        if (p.first == 0)
            mf_checksum_begin(&sum, 0);
        mf_checksum_add(&sum, room, (size_t)p.n_bytes);
        if (p.is_last)
            c->dense_sums[p.tensor] = mf_checksum_end(&sum);
        if (status == MF_OK)
            status = mf_convert_report(c, c->source.h.n_moe_layers, p.n_bytes, error);
    }
    if (fd >= 0)
        close(fd);
    return status;
}

static mf_status write_dense(mf_conversion *c, unsigned char *room, mf_error *error)
{
    dense_copy d = {.c = c, .room = {room, room + PIECE_BYTES}};
    if (mf_output_size(&c->dirs[0], MF_ALIGNED_DENSE) == c->dense_bytes)
        return take_up(c, room, error);
    MF_TRY(mf_output_begin(&c->dirs[0], MF_ALIGNED_DENSE, c->dense_bytes, &d.file, error));
    mf_status status = copy_all(&d, error);
    if (status == MF_OK)
        return mf_output_commit(&d.file, error);
    mf_output_abandon(&d.file);
    return status;
}

mf_status mf_convert_dense(mf_conversion *c, mf_error *error)
{
    unsigned char *room = mf_alloc(&c->allocator, 2 * PIECE_BYTES);
    if (room == NULL)
        return mf_fail_memory(error, 2 * PIECE_BYTES, "dense tensors on their way");
    mf_status status = write_dense(c, room, error);
    mf_free(&c->allocator, room, 2 * PIECE_BYTES);
    return status;
}

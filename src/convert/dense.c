/* SPDX-License-Identifier: MIT */
/* The dense tensors: copied as they are, one after the other, in the order in which they are read;
 * while some pieces are written the next are read. */
#include "base/checked.h"
#include "base/checksum.h"
#include "base/files.h"
#include "convert/convert.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES ((uint64_t)2 << 20)
/* So many at once. */
#define N_PIECES 4u

typedef struct piece {
    size_t tensor;
    uint64_t first, n_bytes; /* of it */
    bool is_last;
} piece;

typedef struct pieces {
    piece at[N_PIECES];
    uint32_t n;
    unsigned char *room; /* PIECE_BYTES of each */
} pieces;

typedef struct dense_copy {
    mf_conversion *c;
    mf_output_file file;
    pieces now, next; /* written, read */
    piece last;       /* of next, or before the first */
    mf_checksum sum;
    mf_status status[2 * N_PIECES];
    mf_error error[2 * N_PIECES];
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

static void take_pieces(dense_copy *d, pieces *out)
{
    out->n = 0;
    while (out->n < N_PIECES && d->last.n_bytes != NO_PIECE) {
        d->last = following(d->c, d->last);
        if (d->last.n_bytes != NO_PIECE)
            out->at[out->n++] = d->last;
    }
}

static mf_status read_piece(const dense_copy *d, uint32_t i, mf_error *error)
{
    const piece *p = &d->next.at[i];
    const mf_tensor *t = &d->c->watch.tensors[p->tensor].tensor;
    const int fd = d->c->source_fds[t->file];
    mf_convert_foresee(fd, t->offset + p->first, p->n_bytes); /* all of it at once */
    return mf_read_at(fd, mf_source_path_of(d->c->source.source, t), d->next.room + i * PIECE_BYTES,
                      (size_t)p->n_bytes, t->offset + p->first, "", error);
}

/* With zeros up to where the next tensor may begin. */
static mf_status write_piece(const dense_copy *d, uint32_t i, mf_error *error)
{
    const piece *p = &d->now.at[i];
    unsigned char *room = d->now.room + i * PIECE_BYTES;
    const uint64_t n_bytes = mf_round_up(p->n_bytes, MF_ALIGNED_BYTES);
    memset(room + p->n_bytes, 0, (size_t)(n_bytes - p->n_bytes));
    return mf_output_write(&d->file, d->c->dense_at[p->tensor] + p->first, room, (size_t)n_bytes,
                           error);
}

static void sum_pieces(dense_copy *d)
{
    for (uint32_t i = 0; i < d->now.n; i++) {
        const piece *p = &d->now.at[i];
        if (p->first == 0)
            mf_checksum_begin(&d->sum, 0);
        mf_checksum_add(&d->sum, d->now.room + i * PIECE_BYTES, (size_t)p->n_bytes);
        if (p->is_last)
            d->c->dense_sums[p->tensor] = mf_checksum_end(&d->sum);
    }
}

/* Reading and writing take turns; the sums come last. */
static void run_step(void *ctx, uint32_t task, uint32_t thread)
{
    dense_copy *d = ctx;
    const uint32_t i = task / 2;
    (void)thread;
    if (task == 2 * N_PIECES)
        sum_pieces(d);
    else if (task % 2 == 0 && i < d->next.n)
        d->status[task] = read_piece(d, i, &d->error[task]);
    else if (task % 2 == 1 && i < d->now.n)
        d->status[task] = write_piece(d, i, &d->error[task]);
}

static mf_status finish_step(dense_copy *d, mf_error *error)
{
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < 2 * N_PIECES; i++) {
        if (d->status[i] != MF_OK && error != NULL)
            *error = d->error[i];
        MF_TRY(d->status[i]);
    }
    for (uint32_t i = 0; i < d->now.n; i++)
        n_bytes += d->now.at[i].n_bytes;
    if (d->now.n != 0)
        mf_output_flush(&d->file, d->c->dense_at[d->now.at[0].tensor] + d->now.at[0].first,
                        n_bytes);
    return mf_convert_report(d->c, d->c->source.h.n_moe_layers, n_bytes, error);
}

static mf_status copy_all(dense_copy *d, mf_error *error)
{
    d->last = (piece){.tensor = SIZE_MAX, .is_last = true};
    take_pieces(d, &d->next);
    while (d->now.n != 0 || d->next.n != 0) {
        mf_thread_pool_run(d->c->pool, 2 * N_PIECES + 1, run_step, d);
        MF_TRY(finish_step(d, error));
        const pieces read = d->next;
        d->next.room = d->now.room;
        d->now = read;
        take_pieces(d, &d->next);
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
        status = mf_read_at(fd, MF_ALIGNED_DENSE, room, (size_t)p.n_bytes,
                            c->dense_at[p.tensor] + p.first, "", error);
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
    dense_copy d = {.c = c, .next.room = room, .now.room = room + N_PIECES * PIECE_BYTES};
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
    mf_region room;
    MF_TRY(mf_region_create(&c->allocator, (size_t)(2 * N_PIECES * PIECE_BYTES),
                            "dense tensors on their way", &room, error));
    mf_status status = write_dense(c, room.base, error);
    mf_region_free(&c->allocator, &room);
    return status;
}

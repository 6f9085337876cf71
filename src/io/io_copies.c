/* SPDX-License-Identifier: MIT */
/*
 * Copies of files on other drives: whether they are copies, which of them a request is sent to, and
 * which goes on where one fails. How fast each drive is, io_drives.c knows.
 */
#include "io/io_impl.h"

#include "base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void mf_io_close_copy(const mf_io *io, mf_io_copy *copy)
{
    if (copy->path == NULL)
        return;
    close(copy->fd);
    mf_free(&io->allocator, copy->path, copy->path_bytes);
    *copy = (mf_io_copy){0};
}

/* A lane of the engine for a drive of copies: one that no device has, if there are any left. */
static uint32_t lane_for_copies(mf_io *io, uint32_t drive, dev_t device)
{
    const bool is_new = io->drives[1 + drive].lane == 0;
    if (!is_new)
        return io->drives[1 + drive].lane;
    if (io->n_lanes == MF_IO_LANES_MAX)
        return mf_io_lane_of(io, device);
    io->devices[io->n_lanes++] = (dev_t)-1 - drive;
    if (io->engine->set_lanes != NULL)
        io->engine->set_lanes(io->engine_state, io->n_lanes);
    return io->n_lanes - 1;
}

/* Whether both have the same bytes there. */
static mf_status compare_at(mf_io *io, const mf_io_file *file, const mf_io_file *copy,
                            uint64_t offset, mf_error *error)
{
    unsigned char *bytes[2];
    const int fds[2] = {file->fd, copy->fd};
    bytes[0] = io->probe_block + (-(uintptr_t)io->probe_block & (MF_IO_ALIGN - 1));
    bytes[1] = io->copy_block + (-(uintptr_t)io->copy_block & (MF_IO_ALIGN - 1));
    const uint64_t left = file->n_bytes - offset;
    const size_t n = left < MF_IO_ALIGN ? (size_t)left : MF_IO_ALIGN;
    for (int i = 0; i < 2; i++)
        if (pread(fds[i], bytes[i], MF_IO_ALIGN, (off_t)offset) < (ssize_t)n)
            return mf_fail_os(error, MF_ERR_IO, errno, "%s", i == 0 ? file->path : copy->path);
    if (memcmp(bytes[0], bytes[1], n) != 0)
        return mf_fail_at(error, MF_ERR_FORMAT, offset,
                          "%s: other bytes from %llu on than those of %s, which it is to be a copy "
                          "of",
                          copy->path, (unsigned long long)offset, file->path);
    return MF_OK;
}

static mf_status check_copy(mf_io *io, const mf_io_file *file, const mf_io_file *copy,
                            mf_error *error)
{
    if (copy->n_bytes != file->n_bytes)
        return mf_fail(error, MF_ERR_FORMAT, "%s: %llu bytes, expected %llu, as %s has", copy->path,
                       (unsigned long long)copy->n_bytes, (unsigned long long)file->n_bytes,
                       file->path);
    if (file->n_bytes == 0)
        return MF_OK;
    MF_TRY(compare_at(io, file, copy, 0, error));
    return compare_at(io, file, copy, (file->n_bytes - 1) & ~(uint64_t)(MF_IO_ALIGN - 1), error);
}

/* The descriptor is the table's, unless this fails. */
static mf_status keep_copy(mf_io *io, uint32_t number, uint32_t drive, const mf_io_file *copy,
                           dev_t device, mf_error *error)
{
    mf_io_file *file = &io->files[number];
    char *path = mf_alloc(&io->allocator, copy->path_bytes);
    if (path == NULL)
        return mf_fail_memory(error, copy->path_bytes, "the path of a file");
    memcpy(path, copy->path, copy->path_bytes);
    io->drives[1 + drive].lane = lane_for_copies(io, drive, device);
    file->copies[drive] = (mf_io_copy){path, copy->path_bytes, copy->fd};
    file->has_copies = true;
    mf_io_hold_file(io, copy->fd);
    return MF_OK;
}

static mf_status take_copy(mf_io *io, uint32_t number, uint32_t drive, mf_io_file *copy,
                           mf_error *error)
{
    struct stat info;
    if (fstat(copy->fd, &info) != 0)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s", copy->path);
    copy->n_bytes = (uint64_t)info.st_size;
    MF_TRY(check_copy(io, &io->files[number], copy, error));
    return keep_copy(io, number, drive, copy, info.st_dev, error);
}

mf_status mf_io_add_copy(mf_io *io, uint32_t file, uint32_t drive, const char *path,
                         mf_error *error)
{
    if (io->n_in_flight > 0 || file >= io->n_files || drive >= MF_IO_COPIES_MAX ||
        io->files[file].copies[drive].path != NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "%s: no copy can be added here", path);
    MF_TRY(mf_io_check_regular(path, error));
    mf_io_file copy = {.path = (char *)path, .path_bytes = strlen(path) + 1};
    MF_TRY(mf_io_open_descriptor(io, path, &copy.fd, error));
    mf_status status = take_copy(io, file, drive, &copy, error);
    if (status != MF_OK)
        close(copy.fd);
    return status;
}

/* Another descriptor of the same; -1 with errno. */
static int open_again(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
}

static mf_status add_copy_of(mf_io *io, uint32_t number, uint32_t drive, const mf_io_copy *from,
                             mf_error *error)
{
    struct stat info;
    const mf_io_file copy = {
        .path = from->path, .path_bytes = from->path_bytes, .fd = open_again(from->fd)};
    if (copy.fd < 0)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s", from->path);
    mf_status status = fstat(copy.fd, &info) == 0
                           ? keep_copy(io, number, drive, &copy, info.st_dev, error)
                           : mf_fail_os(error, MF_ERR_IO, errno, "%s", from->path);
    if (status != MF_OK)
        close(copy.fd);
    return status;
}

mf_status mf_io_add_files_of(mf_io *io, const mf_io *from, mf_error *error)
{
    for (uint32_t i = 0; i < from->n_files; i++) {
        const mf_io_file *file = &from->files[i];
        const int fd = open_again(file->fd);
        uint32_t number;
        if (fd < 0)
            return mf_fail_os(error, MF_ERR_IO, errno, "%s", file->path);
        MF_TRY(mf_io_take_file(io, file->path, fd, &number, error));
        io->files[number].n_bytes = file->n_bytes;
        for (uint32_t drive = 0; drive < MF_IO_COPIES_MAX; drive++)
            if (file->copies[drive].path != NULL)
                MF_TRY(add_copy_of(io, number, drive, &file->copies[drive], error));
    }
    return MF_OK;
}

uint64_t mf_io_copy_bytes(const mf_io *io, uint32_t drive)
{
    return drive == UINT32_MAX        ? io->drives[0].n_bytes
           : drive < MF_IO_COPIES_MAX ? io->drives[1 + drive].n_bytes
                                      : 0;
}

/* --------------------------------------------------------------------------- which is read -- */

int mf_io_fd_on(const mf_io_file *file, uint32_t drive)
{
    return drive == 0 ? file->fd : file->copies[drive - 1].fd;
}

const char *mf_io_path_on(const mf_io_file *file, uint32_t drive)
{
    return drive == 0 ? file->path : file->copies[drive - 1].path;
}

static bool is_on(const mf_io *io, const mf_io_file *file, uint32_t drive)
{
    return !io->drives[drive].is_lost && (drive == 0 || file->copies[drive - 1].path != NULL);
}

/* When the drive would have the bytes, if it goes on as before; where one has shown nothing yet,
 * all are taken to be alike. */
static double done_after(const mf_io *io, uint32_t drive, uint32_t n_bytes, bool are_known)
{
    const mf_io_drive *d = &io->drives[drive];
    return ((double)d->in_flight_bytes + n_bytes) / (are_known ? d->bytes_per_us : 1.0);
}

/* The drive that has the bytes first; MF_IO_N_DRIVES: all that have them are lost. */
static uint32_t choose_drive(const mf_io *io, const mf_io_file *file, uint32_t n_bytes)
{
    uint32_t best = MF_IO_N_DRIVES;
    bool are_known = true;
    for (uint32_t i = 0; i < MF_IO_N_DRIVES; i++)
        are_known &= !is_on(io, file, i) || io->drives[i].bytes_per_us > 0;
    for (uint32_t i = 0; i < MF_IO_N_DRIVES; i++)
        if (is_on(io, file, i) &&
            (best == MF_IO_N_DRIVES ||
             done_after(io, i, n_bytes, are_known) < done_after(io, best, n_bytes, are_known)))
            best = i;
    return best;
}

static void send_to(mf_io *io, mf_io_request *r, uint32_t drive)
{
    r->drive = drive;
    mf_io_drive_give(&io->drives[drive], mf_io_now_us(io), r->read.n_bytes);
}

void mf_io_send_first(mf_io *io, mf_io_request *r)
{
    const mf_io_file *file = &io->files[r->read.file];
    const uint64_t now_us = mf_io_now_us(io);
    const uint32_t drive = choose_drive(io, file, r->read.n_bytes);
    bool is_busy = false;
    for (uint32_t i = 0; i < MF_IO_N_DRIVES; i++)
        is_busy |= io->drives[i].in_flight_bytes != 0;
    for (uint32_t i = 0; i < MF_IO_N_DRIVES; i++) /* else it is a pause for all */
        if (is_busy && is_on(io, file, i) && mf_io_drive_is_forgotten(&io->drives[i], now_us))
            mf_io_drive_forget(&io->drives[i]);
    send_to(io, r, drive < MF_IO_N_DRIVES ? drive : 0);
}

void mf_io_leave_drive(mf_io *io, const mf_io_request *r, bool is_good)
{
    mf_io_drive_take(&io->drives[r->drive], mf_io_now_us(io), r->read.n_bytes, is_good);
}

bool mf_io_turn_to_another(mf_io *io, mf_io_request *r, int os_errno)
{
    const mf_io_file *file = &io->files[r->read.file];
    mf_io_drive *d = &io->drives[r->drive];
    if (!file->has_copies)
        return false;
    const bool was_lost = d->is_lost;
    d->is_lost = true;
    const uint32_t drive = choose_drive(io, file, r->read.n_bytes);
    if (drive == MF_IO_N_DRIVES) {
        d->is_lost = was_lost; /* there is no other: it is asked again next time */
        return false;
    }
    if (!was_lost && io->lost != NULL)
        io->lost(io->lost_ctx, mf_io_path_on(file, r->drive), os_errno);
    mf_io_leave_drive(io, r, false);
    send_to(io, r, drive);
    r->resumed_at = r->n_got & ~(MF_IO_ALIGN - 1);
    r->n_stalls = 0;
    return true;
}

/* SPDX-License-Identifier: MIT */
/*
 * Files, requests and messages, common to all engines. A request is copied into a table of `depth`
 * entries when it is submitted; what comes back short or interrupted goes to the engine again until
 * n_needed bytes are there, the file proves too short, or the operating system fails it.
 */
#include "io/io.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/files.h"
#include "io/io_drives.h"
#include "io/io_engine.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_DEFAULT 256u
#define DEPTH_MAX 4096u
/* Reads of one request in a row that bring nothing new, before it counts as failed. */
#define STALLS_MAX 1000u
#define NO_REQUEST UINT32_MAX

/* The first is that of the files themselves. */
#define N_DRIVES (1 + MF_IO_COPIES_MAX)
typedef struct io_copy {
    char *path; /* NULL: there is none */
    size_t path_bytes;
    int fd;
} io_copy;

typedef struct io_file {
    char *path;
    size_t path_bytes;
    uint64_t n_bytes; /* when it was added */
    uint32_t lane;
    int fd;
    io_copy copies[MF_IO_COPIES_MAX];
    bool has_copies;
} io_file;

typedef struct request {
    mf_io_read read;
    uint32_t n_got;      /* contiguous from the start */
    uint32_t resumed_at; /* where the read now in flight starts: n_got rounded down */
    uint32_t n_stalls;
    uint32_t drive; /* that it is read from, where the file has copies */
    uint32_t next_free;
    uint64_t sent_ns; /* 0: nobody wants to know */
} request;

struct mf_io {
    mf_allocator allocator;
    const mf_io_engine *engine;
    void *engine_state;
    io_file *files;
    uint32_t n_files, files_capacity;
    dev_t devices[MF_IO_LANES_MAX]; /* by lane */
    uint32_t n_lanes;
    mf_io_drive drives[N_DRIVES];
    void (*lost)(void *ctx, const char *path, int os_errno);
    void *lost_ctx;
    uint32_t lane_in_flight[MF_IO_LANES_MAX];
    uint32_t depth;
    uint32_t n_in_flight;
    uint32_t first_free;
    mf_timeline *timeline; /* or NULL */
    request *requests;     /* [depth] */
    mf_io_op *ops;         /* [depth], of one submission */
    mf_io_result *results; /* [depth], of one collection */
    bool is_broken;        /* the engine itself failed: what is in flight cannot be known */
    unsigned char probe_block[2 * MF_IO_ALIGN], copy_block[2 * MF_IO_ALIGN];
};

static mf_status fail_broken(const mf_io *io, mf_error *error)
{
    return mf_fail(error, MF_ERR_IO, "%s: an earlier failure stopped all reads", io->engine->name);
}

static mf_status engine_submit(mf_io *io, const mf_io_op *ops, uint32_t n, mf_error *error)
{
    if (io->is_broken)
        return fail_broken(io, error);
    mf_status status = io->engine->submit(io->engine_state, ops, n, error);
    if (status != MF_OK)
        io->is_broken = true;
    return status;
}

static mf_status engine_collect(mf_io *io, bool wait, mf_io_result *out, uint32_t max, uint32_t *n,
                                mf_error *error)
{
    if (io->is_broken)
        return fail_broken(io, error);
    mf_status status = io->engine->collect(io->engine_state, wait, out, max, n, error);
    if (status != MF_OK)
        io->is_broken = true;
    return status;
}

static mf_status open_engine(mf_io *io, const mf_io_options *options, mf_error *error)
{
    const mf_io_engine *engine = options->engine;
    if (engine == NULL && options->kind != MF_IO_POOL) {
#ifdef MF_HAVE_URING
        mf_status status =
            mf_io_engine_uring.open(&io->allocator, io->depth, NULL, &io->engine_state, error);
        if (status == MF_OK) {
            io->engine = &mf_io_engine_uring;
            return MF_OK;
        }
        if (options->kind == MF_IO_URING || status == MF_ERR_NO_MEMORY)
            return status;
#else
        if (options->kind == MF_IO_URING)
            return mf_fail(error, MF_ERR_UNSUPPORTED, "io_uring: this build was made without it");
#endif
    }
    if (engine == NULL)
        engine = &mf_io_engine_pool;
    MF_TRY(engine->open(&io->allocator, io->depth, options->engine_arg, &io->engine_state, error));
    io->engine = engine;
    return MF_OK;
}

static void free_all_requests(mf_io *io)
{
    for (uint32_t i = 0; i < io->depth; i++)
        io->requests[i].next_free = i + 1 < io->depth ? i + 1 : NO_REQUEST;
    io->first_free = 0;
    io->n_in_flight = 0;
    for (uint32_t i = 0; i < N_DRIVES; i++)
        io->drives[i].in_flight_bytes = 0;
    memset(io->lane_in_flight, 0, sizeof io->lane_in_flight);
}

mf_status mf_io_open(const mf_io_options *options, mf_io **out, mf_error *error)
{
    mf_allocator allocator = mf_allocator_or_default(&options->allocator);
    mf_io *io = mf_alloc(&allocator, sizeof *io);
    if (io == NULL)
        return mf_fail_memory(error, sizeof *io, "reading files");
    *io = (mf_io){.allocator = allocator, .lost = options->lost, .lost_ctx = options->lost_ctx};
    io->depth = options->depth == 0 ? DEPTH_DEFAULT : options->depth;
    if (io->depth > DEPTH_MAX)
        io->depth = DEPTH_MAX;
    mf_status status = MF_OK;
    io->requests = mf_alloc_array(&allocator, io->depth, sizeof *io->requests);
    io->ops = mf_alloc_array(&allocator, io->depth, sizeof *io->ops);
    io->results = mf_alloc_array(&allocator, io->depth, sizeof *io->results);
    if (io->requests == NULL || io->ops == NULL || io->results == NULL) {
        status = mf_fail_memory(error, io->depth * sizeof *io->requests, "the table of reads");
        goto fail;
    }
    free_all_requests(io);
    MF_TRY_GOTO(open_engine(io, options, error));
    *out = io;
    return MF_OK;
fail:
    mf_io_close(&io);
    return status;
}

static void wait_for_all(mf_io *io)
{
    mf_io_done done[16];
    uint32_t n;
    assert(io->requests != NULL && io->ops != NULL &&
           io->results != NULL); /* as an engine opened */
    while (io->n_in_flight > 0 && mf_io_collect(io, true, done, 16, &n, NULL) == MF_OK)
        continue;
}

static void close_copy(const mf_io *io, io_copy *copy)
{
    if (copy->path == NULL)
        return;
    close(copy->fd);
    mf_free(&io->allocator, copy->path, copy->path_bytes);
    *copy = (io_copy){0};
}

void mf_io_close(mf_io **io_ptr)
{
    mf_io *io = *io_ptr;
    if (io == NULL)
        return;
    *io_ptr = NULL;
    if (io->engine != NULL) {
        wait_for_all(io);
        if (io->is_broken)
            (void)!io->engine->reset(io->engine_state, NULL); /* what is read into stays owned */
        io->engine->close(io->engine_state);
    }
    mf_allocator allocator = io->allocator;
    for (uint32_t i = 0; i < io->n_files; i++) {
        if (io->files[i].fd >= 0)
            close(io->files[i].fd);
        for (uint32_t c = 0; c < MF_IO_COPIES_MAX; c++)
            close_copy(io, &io->files[i].copies[c]);
        mf_free(&allocator, io->files[i].path, io->files[i].path_bytes);
    }
    mf_free(&allocator, io->files, io->files_capacity * sizeof *io->files);
    mf_free(&allocator, io->results, io->depth * sizeof *io->results);
    mf_free(&allocator, io->ops, io->depth * sizeof *io->ops);
    mf_free(&allocator, io->requests, io->depth * sizeof *io->requests);
    mf_free(&allocator, io, sizeof *io);
}

uint64_t mf_io_now_us(const mf_io *io)
{
    return io->engine->now_us != NULL ? io->engine->now_us(io->engine_state) : mf_now_us();
}

const char *mf_io_name(const mf_io *io)
{
    return io->engine->name;
}

/* ---------------------------------------------------------------------------------- files -- */

static mf_status grow_files(mf_io *io, mf_error *error)
{
    if (io->n_files < io->files_capacity)
        return MF_OK;
    uint32_t capacity = io->files_capacity == 0 ? 16 : io->files_capacity * 2;
    io_file *files = mf_realloc(&io->allocator, io->files, io->files_capacity * sizeof *files,
                                capacity * sizeof *files);
    if (files == NULL)
        return mf_fail_memory(error, capacity * sizeof *files, "the table of files");
    io->files = files;
    io->files_capacity = capacity;
    return MF_OK;
}

/* The read would have gone well at another moment: a signal came, the kernel was short of
 * something, or the thread that submitted it ended. */
static bool is_passing(int32_t n_read)
{
    return n_read == -EINTR || n_read == -EAGAIN || n_read == -ECANCELED;
}

/* Whether a direct read of this file works, tried by the engine that will do them all. */
static mf_status probe_direct(mf_io *io, int fd, bool *works, mf_error *error)
{
    unsigned char *dest = io->probe_block + (-(uintptr_t)io->probe_block & (MF_IO_ALIGN - 1));
    mf_io_op op = {.offset = 0, .dest = dest, .n_bytes = MF_IO_ALIGN, .request = 0, .fd = fd};
    mf_io_result result = {0};
    uint32_t n_tries = 0;
    do {
        uint32_t n;
        MF_TRY(engine_submit(io, &op, 1, error));
        MF_TRY(engine_collect(io, true, &result, 1, &n, error));
    } while (is_passing(result.n_read) && ++n_tries < STALLS_MAX);
    *works = result.n_read >= 0;
    return MF_OK;
}

static mf_status open_descriptor(mf_io *io, const char *path, io_file *file, mf_error *error)
{
    file->fd = mf_open_apart(AT_FDCWD, path, O_RDONLY | O_DIRECT, 0);
    if (file->fd >= 0) {
        bool is_direct = false;
        mf_status status = probe_direct(io, file->fd, &is_direct, error);
        if (status == MF_OK && is_direct)
            return MF_OK;
        close(file->fd);
        MF_TRY(status);
    }
    file->fd = mf_open_apart(AT_FDCWD, path, O_RDONLY, 0);
    if (file->fd < 0)
        return mf_fail_os(error, errno == ENOENT ? MF_ERR_NOT_FOUND : MF_ERR_IO, errno, "%s", path);
    /* Experts lie all over the file: readahead would read what nobody asked for. */
    (void)posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM);
    return MF_OK;
}

/* The lane of a device, a new one if there are lanes left. */
static uint32_t lane_of(mf_io *io, dev_t device)
{
    for (uint32_t lane = 0; lane < io->n_lanes; lane++) {
        if (io->devices[lane] == device)
            return lane;
    }
    if (io->n_lanes == MF_IO_LANES_MAX)
        return (uint32_t)(device % MF_IO_LANES_MAX);
    io->devices[io->n_lanes++] = device;
    if (io->engine->set_lanes != NULL)
        io->engine->set_lanes(io->engine_state, io->n_lanes);
    return io->n_lanes - 1;
}

static void hold_file(mf_io *io, int fd)
{
    if (io->engine->hold_file != NULL)
        io->engine->hold_file(io->engine_state, fd);
}

/* The descriptor is the table's, or closed. */
static mf_status take_file(mf_io *io, const char *path, int fd, uint32_t *file_out, mf_error *error)
{
    struct stat info;
    io_file file = {.path_bytes = strlen(path) + 1, .fd = fd};
    mf_status status = grow_files(io, error);
    if (status == MF_OK && fstat(fd, &info) != 0)
        status = mf_fail_os(error, MF_ERR_IO, errno, "%s", path);
    if (status == MF_OK && (file.path = mf_alloc(&io->allocator, file.path_bytes)) == NULL)
        status = mf_fail_memory(error, file.path_bytes, "the path of a file");
    if (status != MF_OK) {
        close(fd);
        return status;
    }
    memcpy(file.path, path, file.path_bytes);
    file.n_bytes = (uint64_t)info.st_size;
    file.lane = lane_of(io, info.st_dev);
    io->files[io->n_files] = file;
    *file_out = io->n_files++;
    hold_file(io, fd);
    return MF_OK;
}

/* Before it is opened: what is no file might keep the caller waiting. */
static mf_status check_regular(const char *path, mf_error *error)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return mf_fail_os(error, errno == ENOENT ? MF_ERR_NOT_FOUND : MF_ERR_IO, errno, "%s", path);
    if (!S_ISREG(info.st_mode))
        return mf_fail(error, MF_ERR_FORMAT, "%s: not a regular file", path);
    return MF_OK;
}

mf_status mf_io_add_file(mf_io *io, const char *path, uint32_t *file_out, mf_error *error)
{
    if (io->n_in_flight > 0)
        return mf_fail(error, MF_ERR_ARGUMENT, "%s: added while reads are in flight", path);
    MF_TRY(check_regular(path, error));
    io_file file = {0};
    MF_TRY(open_descriptor(io, path, &file, error));
    return take_file(io, path, file.fd, file_out, error);
}

/* ---------------------------------------------------------------------------------- copies -- */

/* A lane of the engine for a drive of copies: one that no device has, if there are any left. */
static uint32_t lane_for_copies(mf_io *io, uint32_t drive, dev_t device)
{
    const bool is_new = io->drives[1 + drive].lane == 0;
    if (!is_new)
        return io->drives[1 + drive].lane;
    if (io->n_lanes == MF_IO_LANES_MAX)
        return lane_of(io, device);
    io->devices[io->n_lanes++] = (dev_t)-1 - drive;
    if (io->engine->set_lanes != NULL)
        io->engine->set_lanes(io->engine_state, io->n_lanes);
    return io->n_lanes - 1;
}

/* Whether both have the same bytes there. */
static mf_status compare_at(mf_io *io, const io_file *file, const io_file *copy, uint64_t offset,
                            mf_error *error)
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

static mf_status check_copy(mf_io *io, const io_file *file, const io_file *copy, mf_error *error)
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
static mf_status keep_copy(mf_io *io, uint32_t number, uint32_t drive, const io_file *copy,
                           dev_t device, mf_error *error)
{
    io_file *file = &io->files[number];
    char *path = mf_alloc(&io->allocator, copy->path_bytes);
    if (path == NULL)
        return mf_fail_memory(error, copy->path_bytes, "the path of a file");
    memcpy(path, copy->path, copy->path_bytes);
    io->drives[1 + drive].lane = lane_for_copies(io, drive, device);
    file->copies[drive] = (io_copy){path, copy->path_bytes, copy->fd};
    file->has_copies = true;
    hold_file(io, copy->fd);
    return MF_OK;
}

static mf_status take_copy(mf_io *io, uint32_t number, uint32_t drive, io_file *copy,
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
    MF_TRY(check_regular(path, error));
    io_file copy = {.path = (char *)path, .path_bytes = strlen(path) + 1};
    MF_TRY(open_descriptor(io, path, &copy, error));
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

static mf_status add_copy_of(mf_io *io, uint32_t number, uint32_t drive, const io_copy *from,
                             mf_error *error)
{
    struct stat info;
    const io_file copy = {
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
        const io_file *file = &from->files[i];
        const int fd = open_again(file->fd);
        uint32_t number;
        if (fd < 0)
            return mf_fail_os(error, MF_ERR_IO, errno, "%s", file->path);
        MF_TRY(take_file(io, file->path, fd, &number, error));
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

static int fd_of(const io_file *file, uint32_t drive)
{
    return drive == 0 ? file->fd : file->copies[drive - 1].fd;
}

static const char *path_on(const io_file *file, uint32_t drive)
{
    return drive == 0 ? file->path : file->copies[drive - 1].path;
}

static bool is_on(const mf_io *io, const io_file *file, uint32_t drive)
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

/* The drive that has the bytes first; N_DRIVES: all that have them are lost. */
static uint32_t choose_drive(const mf_io *io, const io_file *file, uint32_t n_bytes)
{
    uint32_t best = N_DRIVES;
    bool are_known = true;
    for (uint32_t i = 0; i < N_DRIVES; i++)
        are_known &= !is_on(io, file, i) || io->drives[i].bytes_per_us > 0;
    for (uint32_t i = 0; i < N_DRIVES; i++)
        if (is_on(io, file, i) &&
            (best == N_DRIVES ||
             done_after(io, i, n_bytes, are_known) < done_after(io, best, n_bytes, are_known)))
            best = i;
    return best;
}

static void send_to(mf_io *io, request *r, uint32_t drive)
{
    r->drive = drive;
    mf_io_drive_give(&io->drives[drive], mf_io_now_us(io), r->read.n_bytes);
}

/* The first that a request is sent to. A drive that the others left nothing to for long is taken to
 * be like them until it is seen again. */
static void send_first(mf_io *io, request *r)
{
    const io_file *file = &io->files[r->read.file];
    const uint64_t now_us = mf_io_now_us(io);
    const uint32_t drive = choose_drive(io, file, r->read.n_bytes);
    bool is_busy = false;
    for (uint32_t i = 0; i < N_DRIVES; i++)
        is_busy |= io->drives[i].in_flight_bytes != 0;
    for (uint32_t i = 0; i < N_DRIVES; i++) /* else it is a pause for all */
        if (is_busy && is_on(io, file, i) && mf_io_drive_is_forgotten(&io->drives[i], now_us))
            mf_io_drive_forget(&io->drives[i]);
    send_to(io, r, drive < N_DRIVES ? drive : 0);
}

/* The drive is done with the request, well or not. */
static void leave_drive(mf_io *io, const request *r, bool is_good)
{
    mf_io_drive_take(&io->drives[r->drive], mf_io_now_us(io), r->read.n_bytes, is_good);
}

/* A read of a copy failed: another one takes over from where it was, if there is one. */
static bool turn_to_another(mf_io *io, request *r, int os_errno)
{
    const io_file *file = &io->files[r->read.file];
    mf_io_drive *d = &io->drives[r->drive];
    if (!file->has_copies)
        return false;
    const bool was_lost = d->is_lost;
    d->is_lost = true;
    const uint32_t drive = choose_drive(io, file, r->read.n_bytes);
    if (drive == N_DRIVES) {
        d->is_lost = was_lost; /* there is no other: it is asked again next time */
        return false;
    }
    if (!was_lost && io->lost != NULL)
        io->lost(io->lost_ctx, path_on(file, r->drive), os_errno);
    leave_drive(io, r, false);
    send_to(io, r, drive);
    r->resumed_at = r->n_got & ~(MF_IO_ALIGN - 1);
    r->n_stalls = 0;
    return true;
}

mf_status mf_io_add_made_up(mf_io *io, uint64_t n_bytes, uint32_t *file_out, mf_error *error)
{
    static const char name[] = "a drive made of numbers";
    MF_TRY(grow_files(io, error));
    io_file file = {.path_bytes = sizeof name, .n_bytes = n_bytes, .fd = -1};
    file.path = mf_alloc(&io->allocator, file.path_bytes);
    if (file.path == NULL)
        return mf_fail_memory(error, file.path_bytes, "the path of a file");
    memcpy(file.path, name, sizeof name);
    file.lane = lane_of(io, 0);
    io->files[io->n_files] = file;
    *file_out = io->n_files++;
    return MF_OK;
}

uint32_t mf_io_n_files(const mf_io *io)
{
    return io->n_files;
}

const char *mf_io_file_path(const mf_io *io, uint32_t file)
{
    assert(file < io->n_files);
    return io->files[file].path;
}

uint64_t mf_io_file_bytes(const mf_io *io, uint32_t file)
{
    assert(file < io->n_files);
    return io->files[file].n_bytes;
}

uint32_t mf_io_file_lane(const mf_io *io, uint32_t file)
{
    assert(file < io->n_files);
    return io->files[file].lane;
}

uint32_t mf_io_n_lanes(const mf_io *io)
{
    return io->n_lanes;
}

/* ------------------------------------------------------------------------------- requests -- */

/* The part of a request that is still missing. Direct reads start on aligned bytes only, so up to
 * MF_IO_ALIGN - 1 bytes of a short read are read again. */
static mf_io_op remaining_op(const mf_io *io, uint32_t index)
{
    const request *r = &io->requests[index];
    const io_file *file = &io->files[r->read.file];
    return (mf_io_op){.offset = r->read.offset + r->resumed_at,
                      .dest = r->read.dest + r->resumed_at,
                      .n_bytes = r->read.n_bytes - r->resumed_at,
                      .request = index,
                      .lane = r->drive == 0 ? file->lane : io->drives[r->drive].lane,
                      .fd = fd_of(file, r->drive)};
}

static bool is_valid(const mf_io *io, const mf_io_read *read)
{
    const uint64_t mask = MF_IO_ALIGN - 1;
    return read->file < io->n_files && (read->offset & mask) == 0 && (read->n_bytes & mask) == 0 &&
           ((uintptr_t)read->dest & mask) == 0 && read->n_bytes <= INT32_MAX &&
           read->n_needed <= read->n_bytes && read->n_needed > 0;
}

uint32_t mf_io_room(const mf_io *io, uint32_t lane)
{
    assert(lane < MF_IO_LANES_MAX);
    uint32_t share = io->n_lanes > 1 ? io->depth / io->n_lanes : io->depth;
    share = share > 0 ? share : 1;
    uint32_t n_lane = io->lane_in_flight[lane] < share ? share - io->lane_in_flight[lane] : 0;
    uint32_t n_all = io->depth - io->n_in_flight;
    return n_lane < n_all ? n_lane : n_all;
}

uint32_t mf_io_lane_in_flight(const mf_io *io, uint32_t lane)
{
    assert(lane < MF_IO_LANES_MAX);
    return io->lane_in_flight[lane];
}

/* Takes a request into the table. */
static mf_io_op accept_read(mf_io *io, const mf_io_read *read)
{
    uint32_t index = io->first_free;
    io->first_free = io->requests[index].next_free;
    io->requests[index] = (request){
        .read = *read, .next_free = NO_REQUEST, .sent_ns = io->timeline != NULL ? mf_now_ns() : 0};
    if (io->files[read->file].has_copies) {
        send_first(io, &io->requests[index]);
    }
    io->lane_in_flight[io->files[read->file].lane]++;
    io->n_in_flight++;
    return remaining_op(io, index);
}

mf_status mf_io_submit(mf_io *io, const mf_io_read *reads, uint32_t n, uint32_t *n_accepted,
                       mf_error *error)
{
    uint32_t n_taken = 0;
    if (io->is_broken)
        return fail_broken(io, error);
    for (uint32_t i = 0; i < n; i++) {
        if (!is_valid(io, &reads[i]))
            return mf_fail(error, MF_ERR_ARGUMENT,
                           "a read of %u bytes (%u needed) at offset %llu is not aligned to %u",
                           reads[i].n_bytes, reads[i].n_needed, (unsigned long long)reads[i].offset,
                           MF_IO_ALIGN);
    }
    while (n_taken < n && mf_io_room(io, io->files[reads[n_taken].file].lane) > 0) {
        io->ops[n_taken] = accept_read(io, &reads[n_taken]);
        n_taken++;
    }
    *n_accepted = n_taken;
    return n_taken == 0 ? MF_OK : engine_submit(io, io->ops, n_taken, error);
}

static bool file_size_now(int fd, uint64_t *n_bytes)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return false;
    *n_bytes = (uint64_t)info.st_size;
    return true;
}

static mf_io_done done_with(const request *r, mf_status status, int os_errno, uint64_t offset)
{
    return (mf_io_done){.tag = r->read.tag,
                        .status = status,
                        .os_errno = os_errno,
                        .offset = offset,
                        .end = r->read.offset + r->read.n_needed,
                        .file = r->read.file,
                        .copy = r->drive};
}

/* Takes in what one read brought. True if its request is finished, false if it must go on. */
static bool finish_or_resume(mf_io *io, request *r, int32_t n_read, mf_io_done *done)
{
    bool is_interrupted = is_passing(n_read);
    if (n_read < 0 && !is_interrupted) {
        if (turn_to_another(io, r, -n_read))
            return false;
        *done = done_with(r, MF_ERR_IO, -n_read, r->read.offset + r->resumed_at);
        return true;
    }
    uint32_t n_got = r->resumed_at + (is_interrupted ? 0 : (uint32_t)n_read);
    if (n_got >= r->read.n_needed) {
        *done = done_with(r, MF_OK, 0, r->read.offset);
        return true;
    }
    if (n_got > r->n_got) {
        r->n_got = n_got;
        r->n_stalls = 0;
    } else {
        r->n_stalls++;
    }
    uint64_t size;
    uint64_t end = r->read.offset + r->read.n_needed;
    if (!is_interrupted && file_size_now(fd_of(&io->files[r->read.file], r->drive), &size) &&
        size < end) {
        if (turn_to_another(io, r, 0))
            return false;
        *done = done_with(r, MF_ERR_FORMAT, 0, size);
        return true;
    }
    if (r->n_stalls > STALLS_MAX) {
        if (turn_to_another(io, r, EIO))
            return false;
        *done = done_with(r, MF_ERR_IO, is_interrupted ? -n_read : EIO, r->read.offset + r->n_got);
        return true;
    }
    r->resumed_at = r->n_got & ~(MF_IO_ALIGN - 1);
    return false;
}

static void tell_read(const mf_io *io, const request *r)
{
    const mf_timeline_track track = {MF_TIMELINE_DRIVES,
                                     MF_TIMELINE_FIRST_DRIVE + io->files[r->read.file].lane};
    const mf_timeline_note notes[MF_TIMELINE_NOTES] = {
        {"file", r->read.file}, {"offset", r->read.offset}, {"bytes", r->read.n_bytes}};
    if (io->timeline != NULL && r->sent_ns != 0)
        mf_timeline_flight(io->timeline, track, "read", r->sent_ns, mf_now_ns(), notes);
}

static void free_request(mf_io *io, uint32_t index, bool is_good)
{
    if (io->files[io->requests[index].read.file].has_copies)
        leave_drive(io, &io->requests[index], is_good);
    tell_read(io, &io->requests[index]);
    io->lane_in_flight[io->files[io->requests[index].read.file].lane]--;
    io->requests[index].next_free = io->first_free;
    io->first_free = index;
    io->n_in_flight--;
}

mf_status mf_io_collect(mf_io *io, bool wait, mf_io_done *out, uint32_t max, uint32_t *n,
                        mf_error *error)
{
    uint32_t n_done = 0;
    *n = 0;
    uint32_t n_max = max < io->depth ? max : io->depth;
    while (io->n_in_flight > 0 && n_done == 0 && n_max > 0) {
        uint32_t n_results = 0, n_again = 0;
        MF_TRY(engine_collect(io, wait, io->results, n_max, &n_results, error));
        for (uint32_t i = 0; i < n_results; i++) {
            uint32_t index = io->results[i].request;
            if (finish_or_resume(io, &io->requests[index], io->results[i].n_read, &out[n_done])) {
                free_request(io, index, out[n_done].status == MF_OK);
                n_done++;
            } else {
                io->ops[n_again++] = remaining_op(io, index);
            }
        }
        if (n_again > 0)
            MF_TRY(engine_submit(io, io->ops, n_again, error));
        if (!wait)
            break;
    }
    *n = n_done;
    return MF_OK;
}

uint32_t mf_io_in_flight(const mf_io *io)
{
    return io->n_in_flight;
}

void mf_io_hold_memory(mf_io *io, unsigned char *memory, uint64_t n_bytes)
{
    if (io->engine->hold_memory != NULL)
        io->engine->hold_memory(io->engine_state, memory, n_bytes);
}

uint64_t mf_io_n_calls(const mf_io *io)
{
    return io->engine->n_calls != NULL ? io->engine->n_calls(io->engine_state) : 0;
}

void mf_io_watch(mf_io *io, mf_timeline *timeline)
{
    io->timeline = timeline;
}

mf_status mf_io_reset(mf_io *io, mf_error *error)
{
    MF_TRY(io->engine->reset(io->engine_state, error));
    free_all_requests(io);
    io->is_broken = false;
    return MF_OK;
}

mf_status mf_io_fail(const mf_io *io, const mf_io_done *done, mf_error *error)
{
    const char *path = path_on(&io->files[done->file], done->copy);
    unsigned long long offset = done->offset;
    if (done->status == MF_ERR_FORMAT)
        return mf_fail_at(error, MF_ERR_FORMAT, done->offset,
                          "%s: file ends at byte %llu, expected at least %llu bytes", path, offset,
                          (unsigned long long)done->end);
    mf_status status = mf_fail_os(error, done->status, done->os_errno,
                                  "%s: reading at offset %llu failed", path, offset);
    if (error != NULL)
        error->byte_position = done->offset;
    return status;
}

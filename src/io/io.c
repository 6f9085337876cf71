/* SPDX-License-Identifier: MIT */
/*
 * Files, requests and messages, common to all engines. A request is copied into a table of `depth`
 * entries when it is submitted; what comes back short or interrupted goes to the engine again until
 * n_needed bytes are there, the file proves too short, or the operating system fails it. Copies of
 * files on other drives are io_copies.c's.
 */
#include "io/io_impl.h"

#include "base/clock.h"
#include "base/files.h"

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
    for (uint32_t i = 0; i < MF_IO_N_DRIVES; i++)
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
            mf_io_close_copy(io, &io->files[i].copies[c]);
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
    mf_io_file *files = mf_realloc(&io->allocator, io->files, io->files_capacity * sizeof *files,
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

mf_status mf_io_open_descriptor(mf_io *io, const char *path, int *fd, mf_error *error)
{
    *fd = mf_open_apart(AT_FDCWD, path, O_RDONLY | O_DIRECT, 0);
    if (*fd >= 0) {
        bool is_direct = false;
        mf_status status = probe_direct(io, *fd, &is_direct, error);
        if (status == MF_OK && is_direct)
            return MF_OK;
        close(*fd);
        MF_TRY(status);
    }
    *fd = mf_open_apart(AT_FDCWD, path, O_RDONLY, 0);
    if (*fd < 0)
        return mf_fail_os(error, errno == ENOENT ? MF_ERR_NOT_FOUND : MF_ERR_IO, errno, "%s", path);
    /* Experts lie all over the file: readahead would read what nobody asked for. */
    (void)posix_fadvise(*fd, 0, 0, POSIX_FADV_RANDOM);
    return MF_OK;
}

uint32_t mf_io_lane_of(mf_io *io, dev_t device)
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

void mf_io_hold_file(mf_io *io, int fd)
{
    if (io->engine->hold_file != NULL)
        io->engine->hold_file(io->engine_state, fd);
}

mf_status mf_io_take_file(mf_io *io, const char *path, int fd, uint32_t *file_out, mf_error *error)
{
    struct stat info;
    mf_io_file file = {.path_bytes = strlen(path) + 1, .fd = fd};
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
    file.lane = mf_io_lane_of(io, info.st_dev);
    io->files[io->n_files] = file;
    *file_out = io->n_files++;
    mf_io_hold_file(io, fd);
    return MF_OK;
}

mf_status mf_io_check_regular(const char *path, mf_error *error)
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
    MF_TRY(mf_io_check_regular(path, error));
    int fd;
    MF_TRY(mf_io_open_descriptor(io, path, &fd, error));
    return mf_io_take_file(io, path, fd, file_out, error);
}

mf_status mf_io_add_made_up(mf_io *io, uint64_t n_bytes, uint32_t *file_out, mf_error *error)
{
    static const char name[] = "a drive made of numbers";
    MF_TRY(grow_files(io, error));
    mf_io_file file = {.path_bytes = sizeof name, .n_bytes = n_bytes, .fd = -1};
    file.path = mf_alloc(&io->allocator, file.path_bytes);
    if (file.path == NULL)
        return mf_fail_memory(error, file.path_bytes, "the path of a file");
    memcpy(file.path, name, sizeof name);
    file.lane = mf_io_lane_of(io, 0);
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
    const mf_io_request *r = &io->requests[index];
    const mf_io_file *file = &io->files[r->read.file];
    return (mf_io_op){.offset = r->read.offset + r->resumed_at,
                      .dest = r->read.dest + r->resumed_at,
                      .n_bytes = r->read.n_bytes - r->resumed_at,
                      .request = index,
                      .lane = r->drive == 0 ? file->lane : io->drives[r->drive].lane,
                      .fd = mf_io_fd_on(file, r->drive)};
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
    io->requests[index] = (mf_io_request){
        .read = *read, .next_free = NO_REQUEST, .sent_ns = io->timeline != NULL ? mf_now_ns() : 0};
    if (io->files[read->file].has_copies) {
        mf_io_send_first(io, &io->requests[index]);
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

static mf_io_done done_with(const mf_io_request *r, mf_status status, int os_errno, uint64_t offset)
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
static bool finish_or_resume(mf_io *io, mf_io_request *r, int32_t n_read, mf_io_done *done)
{
    bool is_interrupted = is_passing(n_read);
    if (n_read < 0 && !is_interrupted) {
        if (mf_io_turn_to_another(io, r, -n_read))
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
    if (!is_interrupted && file_size_now(mf_io_fd_on(&io->files[r->read.file], r->drive), &size) &&
        size < end) {
        if (mf_io_turn_to_another(io, r, 0))
            return false;
        *done = done_with(r, MF_ERR_FORMAT, 0, size);
        return true;
    }
    if (r->n_stalls > STALLS_MAX) {
        if (mf_io_turn_to_another(io, r, EIO))
            return false;
        *done = done_with(r, MF_ERR_IO, is_interrupted ? -n_read : EIO, r->read.offset + r->n_got);
        return true;
    }
    r->resumed_at = r->n_got & ~(MF_IO_ALIGN - 1);
    return false;
}

static void tell_read(const mf_io *io, const mf_io_request *r)
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
        mf_io_leave_drive(io, &io->requests[index], is_good);
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
    const char *path = mf_io_path_on(&io->files[done->file], done->copy);
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

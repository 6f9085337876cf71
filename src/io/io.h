/* SPDX-License-Identifier: MIT */
/*
 * Reading files asynchronously. An engine (io_uring, a pool of pread threads, a fault injector for
 * tests) is one file and one mf_io_engine; mf_io is an open engine with its files. Reads are direct
 * (O_DIRECT) where the file system has it. Short reads and interrupted ones are continued; each
 * request is reported once, done or failed. No allocations after open and add_file. One thread at a
 * time, though not always the same one: reads go on when the thread that submitted them is gone.
 *
 * Files of one device share a lane, and the lanes share the depth evenly, so that a slow drive's
 * reads leave room for a fast one's.
 */
#ifndef MF_IO_IO_H
#define MF_IO_IO_H

#include "base/alloc.h"
#include "base/timeline.h"

#include <moeflux/moeflux.h>

typedef struct mf_io mf_io;

struct mf_io_engine; /* io_engine.h: the vtable an engine implements */

typedef struct mf_io_options {
    mf_allocator allocator;
    mf_io_kind kind;
    uint32_t depth;                    /* requests in flight at most; 0: 256 */
    const struct mf_io_engine *engine; /* NULL: by kind; tests put a fault-injecting one here */
    void *engine_arg; /* handed to engine->open; of the pool: a const mf_await *, or NULL */
    /* A drive failed and is left out, as there are copies of its files: NULL: nobody wants to know.
     */
    void (*lost)(void *ctx, const char *path, int os_errno);
    void *lost_ctx;
} mf_io_options;

mf_status mf_io_open(const mf_io_options *options, mf_io **out, mf_error *error);
/* Waits for what is in flight. */
void mf_io_close(mf_io **io);
const char *mf_io_name(const mf_io *io);
/* Of the clock that reads take their time of. */
uint64_t mf_io_now_us(const mf_io *io);

/* Opens a regular file for reading and numbers it from 0. Falls back to buffered reads where direct
 * ones are refused. Nothing may be in flight. */
mf_status mf_io_add_file(mf_io *io, const char *path, uint32_t *file, mf_error *error);
/* The same bytes on another drive (numbered from 0 by whoever adds them): each read of the file
 * goes to the copy that is expected to have it first, by what the drives did so far and have to do;
 * one that fails is done by another copy, and the drive left out. Errors: those of adding, and
 * MF_ERR_FORMAT where the copy is not as long, or begins or ends with other bytes. Nothing may be
 * in flight. */
mf_status mf_io_add_copy(mf_io *io, uint32_t file, uint32_t drive, const char *path,
                         mf_error *error);
#define MF_IO_COPIES_MAX 4u
/* All files of another, which may be reading meanwhile, with their copies, numbered alike behind
 * those that are here; they are not opened anew, so that a drive that fails is no error yet. */
mf_status mf_io_add_files_of(mf_io *io, const mf_io *from, mf_error *error);
/* Bytes that were read from the copies of this drive; UINT32_MAX: from the files themselves. */
uint64_t mf_io_copy_bytes(const mf_io *io, uint32_t drive);
/* A file of so many bytes that is not there, for engines that only tell how long reads take. */
mf_status mf_io_add_made_up(mf_io *io, uint64_t n_bytes, uint32_t *file, mf_error *error);
uint32_t mf_io_n_files(const mf_io *io);
const char *mf_io_file_path(const mf_io *io, uint32_t file);
uint64_t mf_io_file_bytes(const mf_io *io, uint32_t file);
/* The file's device, numbered from 0; devices beyond the last lane share those there are. */
#define MF_IO_LANES_MAX 8u
uint32_t mf_io_file_lane(const mf_io *io, uint32_t file);
uint32_t mf_io_n_lanes(const mf_io *io);

/* Offsets, sizes and destinations of requests must be multiples of this (4096 covers every drive's
 * direct I/O). */
#define MF_IO_ALIGN 4096u

/* One request. offset, n_bytes and dest are multiples of MF_IO_ALIGN; the request succeeds if at
 * least n_needed bytes arrive (the aligned range may reach past the end of the file). */
typedef struct mf_io_read {
    uint32_t file;
    uint64_t offset;
    uint32_t n_bytes;
    uint32_t n_needed;
    unsigned char *dest;
    uint64_t tag; /* the caller's */
} mf_io_read;

typedef struct mf_io_done {
    uint64_t tag;
    mf_status
        status; /* MF_OK, MF_ERR_IO (os_errno), or MF_ERR_FORMAT: the file ends before n_needed */
    int os_errno;
    uint64_t offset; /* where it failed; with MF_ERR_FORMAT, where the file ends */
    uint64_t end;    /* where the bytes needed end */
    uint32_t file;
    uint32_t copy; /* that was read last: 0 the file itself, else 1 more than its drive */
} mf_io_done;

/* How many requests of a lane would be accepted now, and how many are in flight. */
uint32_t mf_io_room(const mf_io *io, uint32_t lane);
uint32_t mf_io_lane_in_flight(const mf_io *io, uint32_t lane);
/* Submits up to n requests; the first *n_accepted of them are in flight (fewer where the next one's
 * lane has no room). Fails only if the engine itself did (MF_ERR_IO); mf_io_reset goes on from
 * there. */
mf_status mf_io_submit(mf_io *io, const mf_io_read *reads, uint32_t n, uint32_t *n_accepted,
                       mf_error *error);
/* Collects up to max finished requests. With wait, blocks until there is one; returns *n = 0 at
 * once if nothing is in flight. */
mf_status mf_io_collect(mf_io *io, bool wait, mf_io_done *out, uint32_t max, uint32_t *n,
                        mf_error *error);
uint32_t mf_io_in_flight(const mf_io *io);
/* Most reads go to this memory, which stays where it is and is all there until the io is closed:
 * what makes them cheaper is done as far as the system allows. Once at most. */
void mf_io_hold_memory(mf_io *io, unsigned char *memory, uint64_t n_bytes);
/* System calls made for reads, ever; 0: not known. */
uint64_t mf_io_n_calls(const mf_io *io);
/* Writes each read that is sent from now on to a timeline; NULL: no longer. */
void mf_io_watch(mf_io *io, mf_timeline *timeline);
/* After the engine itself failed: waits until no read in flight can write any more, forgets them
 * unreported, and starts the engine anew. On failure all stays as it was, to be tried again. */
mf_status mf_io_reset(mf_io *io, mf_error *error);

/* A clear line for a failed request: file, or the copy of it that was read last, offset, reason.
 * Returns done->status. */
mf_status mf_io_fail(const mf_io *io, const mf_io_done *done, mf_error *error);

#endif

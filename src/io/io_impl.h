/* SPDX-License-Identifier: MIT */
/* What an open mf_io is made of, and what io.c (files and requests) and io_copies.c (copies of
 * files on other drives) have of each other. */
#ifndef MF_IO_IO_IMPL_H
#define MF_IO_IO_IMPL_H

#include "io/io.h"
#include "io/io_drives.h"
#include "io/io_engine.h"

#include <sys/types.h>

/* The first is that of the files themselves. */
#define MF_IO_N_DRIVES (1 + MF_IO_COPIES_MAX)

typedef struct mf_io_copy {
    char *path; /* NULL: there is none */
    size_t path_bytes;
    int fd;
} mf_io_copy;

typedef struct mf_io_file {
    char *path;
    size_t path_bytes;
    uint64_t n_bytes; /* when it was added */
    uint32_t lane;
    int fd;
    mf_io_copy copies[MF_IO_COPIES_MAX];
    bool has_copies;
} mf_io_file;

typedef struct mf_io_request {
    mf_io_read read;
    uint32_t n_got;      /* contiguous from the start */
    uint32_t resumed_at; /* where the read now in flight starts: n_got rounded down */
    uint32_t n_stalls;
    uint32_t drive; /* that it is read from, where the file has copies */
    uint32_t next_free;
    uint64_t sent_ns; /* 0: nobody wants to know */
} mf_io_request;

struct mf_io {
    mf_allocator allocator;
    const mf_io_engine *engine;
    void *engine_state;
    mf_io_file *files;
    uint32_t n_files, files_capacity;
    dev_t devices[MF_IO_LANES_MAX]; /* by lane */
    uint32_t n_lanes;
    mf_io_drive drives[MF_IO_N_DRIVES];
    void (*lost)(void *ctx, const char *path, int os_errno);
    void *lost_ctx;
    uint32_t lane_in_flight[MF_IO_LANES_MAX];
    uint32_t depth;
    uint32_t n_in_flight;
    uint32_t first_free;
    mf_timeline *timeline;   /* or NULL */
    mf_io_request *requests; /* [depth] */
    mf_io_op *ops;           /* [depth], of one submission */
    mf_io_result *results;   /* [depth], of one collection */
    bool is_broken;          /* the engine itself failed: what is in flight cannot be known */
    unsigned char probe_block[2 * MF_IO_ALIGN], copy_block[2 * MF_IO_ALIGN];
};

/* ------------------------------------------------------------------------------------ io.c -- */

/* Fails where the path is no file, which might keep whoever opens it waiting. */
mf_status mf_io_check_regular(const char *path, mf_error *error);
/* For direct reads, where these work. */
mf_status mf_io_open_descriptor(mf_io *io, const char *path, int *fd, mf_error *error);
/* A file more in the table. The descriptor is the table's, or closed. */
mf_status mf_io_take_file(mf_io *io, const char *path, int fd, uint32_t *file, mf_error *error);
/* The lane of a device, a new one if there are lanes left. */
uint32_t mf_io_lane_of(mf_io *io, dev_t device);
/* The engine may keep a descriptor that stays at hand. */
void mf_io_hold_file(mf_io *io, int fd);

/* ------------------------------------------------------------------------------- io_copies.c -- */

/* A drive's number is a request's: 0 the file itself, else 1 more than that of its copies. */
int mf_io_fd_on(const mf_io_file *file, uint32_t drive);
const char *mf_io_path_on(const mf_io_file *file, uint32_t drive);
void mf_io_close_copy(const mf_io *io, mf_io_copy *copy);
/* Chooses the first drive that a request goes to. One that the others left nothing to for long is
 * taken to be like them until it is seen again. */
void mf_io_send_first(mf_io *io, mf_io_request *r);
/* The drive is done with the request, well or not. */
void mf_io_leave_drive(mf_io *io, const mf_io_request *r, bool is_good);
/* A read failed on its drive: another that has a copy takes over from where it was. False: there is
 * none. */
bool mf_io_turn_to_another(mf_io *io, mf_io_request *r, int os_errno);

#endif

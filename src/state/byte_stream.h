/* SPDX-License-Identifier: MIT */
/* Where bytes come from and go to: a buffer, a file descriptor, an entry of the store. */
#ifndef MF_STATE_BYTE_STREAM_H
#define MF_STATE_BYTE_STREAM_H

#include "base/alloc.h"

/* Takes all n_bytes or fails. */
typedef struct mf_byte_sink {
    mf_status (*write)(struct mf_byte_sink *self, const void *data, size_t n_bytes,
                       mf_error *error);
    /* Where the next n_bytes lie, for the caller to write as if by `write`, in any order and from
     * any thread; NULL if there are not as many. No function: this sink is not memory. */
    unsigned char *(*reserve)(struct mf_byte_sink *self, size_t n_bytes);
} mf_byte_sink;

/* Gives exactly n_bytes or fails: MF_ERR_FORMAT where they end early, MF_ERR_IO. */
typedef struct mf_byte_source {
    mf_status (*read)(struct mf_byte_source *self, void *dest, size_t n_bytes, mf_error *error);
    /* Where the next n_bytes lie, passed over as if by `read`; otherwise as a sink's. */
    const unsigned char *(*reserve)(struct mf_byte_source *self, size_t n_bytes);
} mf_byte_source;

typedef struct mf_buffer_sink {
    mf_byte_sink sink;
    unsigned char *at;
    size_t n_left;
} mf_buffer_sink;

void mf_buffer_sink_init(mf_buffer_sink *s, void *buffer, size_t capacity);

typedef struct mf_buffer_source {
    mf_byte_source source;
    const unsigned char *at;
    size_t n_left;
} mf_buffer_source;

void mf_buffer_source_init(mf_buffer_source *s, const void *buffer, size_t n_bytes);

/* From and to the descriptor's offset; interrupted and short calls are continued. `name` is for
 * messages and must outlive the stream. */
typedef struct mf_fd_sink {
    mf_byte_sink sink;
    int fd;
    const char *name;
    const mf_allocator *allocator;
    unsigned char *held; /* NULL: what is written goes out at once */
    size_t n_held;
} mf_fd_sink;

void mf_fd_sink_init(mf_fd_sink *s, int fd, const char *name);
/* Gathers small writes into large ones from now on, if there is memory for it. Then
 * mf_fd_sink_end must follow: it writes what is held if status is MF_OK, and returns what came of
 * both. */
void mf_fd_sink_gather(mf_fd_sink *s, const mf_allocator *a);
mf_status mf_fd_sink_end(mf_fd_sink *s, mf_status status, mf_error *error);

typedef struct mf_fd_source {
    mf_byte_source source;
    int fd;
    const char *name;
} mf_fd_source;

void mf_fd_source_init(mf_fd_source *s, int fd, const char *name);

#endif

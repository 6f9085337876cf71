/* SPDX-License-Identifier: MIT */
/* Streams over buffers and file descriptors. */
#include "state/byte_stream.h"

#include "base/files.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* One call's bytes: below what the kernel takes at once. */
#define MAX_CALL_BYTES ((size_t)1 << 30)

/* Writes are gathered to so many bytes: whole pages of the cache, still in a core's own cache after
 * their checksum. */
#define GATHER_BYTES ((size_t)256 << 10)

static unsigned char *buffer_to_write(mf_byte_sink *self, size_t n_bytes)
{
    mf_buffer_sink *s = (mf_buffer_sink *)(void *)self;
    unsigned char *at = s->at;
    if (n_bytes > s->n_left)
        return NULL;
    s->at += n_bytes;
    s->n_left -= n_bytes;
    return at;
}

static mf_status buffer_write(mf_byte_sink *self, const void *data, size_t n_bytes, mf_error *error)
{
    unsigned char *at = buffer_to_write(self, n_bytes);
    if (at == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "the buffer is too small for the snapshot");
    if (n_bytes > 0)
        memcpy(at, data, n_bytes);
    return MF_OK;
}

void mf_buffer_sink_init(mf_buffer_sink *s, void *buffer, size_t capacity)
{
    *s = (mf_buffer_sink){{buffer_write, buffer_to_write}, buffer, capacity};
}

static const unsigned char *buffer_to_read(mf_byte_source *self, size_t n_bytes)
{
    mf_buffer_source *s = (mf_buffer_source *)(void *)self;
    const unsigned char *at = s->at;
    if (n_bytes > s->n_left)
        return NULL;
    s->at += n_bytes;
    s->n_left -= n_bytes;
    return at;
}

static mf_status buffer_read(mf_byte_source *self, void *dest, size_t n_bytes, mf_error *error)
{
    const unsigned char *at = buffer_to_read(self, n_bytes);
    if (at == NULL)
        return mf_fail(error, MF_ERR_FORMAT, "the snapshot is truncated");
    if (n_bytes > 0)
        memcpy(dest, at, n_bytes);
    return MF_OK;
}

void mf_buffer_source_init(mf_buffer_source *s, const void *buffer, size_t n_bytes)
{
    *s = (mf_buffer_source){{buffer_read, buffer_to_read}, buffer, n_bytes};
}

static mf_status write_out(const mf_fd_sink *s, const void *data, size_t n_bytes, mf_error *error)
{
    return mf_write_whole(s->fd, data, n_bytes) == n_bytes
               ? MF_OK
               : mf_fail_os(error, MF_ERR_IO, errno, "%s: cannot write", s->name);
}

static mf_status flush(mf_fd_sink *s, mf_error *error)
{
    size_t n_bytes = s->n_held;
    s->n_held = 0;
    return write_out(s, s->held, n_bytes, error);
}

static mf_status fd_write(mf_byte_sink *self, const void *data, size_t n_bytes, mf_error *error)
{
    mf_fd_sink *s = (mf_fd_sink *)(void *)self;
    const unsigned char *at = data;
    if (s->held == NULL)
        return write_out(s, data, n_bytes, error);
    while (n_bytes > 0) {
        size_t room = GATHER_BYTES - s->n_held, n = n_bytes < room ? n_bytes : room;
        memcpy(s->held + s->n_held, at, n);
        s->n_held += n;
        at += n;
        n_bytes -= n;
        if (s->n_held == GATHER_BYTES)
            MF_TRY(flush(s, error));
    }
    return MF_OK;
}

void mf_fd_sink_init(mf_fd_sink *s, int fd, const char *name)
{
    *s = (mf_fd_sink){.sink = {.write = fd_write}, .fd = fd, .name = name};
}

void mf_fd_sink_gather(mf_fd_sink *s, const mf_allocator *a)
{
    s->allocator = a;
    s->held = mf_alloc(a, GATHER_BYTES);
}

mf_status mf_fd_sink_end(mf_fd_sink *s, mf_status status, mf_error *error)
{
    if (status == MF_OK && s->held != NULL)
        status = flush(s, error);
    if (s->held != NULL)
        mf_free(s->allocator, s->held, GATHER_BYTES);
    s->held = NULL;
    return status;
}

static mf_status fd_read(mf_byte_source *self, void *dest, size_t n_bytes, mf_error *error)
{
    const mf_fd_source *s = (const mf_fd_source *)(const void *)self;
    unsigned char *at = dest;
    while (n_bytes > 0) {
        ssize_t n = read(s->fd, at, n_bytes < MAX_CALL_BYTES ? n_bytes : MAX_CALL_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return mf_fail_os(error, MF_ERR_IO, errno, "%s: cannot read", s->name);
        if (n == 0)
            return mf_fail(error, MF_ERR_FORMAT, "%s: the snapshot is truncated", s->name);
        at += n;
        n_bytes -= (size_t)n;
    }
    return MF_OK;
}

void mf_fd_source_init(mf_fd_source *s, int fd, const char *name)
{
    *s = (mf_fd_source){{.read = fd_read}, fd, name};
}

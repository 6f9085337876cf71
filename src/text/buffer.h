/* SPDX-License-Identifier: MIT */
/* A growable byte buffer on the caller's allocator, for scratch whose size the text decides. */
#ifndef MF_TEXT_BUFFER_H
#define MF_TEXT_BUFFER_H

#include "base/alloc.h"

typedef struct mf_buffer {
    mf_allocator allocator;
    unsigned char *data;
    size_t n_bytes;
    size_t capacity;
} mf_buffer;

void mf_buffer_init(mf_buffer *buffer, const mf_allocator *a);
void mf_buffer_free(mf_buffer *buffer);
/* Room for n_more bytes after n_bytes. */
mf_status mf_buffer_reserve(mf_buffer *buffer, size_t n_more, const char *what, mf_error *error);
mf_status mf_buffer_append(mf_buffer *buffer, const void *bytes, size_t n_bytes, const char *what,
                           mf_error *error);

#endif

/* SPDX-License-Identifier: MIT */
/* The growable byte buffer. */
#include "text/buffer.h"

#include "base/checked.h"

#include <string.h>

#define LEAST_CAPACITY ((size_t)256)

void mf_buffer_init(mf_buffer *buffer, const mf_allocator *a)
{
    *buffer = (mf_buffer){.allocator = *a};
}

void mf_buffer_free(mf_buffer *buffer)
{
    mf_free(&buffer->allocator, buffer->data, buffer->capacity);
    buffer->data = NULL;
    buffer->n_bytes = buffer->capacity = 0;
}

mf_status mf_buffer_reserve(mf_buffer *buffer, size_t n_more, const char *what, mf_error *error)
{
    size_t needed;
    if (!mf_add_size(buffer->n_bytes, n_more, &needed))
        return mf_fail_memory(error, n_more, what);
    if (needed <= buffer->capacity)
        return MF_OK;
    size_t capacity = buffer->capacity < LEAST_CAPACITY ? LEAST_CAPACITY : buffer->capacity;
    while (capacity < needed)
        if (!mf_mul_size(capacity, 2, &capacity))
            return mf_fail_memory(error, needed, what);
    unsigned char *data = mf_realloc(&buffer->allocator, buffer->data, buffer->capacity, capacity);
    if (data == NULL)
        return mf_fail_memory(error, capacity, what);
    buffer->data = data;
    buffer->capacity = capacity;
    return MF_OK;
}

mf_status mf_buffer_append(mf_buffer *buffer, const void *bytes, size_t n_bytes, const char *what,
                           mf_error *error)
{
    MF_TRY(mf_buffer_reserve(buffer, n_bytes, what, error));
    if (n_bytes != 0)
        memcpy(buffer->data + buffer->n_bytes, bytes, n_bytes);
    buffer->n_bytes += n_bytes;
    return MF_OK;
}

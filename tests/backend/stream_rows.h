/* SPDX-License-Identifier: MIT */
/* What the tests of backend.h's stream share: the backends that they run on, and rows of floats. */
#ifndef MF_TESTS_STREAM_ROWS_H
#define MF_TESTS_STREAM_ROWS_H

#include "strict_backend.h"
#include "test.h"
#include "vulkan_open.h"

#define N_COLS 16u
#define ROW_BYTES ((uint64_t)N_COLS * sizeof(float))
#define N_ROWS 12u /* of each buffer */

typedef enum place { ON_CPU, ON_STRICT, ON_VULKAN } place;

static inline mf_backend *open_backend(place on, const strict_options *strict)
{
    mf_error error = {0};
    mf_backend *be = NULL;
    const mf_backend_options options = {.n_threads = 1,
                                        .device = on == ON_VULKAN ? vulkan_test_device() : "cpu"};
    strict_options given = strict != NULL ? *strict : (strict_options){0};
    REQUIRE_OK(on == ON_STRICT ? strict_backend_open(&given, &options, &be, &error)
                               : mf_backend_open(&options, &be, &error),
               &error);
    mf_op add = {.kind = MF_OP_ADD, .n_rows = N_ROWS, .u.add = {.n_cols = N_COLS}};
    mf_op copy = {.kind = MF_OP_COPY_ROWS, .n_rows = N_ROWS, .u.copy_rows = {.n_cols = N_COLS}};
    REQUIRE_OK(mf_backend_reserve(be, &add, &error), &error);
    REQUIRE_OK(mf_backend_reserve(be, &copy, &error), &error);
    return be;
}

static inline mf_buffer new_buffer(mf_backend *be, mf_buffer_use use, uint64_t n_bytes)
{
    mf_error error = {0};
    mf_buffer buffer = {0};
    REQUIRE_OK(be->ops->buffer_create(be, n_bytes, use, "rows", &buffer, &error), &error);
    return buffer;
}

static inline void record_add(mf_backend *be, mf_span x, mf_span y, uint32_t n_rows)
{
    const mf_op op = {
        .kind = MF_OP_ADD, .n_rows = n_rows, .u.add = {.x = x, .y = y, .n_cols = N_COLS}};
    be->ops->record(be, &op);
}

static inline void fill(float *values, size_t n, float value)
{
    for (size_t i = 0; i < n; i++)
        values[i] = value;
}

#endif

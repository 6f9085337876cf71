/* SPDX-License-Identifier: MIT */
/*
 * Public structs that begin with their size, struct_bytes, as the caller's compiler sees it. Caller
 * and library may be of different versions: both know the fields of the smaller size, and the
 * library's own struct has all that it knows.
 */
#ifndef MF_BASE_SIZED_H
#define MF_BASE_SIZED_H

#include "base/status.h"

#include <string.h>

static inline size_t mf_sized_common(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The caller's options become these; what the library does not know of them is zero. */
static inline void mf_sized_init(void *options, size_t struct_bytes, const void *defaults,
                                 size_t n_known)
{
    if (struct_bytes < sizeof struct_bytes)
        return;
    memset(options, 0, struct_bytes);
    memcpy(options, defaults, mf_sized_common(struct_bytes, n_known));
    memcpy(options, &struct_bytes, sizeof struct_bytes);
}

/* The caller's result becomes this, and its size how much of it was filled. */
static inline void mf_sized_put(void *out, size_t struct_bytes, const void *result, size_t n_known)
{
    const size_t n = mf_sized_common(struct_bytes, n_known);
    mf_sized_init(out, struct_bytes, result, n_known);
    if (struct_bytes >= sizeof n)
        memcpy(out, &n, sizeof n);
}

/* `known`, which holds the defaults, gets what the caller's options have of it. Errors:
 * MF_ERR_ARGUMENT (no size, or something set that the library does not know). */
static inline mf_status mf_sized_get(void *known, size_t n_known, const void *options,
                                     const char *what, mf_error *error)
{
    size_t n;
    memcpy(&n, options, sizeof n);
    if (n < sizeof n)
        return mf_fail(error, MF_ERR_ARGUMENT, "%s.struct_bytes is %zu: fill it with %s_default",
                       what, n, what);
    const unsigned char *bytes = options;
    for (size_t i = n_known; i < n; i++)
        if (bytes[i] != 0)
            return mf_fail(error, MF_ERR_ARGUMENT,
                           "%s is of a newer version, and something is set in it that this one "
                           "does not know",
                           what);
    memcpy(known, options, mf_sized_common(n, n_known));
    memcpy(known, &n_known, sizeof n_known);
    return MF_OK;
}

#endif

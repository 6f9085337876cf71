/* SPDX-License-Identifier: MIT */
/* Part of <moeflux/moeflux.h>, which programs include and which states the conventions: what all of
 * it shares, statuses, errors, allocators and the engine's name. */
#ifndef MOEFLUX_TYPES_H
#define MOEFLUX_TYPES_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define MF_API __attribute__((visibility("default")))
#define MF_MUST_CHECK __attribute__((warn_unused_result))
#else
#define MF_API
#define MF_MUST_CHECK
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------- status ---------------------------------------- */

typedef enum mf_status {
    MF_OK = 0,
    /* An argument is NULL, out of range, or contradicts another. */
    MF_ERR_ARGUMENT = -1,
    /* The allocator returned NULL. */
    MF_ERR_NO_MEMORY = -2,
    /* The operating system refused or failed a read; mf_error.os_errno says how. */
    MF_ERR_IO = -3,
    /* A file's content is malformed, truncated, or contradicts another file. */
    MF_ERR_FORMAT = -4,
    /* Well-formed, but of a kind that this version does not run. */
    MF_ERR_UNSUPPORTED = -5,
    /* It does not fit the memory that was allowed; the message says what would. */
    MF_ERR_BUDGET = -6,
    /* More tokens than the session's context holds. */
    MF_ERR_CONTEXT = -7,
    /* A callback, a cancel or the deadline asked to stop. */
    MF_ERR_CANCELLED = -8,
    /* Not while an evaluation is going on: from a callback of it, or of its session. */
    MF_ERR_STATE = -9,
    /* A file, an entry or a position does not exist. */
    MF_ERR_NOT_FOUND = -10
} mf_status;

#define MF_ERROR_NO_POSITION UINT64_MAX

/* What went wrong. Plain data, owned by the caller. */
typedef struct mf_error {
    mf_status code;
    /* 0 where the operating system was not involved. */
    int os_errno;
    /* In the named file; MF_ERROR_NO_POSITION where it does not apply. */
    uint64_t byte_position;
    /* One line of UTF-8, no newline, NUL-terminated; '?' stands for what a path or a file's text
     * has of control characters and of bytes that are not UTF-8. */
    char message[1024];
} mf_error;

/* A short name of a code ("no memory"). Never NULL; static storage. */
MF_API const char *mf_status_name(mf_status status);

/* ---------------------------------------- allocator ---------------------------------------- */

/*
 * Where a handle's memory comes from. alloc returns memory aligned for any type, or NULL. free gets
 * the size that was asked for. realloc gets the old size and may move. The functions may be called
 * from the library's own threads; a struct that has some of them and not all is MF_ERR_ARGUMENT. It
 * is copied; ctx must outlive every handle opened with it.
 */
typedef struct mf_allocator {
    void *ctx;
    void *(*alloc)(void *ctx, size_t n_bytes);
    void *(*realloc)(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes);
    void (*free)(void *ctx, void *ptr, size_t n_bytes);
} mf_allocator;

/* One opened checkpoint: moeflux.h opens it, statistics.h looks at it. */
typedef struct mf_engine mf_engine;

#ifdef __cplusplus
}
#endif
#endif

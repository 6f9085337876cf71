/* SPDX-License-Identifier: MIT */
/* Status forwarding and error messages: the one place that fills an mf_error. */
#ifndef MF_BASE_STATUS_H
#define MF_BASE_STATUS_H

#include <moeflux/types.h>

/* Forwards a failure to the caller. */
#define MF_TRY(expr)                       \
    do {                                   \
        mf_status mf_try_status_ = (expr); \
        if (mf_try_status_ != MF_OK)       \
            return mf_try_status_;         \
    } while (0)

/* The same in a function with a fail: label and a local `status`. */
#define MF_TRY_GOTO(expr)    \
    do {                     \
        status = (expr);     \
        if (status != MF_OK) \
            goto fail;       \
    } while (0)

/* Fills *error (if not NULL) with a printf-formatted line and returns `code`. Control characters
 * that came from a file are replaced. */
mf_status mf_fail(mf_error *error, mf_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a failed system call: os_errno is recorded and its description appended. */
mf_status mf_fail_os(mf_error *error, mf_status code, int os_errno, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The same for a position in a file. */
mf_status mf_fail_at(mf_error *error, mf_status code, uint64_t byte_position, const char *format,
                     ...) __attribute__((format(printf, 4, 5)));

/* Makes a text what messages and lines of a log are: '?' in place of control characters, which
 * would end the line or speak to a terminal, and of bytes that are not UTF-8 (of a path; where a
 * name was cut within a character), which are no text for who passes it on. The functions above do.
 */
void mf_one_line(char *line);

/* "out of memory: N bytes for WHAT" */
mf_status mf_fail_memory(mf_error *error, size_t n_bytes, const char *what);

#if defined(__clang_analyzer__) && !defined(MF_STATUS_IMPLEMENTATION)
/* The analyzer does not see into status.c: it learns here that a failure is never MF_OK. */
#define mf_fail(error, code, ...) ((void)(mf_fail)((error), (code), __VA_ARGS__), (code))
#define mf_fail_os(error, code, os_errno, ...) \
    ((void)(mf_fail_os)((error), (code), (os_errno), __VA_ARGS__), (code))
#define mf_fail_at(error, code, byte_position, ...) \
    ((void)(mf_fail_at)((error), (code), (byte_position), __VA_ARGS__), (code))
#define mf_fail_memory(error, n_bytes, what) \
    ((void)(mf_fail_memory)((error), (n_bytes), (what)), MF_ERR_NO_MEMORY)
#endif

#endif

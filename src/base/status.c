/* SPDX-License-Identifier: MIT */
/* Status names and error messages. Messages are one line whatever a file's strings hold. */
#define MF_STATUS_IMPLEMENTATION
#include "base/status.h"

#include <moeflux/moeflux.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *mf_version(void)
{
    return MF_VERSION_STRING;
}

const char *mf_status_name(mf_status status)
{
    switch (status) {
    case MF_OK:
        return "ok";
    case MF_ERR_ARGUMENT:
        return "invalid argument";
    case MF_ERR_NO_MEMORY:
        return "no memory";
    case MF_ERR_IO:
        return "input/output error";
    case MF_ERR_FORMAT:
        return "malformed file";
    case MF_ERR_UNSUPPORTED:
        return "unsupported";
    case MF_ERR_BUDGET:
        return "memory budget too small";
    case MF_ERR_CONTEXT:
        return "context full";
    case MF_ERR_CANCELLED:
        return "cancelled";
    case MF_ERR_STATE:
        return "not while evaluating";
    case MF_ERR_NOT_FOUND:
        return "not found";
    }
    return "unknown status";
}

static void replace_control_characters(char *line)
{
    for (unsigned char *c = (unsigned char *)line; *c != '\0'; c++) {
        if (*c < 0x20 || *c == 0x7f)
            *c = '?';
    }
}

static void fill(mf_error *error, mf_status code, const char *format, va_list args)
{
    error->code = code;
    error->os_errno = 0;
    error->byte_position = MF_ERROR_NO_POSITION;
    vsnprintf(error->message, sizeof error->message, format, args);
    replace_control_characters(error->message);
}

mf_status mf_fail(mf_error *error, mf_status code, const char *format, ...)
{
    if (error != NULL) {
        va_list args;
        va_start(args, format);
        fill(error, code, format, args);
        va_end(args);
    }
    return code;
}

mf_status mf_fail_os(mf_error *error, mf_status code, int os_errno, const char *format, ...)
{
    if (error != NULL) {
        va_list args;
        va_start(args, format);
        fill(error, code, format, args);
        va_end(args);
        error->os_errno = os_errno;
        char scratch[128];
        const char *reason = strerror_r(os_errno, scratch, sizeof scratch); /* the GNU one */
        size_t used = strlen(error->message);
        snprintf(error->message + used, sizeof error->message - used, ": %s", reason);
    }
    return code;
}

mf_status mf_fail_at(mf_error *error, mf_status code, uint64_t byte_position, const char *format,
                     ...)
{
    if (error != NULL) {
        va_list args;
        va_start(args, format);
        fill(error, code, format, args);
        va_end(args);
        error->byte_position = byte_position;
    }
    return code;
}

mf_status mf_fail_memory(mf_error *error, size_t n_bytes, const char *what)
{
    return mf_fail(error, MF_ERR_NO_MEMORY, "out of memory: %zu bytes for %s", n_bytes, what);
}

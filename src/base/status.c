/* SPDX-License-Identifier: MIT */
/* Status names and error messages. Messages are one line whatever a file's strings hold. */
#define MF_STATUS_IMPLEMENTATION
#include "base/status.h"

#include <moeflux/moeflux.h>

#include <stdarg.h>
#include <stdbool.h>
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

/* Bytes of the well-formed UTF-8 character that a text begins with, NUL behind it; 0: it begins
 * with none. (The text layer's reader stands above this one.) */
static size_t character_bytes(const unsigned char *c)
{
    if (c[0] < 0x80)
        return 1;
    const size_t n = c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : 4;
    const bool is_overlong = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
    const bool is_no_scalar = (c[0] == 0xed && c[1] > 0x9f) || (c[0] == 0xf4 && c[1] > 0x8f);
    if (c[0] < 0xc2 || c[0] > 0xf4 || is_overlong || is_no_scalar)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

void mf_one_line(char *line)
{
    for (unsigned char *c = (unsigned char *)line; *c != '\0';) {
        const size_t n = character_bytes(c);
        if (n == 0 || *c < 0x20 || *c == 0x7f)
            *c = '?';
        c += n > 0 ? n : 1;
    }
}

static void fill(mf_error *error, mf_status code, const char *format, va_list args)
{
    error->code = code;
    error->os_errno = 0;
    error->byte_position = MF_ERROR_NO_POSITION;
    vsnprintf(error->message, sizeof error->message, format, args);
    mf_one_line(error->message);
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
        mf_one_line(error->message); /* the reason is in the locale's own characters */
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

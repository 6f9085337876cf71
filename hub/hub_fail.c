/* SPDX-License-Identifier: MIT */
/* One line of what went wrong. */
#include "hub_fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool mf_hub_fail(mf_error *error, mf_status code, const char *format, ...)
{
    if (!error)
        return false;
    va_list args;
    *error = (mf_error){.code = code, .byte_position = MF_ERROR_NO_POSITION};
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    return false;
}

bool mf_hub_fail_os(mf_error *error, int os_errno, const char *format, ...)
{
    if (!error)
        return false;
    va_list args;
    *error =
        (mf_error){.code = MF_ERR_IO, .os_errno = os_errno, .byte_position = MF_ERROR_NO_POSITION};
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    const size_t n = strlen(error->message);
    snprintf(error->message + n, sizeof error->message - n, ": %s", strerror(os_errno));
    return false;
}

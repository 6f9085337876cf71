/* SPDX-License-Identifier: MIT */
/* Errors within the hub's part of the program. */
#ifndef MF_HUB_FAIL_H
#define MF_HUB_FAIL_H

#include "hub.h"

/* Fills *error (may be NULL); false. */
bool mf_hub_fail(mf_error *error, mf_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with ": " and what errno says behind it. */
bool mf_hub_fail_os(mf_error *error, int os_errno, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif

/* SPDX-License-Identifier: MIT */
/* Digits of texts, whatever the locale. */
#ifndef MF_BASE_DIGITS_H
#define MF_BASE_DIGITS_H

#include <stdbool.h>

/* The value of 0 to 9 and then of the letters, of either case, from 10 on; 99, which is below no
 * base, of all else. */
static inline int mf_digit_of(char c)
{
    const char lower = (char)(c | 0x20);
    return c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
}

static inline bool mf_is_hex(char c)
{
    return mf_digit_of(c) < 16;
}

#endif

/* SPDX-License-Identifier: MIT */
/* Categories and scripts of characters that PCRE2's Unicode tables may be too old to know. */
#ifndef MF_TEXT_UNICODE_ADDITIONS_H
#define MF_TEXT_UNICODE_ADDITIONS_H

#include <stddef.h>
#include <stdint.h>

typedef struct mf_unicode_addition {
    char name[11]; /* of a general category (two letters) or a script */
    uint32_t first, last;
} mf_unicode_addition;

extern const mf_unicode_addition mf_unicode_additions[];
extern const size_t mf_n_unicode_additions;
extern const mf_unicode_addition mf_script_additions[];
extern const size_t mf_n_script_additions;

#endif

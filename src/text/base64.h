/* SPDX-License-Identifier: MIT */
/* Bytes written as base64, with padding. */
#ifndef MF_TEXT_BASE64_H
#define MF_TEXT_BASE64_H

#include <stdbool.h>
#include <stddef.h>

/* Decodes text[n] to out, which has room for 3 bytes of every 4; false if it is not that, or empty.
 */
bool mf_base64_decode(const char *text, size_t n, unsigned char *out, size_t *n_out);

#endif

/* SPDX-License-Identifier: MIT */
/* UTF-8: decoding with the Unicode standard's "maximal subpart" rule for what is malformed,
 * encoding, and repair of whole texts. */
#ifndef MF_TEXT_UTF8_H
#define MF_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MF_UTF8_REPLACEMENT 0xFFFDu

typedef enum mf_utf8_kind {
    MF_UTF8_CHAR,   /* a whole character of n_bytes */
    MF_UTF8_BAD,    /* n_bytes that can never become one: a maximal subpart, one U+FFFD */
    MF_UTF8_PARTIAL /* the text ends inside a character that is well-formed so far */
} mf_utf8_kind;

/* Looks at the first character of text[n_bytes], n_bytes >= 1. *code_point is set for MF_UTF8_CHAR.
 */
mf_utf8_kind mf_utf8_next(const unsigned char *text, size_t n_bytes, uint32_t *code_point,
                          size_t *n_char_bytes);

/* Writes a scalar value to out[4]; returns its length. */
size_t mf_utf8_put(uint32_t code_point, unsigned char *out);

/* What Python's str.isspace and str.strip take for white space. */
bool mf_utf8_is_blank(uint32_t code_point);

bool mf_utf8_is_valid(const unsigned char *text, size_t n_bytes);

/* Bytes that the text takes with every maximal subpart replaced by U+FFFD; writes them if out is
 * not NULL. */
size_t mf_utf8_repair(const unsigned char *text, size_t n_bytes, unsigned char *out);

#endif

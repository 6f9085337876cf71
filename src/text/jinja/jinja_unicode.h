/* SPDX-License-Identifier: MIT */
/* Characters and cases as Python's str has them. */
#ifndef MF_TEXT_JINJA_UNICODE_H
#define MF_TEXT_JINJA_UNICODE_H

#include "text/jinja/jinja_text.h"

typedef enum mf_jcase { MF_J_UPPER = 'U', MF_J_LOWER = 'L', MF_J_TITLE = 'T' } mf_jcase;

/* Puts a character in a case; it may become several. */
void mf_j_put_cased(mf_jtext *text, uint32_t c, mf_jcase to);
/* The character at byte *at, which moves behind it; *follows_cased is carried from one to the next,
 * for the final sigma. */
void mf_j_put_next_cased(mf_jtext *text, const mf_jstr *s, size_t *at, mf_jcase to,
                         bool *follows_cased);
/* A string in a case; for lower that of str.lower, with the final sigma. */
void mf_j_put_string_cased(mf_jtext *text, const mf_jstr *s, mf_jcase to);
/* Puts what str.casefold makes of a character. */
void mf_j_put_folded(mf_jtext *text, uint32_t c);
bool mf_j_is_cased(uint32_t c);
bool mf_j_is_upper(uint32_t c);
bool mf_j_is_lower(uint32_t c);
bool mf_j_is_alpha(uint32_t c);
bool mf_j_is_decimal(uint32_t c);
bool mf_j_is_digit(uint32_t c);   /* str.isdigit */
bool mf_j_is_numeric(uint32_t c); /* str.isnumeric */

/* The character at byte *at of a string, which moves behind it. U+FFFD for what is none. */
uint32_t mf_j_next_char(const mf_jstr *s, size_t *at);
/* Whether a character ends a line for str.splitlines. */
bool mf_j_ends_line(uint32_t c);

#endif

/* SPDX-License-Identifier: MIT */
/* What filters and methods on strings share. */
#ifndef MF_TEXT_JINJA_STRINGS_H
#define MF_TEXT_JINJA_STRINGS_H

#include "text/jinja/jinja_eval.h"

enum { MF_J_STRIP_LEFT = 1, MF_J_STRIP_RIGHT = 2 };

/* Without white space (chars NULL), or any of the characters, on the sides. */
mf_jval mf_j_strip(mf_jrun *j, const mf_jstr *s, const mf_jstr *chars, int sides);
mf_jval mf_j_cased(mf_jrun *j, const mf_jstr *s, int to); /* an mf_jcase */
mf_jval mf_j_capitalized(mf_jrun *j, const mf_jstr *s);
/* At most n_most times, if that is not negative. */
mf_jval mf_j_replace(mf_jrun *j, const mf_jstr *s, const mf_jstr *old, const mf_jstr *with,
                     int64_t n_most);
/* Where the last of these words (of a byte and more) that ends at `end` or before begins, in bytes;
 * SIZE_MAX: nowhere. */
size_t mf_j_find_last(mf_jrun *j, const mf_jstr *s, size_t end, const mf_jstr *word);
mf_jval mf_j_split_lines(mf_jrun *j, const mf_jstr *s, bool keeps_ends);
/* Spaces on both sides, as str.center has them. */
mf_jval mf_j_padded(mf_jrun *j, const mf_jstr *s, int64_t n_left, int64_t n_right,
                    const mf_jstr *fill);
mf_jval mf_j_centered(mf_jrun *j, const mf_jstr *s, int64_t width, const mf_jstr *fill);
/* int(text, base) and float(text); false: it is none. */
bool mf_j_parse_int(const mf_jstr *s, int base, int64_t *out);
bool mf_j_parse_float(const mf_jstr *s, double *out);

#endif

/* SPDX-License-Identifier: MIT */
/* Values of arguments that are not written as JSON: literals of Python, and text whose type the
 * tool's schema gives. */
#ifndef MF_TEXT_REPLY_VALUE_H
#define MF_TEXT_REPLY_VALUE_H

#include "text/buffer.h"

typedef enum mf_value_result { MF_VALUE_OK, MF_VALUE_BAD, MF_VALUE_NO_MEMORY } mf_value_result;

/* A literal of Python (or JSON) as JSON, appended to `out`: also after MF_VALUE_BAD something may
 * have been. */
mf_value_result mf_reply_python_value(const char *text, size_t n_bytes, mf_buffer *out);

/* Text as the JSON that it may be by `types` (of reply_tools.h), else as a string. */
mf_value_result mf_reply_typed_value(const char *text, size_t n_bytes, unsigned types,
                                     mf_buffer *out);

/* May this follow a string of Python, but for blanks? */
bool mf_reply_ends_string(char next);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Bytes that grow, and JSON written into them. Running out of memory is remembered instead of
 * reported: whoever hands the bytes on looks at has_failed once.
 */
#ifndef MF_SERVER_BYTES_H
#define MF_SERVER_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct yyjson_val;

/* Zero-initialise. */
typedef struct mf_srv_bytes {
    char *data; /* from malloc; NUL-terminated where anything was put */
    size_t n_bytes, capacity;
    bool has_failed;
} mf_srv_bytes;

void mf_srv_put(mf_srv_bytes *b, const char *data, size_t n_bytes);
void mf_srv_puts(mf_srv_bytes *b, const char *text);
__attribute__((format(printf, 2, 3))) void mf_srv_printf(mf_srv_bytes *b, const char *format, ...);
/* A JSON string. What is not UTF-8 becomes U+FFFD. */
void mf_srv_put_json(mf_srv_bytes *b, const char *text, size_t n_bytes);
void mf_srv_puts_json(mf_srv_bytes *b, const char *text);
/* A JSON number; null where it is none. */
void mf_srv_put_number(mf_srv_bytes *b, double value);
/* A value as JSON. False, and nothing is put: there is none, or no memory. */
bool mf_srv_put_value(mf_srv_bytes *b, const struct yyjson_val *value);
/* JSON's blanks. mf_srv_trim: text without those around it, *n_bytes of it then. */
bool mf_srv_is_blank(char c);
const char *mf_srv_trim(const char *text, size_t *n_bytes);
/* Drops the first n_bytes. */
void mf_srv_drop(mf_srv_bytes *b, size_t n_bytes);
void mf_srv_bytes_free(mf_srv_bytes *b);

/* Length of the UTF-8 character that text[n_bytes] begins with; 0: it begins with none. */
size_t mf_srv_utf8_length(const char *text, size_t n_bytes);

#endif

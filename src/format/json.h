/* SPDX-License-Identifier: MIT */
/*
 * JSON files: reads one whole with a size limit, parses it with yyjson through the caller's
 * allocator, and fetches typed values with errors that name the file and the field. The only way
 * that JSON enters the library.
 */
#ifndef MF_FORMAT_JSON_H
#define MF_FORMAT_JSON_H

#include "base/alloc.h"

#include "../../third_party/yyjson/yyjson_prefix.h"

#include "../../third_party/yyjson/yyjson.h"

typedef struct mf_json {
    mf_allocator allocator;
    char *path; /* for messages */
    size_t path_bytes;
    yyjson_doc *doc;
    yyjson_val *root;
} mf_json;

/* Parses text[n_bytes] (copied by the parser) as a JSON document called `path` in messages. Errors:
 * MF_ERR_FORMAT with the byte position, MF_ERR_NO_MEMORY. */
mf_status mf_json_parse(const mf_allocator *a, const char *path, const char *text, size_t n_bytes,
                        mf_json *out, mf_error *error);
/* The same, with numbers that neither 64 bits nor floating point hold as yyjson's raw ones. */
mf_status mf_json_parse_exact(const mf_allocator *a, const char *path, const char *text,
                              size_t n_bytes, mf_json *out, mf_error *error);
/* The same, with all numbers as yyjson's raw ones: the text that they were. */
mf_status mf_json_parse_raw(const mf_allocator *a, const char *path, const char *text,
                            size_t n_bytes, mf_json *out, mf_error *error);
/* Reads and parses a file of at most max_bytes. Errors: also MF_ERR_NOT_FOUND, MF_ERR_IO. */
mf_status mf_json_read(const mf_allocator *a, const char *path, size_t max_bytes, mf_json *out,
                       mf_error *error);
/* Refuses a name that occurs twice in one object: yyjson would find the first and never the other.
 */
mf_status mf_json_check_names(const mf_json *json, mf_error *error);
/* Takes a zeroed one. */
void mf_json_free(mf_json *json);

/* What one of yyjson's raw numbers comes to, whatever the process's locale writes for a point; too
 * large ones are infinite, and what is no raw number is NAN. */
double mf_json_raw_number(yyjson_val *value);

/* The allocator as yyjson takes one, which borrows it. */
yyjson_alc mf_json_allocator(mf_allocator *a);

/* Reads a whole regular file of at most max_bytes; *text is NUL-terminated, n_bytes + 1 allocated.
 */
mf_status mf_file_read(const mf_allocator *a, const char *path, size_t max_bytes, char **text,
                       size_t *n_bytes, mf_error *error);

/* dir + "/" + name into path[capacity]; MF_ERR_ARGUMENT if it does not fit. */
mf_status mf_path_join(char *path, size_t capacity, const char *dir, const char *name,
                       mf_error *error);
/* A name below a directory: whatever links lead to, it says so without "." and "..", and is not
 * absolute. */
bool mf_name_is_below(const char *name);
/* True if a regular file exists there. */
int mf_file_exists(const char *path);

#endif

/* SPDX-License-Identifier: MIT */
/* JSON files through yyjson. */
#include "format/json.h"

#include "base/files.h"
#include "format/checkpoint_mistakes.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void *block_alloc(void *ctx, size_t n_bytes)
{
    return mf_block_alloc(ctx, n_bytes);
}

static void *block_realloc(void *ctx, void *ptr, size_t old_bytes, size_t n_bytes)
{
    (void)old_bytes;
    return mf_block_realloc(ctx, ptr, n_bytes);
}

static void block_free(void *ctx, void *ptr)
{
    mf_block_free(ctx, ptr);
}

yyjson_alc mf_json_allocator(mf_allocator *a)
{
    return (yyjson_alc){block_alloc, block_realloc, block_free, a};
}

double mf_json_raw_number(yyjson_val *value)
{
    yyjson_val number = {0};
    const char *text = yyjson_get_raw(value);
    if (yyjson_read_number(text, &number, YYJSON_READ_ALLOW_INF_AND_NAN, NULL, NULL) == NULL)
        return NAN;
    return yyjson_get_num(&number);
}

static mf_status parse_failed(const yyjson_read_err *e, const char *path, mf_error *error)
{
    if (e->code == YYJSON_READ_ERROR_MEMORY_ALLOCATION)
        return mf_fail(error, MF_ERR_NO_MEMORY, "%s: out of memory while parsing JSON", path);
    return mf_fail_at(error, MF_ERR_FORMAT, e->pos, "%s: not valid JSON at byte %zu: %s", path,
                      e->pos, e->msg);
}

static mf_status parse(const mf_allocator *a, const char *path, const char *text, size_t n_bytes,
                       yyjson_read_flag flags, mf_json *out, mf_error *error)
{
    mf_json json = {.allocator = *a, .path_bytes = strlen(path) + 1};
    json.path = mf_alloc(a, json.path_bytes);
    if (json.path == NULL)
        return mf_fail_memory(error, json.path_bytes, path);
    memcpy(json.path, path, json.path_bytes);

    /* yyjson keeps no reference to the allocator beyond the document, which copies it. */
    const yyjson_alc alc = mf_json_allocator(&json.allocator);
    yyjson_read_err e;
    /* The text is not modified without YYJSON_READ_INSITU, whatever the parameter's type says. */
    json.doc = yyjson_read_opts((char *)(uintptr_t)text, n_bytes, flags, &alc, &e);
    if (json.doc == NULL) {
        mf_status status = parse_failed(&e, path, error);
        mf_free(a, json.path, json.path_bytes);
        return status;
    }
    json.root = yyjson_doc_get_root(json.doc);
    *out = json;
    out->doc->alc.ctx =
        &out->allocator; /* the document frees itself through the copy that lives on */
    return MF_OK;
}

mf_status mf_json_parse(const mf_allocator *a, const char *path, const char *text, size_t n_bytes,
                        mf_json *out, mf_error *error)
{
    return parse(a, path, text, n_bytes, YYJSON_READ_NOFLAG, out, error);
}

mf_status mf_json_parse_exact(const mf_allocator *a, const char *path, const char *text,
                              size_t n_bytes, mf_json *out, mf_error *error)
{
    return parse(a, path, text, n_bytes, YYJSON_READ_BIGNUM_AS_RAW, out, error);
}

mf_status mf_json_parse_raw(const mf_allocator *a, const char *path, const char *text,
                            size_t n_bytes, mf_json *out, mf_error *error)
{
    return parse(a, path, text, n_bytes, YYJSON_READ_NUMBER_AS_RAW, out, error);
}

mf_status mf_json_read(const mf_allocator *a, const char *path, size_t max_bytes, mf_json *out,
                       mf_error *error)
{
    char *text = NULL;
    size_t n_bytes = 0;
    MF_TRY(mf_file_read(a, path, max_bytes, &text, &n_bytes, error));
    mf_status status = mf_json_parse(a, path, text, n_bytes, out, error);
    mf_free(a, text, n_bytes + 1);
    return status;
}

void mf_json_free(mf_json *json)
{
    if (json->doc != NULL) {
        json->doc->alc.ctx = &json->allocator; /* the struct may have been moved since */
        yyjson_doc_free(json->doc);
    }
    if (json->path != NULL)
        mf_free(&json->allocator, json->path, json->path_bytes);
    *json = (mf_json){0};
}

static int by_text(const void *a, const void *b)
{
    return strcmp(yyjson_get_str(*(yyjson_val *const *)a), yyjson_get_str(*(yyjson_val *const *)b));
}

/* Sorts the names of one object into keys, which has room for them. */
static mf_status check_object(const mf_json *json, yyjson_val *object, yyjson_val **keys,
                              mf_error *error)
{
    size_t i, n, n_keys = 0;
    yyjson_val *key, *value;
    yyjson_obj_foreach(object, i, n, key, value)
    {
        keys[n_keys++] = key;
    }
    qsort(keys, n_keys, sizeof *keys, by_text);
    for (i = 1; i < n_keys; i++) {
        if (yyjson_equals(keys[i - 1], keys[i]))
            return mf_fail(error, MF_ERR_FORMAT, "%s: field %s is given twice", json->path,
                           yyjson_get_str(keys[i]));
    }
    return MF_OK;
}

mf_status mf_json_check_names(const mf_json *json, mf_error *error)
{
    size_t n_values = yyjson_doc_get_val_count(json->doc), n_largest = 1;
    mf_status status = MF_OK;
    /* A parsed document's values lie one after another: no recursion, however deep it is. */
    for (size_t i = 0; i < n_values; i++) {
        size_t n = yyjson_obj_size(json->doc->root + i);
        n_largest = n > n_largest ? n : n_largest;
    }
    yyjson_val **keys = mf_alloc(&json->allocator, n_largest * sizeof *keys);
    if (keys == NULL)
        return mf_fail_memory(error, n_largest * sizeof *keys, json->path);
    for (size_t i = 0; i < n_values && status == MF_OK; i++) {
        if (yyjson_obj_size(json->doc->root + i) > 1)
            status = check_object(json, json->doc->root + i, keys, error);
    }
    mf_free(&json->allocator, keys, n_largest * sizeof *keys);
    return status;
}

static mf_status read_all(int fd, const char *path, char *text, size_t n_bytes, mf_error *error)
{
    const size_t n = mf_read_whole(fd, text, n_bytes, 0);
    if (n == n_bytes)
        return MF_OK;
    return errno != 0
               ? mf_fail_os(error, MF_ERR_IO, errno, "%s: read failed at byte %zu", path, n)
               : mf_fail_at(error, MF_ERR_FORMAT, n, "%s: file shrank while being read", path);
}

static mf_status measure(int fd, const char *path, size_t max_bytes, size_t *out, mf_error *error)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s: cannot stat", path);
    if (!S_ISREG(st.st_mode))
        return mf_fail(error, MF_ERR_FORMAT, "%s: not a regular file", path);
    if ((uint64_t)st.st_size > max_bytes)
        return mf_fail(error, MF_ERR_FORMAT, "%s: %lld bytes, expected at most %zu", path,
                       (long long)st.st_size, max_bytes);
    *out = (size_t)st.st_size;
    return MF_OK;
}

static mf_status read_text(const mf_allocator *a, int fd, const char *path, size_t n, char **text,
                           mf_error *error)
{
    char *buffer = mf_alloc(a, n + 1);
    if (buffer == NULL)
        return mf_fail_memory(error, n + 1, path);
    mf_status status = read_all(fd, path, buffer, n, error);
    buffer[n] = '\0';
    if (status == MF_OK && strncmp(buffer, MF_LFS_POINTER, strlen(MF_LFS_POINTER)) == 0)
        status = mf_fail_lfs_pointer(path, error);
    if (status != MF_OK) {
        mf_free(a, buffer, n + 1);
        return status;
    }
    *text = buffer;
    return MF_OK;
}

mf_status mf_file_read(const mf_allocator *a, const char *path, size_t max_bytes, char **text,
                       size_t *n_bytes, mf_error *error)
{
    /* Without O_NONBLOCK a FIFO would be waited for before it can be refused. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return mf_fail_os(error, errno == ENOENT ? MF_ERR_NOT_FOUND : MF_ERR_IO, errno,
                          "%s: cannot open", path);
    size_t n = 0;
    mf_status status = measure(fd, path, max_bytes, &n, error);
    if (status == MF_OK)
        status = read_text(a, fd, path, n, text, error);
    if (status == MF_OK)
        *n_bytes = n;
    close(fd);
    return status;
}

mf_status mf_path_join(char *path, size_t capacity, const char *dir, const char *name,
                       mf_error *error)
{
    int n = snprintf(path, capacity, "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= capacity)
        return mf_fail(error, MF_ERR_ARGUMENT, "path too long: %.64s.../%s", dir, name);
    return MF_OK;
}

int mf_file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool mf_name_is_below(const char *name)
{
    for (const char *part = name;; part = strchr(part, '/') + 1) {
        size_t n = strcspn(part, "/");
        if (n == 0 || (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        if (part[n] == '\0')
            return true;
    }
}

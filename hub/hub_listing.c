/* SPDX-License-Identifier: MIT */
/* The hub's answer to GET /api/models/ORG/NAME/revision/REVISION?blobs=true. */
#include "hub_fail.h"
#include "hub_pull.h"

#include "yyjson_prefix.h"

#include "yyjson.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_FILES = 20000 };
#define MAX_BYTES ((uint64_t)1 << 50)

void mf_hub_listing_free(mf_hub_listing *listing)
{
    free(listing->files);
    free(listing->strings);
    *listing = (mf_hub_listing){0};
}

mf_hub_file *mf_hub_listing_find(const mf_hub_listing *listing, const char *path)
{
    for (size_t i = 0; i < listing->n_files; i++)
        if (strcmp(listing->files[i].path, path) == 0)
            return &listing->files[i];
    return NULL;
}

/* A string without NUL within; NULL: none. */
static const char *text_of(yyjson_val *object, const char *name)
{
    yyjson_val *value = yyjson_obj_get(object, name);
    const char *text = yyjson_get_str(value);
    return text && strlen(text) == yyjson_get_len(value) ? text : NULL;
}

static bool is_hash(const char *text, size_t n_digits)
{
    return text && strlen(text) == n_digits && strspn(text, "0123456789abcdef") == n_digits;
}

static bool read_file(yyjson_val *entry, size_t index, mf_hub_file *out, mf_error *error)
{
    const char *path = text_of(entry, "rfilename");
    yyjson_val *lfs = yyjson_obj_get(entry, "lfs");
    const bool is_lfs = yyjson_is_obj(lfs);
    const char *hash = text_of(is_lfs ? lfs : entry, is_lfs ? "sha256" : "blobId");
    yyjson_val *size = yyjson_obj_get(is_lfs ? lfs : entry, "size");
    if (!path || !mf_hub_is_safe_path(path))
        return mf_hub_fail(error, MF_ERR_FORMAT,
                           "the hub's listing: siblings[%zu].rfilename: expected a relative path "
                           "without '..' and control characters",
                           index);
    if (!is_hash(hash, is_lfs ? 64 : 40))
        return mf_hub_fail(error, MF_ERR_FORMAT, "the hub's listing: %s: expected %s", path,
                           is_lfs ? "lfs.sha256, of 64 digits" : "blobId, of 40 digits");
    if (!yyjson_is_uint(size) || yyjson_get_uint(size) > MAX_BYTES)
        return mf_hub_fail(error, MF_ERR_FORMAT,
                           "the hub's listing: %s: size: expected a number of bytes", path);
    *out = (mf_hub_file){.path = path, .n_bytes = yyjson_get_uint(size)};
    memcpy(out->blob, hash, strlen(hash) + 1);
    return true;
}

static bool read_files(yyjson_val *siblings, mf_hub_listing *out, mf_error *error)
{
    yyjson_val *entry;
    size_t i, n;
    yyjson_arr_foreach(siblings, i, n, entry)
    {
        if (!read_file(entry, i, &out->files[i], error))
            return false;
    }
    out->n_files = n;
    return true;
}

/* The document goes away: the paths are kept. */
static bool keep_paths(mf_hub_listing *out, mf_error *error)
{
    size_t n_bytes = 1;
    for (size_t i = 0; i < out->n_files; i++)
        n_bytes += strlen(out->files[i].path) + 1;
    out->strings = malloc(n_bytes);
    if (!out->strings)
        return mf_hub_fail(error, MF_ERR_NO_MEMORY, "no memory for the hub's listing");
    char *p = out->strings;
    for (size_t i = 0; i < out->n_files; i++) {
        const size_t n = strlen(out->files[i].path) + 1;
        memcpy(p, out->files[i].path, n);
        out->files[i].path = p;
        p += n;
    }
    return true;
}

static bool read_listing(yyjson_val *root, mf_hub_listing *out, mf_error *error)
{
    const char *commit = text_of(root, "sha");
    yyjson_val *siblings = yyjson_obj_get(root, "siblings");
    const size_t n = yyjson_arr_size(siblings);
    if (!commit || !mf_hub_is_commit(commit))
        return mf_hub_fail(error, MF_ERR_FORMAT,
                           "the hub's listing: sha: expected a commit of 40 digits");
    if (!yyjson_is_arr(siblings) || n > MAX_FILES)
        return mf_hub_fail(error, MF_ERR_FORMAT,
                           "the hub's listing: siblings: expected at most %d files", MAX_FILES);
    memcpy(out->commit, commit, sizeof out->commit);
    out->files = calloc(n ? n : 1, sizeof *out->files);
    if (!out->files)
        return mf_hub_fail(error, MF_ERR_NO_MEMORY, "no memory for the hub's listing");
    return read_files(siblings, out, error) && keep_paths(out, error);
}

bool mf_hub_listing_parse(const char *json, size_t n_bytes, mf_hub_listing *out, mf_error *error)
{
    yyjson_doc *doc = yyjson_read(json, n_bytes, YYJSON_READ_NOFLAG);
    mf_hub_listing listing = {0};
    if (!yyjson_is_obj(yyjson_doc_get_root(doc))) {
        yyjson_doc_free(doc);
        return mf_hub_fail(error, MF_ERR_FORMAT, "the hub's listing: expected a JSON object");
    }
    const bool read = read_listing(yyjson_doc_get_root(doc), &listing, error);
    yyjson_doc_free(doc);
    if (read)
        *out = listing;
    else
        mf_hub_listing_free(&listing);
    return read;
}

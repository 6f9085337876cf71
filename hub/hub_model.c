/* SPDX-License-Identifier: MIT */
/* One model of the hub: listed, chosen, counted, fetched. */
#include "hub_model.h"
#include "hub_ahead.h"
#include "hub_download.h"
#include "hub_fail.h"
#include "hub_hash.h"
#include "hub_partial.h"
#include "hub_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_LISTING_BYTES ((size_t)64 << 20)
#define MAX_INDEX_BYTES ((size_t)64 << 20)
/* Left free on the drive. */
#define MARGIN_BYTES ((uint64_t)16 << 20)

const mf_hub_listing *mf_hub_model_listing(const mf_hub_model *model)
{
    return &model->listing;
}

/* CACHE/models--ORG--NAME/blobs/BLOB */
bool mf_hub_blob_path(const mf_hub_model *m, const mf_hub_file *file, char path[MF_HUB_PATH_CHARS])
{
    char below[80];
    snprintf(below, sizeof below, "blobs/%s", file->blob);
    return mf_hub_folder(&m->places, &m->name, below, path);
}

static void mark_held(mf_hub_model *m)
{
    char path[MF_HUB_PATH_CHARS];
    struct stat st;
    for (size_t i = 0; i < m->listing.n_files; i++) {
        mf_hub_file *file = &m->listing.files[i];
        file->is_held = mf_hub_blob_path(m, file, path) && stat(path, &st) == 0 &&
                        S_ISREG(st.st_mode) && (uint64_t)st.st_size == file->n_bytes;
    }
}

static bool list_files(mf_hub_model *m, mf_error *error)
{
    mf_hub_text text = {
        .end = MF_HUB_ALL, .n_file_bytes = MF_HUB_ALL, .n_max_bytes = MAX_LISTING_BYTES};
    char prefix[sizeof m->name.repo + 32], *revision = curl_easy_escape(NULL, m->name.revision, 0);
    snprintf(prefix, sizeof prefix, "/api/models/%s/revision", m->name.repo);
    bool good = revision && mf_hub_url(m->client, prefix, "", text.url);
    const size_t n = strlen(text.url);
    good = good && snprintf(text.url + n, sizeof text.url - n, "/%s?blobs=true", revision) <
                       (int)(sizeof text.url - n);
    curl_free(revision);
    if (!good)
        return mf_hub_fail(error, MF_ERR_ARGUMENT, "%s: the URL is too long", m->name.repo);
    good = mf_hub_get(m->client, &text, 1, error) &&
           mf_hub_listing_parse(text.data, text.n_bytes, &m->listing, error);
    free(text.data);
    if (good)
        snprintf(m->prefix, sizeof m->prefix, "/%s/resolve/%s", m->name.repo, m->listing.commit);
    return good;
}

static bool read_blob(const char *path, size_t n_bytes, char **data)
{
    FILE *in = fopen(path, "re");
    char *text = in ? malloc(n_bytes + 1) : NULL;
    const bool good = text && fread(text, 1, n_bytes, in) == n_bytes;
    if (in)
        (void)fclose(in);
    if (!good) {
        free(text);
        return false;
    }
    text[n_bytes] = '\0';
    *data = text;
    return true;
}

bool mf_hub_read_file(mf_hub_model *m, const mf_hub_file *file, size_t n_max_bytes, char **data,
                      mf_error *error)
{
    char path[MF_HUB_PATH_CHARS];
    mf_hub_text text = {
        .end = MF_HUB_ALL, .n_file_bytes = file->n_bytes, .n_max_bytes = n_max_bytes};
    if (file->n_bytes > n_max_bytes)
        return mf_hub_fail(error, MF_ERR_FORMAT, "%s: longer than %zu bytes", file->path,
                           n_max_bytes);
    if (file->is_held && mf_hub_blob_path(m, file, path) &&
        read_blob(path, (size_t)file->n_bytes, data))
        return true;
    if (!mf_hub_url(m->client, m->prefix, file->path, text.url))
        return mf_hub_fail(error, MF_ERR_ARGUMENT, "%s: its URL is too long", file->path);
    if (!mf_hub_get(m->client, &text, 1, error)) {
        free(text.data);
        return false;
    }
    if (mf_hub_hash_fits(file, text.data, text.n_bytes)) {
        *data = text.data;
        return true;
    }
    free(text.data);
    return mf_hub_fail(error, MF_ERR_FORMAT, "%s: its content is not what the hub listed",
                       file->path);
}

static bool choose(mf_hub_model *m, mf_error *error)
{
    char *text = NULL;
    const mf_hub_file *index = mf_hub_index_of(&m->listing, &m->name);
    if (index && !mf_hub_read_file(m, index, MAX_INDEX_BYTES, &text, error))
        return false;
    const bool good =
        mf_hub_choose(&m->listing, &m->name, text, index ? (size_t)index->n_bytes : 0, error);
    free(text);
    return good;
}

/* No sum of what is wanted overflows. */
static bool check_sum(const mf_hub_model *m, mf_error *error)
{
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < m->listing.n_files; i++) {
        if (m->listing.files[i].is_wanted)
            n_bytes += m->listing.files[i].n_bytes;
        if (n_bytes > (uint64_t)1 << 55)
            return mf_hub_fail(error, MF_ERR_FORMAT, "%s: larger than any model", m->name.repo);
    }
    return true;
}

bool mf_hub_open(const mf_hub_places *places, const mf_hub_name *name,
                 const mf_hub_options *options, mf_hub_model **out, mf_error *error)
{
    if (places->is_offline)
        return mf_hub_fail(error, MF_ERR_STATE, "HF_HUB_OFFLINE is set: nothing is fetched");
    mf_hub_model *m = calloc(1, sizeof *m);
    if (!m)
        return mf_hub_fail(error, MF_ERR_NO_MEMORY, "no memory for %s", name->repo);
    m->places = *places;
    m->name = *name;
    m->options = *options;
    bool good = mf_hub_client_open(places, options, &m->client, error) && list_files(m, error);
    if (good)
        mark_held(m);
    if (good && choose(m, error) && check_sum(m, error)) {
        *out = m;
        return true;
    }
    mf_hub_close(&m);
    return false;
}

void mf_hub_close(mf_hub_model **model)
{
    mf_hub_model *m = *model;
    *model = NULL;
    if (!m)
        return;
    mf_hub_client_close(&m->client);
    mf_hub_listing_free(&m->listing);
    free(m);
}

void mf_hub_model_cost(const mf_hub_model *m, mf_hub_cost *out)
{
    char blobs[MF_HUB_PATH_CHARS];
    *out = (mf_hub_cost){0};
    if (!mf_hub_folder(&m->places, &m->name, "blobs", blobs))
        return;
    for (size_t i = 0; i < m->listing.n_files; i++) {
        const mf_hub_file *file = &m->listing.files[i];
        if (!file->is_wanted)
            continue;
        out->n_files++;
        out->n_bytes += file->n_bytes;
        if (!file->is_held)
            out->n_missing_bytes += file->n_bytes - mf_hub_partial_bytes(blobs, file);
    }
    out->n_free_bytes = mf_hub_free_bytes(blobs);
}

/* Space that is still to be taken: that of files which have been begun is theirs already. */
static bool check_space(const mf_hub_model *m, const mf_hub_store *store, mf_error *error)
{
    char path[MF_HUB_PATH_CHARS];
    struct stat st;
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < m->listing.n_files; i++) {
        const mf_hub_file *file = &m->listing.files[i];
        if (!file->is_wanted || file->is_held)
            continue;
        const int n = snprintf(path, sizeof path, "%s/%s.moeflux-part", store->blobs, file->blob);
        const uint64_t n_taken = n > 0 && (size_t)n < sizeof path && stat(path, &st) == 0
                                     ? (uint64_t)st.st_blocks * 512
                                     : 0;
        n_bytes += n_taken < file->n_bytes ? file->n_bytes - n_taken : 0;
    }
    const uint64_t n_free = mf_hub_free_bytes(store->blobs);
    if (n_bytes == 0 || n_free == 0 || n_bytes + MARGIN_BYTES <= n_free)
        return true;
    return mf_hub_fail(error, MF_ERR_IO,
                       "%.600s: the drive has %.2f GiB free, and %.2f GiB are wanted "
                       "(HF_HUB_CACHE names another place)",
                       store->folder, (double)n_free / (1 << 30),
                       (double)(n_bytes + MARGIN_BYTES) / (1 << 30));
}

/* Each content once; the smallest first, so that what is wrong with them shows early. */
static int by_size(const void *a, const void *b)
{
    const mf_hub_file *x = *(mf_hub_file *const *)a, *y = *(mf_hub_file *const *)b;
    const bool x_small = x->n_bytes < ((uint64_t)64 << 20),
               y_small = y->n_bytes < ((uint64_t)64 << 20);
    if (x_small != y_small)
        return x_small ? -1 : 1;
    const int order = strcmp(x->path, y->path);
    return order;
}

static size_t list_missing(mf_hub_model *m, mf_hub_file **files)
{
    size_t n = 0;
    for (size_t i = 0; i < m->listing.n_files; i++) {
        mf_hub_file *file = &m->listing.files[i];
        bool is_listed = !file->is_wanted || file->is_held;
        for (size_t k = 0; k < n && !is_listed; k++)
            is_listed = strcmp(files[k]->blob, file->blob) == 0;
        if (!is_listed)
            files[n++] = file;
    }
    qsort(files, n, sizeof(mf_hub_file *), by_size);
    return n;
}

bool mf_hub_fetch(mf_hub_model *m, mf_error *error)
{
    mf_hub_store store;
    mf_hub_file **files = calloc(m->listing.n_files + 1, sizeof(mf_hub_file *));
    if (!files)
        return mf_hub_fail(error, MF_ERR_NO_MEMORY, "no memory for %s", m->name.repo);
    bool good = mf_hub_store_open(&m->places, &m->name, &store, error);
    if (good) {
        mf_hub_ahead_clear(&m->places, &m->name); /* nobody else who fetches has it */
        mark_held(m); /* another may have fetched it before the lock was ours */
        const size_t n = list_missing(m, files);
        good = check_space(m, &store, error) &&
               mf_hub_download(m->client, &m->options, m->prefix, store.blobs, files, n, error) &&
               mf_hub_store_name(&store, &m->listing, m->name.revision, error);
        mf_hub_store_close(&store);
    }
    free(files);
    return good;
}

/* Hashes a blob; *is_right. */
static bool check_blob(const mf_hub_file *file, const char *path, bool *is_right, mf_error *error)
{
    enum { PIECE = 1 << 20 };
    char digits[65];
    ssize_t n = 0;
    char *buffer = malloc(PIECE);
    mf_hub_hash *hash = mf_hub_hash_begin(file);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool good = buffer && hash && fd >= 0;
    while (good && (n = read(fd, buffer, PIECE)) > 0)
        good = mf_hub_hash_take(hash, buffer, (size_t)n);
    good = (good && n == 0) || mf_hub_fail_os(error, errno, "%.900s: cannot read", path);
    if (good)
        *is_right = mf_hub_hash_end(hash, file, digits);
    else
        mf_hub_hash_free(hash);
    if (fd >= 0)
        close(fd);
    free(buffer);
    return good;
}

bool mf_hub_check(mf_hub_model *m, size_t *n_bad, mf_error *error)
{
    char path[MF_HUB_PATH_CHARS];
    *n_bad = 0;
    for (size_t i = 0; i < m->listing.n_files; i++) {
        mf_hub_file *file = &m->listing.files[i];
        bool is_right = false;
        if (!file->is_wanted || !file->is_held || !mf_hub_blob_path(m, file, path))
            continue;
        if (!check_blob(file, path, &is_right, error))
            return false;
        if (is_right)
            continue;
        if (unlink(path) != 0)
            return mf_hub_fail_os(error, errno, "%.900s: cannot remove", path);
        for (size_t k = 0; k < m->listing.n_files; k++) /* other names of the same content */
            if (strcmp(m->listing.files[k].blob, file->blob) == 0)
                m->listing.files[k].is_held = false;
        ++*n_bad;
    }
    return true;
}

/* SPDX-License-Identifier: MIT */
/* Files of which only the descriptors are there: the beginning, and the size. */
#include "hub_fail.h"
#include "hub_model.h"
#include "hub_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AT_ONCE = 64 };
/* Most shards' headers are shorter; the rest of a longer one is asked for. */
#define FIRST_BYTES ((uint64_t)256 << 10)
#define EXPERT_BYTES ((uint64_t)64 << 10)

bool mf_hub_has_expert_head(const mf_hub_file *file)
{
    const bool is_in_folder =
        strncmp(file->path, "experts/", 8) == 0 || strncmp(file->path, "drive_", 6) == 0;
    return is_in_folder && mf_hub_ends_with(file->path, ".bin");
}

uint64_t mf_hub_expert_head_bytes(const mf_hub_file *file,
                                  const unsigned char start[MF_HUB_EXPERT_START])
{
    const uint64_t n = mf_hub_length(start + 40);
    return n < file->n_bytes ? n : file->n_bytes;
}

/* Weights are sketched, everything else is small and comes whole. */
static uint64_t bytes_at_first(const mf_hub_file *file)
{
    uint64_t n = file->n_bytes;
    if (mf_hub_ends_with(file->path, ".safetensors"))
        n = FIRST_BYTES;
    else if (mf_hub_is_gguf(file->path))
        n = MF_HUB_GGUF_BYTES;
    else if (mf_hub_has_expert_head(file))
        n = EXPERT_BYTES;
    else if (mf_hub_ends_with(file->path, ".bin"))
        n = 0;
    return n < file->n_bytes ? n : file->n_bytes;
}

/* Of a file that begins like this; a safetensors file's: 8 bytes of length, then as many of header.
 * How long a GGUF file's is shows at its end: as much again, until that is there. */
static uint64_t header_bytes(const mf_hub_file *file, const mf_hub_text *text)
{
    const unsigned char *start = (const unsigned char *)text->data;
    if (mf_hub_has_expert_head(file) && text->n_bytes >= MF_HUB_EXPERT_START)
        return mf_hub_expert_head_bytes(file, start);
    if (mf_hub_is_gguf(file->path) && mf_hub_gguf_goes_on(start, text->n_bytes))
        return 2 * text->n_bytes < file->n_bytes ? 2 * text->n_bytes : file->n_bytes;
    if (!mf_hub_ends_with(file->path, ".safetensors") || text->n_bytes < 8)
        return text->n_bytes;
    const uint64_t n = mf_hub_length(start);
    return n < file->n_bytes ? n + 8 : text->n_bytes;
}

static bool write_at(const char *path, const mf_hub_file *file, const char *data, uint64_t at,
                     size_t n_bytes, mf_error *error)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return mf_hub_fail_os(error, errno, "%.900s: cannot open", path);
    bool good = ftruncate(fd, (off_t)file->n_bytes) == 0;
    while (good && n_bytes > 0) {
        const ssize_t n = pwrite(fd, data, n_bytes, (off_t)at);
        good = n > 0;
        data += good ? n : 0;
        at += good ? (uint64_t)n : 0;
        n_bytes -= good ? (size_t)n : 0;
    }
    const int why = errno;
    if (close(fd) != 0 || !good)
        return mf_hub_fail_os(error, why, "%.900s: cannot write", path);
    return true;
}

static bool sketch_path(const char *dir, const mf_hub_file *file, char path[MF_HUB_PATH_CHARS],
                        mf_error *error)
{
    const int n = snprintf(path, MF_HUB_PATH_CHARS, "%s/%s", dir, file->path);
    return (n > 0 && n < MF_HUB_PATH_CHARS) ||
           mf_hub_fail(error, MF_ERR_ARGUMENT, "%.600s: the path is too long", dir);
}

/* Takes a held file from the cache, which may be named by a path from here, instead of asking for
 * it. */
static bool from_cache(const mf_hub_model *m, const mf_hub_file *file, const char *path)
{
    char blob[MF_HUB_PATH_CHARS];
    if (!file->is_held || !mf_hub_blob_path(m, file, blob))
        return false;
    char *target = realpath(blob, NULL);
    const bool good = target && symlink(target, path) == 0;
    free(target);
    return good;
}

static bool append(mf_hub_text *text, const mf_hub_text *more, mf_error *error)
{
    char *longer = realloc(text->data, text->n_bytes + more->n_bytes + 1);
    if (!longer)
        return mf_hub_fail(error, MF_ERR_NO_MEMORY, "no memory for headers");
    memcpy(longer + text->n_bytes, more->data, more->n_bytes);
    text->data = longer;
    text->n_bytes += more->n_bytes;
    text->data[text->n_bytes] = '\0';
    return true;
}

/* The rest of a header, behind what has come of it. */
static bool sketch_rest(mf_hub_model *m, const char *path, const mf_hub_file *file,
                        mf_hub_text *text, mf_error *error)
{
    uint64_t n_header = text->data ? header_bytes(file, text) : 0;
    bool good = true;
    while (good && n_header > text->n_bytes) {
        mf_hub_text more = {.begin = text->n_bytes, .end = n_header, .n_file_bytes = file->n_bytes};
        if (n_header > MF_HUB_MAX_HEADER_BYTES)
            return mf_hub_fail(error, MF_ERR_UNSUPPORTED, "%s: its header is longer than %llu MiB",
                               file->path, (unsigned long long)(MF_HUB_MAX_HEADER_BYTES >> 20));
        memcpy(more.url, text->url, sizeof more.url);
        more.n_max_bytes = (size_t)(more.end - more.begin);
        good = mf_hub_get(m->client, &more, 1, error) &&
               write_at(path, file, more.data, more.begin, more.n_bytes, error) &&
               append(text, &more, error);
        good = good && (more.n_bytes != 0 ||
                        mf_hub_fail(error, MF_ERR_IO, "%s: cannot be read", file->path));
        free(more.data);
        n_header = header_bytes(file, text);
    }
    return good;
}

/* The beginnings of up to AT_ONCE files, and their rests where they are longer. */
static bool sketch_some(mf_hub_model *m, const char *dir, mf_hub_file *const *files, size_t n,
                        mf_error *error)
{
    char path[MF_HUB_PATH_CHARS];
    mf_hub_text *texts = calloc(n, sizeof *texts);
    bool good = true;
    if (!texts)
        return mf_hub_fail(error, MF_ERR_NO_MEMORY, "no memory for headers");
    for (size_t i = 0; i < n && good; i++) {
        texts[i].end = bytes_at_first(files[i]);
        texts[i].n_file_bytes = files[i]->n_bytes;
        texts[i].n_max_bytes = (size_t)texts[i].end;
        texts[i].is_done = texts[i].is_begun = texts[i].end == 0;
        good = mf_hub_url(m->client, m->prefix, files[i]->path, texts[i].url) ||
               mf_hub_fail(error, MF_ERR_ARGUMENT, "%s: its URL is too long", files[i]->path);
    }
    good = good && mf_hub_get(m->client, texts, n, error);
    for (size_t i = 0; i < n && good; i++)
        good = sketch_path(dir, files[i], path, error) && mf_hub_make_folders(path, error) &&
               write_at(path, files[i], texts[i].data, 0, texts[i].n_bytes, error) &&
               sketch_rest(m, path, files[i], &texts[i], error);
    for (size_t i = 0; i < n; i++)
        free(texts[i].data);
    free(texts);
    return good;
}

bool mf_hub_name_model(const mf_hub_model *m, const char *dir, char path[MF_HUB_PATH_CHARS],
                       mf_error *error)
{
    uint32_t part;
    snprintf(path, MF_HUB_PATH_CHARS, "%s", dir);
    if (m->name.choice[0] == '\0' && mf_hub_listing_find(&m->listing, "config.json") &&
        mf_hub_listing_find(&m->listing, "config.json")->is_wanted)
        return true;
    for (size_t i = 0; i < m->listing.n_files; i++) {
        const mf_hub_file *file = &m->listing.files[i];
        mf_hub_parts_of(file->path, &part);
        if (file->is_wanted && mf_hub_is_gguf(file->path) && part == 1)
            return sketch_path(dir, file, path, error);
    }
    return true;
}

bool mf_hub_sketch(mf_hub_model *m, const char *dir, char path[MF_HUB_PATH_CHARS], mf_error *error)
{
    mf_hub_file *files[AT_ONCE];
    size_t n = 0;
    for (size_t i = 0; i < m->listing.n_files; i++) {
        mf_hub_file *file = &m->listing.files[i];
        if (!file->is_wanted)
            continue;
        if (!sketch_path(dir, file, path, error) || !mf_hub_make_folders(path, error))
            return false;
        if (!from_cache(m, file, path))
            files[n++] = file;
        if (n == AT_ONCE) {
            if (!sketch_some(m, dir, files, n, error))
                return false;
            n = 0;
        }
    }
    return (n == 0 || sketch_some(m, dir, files, n, error)) &&
           mf_hub_name_model(m, dir, path, error);
}

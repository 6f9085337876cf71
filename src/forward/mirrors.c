/* SPDX-License-Identifier: MIT */
#include "forward/mirrors.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_CHARS 4096

/* The file's name within the checkpoint; of a checkpoint that is one file, its own. */
static const char *name_within(const char *path, const char *checkpoint)
{
    const size_t n = strlen(checkpoint);
    const char *slash = strrchr(path, '/');
    if (strncmp(path, checkpoint, n) == 0 && path[n] == '/')
        return path + n + 1;
    if (n > 0 && checkpoint[n - 1] == '/' && strncmp(path, checkpoint, n) == 0)
        return path + n;
    return slash != NULL ? slash + 1 : path;
}

static mf_status add_one(mf_io *io, const mf_source *source, const char *mirror, uint32_t drive,
                         mf_error *error)
{
    char path[PATH_CHARS];
    struct stat st;
    uint32_t n_found = 0;
    for (uint32_t i = 0; i < mf_io_n_files(io); i++) {
        const char *name = name_within(mf_io_file_path(io, i), source->path);
        const int n = snprintf(path, sizeof path, "%s/%s", mirror, name);
        if (n < 0 || (size_t)n >= sizeof path)
            return mf_fail(error, MF_ERR_ARGUMENT, "%s: the path is too long", mirror);
        if (stat(path, &st) != 0 && (errno == ENOENT || errno == ENOTDIR))
            continue;
        MF_TRY(mf_io_add_copy(io, i, drive, path, error));
        n_found++;
    }
    return n_found > 0 ? MF_OK
                       : mf_fail(error, MF_ERR_NOT_FOUND, "%s: has no copy of a file of %s", mirror,
                                 source->path);
}

mf_status mf_mirrors_add(mf_io *io, const mf_source *source, const char *const *mirrors, uint32_t n,
                         mf_error *error)
{
    if (n > MF_IO_COPIES_MAX)
        return mf_fail(error, MF_ERR_ARGUMENT, "%u mirrors, expected at most %u", n,
                       MF_IO_COPIES_MAX);
    if (n > 0 && mirrors == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "%u mirrors, but no array", n);
    for (uint32_t i = 0; i < n; i++) {
        if (mirrors[i] == NULL)
            return mf_fail(error, MF_ERR_ARGUMENT, "mirror %u of %u is NULL", i, n);
        MF_TRY(add_one(io, source, mirrors[i], i, error));
    }
    return MF_OK;
}

/* SPDX-License-Identifier: MIT */
/* The cache's layout, as huggingface_hub has it, being written. */
#include "hub_store.h"
#include "hub_fail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static bool join(char path[MF_HUB_PATH_CHARS], const char *a, const char *b, mf_error *error)
{
    const int n = snprintf(path, MF_HUB_PATH_CHARS, "%s/%s", a, b);
    return (n > 0 && n < MF_HUB_PATH_CHARS) ||
           mf_hub_fail(error, MF_ERR_ARGUMENT, "%.600s/...: the path is too long", a);
}

bool mf_hub_make_folders(const char *path, mf_error *error)
{
    char part[MF_HUB_PATH_CHARS];
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return mf_hub_fail_os(error, errno, "%.900s: cannot make this folder", part);
    }
    return true;
}

uint64_t mf_hub_free_bytes(const char *path)
{
    char part[MF_HUB_PATH_CHARS];
    struct statvfs fs;
    snprintf(part, sizeof part, "%s", path);
    while (statvfs(part, &fs) != 0) {
        char *slash = strrchr(part, '/');
        if (errno == ENOENT && !slash) /* nothing of a path from here is there */
            return statvfs(".", &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : 0;
        if (errno != ENOENT)
            return 0;
        slash[slash == part] = '\0';
        if (slash == part && statvfs(part, &fs) != 0)
            return 0;
    }
    return (uint64_t)fs.f_bavail * fs.f_frsize;
}

/* One of us at a time, for the state of partial files is one. */
static bool lock(const mf_hub_places *places, mf_hub_store *store, mf_error *error)
{
    char path[MF_HUB_PATH_CHARS], below[256];
    snprintf(below, sizeof below, ".locks/%s/moeflux.lock", strrchr(store->folder, '/') + 1);
    if (!join(path, places->cache, below, error) || !mf_hub_make_folders(path, error))
        return false;
    store->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (store->lock_fd < 0)
        return mf_hub_fail_os(error, errno, "%.900s: cannot open", path);
    if (flock(store->lock_fd, LOCK_EX | LOCK_NB) == 0 || errno == ENOLCK || errno == EOPNOTSUPP)
        return true;
    return mf_hub_fail(error, MF_ERR_STATE, "%.900s: another moeflux is fetching this model", path);
}

bool mf_hub_store_open(const mf_hub_places *places, const mf_hub_name *name, mf_hub_store *out,
                       mf_error *error)
{
    char path[MF_HUB_PATH_CHARS];
    *out = (mf_hub_store){.lock_fd = -1};
    if (places->cache[0] == '\0')
        return mf_hub_fail(error, MF_ERR_ARGUMENT,
                           "there is no place for a cache: HF_HUB_CACHE, HF_HOME and HOME are "
                           "not set");
    if (!mf_hub_folder(places, name, "", out->folder))
        return mf_hub_fail(error, MF_ERR_ARGUMENT, "%.600s: the path is too long", places->cache);
    if (join(out->blobs, out->folder, "blobs", error) && join(path, out->blobs, "", error) &&
        mf_hub_make_folders(path, error) && lock(places, out, error))
        return true;
    mf_hub_store_close(out);
    return false;
}

void mf_hub_store_close(mf_hub_store *store)
{
    if (store->lock_fd >= 0)
        close(store->lock_fd);
    store->lock_fd = -1;
}

/* Another name for it, which replaces what stands there in one step. */
static bool temporary(char out[MF_HUB_PATH_CHARS], const char *path, mf_error *error)
{
    const int n = snprintf(out, MF_HUB_PATH_CHARS, "%s.moeflux-%ld", path, (long)getpid());
    return (n > 0 && n < MF_HUB_PATH_CHARS) ||
           mf_hub_fail(error, MF_ERR_ARGUMENT, "%.600s...: the path is too long", path);
}

/* snapshots/COMMIT/PATH -> ../../blobs/BLOB; a hard link where there are no others. */
static bool link_file(const mf_hub_store *store, const char *commit, const mf_hub_file *file,
                      mf_error *error)
{
    char below[1024], path[MF_HUB_PATH_CHARS], other[MF_HUB_PATH_CHARS], blob[MF_HUB_PATH_CHARS];
    char target[2048] = "../../", there[2048];
    snprintf(below, sizeof below, "snapshots/%s/%s", commit, file->path);
    if (!join(path, store->folder, below, error) || !join(blob, store->blobs, file->blob, error) ||
        !temporary(other, path, error) || !mf_hub_make_folders(path, error))
        return false;
    size_t at = strlen(target);
    for (const char *slash = strchr(file->path, '/'); slash; slash = strchr(slash + 1, '/'))
        at += (size_t)snprintf(target + at, sizeof target - at, "../"); /* of at most 512 bytes */
    snprintf(target + at, sizeof target - at, "blobs/%s", file->blob);
    const ssize_t n = readlink(path, there, sizeof there - 1);
    if (n > 0 && (size_t)n == strlen(target) && strncmp(there, target, (size_t)n) == 0)
        return true;
    (void)unlink(other);
    if (symlink(target, other) != 0 && link(blob, other) != 0)
        return mf_hub_fail_os(error, errno, "%.900s: cannot make this link", other);
    if (rename(other, path) == 0)
        return true;
    const int why = errno;
    (void)unlink(other);
    return mf_hub_fail_os(error, why, "%.900s: cannot be made", path);
}

static bool write_ref(const mf_hub_store *store, const char *commit, const char *revision,
                      mf_error *error)
{
    char below[MF_HUB_REVISION_CHARS + 8], path[MF_HUB_PATH_CHARS], other[MF_HUB_PATH_CHARS];
    if (strcmp(commit, revision) == 0)
        return true;
    snprintf(below, sizeof below, "refs/%s", revision);
    if (!join(path, store->folder, below, error) || !temporary(other, path, error) ||
        !mf_hub_make_folders(path, error))
        return false;
    FILE *out = fopen(other, "we");
    if (!out)
        return mf_hub_fail_os(error, errno, "%.900s: cannot open", other);
    const bool is_bad = fputs(commit, out) < 0;
    if (fclose(out) == 0 && !is_bad && rename(other, path) == 0)
        return true;
    const int why = errno;
    (void)unlink(other);
    return mf_hub_fail_os(error, why, "%.900s: cannot write", path);
}

bool mf_hub_store_name(const mf_hub_store *store, const mf_hub_listing *listing,
                       const char *revision, mf_error *error)
{
    for (size_t i = 0; i < listing->n_files; i++)
        if (listing->files[i].is_wanted &&
            !link_file(store, listing->commit, &listing->files[i], error))
            return false;
    return write_ref(store, listing->commit, revision, error);
}

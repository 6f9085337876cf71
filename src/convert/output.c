/* SPDX-License-Identifier: MIT */
/*
 * Directories and files that a conversion writes. A directory is its own if it was empty and the
 * conversion has left its mark in it, a locked file with its id; nothing else is ever written to,
 * and no file but its own temporary ones is written over.
 */
#include "base/files.h"
#include "convert/convert.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MARK "moeflux.partial"
#define MARK_CHARS 33 /* 32 digits and a newline */
/* What a drive should have left for the files that are small. */
#define SPARE_BYTES ((uint64_t)64 << 20)

/* -------------------------------------------------------------------------- directories -- */

static mf_status make_directory(mf_output_dir *d, mf_error *error)
{
    if (mkdir(d->path, 0777) == 0)
        d->is_new = true;
    else if (errno != EEXIST)
        return mf_fail_os(error, errno == ENOENT ? MF_ERR_NOT_FOUND : MF_ERR_IO, errno,
                          "%s: cannot make the directory", d->path);
    d->fd = mf_open_apart(AT_FDCWD, d->path, O_RDONLY | O_DIRECTORY, 0);
    if (d->fd < 0)
        return mf_fail_os(error, errno == ENOTDIR ? MF_ERR_ARGUMENT : MF_ERR_IO, errno,
                          "%s: cannot open the directory", d->path);
    return MF_OK;
}

/* Something that is there; NULL: nothing. */
static mf_status first_entry(const mf_output_dir *d, char *name, size_t capacity, mf_error *error)
{
    DIR *dir = opendir(d->path);
    if (dir == NULL)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s: cannot open the directory", d->path);
    name[0] = '\0';
    for (const struct dirent *e; name[0] == '\0' && (e = readdir(dir)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            snprintf(name, capacity, "%s", e->d_name);
    closedir(dir);
    return MF_OK;
}

static mf_status check_empty(const mf_output_dir *d, mf_error *error)
{
    char name[256];
    struct stat st;
    if (fstatat(d->fd, MF_ALIGNED_MANIFEST, &st, 0) == 0)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "%s: holds a converted model already; nothing is written over", d->path);
    MF_TRY(first_entry(d, name, sizeof name, error));
    if (name[0] == '\0')
        return MF_OK;
    return mf_fail(error, MF_ERR_ARGUMENT,
                   "%s: is not empty (%s is there); name a directory that is new or empty", d->path,
                   name);
}

/* All was written, and of the marks that go one by one this directory's has gone and the first's
 * has not: the call was interrupted between them. */
static bool is_finished(const mf_conversion *c, const mf_output_dir *d)
{
    const mf_output_dir *first = &c->dirs[0];
    struct stat st, linked;
    char name[32];
    snprintf(name, sizeof name, "drive_%u", (unsigned)(d - first));
    return d != first && faccessat(first->fd, MARK, F_OK, 0) == 0 &&
           faccessat(first->fd, MF_ALIGNED_MANIFEST, F_OK, 0) == 0 &&
           fstatat(first->fd, name, &linked, 0) == 0 && fstat(d->fd, &st) == 0 &&
           st.st_dev == linked.st_dev && st.st_ino == linked.st_ino;
}

static mf_status lock_mark(mf_output_dir *d, mf_error *error)
{
    if (flock(d->mark_fd, LOCK_EX | LOCK_NB) == 0)
        return MF_OK;
    return mf_fail(error, MF_ERR_ARGUMENT, "%s: another process is writing there", d->path);
}

static mf_status write_mark(const mf_conversion *c, mf_output_dir *d, const char *id,
                            mf_error *error)
{
    if (!is_finished(c, d))
        MF_TRY(check_empty(d, error));
    d->mark_fd = mf_open_apart(d->fd, MARK, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
    if (d->mark_fd < 0)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s/%s: cannot make the file", d->path, MARK);
    d->is_marked = true;
    MF_TRY(lock_mark(d, error));
    if (pwrite(d->mark_fd, id, MARK_CHARS, 0) != MARK_CHARS || fsync(d->mark_fd) != 0)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s/%s: cannot be written", d->path, MARK);
    return MF_OK;
}

/* A mark that is empty was left by a call that got no further; nothing was written then. */
static mf_status take_mark(mf_output_dir *d, const char *id, mf_error *error)
{
    char there[MARK_CHARS + 1] = {0};
    MF_TRY(lock_mark(d, error));
    const ssize_t n = pread(d->mark_fd, there, MARK_CHARS, 0);
    if (n == MARK_CHARS && memcmp(there, id, MARK_CHARS) == 0)
        return MF_OK;
    if (n != 0)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "%s: holds what is left of another conversion (another source, or other "
                       "options); remove it, or name another directory",
                       d->path);
    if (pwrite(d->mark_fd, id, MARK_CHARS, 0) != MARK_CHARS)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s/%s: cannot be written", d->path, MARK);
    return MF_OK;
}

/* No directory before it is the same one. */
static mf_status check_apart(const mf_conversion *c, uint32_t dir, mf_error *error)
{
    const mf_output_dir *d = &c->dirs[dir];
    struct stat st, other;
    for (uint32_t i = 0; i < dir; i++) {
        const mf_output_dir *before = &c->dirs[i];
        if (strcmp(d->path, before->path) == 0 ||
            (d->fd >= 0 && before->fd >= 0 && fstat(d->fd, &st) == 0 &&
             fstat(before->fd, &other) == 0 && st.st_dev == other.st_dev &&
             st.st_ino == other.st_ino))
            return mf_fail(error, MF_ERR_ARGUMENT,
                           "%s: is named twice; each drive has a directory of its own", d->path);
    }
    return MF_OK;
}

/* How much of a path is not slashes at its end. */
static size_t trimmed(const char *path, size_t n)
{
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n;
}

/* How much of a directory's path, of n characters, names the one that it would be in; 0: none,
 * where we are. */
static size_t parent_chars(const char *path, size_t n)
{
    n = trimmed(path, n);
    while (n > 0 && path[n - 1] != '/')
        n--;
    return n;
}

/* Whether a directory that is not there can be made, by the one that it would be in. */
static mf_status check_makeable(const mf_output_dir *d, mf_error *error)
{
    char parent[MF_MAX_PATH + 1];
    snprintf(parent, sizeof parent, "%.*s.", (int)parent_chars(d->path, strlen(d->path)), d->path);
    if (faccessat(AT_FDCWD, parent, W_OK | X_OK, AT_EACCESS) == 0)
        return MF_OK;
    return mf_fail_os(error, errno == ENOENT ? MF_ERR_NOT_FOUND : MF_ERR_IO, errno,
                      "%s: cannot make the directory", d->path);
}

/* Whether it would be in one that is made before it. */
static bool is_in_earlier(const mf_conversion *c, const mf_output_dir *d)
{
    const size_t n = trimmed(d->path, parent_chars(d->path, strlen(d->path)));
    for (const mf_output_dir *before = c->dirs; before < d; before++)
        if (n != 0 && trimmed(before->path, strlen(before->path)) == n &&
            memcmp(before->path, d->path, n) == 0)
            return true;
    return false;
}

static mf_status check_directory(const mf_conversion *c, const mf_output_dir *d, mf_error *error)
{
    if (d->fd < 0)
        return is_in_earlier(c, d) ? MF_OK : check_makeable(d, error);
    if (faccessat(AT_FDCWD, d->path, W_OK | X_OK, AT_EACCESS) != 0)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s: cannot be written", d->path);
    const bool is_ours = faccessat(d->fd, MARK, F_OK, 0) == 0 || is_finished(c, d);
    return is_ours ? MF_OK : check_empty(d, error);
}

mf_status mf_output_check_free(mf_conversion *c, mf_error *error)
{
    for (uint32_t i = 0; i < c->n_dirs; i++) {
        mf_output_dir *d = &c->dirs[i];
        d->fd = mf_open_apart(AT_FDCWD, d->path, O_RDONLY | O_DIRECTORY, 0);
        if (d->fd < 0 && errno != ENOENT)
            return mf_fail_os(error, errno == ENOTDIR ? MF_ERR_ARGUMENT : MF_ERR_IO, errno,
                              "%s: cannot open the directory", d->path);
        MF_TRY(check_apart(c, i, error));
        MF_TRY(check_directory(c, d, error));
    }
    mf_output_close(c);
    return MF_OK;
}

static mf_status open_directory(mf_conversion *c, uint32_t dir, const char *id, mf_error *error)
{
    mf_output_dir *d = &c->dirs[dir];
    MF_TRY(make_directory(d, error));
    MF_TRY(check_apart(c, dir, error));
    d->mark_fd = mf_open_apart(d->fd, MARK, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0);
    if (d->mark_fd >= 0)
        return take_mark(d, id, error);
    if (errno != ENOENT)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s/%s: cannot open", d->path, MARK);
    return write_mark(c, d, id, error);
}

/* drive_N of the model's directory leads to the N-th further one. */
static mf_status link_drive(const mf_conversion *c, uint32_t drive, mf_error *error)
{
    char name[32], there[MF_MAX_PATH] = {0}, target[MF_MAX_PATH];
    const mf_output_dir *d = &c->dirs[drive];
    snprintf(name, sizeof name, "drive_%u", drive);
    if (realpath(d->path, target) == NULL)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s: cannot be followed", d->path);
    if (symlinkat(target, c->dirs[0].fd, name) == 0)
        return MF_OK;
    if (errno == EEXIST && readlinkat(c->dirs[0].fd, name, there, sizeof there - 1) > 0 &&
        strcmp(there, target) == 0)
        return MF_OK;
    return mf_fail_os(error, MF_ERR_IO, errno, "%s/%s: cannot make the link", c->dirs[0].path,
                      name);
}

/* The layers' files have the same names in the folder for those of the first directory as in
 * others. */
static mf_status check_experts(const mf_conversion *c, mf_error *error)
{
    struct stat experts, st;
    if (fstatat(c->dirs[0].fd, "experts", &experts, 0) != 0)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s/experts: cannot be looked at",
                          c->dirs[0].path);
    for (uint32_t i = 1; i < c->n_dirs; i++)
        if (fstat(c->dirs[i].fd, &st) == 0 && st.st_dev == experts.st_dev &&
            st.st_ino == experts.st_ino)
            return mf_fail(error, MF_ERR_ARGUMENT,
                           "%s: is named twice; the first directory's experts go there",
                           c->dirs[i].path);
    return MF_OK;
}

mf_status mf_output_open(mf_conversion *c, mf_error *error)
{
    char id[MARK_CHARS + 1];
    mf_aligned_id_text(c->id, id);
    id[32] = '\n';
    for (uint32_t i = 0; i < c->n_dirs; i++) {
        MF_TRY(open_directory(c, i, id, error));
        if (i > 0)
            MF_TRY(link_drive(c, i, error));
    }
    if (mkdirat(c->dirs[0].fd, "experts", 0777) != 0 && errno != EEXIST)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s/experts: cannot make the directory",
                          c->dirs[0].path);
    return check_experts(c, error);
}

/* The names of the layers' files, which bringing their folder's parent to the drive leaves out. */
static mf_status sync_experts(const mf_output_dir *d, mf_error *error)
{
    const int fd = mf_open_apart(d->fd, "experts", O_RDONLY | O_DIRECTORY, 0);
    mf_status status = MF_OK;
    if (fd < 0 || fsync(fd) != 0)
        status = mf_fail_os(error, MF_ERR_IO, errno, "%s/experts: cannot be finished", d->path);
    if (fd >= 0)
        close(fd);
    return status;
}

mf_status mf_output_finish(mf_conversion *c, mf_error *error)
{
    MF_TRY(sync_experts(&c->dirs[0], error));
    for (uint32_t i = c->n_dirs; i-- > 0;) {
        if (fsync(c->dirs[i].fd) != 0 || unlinkat(c->dirs[i].fd, MARK, 0) != 0)
            return mf_fail_os(error, MF_ERR_IO, errno, "%s: cannot be finished", c->dirs[i].path);
        (void)fsync(c->dirs[i].fd);
    }
    return MF_OK;
}

void mf_output_close(mf_conversion *c)
{
    for (uint32_t i = 0; i < c->n_dirs; i++) {
        mf_output_dir *d = &c->dirs[i];
        if (d->mark_fd >= 0)
            close(d->mark_fd);
        if (d->fd >= 0)
            close(d->fd);
        d->fd = d->mark_fd = -1;
    }
}

void mf_output_retract(mf_conversion *c)
{
    for (uint32_t i = c->n_dirs; i-- > 0;) {
        const mf_output_dir *d = &c->dirs[i];
        if (d->fd < 0 || !(d->is_new || d->is_marked))
            continue;
        for (uint32_t drive = 1; i == 0 && drive < c->n_dirs; drive++) {
            char name[32];
            snprintf(name, sizeof name, "drive_%u", drive);
            (void)unlinkat(d->fd, name, 0);
        }
        (void)unlinkat(d->fd, "experts", AT_REMOVEDIR);
        (void)unlinkat(d->fd, MARK, 0);
        if (d->is_new)
            (void)rmdir(d->path);
    }
}

/* -------------------------------------------------------------------------------- space -- */

uint64_t mf_output_size(const mf_output_dir *dir, const char *name)
{
    struct stat st;
    if (fstatat(dir->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
        return UINT64_MAX;
    return (uint64_t)st.st_size;
}

/* What a file of so many bytes still takes of the drive: what an earlier call left of it, under its
 * temporary name, has its room already. */
static uint64_t missing_of_file(const mf_output_dir *dir, const char *name, uint64_t n_bytes)
{
    char temporary[MF_OUTPUT_NAME_CHARS + 8];
    struct stat st;
    if (mf_output_size(dir, name) == n_bytes)
        return 0;
    snprintf(temporary, sizeof temporary, "%s.tmp", name);
    const bool is_there = fstatat(dir->fd, temporary, &st, AT_SYMLINK_NOFOLLOW) == 0;
    const uint64_t n_taken = is_there && S_ISREG(st.st_mode) ? (uint64_t)st.st_blocks * 512 : 0;
    return n_taken < n_bytes ? n_bytes - n_taken : 0;
}

/* What the directory is still to get. */
static uint64_t missing_bytes(const mf_conversion *c, uint32_t dir)
{
    uint64_t n_bytes = 0;
    if (dir == 0)
        n_bytes = missing_of_file(&c->dirs[0], MF_ALIGNED_DENSE, c->dense_bytes);
    for (uint32_t i = 0; i < c->source.h.n_moe_layers; i++) {
        const mf_target_layer *t = &c->layers[i];
        char name[64];
        mf_aligned_expert_file(t->layer, 0, name, sizeof name);
        if (dir != 0)
            mf_target_file_name(t, name, sizeof name);
        n_bytes += missing_of_file(&c->dirs[dir], name, t->file_bytes[dir]);
    }
    return n_bytes;
}

/* The drive of a directory, or, where it is not there yet, of the nearest above it that is. */
static bool look_at_drive(const mf_output_dir *d, struct stat *st, struct statvfs *fs)
{
    char path[MF_MAX_PATH + 1];
    size_t n = strlen(d->path);
    if (d->fd >= 0)
        return fstat(d->fd, st) == 0 && fstatvfs(d->fd, fs) == 0;
    do {
        n = parent_chars(d->path, n);
        snprintf(path, sizeof path, "%.*s.", (int)n, d->path);
        if (stat(path, st) == 0)
            return statvfs(path, fs) == 0;
    } while (errno == ENOENT && n > 1);
    return false;
}

/* Directories on one drive share its room. */
mf_status mf_output_check_space(mf_conversion *c, mf_error *error)
{
    struct stat st[MF_CONVERT_MAX_DRIVES];
    struct statvfs fs[MF_CONVERT_MAX_DRIVES];
    for (uint32_t i = 0; i < c->n_dirs; i++)
        if (!look_at_drive(&c->dirs[i], &st[i], &fs[i]))
            return mf_fail_os(error, MF_ERR_IO, errno, "%s: cannot be looked at", c->dirs[i].path);
    for (uint32_t i = 0; i < c->n_dirs; i++) {
        uint64_t wanted = SPARE_BYTES;
        bool is_counted = false;
        for (uint32_t j = 0; j < c->n_dirs && !is_counted; j++) {
            is_counted = j < i && st[j].st_dev == st[i].st_dev;
            if (j >= i && st[j].st_dev == st[i].st_dev)
                wanted += missing_bytes(c, j);
        }
        const uint64_t there = (uint64_t)fs[i].f_bavail * fs[i].f_frsize;
        if (!is_counted && wanted > there)
            return mf_fail_os(error, MF_ERR_IO, ENOSPC,
                              "%s: %llu MiB are needed there and %llu MiB are free",
                              c->dirs[i].path, (unsigned long long)(wanted >> 20),
                              (unsigned long long)(there >> 20));
    }
    return MF_OK;
}

mf_status mf_output_foresee_space(mf_conversion *c, mf_error *error)
{
    for (uint32_t i = 0; i < c->n_dirs; i++) /* not there: it has nothing yet */
        c->dirs[i].fd = mf_open_apart(AT_FDCWD, c->dirs[i].path, O_RDONLY | O_DIRECTORY, 0);
    const mf_status status = mf_output_check_space(c, error);
    mf_output_close(c);
    return status;
}

/* -------------------------------------------------------------------------------- files -- */

static void temporary_name(const mf_output_file *f, char *name, size_t capacity)
{
    snprintf(name, capacity, "%s.tmp", f->name);
}

static mf_status fail_file(const mf_output_file *f, mf_error *error, const char *what)
{
    return mf_fail_os(error, MF_ERR_IO, errno, "%s/%s: %s", f->dir->path, f->name, what);
}

mf_status mf_output_begin(const mf_output_dir *dir, const char *name, uint64_t n_bytes,
                          mf_output_file *out, mf_error *error)
{
    char temporary[MF_OUTPUT_NAME_CHARS + 8];
    mf_output_file f = {.dir = dir, .direct_fd = -1};
    snprintf(f.name, sizeof f.name, "%s", name);
    temporary_name(&f, temporary, sizeof temporary);
    f.fd = mf_open_apart(dir->fd, temporary, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK,
                         0666);
    if (f.fd < 0)
        return fail_file(&f, error, "cannot make the file");
    mf_write_guard guard;
    mf_write_guard_begin(&guard); /* all of its room, before anything is computed for it */
    const int failed = n_bytes == 0 ? 0 : fallocate(f.fd, 0, 0, (off_t)n_bytes);
    mf_write_guard_end(&guard);
    if (failed != 0 && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR) {
        mf_status status = fail_file(&f, error, "no room for it");
        close(f.fd);
        return status;
    }
    f.direct_fd = mf_open_apart(dir->fd, temporary, O_WRONLY | O_DIRECT | O_NOFOLLOW, 0);
    *out = f;
    return MF_OK;
}

mf_status mf_output_write(const mf_output_file *f, uint64_t at, const void *bytes, size_t n_bytes,
                          mf_error *error)
{
    const unsigned char *from = bytes;
    mf_write_guard guard;
    mf_status status = MF_OK;
    const bool is_aligned = (at | n_bytes | (uintptr_t)bytes) % MF_ALIGNED_BYTES == 0;
    int fd = is_aligned && f->direct_fd >= 0 ? f->direct_fd : f->fd;
    mf_write_guard_begin(&guard);
    for (size_t done = 0; done < n_bytes && status == MF_OK;) {
        const ssize_t n = pwrite(fd, from + done, n_bytes - done, (off_t)(at + done));
        if (n > 0)
            done += (size_t)n;
        else if (n < 0 && errno == EINVAL && fd != f->fd)
            fd = f->fd; /* a drive with larger blocks, or the rest after a short write */
        else if (n == 0 || errno != EINTR)
            status = fail_file(f, error, "cannot be written");
    }
    mf_write_guard_end(&guard);
    return status;
}

void mf_output_flush(const mf_output_file *f, uint64_t at, uint64_t n_bytes)
{
    (void)sync_file_range(f->fd, (off_t)at, (off_t)n_bytes, SYNC_FILE_RANGE_WRITE);
    if (at < n_bytes)
        return;
    (void)sync_file_range(f->fd, (off_t)(at - n_bytes), (off_t)n_bytes,
                          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                              SYNC_FILE_RANGE_WAIT_AFTER);
    (void)posix_fadvise(f->fd, (off_t)(at - n_bytes), (off_t)n_bytes, POSIX_FADV_DONTNEED);
}

mf_status mf_output_commit(mf_output_file *f, mf_error *error)
{
    char temporary[MF_OUTPUT_NAME_CHARS + 8];
    mf_status status = MF_OK;
    temporary_name(f, temporary, sizeof temporary);
    if (fdatasync(f->fd) != 0)
        status = fail_file(f, error, "cannot be brought to the drive");
    else if (renameat(f->dir->fd, temporary, f->dir->fd, f->name) != 0)
        status = fail_file(f, error, "cannot be given its name");
    mf_output_abandon(f);
    return status;
}

void mf_output_abandon(mf_output_file *f)
{
    if (f->dir != NULL && f->fd >= 0)
        close(f->fd);
    if (f->dir != NULL && f->direct_fd >= 0)
        close(f->direct_fd);
    *f = (mf_output_file){.fd = -1, .direct_fd = -1};
}

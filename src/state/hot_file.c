/* SPDX-License-Identifier: MIT */
/* Experts asked for most: bytes, and the file that has them. */
#include "state/hot_file.h"

#include "base/files.h"
#include "base/little_endian.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERSION 1u
#define HEADER_BYTES 64u
#define ENTRY_BYTES 8u
#define TAIL_BYTES 8u
#define SHARE_WHOLE 65535.0f
#define NAME_CHARS (4 + 2 * MF_FINGERPRINT_BYTES + 6 + 1)
#define TMP_CHARS (NAME_CHARS + 24)

static const unsigned char magic[8] = "MFHOT\n\0";

static size_t n_keys_of(const mf_hot_shape *shape)
{
    return (size_t)shape->n_layers * shape->n_experts;
}

/* ------------------------------------------------------------------------ temporary files -- */

/* tmp-PROCESS-hot-FINGERPRINT.mfhot, the process's number in hexadecimal digits. */
static bool is_temporary(const char *name)
{
    static const char digits[] = "0123456789abcdef";
    if (strncmp(name, "tmp-", 4) != 0)
        return false;
    const size_t n_process = strspn(name + 4, digits);
    const char *rest = name + 4 + n_process;
    if (n_process == 0 || strncmp(rest, "-hot-", 5) != 0)
        return false;
    return strspn(rest + 5, digits) == 2 * (size_t)MF_FINGERPRINT_BYTES &&
           strcmp(rest + 5 + 2 * (size_t)MF_FINGERPRINT_BYTES, ".mfhot") == 0;
}

/* Of any model: a process that was killed may have left one, and its model may not come again. */
static void remove_stale(int dir_fd)
{
    const int fd = mf_open_apart(dir_fd, ".", O_RDONLY | O_DIRECTORY, 0);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        if (is_temporary(e->d_name))
            mf_remove_if_left(dir_fd, e->d_name);
    closedir(dir);
}

/* ---------------------------------------------------------------------------------- reading -- */

static mf_status check_header(const unsigned char *bytes, size_t n_bytes, const char *name,
                              const mf_hot_shape *shape, mf_error *error)
{
    if (n_bytes < HEADER_BYTES + TAIL_BYTES || memcmp(bytes, magic, sizeof magic) != 0)
        return mf_fail(error, MF_ERR_FORMAT, "%s: not a list of experts", name);
    if (mf_get_le(bytes + 8, 4) != VERSION)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: version %u, expected %u", name,
                       (unsigned)mf_get_le(bytes + 8, 4), VERSION);
    const uint64_t n = mf_get_le(bytes + 40, 4);
    const uint64_t expected = HEADER_BYTES + n * ENTRY_BYTES + TAIL_BYTES;
    if (mf_get_le(bytes + 12, 4) != HEADER_BYTES || n > n_keys_of(shape) || n_bytes != expected)
        return mf_fail(error, MF_ERR_FORMAT, "%s: %zu bytes, expected %llu for %llu experts", name,
                       n_bytes, (unsigned long long)expected, (unsigned long long)n);
    if (mf_checksum_of(bytes, n_bytes - TAIL_BYTES, 0) !=
        mf_get_le(bytes + n_bytes - TAIL_BYTES, 8))
        return mf_fail(error, MF_ERR_FORMAT, "%s: its checksum is not that of its bytes", name);
    if (memcmp(bytes + 16, shape->fingerprint, sizeof shape->fingerprint) != 0 ||
        mf_get_le(bytes + 32, 4) != shape->n_layers || mf_get_le(bytes + 36, 4) != shape->n_experts)
        return mf_fail(error, MF_ERR_FORMAT, "%s: it is of another model", name);
    return MF_OK;
}

mf_status mf_hot_parse(const unsigned char *bytes, size_t n_bytes, const char *name,
                       const mf_hot_shape *shape, mf_hot_list *list, mf_error *error)
{
    MF_TRY(check_header(bytes, n_bytes, name, shape, error));
    const uint32_t n = (uint32_t)mf_get_le(bytes + 40, 4);
    uint64_t before = (uint64_t)SHARE_WHOLE;
    memset(list->shares, 0, n_keys_of(shape) * sizeof *list->shares);
    for (uint32_t i = 0; i < n; i++) {
        const size_t at = HEADER_BYTES + (size_t)i * ENTRY_BYTES;
        const uint64_t key = mf_get_le(bytes + at, 4), share = mf_get_le(bytes + at + 4, 4);
        if (key >= n_keys_of(shape) || share == 0 || share > before || list->shares[key] != 0)
            return mf_fail_at(error, MF_ERR_FORMAT, at,
                              "%s: byte %zu: expert %llu with share %llu, expected one below %zu, "
                              "not named before, with a share of 1 to %llu",
                              name, at, (unsigned long long)key, (unsigned long long)share,
                              n_keys_of(shape), (unsigned long long)before);
        list->keys[i] = (uint32_t)key;
        list->shares[key] = (float)share / SHARE_WHOLE;
        before = share;
    }
    list->n = n;
    return MF_OK;
}

static void name_of(const mf_hot_shape *shape, char name[NAME_CHARS])
{
    char digits[2 * MF_FINGERPRINT_BYTES + 1];
    for (size_t i = 0; i < MF_FINGERPRINT_BYTES; i++)
        snprintf(digits + 2 * i, 3, "%02x", shape->fingerprint[i]);
    snprintf(name, NAME_CHARS, "hot-%s.mfhot", digits);
}

static mf_status load_from(const mf_allocator *a, int fd, const char *name,
                           const mf_hot_shape *shape, mf_hot_list *list, mf_error *error)
{
    struct stat st;
    const uint64_t most = HEADER_BYTES + n_keys_of(shape) * ENTRY_BYTES + TAIL_BYTES;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < 0 ||
        (uint64_t)st.st_size > most)
        return mf_fail(error, MF_ERR_FORMAT, "%s: not a list of this model's experts", name);
    const size_t n_bytes = (size_t)st.st_size;
    unsigned char *bytes = mf_alloc(a, n_bytes + 1);
    if (bytes == NULL)
        return mf_fail_memory(error, n_bytes, "a list of experts");
    mf_status status = mf_read_whole(fd, bytes, n_bytes, 0) == n_bytes
                           ? mf_hot_parse(bytes, n_bytes, name, shape, list, error)
                           : mf_fail(error, MF_ERR_IO, "%s: cannot be read", name);
    mf_free(a, bytes, n_bytes + 1);
    return status;
}

static mf_status open_directory(const char *directory, int *fd, mf_error *error)
{
    *fd = mf_open_apart(AT_FDCWD, directory, O_RDONLY | O_DIRECTORY, 0);
    if (*fd < 0)
        return mf_fail_os(error, errno == ENOENT ? MF_ERR_NOT_FOUND : MF_ERR_IO, errno, "%s",
                          directory);
    return MF_OK;
}

mf_status mf_hot_load(const mf_allocator *allocator, const char *directory,
                      const mf_hot_shape *shape, mf_hot_list *list, mf_error *error)
{
    char name[NAME_CHARS];
    int dir_fd;
    if (n_keys_of(shape) > MF_HOT_KEYS_MAX)
        return mf_fail(error, MF_ERR_NOT_FOUND, "%s: no list of so many experts", directory);
    MF_TRY(open_directory(directory, &dir_fd, error));
    remove_stale(dir_fd);
    name_of(shape, name);
    const int fd = mf_open_apart(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    const int failure = errno;
    close(dir_fd);
    if (fd < 0)
        return mf_fail_os(error, failure == ENOENT ? MF_ERR_NOT_FOUND : MF_ERR_IO, failure, "%s/%s",
                          directory, name);
    mf_status status = load_from(allocator, fd, name, shape, list, error);
    close(fd);
    return status;
}

/* ---------------------------------------------------------------------------------- writing -- */

static uint32_t share_of(float share)
{
    const float whole = share * SHARE_WHOLE + 0.5f;
    return whole >= SHARE_WHOLE ? (uint32_t)SHARE_WHOLE : whole > 0 ? (uint32_t)whole : 0;
}

/* By share falling, then by key: an entry is share << 32 | ~key. */
static int compare_falling(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

static uint32_t list_keys(const mf_hot_shape *shape, mf_hot_list *list, uint64_t *sorted)
{
    uint32_t n = 0;
    for (uint32_t key = 0; key < n_keys_of(shape); key++)
        if (share_of(list->shares[key]) != 0)
            sorted[n++] = (uint64_t)share_of(list->shares[key]) << 32 | (UINT32_MAX - key);
    qsort(sorted, n, sizeof *sorted, compare_falling);
    for (uint32_t i = 0; i < n; i++)
        list->keys[i] = UINT32_MAX - (uint32_t)sorted[i];
    list->n = n;
    return n;
}

static size_t write_bytes(const mf_hot_shape *shape, const mf_hot_list *list, unsigned char *bytes)
{
    const size_t n_bytes = HEADER_BYTES + (size_t)list->n * ENTRY_BYTES;
    memset(bytes, 0, HEADER_BYTES);
    memcpy(bytes, magic, sizeof magic);
    mf_put_le(bytes + 8, VERSION, 4);
    mf_put_le(bytes + 12, HEADER_BYTES, 4);
    memcpy(bytes + 16, shape->fingerprint, sizeof shape->fingerprint);
    mf_put_le(bytes + 32, shape->n_layers, 4);
    mf_put_le(bytes + 36, shape->n_experts, 4);
    mf_put_le(bytes + 40, list->n, 4);
    for (uint32_t i = 0; i < list->n; i++) {
        unsigned char *at = bytes + HEADER_BYTES + (size_t)i * ENTRY_BYTES;
        mf_put_le(at, list->keys[i], 4);
        mf_put_le(at + 4, share_of(list->shares[list->keys[i]]), 4);
    }
    mf_put_le(bytes + n_bytes, mf_checksum_of(bytes, n_bytes, 0), 8);
    return n_bytes + TAIL_BYTES;
}

/* To a file of its own first, which then takes the name. */
static mf_status write_file(int dir_fd, const char *directory, const char *name,
                            const unsigned char *bytes, size_t n_bytes, mf_error *error)
{
    char tmp[TMP_CHARS], back[NAME_CHARS + 1];
    snprintf(back, sizeof back, "-%s", name);
    const int fd = mf_make_aside(dir_fd, "tmp-", back, 0600, tmp, sizeof tmp);
    if (fd < 0)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s/%s: cannot be made", directory, tmp);
    const bool is_good = mf_write_whole(fd, bytes, n_bytes) == n_bytes && fsync(fd) == 0 &&
                         renameat(dir_fd, tmp, dir_fd, name) == 0;
    const int failure = errno;
    if (!is_good)
        (void)unlinkat(dir_fd, tmp, 0);
    close(fd); /* locked until here: nobody takes it for stale */
    return is_good
               ? MF_OK
               : mf_fail_os(error, MF_ERR_IO, failure, "%s/%s: cannot be written", directory, name);
}

static mf_status save_to(const mf_allocator *a, int dir_fd, const char *directory,
                         const mf_hot_shape *shape, mf_hot_list *list, mf_error *error)
{
    char name[NAME_CHARS];
    const size_t most = HEADER_BYTES + n_keys_of(shape) * ENTRY_BYTES + TAIL_BYTES;
    unsigned char *bytes = mf_alloc(a, most);
    uint64_t *sorted = mf_alloc_array(a, n_keys_of(shape), sizeof *sorted);
    mf_status status = MF_OK;
    name_of(shape, name);
    if (bytes == NULL || sorted == NULL)
        status = mf_fail_memory(error, most, "a list of experts");
    if (status == MF_OK && list_keys(shape, list, sorted) > 0)
        status = write_file(dir_fd, directory, name, bytes, write_bytes(shape, list, bytes), error);
    mf_free(a, sorted, n_keys_of(shape) * sizeof *sorted);
    mf_free(a, bytes, most);
    return status;
}

mf_status mf_hot_save(const mf_allocator *allocator, const char *directory,
                      const mf_hot_shape *shape, mf_hot_list *list, mf_error *error)
{
    int dir_fd;
    if (n_keys_of(shape) > MF_HOT_KEYS_MAX)
        return mf_fail(error, MF_ERR_ARGUMENT, "a list of too many experts");
    if (mkdir(directory, 0700) != 0 && errno != EEXIST)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s", directory);
    MF_TRY(open_directory(directory, &dir_fd, error));
    mf_status status = save_to(allocator, dir_fd, directory, shape, list, error);
    close(dir_fd);
    return status;
}

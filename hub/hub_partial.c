/* SPDX-License-Identifier: MIT */
/* Partial files. The state is a mapping, so that a unit's bit is as safe as its bytes are. */
#include "hub_partial.h"
#include "hub_fail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Identifies the file and its layout; the bits follow. */
typedef struct state_header {
    char magic[16];
    uint64_t n_bytes, unit_bytes;
} state_header;

static const char magic[16] = "moeflux pull 1\n";

static bool paths(const char *dir, const mf_hub_file *file, mf_hub_partial *p)
{
    const int n = snprintf(p->path, sizeof p->path, "%s/%s.moeflux-part", dir, file->blob);
    const int n_state =
        snprintf(p->state_path, sizeof p->state_path, "%s/%s.moeflux-state", dir, file->blob);
    p->n_bytes = file->n_bytes;
    p->n_units = mf_hub_units(file->n_bytes);
    p->n_state_bytes = sizeof(state_header) + (size_t)(p->n_units / 8 + 1);
    return n > 0 && (size_t)n < sizeof p->path && n_state > 0 &&
           (size_t)n_state < sizeof p->state_path;
}

static bool is_state_of(const mf_hub_partial *p, const uint8_t *state)
{
    state_header header;
    memcpy(&header, state, sizeof header);
    return memcmp(header.magic, magic, sizeof magic) == 0 && header.n_bytes == p->n_bytes &&
           header.unit_bytes == MF_HUB_UNIT_BYTES;
}

static uint64_t count_units(const mf_hub_partial *p)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < p->n_units; i++)
        n += mf_hub_partial_has(p, i);
    return n;
}

bool mf_hub_partial_has(const mf_hub_partial *p, uint64_t unit)
{
    return p->state[sizeof(state_header) + unit / 8] >> (unit % 8) & 1;
}

void mf_hub_partial_mark(mf_hub_partial *p, uint64_t unit)
{
    if (mf_hub_partial_has(p, unit))
        return;
    uint8_t *byte = &p->state[sizeof(state_header) + unit / 8];
    *byte = (uint8_t)(*byte | 1u << (unit % 8));
    p->n_units_done++;
}

void mf_hub_partial_reset(mf_hub_partial *p)
{
    state_header header = {.n_bytes = p->n_bytes, .unit_bytes = MF_HUB_UNIT_BYTES};
    memset(p->state, 0, p->n_state_bytes);
    memcpy(header.magic, magic, sizeof magic);
    memcpy(p->state, &header, sizeof header);
    p->n_units_done = 0;
}

/* The blocks are taken now, so that a full drive shows before anything is fetched; where the file
 * system cannot, the size alone is set. */
static bool reserve(mf_hub_partial *p, mf_error *error)
{
    const off_t size = (off_t)p->n_bytes;
    if (size > 0 && fallocate(p->fd, 0, 0, size) == 0)
        return true;
    if (size > 0 && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR)
        return mf_hub_fail_os(error, errno, "%s: cannot reserve %llu bytes", p->path,
                              (unsigned long long)p->n_bytes);
    if (ftruncate(p->fd, size) != 0)
        return mf_hub_fail_os(error, errno, "%s: cannot set its size", p->path);
    return true;
}

static bool map_state(mf_hub_partial *p, bool *is_new, mf_error *error)
{
    struct stat st;
    const int fd = open(p->state_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return mf_hub_fail_os(error, errno, "%s: cannot open", p->state_path);
    bool good = fstat(fd, &st) == 0;
    *is_new = st.st_size != (off_t)p->n_state_bytes;
    if (good && *is_new)
        good = ftruncate(fd, 0) == 0 && ftruncate(fd, (off_t)p->n_state_bytes) == 0;
    if (good && *is_new) /* a hole in a mapping would be a signal on a full drive */
        good = fallocate(fd, 0, 0, (off_t)p->n_state_bytes) == 0 || errno == EOPNOTSUPP;
    void *map =
        good ? mmap(NULL, p->n_state_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    const int why = errno;
    close(fd);
    if (map == MAP_FAILED)
        return mf_hub_fail_os(error, why, "%s: cannot be used", p->state_path);
    p->state = map;
    return true;
}

bool mf_hub_partial_open(const char *dir, const mf_hub_file *file, mf_hub_partial *out,
                         mf_error *error)
{
    mf_hub_partial p = {.fd = -1, .direct_fd = -1};
    struct stat st;
    bool is_new = true;
    if (!paths(dir, file, &p))
        return mf_hub_fail(error, MF_ERR_ARGUMENT, "%s: the path is too long", dir);
    p.fd = open(p.path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (p.fd < 0)
        return mf_hub_fail_os(error, errno, "%s: cannot open", p.path);
    bool good = fstat(p.fd, &st) == 0 || mf_hub_fail_os(error, errno, "%s: cannot look", p.path);
    good = good && map_state(&p, &is_new, error);
    if (good && (is_new || st.st_size != (off_t)p.n_bytes || !is_state_of(&p, p.state))) {
        mf_hub_partial_reset(&p);
        good = reserve(&p, error);
        if (!good) {
            (void)unlink(p.path);
            (void)unlink(p.state_path);
        }
    }
    if (!good) {
        mf_hub_partial_close(&p);
        return false;
    }
    p.n_units_done = count_units(&p);
    *out = p;
    return true;
}

void mf_hub_partial_go_direct(mf_hub_partial *p)
{
    p->direct_fd = open(p->path, O_WRONLY | O_DIRECT | O_CLOEXEC | O_NOFOLLOW);
    /* nothing is to be in the page cache of what has not been written yet */
    (void)posix_fadvise(p->fd, 0, 0, POSIX_FADV_RANDOM);
}

void mf_hub_partial_close(mf_hub_partial *p)
{
    if (p->state)
        munmap(p->state, p->n_state_bytes);
    if (p->fd >= 0)
        close(p->fd);
    if (p->direct_fd >= 0)
        close(p->direct_fd);
    p->state = NULL;
    p->fd = p->direct_fd = -1;
}

bool mf_hub_partial_finish(mf_hub_partial *p, const char *blob_path, mf_error *error)
{
    if (fdatasync(p->fd) != 0)
        return mf_hub_fail_os(error, errno, "%s: cannot write", p->path);
    if (rename(p->path, blob_path) != 0)
        return mf_hub_fail_os(error, errno, "%s: cannot be renamed", p->path);
    (void)unlink(p->state_path);
    return true;
}

uint64_t mf_hub_partial_bytes(const char *dir, const mf_hub_file *file)
{
    mf_hub_partial p = {.fd = -1, .direct_fd = -1};
    struct stat st;
    uint64_t n_bytes = 0;
    if (!paths(dir, file, &p) || stat(p.path, &st) != 0 || st.st_size != (off_t)p.n_bytes)
        return 0;
    const int fd = open(p.state_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return 0;
    if (fstat(fd, &st) == 0 && st.st_size == (off_t)p.n_state_bytes) {
        void *map = mmap(NULL, p.n_state_bytes, PROT_READ, MAP_SHARED, fd, 0);
        p.state = map == MAP_FAILED ? NULL : map;
    }
    close(fd);
    if (p.state && is_state_of(&p, p.state))
        n_bytes = count_units(&p) * MF_HUB_UNIT_BYTES;
    mf_hub_partial_close(&p);
    return n_bytes < file->n_bytes ? n_bytes : file->n_bytes;
}

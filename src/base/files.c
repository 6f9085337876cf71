/* SPDX-License-Identifier: MIT */
/* Descriptors above the standard ones, temporary files that are locked, writes without signals,
 * calls that were cut short. */
#include "base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ASIDE_NAMES 1024u /* that are tried */

int mf_open_apart(int dir_fd, const char *name, int flags, unsigned mode)
{
    int fd = openat(dir_fd, name, flags | O_CLOEXEC, mode);
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int apart = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    int failure = errno;
    close(fd);
    errno = failure;
    return apart;
}

/* Whether the name still means the open file: nobody cleared it away before it was locked. */
static bool is_still(int dir_fd, const char *name, int fd)
{
    struct stat by_name, by_fd;
    return fstatat(dir_fd, name, &by_name, AT_SYMLINK_NOFOLLOW) == 0 && fstat(fd, &by_fd) == 0 &&
           by_name.st_ino == by_fd.st_ino && by_name.st_dev == by_fd.st_dev;
}

bool mf_claim_made(int dir_fd, const char *name, int fd)
{
    int failure;
    do {
        failure = flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    } while (failure == EINTR);
    return failure != EWOULDBLOCK && is_still(dir_fd, name, fd);
}

void mf_remove_if_left(int dir_fd, const char *name)
{
    const int fd = mf_open_apart(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    struct stat st;
    if (fd < 0)
        return;
    /* by then the name may mean another one, which is being written */
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        is_still(dir_fd, name, fd))
        (void)unlinkat(dir_fd, name, 0);
    close(fd);
}

int mf_make_aside(int dir_fd, const char *front, const char *back, unsigned mode, char *aside,
                  size_t n_chars)
{
    for (uint64_t n = 0; n < ASIDE_NAMES; n++) {
        const uint64_t number = n << 32 | (uint32_t)getpid();
        const int n_needed = snprintf(aside, n_chars, "%s%" PRIx64 "%s", front, number, back);
        if (n_needed < 0 || (size_t)n_needed >= n_chars) {
            errno = ENAMETOOLONG;
            return -1;
        }
        mf_remove_if_left(dir_fd, aside); /* by a process of the same number that was killed */
        const int fd = mf_open_apart(dir_fd, aside, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
        if (fd < 0 && errno != EEXIST)
            return fd;
        if (fd >= 0 && mf_claim_made(dir_fd, aside, fd))
            return fd;
        if (fd >= 0) /* somebody took it for one that was left, and removes it */
            close(fd);
    }
    errno = EEXIST;
    return -1;
}

static const int guarded[] = {SIGXFSZ, SIGPIPE};
#define N_GUARDED (sizeof guarded / sizeof *guarded)

void mf_write_guard_begin(mf_write_guard *guard)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < N_GUARDED; i++)
        sigaddset(&set, guarded[i]);
    pthread_sigmask(SIG_BLOCK, &set, &guard->mask);
    sigpending(&guard->pending);
}

/* Such a signal is sent to the thread that writes, which takes it here unless one was waiting
 * before. */
void mf_write_guard_end(const mf_write_guard *guard)
{
    static const struct timespec at_once = {0, 0};
    int failure = errno;
    sigset_t ours;
    sigemptyset(&ours);
    for (size_t i = 0; i < N_GUARDED; i++)
        if (sigismember(&guard->pending, guarded[i]) == 0)
            sigaddset(&ours, guarded[i]);
    int taken;
    do {
        taken = sigtimedwait(&ours, NULL, &at_once);
    } while (taken > 0 || (taken < 0 && errno == EINTR));
    pthread_sigmask(SIG_SETMASK, &guard->mask, NULL);
    errno = failure;
}

size_t mf_read_whole(int fd, void *to, size_t n_bytes, uint64_t at)
{
    unsigned char *out = to;
    for (size_t done = 0; done < n_bytes;) {
        const ssize_t n = pread(fd, out + done, n_bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n == 0 ? 0 : errno;
            return done;
        }
        done += (size_t)n;
    }
    return n_bytes;
}

mf_status mf_read_at(int fd, const char *path, void *to, size_t n_bytes, uint64_t at,
                     const char *inside, mf_error *error)
{
    const size_t n = mf_read_whole(fd, to, n_bytes, at);
    if (n == n_bytes)
        return MF_OK;
    const unsigned long long end = at + n;
    return errno != 0
               ? mf_fail_os(error, MF_ERR_IO, errno, "%s: read failed at byte %llu", path, end)
               : mf_fail_at(error, MF_ERR_FORMAT, end, "%s: file ends at byte %llu%s", path, end,
                            inside);
}

size_t mf_write_whole(int fd, const void *from, size_t n_bytes)
{
    const unsigned char *bytes = from;
    size_t done = 0;
    mf_write_guard guard;
    mf_write_guard_begin(&guard);
    while (done < n_bytes) {
        const ssize_t n = write(fd, bytes + done, n_bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n == 0 ? EIO : errno;
            break;
        }
        done += (size_t)n;
    }
    mf_write_guard_end(&guard);
    return done;
}

/* SPDX-License-Identifier: MIT */
/* Descriptors above the standard ones, writes without signals. */
#include "base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

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

/* SPDX-License-Identifier: MIT */
/* Files without harm to the program that the library is part of: its standard streams, which it may
 * have closed, and the signals that a failed write brings. */
#ifndef MF_BASE_FILES_H
#define MF_BASE_FILES_H

#include <signal.h>
#include <stdbool.h>

/* openat, close-on-exec, and never one of the descriptors 0 to 2: what the program prints must not
 * end up in a file of ours. -1 with errno. */
int mf_open_apart(int dir_fd, const char *name, int flags, unsigned mode);

/* Locks a temporary file that was just made, for as long as fd is open: whoever clears away what
 * killed processes left takes files for theirs that have no lock. False: somebody took this one for
 * that, and another is to be made. Where there are no locks, nobody does. */
bool mf_claim_made(int dir_fd, const char *name, int fd);

/* Between begin and end a write beyond the limit on file sizes (SIGXFSZ) or into a pipe that nobody
 * reads (SIGPIPE) fails, and sends the calling thread no signal. end leaves errno as it is. */
typedef struct mf_write_guard {
    sigset_t mask, pending; /* before */
} mf_write_guard;

void mf_write_guard_begin(mf_write_guard *guard);
void mf_write_guard_end(const mf_write_guard *guard);

#endif

/* SPDX-License-Identifier: MIT */
/* Files without harm to the program that the library is part of: its standard streams, which it may
 * have closed, and the signals that a failed write brings. Reads and writes of all that is asked
 * for, in however many calls. */
#ifndef MF_BASE_FILES_H
#define MF_BASE_FILES_H

#include "base/status.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* openat, close-on-exec, and never one of the descriptors 0 to 2: what the program prints must not
 * end up in a file of ours. -1 with errno. */
int mf_open_apart(int dir_fd, const char *name, int flags, unsigned mode);

/* Locks a temporary file that was just made, for as long as fd is open: whoever clears away what
 * killed processes left takes files for theirs that have no lock. False: somebody took this one for
 * that, and another is to be made. Where there are no locks, nobody does. */
bool mf_claim_made(int dir_fd, const char *name, int fd);

/* A file to be written aside and then renamed: made and claimed, under FRONT, a number in
 * hexadecimal digits, BACK, where nobody else is writing: another engine of this process, or a
 * process of the same number in another container that shares the folder, may be. The number is the
 * process's, plus multiples of 2^32 while others write under that; what a killed process left there
 * is removed. aside: the name. A descriptor, open for reading and writing; -1 with errno. */
int mf_make_aside(int dir_fd, const char *front, const char *back, unsigned mode, char *aside,
                  size_t n_chars);

/* Removes the file if nobody writes it any more; where there are no locks, none counts as left. */
void mf_remove_if_left(int dir_fd, const char *name);

/* Between begin and end a write beyond the limit on file sizes (SIGXFSZ) or into a pipe that nobody
 * reads (SIGPIPE) fails, and sends the calling thread no signal. end leaves errno as it is. */
typedef struct mf_write_guard {
    sigset_t mask, pending; /* before */
} mf_write_guard;

void mf_write_guard_begin(mf_write_guard *guard);
void mf_write_guard_end(const mf_write_guard *guard);

/* Returns how many of the n_bytes from offset `at` on came: fewer with errno where reading failed,
 * and with errno 0 where the file ends. */
size_t mf_read_whole(int fd, void *to, size_t n_bytes, uint64_t at);
/* The same, as a status: MF_ERR_IO, or MF_ERR_FORMAT "PATH: file ends at byte N", then `inside`. */
mf_status mf_read_at(int fd, const char *path, void *to, size_t n_bytes, uint64_t at,
                     const char *inside, mf_error *error);
/* At the descriptor's position, within a guard of its own. Returns how many of the n_bytes were
 * written: fewer with errno. */
size_t mf_write_whole(int fd, const void *from, size_t n_bytes);

#endif

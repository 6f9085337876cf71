/* SPDX-License-Identifier: MIT */
/* Files to measure a drive's reads with. */
#ifndef MF_CLI_MACHINE_FILE_H
#define MF_CLI_MACHINE_FILE_H

#include <stdint.h>

#define MF_CLI_FILE_BYTES ((uint64_t)256 << 20) /* of one that is made */
#define MF_CLI_FILE_UNIT 4096                   /* what direct reads are aligned to */

/* A file without a name in the folder dir (or the nearest above it that exists), of
 * MF_CLI_FILE_BYTES that no drive compresses, written to the drive, open for direct reads. -1:
 * there is none, or it cannot be read directly. *cached (unless NULL) is the same file open for
 * reads through the page cache, which holds none of it as far as the system obeys; -1: none. */
int mf_cli_open_made(const char *dir, int *cached);
/* The model's largest file, open for direct reads, if it is large enough to be read here and there;
 * else -1. *n_bytes: its size, in whole units. */
int mf_cli_open_largest(const char *model, uint64_t *n_bytes);

#endif

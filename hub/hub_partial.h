/* SPDX-License-Identifier: MIT */
/*
 * A file that is not all there: its bytes at their places, and beside it which units of 1 MiB have
 * come. Both outlive the program, however it ends. Only one program at a time may have a
 * repository's (hub_store.h has the lock).
 */
#ifndef MF_HUB_PARTIAL_H
#define MF_HUB_PARTIAL_H

#include "hub_pull.h"

#define MF_HUB_UNIT_BYTES ((uint64_t)1 << 20)

typedef struct mf_hub_partial {
    char path[MF_HUB_PATH_CHARS], state_path[MF_HUB_PATH_CHARS];
    int fd;        /* -1: not open */
    int direct_fd; /* the same file past the page cache, to be written; -1: not to be had */
    uint64_t n_bytes, n_units, n_units_done;
    uint8_t *state; /* mapped: the header, then a bit for each unit */
    size_t n_state_bytes;
} mf_hub_partial;

/* Opens or begins blobs_dir/blob's. Takes the whole file's space of the drive. */
bool mf_hub_partial_open(const char *blobs_dir, const mf_hub_file *file, mf_hub_partial *out,
                         mf_error *error);
/* Whole units may be written past the page cache from now on, where the file system can. */
void mf_hub_partial_go_direct(mf_hub_partial *partial);
/* What is there stays. Takes one that was not opened. */
void mf_hub_partial_close(mf_hub_partial *partial);
bool mf_hub_partial_has(const mf_hub_partial *partial, uint64_t unit);
void mf_hub_partial_mark(mf_hub_partial *partial, uint64_t unit);
/* Nothing of it is believed any more. */
void mf_hub_partial_reset(mf_hub_partial *partial);
/* It is whole: it becomes blobs_dir/blob. */
bool mf_hub_partial_finish(mf_hub_partial *partial, const char *blob_path, mf_error *error);
/* Bytes that blobs_dir has of the file already, without opening anything for writing. */
uint64_t mf_hub_partial_bytes(const char *blobs_dir, const mf_hub_file *file);

static inline uint64_t mf_hub_units(uint64_t n_bytes)
{
    return (n_bytes + MF_HUB_UNIT_BYTES - 1) / MF_HUB_UNIT_BYTES;
}

#endif

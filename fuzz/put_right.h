/* SPDX-License-Identifier: MIT */
/* Gives damaged snapshots right checksums, so that what lies behind them is reached too. */
#ifndef MF_FUZZ_PUT_RIGHT_H
#define MF_FUZZ_PUT_RIGHT_H

#include "state/snapshot_format.h"

#include <stdlib.h>
#include <string.h>

/* A copy of the input, which may then be written to; the caller frees it. */
static inline uint8_t *copy_of(const uint8_t *data, size_t n_bytes)
{
    uint8_t *copy = malloc(n_bytes + 1);
    if (copy == NULL)
        abort();
    if (n_bytes > 0)
        memcpy(copy, data, n_bytes);
    return copy;
}

/* The beginning, and the checksums of header and head as far as the sizes in it reach. */
static inline void put_head_right(uint8_t *data, size_t n_bytes)
{
    uint64_t n_tokens, sum;
    uint32_t n_marks;
    if (n_bytes < MF_SNAPSHOT_HEADER_BYTES)
        return;
    memcpy(data, "MFSTATE\n\2\0\0\0\200\0\0\0", 16);
    sum = mf_checksum_of(data, 120, 0);
    memcpy(data + 120, &sum, 8);
    memcpy(&n_tokens, data + 48, 8);
    memcpy(&n_marks, data + 104, 4);
    if (n_tokens > n_bytes || mf_snapshot_head_bytes(n_tokens, n_marks) > n_bytes)
        return;
    size_t n_head = (size_t)mf_snapshot_head_bytes(n_tokens, n_marks);
    sum = mf_checksum_of(data, n_head - 8, 0);
    memcpy(data + n_head - 8, &sum, 8);
}

#endif

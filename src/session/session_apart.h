/* SPDX-License-Identifier: MIT */
/*
 * A chunk of few sequences with a token each, on a device that has a row's operations in few pieces
 * of their own and chooses experts itself: two rows one after the other may take less time than
 * both together. Each is a pass then, recorded while the device does the one before it. The bits
 * are the same; which way is sooner is measured.
 */
#ifndef MF_SESSION_SESSION_APART_H
#define MF_SESSION_SESSION_APART_H

#include "forward/split.h"

struct mf_call;

/* With more rows each weight is read once for enough of them. */
#define MF_APART_MOST 3u

typedef struct mf_apart {
    mf_split_profit profit[MF_APART_MOST - 1]; /* of 2 rows, and more */
    uint64_t n_chunks;                         /* whose rows went apart, ever */
} mf_apart;

typedef struct mf_apart_chunk {
    bool is_on;                /* its rows go apart */
    mf_split_profit *measured; /* NULL: that is no question */
    uint64_t began_us;
} mf_apart_chunk;

mf_apart_chunk mf_apart_begin(const struct mf_call *call, const mf_batch *batch);
void mf_apart_end(const struct mf_call *call, const mf_batch *batch, const mf_apart_chunk *chunk);

#endif

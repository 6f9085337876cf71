/* SPDX-License-Identifier: MIT */
/*
 * A backend that takes backend.h at its word and gives nothing beyond it: the CPU's kernels behind
 * device memory that the host cannot reach (its pages are protected except while work runs), with a
 * stream that runs nothing until a ticket is waited for, and then only up to it, in any order that
 * cannot be told apart, and says late that it is done. Destinations of reads, scratch, discarded
 * and new bytes hold NaN. What breaks the contract and can be seen here ends the program with a
 * line that says what it was.
 */
#ifndef MF_TESTS_STRICT_BACKEND_H
#define MF_TESTS_STRICT_BACKEND_H

#include "backend/backend.h"

typedef struct strict_options {
    uint64_t seed;         /* of the order and of the delays; 0: 1 */
    uint64_t memory_bytes; /* of the device; 0: any */
    bool runs_ahead;      /* work after the ticket waited for may run too, and is found done late */
    bool shares_memory;   /* the device works in the host's memory too: operands go there */
    uint64_t lost_at_run; /* the device is lost when work is run for the n-th time; 0: never */
} strict_options;

/* An mf_backend_open_fn; ctx: const strict_options *, copied, or NULL for all zero. */
mf_status strict_backend_open(void *ctx, const mf_backend_options *options, mf_backend **out,
                              mf_error *error);

typedef struct strict_stats {
    uint64_t n_runs;      /* times that work was run */
    uint64_t n_executed;  /* entries of the stream */
    uint64_t n_overtakes; /* of them, run before one that came earlier */
    uint64_t n_late;      /* times that done said no of what had run */
    uint64_t n_pending;
} strict_stats;

void strict_backend_stats(mf_backend *be, strict_stats *out);

/* Where a buffer of the device lies, for tests that touching it is fatal. */
unsigned char *strict_backend_peek(mf_backend *be, mf_buffer buffer);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * What an I/O engine implements: single reads, started in batches and reported once each. An engine
 * knows neither files nor requests; io.c continues what comes back short or interrupted, so that
 * every engine (and the fault-injecting one above all) goes through the same code.
 *
 * An engine is used by one thread at a time, though not always by the same one; a read must not
 * depend on the thread that submitted it, which may compute for long, sleep, or end.
 */
#ifndef MF_IO_IO_ENGINE_H
#define MF_IO_IO_ENGINE_H

#include "base/alloc.h"

/* One read. request is below the depth given at open, and unique among those in flight. */
typedef struct mf_io_op {
    uint64_t offset;
    unsigned char *dest;
    uint32_t n_bytes;
    uint32_t request;
    uint32_t lane; /* below what set_lanes said: reads of one lane must not keep others' waiting */
    int fd;
} mf_io_op;

typedef struct mf_io_result {
    uint32_t request;
    int32_t n_read; /* bytes, possibly fewer than asked for; or a negated errno */
} mf_io_result;

typedef struct mf_io_engine {
    const char *name;
    /* arg is mf_io_options.engine_arg. No allocation after this. MF_ERR_UNSUPPORTED: not on this
     * machine. */
    mf_status (*open)(const mf_allocator *allocator, uint32_t depth, void *arg, void **state,
                      mf_error *error);
    /* Nothing is in flight, unless the engine itself failed. Takes NULL. */
    void (*close)(void *state);
    /* Starts n reads, all of them: the caller never has more than the depth in flight. */
    mf_status (*submit)(void *state, const mf_io_op *ops, uint32_t n, mf_error *error);
    /* Reports up to max finished reads (max >= 1), each once. Called only with reads in flight;
     * with wait, *n is at least 1. */
    mf_status (*collect)(void *state, bool wait, mf_io_result *out, uint32_t max, uint32_t *n,
                         mf_error *error);
    /* How many lanes there are, 1 before. Nothing is in flight. NULL: reads never wait for each
     * other. */
    void (*set_lanes)(void *state, uint32_t n_lanes);
    /* After a failure: returns when no read can write any more; none is in flight then. */
    mf_status (*reset)(void *state, mf_error *error);
    /* The time that its reads take is of this clock, in microseconds; NULL: of the machine's. */
    uint64_t (*now_us)(void *state);
    /* The file stays open for as long as the engine; nothing is in flight. And this memory, which
     * many reads go to, stays where it is and is all there; once at most. What the system offers to
     * make such reads cheaper is used, and nothing is lost where it offers nothing. NULL: nothing
     * is done. */
    void (*hold_file)(void *state, int fd);
    void (*hold_memory)(void *state, unsigned char *memory, uint64_t n_bytes);
    /* System calls made for reads, ever; NULL: not known. */
    uint64_t (*n_calls)(void *state);
} mf_io_engine;

extern const mf_io_engine mf_io_engine_pool;
#ifdef MF_HAVE_URING
extern const mf_io_engine mf_io_engine_uring;
#endif

#endif

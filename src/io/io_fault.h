/* SPDX-License-Identifier: MIT */
/*
 * An I/O engine that breaks another one's reads by a script, for tests: interruptions, short reads,
 * errors, delays, completions out of order, a drive that hangs, an engine that breaks; all decided
 * by a seeded generator and counters.
 * Not part of the library.
 *
 * Pass &mf_io_engine_fault as mf_io_options.engine and an mf_io_fault as engine_arg. The test owns
 * the struct, may change the script between calls, and keeps it alive until mf_io_close.
 */
#ifndef MF_IO_IO_FAULT_H
#define MF_IO_IO_FAULT_H

#include "io/io_engine.h"

typedef struct mf_io_fault {
    const mf_io_engine *inner;
    uint64_t seed;

    /* The script: chances out of 1000 for each read. All zero: nothing is broken. */
    uint32_t short_chance;     /* a part of the bytes arrives; those behind it are spoiled */
    uint32_t interrupt_chance; /* an error that passes instead of the read ... */
    uint32_t interrupt_each;   /* ... and that so many times before each read */
    int interrupt_errno;       /* 0: EINTR */
    uint32_t hold_chance;      /* the result is held back until nothing else can be reported */
    uint32_t shuffle;          /* non-zero: held results leave in random order, else the oldest */
    uint64_t fail_from;        /* reads from the n-th on (of n_reads, counted from 1) fail ... */
    uint64_t fail_count;       /* ... this many of them, with */
    int fail_errno;            /* this (0: none fail) */
    uint64_t fail_offset; /* with fail_at_offset: a read that covers this byte of a file fails */
    bool fail_at_offset;
    uint32_t fail_lanes; /* by bit: reads of these lanes fail with fail_errno */
    uint32_t slow_lanes; /* by bit: reads of these lanes do not come back while it is set */
    uint64_t break_at;   /* the n-th call of submit and collect, counted from 1, fails as such */
    bool reset_fails;

    /* What happened. */
    uint64_t n_reads, n_short, n_interrupted, n_held, n_failed, n_calls, n_resets;
    int last_fd; /* that was read from */
} mf_io_fault;

extern const mf_io_engine mf_io_engine_fault;

#endif

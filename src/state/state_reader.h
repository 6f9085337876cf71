/* SPDX-License-Identifier: MIT */
/*
 * Reads a file from its beginning at the drive's speed: direct I/O, several requests in flight,
 * into a ring of buffers from which the caller's bytes are copied.
 */
#ifndef MF_STATE_STATE_READER_H
#define MF_STATE_STATE_READER_H

#include "io/io.h"
#include "state/byte_stream.h"

/* 4 MiB in all: enough to keep a drive busy, little enough to be held for good. */
#define MF_READER_SLOTS 8
#define MF_READER_SLOT_BYTES ((uint32_t)512 << 10)

typedef struct mf_reader_slot {
    uint64_t offset;
    uint32_t n_bytes, n_needed;
    bool is_used, is_done;
    mf_io_done done;
} mf_reader_slot;

typedef struct mf_state_reader {
    mf_byte_source source; /* first: what the readers of the format see */
    mf_allocator allocator;
    mf_region buffers;
    mf_io *io;
    uint64_t file_bytes, end; /* end: nothing beyond is asked for */
    uint64_t at, next;        /* of the caller's next byte; of the next request */
    uint64_t gap, gap_end;    /* bytes that are passed over */
    uint32_t first;           /* slot that holds `at` */
    mf_reader_slot slots[MF_READER_SLOTS];
} mf_state_reader;

/* Takes and touches the buffers; reads nothing. */
mf_status mf_state_reader_init(mf_state_reader *r, const mf_allocator *a, mf_error *error);
void mf_state_reader_free(mf_state_reader *r);

/* engine NULL: the best there is. end: see mf_state_reader_extend. */
mf_status mf_state_reader_open(mf_state_reader *r, const char *path, uint64_t end,
                               const struct mf_io_engine *engine, void *engine_arg,
                               mf_error *error);
/* Waits for what is in flight. */
void mf_state_reader_close(mf_state_reader *r);

/* Bytes up to `end` will be wanted; reading ahead goes as far, and r->source not beyond. */
void mf_state_reader_extend(mf_state_reader *r, uint64_t end);
/* The bytes from..to are passed over: after `from` r->source goes on at `to`. Before anything
 * beyond `from` was wanted; one gap a file. */
void mf_state_reader_skip(mf_state_reader *r, uint64_t from, uint64_t to);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The store on disk: a directory of snapshots, found by the tokens they hold. It knows the snapshot
 * format's head, not what the parts mean. All of a store may be used from several threads; it is
 * shared with other processes through the directory alone. HASH is 32 hexadecimal digits:
 *
 *   HASH.mfstate                an entry: a snapshot and its number of hits; last written or used
 *                               at its mtime
 *   tmp-HASH-PID-N.mfstate      an entry being written; its writer holds a lock on it
 *   bad-HASH.mfstate            an entry found damaged
 *   lock                        locked while room is made and taken
 *
 * Files of other names, or that do not begin as snapshots do, are not the store's: they are neither
 * read nor changed nor counted.
 */
#ifndef MF_STATE_STATE_STORE_H
#define MF_STATE_STATE_STORE_H

#include "state/snapshot_format.h"
#include "state/state_reader.h"

/* mf_store_open with the I/O engine that reads entries given (NULL: the best there is); for tests
 * that inject faults. */
mf_status mf_store_open_with_io(const char *directory, const mf_store_options *options,
                                const struct mf_io_engine *engine, void *engine_arg, mf_store **out,
                                mf_error *error);

/* Shorter states are not worth an entry. */
uint64_t mf_store_min_tokens(const mf_store *store);
uint64_t mf_store_max_bytes(const mf_store *store);

/* Does the store have these tokens' state, exactly? */
bool mf_store_has(mf_store *store, const mf_snapshot_key *key, const int32_t *tokens,
                  size_t n_tokens);

/* Writes the head and all parts of a snapshot to the sink. */
typedef mf_status (*mf_store_write_fn)(void *ctx, mf_byte_sink *sink, mf_error *error);

/* What is to be stored: a snapshot of n_bytes that `write` writes. */
typedef struct mf_store_addition {
    const mf_snapshot_key *key;
    const int32_t *tokens;
    size_t n_tokens;
    uint64_t n_bytes;
    mf_store_write_fn write;
    void *ctx;
} mf_store_addition;

/* Adds an entry, evicting others where the limit or a full disk asks for it; does nothing if there
 * is one of these tokens. On failure the store is as it was, evictions apart. */
mf_status mf_store_add(mf_store *store, const mf_store_addition *addition, mf_error *error);

#define MF_STORE_NAME_CHARS 48

/* What a lookup found. */
typedef struct mf_store_match {
    char name[MF_STORE_NAME_CHARS];
    size_t n_tokens; /* of the entry */
    size_t n_common; /* of them shared with the query */
    uint32_t n_marks;
    uint64_t state_end; /* its bytes without the marks' states */
    bool has_logits;
} mf_store_match;

/* What is looked for. */
typedef struct mf_store_query {
    const mf_snapshot_key *key;
    const int32_t *tokens;
    size_t n_tokens;
    size_t n_least; /* only an entry that shares more than these is worth it */
    bool whole;     /* n_common is to be all of the entry's tokens or one of its marks, */
    /* or, where this is not NULL and says so, any that an entry of n_tokens goes back to */
    bool (*reaches)(const void *ctx, uint64_t n_tokens, uint64_t n_common);
    const void *ctx;
} mf_store_query;

/* The entry that shares the most; false: there is none. Counts as a lookup. */
bool mf_store_find(mf_store *store, const mf_store_query *query, mf_store_match *out);

/* One entry is read at a time: begin waits for its turn, and on MF_OK end must follow. The source
 * gives the snapshot from its beginning; extend the reader to what is to be read beyond the head.
 */
mf_status mf_store_read_begin(mf_store *store, const mf_store_match *match, mf_state_reader **out,
                              mf_error *error);
/* status: what came of it. MF_OK is a hit; MF_ERR_FORMAT sets the entry aside. */
void mf_store_read_end(mf_store *store, const mf_store_match *match, mf_status status);

#endif

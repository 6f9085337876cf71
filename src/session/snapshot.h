/* SPDX-License-Identifier: MIT */
/* States as bytes: what snapshots and the store on disk share. */
#ifndef MF_SESSION_SNAPSHOT_H
#define MF_SESSION_SNAPSHOT_H

#include "session/session_state.h"
#include "state/snapshot_format.h"

/* Which states are those of this engine's model, cache type and order of summing. Computed when it
 * is asked for first, for which a few KiB of every expert are read: MF_ERR_IO, MF_ERR_FORMAT (a
 * file was cut short), MF_ERR_NO_MEMORY; MF_ERR_UNSUPPORTED on a backend that has no number. */
mf_status mf_engine_snapshot_key(mf_engine *engine, mf_snapshot_key *out, mf_error *error);

/* What the head of a snapshot of this many tokens and marks says, but for the key and the
 * positions, which are the caller's to fill in. */
mf_snapshot_head mf_snapshot_head_of(const mf_engine *engine, uint64_t n_tokens, bool has_logits,
                                     uint32_t n_marks);

/* The whole snapshot, with the logits and marks that the state has. */
mf_status mf_snapshot_write(const mf_state *state, mf_byte_sink *sink, mf_error *error);

/* MF_ERR_UNSUPPORTED: of another model or cache type. MF_ERR_FORMAT: sizes that such a state does
 * not have. */
mf_status mf_snapshot_check(mf_engine *engine, const mf_snapshot_head *head, mf_error *error);

/* The tokens of a snapshot whose header has been read and checked: [head->n_tokens], to be given
 * back to mf_snapshot_free_tokens. */
mf_status mf_snapshot_load_tokens(mf_engine *engine, mf_snapshot_head *head, mf_byte_source *source,
                                  int32_t **out, mf_error *error);
void mf_snapshot_free_tokens(mf_engine *engine, const mf_snapshot_head *head, int32_t **tokens);

/* Which of a snapshot's bytes behind the head make its state after the first n_tokens: up to `end`
 * without gap..gap_end. MF_ERR_NOT_FOUND: a family with recurrent layers or windows, and neither
 * what the state after all tokens reaches back to nor a mark of it. */
typedef struct mf_snapshot_extent {
    uint64_t n_tokens;
    uint64_t gap, gap_end, end;
    uint32_t mark; /* its number, of those there are; n_marks: all tokens */
} mf_snapshot_extent;

mf_status mf_snapshot_find_extent(const mf_engine *engine, const mf_snapshot_head *head,
                                  uint64_t n_tokens, mf_snapshot_extent *out, mf_error *error);

/* A snapshot of which the head and the tokens have been read: its source is at their end. */
typedef struct mf_snapshot_body {
    const mf_snapshot_head *head;
    const int32_t *tokens;
    mf_byte_source *source; /* passes over the gap */
} mf_snapshot_body;

/* The state of that extent; with the snapshot's logits if it is of all tokens. */
mf_status mf_snapshot_read(mf_engine *engine, const mf_snapshot_body *body,
                           const mf_snapshot_extent *extent, mf_state **out, mf_error *error);

#endif

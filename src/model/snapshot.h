/* SPDX-License-Identifier: MIT */
/* States as bytes: what snapshots and the store on disk share. */
#ifndef MF_MODEL_SNAPSHOT_H
#define MF_MODEL_SNAPSHOT_H

#include "model/session_state.h"
#include "state/snapshot_format.h"

/* Which states are those of this engine's model, cache type and order of summing. Computed once. */
const mf_snapshot_key *mf_engine_snapshot_key(mf_engine *engine);

/* What the head of a snapshot of this many tokens says. */
mf_snapshot_head mf_snapshot_head_of(mf_engine *engine, uint64_t n_tokens, bool has_logits);

/* The whole snapshot; its logits too where with_logits and the state has them. */
mf_status mf_snapshot_write(const mf_state *state, bool with_logits, mf_byte_sink *sink,
                            mf_error *error);

/* MF_ERR_UNSUPPORTED: of another model or cache type. MF_ERR_FORMAT: sizes that such a state does
 * not have. */
mf_status mf_snapshot_check(mf_engine *engine, const mf_snapshot_head *head, mf_error *error);

/* A state from a snapshot whose header has been read and checked. */
mf_status mf_snapshot_read(mf_engine *engine, mf_snapshot_head *head, mf_byte_source *source,
                           mf_state **out, mf_error *error);

/* The same of its first n_tokens alone, a multiple of a page; for families without recurrent
 * layers. */
mf_status mf_snapshot_read_pages(mf_engine *engine, mf_snapshot_head *head, uint64_t n_tokens,
                                 mf_byte_source *source, mf_state **out, mf_error *error);

#endif

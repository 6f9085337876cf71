/* SPDX-License-Identifier: MIT */
/*
 * Which session of the engine, or mark of one, holds the longest beginning of given tokens: a
 * prefix index over them all, brought up to date when it is asked. All under the engine's lock.
 */
#ifndef MF_SESSION_INDEX_H
#define MF_SESSION_INDEX_H

#include "session/session_state.h"

typedef struct mf_session_index mf_session_index;

/* The session (not `except`) and the position it can be held at, of the longest beginning of
 * tokens[n_tokens]; of all of them only where logits are known there. *position 0: none. A lack of
 * memory finds less. */
mf_session *mf_session_index_find(mf_engine *engine, const mf_session *except,
                                  const int32_t *tokens, size_t n_tokens, uint64_t *position);

/* The longest beginning of tokens[n_tokens] that the session can be held at; of all of them only
 * where logits are known there. */
uint64_t mf_session_usable(const mf_session *session, const int32_t *tokens, size_t n_tokens);

/* Takes NULL. */
void mf_session_index_free(mf_session_index **index);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Tokens evaluated ahead of the calls that bring them. Before a pass that evaluates one token of a
 * session, the layer that proposes names those that may follow, and all are rows of the pass. Only
 * the call's own token is committed; what the others left (logits, recurrent states, rows of pages
 * past the position) waits for the next call: a token that was named is committed without a pass,
 * any other drops all of it. So nothing depends on what is proposed but how often a pass is made.
 */
#ifndef MF_SESSION_SESSION_DRAFT_H
#define MF_SESSION_SESSION_DRAFT_H

#include "session/session_call.h"

/* Memory of a session, where the engine drafts. */
mf_status mf_draft_make(mf_session *session, mf_error *error);
void mf_draft_free(mf_session *session);
/* Where its cache lies: the part that no other open session has. */
void mf_draft_place(mf_session *session, uint32_t place);

/* What follows is for the holder of the turn. */

/* Whether tokens are proposed, as things are. */
bool mf_draft_is_on(const mf_engine *engine);

/* Commits tokens of the call that were evaluated ahead. */
void mf_draft_take_up(mf_call *call);
/* Adds proposals to the parts of a batch that was cut. Nothing that fails here fails the call. */
void mf_draft_propose(mf_call *call, mf_batch *batch);
/* The pass is done: the layer that proposes follows what was evaluated. */
void mf_draft_follow(mf_call *call, const mf_batch *batch);
/* What the pass cost, what it proposed, and what of that can be taken up; before it is committed.
 */
void mf_draft_count(mf_call *call, const mf_batch *batch);

/* What follows is under the state lock. */

/* Units for the states of a part's rows; the part is as it was before it was proposed to if there
 * are none. */
void mf_draft_prepare(mf_session *session, mf_batch *batch, mf_batch_part *part);
/* The part as it was cut, without proposals. */
void mf_draft_shrink(mf_session *session, mf_batch *batch, mf_batch_part *part);
/* The same of a part that was prepared, whose rows may be evaluated in part. */
void mf_draft_withdraw(mf_session *session, mf_batch *batch, mf_batch_part *part);
/* The first row of a part with proposals; the others wait. */
void mf_draft_commit(mf_session *session);
/* Gives back what was evaluated ahead, in the pass at hand too. */
void mf_draft_drop(mf_session *session);
/* The same, and the layer knows nothing of the session any more. */
void mf_draft_forget(mf_session *session);

#endif

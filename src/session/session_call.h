/* SPDX-License-Identifier: MIT */
/*
 * A call that evaluates: which sessions take part, what each still has to evaluate, and the one
 * chunk at a time that is made of it. A session is of at most one call, from mf_call_add to
 * mf_call_end; what would change it meanwhile is refused (mf_session_refuse).
 */
#ifndef MF_SESSION_SESSION_CALL_H
#define MF_SESSION_SESSION_CALL_H

#include "session/session.h"

typedef struct mf_call {
    mf_engine *engine;
    mf_session *first, *last; /* linked by session.part, in the caller's order */
    size_t n_sessions;
    uint64_t n_done, n_total; /* tokens, of all sessions; for progress */
    /* What its chunks cost, of one session alone, by the rates of its beginning; all 0: tokens
     * count alike. */
    double cost, cost_done;
    mf_forecast_rates rates;
    mf_logits_fn each; /* of every token; the call has one session then. Or NULL */
    void *each_user;
    bool is_step;     /* one chunk, and whoever fails leaves the others alone */
    mf_status status; /* of the first part that failed */
    mf_error *error;  /* gets its line; may be NULL */
} mf_call;

/* The session's part of a call, of which `call` and `next` are not the caller's. Cancels that came
 * earlier are forgotten. Errors, nothing changed: MF_ERR_ARGUMENT (the session is in the call
 * already), MF_ERR_STATE (it is in another, or this is a callback of an evaluation). */
mf_status mf_call_add(mf_call *call, mf_session *session, mf_error *error);
/* All sessions leave. */
void mf_call_end(mf_call *call);

/* Gives the session tokens to evaluate, or fails its part: MF_ERR_CONTEXT, MF_ERR_ARGUMENT (an id
 * outside the vocabulary). */
void mf_call_set_tokens(mf_call *call, mf_session *session, const int32_t *tokens, size_t n_tokens);

/* True if a part that has not failed has tokens left. */
bool mf_call_is_open(const mf_call *call);
/* Waits for its turn and evaluates one chunk of all parts that are open. Parts that fail are out of
 * the call, the others go on; what became of them is in session.part. */
void mf_call_run_chunk(mf_call *call);
/* Marks that the session's settings ask for now. One that does not fit is left out. */
void mf_call_auto_mark(mf_session *session);
/* Chunks until all is done or a part has failed; call->status. */
mf_status mf_call_run(mf_call *call);

#endif

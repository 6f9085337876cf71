/* SPDX-License-Identifier: MIT */
/* A session: one sequence's state, and the evaluation of tokens appended to it. */
#ifndef MF_MODEL_SESSION_H
#define MF_MODEL_SESSION_H

#include "model/engine.h"

/* hidden: the residual stream after `layer`, [n_tokens, hidden_size]; valid during the call. */
typedef void (*mf_trace_fn)(void *user, uint32_t layer, uint64_t first_position, uint32_t n_tokens,
                            const float *hidden);

struct mf_session {
    mf_engine *engine;
    mf_buffer state;
    mf_layer_state *layers; /* [n_layers] */
    uint64_t position;
    float *logits; /* [n_vocab] of the last token */
    bool has_logits;
    bool is_broken; /* an evaluation failed half way */
    mf_progress_fn progress;
    void *progress_user;
    mf_trace_fn trace;
    void *trace_user;
};

/* Calls trace after every layer of every chunk; NULL stops it. For tests. */
void mf_session_set_trace(mf_session *session, mf_trace_fn trace, void *user);

/* Which logits a chunk gives. */
typedef enum mf_want { MF_WANT_NONE = 0, MF_WANT_LAST = 1, MF_WANT_ALL = 2 } mf_want;

/* One chunk of one or more sessions' tokens, at most plan.n_chunk rows; rows of a session are
 * adjacent. */
typedef struct mf_batch {
    const int32_t *tokens;
    uint32_t n_rows;
    mf_session **sessions;
    const uint32_t *n_rows_each;
    uint32_t n_sessions;
    mf_want want;
    mf_logits_fn each; /* with MF_WANT_ALL: called for every row */
    void *each_user;
    size_t first_index;   /* of the first row, as told to each */
    uint64_t done, total; /* units for progress: layers times rows */
} mf_batch;

/* Runs the layers over the batch and advances the sessions' positions. On failure the sessions'
 * state is undefined. */
mf_status mf_forward(mf_engine *engine, const mf_batch *batch, mf_error *error);

#endif

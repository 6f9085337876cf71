/* SPDX-License-Identifier: MIT */
/*
 * One chunk of one or more sequences' tokens, as the forward pass sees it: rows of tokens, where
 * their sequences keep what earlier tokens left behind, and whose logits are wanted. It knows no
 * sessions: who they belong to watches.
 */
#ifndef MF_FORWARD_BATCH_H
#define MF_FORWARD_BATCH_H

#include "backend/backend.h"

/* One sequence's rows of a chunk. */
typedef struct mf_batch_part {
    const int32_t *tokens; /* [n_rows] */
    uint32_t n_rows;
    uint64_t position; /* of the first row */
    /* Units of the pool, as mf_sequence's: each holds all layers without a window, or all with. */
    const mf_span *pages, *window_pages;
    mf_span state[2]; /* the recurrent state before (buffer id 0: all zero) and after */
    bool is_long;     /* of a long run (mf_op.is_long); these parts come first */
    float *logits;    /* [n_vocab], gets the last row's; NULL: they are not wanted */
    float *bounds;    /* [mf_finite_blocks(n_vocab)], gets the highest of each block; or NULL */
    /* Where both are, the bounds behind the logits, if the device may write there; buffer 0: it may
     * not. */
    mf_span shared_logits;
    /* The tokens after the first are proposals, any of which may turn out not to be next: logits
     * are [n_rows, n_vocab] and get every row's, without bounds, those of proposals whatever they
     * are, and the recurrent state after row i goes to states[i] (NULL: there is none). */
    bool is_proposed;
    const mf_span *states;
    float *hidden; /* [n_hidden, mf_draft_width], gets the last rows' states, or NULL */
    uint32_t n_hidden;
} mf_batch_part;

/* One token of a sequence, of which nothing but the last logits is wanted. */
static inline bool mf_batch_part_is_plain(const mf_batch_part *part)
{
    return part->n_rows == 1 && !part->is_long && !part->is_proposed && part->states == NULL &&
           part->logits != NULL && part->hidden == NULL;
}

/* Asked while the layers run. Each function may be NULL; anything but MF_OK ends the pass. */
typedef struct mf_batch_watch {
    void *ctx;
    /* Before each layer, and before experts are waited for. */
    mf_status (*check)(void *ctx, mf_error *error);
    /* After each layer, n_done of them so far. */
    mf_status (*progress)(void *ctx, uint32_t n_done, mf_error *error);
    /* The residual stream after `layer`, [n_rows, hidden_size]; valid during the call. */
    void (*trace)(void *ctx, uint32_t layer, const float *hidden);
    float *trace_rows; /* [n_rows, hidden_size], where it is put; used if trace is set */
    /* The logits of every row, in order: row `row` of the batch. Non-zero cancels. */
    int (*each)(void *ctx, uint32_t row, const float *logits);
    /* The i-th part of a batch of one token a sequence that will probably come next, of as many
     * sequences, but for the tokens. Its lists stay as they are until this batch is done. false:
     * none comes. */
    bool (*foresee)(void *ctx, uint32_t i, mf_batch_part *next);
} mf_batch_watch;

typedef struct mf_batch {
    const mf_batch_part *parts;
    uint32_t n_parts;
    uint32_t n_rows;   /* of all parts, at most plan.n_chunk */
    bool keeps_hidden; /* the rows' states stay for mf_forward_draft, and parts get theirs */
    const mf_batch_watch *watch;
} mf_batch;

#endif

/* SPDX-License-Identifier: MIT */
/* How well a model predicts tokens: the mean negative log-likelihood over windows. */
#ifndef MF_CLI_SCORE_H
#define MF_CLI_SCORE_H

#include "input.h"

typedef struct mf_cli_score {
    size_t n_vocab;        /* of the model: set before */
    size_t n_skipped;      /* the first of a window that are not scored: set before */
    const int32_t *window; /* the one being evaluated */
    size_t n_window;
    double sum_nll;
    size_t n_scored;
    size_t n_windows;
} mf_cli_score;

/* Windows of n_context tokens, each from the empty state; the first token of each is not predicted.
 * Prints the error; returns an exit code: MF_EXIT_INTERRUPTED where the session's progress callback
 * cancels. */
int mf_cli_score_windows(mf_session *session, const int32_t *tokens, size_t n_tokens,
                         size_t n_context, mf_cli_score *score);
/* At least two tokens of `file`, and none that the model has no logit for. */
int mf_cli_score_check(const char *model, const char *file, const mf_cli_ids *ids,
                       uint32_t n_vocab);

#endif

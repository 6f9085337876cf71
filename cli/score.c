/* SPDX-License-Identifier: MIT */
/* Scoring tokens by their logits. */
#include "score.h"

#include <inttypes.h>
#include <math.h>

/* An mf_logits_fn: scores the token after the one that gave these logits. */
static int on_logits(void *user, size_t token_index, const float *logits)
{
    mf_cli_score *s = user;
    if (token_index + 1 >= s->n_window || token_index + 1 < s->n_skipped)
        return 0;
    float max = logits[0];
    for (size_t i = 1; i < s->n_vocab; i++)
        max = logits[i] > max ? logits[i] : max;
    double sum = 0;
    for (size_t i = 0; i < s->n_vocab; i++)
        sum += exp((double)logits[i] - (double)max);
    s->sum_nll += log(sum) + (double)max - (double)logits[s->window[token_index + 1]];
    s->n_scored++;
    return 0;
}

int mf_cli_score_windows(mf_session *session, const int32_t *tokens, size_t n_tokens,
                         size_t n_context, mf_cli_score *s)
{
    mf_error error = {0};
    for (size_t at = 0; at + 1 < n_tokens; at += n_context) {
        s->window = tokens + at;
        s->n_window = n_tokens - at < n_context ? n_tokens - at : n_context;
        if (s->n_window < 2)
            break;
        mf_session_clear(session);
        mf_status status =
            mf_session_eval_each(session, s->window, s->n_window, on_logits, s, &error);
        if (status == MF_ERR_CANCELLED)
            return MF_EXIT_INTERRUPTED;
        if (status != MF_OK)
            return mf_cli_fail(status, &error);
        s->n_windows++;
    }
    return MF_EXIT_OK;
}

int mf_cli_score_check(const char *model, const char *file, const mf_cli_ids *ids, uint32_t n_vocab)
{
    if (ids->n_tokens < 2)
        return mf_cli_error("%s: has %zu tokens, perplexity needs two", file, ids->n_tokens);
    for (size_t i = 0; i < ids->n_tokens; i++)
        if (ids->tokens[i] < 0 || (uint32_t)ids->tokens[i] >= n_vocab)
            return mf_cli_error("%s: its tokenizer gives id %" PRId32
                                ", the model's vocabulary ends at %" PRIu32,
                                model, ids->tokens[i], n_vocab);
    return MF_EXIT_OK;
}

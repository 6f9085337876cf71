/* SPDX-License-Identifier: MIT */
/* Perplexity before and after. */
#include "convert_check.h"

#include "interrupt.h"
#include "score.h"

#include <math.h>
#include <stdlib.h>

/* Of a window, at most: what is compared need not remember more. */
#define WINDOW_TOKENS 1024u

/* sums: as mf_engine_sum_inputs, or NULL. */
static int score_model(const mf_cli_check *c, const char *model, const mf_cli_ids *ids,
                       double *sums, mf_cli_score *score)
{
    mf_engine_options options;
    mf_model_info info;
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_error error = {0};
    mf_engine_options_default(&options);
    options.packed_expert_bits = model == c->made ? 0 : c->packed_bits; /* of the source */
    options.n_threads = c->n_threads;
    mf_status status = mf_model_inspect(model, &options, &info, &error);
    if (status != MF_OK)
        return mf_cli_fail(status, &error);
    size_t n_context = ids->n_tokens < WINDOW_TOKENS ? ids->n_tokens : WINDOW_TOKENS;
    if (n_context > info.n_context_tokens_model)
        n_context = info.n_context_tokens_model;
    options.n_context_tokens = (uint32_t)n_context;
    int exit_code = mf_cli_score_check(model, c->file, ids, info.n_vocab);
    if (exit_code != MF_EXIT_OK)
        return exit_code;
    status = mf_engine_open(model, &options, &engine, &error);
    if (status == MF_OK)
        status = mf_session_create(engine, &session, &error);
    if (status == MF_OK && sums != NULL)
        status = mf_engine_sum_inputs(engine, sums, &error);
    *score = (mf_cli_score){.n_vocab = info.n_vocab};
    if (status == MF_OK) {
        mf_cli_interrupt_session(session);
        exit_code = mf_cli_score_windows(session, ids->tokens, ids->n_tokens, n_context, score);
    } else {
        exit_code = mf_cli_fail(status, &error);
    }
    mf_session_free(&session);
    mf_engine_close(&engine);
    return exit_code;
}

static int read_ids(const mf_cli_check *c, mf_cli_ids *ids)
{
    mf_tokenizer *tokenizer = NULL;
    mf_cli_buffer text = {0};
    mf_error error = {0};
    const mf_status status = mf_tokenizer_open(c->source, NULL, &tokenizer, &error);
    int exit_code = status == MF_OK ? MF_EXIT_OK : mf_cli_fail(status, &error);
    if (exit_code == MF_EXIT_OK)
        exit_code = mf_cli_read_file(c->file, MF_CLI_MAX_TEXT_BYTES, &text);
    if (exit_code == MF_EXIT_OK)
        exit_code = mf_cli_encode(tokenizer, text.data, text.n_bytes, false, ids);
    if (ids->n_tokens > c->n_tokens)
        ids->n_tokens = (size_t)c->n_tokens;
    mf_tokenizer_free(&tokenizer);
    mf_cli_buffer_free(&text);
    return exit_code;
}

int mf_cli_calibrate(const mf_cli_check *c, double **sums, uint64_t *n_sums)
{
    mf_cli_ids ids = {0};
    mf_cli_score score = {0};
    mf_model_info info;
    mf_error error = {0};
    const mf_status status = mf_model_inspect(c->source, NULL, &info, &error);
    if (status != MF_OK)
        return mf_cli_fail(status, &error);
    *n_sums = (uint64_t)info.n_moe_layers * info.hidden_size;
    *sums = calloc(*n_sums + 1, sizeof **sums);
    int exit_code = *sums != NULL ? read_ids(c, &ids) : mf_cli_error("no memory for calibration");
    if (exit_code == MF_EXIT_OK)
        exit_code = score_model(c, c->source, &ids, *sums, &score);
    free(ids.tokens);
    return exit_code;
}

int mf_cli_check_begin(mf_cli_check *c)
{
    mf_model_info info;
    mf_error error = {0};
    mf_engine_options options;
    mf_engine_options_default(&options);
    options.packed_expert_bits = c->packed_bits;
    const mf_status status = mf_model_inspect(c->source, &options, &info, &error);
    int exit_code = status == MF_OK ? read_ids(c, &c->ids) : mf_cli_fail(status, &error);
    if (exit_code == MF_EXIT_OK)
        exit_code = mf_cli_score_check(c->source, c->file, &c->ids, info.n_vocab);
    return exit_code;
}

int mf_cli_check_made(mf_cli_check *c)
{
    mf_cli_score before = {0}, after = {0};
    int exit_code = score_model(c, c->source, &c->ids, NULL, &before);
    if (exit_code == MF_EXIT_OK)
        exit_code = score_model(c, c->made, &c->ids, NULL, &after);
    if (exit_code == MF_EXIT_OK) {
        c->n_scored = before.n_scored;
        c->source_perplexity = exp(before.sum_nll / (double)before.n_scored);
        c->made_perplexity = exp(after.sum_nll / (double)after.n_scored);
    }
    return exit_code;
}

void mf_cli_check_end(mf_cli_check *c)
{
    free(c->ids.tokens);
    c->ids = (mf_cli_ids){0};
}

/* SPDX-License-Identifier: MIT */
/* The loop that makes an answer. answer_text.c shows it. */
#include "answer.h"

#include "answer_text.h"
#include "interrupt.h"
#include "terminal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Tokens of an answer that are evaluated at once. */
#define MAX_TOGETHER 32
/* Beside the reasons to stop. */
#define GOES_ON (-1)

void mf_cli_answer_free(mf_cli_answer *a)
{
    mf_cli_buffer *const buffers[] = {&a->raw, &a->tokens, &a->logprobs, &a->held};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        mf_cli_buffer_free(buffers[i]);
    mf_cli_message_free(&a->message);
    mf_reply_free(&a->reply);
}

/* ------------------------------------------------------------------------------------ tokens -- */

/* The sampler's choice, but for thoughts that took all their budget. */
static mf_status choose(mf_cli_generator *g, mf_cli_answer *a, int32_t *token, mf_error *error)
{
    const bool is_thought = mf_cli_answer_is_thinking(a);
    const bool is_too_long = is_thought && a->n_thought_tokens >= g->args->n_thought_max;
    mf_status status = mf_cli_guide_sample(&g->guide, g->sampler, g->session, token, error);
    if (!is_thought && a->n_closed == g->n_close_tokens)
        a->n_closed = 0; /* another thought is closed as well */
    if (status == MF_OK && (is_too_long || a->n_closed > 0) && a->n_closed < g->n_close_tokens)
        *token = g->close_tokens[a->n_closed++];
    return status;
}

/* Does the answer end before this token? */
static bool is_end(const mf_cli_generator *g, int32_t token)
{
    const bool is_guided = g->args->json_schema || g->args->grammar;
    bool is = mf_tokenizer_is_end(g->tokenizer, token) != 0;
    for (size_t i = 0; i < g->n_end_tokens; i++)
        is = is || g->end_tokens[i] == token;
    return is && (!g->args->ignore_end || is_guided);
}

static bool keep_logprobs(const mf_cli_generator *g, mf_cli_answer *a, int32_t token,
                          const float *logits)
{
    const size_t n = g->args->n_logprobs;
    mf_logprob all[MF_CLI_MAX_LOGPROBS + 1];
    if (!g->args->has_logprobs)
        return true;
    all[0].token = token;
    all[0].logprob = mf_logprob_of(logits, g->info.n_vocab, token, all + 1, n);
    return mf_cli_buffer_append(&a->logprobs, (const char *)all, (n + 1) * sizeof *all);
}

static bool keep_token(const mf_cli_generator *g, mf_cli_answer *a, int32_t token)
{
    size_t n_bytes = 0;
    const char *piece = mf_tokenizer_piece(g->tokenizer, token, &n_bytes);
    return mf_cli_buffer_append(&a->tokens, (const char *)&token, sizeof token) &&
           mf_cli_buffer_append(&a->raw, piece ? piece : "", piece ? n_bytes : 0);
}

/* An answer that nobody gets any more ends. */
static mf_cli_stop cannot_write(int error)
{
    mf_cli_error("standard output: cannot write: %s", strerror(error));
    return MF_STOP_ERROR;
}

static mf_cli_stop cannot_evaluate(mf_cli_generator *g, mf_status status, const mf_error *error)
{
    (void)mf_cli_answer_undim(g);
    if (isatty(STDOUT_FILENO) && !g->args->is_silent)
        (void)mf_cli_screen_write(&g->screen, "\n", 1);
    mf_cli_fail(status, error);
    return MF_STOP_ERROR;
}

/* Why the answer ends with a token that it has taken, n_new of which are not evaluated; GOES_ON. */
static int take_token(mf_cli_generator *g, mf_cli_answer *a, int32_t token, const float *logits,
                      size_t n_new)
{
    mf_error error = {0};
    mf_status status = mf_cli_guide_accept(&g->guide, token, &error);
    if (status != MF_OK)
        return (int)cannot_evaluate(g, status, &error);
    mf_sampler_accept(g->sampler, token);
    a->unevaluated = token;
    g->stats.n_generated++;
    if (!keep_token(g, a, token) || !keep_logprobs(g, a, token, logits))
        return (int)cannot_evaluate(g, MF_ERR_NO_MEMORY, NULL);
    int write_error = mf_cli_answer_take(g, a, token);
    if (write_error != 0)
        return (int)cannot_write(write_error);
    if (a->stopped_by)
        return MF_STOP_STRING;
    if (mf_cli_guide_is_done(&g->guide))
        return MF_STOP_END;
    if (a->tokens.n_bytes / sizeof token == g->args->n_max_tokens)
        return MF_STOP_LENGTH; /* its logits would be computed for nothing */
    return mf_cli_fits(g, mf_session_position(g->session) + n_new) ? GOES_ON : (int)MF_STOP_CONTEXT;
}

/* Is the mark that ends a thought being given? */
static bool is_closing(const mf_cli_generator *g, const mf_cli_answer *a)
{
    return a->n_closed > 0 && a->n_closed < g->n_close_tokens;
}

/* A token that is chosen, and those that a grammar forces behind it: taken, then evaluated at once,
 * as if all had been chosen. */
static int take_tokens(mf_cli_generator *g, mf_cli_answer *a, const float *logits)
{
    mf_error error = {0};
    int32_t token, tokens[MAX_TOGETHER];
    size_t n = 0;
    mf_status status = choose(g, a, &token, &error);
    if (status == MF_OK && is_end(g, token))
        return MF_STOP_END;
    while (status == MF_OK && token >= 0 && n < MAX_TOGETHER) {
        tokens[n++] = token;
        const int stop = take_token(g, a, token, logits, n);
        if (stop != GOES_ON)
            return stop;
        token = -1;
        if (n < MAX_TOGETHER && !g->args->has_logprobs && !is_closing(g, a))
            status = mf_cli_guide_forced(&g->guide, &token, &error);
        if (status == MF_OK && token >= 0) {
            mf_sampler_skip(g->sampler);
            g->stats.n_forced++;
        }
    }
    if (status == MF_OK)
        status = mf_session_eval(g->session, tokens, n, &error);
    a->unevaluated = -1;
    return status == MF_OK ? GOES_ON : (int)cannot_evaluate(g, status, &error);
}

/* The loop itself; mf_cli_answer_make takes the time around it. */
static mf_cli_stop generate(mf_cli_generator *g, mf_cli_answer *a)
{
    mf_error error = {0};
    int stop = GOES_ON;
    a->unevaluated = -1;
    mf_status status = mf_cli_answer_begin(g, a, &error);
    const char *thought_end = a->is_in_thought ? g->thought_end : NULL;
    if (status == MF_OK)
        status = mf_cli_guide_begin(&g->guide, g->info.n_vocab, thought_end, &error);
    if (status != MF_OK)
        return cannot_evaluate(g, status, &error);
    if (g->args->n_max_tokens == 0)
        return MF_STOP_LENGTH;
    while (stop == GOES_ON) {
        if (mf_cli_interrupted())
            return MF_STOP_INTERRUPTED;
        stop = take_tokens(g, a, mf_session_logits(g->session));
    }
    return (mf_cli_stop)stop;
}

mf_cli_stop mf_cli_answer_make(mf_cli_generator *g, mf_cli_answer *a)
{
    mf_stats before, after;
    mf_cli_say_seed(g);
    double started = mf_cli_now();
    mf_cli_silence silence;
    mf_engine_stats(g->engine, &before);
    mf_cli_silence_begin(&silence);
    a->stop = generate(g, a);
    mf_engine_stats(g->engine, &after);
    mf_cli_phase_add(&g->stats.decode, &before, &after, mf_cli_now() - started);
    int write_error = a->stop != MF_STOP_ERROR ? mf_cli_answer_end(g, a) : 0;
    if (write_error != 0)
        a->stop = cannot_write(write_error);
    mf_cli_silence_end(&silence);
    return a->stop;
}

/* ----------------------------------------------------------------------------------- results -- */

static void print_logprob(const mf_cli_generator *g, const mf_logprob *one)
{
    size_t n_bytes = 0;
    const char *piece = mf_tokenizer_piece(g->tokenizer, one->token, &n_bytes);
    mf_cli_json_quote(stderr, piece ? piece : "", piece ? n_bytes : 0);
    fprintf(stderr, " %.4f", (double)one->logprob);
}

void mf_cli_answer_print_logprobs(const mf_cli_generator *g, const mf_cli_answer *a)
{
    const mf_logprob *all = (const mf_logprob *)(const void *)a->logprobs.data;
    const size_t n_each = g->args->n_logprobs + 1, n = a->logprobs.n_bytes / sizeof *all / n_each;
    for (size_t i = 0; i < n; i++, all += n_each) {
        print_logprob(g, all);
        for (size_t k = 1; k < n_each && all[k].token >= 0; k++) {
            fputs(k == 1 ? "  of " : ", ", stderr);
            print_logprob(g, &all[k]);
        }
        fputc('\n', stderr);
    }
}

/* SPDX-License-Identifier: MIT */
/* The loop that makes an answer, and the way of its text to the screen. */
#include "answer.h"

#include "interrupt.h"
#include "terminal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What models put around their thoughts. */
#define THINK "<think>"
#define THINK_END "</think>"

void mf_cli_answer_free(mf_cli_answer *a)
{
    mf_cli_buffer *const buffers[] = {&a->raw, &a->tokens, &a->logprobs, &a->held};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        mf_cli_buffer_free(buffers[i]);
}

/* Is the token the tag that thoughts begin (or end) with? */
static bool is_tag(const mf_cli_generator *g, int32_t token, const char *tag)
{
    size_t n_bytes = 0;
    const char *piece = mf_tokenizer_piece(g->tokenizer, token, &n_bytes);
    return piece && n_bytes == strlen(tag) && memcmp(piece, tag, n_bytes) == 0;
}

/* Templates open a thought at the end of the prompt, or leave that to the model. */
static bool begins_in_thought(const mf_cli_generator *g)
{
    const int32_t *tokens = mf_session_tokens(g->session);
    for (size_t i = mf_session_position(g->session); i-- > 0;)
        if (is_tag(g, tokens[i], THINK) || is_tag(g, tokens[i], THINK_END))
            return is_tag(g, tokens[i], THINK);
    return false;
}

/* ----------------------------------------------------------------------------------------- text --
 */

/* 0 or an errno, as all below. */
static int put(mf_cli_generator *g, const char *text, size_t n_bytes)
{
    return g->args->is_silent || n_bytes == 0 ? 0 : mf_cli_screen_write(&g->screen, text, n_bytes);
}

static bool hides_thoughts(const mf_cli_generator *g)
{
    return g->args->thoughts == MF_THOUGHTS_HIDE;
}

/* Whoever waits for thoughts that are not shown sees that there are some; behind content the line
 * is not free. */
static void count_hidden(mf_cli_generator *g, mf_cli_answer *a)
{
    double now = mf_cli_now();
    if (g->args->is_silent || g->args->engine.verbosity.quiet || !isatty(STDERR_FILENO) ||
        a->has_shown || (a->has_counted && now - a->counted_at < 0.1))
        return;
    fprintf(stderr, "\rthinking, %zu tokens so far\033[K", a->n_thought_tokens);
    a->has_counted = true;
    a->counted_at = now;
}

static void end_count(mf_cli_answer *a)
{
    if (a->has_counted)
        fputs("\r\033[K", stderr);
    a->has_counted = false;
}

static int show_content(mf_cli_generator *g, mf_cli_answer *a, const char *text, size_t n_bytes)
{
    if (hides_thoughts(g) && a->n_thought_tokens > 0 && !a->has_shown) {
        size_t n_blank = 0; /* lines between them */
        while (n_blank < n_bytes && (text[n_blank] == '\r' || text[n_blank] == '\n'))
            n_blank++;
        text += n_blank;
        n_bytes -= n_blank;
    }
    if (n_bytes == 0)
        return 0;
    end_count(a);
    a->has_shown = true;
    return put(g, text, n_bytes);
}

/* Shows what no stop string can begin in. Where one is whole the answer ends before it, also the
 * raw one, unless special tokens stand within. */
static int pass_content(mf_cli_generator *g, mf_cli_answer *a, const char *text, size_t n_bytes)
{
    const mf_cli_generate_args *args = g->args;
    size_t found;
    if (args->n_stops == 0)
        return show_content(g, a, text, n_bytes);
    if (!mf_cli_buffer_append(&a->held, text, n_bytes))
        return ENOMEM;
    size_t n_free = mf_stop_find(a->held.data, a->held.n_bytes, args->stops, args->n_stops, &found);
    size_t n_left = a->held.n_bytes - n_free;
    int error = show_content(g, a, a->held.data, n_free);
    memmove(a->held.data, a->held.data + n_free, n_left + 1);
    a->held.n_bytes = n_left;
    if (found == args->n_stops)
        return error;
    a->stopped_by = args->stops[found];
    if (a->raw.n_bytes >= n_left &&
        memcmp(a->raw.data + a->raw.n_bytes - n_left, a->held.data, n_left) == 0) {
        a->raw.n_bytes -= n_left;
        a->raw.data[a->raw.n_bytes] = '\0';
    }
    mf_cli_buffer_clear(&a->held);
    return error;
}

/* What was held back is content. */
static int release_held(mf_cli_generator *g, mf_cli_answer *a)
{
    int error = a->held.n_bytes > 0 ? show_content(g, a, a->held.data, a->held.n_bytes) : 0;
    mf_cli_buffer_clear(&a->held);
    return error;
}

static int pass_thought(mf_cli_generator *g, mf_cli_answer *a, size_t n_bytes)
{
    int error = release_held(g, a);
    if (hides_thoughts(g)) {
        count_hidden(g, a);
        return error;
    }
    return error != 0 ? error : put(g, g->shown.data, n_bytes);
}

/* The characters that a token completes, into g->shown; token < 0: those held back. */
static int decode(mf_cli_generator *g, mf_cli_answer *a, int32_t token, size_t *n_bytes)
{
    size_t n_piece = 0;
    *n_bytes = 0;
    if (token >= 0 &&
        (mf_tokenizer_is_special(g->tokenizer, token) || mf_tokenizer_is_end(g->tokenizer, token) ||
         !mf_tokenizer_piece(g->tokenizer, token, &n_piece)))
        return 0;
    if (!mf_cli_buffer_reserve(&g->shown, 3 * n_piece + 12))
        return ENOMEM;
    if (mf_tokenizer_decode(g->tokenizer, &a->decoder, token, g->shown.data, g->shown.capacity,
                            n_bytes) != MF_OK)
        *n_bytes = 0;
    return 0;
}

static int dim(mf_cli_generator *g, bool is_dim)
{
    return g->args->thoughts == MF_THOUGHTS_DIM && !g->args->is_silent
               ? mf_cli_screen_dim(&g->screen, is_dim)
               : 0;
}

/* A token to where it belongs; the marks around thoughts are shown as they are. */
static int show_token(mf_cli_generator *g, mf_cli_answer *a, int32_t token)
{
    size_t n_bytes;
    int error = 0;
    if (is_tag(g, token, THINK)) {
        a->is_thinking = true;
        error = dim(g, true);
    }
    const bool is_thought = a->is_thinking, closes = is_thought && is_tag(g, token, THINK_END);
    a->n_thought_tokens += is_thought;
    if (error == 0)
        error = decode(g, a, token, &n_bytes);
    if (error != 0)
        return error;
    error = is_thought ? pass_thought(g, a, n_bytes) : pass_content(g, a, g->shown.data, n_bytes);
    if (closes) {
        a->is_thinking = false;
        if (error == 0)
            error = dim(g, false);
    }
    return error;
}

/* --------------------------------------------------------------------------------------- tokens --
 */

/* The sampler's choice, but for thoughts that took all their budget. */
static mf_status choose(mf_cli_generator *g, mf_cli_answer *a, const float *logits, int32_t *token,
                        mf_error *error)
{
    mf_status status = mf_cli_guide_sample(&g->guide, g->sampler, logits, token, error);
    const bool is_too_long = a->is_thinking && a->n_thought_tokens >= g->args->n_thought_max;
    if (status != MF_OK || !(is_too_long || a->n_closed > 0) || g->n_close_tokens == 0)
        return status;
    *token = g->close_tokens[a->n_closed++];
    if (a->n_closed == g->n_close_tokens)
        a->n_closed = 0;
    return MF_OK;
}

/* Does the answer end before this token? */
static bool is_end(const mf_cli_generator *g, int32_t token)
{
    const bool is_guided = g->args->json_schema || g->args->grammar;
    return mf_tokenizer_is_end(g->tokenizer, token) && (!g->args->ignore_end || is_guided);
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
    (void)dim(g, false);
    if (isatty(STDOUT_FILENO))
        (void)put(g, "\n", 1);
    mf_cli_fail(status, error);
    return MF_STOP_ERROR;
}

/* The loop itself; mf_cli_answer_make takes the time around it. */
static mf_cli_stop generate(mf_cli_generator *g, mf_cli_answer *a)
{
    mf_error error = {0};
    a->unevaluated = -1;
    const char *thought_end = a->is_thinking ? THINK_END : NULL;
    mf_status status = mf_cli_guide_begin(&g->guide, g->info.n_vocab, thought_end, &error);
    for (uint64_t n = 0; n < g->args->n_max_tokens && status == MF_OK; n++) {
        int32_t token;
        if (mf_cli_interrupted())
            return MF_STOP_INTERRUPTED;
        const float *logits = mf_session_logits(g->session);
        status = choose(g, a, logits, &token, &error);
        if (status == MF_OK && is_end(g, token))
            return MF_STOP_END;
        if (status == MF_OK)
            status = mf_cli_guide_accept(&g->guide, token, &error);
        if (status != MF_OK)
            break;
        mf_sampler_accept(g->sampler, token);
        a->unevaluated = token;
        g->stats.n_generated++;
        if (!keep_token(g, a, token) || !keep_logprobs(g, a, token, logits))
            return cannot_evaluate(g, MF_ERR_NO_MEMORY, NULL);
        int write_error = show_token(g, a, token);
        if (write_error != 0)
            return cannot_write(write_error);
        if (a->stopped_by)
            return MF_STOP_STRING;
        if (mf_cli_guide_is_done(&g->guide))
            return MF_STOP_END;
        if (n + 1 == g->args->n_max_tokens)
            return MF_STOP_LENGTH; /* its logits would be computed for nothing */
        if (!mf_cli_fits(g, mf_session_position(g->session) + 1))
            return MF_STOP_CONTEXT;
        status = mf_session_eval(g->session, &token, 1, &error);
        a->unevaluated = -1;
    }
    return status == MF_OK ? MF_STOP_LENGTH : cannot_evaluate(g, status, &error);
}

/* Nothing follows. */
static int end_text(mf_cli_generator *g, mf_cli_answer *a)
{
    size_t n_bytes = 0;
    int error = a->stopped_by ? 0 : decode(g, a, -1, &n_bytes);
    if (error == 0 && n_bytes > 0)
        error = a->is_thinking ? pass_thought(g, a, n_bytes)
                               : pass_content(g, a, g->shown.data, n_bytes);
    if (error == 0)
        error = release_held(g, a);
    if (error == 0)
        error = dim(g, false);
    return error == 0 ? put(g, "\n", 1) : error;
}

mf_cli_stop mf_cli_answer_make(mf_cli_generator *g, mf_cli_answer *a)
{
    mf_stats before, after;
    mf_cli_say_seed(g);
    double started = mf_cli_now();
    mf_cli_silence silence;
    mf_engine_stats(g->engine, &before);
    mf_cli_silence_begin(&silence);
    a->is_thinking = begins_in_thought(g);
    if (a->is_thinking)
        (void)dim(g, true);
    a->stop = generate(g, a);
    mf_engine_stats(g->engine, &after);
    mf_cli_phase_add(&g->stats.decode, &before, &after, mf_cli_now() - started);
    end_count(a);
    int write_error = a->stop != MF_STOP_ERROR ? end_text(g, a) : 0;
    if (write_error != 0)
        a->stop = cannot_write(write_error);
    mf_cli_silence_end(&silence);
    return a->stop;
}

/* -------------------------------------------------------------------------------------- results --
 */

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

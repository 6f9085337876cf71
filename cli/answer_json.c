/* SPDX-License-Identifier: MIT */
/* An answer as JSON. */
#include "answer_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_text(mf_cli_json *json, const char *key, const char *text, size_t n_bytes)
{
    mf_cli_json_key(json, key);
    mf_cli_json_quote(json->out, text, n_bytes);
}

/* ---------------------------------------------------------------------------------------- parts --
 */

typedef struct parts {
    mf_cli_buffer content, thoughts;
    mf_cli_buffer calls; /* objects of JSON, with commas */
    size_t n_calls;
} parts;

static bool append_text(mf_cli_buffer *out, const char *text)
{
    return mf_cli_buffer_append(out, text, strlen(text));
}

/* Names and ids of calls as JSON strings. */
static bool append_quoted(mf_cli_buffer *out, const char *text)
{
    char *quoted = NULL;
    size_t n_bytes = 0;
    FILE *stream = open_memstream(&quoted, &n_bytes);
    if (!stream)
        return false;
    mf_cli_json_quote(stream, text, strlen(text));
    bool is_good = fclose(stream) == 0 && mf_cli_buffer_append(out, quoted, n_bytes);
    free(quoted);
    return is_good;
}

/* Calls come whole, or as content. */
static bool take_event(const mf_reply_event *event, parts *p)
{
    mf_cli_buffer *calls = &p->calls;
    switch (event->kind) {
    case MF_REPLY_THOUGHT:
        return mf_cli_buffer_append(&p->thoughts, event->text, event->n_bytes);
    case MF_REPLY_CONTENT:
        return mf_cli_buffer_append(&p->content, event->text, event->n_bytes);
    case MF_REPLY_CALL:
        return append_text(calls, p->n_calls++ > 0 ? ", {\"id\": " : "{\"id\": ") &&
               append_quoted(calls, event->id) && append_text(calls, ", \"name\": ") &&
               append_quoted(calls, event->name) && append_text(calls, ", \"arguments\": ");
    case MF_REPLY_CALL_ARGUMENTS:
        return mf_cli_buffer_append(calls, event->text, event->n_bytes);
    case MF_REPLY_CALL_END:
    case MF_REPLY_CALL_BROKEN:
        return append_text(calls, "}");
    }
    return true;
}

static mf_status take_events(mf_reply *reply, parts *p)
{
    mf_reply_event event;
    while (mf_reply_next(reply, &event))
        if (!take_event(&event, p))
            return MF_ERR_NO_MEMORY;
    return MF_OK;
}

/* The tokens as far as they are of the answer: a stop string may have cut it. */
static mf_status push_tokens(const mf_cli_generator *g, const mf_cli_answer *a, mf_reply *reply,
                             parts *p, mf_error *error)
{
    const int32_t *tokens = (const int32_t *)(const void *)a->tokens.data;
    size_t n_left = a->raw.n_bytes;
    mf_status status = MF_OK;
    for (size_t i = 0; i < a->tokens.n_bytes / sizeof *tokens && status == MF_OK; i++) {
        size_t n = 0;
        const char *piece = mf_tokenizer_piece(g->tokenizer, tokens[i], &n);
        n = piece ? n : 0;
        n = n < n_left ? n : n_left;
        n_left -= n;
        status = n > 0 ? mf_reply_push(reply, piece, n,
                                       mf_tokenizer_is_special(g->tokenizer, tokens[i]), error)
                       : MF_OK;
        if (status == MF_OK)
            status = take_events(reply, p);
    }
    if (status == MF_OK)
        status = mf_reply_finish(reply, a->stop != MF_STOP_END, error);
    return status == MF_OK ? take_events(reply, p) : status;
}

static mf_status take_apart(const mf_cli_generator *g, const mf_cli_answer *a,
                            const mf_cli_prompt *prompt, parts *p, mf_error *error)
{
    mf_reply_syntax *syntax = NULL;
    mf_reply *reply = NULL;
    mf_reply_options options;
    mf_cli_buffer text = {0};
    mf_reply_options_default(&options);
    options.whole_calls = 1;
    options.tools = g->args->tools;
    options.id_seed = g->stats.seed;
    mf_status status = mf_reply_syntax_detect(g->tokenizer, NULL, &syntax, error);
    for (size_t i = 0; i < prompt->n_tokens && status == MF_OK; i++) {
        size_t n = 0;
        const char *piece = mf_tokenizer_piece(g->tokenizer, prompt->tokens[i], &n);
        if (piece && !mf_cli_buffer_append(&text, piece, n))
            status = MF_ERR_NO_MEMORY;
    }
    options.prompt = text.data ? text.data : "";
    options.n_prompt_bytes = text.n_bytes;
    if (status == MF_OK)
        status = mf_reply_create(syntax, &options, &reply, error);
    if (status == MF_OK)
        status = push_tokens(g, a, reply, p, error);
    mf_cli_buffer_free(&text);
    mf_reply_free(&reply);
    mf_reply_syntax_free(&syntax);
    return status;
}

/* --------------------------------------------------------------------------------------- object --
 */

static void print_usage(mf_cli_json *json, const mf_cli_generator *g, const mf_cli_answer *a,
                        size_t n_prompt)
{
    const size_t n_answer = a->tokens.n_bytes / sizeof(int32_t);
    mf_cli_json_key(json, "usage");
    mf_cli_json usage = mf_cli_json_begin(json->out);
    mf_cli_json_integer(&usage, "prompt_tokens", n_prompt);
    mf_cli_json_integer(&usage, "cached_tokens", g->stats.n_reused);
    mf_cli_json_integer(&usage, "completion_tokens", n_answer);
    mf_cli_json_integer(&usage, "thought_tokens", a->n_thought_tokens);
    mf_cli_json_integer(&usage, "total_tokens", n_prompt + n_answer);
    mf_cli_json_end_value(&usage);
}

/* The members of one token's object; the caller closes it. */
static mf_cli_json begin_token(const mf_cli_generator *g, FILE *out, const mf_logprob *one)
{
    size_t n_bytes = 0;
    const char *piece = mf_tokenizer_piece(g->tokenizer, one->token, &n_bytes);
    mf_cli_json json = mf_cli_json_begin(out);
    mf_cli_json_integer(&json, "id", (uint64_t)one->token);
    print_text(&json, "token", piece ? piece : "", piece ? n_bytes : 0);
    mf_cli_json_number(&json, "logprob", (double)one->logprob);
    return json;
}

static void print_logprobs(mf_cli_json *json, const mf_cli_generator *g, const mf_cli_answer *a)
{
    const mf_logprob *all = (const mf_logprob *)(const void *)a->logprobs.data;
    const size_t n_each = g->args->n_logprobs + 1, n = a->logprobs.n_bytes / sizeof *all / n_each;
    mf_cli_json_key(json, "logprobs");
    fputc('[', json->out);
    for (size_t i = 0; i < n; i++, all += n_each) {
        fputs(i > 0 ? ", " : "", json->out);
        mf_cli_json token = begin_token(g, json->out, all);
        mf_cli_json_key(&token, "top");
        fputc('[', json->out);
        for (size_t k = 1; k < n_each && all[k].token >= 0; k++) {
            fputs(k > 1 ? ", " : "", json->out);
            mf_cli_json other = begin_token(g, json->out, &all[k]);
            mf_cli_json_end_value(&other);
        }
        fputc(']', json->out);
        mf_cli_json_end_value(&token);
    }
    fputc(']', json->out);
}

static void print_object(const mf_cli_generator *g, const mf_cli_answer *a, const parts *p,
                         size_t n_prompt)
{
    static const char *const reasons[] = {[MF_STOP_END] = "end",
                                          [MF_STOP_STRING] = "stop",
                                          [MF_STOP_LENGTH] = "length",
                                          [MF_STOP_CONTEXT] = "context",
                                          [MF_STOP_INTERRUPTED] = "cancelled"};
    const bool is_calling = a->stop == MF_STOP_END && p->n_calls > 0;
    mf_cli_json json = mf_cli_json_begin(stdout);
    print_text(&json, "text", p->content.data, p->content.n_bytes);
    mf_cli_json_ids(&json, "tokens", (const int32_t *)(const void *)a->tokens.data,
                    a->tokens.n_bytes / sizeof(int32_t));
    mf_cli_json_string(&json, "finish_reason", is_calling ? "calls" : reasons[a->stop]);
    if (a->stopped_by)
        mf_cli_json_string(&json, "stop", a->stopped_by);
    print_text(&json, "thoughts", p->thoughts.data, p->thoughts.n_bytes);
    mf_cli_json_key(&json, "calls");
    printf("[%s]", p->calls.data ? p->calls.data : "");
    print_usage(&json, g, a, n_prompt);
    if (g->args->has_logprobs)
        print_logprobs(&json, g, a);
    mf_cli_seed_json(&json, &g->stats);
    mf_cli_json_key(&json, "stats");
    mf_cli_json stats = mf_cli_json_begin(stdout);
    mf_cli_run_stats_json(&stats, &g->stats);
    mf_cli_json_end_value(&stats);
    mf_cli_json_end(&json);
}

int mf_cli_answer_json(const mf_cli_generator *g, const mf_cli_answer *a,
                       const mf_cli_prompt *prompt)
{
    parts p = {0};
    mf_error error = {0};
    mf_status status = take_apart(g, a, prompt, &p, &error);
    if (status == MF_OK)
        print_object(g, a, &p, prompt->n_tokens);
    mf_cli_buffer_free(&p.content);
    mf_cli_buffer_free(&p.thoughts);
    mf_cli_buffer_free(&p.calls);
    return status == MF_OK ? MF_EXIT_OK : mf_cli_fail(status, &error);
}

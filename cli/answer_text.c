/* SPDX-License-Identifier: MIT */
/* Text of answers: taken apart, held back, kept, shown. */
#include "answer_text.h"

#include "terminal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* All that returns int: 0 or an errno. */

static int put(mf_cli_generator *g, const char *text, size_t n_bytes)
{
    return g->args->is_silent || n_bytes == 0 ? 0 : mf_cli_screen_write(&g->screen, text, n_bytes);
}

static int put_text(mf_cli_generator *g, const char *text)
{
    return put(g, text, strlen(text));
}

static int dim(mf_cli_generator *g, bool is_dim)
{
    return g->args->thoughts == MF_THOUGHTS_DIM && !g->args->is_silent
               ? mf_cli_screen_dim(&g->screen, is_dim)
               : 0;
}

int mf_cli_answer_undim(mf_cli_generator *g)
{
    return dim(g, false);
}

static bool hides_thoughts(const mf_cli_generator *g)
{
    return g->args->thoughts == MF_THOUGHTS_HIDE;
}

/* Shown as the model writes it, marks and all. */
static bool is_verbatim(const mf_cli_generator *g)
{
    return g->args->raw && !hides_thoughts(g) && !g->args->is_silent;
}

bool mf_cli_answer_is_thinking(const mf_cli_answer *a)
{
    return a->reply && mf_reply_place(a->reply) == MF_REPLY_THOUGHT;
}

/* ---------------------------------------------------------------------------------- thoughts -- */

/* Whoever waits for thoughts that are not shown sees that there are some; behind content the line
 * is not free. */
static void count_hidden(const mf_cli_generator *g, mf_cli_answer *a)
{
    double now = mf_cli_now();
    if (g->args->is_silent || g->args->engine.verbosity.quiet || !isatty(STDERR_FILENO) ||
        a->part != MF_PART_NONE || (a->has_counted && now - a->counted_at < 0.1))
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

/* What stands between the part that was shown last and the next one. */
static int begin_part(mf_cli_generator *g, mf_cli_answer *a, mf_cli_part part)
{
    const mf_cli_part last = a->part;
    int error = 0;
    if (part == last)
        return 0;
    end_count(a);
    a->part = part;
    if (last == MF_PART_THOUGHT) {
        error = put_text(g, "\n</think>");
        error = error == 0 ? dim(g, false) : error;
        error = error == 0 ? put_text(g, "\n\n") : error;
    } else if (last != MF_PART_NONE) {
        error = put_text(g, part == MF_PART_THOUGHT ? "\n\n" : "\n");
    }
    if (error == 0 && part == MF_PART_THOUGHT)
        error = dim(g, true);
    if (error == 0 && part == MF_PART_THOUGHT && !(a->is_in_thought && last == MF_PART_NONE))
        error = put_text(g, "<think>\n");
    return error;
}

/* ----------------------------------------------------------------------------------- content -- */

static int show_content(mf_cli_generator *g, mf_cli_answer *a, const char *text, size_t n_bytes)
{
    if (n_bytes == 0)
        return 0;
    if (!mf_cli_buffer_append(&a->message.content, text, n_bytes))
        return ENOMEM;
    int error = is_verbatim(g) ? 0 : begin_part(g, a, MF_PART_CONTENT);
    return error == 0 ? put(g, text, n_bytes) : error;
}

/* Shows what no stop string can begin in. Where one is whole the answer ends before it. */
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

static int pass_thought(mf_cli_generator *g, mf_cli_answer *a, const char *text, size_t n_bytes)
{
    int error = release_held(g, a);
    if (error == 0 && !mf_cli_buffer_append(&a->message.thoughts, text, n_bytes))
        return ENOMEM;
    if (error != 0 || hides_thoughts(g))
        return error;
    if (!is_verbatim(g))
        error = begin_part(g, a, MF_PART_THOUGHT);
    return error == 0 ? put(g, text, n_bytes) : error;
}

/* ------------------------------------------------------------------------------------- calls -- */

/* As a JSON string. */
static int put_quoted(mf_cli_generator *g, const char *text)
{
    char *quoted = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&quoted, &n_bytes);
    if (!out)
        return ENOMEM;
    mf_cli_json_quote(out, text, strlen(text));
    int error = fclose(out) == 0 ? put(g, quoted, n_bytes) : ENOMEM;
    free(quoted);
    return error;
}

/* A call up to its arguments. */
static int put_name(mf_cli_generator *g, const char *name)
{
    int error = put_text(g, "<tool_call>\n{\"name\": ");
    error = error == 0 ? put_quoted(g, name) : error;
    return error == 0 ? put_text(g, ", \"arguments\": ") : error;
}

int mf_cli_answer_show_calls(mf_cli_generator *g, const mf_cli_message *m)
{
    int error = 0;
    for (size_t i = 0; i < m->n_calls && error == 0; i++) {
        const mf_cli_buffer *arguments = &m->calls[i].arguments;
        error = i > 0 || m->content.n_bytes > 0 ? put_text(g, "\n") : 0;
        error = error == 0 ? put_name(g, m->calls[i].name.data) : error;
        error = error == 0 ? put(g, arguments->data, arguments->n_bytes) : error;
        error = error == 0 ? put_text(g, "}\n</tool_call>") : error;
    }
    return error;
}

static int begin_call(mf_cli_generator *g, mf_cli_answer *a, const mf_reply_event *event)
{
    mf_cli_call *call = mf_cli_message_add_call(&a->message);
    if (!call || !mf_cli_buffer_append(&call->id, event->id, strlen(event->id)) ||
        !mf_cli_buffer_append(&call->name, event->name, strlen(event->name)))
        return ENOMEM;
    int error = release_held(g, a);
    if (error == 0 && a->part == MF_PART_CALL)
        error = put_text(g, "\n");
    if (error == 0)
        error = begin_part(g, a, MF_PART_CALL);
    return error == 0 ? put_name(g, event->name) : error;
}

static int take_arguments(mf_cli_generator *g, mf_cli_answer *a, const mf_reply_event *event)
{
    mf_cli_call *call = &a->message.calls[a->message.n_calls - 1];
    return mf_cli_buffer_append(&call->arguments, event->text, event->n_bytes)
               ? put(g, event->text, event->n_bytes)
               : ENOMEM;
}

/* What was shown stays; what is kept is the text that it was. */
static int break_call(mf_cli_generator *g, mf_cli_answer *a, const mf_reply_event *event)
{
    mf_cli_message_drop_call(&a->message);
    return mf_cli_buffer_append(&a->message.content, event->text, event->n_bytes)
               ? put_text(g, "\n</tool_call>")
               : ENOMEM;
}

/* ------------------------------------------------------------------------------------- parts -- */

static int take_event(mf_cli_generator *g, mf_cli_answer *a, const mf_reply_event *event)
{
    switch (event->kind) {
    case MF_REPLY_THOUGHT:
        return pass_thought(g, a, event->text, event->n_bytes);
    case MF_REPLY_CONTENT:
        return pass_content(g, a, event->text, event->n_bytes);
    case MF_REPLY_CALL:
        return begin_call(g, a, event);
    case MF_REPLY_CALL_ARGUMENTS:
        return take_arguments(g, a, event);
    case MF_REPLY_CALL_END:
        return put_text(g, "}\n</tool_call>");
    case MF_REPLY_CALL_BROKEN:
        return break_call(g, a, event);
    }
    return 0;
}

static int take_events(mf_cli_generator *g, mf_cli_answer *a)
{
    mf_reply_event event;
    int error = 0;
    while (error == 0 && !a->stopped_by && mf_reply_next(a->reply, &event))
        error = take_event(g, a, &event);
    return error;
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

/* A token as it is written, in a thought or in content; the marks belong to the thought. */
static int show_verbatim(mf_cli_generator *g, mf_cli_answer *a, int32_t token, bool is_thought)
{
    size_t n_bytes;
    mf_reply_event event;
    const bool is_still = mf_cli_answer_is_thinking(a);
    while (mf_reply_next(a->reply, &event))
        ; /* nobody wants them apart */
    int error = is_still && !is_thought ? dim(g, true) : 0;
    if (error == 0)
        error = decode(g, a, token, &n_bytes);
    if (error == 0)
        error = is_thought || is_still ? pass_thought(g, a, g->shown.data, n_bytes)
                                       : pass_content(g, a, g->shown.data, n_bytes);
    return error == 0 && is_thought && !is_still ? dim(g, false) : error;
}

int mf_cli_answer_take(mf_cli_generator *g, mf_cli_answer *a, int32_t token)
{
    const bool is_thought = mf_cli_answer_is_thinking(a);
    const int is_special =
        mf_tokenizer_is_special(g->tokenizer, token) || mf_tokenizer_is_end(g->tokenizer, token);
    size_t n = 0;
    const char *piece = mf_tokenizer_piece(g->tokenizer, token, &n);
    a->n_thought_tokens += is_thought;
    if (piece && mf_reply_push(a->reply, piece, n, is_special, NULL) != MF_OK)
        return ENOMEM;
    if (is_verbatim(g))
        return show_verbatim(g, a, token, is_thought);
    if (hides_thoughts(g) && mf_cli_answer_is_thinking(a))
        count_hidden(g, a);
    return take_events(g, a);
}

/* ---------------------------------------------------------------------------- beginning, end -- */

/* The prompt says whether the answer begins within a thought. */
static mf_status open_reply(const mf_cli_generator *g, mf_cli_answer *a, const char *prompt,
                            size_t n_bytes, mf_error *error)
{
    mf_reply_options options;
    mf_reply_options_default(&options);
    options.prompt = prompt;
    options.n_prompt_bytes = n_bytes;
    options.tools = g->args->tools;
    options.id_seed = g->stats.seed + mf_session_position(g->session);
    options.n_earlier_calls = a->n_earlier_calls;
    options.whole_calls = g->args->is_silent;
    /* what is held to a grammar is the content, whatever it looks like */
    options.has_calls = !is_verbatim(g) && !g->args->json_schema && !g->args->grammar;
    return mf_reply_create(g->syntax, &options, &a->reply, error);
}

mf_status mf_cli_answer_begin(mf_cli_generator *g, mf_cli_answer *a, mf_error *error)
{
    const int32_t *tokens = mf_session_tokens(g->session);
    mf_cli_buffer text = {0};
    mf_status status = mf_cli_buffer_append(&text, "", 0) ? MF_OK : MF_ERR_NO_MEMORY;
    for (size_t i = 0; i < mf_session_position(g->session) && status == MF_OK; i++) {
        size_t n = 0;
        const char *piece = mf_tokenizer_piece(g->tokenizer, tokens[i], &n);
        if (piece && !mf_cli_buffer_append(&text, piece, n))
            status = MF_ERR_NO_MEMORY;
    }
    if (status == MF_OK)
        status = open_reply(g, a, text.data, text.n_bytes, error);
    mf_cli_buffer_free(&text);
    a->message.role = MF_CLI_ASSISTANT;
    a->is_in_thought = mf_cli_answer_is_thinking(a);
    if (a->is_in_thought && is_verbatim(g))
        (void)dim(g, true);
    return status;
}

int mf_cli_answer_end(mf_cli_generator *g, mf_cli_answer *a)
{
    size_t n_bytes = 0;
    int error = 0;
    end_count(a);
    if (is_verbatim(g)) {
        error = a->stopped_by ? 0 : decode(g, a, -1, &n_bytes);
        if (error == 0 && n_bytes > 0)
            error = mf_cli_answer_is_thinking(a) ? pass_thought(g, a, g->shown.data, n_bytes)
                                                 : pass_content(g, a, g->shown.data, n_bytes);
    } else if (!a->stopped_by) {
        error = mf_reply_finish(a->reply, a->stop != MF_STOP_END, NULL) == MF_OK ? 0 : ENOMEM;
        error = error == 0 ? take_events(g, a) : error;
    }
    if (error == 0)
        error = release_held(g, a);
    if (error == 0 && a->part == MF_PART_THOUGHT && !mf_cli_answer_is_thinking(a))
        error = put_text(g, "\n</think>"); /* and nothing was said behind it */
    if (error == 0)
        error = dim(g, false);
    return error == 0 ? put(g, "\n", 1) : error;
}

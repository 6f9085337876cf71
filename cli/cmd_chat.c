/* SPDX-License-Identifier: MIT */
/*
 * The chat: lines from the user, each a turn of the conversation or a command. A turn brings the
 * session to the conversation's prompt; what it need not evaluate again is found there.
 */
#include "commands.h"

#include "answer.h"
#include "conversation.h"
#include "interrupt.h"
#include "lines.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct chat {
    mf_cli_generator *g;
    mf_cli_lines *lines;
    bool has_template;
    mf_cli_conversation conversation; /* with a template */
} chat;

/* What a turn came to. */
typedef enum turn_result { TURN_DONE, TURN_FATAL } turn_result;

static void note(const chat *c, const char *text)
{
    mf_cli_screen_note(&c->g->screen, text);
}

/* An empty conversation, but for the system message. What the session holds may serve it too. */
static bool start_again(chat *c)
{
    mf_sampler_reset(c->g->sampler);
    return mf_cli_conversation_clear(&c->conversation);
}

/* A line without a template: a prompt by itself, with nothing of those before. */
static mf_status raw_prompt(const chat *c, const char *line, mf_cli_prompt *out, mf_error *error)
{
    mf_sampler_reset(c->g->sampler);
    mf_cli_ids ids = {0};
    mf_status status = mf_cli_encode_text(c->g->tokenizer, line, strlen(line), true, &ids, error);
    if (status == MF_OK && mf_cli_add_start(c->g, &ids) != MF_EXIT_OK)
        status = MF_ERR_NO_MEMORY;
    *out = (mf_cli_prompt){.tokens = ids.tokens, .n_tokens = ids.n_tokens};
    return status;
}

/* Makes the session hold the turn's prompt. *evaluated false: it was refused, or Ctrl-C. */
static turn_result evaluate(chat *c, const char *line, mf_cli_prompt *prompt, bool *evaluated)
{
    mf_error error = {0};
    *evaluated = false;
    mf_status status = c->has_template
                           ? mf_cli_conversation_prompt(&c->conversation, prompt, &error)
                           : raw_prompt(c, line, prompt, &error);
    if (status != MF_OK) {
        mf_cli_fail(status, &error);
        return status == MF_ERR_ARGUMENT ? TURN_DONE : TURN_FATAL;
    }
    if (prompt->n_tokens == 0) {
        note(c, "nothing to evaluate");
        return TURN_DONE;
    }
    if (!mf_cli_fits(c->g, prompt->n_tokens)) {
        mf_cli_error("the conversation has %zu tokens, but the context holds %zu: /clear starts "
                     "again, --ctx makes room",
                     prompt->n_tokens, c->g->n_context_tokens);
        return TURN_DONE;
    }
    status = mf_cli_prefill(c->g, prompt);
    *evaluated = status == MF_OK;
    if (status == MF_ERR_CANCELLED)
        note(c, "stopped; the message was not taken");
    return *evaluated || status == MF_ERR_CANCELLED ? TURN_DONE : TURN_FATAL;
}

/* An answer that the next prompt will not begin with, since its thoughts are dropped, is not worth
 * a place in the store. */
static bool is_stable(const chat *c, const mf_cli_prompt *prompt)
{
    return !c->has_template ||
           (prompt->n_stops > 0 && prompt->stops[prompt->n_stops - 1] == prompt->n_tokens);
}

static turn_result answer(chat *c, const mf_cli_prompt *prompt)
{
    mf_cli_answer made = {0};
    mf_cli_stop stop = mf_cli_answer_make(c->g, &made);
    turn_result result = stop == MF_STOP_ERROR ? TURN_FATAL : TURN_DONE;
    if (stop == MF_STOP_INTERRUPTED)
        note(c, "stopped");
    else if (stop == MF_STOP_CONTEXT)
        note(c, "the context is full: /clear starts again, --ctx makes room");
    if (result == TURN_DONE && c->g->args->has_logprobs)
        mf_cli_answer_print_logprobs(c->g, &made);
    if (result == TURN_DONE && is_stable(c, prompt))
        mf_cli_keep(c->g);
    if (c->has_template && result == TURN_DONE &&
        !mf_cli_conversation_answer(&c->conversation, &made)) {
        mf_cli_error("no memory for the conversation");
        result = TURN_FATAL;
    }
    mf_cli_answer_free(&made);
    return result;
}

static turn_result turn(chat *c, const char *line)
{
    mf_cli_prompt prompt = {0};
    bool evaluated = false;
    mf_cli_interrupt_clear();
    if (c->has_template && !mf_cli_conversation_ask(&c->conversation, line)) {
        mf_cli_error("no memory for the conversation");
        return TURN_FATAL;
    }
    turn_result result = evaluate(c, line, &prompt, &evaluated);
    if (result == TURN_DONE && evaluated)
        result = answer(c, &prompt);
    else if (c->has_template)
        mf_cli_conversation_take_back(&c->conversation);
    free(prompt.tokens);
    mf_cli_interrupt_clear();
    return result;
}

static const char commands[] = "/clear       start a new conversation\n"
                               "/file PATH   send the text of a file\n"
                               "/stats       the figures so far\n"
                               "/quit        leave (or Ctrl-D)\n"
                               "/help        this list\n"
                               "Several lines: paste them, or write them between \"\"\" and "
                               "\"\"\". //... sends /...\n"
                               "Ctrl-C stops an answer.\n";

/* What is left to do after a line. */
typedef enum line_result { LINE_DONE, LINE_LEAVE, LINE_FATAL } line_result;

static line_result send(chat *c, const char *text)
{
    if (*text == '\0')
        return LINE_DONE;
    return turn(c, text) == TURN_FATAL ? LINE_FATAL : LINE_DONE;
}

static line_result send_file(chat *c, const char *path)
{
    mf_cli_buffer text = {0};
    line_result result = LINE_DONE;
    if (*path == '\0' || strcmp(path, "-") == 0)
        fputs("/file wants the path of a file.\n", stderr);
    else if (mf_cli_read_regular(path, mf_cli_text_bytes((uint32_t)c->g->n_context_tokens),
                                 &text) != MF_EXIT_OK)
        ; /* said already */
    else if (text.n_bytes == 0 || memchr(text.data, '\0', text.n_bytes))
        fprintf(stderr, "%s: not a text: %s.\n", path, text.n_bytes ? "a NUL byte" : "empty");
    else
        result = send(c, text.data);
    mf_cli_buffer_free(&text);
    return result;
}

/* A line whose first word is a slash and letters is a command, so that a mistyped one is not sent;
 * a path has other characters in that word, and "//" stands for a slash. */
static bool is_command(const char *line)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t n = *line == '/' ? strspn(line + 1, letters) : 0;
    return n > 0 && (line[1 + n] == '\0' || line[1 + n] == ' ');
}

static line_result command(chat *c, const char *line)
{
    size_t n = strcspn(line, " ");
    const char *rest = line + n + strspn(line + n, " ");
    if (n == 5 && strncmp(line, "/file", n) == 0)
        return send_file(c, rest);
    if (strcmp(line, "/quit") == 0 || strcmp(line, "/exit") == 0)
        return LINE_LEAVE;
    if (strcmp(line, "/stats") == 0) {
        mf_cli_run_stats_table(stderr, &c->g->stats);
    } else if (strcmp(line, "/clear") == 0) {
        if (!start_again(c)) {
            mf_cli_error("no memory for the conversation");
            return LINE_FATAL;
        }
        note(c, "a new conversation");
    } else {
        if (strcmp(line, "/help") != 0)
            fprintf(stderr, "%s is not a command; /%s sends it as a message.\n", line, line);
        fputs(commands, stderr);
    }
    return LINE_DONE;
}

static line_result handle(chat *c, const char *text, bool is_block)
{
    if (is_block)
        return send(c, text);
    if (is_command(text))
        return command(c, text);
    return send(c, strncmp(text, "//", 2) == 0 ? text + 1 : text);
}

static int converse(chat *c)
{
    const char *text = NULL;
    bool asked_to_leave = false, is_block;
    for (;;) {
        mf_cli_line_result read = mf_cli_lines_next(c->lines, &text, &is_block);
        if (read == MF_LINE_FAILED)
            return mf_cli_error("standard input: cannot read: %s", strerror(errno));
        if (read == MF_LINE_END) {
            if (mf_cli_lines_is_terminal(c->lines))
                putchar('\n');
            return MF_EXIT_OK;
        }
        if (read == MF_LINE_INTERRUPTED) {
            mf_cli_interrupt_clear();
            fputc('\n', stderr);
            if (asked_to_leave)
                return MF_EXIT_OK;
            note(c, "Ctrl-C again, Ctrl-D or /quit to leave");
            asked_to_leave = true;
            continue;
        }
        asked_to_leave = false;
        line_result result = handle(c, text, is_block);
        if (result != LINE_DONE)
            return result == LINE_LEAVE ? MF_EXIT_OK : MF_EXIT_ERROR;
    }
}

int mf_cli_chat(mf_cli_generator *g)
{
    chat c = {.g = g, .lines = mf_cli_lines_open(!g->args->no_history), .conversation.g = g};
    c.has_template = !g->args->raw && mf_tokenizer_has_chat(g->tokenizer);
    int status;
    if (!c.lines || !start_again(&c)) {
        status = mf_cli_error("no memory for the chat");
    } else {
        mf_cli_interrupt_install();
        if (mf_cli_lines_is_terminal(c.lines))
            note(&c, c.has_template
                         ? "/help lists the commands"
                         : "no chat template: each line is continued as it stands; /help "
                           "lists the commands");
        status = converse(&c);
    }
    mf_cli_conversation_free(&c.conversation);
    mf_cli_lines_close(&c.lines);
    return status;
}

/* SPDX-License-Identifier: MIT */
/*
 * The chat: a conversation kept as messages, of which the session holds as much as it can. Each
 * turn the whole conversation is formatted; where what the session holds is its beginning, only the
 * rest is evaluated, else (templates drop old thinking) the session starts again. The comparison is
 * of text, not of token ids: the model's own choice of tokens need not be the tokeniser's.
 */
#include "commands.h"

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
    mf_chat_message *messages; /* contents owned */
    size_t n_messages;
    size_t capacity;
    mf_cli_buffer held; /* the text that the session has evaluated */
} chat;

/* What a turn came to. */
typedef enum turn_result { TURN_DONE, TURN_FATAL } turn_result;

static void note(const char *text)
{
    fprintf(stderr, "(%s)\n", text);
}

static bool push_message(chat *c, mf_chat_role role, const char *content)
{
    if (c->n_messages == c->capacity) {
        size_t capacity = c->capacity ? 2 * c->capacity : 16;
        mf_chat_message *messages = realloc(c->messages, capacity * sizeof *messages);
        if (!messages)
            return false;
        c->messages = messages;
        c->capacity = capacity;
    }
    char *copy = strdup(content);
    if (!copy)
        return false;
    c->messages[c->n_messages++] = (mf_chat_message){role, copy};
    return true;
}

static void pop_message(chat *c)
{
    free((char *)c->messages[--c->n_messages].content);
}

static void forget_session(chat *c)
{
    mf_session_clear(c->g->session);
    mf_cli_buffer_clear(&c->held);
}

/* An empty conversation, but for the system message. */
static bool start_again(chat *c)
{
    while (c->n_messages > 0)
        pop_message(c);
    forget_session(c);
    mf_sampler_reset(c->g->sampler);
    const char *system = c->g->args->system;
    return !system || push_message(c, MF_ROLE_SYSTEM, system);
}

/* Evaluates the prompt from where it differs from what the session holds. *evaluated false: there
 * was no room, or Ctrl-C. */
static turn_result evaluate(chat *c, const mf_cli_buffer *prompt, bool *evaluated)
{
    mf_cli_generator *g = c->g;
    int32_t *tokens = NULL;
    size_t n_tokens, n_held = c->held.n_bytes;
    *evaluated = false;
    bool continues =
        n_held > 0 && n_held < prompt->n_bytes && memcmp(prompt->data, c->held.data, n_held) == 0;
    if (!continues) {
        forget_session(c);
        n_held = 0;
    }
    const char *rest = prompt->data + n_held;
    size_t n_rest = prompt->n_bytes - n_held;
    if (mf_cli_encode(g->tokenizer, rest, n_rest, true, &tokens, &n_tokens) != MF_EXIT_OK)
        return TURN_FATAL;
    if (!continues && !c->has_template && mf_cli_add_start(g, &tokens, &n_tokens) != MF_EXIT_OK) {
        free(tokens);
        return TURN_FATAL;
    }
    mf_status status = MF_OK;
    if (n_tokens == 0) {
        note("nothing to evaluate");
    } else if (!mf_cli_fits(g, n_tokens)) {
        mf_cli_error("the conversation has %zu tokens, but the context holds %zu: /clear starts "
                     "again, --ctx makes room",
                     mf_session_position(g->session) + n_tokens, g->n_context_tokens);
    } else {
        status = mf_cli_prefill(g, tokens, n_tokens);
        *evaluated = status == MF_OK;
    }
    free(tokens);
    if (status == MF_ERR_CANCELLED) {
        mf_cli_buffer_clear(&c->held);
        note("stopped; the message was not taken");
        return TURN_DONE;
    }
    if (status == MF_OK && *evaluated && !mf_cli_buffer_append(&c->held, rest, n_rest))
        status = MF_ERR_NO_MEMORY;
    return status == MF_OK ? TURN_DONE : TURN_FATAL;
}

static const char *last_of(const char *text, const char *word)
{
    const char *found = NULL;
    for (const char *p = text; (p = strstr(p, word)) != NULL; p++)
        found = p;
    return found;
}

/* The answer as the conversation keeps it. Where the prompt left the model inside its thoughts and
 * the answer ended there, the thoughts are closed, so that the template knows them as such. */
static bool keep_answer(chat *c, const mf_cli_buffer *prompt, const mf_cli_buffer *answer)
{
    const char *text = answer->data ? answer->data : "";
    const char *open = last_of(prompt->data, "<think>");
    if (!open || strstr(open, "</think>") || strstr(text, "</think>"))
        return push_message(c, MF_ROLE_ASSISTANT, text);
    mf_cli_buffer closed = {0};
    bool kept = mf_cli_buffer_append(&closed, "<think>\n", 8) &&
                mf_cli_buffer_append(&closed, text, strlen(text)) &&
                mf_cli_buffer_append(&closed, "\n</think>\n\n", 11) &&
                push_message(c, MF_ROLE_ASSISTANT, closed.data);
    mf_cli_buffer_free(&closed);
    return kept;
}

static turn_result answer(chat *c, const mf_cli_buffer *prompt)
{
    mf_cli_buffer text = {0};
    mf_cli_stop stop = mf_cli_answer(c->g, &text, &c->held);
    turn_result result = stop == MF_STOP_ERROR ? TURN_FATAL : TURN_DONE;
    if (stop == MF_STOP_INTERRUPTED)
        note("stopped");
    else if (stop == MF_STOP_CONTEXT)
        note("the context is full: /clear starts again, --ctx makes room");
    if (c->has_template && result == TURN_DONE && !keep_answer(c, prompt, &text))
        result = TURN_FATAL;
    mf_cli_buffer_free(&text);
    return result;
}

static turn_result turn(chat *c, const char *line)
{
    mf_cli_buffer prompt = {0};
    turn_result result = TURN_FATAL;
    bool evaluated = false;
    mf_cli_interrupt_clear();
    if (!c->has_template) {
        forget_session(c); /* raw lines have nothing to do with each other */
        if (!mf_cli_buffer_append(&prompt, line, strlen(line)))
            goto done;
    } else if (!push_message(c, MF_ROLE_USER, line) ||
               mf_cli_format_chat(c->g, c->messages, c->n_messages, &prompt) != MF_EXIT_OK) {
        goto done;
    }
    result = evaluate(c, &prompt, &evaluated);
    if (result == TURN_DONE && evaluated)
        result = answer(c, &prompt);
    else if (c->has_template)
        pop_message(c);
done:
    mf_cli_buffer_free(&prompt);
    mf_cli_interrupt_clear();
    return result;
}

/* A line that begins with a slash. True: quit. */
static bool command(chat *c, const char *line)
{
    if (strcmp(line, "/quit") == 0 || strcmp(line, "/exit") == 0)
        return true;
    if (strcmp(line, "/stats") == 0) {
        mf_cli_run_stats_table(stderr, &c->g->stats);
    } else if (strcmp(line, "/clear") == 0) {
        if (!start_again(c))
            return true;
        note("a new conversation");
    } else {
        if (strcmp(line, "/help") != 0)
            fprintf(stderr, "%s is not a command.\n", line);
        fputs("/clear  start a new conversation\n"
              "/stats  the figures so far\n"
              "/quit   leave (or Ctrl-D)\n"
              "/help   this list\n"
              "Ctrl-C stops an answer.\n",
              stderr);
    }
    return false;
}

static int converse(chat *c)
{
    const char *line = NULL;
    bool asked_to_leave = false;
    for (;;) {
        mf_cli_line_result read = mf_cli_lines_next(c->lines, &line);
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
            note("Ctrl-C again, Ctrl-D or /quit to leave");
            asked_to_leave = true;
            continue;
        }
        asked_to_leave = false;
        if (*line == '/' ? command(c, line) : false)
            return MF_EXIT_OK;
        if (*line != '/' && *line && turn(c, line) == TURN_FATAL)
            return MF_EXIT_ERROR;
    }
}

int mf_cli_chat(mf_cli_generator *g)
{
    chat c = {.g = g, .lines = mf_cli_lines_open()};
    c.has_template = !g->args->raw && mf_tokenizer_has_chat(g->tokenizer);
    int status;
    if (!c.lines || !start_again(&c)) {
        status = mf_cli_error("no memory for the chat");
    } else {
        mf_cli_interrupt_install();
        if (mf_cli_lines_is_terminal(c.lines))
            note(c.has_template ? "/help lists the commands"
                                : "no chat template: each line is continued as it stands; /help "
                                  "lists the commands");
        status = converse(&c);
    }
    while (c.n_messages > 0)
        pop_message(&c);
    free(c.messages);
    mf_cli_buffer_free(&c.held);
    mf_cli_lines_close(&c.lines);
    return status;
}

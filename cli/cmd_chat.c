/* SPDX-License-Identifier: MIT */
/*
 * The chat: lines from the user, each a turn of the conversation or a command. A turn brings the
 * session to the conversation's prompt; what it need not evaluate again is found there.
 */
#include "commands.h"

#include "answer_text.h"
#include "conversation.h"
#include "interrupt.h"
#include "lines.h"
#include "saved.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct chat {
    mf_cli_generator *g;
    mf_cli_lines *lines;
    bool has_template;
    mf_cli_conversation conversation; /* with a template */
    char name[MF_CLI_NAME_BYTES];     /* of its file, which follows it; empty: none */
} chat;

/* What a turn came to. */
typedef enum turn_result { TURN_DONE, TURN_FATAL } turn_result;

static void note(const chat *c, const char *text)
{
    mf_cli_screen_note(&c->g->screen, text);
}

__attribute__((format(printf, 2, 3))) static void note_name(const chat *c, const char *format, ...)
{
    char line[MF_CLI_NAME_BYTES + 128];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    note(c, line);
}

/* What was typed, and then of it. */
static void say(const char *typed, const char *text)
{
    mf_cli_put_plain(stderr, typed);
    fputs(text, stderr);
}

/* An empty conversation, but for the system message. What the session holds may serve it too. */
static bool start_again(chat *c)
{
    mf_sampler_reset(c->g->sampler);
    c->name[0] = '\0';
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
    mf_cli_answer made = {.n_earlier_calls = mf_cli_conversation_calls(&c->conversation)};
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
    if (result == TURN_DONE && c->name[0] != '\0')
        (void)mf_cli_saved_write(c->name, &c->conversation); /* it has said why not */
    mf_cli_answer_free(&made);
    return result;
}

/* Answers the conversation as it stands; without a template, the line. */
static turn_result go_on(chat *c, const char *line)
{
    mf_cli_prompt prompt = {0};
    bool evaluated = false;
    mf_cli_interrupt_clear();
    turn_result result = evaluate(c, line, &prompt, &evaluated);
    if (result == TURN_DONE && evaluated)
        result = answer(c, &prompt);
    else if (c->has_template)
        mf_cli_conversation_take_back(&c->conversation);
    free(prompt.tokens);
    mf_cli_interrupt_clear();
    return result;
}

static turn_result no_memory(void)
{
    mf_cli_error("no memory for the conversation");
    return TURN_FATAL;
}

static turn_result turn(chat *c, const char *line)
{
    if (c->has_template && !mf_cli_conversation_add(&c->conversation, MF_CLI_USER, line))
        return no_memory();
    return go_on(c, line);
}

/* The call whose result is awaited; *n_more: how many others are. NULL: none is. */
static const mf_cli_call *open_call(const mf_cli_conversation *all, size_t *n_more)
{
    size_t n = all->n_messages, n_results = 0;
    while (n > 0 && all->messages[n - 1].role == MF_CLI_TOOL) {
        n--;
        n_results++;
    }
    const mf_cli_message *m = n > 0 ? &all->messages[n - 1] : NULL;
    if (!m || n_results >= m->n_calls)
        return NULL;
    *n_more = m->n_calls - n_results - 1;
    return &m->calls[n_results];
}

/* The model goes on when all its calls have their results. */
static turn_result give_result(chat *c, const char *text)
{
    size_t n_more = 0;
    const mf_cli_call *call = open_call(&c->conversation, &n_more);
    mf_cli_message message = {.role = MF_CLI_TOOL};
    if (!call) {
        fputs("No call of the model waits for a result.\n", stderr);
        return TURN_DONE;
    }
    const bool is_good = mf_cli_buffer_append(&message.content, text, strlen(text)) &&
                         mf_cli_buffer_append(&message.call_id, call->id.data, call->id.n_bytes) &&
                         mf_cli_buffer_append(&message.name, call->name.data, call->name.n_bytes);
    if (!is_good) {
        mf_cli_message_free(&message);
        return no_memory();
    }
    if (!mf_cli_conversation_take(&c->conversation, &message))
        return no_memory();
    if (n_more == 0)
        return go_on(c, NULL);
    note_name(c, "%zu more to be given", n_more);
    return TURN_DONE;
}

/* Where the user spoke last; the number of messages: nowhere. */
static size_t last_of_user(const mf_cli_conversation *all)
{
    for (size_t i = all->n_messages; i-- > 0;)
        if (all->messages[i].role == MF_CLI_USER)
            return i;
    return all->n_messages;
}

/* Takes back what was said since the user spoke last, and with it the user's message itself, unless
 * another answer to it is to be made. */
static turn_result take_back(chat *c, bool answers_again)
{
    mf_cli_conversation *all = &c->conversation;
    const size_t at = last_of_user(all);
    if (at == all->n_messages) {
        fputs(!c->has_template ? "Without a chat template nothing is kept of what was said.\n"
              : answers_again  ? "There is no message to answer again.\n"
                               : "There is no message to take back.\n",
              stderr);
        return TURN_DONE;
    }
    while (all->n_messages > at + answers_again)
        mf_cli_conversation_take_back(all);
    if (answers_again)
        return go_on(c, NULL);
    if (c->name[0] != '\0')
        (void)mf_cli_saved_write(c->name, all); /* it has said why not */
    note(c, "your last message and its answer are taken back");
    return TURN_DONE;
}

/* ----------------------------------------------------------------------- saved conversations -- */

/* Without a name: the one that it has, or the time. */
static void save(chat *c, const char *name)
{
    char now[MF_CLI_NAME_BYTES];
    struct tm local;
    const time_t seconds = time(NULL);
    if (*name == '\0')
        name = c->name;
    if (*name == '\0' && localtime_r(&seconds, &local) &&
        strftime(now, sizeof now, "%Y-%m-%d %H.%M.%S", &local) > 0)
        name = now;
    if (mf_cli_saved_write(name, &c->conversation) != MF_EXIT_OK)
        return;
    if (name != c->name)
        snprintf(c->name, sizeof c->name, "%s", name);
    note_name(c, "saved as %s, and after each turn from here on", c->name);
}

/* What was said last, for whoever sits at a terminal. */
static void show_last(chat *c)
{
    const mf_cli_conversation *all = &c->conversation;
    size_t first = all->n_messages > 2 ? all->n_messages - 2 : 0;
    for (size_t i = first; i < all->n_messages && mf_cli_lines_is_terminal(c->lines); i++) {
        const mf_cli_message *m = &all->messages[i];
        if (m->role != MF_CLI_USER && m->role != MF_CLI_ASSISTANT)
            continue;
        fputs(m->role == MF_CLI_USER ? ">>> " : "", stdout);
        fflush(stdout);
        if (m->content.n_bytes > 0)
            (void)mf_cli_screen_write(&c->g->screen, m->content.data, m->content.n_bytes);
        (void)mf_cli_answer_show_calls(c->g, m);
        (void)mf_cli_screen_write(&c->g->screen, "\n", 1);
    }
}

/* False: said why not, and the chat is as it was. */
static bool load(chat *c, const char *name)
{
    if (mf_cli_saved_read(name, &c->conversation) != MF_EXIT_OK)
        return false;
    snprintf(c->name, sizeof c->name, "%s", name);
    mf_sampler_reset(c->g->sampler);
    show_last(c);
    note_name(c, "%s: %zu messages; it is saved after each turn", c->name,
              c->conversation.n_messages);
    return true;
}

/* --resume and --continue. False: the chat does not begin. */
static bool resume(chat *c)
{
    const mf_cli_generate_args *args = c->g->args;
    char newest[MF_CLI_NAME_BYTES];
    const char *name = args->resume;
    if (!name && !args->continues)
        return true;
    if (!c->has_template) {
        mf_cli_error("--resume and --continue want a model with a chat template");
        return false;
    }
    if (!name && mf_cli_saved_newest(newest) != MF_EXIT_OK)
        return false;
    return load(c, name ? name : newest);
}

static const char commands[] = "/clear       start a new conversation\n"
                               "/again       another answer to your last message\n"
                               "/undo        take your last message and its answer back\n"
                               "/save [NAME] keep the conversation in a file, from here on\n"
                               "/load NAME   go on with a saved one; /list lists them\n"
                               "/file PATH   send the text of a file\n"
                               "/result TEXT the result of the tool that the model called\n"
                               "/stats       the figures so far\n"
                               "/quit        leave (or Ctrl-D)\n"
                               "/help        this list\n"
                               "Several lines: paste them, or write them between \"\"\" and "
                               "\"\"\". //... sends /...\n"
                               "Ctrl-C stops an answer.\n";

/* What is left to do after a line. */
typedef enum line_result { LINE_DONE, LINE_LEAVE, LINE_FATAL } line_result;

/* A message that no context holds is refused before a template, which it may be too much for, ends
 * the chat and what was said in it. */
static line_result send(chat *c, const char *text)
{
    const size_t n_most = mf_cli_text_bytes((uint32_t)c->g->n_context_tokens);
    if (*text == '\0')
        return LINE_DONE;
    if (strlen(text) > n_most) {
        mf_cli_error("the message: a text of more than %zu bytes, the most that is taken here",
                     n_most);
        return LINE_DONE;
    }
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
        say(path, text.n_bytes ? ": not a text: a NUL byte.\n" : ": not a text: empty.\n");
    else
        result = send(c, text.data);
    mf_cli_buffer_free(&text);
    return result;
}

/* A line whose first word is a slash and letters is a command, so that a mistyped one is not sent;
 * a path has other characters in that word, "//" stands for a slash, and a text of several lines is
 * none. */
static bool is_command(const char *line)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t n = *line == '/' ? strspn(line + 1, letters) : 0;
    const char *end = strchr(line, '\n');
    if (end && end[strspn(end, " \t\r\n")] != '\0')
        return false;
    return n > 0 && strchr(" \t\r\n", line[1 + n]);
}

static bool is_word(const char *line, size_t n, const char *word)
{
    return n == strlen(word) && strncmp(line, word, n) == 0;
}

/* Those about files of conversations. False: none of them. */
static bool saved_command(chat *c, const char *line, size_t n, const char *rest)
{
    const bool saves = is_word(line, n, "/save"), loads = is_word(line, n, "/load");
    if ((saves || loads) && !c->has_template)
        fputs("Without a chat template there is no conversation to keep.\n", stderr);
    else if (saves)
        save(c, rest);
    else if (loads && *rest == '\0')
        fputs("/load wants a name; /list lists them.\n", stderr);
    else if (loads)
        (void)load(c, rest);
    else if (is_word(line, n, "/list"))
        (void)mf_cli_saved_list(stderr);
    else
        return false;
    return true;
}

static line_result clear_chat(chat *c)
{
    if (!start_again(c)) {
        (void)no_memory();
        return LINE_FATAL;
    }
    note(c, "a new conversation");
    return LINE_DONE;
}

/* The line without the blanks at its end. */
static line_result command(chat *c, const char *line)
{
    size_t n = strcspn(line, " \t");
    const char *rest = line + n + strspn(line + n, " \t");
    if (is_word(line, n, "/file"))
        return send_file(c, rest);
    if (is_word(line, n, "/result"))
        return give_result(c, rest) == TURN_FATAL ? LINE_FATAL : LINE_DONE;
    if (strcmp(line, "/again") == 0 || strcmp(line, "/undo") == 0)
        return take_back(c, line[1] == 'a') == TURN_FATAL ? LINE_FATAL : LINE_DONE;
    if (strcmp(line, "/quit") == 0 || strcmp(line, "/exit") == 0)
        return LINE_LEAVE;
    if (strcmp(line, "/clear") == 0)
        return clear_chat(c);
    if (strcmp(line, "/stats") == 0) {
        mf_cli_run_stats_table(stderr, &c->g->stats);
    } else if (!saved_command(c, line, n, rest)) {
        if (strcmp(line, "/help") != 0) {
            say(line, " is not a command; /");
            say(line, " sends it as a message.\n");
        }
        fputs(commands, stderr);
    }
    return LINE_DONE;
}

static line_result handle(chat *c, const char *text, bool is_block)
{
    if (is_block)
        return send(c, text);
    if (is_command(text)) {
        char *line = strdup(text);
        if (!line) {
            mf_cli_error("no memory for the command");
            return LINE_FATAL;
        }
        for (size_t n = strlen(line); n > 0 && strchr(" \t\r\n", line[n - 1]); n--)
            line[n - 1] = '\0';
        line_result result = command(c, line);
        free(line);
        return result;
    }
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
        if (read == MF_LINE_NO_TEXT) {
            fputs("Not sent: the message contains a NUL byte.\n", stderr);
            continue;
        }
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
    } else if (g->args->tools && !c.has_template) {
        status = mf_cli_error("%s: --tools wants a chat template", g->model);
    } else {
        mf_cli_interrupt_install();
        if (mf_cli_lines_is_terminal(c.lines))
            note(&c, c.has_template
                         ? "/help lists the commands"
                         : "no chat template: each line is continued as it stands; /help "
                           "lists the commands");
        status = resume(&c) ? converse(&c) : MF_EXIT_ERROR;
    }
    mf_cli_conversation_free(&c.conversation);
    mf_cli_lines_close(&c.lines);
    return status;
}

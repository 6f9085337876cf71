/* SPDX-License-Identifier: MIT */
/* What the template gets, what it makes of it, and how it writes answers. */
#include "chat_text.h"

#include "yyjson_prefix.h"

#include "yyjson.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------------------------- templates -- */

/* What a template gets, as text or as tokens. */
typedef struct asked {
    const mf_cli_generator *g;
    const mf_cli_message *messages;
    size_t n_messages;
    bool opens_answer;
} asked;

/* The messages as an array; from malloc, NULL without memory. */
static char *messages_json(const asked *q, unsigned ways)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);
    if (!out)
        return NULL;
    const unsigned own = q->g->has_content_thoughts ? MF_CLI_WAY_CONTENT_THOUGHTS : 0;
    mf_cli_messages_json(out, q->messages, q->n_messages, ways | own | MF_CLI_WAY_ALL_NAMES);
    bool is_good = ferror(out) == 0;
    if (fclose(out) == 0 && is_good)
        return text;
    free(text);
    return NULL;
}

static mf_chat_json_params chat_params(const mf_cli_generator *g, const char *messages,
                                       bool opens_answer)
{
    mf_chat_json_params chat;
    mf_chat_json_params_default(&chat);
    chat.messages = messages;
    chat.tools = g->args->tools;
    chat.variables = g->args->variables;
    chat.thinking = g->args->thinking;
    chat.add_generation_prompt = opens_answer;
    chat.now_seconds = g->now_seconds;
    return chat;
}

static mf_status write_text(const asked *q, const mf_chat_json_params *chat, void *out,
                            mf_error *error)
{
    mf_cli_buffer *text = out;
    size_t n_bytes = 0;
    mf_cli_buffer_clear(text);
    mf_status status = mf_chat_json_text(q->g->tokenizer, chat, NULL, 0, &n_bytes, error);
    if (status == MF_OK && !mf_cli_buffer_reserve(text, n_bytes))
        status = MF_ERR_NO_MEMORY;
    if (status == MF_OK)
        status = mf_chat_json_text(q->g->tokenizer, chat, text->data, n_bytes, &n_bytes, error);
    if (status == MF_OK) {
        text->n_bytes = n_bytes;
        text->data[n_bytes] = '\0';
    }
    return status;
}

static mf_status encode(const mf_cli_generator *g, const mf_chat_json_params *chat,
                        mf_cli_prompt *out, mf_error *error)
{
    size_t n = 0;
    mf_status status = mf_chat_json_encode(g->tokenizer, chat, NULL, 0, &n, error);
    int32_t *tokens = status == MF_OK ? malloc((n + 1) * sizeof *tokens) : NULL;
    if (status == MF_OK && !tokens)
        status = MF_ERR_NO_MEMORY;
    if (status == MF_OK)
        status = mf_chat_json_encode(g->tokenizer, chat, tokens, n, &n, error);
    if (status != MF_OK) {
        free(tokens);
        return status;
    }
    *out = (mf_cli_prompt){.tokens = tokens, .n_tokens = n};
    return MF_OK;
}

static mf_status write_tokens(const asked *q, const mf_chat_json_params *chat, void *out,
                              mf_error *error)
{
    return encode(q->g, chat, out, error);
}

typedef mf_status (*writer)(const asked *q, const mf_chat_json_params *chat, void *out,
                            mf_error *error);

/* What a template refuses is said otherwise, if there is another way: calls alone have one. */
static mf_status write_chat(const asked *q, writer write, void *out, mf_error *error)
{
    static const unsigned all[] = {0, MF_CLI_WAY_TEXT_ARGUMENTS, MF_CLI_WAY_FULL_CONTENT,
                                   MF_CLI_WAY_TEXT_ARGUMENTS | MF_CLI_WAY_FULL_CONTENT};
    mf_status first = MF_OK, status = MF_OK;
    bool has_calls = false;
    for (size_t i = 0; i < q->n_messages; i++)
        has_calls = has_calls || q->messages[i].n_calls > 0;
    for (size_t i = 0; i < (has_calls ? sizeof all / sizeof *all : 1); i++) {
        char *json = messages_json(q, all[i]);
        const mf_chat_json_params chat = chat_params(q->g, json, q->opens_answer);
        status = json ? write(q, &chat, out, i == 0 ? error : NULL) : MF_ERR_NO_MEMORY;
        free(json);
        first = i == 0 ? status : first;
        if (status != MF_ERR_ARGUMENT && status != MF_ERR_UNSUPPORTED)
            return status;
    }
    return first;
}

mf_status mf_cli_chat_text(const mf_cli_generator *g, const mf_cli_message *messages,
                           size_t n_messages, bool opens_answer, mf_cli_buffer *out,
                           mf_error *error)
{
    const asked q = {g, messages, n_messages, opens_answer};
    return write_chat(&q, write_text, out, error);
}

mf_status mf_cli_chat_tokens(const mf_cli_generator *g, const mf_cli_message *messages,
                             size_t n_messages, bool opens_answer, mf_cli_prompt *out,
                             mf_error *error)
{
    const asked q = {g, messages, n_messages, opens_answer};
    return write_chat(&q, write_tokens, out, error);
}

/* Clients write arguments as text, most templates want the object: what is one becomes one. */
static void part_arguments(yyjson_mut_doc *doc, yyjson_mut_val *call)
{
    yyjson_mut_val *function = yyjson_mut_obj_get(call, "function");
    yyjson_mut_val *text = yyjson_mut_obj_get(function, "arguments");
    if (!yyjson_mut_is_str(text))
        return;
    yyjson_doc *parted =
        yyjson_read(yyjson_mut_get_str(text), yyjson_mut_get_len(text), YYJSON_READ_NUMBER_AS_RAW);
    yyjson_val *root = yyjson_doc_get_root(parted);
    yyjson_mut_val *object = yyjson_is_obj(root) ? yyjson_val_mut_copy(doc, root) : NULL;
    if (object)
        yyjson_mut_obj_replace(function, yyjson_mut_str(doc, "arguments"), object);
    yyjson_doc_free(parted);
}

/* From malloc; NULL: it is no JSON, or there is no memory. */
static char *with_objects(const char *messages)
{
    yyjson_doc *read = yyjson_read(messages, strlen(messages), YYJSON_READ_NUMBER_AS_RAW);
    yyjson_mut_doc *doc = read ? yyjson_doc_mut_copy(read, NULL) : NULL;
    yyjson_mut_val *message, *call;
    size_t i, n, k, n_calls;
    yyjson_mut_arr_foreach(yyjson_mut_doc_get_root(doc), i, n, message)
    {
        yyjson_mut_val *calls = yyjson_mut_obj_get(message, "tool_calls");
        yyjson_mut_arr_foreach(calls, k, n_calls, call)
        {
            part_arguments(doc, call);
        }
    }
    char *text = doc ? yyjson_mut_write(doc, YYJSON_WRITE_NOFLAG, NULL) : NULL;
    yyjson_mut_doc_free(doc);
    yyjson_doc_free(read);
    return text;
}

mf_status mf_cli_chat_json_tokens(const mf_cli_generator *g, const char *messages,
                                  mf_cli_prompt *out, mf_error *error)
{
    char *parted = with_objects(messages);
    mf_chat_json_params chat = chat_params(g, parted ? parted : messages, true);
    mf_status status = encode(g, &chat, out, error);
    if (parted && (status == MF_ERR_ARGUMENT || status == MF_ERR_UNSUPPORTED)) {
        chat.messages = messages; /* as they are */
        mf_status second = encode(g, &chat, out, NULL);
        status = second == MF_OK ? second : status;
    }
    free(parted);
    return status;
}

/* ---------------------------------------------------------------------------------- learning -- */

/* A text that is not freed. */
static mf_cli_buffer lent(char *text)
{
    return (mf_cli_buffer){.data = text, .n_bytes = strlen(text)};
}

/* Whether what the template makes of an answer with thoughts has them; is_earlier: a user speaks
 * behind it. */
static bool shows_thoughts(const mf_cli_generator *g, bool is_earlier)
{
    char question[] = "x", answer[] = "y", thought[] = "mfthought";
    const mf_cli_message messages[] = {
        {.role = MF_CLI_USER, .content = lent(question)},
        {.role = MF_CLI_ASSISTANT, .content = lent(answer), .thoughts = lent(thought)},
        {.role = MF_CLI_USER, .content = lent(question)}};
    mf_cli_buffer text = {0};
    const bool has =
        mf_cli_chat_text(g, messages, is_earlier ? 3 : 2, false, &text, NULL) == MF_OK &&
        strstr(text.data, thought);
    mf_cli_buffer_free(&text);
    return has;
}

/* Templates that know thoughts in the content alone part them from it, and drop old ones. */
static bool wants_content_thoughts(mf_cli_generator *g)
{
    g->has_content_thoughts = false;
    if (shows_thoughts(g, false))
        return false;
    g->has_content_thoughts = true;
    return shows_thoughts(g, false) && !shows_thoughts(g, true);
}

static void learn_close(mf_cli_generator *g, const char *close)
{
    const size_t most = sizeof g->close_tokens / sizeof *g->close_tokens;
    if (mf_tokenizer_encode(g->tokenizer, close, strlen(close), 1, g->close_tokens, most,
                            &g->n_close_tokens, NULL) != MF_OK ||
        g->n_close_tokens > most)
        g->n_close_tokens = 0;
    close += strspn(close, " \n");
    snprintf(g->thought_end, sizeof g->thought_end, "%s", close);
    for (size_t n = strlen(g->thought_end); n > 0 && strchr(" \n", g->thought_end[n - 1]); n--)
        g->thought_end[n - 1] = '\0';
}

mf_status mf_cli_chat_learn(mf_cli_generator *g, mf_error *error)
{
    const size_t most = sizeof g->end_tokens / sizeof *g->end_tokens;
    mf_reply_form form;
    mf_status status = mf_reply_syntax_detect(g->tokenizer, NULL, &g->syntax, error);
    if (status != MF_OK)
        return status;
    mf_reply_form_of(g->syntax, &form);
    learn_close(g, form.thought_close ? form.thought_close : "\n</think>\n\n");
    for (size_t i = 0; i < form.n_stops && g->n_end_tokens < most; i++) {
        int32_t token;
        size_t n = 0;
        if (mf_tokenizer_encode(g->tokenizer, form.stops[i], strlen(form.stops[i]), 1, &token, 1,
                                &n, NULL) == MF_OK &&
            n == 1)
            g->end_tokens[g->n_end_tokens++] = token;
    }
    g->has_content_thoughts = mf_tokenizer_has_chat(g->tokenizer) && wants_content_thoughts(g);
    return MF_OK;
}

/* ----------------------------------------------------------------------------------- options -- */

/* A text that is read later is named by what it is for: which file it was is known here. Numbers of
 * any size are left to that reader, as in is_json. */
static int check_json(const char *file, const mf_cli_buffer *text)
{
    yyjson_read_err error;
    const char *name = strcmp(file, "-") == 0 ? "standard input" : file;
    if (strlen(text->data) + 1 != text->n_bytes)
        return mf_cli_error("%s: not JSON: it contains a NUL byte", name);
    yyjson_doc *doc =
        yyjson_read_opts(text->data, text->n_bytes - 1, YYJSON_READ_NUMBER_AS_RAW, NULL, &error);
    yyjson_doc_free(doc);
    return doc ? MF_EXIT_OK
               : mf_cli_error("%s: not JSON at byte %zu: %s", name, error.pos, error.msg);
}

int mf_cli_read_json(const char *file, mf_cli_buffer *buffer, const char **out)
{
    if (!file)
        return MF_EXIT_OK;
    int exit_code = mf_cli_read_file(file, MF_CLI_MAX_TEXT_BYTES, buffer);
    if (exit_code == MF_EXIT_OK && !mf_cli_buffer_append(buffer, "", 1))
        exit_code = mf_cli_error("no memory for %s", file);
    if (exit_code == MF_EXIT_OK)
        exit_code = check_json(file, buffer);
    *out = buffer->data;
    return exit_code;
}

/* A whole value, so that none can end early and bring others, whose names were not looked at. */
static bool is_json(const char *text)
{
    yyjson_doc *doc = yyjson_read(text, strlen(text), YYJSON_READ_NUMBER_AS_RAW);
    yyjson_doc_free(doc);
    return doc != NULL;
}

int mf_cli_add_variable(const mf_cli_parser *parser, const char *option, mf_cli_buffer *out)
{
    const char *value = strchr(option, '=');
    size_t n_name = value ? (size_t)(value - option) : 0;
    size_t n_plain =
        strspn(option, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    if (n_name == 0 || n_plain != n_name || !is_json(value + 1))
        return mf_cli_bad_value(parser, "set", option, "NAME=JSON");
    if (mf_cli_buffer_append(out, out->n_bytes == 0 ? "{\"" : ",\"", 2) &&
        mf_cli_buffer_append(out, option, n_name) && mf_cli_buffer_append(out, "\":", 2) &&
        mf_cli_buffer_append(out, value + 1, strlen(value + 1)))
        return MF_EXIT_OK;
    return mf_cli_error("no memory for the variables");
}

int mf_cli_end_variables(mf_cli_buffer *variables, const char **out)
{
    if (variables->n_bytes == 0)
        return MF_EXIT_OK;
    if (!mf_cli_buffer_append(variables, "}", 1))
        return mf_cli_error("no memory for the variables");
    *out = variables->data;
    return MF_EXIT_OK;
}

/* SPDX-License-Identifier: MIT */
/* What the template gets, and what it makes of it. */
#include "chat_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------ templates --
 */

/* The messages as an array; from malloc, NULL without memory. */
static char *messages_json(const mf_chat_message *messages, size_t n_messages)
{
    static const char *const roles[] = {
        [MF_ROLE_SYSTEM] = "system", [MF_ROLE_USER] = "user", [MF_ROLE_ASSISTANT] = "assistant"};
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);
    if (!out)
        return NULL;
    fputc('[', out);
    for (size_t i = 0; i < n_messages; i++) {
        fputs(i > 0 ? ", " : "", out);
        mf_cli_json json = mf_cli_json_begin(out);
        mf_cli_json_string(&json, "role", roles[messages[i].role]);
        mf_cli_json_string(&json, "content", messages[i].content);
        mf_cli_json_end_value(&json);
    }
    fputc(']', out);
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

mf_status mf_cli_chat_text(const mf_cli_generator *g, const mf_chat_message *messages,
                           size_t n_messages, bool opens_answer, mf_cli_buffer *out,
                           mf_error *error)
{
    char *json = messages_json(messages, n_messages);
    const mf_chat_json_params chat = chat_params(g, json, opens_answer);
    size_t n_bytes = 0;
    mf_cli_buffer_clear(out);
    mf_status status =
        json ? mf_chat_json_text(g->tokenizer, &chat, NULL, 0, &n_bytes, error) : MF_ERR_NO_MEMORY;
    if (status == MF_OK && !mf_cli_buffer_reserve(out, n_bytes))
        status = MF_ERR_NO_MEMORY;
    if (status == MF_OK)
        status = mf_chat_json_text(g->tokenizer, &chat, out->data, n_bytes, &n_bytes, error);
    if (status == MF_OK) {
        out->n_bytes = n_bytes;
        out->data[n_bytes] = '\0';
    }
    free(json);
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

mf_status mf_cli_chat_tokens(const mf_cli_generator *g, const mf_chat_message *messages,
                             size_t n_messages, bool opens_answer, mf_cli_prompt *out,
                             mf_error *error)
{
    char *json = messages_json(messages, n_messages);
    const mf_chat_json_params chat = chat_params(g, json, opens_answer);
    mf_status status = json ? encode(g, &chat, out, error) : MF_ERR_NO_MEMORY;
    free(json);
    return status;
}

mf_status mf_cli_chat_json_tokens(const mf_cli_generator *g, const char *messages,
                                  mf_cli_prompt *out, mf_error *error)
{
    const mf_chat_json_params chat = chat_params(g, messages, true);
    return encode(g, &chat, out, error);
}

/* -------------------------------------------------------------------------------------- options --
 */

int mf_cli_read_json(const char *file, mf_cli_buffer *buffer, const char **out)
{
    if (!file)
        return MF_EXIT_OK;
    int exit_code = mf_cli_read_file(file, MF_CLI_MAX_TEXT_BYTES, buffer);
    if (exit_code == MF_EXIT_OK && !mf_cli_buffer_append(buffer, "", 1))
        exit_code = mf_cli_error("no memory for %s", file);
    if (exit_code == MF_EXIT_OK && strlen(buffer->data) + 1 != buffer->n_bytes)
        exit_code = mf_cli_error("%s: not JSON: it contains a NUL byte", file);
    *out = buffer->data;
    return exit_code;
}

int mf_cli_add_variable(const mf_cli_parser *parser, const char *option, mf_cli_buffer *out)
{
    const char *value = strchr(option, '=');
    size_t n_name = value ? (size_t)(value - option) : 0;
    size_t n_plain =
        strspn(option, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    if (n_name == 0 || n_plain != n_name || value[1] == '\0')
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

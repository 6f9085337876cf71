/* SPDX-License-Identifier: MIT */
/* Reading a conversation's file, which may come from anywhere. */
#include "saved.h"
#include "saved_files.h"

#include "yyjson_prefix.h"

#include "yyjson.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MESSAGES 100000

static int refuse(const char *path, size_t index, const char *expected)
{
    return mf_cli_error("%s: message %zu: %s", path, index, expected);
}

/* A string without NUL within. */
static bool is_text(yyjson_val *v)
{
    return yyjson_is_str(v) && strlen(yyjson_get_str(v)) == yyjson_get_len(v);
}

static bool append(mf_cli_buffer *out, const char *text)
{
    return mf_cli_buffer_append(out, text, strlen(text));
}

/* A string, null, or parts of text, put together. */
static int read_content(const char *path, size_t index, yyjson_val *content, mf_cli_buffer *out)
{
    yyjson_val *part;
    size_t i, n;
    bool has_memory = append(out, "");
    if (is_text(content)) {
        has_memory = has_memory && append(out, yyjson_get_str(content));
    } else if (yyjson_is_arr(content)) {
        yyjson_arr_foreach(content, i, n, part)
        {
            yyjson_val *text = yyjson_obj_get(part, "text");
            if (!yyjson_equals_str(yyjson_obj_get(part, "type"), "text") || !is_text(text))
                return refuse(path, index, "expected parts of type text alone");
            has_memory = has_memory && append(out, yyjson_get_str(text));
        }
    } else if (content && !yyjson_is_null(content)) {
        return refuse(path, index, "content: expected a string without U+0000, or parts of text");
    }
    return has_memory ? MF_EXIT_OK : mf_cli_error("no memory for the conversation");
}

static int read_role(const char *path, size_t index, yyjson_val *message, mf_chat_role *out)
{
    static const char *const names[] = {"system", "user", "assistant", "developer"};
    static const mf_chat_role roles[] = {MF_ROLE_SYSTEM, MF_ROLE_USER, MF_ROLE_ASSISTANT,
                                         MF_ROLE_SYSTEM};
    yyjson_val *role = yyjson_obj_get(message, "role");
    yyjson_val *calls = yyjson_obj_get(message, "tool_calls");
    if (!yyjson_is_obj(message))
        return refuse(path, index, "expected an object");
    if (calls && !yyjson_is_null(calls) && !(yyjson_is_arr(calls) && yyjson_arr_size(calls) == 0))
        return refuse(path, index, "has tool calls, which the chat does not take");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (yyjson_equals_str(role, names[i])) {
            *out = roles[i];
            return MF_EXIT_OK;
        }
    return refuse(path, index, "role: expected system, developer, user or assistant");
}

static int read_message(const char *path, size_t index, yyjson_val *message,
                        mf_cli_conversation *out)
{
    mf_chat_role role = MF_ROLE_USER;
    mf_cli_buffer text = {0};
    yyjson_val *thoughts = yyjson_obj_get(message, "reasoning_content");
    if (read_role(path, index, message, &role) != MF_EXIT_OK)
        return MF_EXIT_ERROR;
    int status = MF_EXIT_OK;
    if (thoughts && !yyjson_is_null(thoughts) && !is_text(thoughts))
        status = refuse(path, index, "reasoning_content: expected a string without U+0000");
    else if (role == MF_ROLE_ASSISTANT && yyjson_is_str(thoughts) &&
             !(append(&text, "<think>\n") && append(&text, yyjson_get_str(thoughts)) &&
               append(&text, "\n</think>\n\n")))
        status = mf_cli_error("no memory for the conversation");
    if (status == MF_EXIT_OK)
        status = read_content(path, index, yyjson_obj_get(message, "content"), &text);
    if (status == MF_EXIT_OK && !mf_cli_conversation_add(out, role, text.data))
        status = mf_cli_error("no memory for the conversation");
    mf_cli_buffer_free(&text);
    return status;
}

static int read_messages(const char *path, yyjson_val *root, mf_cli_conversation *out)
{
    yyjson_val *message;
    size_t i, n;
    if (!yyjson_is_arr(root) || yyjson_arr_size(root) > MAX_MESSAGES)
        return mf_cli_error("%s: expected an array of at most %d messages", path, MAX_MESSAGES);
    yyjson_arr_foreach(root, i, n, message)
    {
        if (read_message(path, i, message, out) != MF_EXIT_OK)
            return MF_EXIT_ERROR;
    }
    return MF_EXIT_OK;
}

int mf_cli_saved_read(const char *name, mf_cli_conversation *c)
{
    char path[MF_CLI_PATH_BYTES];
    mf_cli_buffer text = {0};
    mf_cli_conversation read = {.g = c->g};
    yyjson_read_err why = {0};
    if (mf_cli_saved_path(name, path) != MF_EXIT_OK ||
        mf_cli_read_regular(path, mf_cli_text_bytes((uint32_t)c->g->n_context_tokens), &text) !=
            MF_EXIT_OK) {
        mf_cli_buffer_free(&text);
        return MF_EXIT_ERROR;
    }
    yyjson_doc *doc =
        yyjson_read_opts(text.data ? text.data : "", text.n_bytes, YYJSON_READ_NOFLAG, NULL, &why);
    int status = doc ? read_messages(path, yyjson_doc_get_root(doc), &read)
                     : mf_cli_error("%s: not JSON at byte %zu: %s", path, why.pos, why.msg);
    if (status == MF_EXIT_OK)
        mf_cli_conversation_replace(c, &read);
    yyjson_doc_free(doc);
    mf_cli_buffer_free(&text);
    mf_cli_conversation_free(&read);
    return status;
}

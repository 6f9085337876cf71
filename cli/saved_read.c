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
#define MAX_CALLS 4096 /* of a message */

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

static int read_role(const char *path, size_t index, yyjson_val *message, mf_cli_role *out)
{
    static const char *const names[] = {"system", "user", "assistant", "developer", "tool"};
    static const mf_cli_role roles[] = {MF_CLI_SYSTEM, MF_CLI_USER, MF_CLI_ASSISTANT, MF_CLI_SYSTEM,
                                        MF_CLI_TOOL};
    yyjson_val *role = yyjson_obj_get(message, "role");
    if (!yyjson_is_obj(message))
        return refuse(path, index, "expected an object");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (yyjson_equals_str(role, names[i])) {
            *out = roles[i];
            return MF_EXIT_OK;
        }
    return refuse(path, index, "role: expected system, developer, user, assistant or tool");
}

/* A member that is text, null or not there. */
static int read_text(const char *path, size_t index, yyjson_val *object, const char *name,
                     mf_cli_buffer *out)
{
    yyjson_val *text = yyjson_obj_get(object, name);
    char expected[96];
    if (!text || yyjson_is_null(text))
        return MF_EXIT_OK;
    snprintf(expected, sizeof expected, "%s: expected a string without U+0000", name);
    if (!is_text(text))
        return refuse(path, index, expected);
    return append(out, yyjson_get_str(text)) ? MF_EXIT_OK
                                             : mf_cli_error("no memory for the conversation");
}

/* Arguments are a string, or the object itself. */
static int read_call(const char *path, size_t index, yyjson_val *value, mf_cli_call *out)
{
    yyjson_val *function = yyjson_obj_get(value, "function");
    yyjson_val *arguments = yyjson_obj_get(function, "arguments");
    size_t n = 0;
    int status = read_text(path, index, value, "id", &out->id);
    if (status == MF_EXIT_OK)
        status = read_text(path, index, function, "name", &out->name);
    if (status != MF_EXIT_OK)
        return status;
    if (out->name.n_bytes == 0)
        return refuse(path, index, "tool_calls: expected objects with a function's name");
    if (!yyjson_is_obj(arguments))
        return read_text(path, index, function, "arguments", &out->arguments);
    char *text = yyjson_val_write(arguments, 0, &n);
    const bool has_memory = text && mf_cli_buffer_append(&out->arguments, text, n);
    free(text);
    return has_memory ? MF_EXIT_OK : mf_cli_error("no memory for the conversation");
}

static int read_calls(const char *path, size_t index, yyjson_val *message, mf_cli_message *out)
{
    yyjson_val *calls = yyjson_obj_get(message, "tool_calls"), *call;
    size_t i, n;
    if (!calls || yyjson_is_null(calls))
        return MF_EXIT_OK;
    if (!yyjson_is_arr(calls) || (yyjson_arr_size(calls) > 0 && out->role != MF_CLI_ASSISTANT))
        return refuse(path, index, "tool_calls: expected an array in a message of the assistant");
    if (yyjson_arr_size(calls) > MAX_CALLS)
        return refuse(path, index, "tool_calls: more than 4096");
    yyjson_arr_foreach(calls, i, n, call)
    {
        mf_cli_call *own = mf_cli_message_add_call(out);
        if (!own)
            return mf_cli_error("no memory for the conversation");
        int status = read_call(path, index, call, own);
        if (status != MF_EXIT_OK)
            return status;
    }
    return MF_EXIT_OK;
}

/* Thoughts that stand in the content, as earlier versions and others write them. */
static bool part_thoughts(mf_cli_message *m)
{
    static const char open[] = "<think>", close[] = "</think>";
    const char *text = m->content.data;
    const char *end = text && m->thoughts.n_bytes == 0 ? strstr(text, close) : NULL;
    if (!end || strncmp(text, open, sizeof open - 1) != 0)
        return true;
    const char *begin = text + sizeof open - 1, *rest = end + sizeof close - 1;
    begin += strspn(begin, "\r\n");
    rest += strspn(rest, "\r\n");
    while (end > begin && strchr("\r\n", end[-1]))
        end--;
    if (end > begin && !mf_cli_buffer_append(&m->thoughts, begin, (size_t)(end - begin)))
        return false;
    const size_t n = strlen(rest);
    memmove(m->content.data, rest, n + 1);
    m->content.n_bytes = n;
    return true;
}

static int read_parts(const char *path, size_t index, yyjson_val *value, mf_cli_message *out)
{
    int status = read_role(path, index, value, &out->role);
    if (status == MF_EXIT_OK)
        status = read_text(path, index, value, "reasoning_content", &out->thoughts);
    if (status == MF_EXIT_OK)
        status = read_content(path, index, yyjson_obj_get(value, "content"), &out->content);
    if (status == MF_EXIT_OK)
        status = read_calls(path, index, value, out);
    if (status == MF_EXIT_OK)
        status = read_text(path, index, value, "tool_call_id", &out->call_id);
    if (status == MF_EXIT_OK)
        status = read_text(path, index, value, "name", &out->name);
    if (status == MF_EXIT_OK && out->role == MF_CLI_ASSISTANT && !part_thoughts(out))
        status = mf_cli_error("no memory for the conversation");
    if (out->role != MF_CLI_ASSISTANT)
        mf_cli_buffer_clear(&out->thoughts);
    return status;
}

static int read_message(const char *path, size_t index, yyjson_val *value, mf_cli_conversation *out)
{
    mf_cli_message message = {0};
    int status = read_parts(path, index, value, &message);
    if (status == MF_EXIT_OK && !mf_cli_conversation_take(out, &message))
        status = mf_cli_error("no memory for the conversation");
    mf_cli_message_free(&message);
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
    /* the path of an empty name is the folder's */
    if (mf_cli_saved_check(name) != MF_EXIT_OK || mf_cli_saved_path(name, path) != MF_EXIT_OK ||
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

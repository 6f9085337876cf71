/* SPDX-License-Identifier: MIT */
/* Messages and their JSON. */
#include "message.h"

#include "yyjson_prefix.h"

#include "yyjson.h"

#include <stdlib.h>
#include <string.h>

static void free_call(mf_cli_call *call)
{
    mf_cli_buffer_free(&call->id);
    mf_cli_buffer_free(&call->name);
    mf_cli_buffer_free(&call->arguments);
}

void mf_cli_message_free(mf_cli_message *m)
{
    mf_cli_buffer *const buffers[] = {&m->content, &m->thoughts, &m->call_id, &m->name};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        mf_cli_buffer_free(buffers[i]);
    for (size_t i = 0; i < m->n_calls; i++)
        free_call(&m->calls[i]);
    free(m->calls);
    *m = (mf_cli_message){0};
}

mf_cli_call *mf_cli_message_add_call(mf_cli_message *m)
{
    mf_cli_call *calls = realloc(m->calls, (m->n_calls + 1) * sizeof *calls);
    if (!calls)
        return NULL;
    m->calls = calls;
    calls[m->n_calls] = (mf_cli_call){0};
    return &calls[m->n_calls++];
}

void mf_cli_message_drop_call(mf_cli_message *m)
{
    free_call(&m->calls[--m->n_calls]);
}

bool mf_cli_clean(const mf_cli_buffer *text, mf_cli_buffer *out)
{
    bool has_memory = mf_cli_buffer_append(out, "", 0);
    mf_cli_buffer_clear(out);
    for (size_t at = 0, n; at < text->n_bytes && has_memory; at += n > 0 ? n : 1) {
        n = text->data[at] != '\0' ? mf_cli_character_bytes(text->data + at, text->n_bytes - at)
                                   : 0;
        has_memory = n > 0 ? mf_cli_buffer_append(out, text->data + at, n)
                           : mf_cli_buffer_append(out, "\xef\xbf\xbd", 3);
    }
    return has_memory;
}

bool mf_cli_message_clean(mf_cli_message *m)
{
    mf_cli_buffer *const texts[] = {&m->content, &m->thoughts};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        mf_cli_buffer cleaned = {0};
        if (!mf_cli_clean(texts[i], &cleaned)) {
            mf_cli_buffer_free(&cleaned);
            return false;
        }
        mf_cli_buffer_free(texts[i]);
        *texts[i] = cleaned;
    }
    return true;
}

/* -------------------------------------------------------------------------------------- JSON -- */

static bool is_object(const mf_cli_buffer *text)
{
    yyjson_doc *doc = yyjson_read(text->data ? text->data : "", text->n_bytes, 0);
    const bool is = yyjson_is_obj(yyjson_doc_get_root(doc));
    yyjson_doc_free(doc);
    return is;
}

/* As an object, unless they are to be text or are none. */
static void put_arguments(mf_cli_json *json, const mf_cli_buffer *arguments, bool is_text)
{
    mf_cli_json_key(json, "arguments");
    if (!is_text && is_object(arguments))
        fwrite(arguments->data, 1, arguments->n_bytes, json->out);
    else
        mf_cli_json_quote(json->out, arguments->data ? arguments->data : "", arguments->n_bytes);
}

void mf_cli_call_json(FILE *out, const mf_cli_call *call)
{
    mf_cli_json json = mf_cli_json_begin(out);
    mf_cli_json_text(&json, "id", call->id.data, call->id.n_bytes);
    mf_cli_json_text(&json, "name", call->name.data, call->name.n_bytes);
    put_arguments(&json, &call->arguments, false);
    mf_cli_json_end_value(&json);
}

static void put_calls(mf_cli_json *json, const mf_cli_message *m, unsigned ways)
{
    mf_cli_json_key(json, "tool_calls");
    for (size_t i = 0; i < m->n_calls; i++) {
        fputs(i > 0 ? ", " : "[", json->out);
        mf_cli_json call = mf_cli_json_begin(json->out);
        mf_cli_json_text(&call, "id", m->calls[i].id.data, m->calls[i].id.n_bytes);
        mf_cli_json_string(&call, "type", "function");
        mf_cli_json_key(&call, "function");
        mf_cli_json function = mf_cli_json_begin(json->out);
        mf_cli_json_text(&function, "name", m->calls[i].name.data, m->calls[i].name.n_bytes);
        put_arguments(&function, &m->calls[i].arguments, (ways & MF_CLI_WAY_TEXT_ARGUMENTS) != 0);
        mf_cli_json_end_value(&function);
        mf_cli_json_end_value(&call);
    }
    fputc(']', json->out);
}

/* With the thoughts before it where the template looks for them there. */
static void put_content(mf_cli_json *json, const mf_cli_message *m, bool has_thoughts)
{
    static const char *const around[] = {"<think>\n", "\n</think>\n\n"};
    mf_cli_buffer text = {0};
    if (!has_thoughts) {
        mf_cli_json_text(json, "content", m->content.data, m->content.n_bytes);
        return;
    }
    if (mf_cli_buffer_append(&text, around[0], strlen(around[0])) &&
        mf_cli_buffer_append(&text, m->thoughts.data, m->thoughts.n_bytes) &&
        mf_cli_buffer_append(&text, around[1], strlen(around[1])) &&
        mf_cli_buffer_append(&text, m->content.data ? m->content.data : "", m->content.n_bytes))
        mf_cli_json_text(json, "content", text.data, text.n_bytes);
    mf_cli_buffer_free(&text);
}

static void put_thoughts(mf_cli_json *json, const mf_cli_message *m, unsigned ways)
{
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    for (size_t i = 0; i < ((ways & MF_CLI_WAY_ALL_NAMES) ? 3 : 1); i++)
        mf_cli_json_text(json, names[i], m->thoughts.data, m->thoughts.n_bytes);
}

static void put_message(FILE *out, const mf_cli_message *m, unsigned ways)
{
    static const char *const roles[] = {[MF_CLI_SYSTEM] = "system",
                                        [MF_CLI_USER] = "user",
                                        [MF_CLI_ASSISTANT] = "assistant",
                                        [MF_CLI_TOOL] = "tool"};
    const bool has_thoughts = m->thoughts.n_bytes > 0;
    const bool is_inside = has_thoughts && (ways & MF_CLI_WAY_CONTENT_THOUGHTS);
    const bool is_null = m->n_calls > 0 && m->content.n_bytes == 0 && !is_inside &&
                         !(ways & MF_CLI_WAY_FULL_CONTENT);
    mf_cli_json json = mf_cli_json_begin(out);
    mf_cli_json_string(&json, "role", roles[m->role]);
    if (has_thoughts && !is_inside)
        put_thoughts(&json, m, ways);
    if (is_null) {
        mf_cli_json_key(&json, "content");
        fputs("null", out);
    } else {
        put_content(&json, m, is_inside);
    }
    if (m->n_calls > 0)
        put_calls(&json, m, ways);
    if (m->call_id.n_bytes > 0)
        mf_cli_json_text(&json, "tool_call_id", m->call_id.data, m->call_id.n_bytes);
    if (m->name.n_bytes > 0)
        mf_cli_json_text(&json, "name", m->name.data, m->name.n_bytes);
    mf_cli_json_end_value(&json);
}

void mf_cli_messages_json(FILE *out, const mf_cli_message *messages, size_t n_messages,
                          unsigned ways)
{
    fputs("[", out);
    for (size_t i = 0; i < n_messages; i++) {
        fputs(i > 0 ? ",\n" : "\n", out);
        put_message(out, &messages[i], ways);
    }
    fputs("\n]\n", out);
}

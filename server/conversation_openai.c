/* SPDX-License-Identifier: MIT */
/* The conversations of OpenAI's two APIs: messages of the chat, items of the responses. */
#include "conversation.h"
#include "seal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_empty(yyjson_val *v)
{
    return !v || yyjson_is_null(v) || (yyjson_is_arr(v) && yyjson_arr_size(v) == 0);
}

/* A string that may be absent, as a copy. */
static bool copy_text(yyjson_val *object, const char *member, const char *place, char **out,
                      mf_srv_refusal *r)
{
    char name[MF_SRV_PARAM_BYTES];
    yyjson_val *v = mf_srv_field_of(object, member);
    snprintf(name, sizeof name, "%.70s.%s", place, member);
    if (!v)
        return true;
    if (!mf_srv_is_text(v, name, r))
        return false;
    free(*out);
    *out = strdup(yyjson_get_str(v));
    return *out || mf_srv_refuse(r, 503, "out of memory for the messages");
}

static bool is_id(yyjson_val *id, const char *field, mf_srv_refusal *r)
{
    return !id || yyjson_is_null(id) || mf_srv_is_text(id, field, r);
}

/* A function's name and arguments. Models that call without arguments write none. */
static bool read_call(yyjson_val *function, yyjson_val *id, const char *place, mf_srv_message *m,
                      mf_srv_refusal *r)
{
    char name[MF_SRV_PARAM_BYTES];
    yyjson_val *called = yyjson_obj_get(function, "name");
    yyjson_val *arguments = mf_srv_field_of(function, "arguments");
    snprintf(name, sizeof name, "%.70s.name", place);
    if (!mf_srv_is_text(called, name, r))
        return false;
    snprintf(name, sizeof name, "%.70s.arguments", place);
    if (yyjson_is_obj(arguments)) {
        size_t n = 0;
        char *text = yyjson_val_write(arguments, 0, &n);
        bool is_good =
            text ? mf_srv_message_call(m, yyjson_get_str(id), yyjson_get_str(called), text, n, r)
                 : mf_srv_refuse(r, 503, "out of memory for the messages");
        free(text);
        return is_good;
    }
    if (arguments && !mf_srv_is_text(arguments, name, r))
        return false;
    const char *text = arguments ? yyjson_get_str(arguments) : "";
    const bool is_blank = text[strspn(text, " \t\r\n")] == '\0';
    return mf_srv_message_call(m, yyjson_get_str(id), yyjson_get_str(called),
                               is_blank ? "{}" : text, is_blank ? 2 : yyjson_get_len(arguments), r);
}

/* A call with a text: of an item, or of what a chat's call has in `custom`. */
static bool read_custom(yyjson_val *custom, yyjson_val *id, const char *place, mf_srv_message *m,
                        mf_srv_refusal *r)
{
    char field[MF_SRV_PARAM_BYTES];
    yyjson_val *name = yyjson_obj_get(custom, "name"), *input = yyjson_obj_get(custom, "input");
    mf_srv_bytes arguments = {0};
    snprintf(field, sizeof field, "%.70s.name", place);
    if (!mf_srv_is_text(name, field, r))
        return false;
    snprintf(field, sizeof field, "%.70s.input", place);
    if (!yyjson_is_str(input))
        return mf_srv_refuse_field(r, field, "expected a string");
    mf_srv_puts(&arguments, "{\"input\":");
    mf_srv_put_json(&arguments, yyjson_get_str(input), yyjson_get_len(input));
    mf_srv_puts(&arguments, "}");
    bool is_good = arguments.has_failed
                       ? mf_srv_refuse(r, 503, "out of memory for the messages")
                       : mf_srv_message_call(m, yyjson_get_str(id), yyjson_get_str(name),
                                             arguments.data, arguments.n_bytes, r);
    mf_srv_bytes_free(&arguments);
    return is_good;
}

/* -------------------------------------------------------------------------------------- chat -- */

/* reasoning_details: a list of objects with text or summary. */
static bool read_reasoning_details(yyjson_val *details, const char *place, mf_srv_bytes *to,
                                   mf_srv_refusal *r)
{
    size_t i, n;
    yyjson_val *item;
    yyjson_arr_foreach(details, i, n, item)
    {
        yyjson_val *text = mf_srv_field_of(item, "text");
        if (!text)
            text = mf_srv_field_of(item, "summary");
        if (text && !mf_srv_read_text(text, place, to, r))
            return false;
    }
    return true;
}

/* Thoughts beside the content, by the names that clients have for them. */
static bool read_reasoning(yyjson_val *message, const char *place, mf_srv_message *m,
                           mf_srv_refusal *r)
{
    yyjson_val *v = mf_srv_field_of(message, "reasoning_content");
    if (!v)
        v = mf_srv_field_of(message, "reasoning");
    if (m->thoughts.n_bytes > 0)
        return true;
    if (yyjson_is_str(v))
        return mf_srv_read_text(v, place, &m->thoughts, r);
    return read_reasoning_details(mf_srv_field_of(message, "reasoning_details"), place,
                                  &m->thoughts, r);
}

static bool read_calls(yyjson_val *message, const char *place, mf_srv_message *m, mf_srv_refusal *r)
{
    char name[MF_SRV_PARAM_BYTES];
    yyjson_val *calls = mf_srv_field_of(message, "tool_calls"), *call;
    yyjson_val *old = mf_srv_field_of(message, "function_call");
    size_t i, n;
    snprintf(name, sizeof name, "%.60s.tool_calls", place);
    if (m->role != MF_SRV_ASSISTANT && !(is_empty(calls) && is_empty(old)))
        return mf_srv_refuse_field(r, name, "only an assistant's message calls tools");
    if (calls && !yyjson_is_arr(calls))
        return mf_srv_refuse_field(r, name, "expected an array of calls");
    yyjson_arr_foreach(calls, i, n, call)
    {
        yyjson_val *type = mf_srv_field_of(call, "type"), *id = yyjson_obj_get(call, "id");
        const bool is_custom = yyjson_equals_str(type, "custom");
        snprintf(name, sizeof name, "%.60s.tool_calls[%zu]", place, i);
        if (type && !is_custom && !yyjson_equals_str(type, "function"))
            return mf_srv_refuse_field(r, name,
                                       "only calls of functions and custom tools are "
                                       "supported");
        snprintf(name, sizeof name, "%.40s.tool_calls[%zu].id", place, i);
        if (!is_id(id, name, r))
            return false;
        snprintf(name, sizeof name, "%.40s.tool_calls[%zu].custom", place, i);
        if (is_custom && !read_custom(yyjson_obj_get(call, "custom"), id, name, m, r))
            return false;
        if (is_custom)
            continue;
        snprintf(name, sizeof name, "%.40s.tool_calls[%zu].function", place, i);
        if (!read_call(yyjson_obj_get(call, "function"), id, name, m, r))
            return false;
    }
    snprintf(name, sizeof name, "%.60s.function_call", place);
    return !old || read_call(old, NULL, name, m, r);
}

static bool read_message(yyjson_val *message, size_t i, mf_srv_conversation *c, mf_srv_refusal *r)
{
    char place[MF_SRV_PARAM_BYTES], content[MF_SRV_PARAM_BYTES];
    mf_srv_role role;
    if (!mf_srv_read_role(message, "messages", i, &role, r))
        return false;
    mf_srv_message *m = mf_srv_conversation_add(c, role, r);
    snprintf(place, sizeof place, "messages[%zu]", i);
    snprintf(content, sizeof content, "messages[%zu].content", i);
    return m && mf_srv_read_content(yyjson_obj_get(message, "content"), content, m, r) &&
           read_reasoning(message, content, m, r) && read_calls(message, place, m, r) &&
           copy_text(message, "name", place, &m->name, r) &&
           copy_text(message, "tool_call_id", place, &m->call_id, r);
}

bool mf_srv_read_chat(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r)
{
    yyjson_val *messages = mf_srv_field_of(object, "messages"), *message;
    size_t i, n;
    if (!mf_srv_check_messages(messages, "messages", r))
        return false;
    yyjson_arr_foreach(messages, i, n, message)
    {
        if (!read_message(message, i, c, r))
            return false;
    }
    return mf_srv_conversation_finish(c, "messages", r);
}

/* --------------------------------------------------------------------------------- responses -- */

/* What an answer's items are parts of: the last message, if it is an answer that may go on. */
static mf_srv_message *answer_of(mf_srv_conversation *c, bool begins_new, mf_srv_refusal *r)
{
    mf_srv_message *last = c->n_messages > 0 ? &c->messages[c->n_messages - 1] : NULL;
    if (last && last->role == MF_SRV_ASSISTANT && !begins_new)
        return last;
    return mf_srv_conversation_add(c, MF_SRV_ASSISTANT, r);
}

/* Thoughts, where they are open, else as we gave them to be carried, else their summary. */
static bool read_reasoning_item(yyjson_val *item, const char *place, mf_srv_conversation *c,
                                mf_srv_refusal *r)
{
    mf_srv_message *m = answer_of(c, true, r);
    mf_srv_message thoughts = {0};
    yyjson_val *content = mf_srv_field_of(item, "content");
    if (!m)
        return false;
    yyjson_val *sealed = mf_srv_field_of(item, "encrypted_content");
    bool is_good = mf_srv_read_content(content, place, &thoughts, r);
    if (thoughts.thoughts.n_bytes == 0 && yyjson_is_str(sealed))
        (void)mf_srv_put_unsealed(&thoughts.thoughts, yyjson_get_str(sealed),
                                  yyjson_get_len(sealed));
    is_good =
        is_good && (thoughts.thoughts.n_bytes > 0 ||
                    mf_srv_read_content(mf_srv_field_of(item, "summary"), place, &thoughts, r));
    if (is_good)
        mf_srv_put(&m->thoughts, thoughts.thoughts.data ? thoughts.thoughts.data : "",
                   thoughts.thoughts.n_bytes);
    mf_srv_message_free(&thoughts);
    return is_good;
}

static bool read_message_item(yyjson_val *item, const char *list, size_t i, mf_srv_conversation *c,
                              mf_srv_refusal *r)
{
    char place[MF_SRV_PARAM_BYTES];
    mf_srv_role role;
    if (!mf_srv_read_role(item, list, i, &role, r))
        return false;
    const mf_srv_message *last = c->n_messages > 0 ? &c->messages[c->n_messages - 1] : NULL;
    const bool is_new = !last || last->n_calls > 0 || last->content.data;
    mf_srv_message *m =
        role == MF_SRV_ASSISTANT ? answer_of(c, is_new, r) : mf_srv_conversation_add(c, role, r);
    snprintf(place, sizeof place, "%s[%zu].content", list, i);
    return m && mf_srv_read_content(yyjson_obj_get(item, "content"), place, m, r);
}

/* A call of a tool of a group that the model knows by another name: the last of the message's. */
static bool show_name(yyjson_val *item, const mf_srv_conversation *c, mf_srv_message *m,
                      mf_srv_refusal *r)
{
    const char *space = yyjson_get_str(yyjson_obj_get(item, "namespace"));
    mf_srv_call *call = &m->calls[m->n_calls - 1];
    for (size_t i = 0; space && i < c->odd.n; i++) {
        const mf_srv_odd_tool *odd = &c->odd.list[i];
        if (!odd->own || !odd->space || strcmp(odd->own, call->name) != 0 ||
            strcmp(odd->space, space) != 0)
            continue;
        char *name = strdup(odd->name);
        if (!name)
            return mf_srv_refuse(r, 503, "out of memory for the messages");
        free(call->name);
        call->name = name;
        return true;
    }
    return true;
}

/* read: read_call or read_custom. */
static bool read_call_item(yyjson_val *item, const char *place, mf_srv_conversation *c,
                           mf_srv_refusal *r,
                           bool (*read)(yyjson_val *call, yyjson_val *id, const char *place,
                                        mf_srv_message *m, mf_srv_refusal *r))
{
    char name[MF_SRV_PARAM_BYTES];
    yyjson_val *id = yyjson_obj_get(item, "call_id");
    mf_srv_message *m = answer_of(c, false, r);
    snprintf(name, sizeof name, "%.70s.call_id", place);
    return m && is_id(id, name, r) && read(item, id, place, m, r) && show_name(item, c, m, r);
}

static bool read_result_item(yyjson_val *item, const char *place, mf_srv_conversation *c,
                             mf_srv_refusal *r)
{
    char name[MF_SRV_PARAM_BYTES];
    mf_srv_message *m = mf_srv_conversation_add(c, MF_SRV_TOOL, r);
    snprintf(name, sizeof name, "%.70s.output", place);
    return m && copy_text(item, "call_id", place, &m->call_id, r) &&
           mf_srv_read_content(yyjson_obj_get(item, "output"), name, m, r);
}

/* What one agent says to another: to the model a user's message of that name. */
static bool read_agent_item(yyjson_val *item, const char *place, mf_srv_conversation *c,
                            mf_srv_refusal *r)
{
    char name[MF_SRV_PARAM_BYTES];
    mf_srv_message *m = mf_srv_conversation_add(c, MF_SRV_USER, r);
    snprintf(name, sizeof name, "%.70s.content", place);
    return m && copy_text(item, "author", place, &m->name, r) &&
           mf_srv_read_content(yyjson_obj_get(item, "content"), name, m, r);
}

/* Items that say nothing to the model: calls of tools that OpenAI's servers ran and their results,
 * what is compacted in their own way, marks. Tools that come later are among the tools. */
static bool is_left_out(const char *type)
{
    static const char *const exact[] = {"additional_tools",      "compaction",
                                        "context_compaction",    "compaction_summary",
                                        "compaction_trigger",    "ghost_snapshot",
                                        "tool_search_output",    "configuration_update",
                                        "mcp_list_tools",        "mcp_approval_request",
                                        "mcp_approval_response", "program",
                                        "program_output"};
    static const char *const ends[] = {"_call", "_call_output"};
    const size_t n = strlen(type);
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++)
        if (strcmp(type, exact[i]) == 0)
            return true;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && strcmp(type + n - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

/* The item i of a list of the request. */
static bool read_item(yyjson_val *item, const char *list, size_t i, mf_srv_conversation *c,
                      mf_srv_refusal *r)
{
    char place[MF_SRV_PARAM_BYTES], name[MF_SRV_PARAM_BYTES];
    yyjson_val *type = mf_srv_field_of(item, "type");
    snprintf(place, sizeof place, "%s[%zu]", list, i);
    snprintf(name, sizeof name, "%s[%zu].type", list, i);
    if (type && !mf_srv_is_text(type, name, r))
        return false;
    if (!type || yyjson_equals_str(type, "message"))
        return read_message_item(item, list, i, c, r);
    if (yyjson_equals_str(type, "reasoning"))
        return read_reasoning_item(item, place, c, r);
    if (yyjson_equals_str(type, "function_call"))
        return read_call_item(item, place, c, r, read_call);
    if (yyjson_equals_str(type, "custom_tool_call"))
        return read_call_item(item, place, c, r, read_custom);
    if (yyjson_equals_str(type, "function_call_output") ||
        yyjson_equals_str(type, "custom_tool_call_output"))
        return read_result_item(item, place, c, r);
    if (yyjson_equals_str(type, "agent_message"))
        return read_agent_item(item, place, c, r);
    if (is_left_out(yyjson_get_str(type)))
        return true;
    mf_srv_refuse_field(r, name, "'%.40s' is not supported by this server", yyjson_get_str(type));
    r->code = "unsupported_parameter";
    return false;
}

static bool add_text(yyjson_val *text, const char *place, mf_srv_role role, mf_srv_conversation *c,
                     mf_srv_refusal *r)
{
    mf_srv_message *m = mf_srv_conversation_add(c, role, r);
    return m && mf_srv_read_content(text, place, m, r);
}

bool mf_srv_read_responses(yyjson_val *object, yyjson_val *input, size_t n_earlier,
                           mf_srv_conversation *c, mf_srv_refusal *r)
{
    yyjson_val *instructions = mf_srv_field_of(object, "instructions"), *item;
    size_t i, n;
    if (instructions && !add_text(instructions, "instructions", MF_SRV_SYSTEM, c, r))
        return false;
    if (yyjson_is_str(input))
        return add_text(input, "input", MF_SRV_USER, c, r) &&
               mf_srv_conversation_finish(c, "input", r);
    if (!mf_srv_check_messages(input, "input", r))
        return false;
    yyjson_arr_foreach(input, i, n, item)
    {
        if (!read_item(item, "input", i < n_earlier ? i : i - n_earlier, c, r))
            return false;
    }
    return mf_srv_conversation_finish(c, "input", r);
}

bool mf_srv_read_items(yyjson_val *items, const char *name, mf_srv_conversation *c,
                       mf_srv_refusal *r)
{
    yyjson_val *item;
    size_t i, n;
    if (!mf_srv_check_messages(items, name, r))
        return false;
    yyjson_arr_foreach(items, i, n, item)
    {
        if (!read_item(item, name, i, c, r))
            return false;
    }
    return true;
}

/* SPDX-License-Identifier: MIT */
/* Anthropic's conversations: blocks. A user's turn holds the results of the calls before it. */
#include "conversation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* First in Claude Code's system prompt, different in every session, and no word to the model. */
#define ATTRIBUTION "x-anthropic-billing-header:"

/* So begin the texts that it puts beside what users and tools say. */
#define REMINDER "<system-reminder>"

static bool is_attribution(yyjson_val *block)
{
    const char *text = yyjson_get_str(yyjson_obj_get(block, "text"));
    return text && strncmp(text, ATTRIBUTION, sizeof ATTRIBUTION - 1) == 0;
}

static bool read_system(yyjson_val *system, mf_srv_conversation *c, mf_srv_refusal *r)
{
    size_t i, n;
    yyjson_val *block;
    if (!system)
        return true;
    mf_srv_message *m = mf_srv_conversation_add(c, MF_SRV_SYSTEM, r);
    if (!m)
        return false;
    if (!yyjson_is_arr(system) && !mf_srv_read_content(system, "system", m, r))
        return false;
    yyjson_arr_foreach(system, i, n, block)
    {
        if (i == 0 && is_attribution(block))
            continue;
        if (m->content.n_bytes > 0)
            mf_srv_puts(&m->content, "\n\n");
        if (!mf_srv_read_part(block, "system", i, m, r))
            return false;
    }
    if (m->content.n_bytes == 0)
        mf_srv_message_free(&c->messages[--c->n_messages]);
    return true;
}

static bool read_use(yyjson_val *block, const char *place, mf_srv_message *m, mf_srv_refusal *r)
{
    char name[MF_SRV_PARAM_BYTES];
    yyjson_val *called = yyjson_obj_get(block, "name"), *id = yyjson_obj_get(block, "id");
    yyjson_val *input = mf_srv_field_of(block, "input");
    size_t n = 0;
    snprintf(name, sizeof name, "%.70s.name", place);
    if (!mf_srv_is_text(called, name, r))
        return false;
    snprintf(name, sizeof name, "%.70s.id", place);
    if (!mf_srv_is_text(id, name, r))
        return false;
    snprintf(name, sizeof name, "%.70s.input", place);
    if (input && !yyjson_is_obj(input))
        return mf_srv_refuse_field(r, name, "expected an object");
    char *text = input ? yyjson_val_write(input, 0, &n) : NULL;
    if (input && !text)
        return mf_srv_refuse(r, 503, "out of memory for the messages");
    bool is_good = mf_srv_message_call(m, yyjson_get_str(id), yyjson_get_str(called),
                                       text ? text : "{}", text ? n : 2, r);
    free(text);
    return is_good;
}

/* A result is a message of its own. */
static bool read_result(yyjson_val *block, const char *place, mf_srv_conversation *c,
                        mf_srv_refusal *r)
{
    char name[MF_SRV_PARAM_BYTES];
    yyjson_val *id = yyjson_obj_get(block, "tool_use_id");
    bool is_error = false;
    mf_srv_message *m = mf_srv_conversation_add(c, MF_SRV_TOOL, r);
    snprintf(name, sizeof name, "%.70s.tool_use_id", place);
    if (!m || !mf_srv_is_text(id, name, r))
        return false;
    snprintf(name, sizeof name, "%.70s.is_error", place);
    if (!mf_srv_get_bool(block, name, &is_error, r))
        return false;
    m->call_id = strdup(yyjson_get_str(id));
    if (!m->call_id)
        return mf_srv_refuse(r, 503, "out of memory for the messages");
    if (is_error)
        mf_srv_puts(&m->content, "Error: ");
    snprintf(name, sizeof name, "%.70s.content", place);
    return mf_srv_read_content(yyjson_obj_get(block, "content"), name, m, r);
}

/* What an agent adds to the results of calls for the model to know: no question of the user's,
 * behind which templates drop the thoughts of the calls before it. */
static bool is_reminder(yyjson_val *block)
{
    const char *text = yyjson_get_str(yyjson_obj_get(block, "text"));
    return text && strncmp(text, REMINDER, sizeof REMINDER - 1) == 0;
}

/* The last message, if it is of the role: results stand between a user's texts. */
static mf_srv_message *message_of(mf_srv_conversation *c, mf_srv_role role, size_t n_before,
                                  mf_srv_refusal *r)
{
    if (c->n_messages > n_before && c->messages[c->n_messages - 1].role == role)
        return &c->messages[c->n_messages - 1];
    return mf_srv_conversation_add(c, role, r);
}

static bool read_block(yyjson_val *block, size_t i, size_t k, mf_srv_role role, size_t n_before,
                       mf_srv_conversation *c, mf_srv_refusal *r)
{
    char place[MF_SRV_PARAM_BYTES];
    yyjson_val *type = yyjson_obj_get(block, "type");
    snprintf(place, sizeof place, "messages[%zu].content[%zu]", i, k);
    if (role == MF_SRV_USER && yyjson_equals_str(type, "tool_result"))
        return read_result(block, place, c, r);
    const bool is_behind_result =
        c->n_messages > n_before && c->messages[c->n_messages - 1].role == MF_SRV_TOOL;
    if (is_behind_result && is_reminder(block))
        role = MF_SRV_TOOL;
    mf_srv_message *m = message_of(c, role, n_before, r);
    if (!m)
        return false;
    if (role == MF_SRV_TOOL)
        mf_srv_puts(&m->content, "\n\n");
    if (role == MF_SRV_ASSISTANT && yyjson_equals_str(type, "tool_use"))
        return read_use(block, place, m, r);
    snprintf(place, sizeof place, "messages[%zu].content", i);
    return mf_srv_read_part(block, place, k, m, r);
}

static bool read_message(yyjson_val *message, size_t i, mf_srv_conversation *c, mf_srv_refusal *r)
{
    char place[MF_SRV_PARAM_BYTES];
    const size_t n_before = c->n_messages;
    mf_srv_role role;
    yyjson_val *content = yyjson_obj_get(message, "content"), *block;
    size_t k, n;
    if (!mf_srv_read_role(message, "messages", i, &role, r))
        return false;
    snprintf(place, sizeof place, "messages[%zu].content", i);
    if (!yyjson_is_arr(content)) {
        mf_srv_message *m = mf_srv_conversation_add(c, role, r);
        return m && mf_srv_read_content(content, place, m, r);
    }
    yyjson_arr_foreach(content, k, n, block)
    {
        if (!read_block(block, i, k, role, n_before, c, r))
            return false;
    }
    return true;
}

/* Neighbours of one role are one turn; results stay apart. */
static bool merge(mf_srv_conversation *c, mf_srv_refusal *r)
{
    size_t n = 0;
    bool is_good = true;
    for (size_t i = 0; i < c->n_messages; i++) {
        mf_srv_message *m = &c->messages[i], *before = n > 0 ? &c->messages[n - 1] : NULL;
        if (before && before->role == m->role &&
            (m->role == MF_SRV_USER || m->role == MF_SRV_ASSISTANT)) {
            is_good = is_good && mf_srv_message_append(before, m, "\n\n", r);
            mf_srv_message_free(m);
            continue;
        }
        mf_srv_message moved = *m;
        *m = (mf_srv_message){0};
        c->messages[n++] = moved;
    }
    c->n_messages = n;
    return is_good;
}

bool mf_srv_read_messages(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r)
{
    yyjson_val *messages = mf_srv_field_of(object, "messages"), *message;
    size_t i, n;
    if (!mf_srv_check_messages(messages, "messages", r) ||
        !read_system(mf_srv_field_of(object, "system"), c, r))
        return false;
    yyjson_arr_foreach(messages, i, n, message)
    {
        if (!read_message(message, i, c, r))
            return false;
    }
    return merge(c, r) && mf_srv_conversation_finish(c, "messages", r);
}

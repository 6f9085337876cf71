/* SPDX-License-Identifier: MIT */
/*
 * Messages, text alone: a part that this server cannot show the model is refused by its place and
 * name. Thoughts that clients send back go where templates look for them.
 */
#include "conversation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MESSAGES 100000
/* First in Claude Code's system prompt, different in every session, and no word to the model. */
#define ATTRIBUTION "x-anthropic-billing-header:"

/* A message being read. */
typedef struct reading {
    char place[MF_SRV_PARAM_BYTES]; /* messages[3].content */
    mf_srv_bytes text, thoughts;
    mf_srv_refusal *refusal;
} reading;

static bool refuse_part(const reading *m, size_t i, const char *type)
{
    char place[MF_SRV_PARAM_BYTES];
    snprintf(place, sizeof place, "%.70s[%zu].type", m->place, i);
    mf_srv_refuse_field(m->refusal, place, "'%.40s' is not supported by this server", type);
    m->refusal->code = "unsupported_parameter";
    return false;
}

static bool add_text(reading *m, yyjson_val *value, mf_srv_bytes *to)
{
    if (!mf_srv_is_text(value, m->place, m->refusal))
        return false;
    mf_srv_put(to, yyjson_get_str(value), yyjson_get_len(value));
    return true;
}

/* One part of a content that is an array. */
static bool add_part(reading *m, size_t i, yyjson_val *part)
{
    const char *type = yyjson_get_str(yyjson_obj_get(part, "type"));
    if (yyjson_is_str(part))
        return add_text(m, part, &m->text);
    if (!type)
        return mf_srv_refuse_field(m->refusal, m->place, "expected parts with a type");
    if (strcmp(type, "text") == 0 || strcmp(type, "input_text") == 0 ||
        strcmp(type, "output_text") == 0)
        return add_text(m, yyjson_obj_get(part, "text"), &m->text);
    if (strcmp(type, "refusal") == 0)
        return add_text(m, yyjson_obj_get(part, "refusal"), &m->text);
    if (strcmp(type, "thinking") == 0)
        return add_text(m, yyjson_obj_get(part, "thinking"), &m->thoughts);
    if (strcmp(type, "redacted_thinking") == 0)
        return true; /* nobody here could have written it */
    return refuse_part(m, i, type);
}

/* A string, null, or an array of parts. */
static bool add_content(reading *m, yyjson_val *content)
{
    size_t i, n;
    yyjson_val *part;
    if (!content || yyjson_is_null(content))
        return true;
    if (yyjson_is_str(content))
        return add_text(m, content, &m->text);
    if (!yyjson_is_arr(content))
        return mf_srv_refuse_field(m->refusal, m->place, "expected a string or an array of parts");
    yyjson_arr_foreach(content, i, n, part)
    {
        if (!add_part(m, i, part))
            return false;
    }
    return true;
}

/* What was read becomes a message. */
static bool finish_message(reading *m, mf_chat_role role, mf_srv_conversation *c)
{
    mf_srv_bytes whole = {0};
    if (role == MF_ROLE_ASSISTANT && m->thoughts.n_bytes > 0)
        mf_srv_printf(&whole, "<think>\n%s\n</think>\n\n", m->thoughts.data);
    mf_srv_put(&whole, m->text.data ? m->text.data : "", m->text.n_bytes);
    bool has_failed = whole.has_failed || m->text.has_failed || m->thoughts.has_failed;
    mf_srv_bytes_free(&m->text);
    mf_srv_bytes_free(&m->thoughts);
    if (!has_failed && mf_srv_conversation_add(c, role, whole.data))
        return true;
    if (has_failed)
        mf_srv_bytes_free(&whole);
    return mf_srv_refuse(m->refusal, 503, "out of memory for the messages");
}

static void drop_reading(reading *m)
{
    mf_srv_bytes_free(&m->text);
    mf_srv_bytes_free(&m->thoughts);
}

static bool role_of(const char *name, size_t i, yyjson_val *message, mf_chat_role *out,
                    mf_srv_refusal *r)
{
    static const struct {
        const char *name;
        mf_chat_role role;
    } roles[] = {{"system", MF_ROLE_SYSTEM},
                 {"developer", MF_ROLE_SYSTEM},
                 {"user", MF_ROLE_USER},
                 {"assistant", MF_ROLE_ASSISTANT}};
    char place[MF_SRV_PARAM_BYTES];
    snprintf(place, sizeof place, "%s[%zu].role", name, i);
    const char *role = yyjson_get_str(yyjson_obj_get(message, "role"));
    if (!yyjson_is_obj(message) || !role)
        return mf_srv_refuse_field(r, place, "expected an object with a role");
    for (size_t k = 0; k < sizeof roles / sizeof *roles; k++)
        if (strcmp(roles[k].name, role) == 0) {
            *out = roles[k].role;
            return true;
        }
    return mf_srv_refuse_field(r, place, "'%.40s' is not supported by this server", role);
}

static bool check_array(yyjson_val *array, const char *name, mf_srv_refusal *r)
{
    if (!yyjson_is_arr(array) || yyjson_arr_size(array) == 0)
        return mf_srv_refuse_field(r, name, "expected an array of at least one message");
    if (yyjson_arr_size(array) > MAX_MESSAGES)
        return mf_srv_refuse_field(r, name, "more than %d messages", MAX_MESSAGES);
    return true;
}

/* An empty answer at the end is what a failed turn left; some message must stay. */
static bool drop_debris(mf_srv_conversation *c, const char *name, mf_srv_refusal *r)
{
    mf_srv_message *last = c->n_messages > 0 ? &c->messages[c->n_messages - 1] : NULL;
    if (last && last->role == MF_ROLE_ASSISTANT && !*last->content) {
        free(last->content);
        c->n_messages--;
    }
    if (c->n_messages == 0)
        return mf_srv_refuse_field(r, name, "expected at least one message with content");
    return true;
}

/* --------------------------------------------------------------------------------------- OpenAI --
 */

static bool is_empty(yyjson_val *v)
{
    return !v || yyjson_is_null(v) || (yyjson_is_arr(v) && yyjson_arr_size(v) == 0);
}

/* Thoughts beside the content, by the names that clients have for them. */
static bool add_reasoning(reading *m, yyjson_val *message)
{
    yyjson_val *v = mf_srv_field_of(message, "reasoning_content");
    if (!v)
        v = mf_srv_field_of(message, "reasoning");
    return !yyjson_is_str(v) || m->thoughts.n_bytes > 0 || add_text(m, v, &m->thoughts);
}

static bool read_chat_message(yyjson_val *message, size_t i, mf_srv_conversation *c,
                              mf_srv_refusal *r)
{
    mf_chat_role role;
    reading m = {.refusal = r};
    if (!role_of("messages", i, message, &role, r))
        return false;
    snprintf(m.place, sizeof m.place, "messages[%zu].tool_calls", i);
    if (!is_empty(yyjson_obj_get(message, "tool_calls")) ||
        !is_empty(yyjson_obj_get(message, "function_call")))
        return mf_srv_refuse_field(r, m.place, "tool calls are not supported by this server");
    snprintf(m.place, sizeof m.place, "messages[%zu].content", i);
    if (add_content(&m, yyjson_obj_get(message, "content")) && add_reasoning(&m, message))
        return finish_message(&m, role, c);
    drop_reading(&m);
    return false;
}

bool mf_srv_read_chat(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r)
{
    yyjson_val *messages = mf_srv_field_of(object, "messages"), *message;
    size_t i, n;
    if (!check_array(messages, "messages", r))
        return false;
    yyjson_arr_foreach(messages, i, n, message)
    {
        if (!read_chat_message(message, i, c, r))
            return false;
    }
    return drop_debris(c, "messages", r);
}

/* ------------------------------------------------------------------------------------ responses --
 */

static bool add_simple(yyjson_val *text, const char *place, mf_chat_role role,
                       mf_srv_conversation *c, mf_srv_refusal *r)
{
    reading m = {.refusal = r};
    snprintf(m.place, sizeof m.place, "%s", place);
    if (add_content(&m, text))
        return finish_message(&m, role, c);
    drop_reading(&m);
    return false;
}

static bool read_item(yyjson_val *item, size_t i, mf_srv_conversation *c, mf_srv_refusal *r)
{
    char place[MF_SRV_PARAM_BYTES];
    mf_chat_role role;
    yyjson_val *type = yyjson_obj_get(item, "type");
    snprintf(place, sizeof place, "input[%zu].type", i);
    if (type && !yyjson_is_str(type))
        return mf_srv_refuse_field(r, place, "expected a string");
    if (yyjson_equals_str(type, "reasoning"))
        return true; /* templates drop the thoughts of turns that are over */
    if (type && !yyjson_equals_str(type, "message"))
        return mf_srv_refuse_field(r, place, "'%.40s' is not supported by this server",
                                   yyjson_get_str(type));
    snprintf(place, sizeof place, "input[%zu].content", i);
    return role_of("input", i, item, &role, r) &&
           add_simple(yyjson_obj_get(item, "content"), place, role, c, r);
}

bool mf_srv_read_responses(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r)
{
    yyjson_val *input = mf_srv_field_of(object, "input"), *item;
    yyjson_val *instructions = mf_srv_field_of(object, "instructions");
    size_t i, n;
    if (instructions && !add_simple(instructions, "instructions", MF_ROLE_SYSTEM, c, r))
        return false;
    if (yyjson_is_str(input))
        return add_simple(input, "input", MF_ROLE_USER, c, r);
    if (!check_array(input, "input", r))
        return false;
    yyjson_arr_foreach(input, i, n, item)
    {
        if (!read_item(item, i, c, r))
            return false;
    }
    return drop_debris(c, "input", r);
}

/* ------------------------------------------------------------------------------------ Anthropic --
 */

static bool is_attribution(yyjson_val *block)
{
    const char *text = yyjson_get_str(yyjson_obj_get(block, "text"));
    return text && strncmp(text, ATTRIBUTION, sizeof ATTRIBUTION - 1) == 0;
}

static bool read_system(yyjson_val *system, mf_srv_conversation *c, mf_srv_refusal *r)
{
    reading m = {.refusal = r, .place = "system"};
    size_t i, n;
    yyjson_val *block;
    bool is_good = true;
    if (!system)
        return true;
    if (!yyjson_is_arr(system)) {
        is_good = add_content(&m, system);
    } else {
        yyjson_arr_foreach(system, i, n, block)
        {
            if (i == 0 && is_attribution(block))
                continue;
            if (m.text.n_bytes > 0)
                mf_srv_puts(&m.text, "\n\n");
            is_good = is_good && add_part(&m, i, block);
        }
    }
    if (is_good && m.text.n_bytes > 0)
        return finish_message(&m, MF_ROLE_SYSTEM, c);
    drop_reading(&m);
    return is_good;
}

/* Neighbours of one role are one turn. */
static bool merge(mf_srv_conversation *c, mf_srv_refusal *r)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_messages; i++) {
        mf_srv_message *m = &c->messages[i];
        if (n > 0 && c->messages[n - 1].role == m->role && m->role != MF_ROLE_SYSTEM) {
            mf_srv_bytes both = {0};
            mf_srv_printf(&both, "%s\n\n%s", c->messages[n - 1].content, m->content);
            free(c->messages[n - 1].content);
            free(m->content);
            c->messages[n - 1].content = both.data;
            m->content = NULL;
            if (!both.data || both.has_failed)
                return mf_srv_refuse(r, 503, "out of memory for the messages");
            continue;
        }
        mf_srv_message moved = *m;
        m->content = NULL;
        c->messages[n++] = moved;
    }
    c->n_messages = n;
    return true;
}

bool mf_srv_read_messages(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r)
{
    yyjson_val *messages = mf_srv_field_of(object, "messages"), *message;
    size_t i, n;
    if (!check_array(messages, "messages", r) ||
        !read_system(mf_srv_field_of(object, "system"), c, r))
        return false;
    yyjson_arr_foreach(messages, i, n, message)
    {
        if (!read_chat_message(message, i, c, r))
            return false;
    }
    return merge(c, r) && drop_debris(c, "messages", r);
}

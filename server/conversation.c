/* SPDX-License-Identifier: MIT */
/*
 * Messages and their parts. A part that this server cannot show the model is refused by its place
 * and name where it is asked; what was said before is not wedged by it.
 */
#include "conversation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MESSAGES 100000
#define MAX_CALLS 1024
#define THINK "<think>"
#define THINK_END "</think>"

static bool no_memory(mf_srv_refusal *r)
{
    return mf_srv_refuse(r, 503, "out of memory for the messages");
}

/* ------------------------------------------------------------------------------------ making -- */

mf_srv_message *mf_srv_conversation_add(mf_srv_conversation *c, mf_srv_role role, mf_srv_refusal *r)
{
    if (c->n_messages == MAX_MESSAGES) { /* results and items, each of which may be one */
        mf_srv_refuse(r, 400, "more than %d messages", MAX_MESSAGES);
        return NULL;
    }
    if (c->n_messages == c->capacity) {
        size_t capacity = c->capacity * 2 + 8;
        mf_srv_message *messages = realloc(c->messages, capacity * sizeof *messages);
        if (!messages) {
            no_memory(r);
            return NULL;
        }
        c->messages = messages;
        c->capacity = capacity;
    }
    mf_srv_message *m = &c->messages[c->n_messages++];
    *m = (mf_srv_message){.role = role};
    return m;
}

bool mf_srv_message_call(mf_srv_message *m, const char *id, const char *name, const char *arguments,
                         size_t n_arguments, mf_srv_refusal *r)
{
    if (m->n_calls == MAX_CALLS)
        return mf_srv_refuse(r, 400, "a message has more than %d calls of tools", MAX_CALLS);
    mf_srv_call *calls = realloc(m->calls, (m->n_calls + 1) * sizeof *calls);
    if (!calls)
        return no_memory(r);
    m->calls = calls;
    mf_srv_call *call = &calls[m->n_calls++];
    *call = (mf_srv_call){.id = id ? strdup(id) : NULL,
                          .name = strdup(name),
                          .arguments = strndup(arguments, n_arguments)};
    return ((!id || call->id) && call->name && call->arguments) || no_memory(r);
}

bool mf_srv_message_append(mf_srv_message *m, mf_srv_message *from, const char *between,
                           mf_srv_refusal *r)
{
    if (from->content.data) {
        if (m->content.n_bytes > 0 && from->content.n_bytes > 0)
            mf_srv_puts(&m->content, between);
        mf_srv_put(&m->content, from->content.data, from->content.n_bytes);
    }
    if (from->thoughts.data) {
        if (m->thoughts.n_bytes > 0 && from->thoughts.n_bytes > 0)
            mf_srv_puts(&m->thoughts, between);
        mf_srv_put(&m->thoughts, from->thoughts.data, from->thoughts.n_bytes);
    }
    if (from->n_calls > 0) {
        mf_srv_call *calls = realloc(m->calls, (m->n_calls + from->n_calls) * sizeof *calls);
        if (!calls)
            return no_memory(r);
        memcpy(calls + m->n_calls, from->calls, from->n_calls * sizeof *calls);
        m->calls = calls;
        m->n_calls += from->n_calls;
        from->n_calls = 0; /* they moved */
    }
    if (!m->unseen) {
        m->unseen = from->unseen;
        m->unseen_type = from->unseen_type;
        from->unseen = from->unseen_type = NULL;
    }
    return true;
}

void mf_srv_message_free(mf_srv_message *m)
{
    mf_srv_bytes_free(&m->content);
    mf_srv_bytes_free(&m->thoughts);
    free(m->name);
    free(m->call_id);
    for (size_t i = 0; i < m->n_calls; i++) {
        free(m->calls[i].id);
        free(m->calls[i].name);
        free(m->calls[i].arguments);
    }
    free(m->calls);
    free(m->unseen);
    free(m->unseen_type);
    *m = (mf_srv_message){0};
}

void mf_srv_odd_tools_free(mf_srv_odd_tools *odd)
{
    for (size_t i = 0; i < odd->n; i++) {
        free(odd->list[i].name);
        free(odd->list[i].own);
        free(odd->list[i].space);
    }
    free(odd->list);
    *odd = (mf_srv_odd_tools){0};
}

void mf_srv_conversation_free(mf_srv_conversation *c)
{
    for (size_t i = 0; i < c->n_messages; i++)
        mf_srv_message_free(&c->messages[i]);
    free(c->messages);
    mf_srv_bytes_free(&c->tools);
    mf_srv_odd_tools_free(&c->odd);
    mf_srv_bytes_free(&c->names);
    mf_srv_bytes_free(&c->strict);
    free(c->only_tool);
    mf_srv_bytes_free(&c->documents);
    mf_srv_bytes_free(&c->variables);
    *c = (mf_srv_conversation){0};
}

/* --------------------------------------------------------------------------------- finishing -- */

static size_t n_blank(const char *text)
{
    return strspn(text, " \t\r\n");
}

/* Some clients send thoughts within the content, where the model wrote them. */
static void part_thoughts(mf_srv_message *m)
{
    const size_t n_open = sizeof THINK - 1, n_close = sizeof THINK_END - 1;
    if (m->role != MF_SRV_ASSISTANT || m->thoughts.n_bytes > 0 || !m->content.data)
        return;
    char *begin = m->content.data + n_blank(m->content.data);
    if (strncmp(begin, THINK, n_open) != 0)
        return;
    begin += n_open + n_blank(begin + n_open);
    char *end =
        memmem(begin, (size_t)(m->content.data + m->content.n_bytes - begin), THINK_END, n_close);
    if (!end)
        return;
    size_t n = (size_t)(end - begin);
    while (n > 0 && mf_srv_is_blank(begin[n - 1]))
        n--;
    mf_srv_put(&m->thoughts, begin, n);
    mf_srv_drop(&m->content, (size_t)(end - m->content.data) + n_close);
    mf_srv_drop(&m->content, n_blank(m->content.data));
}

static bool says_nothing(const mf_srv_message *m)
{
    return m->role == MF_SRV_ASSISTANT && m->content.n_bytes == 0 && m->n_calls == 0;
}

/* What is asked now is refused where the model cannot be shown it. Further back, and in what tools
 * have found, a word in its place says that it was there: a conversation that has it can go on. */
static bool check_question(const mf_srv_conversation *c, mf_srv_refusal *r)
{
    for (size_t i = c->n_messages; i-- > 0;) {
        const mf_srv_message *m = &c->messages[i];
        if (m->role == MF_SRV_ASSISTANT && i + 1 < c->n_messages)
            return true;
        if (m->role == MF_SRV_TOOL || m->role == MF_SRV_ASSISTANT || !m->unseen)
            continue;
        mf_srv_refuse_field(r, m->unseen, "'%.40s' is not supported by this server",
                            m->unseen_type);
        r->code = "unsupported_parameter";
        return false;
    }
    return true;
}

bool mf_srv_conversation_finish(mf_srv_conversation *c, const char *name, mf_srv_refusal *r)
{
    bool has_failed = c->tools.has_failed || c->documents.has_failed || c->variables.has_failed;
    for (size_t i = 0; i < c->n_messages; i++) {
        mf_srv_message *m = &c->messages[i];
        part_thoughts(m);
        has_failed = has_failed || m->content.has_failed || m->thoughts.has_failed;
    }
    if (has_failed)
        return no_memory(r);
    if (c->n_messages > 0 && says_nothing(&c->messages[c->n_messages - 1]))
        mf_srv_message_free(&c->messages[--c->n_messages]);
    if (c->n_messages == 0)
        return mf_srv_refuse_field(r, name, "expected at least one message with content");
    return check_question(c, r);
}

/* ------------------------------------------------------------------------------------- parts -- */

bool mf_srv_read_text(yyjson_val *value, const char *place, mf_srv_bytes *to, mf_srv_refusal *r)
{
    if (!yyjson_is_str(value))
        return mf_srv_refuse_field(r, place, "expected a string");
    mf_srv_put(to, yyjson_get_str(value), yyjson_get_len(value));
    return true;
}

/* What stands in the place of a part that the model cannot be shown. */
static const char *word_for(const char *type)
{
    static const struct {
        const char *begin, *word;
    } words[] = {{"image", "an image"}, {"input_image", "an image"}, {"input_audio", "a sound"},
                 {"audio", "a sound"},  {"video", "a film"},         {"input_video", "a film"},
                 {"file", "a file"},    {"input_file", "a file"},    {"document", "a document"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(type, words[i].begin, strlen(words[i].begin)) == 0)
            return words[i].word;
    return NULL;
}

static bool put_unseen(const char *type, const char *place, size_t i, mf_srv_message *m,
                       mf_srv_refusal *r)
{
    char name[MF_SRV_PARAM_BYTES];
    const char *word = word_for(type);
    snprintf(name, sizeof name, "%.70s[%zu].type", place, i);
    if (!m->unseen) {
        m->unseen = strdup(name);
        m->unseen_type = strdup(type);
    }
    mf_srv_puts(&m->content, m->content.n_bytes > 0 ? "\n" : "");
    if (word)
        mf_srv_printf(&m->content, "[%s that cannot be shown here]\n", word);
    else
        mf_srv_printf(&m->content, "['%.40s' cannot be shown here]\n", type);
    return (m->unseen && m->unseen_type) || no_memory(r);
}

/* Anthropic's document: what is text of it. */
static bool read_document(yyjson_val *part, const char *place, size_t i, mf_srv_message *m,
                          mf_srv_refusal *r)
{
    yyjson_val *source = yyjson_obj_get(part, "source"), *type = yyjson_obj_get(source, "type");
    yyjson_val *title = mf_srv_field_of(part, "title"), *about = mf_srv_field_of(part, "context");
    if (title && (!mf_srv_read_text(title, place, &m->content, r)))
        return false;
    mf_srv_puts(&m->content, title ? "\n" : "");
    if (about && (!mf_srv_read_text(about, place, &m->content, r)))
        return false;
    mf_srv_puts(&m->content, about ? "\n" : "");
    if (yyjson_equals_str(type, "text"))
        return mf_srv_read_text(yyjson_obj_get(source, "data"), place, &m->content, r);
    if (yyjson_equals_str(type, "content"))
        return mf_srv_read_content(yyjson_obj_get(source, "content"), place, m, r);
    return put_unseen("document", place, i, m, r);
}

/* Anthropic's search_result: title, source and text. */
static bool read_search_result(yyjson_val *part, const char *place, mf_srv_message *m,
                               mf_srv_refusal *r)
{
    static const char *const names[] = {"title", "source"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        yyjson_val *v = mf_srv_field_of(part, names[i]);
        if (v && !mf_srv_read_text(v, place, &m->content, r))
            return false;
        mf_srv_puts(&m->content, v ? "\n" : "");
    }
    return mf_srv_read_content(yyjson_obj_get(part, "content"), place, m, r);
}

/* The parts that are one string. */
static const struct {
    const char *type, *member;
    bool is_thought;
} parts[] = {{"text", "text", false},
             {"input_text", "text", false},
             {"output_text", "text", false},
             {"refusal", "refusal", false},
             {"tool_reference", "tool_name", false},
             {"reasoning_text", "text", true},
             {"summary_text", "text", true},
             {"compaction", "content", false},
             {"thinking", "thinking", true}};

/* Anthropic's word that a tool which is among the request's may be called from here on. */
static bool names_declared_tool(yyjson_val *part, const char *type)
{
    return strcmp(type, "tool_addition") == 0 &&
           yyjson_equals_str(yyjson_obj_get(yyjson_obj_get(part, "tool"), "type"),
                             "tool_reference");
}

bool mf_srv_read_part(yyjson_val *part, const char *place, size_t i, mf_srv_message *m,
                      mf_srv_refusal *r)
{
    char name[MF_SRV_PARAM_BYTES];
    yyjson_val *kind = yyjson_obj_get(part, "type");
    const char *type = yyjson_get_str(kind);
    snprintf(name, sizeof name, "%.70s[%zu].type", place, i);
    if (yyjson_is_str(part))
        return mf_srv_read_text(part, place, &m->content, r);
    if (!type)
        return mf_srv_refuse_field(r, place, "expected parts with a type");
    if (!mf_srv_is_text(kind, name, r))
        return false;
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
        if (strcmp(type, parts[k].type) == 0)
            return mf_srv_read_text(yyjson_obj_get(part, parts[k].member), place,
                                    parts[k].is_thought ? &m->thoughts : &m->content, r);
    if (strcmp(type, "redacted_thinking") == 0)
        return true; /* nobody here could have written it */
    if (names_declared_tool(part, type))
        return true; /* the model sees all tools from the start */
    if (strcmp(type, "document") == 0)
        return read_document(part, place, i, m, r);
    if (strcmp(type, "search_result") == 0)
        return read_search_result(part, place, m, r);
    return put_unseen(type, place, i, m, r);
}

bool mf_srv_read_content(yyjson_val *content, const char *place, mf_srv_message *m,
                         mf_srv_refusal *r)
{
    size_t i, n;
    yyjson_val *part;
    if (!content || yyjson_is_null(content))
        return true;
    if (yyjson_is_str(content))
        return mf_srv_read_text(content, place, &m->content, r);
    if (!yyjson_is_arr(content))
        return mf_srv_refuse_field(r, place, "expected a string or an array of parts");
    yyjson_arr_foreach(content, i, n, part)
    {
        if (!mf_srv_read_part(part, place, i, m, r))
            return false;
    }
    return true;
}

bool mf_srv_check_messages(yyjson_val *array, const char *name, mf_srv_refusal *r)
{
    if (!yyjson_is_arr(array) || yyjson_arr_size(array) == 0)
        return mf_srv_refuse_field(r, name, "expected an array of at least one message");
    if (yyjson_arr_size(array) > MAX_MESSAGES)
        return mf_srv_refuse_field(r, name, "more than %d messages", MAX_MESSAGES);
    return true;
}

bool mf_srv_read_role(yyjson_val *message, const char *name, size_t i, mf_srv_role *out,
                      mf_srv_refusal *r)
{
    static const struct {
        const char *name;
        mf_srv_role role;
    } roles[] = {{"system", MF_SRV_SYSTEM}, {"developer", MF_SRV_SYSTEM},
                 {"user", MF_SRV_USER},     {"assistant", MF_SRV_ASSISTANT},
                 {"tool", MF_SRV_TOOL},     {"function", MF_SRV_TOOL}};
    char place[MF_SRV_PARAM_BYTES];
    snprintf(place, sizeof place, "%s[%zu].role", name, i);
    yyjson_val *value = yyjson_obj_get(message, "role");
    const char *role = yyjson_get_str(value);
    if (!yyjson_is_obj(message) || !role)
        return mf_srv_refuse_field(r, place, "expected an object with a role");
    if (!mf_srv_is_text(value, place, r))
        return false;
    for (size_t k = 0; k < sizeof roles / sizeof *roles; k++)
        if (strcmp(roles[k].name, role) == 0) {
            *out = roles[k].role;
            return true;
        }
    return mf_srv_refuse_field(r, place, "'%.40s' is not supported by this server", role);
}

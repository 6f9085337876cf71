/* SPDX-License-Identifier: MIT */
/* Messages as JSON. */
#include "prompt_json.h"

#include "yyjson_prefix.h"

#include "yyjson.h"

#include <string.h>

/* Messages and calls before a result, for the call that it answers: two turns of 1,024 calls. */
#define MAX_LOOKED_BACK 4096

static mf_srv_role role_of(const mf_srv_message *messages, size_t i, unsigned ways)
{
    const mf_srv_role role = messages[i].role;
    if (role == MF_SRV_TOOL && (ways & MF_SRV_TOLD_TOOLS))
        return MF_SRV_USER;
    return role == MF_SRV_SYSTEM && i > 0 && (ways & MF_SRV_REMINDERS) ? MF_SRV_USER : role;
}

static bool can_merge(mf_srv_role role)
{
    return role == MF_SRV_USER || role == MF_SRV_ASSISTANT;
}

unsigned mf_srv_ways_of(const mf_srv_conversation *c, unsigned own)
{
    const unsigned as = MF_SRV_REMINDERS | own;
    unsigned ways = c->effort ? MF_SRV_NO_EFFORT : 0;
    for (size_t i = 0; i < c->n_messages; i++) {
        const mf_srv_message *m = &c->messages[i];
        if (m->n_calls > 0)
            ways |= MF_SRV_TEXT_ARGUMENTS | MF_SRV_SHORT_IDS;
        if (m->n_calls > 0 && m->content.n_bytes == 0)
            ways |= MF_SRV_FULL_CONTENT;
        if (m->role == MF_SRV_SYSTEM && i > 0)
            ways |= MF_SRV_REMINDERS;
        if (m->thoughts.n_bytes > 0)
            ways |= MF_SRV_NO_THOUGHTS;
        if (i > 0 && can_merge(role_of(c->messages, i, as)) &&
            role_of(c->messages, i, as) == role_of(c->messages, i - 1, as))
            ways |= MF_SRV_MERGED;
    }
    return ways;
}

/* Nine letters and digits that another id hardly has. */
static void put_short_id(const char *id, mf_srv_bytes *out)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    uint64_t h = 14695981039346656037u;
    char text[10];
    for (const unsigned char *s = (const unsigned char *)id; *s; s++)
        h = (h ^ *s) * 1099511628211u;
    for (size_t i = 0; i < 9; i++, h /= 36)
        text[i] = letters[h % 36];
    text[9] = '\0';
    mf_srv_puts_json(out, text);
}

/* number: of the call in the conversation, for one without an id. */
static void put_id(const char *id, unsigned ways, size_t number, mf_srv_bytes *out)
{
    if (!id)
        mf_srv_printf(out, "\"call%05zu\"", number % 100000);
    else if (ways & MF_SRV_SHORT_IDS)
        put_short_id(id, out);
    else
        mf_srv_puts_json(out, id);
}

static bool is_object(const char *json)
{
    yyjson_doc *doc = yyjson_read(json, strlen(json), 0);
    bool is = yyjson_is_obj(yyjson_doc_get_root(doc));
    yyjson_doc_free(doc);
    return is;
}

static void put_call(const mf_srv_call *call, unsigned ways, size_t number, mf_srv_bytes *out)
{
    mf_srv_puts(out, "{\"id\":");
    put_id(call->id, ways, number, out);
    mf_srv_puts(out, ",\"type\":\"function\",\"function\":{\"name\":");
    mf_srv_puts_json(out, call->name);
    mf_srv_puts(out, ",\"arguments\":");
    if (!(ways & MF_SRV_TEXT_ARGUMENTS) && is_object(call->arguments))
        mf_srv_puts(out, call->arguments);
    else
        mf_srv_puts_json(out, call->arguments);
    mf_srv_puts(out, "}}");
}

/* What the model is told of its tools: each in a line. */
static void put_told_tools(const char *tools, mf_srv_bytes *out)
{
    yyjson_doc *doc = yyjson_read(tools, strlen(tools), 0);
    size_t i, n;
    yyjson_val *tool;
    mf_srv_puts(out, "You have tools. To call one, answer with nothing but an object of JSON: "
                     "{\"name\": NAME, \"arguments\": {...}}. What it finds is told you then. The "
                     "tools:");
    yyjson_arr_foreach(yyjson_doc_get_root(doc), i, n, tool)
    {
        mf_srv_puts(out, "\n");
        if (!mf_srv_put_value(out, yyjson_obj_get(tool, "function")))
            out->has_failed = true;
    }
    out->has_failed = out->has_failed || !doc;
    yyjson_doc_free(doc);
}

/* Calls as who was told of tools so writes them. */
static void put_told_calls(const mf_srv_message *m, mf_srv_bytes *out)
{
    for (size_t i = 0; i < m->n_calls; i++) {
        mf_srv_puts(out, out->n_bytes > 0 ? "\n" : "");
        mf_srv_puts(out, "{\"name\": ");
        mf_srv_puts_json(out, m->calls[i].name);
        mf_srv_printf(out, ", \"arguments\": %s}", m->calls[i].arguments);
    }
}

/* The contents of messages [n] that are put together. */
static void join(const mf_srv_message *messages, size_t i, size_t n, unsigned ways,
                 mf_srv_bytes *out)
{
    for (size_t k = i; k < i + n; k++) {
        const mf_srv_message *m = &messages[k];
        const bool is_reminder = m->role == MF_SRV_SYSTEM && k > 0 && (ways & MF_SRV_REMINDERS);
        if (out->n_bytes > 0 && m->content.n_bytes > 0)
            mf_srv_puts(out, "\n\n");
        if (m->thoughts.n_bytes > 0 && (ways & MF_SRV_CONTENT_THOUGHTS) &&
            !(ways & MF_SRV_NO_THOUGHTS)) {
            mf_srv_puts(out, "<think>\n");
            mf_srv_put(out, m->thoughts.data, m->thoughts.n_bytes);
            mf_srv_puts(out, "\n</think>\n\n");
        }
        const bool is_result = m->role == MF_SRV_TOOL && (ways & MF_SRV_TOLD_TOOLS);
        mf_srv_puts(out, is_reminder ? "<system-reminder>\n" : "");
        mf_srv_puts(out, is_result ? "<tool_response>\n" : "");
        mf_srv_put(out, m->content.data ? m->content.data : "", m->content.n_bytes);
        mf_srv_puts(out, is_result ? "\n</tool_response>" : "");
        mf_srv_puts(out, is_reminder ? "\n</system-reminder>" : "");
        if (ways & MF_SRV_TOLD_TOOLS)
            put_told_calls(m, out);
    }
}

static void put_thoughts(const mf_srv_message *m, mf_srv_bytes *out)
{
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        mf_srv_printf(out, ",\"%s\":", names[i]);
        mf_srv_put_json(out, m->thoughts.data, m->thoughts.n_bytes);
    }
}

static void put_calls(const mf_srv_message *messages, size_t n, unsigned ways, size_t *number,
                      mf_srv_bytes *out)
{
    const char *between = ",\"tool_calls\":[";
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < messages[i].n_calls; k++) {
            mf_srv_puts(out, between);
            put_call(&messages[i].calls[k], ways, (*number)++, out);
            between = ",";
        }
    mf_srv_puts(out, *between == ',' && between[1] == '\0' ? "]" : "");
}

/* The name of the function whose result a message is. A call is not far before its result: all of
 * a long conversation is not looked at for each that has none. */
static const char *called_name(const mf_srv_message *messages, size_t i)
{
    const char *id = messages[i].call_id;
    size_t n_left = MAX_LOOKED_BACK;
    for (size_t k = i; id && n_left > 0 && k-- > 0;) {
        n_left--;
        for (size_t c = 0; c < messages[k].n_calls && n_left > 0; c++, n_left--)
            if (messages[k].calls[c].id && strcmp(messages[k].calls[c].id, id) == 0)
                return messages[k].calls[c].name;
    }
    return NULL;
}

/* Messages [n] from i on as one. */
static void put_message(const mf_srv_message *messages, size_t i, size_t n, unsigned ways,
                        const char *tools, size_t *number, mf_srv_bytes *out)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    const mf_srv_message *m = &messages[i];
    const char *name = m->name ? m->name : called_name(messages, i);
    const bool is_told = (ways & MF_SRV_TOLD_TOOLS) != 0;
    size_t n_calls = 0;
    mf_srv_bytes content = {0};
    for (size_t k = i; k < i + n; k++)
        n_calls += is_told ? 0 : messages[k].n_calls;
    if (tools)
        put_told_tools(tools, &content);
    join(messages, i, n, ways, &content);
    mf_srv_printf(out, "%s{\"role\":\"%s\",\"content\":", i > 0 ? "," : "",
                  roles[role_of(messages, i, ways)]);
    if (content.n_bytes == 0 && n_calls > 0 && !(ways & MF_SRV_FULL_CONTENT))
        mf_srv_puts(out, "null");
    else
        mf_srv_put_json(out, content.data ? content.data : "", content.n_bytes);
    out->has_failed = out->has_failed || content.has_failed;
    mf_srv_bytes_free(&content);
    if (m->thoughts.n_bytes > 0 && !(ways & (MF_SRV_NO_THOUGHTS | MF_SRV_CONTENT_THOUGHTS)))
        put_thoughts(m, out);
    if (!is_told)
        put_calls(m, n, ways, number, out);
    if (m->call_id && !is_told) {
        mf_srv_puts(out, ",\"tool_call_id\":");
        put_id(m->call_id, ways, 0, out);
    }
    if (name && !(is_told && m->role == MF_SRV_TOOL)) {
        mf_srv_puts(out, ",\"name\":");
        mf_srv_puts_json(out, name);
    }
    mf_srv_puts(out, "}");
}

/* The first thing that a user says; n: there is none. */
static size_t first_of_user(const mf_srv_message *messages, size_t n)
{
    size_t i = 0;
    while (i < n && messages[i].role != MF_SRV_USER)
        i++;
    return i;
}

void mf_srv_put_messages(const mf_srv_message *messages, size_t n, unsigned ways, const char *tools,
                         mf_srv_bytes *out)
{
    const size_t first = tools ? first_of_user(messages, n) : n;
    size_t number = 0;
    mf_srv_puts(out, "[");
    for (size_t i = 0, n_one; i < n; i += n_one) {
        const mf_srv_role role = role_of(messages, i, ways);
        n_one = 1;
        while ((ways & MF_SRV_MERGED) && can_merge(role) && i + n_one < n &&
               role_of(messages, i + n_one, ways) == role)
            n_one++;
        put_message(messages, i, n_one, ways, first >= i && first < i + n_one ? tools : NULL,
                    &number, out);
    }
    mf_srv_puts(out, "]");
}

void mf_srv_put_variables(const mf_srv_conversation *c, unsigned ways, mf_srv_bytes *out)
{
    mf_srv_puts(out, "{");
    if (c->effort && !(ways & MF_SRV_NO_EFFORT))
        mf_srv_printf(out, "\"reasoning_effort\":\"%s\"%s", c->effort,
                      c->variables.n_bytes > 0 ? "," : "");
    if (c->variables.data)
        mf_srv_put(out, c->variables.data, c->variables.n_bytes);
    mf_srv_puts(out, "}");
}

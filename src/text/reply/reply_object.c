/* SPDX-License-Identifier: MIT */
/* Calls as objects of JSON: {"name": ..., "arguments": {...}}, also within {"function": ...}, in
 * any order, arguments also as a string that holds JSON. */
#include "text/reply/reply_scan.h"

#include <string.h>

/* The names of members, with their quotes. */
static const struct {
    const char *text;
    int member;
} members[] = {
    {"\"name\"", MEMBER_NAME},           {"\"tool_name\"", MEMBER_NAME},
    {"\"arguments\"", MEMBER_ARGUMENTS}, {"\"parameters\"", MEMBER_ARGUMENTS},
    {"\"args\"", MEMBER_ARGUMENTS},      {"\"id\"", MEMBER_ID},
    {"\"tool_call_id\"", MEMBER_ID},     {"\"function\"", MEMBER_FUNCTION},
};

static void fail_memory(mf_reply_scan *s)
{
    s->status = MF_ERR_NO_MEMORY;
}

static bool append(mf_reply_scan *s, mf_buffer *to, const mf_buffer *from)
{
    if (mf_buffer_append(to, from->data, from->n_bytes, "a tool call", NULL) != MF_OK)
        fail_memory(s);
    return s->status == MF_OK;
}

/* ----------------------------------------------------------------------------------- members -- */

static void name_member(mf_reply_scan *s)
{
    mf_reply_object *o = &s->call.object;
    const mf_buffer *key = &s->call.key;
    o->is_in_key = false;
    o->member = MEMBER_OTHER;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (key->n_bytes == strlen(members[i].text) &&
            memcmp(key->data, members[i].text, key->n_bytes) == 0)
            o->member = members[i].member;
}

/* A member's value begins with c; false: it cannot be one. */
static bool begin_member(mf_reply_scan *s, unsigned char c)
{
    mf_reply_call *call = &s->call;
    mf_reply_object *o = &call->object;
    o->is_in_value = true;
    call->key.n_bytes = 0;
    switch (o->member) {
    case MEMBER_NAME:
        return c == '"' && call->name.n_bytes == 0;
    case MEMBER_FUNCTION:
        if (c == '{' && o->level == 1) {
            o->level = 2;
            o->is_in_value = false;
            return true;
        }
        o->member = MEMBER_NAME;
        return c == '"' && call->name.n_bytes == 0;
    case MEMBER_ARGUMENTS:
        if (o->has_arguments || (c != '{' && c != '"' && c != 'n'))
            return false;
        o->has_arguments = c != 'n';
        o->is_text = c == '"';
        if (c == 'n')
            o->member = MEMBER_OTHER;
        return c != '{' || call->name.n_bytes == 0 || mf_reply_call_name(s);
    default:
        return true;
    }
}

/* The bytes of a value that were scanned. */
static void take_value(mf_reply_scan *s)
{
    mf_reply_call *call = &s->call;
    const mf_reply_object *o = &call->object;
    if (o->member == MEMBER_NAME || o->member == MEMBER_ID)
        append(s, &call->key, &s->scratch);
    else if (o->member == MEMBER_ARGUMENTS && call->is_given)
        mf_reply_give_text(s, MF_REPLY_CALL_ARGUMENTS, (const char *)s->scratch.data,
                           s->scratch.n_bytes);
    else if (o->member == MEMBER_ARGUMENTS)
        append(s, &call->value, &s->scratch);
}

/* The string in call.key, without quotes and escapes, into scratch. */
static bool unquote(mf_reply_scan *s, const mf_buffer *from)
{
    s->scratch.n_bytes = 0;
    if (mf_json_unquote((const char *)from->data, from->n_bytes, &s->scratch) != MF_OK)
        fail_memory(s);
    return s->status == MF_OK;
}

/* Arguments as a string: what it holds takes its place. */
static bool read_text(mf_reply_scan *s)
{
    mf_buffer *value = &s->call.value;
    if (!unquote(s, value))
        return false;
    value->n_bytes = 0;
    const char *text = (const char *)s->scratch.data;
    size_t n = 0;
    while (n < s->scratch.n_bytes && mf_reply_is_blank(text[n]))
        n++;
    if (n == s->scratch.n_bytes) {
        s->call.object.has_arguments = false;
        return true;
    }
    mf_json_result result = mf_json_scan_text(text, s->scratch.n_bytes, value);
    if (result == MF_JSON_NO_MEMORY)
        fail_memory(s);
    const bool is_object = result == MF_JSON_WHOLE && value->data[0] == '{';
    s->call.object.has_arguments = is_object; /* what is none is not given for whole ones */
    return is_object;
}

static bool end_member(mf_reply_scan *s)
{
    mf_reply_call *call = &s->call;
    mf_reply_object *o = &call->object;
    o->is_in_value = false;
    switch (o->member) {
    case MEMBER_NAME:
        return unquote(s, &call->key) &&
               mf_reply_call_take_name(s, (const char *)s->scratch.data, s->scratch.n_bytes);
    case MEMBER_ID:
        if (call->key.n_bytes == 0 || call->key.data[0] != '"' || call->is_given ||
            call->key.n_bytes > MF_REPLY_NAME_BYTES)
            return true;
        call->id.n_bytes = 0;
        return unquote(s, &call->key) && append(s, &call->id, &s->scratch);
    case MEMBER_ARGUMENTS:
        return !o->is_text || read_text(s);
    default:
        return true;
    }
}

/* -------------------------------------------------------------------------------- the object -- */

/* One byte more; what was scanned is in scratch. */
static bool follow(mf_reply_scan *s, const mf_json_scan *before, unsigned char c)
{
    mf_reply_object *o = &s->call.object;
    const mf_json_scan *now = &o->json;
    const bool was_here = before->depth == o->level;
    if (was_here && now->state == MF_JSON_STRING && now->is_key &&
        (before->state == MF_JSON_KEY || before->state == MF_JSON_KEY_OR_END)) {
        o->is_in_key = true;
        s->call.key.n_bytes = 0;
    }
    if (o->is_in_key) {
        if (append(s, &s->call.key, &s->scratch) && now->state == MF_JSON_COLON)
            name_member(s);
        return s->call.key.n_bytes <= MF_REPLY_KEY_BYTES;
    }
    if (was_here && before->state == MF_JSON_VALUE && now->state != MF_JSON_VALUE &&
        !begin_member(s, c))
        return false;
    if (s->state != mf_reply_in_object)
        return true; /* taken back */
    if (o->is_in_value)
        take_value(s);
    if (o->is_in_value && now->depth <= o->level && now->state != MF_JSON_STRING &&
        now->state != MF_JSON_ESCAPE && now->state != MF_JSON_UNICODE &&
        now->state != MF_JSON_LOW && now->state != MF_JSON_LOW_U && now->state != MF_JSON_NUMBER &&
        now->state != MF_JSON_WORD && !end_member(s))
        return false;
    if (now->depth < o->level)
        o->level = 1;
    return true;
}

/* Name and arguments, if they have not come out yet. */
static bool give_whole(mf_reply_scan *s)
{
    mf_reply_call *call = &s->call;
    mf_buffer *value = &call->value;
    if (call->name.n_bytes == 0) {
        mf_reply_call_fail(s);
        return false;
    }
    const bool was_given = call->is_given;
    if (!mf_reply_call_name(s))
        return false;
    if (!call->object.has_arguments)
        mf_reply_give_text(s, MF_REPLY_CALL_ARGUMENTS, "{}", 2);
    else if (!was_given || value->n_bytes != 0)
        mf_reply_give_text(s, MF_REPLY_CALL_ARGUMENTS, (const char *)value->data, value->n_bytes);
    mf_reply_call_end(s);
    return true;
}

/* The object is not whole, and will not be: a call nevertheless, if its arguments are. */
static bool end_early(mf_reply_scan *s)
{
    const mf_reply_object *o = &s->call.object;
    const bool is_whole = o->has_arguments && !(o->is_in_value && o->member == MEMBER_ARGUMENTS) &&
                          s->call.name.n_bytes != 0 &&
                          !(o->is_in_value && o->member == MEMBER_NAME);
    if (is_whole && !s->call.is_bare)
        (void)give_whole(s);
    else
        mf_reply_call_fail(s);
    return true;
}

bool mf_reply_in_object(mf_reply_scan *s)
{
    mf_reply_object *o = &s->call.object;
    while (mf_reply_left(s) != 0 && s->status == MF_OK) {
        const unsigned char c = s->in.data[s->at];
        const mf_json_scan before = o->json;
        s->scratch.n_bytes = 0;
        mf_json_result result = before.depth == 0 && c != '{' && !mf_reply_is_blank(c)
                                    ? MF_JSON_BAD
                                    : mf_json_scan_byte(&o->json, c, &s->scratch);
        if (result == MF_JSON_NO_MEMORY)
            fail_memory(s);
        const bool is_good = s->status == MF_OK && result != MF_JSON_BAD && follow(s, &before, c);
        if (s->state != mf_reply_in_object || s->status != MF_OK)
            return true;
        if (!is_good)
            return end_early(s);
        s->at++;
        if (result == MF_JSON_WHOLE) {
            (void)give_whole(s);
            return true;
        }
    }
    return s->is_over && s->status == MF_OK && end_early(s);
}

bool mf_reply_begin_objects(mf_reply_scan *s)
{
    s->call.is_object = true;
    if (!mf_reply_skip_blanks(s) && !s->is_over)
        return false;
    if (mf_reply_left(s) != 0 && s->in.data[s->at] == '[') {
        s->at++;
        return true;
    }
    s->state = mf_reply_in_object;
    return true;
}

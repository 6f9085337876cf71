/* SPDX-License-Identifier: MIT */
/* Calls as Python writes them: [f(a=1, b="x"), g()]. A value is read at its end. */
#include "text/reply/reply_scan.h"
#include "text/reply/reply_value.h"

#include <string.h>

static bool in_list(mf_reply_scan *s);
static bool in_argument(mf_reply_scan *s);
static bool in_value(mf_reply_scan *s);

bool mf_reply_begin_python(mf_reply_scan *s)
{
    if (!mf_reply_skip_blanks(s) && !s->is_over)
        return false;
    if (mf_reply_left(s) != 0 && s->in.data[s->at] == '[')
        s->at++;
    s->state = in_list;
    return true;
}

/* A name and what stands behind it, say "f("; its end, or 0: not there. */
static size_t read_name(mf_reply_scan *s, char behind, bool *waits)
{
    const size_t end = mf_reply_name_end(s, s->at), at = mf_reply_behind_blanks(s, end);
    *waits = at == s->in.n_bytes && !s->is_over;
    if (at == s->in.n_bytes || end == s->at || s->in.data[at] != (unsigned char)behind)
        return 0;
    return end;
}

/* Behind a name: where the mark ends that read_name has seen. */
static size_t behind(const mf_reply_scan *s, size_t end)
{
    return mf_reply_behind_blanks(s, end) + 1;
}

/* Before a call's name. */
static bool in_list(mf_reply_scan *s)
{
    bool waits = false;
    if (!mf_reply_skip_blanks(s) && !s->is_over)
        return false;
    const size_t end = read_name(s, '(', &waits);
    if (waits)
        return false;
    if (end == 0 || !mf_reply_call_take_name(s, (const char *)s->in.data + s->at, end - s->at)) {
        mf_reply_call_fail(s);
        return true;
    }
    s->at = behind(s, end);
    s->state = in_argument;
    return true;
}

/* Before an argument, or behind the last. */
static bool in_argument(mf_reply_scan *s)
{
    bool waits = false;
    if (!mf_reply_skip_blanks(s) && !s->is_over)
        return false;
    if (mf_reply_left(s) != 0 && s->in.data[s->at] == ')') {
        if (mf_reply_call_name(s)) {
            s->at++;
            mf_reply_end_arguments(s);
        }
        return true;
    }
    if (s->call.n_keys != 0 && mf_reply_left(s) != 0 && s->in.data[s->at] == ',') {
        s->at++;
        return true;
    }
    const size_t end = read_name(s, '=', &waits);
    if (waits)
        return false;
    if (end == 0) {
        mf_reply_call_fail(s);
        return true;
    }
    if (!mf_reply_call_name(s))
        return true;
    mf_reply_begin_argument(s, (const char *)s->in.data + s->at, end - s->at);
    s->call.quote = '\0';
    s->call.is_escaped = false;
    s->call.depth = 0;
    s->at = behind(s, end);
    s->state = in_value;
    return true;
}

/* Whether the quote at `at` ends a string, by what comes behind it. */
static mf_reply_found last_quote(const mf_reply_scan *s, size_t at)
{
    at = mf_reply_behind_blanks(s, at + 1);
    if (at == s->in.n_bytes)
        return s->is_over ? MF_FOUND_WHOLE : MF_FOUND_PART;
    return mf_reply_ends_string((char)s->in.data[at]) ? MF_FOUND_WHOLE : MF_FOUND_NO;
}

/* Follows strings and brackets; true: the value has ended before c. */
static bool ends_before(mf_reply_call *c, char byte)
{
    if (c->quote != '\0') {
        if (byte == c->quote && !c->is_escaped)
            c->quote = '\0';
        c->is_escaped = byte == '\\' && !c->is_escaped;
        return false;
    }
    if (byte == '"' || byte == '\'')
        c->quote = byte;
    if (byte == '(' || byte == '[' || byte == '{')
        c->depth++;
    if (c->depth == 0)
        return byte == ',' || byte == ')';
    if (byte == ')' || byte == ']' || byte == '}')
        c->depth--;
    return false;
}

static bool give_value(mf_reply_scan *s)
{
    mf_reply_call *c = &s->call;
    s->scratch.n_bytes = 0;
    mf_value_result result =
        mf_reply_python_value((const char *)c->value.data, c->value.n_bytes, &s->scratch);
    if (result == MF_VALUE_NO_MEMORY)
        s->status = MF_ERR_NO_MEMORY;
    if (result != MF_VALUE_OK)
        return false;
    if (!c->is_dropped)
        mf_reply_give_arguments(s, (const char *)s->scratch.data, s->scratch.n_bytes);
    return true;
}

static bool in_value(mf_reply_scan *s)
{
    mf_reply_call *c = &s->call;
    size_t at = s->at;
    bool waits = false;
    for (; at < s->in.n_bytes; at++) {
        const char byte = (char)s->in.data[at];
        if (c->quote != '\0' && byte == c->quote && !c->is_escaped) {
            const mf_reply_found found = last_quote(s, at);
            waits = found == MF_FOUND_PART;
            if (waits)
                break;
            if (found == MF_FOUND_NO)
                continue; /* one that the template did not escape */
        }
        if (ends_before(c, byte))
            break;
    }
    if (at > s->at &&
        mf_buffer_append(&c->value, s->in.data + s->at, at - s->at, "a tool call", NULL) != MF_OK)
        s->status = MF_ERR_NO_MEMORY;
    s->at = at;
    if (waits)
        return false;
    if (at == s->in.n_bytes) {
        if (s->is_over)
            mf_reply_call_fail(s);
        return s->is_over;
    }
    s->state = in_argument;
    if (!give_value(s))
        mf_reply_call_fail(s);
    return true;
}

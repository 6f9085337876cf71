/* SPDX-License-Identifier: MIT */
/*
 * Arguments as {key:value}: keys are bare, strings stand between marks of their own. What is read
 * is written as JSON into a scan of JSON, which says what may come and what comes out.
 */
#include "text/reply/reply_scan.h"
#include "text/reply/reply_value.h"

#include <string.h>

#define MARKED 'm' /* in call.quote: a string between marks */

static bool expects_key(const mf_json_scan *json)
{
    return json->state == MF_JSON_KEY || json->state == MF_JSON_KEY_OR_END;
}

static bool expects_value(const mf_json_scan *json)
{
    return json->state == MF_JSON_VALUE || json->state == MF_JSON_ITEM_OR_END;
}

/* What has been read of the arguments comes out. */
static void give_scratch(mf_reply_scan *s)
{
    mf_reply_give_arguments(s, (const char *)s->scratch.data, s->scratch.n_bytes);
    s->scratch.n_bytes = 0;
}

/* Some JSON more; false: it cannot stand there, or the object is whole, and the state is another.
 */
static bool feed(mf_reply_scan *s, const void *bytes, size_t n_bytes)
{
    mf_reply_call *c = &s->call;
    const unsigned char *at = bytes;
    mf_json_result result = MF_JSON_MORE;
    for (size_t i = 0; i < n_bytes && result == MF_JSON_MORE; i++)
        result = mf_json_scan_byte(&c->json, at[i], &s->scratch);
    if (result == MF_JSON_MORE)
        return true;
    if (result == MF_JSON_NO_MEMORY)
        s->status = MF_ERR_NO_MEMORY;
    give_scratch(s);
    if (result == MF_JSON_WHOLE)
        mf_reply_call_end(s);
    else
        mf_reply_call_fail(s);
    return false;
}

/* The key that has been read: what its value may be. */
static void take_key(mf_reply_scan *s, const char *key, size_t n_bytes)
{
    mf_reply_call *c = &s->call;
    c->types = c->json.depth != 1 ? MF_TYPE_ANY
                                  : mf_reply_tools_types(&s->tools, (const char *)c->name.data,
                                                         c->name.n_bytes, key, n_bytes);
    if (c->types == 0)
        c->types = MF_TYPE_ANY;
}

/* Characters of a string, or a bare key, as JSON. */
static bool feed_quoted(mf_reply_scan *s, const char *text, size_t n_bytes)
{
    mf_buffer *value = &s->call.value;
    value->n_bytes = 0;
    if (mf_json_quote(text, n_bytes, value) != MF_OK)
        s->status = MF_ERR_NO_MEMORY;
    return s->status == MF_OK && feed(s, value->data, value->n_bytes);
}

/* ----------------------------------------------------------------------------------- strings -- */

/* Up to the mark that ends the string; false: there is no more. */
static bool read_marked(mf_reply_scan *s)
{
    const char *text = (const char *)s->in.data + s->at;
    mf_reply_found found = MF_FOUND_NO;
    size_t at, end = 0;
    for (at = s->at; at < s->in.n_bytes && found == MF_FOUND_NO; at += found == MF_FOUND_NO)
        found = mf_reply_match(s, at, s->syntax->row.quote, &end);
    if (s->call.json.is_key && at - s->at > MF_REPLY_KEY_BYTES) {
        s->at += MF_REPLY_KEY_BYTES;
        give_scratch(s);
        mf_reply_call_fail(s);
        return false;
    }
    if (s->call.json.is_key) { /* it is looked up as a whole */
        if (found != MF_FOUND_WHOLE)
            return false;
        take_key(s, text, at - s->at);
    }
    const size_t n = at - s->at;
    s->at = at;
    if (!feed_quoted(s, text, n) || found != MF_FOUND_WHOLE)
        return false;
    s->at = end;
    s->call.quote = '\0';
    return feed(s, "\"", 1);
}

/* A string as JSON has it. */
static bool read_quoted(mf_reply_scan *s)
{
    mf_reply_call *c = &s->call;
    while (mf_reply_left(s) != 0 && c->quote != '\0') {
        const unsigned char byte = s->in.data[s->at++];
        if (!feed(s, &byte, 1))
            return false;
        if (c->json.state == MF_JSON_COLON || c->json.state == MF_JSON_NEXT)
            c->quote = '\0';
    }
    if (c->json.state == MF_JSON_COLON)
        c->types = MF_TYPE_ANY;
    return c->quote == '\0';
}

/* ------------------------------------------------------------------------------------- words -- */

/* A bare key, or a number or a word. */
static bool read_word(mf_reply_scan *s)
{
    mf_reply_call *c = &s->call;
    const bool is_key = expects_key(&c->json);
    const char *ends = is_key ? ":{}[],\n" : ",}]{[\n", *text = (const char *)s->in.data + s->at;
    size_t n = 0;
    while (n < mf_reply_left(s) && n <= MF_REPLY_KEY_BYTES &&
           (text[n] == '\0' || strchr(ends, text[n]) == NULL))
        n++;
    if (n == mf_reply_left(s) && n <= MF_REPLY_KEY_BYTES && !s->is_over)
        return false;
    s->at += n;
    while (n > 0 && mf_reply_is_blank(text[n - 1]))
        n--;
    if (n == 0 || n > MF_REPLY_KEY_BYTES || (!is_key && !expects_value(&c->json))) {
        give_scratch(s);
        mf_reply_call_fail(s);
        return false;
    }
    if (is_key) {
        take_key(s, text, n);
        return feed(s, "\"", 1) && feed_quoted(s, text, n) && feed(s, "\"", 1);
    }
    c->value.n_bytes = 0;
    if (mf_reply_typed_value(text, n, c->types, &c->value) != MF_VALUE_OK)
        s->status = MF_ERR_NO_MEMORY;
    return s->status == MF_OK && feed(s, c->value.data, c->value.n_bytes);
}

/* What stands between strings and words; false: there is no more, or the call is over. */
static bool read_next(mf_reply_scan *s)
{
    mf_reply_call *c = &s->call;
    size_t end = 0;
    if (!mf_reply_skip_blanks(s))
        return false;
    const unsigned char byte = s->in.data[s->at];
    if (strchr("{}[]:,", byte) != NULL && byte != 0) {
        s->at++;
        if (byte == '[' || byte == '{')
            c->types = c->json.depth == 0 ? c->types : MF_TYPE_ANY;
        return feed(s, &byte, 1);
    }
    const mf_reply_found mark = mf_reply_match(s, s->at, s->syntax->row.quote, &end);
    if (mark == MF_FOUND_PART)
        return false;
    if (mark == MF_FOUND_NO && byte != '"')
        return read_word(s);
    s->at = mark == MF_FOUND_WHOLE ? end : s->at + 1;
    c->quote = mark == MF_FOUND_WHOLE ? MARKED : '"';
    return feed(s, "\"", 1);
}

bool mf_reply_in_bare(mf_reply_scan *s)
{
    mf_reply_call *c = &s->call;
    if (!c->is_begun) {
        if (!mf_reply_skip_blanks(s) && !s->is_over)
            return false;
        if (mf_reply_left(s) == 0 || s->in.data[s->at] != '{') {
            mf_reply_call_fail(s);
            return true;
        }
        c->quote = '\0';
        c->is_begun = mf_reply_call_name(s);
        return true;
    }
    bool goes_on = true;
    s->scratch.n_bytes = 0;
    while (goes_on && s->status == MF_OK)
        goes_on = c->quote == MARKED ? read_marked(s)
                  : c->quote == '"'  ? read_quoted(s)
                                     : read_next(s);
    if (s->state != mf_reply_in_bare)
        return true;
    give_scratch(s);
    if (s->is_over)
        mf_reply_call_fail(s);
    return s->is_over;
}

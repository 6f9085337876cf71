/* SPDX-License-Identifier: MIT */
/*
 * Arguments between marks. What ends a value is told from what only looks like it by what stands
 * behind it: another argument, or the end of the call.
 */
#include "text/reply/reply_scan.h"
#include "text/reply/reply_value.h"

#include <string.h>

#define CDATA "<![CDATA["

static bool in_key(mf_reply_scan *s);
static bool in_value(mf_reply_scan *s);

static void append(mf_reply_scan *s, mf_buffer *to, const void *bytes, size_t n_bytes)
{
    if (mf_buffer_append(to, bytes, n_bytes, "a tool call", NULL) != MF_OK)
        s->status = MF_ERR_NO_MEMORY;
}

static mf_reply_found match(const mf_reply_scan *s, size_t at, const char *mark, size_t *end)
{
    return mark == NULL ? MF_FOUND_NO : mf_reply_match(s, at, mark, end);
}

/* ---------------------------------------------------------------------------- what comes out -- */

static bool is_known_key(const mf_reply_call *c, const char *key, size_t n_bytes)
{
    const char *at = (const char *)c->keys.data;
    for (uint32_t i = 0; i < c->n_keys; i++, at += strlen(at) + 1)
        if (strlen(at) == n_bytes && memcmp(at, key, n_bytes) == 0)
            return true;
    return false;
}

static void add_key(mf_reply_scan *s, const char *key, size_t n_bytes)
{
    mf_reply_call *c = &s->call;
    const bool is_first = c->n_keys == 0;
    append(s, &c->keys, key, n_bytes);
    append(s, &c->keys, "", 1);
    c->n_keys++;
    s->scratch.n_bytes = 0;
    append(s, &s->scratch, is_first ? "{\"" : ", \"", is_first ? 2 : 3);
    if (mf_json_quote(key, n_bytes, &s->scratch) != MF_OK)
        s->status = MF_ERR_NO_MEMORY;
    append(s, &s->scratch, "\": ", 3);
    mf_reply_give_arguments(s, (const char *)s->scratch.data, s->scratch.n_bytes);
}

/* More would be a bad joke, and each is compared with all. */
#define MAX_KEYS 256

void mf_reply_begin_argument(mf_reply_scan *s, const char *key, size_t n_bytes)
{
    mf_reply_call *c = &s->call;
    c->value.n_bytes = 0;
    c->is_begun = c->is_string = c->has_line = c->is_cdata = false;
    c->depth = 0;
    c->types =
        mf_reply_tools_types(&s->tools, (const char *)c->name.data, c->name.n_bytes, key, n_bytes);
    c->key.n_bytes = 0;
    append(s, &c->key, key, n_bytes);
    c->is_dropped = c->n_keys == MAX_KEYS || is_known_key(c, key, n_bytes);
    if (!c->is_dropped)
        add_key(s, key, n_bytes);
}

void mf_reply_give_value(mf_reply_scan *s)
{
    mf_reply_call *c = &s->call;
    if (c->is_dropped)
        return;
    s->scratch.n_bytes = 0;
    if (s->syntax->row.has_elements) {
        if (mf_reply_elements_value(s, &s->scratch) != MF_OK)
            s->status = MF_ERR_NO_MEMORY;
    } else if (mf_reply_typed_value((const char *)c->value.data, c->value.n_bytes,
                                    c->types == 0 ? MF_TYPE_ANY : c->types,
                                    &s->scratch) == MF_VALUE_NO_MEMORY)
        s->status = MF_ERR_NO_MEMORY;
    mf_reply_give_arguments(s, (const char *)s->scratch.data, s->scratch.n_bytes);
}

void mf_reply_end_arguments(mf_reply_scan *s)
{
    mf_reply_give_arguments(s, s->call.n_keys == 0 ? "{}" : "}", s->call.n_keys == 0 ? 2 : 1);
    mf_reply_call_end(s);
}

/* Some of a string, or of what is typed at its end. */
static void take_text(mf_reply_scan *s, size_t end)
{
    mf_reply_call *c = &s->call;
    const char *text = (const char *)s->in.data + s->at;
    const size_t n_bytes = end - s->at;
    s->at = end;
    if (!c->is_string) {
        append(s, &c->value, text, n_bytes);
        return;
    }
    s->scratch.n_bytes = 0;
    if (mf_json_quote(text, n_bytes, &s->scratch) != MF_OK)
        s->status = MF_ERR_NO_MEMORY;
    if (!c->is_dropped)
        mf_reply_give_arguments(s, (const char *)s->scratch.data, s->scratch.n_bytes);
}

/* --------------------------------------------------------------------------------- arguments -- */

/* What ends a call's arguments stands at `at`. */
static mf_reply_found ends_call(const mf_reply_scan *s, size_t at, size_t *end)
{
    const mf_reply_syntax *syntax = s->syntax;
    const char *const marks[] = {syntax->call_end, syntax->section_end, syntax->section_end_also};
    mf_reply_found best = MF_FOUND_NO;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        mf_reply_found found = match(s, at, marks[i], end);
        if (found == MF_FOUND_WHOLE)
            return found;
        best = found > best ? found : best;
    }
    return best;
}

bool mf_reply_in_tags(mf_reply_scan *s)
{
    const mf_reply_syntax *syntax = s->syntax;
    size_t end = 0, next = 0;
    if (!mf_reply_skip_blanks(s) && !s->is_over)
        return false;
    mf_reply_found key = match(s, s->at, syntax->key_mark, &next);
    mf_reply_found close = ends_call(s, s->at, &end);
    /* another call: this one was not closed */
    mf_reply_found call = match(s, s->at, syntax->call_mark, &end);
    const mf_reply_found json = match(s, s->at, syntax->row.json_open, &end);
    const bool is_over = s->is_over && mf_reply_left(s) == 0 && !s->was_cut;
    if (json == MF_FOUND_WHOLE) {
        s->at = end;
        s->state = mf_reply_in_json;
        return true;
    }
    /* a mark may begin as another one does */
    if (close == MF_FOUND_PART || call == MF_FOUND_PART || json == MF_FOUND_PART)
        return false;
    if (close == MF_FOUND_WHOLE || call == MF_FOUND_WHOLE)
        key = MF_FOUND_NO;
    if (key == MF_FOUND_WHOLE || close == MF_FOUND_WHOLE || call == MF_FOUND_WHOLE || is_over) {
        if (is_over && s->call.must_close) {
            mf_reply_call_fail(s);
        } else if (mf_reply_call_name(s) && key == MF_FOUND_WHOLE) {
            s->at = next;
            s->state = in_key;
        } else if (s->call.is_given && s->call.is_open) {
            mf_reply_end_arguments(s); /* the marks are left to the section */
        }
        return true;
    }
    if (key == MF_FOUND_PART)
        return false;
    mf_reply_call_fail(s);
    return true;
}

/* The mark behind a key: which one, and where it ends. */
static mf_reply_found ends_key(const mf_reply_scan *s, size_t at, size_t *end, bool *is_string)
{
    const mf_reply_syntax *syntax = s->syntax;
    mf_reply_found text = match(s, at, syntax->key_end_string, end);
    *is_string = text == MF_FOUND_WHOLE;
    if (text == MF_FOUND_WHOLE)
        return text;
    mf_reply_found other = match(s, at, syntax->key_end, end);
    if (other == MF_FOUND_WHOLE)
        return other;
    /* models leave attributes out */
    mf_reply_found bare = syntax->key_end_string != NULL && syntax->key_end_string[0] == '"'
                              ? match(s, at, "\">", end)
                              : MF_FOUND_NO;
    return bare == MF_FOUND_WHOLE || bare > other ? bare : text > other ? text : other;
}

static void begin_value(mf_reply_scan *s, size_t key_at, size_t key_end, bool is_string)
{
    mf_reply_call *c = &s->call;
    const char *key = (const char *)s->in.data + key_at;
    size_t n = key_end - key_at;
    while (n > 0 && mf_reply_is_blank(key[n - 1]))
        n--;
    mf_reply_begin_argument(s, key, n);
    if (is_string)
        c->types = MF_TYPE_STRING;
    else if (s->syntax->key_end_string != NULL && c->types == MF_TYPE_STRING)
        c->types = MF_TYPE_ANY; /* the model says that it is none */
    s->state = s->syntax->row.has_elements ? mf_reply_in_elements : in_value;
}

static bool in_key(mf_reply_scan *s)
{
    size_t at, end = 0;
    bool is_string = false;
    mf_reply_found found = MF_FOUND_NO;
    if (!mf_reply_skip_blanks(s) && !s->is_over)
        return false;
    for (at = s->at; at < s->in.n_bytes && at - s->at <= MF_REPLY_KEY_BYTES; at++) {
        found = ends_key(s, at, &end, &is_string);
        if (found != MF_FOUND_NO || s->in.data[at] == '\n')
            break;
    }
    if (found == MF_FOUND_PART || (found == MF_FOUND_NO && at == s->in.n_bytes &&
                                   at - s->at <= MF_REPLY_KEY_BYTES && !s->is_over))
        return false;
    if (found == MF_FOUND_WHOLE && at > s->at) {
        const size_t key_at = s->at;
        s->at = end;
        begin_value(s, key_at, at, is_string);
    } else {
        s->at = at;
        mf_reply_call_fail(s);
    }
    return true;
}

/* ------------------------------------------------------------------------------------ values -- */

static mf_reply_found at_end(const mf_reply_scan *s, size_t at)
{
    return at < s->in.n_bytes ? MF_FOUND_NO : s->is_over ? MF_FOUND_WHOLE : MF_FOUND_PART;
}

static mf_reply_found best(mf_reply_found a, mf_reply_found b)
{
    return a > b ? a : b;
}

/* A value's closing mark at `at`, and behind it another argument, the end of the call or of the
 * text: else it belongs to the value. */
static mf_reply_found closes_value(const mf_reply_scan *s, size_t at, size_t *end)
{
    size_t next, other;
    const char *mark = s->call.is_cdata ? s->syntax->cdata_end : s->syntax->value_end;
    mf_reply_found found = match(s, at, mark, end);
    if (found != MF_FOUND_WHOLE)
        return found;
    next = mf_reply_behind_blanks(s, *end);
    return best(at_end(s, next),
                best(match(s, next, s->syntax->key_mark, &other), ends_call(s, next, &other)));
}

/* The same without the closing mark: the end of the call, and the end of its section, of the text,
 * or another call behind it. */
static mf_reply_found closes_call(const mf_reply_scan *s, size_t at)
{
    const mf_reply_syntax *syntax = s->syntax;
    size_t end = at, other;
    mf_reply_found found = match(s, at, syntax->call_end, &end);
    if (found == MF_FOUND_WHOLE) {
        size_t next = mf_reply_behind_blanks(s, end);
        return best(at_end(s, next), best(match(s, next, syntax->section_end, &other),
                                          match(s, next, syntax->section_mark, &other)));
    }
    mf_reply_found section = match(s, at, syntax->section_end, &end);
    if (section != MF_FOUND_WHOLE)
        return best(found, section);
    size_t next = mf_reply_behind_blanks(s, end);
    return best(found, best(at_end(s, next), match(s, next, syntax->section_mark, &other)));
}

/* Another argument of this tool at `at`: the value before it was not closed. */
static mf_reply_found opens_argument(const mf_reply_scan *s, size_t at)
{
    const mf_reply_call *c = &s->call;
    size_t start = at, end, stop;
    bool is_string;
    mf_reply_found found = match(s, at, s->syntax->key_mark, &start);
    if (found != MF_FOUND_WHOLE || s->tools.json.doc == NULL)
        return found == MF_FOUND_WHOLE ? MF_FOUND_NO : found;
    found = MF_FOUND_NO;
    for (stop = start; stop < s->in.n_bytes && stop - start <= MF_REPLY_KEY_BYTES; stop++) {
        found = ends_key(s, stop, &end, &is_string);
        if (found != MF_FOUND_NO || s->in.data[stop] == '\n')
            break;
    }
    if (found != MF_FOUND_WHOLE)
        return stop == s->in.n_bytes && !s->is_over && stop - start <= MF_REPLY_KEY_BYTES
                   ? MF_FOUND_PART
                   : found;
    const char *key = (const char *)s->in.data + start;
    return mf_reply_tools_types(&s->tools, (const char *)c->name.data, c->name.n_bytes, key,
                                stop - start) != 0 &&
                   !is_known_key(c, key, stop - start)
               ? MF_FOUND_WHOLE
               : MF_FOUND_NO;
}

/* What the value may be decides whether it comes out as it is said; false: not yet known. */
static bool begin_text(mf_reply_scan *s, size_t end, bool is_ended)
{
    mf_reply_call *c = &s->call;
    const size_t n = end - s->at;
    const char *text = (const char *)s->in.data + s->at;
    if (c->types == (MF_TYPE_STRING | MF_TYPE_NULL)) {
        if (n < 5 && !is_ended && n != 0 && (text[0] == 'n' || text[0] == 'N'))
            return false;
        if (n >= 5 || (n != 0 && text[0] != 'n' && text[0] != 'N'))
            c->types = MF_TYPE_STRING;
    }
    if (n == 0 && !is_ended)
        return false;
    c->is_string = c->types == MF_TYPE_STRING;
    c->is_begun = true;
    if (c->is_string && !c->is_dropped)
        mf_reply_give_arguments(s, "\"", 1);
    return true;
}

void mf_reply_take_value(mf_reply_scan *s, size_t end)
{
    if (s->call.is_begun || (end > s->at && begin_text(s, end, false)))
        take_text(s, end);
}

void mf_reply_end_value(mf_reply_scan *s, size_t end, size_t next)
{
    mf_reply_call *c = &s->call;
    if (!c->is_begun)
        (void)begin_text(s, end, true);
    take_text(s, end);
    if (!c->is_string)
        mf_reply_give_value(s);
    else if (!c->is_dropped)
        mf_reply_give_arguments(s, "\"", 1);
    s->at = next;
    s->state = mf_reply_in_tags;
}

/* Whether a mark that may stand behind a value begins so. */
static bool begins_mark(const mf_reply_scan *s, char first)
{
    const mf_reply_syntax *syntax = s->syntax;
    if (s->call.is_cdata)
        return first == ']';
    const char *const marks[] = {syntax->value_end, syntax->call_end, syntax->section_end,
                                 syntax->key_mark};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (marks[i] != NULL && marks[i][0] == first)
            return true;
    return false;
}

/* Before a value: what it may begin with; false: there is not enough of it. */
static bool open_value(mf_reply_scan *s)
{
    mf_reply_call *c = &s->call;
    size_t end = s->at;
    if (c->is_begun || c->is_cdata || !s->syntax->row.has_cdata)
        return true;
    const mf_reply_found found = mf_reply_match(s, s->at, CDATA, &end);
    c->is_cdata = found == MF_FOUND_WHOLE;
    s->at = c->is_cdata ? end : s->at;
    return found != MF_FOUND_PART;
}

static bool in_value(mf_reply_scan *s)
{
    const bool has_lines = s->syntax->has_lines;
    mf_reply_call *c = &s->call;
    mf_reply_found found = MF_FOUND_NO;
    size_t at, end = 0;
    if (!open_value(s))
        return false;
    if (has_lines && !c->is_begun && !c->has_line && mf_reply_left(s) > 0) {
        s->at += s->in.data[s->at] == '\n';
        c->has_line = true;
    }
    for (at = s->at; at < s->in.n_bytes; at++) {
        if (!begins_mark(s, (char)s->in.data[at]))
            continue;
        end = at;
        found = closes_value(s, at, &end);
        if (found == MF_FOUND_NO && !c->is_cdata) {
            end = at;
            found = best(closes_call(s, at), opens_argument(s, at));
        }
        if (found != MF_FOUND_NO)
            break;
    }
    const bool is_end =
        found == MF_FOUND_WHOLE || (s->is_over && !s->was_cut && at == s->in.n_bytes);
    size_t text_end = at;
    if (has_lines && text_end > s->at && s->in.data[text_end - 1] == '\n')
        text_end--;
    if (is_end) {
        mf_reply_end_value(s, text_end, found == MF_FOUND_WHOLE ? end : at);
        return true;
    }
    if (s->is_over) {
        s->at = s->in.n_bytes;
        mf_reply_call_fail(s);
        return true;
    }
    mf_reply_take_value(s, text_end);
    return false;
}

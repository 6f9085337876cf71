/* SPDX-License-Identifier: MIT */
/*
 * Arguments as elements: <key>text</key>, lists as elements called item, objects as elements called
 * as their members; each tag behind a mark of the family's. A text goes out as it comes, all else
 * at its end.
 */
#include "text/reply/reply_scan.h"
#include "text/reply/reply_value.h"

#include <string.h>

#define MAX_DEPTH 32

/* --------------------------------------------------------------------------------- as values -- */

typedef struct elements {
    const char *mark; /* before a tag's name, or before the slash of one that closes */
    size_t n_mark;
    mf_buffer *out;
    bool has_no_memory;
} elements;

typedef struct span {
    const char *text;
    size_t n;
} span;

/* A tag at the beginning of the span; its bytes, or 0. */
static size_t tag_at(const elements *e, span text, bool *is_close, span *name)
{
    if (text.n <= e->n_mark || memcmp(text.text, e->mark, e->n_mark) != 0)
        return 0;
    *is_close = text.text[e->n_mark] == '/';
    const char *start = text.text + e->n_mark + *is_close;
    const char *end = memchr(start, '>', text.n - (size_t)(start - text.text));
    if (end == NULL || end == start || memchr(start, '<', (size_t)(end - start)) != NULL)
        return 0;
    *name = (span){start, (size_t)(end - start)};
    return (size_t)(end + 1 - text.text);
}

static span without_blanks(span text)
{
    while (text.n > 0 && mf_reply_is_blank(text.text[0]))
        text = (span){text.text + 1, text.n - 1};
    return text;
}

/* The first element of *text, which moves behind it; false: none stands there, or it is not closed.
 */
static bool next_element(const elements *e, span *text, span *name, span *inside)
{
    bool is_close = false;
    span at = without_blanks(*text), other;
    size_t n = tag_at(e, at, &is_close, name);
    int64_t depth = 1;
    if (n == 0 || is_close)
        return false;
    *inside = (span){at.text + n, 0};
    at = (span){at.text + n, at.n - n};
    while (at.n > 0) {
        n = tag_at(e, at, &is_close, &other);
        depth += n == 0 ? 0 : is_close ? -1 : 1;
        if (n != 0 && depth == 0) {
            inside->n = (size_t)(at.text - inside->text);
            *text = (span){at.text + n, at.n - n};
            return true;
        }
        n = n == 0 ? 1 : n;
        at = (span){at.text + n, at.n - n};
    }
    return false;
}

/* What the span holds: elements and nothing but them, all called item, or text. */
typedef enum contents { IS_TEXT, IS_LIST, IS_OBJECT } contents;

static contents contents_of(const elements *e, span text, unsigned types)
{
    span name, inside, rest = text;
    bool is_list = true;
    if (without_blanks(text).n == 0)
        return (types & MF_TYPE_STRING) != 0   ? IS_TEXT
               : (types & MF_TYPE_ARRAY) != 0  ? IS_LIST
               : (types & MF_TYPE_OBJECT) != 0 ? IS_OBJECT
                                               : IS_TEXT;
    while (next_element(e, &rest, &name, &inside))
        is_list = is_list && name.n == 4 && memcmp(name.text, "item", 4) == 0;
    if (without_blanks(rest).n != 0)
        return IS_TEXT;
    if ((types & MF_TYPE_ARRAY) == 0 || (types & MF_TYPE_OBJECT) == 0)
        is_list = (types & (MF_TYPE_ARRAY | MF_TYPE_OBJECT)) == 0
                      ? is_list
                      : is_list && (types & MF_TYPE_ARRAY) != 0;
    return is_list ? IS_LIST : IS_OBJECT;
}

static void put(elements *e, const char *text)
{
    if (mf_buffer_append(e->out, text, strlen(text), "a tool call", NULL) != MF_OK)
        e->has_no_memory = true;
}

static void put_value(elements *e, span text, mf_reply_schema schema, unsigned depth);

static void put_children(elements *e, span text, mf_reply_schema schema, bool is_list,
                         unsigned depth)
{
    span name, inside;
    bool is_first = true;
    put(e, is_list ? "[" : "{");
    while (next_element(e, &text, &name, &inside)) {
        put(e, is_first ? "" : ", ");
        is_first = false;
        if (!is_list) {
            put(e, "\"");
            if (mf_json_quote(name.text, name.n, e->out) != MF_OK)
                e->has_no_memory = true;
            put(e, "\": ");
        }
        put_value(e, inside, mf_reply_schema_child(schema, is_list ? NULL : name.text, name.n),
                  depth + 1);
    }
    put(e, is_list ? "]" : "}");
}

static void put_value(elements *e, span text, mf_reply_schema schema, unsigned depth)
{
    unsigned types = mf_reply_schema_types(schema);
    types = types == 0 ? MF_TYPE_ANY : types;
    const contents what = depth == MAX_DEPTH ? IS_TEXT : contents_of(e, text, types);
    if (what != IS_TEXT)
        put_children(e, text, schema, what == IS_LIST, depth);
    else if (mf_reply_typed_value(text.text, text.n, types, e->out) != MF_VALUE_OK)
        e->has_no_memory = true;
}

mf_status mf_reply_elements_value(mf_reply_scan *s, mf_buffer *out)
{
    const mf_reply_call *c = &s->call;
    elements e = {s->syntax->key_mark, strlen(s->syntax->key_mark), out, false};
    const mf_reply_schema schema =
        mf_reply_tools_schema(&s->tools, (const char *)c->name.data, c->name.n_bytes,
                              (const char *)c->key.data, c->key.n_bytes);
    put_value(&e, (span){(const char *)c->value.data, c->value.n_bytes}, schema, 0);
    return e.has_no_memory ? MF_ERR_NO_MEMORY : MF_OK;
}

/* ------------------------------------------------------------------------------- as it comes -- */

/* A tag at `at`. *ends: it closes the argument, or the call with it (*next is `at` then). */
static mf_reply_found look(const mf_reply_scan *s, size_t at, size_t *next, bool *is_close,
                           bool *ends)
{
    const mf_reply_syntax *syntax = s->syntax;
    mf_reply_found found = mf_reply_match(s, at, syntax->key_mark, next);
    if (found != MF_FOUND_WHOLE)
        return found;
    if (*next == s->in.n_bytes)
        return s->is_over ? MF_FOUND_NO : MF_FOUND_PART;
    *is_close = s->in.data[*next] == '/';
    *ends = false;
    if (!*is_close || s->call.depth != 0)
        return MF_FOUND_WHOLE;
    found = mf_reply_match(s, at, syntax->call_end, next);
    *ends = found == MF_FOUND_WHOLE;
    *next = *ends ? at : *next;
    if (found != MF_FOUND_NO)
        return found;
    found = mf_reply_match(s, at, syntax->value_end, next);
    *ends = found == MF_FOUND_WHOLE;
    return found;
}

bool mf_reply_in_elements(mf_reply_scan *s)
{
    const char first = s->syntax->key_mark[0];
    mf_reply_found found = MF_FOUND_NO;
    size_t at = s->at, next = 0;
    bool is_close = false, ends = false;
    while (at < s->in.n_bytes) {
        found = s->in.data[at] == (unsigned char)first ? look(s, at, &next, &is_close, &ends)
                                                       : MF_FOUND_NO;
        if (found == MF_FOUND_PART || ends)
            break;
        if (found == MF_FOUND_WHOLE)
            s->call.depth = is_close ? s->call.depth - 1 : s->call.depth + 1;
        at = found == MF_FOUND_WHOLE ? next : at + 1;
    }
    if (ends) {
        mf_reply_end_value(s, at, next);
        return true;
    }
    if (s->is_over) {
        s->at = s->in.n_bytes;
        mf_reply_call_fail(s);
        return true;
    }
    mf_reply_take_value(s, at);
    return false;
}

/* SPDX-License-Identifier: MIT */
/* Calls that begin with a bare name; arguments as JSON behind it. */
#include "text/reply/reply_scan.h"

#include <string.h>

static void fail_memory(mf_reply_scan *s)
{
    s->status = MF_ERR_NO_MEMORY;
}

void mf_reply_give_arguments(mf_reply_scan *s, const char *text, size_t n_bytes)
{
    mf_reply_give_text(s, MF_REPLY_CALL_ARGUMENTS, text, n_bytes);
}

bool mf_reply_begin_named(mf_reply_scan *s)
{
    const mf_reply_syntax *syntax = s->syntax;
    size_t end = 0;
    if (!mf_reply_skip_blanks(s) && !s->is_over)
        return false;
    const char first = mf_reply_left(s) == 0 ? '\0' : (char)s->in.data[s->at];
    if ((first == '{' || first == '[') &&
        (syntax->call_mark == NULL || syntax->call_mark[0] != first)) {
        s->state = mf_reply_begin_objects; /* as other families do it */
        return true;
    }
    if (syntax->call_mark == NULL) {
        s->state = mf_reply_in_name;
        return true;
    }
    switch (mf_reply_match(s, s->at, syntax->call_mark, &end)) {
    case MF_FOUND_PART:
        return false;
    case MF_FOUND_WHOLE:
        s->at = end;
        s->state = mf_reply_in_name;
        return true;
    default:
        mf_reply_call_fail(s);
        return true;
    }
}

/* -------------------------------------------------------------------------------------- name -- */

/* The number that calls are counted by, at the end of a name. */
static size_t without_number(const mf_reply_row *row, const char *name, size_t n_bytes)
{
    const size_t n_open = row->number_open == NULL ? 0 : strlen(row->number_open);
    size_t n = n_bytes;
    while (n > 0 && name[n - 1] >= '0' && name[n - 1] <= '9')
        n--;
    if (n_open == 0 || n == n_bytes || n <= n_open ||
        memcmp(name + n - n_open, row->number_open, n_open) != 0)
        return n_bytes;
    return n - n_open;
}

/* Takes what was read as the call's name; where names stand in ids, that is the id, too. */
static bool take_name(mf_reply_scan *s, size_t start, size_t end)
{
    const mf_reply_row *row = &s->syntax->row;
    const char *text = (const char *)s->in.data + start;
    const size_t n = without_number(row, text, end - start);
    if (n != end - start && row->name_prefix != NULL &&
        mf_buffer_append(&s->call.id, text, end - start, "a tool call", NULL) != MF_OK)
        fail_memory(s);
    return mf_reply_call_take_name(s, text, n);
}

/* An id between two marks; its end, or 0: not (yet) there. */
static size_t take_id(mf_reply_scan *s, size_t at, const char *close, bool *waits)
{
    const size_t stop = mf_reply_name_end(s, at);
    size_t end = 0;
    mf_reply_found found = close == NULL ? MF_FOUND_NO : mf_reply_match(s, stop, close, &end);
    *waits = found == MF_FOUND_PART;
    if (found != MF_FOUND_WHOLE)
        return 0;
    s->call.id.n_bytes = 0;
    if (mf_buffer_append(&s->call.id, s->in.data + at, stop - at, "a tool call", NULL) != MF_OK)
        fail_memory(s);
    return end;
}

/* What stands behind a name: its mark, an id and then its mark, or the arguments at once. Returns
 * where they begin, or 0. */
static size_t behind_name(mf_reply_scan *s, size_t at, bool *waits)
{
    const mf_reply_syntax *syntax = s->syntax;
    const char *id_open = syntax->row.id_open;
    const size_t next = mf_reply_behind_blanks(s, at);
    size_t end = 0, id_at = 0;
    *waits = next == s->in.n_bytes && !s->is_over;
    if (*waits)
        return 0;
    mf_reply_found found =
        syntax->name_end == NULL ? MF_FOUND_NO : mf_reply_match(s, at, syntax->name_end, &end);
    if (found == MF_FOUND_NO && syntax->name_end != NULL)
        found = mf_reply_match(s, next, syntax->name_end, &end);
    if (found == MF_FOUND_WHOLE)
        return end;
    mf_reply_found id = id_open == NULL ? MF_FOUND_NO : mf_reply_match(s, next, id_open, &id_at);
    if (id == MF_FOUND_WHOLE)
        return take_id(s, id_at, syntax->name_end, waits);
    *waits = found == MF_FOUND_PART || id == MF_FOUND_PART;
    if (*waits)
        return 0;
    const bool is_bare_json =
        syntax->row.reader == MF_READ_NAMED && next < s->in.n_bytes && s->in.data[next] == '{';
    return syntax->name_end == NULL || is_bare_json ? next : 0;
}

bool mf_reply_in_name(mf_reply_scan *s)
{
    const mf_reply_row *row = &s->syntax->row;
    bool waits = false;
    if (!mf_reply_skip_blanks(s) && !s->is_over)
        return false;
    size_t start = s->at;
    if (row->id_close != NULL && s->call.id.n_bytes == 0) {
        start = take_id(s, start, row->id_close, &waits);
        if (waits || (start == 0 && mf_reply_name_end(s, s->at) == s->in.n_bytes && !s->is_over))
            return false;
        s->at = start = start == 0 ? s->at : start;
    }
    const size_t end = mf_reply_name_end(s, start);
    if (end == s->in.n_bytes && !s->is_over)
        return false;
    const size_t next = end == start ? 0 : behind_name(s, end, &waits);
    if (waits)
        return false;
    s->at = next == 0 ? end : next;
    if (next == 0 || !take_name(s, start, end))
        mf_reply_call_fail(s);
    else
        s->state = row->reader == MF_READ_TAGGED ? mf_reply_in_tags
                   : row->reader == MF_READ_BARE ? mf_reply_in_bare
                                                 : mf_reply_in_json;
    return true;
}

/* -------------------------------------------------------------------------------- recipients -- */

bool mf_reply_begin_recipient(mf_reply_scan *s)
{
    size_t end = s->at;
    if (!mf_reply_skip_blanks(s) && !s->is_over)
        return false;
    const mf_reply_found found = mf_reply_match(s, s->at, s->syntax->call_mark, &end);
    if (found == MF_FOUND_PART)
        return false;
    mf_reply_call_begin(s, s->at);
    s->at = found == MF_FOUND_WHOLE ? end : s->at;
    s->state = mf_reply_in_recipient;
    return true;
}

/* Whom the message is for: everybody, and it is content, or a tool. */
bool mf_reply_in_recipient(mf_reply_scan *s)
{
    const size_t end = mf_reply_name_end(s, s->at), n = end - s->at;
    const char *name = (const char *)s->in.data + s->at, *everybody = s->syntax->row.everybody;
    if (end == s->in.n_bytes && !s->is_over)
        return false;
    const bool is_line = end == s->in.n_bytes || s->in.data[end] == '\n';
    if (is_line && n == strlen(everybody) && memcmp(name, everybody, n) == 0) {
        s->call.is_open = s->is_after_call = false;
        s->at = end < s->in.n_bytes ? end + 1 : end;
        s->state = mf_reply_in_content;
        return true;
    }
    s->call.is_bare = true; /* content may have the mark, too */
    if (is_line && n > 0 && s->has_calls && mf_reply_tools_has(&s->tools, name, n))
        s->state = mf_reply_in_name;
    else
        mf_reply_call_fail(s);
    return true;
}

/* -------------------------------------------------------------------------------------- JSON -- */

/* Before the arguments: they may be left out. */
static bool begin_json(mf_reply_scan *s)
{
    const mf_reply_syntax *syntax = s->syntax;
    size_t end = 0;
    if (!mf_reply_skip_blanks(s) && !s->is_over)
        return false;
    if (mf_reply_left(s) != 0 && s->in.data[s->at] == '{') {
        s->call.is_begun = mf_reply_call_name(s);
        return true;
    }
    const char *const ends[] = {syntax->call_end, syntax->section_end};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        mf_reply_found found =
            ends[i] == NULL ? MF_FOUND_NO : mf_reply_match(s, s->at, ends[i], &end);
        if (found == MF_FOUND_PART)
            return false;
        if (found == MF_FOUND_NO)
            continue;
        if (mf_reply_call_name(s)) {
            mf_reply_give_arguments(s, "{}", 2);
            mf_reply_call_end(s);
        }
        return true;
    }
    mf_reply_call_fail(s);
    return true;
}

bool mf_reply_in_json(mf_reply_scan *s)
{
    mf_reply_call *c = &s->call;
    if (!c->is_begun)
        return begin_json(s);
    mf_json_result result = MF_JSON_MORE;
    s->scratch.n_bytes = 0;
    while (mf_reply_left(s) != 0 && result == MF_JSON_MORE) {
        result = mf_json_scan_byte(&c->json, s->in.data[s->at], &s->scratch);
        s->at += result == MF_JSON_MORE || result == MF_JSON_WHOLE;
    }
    if (result == MF_JSON_NO_MEMORY)
        fail_memory(s);
    mf_reply_give_arguments(s, (const char *)s->scratch.data, s->scratch.n_bytes);
    if (result == MF_JSON_WHOLE)
        mf_reply_call_end(s);
    else if (result != MF_JSON_MORE || s->is_over)
        mf_reply_call_fail(s);
    return result != MF_JSON_MORE || s->is_over;
}

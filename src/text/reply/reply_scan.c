/* SPDX-License-Identifier: MIT */
/* Thoughts, content, and where calls begin and end. */
#include "text/reply/reply_scan.h"

#include "text/utf8.h"

#include <string.h>

/* -------------------------------------------------------------------------- the waiting text -- */

static unsigned char byte_at(const mf_reply_scan *s, size_t at)
{
    return s->in.data[at];
}

/* A name at *at, which moves behind it. */
static mf_reply_found match_name(const mf_reply_scan *s, size_t *at)
{
    const size_t end = mf_reply_name_end(s, *at), n = end - *at;
    if (n > MF_REPLY_NAME_BYTES || (n == 0 && end < s->in.n_bytes))
        return MF_FOUND_NO;
    *at = end;
    return end == s->in.n_bytes && !s->is_over ? MF_FOUND_PART : MF_FOUND_WHOLE;
}

mf_reply_found mf_reply_match(const mf_reply_scan *s, size_t at, const char *mark, size_t *end)
{
    if (*mark == '\0')
        return MF_FOUND_NO;
    for (; *mark != '\0'; mark++) {
        if (*mark == MF_REPLY_ANY[0]) {
            const mf_reply_found name = match_name(s, &at);
            if (name != MF_FOUND_WHOLE)
                return name;
            continue;
        }
        const bool is_blank = mf_reply_is_blank(*mark);
        while (is_blank && at < s->in.n_bytes && mf_reply_is_blank(byte_at(s, at)))
            at++;
        if (is_blank && mark[1] == '\0')
            break; /* blanks at its end are none that must have been seen */
        if (at == s->in.n_bytes)
            return s->is_over ? MF_FOUND_NO : MF_FOUND_PART;
        if (!is_blank && byte_at(s, at++) != (unsigned char)*mark)
            return MF_FOUND_NO;
    }
    *end = at;
    return MF_FOUND_WHOLE;
}

bool mf_reply_skip_blanks(mf_reply_scan *s)
{
    s->at = mf_reply_behind_blanks(s, s->at);
    return s->at < s->in.n_bytes;
}

/* Where a row of blanks begins that ends at `end`, at most MF_REPLY_BLANKS of them. */
static size_t before_blanks(const mf_reply_scan *s, size_t end, bool only_lines)
{
    size_t at = end;
    while (at > s->at && end - at < MF_REPLY_BLANKS &&
           (byte_at(s, at - 1) == '\n' || byte_at(s, at - 1) == '\r' ||
            (!only_lines && mf_reply_is_blank(byte_at(s, at - 1)))))
        at--;
    return at;
}

/* The text before `end` comes out. */
static void give_until(mf_reply_scan *s, mf_reply_kind kind, size_t end)
{
    if (end > s->at)
        mf_reply_give_text(s, kind, (const char *)s->in.data + s->at, end - s->at);
    s->at = end;
}

/* Line ends behind the mark of a thought; false: there is nothing behind them yet. */
static bool drop_lines(mf_reply_scan *s)
{
    while (s->drops_lines && mf_reply_left(s) > 0 &&
           (byte_at(s, s->at) == '\n' || byte_at(s, s->at) == '\r'))
        s->at++;
    if (mf_reply_left(s) == 0)
        return false;
    s->drops_lines = false;
    return true;
}

/* ---------------------------------------------------------------------------------- thoughts -- */

static bool begins_call(const mf_reply_scan *s, size_t at, mf_reply_found *found, size_t *end)
{
    const mf_reply_syntax *syntax = s->syntax;
    const char *const marks[] = {syntax->section_mark, syntax->section_also};
    *found = MF_FOUND_NO;
    for (size_t i = 0; i < sizeof marks / sizeof *marks && s->has_calls; i++) {
        if (marks[i] == NULL)
            continue;
        mf_reply_found one = mf_reply_match(s, at, marks[i], end);
        if (one > *found)
            *found = one;
        if (one == MF_FOUND_WHOLE)
            break;
    }
    return *found != MF_FOUND_NO;
}

bool mf_reply_in_thought(mf_reply_scan *s)
{
    mf_reply_found found = MF_FOUND_NO;
    size_t end = 0, at;
    bool is_call = false;
    if (!drop_lines(s))
        return false;
    for (at = s->at; at < s->in.n_bytes && found == MF_FOUND_NO; at += found == MF_FOUND_NO) {
        found = mf_reply_match(s, at, s->syntax->thought_end, &end);
        if (found == MF_FOUND_NO && s->syntax->row.ends_thought)
            is_call = begins_call(s, at, &found, &end);
    }
    const bool waits = !s->is_over || found == MF_FOUND_WHOLE;
    give_until(s, MF_REPLY_THOUGHT, waits ? before_blanks(s, at, true) : at);
    if (found != MF_FOUND_WHOLE)
        return false;
    s->is_thought = false;
    s->state = mf_reply_in_content;
    if (is_call) {
        s->at = at; /* content finds it there again */
    } else {
        s->at = end;
        s->drops_lines = true;
    }
    return true;
}

static void begin_thought(mf_reply_scan *s)
{
    s->is_thought = s->drops_lines = true;
    s->state = mf_reply_in_thought;
}

/* ----------------------------------------------------------------------------------- content -- */

/* What may stand in content. */
typedef enum mark_kind { MARK_NONE, MARK_CALL, MARK_BARE, MARK_THOUGHT, MARK_DROPPED } mark_kind;

typedef struct mark {
    mark_kind kind;
    mf_reply_found found;
    size_t end;
} mark;

static bool try_mark(const mf_reply_scan *s, size_t at, mark_kind kind, const char *text, mark *out)
{
    size_t end = at;
    if (text == NULL)
        return false;
    mf_reply_found found = mf_reply_match(s, at, text, &end);
    if (found > out->found)
        *out = (mark){kind, found, end};
    return found == MF_FOUND_WHOLE;
}

/* A call without a mark of its own: JSON or Python at the beginning of what is said. */
static bool begins_bare(const mf_reply_scan *s, size_t at)
{
    const mf_reply_syntax *syntax = s->syntax;
    return s->has_calls && (syntax->section_mark == NULL || syntax->row.may_be_bare) &&
           ((syntax->row.reader == MF_READ_OBJECT &&
             (byte_at(s, at) == '{' || byte_at(s, at) == '[')) ||
            (syntax->row.reader == MF_READ_PYTHON && byte_at(s, at) == '['));
}

/* What stands at `at`; is_first: nothing but blanks stands before it. */
static mark look(const mf_reply_scan *s, size_t at, bool is_first)
{
    const mf_reply_syntax *syntax = s->syntax;
    const bool is_behind_call = s->is_after_call && at == s->at;
    mark found = {0};
    if (begins_call(s, at, &found.found, &found.end))
        found.kind = MARK_CALL;
    if (found.found == MF_FOUND_WHOLE)
        return found;
    if (is_first && begins_bare(s, at))
        return (mark){MARK_BARE, MF_FOUND_WHOLE, at};
    if (s->has_calls && try_mark(s, at, MARK_BARE, syntax->call_mark, &found))
        return found;
    if ((is_first || is_behind_call) &&
        (try_mark(s, at, MARK_THOUGHT, syntax->thought_mark, &found) ||
         try_mark(s, at, MARK_DROPPED, syntax->thought_end, &found)))
        return found;
    if (try_mark(s, at, MARK_DROPPED, syntax->content_mark, &found) ||
        try_mark(s, at, MARK_DROPPED, syntax->content_end, &found))
        return found;
    for (size_t i = 0; i < MF_REPLY_N_DROPPED; i++)
        if (try_mark(s, at, MARK_DROPPED, syntax->row.dropped[i], &found))
            return found;
    if (is_behind_call)
        (void)try_mark(s, at, MARK_DROPPED, syntax->section_end, &found);
    return found;
}

static void take_mark(mf_reply_scan *s, const mark *m)
{
    if (m->kind == MARK_CALL || m->kind == MARK_BARE) {
        mf_reply_call_begin(s, s->at);
        s->call.is_bare = m->kind == MARK_BARE;
        s->call.must_close = m->kind == MARK_BARE && s->syntax->call_mark != NULL;
        s->at = m->end;
        s->state = s->call.must_close ? mf_reply_call_state(s) : mf_reply_first_state(s);
        return;
    }
    s->at = m->end;
    if (m->kind == MARK_THOUGHT)
        begin_thought(s);
    else
        s->drops_lines = true;
}

/* Something may stand behind content, the blanks before which go with it. */
static bool may_end_content(const mf_reply_scan *s)
{
    const mf_reply_syntax *syntax = s->syntax;
    return s->has_calls || syntax->content_mark != NULL || syntax->content_end != NULL ||
           syntax->row.dropped[0] != NULL;
}

bool mf_reply_in_content(mf_reply_scan *s)
{
    mark m = {0};
    size_t at;
    bool is_first = s->is_fresh;
    if (!drop_lines(s) || (s->is_after_call && !mf_reply_skip_blanks(s)))
        return false;
    for (at = s->at; at < s->in.n_bytes; at++) {
        m = look(s, at, is_first);
        if (m.found != MF_FOUND_NO)
            break;
        is_first = is_first && mf_reply_is_blank(byte_at(s, at));
    }
    const bool is_found = m.found == MF_FOUND_WHOLE;
    const bool waits = is_found || (!s->is_over && (is_first || may_end_content(s)));
    give_until(s, MF_REPLY_CONTENT, waits ? before_blanks(s, at, false) : at);
    if (is_found)
        take_mark(s, &m);
    return is_found;
}

/* ------------------------------------------------------------------------------------- calls -- */

static void clear_call(mf_reply_call *c)
{
    c->is_whole = c->is_given = c->is_begun = c->is_object = false;
    c->n_keys = 0;
    c->name.n_bytes = c->id.n_bytes = c->key.n_bytes = c->keys.n_bytes = c->value.n_bytes = 0;
    c->json = (mf_json_scan){0};
    c->object = (mf_reply_object){.level = 1};
}

void mf_reply_call_begin(mf_reply_scan *s, size_t begin)
{
    clear_call(&s->call);
    s->call.is_open = true;
    s->call.is_bare = s->call.must_close = false;
    s->call.begin = begin;
}

bool mf_reply_call_name(mf_reply_scan *s)
{
    const mf_reply_call *c = &s->call;
    if (c->is_given)
        return true;
    if (s->n_calls == MF_REPLY_MAX_CALLS ||
        (c->is_bare &&
         !mf_reply_tools_has(&s->tools, (const char *)c->name.data, c->name.n_bytes))) {
        mf_reply_call_fail(s);
        return false;
    }
    mf_reply_give_call(s);
    return true;
}

void mf_reply_call_end(mf_reply_scan *s)
{
    s->call.is_whole = true;
    mf_reply_give_end(s, MF_REPLY_CALL_END, "", 0);
    s->is_after_call = true;
    s->state = mf_reply_in_section;
}

/* Where content goes on behind a call. */
static mf_reply_state text_state(const mf_reply_scan *s)
{
    return s->syntax->row.reader == MF_READ_HARMONY ? mf_reply_in_harmony : mf_reply_in_content;
}

void mf_reply_call_fail(mf_reply_scan *s)
{
    mf_reply_call *c = &s->call;
    /* names that are too long are given up in the midst of a character, too */
    while (s->at > c->begin && s->at < s->in.n_bytes && (byte_at(s, s->at) & 0xC0) == 0x80)
        s->at--;
    const char *text = (const char *)s->in.data + c->begin;
    const size_t n_bytes = s->at - c->begin;
    s->state = text_state(s);
    if (c->is_given && !c->must_close && !s->has_whole_calls) {
        mf_reply_give_end(s, MF_REPLY_CALL_BROKEN, text, n_bytes);
        s->is_after_call = false;
        c->is_open = false;
        return;
    }
    mf_reply_take_back(s);
    c->is_open = false;
    mf_reply_give_text(s, MF_REPLY_CONTENT, text, n_bytes);
}

bool mf_reply_is_name_byte(unsigned char c)
{
    return c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z') || (c != 0 && strchr("_-.:/$@", c) != NULL);
}

size_t mf_reply_name_end(const mf_reply_scan *s, size_t at)
{
    const size_t limit = at + MF_REPLY_NAME_BYTES + 1;
    while (at < s->in.n_bytes && at < limit && mf_reply_is_name_byte(s->in.data[at]))
        at++;
    return at;
}

bool mf_reply_call_take_name(mf_reply_scan *s, const char *name, size_t n_bytes)
{
    const char *prefix = s->syntax->row.name_prefix;
    const size_t n_prefix = prefix == NULL ? 0 : strlen(prefix);
    if (n_prefix != 0 && n_bytes > n_prefix && memcmp(name, prefix, n_prefix) == 0) {
        name += n_prefix;
        n_bytes -= n_prefix;
    }
    if (n_bytes == 0 || n_bytes > MF_REPLY_NAME_BYTES)
        return false;
    for (size_t i = 0; i < n_bytes; i++)
        if (!mf_reply_is_name_byte((unsigned char)name[i]))
            return false;
    if (mf_buffer_append(&s->call.name, name, n_bytes, "a tool call", NULL) != MF_OK)
        s->status = MF_ERR_NO_MEMORY;
    return s->status == MF_OK;
}

/* Between calls: marks and punctuation of no meaning any more. */
static bool drop_rest(mf_reply_scan *s)
{
    const unsigned char c = mf_reply_left(s) == 0 ? 0 : byte_at(s, s->at);
    const char *drops = s->call.is_object ? ",]};" : s->syntax->drops;
    if (c == 0 || strchr(drops, c) == NULL)
        return false;
    s->at++;
    return true;
}

/* A call more of the section, behind its mark. */
static void next_call(mf_reply_scan *s, size_t at)
{
    const bool is_bare = s->call.is_bare, must_close = s->call.must_close;
    mf_reply_call_begin(s, s->at);
    s->call.is_bare = is_bare;
    s->call.must_close = must_close;
    s->at = at;
}

/* Whether a call begins here without a mark. */
static bool begins_unmarked(const mf_reply_scan *s)
{
    const unsigned char c = mf_reply_left(s) == 0 ? 0 : byte_at(s, s->at);
    const mf_reply_reader reader = s->syntax->row.reader;
    if (s->call.is_object)
        return (c == '{' || c == '[') && !s->call.is_bare;
    return reader == MF_READ_PYTHON && mf_reply_is_name_byte(c);
}

bool mf_reply_in_section(mf_reply_scan *s)
{
    const mf_reply_syntax *syntax = s->syntax;
    const bool was_object = s->call.is_object;
    mark m = {0};
    if (!mf_reply_skip_blanks(s) && !s->is_over)
        return false;
    if (drop_rest(s))
        return true;
    if (begins_unmarked(s)) {
        next_call(s, s->at);
        s->state = was_object ? mf_reply_begin_objects : mf_reply_begin_python;
        return true;
    }
    if (!try_mark(s, s->at, MARK_THOUGHT, syntax->call_end, &m) &&
        !try_mark(s, s->at, MARK_THOUGHT, syntax->row.json_close, &m) &&
        !try_mark(s, s->at, MARK_DROPPED, syntax->section_end, &m) &&
        !try_mark(s, s->at, MARK_DROPPED, syntax->section_end_also, &m))
        (void)try_mark(s, s->at, MARK_CALL, syntax->call_mark, &m);
    if (m.found == MF_FOUND_PART)
        return false;
    if (m.found == MF_FOUND_WHOLE && m.kind == MARK_CALL) {
        next_call(s, m.end);
        s->state = mf_reply_call_state(s);
        return true;
    }
    s->at = m.found == MF_FOUND_WHOLE ? m.end : s->at;
    if (m.found == MF_FOUND_WHOLE && m.kind == MARK_THOUGHT)
        return true; /* the end of the arguments, or of the call */
    s->call.is_open = false;
    s->state = text_state(s);
    return true;
}

mf_reply_state mf_reply_first_state(const mf_reply_scan *s)
{
    switch (s->syntax->row.reader) {
    case MF_READ_NAMED:
    case MF_READ_TAGGED:
    case MF_READ_BARE:
        return s->syntax->is_call_section ? mf_reply_call_state(s) : mf_reply_begin_named;
    case MF_READ_PYTHON:
        return mf_reply_begin_python;
    default:
        return mf_reply_begin_objects;
    }
}

mf_reply_state mf_reply_call_state(const mf_reply_scan *s)
{
    return s->syntax->row.everybody == NULL ? mf_reply_in_name : mf_reply_in_recipient;
}

/* ---------------------------------------------------------------------------------- the loop -- */

void mf_reply_run(mf_reply_scan *s)
{
    while (s->status == MF_OK && s->state(s))
        ;
}

/* Appends whole characters; what is not UTF-8 is replaced. */
static void take_bytes(mf_reply_scan *s, const unsigned char *bytes, size_t n_bytes)
{
    size_t at = 0;
    while (at < n_bytes && s->status == MF_OK) {
        uint32_t c;
        unsigned char encoded[4];
        size_t n = 1;
        mf_utf8_kind kind = mf_utf8_next(bytes + at, n_bytes - at, &c, &n);
        if (kind == MF_UTF8_PARTIAL && !s->is_over) {
            memcpy(s->rest, bytes + at, n_bytes - at);
            s->n_rest = (unsigned)(n_bytes - at);
            return;
        }
        const void *what = kind == MF_UTF8_CHAR ? bytes + at : encoded;
        size_t n_what = kind == MF_UTF8_CHAR ? n : mf_utf8_put(MF_UTF8_REPLACEMENT, encoded);
        if (mf_buffer_append(&s->in, what, n_what, "a reply", NULL) != MF_OK)
            s->status = MF_ERR_NO_MEMORY;
        at += n;
    }
}

/* Together with what was left of a character. */
static void take_more(mf_reply_scan *s, const unsigned char *bytes, size_t n_bytes)
{
    while (s->n_rest != 0 && n_bytes != 0 && s->status == MF_OK) {
        unsigned char joined[5];
        const unsigned n = s->n_rest;
        memcpy(joined, s->rest, n);
        joined[n] = *bytes++;
        n_bytes--;
        s->n_rest = 0;
        take_bytes(s, joined, n + 1);
    }
    if (n_bytes != 0)
        take_bytes(s, bytes, n_bytes);
}

void mf_reply_scan_push(mf_reply_scan *s, const char *bytes, size_t n_bytes)
{
    mf_reply_tidy(s);
    take_more(s, (const unsigned char *)bytes, n_bytes);
    mf_reply_run(s);
}

void mf_reply_scan_finish(mf_reply_scan *s, bool was_cut)
{
    mf_reply_tidy(s);
    const unsigned n_rest = s->n_rest;
    unsigned char rest[4];
    memcpy(rest, s->rest, sizeof rest);
    s->is_over = true;
    s->was_cut = was_cut;
    s->n_rest = 0;
    take_bytes(s, rest, n_rest);
    mf_reply_run(s);
    s->call.is_open = false;
}

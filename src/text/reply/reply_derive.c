/* SPDX-License-Identifier: MIT */
/*
 * A row out of an answer whose calls are known. What stands before, between and behind the calls
 * is split by what repeats: X call Y call Z, where Y ends as X does (what opens a call) and begins
 * as Z does (what closes one); what is left of X and Z stands around all calls.
 */
#include "text/reply/reply_derive.h"

#include "text/buffer.h"
#include "text/reply/reply_json.h"
#include "text/reply/reply_probe.h"

#include <stdio.h>
#include <string.h>

#define MAX_MARK 256u

/* A part of the answer. */
typedef struct part {
    const char *text;
    size_t n;
} part;

/* ----------------------------------------------------------------------------------- writing -- */

static bool put(mf_buffer *out, const char *text)
{
    return text == NULL ||
           mf_buffer_append(out, text, strlen(text), "the syntax of replies", NULL) == MF_OK;
}

static bool put_tags(mf_buffer *out, const mf_reply_form *f)
{
    const char *close_string = f->key_close_string == NULL ? f->key_close : f->key_close_string;
    return put(out, f->key_open) && put(out, MF_PROBE_KEY) && put(out, close_string) &&
           put(out, MF_PROBE_TEXT) && put(out, f->value_close) && put(out, f->key_open) &&
           put(out, MF_PROBE_OTHER_KEY) && put(out, f->key_close) && put(out, MF_PROBE_NUMBER) &&
           put(out, f->value_close);
}

static bool put_call(mf_buffer *out, const mf_reply_form *f, unsigned i)
{
    const char number[2] = {(char)('0' + i), '\0'};
    const bool is_first = i == 0;
    bool is_good = (is_first || put(out, f->between_calls)) && put(out, f->name_open) &&
                   put(out, is_first ? MF_PROBE_NAME : MF_PROBE_OTHER);
    if (f->number_open != NULL)
        is_good = is_good && put(out, f->number_open) && put(out, number);
    is_good = is_good && put(out, f->name_close);
    if (f->arguments == MF_REPLY_ARGUMENTS_TAGGED)
        is_good = is_good && (!is_first || put_tags(out, f));
    else if (f->arguments == MF_REPLY_ARGUMENTS_PYTHON)
        is_good = is_good && (!is_first || put(out, "place=\"Old Town\", days=3"));
    else
        is_good = is_good && put(out, is_first ? MF_PROBE_ARGUMENTS : "{}");
    return is_good && put(out, f->call_close);
}

mf_status mf_reply_writes(const mf_allocator *a, const mf_reply_row *row, const char *text,
                          unsigned n_calls, bool *is_exact)
{
    mf_reply_syntax *syntax = NULL;
    mf_buffer out;
    mf_buffer_init(&out, a);
    MF_TRY(mf_reply_syntax_make(a, row, &syntax, NULL));
    bool is_good = put(&out, syntax->form.calls_open);
    for (unsigned i = 0; i < n_calls; i++)
        is_good = is_good && put_call(&out, &syntax->form, i);
    is_good = is_good && put(&out, syntax->form.calls_close);
    *is_exact = is_good && memmem(text, strlen(text), out.data, out.n_bytes) != NULL;
    mf_buffer_free(&out);
    mf_reply_syntax_free(&syntax);
    return is_good ? MF_OK : MF_ERR_NO_MEMORY;
}

/* ------------------------------------------------------------------------------------- parts -- */

static size_t common_start(part a, part b)
{
    size_t n = 0;
    while (n < a.n && n < b.n && a.text[n] == b.text[n])
        n++;
    return n;
}

static size_t common_end(part a, part b)
{
    size_t n = 0;
    while (n < a.n && n < b.n && a.text[a.n - 1 - n] == b.text[b.n - 1 - n])
        n++;
    return n;
}

static part between(const char *start, const char *end)
{
    return (part){start, end > start ? (size_t)(end - start) : 0};
}

/* A part as a text of the row. */
static const char *keep(mf_reply_derived *d, part p)
{
    char *start = d->texts + d->n_bytes;
    if (p.n >= sizeof d->texts - d->n_bytes ||
        (p.n > 0 && memchr(p.text, MF_REPLY_ANY[0], p.n) != NULL))
        return NULL;
    if (p.n > 0)
        memcpy(start, p.text, p.n);
    start[p.n] = '\0';
    d->n_bytes += p.n + 1;
    return start;
}

/* ------------------------------------------------------------------------------------- calls -- */

/* Where the calls' names and arguments stand. */
typedef struct places {
    const char *name, *arguments, *arguments_end, *other, *other_end, *end;
} places;

/* The whole of the calls: X, Y and Z without what belongs to names and arguments. */
typedef struct frame {
    part calls_open, call_open, call_close, between, calls_close;
} frame;

/* The answer without what ends a turn: as many whole marks of it as there are, since content may
 * have one of its own before them. */
static const char *end_of(const mf_reply_sample *sample, const char *from)
{
    part text = {from, strlen(from)}, end = {sample->turn_end, strlen(sample->turn_end)};
    while (end.n > 0 && mf_reply_is_blank(end.text[end.n - 1]))
        end.n--;
    while (text.n > 0 && mf_reply_is_blank(from[text.n - 1]))
        text.n--;
    size_t n = common_end(text, end);
    while (n > 0 && n < end.n && end.text[end.n - n] != '<')
        n--;
    return from + text.n - n;
}

/* Whole marks only: how much of the end of x begins behind a mark that was cut; and of the start of
 * y ends before one. */
static size_t whole_end(part x, size_t n)
{
    bool is_open = false;
    for (size_t i = 0; i < x.n - n; i++)
        is_open = x.text[i] == '<' || (is_open && x.text[i] != '>');
    while (is_open && n > 0 && x.text[x.n - n] != '>')
        n--;
    return is_open && n > 0 ? n - 1 : n;
}

static size_t whole_start(part y, size_t n)
{
    size_t last = n;
    bool is_open = false;
    for (size_t i = 0; i < n; i++) {
        if (y.text[i] == '<')
            last = i;
        is_open = y.text[i] == '<' || (is_open && y.text[i] != '>');
    }
    return is_open ? last : n;
}

static frame frame_of(const places *p, const char *start)
{
    const part x = between(start, p->name);
    if (p->other == NULL)
        return (frame){.call_open = x, .call_close = between(p->arguments_end, p->end)};
    part y = between(p->arguments_end, p->other), z = between(p->other_end, p->end);
    const size_t n_open = whole_end(x, common_end(x, y));
    frame f = {.calls_open = {x.text, x.n - n_open}, .call_open = {p->name - n_open, n_open}};
    y.n -= n_open;
    const size_t n_close = whole_start(y, common_start(y, z));
    f.call_close = (part){y.text, n_close};
    f.between = (part){y.text + n_close, y.n - n_close};
    f.calls_close = (part){z.text + n_close, z.n - n_close};
    return f;
}

/* The parts of a frame that are there for each call, and those around all. */
static void take_frame(const frame *f, mf_reply_derived *d, mf_reply_row *row)
{
    row->is_per_call = f->calls_open.n == 0;
    row->between = keep(d, f->between);
    if (row->is_per_call) {
        size_t n = row->reader == MF_READ_OBJECT ? 0 : f->call_open.n;
        while (n < f->call_open.n && f->call_open.text[n] != '{')
            n++;
        row->section_open = keep(d, (part){f->call_open.text, n});
        row->call_open = keep(d, (part){f->call_open.text + n, f->call_open.n - n});
        n = row->reader == MF_READ_OBJECT && f->call_close.n > 0 && f->call_close.text[0] == '}';
        row->call_close = keep(d, (part){f->call_close.text, n});
        row->section_close = keep(d, (part){f->call_close.text + n, f->call_close.n - n});
        return;
    }
    row->section_open = keep(d, f->calls_open);
    row->call_open = keep(d, f->call_open);
    row->call_close = keep(d, f->call_close);
    row->section_close = keep(d, f->calls_close);
}

/* Whether what stands before a name is a member of an object: {"name": " */
static bool opens_object(part p)
{
    static const char *const members[] = {"\"name\"", "\"tool_name\"", "\"function\""};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const char *found = memmem(p.text, p.n, members[i], strlen(members[i]));
        if (found != NULL && memchr(p.text, '{', (size_t)(found - p.text)) != NULL)
            return true;
    }
    return false;
}

static const char *find(const char *from, const char *what)
{
    return from == NULL ? NULL : strstr(from, what);
}

/* Where a call's id begins, if one stands between `from` and its name; else the name. */
static const char *before_id(const char *from, const char *name, mf_reply_row *row,
                             mf_reply_derived *d)
{
    const part before = between(from, name);
    const char *id = memmem(before.text, before.n, MF_PROBE_ID, strlen(MF_PROBE_ID));
    if (id == NULL || opens_object(before))
        return name;
    const char *end = id + strlen(MF_PROBE_ID) + 1; /* with its number */
    if (row->id_close == NULL)
        row->id_close = keep(d, between(end, name));
    return id;
}

static bool derive_json(const mf_reply_sample *sample, mf_reply_derived *d, mf_reply_row *row)
{
    places p = {.name = strstr(sample->answer, MF_PROBE_NAME)};
    p.arguments = find(p.name, MF_PROBE_ARGUMENTS);
    if (p.arguments == NULL)
        return false;
    const char *name = p.name;
    p.name = before_id(sample->answer, name, row, d);
    p.arguments_end = p.arguments + strlen(MF_PROBE_ARGUMENTS);
    if (sample->n_calls > 1) {
        p.other = find(p.arguments_end, MF_PROBE_OTHER);
        const char *empty = find(p.other, "{}");
        if (empty == NULL)
            return false;
        p.other_end = empty + 2;
        p.other = before_id(p.arguments_end, p.other, row, d);
    }
    p.end = end_of(sample, p.other == NULL ? p.arguments_end : p.other_end);
    const frame f = frame_of(&p, sample->answer);
    row->reader = opens_object(between(sample->answer, name)) ? MF_READ_OBJECT : MF_READ_NAMED;
    row->name_close = keep(d, between(name + strlen(MF_PROBE_NAME), p.arguments));
    take_frame(&f, d, row);
    return row->name_close != NULL && f.call_open.n != 0;
}

/* -------------------------------------------------------------------------------------- tags -- */

static bool derive_tags(const mf_reply_sample *sample, mf_reply_derived *d, mf_reply_row *row)
{
    places p = {.name = strstr(sample->answer, MF_PROBE_NAME)};
    const char *name_end = p.name == NULL ? NULL : p.name + strlen(MF_PROBE_NAME);
    const char *key = find(name_end, MF_PROBE_KEY), *text = find(key, MF_PROBE_TEXT);
    const char *other_key = find(text, MF_PROBE_OTHER_KEY);
    const char *number =
        other_key == NULL ? NULL : find(other_key + strlen(MF_PROBE_OTHER_KEY), MF_PROBE_NUMBER);
    p.other = find(number, MF_PROBE_OTHER);
    if (p.other == NULL || sample->n_calls < 2)
        return false;
    const part before_key = between(name_end, key);
    const part after_text = between(text + strlen(MF_PROBE_TEXT), other_key);
    const part close_string = between(key + strlen(MF_PROBE_KEY), text);
    const part close = between(other_key + strlen(MF_PROBE_OTHER_KEY), number);
    const size_t n_open = whole_end(before_key, common_end(before_key, after_text));
    const part value_close = {after_text.text, after_text.n - n_open};
    const part name_close = {before_key.text, before_key.n - n_open};
    p.arguments_end = number + 1;
    if (common_start(between(p.arguments_end, p.other), value_close) != value_close.n)
        return false;
    p.arguments_end += value_close.n;
    p.other_end = p.other + strlen(MF_PROBE_OTHER);
    if (common_start(between(p.other_end, p.other_end + strlen(p.other_end)), name_close) ==
        name_close.n)
        p.other_end += name_close.n;
    p.end = end_of(sample, p.other_end);
    const frame f = frame_of(&p, sample->answer);
    row->reader = MF_READ_TAGGED;
    row->key_open = keep(d, (part){key - n_open, n_open});
    row->name_close = keep(d, name_close);
    row->value_close = keep(d, value_close);
    row->key_close = keep(d, close);
    if (close.n != close_string.n || memcmp(close.text, close_string.text, close.n) != 0)
        row->key_close_string = keep(d, close_string);
    take_frame(&f, d, row);
    return n_open != 0 && close.n != 0 && value_close.n != 0 && f.call_open.n != 0;
}

bool mf_reply_derive(const mf_reply_sample *sample, mf_reply_derived *texts, mf_reply_row *out)
{
    mf_reply_row row = {.name = "derived", .has_one_call = sample->n_calls == 1};
    texts->n_bytes = 0;
    if (!derive_json(sample, texts, &row)) {
        row = (mf_reply_row){.name = "derived"};
        texts->n_bytes = 0;
        if (!derive_tags(sample, texts, &row))
            return false;
    }
    *out = row;
    return true;
}

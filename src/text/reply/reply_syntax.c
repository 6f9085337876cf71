/* SPDX-License-Identifier: MIT */
/* Syntaxes out of rows: copies of the texts, what the reader looks for, and what the public form
 * says. */
#include "text/reply/reply_syntax.h"

#include "base/sized.h"
#include "text/reply/reply_scan.h"

#include <string.h>

/* The texts of a row, all of which are copied. */
#define N_TEXTS 30
static void list_texts(mf_reply_row *row, const char **out[N_TEXTS])
{
    const char **const all[N_TEXTS] = {
        &row->name,         &row->section_open,     &row->section_close,
        &row->between,      &row->call_open,        &row->number_open,
        &row->name_close,   &row->call_close,       &row->key_open,
        &row->key_close,    &row->key_close_string, &row->value_close,
        &row->id_open,      &row->id_close,         &row->name_prefix,
        &row->section_also, &row->thought_open,     &row->thought_close,
        &row->content_open, &row->content_close,    &row->section_close_also,
        &row->type_close,   &row->json_open,        &row->json_close,
        &row->quote,        &row->everybody,        &row->result_close,
        &row->dropped[0],   &row->dropped[1],       &row->dropped[2]};
    memcpy(out, all, sizeof all);
}

typedef struct text_writer {
    char *at;
} text_writer;

/* Two texts as one. */
static const char *join(text_writer *w, const char *first, const char *second)
{
    const char *const parts[] = {first, second};
    char *start = w->at;
    for (size_t i = 0; i < 2; i++) {
        size_t n = parts[i] == NULL ? 0 : strlen(parts[i]);
        if (n != 0)
            memcpy(w->at, parts[i], n);
        w->at += n;
    }
    *w->at++ = '\0';
    return start;
}

/* A text without blanks at its ends, and without a bracket behind; NULL: nothing is left. */
static const char *mark_of(text_writer *w, const char *text, bool is_json)
{
    if (text == NULL)
        return NULL;
    while (mf_reply_is_blank(*text))
        text++;
    size_t n = strlen(text);
    while (n > 0 && (mf_reply_is_blank(text[n - 1]) || (is_json && text[n - 1] == '[')))
        n--;
    while (is_json && n > 0 && (*text == ']' || mf_reply_is_blank(*text))) {
        text++;
        n--;
    }
    if (n == 0)
        return NULL;
    char *start = w->at;
    memcpy(start, text, n);
    start[n] = '\0';
    w->at += n + 1;
    return start;
}

/* Two texts with a name between them. */
static const char *any_between(text_writer *w, const char *first, const char *second)
{
    return join(w, join(w, first, MF_REPLY_ANY), second);
}

static void make_marks(mf_reply_syntax *syntax, text_writer *w)
{
    const mf_reply_row *row = &syntax->row;
    const bool is_json = row->reader == MF_READ_OBJECT || row->reader == MF_READ_PYTHON ||
                         row->reader == MF_READ_HARMONY;
    syntax->section_mark = mark_of(w, row->section_open, is_json);
    syntax->section_also = mark_of(w, row->section_also, is_json);
    syntax->section_end = mark_of(w, row->section_close, is_json);
    syntax->section_end_also = mark_of(w, row->section_close_also, is_json);
    if (!is_json) {
        const char *close = row->call_close;
        syntax->call_mark = mark_of(w, row->call_open, false);
        while (close != NULL && (*close == '`' || mf_reply_is_blank(*close)))
            close++; /* a fence that models leave out; drops has it */
        syntax->call_end = mark_of(w, close, false);
        syntax->name_end = mark_of(w, row->name_close, false);
        if (row->number_open != NULL && row->name_prefix == NULL) /* it is no part of a name */
            syntax->name_end = any_between(w, row->number_open, row->name_close);
        syntax->key_mark = mark_of(w, row->key_open, false);
        syntax->key_end = mark_of(w, row->key_close, false);
        if (row->type_close != NULL)
            syntax->key_end = any_between(w, row->key_close, row->type_close);
        syntax->key_end_string = mark_of(w, row->key_close_string, false);
        syntax->value_end = mark_of(w, row->value_close, false);
        if (row->has_cdata)
            syntax->cdata_end = join(w, "]]>", row->value_close);
        syntax->has_lines = row->value_close != NULL && row->value_close[0] == '\n';
    }
    if (syntax->section_mark == NULL && syntax->call_mark != NULL) {
        syntax->section_mark = syntax->call_mark;
        syntax->is_call_section = true;
    }
    syntax->drops = row->reader == MF_READ_PYTHON ? ",]" : "`,";
    syntax->content_mark = mark_of(w, row->content_open, false);
    syntax->content_end = mark_of(w, row->content_close, false);
    syntax->thought_mark = mark_of(w, row->thought_open, false);
    syntax->thought_end = mark_of(w, row->thought_close, false);
}

static const char *or_none(const char *text)
{
    return text == NULL ? "" : text;
}

static mf_reply_arguments arguments_of(const mf_reply_row *row)
{
    switch (row->reader) {
    case MF_READ_TAGGED:
        return row->has_elements ? MF_REPLY_ARGUMENTS_ELEMENTS : MF_REPLY_ARGUMENTS_TAGGED;
    case MF_READ_BARE:
        return MF_REPLY_ARGUMENTS_BARE;
    case MF_READ_PYTHON:
        return MF_REPLY_ARGUMENTS_PYTHON;
    default:
        return MF_REPLY_ARGUMENTS_JSON;
    }
}

static void make_form(mf_reply_syntax *syntax, text_writer *w)
{
    const mf_reply_row *row = &syntax->row;
    const bool is_per_call = row->is_per_call;
    mf_reply_form *f = &syntax->form;
    f->name = row->name;
    f->arguments = arguments_of(row);
    f->allows_several = !row->has_one_call;
    f->calls_open = is_per_call ? "" : or_none(row->section_open);
    f->calls_close = is_per_call ? "" : or_none(row->section_close);
    f->between_calls = or_none(row->between);
    const char *open = join(w, is_per_call ? row->section_open : NULL, row->call_open);
    f->name_open = open;
    if (row->id_close != NULL) /* any id will do */
        f->name_open = join(w, join(w, open, "0"), row->id_close);
    /* where the prefix is no part of call_open, it stands before the name all the same */
    if (row->name_prefix != NULL && row->reader == MF_READ_NAMED)
        f->name_open = join(w, open, row->name_prefix);
    f->name_close = or_none(row->name_close);
    if (row->everybody != NULL) { /* what begins a name begins the answer, too */
        f->name_open = "";
        f->between_calls = or_none(row->call_open);
    }
    f->call_close = join(w, row->call_close, is_per_call ? row->section_close : NULL);
    f->number_open = row->number_open;
    f->key_open = or_none(row->key_open);
    f->key_close = or_none(row->key_close);
    f->key_close_string = row->key_close_string;
    f->type_close = row->type_close;
    f->quote = or_none(row->quote);
    f->value_close = row->has_elements ? "" : or_none(row->value_close);
    f->content_open = or_none(row->content_open);
    f->content_close = or_none(row->content_close);
    f->thought_open = row->thought_open;
    f->thought_close = row->thought_close;
    while (f->n_stops < sizeof row->stops / sizeof *row->stops && row->stops[f->n_stops] != NULL) {
        syntax->stop_list[f->n_stops] = row->stops[f->n_stops];
        f->n_stops++;
    }
    f->stops = syntax->stop_list;
}

mf_status mf_reply_syntax_make(const mf_allocator *a, const mf_reply_row *row,
                               mf_reply_syntax **out, mf_error *error)
{
    const char **texts[N_TEXTS];
    mf_reply_syntax *syntax = mf_alloc_zeroed(a, sizeof *syntax);
    if (syntax == NULL)
        return mf_fail_memory(error, sizeof *syntax, "the syntax of replies");
    syntax->allocator = *a;
    syntax->row = *row;
    list_texts(&syntax->row, texts);
    for (size_t i = 0; i < N_TEXTS; i++)
        syntax->n_text_bytes += 8 * (4 + strlen(or_none(*texts[i])) + 1);
    syntax->texts = mf_alloc_zeroed(a, syntax->n_text_bytes);
    if (syntax->texts == NULL) {
        mf_status status = mf_fail_memory(error, syntax->n_text_bytes, "the syntax of replies");
        mf_reply_syntax_free(&syntax);
        return status;
    }
    text_writer w = {syntax->texts};
    for (size_t i = 0; i < N_TEXTS; i++)
        if (*texts[i] != NULL)
            *texts[i] = join(&w, *texts[i], NULL);
    make_marks(syntax, &w);
    make_form(syntax, &w);
    *out = syntax;
    return MF_OK;
}

void mf_reply_syntax_free(mf_reply_syntax **syntax)
{
    if (syntax == NULL || *syntax == NULL)
        return;
    const mf_allocator a = (*syntax)->allocator;
    mf_free(&a, (*syntax)->texts, (*syntax)->n_text_bytes);
    mf_free(&a, (*syntax)->opening, (*syntax)->n_opening);
    mf_free(&a, *syntax, sizeof **syntax);
    *syntax = NULL;
}

void mf_reply_form_sized(const mf_reply_syntax *syntax, mf_reply_form *form, size_t struct_bytes)
{
    mf_sized_put(form, struct_bytes, &syntax->form, sizeof syntax->form);
}

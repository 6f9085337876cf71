/* SPDX-License-Identifier: MIT */
/* Tool calls in the syntax of the model: literal texts around values of schemas. */
#include "grammar/calls.h"

#include "base/sized.h"

#include <stdio.h>

#define MAX_TOOLS 1024

typedef struct source {
    const mf_grammar_calls *calls;
    const mf_reply_form *form;
    size_t n_opening; /* bytes of the calls' beginning that stand there already */
} source;

void mf_grammar_calls_init(mf_grammar_calls *calls, size_t struct_bytes)
{
    const mf_grammar_calls defaults = {.has_several = 1};
    mf_sized_init(calls, struct_bytes, &defaults, sizeof defaults);
}

mf_expr mf_expr_marked(mf_rules *r, const mf_vocabulary *v, const char *text, size_t n_bytes)
{
    mf_expr all = MF_EXPR_EMPTY;
    size_t begin = 0;
    if (n_bytes == 0)
        return all;
    for (size_t at = 0; v != NULL && at < n_bytes;) {
        size_t n_token;
        const uint32_t token = mf_vocabulary_added(v, text + at, n_bytes - at, &n_token);
        if (token == MF_NO_TOKEN) {
            at++;
            continue;
        }
        all = mf_expr_seq(r, all, mf_expr_bytes(r, text + begin, at - begin));
        all = mf_expr_seq(r, all, mf_expr_token(r, token));
        begin = at += n_token;
    }
    return mf_expr_seq(r, all, mf_expr_bytes(r, text + begin, n_bytes - begin));
}

static mf_expr marked(mf_rules *r, const mf_vocabulary *v, const char *text)
{
    return text == NULL ? MF_EXPR_EMPTY : mf_expr_marked(r, v, text, strlen(text));
}

/* A number of a call. */
static mf_expr number(mf_rules *r)
{
    mf_char_range first = {'1', '9'}, any = {'0', '9'};
    mf_expr more = mf_expr_repeat(r, mf_expr_chars(r, &any, 1), 0, 3);
    return mf_expr_alt(r, mf_expr_text(r, "0"), mf_expr_seq(r, mf_expr_chars(r, &first, 1), more));
}

/* By the syntax; a tool without a schema takes any. */
static mf_expr read_arguments(mf_rules *r, const mf_vocabulary *v, const source *s,
                              const mf_grammar_tool *tool, const char *what)
{
    if (s->form->arguments == MF_REPLY_ARGUMENTS_TAGGED)
        return mf_schema_read_tagged(r, v, s->form, tool, what);
    if (s->form->arguments != MF_REPLY_ARGUMENTS_JSON)
        return mf_schema_read_values(r, v, s->form, tool, what);
    return tool->parameters == NULL
               ? mf_json_any_object(r)
               : mf_schema_read(r, tool->parameters, tool->n_bytes, what, true);
}

/* For all tools of a call together: four times what a grammar may have, so that what fits into one
 * is always tried. */
#define MAX_TRIED ((size_t)4 * MF_MAX_EXPRS)

/* Room for a trial of so many expressions; 0: none. */
static size_t left_to_try(const mf_rules *r)
{
    const size_t left = r->n_tried < MAX_TRIED ? MAX_TRIED - r->n_tried : 0;
    return left < MF_MAX_EXPRS ? left : MF_MAX_EXPRS;
}

/* The arguments of a tool whose schema is not strict and not supported: tried apart, since a
 * failure stays. What comparing and patterns take counts, unless it is read once more; its size
 * does, and where all of that is spent none is supported. */
static bool is_supported(mf_rules *r, const mf_vocabulary *v, const source *s,
                         const mf_grammar_tool *tool)
{
    mf_rules tried;
    mf_program program = {0};
    bool is_good = mf_rules_init(&tried, &r->allocator, NULL) == MF_OK;
    if (is_good) {
        tried.n_compared = r->n_compared;
        tried.n_steps = r->n_steps;
        tried.max_nodes = left_to_try(r);
        tried.root = mf_rules_add(&tried, NULL, 0);
        mf_rules_define(&tried, tried.root, read_arguments(&tried, v, s, tool, tool->name));
        is_good = mf_program_make(&tried, &program, NULL) == MF_OK;
    }
    r->n_tried += tried.n_nodes + program.n_states;
    if (is_good) {
        mf_program_free(&program);
    } else {
        r->n_compared = tried.n_compared;
        r->n_steps = tried.n_steps;
    }
    mf_rules_free(&tried);
    return is_good;
}

static mf_expr arguments(mf_rules *r, const mf_vocabulary *v, const source *s,
                         const mf_grammar_tool *tool)
{
    mf_grammar_tool any = *tool;
    char what[128];
    if (!tool->is_strict && tool->parameters != NULL && !is_supported(r, v, s, tool))
        any.parameters = NULL;
    snprintf(what, sizeof what, "tool %.100s", tool->name);
    return read_arguments(r, v, s, &any, what);
}

/* A call behind what opens it: names share what they begin with in the automaton's own way. */
static mf_expr named_call(mf_rules *r, const mf_vocabulary *v, const source *s)
{
    const mf_reply_form *f = s->form;
    mf_expr all = MF_EXPR_NOTHING;
    for (size_t i = 0; i < s->calls->n_tools && r->status == MF_OK; i++) {
        const mf_grammar_tool *tool = &s->calls->tools[i];
        if (tool->name == NULL || *tool->name == '\0' || tool->n_bytes > MF_MAX_SCHEMA_BYTES) {
            mf_rules_fail(r, MF_ERR_ARGUMENT, "tool %zu has no name, or a schema of %zu bytes", i,
                          tool->n_bytes);
            return all;
        }
        mf_expr one = mf_expr_text(r, tool->name);
        if (f->number_open != NULL)
            one = mf_expr_seq(r, one, mf_expr_seq(r, marked(r, v, f->number_open), number(r)));
        one = mf_expr_seq(r, one, marked(r, v, f->name_close));
        one = mf_expr_seq(r, one, arguments(r, v, s, tool));
        all = mf_expr_alt(r, all, mf_expr_seq(r, one, marked(r, v, f->call_close)));
    }
    const uint32_t rule = mf_rules_add(r, NULL, 0); /* it stands in two places */
    mf_rules_define(r, rule, all);
    return mf_expr_rule(r, rule);
}

static void read_calls(mf_rules *r, const mf_vocabulary *v, const void *user)
{
    const source *s = user;
    const mf_reply_form *f = s->form;
    const mf_expr call = named_call(r, v, s);
    const size_t n_calls_open = strlen(f->calls_open);
    const size_t n_first = s->n_opening < n_calls_open ? s->n_opening : n_calls_open;
    mf_expr all = marked(r, v, f->calls_open + n_first);
    all = mf_expr_seq(r, all, marked(r, v, f->name_open + (s->n_opening - n_first)));
    all = mf_expr_seq(r, all, call);
    if (s->calls->has_several && f->allows_several) {
        mf_expr next = mf_expr_seq(r, marked(r, v, f->between_calls), marked(r, v, f->name_open));
        all = mf_expr_seq(r, all, mf_expr_repeat(r, mf_expr_seq(r, next, call), 0, MF_NO_LIMIT));
    }
    r->root = mf_rules_add(r, "root", 4);
    mf_rules_define(r, r->root, mf_expr_seq(r, all, marked(r, v, f->calls_close)));
}

/* The text that says that calls begin: a token, else up to the first bracket that closes, else all
 * of it; without blanks before it. */
static mf_status find_opening(const mf_vocabulary *v, const mf_reply_form *f,
                              mf_grammar_calls *calls, size_t *n_opening, mf_error *error)
{
    const char *text = *f->calls_open != '\0' ? f->calls_open : f->name_open;
    const size_t n_blank = strspn(text, " \n");
    size_t n_token = 0, n = strcspn(text + n_blank, ">]");
    text += n_blank;
    n += text[n] != '\0';
    if (mf_vocabulary_added(v, text, strlen(text), &n_token) != MF_NO_TOKEN)
        n = n_token;
    if (n < 2 || n >= sizeof calls->opening) /* a bracket alone begins anything */
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "the model's syntax has nothing that calls begin with");
    memcpy(calls->opening, text, n);
    calls->opening[n] = '\0';
    *n_opening = n_blank + n;
    return MF_OK;
}

/* The caller's struct with all fields that this library knows. Its result is in it: that has a
 * place in every version. */
static mf_status take_calls(mf_grammar_calls *known, const mf_grammar_calls *given, mf_error *error)
{
    const size_t n_least = offsetof(mf_grammar_calls, opening) + sizeof given->opening;
    mf_grammar_calls_default(known);
    MF_TRY(mf_sized_get(known, sizeof *known, given, "mf_grammar_calls", error));
    if (given->struct_bytes < n_least)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "mf_grammar_calls.struct_bytes is %zu, expected %zu or more",
                       given->struct_bytes, n_least);
    if (known->syntax == NULL || known->tools == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_grammar_compile_calls: a NULL argument");
    if (known->n_tools == 0 || known->n_tools > MAX_TOOLS)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_grammar_compile_calls: %zu tools, 1 to %d",
                       known->n_tools, MAX_TOOLS);
    known->opening[0] = '\0';
    return MF_OK;
}

mf_status mf_grammar_compile_calls(mf_vocabulary *vocabulary, mf_grammar_calls *calls,
                                   mf_grammar **out, mf_error *error)
{
    if (vocabulary == NULL || calls == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_grammar_compile_calls: a NULL argument");
    mf_grammar_calls known;
    mf_reply_form form;
    MF_TRY(take_calls(&known, calls, error));
    mf_reply_form_of(known.syntax, &form);
    source s = {.calls = &known, .form = &form};
    if (known.is_opened)
        MF_TRY(find_opening(vocabulary, &form, &known, &s.n_opening, error));
    MF_TRY(mf_grammar_make(vocabulary, read_calls, &s, known.max_mask_bytes, out, error));
    memcpy(calls->opening, known.opening, sizeof calls->opening);
    return MF_OK;
}

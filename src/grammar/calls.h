/* SPDX-License-Identifier: MIT */
/* Arguments of calls in the syntaxes of models, by the schemas of tools. */
#ifndef MF_GRAMMAR_CALLS_H
#define MF_GRAMMAR_CALLS_H

#include "grammar/grammar.h"
#include "grammar/schema.h"

/* Between tags: strings as they are, up to what closes them, all else as JSON. `what` begins the
 * messages, as below. */
mf_expr mf_schema_read_tagged(mf_rules *r, const mf_vocabulary *v, const mf_reply_form *form,
                              const mf_grammar_tool *tool, const char *what);
/* In ways of their own, lists and objects too: bare, as elements, as Python. */
mf_expr mf_schema_read_values(mf_rules *r, const mf_vocabulary *v, const mf_reply_form *form,
                              const mf_grammar_tool *tool, const char *what);

/* Any text in which what closes it does not stand, up to a bracket that closes; blanks before it do
 * not count. MF_EXPR_NOTHING: there is nothing that closes it. */
mf_expr mf_expr_text_without(mf_rules *r, const char *close);
/* A reader of the tool's parameters, as json, which was all 0; none take none. False: nothing is
 * open, and r says why. */
bool mf_schema_open(mf_schema_reader *s, mf_rules *r, const mf_grammar_tool *tool, const char *what,
                    mf_json *json);
void mf_schema_close(mf_schema_reader *s, mf_json *json);

#endif

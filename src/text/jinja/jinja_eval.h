/* SPDX-License-Identifier: MIT */
/* Running a parsed template: names, calls, and what the files of the evaluator share. */
#ifndef MF_TEXT_JINJA_EVAL_H
#define MF_TEXT_JINJA_EVAL_H

#include "text/jinja/jinja_ast.h"
#include "text/jinja/jinja_text.h"

#define MF_J_MAX_ARGUMENTS 6

typedef struct mf_jbinding {
    const mf_jstr *name;
    mf_jval value;
} mf_jbinding;

typedef struct mf_jscope {
    struct mf_jscope *parent;
    mf_jbinding *bindings;
    size_t n_bindings, capacity;
} mf_jscope;

typedef struct mf_jmacro {
    const mf_jnode *node;
    mf_jscope *scope; /* where it was defined */
} mf_jmacro;

typedef struct mf_jloop {
    const mf_jlist *items;
    size_t index;
    unsigned depth;
    const mf_jnode *node; /* of a recursive loop */
    mf_jscope *scope;     /* around it */
    bool was_changed;
    mf_jval last_changed;
} mf_jloop;

/* What a call brings: a list, a dictionary or missing, and a call block's macro or missing. */
typedef struct mf_jarguments {
    mf_jval plain, named, caller;
} mf_jarguments;

typedef struct mf_jcall {
    mf_jval self; /* what a filter, test or method is applied to */
    mf_jval arg[MF_J_MAX_ARGUMENTS];
    const mf_jarguments *all;
    int variant;
} mf_jcall;

typedef mf_jval (*mf_jfunction)(mf_jrun *j, const mf_jcall *call);

/* A filter, test, method or function. params: names of arguments, '!' behind those that must be
 * there; "*": anything. */
typedef struct mf_jbuiltin {
    const char *name;
    const char *params;
    mf_jfunction run;
    int variant;
} mf_jbuiltin;

typedef struct mf_jbound {
    const mf_jbuiltin *what;
    mf_jval self;
} mf_jbound;

mf_jval mf_j_eval(mf_jrun *j, const mf_jnode *node);
/* Runs statements into j->out. */
void mf_j_exec(mf_jrun *j, const mf_jnode *first);
/* The same into a string. */
mf_jval mf_j_capture(mf_jrun *j, const mf_jnode *first);
void mf_j_assign(mf_jrun *j, mf_jscope *scope, const mf_jnode *target, mf_jval value);
void mf_j_bind(mf_jrun *j, mf_jscope *scope, const mf_jstr *name, mf_jval value);
mf_jscope *mf_j_scope(mf_jrun *j, mf_jscope *parent);
mf_jval mf_j_lookup(mf_jrun *j, const mf_jstr *name);

mf_jval mf_j_macro_name(const mf_jmacro *macro);
mf_jval mf_j_make_macro(mf_jrun *j, const mf_jnode *node);
mf_jval mf_j_call_macro(mf_jrun *j, const mf_jmacro *macro, const mf_jarguments *arguments);
mf_jval mf_j_call_loop(mf_jrun *j, const mf_jloop *loop, const mf_jarguments *arguments);
mf_jval mf_j_call(mf_jrun *j, mf_jval callee, const mf_jarguments *arguments);
mf_jval mf_j_call_builtin(mf_jrun *j, const mf_jbuiltin *what, mf_jval self,
                          const mf_jarguments *arguments);
mf_jval mf_j_bound(mf_jrun *j, const mf_jbuiltin *what, mf_jval self);

/* a.name, a[key], a[start:stop:step] (NONE: not given). */
mf_jval mf_j_get_field(mf_jrun *j, mf_jval whole, const mf_jstr *name);
mf_jval mf_j_get_item(mf_jrun *j, mf_jval whole, mf_jval key);
mf_jval mf_j_get_slice(mf_jrun *j, mf_jval whole, const mf_jval bounds[3]);
/* The value that "a.b.0" names, or the default where that is given (not MISSING). */
mf_jval mf_j_get_path(mf_jrun *j, mf_jval whole, mf_jval path, mf_jval otherwise);
mf_jval mf_j_loop_field(mf_jrun *j, mf_jloop *loop, const mf_jstr *name);

mf_jval mf_j_binary(mf_jrun *j, int op, mf_jval a, mf_jval b);
mf_jval mf_j_unary(mf_jrun *j, int op, mf_jval a);
mf_jval mf_j_concat(mf_jrun *j, const mf_jstr *a, const mf_jstr *b);
/* Python's "format % values", and format.format(...). */
mf_jval mf_j_percent(mf_jrun *j, const mf_jstr *format, mf_jval values);
mf_jval mf_j_braces(mf_jrun *j, const mf_jstr *format, const mf_jarguments *arguments);

/* By name; NULL: there is none. */
const mf_jbuiltin *mf_j_find_builtin(const mf_jbuiltin *table, const mf_jstr *name);
const mf_jbuiltin *mf_j_find_filter(const mf_jstr *name);
const mf_jbuiltin *mf_j_find_test(const mf_jstr *name);
const mf_jbuiltin *mf_j_find_method(mf_jval whole, const mf_jstr *name);
extern const mf_jbuiltin mf_j_text_filters[], mf_j_list_filters[], mf_j_number_filters[],
    mf_j_pick_filters[], mf_j_globals[], mf_j_string_methods[], mf_j_split_methods[];
/* Fails: there is no such filter, or test. */
mf_jval mf_j_fail_name(mf_jrun *j, const char *kind, const mf_jstr *name);
mf_jval mf_j_apply_filter(mf_jrun *j, const mf_jstr *name, mf_jval value,
                          const mf_jarguments *arguments);
bool mf_j_apply_test(mf_jrun *j, const mf_jstr *name, mf_jval value,
                     const mf_jarguments *arguments);

/* The arguments without the first n. */
mf_jarguments mf_j_rest(mf_jrun *j, const mf_jarguments *arguments, size_t n);

/* Arguments as what they should be; false fails the run (what: for its message). */
bool mf_j_want_int(mf_jrun *j, mf_jval value, const char *what, int64_t *out);
const mf_jstr *mf_j_want_string(mf_jrun *j, mf_jval value, const char *what);
static inline bool mf_j_given(mf_jval value)
{
    return value.kind != MF_J_MISSING && value.kind != MF_J_NONE;
}
/* The truth of an argument that may be missing. */
static inline bool mf_j_flag(mf_jval value)
{
    return mf_j_truth(value);
}

#endif

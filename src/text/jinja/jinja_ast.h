/* SPDX-License-Identifier: MIT */
/* A parsed template: one kind of node, whose parts are as its kind says. Read-only once parsed. */
#ifndef MF_TEXT_JINJA_AST_H
#define MF_TEXT_JINJA_AST_H

#include "text/jinja/jinja_value.h"

typedef enum mf_jnode_kind {
    /* expressions */
    MF_JN_CONST,           /* value */
    MF_JN_NAME,            /* name */
    MF_JN_NAMESPACE_FIELD, /* as a target: name, second */
    MF_JN_TUPLE,           /* list */
    MF_JN_LIST,            /* list */
    MF_JN_DICT,            /* list: keys and values in turn */
    MF_JN_FIELD,           /* a.name */
    MF_JN_ITEM,            /* a[b] */
    MF_JN_SLICE,           /* as b of an item: a:b:c, any NULL */
    MF_JN_CALL,            /* a(list of arguments) */
    MF_JN_ARGUMENT,        /* op 0: a; '=': name=a; '*': *a; MF_JOP('*', '*'): **a */
    MF_JN_FILTER,          /* a|name(list); a NULL: the text of a filter block */
    MF_JN_TEST,            /* a is name(list) */
    MF_JN_CHOICE,          /* b if a else c (or NULL) */
    MF_JN_AND,             /* a, b; is_set: what stands first is a constant */
    MF_JN_OR,              /* the same */
    MF_JN_NOT,             /* a; is_set: of a constant */
    MF_JN_UNARY,           /* op, a */
    MF_JN_BINARY,          /* op, a, b */
    MF_JN_COMPARE,         /* a, list of operands */
    MF_JN_OPERAND,         /* op ('i': in, 'n': not in), a */
    MF_JN_CONCAT,          /* list */
    /* statements */
    MF_JN_TEXT,   /* value */
    MF_JN_OUTPUT, /* a */
    MF_JN_FOR, /* a: target, b: iterable, c: condition; list: body, otherwise; is_set: recursive */
    MF_JN_IF,  /* a: test; list: body; otherwise; b: the next elif */
    MF_JN_SET, /* a: target, b: value */
    MF_JN_SET_BLOCK,    /* a: target, b: filters or NULL; list: body */
    MF_JN_WITH,         /* otherwise: the SETs; list: body */
    MF_JN_MACRO,        /* name; otherwise: parameters; list: body; op: MF_JM_... */
    MF_JN_PARAMETER,    /* name; a: default or NULL */
    MF_JN_CALL_BLOCK,   /* a: call, b: the macro that is its caller */
    MF_JN_FILTER_BLOCK, /* a: filters; list: body */
    MF_JN_SCOPE,        /* list: body; is_set: with variables of its own */
    MF_JN_BREAK,
    MF_JN_CONTINUE
} mf_jnode_kind;

/* What a macro's body names. */
enum { MF_JM_VARARGS = 1, MF_JM_KWARGS = 2, MF_JM_CALLER = 4 };

typedef struct mf_jnode {
    uint8_t kind;
    bool is_set;
    int op;
    unsigned line;
    const mf_jstr *name, *second;
    mf_jval value;
    struct mf_jnode *a, *b, *c;
    struct mf_jnode *list, *otherwise; /* first of several */
    struct mf_jnode *next;
} mf_jnode;

/* Parses tokens into the statements of a template; NULL where it is empty or failed (mf_j_ok). */
mf_jnode *mf_j_parse(mf_jrun *j, const char *text, size_t n_bytes);
/* Fails where they name a filter or a test that Jinja refuses before it renders. */
void mf_j_check_names(mf_jrun *j, const mf_jnode *first);

#endif

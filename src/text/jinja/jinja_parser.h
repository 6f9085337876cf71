/* SPDX-License-Identifier: MIT */
/* What the two halves of the parser share. */
#ifndef MF_TEXT_JINJA_PARSER_H
#define MF_TEXT_JINJA_PARSER_H

#include "text/jinja/jinja_ast.h"
#include "text/jinja/jinja_lexer.h"

typedef struct mf_jparser {
    mf_jrun *j;
    const mf_jtoken *at;
    int macro_names;  /* MF_JM_... seen in the present macro */
    unsigned n_loops; /* around the present statement, within its macro */
    mf_jnode dropped; /* what is written to after a failure */
} mf_jparser;

/* A list of nodes being made. */
typedef struct mf_jnodes {
    mf_jnode *first, **last;
} mf_jnodes;

void mf_j_add_node(mf_jnodes *nodes, mf_jnode *node);
/* Never NULL: after a failure a node that nobody will see. */
mf_jnode *mf_j_node(mf_jparser *p, mf_jnode_kind kind);
/* Fails with what was expected. */
void mf_j_expected(mf_jparser *p, const char *what);
/* False after a failure, so that loops end. */
bool mf_j_is_name(const mf_jparser *p, const char *name);
bool mf_j_is_op(const mf_jparser *p, int op);
bool mf_j_skip_name(mf_jparser *p, const char *name);
bool mf_j_skip_op(mf_jparser *p, int op);
void mf_j_want_op(mf_jparser *p, int op);
/* Takes a name; never NULL. */
const mf_jstr *mf_j_want_name(mf_jparser *p);
void mf_j_next(mf_jparser *p);

mf_jnode *mf_j_parse_expression(mf_jparser *p);
/* One expression, or a tuple without parentheses. end: a word that ends it, or NULL. Without
 * choices ("x if y") where has_choice is false. */
mf_jnode *mf_j_parse_tuple(mf_jparser *p, bool has_choice, const char *end);
mf_jnode *mf_j_parse_target(mf_jparser *p, const char *end, bool has_fields);
/* The filters of a filter block, from the first one's name on (start) or from '|' on. */
mf_jnode *mf_j_parse_filters(mf_jparser *p, mf_jnode *input, bool start);

#endif

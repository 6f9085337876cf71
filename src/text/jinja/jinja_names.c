/* SPDX-License-Identifier: MIT */
/*
 * Filters and tests that Jinja does not know, which it refuses before it renders anything: but not
 * within an if, or a choice ("x if y else z"), up to the next block that has variables of its own.
 * There they are an error where they are reached (_filter_test_common in its compiler.py), so that
 * templates may ask first whether there is one; and so they are behind a constant and "and" or
 * "or", as it drops what that makes superfluous. What Jinja knows and this renderer does not is an
 * error where it is reached, too.
 */
#include "text/jinja/jinja_eval.h"
#include "text/jinja/jinja_parser.h"

static bool is_among(const mf_jstr *name, const char *const *names)
{
    for (; *names != NULL; names++)
        if (name->n_bytes == strlen(*names) && memcmp(name->text, *names, name->n_bytes) == 0)
            return true;
    return false;
}

static void check_name(mf_jrun *j, const mf_jnode *node)
{
    static const char *const others[] = {"filesizeformat", "pprint",   "random",  "striptags",
                                         "urlize",         "wordwrap", "xmlattr", NULL};
    const bool is_filter = node->kind == MF_JN_FILTER;
    if (is_filter ? mf_j_find_filter(node->name) != NULL || is_among(node->name, others)
                  : mf_j_find_test(node->name) != NULL)
        return;
    j->line = node->line;
    mf_j_fail_name(j, is_filter ? "filter" : "test", node->name);
}

static void check(mf_jrun *j, const mf_jnode *node, bool is_soft);

static void check_list(mf_jrun *j, const mf_jnode *first, bool is_soft)
{
    for (; first != NULL && mf_j_ok(j); first = first->next)
        check(j, first, is_soft);
}

/* Whether what a node holds in its list and in `otherwise` is a block with variables of its own. */
static bool has_own_block(const mf_jnode *node)
{
    switch (node->kind) {
    case MF_JN_FOR:
    case MF_JN_SET_BLOCK:
    case MF_JN_WITH:
    case MF_JN_MACRO:
    case MF_JN_FILTER_BLOCK:
        return true;
    case MF_JN_SCOPE:
        return node->is_set;
    default:
        return false;
    }
}

/* The parts of a node, but for the one that a long chain goes on by, which is returned. */
static const mf_jnode *check_parts(mf_jrun *j, const mf_jnode *node, bool is_soft)
{
    const bool in_block = is_soft && !has_own_block(node);
    const bool goes_by_b = node->kind == MF_JN_IF || node->kind == MF_JN_CHOICE;
    const bool is_joined = node->kind == MF_JN_AND || node->kind == MF_JN_OR;
    const mf_jnode *const other = goes_by_b ? node->a : node->b;
    check_list(j, node->list, in_block);
    /* the values of a with are computed outside of it */
    check_list(j, node->otherwise, node->kind == MF_JN_WITH ? is_soft : in_block);
    if (other != NULL)
        check(j, other,
              node->kind == MF_JN_SET_BLOCK ? in_block : is_soft || (is_joined && node->is_set));
    if (node->c != NULL)
        check(j, node->c, in_block);
    return goes_by_b ? node->b : node->a;
}

static void check(mf_jrun *j, const mf_jnode *node, bool is_soft)
{
    if (!mf_j_enter(j))
        return;
    while (node != NULL && mf_j_ok(j)) {
        if (!is_soft && (node->kind == MF_JN_FILTER || node->kind == MF_JN_TEST))
            check_name(j, node);
        is_soft = is_soft || node->kind == MF_JN_IF || node->kind == MF_JN_CHOICE;
        const bool is_block = node->kind == MF_JN_FILTER_BLOCK;
        node = check_parts(j, node, is_soft);
        is_soft = is_soft && !is_block;
    }
    mf_j_leave(j);
}

void mf_j_check_names(mf_jrun *j, const mf_jnode *first)
{
    check_list(j, first, false);
}

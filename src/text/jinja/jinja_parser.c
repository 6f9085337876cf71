/* SPDX-License-Identifier: MIT */
/* Statements. Templates that would read other templates are refused: there are none. */
#include "text/jinja/jinja_parser.h"

/* The statements up to one of the words (NULL-terminated); the word's tag is left to the caller. */
static mf_jnode *parse_body(mf_jparser *p, const char *const *ends);

static void want_block_end(mf_jparser *p)
{
    if (p->at->kind == MF_JT_BLOCK_END)
        mf_j_next(p);
    else
        mf_j_expected(p, "the end of the tag");
}

static mf_jnode *parse_body_to(mf_jparser *p, const char *end)
{
    const char *const ends[] = {end, NULL};
    want_block_end(p);
    mf_jnode *body = parse_body(p, ends);
    mf_j_next(p);
    want_block_end(p);
    return body;
}

static mf_jnode *parse_for(mf_jparser *p)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    mf_jnode *node = mf_j_node(p, MF_JN_FOR);
    node->a = mf_j_parse_target(p, "in", false);
    if (!mf_j_skip_name(p, "in"))
        mf_j_expected(p, "'in'");
    node->b = mf_j_parse_tuple(p, false, "recursive");
    if (mf_j_skip_name(p, "if"))
        node->c = mf_j_parse_expression(p);
    node->is_set = mf_j_skip_name(p, "recursive");
    want_block_end(p);
    p->n_loops++;
    node->list = parse_body(p, ends);
    p->n_loops--;
    if (mf_j_skip_name(p, "else")) {
        node->otherwise = parse_body_to(p, "endfor");
        return node;
    }
    mf_j_next(p);
    want_block_end(p);
    return node;
}

static mf_jnode *parse_if(mf_jparser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    mf_jnode *first = NULL, **link = &first, *node;
    do {
        node = mf_j_node(p, MF_JN_IF);
        *link = node;
        link = &node->b;
        node->a = mf_j_parse_tuple(p, false, NULL);
        want_block_end(p);
        node->list = parse_body(p, ends);
    } while (mf_j_skip_name(p, "elif"));
    if (mf_j_skip_name(p, "else")) {
        node->otherwise = parse_body_to(p, "endif");
        return first;
    }
    mf_j_next(p);
    want_block_end(p);
    return first;
}

static mf_jnode *parse_set(mf_jparser *p)
{
    mf_jnode *node = mf_j_node(p, MF_JN_SET);
    node->a = mf_j_parse_target(p, NULL, true);
    if (mf_j_skip_op(p, '=')) {
        node->b = mf_j_parse_tuple(p, true, NULL);
        want_block_end(p);
        return node;
    }
    node->kind = MF_JN_SET_BLOCK;
    if (mf_j_is_op(p, '|'))
        node->b = mf_j_parse_filters(p, NULL, false);
    node->list = parse_body_to(p, "endset");
    return node;
}

static mf_jnode *parse_with(mf_jparser *p)
{
    mf_jnode *node = mf_j_node(p, MF_JN_WITH);
    mf_jnodes sets = {0};
    while (mf_j_ok(p->j) && p->at->kind != MF_JT_BLOCK_END) {
        if (sets.first != NULL)
            mf_j_want_op(p, ',');
        mf_jnode *set = mf_j_node(p, MF_JN_SET);
        set->a = mf_j_parse_target(p, NULL, false);
        mf_j_want_op(p, '=');
        set->b = mf_j_parse_expression(p);
        mf_j_add_node(&sets, set);
    }
    node->otherwise = sets.first;
    node->list = parse_body_to(p, "endwith");
    return node;
}

static mf_jnode *parse_parameters(mf_jparser *p)
{
    mf_jnodes parameters = {0};
    bool has_defaults = false;
    mf_j_want_op(p, '(');
    while (mf_j_ok(p->j) && !mf_j_is_op(p, ')')) {
        if (parameters.first != NULL)
            mf_j_want_op(p, ',');
        mf_jnode *node = mf_j_node(p, MF_JN_PARAMETER);
        node->name = mf_j_want_name(p);
        if (mf_j_skip_op(p, '=')) {
            node->a = mf_j_parse_expression(p);
            has_defaults = true;
        } else if (has_defaults) {
            mf_j_expected(p, "a default, as the parameter before has one,");
        }
        mf_j_add_node(&parameters, node);
    }
    mf_j_want_op(p, ')');
    return parameters.first;
}

/* A macro's body: what it names, and its loops, are its own. */
static void parse_macro_body(mf_jparser *p, mf_jnode *macro, const char *end)
{
    unsigned n_loops = p->n_loops;
    p->n_loops = 0;
    macro->list = parse_body_to(p, end);
    macro->op = p->macro_names;
    p->n_loops = n_loops;
}

static mf_jnode *parse_macro(mf_jparser *p)
{
    int names = p->macro_names;
    p->macro_names = 0;
    mf_jnode *node = mf_j_node(p, MF_JN_MACRO);
    node->name = mf_j_want_name(p);
    node->otherwise = parse_parameters(p);
    parse_macro_body(p, node, "endmacro");
    p->macro_names |= names;
    return node;
}

static mf_jnode *parse_call_block(mf_jparser *p)
{
    static const mf_jstr caller = {.text = "caller", .n_bytes = 6};
    int names = p->macro_names;
    mf_jnode *node = mf_j_node(p, MF_JN_CALL_BLOCK), *macro = mf_j_node(p, MF_JN_MACRO);
    macro->name = &caller;
    p->macro_names = 0;
    if (mf_j_is_op(p, '('))
        macro->otherwise = parse_parameters(p);
    node->a = mf_j_parse_expression(p);
    if (node->a->kind != MF_JN_CALL)
        mf_j_expected(p, "a call before this");
    names |= p->macro_names;
    p->macro_names = 0;
    parse_macro_body(p, macro, "endcall");
    p->macro_names |= names;
    node->b = macro;
    return node;
}

static mf_jnode *parse_filter_block(mf_jparser *p)
{
    mf_jnode *node = mf_j_node(p, MF_JN_FILTER_BLOCK);
    node->a = mf_j_parse_filters(p, NULL, true);
    node->list = parse_body_to(p, "endfilter");
    return node;
}

/* {% generation %}: the assistant's part, which rendering alone does not need to know. */
static mf_jnode *parse_generation(mf_jparser *p)
{
    mf_jnode *node = mf_j_node(p, MF_JN_SCOPE);
    node->is_set = true;
    node->list = parse_body_to(p, "endgeneration");
    return node;
}

static mf_jnode *parse_print(mf_jparser *p)
{
    mf_jnodes outputs = {0};
    while (mf_j_ok(p->j) && p->at->kind != MF_JT_BLOCK_END) {
        if (outputs.first != NULL)
            mf_j_want_op(p, ',');
        mf_jnode *node = mf_j_node(p, MF_JN_OUTPUT);
        node->a = mf_j_parse_expression(p);
        mf_j_add_node(&outputs, node);
    }
    want_block_end(p);
    mf_jnode *scope = mf_j_node(p, MF_JN_SCOPE);
    scope->list = outputs.first;
    return scope;
}

static mf_jnode *parse_jump(mf_jparser *p, mf_jnode_kind kind)
{
    mf_jnode *node = mf_j_node(p, kind);
    if (p->n_loops == 0)
        mf_j_expected(p, "a loop around break and continue");
    want_block_end(p);
    return node;
}

static mf_jnode *parse_break(mf_jparser *p)
{
    return parse_jump(p, MF_JN_BREAK);
}

static mf_jnode *parse_continue(mf_jparser *p)
{
    return parse_jump(p, MF_JN_CONTINUE);
}

static const struct {
    const char *name;
    mf_jnode *(*parse)(mf_jparser *p); /* NULL: refused */
} statements[] = {
    {"for", parse_for},
    {"if", parse_if},
    {"set", parse_set},
    {"with", parse_with},
    {"macro", parse_macro},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"print", parse_print},
    {"generation", parse_generation},
    {"break", parse_break},
    {"continue", parse_continue},
    {"include", NULL},
    {"import", NULL},
    {"from", NULL},
    {"extends", NULL},
    {"block", NULL},
    {"autoescape", NULL},
};

/* The statement whose name stands there. */
static mf_jnode *parse_statement(mf_jparser *p)
{
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (!mf_j_is_name(p, statements[i].name))
            continue;
        if (statements[i].parse == NULL) {
            p->j->line = p->at->line;
            mf_j_fail(p->j, MF_ERR_UNSUPPORTED, "{%% %s %%} is not for chat templates",
                      statements[i].name);
            break;
        }
        mf_j_next(p);
        return statements[i].parse(p);
    }
    mf_j_expected(p, "a statement");
    return mf_j_node(p, MF_JN_TEXT);
}

static mf_jnode *parse_output(mf_jparser *p)
{
    mf_jnode *node = mf_j_node(p, MF_JN_OUTPUT);
    node->a = mf_j_parse_tuple(p, true, NULL);
    if (p->at->kind == MF_JT_VARIABLE_END)
        mf_j_next(p);
    else
        mf_j_expected(p, "the end of the tag");
    return node;
}

static mf_jnode *parse_data(mf_jparser *p)
{
    mf_jnode *node = mf_j_node(p, MF_JN_TEXT);
    node->value = mf_j_string(p->j, p->at->text, p->at->n_bytes);
    mf_j_next(p);
    return node;
}

static bool is_any(const mf_jparser *p, const char *const *names)
{
    for (; *names != NULL; names++)
        if (mf_j_is_name(p, *names))
            return true;
    return false;
}

/* ends NULL: up to the end of the template. */
static mf_jnode *parse_body(mf_jparser *p, const char *const *ends)
{
    mf_jnodes body = {0};
    if (!mf_j_enter(p->j))
        return NULL;
    bool is_over = false;
    while (mf_j_ok(p->j) && !is_over && p->at->kind != MF_JT_END) {
        if (p->at->kind == MF_JT_DATA) {
            mf_j_add_node(&body, parse_data(p));
        } else if (p->at->kind == MF_JT_VARIABLE_BEGIN) {
            mf_j_next(p);
            mf_j_add_node(&body, parse_output(p));
        } else {
            mf_j_next(p);
            is_over = ends != NULL && is_any(p, ends);
            if (!is_over)
                mf_j_add_node(&body, parse_statement(p));
        }
    }
    if (ends != NULL && !is_over)
        mf_j_expected(p, *ends);
    mf_j_leave(p->j);
    return body.first;
}

mf_jnode *mf_j_parse(mf_jrun *j, const char *text, size_t n_bytes)
{
    mf_jtokens tokens;
    mf_j_tokenize(j, text, n_bytes, &tokens);
    if (!mf_j_ok(j))
        return NULL;
    mf_jparser p = {.j = j, .at = tokens.tokens};
    mf_jnode *first = parse_body(&p, NULL);
    return mf_j_ok(j) ? first : NULL;
}

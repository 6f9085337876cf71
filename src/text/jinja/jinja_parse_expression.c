/* SPDX-License-Identifier: MIT */
/* Expressions, with the precedence and the odd corners of Jinja's parser. */
#include "text/jinja/jinja_parser.h"

#include "text/jinja/jinja_text.h"

#include <stdio.h>

static mf_jnode *parse_unary(mf_jparser *p, bool has_filters);
static mf_jnode *parse_postfix(mf_jparser *p, mf_jnode *node);

void mf_j_add_node(mf_jnodes *nodes, mf_jnode *node)
{
    if (nodes->last == NULL)
        nodes->last = &nodes->first;
    *nodes->last = node;
    nodes->last = &node->next;
}

mf_jnode *mf_j_node(mf_jparser *p, mf_jnode_kind kind)
{
    mf_jnode *node = mf_j_take(p->j, sizeof *node);
    if (node == NULL)
        node = &p->dropped;
    *node = (mf_jnode){.kind = (uint8_t)kind, .line = p->at->line};
    return node;
}

static void describe(const mf_jtoken *token, char out[64])
{
    switch (token->kind) {
    case MF_JT_NAME:
        snprintf(out, 64, "'%.*s'", token->n_bytes < 40 ? (int)token->n_bytes : 40, token->text);
        break;
    case MF_JT_OPERATOR:
        snprintf(out, 64, "'%c%c'", token->op & 0xFF, token->op >> 8 == 0 ? ' ' : token->op >> 8);
        if (token->op >> 8 == 0)
            snprintf(out, 64, "'%c'", token->op);
        break;
    case MF_JT_STRING:
    case MF_JT_NUMBER:
        snprintf(out, 64, "a value");
        break;
    case MF_JT_END:
        snprintf(out, 64, "the end of the template");
        break;
    default:
        snprintf(out, 64, "%s", token->kind == MF_JT_DATA ? "text" : "the end of the tag");
    }
}

void mf_j_expected(mf_jparser *p, const char *what)
{
    char got[64];
    if (!mf_j_ok(p->j))
        return;
    p->j->line = p->at->line;
    describe(p->at, got);
    mf_j_fail(p->j, MF_ERR_FORMAT, "expected %s, got %s", what, got);
}

void mf_j_next(mf_jparser *p)
{
    if (p->at->kind != MF_JT_END)
        p->at++;
}

bool mf_j_is_op(const mf_jparser *p, int op)
{
    return mf_j_ok(p->j) && p->at->kind == MF_JT_OPERATOR && p->at->op == op;
}

static bool is_word(const mf_jtoken *token, const char *name)
{
    return token->kind == MF_JT_NAME && token->n_bytes == strlen(name) &&
           memcmp(token->text, name, token->n_bytes) == 0;
}

bool mf_j_is_name(const mf_jparser *p, const char *name)
{
    return mf_j_ok(p->j) && is_word(p->at, name);
}

bool mf_j_skip_name(mf_jparser *p, const char *name)
{
    bool is_it = mf_j_is_name(p, name);
    if (is_it)
        mf_j_next(p);
    return is_it;
}

bool mf_j_skip_op(mf_jparser *p, int op)
{
    bool is_it = mf_j_is_op(p, op);
    if (is_it)
        mf_j_next(p);
    return is_it;
}

void mf_j_want_op(mf_jparser *p, int op)
{
    const char name[4] = {'\'', (char)op, '\'', '\0'};
    if (!mf_j_skip_op(p, op))
        mf_j_expected(p, name);
}

const mf_jstr *mf_j_want_name(mf_jparser *p)
{
    static const mf_jstr nothing = {.text = ""};
    if (p->at->kind != MF_JT_NAME) {
        mf_j_expected(p, "a name");
        return &nothing;
    }
    mf_jval name = mf_j_string(p->j, p->at->text, p->at->n_bytes);
    mf_j_next(p);
    return mf_j_ok(p->j) ? name.as.string : &nothing;
}

/* ---------------------------------------------------------------------------------- operands -- */

static mf_jnode *parse_name(mf_jparser *p)
{
    static const char *const macro_names[] = {"varargs", "kwargs", "caller"};
    bool is_true = mf_j_is_name(p, "true") || mf_j_is_name(p, "True");
    bool is_false = mf_j_is_name(p, "false") || mf_j_is_name(p, "False");
    bool is_none = mf_j_is_name(p, "none") || mf_j_is_name(p, "None");
    mf_jnode *node = mf_j_node(p, is_true || is_false || is_none ? MF_JN_CONST : MF_JN_NAME);
    for (int i = 0; i < 3; i++)
        if (mf_j_is_name(p, macro_names[i]))
            p->macro_names |= 1 << i;
    node->name = mf_j_want_name(p);
    node->value = is_none ? mf_j_none() : mf_j_bool(is_true);
    return node;
}

static mf_jnode *parse_strings(mf_jparser *p)
{
    mf_jnode *node = mf_j_node(p, MF_JN_CONST);
    node->value = p->at->value;
    mf_j_next(p);
    if (p->at->kind != MF_JT_STRING)
        return node;
    mf_jtext text = {.run = p->j};
    mf_j_put_str(&text, node->value);
    for (; p->at->kind == MF_JT_STRING; mf_j_next(p))
        mf_j_put_str(&text, p->at->value);
    node->value = mf_j_take_text(&text);
    return node;
}

static mf_jnode *parse_list(mf_jparser *p)
{
    mf_jnode *node = mf_j_node(p, MF_JN_LIST);
    mf_jnodes items = {0};
    mf_j_want_op(p, '[');
    while (mf_j_ok(p->j) && !mf_j_is_op(p, ']')) {
        if (items.first != NULL)
            mf_j_want_op(p, ',');
        if (mf_j_is_op(p, ']'))
            break;
        mf_j_add_node(&items, mf_j_parse_expression(p));
    }
    mf_j_want_op(p, ']');
    node->list = items.first;
    return node;
}

static mf_jnode *parse_dict(mf_jparser *p)
{
    mf_jnode *node = mf_j_node(p, MF_JN_DICT);
    mf_jnodes items = {0};
    mf_j_want_op(p, '{');
    while (mf_j_ok(p->j) && !mf_j_is_op(p, '}')) {
        if (items.first != NULL)
            mf_j_want_op(p, ',');
        if (mf_j_is_op(p, '}'))
            break;
        mf_j_add_node(&items, mf_j_parse_expression(p));
        mf_j_want_op(p, ':');
        mf_j_add_node(&items, mf_j_parse_expression(p));
    }
    mf_j_want_op(p, '}');
    node->list = items.first;
    return node;
}

static bool is_tuple_end(const mf_jparser *p, const char *end)
{
    return p->at->kind == MF_JT_VARIABLE_END || p->at->kind == MF_JT_BLOCK_END ||
           mf_j_is_op(p, ')') || (end != NULL && mf_j_is_name(p, end));
}

typedef enum tuple_kind { TUPLE_OPEN, TUPLE_PARENTHESES, TUPLE_TARGET, TUPLE_FIELDS } tuple_kind;

static mf_jnode *parse_or(mf_jparser *p);
static mf_jnode *parse_primary(mf_jparser *p);

static mf_jnode *parse_target_name(mf_jparser *p, bool has_fields)
{
    mf_jnode *node = parse_primary(p);
    if (has_fields && node->kind == MF_JN_NAME && mf_j_skip_op(p, '.')) {
        node->kind = MF_JN_NAMESPACE_FIELD;
        node->second = mf_j_want_name(p);
    }
    if (node->kind != MF_JN_NAME && node->kind != MF_JN_NAMESPACE_FIELD &&
        node->kind != MF_JN_TUPLE)
        mf_j_expected(p, "a name to assign to before this");
    return node;
}

static mf_jnode *parse_items(mf_jparser *p, tuple_kind kind, bool has_choice, const char *end)
{
    mf_jnode *node = mf_j_node(p, MF_JN_TUPLE);
    mf_jnodes items = {0};
    bool is_tuple = false;
    while (mf_j_ok(p->j)) {
        if (items.first != NULL)
            mf_j_want_op(p, ',');
        if (is_tuple_end(p, end))
            break;
        mf_j_add_node(&items, kind >= TUPLE_TARGET ? parse_target_name(p, kind == TUPLE_FIELDS)
                              : has_choice         ? mf_j_parse_expression(p)
                                                   : parse_or(p));
        if (!mf_j_is_op(p, ','))
            break;
        is_tuple = true;
    }
    if (!is_tuple && items.first != NULL)
        return items.first;
    if (items.first == NULL && kind != TUPLE_PARENTHESES)
        mf_j_expected(p, "an expression");
    node->list = items.first;
    return node;
}

mf_jnode *mf_j_parse_tuple(mf_jparser *p, bool has_choice, const char *end)
{
    return parse_items(p, TUPLE_OPEN, has_choice, end);
}

mf_jnode *mf_j_parse_target(mf_jparser *p, const char *end, bool has_fields)
{
    return parse_items(p, has_fields ? TUPLE_FIELDS : TUPLE_TARGET, true, end);
}

static mf_jnode *parse_primary(mf_jparser *p)
{
    if (!mf_j_enter(p->j))
        return mf_j_node(p, MF_JN_CONST);
    mf_jnode *node;
    if (p->at->kind == MF_JT_NAME) {
        node = parse_name(p);
    } else if (p->at->kind == MF_JT_STRING) {
        node = parse_strings(p);
    } else if (p->at->kind == MF_JT_NUMBER) {
        node = mf_j_node(p, MF_JN_CONST);
        node->value = p->at->value;
        mf_j_next(p);
    } else if (mf_j_skip_op(p, '(')) {
        node = parse_items(p, TUPLE_PARENTHESES, true, NULL);
        mf_j_want_op(p, ')');
    } else if (mf_j_is_op(p, '[')) {
        node = parse_list(p);
    } else if (mf_j_is_op(p, '{')) {
        node = parse_dict(p);
    } else {
        node = mf_j_node(p, MF_JN_CONST);
        mf_j_expected(p, "an expression");
    }
    mf_j_leave(p->j);
    return node;
}

/* ------------------------------------------------------------------------------------- calls -- */

static mf_jnode *parse_argument(mf_jparser *p)
{
    mf_jnode *node = mf_j_node(p, MF_JN_ARGUMENT);
    if (mf_j_skip_op(p, '*')) {
        node->op = '*';
    } else if (mf_j_skip_op(p, MF_JOP('*', '*'))) {
        node->op = MF_JOP('*', '*');
    } else if (p->at->kind == MF_JT_NAME && p->at[1].kind == MF_JT_OPERATOR && p->at[1].op == '=') {
        node->op = '=';
        node->name = mf_j_want_name(p);
        mf_j_next(p);
    }
    node->a = mf_j_parse_expression(p);
    return node;
}

/* "(...)": arguments, in the order that calls have. */
static mf_jnode *parse_arguments(mf_jparser *p)
{
    mf_jnodes arguments = {0};
    int last = 0; /* how far in the order: 0 plain, 1 named, 2 *, 3 ** */
    mf_j_want_op(p, '(');
    while (mf_j_ok(p->j) && !mf_j_is_op(p, ')')) {
        if (arguments.first != NULL)
            mf_j_want_op(p, ',');
        if (mf_j_is_op(p, ')'))
            break;
        mf_jnode *node = parse_argument(p);
        int place = node->op == 0 ? 0 : node->op == '=' ? 1 : node->op == '*' ? 2 : 3;
        bool is_late = place == 0 ? last > 0 : place == 1 ? last > 2 : last >= place;
        if (is_late && mf_j_ok(p->j))
            mf_j_expected(p, "another order of the arguments before this");
        last = place > last ? place : last;
        mf_j_add_node(&arguments, node);
    }
    mf_j_want_op(p, ')');
    return arguments.first;
}

static mf_jnode *parse_call(mf_jparser *p, mf_jnode *callee)
{
    mf_jnode *node = mf_j_node(p, MF_JN_CALL);
    node->a = callee;
    node->list = parse_arguments(p);
    return node;
}

/* A name with dots, as filters and tests may have. */
static const mf_jstr *parse_dotted_name(mf_jparser *p)
{
    const char *start = p->at->text;
    const mf_jstr *name = mf_j_want_name(p);
    if (!mf_j_is_op(p, '.'))
        return name;
    while (mf_j_skip_op(p, '.'))
        mf_j_want_name(p);
    if (!mf_j_ok(p->j))
        return name;
    mf_jval whole = mf_j_string(p->j, start, (size_t)(p->at[-1].text + p->at[-1].n_bytes - start));
    return mf_j_ok(p->j) ? whole.as.string : name;
}

mf_jnode *mf_j_parse_filters(mf_jparser *p, mf_jnode *input, bool start)
{
    while (start || mf_j_is_op(p, '|')) {
        if (!start)
            mf_j_next(p);
        mf_jnode *node = mf_j_node(p, MF_JN_FILTER);
        node->name = parse_dotted_name(p);
        if (mf_j_is_op(p, '('))
            node->list = parse_arguments(p);
        node->a = input;
        input = node;
        start = false;
    }
    return input;
}

/* Whether a test's argument stands there without parentheses. */
static bool is_test_argument(mf_jparser *p)
{
    switch (p->at->kind) {
    case MF_JT_NAME:
        if (mf_j_is_name(p, "is"))
            mf_j_expected(p, "no second test");
        return mf_j_ok(p->j) && !mf_j_is_name(p, "else") && !mf_j_is_name(p, "or") &&
               !mf_j_is_name(p, "and");
    case MF_JT_STRING:
    case MF_JT_NUMBER:
        return true;
    default:
        return mf_j_is_op(p, '[') || mf_j_is_op(p, '{');
    }
}

static mf_jnode *parse_test(mf_jparser *p, mf_jnode *value)
{
    mf_j_next(p);
    bool is_negated = mf_j_skip_name(p, "not");
    mf_jnode *node = mf_j_node(p, MF_JN_TEST);
    node->a = value;
    node->name = parse_dotted_name(p);
    if (mf_j_is_op(p, '(')) {
        node->list = parse_arguments(p);
    } else if (is_test_argument(p)) {
        node->list = mf_j_node(p, MF_JN_ARGUMENT);
        node->list->a = parse_postfix(p, parse_primary(p));
    }
    if (!is_negated)
        return node;
    mf_jnode *negated = mf_j_node(p, MF_JN_NOT);
    negated->a = node;
    return negated;
}

/* -------------------------------------------------------------------------------- operators -- */

static mf_jnode *parse_part_of_slice(mf_jparser *p)
{
    bool is_there = !mf_j_is_op(p, ':') && !mf_j_is_op(p, ']') && !mf_j_is_op(p, ',');
    return is_there ? mf_j_parse_expression(p) : NULL;
}

static mf_jnode *parse_subscribed(mf_jparser *p)
{
    mf_jnode *first = mf_j_is_op(p, ':') ? NULL : mf_j_parse_expression(p);
    if (!mf_j_is_op(p, ':'))
        return first == NULL ? mf_j_node(p, MF_JN_CONST) : first;
    mf_jnode *slice = mf_j_node(p, MF_JN_SLICE);
    mf_j_next(p);
    slice->a = first;
    slice->b = parse_part_of_slice(p);
    if (mf_j_skip_op(p, ':'))
        slice->c = parse_part_of_slice(p);
    return slice;
}

static mf_jnode *parse_subscript(mf_jparser *p, mf_jnode *whole)
{
    mf_jnode *node = mf_j_node(p, MF_JN_ITEM);
    node->a = whole;
    if (mf_j_skip_op(p, '.')) {
        if (p->at->kind == MF_JT_NUMBER && p->at->value.kind == MF_J_INT) {
            node->b = parse_primary(p);
        } else {
            node->kind = MF_JN_FIELD;
            node->name = mf_j_want_name(p);
        }
        return node;
    }
    mf_jnodes items = {0};
    mf_j_want_op(p, '[');
    while (mf_j_ok(p->j) && !mf_j_is_op(p, ']')) {
        if (items.first != NULL)
            mf_j_want_op(p, ',');
        mf_j_add_node(&items, parse_subscribed(p));
    }
    mf_j_want_op(p, ']');
    if (items.first != NULL && items.first->next == NULL) {
        node->b = items.first;
        return node;
    }
    node->b = mf_j_node(p, MF_JN_TUPLE);
    node->b->list = items.first;
    return node;
}

static mf_jnode *parse_postfix(mf_jparser *p, mf_jnode *node)
{
    for (;;) {
        if (mf_j_is_op(p, '.') || mf_j_is_op(p, '['))
            node = parse_subscript(p, node);
        else if (mf_j_is_op(p, '('))
            node = parse_call(p, node);
        else
            return node;
    }
}

static mf_jnode *parse_filter_expression(mf_jparser *p, mf_jnode *node)
{
    for (;;) {
        if (mf_j_is_op(p, '|'))
            node = mf_j_parse_filters(p, node, false);
        else if (mf_j_is_name(p, "is"))
            node = parse_test(p, node);
        else if (mf_j_is_op(p, '('))
            node = parse_call(p, node);
        else
            return node;
    }
}

static mf_jnode *parse_unary(mf_jparser *p, bool has_filters)
{
    mf_jnode *node;
    if (!mf_j_enter(p->j))
        return mf_j_node(p, MF_JN_CONST);
    if (mf_j_is_op(p, '-') || mf_j_is_op(p, '+')) {
        node = mf_j_node(p, MF_JN_UNARY);
        node->op = p->at->op;
        mf_j_next(p);
        node->a = parse_unary(p, false);
    } else {
        node = parse_primary(p);
    }
    node = parse_postfix(p, node);
    if (has_filters)
        node = parse_filter_expression(p, node);
    mf_j_leave(p->j);
    return node;
}

/* The levels of binary operators, loosest first. */
static const int levels[4][5] = {
    {'+', '-', 0}, {'~', 0}, {'*', '/', MF_JOP('/', '/'), '%', 0}, {MF_JOP('*', '*'), 0}};

static mf_jnode *parse_level(mf_jparser *p, int level);

static mf_jnode *parse_concat(mf_jparser *p, mf_jnode *first)
{
    mf_jnode *node = mf_j_node(p, MF_JN_CONCAT);
    mf_jnodes parts = {0};
    mf_j_add_node(&parts, first);
    while (mf_j_skip_op(p, '~'))
        mf_j_add_node(&parts, parse_level(p, 2));
    node->list = parts.first;
    return node;
}

static bool is_of_level(const mf_jparser *p, int level)
{
    for (const int *op = levels[level]; *op != 0; op++)
        if (mf_j_is_op(p, *op))
            return true;
    return false;
}

static mf_jnode *parse_level(mf_jparser *p, int level)
{
    mf_jnode *left = level == 3 ? parse_unary(p, true) : parse_level(p, level + 1);
    if (level == 1)
        return mf_j_is_op(p, '~') ? parse_concat(p, left) : left;
    while (is_of_level(p, level)) {
        mf_jnode *node = mf_j_node(p, MF_JN_BINARY);
        node->op = p->at->op;
        mf_j_next(p);
        node->a = left;
        node->b = level == 3 ? parse_unary(p, true) : parse_level(p, level + 1);
        left = node;
    }
    return left;
}

/* The comparison that stands there, taken; 0: none. */
static int skip_comparison(mf_jparser *p)
{
    static const int ops[] = {MF_JOP('=', '='), MF_JOP('!', '='), '<', '>',
                              MF_JOP('<', '='), MF_JOP('>', '=')};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (mf_j_skip_op(p, ops[i]))
            return ops[i];
    if (mf_j_skip_name(p, "in"))
        return 'i';
    if (mf_j_is_name(p, "not") && is_word(p->at + 1, "in")) {
        mf_j_next(p);
        mf_j_next(p);
        return 'n';
    }
    return 0;
}

static mf_jnode *parse_comparison(mf_jparser *p)
{
    mf_jnode *first = parse_level(p, 0);
    mf_jnodes operands = {0};
    for (int op; (op = skip_comparison(p)) != 0;) {
        mf_jnode *operand = mf_j_node(p, MF_JN_OPERAND);
        operand->op = op;
        operand->a = parse_level(p, 0);
        mf_j_add_node(&operands, operand);
    }
    if (operands.first == NULL)
        return first;
    mf_jnode *node = mf_j_node(p, MF_JN_COMPARE);
    node->a = first;
    node->list = operands.first;
    return node;
}

/* What Jinja computes before it renders, as far as it matters to what it drops then. */
static bool is_constant(const mf_jnode *node)
{
    return node->kind == MF_JN_CONST ||
           ((node->kind == MF_JN_AND || node->kind == MF_JN_OR || node->kind == MF_JN_NOT) &&
            node->is_set);
}

static mf_jnode *parse_not(mf_jparser *p)
{
    if (!mf_j_is_name(p, "not"))
        return parse_comparison(p);
    mf_jnode *node = mf_j_node(p, MF_JN_NOT);
    if (!mf_j_enter(p->j))
        return node;
    mf_j_next(p);
    node->a = parse_not(p);
    node->is_set = is_constant(node->a);
    mf_j_leave(p->j);
    return node;
}

static mf_jnode *join(mf_jparser *p, mf_jnode_kind kind, mf_jnode *a, mf_jnode *b)
{
    mf_jnode *node = mf_j_node(p, kind);
    node->a = a;
    node->b = b;
    node->is_set = a != NULL && is_constant(a);
    return node;
}

static mf_jnode *parse_and(mf_jparser *p)
{
    mf_jnode *left = parse_not(p);
    while (mf_j_skip_name(p, "and"))
        left = join(p, MF_JN_AND, left, parse_not(p));
    return left;
}

static mf_jnode *parse_or(mf_jparser *p)
{
    mf_jnode *left = parse_and(p);
    while (mf_j_skip_name(p, "or"))
        left = join(p, MF_JN_OR, left, parse_and(p));
    return left;
}

mf_jnode *mf_j_parse_expression(mf_jparser *p)
{
    if (!mf_j_enter(p->j))
        return mf_j_node(p, MF_JN_CONST);
    mf_jnode *node = parse_or(p);
    while (mf_j_skip_name(p, "if")) {
        node = join(p, MF_JN_CHOICE, NULL, node);
        node->a = parse_or(p);
        if (mf_j_skip_name(p, "else"))
            node->c = mf_j_parse_expression(p);
    }
    mf_j_leave(p->j);
    return node;
}

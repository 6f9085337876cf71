/* SPDX-License-Identifier: MIT */
/* Expressions. */
#include "text/jinja/jinja_eval.h"

#include <stdio.h>

mf_jval mf_j_lookup(mf_jrun *j, const mf_jstr *name)
{
    mf_j_spend(j, MF_J_WALKED(name->n_bytes));
    for (const mf_jscope *scope = j->scope; scope != NULL; scope = scope->parent) {
        mf_j_spend(j, MF_J_LOOKED_UP(scope->n_bindings));
        for (size_t i = scope->n_bindings; i-- > 0;)
            if (scope->bindings[i].name->n_bytes == name->n_bytes &&
                memcmp(scope->bindings[i].name->text, name->text, name->n_bytes) == 0)
                return scope->bindings[i].value;
    }
    const mf_jval *given = mf_j_find_text(j->context, name->text, name->n_bytes);
    if (given != NULL)
        return *given;
    const mf_jbuiltin *builtin = mf_j_find_builtin(mf_j_globals, name);
    return builtin != NULL ? mf_j_bound(j, builtin, mf_j_none()) : mf_j_undefined(name);
}

static mf_jval eval_items(mf_jrun *j, const mf_jnode *node, mf_jflavour flavour)
{
    mf_jval list = mf_j_list(j, flavour);
    for (const mf_jnode *item = node->list; item != NULL && mf_j_ok(j); item = item->next)
        mf_j_push(j, list, mf_j_eval(j, item));
    return list;
}

static mf_jval eval_dict(mf_jrun *j, const mf_jnode *node)
{
    mf_jval dict = mf_j_dict(j);
    for (const mf_jnode *key = node->list; key != NULL && mf_j_ok(j); key = key->next->next) {
        mf_jval name = mf_j_eval(j, key);
        mf_j_put(j, dict, name, mf_j_eval(j, key->next));
    }
    return dict;
}

static mf_jval eval_or_none(mf_jrun *j, const mf_jnode *node)
{
    return node == NULL ? mf_j_none() : mf_j_eval(j, node);
}

static mf_jval eval_item(mf_jrun *j, const mf_jnode *node)
{
    mf_jval whole = mf_j_eval(j, node->a);
    if (node->b->kind != MF_JN_SLICE)
        return mf_j_get_item(j, whole, mf_j_eval(j, node->b));
    const mf_jval bounds[3] = {eval_or_none(j, node->b->a), eval_or_none(j, node->b->b),
                               eval_or_none(j, node->b->c)};
    return mf_j_get_slice(j, whole, bounds);
}

/* ------------------------------------------------------------------------------------- calls -- */

static void add_named(mf_jrun *j, mf_jarguments *arguments, mf_jval name, mf_jval value)
{
    if (arguments->named.kind == MF_J_MISSING)
        arguments->named = mf_j_dict(j);
    mf_j_put(j, arguments->named, name, value);
}

static void add_all_named(mf_jrun *j, mf_jarguments *arguments, mf_jval values)
{
    if (values.kind != MF_J_DICT) {
        mf_j_fail_type(j, "**", values);
        return;
    }
    for (size_t i = 0; i < values.as.dict->n_entries && mf_j_ok(j); i++)
        add_named(j, arguments, values.as.dict->entries[i].key, values.as.dict->entries[i].value);
}

static mf_jarguments eval_arguments(mf_jrun *j, const mf_jnode *first)
{
    mf_jarguments arguments = {.plain = mf_j_list(j, MF_J_PLAIN)};
    for (const mf_jnode *node = first; node != NULL && mf_j_ok(j); node = node->next) {
        mf_jval value = mf_j_eval(j, node->a);
        if (node->op == '=') {
            const mf_jval name = {.kind = MF_J_STRING, .as.string = node->name};
            add_named(j, &arguments, name, value);
        } else if (node->op == '*') {
            const mf_jlist *items = mf_j_items(j, value);
            for (size_t i = 0; i < items->n_items && mf_j_ok(j); i++)
                mf_j_push(j, arguments.plain, items->items[i]);
        } else if (node->op != 0) {
            add_all_named(j, &arguments, value);
        } else {
            mf_j_push(j, arguments.plain, value);
        }
    }
    return arguments;
}

mf_jarguments mf_j_rest(mf_jrun *j, const mf_jarguments *arguments, size_t n)
{
    mf_jarguments rest = {.plain = mf_j_list(j, MF_J_PLAIN), .named = arguments->named};
    const mf_jlist *all = arguments->plain.as.list;
    for (size_t i = n; i < all->n_items && mf_j_ok(j); i++)
        mf_j_push(j, rest.plain, all->items[i]);
    return rest;
}

mf_jval mf_j_call(mf_jrun *j, mf_jval callee, const mf_jarguments *arguments)
{
    mf_jval result = mf_j_undefined(NULL);
    if (!mf_j_enter(j))
        return result;
    if (callee.kind == MF_J_BUILTIN)
        result = mf_j_call_builtin(j, callee.as.bound->what, callee.as.bound->self, arguments);
    else if (callee.kind == MF_J_MACRO)
        result = mf_j_call_macro(j, callee.as.macro, arguments);
    else if (callee.kind == MF_J_LOOP)
        result = mf_j_call_loop(j, callee.as.loop, arguments);
    else if (callee.kind == MF_J_CYCLER && callee.as.cycler->is_joiner)
        result = callee.as.cycler->at++ == 0 ? mf_j_text(j, "") : callee.as.cycler->items->items[0];
    else if (callee.kind == MF_J_UNDEFINED)
        mf_j_fail_type(j, "a call", callee);
    else
        mf_j_fail(j, MF_ERR_ARGUMENT, "'%s' object is not callable", mf_j_type_name(callee));
    mf_j_leave(j);
    return result;
}

static mf_jval eval_call(mf_jrun *j, const mf_jnode *node, mf_jval caller)
{
    mf_jval callee = mf_j_eval(j, node->a);
    mf_jarguments arguments = eval_arguments(j, node->list);
    arguments.caller = caller;
    if (!mf_j_ok(j))
        return mf_j_undefined(NULL);
    j->line = node->line;
    return mf_j_call(j, callee, &arguments);
}

mf_jval mf_j_fail_name(mf_jrun *j, const char *kind, const mf_jstr *name)
{
    return mf_j_fail(j, MF_ERR_UNSUPPORTED, "no %s named '%.*s'", kind,
                     name->n_bytes < 60 ? (int)name->n_bytes : 60, name->text);
}

mf_jval mf_j_apply_filter(mf_jrun *j, const mf_jstr *name, mf_jval value,
                          const mf_jarguments *arguments)
{
    const mf_jbuiltin *filter = mf_j_find_filter(name);
    if (filter == NULL)
        return mf_j_fail_name(j, "filter", name);
    return mf_j_call_builtin(j, filter, value, arguments);
}

bool mf_j_apply_test(mf_jrun *j, const mf_jstr *name, mf_jval value, const mf_jarguments *arguments)
{
    const mf_jbuiltin *test = mf_j_find_test(name);
    if (test == NULL) {
        mf_j_fail_name(j, "test", name);
        return false;
    }
    return mf_j_truth(mf_j_call_builtin(j, test, value, arguments));
}

static mf_jval eval_filter(mf_jrun *j, const mf_jnode *node)
{
    mf_jval value = node->a == NULL ? j->block_input : mf_j_eval(j, node->a);
    const mf_jarguments arguments = eval_arguments(j, node->list);
    j->line = node->line;
    return mf_j_ok(j) ? mf_j_apply_filter(j, node->name, value, &arguments) : mf_j_undefined(NULL);
}

static mf_jval eval_test(mf_jrun *j, const mf_jnode *node)
{
    mf_jval value = mf_j_eval(j, node->a);
    const mf_jarguments arguments = eval_arguments(j, node->list);
    j->line = node->line;
    return mf_j_bool(mf_j_ok(j) && mf_j_apply_test(j, node->name, value, &arguments));
}

/* -------------------------------------------------------------------------------- operators -- */

static bool holds(mf_jrun *j, int op, mf_jval a, mf_jval b)
{
    switch (op) {
    case MF_JOP('=', '='):
        return mf_j_equal(j, a, b);
    case MF_JOP('!', '='):
        return !mf_j_equal(j, a, b);
    case 'i':
        return mf_j_contains(j, b, a);
    case 'n':
        return !mf_j_contains(j, b, a);
    default:
        break;
    }
    if ((a.kind == MF_J_FLOAT && a.as.real != a.as.real) ||
        (b.kind == MF_J_FLOAT && b.as.real != b.as.real))
        return false;
    int order = mf_j_compare(j, a, b);
    switch (op) {
    case '<':
        return order < 0;
    case '>':
        return order > 0;
    case MF_JOP('<', '='):
        return order <= 0;
    default:
        return order >= 0;
    }
}

static mf_jval eval_comparison(mf_jrun *j, const mf_jnode *node)
{
    mf_jval left = mf_j_eval(j, node->a);
    for (const mf_jnode *operand = node->list; operand != NULL; operand = operand->next) {
        mf_jval right = mf_j_eval(j, operand->a);
        if (!mf_j_ok(j) || !holds(j, operand->op, left, right))
            return mf_j_bool(false);
        left = right;
    }
    return mf_j_bool(true);
}

static mf_jval eval_concat(mf_jrun *j, const mf_jnode *node)
{
    mf_jval result = mf_j_str(j, mf_j_eval(j, node->list));
    for (const mf_jnode *part = node->list->next; part != NULL && mf_j_ok(j); part = part->next) {
        mf_jval next = mf_j_str(j, mf_j_eval(j, part));
        if (!mf_j_ok(j))
            break;
        mf_jstr left = *result.as.string, right = *next.as.string;
        left.is_markup = right.is_markup = false;
        result = j->tail_string == result.as.string ? mf_j_concat(j, result.as.string, &right)
                                                    : mf_j_concat(j, &left, &right);
    }
    return result;
}

static mf_jval eval_choice(mf_jrun *j, const mf_jnode *node)
{
    static const mf_jstr name = {.text = "the inline if-expression without else", .n_bytes = 37};
    if (mf_j_truth(mf_j_eval(j, node->a)))
        return mf_j_eval(j, node->b);
    return node->c == NULL ? mf_j_undefined(&name) : mf_j_eval(j, node->c);
}

static mf_jval eval_logic(mf_jrun *j, const mf_jnode *node)
{
    mf_jval left = mf_j_eval(j, node->a);
    bool is_decided = mf_j_truth(left) == (node->kind == MF_JN_OR);
    return is_decided ? left : mf_j_eval(j, node->b);
}

static mf_jval eval_operator(mf_jrun *j, const mf_jnode *node)
{
    mf_jval a = mf_j_eval(j, node->a), b = mf_j_none();
    if (node->kind == MF_JN_BINARY)
        b = mf_j_eval(j, node->b);
    j->line = node->line;
    if (!mf_j_ok(j))
        return a;
    return node->kind == MF_JN_BINARY ? mf_j_binary(j, node->op, a, b) : mf_j_unary(j, node->op, a);
}

static mf_jval eval_field(mf_jrun *j, const mf_jnode *node)
{
    mf_jval whole = mf_j_eval(j, node->a);
    j->line = node->line;
    return mf_j_ok(j) ? mf_j_get_field(j, whole, node->name) : whole;
}

static mf_jval eval_compound(mf_jrun *j, const mf_jnode *node)
{
    switch (node->kind) {
    case MF_JN_FIELD:
        return eval_field(j, node);
    case MF_JN_ITEM:
        return eval_item(j, node);
    case MF_JN_CALL:
        return eval_call(j, node, (mf_jval){0});
    case MF_JN_CALL_BLOCK:
        return eval_call(j, node->a, mf_j_make_macro(j, node->b));
    case MF_JN_FILTER:
        return eval_filter(j, node);
    case MF_JN_TEST:
        return eval_test(j, node);
    case MF_JN_CHOICE:
        return eval_choice(j, node);
    case MF_JN_AND:
    case MF_JN_OR:
        return eval_logic(j, node);
    case MF_JN_NOT:
        return mf_j_bool(!mf_j_truth(mf_j_eval(j, node->a)));
    case MF_JN_UNARY:
    case MF_JN_BINARY:
        return eval_operator(j, node);
    case MF_JN_COMPARE:
        return eval_comparison(j, node);
    case MF_JN_CONCAT:
        return eval_concat(j, node);
    default:
        return mf_j_fail(j, MF_ERR_FORMAT, "not an expression");
    }
}

mf_jval mf_j_eval(mf_jrun *j, const mf_jnode *node)
{
    mf_jval value = mf_j_undefined(NULL);
    if (!mf_j_enter(j))
        return value;
    j->line = node->line;
    switch (node->kind) {
    case MF_JN_CONST:
        value = node->value;
        break;
    case MF_JN_NAME:
        value = mf_j_lookup(j, node->name);
        break;
    case MF_JN_TUPLE:
        value = eval_items(j, node, MF_J_TUPLE);
        break;
    case MF_JN_LIST:
        value = eval_items(j, node, MF_J_PLAIN);
        break;
    case MF_JN_DICT:
        value = eval_dict(j, node);
        break;
    default:
        value = eval_compound(j, node);
    }
    mf_j_leave(j);
    return mf_j_ok(j) ? value : mf_j_undefined(NULL);
}
